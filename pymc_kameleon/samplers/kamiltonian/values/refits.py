"""A new surrogate: fitted to every evaluated point, in coordinates of the chain's states since it arrived.

Every third refit searches the whole library of feature families, the others only the cheap ones and the last
winner. The work of a refit is counted and capped in :mod:`pymc_kameleon.surrogates.values.regression`.
"""

import math

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers import adaptive_metropolis, known_points
from pymc_kameleon.samplers.kamiltonian.learner import UNKNOWN, Quality, measure, since_arrival, unjudged
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import Companions, State
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.library import LIBRARY

ARCHIVE = 500
SPREAD = 1.5  # of a standard deviation, or of the farthest state's distance
FAR = 5  # distinct states out there: a mode that has just been found had 7, a t and two bananas up to 2


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
    learning, options = state.learning, state.options
    schedule, size = learning.schedule, learning.evaluated.size
    final = schedule.is_last(options.tune) if final is None else final
    chain, values = reference_states(state) if reference is None else reference
    schedule = schedule._replace(final=final, last_refit=size, next_refit=_next_refit(options, size))
    state = state._replace(learning=learning._replace(schedule=schedule))
    full = final or (schedule.refits + 1) % 3 == 2
    try:
        fit, metric = fitted(rng, learning.evaluated, (chain, values), state.fit, full, options.library, options.scales)
        archive = chain[rng.integers(len(chain), size=min(ARCHIVE, len(chain)))]
        step_size = 0.3 if state.dynamics is None else state.dynamics.step_size
        dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, archive, step_size, fit.error)
    except np.linalg.LinAlgError:  # too few distinct points, or too degenerate: wait for more
        return state
    dynamics = _bound_while_tuning(dynamics, values, learning.judgement.earlier)
    dynamics = surrogate_dynamics.walled(dynamics, learning.evaluated, chain)
    dynamics, averaging = surrogate_dynamics.find_step_size(rng, dynamics)
    factor = dynamics.surrogate.scale[:, None] * dynamics.metric
    covariance = factor @ factor.T
    # arms are tried on the new surrogate, unless their times are given; the old one's judgement becomes the earlier one
    worth = kamiltonian_worth.after_refit(
        rng, learning.worth, dynamics, fit.residual_sd, np.sqrt(np.diag(covariance)), size, options.choice
    )  # fmt: skip
    judgement = unjudged(measure(learning, state.fit.residual_sd) if state.fit else UNKNOWN)
    companions = recalled(learning.companions, dynamics, here, everyone=state.fit is None)
    walk, few = state.walk, size < 6 * features.quadratic_size(len(covariance))
    if few and fit.family == "quadratic" and fit.error < 2.0:
        walk = _walk_along(walk, covariance)
    elif options.before and state.fit is None:
        walk = _walk_along(walk, covariance)
        walk = walk._replace(base=walk.factor)
    z, value = surrogate_dynamics.located(dynamics, here.position)
    return state._replace(
        fit=fit, dynamics=dynamics, current=Current(z, here.log_density, value), walk=walk,
        arms=kamiltonian_worth.shares(worth),
        learning=learning._replace(
            averaging=averaging, companions=companions, judgement=judgement, worth=worth,
            schedule=schedule.fitted(rng),
        ),
    )  # fmt: skip


def fitted(
    rng, evaluated, reference: tuple[np.ndarray, np.ndarray], previous, full: bool, library=LIBRARY, known=()
) -> tuple[value_regression.Fit, np.ndarray]:
    """The regression on every point evaluated, about the ``reference`` states, and the metric of its dynamics."""
    fit = value_regression.fit(
        rng, evaluated.positions, evaluated.log_densities, *reference, previous=previous, full=full,
        library=library, known=known,
    )  # fmt: skip
    return fit, surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)


def _next_refit(options, size):
    """How many evaluations the next fit waits for: while most came from elsewhere, as many new ones as there are.

    An earlier run's points are where its chains were, those of an arrival on its way, and f may promise mass where none
    of them is. The first proposals go there and are refused, and a fit that knows them goes there no more.
    """
    later = int(options.growth * size) + 1
    if not options.elsewhere:
        return later
    return min(later, size + max(20, size - options.elsewhere))


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
        return known_points.reference(learning.evaluated, max(20 * d, 60))
    heights = learning.evaluated.log_densities
    best = np.argsort(-np.where(np.isfinite(heights), heights, -np.inf), kind="stable")
    best = best[: max(3 * d, 20)]
    best = best[np.isfinite(heights[best])]
    return learning.evaluated.positions[best], heights[best]


def _bound_while_tuning(dynamics, values, earlier: Quality):
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
    if earlier.residual_sd < 1.0:
        ceiling = float(values.max()) + 3.0 + 0.5 * math.sqrt(d)
    return surrogate_dynamics.below(dynamics._replace(radius=radius), ceiling)


def recalled(companions: Companions, dynamics, here: Point, everyone: bool) -> Companions:
    """Companions that the new surrogate's region does not hold are put at the chain's point: they would stick."""
    for c, position in enumerate(companions.positions):
        z = surrogate_dynamics.to_z(dynamics, position)
        if everyone or not surrogate_dynamics.reach(dynamics, z) < dynamics.radius:
            companions = companions.placed(c, *here[:3])
    return companions


def _walk_along(walk, covariance):
    """Give the random walk the surrogate's covariance while its own history is too short to have
    one.
    """
    factor, ok = cholesky(covariance)
    if not ok:
        return walk
    log_scale = math.log(adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(len(factor)))
    return walk._replace(factor=factor, log_scale=log_scale)


def has_spread(state: State) -> bool:
    """Whether the chain has been farther than when the surrogate was fitted: in a banana's ends, in another mode.

    Coordinates, metric, archive and region are those of the last refit. What is compared are the largest and the
    smallest ratio of variances over all directions; and whether some states lie far beyond the farthest of then, which
    in a mode that the chain has just found are too few to change a variance.
    """
    dynamics = state.dynamics
    z = (reference_states(state)[0] - dynamics.surrogate.centre) @ dynamics.inverse.T
    factor, ok = cholesky(np.atleast_2d(np.cov(dynamics.archive.T)))
    if not ok:
        return True
    inverse = np.linalg.inv(factor)
    ratios = np.linalg.eigvalsh(inverse @ np.atleast_2d(np.cov(z.T)) @ inverse.T)
    if ratios[-1] > SPREAD**2 or ratios[0] < SPREAD**-2:
        return True
    middle = dynamics.archive.mean(axis=0)
    then, now = (np.linalg.norm((at - middle) @ inverse.T, axis=1) for at in (dynamics.archive, z))
    return bool(history.count_distinct(z[now > SPREAD * then.max()]) >= FAR)
