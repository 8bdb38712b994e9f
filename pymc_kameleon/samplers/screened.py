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
from pymc_kameleon.samplers.kamiltonian.learner import UNKNOWN, Judgement, Schedule, measure, since_arrival, unjudged
from pymc_kameleon.samplers.kamiltonian.sampler import SurrogateSampler
from pymc_kameleon.samplers.kamiltonian.values import refits, worth
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Point, Proposal, Sampler
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import Dynamics
from pymc_kameleon.surrogates.values import regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.regression import Fit

MOVE = "screened"
WORTH = 4.0  # times the acceptance probability: the share that the screened moves may have


class Learning(NamedTuple):
    """What is needed while tuning only."""

    evaluated: Evaluations  # every point evaluated
    states: History  # the chain's, and their log densities
    heights: History
    judgement: Judgement  # of the present surrogate
    # sum of the acceptance probabilities of screened moves, and their number; those before the last
    # fit count a tenth
    accepted: float
    trials: float
    schedule: Schedule


class End(NamedTuple):
    """What a screened move brings along."""

    inner: Any  # the sampler's own state
    there: trust.Current  # with f for the log density, which is not known yet


class State(NamedTuple):
    """Everything that adapts."""

    inner: Any  # the sampler's own
    fit: Fit | None  # None until there are enough evaluations; ``dynamics`` has f and D
    dynamics: Dynamics | None
    current: trust.Current | None  # the chain's point, in the coordinates of the dynamics
    # what f is trusted with there: t, see :mod:`pymc_kameleon.samplers.kamiltonian.trust`; while
    # tuning the share of the screened moves
    share: float
    mixture: trust.Mixture | None  # set when tuning ends
    learning: Learning | None  # None once tuning has ended


