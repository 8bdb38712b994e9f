"""Weighted least squares with a ridge, by normal equations that are refined, or without one by a pivoted QR."""

from typing import NamedTuple

import numpy as np
import scipy

REFINEMENTS = 3
# relative to the mean square of a column; the first to factorise with, where refinement takes it back
RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
NARROWEST = 1e-11  # of a coordinate's sd: the shortest axis that whitening resolves


def column_size(columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted root mean square of every column."""
    return np.sqrt(weights @ np.square(columns) / weights.sum()) + 1e-300


def weighted_gram(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A' W b."""
    root = np.sqrt(weights)[:, None]
    if a is b:
        a = a * root
        return a.T @ a
    return (a * root).T @ (b * root)


def with_ridge(gram: np.ndarray, ridge: np.ndarray | float) -> tuple[np.ndarray, bool]:
    """Cholesky factor of ``gram`` (p, p) with ``ridge`` (p,) on its diagonal, as ``linalg.cho_solve`` takes it.

    Raises
    ------
    numpy.linalg.LinAlgError
        If that is not positive definite.
    """
    penalised = gram.copy()
    penalised[np.diag_indices_from(penalised)] += ridge
    return scipy.linalg.cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)


class Problem(NamedTuple):
    """Weighted least squares, with what its normal equations need."""

    columns: np.ndarray  # (n, p)
    y: np.ndarray  # (n,), or (n, k): of several at once, with a ridge or free columns alone
    weights: np.ndarray  # (n,)
    free: int  # columns at the beginning without a penalty
    gram: np.ndarray  # (p, p)


def solve(problem: Problem, ridge: float, refinements: int = REFINEMENTS) -> np.ndarray:
    """Coefficients (p,) or (p, k); all but the free columns have a penalty, ``ridge`` times the sum of the weights."""
    columns, y, weights, free, gram = problem
    if ridge == 0.0 and len(gram) > free:
        # scales are exact or nothing, and their columns of very unequal sizes: a pivoted QR
        root = np.sqrt(weights)
        return scipy.linalg.lstsq(
            columns * root[:, None], root * y,
            cond=1e-14, lapack_driver="gelsy", check_finite=False,
        )[0]  # fmt: skip
    penalty = np.full(len(gram), ridge * weights.sum())
    penalty[:free] = 0.0
    factor = with_ridge(gram, np.maximum(penalty, RIDGES[0] * weights.sum()))
    coefficients = scipy.linalg.cho_solve(factor, ((weights * y.T) @ columns).T, check_finite=False)
    for _ in range(refinements):
        rest = ((weights * (y - columns @ coefficients).T) @ columns - penalty * coefficients.T).T
        coefficients += scipy.linalg.cho_solve(factor, rest, check_finite=False)
    return coefficients


def solve_stubbornly(problem: Problem, ridge: float) -> np.ndarray:
    """:func:`solve` with as much more ridge as it takes."""
    while True:
        try:
            return solve(problem, ridge)
        except np.linalg.LinAlgError:
            ridge = max(30.0 * ridge, 1e-12)
            if ridge > 1e6:
                raise


def whiten(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean (d,) and lower triangular factor (d, d) of the weighted covariance of ``points`` (n, d).

    By QR of the points: a covariance matrix would already have lost the axes that are 1e-8 of the longest.
    Coordinates that do not vary get ``NARROWEST``.
    """
    weights = weights / weights.sum()
    centre = weights @ points
    centre = centre + weights @ (points - centre)
    centred = points - centre
    scale = np.sqrt(weights @ np.square(centred)) + 1e-15 * np.abs(centre) + 1e-300
    return centre, scale[:, None] * root(np.sqrt(weights)[:, None] * (centred / scale))


def root(rows: np.ndarray) -> np.ndarray:
    """Lower triangular L with L L' = ``rows``' ``rows`` of shape (d, d), the columns of unit length or so."""
    d = rows.shape[1]
    augmented = np.concatenate([rows, NARROWEST * np.eye(d)])
    r = scipy.linalg.qr(augmented, mode="r", check_finite=False)[0][:d]
    return np.ascontiguousarray((r * np.where(np.diag(r) < 0.0, -1.0, 1.0)[:, None]).T)
