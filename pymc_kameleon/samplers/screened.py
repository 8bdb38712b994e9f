"""Screened moves: k transitions of a sampler's own kernel on a surrogate f of the log density, then one evaluation.

While tuning, f is fitted to the value at every point evaluated, accepted or rejected
(:mod:`pymc_kameleon.surrogates.values.regression`). A screened move is k accept/reject steps P of the sampler's own
kernel that take f for the log density; P is reversible with respect to exp(f) on a region D, and so is P^k. With its
end x' proposed, the Metropolis-Hastings ratio is

    exp{[log p(x') - f(x')] - [log p(x) - f(x)]}

(Christen & Fox, 2005, eq. 5, where k = 1). Where f is right every move is accepted, and one evaluation buys k steps.
The other draws are the sampler's own moves. How many is decided by how wrong f is where the chain is
(:mod:`pymc_kameleon.samplers.kamiltonian.trust`, which has the ratio): they carry the chain where f is too low.

On what exactness hangs: f, D, k, what fixes the shares, and the sampler itself are fixed when tuning ends; the log
density at x is the retained one, which with an unbiased estimate is what a pseudo-marginal chain needs. A move of which
no inner step was accepted stays, without an evaluation: that is the diagonal of P^k.

Differs from the paper: k transitions in place of one; f is learned from values and frozen after tuning; the mixture.

References
----------
J. A. Christen, C. Fox (2005). Markov chain Monte Carlo using an approximation. JCGS 14.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.checks import count
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.chain import transition
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.values.learning import (
    Judgement,
    Quality,
    since_arrival,
    unjudged,
)
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Outcome, Point, Proposal, Sampler
from pymc_kameleon.surrogates import transitions as dynamics
from pymc_kameleon.surrogates.transitions import Dynamics
from pymc_kameleon.surrogates.values import regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.regression import Fit

MOVE = "screened"
GROWTH = 1.35  # of the evaluations between two fits
STALE = 1.1  # growth since the last fit at which the end of tuning has one of its own
WHILE_TUNING = 0.5  # largest share of the screened moves: the sampler's own learn its scales
FAR = 10.0  # ... and where f is all but exact ...
EXACT = 1e-3  # ... by its held-out error
PRIOR_TRIALS = 5.0  # what the fit's held-out residual counts for
WORTH = 4.0  # times the acceptance probability: the share that the screened moves may have
# Of the sampler's own moves. Where f is not trusted a chain makes no other, and comes back as rarely as they are made
# where it is: with a twentieth of the draws its visits to the tails were few and long.
LEAST_FLOOR, LARGEST_FLOOR = 0.2, 0.95


class Learning(NamedTuple):
    """What is needed while tuning only.

    Attributes
    ----------
    evaluated : Evaluations
        Every point evaluated.
    states, heights : History
        The chain's, and their log densities.
    judgement : Judgement
        Of the present surrogate.
    accepted, trials : float
        Sum of the acceptance probabilities of screened moves, and their number; those before the last fit count a
        tenth.
    next_fit, fits : int
        Evaluations at which f is fitted next; how many fits there were.
    seed : int
        Of the fit at the end of tuning.
    """

    evaluated: Evaluations
    states: History
    heights: History
    judgement: Judgement
    accepted: float
    trials: float
    next_fit: int
    fits: int
    seed: int


class State(NamedTuple):
    """Everything that adapts.

    Attributes
    ----------
    inner : tuple
        The sampler's own.
    fit, surface : Fit, Dynamics or None
        None until there are enough evaluations; ``surface`` has f and D.
    current : trust.Current or None
        The chain's point, in the surface's coordinates.
    share : float
        What f is trusted with there: t, see :mod:`pymc_kameleon.samplers.kamiltonian.trust`; while tuning the share of
        the screened moves.
    mixture : trust.Mixture or None
        Set when tuning ends.
    learning : Learning or None
        None once tuning has ended.
    """

    inner: Any
    fit: Fit | None
    surface: Dynamics | None
    current: trust.Current | None
    share: float
    mixture: trust.Mixture | None
    learning: Learning | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Screened(Sampler):
    """A sampler, and screened moves by it.

    Parameters
    ----------
    inner : Sampler
        Any whose kernel, once frozen, is reversible with respect to whatever density it is given.
    transitions : int
        k, at least 1. Default 10.

    Raises
    ------
    ValueError
        For ``transitions`` below 1, with the value.
    """

    inner: Sampler
    transitions: int = 10

    def __post_init__(self):
        count(1, transitions=self.transitions)

    @property
    def statistics(self):  # type: ignore[override]
        """The sampler's own."""
        return self.inner.statistics

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,)."""
        d = len(x)
        affordable = regression.affordable(d)
        learning = Learning(
            evaluated=evaluations.copy(d, known.evaluated),
            states=history.empty(d),
            heights=history.empty(1),
            judgement=unjudged(),
            accepted=0.0,
            trials=0.0,
            next_fit=max(100, int(1.5 * quadratic_size(d))) if affordable else NEVER,
            fits=0,
            seed=0,
        )
        return State(self.inner.init(rng, x, known), None, None, None, 0.0, None, learning)

    def propose(self, rng, x, state) -> Proposal:
        """A screened move, or one of the sampler's own."""
        share, mixture = state.share, state.mixture
        if mixture is not None:
            share *= 1.0 - mixture.floor
        if state.surface is None or not (share > 0.0 and rng.random() < share):
            return self.inner.propose(rng, x, state.inner)
        return self._screened(rng, x, state)

    def _screened(self, rng, x, state):
        """The end of k transitions on f from ``x``; x itself, not evaluated, if none of them moved."""

        def evaluate(proposal, _):
            return Point(proposal.position, value(state.surface, proposal.position))

        inner, here = state.inner, Point(x, value(state.surface, x))
        start = here
        if start.log_density > -math.inf:
            for _ in range(self.transitions):
                here, inner, *_ = transition(rng, self.inner, here, inner, evaluate)
        if here is start:
            return Proposal(x, -math.inf, MOVE)
        # Exactness hangs here: P^k is reversible with respect to exp(f) on D (Christen & Fox, 2005, eq. 5).
        return Proposal(here.position, start.log_density - here.log_density, MOVE, inner)

    def log_ratio(self, state, point, proposal, there) -> float:
        """The kernel's own, and that of the shares at both ends."""
        if proposal.move == MOVE:
            ratio = proposal.log_q_ratio
        else:
            ratio = self.inner.log_ratio(state.inner, point, proposal, there)
        if state.mixture is None or not (ratio > -math.inf and there.log_density > -math.inf):
            return ratio
        # Exactness hangs on the shares at both ends, the new one with the new log density: see ``trust``.
        share = _trusted(state, locate(state.surface, there))
        return ratio + trust.log_ratio(state.mixture, proposal.move == MOVE, state.share, share)

    def place(self, state, point, proposal=None) -> State:
        """Retain what f is at the chain's new point; a screened move brings the sampler's own state along."""
        if proposal is not None and proposal.move == MOVE:
            inner = proposal.carry
        else:
            inner = self.inner.place(state.inner, point, proposal)
        return _placed(state._replace(inner=inner), point)

    def adapt(self, rng, state, outcome) -> State:
        """Learn from one draw, whichever kernel made it."""
        state = state._replace(inner=self.inner.adapt(rng, state.inner, outcome))
        if state.learning is None:
            return state
        state = state._replace(learning=learn(state, outcome))
        learning = state.learning
        if learning.evaluated.size >= learning.next_fit:
            state = refit(rng, state, full=learning.fits % 3 == 2)
        return _placed(state, Point(outcome.position, outcome.log_density))

    def observe(self, state, point, move="refresh") -> State:
        """The sampler's own."""
        return state._replace(inner=self.inner.observe(state.inner, point, move))

    def freeze(self, state) -> State:
        """End of tuning: a last fit if much was learned since, and how far to trust it; what was seen is dropped."""
        state = state._replace(inner=self.inner.freeze(state.inner))
        return state if state.learning is None else fix(state)

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """The sampler's own."""
        own = proposal if proposal is None or proposal.move != MOVE else None
        return self.inner.stats(state.inner, own)