@dataclass(frozen=True, kw_only=True, eq=False)
class Screened(SurrogateSampler):
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
        first = max(100, int(1.5 * quadratic_size(d))) if regression.affordable(d) else NEVER
        learning = Learning(
            evaluations.copy(d, known.evaluated), history.empty(d), history.empty(1), unjudged(), 0.0, 0.0,
            Schedule(first),
        )  # fmt: skip
        return State(self.inner.init(rng, x, known), None, None, None, 0.0, None, learning)

    def propose(self, rng, x, state) -> Proposal:
        """A screened move, or one of the sampler's own."""
        share, mixture = state.share, state.mixture
        if mixture is not None:
            share *= 1.0 - mixture.floor
        if state.dynamics is None or not (share > 0.0 and rng.random() < share):
            return self.inner.propose(rng, x, state.inner)
        return self._screened(rng, x, state)

    def _screened(self, rng, x, state):
        """The end of k transitions on f from ``x``; x itself, not evaluated, if none of them moved."""

        def evaluate(proposal, _):
            return Point(proposal.position, surrogate_dynamics.value_inside(state.dynamics, proposal.position))

        # once tuned only a point in D has a share
        f = surrogate_dynamics.value_inside(state.dynamics, x) if state.mixture is None else state.current.value
        inner, here = state.inner, Point(x, f)
        start = here
        if start.log_density > -math.inf:
            found = self.inner.several(rng, here, inner, state.dynamics, self.transitions)
            for _ in range(0 if found else self.transitions):
                here, inner, *_ = transition(rng, self.inner, here, inner, evaluate)
            here, inner = found or (here, inner)
        if here is start:
            return Proposal(x, -math.inf, MOVE)
        # Exactness hangs here: P^k is reversible with respect to exp(f) on D (Christen & Fox, 2005, eq. 5).
        end = End(inner, self.locate(state, here))
        return Proposal(here.position, start.log_density - here.log_density, MOVE, end)

    def end(self, state, proposal, there) -> trust.Current:
        """Located anew after the sampler's own moves: what those carry is the sampler's."""
        if proposal is None or proposal.move != MOVE:
            return self.locate(state, there)
        z, _, f = proposal.carry.there
        return trust.Current(z, there.log_density, f)

    def log_ratio(self, state, point, proposal, there) -> float:
        """The kernel's own, and that of the shares at both ends."""
        screened, ratio = proposal.move == MOVE, proposal.log_q_ratio
        if not screened:
            ratio = self.inner.log_ratio(state.inner, point, proposal, there)
        return self.with_shares(state, ratio, screened, proposal, there)

    def place(self, state, point, proposal=None) -> State:
        """Retain what f is at the chain's new point; a screened move brings the sampler's own state along."""
        if proposal is not None and proposal.move == MOVE:
            inner = proposal.carry.inner
        else:
            inner = self.inner.place(state.inner, point, proposal)
        state = state._replace(inner=inner)
        return state if state.dynamics is None else self._placed(state, self.end(state, proposal, point))

    def _placed(self, state, current):
        """While tuning ``share`` is that of the screened moves."""
        state = self.retain(state, current)
        if state.mixture is not None:
            return state
        share = 0.1
        if not trust.is_stuck(state.current, state.learning.judgement.typical):
            # half at most: the sampler's own moves learn its scales
            share = min(max(WORTH * acceptance(state.learning, state.fit), share), 0.5)
        return state._replace(share=share)

    def learn(self, rng, state, outcome) -> State:
        """Learn from one draw, whichever kernel made it, all but a new surrogate."""
        learning, proposal, current = state.learning, outcome.proposal, state.current
        record, judgement = learning.evaluated, learning.judgement
        evaluated = proposal.log_q_ratio > -math.inf
        if evaluated:
            record = evaluations.append(record, proposal.position, outcome.proposed_log_density, proposal.move)
        if state.dynamics is not None:
            residual = current.log_density - current.value
            judgement = judgement.standing(residual)
            if evaluated and proposal.move == MOVE:
                judgement = judgement.moved(residual)
                accepted = learning.accepted + outcome.accept_prob
                learning = learning._replace(accepted=accepted, trials=learning.trials + 1.0)
        learning = learning._replace(
            evaluated=record, judgement=judgement,
            states=history.append(learning.states, outcome.position),
            heights=history.append(learning.heights, np.array([outcome.log_density])),
        )  # fmt: skip
        state = state._replace(inner=self.inner.adapt(rng, state.inner, outcome), learning=learning)
        return state if state.dynamics is None else self._placed(state, current)

    def due(self, state) -> tuple[State, bool]:
        """Whether to fit a new surrogate now."""
        return state, state.learning.evaluated.size >= state.learning.schedule.next_refit

    def refit(self, rng, state, here, final=False) -> State:
        """A new surrogate of all values, for a chain that is ``here``; the old one where that fails."""
        learning, before = state.learning, state.fit
        size, d = learning.evaluated.positions.shape
        schedule = learning.schedule._replace(
            next_refit=int(1.35 * size) + 1, last_refit=size, seed=int(rng.integers(2**63))
        )
        state = state._replace(learning=learning._replace(schedule=schedule))
        n = learning.states.size
        reference = since_arrival(learning.states.buffer[:n], learning.heights.buffer[:n, 0])
        if history.count_distinct(reference[0]) <= 2 * d:
            return state
        try:
            full = final or schedule.refits % 3 == 2
            fit, metric = refits.fitted(rng, learning.evaluated, reference, before, full)
            dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, reference[0], 1.0, fit.error)
        except np.linalg.LinAlgError:  # too few distinct points, or too degenerate: wait for more
            return state
        learning = learning._replace(
            judgement=unjudged(measure(learning, before.residual_sd) if before else UNKNOWN),
            accepted=0.1 * learning.accepted,
            trials=0.1 * learning.trials,
            schedule=schedule._replace(refits=schedule.refits + 1),
        )
        reach = surrogate_dynamics.farthest(fit.error)
        dynamics = surrogate_dynamics.bounded(dynamics, dynamics.archive, learning.evaluated.log_densities, reach)
        dynamics = surrogate_dynamics.walled(dynamics, learning.evaluated, reference[0])
        dynamics = dynamics._replace(archive=dynamics.archive[:1].copy())
        state = state._replace(fit=fit, dynamics=dynamics, learning=learning)
        return self._placed(state, self.locate(state, here))

    def observe(self, state, point, move="refresh") -> State:
        """The sampler's own."""
        return state._replace(inner=self.inner.observe(state.inner, point, move))

    def is_stale(self, state) -> bool:
        """Whether much was learned since the last fit."""
        return state.fit is not None and state.learning.evaluated.size > 1.1 * state.learning.schedule.last_refit

    def position(self, state) -> np.ndarray:
        """Where the chain is: its last state."""
        past = state.learning.states
        return past.buffer[past.size - 1].copy()

    def fix(self, rng, state) -> State:
        """Fix everything, and decide how far to trust f."""
        learning, state = state.learning, state._replace(inner=self.inner.freeze(state.inner), learning=None)
        if state.fit is None:
            return state
        quality = measure(learning, state.fit.residual_sd)
        floor = trust.choose_floor(quality.uncovered, quality.residual_sd)
        # A fifth at least. Where f is not trusted a chain makes no other moves than the sampler's own, and comes back
        # as rarely as they are made where it is: with a twentieth of the draws its visits to the tails were few and
        # long.
        floor = min(max(floor, 1.0 - WORTH * acceptance(learning, state.fit), 0.2), 0.95)
        return state._replace(mixture=trust.Mixture(floor, quality.typical, trust.slack(quality.residual_sd)))

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """The sampler's own."""
        return self.inner.stats(state.inner, None if proposal is None or proposal.move == MOVE else proposal)


def acceptance(learning: Learning, fit: Fit) -> float:
    """Of the screened moves: as seen, and as the fit's held-out residual promises."""
    promised = worth.PRIOR_TRIALS * math.erfc(0.5 * fit.residual_sd)
    return (learning.accepted + promised) / (learning.trials + worth.PRIOR_TRIALS)
