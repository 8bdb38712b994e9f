"""What is learned from each tuning draw, and when the surrogate is refitted.

Refits come when the number of evaluations has grown by a factor, and earlier when the chain meets
*surprises*: plausible points that the surrogate had wrong by more than 2. Nothing here looks at a clock,
so that a run is reproducible.
"""

import math

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.samplers.kamiltonian.values import refits
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.learning import ENOUGH, Companions, Judgement, Noise
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Learning, State
from pymc_kameleon.samplers.seam import Outcome, Point, acceptance_probability
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import DualAveraging
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size

PLAUSIBLE = 0.02  # acceptance probability of a proposal that can be a surprise
GOOD = ((0.1, 3.0), (0.25, 1.8))  # out-of-sample residual sd, growth until the next refit


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw, and fit a new surrogate where one is due."""
    if state.learning is None:
        return state
    state = learn(rng, state, outcome)
    state, due = schedule(state)
    if not due:
        return state
    noise = outcome.noise if outcome.accepted else outcome.former_noise
    return refits.refit(rng, state, Point(outcome.position, outcome.log_density, noise))


def learn(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw all but a new surrogate."""
    learning, proposal = state.learning, outcome.proposal
    evaluated, carry = learning.evaluated, proposal.carry
    if carry.evaluated:
        evaluated = evaluations.append(
            evaluated, proposal.position, outcome.proposed_log_density, proposal.move
        )
    if proposal.move in ("companion", "renewal"):  # no draw of the chain's own
        companions = learning.companions
        if proposal.move == "companion":
            companions = _move_companion(rng, companions, state, outcome)
        rejections = 0 if proposal.move == "renewal" else learning.noise.rejections
        return state._replace(
            learning=learning._replace(
                evaluated=evaluated,
                companions=companions,
                noise=Noise(outcome.noise_sd, rejections),
                schedule=_one_more_draw(learning.schedule),
            )
        )
    state = state._replace(walk=WALK.adapt(rng, state.walk, outcome))
    learning = _learn_from_draw(learning._replace(evaluated=evaluated), state, outcome)
    if state.dynamics is None:
        return state._replace(learning=learning)
    state, averaging = _adapt_step_size(state, learning.averaging, carry)
    if learning.schedule.draws % 10 == 0:
        state = state._replace(arms=kamiltonian_worth.shares(learning.worth))
    return state._replace(learning=learning._replace(averaging=averaging))


def _one_more_draw(schedule):
    return schedule._replace(draws=schedule.draws + 1)


def _learn_from_draw(learning: Learning, state: State, outcome: Outcome) -> Learning:
    """What a draw of the chain's own says; the evaluation is recorded already."""
    carry, companions = outcome.proposal.carry, learning.companions
    rejections = 0 if outcome.accepted else learning.noise.rejections + int(carry.evaluated)
    if carry.companion >= 0 and outcome.accepted:  # a swap: the companion takes the chain's place
        companions = companions.placed(
            carry.companion, carry.origin, carry.origin_log_density, outcome.former_noise
        )
    judgement, worth = learning.judgement, learning.worth
    if state.dynamics is not None:
        judgement = judgement.standing(state.current.log_density - state.current.value)
        if carry.evaluated:
            judgement = _judge_kernel(judgement, state, outcome)
            jump = outcome.proposal.position - carry.origin
            worth = kamiltonian_worth.learn(worth, carry.kernel, jump, outcome.accept_prob)
    value = np.array([outcome.log_density])
    return learning._replace(
        chain_log_densities=history.append(learning.chain_log_densities, value),
        companions=companions,
        noise=Noise(outcome.noise_sd, rejections),
        judgement=judgement,
        worth=worth,
        schedule=_one_more_draw(learning.schedule),
    )


def record(learning: Learning, position, log_density, move="") -> Learning:
    """Keep a point and the log density found there, for the next refit."""
    evaluated = evaluations.append(learning.evaluated, position, log_density, move)
    return learning._replace(evaluated=evaluated)


def _move_companion(rng, companions: Companions, state: State, outcome: Outcome) -> Companions:
    """The companion's own Metropolis-Hastings test, at its temperature."""
    carry = outcome.proposal.carry
    c, y = carry.companion, outcome.proposed_log_density
    temperature = state.options.temperatures[c]
    probability = acceptance_probability(
        temperature * companions.log_densities[c],
        temperature * y,
        carry.companion_log_ratio,
    )
    if rng.random() < probability:
        return companions.placed(c, outcome.proposal.position, y, outcome.noise)
    return companions


def _judge_kernel(judgement: Judgement, state: State, outcome: Outcome) -> Judgement:
    """Out-of-sample residuals and surprises, from a draw with an evaluation."""
    carry = outcome.proposal.carry
    if carry.kernel > 0:
        judgement = judgement.moved(state.current.log_density - state.current.value)
    if outcome.accept_prob > PLAUSIBLE:
        judgement = judgement.proposed(outcome.proposed_log_density - carry.value)
    return judgement


def _adapt_step_size(state: State, averaging: DualAveraging, carry) -> tuple[State, DualAveraging]:
    if math.isnan(carry.accept_prob) or carry.companion >= 0:  # no leapfrog of the chain's own
        return state, averaging
    averaging = surrogate_dynamics.update_dual_averaging(averaging, carry.accept_prob)
    dynamics = state.dynamics._replace(step_size=math.exp(averaging.log_step))
    return state._replace(dynamics=dynamics), averaging


def schedule(state: State) -> tuple[State, bool]:
    """Whether to fit a new surrogate now; a good one's turn is put off."""
    if not _refit_is_due(state):
        return state, False
    learning = state.learning
    size = learning.evaluated.size
    if size < _worth_a_refit(state) and not refits.last_refit_is_due(state):
        later = learning.schedule._replace(next_refit=int(state.options.growth * size) + 1)
        return state._replace(learning=learning._replace(schedule=later)), False
    return state, True


def _refit_is_due(state: State) -> bool:
    learning, schedule = state.learning, state.learning.schedule
    size, d = learning.evaluated.positions.shape
    if schedule.final or not value_regression.affordable(d):
        return False
    if learning.chain_log_densities.size < 2:
        return False
    if refits.last_refit_is_due(state) and size >= 1.5 * quadratic_size(d):
        return True
    if size >= schedule.next_refit:
        return True
    return (
        state.fit is not None
        and learning.judgement.surprises >= 25 + 0.02 * size
        and size - schedule.last_refit >= 80 + 0.05 * size
    )


def _worth_a_refit(state: State) -> float:
    """At how many evaluations a better surrogate is worth the work: the better it is, the more."""
    learning = state.learning
    if learning.judgement.judged < 100 or learning.judgement.residuals.size < ENOUGH:
        return 0.0
    quality = refits.measure(learning, math.inf)
    if quality.uncovered > 0.0 or refits.has_spread(state):
        return 0.0
    for residual_sd, growth in GOOD:
        if quality.residual_sd < residual_sd:
            return growth * learning.schedule.last_refit
    return 0.0
