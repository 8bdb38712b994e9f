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

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kamiltonian import trust as residual_mixture
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Learning, Quality, State, locate
from pymc_kameleon.samplers.seam import Outcome, acceptance_probability
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size

LAST_REFIT = 0.85  # of tuning: the rest judges it out of sample
ARCHIVE = 500
SURPRISE = 2.0
LARGEST_FLOOR = 0.9  # of the frozen random walk
ENOUGH = 10  # residuals to judge by
ARRIVED_QUANTILE = 0.05
GOOD = ((0.1, 3.0), (0.25, 1.8))  # out-of-sample residual sd, growth until the next refit
STICKING = 0.8  # mean share of the surrogate at the last states, below which there is one too
NOT_GOOD, STALE = (
    0.2,
    1.1,
)  # residual sd and growth at which the end of tuning has a refit of its own


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw, and fit a new surrogate where one is due."""
    if state.learning is None:
        return state
    state = learn(rng, state, outcome)
    state, due = schedule(state)
    if not due:
        return state
    noise = outcome.noise if outcome.accepted else outcome.former_noise
    return refit(rng, state, outcome.position, outcome.log_density, noise)


def learn(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one tuning draw all but a new surrogate."""
    learning, carry = state.learning, outcome.proposal.carry
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
        state = state._replace(walk=WALK.adapt(rng, state.walk, outcome))
        value = np.array([outcome.log_density])
        learning = learning._replace(
            chain_log_densities=history.append(learning.chain_log_densities, value)
        )
        if state.dynamics is not None:
            learning = _judge_point(learning, state)
            if carry.evaluated:
                learning = _judge_kernel(learning, state, outcome)
            state, learning = _adapt_step_size(state, learning, carry)
            if learning.draws % 10 == 0:
                state = state._replace(arms=kamiltonian_worth.shares(learning.worth))
    return state._replace(learning=learning)


def schedule(state: State) -> tuple[State, bool]:
    """Whether to fit a new surrogate now; a good one's turn is put off."""
    if not _refit_is_due(state):
        return state, False
    learning = state.learning
    if learning.positions.size < _worth_a_refit(learning) and not _last_refit_is_due(state):
        next_refit = int(state.options.growth * learning.positions.size) + 1
        return state._replace(learning=learning._replace(next_refit=next_refit)), False
    return state, True


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
        uncovered=learning.uncovered + int(residual_mixture.is_too_low(residual, learning.typical)),
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
    jump = outcome.proposal.position - carry.origin
    return learning._replace(
        worth=kamiltonian_worth.learn(learning.worth, carry.kernel, jump, probability)
    )


def _adapt_step_size(state: State, learning: Learning, carry) -> tuple[State, Learning]:
    if math.isnan(carry.accept_prob) or carry.companion >= 0:  # no leapfrog of the chain's own
        return state, learning
    averaging = surrogate_dynamics.update_dual_averaging(learning.averaging, carry.accept_prob)
    dynamics = state.dynamics._replace(step_size=math.exp(averaging.log_step))
    return state._replace(dynamics=dynamics), learning._replace(averaging=averaging)


# --- refits ---------------------------------------------------------------------------------------


def _refit_is_due(state: State) -> bool:
    learning, evaluations = state.learning, state.learning.positions.size
    d = learning.positions.buffer.shape[1]
    if learning.final or not value_regression.affordable(d):
        return False
    if learning.chain_log_densities.size < 2:
        return False
    if _last_refit_is_due(state) and evaluations >= 1.5 * quadratic_size(d):
        return True
    if evaluations >= learning.next_refit:
        return True
    return (
        state.fit is not None
        and learning.surprises >= 25 + 0.02 * evaluations
        and evaluations - learning.last_refit >= 80 + 0.05 * evaluations
    )


