"""Score matching *lite*: f = log q0 + sum_i a_i k(z_i, .), a Gaussian kernel at every point z_i.

With K the Gram matrix of k = exp(-r^2 / (2 l^2)), R the squared distances and W the diagonal matrix
of weights (of trace one), the objective of :mod:`pymc_kameleon.score_matching` is the quadratic

    J(a) = h'a + a'Qa / 2,
    h_i = sum_j w_j (R_ij / l^4 - d / l^2) K_ij    (+ the pull of the base density),
    Q = [M + M' - R * (K W K)] / (2 l^4),    M = (K * R) W K,    * entry by entry,

because d_l k(z_i, x) = k (z_il - x_l) / l^2 and (z_i - z_k).(z_j - z_k) = (R_ik + R_jk - R_ij) / 2:
one matrix product and one symmetric one, whatever d. The estimate solves (Q + n lambda I) a = -h,
which minimises J + (lambda / 2) n |a|^2. For one function represented with ever more centres a_i
falls as 1/n, so that lambda means the same for every n.

Differs from the paper: Strathmann et al. (2015, proposition 1) put lambda beside sums. With their C
and b, Q = 4 C / (n sigma^2) and h = 2 b / (n sigma); their lambda is n^2 sigma^2 / 4 times this
one.

Away from the points f falls back to its base density; without one, to a constant: a random walk.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from scipy.linalg import blas

from pymc_kameleon import score_matching
from pymc_kameleon.score_matching import (
    GaussianBase,
    Validation,
    gaussian_base,
    gaussian_objective,
    normalized_weights,
    select,
    solve_regularized,
)


class LiteSurrogate(NamedTuple):
    """A fitted *lite* surrogate.

    Attributes
    ----------
    centres : ndarray of shape (n, d)
    coefficients : ndarray of shape (n,)
    lengthscale : float
    base_mean, base_precision : ndarray of shape (d,)
        Of the Gaussian base density; zero precision is none.
    """

    centres: np.ndarray
    coefficients: np.ndarray
    lengthscale: float
    base_mean: np.ndarray
    base_precision: np.ndarray

    @property
    def base(self) -> GaussianBase:
        """The base density."""
        return GaussianBase(self.base_mean, self.base_precision)

    def values(self, x: np.ndarray) -> np.ndarray:
        """Values of f at the rows of ``x`` (n, d), shape (n,)."""
        kernel, _ = _gram(x, self.centres, self.lengthscale)
        return self.base.values(x) + kernel @ self.coefficients

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Gradients of f at the rows of ``x`` (n, d), shape (n, d)."""
        kernel, _ = _gram(x, self.centres, self.lengthscale)
        weighted = kernel * self.coefficients
        pull = weighted @ self.centres - weighted.sum(axis=1)[:, None] * x
        return self.base.gradients(x) + pull / self.lengthscale**2

    def laplacians(self, x: np.ndarray) -> np.ndarray:
        """Laplacians sum_l d_l^2 f at the rows of ``x`` (n, d), shape (n,)."""
        kernel, squared = _gram(x, self.centres, self.lengthscale)
        l2 = self.lengthscale**2
        return (
            (squared / l2 - x.shape[1]) * kernel
        ) @ self.coefficients / l2 - self.base_precision.sum()


@njit(cache=True)
def _lite_value(x, surrogate):
    centres, coefficients, lengthscale, mean, precision = surrogate
    scale = -0.5 / lengthscale**2
    total = 0.0
    for l in range(x.size):
        total -= 0.5 * precision[l] * (x[l] - mean[l]) ** 2
    for i in range(coefficients.size):
        squared = 0.0
        for l in range(x.size):
            squared += (centres[i, l] - x[l]) ** 2
        total += coefficients[i] * math.exp(scale * squared)
    return total


@njit(cache=True)
def _lite_gradient(x, surrogate):
    centres, coefficients, lengthscale, mean, precision = surrogate
    scale = -0.5 / lengthscale**2
    slope = np.zeros(x.size)
    for i in range(coefficients.size):
        squared = 0.0
        for l in range(x.size):
            squared += (centres[i, l] - x[l]) ** 2
        weight = coefficients[i] * math.exp(scale * squared)
        for l in range(x.size):
            slope[l] += weight * (centres[i, l] - x[l])
    for l in range(x.size):
        slope[l] = slope[l] / lengthscale**2 - precision[l] * (x[l] - mean[l])
    return slope


@overload(score_matching.value)
def _(x, surrogate):
    if isinstance(surrogate, types.NamedTuple) and surrogate.instance_class is LiteSurrogate:
        return lambda x, surrogate: _lite_value(x, surrogate)
    return None


