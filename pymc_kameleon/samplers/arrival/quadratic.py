"""The quadratic about an arrival's present point, and the metric in which it is round."""

import math

import numpy as np

from pymc_kameleon.samplers.arrival import model as arrival_model
from pymc_kameleon.samplers.arrival.state import HUGE, State, height, little

# curvature in a metric in which it should be -1: above it, a direction is not concave
CONCAVE = -0.05
SHORTEST = 1e-3  # change of an axis at one change of the metric


def refit(state: State) -> State:
    """A new model, unless the last is new enough for what a fit costs; now and then a new metric."""
    n, d = state.evaluations, len(state.origin)
    points = 0 if state.model is None else len(state.model.points)
    if n - state.fitted <= (points // 200) ** 2:
        return state
    state = fit(state)
    checking = state.near is not None and state.near.hits > 0
    if state.model is None or checking or n < 2 * d or n - state.changed < d // 2 + 2:
        return state
    return fit(change_metric(state), anew=False)


def fit(state: State, anew: bool = True) -> State:
    """A new model, about the present point; ``anew``: with other options, if it is time to choose them."""
    n, d = state.evaluations, len(state.origin)
    origin = state.positions[state.current].copy()
    basis = state.radius * state.metric
    points = np.linalg.solve(basis, (state.positions - origin).T).T
    heights = height(state.log_densities)
    fall = heights[state.current] - heights
    finite = np.isfinite(fall)
    # A wall is not infinitely low: that would leave no quadratic.
    fall = np.where(finite, fall, max(10.0 * fall[finite].max(), 100.0))
    distance = np.sqrt(np.square(points).sum(axis=1))
    distance[state.current] = math.inf
    if state.near is None:  # a chain that was sent elsewhere goes its own way
        distance[fall < 0.0] = math.inf
    size = (d + 1) * (d + 2) // 2
    # in more than 40 dimensions fewer than a quadratic has coefficients
    most = min(int(1.3 * size) + 10, 1200, int((distance < HUGE).sum()))
    if most == 0:
        return state._replace(model=None, fitted=n)
    chosen = np.argsort(distance, kind="stable")[:most]
    chosen = chosen[(distance[chosen] < 1e4) | (np.arange(most) < 2 * d)]
    choices, next_choice = _choices(state, fall[chosen], anew)
    model = arrival_model.fit(points[chosen], fall[chosen], choices)
    return state._replace(model=model, origin=origin, basis=basis, fitted=n, next_choice=next_choice)


def _choices(state, fall, anew):
    """(transform, deviation) to choose from: all of them from time to time."""
    n, model, near = state.evaluations, state.model, state.near is not None
    keeps = not anew or (n < state.next_choice and n >= 3 * len(state.origin))
    if model is not None and keeps and (math.isinf(model.transform) or not near):
        return [(model.transform, model.deviation)], state.next_choice
    transforms = [math.inf] if near else arrival_model.transforms(fall)
    return [(c, e) for c in transforms for e in arrival_model.DEVIATIONS], n + 1 + n // 20


def change_metric(state: State) -> State:
    """Make the quadratic round: L |H|^(-1/2); far away the trust region keeps its volume."""
    values, slopes, vectors = principal(state)
    lengths = np.clip(np.maximum(np.abs(values), 1e-300) ** -0.5, SHORTEST, 10.0)
    radius = state.radius
    if state.near is None:
        radius /= math.exp(np.log(lengths).mean())
    else:
        falls = np.maximum(2.0 / np.maximum(np.abs(slopes), 1e-9), 0.3)
        lengths = np.minimum(np.where(values > CONCAVE, np.minimum(lengths, falls), lengths), 3.0)
    return resize(state, radius, triangular(state.metric @ (vectors * lengths)))._replace(changed=state.evaluations)


def resize(state: State, radius: float, metric: np.ndarray) -> State:
    """Another trust region, unless it would be too large or too small to be computed with."""
    sizes = radius * np.append(np.diag(metric), 1.0)
    if not (sizes.min() > 1e-30 and max(radius, radius * np.abs(metric).max()) < 1e30):
        return state
    return state._replace(radius=radius, metric=metric)


def triangular(root: np.ndarray) -> np.ndarray:
    """The lower triangular factor of root root^T."""
    upper = np.linalg.qr(root.T, mode="r")
    return upper.T * np.where(np.diag(upper) < 0.0, -1.0, 1.0)


def principal(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(curvatures, slopes, vectors) of the log density at the origin, in units of the metric."""
    hessian = arrival_model.curvature(state.model) / state.radius**2
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return values, vectors.T @ state.model.slope / state.radius, vectors


def to_gain(values: np.ndarray, slopes: np.ndarray) -> float:
    """What is to be gained along concave directions: nats."""
    concave = values < CONCAVE
    return 0.5 * (slopes[concave] ** 2 / -values[concave]).sum()


def rise(state: State) -> float:
    """What is still to be gained near by, as the quadratic says, and no more than a near phase begins with: nats."""
    if state.near is None or state.model is None:
        return 0.0
    return min(to_gain(*principal(state)[:2]), little(len(state.origin)))


def normal_approximation(state: State) -> tuple[np.ndarray, np.ndarray]:
    """(centre, axes): Laplace's where the model is concave, a fall of two nats where it is not."""
    values, slopes, vectors = principal(state)
    concave = values < CONCAVE
    bend = np.maximum(-values, 1e-12)
    falls = np.minimum(1.0, 2.0 / np.maximum(np.abs(slopes), 1e-12))
    lengths = np.where(concave, np.clip(bend**-0.5, SHORTEST, 3.0), falls)
    shift = np.where(concave, slopes / bend, 0.0)
    return state.origin + state.metric @ (vectors @ shift), state.metric @ (vectors * lengths)
