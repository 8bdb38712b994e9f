"""What the history near a point says about the shape of the target there: the covariance of a Kameleon proposal.

Given past states z_1..z_n and a kernel k, at the point y and up to the caller's nu^2 (and gamma^2 I):

"none"   M H M^T,  M = 2 [grad_x k(x, z_1) .. grad_x k(x, z_n)] at x = y,  H = I - 11^T / n
         (Sejdinovic et al., 2014, proposition 2)
"local"  sum_a k_a (z_a - y)(z_a - y)^T / sum_a k_a,  k_a = k(y, z_a)
"trace"  the first, scaled to trace d

"local" keeps, besides the local spread, the pull towards the mass nearby (for a standard Gaussian target it is
c I + c^2 y y^T with c = l^2 / (1 + l^2)), and does not collapse in the tails where every k_a is small.
"""

import math

import numpy as np

from pymc_kameleon.kernels import Gaussian, Kernel
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.elementary import exponentials


def local_covariance(
    y: np.ndarray, points: np.ndarray, kernel: Kernel, lengthscale: float, normalization: str
) -> np.ndarray:
    """The matrix above, shape (d, d).

    Parameters
    ----------
    y : ndarray of shape (d,)
    points : ndarray of shape (d, n)
        The history, one *column* a state: the layout that the compiled sums run along.
    kernel : Kernel
    lengthscale : float
        In the units of ``y`` and ``points``.
    normalization : {"local", "none", "trace"}
    """
    if type(kernel) is Gaussian:
        if normalization == "local":
            return gaussian_local(y, points, lengthscale)
        covariance = gaussian_gradients(y, points, lengthscale)
    elif normalization == "local":
        return _weighted_moment(y, points, kernel.value(y / lengthscale, points.T / lengthscale))
    else:
        gradients = (2.0 / lengthscale) * kernel.gradient(y / lengthscale, points.T / lengthscale)
        mean = gradients.mean(axis=0)
        # G^T G - n gbar gbar^T = M H M^T without forming H: O(n d^2) instead of O(n^2 d)
        covariance = gradients.T @ gradients - len(gradients) * np.outer(mean, mean)
    if normalization == "trace":
        return covariance * (len(y) / max(np.trace(covariance), 1e-300))
    return covariance


def _weighted_moment(y, points, weights):
    """Second moment about ``y`` under nonnegative ``weights`` (n,); zero where no weight is left."""
    total = weights.sum()
    if not total > 0.0:
        return np.zeros((len(y), len(y)))
    delta = points - y[:, None]
    return (weights * delta) @ delta.T / total


# No fastmath here or anywhere in the package: it leaves the order of a sum, and whether a product and a sum are rounded
# once or twice, to each compilation, and two compilations of one source do differ. A chain would then depend on which
# process compiled first. Elementwise loops run in vector registers without it; sums are left to BLAS.


@njit(cache=True)
def gaussian_local(y, points, lengthscale):
    """``normalization="local"`` for the Gaussian kernel. Exponents are shifted by the nearest point's: the ratio does
    not change, and nothing underflows however far ``y`` is from the history.
    """
    delta, weights = differences(y, points)
    d, n = delta.shape
    nearest = _least(weights)
    precision = 0.5 / (lengthscale * lengthscale)
    for a in range(n):
        weights[a] = (nearest - weights[a]) * precision
    exponentials(weights)
    moment, weighted = np.empty((d, d)), np.empty(n)
    for i in range(d):  # half of the product of two matrices, in half of its time
        row = delta[i]
        for a in range(n):
            weighted[a] = weights[a] * row[a]
        for j in range(i + 1):
            moment[i, j] = np.dot(weighted, delta[j])
    return _symmetric(moment, np.dot(weights, np.ones(n)))


@njit(cache=True)
def _least(x):
    """In four strands: a quarter of the time of one."""
    first = second = third = fourth = np.inf
    whole = x.size - x.size % 4
    for a in range(0, whole, 4):
        first, second = min(first, x[a]), min(second, x[a + 1])
        third, fourth = min(third, x[a + 2]), min(fourth, x[a + 3])
    for a in range(whole, x.size):
        first = min(first, x[a])
    return min(min(first, second), min(third, fourth))


@njit(cache=True)
def gaussian_gradients(y, points, lengthscale):
    """``normalization="none"`` for the Gaussian kernel, whose gradients are k(y, z) (z - y) / l^2."""
    gradients, squares = differences(y, points)
    n = squares.size
    precision = 1.0 / (lengthscale * lengthscale)
    weights = np.empty(n)
    for a in range(n):
        weights[a] = 2.0 * precision * math.exp(-0.5 * precision * squares[a])
    gradients *= weights
    mean = np.dot(gradients, np.ones(n)) / n
    return _symmetric(np.dot(gradients, gradients.T) - np.outer(n * mean, mean), 1.0)


@njit(cache=True)
def _symmetric(matrix, divisor):
    """``matrix`` / ``divisor``, from the lower triangle."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            matrix[i, j] /= divisor
            matrix[j, i] = matrix[i, j]
    return matrix


@njit(cache=True)
def differences(y, points):
    """z_a - y, shape (d, n), and their squared lengths, shape (n,)."""
    d, n = points.shape
    delta = np.empty((d, n))
    squares = np.zeros(n)
    for i in range(d):
        here = y[i]
        for a in range(n):
            difference = points[i, a] - here
            delta[i, a] = difference
            squares[a] += difference * difference
    return delta, squares
