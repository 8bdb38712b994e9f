"""One module for each package, imported when its sampler is run.

Each sampler is a function of a :class:`Task`, which returns what one run gave: a chain, or one set of walkers, of
particles or of live points, with its own budget of evaluations.
"""

from typing import NamedTuple

import numpy as np

from benchmarks.peers.counting import Counted, StoppedError
from benchmarks.peers.targets import Problem


class Task(NamedTuple):
    """One run: of what, with which log density, from which streams."""

    problem: Problem
    log_density: Counted
    budget: int
    seed: int
    run: int

    @property
    def rng(self) -> np.random.Generator:
        """For the sampler; noise has another one."""
        return np.random.default_rng([self.seed, self.run, self.budget, 7])

    @property
    def number(self) -> int:
        """For samplers that take an integer."""
        return 1000 * self.seed + 10 * self.run + 1

    def starts(self, n: int) -> np.ndarray:
        """Shape (n, d)."""
        return self.problem.starts(self.seed, self.run, n)


class Draws(NamedTuple):
    """What a run gave.

    Attributes
    ----------
    values : ndarray of shape (chains, n, d)
        Chains or walkers; one where there are none, as of particles.
    weights : ndarray of shape (n,), optional
        Of weighted draws, of one "chain".
    kind : {"chains", "particles", "approximation"}
        Particles are in no order; draws of an approximation, which is no posterior, are as many as one likes.
    note : str
        What a reader should know, such as a setting that depends on the budget.
    """

    values: np.ndarray
    weights: np.ndarray | None = None
    kind: str = "chains"
    note: str = ""


class CannotRunError(Exception):
    """A sampler does not do this, in words."""


def walk(log_density: Counted, step, point, ravel) -> np.ndarray:
    """Draws (n, d) of a step of PyMC's kind, until the budget is spent; tuning ends when half of it is."""
    draws, tuning = [], True
    with np.errstate(all="ignore"):  # exp of a large log ratio, for a statistic
        try:
            for _ in range(4 * log_density.limit):  # draws outside the support cost nothing
                if tuning and log_density.half_spent:
                    step.stop_tuning()
                    tuning = False
                point, _ = step.step(point)
                if not tuning:
                    draws.append(ravel(point))
        except StoppedError:
            pass
    return np.array(draws or [ravel(point)])
