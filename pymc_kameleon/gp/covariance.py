"""The covariance matrix of a Gaussian process and its Cholesky factor, in preallocated buffers.

    k(x, x') = s^2 [exp(-sum_k (x_k - x'_k)^2 / (2 l_k^2)) + nugget 1{x is x'}]

Automatic relevance determination: one lengthscale l_k a covariate (Rasmussen & Williams, 2006, eq. 5.1). Parameters are
theta_k = log l_k^2, then log s^2 if the signal variance is free.
"""

import math

import numpy as np
from scipy.linalg import blas, lapack
from scipy.spatial.distance import cdist

from pymc_kameleon.numerics.compiled import njit

_MAX_EXPONENT = 690.0  # exp of it is finite, and stays so when summed over covariates


@njit(cache=True, error_model="numpy")
def _fill(correlations, variance, nugget, matrix, factor):
    """Write variance (k + nugget I) into both lower triangles, from k's columns end to end."""
    n = matrix.shape[0]
    first = 0
    for j in range(n):
        size = n - j - 1
        # slices from zero, so that LLVM vectorises the loop
        source, column, copy = correlations[first:], matrix[j + 1 :, j], factor[j + 1 :, j]
        for i in range(size):
            value = variance * source[i]
            column[i] = value
            copy[i] = value
        matrix[j, j] = factor[j, j] = variance * (1.0 + nugget)
        first += size


class SquaredExponential:
    """Covariance matrix K of the latent values at ``X`` (n, d), recomputed in place for every theta.

    The nugget is relative to s^2, so that the condition number does not depend on it. Of ``matrix``, K, and ``factor``,
    L = chol K, (n, n) in Fortran order, only the lower triangles mean anything.
    """

    def __init__(self, X, nugget, free_variance):
        self.X, self.nugget = X, nugget
        # of theta, which ends with log s^2 if that is free; otherwise s = 1
        self.dim = X.shape[1] + bool(free_variance)
        self._allocate()

    def _allocate(self):
        n = len(self.X)
        row, column = np.tril_indices(n, -1)
        order = np.lexsort((row, column))  # column by column, as LAPACK stores a triangle
        # Direct differences: |x|^2 + |z|^2 - 2 x'z is silently wrong for short lengthscales.
        self._pairs = np.asfortranarray(-0.5 * (self.X[row[order]] - self.X[column[order]]) ** 2)
        self._correlations = np.empty(len(row))
        self.matrix, self.factor = np.zeros((n, n), order="F"), np.zeros((n, n), order="F")

    def __getstate__(self):
        return {"X": self.X, "nugget": self.nugget, "dim": self.dim}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._allocate()

    def default_theta(self):
        """l_k^2 = d var(x_k), at which half the mean squared scaled distance is 1, and s^2 = 1."""
        theta = np.zeros(self.dim)
        theta[: self.X.shape[1]] = np.log(self.X.shape[1] * self.X.var(axis=0))
        return theta

    def update(self, theta):
        """Compute ``matrix`` and ``factor`` at theta; return whether that succeeded."""
        precision, variance = self._scales(theta)
        blas.dgemv(1.0, self._pairs, precision, y=self._correlations, overwrite_y=1)
        np.exp(self._correlations, out=self._correlations)
        _fill(self._correlations, variance, self.nugget, self.matrix, self.factor)
        _, info = lapack.dpotrf(self.factor, lower=1, clean=0, overwrite_a=1)
        return info == 0

    def cross(self, theta, X_new):
        """Covariances between X and X_new, shape (n, m), and the variance at a new point."""
        precision, variance = self._scales(theta)
        scale = np.sqrt(precision)
        squares = cdist(self.X * scale, X_new * scale, "sqeuclidean")
        return variance * np.exp(-0.5 * squares), variance * (1.0 + self.nugget)

    def _scales(self, theta):
        """(1 / l_k^2, s^2), clipped where the exponential would overflow."""
        d = self.X.shape[1]
        precision = np.exp(np.minimum(-theta[:d], _MAX_EXPONENT))
        return precision, math.exp(min(theta[d], _MAX_EXPONENT)) if self.dim > d else 1.0
