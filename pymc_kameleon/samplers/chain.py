"""The one test of a proposal and what follows: decide (accept, place), adapt, freeze. Nothing else moves a chain.

``Life.tell`` and the members of pooled chains call :func:`decide`; tests, too, or :func:`transition`: what is proven
for them is what is shipped.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot

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
    if not (ddot(x, x) < 1e200 or moderate(x).all()):  # NumPy's would warn where it overflows
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
