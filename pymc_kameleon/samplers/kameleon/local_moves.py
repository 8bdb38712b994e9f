"""Moves with a local covariance, x* ~ N(x, gamma^2 I + nu^2 S(x)), beside a global kernel.

What KAMH and its random-feature version share: a global kernel (adaptive Metropolis, moves that contract towards the
history's mean and, where asked for, moves in coordinates in which the history is straight, ``shear``) that also learns
the coordinates, the local proposal with its Metropolis-Hastings ratio, the tuning of nu, and the schedule on which S is
learned anew. An algorithm brings S itself, as two functions:

``learn(rng, state, states) -> model``     from past states in the kernel's coordinates, shape (n, d)
``covariance(model, options, y) -> S``     at the point y in those coordinates, shape (d, d)

The two kinds of moves are two transition kernels, chosen without looking at the state, each with its own
Metropolis-Hastings ratio: each leaves the target invariant, so nothing else enters the ratio.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky, log_normal_density, solve_lower
from pymc_kameleon.numerics.step_size import robbins_monro
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kameleon import shear
from pymc_kameleon.samplers.kameleon.shear import Shear
from pymc_kameleon.samplers.seam import Outcome, Proposal

COORDINATES = ("whitened", "scaled", "raw")
LOG_SCALE_BOUNDS = (
    -30.0,
    30.0,
)  # against overflow only: a covariance in raw units may ask for any scale
RATES = ("renewed", "harmonic")
EARLY = 0.3  # of the draws before the first local move: then the history is straightened for the first time
DRAWS_PER_DIMENSION = 200  # before the first local move, unless told otherwise

Covariance = Callable[[Any, Any, np.ndarray], np.ndarray]
Learn = Callable[[np.random.Generator, "State", np.ndarray], Any]
Tune = Callable[["State", Outcome], "State"]


class Schedule(NamedTuple):
    """What stays fixed about the moves; see :func:`init`."""

    gamma: float | None
    coordinates: str
    global_share: float
    autoregressive_share: float
    target_accept: float
    forget: float
    local_start: int
    rate: str
    sheared_share: float = 0.0


class State(NamedTuple):
    """Everything that adapts.

    Attributes
    ----------
    options : tuple
        The algorithm's own.
    random_walk : adaptive_metropolis.State
        The global kernel; it also keeps the history and learns the coordinates.
    centre, factor : ndarray of shape (d,), (d, d)
        The local kernel's coordinates, y = factor^-1 (x - centre), as of the last refresh.
    model : tuple or None
        What S(y) is computed from; ``None`` until the first refresh.
    log_scale : float or None
        log nu; ``None`` until it starts from the global kernel's scale.
    moves : int
        Local moves since the gain was last raised, for the Robbins-Monro rate.
    next_refresh : int
        Iteration.
    covariance : ndarray of shape (d, d) or None
        S at the chain's current point, before nu and gamma enter: cached, so that a draw needs one and not two.
        (PCA-Kameleon keeps its principal directions there, shape (m, d).)
    shear : Shear or None
        Coordinates in which the history is straight; ``None`` where it is as straight as it can be without.
    next_shear : int
        Iteration: before the first local move it is learned on a schedule of its own.
    """

    options: Any
    schedule: Schedule
    random_walk: adaptive_metropolis.State
    centre: np.ndarray
    factor: np.ndarray
    model: Any
    log_scale: float | None
    moves: int
    next_refresh: int
    covariance: np.ndarray | None
    shear: Shear | None = None
    next_shear: int = 0


def init(
    x: np.ndarray,
    options: Any,
    *,
    gamma: float | None,
    coordinates: str,
    global_share: float,
    autoregressive_share: float,
    learn_from_values: bool,
    target_accept: float,
    scale: float | None,
    forget: float,
    local_start: int | None,
    tune: int | None,
    random_walk: adaptive_metropolis.State | None,
    factor: np.ndarray | None = None,
    evaluated: tuple[np.ndarray, np.ndarray] | None = None,
    rate: str = "renewed",
    sheared_share: float = 0.0,
) -> State:
    """Start at ``x`` of shape (d,); the arguments are documented where the algorithms take them.

    Raises
    ------
    ValueError
        For an option outside its domain, with the value.
    """
    check_positive(gamma=gamma, scale=scale)
    if rate not in RATES:
        raise ValueError(f"rate must be one of {RATES}, got {rate!r}.")
    if coordinates not in COORDINATES:
        raise ValueError(f"coordinates must be one of {COORDINATES}, got {coordinates!r}.")
    if not 0 <= global_share < 1:
        raise ValueError(f"global_share must lie in [0, 1), got {global_share!r}.")
    if not 0 <= autoregressive_share < 1:
        raise ValueError(f"autoregressive_share must lie in [0, 1), got {autoregressive_share!r}.")
    if not 0 <= sheared_share < 1:
        raise ValueError(f"sheared_share must lie in [0, 1), got {sheared_share!r}.")
    d = len(x)
    if random_walk is None and coordinates == "raw" and global_share == 0 and gamma is not None:
        # The papers' setting: without a history the proposal is N(x, gamma^2 I), in place of the cold start.
        walk = adaptive_metropolis.init(x, covariance="identity", scaling="fixed", scale=gamma)
        random_walk = walk._replace(history=history.empty(d))
        scale = adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(d) if scale is None else scale
    elif random_walk is None:
        random_walk = adaptive_metropolis.init(
            x, target_accept=target_accept, learn_from_values=learn_from_values, tune=tune, factor=factor,
            evaluated=evaluated,
        )  # fmt: skip
    if local_start is None:
        local_start = DRAWS_PER_DIMENSION * d if tune is None else int(0.3 * tune)
    return State(
        options=options,
        schedule=Schedule(
            gamma,
            coordinates,
            global_share,
            autoregressive_share,
            target_accept,
            forget,
            local_start,
            rate,
            sheared_share,
        ),
        random_walk=random_walk,
        centre=np.zeros(d),
        factor=np.eye(d),
        model=None,
        log_scale=None if scale is None else math.log(scale),
        moves=0,
        next_refresh=max(random_walk.next_update, local_start),
        next_shear=max(random_walk.next_update, int(EARLY * local_start)),
        covariance=None,
    )


def propose(
    rng: np.random.Generator, x: np.ndarray, state: State, covariance: Covariance
) -> Proposal:
    """A local move with the covariance at ``x``, or a global one."""
    if global_turn(rng, state):
        return _global(rng, x, state)
    gamma, nu = local_gamma(state), math.exp(state.log_scale)
    normals = rng.standard_normal(len(x))
    x_new, y_new, delta, forward = _draw(
        x, state.centre, state.factor, state.covariance, gamma, nu, normals
    )
    there = covariance(state.model, state.options, y_new)
    # Exactness hangs here: the reverse density takes the covariance *at x_new*, with the same model, nu and gamma as
    # the forward density (Sejdinovic et al., 2014, algorithm 1, step 6).
    reverse = log_step_density(delta, there, gamma, nu)
    return Proposal(x_new, reverse - forward, "local", there)


def _global(rng, x, state):
    """Chosen by nothing that changes after tuning."""
    if state.shear is not None and rng.random() < state.schedule.sheared_share:
        return shear.propose(rng, x, state.shear)
    return adaptive_metropolis.propose(rng, x, state.random_walk)


def global_turn(rng: np.random.Generator, state: State) -> bool:
    """Whether the next move is a global one; decided without looking at where the chain is."""
    share = state.schedule.global_share
    return state.model is None or (share > 0.0 and rng.random() < share)


def start(state: State, x: np.ndarray, covariance: Covariance) -> State:
    """The chain's current point was set from outside: recompute what is cached there."""
    if state.model is None:
        return state
    y = solve_lower(state.factor, x - state.centre)
    return state._replace(covariance=covariance(state.model, state.options, y))


