"""S at a point, from random Fourier features: compiled, for one move and for many (:mod:`.several`)."""

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.elementary import waves


@njit(cache=True)
def covariance_at(y, frequencies, offsets, roots, density, scaled, lengthscale, noise):
    """S at ``y`` (d,): J^T U U^T J in O(m r d), of trace d where ``scaled``; with the mean shift's term where
    ``lengthscale`` > 0.

    ``frequencies`` (d, m), ``offsets`` (m,), ``roots`` (2, r, m), ``density`` (2, m): weights of sines and of cosines.
    """
    sine, cosine = _waves(y, frequencies, offsets)
    s = _projected(sine, cosine, frequencies, roots)
    if scaled:
        s *= y.size / max(np.trace(s), 1e-300)
    if lengthscale > 0.0:
        shift = _shift(sine, cosine, frequencies, density, noise)
        for i in range(y.size):
            for j in range(y.size):
                s[i, j] += lengthscale**4 * shift[i] * shift[j]
    return s


@njit(cache=True)
def _waves(y, frequencies, offsets):
    """Sines and cosines of w y + b, shape (m,) each."""
    argument = offsets.copy()
    for i in range(y.size):
        row, here = frequencies[i], y[i]
        for a in range(argument.size):
            argument[a] += row[a] * here
    return waves(argument)


@njit(cache=True)
def _projected(sine, cosine, frequencies, roots):
    d, m = frequencies.shape
    rank = roots.shape[1]
    combined = np.empty((rank, m))
    for k in range(rank):
        of_cosines, of_sines, row = roots[0, k], roots[1, k], combined[k]
        for a in range(m):
            row[a] = of_cosines[a] * cosine[a] - of_sines[a] * sine[a]
    projected = np.dot(combined, frequencies.T)  # U^T J
    result = np.dot(projected.T, projected)
    for i in range(d):
        for j in range(i):
            result[j, i] = result[i, j]
    return result


@njit(cache=True)
def _shift(sine, cosine, frequencies, density, noise):
    """Grad m(y) / max(m(y), ``noise``), shape (d,), m(y) = phi(y) . (mean of phi over the history).

    ``density`` is that mean, laid out as ``roots``. Where the history is far away m is below what the features can
    tell from zero, of order D^(-1/2), and may be negative.
    """
    of_sines, of_cosines, slope = density[0], density[1], np.empty(sine.size)
    for a in range(sine.size):
        slope[a] = of_sines[a] * cosine[a] - of_cosines[a] * sine[a]
    value = np.dot(of_sines, sine) + np.dot(of_cosines, cosine)
    return np.dot(frequencies, slope) / max(value, noise)
