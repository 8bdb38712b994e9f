"""A log density over one or two of its coordinates: itself, and marginals by importance sampling."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp, ndtri

Values = Callable[[np.ndarray], np.ndarray]
WIDEN = 1.2  # of their normal distribution: its tails hold the conditional's
MOST_INTEGRATED = 10  # coordinates: over more, some hundred points are no integral
FARTHER = 1.1  # than the farthest state, in sds of the coordinates shown: beyond that nothing was learned


def places(chosen: Sequence[int]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Panels, by row and column, and the coordinates that each shows: pairs, or one alone."""
    if len(chosen) == 1:
        return {(0, 0): (chosen[0],)}
    return {(j - 1, i): (chosen[i], chosen[j]) for j in range(1, len(chosen)) for i in range(j)}


def nodes_of(shown: Sequence[int], grids: Sequence[np.ndarray]) -> np.ndarray:
    """Values of the coordinates that are shown at every node of a panel, rows upwards, shape (nodes, 1 or 2)."""
    if len(shown) == 1:
        return grids[0][:, None]
    across, up = np.meshgrid(*grids)
    return np.column_stack([across.ravel(), up.ravel()])


def slice_at(values: Values, point: np.ndarray, shown: Sequence[int], nodes: np.ndarray) -> np.ndarray:
    """The log density at the nodes, the other coordinates held at ``point``, shape (nodes,)."""
    x = np.tile(point, (len(nodes), 1))
    x[:, list(shown)] = nodes
    return values(x)


def marginal(values: Values, states: np.ndarray, shown: Sequence[int], nodes: np.ndarray, count: int) -> np.ndarray:
    """Log of the density's integral over the other coordinates at the nodes, up to a constant, shape (nodes,).

    m(a) = mean over k of exp f(a, b_k) / q(b_k),  b_k ~ q: what a normal distribution fitted to ``states`` (n, d) says
    of the others given those shown, somewhat wider; ``count`` of them. Of a normal f the ratios are all but constant.
    The same random numbers serve all nodes, so that what is left of the error is smooth. Where more than
    ``MOST_INTEGRATED`` are left, f at their means given those shown, which is a marginal of a normal f, too.
    """
    shown = list(shown)
    rest = [i for i in range(states.shape[1]) if i not in shown]
    if not rest:
        return slice_at(values, states[0], shown, nodes)
    mean, covariance = states.mean(axis=0), np.atleast_2d(np.cov(states.T))
    slope = covariance[np.ix_(rest, shown)] @ np.linalg.pinv(covariance[np.ix_(shown, shown)])
    left = covariance[np.ix_(rest, rest)] - slope @ covariance[np.ix_(shown, rest)]
    scales, axes = np.linalg.eigh(0.5 * (left + left.T))
    root = WIDEN * axes * np.sqrt(np.maximum(scales, 1e-12 * scales.max()))
    normals = quasi_normal(len(rest), count) if len(rest) <= MOST_INTEGRATED else np.zeros((1, len(rest)))
    towards = mean[rest] + (nodes - mean[shown]) @ slope.T
    total = np.empty((len(normals), len(nodes)))
    x = np.empty((len(nodes), states.shape[1]))
    x[:, shown] = nodes
    for k, e in enumerate(normals):
        x[:, rest] = towards + root @ e
        total[k] = values(x) + 0.5 * e @ e
    return logsumexp(total, axis=0)


def near(states: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Which of ``nodes`` (m, k) are hardly farther from the mean of ``states`` (n, k) than the farthest of them."""
    mean, inverse = states.mean(axis=0), np.linalg.pinv(np.atleast_2d(np.cov(states.T)))
    out, reached = (np.einsum("ni,ij,nj->n", x - mean, inverse, x - mean) for x in (nodes, states))
    return out <= FARTHER**2 * reached.max()


def quasi_normal(dim: int, count: int) -> np.ndarray:
    """Standard normal points that fill space evenly, always the same ones, shape (count, dim)."""
    from scipy.stats import qmc  # slow to import

    rotation = np.random.default_rng(0).random(dim)
    uniform = (qmc.Halton(dim, scramble=False).random(count) + rotation) % 1.0
    return ndtri(np.clip(uniform, 1e-9, 1.0 - 1e-9))