def keep(state: State, outcome: Outcome, covariance: Covariance) -> State:
    """The chain moved: cache the local covariance of its new point."""
    if state.model is None or outcome.proposal.move != "local":
        return start(state, outcome.position, covariance)
    return state._replace(covariance=outcome.proposal.carry)


def tune_scale(state: State, outcome: Outcome) -> State:
    """Tune nu after a local move."""
    moves = state.moves + 1
    log_scale = tuned(state.log_scale, moves, outcome, state.schedule)
    return state._replace(log_scale=log_scale, moves=moves)


def tuned(log_scale: float, moves: int, outcome: Outcome, schedule: Schedule) -> float:
    """A local move's log scale after one Robbins-Monro step, the ``moves``-th."""
    rate = 1.0 / moves
    if schedule.rate == "renewed":
        rate = 2.0 * moves**-adaptive_metropolis.RATE_EXPONENT
    target = outcome.target(schedule.target_accept)
    log_scale = robbins_monro(log_scale, outcome.accept_prob, target, rate)
    return min(max(log_scale, LOG_SCALE_BOUNDS[0]), LOG_SCALE_BOUNDS[1])


def adapt(
    rng: np.random.Generator,
    state: State,
    outcome: Outcome,
    learn: Learn,
    covariance: Covariance,
    tune: Tune = tune_scale,
) -> State:
    """Learn from one draw, whichever kernel made it; called after ``keep``. ``tune`` sees the local moves only."""
    random_walk = adaptive_metropolis.adapt(rng, state.random_walk, outcome)
    state = state._replace(random_walk=random_walk)
    if outcome.proposal.move == "local":
        state = tune(state, outcome)
    elif outcome.proposal.move in shear.MOVES:
        target = state.schedule.target_accept
        state = state._replace(shear=shear.adapt(state.shear, outcome, target))
    if random_walk.iteration < state.next_refresh or random_walk.history is None:
        return _straighten_early(state)
    # Recomputed after every refresh, whether the draw was accepted or not.
    return start(_refresh(rng, state, learn), outcome.position, covariance)


