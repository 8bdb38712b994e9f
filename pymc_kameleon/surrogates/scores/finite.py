"""Score matching *finite*: f = log q0 + theta . phi, phi a random-feature map of D features.

The objective of :mod:`pymc_kameleon.surrogates.scores.objective` is a quadratic in theta whose coefficients are
means over the draws, whatever their number (Strathmann et al., 2015, proposition 2),

    J(theta) = constant - b'theta + theta'C theta / 2,
    b = -mean sum_l [d_l^2 phi + d_l log q0 d_l phi],
    C = mean sum_l (d_l phi)(d_l phi)',

and the estimate solves (C + lambda I) theta = b. Random Fourier features are functions of w_i . x:
with S (n, D) their slopes in that argument and V (D, d) the frequencies, d_l phi_i = S_i V_il, so
that C = (S'S / n) * (V V') entry by entry: one matrix product, whatever d.

:class:`ScoreSums` holds the coefficients. Those of disjoint sets of draws add, which is also what
makes cross-validation cheap and what :mod:`pymc_kameleon.surrogates.scores.online` keeps running.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import random_features as rff
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.random_features import RandomFeatures, at_lengthscale
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.objective import (
    GaussianBase,
    by_one_triangle,
    solve_regularized,
)


class FiniteSurrogate(NamedTuple):
    """A fitted *finite* surrogate."""

    features: RandomFeatures
    coefficients: np.ndarray  # (D,)
    base: GaussianBase  # zero precision is none

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Gradients of f at the rows of ``x`` (n, d), shape (n, d)."""
        weighted = rff.slopes(x, self.features) * self.coefficients
        return self.base.gradients(x) + weighted @ rff.stacked_frequencies(self.features)

    def laplacians(self, x: np.ndarray) -> np.ndarray:
        """Laplacians sum_l d_l^2 f at the rows of ``x`` (n, d), shape (n,)."""
        squared = np.square(rff.stacked_frequencies(self.features)).sum(axis=1)
        return -(rff.features(x, self.features) @ (squared * self.coefficients)) - self.base.precision.sum()


@njit(cache=True)
def _finite(x, surrogate):
    (frequencies, offsets, sincos), theta, (mean, precision) = surrogate
    m, dim = frequencies.shape
    scale = math.sqrt(2.0 / theta.size)
    total, slope = 0.0, np.zeros(dim)
    for i in range(m):
        argument = offsets[i]
        for l in range(dim):
            argument += frequencies[i, l] * x[l]
        sine, cosine = math.sin(argument), math.cos(argument)
        if sincos:
            total += theta[i] * sine + theta[m + i] * cosine
            weight = theta[i] * cosine - theta[m + i] * sine
        else:
            total += theta[i] * cosine
            weight = -theta[i] * sine
        for l in range(dim):
            slope[l] += weight * frequencies[i, l]
    total *= scale
    for l in range(dim):
        away = x[l] - mean[l]
        total -= 0.5 * precision[l] * away**2
        slope[l] = scale * slope[l] - precision[l] * away
    return total, slope


score_matching.implement(FiniteSurrogate, _finite)


# --- the objective as sums over draws -------------------------------------------------------------


class ScoreSums(NamedTuple):
    """The objective of a set of draws, times the sum of their weights."""

    weight: float  # sum of the weights
    slope: np.ndarray  # (D,): weight * b
    curvature: np.ndarray  # (D, D): weight * C
    constant: float  # weight * J(0): of the base density alone


def score_sums(
    points: np.ndarray, features: RandomFeatures, weights: np.ndarray | None, base: GaussianBase
) -> ScoreSums:
    """Sums over ``points`` (n, d) with ``weights`` (n,); None: one each."""
    weights = np.ones(len(points)) if weights is None else weights
    frequencies = rff.stacked_frequencies(features)  # (D, d)
    slopes = rff.slopes(points, features)  # (n, D)
    pull = base.gradients(points)  # (n, d)
    b = (weights @ rff.features(points, features)) * np.square(frequencies).sum(axis=1)
    b -= ((slopes * weights[:, None]).T @ pull * frequencies).sum(axis=1)
    curvature = by_one_triangle(np.sqrt(weights)[:, None] * slopes) * (frequencies @ frequencies.T)  # S'WS * VV'
    constant = 0.5 * weights @ np.square(pull).sum(axis=1) - weights.sum() * base.precision.sum()
    return ScoreSums(float(weights.sum()), b, np.ascontiguousarray(curvature), float(constant))


def merge(a: ScoreSums, b: ScoreSums) -> ScoreSums:
    """The sums over the union of two disjoint sets of draws."""
    return ScoreSums(*(left + right for left, right in zip(a, b, strict=True)))


def objective(sums: ScoreSums, theta: np.ndarray) -> float:
    """J(theta), without regularisation."""
    return float((sums.constant - sums.slope @ theta + 0.5 * theta @ (sums.curvature @ theta)) / sums.weight)


def solve(sums: ScoreSums, regularization: float) -> np.ndarray | None:
    """Theta = (C + lambda I)^-1 b, or ``None`` if lambda is too small for floating point."""
    return solve_regularized(sums.curvature.copy(), sums.slope, sums.weight * regularization)


def fit_finite(
    points: np.ndarray,
    features: RandomFeatures,
    regularization: float,
    weights: np.ndarray | None,
    base: GaussianBase,
) -> FiniteSurrogate | None:
    """Fit to draws ``points`` (n, d) of the target with ``weights`` (n,); None: equal ones. O(n D^2 + D^3), whatever d.

    The meaning of ``regularization``, lambda > 0, depends neither on n nor on D; ``None`` if it is too small for
    floating point.
    """
    theta = solve(score_sums(points, features, weights, base), regularization)
    return None if theta is None else FiniteSurrogate(features, theta, base)


# --- lengthscale and regularisation ---------------------------------------------------------------


def finite_scores(
    unit_features: RandomFeatures,
    points: np.ndarray,
    folds: list[np.ndarray],
    lengthscale: float | np.ndarray,
    regularizations: Sequence[float],
    weights: np.ndarray,
    base: GaussianBase,
) -> np.ndarray:
    """Held-out J of every fold and regularisation, shape (n_folds, n_regularizations).

    ``unit_features``, drawn at lengthscale 1, are divided by each lengthscale: with fresh frequencies for every one the
    comparison would be one of draws.
    """
    features = at_lengthscale(unit_features, lengthscale)
    parts = [score_sums(points[fold], features, weights[fold], base) for fold in folds]
    scores = np.full((len(folds), len(regularizations)), np.inf)
    for i, test in enumerate(parts):
        train = functools.reduce(merge, parts[:i] + parts[i + 1 :])
        for j, regularization in enumerate(regularizations):
            theta = solve(train, regularization)
            if theta is not None:
                scores[i, j] = objective(test, theta)
    return scores
