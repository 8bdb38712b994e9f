"""Do chains that tune together stand in two modes? From their states; a few evaluations confirm it.

One surrogate for two modes that are far apart fits neither, and the chains of both wait for it. So while it is bad
(``BAD``) the states of the chains are cut in two, and the cut is *suspected* if the halves' means are ``APART``
within-half sds from each other. Halves of one mode, however long or bent, are 3 to 9
apart once the chains have moved a little (of a ring, a flower, a banana 12 at most in the first rounds), modes that
need this 9 to 500. Only then are ``LINE`` points evaluated on the line between the highest points of both. If the log
density falls there ``DEEP`` below where a draw of the lower one would be, d/2 below its top, and stays ``CLEFT`` below
that on the whole plane between them (:mod:`pymc_kameleon.samplers.modes.saddle`), they are modes.
"""

from typing import NamedTuple

import numpy as np
import scipy

BAD = 1.0  # held-out error of a surrogate that is no good, in units of the log density
APART = 9.0  # within-half sds
DEEP, CLEFT = 8.0, 3.0  # nats: on the line, on the plane
LINE = 3  # points
MEMBERS = 2  # chains that a mode has at least


class Cut(NamedTuple):
    """States in two halves, by a plane."""

    normal: np.ndarray  # (d,)
    offset: float  # A point x belongs to the second half if ``normal @ x > offset``
    distance: float  # between the halves' means, in within-half sds
    factor: np.ndarray  # (d, d): lower Cholesky factor of the within-half covariance

    def sides(self, x: np.ndarray) -> np.ndarray:
        """0 or 1 for points (n, d)."""
        return (x @ self.normal > self.offset).astype(int)


def best_cut(states: np.ndarray) -> Cut | None:
    """Of states (n, d); None if they are too few.

    Of cuts whose halves are ``APART`` that with the least scatter within halves, in units of the coordinates' sds:
    chains that have hardly moved are apart, too, and a cut between modes leaves less. If none is, the farthest. A
    function of the states: nothing is random.
    """
    from scipy.cluster.vq import kmeans2  # slow to import

    x = np.unique(states, axis=0)
    n, d = x.shape
    if n < 2 * d + 2:
        return None
    scaled = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), np.finfo(float).tiny)
    cuts = []
    for first in np.arange(6) * (n - 1) // 5:
        farthest = int(np.argmax(np.square(scaled - scaled[first]).sum(axis=1)))
        _, labels = kmeans2(scaled, scaled[[first, farthest]], minit="matrix", iter=20, seed=0)
        if min(np.bincount(labels, minlength=2)) >= 2:
            scatter = sum(scaled[labels == side].var(axis=0).sum() * np.sum(labels == side) for side in (0, 1))
            cuts.append((float(scatter), _cut(x, labels)))
    if not cuts:
        return None
    apart = [c for c in cuts if c[1].distance >= APART]
    if apart:
        return min(apart, key=lambda c: c[0])[1]
    return max(cuts, key=lambda c: c[1].distance)[1]


def cut_of_ends(positions: np.ndarray, log_densities: np.ndarray, factor: np.ndarray) -> Cut | None:
    """Between the highest of the points where climbs have ended, (n, d) and (n,), and the farthest from it.

    ``factor`` (d, d) is that of the covariance about the highest. None where they are not ``APART``.
    """
    if len(positions) < 2:
        return None
    away = positions - positions[np.argmax(log_densities)]
    z = np.linalg.solve(factor, away.T).T
    far = int(np.argmax(np.square(z).sum(axis=1)))
    distance = float(np.sqrt(z[far] @ z[far]))
    if distance < APART:
        return None
    normal = np.linalg.solve(factor.T, z[far])
    return Cut(normal, float(normal @ (positions[far] - 0.5 * away[far])), distance, factor)


def _cut(x, labels):
    """Fisher's linear discriminant."""
    a, b = x[labels == 0], x[labels == 1]
    within = np.atleast_2d(np.cov(a.T)) * (len(a) - 1) + np.atleast_2d(np.cov(b.T)) * (len(b) - 1)
    within /= len(x) - 2
    within += 1e-9 * np.diag(x.var(axis=0))
    away = b.mean(axis=0) - a.mean(axis=0)
    normal = scipy.linalg.cho_solve(scipy.linalg.cho_factor(within, lower=True), away)
    offset = normal @ (0.5 * (a.mean(axis=0) + b.mean(axis=0)))
    return Cut(normal, float(offset), float(np.sqrt(away @ normal)), np.linalg.cholesky(within))


def is_suspected(cut: Cut | None, error: float, positions: np.ndarray) -> bool:
    """Whether ``cut`` may part two modes of chains at ``positions`` (n, d), whose surrogate has that held-out error."""
    if cut is None or not error > BAD or cut.distance < APART:
        return False
    return bool(np.bincount(cut.sides(positions), minlength=2).min() >= MEMBERS)


def between(cut: Cut, positions: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
    """Points (LINE, d) between the highest of either half of what is evaluated, (n, d) and (n,)."""
    sides = cut.sides(positions)
    a, b = (positions[np.argmax(np.where(sides == k, log_densities, -np.inf))] for k in (0, 1))
    share = np.linspace(0.0, 1.0, LINE + 2)[1:-1, None]
    return (1.0 - share) * a + share * b


def plausible(cut: Cut, positions: np.ndarray, log_densities: np.ndarray) -> float:
    """The log density that a draw of the lower half has, of all that is known, (n, d) and (n,)."""
    sides = cut.sides(positions)
    lower = min(float(np.max(log_densities[sides == k])) for k in (0, 1))
    return lower - 0.5 * positions.shape[1]
