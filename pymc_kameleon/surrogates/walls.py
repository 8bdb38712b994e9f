"""Walls: where the density ends, learned from the points that had none.

A simulator that fails, an equilibrium that does not exist, ``return -np.inf``: the log density is -inf from an edge on,
or as good as that (``-1e10``, a penalty), and a surrogate, which is smooth, goes on beyond it, where all its proposals
are refused. A wall is a polynomial q of degree one or two; what has been evaluated says on which side of it there is a
density, and f is lower by ``HEIGHT`` where q < 0. The transitions on f turn there without an evaluation. As every f,
one with walls may be wrong: it is the test that is exact. Their height is not infinite because a chain that comes to a
place behind one that is wrong stays the longer the higher it is.

Measured on eight such posteriors (half spaces, corners, curves, a polytope; three to ten unknowns, pk.sample, six
seeds): without walls 83 effective draws per 1000 evaluations, with them 407. Before a wall had to have half as many
columns as points, 381, and by heights of 40, 5 and 4: 334, 363, 338. A number in place of -inf, on three posteriors
with two seeds: -1e10 201 -> 491, -100 264 -> 458; a ``CLIFF`` of 10 is no worse.
"""

import warnings
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.compiled import njit

# SPARED: how many of the points without a density that would be beyond a wall are left on this side: it may be wrong
# FEWEST: points without a density; FOLDS: of cross-validation; CLIFF: so much lower than f promises is none
HEIGHT, SPARED, FEWEST, FOLDS, CLIFF = 6.0, 0.15, 10, 5, 30.0


@njit(cache=True)
def height(walls, z):
    """How far f is below what is smooth in it at ``z`` (d,): beyond any of ``walls`` (w, columns)."""
    d = z.size
    for w in range(walls.shape[0]):
        q = walls[w, 0]
        for i in range(d):
            slope = walls[w, 1 + i]
            if walls.shape[1] > 1 + d:
                for j in range(i + 1):
                    slope += walls[w, 1 + d + i * (i + 1) // 2 + j] * z[j]
            q += slope * z[i]
        if not q >= 0.0:
            return HEIGHT
    return 0.0


class Walled(NamedTuple):
    """Walls in coordinates z = ``inverse`` (u - ``middle``)."""

    walls: np.ndarray  # (w, columns)
    middle: np.ndarray  # (d,)
    inverse: np.ndarray  # (d, d)


def unbounded(d: int) -> Walled:
    """Without a wall."""
    return Walled(np.zeros((0, 1 + d)), np.zeros(d), np.eye(d))


@njit(cache=True)
def height_at(walled, u):
    """As :func:`height`, at ``u`` (d,)."""
    if walled.walls.shape[0] == 0:
        return 0.0
    return height(walled.walls, walled.inverse @ (u - walled.middle))


def is_there(log_densities: np.ndarray, least: float) -> np.ndarray:
    """Whether there is a density, (n,), where f promises at least ``least``: it is finite, and not far below that.

    ``-1e10``, and any penalty beyond an edge, is meant as minus infinity.
    """
    return np.isfinite(log_densities) & (log_densities > least - CLIFF)


def learn(z: np.ndarray, has_density: np.ndarray) -> np.ndarray:
    """Walls, (w, columns), from points (n, d) of which each has a density or not (n,).

    As many of them, and of that degree, as tell most points apart that are held out; none where that is not half of
    those without a density, as where it is by chance that there is none.
    """
    d, without = z.shape[1], int((~has_density).sum())
    best, found = without, np.zeros((0, 1 + d))
    if without < FEWEST or not has_density.any():
        return found
    columns = _columns(z)
    for count in (1, 2, 4):
        if best < FEWEST:
            break
        for degree in columns[:, : 1 + d], columns:
            if 2 * count * degree.shape[1] < min(without, len(z)):
                wrong, walls = _separating(degree, has_density, count)
                if wrong < best:
                    best, found = wrong, walls
    return found if 2 * best < without else np.zeros((0, 1 + d))


def _columns(z):
    rows, others = np.tril_indices(z.shape[1])
    return np.column_stack([np.ones(len(z)), z, z[:, rows] * z[:, others]])


def _separating(columns, has_density, count):
    """Up to ``count`` walls, after how many points are on the wrong side of them if they are held out."""
    within, without = columns[has_density], columns[~has_density]
    part, walls = _parts(within, without, count), []
    inside, beyond = np.ones(len(within), dtype=bool), np.zeros(len(without), dtype=bool)
    for mine in (np.flatnonzero(part == k) for k in range(count)):
        if len(mine) < FOLDS:
            continue
        here, there = np.empty(len(within)), np.empty(len(mine))  # q, held out
        for fold in range(FOLDS):
            a, b = (np.arange(n) % FOLDS == fold for n in (len(here), len(there)))
            q = _logistic(within[~a], without[mine[~b]])
            here[a], there[b] = within[a] @ q, without[mine[b]] @ q
        inside &= here > 0.0
        beyond[mine] = there < 0.0
        wall = _logistic(within, without[mine])
        least = here.min()  # no point of the density is beyond the wall that did not know of it
        wall[0] -= np.quantile(there[there < least], 1.0 - SPARED) if (there < least).any() else least
        walls.append(wall)
    return int((~inside).sum() + (~beyond).sum()), np.array(walls).reshape(-1, columns.shape[1])


def _parts(within, without, count):
    """Which of ``count`` walls each point without a density is beyond, (n,): by their directions, then by the walls."""
    if count == 1:
        return np.zeros(len(without), dtype=int)
    sd = within[:, 1:].std(axis=0)
    away = (without - within.mean(axis=0))[:, 1:] / np.where(sd > 0.0, sd, 1.0)
    away /= np.sqrt(np.square(away).sum(axis=1, keepdims=True)) + 1e-300
    count = min(count, len(np.unique(away.round(9), axis=0)))  # in one dimension there are two directions
    if count == 1:
        return np.zeros(len(without), dtype=int)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)  # there are fewer walls then
        part = scipy.cluster.vq.kmeans2(away, count, minit="++", seed=0)[1]
    for _ in range(3):
        walls = [_logistic(within, without[part == k]) for k in range(count)]
        part = np.argmin(without @ np.array(walls).T, axis=1)
    return part


def _logistic(within, without):
    """Coefficients of q, positive at points ``within`` and negative ``without`` a density, of root mean square 1."""
    columns, sizes = np.concatenate([within, without]), np.maximum([len(within), len(without)], 1)
    sign = np.repeat([1.0, -1.0], [len(within), len(without)])
    weights = 0.5 / np.where(sign > 0.0, *sizes)
    scale = np.sqrt(np.square(columns).mean(axis=0)) + 1e-300
    scaled = columns / scale

    def loss(w):
        margin = sign * (scaled @ w)
        slope = -sign * weights * scipy.special.expit(-margin)
        return float(weights @ np.logaddexp(0.0, -margin) + 0.5e-4 * w @ w), slope @ scaled + 1e-4 * w

    found = scipy.optimize.minimize(loss, np.zeros(columns.shape[1]), jac=True, method="L-BFGS-B").x
    return found / scale / (np.sqrt(np.square(scaled @ found).mean()) + 1e-300)
