"""What is learned from each tuning draw, and when the surrogate is refitted.

Refits come when the number of evaluations has grown by a factor, and earlier when the chain meets
*surprises*: plausible points that the surrogate had wrong by more than 2. Nothing here looks at a clock,
so that a run is reproducible.
"""

import math

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.samplers.kamiltonian.learner import ENOUGH, measure
from pymc_kameleon.samplers.kamiltonian.values import refits
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Companions, Learning, Noise, State
from pymc_kameleon.samplers.seam import Outcome, acceptance_probability
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size


def learn(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw all but a new surrogate."""
    learning, proposal = state.learning, outcome.proposal
    carry, move = proposal.carry, proposal.move
    if carry.evaluated:
        learning = record(learning, proposal.position, outcome.proposed_log_density, move)
    schedule = learning.schedule._replace(draws=learning.schedule.draws + 1)
    learning = learning._replace(schedule=schedule)
    if move in ("companion", "renewal"):  # no draw of the chain's own
        rejections = 0 if move == "renewal" else learning.noise.rejections
        learning = learning._replace(noise=Noise(outcome.noise_sd, rejections))
        if move == "companion":
            companions = _move_companion(rng, learning.companions, state, outcome)
            learning = learning._replace(companions=companions)
        return state._replace(learning=learning)
    state = state._replace(walk=WALK.adapt(rng, state.walk, outcome))
    learning = _learn_from_draw(learning, state, outcome)
    if state.dynamics is None:
        return state._replace(learning=learning)
    path, averaging, dynamics = carry.path, learning.averaging, state.dynamics
    if path is not None and not math.isnan(path.accept_prob):  # a leapfrog
        averaging = surrogate_dynamics.update_dual_averaging(averaging, path.accept_prob)
        dynamics = dynamics._replace(step_size=math.exp(averaging.log_step))
    arms = kamiltonian_worth.shares(learning.worth) if schedule.draws % 10 == 0 else state.arms
    learning = learning._replace(averaging=averaging)
    return state._replace(dynamics=dynamics, arms=arms, learning=learning)


def _learn_from_draw(learning: Learning, state: State, outcome: Outcome) -> Learning:
    """What a draw of the chain's own says; the evaluation is recorded already."""
    carry, companions = outcome.proposal.carry, learning.companions
    rejections = 0 if outcome.accepted else learning.noise.rejections + int(carry.evaluated)
    if carry.companion >= 0 and outcome.accepted:  # a swap: the companion takes the chain's place
        companions = companions.placed(carry.companion, carry.origin, carry.origin_log_density, outcome.former_noise)
    judgement, worth = learning.judgement, learning.worth
    if state.dynamics is not None:
        residual = state.current.log_density - state.current.value
        judgement = judgement.standing(residual)
        if carry.evaluated:
            if carry.kernel > 0:
                judgement = judgement.moved(residual)
            wrong = outcome.proposed_log_density - carry.value
            judgement = judgement.proposed(wrong, plausible=outcome.accept_prob > 0.02)
            jump = outcome.proposal.position - carry.origin
            worth = kamiltonian_worth.learn(worth, carry.kernel, jump, outcome.accept_prob)
    value = np.array([outcome.log_density])
    return learning._replace(
        chain_log_densities=history.append(learning.chain_log_densities, value), companions=companions,
        noise=Noise(outcome.noise_sd, rejections), judgement=judgement, worth=worth,
    )  # fmt: skip


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
        temperature * companions.log_densities[c], temperature * y, carry.companion_log_ratio
    )
    if rng.random() < probability:
        return companions.placed(c, outcome.proposal.position, y, outcome.noise)
    return companions


def schedule(state: State) -> tuple[State, bool]:
    """Whether to fit a new surrogate now; a good one's turn is put off."""
    if not _refit_is_due(state):
        return state, False
    learning, size = state.learning, state.learning.size
    if size < _worth_a_refit(state) and not learning.schedule.is_last(state.options.tune):
        later = learning.schedule._replace(next_refit=int(state.options.growth * size) + 1)
        return state._replace(learning=learning._replace(schedule=later)), False
    return state, True


def _refit_is_due(state: State) -> bool:
    learning, schedule = state.learning, state.learning.schedule
    size, d = learning.evaluated.positions.shape
    few = learning.chain_log_densities.size < 2
    if schedule.final or few or not value_regression.affordable(d):
        return False
    last = schedule.is_last(state.options.tune) and size >= 1.5 * quadratic_size(d)
    surprised = learning.judgement.surprises >= 25 + 0.02 * size and size - schedule.last_refit >= 80 + 0.05 * size
    return last or surprised or size >= schedule.next_refit


def _worth_a_refit(state: State) -> float:
    """At how many evaluations a better surrogate is worth the work: the better it is, the more."""
    learning = state.learning
    if learning.judgement.judged < 100 or learning.judgement.residuals.size < ENOUGH:
        return 0.0
    quality = measure(learning, math.inf)
    if quality.uncovered > 0.0 or refits.has_spread(state):
        return 0.0
    growth = 3.0 if quality.residual_sd < 0.1 else 1.8 if quality.residual_sd < 0.25 else 0.0
    return growth * learning.schedule.last_refit
