"""What is learned from each tuning draw, when the surrogate is refitted, and what is fixed when
tuning ends.

Refits come when the number of evaluations has grown by a factor, and earlier when the chain meets
*surprises*: plausible points that the surrogate had wrong by more than 2. Every third refit
searches the whole library of feature families, the others only the cheap ones and the last winner.
Nothing here looks at a clock, so that a run is reproducible: the work of a refit is counted and
capped in :mod:`pymc_kameleon.value_regression`.
"""

import math

import numpy as np

from pymc_kameleon import (
    adaptive_metropolis,
    history,
    residual_mixture,
    surrogate_dynamics,
    value_regression,
)
from pymc_kameleon.covariance import cholesky
from pymc_kameleon.kamiltonian_state import Learning, Quality, State, locate
from pymc_kameleon.metropolis import Outcome, acceptance_probability
from pymc_kameleon.value_features import quadratic_size

LAST_REFIT = 0.85  # of tuning: the rest judges it out of sample
ARCHIVE = 500
SURPRISE = 2.0
UNCOVERED = 2.5
LARGEST_FLOOR = 0.9  # of the frozen random walk
ENOUGH = 20  # residuals to judge by


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw."""
    learning = state.learning
    if learning is None:
        return state
    carry = outcome.proposal.carry
    learning = learning._replace(draws=learning.draws + 1, noise_sd=outcome.noise_sd)
    if carry.evaluated:
        learning = record(learning, outcome.proposal.position, outcome.proposed_log_density)
    if outcome.proposal.move == "companion":
        learning = _move_companion(rng, learning, state, outcome)
    elif outcome.proposal.move == "renewal":
        learning = learning._replace(rejections=0)
    else:
        rejections = 0 if outcome.accepted else learning.rejections + int(carry.evaluated)
        learning = learning._replace(rejections=rejections)
        if (
            carry.companion >= 0 and outcome.accepted
        ):  # a swap: the companion takes the chain's place
            learning = _place_companion(
                learning,
                carry.companion,
                carry.origin,
                carry.origin_log_density,
                outcome.former_noise,
            )
        state = state._replace(walk=adaptive_metropolis.adapt(rng, state.walk, outcome))
        value = np.array([outcome.log_density])
        learning = learning._replace(
            chain_log_densities=history.append(learning.chain_log_densities, value)
        )
        if state.dynamics is not None:
            learning = _judge_point(learning, state)
            if carry.evaluated:
                learning = _judge_kernel(learning, state, outcome)
            state, learning = _adapt_step_size(state, learning, carry)
            state = _adapt_arms(state, learning)
    state = state._replace(learning=learning)
    if _refit_is_due(state):
        noise = outcome.noise if outcome.accepted else outcome.former_noise
        state = refit(rng, state, outcome.position, outcome.log_density, noise)
    return state


def record(learning: Learning, position, log_density) -> Learning:
    """Keep a point and the log density found there, for the next refit."""
    return learning._replace(
        positions=history.append(learning.positions, position),
        log_densities=history.append(learning.log_densities, np.array([log_density])),
    )


def _move_companion(rng, learning: Learning, state: State, outcome: Outcome) -> Learning:
    """The companion's own Metropolis-Hastings test, at its temperature."""
    carry = outcome.proposal.carry
    c, y = carry.companion, outcome.proposed_log_density
    temperature = state.options.temperatures[c]
    probability = acceptance_probability(
        temperature * learning.companion_log_densities[c],
        temperature * y,
        carry.companion_log_ratio,
    )
    if rng.random() < probability:
        return _place_companion(learning, c, outcome.proposal.position, y, outcome.noise)
    return learning


def _place_companion(learning: Learning, c: int, position, log_density, noise) -> Learning:
    companions = learning.companions.copy()
    log_densities = learning.companion_log_densities.copy()
    companions[c], log_densities[c] = position, log_density
    return learning._replace(
        companions=companions,
        companion_log_densities=log_densities,
        companion_noise=(*learning.companion_noise[:c], noise, *learning.companion_noise[c + 1 :]),
    )


def _judge_point(learning: Learning, state: State) -> Learning:
    """Count whether the surrogate covers the point where the chain is."""
    if learning.typical is None:
        return learning
    residual = state.current.log_density - state.current.value
    return learning._replace(
        judged=learning.judged + 1,
        uncovered=learning.uncovered + int(residual - learning.typical > UNCOVERED),
    )


