"""The sums in a surrogate, compiled: values at s of shape (d,), their gradients added to ``gradient``.

See :mod:`pymc_kameleon.surrogates.values.features`. What lies side by side is computed side by side, in an order that
is the same on every processor.
"""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply
from pymc_kameleon.numerics.elementary import exponentials

LOG_LADDER = 2.0 ** np.arange(0, 7)  # q_j: from within one standard deviation to the far tail


@njit(cache=True, inline="always")
def dot(a, b):
    """A'b in eight sums, in one order on every processor."""
    n = a.size
    whole = n - n % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for k in range(0, whole, 8):
        s0 += a[k] * b[k]
        s1 += a[k + 1] * b[k + 1]
        s2 += a[k + 2] * b[k + 2]
        s3 += a[k + 3] * b[k + 3]
        s4 += a[k + 4] * b[k + 4]
        s5 += a[k + 5] * b[k + 5]
        s6 += a[k + 6] * b[k + 6]
        s7 += a[k + 7] * b[k + 7]
    for k in range(whole, n):
        s0 += a[k] * b[k]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@njit(cache=True)
def gaussian(across, weights, lengthscale, whiten, s, gradient):
    """exp(-|z - z_k|^2 / 2 l^2), the centres ``across`` (d, k)."""
    d, n = across.shape
    z = multiply(whiten, s)
    precision = 1.0 / (lengthscale * lengthscale)
    term = np.zeros(n)
    for i in range(d):
        row, here = across[i], z[i]
        for k in range(n):
            delta = row[k] - here
            term[k] += delta * delta
    for k in range(n):
        term[k] *= -0.5 * precision
    exponentials(term)
    for k in range(n):
        term[k] *= weights[k]
    value = dot(term, np.ones(n))
    for i in range(d):
        slope = precision * (dot(across[i], term) - z[i] * value)
        for j in range(d):
            gradient[j] += whiten[i, j] * slope
    return value


@njit(cache=True)
def pairwise(across, weights, lengthscale, s, gradient):
    """The additive kernel of main effects and pairs, the centres ``across`` (d, k)."""
    d, n = across.shape
    single = 0.5 / d
    pair = 1.0 / (d * (d - 1)) if d > 1 else 0.0
    precision = 1.0 / (lengthscale * lengthscale)
    factors = np.empty((d, n))
    total = np.zeros(n)
    squares = np.zeros(n)
    for i in range(d):
        row, own, here = across[i], factors[i], s[i]
        for k in range(n):
            delta = row[k] - here
            own[k] = -0.5 * precision * delta * delta
        exponentials(own)
        for k in range(n):
            total[k] += own[k]
            squares[k] += own[k] * own[k]
    for k in range(n):
        squares[k] = single * total[k] + 0.5 * pair * (total[k] * total[k] - squares[k])
    for i in range(d):
        row, own, here = across[i], factors[i], s[i]
        for k in range(n):
            e = own[k]
            own[k] = (single + pair * (total[k] - e)) * e * (row[k] - here)
        gradient[i] += precision * dot(own, weights)
    return dot(squares, weights)


@njit(cache=True)
def fourier(frequencies, phases, weights, s, gradient):
    """cos(w_k's + u_k)."""
    d = s.size
    value = 0.0
    for k in range(weights.size):
        angle = phases[k]
        for i in range(d):
            angle += frequencies[k, i] * s[i]
        value += weights[k] * math.cos(angle)
        slope = -weights[k] * math.sin(angle)
        for i in range(d):
            gradient[i] += slope * frequencies[k, i]
    return value


@njit(cache=True)
def tails(logarithms, tail_scale, linear, quadratic, whiten, s, gradient):
    """The heavy tails."""
    d = s.size
    z = multiply(whiten, s)
    r2 = 0.0
    for i in range(d):
        r2 += z[i] * z[i]
    value = 0.0
    by_r2 = 0.0  # derivative with respect to r^2
    for j in range(logarithms.size):
        value += logarithms[j] * math.log1p(r2 / LOG_LADDER[j])
        by_r2 += logarithms[j] / (LOG_LADDER[j] + r2)
    shrink = 1.0 / (1.0 + r2 / tail_scale)
    numerator = 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += quadratic[i, j] * s[j]
        gradient[i] += shrink * (linear[i] + row)
        numerator += s[i] * (linear[i] + 0.5 * row)
    value += shrink * numerator
    by_r2 -= numerator * shrink * shrink / tail_scale
    for i in range(d):
        for j in range(d):
            gradient[j] += 2.0 * by_r2 * whiten[i, j] * z[i]
    return value
