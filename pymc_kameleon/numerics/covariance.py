"""Means and covariances that add up, and the small triangular algebra every algorithm here lives on.

The triangular functions are compiled loops that cost what a call into LAPACK costs up to d = 20 or so (under 2
microseconds). They take float64 arrays, return new ones, never raise, and can be called from other compiled functions.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit


class Moments(NamedTuple):
    """Count, mean and scatter of a set of points: enough to add a point or a block to it."""

    count: int  # type: ignore[assignment]  # shadows tuple.count
    mean: np.ndarray  # (d,)
    scatter: np.ndarray  # (d, d): sum_i (x_i - mean)(x_i - mean)^T, not divided by anything


def summarise(points: np.ndarray) -> Moments:
    """The moments of the rows of ``points``, shape (n, d), n >= 1, in two passes (one BLAS product)."""
    mean = points.mean(axis=0)
    centred = points - mean
    return Moments(len(points), mean, centred.T @ centred)


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of the union of two disjoint sets of points (Chan, Golub & LeVeque, 1983)."""
    count = a.count + b.count
    delta = b.mean - a.mean
    mean = a.mean + delta * (b.count / count)
    scatter = a.scatter + b.scatter + np.outer(delta, delta) * (a.count * b.count / count)
    return Moments(count, mean, scatter)


def covariance(moments: Moments) -> np.ndarray:
    """Covariance scatter / count, shape (d, d), as the adaptive samplers' recursions have it."""
    return moments.scatter / max(moments.count, 1)


# --- triangular algebra -------------------------------------------------------------------------


@njit(cache=True)
def cholesky(a):
    """Lower Cholesky factor L of symmetric ``a`` = L L^T, (d, d), and whether there is one; reads the lower triangle.

    There is none, and L means nothing, if ``a`` is not positive definite in floating point or has a NaN or infinity.
    """
    d = a.shape[0]
    factor = np.zeros((d, d))
    for i in range(d):
        for j in range(i):
            value = a[i, j]
            for k in range(j):
                value -= factor[i, k] * factor[j, k]
            factor[i, j] = value / factor[j, j]
        pivot = a[i, i]
        for k in range(i):
            pivot -= factor[i, k] * factor[i, k]
        if not 0.0 < pivot < np.inf:  # written so that a NaN fails it
            return factor, False
        factor[i, i] = math.sqrt(pivot)
    return factor, True


@njit(cache=True)
def multiply_lower(factor, z):
    """L z for a lower triangular ``factor`` of shape (d, d) and ``z`` of shape (d,)."""
    d = z.shape[0]
    result = np.empty(d)
    for i in range(d):
        value = 0.0
        for k in range(i + 1):
            value += factor[i, k] * z[k]
        result[i] = value
    return result


@njit(cache=True)
def multiply(matrix, z):
    """``matrix`` z, every row's sum in the order of its entries, as BLAS' is not on every processor."""
    result = np.zeros(matrix.shape[0])
    for i in range(result.size):
        for k in range(z.size):
            result[i] += matrix[i, k] * z[k]
    return result


@njit(cache=True)
def solve_lower(factor, b):
    """L^-1 b for a lower triangular ``factor`` of shape (d, d) and ``b`` of shape (d,)."""
    d = b.shape[0]
    result = np.empty(d)
    for i in range(d):
        value = b[i]
        for k in range(i):
            value -= factor[i, k] * result[k]
        result[i] = value / factor[i, i]
    return result


@njit(cache=True)
def log_determinant(factor):
    """Sum_i log L_ii = log det L, half the log determinant of L L^T."""
    value = 0.0
    for i in range(factor.shape[0]):
        value += math.log(factor[i, i])
    return value


@njit(cache=True)
def log_normal_density(delta, factor):
    """Log density log N(delta; 0, L L^T) without its constant -(d/2) log(2 pi), L the lower ``factor``."""
    whitened = solve_lower(factor, delta)
    value = 0.0
    for i in range(whitened.size):
        value -= 0.5 * whitened[i] * whitened[i] + math.log(factor[i, i])
    return value


@njit(cache=True)
def cholesky_update(factor, v):
    """The lower Cholesky factor of L L^T + v v^T in O(d^2) (Golub & Van Loan, 2013, sec. 6.5.4).

    It always exists: Givens rotations only. For a L L^T + b v v^T give sqrt(a) L and sqrt(b) v.
    """
    d = v.shape[0]
    updated = factor.copy()
    rest = v.copy()
    for k in range(d):
        radius = math.hypot(updated[k, k], rest[k])
        cosine, sine = updated[k, k] / radius, rest[k] / radius
        updated[k, k] = radius
        for i in range(k + 1, d):
            column = updated[i, k]
            updated[i, k] = cosine * column + sine * rest[i]
            rest[i] = cosine * rest[i] - sine * column
    return updated


# --- an adapted shape: a covariance of determinant one ------------------------------------------


@njit(cache=True)
def relative_condition(factor, base):
    """Condition number of B^-1 L L^T B^-T, (d, d) lower ``factor`` L and ``base`` B: O(d^3)."""
    d = factor.shape[0]
    relative = np.empty((d, d))
    for j in range(d):
        relative[:, j] = solve_lower(base, factor[:, j].copy())
    return np.linalg.cond(relative) ** 2


@njit(cache=True)
def update_shape(factor, base, condition, condition_limit, v, keep, weight):
    """Factor of keep L L^T + weight v v^T scaled to determinant one, unless ill-conditioned.

    Eigenvalues of the new shape relative to the old one lie between keep and keep + weight |L^-1 v|^2, so the
    condition number grows at most by their ratio. That bound is carried along in O(d^2) and replaced by the condition
    number itself, in O(d^3), only when it passes the limit: once in O(d) updates for weights of O(1 / d^2).

    ``base`` is the factor of the shape relative to which the condition number is measured: that of the start, which
    makes the limit independent of the units of the coordinates. ``condition`` bounds that of L L^T.

    (The factor, the old one if the new one's condition number would exceed the limit; what was taken out, so that the
    new factor times exp(log_scale) is the factor of keep L L^T + weight v v^T; a bound on its condition number.)
    """
    whitened = solve_lower(factor, v)
    grown = condition * (1.0 + weight / keep * np.dot(whitened, whitened))
    if not grown < np.inf:  # v is not finite
        return factor, 0.0, condition
    updated = cholesky_update(math.sqrt(keep) * factor, math.sqrt(weight) * v)
    log_scale = log_determinant(updated) / v.shape[0]
    updated *= math.exp(-log_scale)
    if grown > condition_limit:
        grown = relative_condition(updated, base)
        if grown > condition_limit:
            return factor, 0.0, condition
    return updated, log_scale, grown
