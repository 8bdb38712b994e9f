"""Leapfrog in coordinates in which a funnel is straight.

Where a surrogate has a scale block of s_j, widths change with s_j, and no step size suits neck and mouth. The
trajectory runs in w instead,

    w_j = q_j = s_j,    w_i = q_i exp(a r_i (s_j - m) / 2),

with q the linear coordinates, a and r the rate and the exponents of
``rescaling.Rescaling``. The density of w is exp(f) |dq/dw|, with
log |dq/dw| = -a (s_j - m) sum_i r_i / 2, and its trajectories are reversible and keep volume in w. So the proposal is
reversible with respect to exp(f) in z, whatever a, r and m are; D is what it is in z.
"""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates import rescaling
from pymc_kameleon.surrogates.values.features import at


@njit(cache=True)
def leapfrog(
    numbers, integers, moves, temperature, z, value, gradient, normals, step, steps, square_radius, new, new_gradient,
):  # fmt: skip
    """``steps`` of size ``step`` from ``z``, whose tempered value and gradient are known.

    Writes the end and the gradient there, with respect to z, into ``new`` and ``new_gradient``; returns the value
    there, the log of the acceptance ratio, the same as far as the path was inside of D, whether all of it was, and
    the number of gradients.
    """
    d = z.size
    k = moves.straight
    j = moves.variables[k]
    half = -0.5 * moves.rates[k]
    q = rescaling.linear(moves, k, z)
    w = np.empty(d)
    slope = np.empty(d)
    momentum = normals.copy()
    s = np.empty(d)
    by_s = np.empty(d)
    total = 0.0
    for i in range(d):
        total += moves.exponents[k, i]
    for i in range(d):
        w[i] = q[i] * math.exp(-half * moves.exponents[k, i] * (q[j] - moves.middles[k]))
        new[i] = z[i]
        new_gradient[i] = gradient[i]
    # log |dq/dw| = half * total * (q_j - m), on which exactness hangs
    energy = value + half * total * q[j]
    for i in range(d):
        energy -= 0.5 * momentum[i] * momentum[i]
    _by_w(moves, k, half, total, q, gradient, slope)
    new_value = value
    inside = True
    done = 0
    for n in range(steps):
        last = q[j]
        for i in range(d):
            momentum[i] += 0.5 * step * slope[i]
            w[i] += step * momentum[i]
        square = 0.0
        for i in range(d):
            square += (w[i] - moves.origin[i]) ** 2  # D is a ball in w
            q[i] = w[i] * math.exp(half * moves.exponents[k, i] * (w[j] - moves.middles[k]))
        for i in range(d):
            new[i] = 0.0
            for m in range(d):
                new[i] += moves.back[k, i, m] * (q[m] + moves.centres[k, m])
        inside = square < square_radius
        if not inside:
            for i in range(d):
                momentum[i] -= 0.5 * step * slope[i]
            if n == 0:
                new_value = -np.inf
            q[j] = last
            break
        new_value = at(numbers, integers, temperature, new, new_gradient, s, by_s)
        done += 1
        _by_w(moves, k, half, total, q, new_gradient, slope)
        for i in range(d):
            momentum[i] += 0.5 * step * slope[i]
    stability = new_value + half * total * q[j] - energy
    for i in range(d):
        stability -= 0.5 * momentum[i] * momentum[i]
    log_ratio = stability if inside else -np.inf
    return new_value, log_ratio, stability, inside, done


@njit(cache=True, inline="always")
def _by_w(moves, k, half, total, q, by_z, by_w):
    """Gradient with respect to w of f + log |dq/dw|."""
    d = q.size
    j = moves.variables[k]
    along = half * total
    for i in range(d):
        by_q = 0.0
        for m in range(d):
            by_q += moves.back[k, m, i] * by_z[m]
        exponent = half * moves.exponents[k, i]
        along += by_q * q[i] * exponent
        by_w[i] = by_q * math.exp(exponent * (q[j] - moves.middles[k]))
    by_w[j] += along
