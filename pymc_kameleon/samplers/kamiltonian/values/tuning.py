"""What is learned from each tuning draw, when the surrogate is refitted, and what is fixed when
tuning ends.

Refits come when the number of evaluations has grown by a factor, and earlier when the chain meets
*surprises*: plausible points that the surrogate had wrong by more than 2. Every third refit
searches the whole library of feature families, the others only the cheap ones and the last winner.
Nothing here looks at a clock, so that a run is reproducible: the work of a refit is counted and
capped in :mod:`pymc_kameleon.surrogates.values.regression`.
"""

import math

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers import adaptive_metropolis, known_points
from pymc_kameleon.samplers.kamiltonian import trust as residual_mixture
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.learning import (
    ENOUGH,
    Companions,
    Judgement,
    Noise,
    Quality,
    unjudged,
)
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Learning, State, locate
from pymc_kameleon.samplers.seam import Outcome, Point, acceptance_probability
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import DualAveraging
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size

LAST_REFIT = 0.85  # of tuning: the rest judges it out of sample
ARCHIVE = 500
FEWEST_NEW = 20  # evaluations between two fits after a warm start
REFERENCE = 20  # points a dimension that stand for the posterior, of an earlier run's
PLAUSIBLE = 0.02  # acceptance probability of a proposal that can be a surprise
LARGEST_FLOOR = 0.9  # of the frozen random walk
UNJUDGED = 0.15  # its least share, where no draw has judged the surrogate yet
ARRIVED_QUANTILE = 0.05
GOOD = ((0.1, 3.0), (0.25, 1.8))  # out-of-sample residual sd, growth until the next refit
STICKING = 0.8  # mean share of the surrogate at the last states, below which there is one too
REACH = 2.0  # of D, in the largest distance that the chain has been at
SPREAD = 1.5  # ratio of standard deviations at which the chain is another one than the last fit was made for
# residual sd and growth at which the end of tuning has a refit of its own, and growth where it is good
NOT_GOOD, STALE, OUTGROWN = 0.2, 1.03, 1.1


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw, and fit a new surrogate where one is due."""
    if state.learning is None:
        return state
    state = learn(rng, state, outcome)
    state, due = schedule(state)
    if not due:
        return state
    noise = outcome.noise if outcome.accepted else outcome.former_noise
    return refit(rng, state, Point(outcome.position, outcome.log_density, noise))


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


def schedule(state: State) -> tuple[State, bool]:
    """Whether to fit a new surrogate now; a good one's turn is put off."""
    if not _refit_is_due(state):
        return state, False
    learning = state.learning
    size = learning.evaluated.size
    if size < _worth_a_refit(state) and not _last_refit_is_due(state):
        later = learning.schedule._replace(next_refit=int(state.options.growth * size) + 1)
        return state._replace(learning=learning._replace(schedule=later)), False
    return state, True


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


# --- refits ---------------------------------------------------------------------------------------


def _refit_is_due(state: State) -> bool:
    learning, schedule = state.learning, state.learning.schedule
    size, d = learning.evaluated.positions.shape
    if schedule.final or not value_regression.affordable(d):
        return False
    if learning.chain_log_densities.size < 2:
        return False
    if _last_refit_is_due(state) and size >= 1.5 * quadratic_size(d):
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
    quality = measure(learning, math.inf)
    if quality.uncovered > 0.0 or _has_spread(state):
        return 0.0
    for residual_sd, growth in GOOD:
        if quality.residual_sd < residual_sd:
            return growth * learning.schedule.last_refit
    return 0.0


def _has_spread(state: State) -> bool:
    """Whether the chain has been farther than when the surrogate was fitted: in a banana's ends, in another mode.

    Coordinates, metric, archive and region are those of the last refit. What is compared are the largest and the
    smallest ratio of variances over all directions.
    """
    dynamics = state.dynamics
    z = (reference_states(state)[0] - dynamics.surrogate.centre) @ dynamics.inverse.T
    factor, ok = cholesky(np.atleast_2d(np.cov(dynamics.archive.T)))
    if not ok:
        return True
    inverse = np.linalg.inv(factor)
    ratios = np.linalg.eigvalsh(inverse @ np.atleast_2d(np.cov(z.T)) @ inverse.T)
    return bool(ratios[-1] > SPREAD**2 or ratios[0] < SPREAD**-2)


