"""One chain of one algorithm, without PyMC around it.

:func:`run_chain` makes the chain by :mod:`pymc_kameleon.samplers.chain`, as
:class:`pymc_kameleon.steps.KernelStep` does on a log density without noise, so that what is measured here is what a
user gets.

``python -m benchmarks.core_check`` checks that against ``pm.sample``.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.basics import generators
from pymc_kameleon.diagnostics import CountingLogDensity
from pymc_kameleon.samplers.chain import evaluation, freeze, transition
from pymc_kameleon.samplers.seam import Point, Sampler
from pymc_kameleon.targets import Target


class Chain(NamedTuple):
    """One chain.

    Attributes
    ----------
    draws : ndarray of shape (n, d)
        After tuning.
    acceptance : float
        Mean acceptance probability of those draws.
    evaluations : int
        Log-density evaluations in all: start, tuning and draws.
    tuning_seconds, seconds : float
        Processor time of tuning and of the draws.
    state : tuple
        The algorithm's, at the end.
    """

    draws: np.ndarray
    acceptance: float
    evaluations: int
    tuning_seconds: float
    seconds: float
    state: Any


class Chains(NamedTuple):
    """Independent chains of one algorithm, stacked: every attribute of :class:`Chain` by chain."""

    draws: np.ndarray  # (chains, n, d)
    acceptance: np.ndarray  # (chains,)
    evaluations: np.ndarray
    tuning_seconds: np.ndarray
    seconds: np.ndarray
    states: list


class Walk:
    """The current point, the retained log density there, and the sampler's state."""

    def __init__(self, algorithm, log_density, x, rng, options):
        self.sampler = algorithm(**options)
        self.log_density, self.rng, self.tune = log_density, rng, options.get("tune")
        self.evaluate = evaluation(log_density)
        self.here = Point(x, log_density(x))
        self.state = self.sampler.place(self.sampler.init(rng, x), self.here)

    def freeze(self):
        """End tuning."""
        self.state = freeze(self.sampler, self.here, self.state)

    def step(self, tuning):
        """One draw; returns its acceptance probability."""
        self.here, self.state, _, _, probability, _ = transition(
            self.rng, self.sampler, self.here, self.state, self.evaluate, tuning=tuning
        )
        return probability


def run_chain(
    algorithm: Callable[..., Sampler],
    log_density: Callable[[np.ndarray], float],
    x: np.ndarray,
    rng: np.random.Generator,
    *,
    tune: int,
    draws: int,
    walk: type[Walk] = Walk,
    **options: Any,
) -> Chain:
    """Run ``algorithm`` from ``x`` of shape (d,) for ``tune`` adaptive draws and ``draws`` frozen ones.

    Parameters
    ----------
    algorithm : type
        The sampler's class, or what else makes a sampler of options.
    log_density : callable
        From a point to a float.
    walk : type, default Walk
        The chain's life; :class:`benchmarks.arriving.ArrivingWalk` has an arrival before it.
    options
        The algorithm's.
    """
    log_density = CountingLogDensity(log_density)
    chain = walk(algorithm, log_density, np.array(x, dtype=float), rng, options)
    begin = time.process_time()
    for _ in range(tune):
        chain.step(tuning=True)
    chain.freeze()
    half_time = time.process_time()
    kept, probability = np.empty((draws, len(x))), 0.0
    for n in range(draws):
        probability += chain.step(tuning=False)
        kept[n] = chain.here.position
    end = time.process_time()
    acceptance = probability / max(draws, 1)
    seconds = half_time - begin, end - half_time
    return Chain(kept, acceptance, log_density.evaluations, *seconds, chain.state)


def run_chains(
    algorithm: Callable[..., Sampler],
    target: Target,
    *,
    chains: int,
    tune: int,
    draws: int,
    seed: int,
    starts: np.ndarray | None = None,
    **options: Any,
) -> Chains:
    """Independent chains, from the target's initial point or from ``starts`` of shape (chains, d)."""
    if starts is None:
        starts = np.tile(target.initial_point, (chains, 1))
    return stack(
        [
            run_chain(
                algorithm, target.numba_log_density, x, rng, tune=tune, draws=draws, **options
            )
            for x, rng in zip(starts, generators(seed, chains), strict=True)
        ]
    )


def stack(chains: list[Chain]) -> Chains:
    """Chains that were run one at a time."""
    *arrays, states = zip(*chains, strict=True)
    return Chains(*map(np.array, arrays), list(states))
