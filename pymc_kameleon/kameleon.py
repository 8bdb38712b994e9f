"""Kernel Adaptive Metropolis-Hastings ("MCMC Kameleon"): x* ~ N(x, gamma^2 I + nu^2 M H M^T).

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (ICML 2014), algorithm 1: the covariance of the proposal
follows the shape of the history *near the current point*, as a kernel sees it (see ``local_covariance``).

Differs from the paper, unless its settings are chosen (``preset="paper"`` of the step): the local moment is
normalised by the kernel's weights, coordinates are whitened by the running covariance, gamma is half the learned
scale of the global kernel, and a stated share of the moves is adaptive Metropolis'. From a cold start the paper's
form does a fifth to a third as well as a good adaptive Metropolis; this one does better than it.

The two kinds of moves are two transition kernels, chosen without looking at the state, each with its own
Metropolis-Hastings ratio: each leaves the target invariant, so nothing else enters the ratio.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pymc_kameleon import adaptive_metropolis, history
from pymc_kameleon.covariance import cholesky, log_normal_density, solve_lower
from pymc_kameleon.kernels import Kernel, get_kernel, median_distance
from pymc_kameleon.local_covariance import NORMALIZATIONS, local_covariance
from pymc_kameleon.metropolis import Outcome, Proposal, robbins_monro

COORDINATES = ("whitened", "scaled", "raw")
LOG_SCALE_BOUNDS = (-8.0, 4.0)


class Options(NamedTuple):
    """What stays fixed; see :func:`init` for meanings and defaults."""

    kernel: Kernel
    n_history: int
    lengthscale: float | None
    lengthscale_factor: float
    gamma: float | None
    normalization: str
    coordinates: str
    global_share: float
    target_accept: float
    subsample: str
    local_start: int | None


class State(NamedTuple):
    """Everything that adapts.

    Attributes
    ----------
    random_walk : adaptive_metropolis.State
        The global kernel; it also keeps the history and learns the coordinates.
    centre, factor : ndarray of shape (d,), (d, d)
        The local kernel's coordinates, y = factor^-1 (x - centre), as of the last refresh.
    points : ndarray of shape (d, n) or None
        The subsample z of the history in those coordinates; ``None`` until the first refresh.
    lengthscale, log_scale : float
        Of the kernel, in those coordinates; log nu.
    moves : int
        Local moves since the scale's gain was last reset.
    next_refresh : int
        Iteration.
    covariance : ndarray of shape (d, d) or None
        The local covariance at the chain's current point, before nu and gamma enter: cached, so that a draw needs
        one of them and not two.
    """

    options: Options
    random_walk: adaptive_metropolis.State
    centre: np.ndarray
    factor: np.ndarray
    points: np.ndarray | None
    lengthscale: float
    log_scale: float
    moves: int
    next_refresh: int
    covariance: np.ndarray | None


def init(
    x: np.ndarray,
    *,
    n_history: int = 1000,
    kernel: str | Kernel = "gaussian",
    lengthscale: float | None = None,
    lengthscale_factor: float = 0.5,
    gamma: float | None = None,
    normalization: str = "local",
    coordinates: str = "whitened",
    global_share: float = 0.5,
    target_accept: float = 0.234,
    scale: float | None = None,
    subsample: str = "even",
    local_start: int | None = None,
    tune: int | None = None,
    random_walk: adaptive_metropolis.State | None = None,
) -> State:
    """Start at ``x`` of shape (d,).

    Parameters
    ----------
    n_history : int
        Largest size of the subsample of the history. Default 1000, the paper's (section 5).
    kernel : str or Kernel
        Default "gaussian". ``normalization="local"`` takes nonnegative kernels only.
    lengthscale : float, optional
        In the kernel's coordinates. Default: ``lengthscale_factor`` times the median distance, at each refresh.
    lengthscale_factor : float
        Default 0.5; the paper's median heuristic is 1.
    gamma : float, optional
        Sd of the isotropic part, in the kernel's coordinates. Default: half of the global kernel's learned scale.
        The paper's is 0.2.
    normalization : {"local", "none", "trace"}
        See ``local_covariance``. "none" is the paper's.
    coordinates : {"whitened", "scaled", "raw"}
        By the running covariance, by the running standard deviations, or not at all (the paper's).
    global_share : float
        Share of adaptive Metropolis moves, in [0, 1). Default 0.5.
    target_accept : float
        Default 0.234 (Roberts, Gelman & Gilks, 1997), also the paper's.
    scale : float, optional
        Where the adaptation of nu starts. Default: the global kernel's learned scale.
    subsample : {"even", "random"}
        Evenly spaced, or drawn without replacement (the paper's, which forgets nothing either).
    local_start : int, optional
        Draws before the first refresh. Default: 0.3 ``tune`` where that is given, else when the global covariance
        has settled.
    tune : int, optional
        Length of tuning, if known.
    random_walk : adaptive_metropolis.State, optional
        The global kernel. Default: its cold start.

    Raises
    ------
    ValueError, TypeError
        For an option outside its domain, with the value.
    """
    kernel = get_kernel(kernel)
    if not (isinstance(n_history, (int, np.integer)) and n_history >= 2):
        raise ValueError(f"n_history must be an integer of at least 2, got {n_history!r}.")
    for name, value in (("lengthscale", lengthscale), ("gamma", gamma), ("scale", scale)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value!r}.")
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {normalization!r}.")
    if normalization == "local" and getattr(kernel, "name", "") in ("linear", "sinc"):
        raise ValueError(
            f"kernel {kernel.name!r} takes negative values: normalization='local' divides by their sum. "
            "Use normalization='none' or another kernel."
        )
    if coordinates not in COORDINATES:
        raise ValueError(f"coordinates must be one of {COORDINATES}, got {coordinates!r}.")
    if not 0 <= global_share < 1:
        raise ValueError(f"global_share must lie in [0, 1), got {global_share!r}.")
    if subsample not in ("even", "random"):
        raise ValueError(f"subsample must be 'even' or 'random', got {subsample!r}.")
    if random_walk is None:
        random_walk = adaptive_metropolis.init(x, target_accept=target_accept, tune=tune)
    if local_start is None and tune is not None:
        local_start = int(0.3 * tune)
    d = len(x)
    options = Options(
        kernel, int(n_history), lengthscale, lengthscale_factor, gamma, normalization, coordinates, global_share,
        target_accept, subsample, local_start,
    )  # fmt: skip
    return State(
        options=options,
        random_walk=random_walk,
        centre=np.zeros(d),
        factor=np.eye(d),
        points=None,
        lengthscale=1.0,
        log_scale=math.nan if scale is None else math.log(scale),
        moves=0,
        next_refresh=max(random_walk.next_update, local_start or 0),
        covariance=None,
    )


def propose(rng: np.random.Generator, x: np.ndarray, state: State) -> Proposal:
    """A local move with the local covariance at ``x``, or a global one."""
    options = state.options
    if state.points is None or (options.global_share > 0.0 and rng.random() < options.global_share):
        return adaptive_metropolis.propose(rng, x, state.random_walk)
    gamma, nu = _gamma(state), math.exp(state.log_scale)
    normals = rng.standard_normal(len(x))
    x_new, y_new, delta, forward = _draw(
        x, state.centre, state.factor, state.covariance, gamma, nu, normals
    )
    covariance = local_covariance(
        y_new, state.points, options.kernel, state.lengthscale, options.normalization
    )
    # Exactness hangs here: the reverse density takes the covariance *at x_new*, with the same history, nu and
    # gamma as the forward density (Sejdinovic et al., 2014, algorithm 1, step 6).
    reverse = _log_density(delta, covariance, gamma, nu)
    return Proposal(x_new, reverse - forward, "local", covariance)


def start(state: State, x: np.ndarray, log_density: float) -> State:
    """The chain's current point was set from outside: forget what was cached there."""
    return state if state.points is None else state._replace(covariance=_covariance_at(state, x))


def keep(state: State, outcome: Outcome) -> State:
    """The chain moved: cache the local covariance of its new point."""
    if state.points is None:
        return state
    proposal = outcome.proposal
    covariance = proposal.carry if proposal.move == "local" else None
    if covariance is None:
        covariance = _covariance_at(state, outcome.position)
    return state._replace(covariance=covariance)


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Learn from one draw, whichever kernel made it; called after ``keep``."""
    random_walk = adaptive_metropolis.adapt(rng, state.random_walk, outcome)
    log_scale, moves = state.log_scale, state.moves
    if outcome.proposal.move == "local":
        moves += 1
        rate = 2.0 * moves**-adaptive_metropolis.RATE_EXPONENT
        log_scale = robbins_monro(log_scale, outcome.accept_prob, state.options.target_accept, rate)
        log_scale = min(max(log_scale, LOG_SCALE_BOUNDS[0]), LOG_SCALE_BOUNDS[1])
    state = state._replace(random_walk=random_walk, log_scale=log_scale, moves=moves)
    if random_walk.iteration >= state.next_refresh and random_walk.history is not None:
        state = _refresh(rng, state, outcome.position)
    return state


def freeze(state: State) -> State:
    """End of tuning: nothing adapts any more and the history is dropped; the subsample stays."""
    return state._replace(random_walk=adaptive_metropolis.freeze(state.random_walk))


def stats(state: State) -> dict[str, float]:
    """``scaling`` (nu, or the global scale before the first refresh), ``n_history``, ``lengthscale``, ``gamma``."""
    if state.points is None:
        return {
            "scaling": math.exp(state.random_walk.log_scale), "n_history": 0.0, "lengthscale": 0.0, "gamma": 0.0,
        }  # fmt: skip
    return {
        "scaling": math.exp(state.log_scale),
        "n_history": float(state.points.shape[1]),
        "lengthscale": state.lengthscale,
        "gamma": _gamma(state),
    }


def _gamma(state: State) -> float:
    if state.options.gamma is not None:
        return state.options.gamma
    return 0.5 * math.exp(state.random_walk.log_scale)


def _covariance_at(state: State, x: np.ndarray) -> np.ndarray:
    y = solve_lower(state.factor, x - state.centre)
    options = state.options
    return local_covariance(
        y, state.points, options.kernel, state.lengthscale, options.normalization
    )


def _refresh(rng: np.random.Generator, state: State, x: np.ndarray) -> State:
    """Relearn the coordinates, draw a new subsample, choose the lengthscale; recompute what is cached at ``x``."""
    options = state.options
    walk = state.random_walk
    settled = walk.last_update
    if walk.options.covariance == "window":
        walk = adaptive_metropolis.update_covariance(walk)
    state = state._replace(random_walk=walk)
    d, t = len(x), walk.iteration
    forget = adaptive_metropolis.FORGET if options.subsample == "even" else 0.0
    states = history.window(walk.history, forget)
    if history.count_distinct(states) <= 4 * d or not _is_settled(state, settled):
        return state._replace(next_refresh=max(t + 20, int(1.2 * t)))
    centre, factor = _coordinates(options.coordinates, walk, states)
    if options.subsample == "even":
        chosen = history.thin(states, options.n_history)
    else:
        size = min(len(states), options.n_history)
        chosen = states[rng.choice(len(states), size, replace=False)]
    points = np.ascontiguousarray(np.linalg.solve(factor, (chosen - centre).T))
    lengthscale = options.lengthscale
    if lengthscale is None:
        lengthscale = options.lengthscale_factor * median_distance(points.T)
    walk = walk._replace(options=walk.options._replace(growth=1.1))
    log_scale = walk.log_scale if math.isnan(state.log_scale) else state.log_scale
    state = state._replace(
        random_walk=walk,
        centre=centre,
        factor=factor,
        points=points,
        lengthscale=lengthscale,
        log_scale=log_scale,
        moves=max(int(0.3 * state.moves), 10),
        next_refresh=int(1.1 * t) + 1,
    )
    # Recomputed after every refresh, whether the last draw was accepted or not.
    return state._replace(covariance=_covariance_at(state, x))


def _is_settled(state: State, last_update: int) -> bool:
    """Whether local moves may begin: at ``local_start``, or once the global covariance has been learned.

    To begin before the history is informative is what breaks the method from a cold start.
    """
    if state.points is not None or state.options.local_start is not None:
        return True
    return state.random_walk.iteration >= 200 * len(state.centre)


def _coordinates(kind, walk, states):
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
    x_new = np.empty(d)
    for i in range(d):
        total = 0.0
        for j in range(i + 1):
            total += factor[i, j] * delta[j]
        x_new[i] = x[i] + total
    return x_new, solve_lower(factor, x_new - centre), delta, forward


@njit(cache=True)
def _log_density(delta, covariance, gamma, nu):
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
