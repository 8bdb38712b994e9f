"""Score matching *lite*: f = log q0 + sum_i a_i k(z_i, .), a Gaussian kernel at every point z_i.

With K the Gram matrix of k = exp(-sum_l (x_l - z_l)^2 / (2 l_l^2)), R_ij = sum_l (z_il - z_jl)^2 /
l_l^4, T = sum_l l_l^-2 and W the diagonal matrix of weights (of trace one), the objective of
:mod:`pymc_kameleon.surrogates.scores.objective` is the quadratic

    J(a) = h'a + a'Qa / 2,
    h_i = sum_j w_j (R_ij - T) K_ij    (+ the pull of the base density),
    Q = [M + M' - R * (K W K)] / 2,    M = (K * R) W K,    * entry by entry,

because d_l k(z_i, x) = k (z_il - x_l) / l_l^2 and 2 (z_i - z_k).(z_j - z_k) = r_ik^2 + r_jk^2 -
r_ij^2: one matrix product and one symmetric one, whatever d. The estimate solves (Q + n lambda I) a
= -h, which minimises J + (lambda / 2) n |a|^2. For one function represented with ever more centres
a_i falls as 1/n, so that lambda means the same for every n.

Differs from the paper: Strathmann et al. (2015, proposition 1) have one lengthscale and put lambda beside sums. With
their C and b, Q = 4 C / (n sigma^2) and h = 2 b / (n sigma); their lambda is n^2 sigma^2 / 4 times this one.

Away from the points f falls back to its base density; without one, to a constant: a random walk.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.objective import (
    GaussianBase,
    by_one_triangle,
    normalized_weights,
    solve_regularized,
)


class LiteSurrogate(NamedTuple):
    """A fitted *lite* surrogate."""

    centres: np.ndarray  # (n, d)
    coefficients: np.ndarray  # (n,)
    lengthscale: np.ndarray  # (d,)
    base: GaussianBase  # zero precision is none

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Gradients of f at the rows of ``x`` (n, d), shape (n, d)."""
        weighted = _gram(x, self.centres, self.lengthscale) * self.coefficients
        pull = weighted @ self.centres - weighted.sum(axis=1)[:, None] * x
        return self.base.gradients(x) + pull / self.lengthscale**2

    def laplacians(self, x: np.ndarray) -> np.ndarray:
        """Laplacians sum_l d_l^2 f at the rows of ``x`` (n, d), shape (n,)."""
        kernel = _gram(x, self.centres, self.lengthscale)
        squared = _squared_distances(x, self.centres, self.lengthscale**2) - (self.lengthscale**-2.0).sum()
        return (squared * kernel) @ self.coefficients - self.base.precision.sum()


@njit(cache=True)
def _lite(x, surrogate):
    centres, coefficients, lengthscale, (mean, precision) = surrogate
    inverse = 1.0 / lengthscale
    total, slope = 0.0, np.zeros(x.size)
    for l in range(x.size):
        total -= 0.5 * precision[l] * (x[l] - mean[l]) ** 2
    for i in range(coefficients.size):
        squared = 0.0
        for l in range(x.size):
            squared += ((centres[i, l] - x[l]) * inverse[l]) ** 2
        weight = coefficients[i] * math.exp(-0.5 * squared)
        total += weight
        for l in range(x.size):
            slope[l] += weight * (centres[i, l] - x[l])
    for l in range(x.size):
        slope[l] = slope[l] * inverse[l] ** 2 - precision[l] * (x[l] - mean[l])
    return total, slope


score_matching.implement(LiteSurrogate, _lite)


# --- the estimate ---------------------------------------------------------------------------------


def fit_lite(
    points: np.ndarray,
    lengthscale: float | np.ndarray,
    regularization: float,
    weights: np.ndarray | None,
    base: GaussianBase,
) -> LiteSurrogate | None:
    """Fit to draws ``points`` (n, d), each a centre, by a dense Cholesky factorisation: O(n^3), whatever d.

    ``lengthscale`` is a number or (d,), ``weights`` are (n,), None if they are equal; ``None`` if ``regularization``,
    lambda > 0, is too small for floating point.
    """
    n, dim = points.shape
    scales = np.full(dim, lengthscale, dtype=float)
    slope, curvature = _objective(points, scales, normalized_weights(weights, n), base)
    coefficients = solve_regularized(curvature, -slope, n * regularization)
    return None if coefficients is None else LiteSurrogate(points, coefficients, scales, base)


def _squared_distances(x, z, scale):
    """Sum_l (x_l - z_l)^2 / scale_l^2 between the rows of x and of z, shape (len(x), len(z))."""
    x, z = x / scale, z / scale
    squared = (-2.0 * x) @ z.T
    squared += np.square(x).sum(axis=1)[:, None]
    squared += np.square(z).sum(axis=1)
    return np.maximum(squared, 0.0, out=squared)  # rounding, at equal points


def _gram(x, z, lengthscale):
    """Gaussian Gram matrix between the rows of x and of z, shape (len(x), len(z))."""
    return np.exp(-0.5 * _squared_distances(x, z, lengthscale))


def _objective(points, lengthscale, weights, base):
    """Slope h (n,) and curvature Q (n, n) of the objective J(a) = h'a + a'Qa / 2."""
    kernel = _gram(points, points, lengthscale)
    squared = _squared_distances(points, points, lengthscale**2)  # R
    near = squared * kernel
    product = scipy.linalg.blas.dgemm(1.0, near.T, (kernel * weights).T)  # M', in BLAS' Fortran order
    curvature = product + product.T
    curvature -= squared * by_one_triangle(np.sqrt(weights)[:, None] * kernel)  # R * K W K
    curvature *= 0.5
    slope = near @ weights - (lengthscale**-2.0).sum() * (kernel @ weights)
    # the cross term of the base, sum_j w_j sum_l d_l log q0(z_j) d_l k(z_i, z_j)
    pull = weights[:, None] * base.gradients(points) / lengthscale**2  # (n, d)
    return slope + ((points * (kernel @ pull)).sum(axis=1) - kernel @ (points * pull).sum(axis=1)), curvature


# --- lengthscale and regularisation ---------------------------------------------------------------


def lite_scores(
    points: np.ndarray,
    folds: list[np.ndarray],
    lengthscale: float | np.ndarray,
    regularizations: Sequence[float],
    weights: np.ndarray,
    base: GaussianBase,
) -> np.ndarray:
    """Held-out J of every fold and regularisation, shape (n_folds, n_regularizations)."""
    n, dim = points.shape
    lengthscale = np.full(dim, lengthscale, dtype=float)
    scores = np.full((len(folds), len(regularizations)), np.inf)
    for i, fold in enumerate(folds):
        train = np.delete(np.arange(n), fold)
        z, w = points[train], weights[train] / weights[train].sum()
        slope, curvature = _objective(z, lengthscale, w, base)
        for k, regularization in enumerate(regularizations):
            a = solve_regularized(curvature.copy(), -slope, len(z) * regularization)
            if a is not None:
                fit = LiteSurrogate(z, a, lengthscale, base)
                scores[i, k] = score_matching.score_objective(fit, points[fold], weights[fold])
    return scores