@overload(score_matching.gradient)
def _(x, surrogate):
    if isinstance(surrogate, types.NamedTuple) and surrogate.instance_class is LiteSurrogate:
        return lambda x, surrogate: _lite_gradient(x, surrogate)
    return None


# --- the estimate ---------------------------------------------------------------------------------


def fit_lite(
    points: np.ndarray,
    lengthscale: float,
    regularization: float,
    weights: np.ndarray | None = None,
    base: GaussianBase | None = None,
) -> LiteSurrogate | None:
    """Fit to ``points`` (n, d) by a dense Cholesky factorisation: O(n^3), whatever d.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Draws of the target, each a centre.
    lengthscale : float
        In units of the points.
    regularization : float
        lambda > 0.
    weights : ndarray of shape (n,), optional
        How often each point was drawn; default: equal.
    base : GaussianBase, optional
        Default: none.

    Returns
    -------
    LiteSurrogate or None
        ``None`` if the system is not positive definite in floating point: lambda is too small.
    """
    base = gaussian_base(points.shape[1]) if base is None else base
    weights = normalized_weights(weights, len(points))
    slope, curvature = _objective(points, lengthscale, weights, base)
    coefficients = solve_regularized(curvature, -slope, len(points) * regularization)
    if coefficients is None:
        return None
    return LiteSurrogate(points, coefficients, float(lengthscale), base.mean, base.precision)


def _gram(x, z, lengthscale):
    """Gaussian Gram matrix and squared distances between the rows of x and of z, both (len(x),
    len(z)).
    """
    squared = (-2.0 * x) @ z.T
    squared += np.square(x).sum(axis=1)[:, None]
    squared += np.square(z).sum(axis=1)
    np.maximum(squared, 0.0, out=squared)  # rounding, at equal points
    return np.exp((-0.5 / lengthscale**2) * squared), squared


def _objective(points, lengthscale, weights, base):
    """Slope h (n,) and curvature Q (n, n) of the objective J(a) = h'a + a'Qa / 2."""
    kernel, squared = _gram(points, points, lengthscale)
    l2 = lengthscale**2
    product = blas.dgemm(
        1.0, (kernel * squared).T, (kernel * weights).T
    )  # Fortran order: M, as M' = K W (K * R)
    curvature = product + product.T
    half = blas.dsyrk(1.0, (np.sqrt(weights)[:, None] * kernel).T, lower=0)  # K W K, upper triangle
    upper = np.triu(half, 1)
    curvature -= squared * (upper + upper.T + np.diag(np.diagonal(half)))
    curvature *= 0.5 / l2**2
    slope = kernel @ (-points.shape[1] / l2 * weights) + (squared * kernel) @ (weights / l2**2)
    slope += _base_slope(points, kernel, weights, base) / l2
    return slope, curvature


def _base_slope(points, kernel, weights, base):
    """l^2 sum_j w_j sum_l d_l log q0(z_j) d_l k(z_i, z_j), shape (n,): the cross term of the base
    density.
    """
    pull = weights[:, None] * base.gradients(points)  # (n, d)
    return (points * (kernel @ pull)).sum(axis=1) - kernel @ (points * pull).sum(axis=1)


# --- lengthscale and regularisation
# ------------------------------------------------------------------


def validate_lite(
    points: np.ndarray,
    folds: list[np.ndarray],
    lengthscales: np.ndarray,
    regularizations: np.ndarray,
    weights: np.ndarray | None = None,
    base: GaussianBase | None = None,
) -> Validation:
    """Held-out score objective over a grid; the score has no regularisation in it (appendix
    A.1).
    """
    n, dim = points.shape
    base = gaussian_base(dim) if base is None else base
    weights = normalized_weights(weights, n)
    scores = np.empty((len(folds), len(lengthscales), len(regularizations)))
    gaussian = []
    for i, fold in enumerate(folds):
        train = np.delete(np.arange(n), fold)
        z, w, test, test_w = points[train], weights[train], points[fold], weights[fold]
        gaussian.append(gaussian_objective(z, test, w, test_w))
        w = w / w.sum()
        for j, lengthscale in enumerate(lengthscales):
            slope, curvature = _objective(z, lengthscale, w, base)
            for k, regularization in enumerate(regularizations):
                a = solve_regularized(curvature.copy(), -slope, len(z) * regularization)
                scores[i, j, k] = np.inf
                if a is not None:
                    fit = LiteSurrogate(z, a, float(lengthscale), base.mean, base.precision)
                    scores[i, j, k] = score_matching.score_objective(fit, test, test_w)
    return select(scores, gaussian, lengthscales, regularizations)