def _judge_kernel(learning: Learning, state: State, outcome: Outcome) -> Learning:
    """Out-of-sample residuals, surprises, and how far the kernel moves the chain per evaluation."""
    carry, probability = outcome.proposal.carry, outcome.accept_prob
    if carry.kernel > 0:
        residual = state.current.log_density - state.current.value
        learning = learning._replace(
            residuals=history.append(learning.residuals, np.array([residual]))
        )
        size = learning.residuals.size
        if size >= ENOUGH and size % 10 == 0:
            recent = learning.residuals.buffer[max(0, size - 100) : size]
            learning = learning._replace(typical=float(np.median(recent)))
    if learning.typical is not None and probability > 0.02:
        error = outcome.proposed_log_density - carry.value - learning.typical
        surprise = int(abs(error) > SURPRISE)
        learning = learning._replace(surprises=learning.surprises + surprise)
    distance, trials = learning.distance.copy(), learning.trials.copy()
    jump = (outcome.proposal.position - carry.origin) / learning.spread
    distance[carry.kernel] += probability * np.square(jump)
    trials[carry.kernel] += 1
    return learning._replace(distance=distance, trials=trials)


def _adapt_step_size(state: State, learning: Learning, carry) -> tuple[State, Learning]:
    if math.isnan(carry.accept_prob):  # no leapfrog in this draw
        return state, learning
    averaging = surrogate_dynamics.update_dual_averaging(learning.averaging, carry.accept_prob)
    dynamics = state.dynamics._replace(step_size=math.exp(averaging.log_step))
    return state._replace(dynamics=dynamics), learning._replace(averaging=averaging)


def _worth(learning: Learning) -> np.ndarray:
    """Expected squared jump per evaluation of the slowest coordinate, by kernel, at most 1."""
    worth = (learning.distance / np.maximum(learning.trials, 1)[:, None]).min(axis=1)
    return worth / max(worth.max(), 1e-300)


def _adapt_arms(state: State, learning: Learning) -> State:
    """Every 50 draws: probabilities by worth squared, none neglected, the random walk at least a
    fifth.
    """
    if learning.draws % 50 or learning.trials.min() < 8:
        return state
    weights = np.square(_worth(learning))
    arms = 0.1 + weights / weights.sum()
    return state._replace(arms=_with_floor(arms / arms.sum(), 0.2))


def _with_floor(arms, floor):
    if arms[0] < floor:
        arms = np.concatenate([[floor], arms[1:] * (1.0 - floor) / arms[1:].sum()])
    return arms


# --- refits ---------------------------------------------------------------------------------------


def _refit_is_due(state: State) -> bool:
    learning, evaluations = state.learning, state.learning.positions.size
    affordable = value_regression.affordable(len(learning.spread))
    if learning.final or not affordable or learning.chain_log_densities.size < 2:
        return False
    if evaluations >= learning.next_refit:
        return True
    if _last_refit_is_due(state) and evaluations >= 1.5 * quadratic_size(len(learning.spread)):
        return True
    return (
        state.fit is not None
        and learning.surprises >= 25 + 0.02 * evaluations
        and evaluations - learning.last_refit >= 80 + 0.05 * evaluations
    )


def _last_refit_is_due(state: State) -> bool:
    tune = state.options.tune
    return tune is not None and state.learning.draws >= LAST_REFIT * tune


