"""Score matching *finite*, point by point: running sums and a Cholesky factor (appendix A.3).

``KamiltonianStep(surrogate=pk.Finite(online=True))`` is with it.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics import random_features as rff
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.random_features import RandomFeatures
from pymc_kameleon.surrogates.scores.finite import FiniteSurrogate, ScoreSums, merge, score_sums
from pymc_kameleon.surrogates.scores.objective import GaussianBase


class OnlineFinite(NamedTuple):
    """Running sums and the Cholesky factor of (sums.curvature + ridge I), kept up to date."""

    features: RandomFeatures
    base: GaussianBase
    regularization: float
    sums: ScoreSums
    factor: np.ndarray  # (D, D): upper triangular U with U'U = sums.curvature + ridge I
    ridge: float  # lambda beside the sum: regularization times the number of points when it was last factored


def start(points: np.ndarray, features: RandomFeatures, regularization: float, base: GaussianBase) -> OnlineFinite:
    """Start from a batch ``points`` (n, d), n >= 1; ``LinAlgError`` if the regularisation is too small."""
    sums = score_sums(points, features, None, base)
    return _refactor(OnlineFinite(features, base, regularization, sums, np.empty((0, 0)), 0.0))


def push(online: OnlineFinite, x: np.ndarray) -> OnlineFinite:
    """Add the point ``x`` of shape (d,): running sums and d rank-one updates, O(d D^2).

    A regularisation that means the same for every n stands beside the sum as n lambda, which no rank-d update
    supplies. It therefore keeps the n of the last factorisation, and the factor is computed anew each time n has
    doubled: the effective lambda is between half of what was asked for and that.

    Differs from the paper, whose step 1 has a factor 1/2 at C (theta would be twice too large) and
    whose lambda stands beside a sum, unscaled (it would vanish as n grows).
    """
    new = score_sums(x[None], online.features, None, online.base)
    online = online._replace(sums=merge(online.sums, new))
    if online.sums.weight * online.regularization >= 2.0 * online.ridge:
        return _refactor(online)
    columns = np.ascontiguousarray(rff.jacobian(x, online.features).T)  # (d, D)
    return online._replace(factor=_rank_update(online.factor, columns))


def surrogate(online: OnlineFinite) -> FiniteSurrogate:
    """The current estimate: two triangular solves, O(D^2)."""
    theta = scipy.linalg.cho_solve((online.factor, False), online.sums.slope)
    return FiniteSurrogate(online.features, theta, online.base)


def _refactor(online):
    ridge = online.sums.weight * online.regularization
    matrix = online.sums.curvature + ridge * np.eye(len(online.sums.slope))
    factor, info = scipy.linalg.lapack.dpotrf(matrix.T, lower=0, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(
            f"C + lambda I is not positive definite in floating point: regularization = {online.regularization!r} is "
            "too small."
        )
    return online._replace(factor=np.ascontiguousarray(factor), ridge=ridge)


@njit(cache=True)
def _rank_update(factor, columns):
    """Upper factor of U'U + sum_l v_l v_l', the rows of ``columns`` (d, D), by Givens rotations of rows."""
    updated = factor.copy()
    for l in range(columns.shape[0]):
        rest = columns[l].copy()
        for k in range(rest.size):
            if rest[k] == 0.0:
                continue
            radius = math.hypot(updated[k, k], rest[k])
            cosine, sine = updated[k, k] / radius, rest[k] / radius
            for i in range(k, rest.size):
                entry = updated[k, i]
                updated[k, i] = cosine * entry + sine * rest[i]
                rest[i] = cosine * rest[i] - sine * entry
    return updated
