"""One chain of one algorithm, without PyMC around it.

:func:`run_chain` drives the chain's :mod:`pymc_kameleon.samplers.life`, as :class:`pymc_kameleon.steps.KernelStep` does
on a log density without noise, so that what is measured here is what a user gets.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.basics import Counted
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.arrival.state import default_budget
from pymc_kameleon.samplers.chain import Evaluate, evaluation
from pymc_kameleon.samplers.life import LOOKS, Life
from pymc_kameleon.samplers.seam import Density, Point, Sampler


class Chain(NamedTuple):
    """One chain."""

    draws: np.ndarray  # (n, d): after tuning
    acceptance: float  # mean acceptance probability of those draws
    evaluations: int  # of the log density in all: start, tuning and draws
    tuning_seconds: float  # processor time of tuning ...
    seconds: float  # ... and of the draws
    state: Any  # the algorithm's, at the end


def born(
    sampler: Sampler, log_density: Callable[[np.ndarray], float], x: np.ndarray, rng: np.random.Generator, *,
    arrives: bool = False,
) -> tuple[Life, Evaluate]:  # fmt: skip
    """A chain's life at ``x`` of shape (d,), and what evaluates its proposals.

    ``arrives``: it climbs first, and looks elsewhere, as with the steps' option ``arrival``; in units of 1, around
    ``x``, where they take the prior's.
    """
    life = Life(sampler, Density(len(x)), rng)
    here = Point(x, log_density(x))

    def stage():
        if not arrives:
            return None
        most, tune = default_budget(len(x)), getattr(sampler, "tune", None)
        budget = most if tune is None else max(1, min(most, int(0.4 * tune)))
        looks = x + 2.0 * rng.uniform(-1.0, 1.0, (LOOKS, len(x)))
        return search.init(x, here.log_density, scale=1.0, budget=budget, looks=looks)

    life.put(here, stage)
    return life, evaluation(log_density)


def run_chain(
    algorithm: Callable[..., Sampler], log_density: Callable[[np.ndarray], float], x: np.ndarray,
    rng: np.random.Generator, *, tune: int, draws: int, arrives: bool = False, frozen: bool = True, **options: Any,
) -> Chain:  # fmt: skip
    """Run ``algorithm`` from ``x`` of shape (d,) for ``tune`` adaptive draws and ``draws`` that are ``frozen``, or not.

    The algorithm is the sampler's class, or what else makes a sampler of its ``options``; ``arrives``: see
    :func:`born`.
    """
    log_density = Counted(log_density)
    life, evaluate = born(algorithm(**options), log_density, np.array(x, dtype=float), rng, arrives=arrives)
    begin = time.process_time()
    for _ in range(tune):
        life.draw(evaluate)
    if frozen:
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