def refit(
    rng: np.random.Generator, state: State, x: np.ndarray, log_density: float, noise=None
) -> State:
    """Fit a new surrogate to all evaluated points; keep the old one where that fails.

    ``x``, ``log_density`` and ``noise`` are the chain's.
    """
    learning, options = state.learning, state.options
    final = _last_refit_is_due(state)
    evaluations = learning.positions.size
    learning = learning._replace(
        final=final, last_refit=evaluations, next_refit=int(options.growth * evaluations) + 1
    )
    past = state.walk.history
    forget = past.size // 2 if past.size > 4 * len(x) else 0
    chain = past.buffer[forget : past.size]
    fresh = learning.chain_log_densities
    refits = learning.refits + 1
    try:
        fit = value_regression.fit(
            rng,
            learning.positions.buffer[:evaluations],
            learning.log_densities.buffer[:evaluations, 0],
            chain,
            fresh.buffer[forget : fresh.size, 0],
            previous=state.fit,
            full=final or refits % 3 == 2,
            library=options.library,
        )
        metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    except np.linalg.LinAlgError:  # too few distinct points, or too degenerate: wait for more
        return state._replace(learning=learning)
    archive = chain[rng.integers(len(chain), size=min(ARCHIVE, len(chain)))]
    step_size = 0.3 if state.dynamics is None else state.dynamics.step_size
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, archive, step_size)
    current = locate(dynamics, x, log_density)
    dynamics, averaging = surrogate_dynamics.find_step_size(rng, current.z, dynamics)
    covariance = _covariance(dynamics)
    learning = learning._replace(
        refits=refits,
        averaging=averaging,
        surprises=0,
        residuals=history.empty(1),
        typical=None,
        earlier=None if state.fit is None else measure(learning),
        uncovered=0,
        judged=0,
        distance=0.1 * learning.distance,
        trials=0.1 * learning.trials,
        spread=np.sqrt(np.diag(covariance)),
    )
    if state.fit is None:  # the companions start from here
        c = len(learning.companions)
        learning = learning._replace(
            companions=np.tile(x, (c, 1)),
            companion_log_densities=np.full(c, log_density),
            companion_noise=(noise,) * c,
        )
    walk = state.walk
    few = evaluations < 6 * quadratic_size(len(x))
    if few and fit.family == "quadratic" and fit.error < 2.0:
        walk = _walk_along(walk, covariance)
    return state._replace(fit=fit, dynamics=dynamics, current=current, walk=walk, learning=learning)


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
    past = state.walk.history
    evaluations = learning.positions.size
    state = state._replace(walk=adaptive_metropolis.freeze(state.walk), learning=None)
    if state.dynamics is None:
        return state._replace(quality=Quality(math.inf, 1.0, learning.refits, evaluations))
    quality = measure(learning)
    dynamics = state.dynamics._replace(step_size=math.exp(learning.averaging.log_average))
    dynamics = _bound(dynamics, past.buffer[past.size // 3 : past.size], learning)
    weights = _worth(learning) ** 3
    arms = 0.03 + weights / max(weights.sum(), 1e-300)
    arms /= arms.sum()
    floor = residual_mixture.choose_floor(quality.uncovered, quality.residual_sd)
    floor = min(max(floor, arms[0]), LARGEST_FLOOR)  # the random walk may be the better kernel
    arms = _with_floor(arms, floor)
    size = learning.residuals.size
    typical = state.current.log_density - state.current.value
    if size > 10:
        typical = float(np.median(learning.residuals.buffer[:size]))
    mixture = residual_mixture.Mixture(floor, typical, 0.5 + min(quality.residual_sd, 1.0))
    share = residual_mixture.share(mixture, dynamics.radius, dynamics.ceiling, state.current)
    return state._replace(
        dynamics=dynamics, mixture=mixture, arms=arms, share=share, quality=quality
    )


def measure(learning: Learning) -> Quality:
    """How good the surrogate has been since the last refit.

    Where there is too little to judge by, the quality of the surrogate before: it had less to go
    by. Without that either, nothing is taken for granted.
    """
    size, residual_sd, uncovered = learning.residuals.size, 2.0, 1.0
    if learning.earlier is not None:
        residual_sd, uncovered = learning.earlier[:2]
    if size > ENOUGH:
        low, high = np.quantile(learning.residuals.buffer[:size], [0.03, 0.97])
        residual_sd = float(high - low) / 3.76  # of a normal distribution
    if learning.judged > ENOUGH:
        uncovered = learning.uncovered / learning.judged
    return Quality(residual_sd, uncovered, learning.refits, learning.positions.size)


def _bound(dynamics, chain, learning):
    """D: twice as far as the chain has been, and not where f promises much more than was ever
    seen.
    """
    z = (chain - dynamics.surrogate.centre) @ dynamics.inverse.T
    radius = 2.0 * math.sqrt(np.square(z).sum(axis=1).max())
    values = learning.log_densities.buffer[: learning.log_densities.size, 0]
    highest = values[np.isfinite(values)].max()
    return dynamics._replace(radius=radius, ceiling=highest + 3.0 + 0.5 * math.sqrt(z.shape[1]))
