"""A new surrogate: fitted to every evaluated point, in coordinates of the chain's states since it arrived.

Every third refit searches the whole library of feature families, the others only the cheap ones and the last
winner. The work of a refit is counted and capped in :mod:`pymc_kameleon.surrogates.values.regression`.
"""

import math

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers import adaptive_metropolis, known_points
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.learning import (
    Companions,
    Quality,
    since_arrival,
    unjudged,
)
from pymc_kameleon.samplers.kamiltonian.values.state import Learning, State, locate
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features
from pymc_kameleon.surrogates.values import regression as value_regression

ARCHIVE = 500
FEWEST_NEW = 20  # evaluations between two fits while most points came from elsewhere
REFERENCE = 20  # points a dimension that stand for the posterior, of an earlier run's
SPREAD = 1.5  # ratio of standard deviations at which the chain is another one than the last fit was made for


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
        final = last_refit_is_due(state)
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
    walk, few = state.walk, size < 6 * features.quadratic_size(len(covariance))
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
    """How many evaluations the next fit waits for: while most came from elsewhere, as many new ones as there are.

    An earlier run's points are where its chains were, those of an arrival on its way, and f may promise mass where none
    of them is. The first proposals go there and are refused, and a fit that knows them goes there no more.
    """
    later = int(options.growth * size) + 1
    if not options.elsewhere:
        return later
    return min(later, size + max(FEWEST_NEW, size - options.elsewhere))


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
    dynamics = surrogate_dynamics.make_dynamics(
        fit.surrogate, metric, archive, step_size, fit.error
    )
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
        states, heights = since_arrival(past.buffer[:size], values)
        if history.count_distinct(states) >= max(3 * d, 20):
            return states, heights
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
    if features.is_quadratic(surrogate):
        return dynamics
    norms = surrogate_dynamics.reach(dynamics, dynamics.archive)
    radius = max(3.0 * float(np.quantile(norms, 0.95)), 2.0 * (math.sqrt(d) + 2.0))
    ceiling = math.inf
    if earlier is not None and earlier.residual_sd < 1.0:
        ceiling = float(values.max()) + 3.0 + 0.5 * math.sqrt(d)
    return surrogate_dynamics.below(dynamics._replace(radius=radius), ceiling)


def recalled(companions: Companions, dynamics, here: Point, everyone: bool) -> Companions:
    """Companions that the new surrogate's region does not hold are put at the chain's point: they would stick."""
    for c, position in enumerate(companions.positions):
        z = surrogate_dynamics.to_z(dynamics, position)
        if everyone or not surrogate_dynamics.reach(dynamics, z) < dynamics.radius:
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


def last_refit_is_due(state: State) -> bool:
    """Whether so much of tuning is over that one more fit is the last."""
    tune = state.options.tune
    return tune is not None and state.learning.schedule.draws >= trust.LAST_REFIT * tune


def has_spread(state: State) -> bool:
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


def measure(learning: Learning, held_out: float) -> Quality:
    """How good the surrogate has been since the last refit; ``held_out`` is what its fit says of the residual sd."""
    residual_sd, uncovered = learning.judgement.measured(held_out)
    return Quality(residual_sd, uncovered, learning.schedule.refits, learning.evaluated.size)
