"""S at a point, from random Fourier features: compiled, for one move and for many (:mod:`.several`)."""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit


@njit(cache=True)
def covariance_at(y, frequencies, offsets, roots, density, sincos, scaled, lengthscale, noise):
    """S at ``y`` (d,): J^T C J, of trace d where ``scaled``; with the mean shift's term where ``lengthscale`` > 0.

    ``frequencies`` (d, m), ``offsets`` (m,), ``roots`` (1 or 2, r, m), ``density`` (1 or 2, m).
    """
    s = feature_covariance(y, frequencies, offsets, roots, sincos)
    if scaled:
        s *= y.size / max(np.trace(s), 1e-300)
    if lengthscale > 0.0:
        shift = mean_shift(y, frequencies, offsets, density, sincos, noise)
        s += lengthscale**4 * np.outer(shift, shift)
    return s


@njit(cache=True)
def _arguments(y, frequencies, offsets):
    """Of the sines and cosines, shape (m,)."""
    argument = offsets.copy()
    for i in range(y.size):
        for a in range(argument.size):
            argument[a] += frequencies[i, a] * y[i]
    return argument


@njit(cache=True)
def feature_covariance(y, frequencies, offsets, roots, sincos):
    """J^T U U^T J at ``y`` of shape (d,), shape (d, d), in O(m r d).

    ``frequencies`` (d, m), ``offsets`` (m,), ``roots`` (1 or 2, r, m).
    """
    d, m = frequencies.shape
    rank = roots.shape[1]
    argument = _arguments(y, frequencies, offsets)
    slope_sine = np.empty(m)  # of cos(w x + b), or of sin(w x) first and cos(w x) second
    slope_cosine = np.empty(m)
    for a in range(m):
        slope_sine[a] = -math.sin(argument[a])
        slope_cosine[a] = math.cos(argument[a]) if sincos else 0.0
    combined = np.empty((rank, m))
    for k in range(rank):
        if sincos:
            for a in range(m):
                combined[k, a] = roots[0, k, a] * slope_cosine[a] + roots[1, k, a] * slope_sine[a]
        else:
            for a in range(m):
                combined[k, a] = roots[0, k, a] * slope_sine[a]
    projected = np.dot(combined, frequencies.T)  # U^T J
    result = np.dot(projected.T, projected)
    for i in range(d):
        for j in range(i):
            result[j, i] = result[i, j]
    return result


@njit(cache=True)
def mean_shift(y, frequencies, offsets, density, sincos, noise):
    """Grad m(y) / max(m(y), ``noise``), shape (d,), m(y) = phi(y) . (mean of phi over the history).

    ``density`` is that mean, laid out as ``roots``. Where the history is far away m is below what the features can
    tell from zero, of order D^(-1/2), and may be negative.
    """
    d, n = frequencies.shape
    argument = _arguments(y, frequencies, offsets)
    value = 0.0
    gradient = np.zeros(d)
    for a in range(n):
        sine, cosine = math.sin(argument[a]), math.cos(argument[a])
        if sincos:
            value += density[0, a] * sine + density[1, a] * cosine
            slope = density[0, a] * cosine - density[1, a] * sine
        else:
            value += density[0, a] * cosine
            slope = -density[0, a] * sine
        for i in range(d):
            gradient[i] += slope * frequencies[i, a]
    return gradient / max(value, noise)
