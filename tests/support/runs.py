"""Chains of a sampler and a function of NumPy arrays, by the package's own test of a proposal."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers.chain import evaluation, freeze, transition
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler


class Draw(NamedTuple):
    """One draw of :func:`draws`: the state before it, and what ``chain.transition`` returns."""

    before: Any
    point: Point
    state: Any
    proposal: Proposal
    there: Point
    accept_prob: float
    accepted: bool


def draws(
    rng: np.random.Generator,
    sampler: Sampler,
    log_density: Callable[[np.ndarray], float],
    point: Point,
    state: Any,
    n: int,
    *,
    tuning: bool = False,
) -> Iterator[Draw]:
    """``n`` transitions from ``point``, one by one."""
    evaluate = evaluation(log_density)
    for _ in range(n):
        found = Draw(state, *transition(rng, sampler, point, state, evaluate, tuning=tuning))
        point, state = found.point, found.state
        yield found


class Run(NamedTuple):
    """A chain of :func:`run`."""

    draws: np.ndarray  # (n, d): after tuning
    accept_prob: np.ndarray  # (n,): acceptance probabilities of those
    state: Any  # the sampler's, at the end


def run(
    rng: np.random.Generator,
    sampler: Sampler,
    log_density: Callable[[np.ndarray], float],
    x: np.ndarray,
    *,
    tune: int,
    n: int,
) -> Run:
    """A chain from ``x``, shape (d,): ``tune`` draws that the sampler learns from, then ``n`` with all fixed."""
    x = np.array(x, dtype=float)
    point = Point(x, log_density(x), None, getattr(log_density, "outputs", None))
    state = sampler.place(sampler.init(rng, x), point)
    for draw in draws(rng, sampler, log_density, point, state, tune, tuning=True):
        point, state = draw.point, draw.state
    state = freeze(sampler, point, state)
    kept, accept_prob = np.empty((n, len(x))), np.empty(n)
    for i, draw in enumerate(draws(rng, sampler, log_density, point, state, n)):
        kept[i], accept_prob[i], state = draw.point.position, draw.accept_prob, draw.state
    return Run(kept, accept_prob, state)
