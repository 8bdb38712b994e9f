"""The one test of a proposal and what follows: decide (accept, place), adapt, freeze. Nothing else moves a chain.

``Life.tell`` and the members of pooled chains call :func:`decide`; tests and benchmarks, too, or :func:`transition`,
:func:`run` and the generator :func:`draws` on it: what is proven for them is what is shipped.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics.checks import moderate
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal, Sampler, accept

Evaluate = Callable[[Proposal, Point], Point]


def transition(
    rng: np.random.Generator, sampler: Sampler, point: Point, state: Any, evaluate: Evaluate, tuning: bool = False
) -> tuple[Point, Any, Proposal, Point, float, bool]:
    """One draw.

    Parameters
    ----------
    point : Point
        Where the chain is.
    evaluate : callable
        ``evaluate(proposal, point)`` is what was found at the proposal, a :class:`Point`.
    tuning : bool
        Whether the sampler learns from the draw.

    Returns
    -------
    point, state : Point, NamedTuple
        Afterwards.
    proposal, there : Proposal, Point
        What was proposed, and what was found there.
    accept_prob, accepted : float, bool
    """
    proposal = sampler.propose(rng, point.position, state)
    there, before = evaluate(proposal, point), point
    point, state, probability, accepted = decide(rng, sampler, point, state, proposal, there)
    if tuning:
        outcome = Outcome(
            point.position, point.log_density, proposal, there.log_density, probability, accepted,
            there.noise, before.noise, outputs=there.outputs,
        )  # fmt: skip
        state = sampler.adapt(rng, state, outcome)
    return point, state, proposal, there, probability, accepted


def decide(
    rng: np.random.Generator, sampler: Sampler, point: Point, state: Any, proposal: Proposal, there: Point
) -> tuple[Point, Any, float, bool]:
    """The Metropolis-Hastings test of ``proposal``, at which ``there`` was found: the only place where a chain moves.

    Returns the point and the state afterwards, the acceptance probability, and whether it was accepted.
    """
    # The value at the current point is the retained one, never a fresh one: what makes a noisy, unbiased likelihood
    # estimate exact (Andrieu & Roberts, 2009).
    log_q_ratio = sampler.log_ratio(state, point, proposal, there)
    x = there.position
    # where all is flat chains would go on until infinity; the first test alone settles all but the farthest points
    if not (x.dot(x) < 1e200 or moderate(x).all()):
        log_q_ratio = -math.inf
    probability, accepted = accept(rng, point.log_density, there.log_density, log_q_ratio)
    if accepted:
        point = there  # the position, its log density and the noise in it jointly
        state = sampler.place(state, point, proposal)
    return point, state, probability, accepted


def freeze(sampler: Sampler, point: Point, state: Any) -> Any:
    """End of tuning: the state, with what is cached at ``point`` by what is fixed now."""
    return sampler.place(sampler.freeze(state), point)


def evaluation(log_density: Callable[[np.ndarray], float]) -> Evaluate:
    """What :func:`transition` asks for, from a function of a point; one call for each draw at most."""

    def evaluate(proposal: Proposal, point: Point) -> Point:
        if proposal.log_density is not None:
            return Point(proposal.position, proposal.log_density, proposal.noise)
        if proposal.position is point.position:
            return point
        value = log_density(proposal.position)
        outputs = getattr(log_density, "outputs", None)
        return Point(proposal.position, value if math.isfinite(value) else -math.inf, None, outputs)

    return evaluate


class Draw(NamedTuple):
    """One draw of :func:`draws`: the state before it, and what :func:`transition` returns."""

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
