"""Other people's samplers, as functions of a :class:`Task` that return :class:`Draws`; each run has its own budget.

They take a problem with ``dim``, ``start(seed, run)`` and, where they sample from a prior, ``log_prior``,
``prior_model``, ``from_values`` and ``of_trace``: :class:`benchmarks.targets.Boxed`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from benchmarks.basics import Counted


class Task(NamedTuple):
    """One run: of what, with which log density, from which streams."""

    problem: Any
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

    @property
    def start(self) -> np.ndarray:
        """Shape (d,)."""
        return self.problem.start(self.seed, self.run)

    def log_likelihood(self, x: np.ndarray) -> float:
        """Finite: packages refuse -inf in places."""
        value = self.log_density(x) - self.problem.log_prior(x)
        return value if np.isfinite(value) else -1e300


class Draws(NamedTuple):
    """What a run gave."""

    values: np.ndarray  # (chains, n, d): chains or walkers; one where there are none, as of particles
    kind: str = "chains"  # or "particles", which are in no order
    note: str = ""  # what a reader should know, such as a setting that depends on the budget
    seconds: float = math.nan  # of computing, nothing compiled, the log density included; where it is known

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd, shape (d,) each."""
        return self.values.mean(axis=(0, 1)), self.values.std(axis=(0, 1))

    def distinct(self) -> int:
        """Different draws: what particles can count for at most."""
        return len(np.unique(self.values.reshape(-1, self.values.shape[-1]), axis=0))


class CannotRunError(Exception):
    """A sampler does not do this, in words."""
