"""One chain of one algorithm, without PyMC around it.

:func:`run_chain` drives the chain's :mod:`pymc_kameleon.samplers.life`, as :class:`pymc_kameleon.steps.KernelStep` does
on a log density without noise, so that what is measured here is what a user gets.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measures import CountingLogDensity
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.arrival.state import default_budget
from pymc_kameleon.samplers.chain import Evaluate, evaluation
from pymc_kameleon.samplers.life import LOOKS, Density, Life
from pymc_kameleon.samplers.seam import Point, Sampler


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


def born(
    sampler: Sampler,
    log_density: Callable[[np.ndarray], float],
    x: np.ndarray,
    rng: np.random.Generator,
    *,
    arrives: bool = False,
) -> tuple[Life, Evaluate]:
    """A chain's life at ``x`` of shape (d,), and what evaluates its proposals.

    ``arrives``: it climbs first, and looks elsewhere, as with the steps' option ``arrival``; in units of 1, around
    ``x``, where they take the prior's.
    """
    life = Life(sampler, Density(len(x)), rng)
    here = Point(x, log_density(x))

    def stage():
        if not arrives:
            return None
        budget, tune = default_budget(len(x)), getattr(sampler, "tune", None)
        if tune is not None:
            budget = max(1, min(budget, int(0.4 * tune)))
        looks = x + 2.0 * rng.uniform(-1.0, 1.0, (LOOKS, len(x)))
        return search.init(x, here.log_density, scale=1.0, budget=budget, looks=looks)

    life.put(here, stage)
    return life, evaluation(log_density)


def run_chain(
    algorithm: Callable[..., Sampler],
    log_density: Callable[[np.ndarray], float],
    x: np.ndarray,
    rng: np.random.Generator,
    *,
    tune: int,
    draws: int,
    arrives: bool = False,
    **options: Any,
) -> Chain:
    """Run ``algorithm`` from ``x`` of shape (d,) for ``tune`` adaptive draws and ``draws`` frozen ones.

    Parameters
    ----------
    algorithm : type
        The sampler's class, or what else makes a sampler of options.
    log_density : callable
        From a point to a float.
    arrives : bool
        See :func:`born`.
    options
        The algorithm's.
    """
    log_density = CountingLogDensity(log_density)
    life, evaluate = born(algorithm(**options), log_density, np.array(x, dtype=float), rng, arrives=arrives)
    begin = time.process_time()
    for _ in range(tune):
        life.draw(evaluate)
    life.freeze()
    half_time = time.process_time()
    kept, probability = np.empty((draws, len(x))), 0.0
    for n in range(draws):
        probability += life.draw(evaluate).accept_prob
        kept[n] = life.here.position
    end = time.process_time()
    acceptance = probability / max(draws, 1)
    seconds = half_time - begin, end - half_time
    return Chain(kept, acceptance, log_density.evaluations, *seconds, life.state.own)