def _straighten_early(state):
    walk = state.random_walk
    t, due = walk.iteration, state.next_shear
    if (
        state.schedule.sheared_share == 0.0
        or state.model is not None
        or t < due
        or walk.history is None
    ):
        return state
    states = history.window(walk.history, state.schedule.forget)
    return state._replace(shear=shear.learn(states, state.shear), next_shear=int(1.2 * t) + 1)


def freeze(state: State) -> State:
    """End of tuning: nothing adapts any more and the history is dropped; the model stays."""
    return state._replace(random_walk=adaptive_metropolis.freeze(state.random_walk))


def scaling(state: State) -> float:
    """The statistic ``scaling``: nu, or the global kernel's scale before the first local move."""
    return math.exp(state.random_walk.log_scale if state.model is None else state.log_scale)


def local_gamma(state: State) -> float:
    """Sd of the isotropic part: given, or half of the global kernel's scale."""
    if state.schedule.gamma is not None:
        return state.schedule.gamma
    return 0.5 * math.exp(state.random_walk.log_scale)


def check_positive(**values: float | None) -> None:
    """Refuse a given value that is not a positive number."""
    for name, value in values.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value!r}.")


def _refresh(rng: np.random.Generator, state: State, learn: Learn) -> State:
    """Relearn the coordinates and the model from the history, if there is enough of it."""
    walk = state.random_walk
    if walk.options.covariance == "window" and walk.last_update < walk.iteration:
        walk = adaptive_metropolis.update_covariance(rng, walk)
    t, d = walk.iteration, len(state.centre)
    states = history.window(walk.history, state.schedule.forget)
    if history.count_distinct(states) <= 4 * d:
        return state._replace(random_walk=walk, next_refresh=max(t + 20, int(1.2 * t)))
    centre, factor = _learned_coordinates(state.schedule.coordinates, walk, states)
    options = walk.options._replace(growth=1.1)
    if options.covariance == "window":  # there is a mean worth moving to
        options = options._replace(autoregressive_share=state.schedule.autoregressive_share)
    renewed = state.schedule.rate == "renewed"
    state = state._replace(
        random_walk=walk._replace(options=options),
        centre=centre,
        factor=factor,
        log_scale=walk.log_scale if state.log_scale is None else state.log_scale,
        moves=max(int(0.3 * state.moves), 10) if renewed else state.moves,
        next_refresh=int(1.1 * t) + 1,
    )
    if state.schedule.sheared_share > 0.0:
        state = state._replace(shear=shear.learn(states, state.shear))
    return state._replace(model=learn(rng, state, states))


def whiten(state: State, states: np.ndarray) -> np.ndarray:
    """``states`` (n, d) in the local kernel's coordinates, one *column* a state, shape (d, n)."""
    return np.ascontiguousarray(np.linalg.solve(state.factor, (states - state.centre).T))


def _learned_coordinates(kind, walk, states):
    if kind == "whitened":
        return walk.mean, walk.factor
    if kind == "scaled":
        return states.mean(axis=0), np.diag(np.maximum(states.std(axis=0), 1e-300))
    d = states.shape[1]
    return np.zeros(d), np.eye(d)


@njit(cache=True)
def _draw(x, centre, factor, covariance, gamma, nu, normals):
    """Draw the step in the kernel's coordinates: (x*, y*, y* - y, log N(y*; y, R(y)))."""
    d = x.size
    root, _ = cholesky(_regularised(covariance, gamma, nu))
    delta = np.empty(d)
    forward = 0.0
    for i in range(d):
        total = 0.0
        for j in range(i + 1):
            total += root[i, j] * normals[j]
        delta[i] = total
        forward -= 0.5 * normals[i] * normals[i] + math.log(root[i, i])
    x_new, y_new = displace(x, centre, factor, delta)
    return x_new, y_new, delta, forward


@njit(cache=True)
def displace(x, centre, factor, delta):
    """The point a step ``delta`` away from ``x`` in the kernel's coordinates: (x*, y*), shape (d,) each."""
    d = x.size
    x_new = np.empty(d)
    for i in range(d):
        total = 0.0
        for j in range(i + 1):
            total += factor[i, j] * delta[j]
        x_new[i] = x[i] + total
    return x_new, solve_lower(factor, x_new - centre)


@njit(cache=True)
def log_step_density(delta, covariance, gamma, nu):
    """Log N(delta; 0, gamma^2 I + nu^2 covariance) up to the constant that both directions share."""
    root, ok = cholesky(_regularised(covariance, gamma, nu))
    return log_normal_density(delta, root) if ok else -math.inf


@njit(cache=True)
def _regularised(covariance, gamma, nu):
    d = covariance.shape[0]
    result = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            result[i, j] = nu * nu * covariance[i, j]
        result[i, i] += gamma * gamma
    return result
