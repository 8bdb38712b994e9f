"""A lengthscale for each coordinate, by the held-out score objective.

One lengthscale for all coordinates has to be short enough for the direction in which the target bends and is then too
short for all others, in which it is nearly normal: on the banana B(0.03, 100) in 8 whitened coordinates the best
isotropic kernel reaches J = -6 and one with a lengthscale for each coordinate -24, where the true score has -26. The
objective itself says which coordinates those are.

The search is greedy: coordinate by coordinate, twice or half the lengthscale, as long as J falls.
It runs on random features even for *lite*, because there a candidate costs a few milliseconds.

Differs from the paper, which validates one lengthscale (Strathmann et al., 2015, appendix A.1).
"""

import numpy as np

from pymc_kameleon.numerics.random_features import RandomFeatures
from pymc_kameleon.surrogates.scores.finite import finite_scores
from pymc_kameleon.surrogates.scores.objective import GaussianBase, lengthscale_grid


def search_lengthscales(
    points: np.ndarray,
    folds: list[np.ndarray],
    unit_features: RandomFeatures,
    regularizations: np.ndarray,
    weights: np.ndarray,
    base: GaussianBase,
    *,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Lengthscales of shape (d,) with a small held-out J, in at most two passes over the coordinates.

    ``unit_features`` are drawn at lengthscale 1; of ``regularizations`` only the neighbours of the current one are
    tried beside each candidate. The search begins at ``start`` (d,), an earlier result, if that is better than every
    isotropic lengthscale.
    """
    dim = points.shape[1]
    isotropic = lengthscale_grid(points, 5)

    def scores(lengthscale, grid):
        return finite_scores(unit_features, points, folds, lengthscale, grid, weights, base).mean(axis=0)

    best, lengthscale, at = np.inf, np.full(dim, isotropic[2]), 0
    candidates = [np.full(dim, l) for l in isotropic]
    for candidate in candidates if start is None else [*candidates, start]:
        trial = scores(candidate, regularizations)
        if trial.min() < best:
            best, lengthscale, at = trial.min(), candidate, int(trial.argmin())
    low, high = isotropic[2] / 64.0, isotropic[2] * 64.0
    for _ in range(2):
        before = best
        for l in range(dim):
            for factor in (2.0, 0.5):
                while low < lengthscale[l] * factor < high:
                    candidate = lengthscale.copy()
                    candidate[l] *= factor
                    first = max(at - 1, 0)
                    trial = scores(candidate, regularizations[first : at + 2])
                    if not trial.min() < best - 0.01 * abs(best):
                        break
                    best, lengthscale = trial.min(), candidate
                    at = first + int(trial.argmin())
        if best == before:
            break
    return lengthscale
