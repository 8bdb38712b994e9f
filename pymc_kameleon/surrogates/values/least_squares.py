"""Weighted least squares with a ridge, by normal equations that are refined, or without one by a pivoted QR."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

QUADRATIC_RIDGE = 1e-10  # to factorise with; refinement takes it back
REFINEMENTS = 3
EXACT_RANK = 1e-14  # relative singular values that count, without a ridge


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


class Problem(NamedTuple):
    """Weighted least squares, with what its normal equations need."""

    columns: np.ndarray  # (n, p)
    y: np.ndarray  # (n,)
    weights: np.ndarray  # (n,)
    free: int  # columns at the beginning without a penalty
    gram: np.ndarray  # (p, p)


def solve(problem: Problem, ridge: float, refinements: int = REFINEMENTS) -> np.ndarray:
    """Coefficients (p,) with a penalty of ``ridge`` times the sum of the weights on all but the free columns."""
    columns, y, weights, free, gram = problem
    if ridge == 0.0 and len(gram) > free:
        return without_penalty(columns, y, weights)
    penalty = np.full(len(gram), ridge * weights.sum())
    penalty[:free] = 0.0
    penalised = gram.copy()
    diagonal = np.einsum("ii->i", penalised)
    diagonal += np.maximum(penalty, QUADRATIC_RIDGE * weights.sum())
    factor = linalg.cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
    coefficients = linalg.cho_solve(factor, (weights * y) @ columns, check_finite=False)
    for _ in range(refinements):
        rest = (weights * (y - columns @ coefficients)) @ columns - penalty * coefficients
        coefficients += linalg.cho_solve(factor, rest, check_finite=False)
    return coefficients


def without_penalty(columns: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Without a penalty, by a pivoted QR: scales are exact or nothing, and their columns of very unequal sizes."""
    root = np.sqrt(weights)
    solved = linalg.lstsq(
        columns * root[:, None],
        root * y,
        cond=EXACT_RANK,
        lapack_driver="gelsy",
        check_finite=False,
    )
    return solved[0]


def solve_stubbornly(problem: Problem, ridge: float) -> np.ndarray:
    """:func:`solve` with as much more ridge as it takes."""
    while True:
        try:
            return solve(problem, ridge)
        except np.linalg.LinAlgError:
            ridge = max(30.0 * ridge, 1e-12)
            if ridge > 1e6:
                raise