def value(surface: Dynamics, x: np.ndarray) -> float:
    """F at ``x`` (d,), ``-inf`` outside D."""
    z = dynamics.to_z(surface, x)
    if not dynamics.reach(surface, z) < surface.radius:
        return -math.inf
    found = dynamics.value(surface, z)
    return found if found < surface.ceiling else -math.inf


def locate(surface: Dynamics, point: Point) -> trust.Current:
    """A point with f there."""
    z = dynamics.to_z(surface, point.position)
    return trust.Current(z, point.log_density, dynamics.value(surface, z))


def _trusted(state: State, current: trust.Current) -> float:
    surface = state.surface
    measured = current._replace(z=dynamics.in_region(surface, current.z))
    return trust.share(state.mixture, surface.radius, surface.ceiling, measured)


def _placed(state: State, point: Point) -> State:
    if state.surface is None:
        return state
    current = locate(state.surface, point)
    state = state._replace(current=current)
    if state.mixture is not None:
        return state._replace(share=_trusted(state, current))
    return state._replace(share=_share_while_tuning(state))


def _share_while_tuning(state):
    learning, current = state.learning, state.current
    if learning is None:
        return 0.0
    typical = learning.judgement.typical
    if typical is not None and current.log_density - current.value - typical > trust.STUCK:
        return 0.1
    return min(max(WORTH * acceptance(state), 0.1), WHILE_TUNING)