def _last_refit_is_due(state: State) -> bool:
    tune = state.options.tune
    return tune is not None and state.learning.schedule.draws >= LAST_REFIT * tune


def refit(
    rng: np.random.Generator,
    state: State,
    here: Point,
    reference: tuple[np.ndarray, np.ndarray] | None = None,
    final: bool | None = None,
) -> State:
    """Fit a new surrogate to all evaluated points; keep the old one where that fails.

    ``here`` is where the chain is; ``reference`` replaces its :func:`reference_states`, and ``final`` what the number
    of draws says of whether this is the last refit, which searches the whole library.
    """
    if final is None:
        final = _last_refit_is_due(state)
    reference = reference_states(state) if reference is None else reference
    size = state.learning.evaluated.size
    schedule = state.learning.schedule._replace(
        final=final, last_refit=size, next_refit=_next_refit(state.options, size)
    )
    state = state._replace(learning=state.learning._replace(schedule=schedule))
    try:
        fit = _fit(rng, state, reference)
        metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    except np.linalg.LinAlgError:  # too few distinct points, or too degenerate: wait for more
        return state
    dynamics, averaging = _dynamics(rng, state, fit, metric, reference)
    covariance = _covariance(dynamics)
    learning = _after_refit(rng, state, fit, dynamics, covariance)
    companions = recalled(learning.companions, dynamics, here, everyone=state.fit is None)
    walk, few = state.walk, size < 6 * quadratic_size(len(covariance))
    if few and fit.family == "quadratic" and fit.error < 2.0:
        walk = _walk_along(walk, covariance)
    elif state.options.before and state.fit is None:
        walk = _walk_along(walk, covariance)
        walk = walk._replace(base=walk.factor)
    return state._replace(
        fit=fit,
        dynamics=dynamics,
        current=locate(dynamics, here.position, here.log_density),
        walk=walk,
        arms=kamiltonian_worth.shares(learning.worth),
        learning=learning._replace(averaging=averaging, companions=companions),
    )


def _next_refit(options, size):
    """How many evaluations the next fit waits for: of those that came from elsewhere, half of the new ones suffice.

    An earlier run's points are where its chains were, and f may promise mass where none of them is. The first
    proposals go there and are refused, and a fit that knows them goes there no more.
    """
    later = int(options.growth * size) + 1
    if not options.before:
        return later
    return min(later, size + max(FEWEST_NEW, size - options.before))


def _fit(rng, state, reference):
    """The regression on every point evaluated, about the ``reference`` states."""
    evaluated, schedule = state.learning.evaluated, state.learning.schedule
    chain, values = reference
    return value_regression.fit(
        rng,
        evaluated.positions,
        evaluated.log_densities,
        chain,
        values,
        previous=state.fit,
        full=schedule.final or (schedule.refits + 1) % 3 == 2,
        library=state.options.library,
    )


def _dynamics(rng, state, fit, metric, reference):
    """Transitions on the new surrogate, and their step size."""
    chain, values = reference
    archive = chain[rng.integers(len(chain), size=min(ARCHIVE, len(chain)))]
    step_size = 0.3 if state.dynamics is None else state.dynamics.step_size
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, archive, step_size)
    dynamics = _bound_while_tuning(dynamics, values, state.learning.judgement.earlier)
    return surrogate_dynamics.find_step_size(rng, dynamics)


def _after_refit(rng, state, fit, dynamics, covariance) -> Learning:
    """The old surrogate's judgement becomes the earlier one; every arm is tried on the new one."""
    learning = state.learning
    worth = kamiltonian_worth.after_refit(
        rng,
        learning.worth,
        dynamics,
        fit.residual_sd,
        np.sqrt(np.diag(covariance)),
        learning.evaluated.size,
        state.options.choice,
    )
    schedule = learning.schedule
    return learning._replace(
        judgement=unjudged(None if state.fit is None else measure(learning, state.fit.residual_sd)),
        worth=worth,
        schedule=schedule._replace(refits=schedule.refits + 1, seed=int(rng.integers(2**63))),
    )


