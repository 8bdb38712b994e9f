"""Score matching *lite* at linear cost: incomplete Cholesky and conjugate gradients (appendix A.2).

With K ~ L L', L of shape (n, r), every product with the matrix of the normal equations costs
O(n r d), and the factor itself O(n r^2): worth it where r is much smaller than n, that is where the
lengthscale is long against the distances of neighbours. The notation is that of
:mod:`pymc_kameleon.surrogates.scores.lite`. ``KamiltonianStep(surrogate=pk.Lite(solver="low-rank"))`` is with it.
"""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate
from pymc_kameleon.surrogates.scores.objective import GaussianBase, normalized_weights


def fit_low_rank(
    points: np.ndarray,
    lengthscale: float | np.ndarray,
    regularization: float,
    weights: np.ndarray | None,
    base: GaussianBase,
    *,
    tolerance: float = 1e-6,
    residual: float = 1e-4,
) -> tuple[LiteSurrogate, int]:
    """As :func:`fit_lite`, with K ~ L L', L (n, r), and conjugate gradients: O(n r (r + d)).

    ``tolerance`` is the largest diagonal entry of K - L L' that is neglected, ``residual`` where conjugate gradients
    stop, relative. Beside the surrogate: their iterations.
    """
    n, dim = points.shape
    lengthscale = np.full(dim, lengthscale, dtype=float)
    weights = normalized_weights(weights, n)
    factor = _incomplete_cholesky(points / lengthscale, tolerance)  # (n, r)
    z = points / lengthscale**2  # d_l k(z_i, x) = k (z_il - x_l) in these units

    def apply(columns):
        """K times ``columns`` (n, c)."""
        return factor @ (factor.T @ columns)

    def forces(pull):
        """sum_j sum_l pull_jl k_ij (z_il - z_jl), shape (n,), for ``pull`` of shape (n, d)."""
        image = apply(np.column_stack([(z * pull).sum(axis=1), pull]))
        return (z * image[:, 1:]).sum(axis=1) - image[:, 0]

    def product(v):
        """(Q + n lambda I) v; in between, the slopes of sum_i v_i k(z_i, .) at the points."""
        image = apply(np.column_stack([v, v[:, None] * z]))
        slopes = weights[:, None] * (image[:, 1:] - z * image[:, :1])
        return forces(slopes) + n * regularization * v

    squares = np.square(z).sum(axis=1)
    images = apply(np.column_stack([weights, weights * squares, weights[:, None] * z]))
    slope = squares * images[:, 0] - 2.0 * (z * images[:, 2:]).sum(axis=1) + images[:, 1]
    slope -= (lengthscale**-2.0).sum() * images[:, 0]
    slope += forces(weights[:, None] * base.gradients(points))
    steps: list[np.ndarray] = []
    from scipy.sparse.linalg import LinearOperator, cg  # as all of SciPy when it is needed

    operator = LinearOperator((n, n), matvec=product, dtype=float)
    coefficients, _ = cg(operator, -slope, rtol=residual, atol=0.0, maxiter=1000, callback=steps.append)
    return LiteSurrogate(points, coefficients, lengthscale, base), len(steps)


@njit(cache=True)
def _incomplete_cholesky(points, tolerance):
    """L (n, r) with L L' ~ K at unit lengthscale, pivoting on the largest entry that remains.

    Shawe-Taylor & Cristianini (2004), section 5.2.
    """
    n, dim = points.shape
    factor = np.zeros((n, n))
    rest = np.ones(n)
    rank = 0
    while rank < n:
        pivot = np.argmax(rest)
        if rest[pivot] <= tolerance:
            break
        root = math.sqrt(rest[pivot])
        for i in range(n):
            squared = 0.0
            for l in range(dim):
                squared += (points[i, l] - points[pivot, l]) ** 2
            entry = math.exp(-0.5 * squared)
            for r in range(rank):
                entry -= factor[i, r] * factor[pivot, r]
            factor[i, rank] = entry / root
            rest[i] -= factor[i, rank] ** 2
        rest[pivot] = 0.0
        rank += 1
    return factor[:, :rank].copy()