def acceptance(state: State) -> float:
    """Of the screened moves: as seen, and as the fit's held-out residual promises."""
    learning = state.learning
    promised = PRIOR_TRIALS * math.erfc(0.5 * state.fit.residual_sd)
    return (learning.accepted + promised) / (learning.trials + PRIOR_TRIALS)


def learn(state: State, outcome: Outcome) -> Learning:
    """What one tuning draw says, but for a new surrogate."""
    learning, proposal, current = state.learning, outcome.proposal, state.current
    evaluated = proposal.log_q_ratio > -math.inf
    if evaluated:
        learning = learning._replace(
            evaluated=evaluations.append(
                learning.evaluated, proposal.position, outcome.proposed_log_density, proposal.move
            )
        )
    judgement = learning.judgement
    if state.surface is not None:
        residual = current.log_density - current.value
        judgement = judgement.standing(residual)
        if evaluated and proposal.move == MOVE:
            judgement = judgement.moved(residual)
            learning = learning._replace(
                accepted=learning.accepted + outcome.accept_prob, trials=learning.trials + 1.0
            )
    return learning._replace(
        states=history.append(learning.states, outcome.position),
        heights=history.append(learning.heights, np.array([outcome.log_density])),
        judgement=judgement,
    )


def refit(rng: np.random.Generator, state: State, full: bool) -> State:
    """A new surrogate of all values; the old one where that fails."""
    learning, before = state.learning, state.fit
    positions, log_densities = learning.evaluated.positions, learning.evaluated.log_densities
    size, d = positions.shape
    learning = learning._replace(next_fit=int(GROWTH * size) + 1, seed=int(rng.integers(2**63)))
    state = state._replace(learning=learning)
    n = learning.states.size
    states, heights = since_arrival(learning.states.buffer[:n], learning.heights.buffer[:n, 0])
    if history.count_distinct(states) <= 2 * d:
        return state
    try:
        fit = regression.fit(
            rng, positions, log_densities, states, heights, previous=before, full=full
        )
        metric = dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    except np.linalg.LinAlgError:  # too few distinct points, or too degenerate: wait for more
        return state
    earlier = None if before is None else measured(learning, before)
    learning = learning._replace(
        judgement=unjudged(earlier),
        accepted=0.1 * learning.accepted,
        trials=0.1 * learning.trials,
        fits=learning.fits + 1,
    )
    surface = dynamics.make_dynamics(fit.surrogate, metric, states, 1.0, fit.error)
    reach = FAR if fit.error < EXACT else dynamics.REACH
    surface = dynamics.bounded(surface, surface.archive, log_densities, reach)
    surface = surface._replace(archive=surface.archive[:1].copy())
    return state._replace(fit=fit, surface=surface, learning=learning)


def measured(learning: Learning, fit: Fit) -> Quality:
    """How good the surrogate has been since its fit."""
    residual_sd, uncovered = learning.judgement.measured(fit.residual_sd)
    return Quality(residual_sd, uncovered, learning.fits, learning.evaluated.size)


def fix(state: State) -> State:
    """Fix everything, and decide how far to trust f."""
    learning = state.learning
    if state.fit is not None and learning.evaluated.size > STALE * learning.next_fit / GROWTH:
        state = refit(np.random.default_rng(learning.seed), state, full=True)
        learning = state.learning
    if state.fit is None:
        return state._replace(learning=None)
    quality = measured(learning, state.fit)
    floor = trust.choose_floor(quality.uncovered, quality.residual_sd)
    floor = min(max(floor, 1.0 - WORTH * acceptance(state), LEAST_FLOOR), LARGEST_FLOOR)
    mixture = trust.Mixture(floor, learning.judgement.median, trust.slack(quality.residual_sd))
    return state._replace(mixture=mixture, learning=None)