def reference_states(state: State) -> tuple[np.ndarray, np.ndarray]:
    """The chain's states since it arrived, (m, d), and their log densities, (m,).

    They set the coordinates, the reference depth, the archive and D, all of which a transient would
    spoil: with a depth taken from states a hundred nats down, the fit spreads its weight over those
    hundred nats. The chain has arrived where it first was as high as the lowest twentieth of its last
    sixth. While it has hardly moved, points of an earlier run stand in, or the best of all evaluated points.
    """
    learning, past = state.learning, state.walk.history
    d, size = past.buffer.shape[1], past.size
    values = learning.chain_log_densities.buffer[:size, 0]
    if size > 4 * d:
        low = np.quantile(values[-max(size // 6, 1) :], ARRIVED_QUANTILE)
        forget = min(int(np.argmax(values >= low)), 2 * size // 3)
        states = past.buffer[forget:size]
        if history.count_distinct(states) >= max(3 * d, 20):
            return states, values[forget:]
    if state.options.before:
        return known_points.reference(learning.evaluated, max(REFERENCE * d, 60))
    heights = learning.evaluated.log_densities
    best = np.argsort(-np.where(np.isfinite(heights), heights, -np.inf), kind="stable")
    best = best[: max(3 * d, 20)]
    best = best[np.isfinite(heights[best])]
    return learning.evaluated.positions[best], heights[best]


def _bound_while_tuning(dynamics, values, earlier: Quality | None):
    """D until the chain is frozen: not far from where f has support, or a kernel's spurious mass out there
    takes the trials.

    A quadratic has none, and knows the way to a mode that the chain has not seen. The ceiling waits for a
    surrogate that was right out of sample: a chain that still climbs is to go higher than it has ever been.
    """
    surrogate, d = dynamics.surrogate, len(dynamics.inverse)
    if not (len(surrogate.monomials) or len(surrogate.weights) or len(surrogate.tails)):
        return dynamics
    norms = np.sqrt(np.square(dynamics.archive).sum(axis=1))
    radius = max(3.0 * float(np.quantile(norms, 0.95)), 2.0 * (math.sqrt(d) + 2.0))
    ceiling = math.inf
    if earlier is not None and earlier.residual_sd < 1.0:
        ceiling = float(values.max()) + 3.0 + 0.5 * math.sqrt(d)
    return dynamics._replace(radius=radius, ceiling=ceiling)


def recalled(companions: Companions, dynamics, here: Point, everyone: bool) -> Companions:
    """Companions that the new surrogate's region does not hold are put at the chain's point: they would stick."""
    for c, position in enumerate(companions.positions):
        z = surrogate_dynamics.to_z(dynamics, position)
        if everyone or not z @ z < dynamics.radius**2:
            companions = companions.placed(c, *here)
    return companions


def _covariance(dynamics):
    factor = dynamics.surrogate.scale[:, None] * dynamics.metric
    return factor @ factor.T


def _walk_along(walk, covariance):
    """Give the random walk the surrogate's covariance while its own history is too short to have
    one.
    """
    factor, ok = cholesky(covariance)
    if not ok:
        return walk
    log_scale = math.log(adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(len(factor)))
    return walk._replace(factor=factor, log_scale=log_scale)


# --- end of tuning --------------------------------------------------------------------------------


def freeze(state: State) -> State:
    """Fix everything, decide how far to trust the surrogate, and drop the evaluated points."""
    learning = state.learning
    if learning is None:
        return state
    rng = np.random.default_rng(learning.schedule.seed)
    if state.fit is not None and is_stale(state):
        here = Point(_position(state), state.current.log_density)
        state = refit(rng, state, here, final=True)
    chain = reference_states(state)[0]
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
    archive = chain[rng.integers(len(chain), size=min(ARCHIVE, len(chain)))]
    z = np.ascontiguousarray((archive - dynamics.surrogate.centre) @ dynamics.inverse.T)
    dynamics = dynamics._replace(archive=z)
    bounded = _bound(dynamics, chain, learning)
    trial = bounded._replace(
        radius=bounded.radius / REACH,
        ceiling=bounded.ceiling - 2.0 - 0.5 * math.sqrt(z.shape[1]),
        step_size=math.exp(learning.averaging.log_average),
    )
    worth = kamiltonian_worth.tried_anew(
        rng,
        learning.worth,
        trial,
        learning.evaluated.size,
        state.options.choice,
        kamiltonian_worth.CAREFULLY,
    )
    return state._replace(dynamics=dynamics, learning=learning._replace(worth=worth))


def fix(state: State, chain: np.ndarray, caution: float = 1.0) -> State:
    """Fix everything as it is; ``chain`` (m, d) are the states that D has to hold.

    ``caution`` is the largest share that the random walk gets because of what the surrogate does not cover.
    """
    learning = state.learning
    state = state._replace(walk=WALK.freeze(state.walk), learning=None)
    if state.dynamics is None:
        size = learning.evaluated.size
        return state._replace(quality=Quality(math.inf, 1.0, learning.schedule.refits, size))
    quality = measure(learning, state.fit.residual_sd)
    dynamics = state.dynamics._replace(step_size=math.exp(learning.averaging.log_average))
    dynamics = _bound(dynamics, chain, learning)
    arms = kamiltonian_worth.shares(learning.worth)
    floor = residual_mixture.choose_floor(quality.uncovered, quality.residual_sd)
    if learning.judgement.residuals.size < ENOUGH:
        floor = max(floor, UNJUDGED)
    floor = min(floor, caution)
    if arms[0] > 0.5:
        floor = max(floor, arms[0])  # the random walk may be the better kernel
    floor = min(floor, LARGEST_FLOOR)
    arms = np.concatenate([[floor], arms[1:] * (1.0 - floor) / arms[1:].sum()])
    mixture = residual_mixture.Mixture(floor, learning.judgement.median, _slack(quality))
    share = residual_mixture.share(mixture, dynamics.radius, dynamics.ceiling, state.current)
    return state._replace(
        dynamics=dynamics, mixture=mixture, arms=arms, share=share, quality=quality
    )


def is_stale(state: State) -> bool:
    """Whether the chain has learned much since the last refit and needs it, or stands where f is too low."""
    learning, last = state.learning, state.learning.schedule.last_refit
    if learning.evaluated.size > last and _recent_share(state) < STICKING:
        return True
    quality = measure(learning, state.fit.residual_sd)
    if quality.residual_sd > NOT_GOOD or quality.uncovered > 0.01:
        return learning.evaluated.size >= STALE * last
    return learning.evaluated.size >= OUTGROWN * last and _has_spread(state)


def _recent_share(state: State) -> float:
    """Mean share that the chain's last states would have: small where it has come to another place than it was."""
    learning, past = state.learning, state.walk.history
    last = slice(max(0, past.size - 100), past.size)
    values = value_features.values(state.fit.surrogate, np.ascontiguousarray(past.buffer[last]))
    residuals = learning.chain_log_densities.buffer[last, 0] - values
    quality = measure(learning, state.fit.residual_sd)
    excess = residuals - learning.judgement.median - _slack(quality)
    return float(np.exp(-np.maximum(0.0, excess)).mean())


def _slack(quality: Quality) -> float:
    return 0.5 + min(quality.residual_sd, 1.0)


def _position(state: State) -> np.ndarray:
    """Where the chain is: its last state."""
    past = state.walk.history
    return past.buffer[past.size - 1].copy()


def measure(learning: Learning, held_out: float) -> Quality:
    """How good the surrogate has been since the last refit; ``held_out`` is what its fit says of the residual sd."""
    residual_sd, uncovered = learning.judgement.measured(held_out)
    return Quality(residual_sd, uncovered, learning.schedule.refits, learning.evaluated.size)


def _bound(dynamics, chain, learning):
    """D: twice as far as the chain has been, and not where f promises much more than was ever
    seen.
    """
    z = (chain - dynamics.surrogate.centre) @ dynamics.inverse.T
    radius = REACH * math.sqrt(np.square(z).sum(axis=1).max())
    values = learning.evaluated.log_densities
    highest = values[np.isfinite(values)].max()
    return dynamics._replace(radius=radius, ceiling=highest + 3.0 + 0.5 * math.sqrt(z.shape[1]))
