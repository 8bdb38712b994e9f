"""What is learned from each tuning draw, when the surrogate is refitted, and what is fixed when tuning ends.

Refits come when the number of evaluations has grown by a factor, and earlier when the chain meets
*surprises*: plausible points that the surrogate had wrong by more than 2. Nothing here looks at a clock,
so that a run is reproducible. After the end nothing of the sampler changes but the chain's point.
"""

import math

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import ENOUGH, UNKNOWN, Quality, measure
from pymc_kameleon.samplers.kamiltonian.values import rays, refits
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Companions, Learning, Noise, State
from pymc_kameleon.samplers.seam import Outcome, acceptance_probability
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import flattened
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


def due(state: State) -> tuple[State, bool]:
    """Whether to fit a new surrogate now; a good one's turn is put off."""
    if not _refit_is_due(state):
        return state, False
    learning, size = state.learning, state.learning.evaluated.size
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


# --- the end of tuning ----------------------------------------------------------------------------


def end(rng: np.random.Generator, state: State) -> State:
    """Fix everything, decide how far to trust the surrogate, and drop the evaluated points."""
    chain = refits.reference_states(state)[0]
    if state.fit is not None:
        state = _choose_arms_carefully(rng, state, chain)
    return fix(state, chain)


def _choose_arms_carefully(rng, state: State, chain) -> State:
    """Archive and arms as the whole chain suggests them: the last refit may have been long ago.

    The arms run with the step size that the draws will have, in more and longer chains than a refit can wait for; no
    farther out than the chain has been, or one that came upon mass of f that is not there would stay in it: a draw does
    not, the next one starts where the chain is.
    """
    learning, dynamics = state.learning, state.dynamics
    archive = chain[rng.integers(len(chain), size=min(refits.ARCHIVE, len(chain)))]
    z = np.ascontiguousarray(_in_dynamics(dynamics, archive))
    dynamics = dynamics._replace(archive=z)
    bounded = _bound(dynamics, chain, learning, state.fit)
    trial = bounded._replace(
        radius=bounded.radius / _times(state.fit),
        ceiling=bounded.ceiling - 2.0 - 0.5 * math.sqrt(z.shape[1]),
        step_size=math.exp(learning.averaging.log_average),
    )
    worth = kamiltonian_worth.tried_anew(
        rng, learning.worth, trial, learning.evaluated.size, state.options.choice, patience=(3, 6)
    )
    return state._replace(dynamics=dynamics, learning=learning._replace(worth=worth))


def fix(state: State, chain: np.ndarray, caution: float = 1.0) -> State:
    """Fix everything as it is; ``chain`` (m, d) are the states that D has to hold.

    ``caution`` is the largest share that the random walk gets because of what the surrogate does not cover.
    """
    learning = state.learning
    state = state._replace(walk=WALK.freeze(state.walk), learning=None)
    if state.dynamics is None:
        quality = UNKNOWN._replace(refits=learning.schedule.refits, evaluations=learning.evaluated.size)
        return state._replace(quality=quality)
    quality = measure(learning, state.fit.residual_sd)
    dynamics = state.dynamics._replace(step_size=math.exp(learning.averaging.log_average))
    dynamics = _bound(dynamics, chain, learning, state.fit)
    dynamics = surrogate_dynamics.walled(dynamics, learning.evaluated, chain)
    arms = kamiltonian_worth.shares(learning.worth)
    floor = trust.choose_floor(quality.uncovered, quality.residual_sd)
    if learning.judgement.residuals.size < ENOUGH:  # no draw has judged the surrogate yet
        floor = max(floor, 0.15)
    floor = min(floor, caution)
    if arms[0] > 0.5:
        floor = max(floor, arms[0])  # the random walk may be the better kernel
    floor = min(floor, 0.9)
    arms = np.concatenate([[floor], arms[1:] * (1.0 - floor) / arms[1:].sum()])
    distances = surrogate_dynamics.reach(dynamics, _in_dynamics(dynamics, chain))
    slack = trust.slack(quality.residual_sd)
    mixture = trust.Mixture(floor, quality.typical, slack, rays.share(distances))
    return state._replace(dynamics=dynamics, mixture=mixture, arms=arms, quality=quality)


def is_stale(state: State) -> bool:
    """Whether the chain has learned much since the last refit and needs it, or stands where f is too low."""
    if state.fit is None:
        return False
    learning, last = state.learning, state.learning.schedule.last_refit
    quality = measure(learning, state.fit.residual_sd)
    if learning.evaluated.size > last and _recent_share(state, quality) < 0.8:
        return True
    if quality.residual_sd > 0.2 or quality.uncovered > 0.01:  # not good
        return learning.evaluated.size >= 1.03 * last
    return learning.evaluated.size >= 1.1 * last and refits.has_spread(state)


def _recent_share(state: State, quality: Quality) -> float:
    """Mean share that the chain's last states would have: small where it has come to another place than it was."""
    learning, past = state.learning, state.walk.history
    last = slice(max(0, past.size - 100), past.size)
    values = flattened.values(state.fit.surrogate, np.ascontiguousarray(past.buffer[last]))
    residuals = learning.chain_log_densities.buffer[last, 0] - values
    excess = residuals - quality.typical - trust.slack(quality.residual_sd)
    return float(np.exp(-np.maximum(0.0, excess)).mean())


def _bound(dynamics, chain, learning, fit):
    z = _in_dynamics(dynamics, chain)
    return surrogate_dynamics.bounded(dynamics, z, learning.evaluated.log_densities, _times(fit))


def _times(fit):
    """As far as the chain has been; what is known is right beyond the few states that it takes to learn the rest."""
    return surrogate_dynamics.farthest(fit.error) if fit.surrogate.known else surrogate_dynamics.REACH


def _in_dynamics(dynamics, chain):
    return (chain - dynamics.surrogate.centre) @ dynamics.inverse.T
