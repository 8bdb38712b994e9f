"""S at a point, from random Fourier features: compiled, for one move and for many (:mod:`.several`)."""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit


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
        s += lengthscale**4 * np.outer(shift, shift)
    return s


@njit(cache=True)
def _waves(y, frequencies, offsets):
    """Sines and cosines of w y + b, shape (m,) each."""
    argument = offsets.copy()
    for i in range(y.size):
        for a in range(argument.size):
            argument[a] += frequencies[i, a] * y[i]
    sine, cosine = np.empty_like(argument), np.empty_like(argument)
    for a in range(argument.size):  # both by one call, where the platform has it
        sine[a], cosine[a] = math.sin(argument[a]), math.cos(argument[a])
    return sine, cosine


@njit(cache=True)
def _projected(sine, cosine, frequencies, roots):
    d, m = frequencies.shape
    rank = roots.shape[1]
    combined = np.empty((rank, m))
    for k in range(rank):
        for a in range(m):
            combined[k, a] = roots[0, k, a] * cosine[a] - roots[1, k, a] * sine[a]
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
    d, m = frequencies.shape
    value, slope = 0.0, np.empty(m)
    for a in range(m):
        value += density[0, a] * sine[a] + density[1, a] * cosine[a]
        slope[a] = density[0, a] * cosine[a] - density[1, a] * sine[a]
    gradient = np.zeros(d)
    for a in range(m):  # outside: sums side by side, not one after the other
        for i in range(d):
            gradient[i] += slope[a] * frequencies[i, a]
    return gradient / max(value, noise)
