"""Fit one black box: a polynomial, or a spline where no polynomial is good.

The degree is chosen by the error on a held-out fifth, priced in units of the log density. Gram matrices of nested sets
are submatrices of the largest one's, which is computed once a factor.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.surrogates.factors.splines import MARGIN, Spline, better, columns, nested
from pymc_kameleon.surrogates.values.least_squares import RIDGES, with_ridge

# (degree, variables in one monomial): the candidates, smallest first
CANDIDATES = ((1, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3), (6, 3))


class Polynomial(NamedTuple):
    """One fitted factor: monomials, their coefficients (m, outputs), its held-out error, its degree, what is added."""

    variables: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray
    error: float
    degree: tuple[int, int]
    spline: Spline | None = None

    @property
    def bends(self) -> bool:
        """Whether it is more than a quadratic."""
        return self.degree[0] > 2 or self.spline is not None


def size(d: int, degree: int, order: int) -> int:
    """How many :func:`pymc_kameleon.surrogates.factors.splines.nested` monomials there are."""
    return sum(math.comb(d, n) * math.comb(degree, n) for n in range(min(d, order, degree) + 1))


def within(powers: np.ndarray, degree: int, order: int) -> np.ndarray:
    """Which rows of a larger set belong to a smaller one, shape (m,)."""
    return (powers.sum(axis=1) <= degree) & ((powers > 0).sum(axis=1) <= order)


def fit_factor(
    rng: np.random.Generator, s: np.ndarray, outputs: np.ndarray, weights: np.ndarray,
    precision: np.ndarray, good: float, z: np.ndarray | None = None, poor: float = np.inf,
    margin: float = MARGIN,
) -> Polynomial:  # fmt: skip
    """The polynomial whose held-out error is smallest, or a spline where that is poor and the spline far better.

    ``s`` are (n, d), ``outputs`` (n, m), ``weights`` (n,), ``precision`` (m,). The search ends at the squared error
    ``good`` of the log density; above ``poor`` a spline is tried, in ``z`` (n, d), which are ``s`` in whitened
    coordinates (None: no spline), and taken if its squared error is at most ``margin`` times the polynomial's.
    """
    n, d = s.shape
    held = rng.random(n) < 0.2
    held[rng.integers(n, size=3)] = True
    candidates = _affordable(n, d)
    variables, powers = nested(d, max(c[0] for c in candidates), max(c[1] for c in candidates))
    keep = np.any([within(powers, *candidate) for candidate in candidates], axis=0)
    variables, powers = variables[keep], powers[keep]
    x = columns(s, variables, powers)
    size_of = np.sqrt((weights[:, None] * x * x).sum(axis=0) / weights.sum()) + 1e-300
    x = x / size_of
    train = _moments(x[~held], outputs[~held], weights[~held])
    rest = _moments(x[held], outputs[held], weights[held])
    free = powers.sum(axis=1) <= 2  # hardly shrunk
    best = None
    for degree, order in candidates:
        mine = np.flatnonzero(within(powers, degree, order))
        for ridge in RIDGES[: 1 if degree <= 2 else 4]:
            coefficients = _solve(train, mine, free, ridge)
            if coefficients is None:
                continue
            error = _held_out(x[np.ix_(held, mine)] @ coefficients - outputs[held], weights[held], precision)
            # a larger set has to earn it
            if best is None or error * (1.03 if degree > 2 else 1.0) < best[0]:
                best = (error, degree, order, mine, ridge)
        if best is not None and best[0] < good and degree >= 2:
            break
    if best is None:
        raise np.linalg.LinAlgError("no polynomial fits")
    error, degree, order, mine, ridge = best
    if z is not None and error > poor:
        priced = partial(_held_out, weights=weights[held], precision=precision)
        found = better(s, z, outputs, weights, held, priced, margin * error)
        if found is not None:
            spline, error = found
            return Polynomial(*nested(d, 2, 2), spline.coefficients, float(np.sqrt(error)), (2, min(d, 2)), spline)
    both = tuple(a + b for a, b in zip(train, rest, strict=True))
    coefficients = _solve(both, mine, free, ridge)
    if coefficients is None:
        raise np.linalg.LinAlgError("no polynomial fits")
    coefficients = coefficients / size_of[mine][:, None]
    return Polynomial(variables[mine], powers[mine], coefficients, float(np.sqrt(error)), (degree, order))


def _affordable(n, d):
    """Candidates for n points in d inputs; a linear one only where there is nothing else.

    A plane that is good enough nearby is wrong a little further, and would end the search.
    """
    found: list[tuple[int, int]] = []
    for degree, order in CANDIDATES:
        chosen = (degree, min(order, d))
        p = size(d, *chosen)
        share = 1.0 if degree == 1 else 0.65 if degree == 2 else 0.45  # coefficients a point
        if p <= min(share * n, 250) and chosen not in found:
            found.append(chosen)
    if any(degree == 2 for degree, _ in found):
        found = found[1:]
    return found or [(1, 1)]


def _moments(x, outputs, weights):
    weighted = x * weights[:, None]
    return weighted.T @ x, weighted.T @ outputs, weights.sum()


def _solve(sums, mine, free, ridge):
    gram, moments, total = sums
    try:
        factor = with_ridge(gram[np.ix_(mine, mine)], total * np.where(free[mine], RIDGES[0], ridge))
    except scipy.linalg.LinAlgError:
        return None
    return scipy.linalg.cho_solve(factor, moments[mine], check_finite=False)


def _held_out(wrong, weights, precision):
    """Squared error of the log density; the worst twentieth of the points counts as the next worst."""
    square = (precision * np.square(wrong)).sum(axis=1)
    if not np.isfinite(square).all():
        return np.inf
    if len(square) > 10:
        square = np.minimum(square, np.quantile(square, 0.95))
    return float((weights * square).sum() / weights.sum())