def _worth_a_refit(learning: Learning) -> float:
    """At how many evaluations a better surrogate is worth the work: the better it is, the more."""
    if learning.judged < 100 or learning.residuals.size < ENOUGH:
        return 0.0
    quality = measure(learning, math.inf)
    if quality.uncovered > 0.0:
        return 0.0
    for residual_sd, growth in GOOD:
        if quality.residual_sd < residual_sd:
            return growth * learning.last_refit
    return 0.0


def _last_refit_is_due(state: State) -> bool:
    tune = state.options.tune
    return tune is not None and state.learning.draws >= LAST_REFIT * tune


def refit(
    rng: np.random.Generator,
    state: State,
    x: np.ndarray,
    log_density: float,
    noise=None,
    reference: tuple[np.ndarray, np.ndarray] | None = None,
    final: bool | None = None,
) -> State:
    """Fit a new surrogate to all evaluated points; keep the old one where that fails.

    ``x``, ``log_density`` and ``noise`` are the chain's; ``reference`` replaces its :func:`reference_states`, and
    ``final`` what the number of draws says of whether this is the last refit, which searches the whole library.
    """
    learning, options = state.learning, state.options
    if final is None:
        final = _last_refit_is_due(state)
    evaluations, d = learning.positions.size, len(x)
    growth = options.growth
    learning = learning._replace(
        final=final, last_refit=evaluations, next_refit=int(growth * evaluations) + 1
    )
    refits = learning.refits + 1
    chain, values = reference_states(state) if reference is None else reference
    try:
        fit = value_regression.fit(
            rng,
            learning.positions.buffer[:evaluations],
            learning.log_densities.buffer[:evaluations, 0],
            chain,
            values,
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
    dynamics = _bound_while_tuning(dynamics, values, learning.earlier)
    dynamics, averaging = surrogate_dynamics.find_step_size(rng, dynamics)
    current = locate(dynamics, x, log_density)
    covariance = _covariance(dynamics)
    worth = kamiltonian_worth.after_refit(
        rng,
        learning.worth,
        dynamics,
        fit.residual_sd,
        np.sqrt(np.diag(covariance)),
        options.choice,
    )
    learning = learning._replace(
        refits=refits,
        averaging=averaging,
        surprises=0,
        residuals=history.empty(1),
        typical=None,
        earlier=None if state.fit is None else measure(learning, state.fit.residual_sd),
        uncovered=0,
        judged=0,
        worth=worth,
        seed=int(rng.integers(2**63)),
    )
    everyone = state.fit is None
    learning = recall_companions(learning, dynamics, x, log_density, noise, everyone)
    walk = state.walk
    few = evaluations < 6 * quadratic_size(d)
    if few and fit.family == "quadratic" and fit.error < 2.0:
        walk = _walk_along(walk, covariance)
    return state._replace(
        fit=fit,
        dynamics=dynamics,
        current=current,
        walk=walk,
        arms=kamiltonian_worth.shares(worth),
        learning=learning,
    )


def reference_states(state: State) -> tuple[np.ndarray, np.ndarray]:
    """The chain's states since it arrived, (m, d), and their log densities, (m,).

    They set the coordinates, the reference depth, the archive and D, all of which a transient would
    spoil: with a depth taken from states a hundred nats down, the fit spreads its weight over those
    hundred nats. The chain has arrived where it first was as high as the lowest twentieth of its last
    sixth. While it has hardly moved, the best of all evaluated points stand in.
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
    evaluations = learning.positions.size
    heights = learning.log_densities.buffer[:evaluations, 0]
    best = np.argsort(-np.where(np.isfinite(heights), heights, -np.inf), kind="stable")
    best = best[: max(3 * d, 20)]
    best = best[np.isfinite(heights[best])]
    return learning.positions.buffer[best], heights[best]


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


def recall_companions(learning: Learning, dynamics, x, log_density, noise, everyone) -> Learning:
    """Put companions that the new surrogate's region does not hold at the chain's point: they would stick."""
    for c, position in enumerate(learning.companions):
        z = surrogate_dynamics.to_z(dynamics, position)
        if everyone or not z @ z < dynamics.radius**2:
            learning = _place_companion(learning, c, x, log_density, noise)
    return learning


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
    if state.fit is not None and is_stale(state):
        rng = np.random.default_rng(learning.seed)
        state = refit(rng, state, _position(state), state.current.log_density)
    return fix(state, reference_states(state)[0])


def fix(state: State, chain: np.ndarray, caution: float = 1.0) -> State:
    """Fix everything as it is; ``chain`` (m, d) are the states that D has to hold.

    ``caution`` is the largest share that the random walk gets because of what the surrogate does not cover.
    """
    learning = state.learning
    evaluations = learning.positions.size
    state = state._replace(walk=WALK.freeze(state.walk), learning=None)
    if state.dynamics is None:
        return state._replace(quality=Quality(math.inf, 1.0, learning.refits, evaluations))
    quality = measure(learning, state.fit.residual_sd)
    dynamics = state.dynamics._replace(step_size=math.exp(learning.averaging.log_average))
    dynamics = _bound(dynamics, chain, learning)
    arms = kamiltonian_worth.shares(learning.worth)
    floor = min(caution, residual_mixture.choose_floor(quality.uncovered, quality.residual_sd))
    if arms[0] > 0.5:
        floor = max(floor, arms[0])  # the random walk may be the better kernel
    floor = min(floor, LARGEST_FLOOR)
    arms = np.concatenate([[floor], arms[1:] * (1.0 - floor) / arms[1:].sum()])
    mixture = residual_mixture.Mixture(floor, _typical(learning), _slack(quality))
    share = residual_mixture.share(mixture, dynamics.radius, dynamics.ceiling, state.current)
    return state._replace(
        dynamics=dynamics, mixture=mixture, arms=arms, share=share, quality=quality
    )


def is_stale(state: State) -> bool:
    """Whether the chain has learned much since the last refit and needs it, or stands where f is too low."""
    learning = state.learning
    if learning.positions.size > learning.last_refit and _recent_share(state) < STICKING:
        return True
    if learning.positions.size < STALE * learning.last_refit:
        return False
    quality = measure(learning, state.fit.residual_sd)
    return quality.residual_sd > NOT_GOOD or quality.uncovered > 0.01


def _recent_share(state: State) -> float:
    """Mean share that the chain's last states would have: small where it has come to another place than it was."""
    learning, past = state.learning, state.walk.history
    last = slice(max(0, past.size - 100), past.size)
    values = value_features.values(state.fit.surrogate, np.ascontiguousarray(past.buffer[last]))
    residuals = learning.chain_log_densities.buffer[last, 0] - values
    quality = measure(learning, state.fit.residual_sd)
    excess = residuals - _typical(learning) - _slack(quality)
    return float(np.exp(-np.maximum(0.0, excess)).mean())


def _typical(learning: Learning) -> float:
    size = learning.residuals.size
    return float(np.median(learning.residuals.buffer[:size])) if size > 10 else 0.0


def _slack(quality: Quality) -> float:
    return 0.5 + min(quality.residual_sd, 1.0)


def _position(state: State) -> np.ndarray:
    """Where the chain is: its last state."""
    past = state.walk.history
    return past.buffer[past.size - 1].copy()


def measure(learning: Learning, held_out: float) -> Quality:
    """How good the surrogate has been since the last refit.

    Where there is too little to judge by, what the fit's held-out residual sd says, and of the coverage
    what was known of the surrogate before. Without that either, nothing is taken for granted.
    """
    size, residual_sd, uncovered = learning.residuals.size, held_out, 1.0
    if learning.earlier is not None:
        uncovered = learning.earlier.uncovered
    if size >= ENOUGH:
        residual_sd = residual_mixture.spread(learning.residuals.buffer[:size])
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
