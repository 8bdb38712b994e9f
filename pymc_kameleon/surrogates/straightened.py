"""Leapfrog in coordinates in which a funnel is straight.

Where a surrogate has scale blocks of some s_j, widths change with them, and no step size suits neck and mouth. The
trajectory runs in w instead,

    w_j = q_j = s_j,    w_i = q_i exp(sum_j a_j r_ji (s_j - m_j) / 2),

with q the linear coordinates, a and r the rates and the exponents of ``rescaling.Rescaling``: of one scale, or of all
where some are known. The density of w is exp(f) |dq/dw|, with log |dq/dw| = -sum_j a_j (s_j - m_j) sum_i r_ji / 2, and
its trajectories are reversible and keep volume in w. So the proposal is reversible with respect to exp(f) in z,
whatever a, r and m are; D is what it is in z.
"""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates import rescaling
from pymc_kameleon.surrogates.values.flattened import at, room


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
    bent = moves.halves.size
    q = rescaling.linear(moves.bent_into, moves.bent_centre, z)
    w = np.empty(d)
    slope = np.empty(d)
    narrower = np.empty(d)
    momentum = normals.copy()
    s = np.empty(room(d, integers))
    by_s = np.empty(room(d, integers))
    totals = np.zeros(bent)  # log |dq/dw| by s_j, on which exactness hangs
    for k in range(bent):
        for i in range(d):
            totals[k] += moves.bends[k, i]
        totals[k] = moves.halves[k] * totals[k]
    rescaling.exponents(moves, q, narrower)
    for i in range(d):
        w[i] = q[i] * math.exp(-narrower[i])
        new[i] = z[i]
        new_gradient[i] = gradient[i]
    energy = value + _log_jacobian(moves, totals, q)
    for i in range(d):
        energy -= 0.5 * momentum[i] * momentum[i]
    _by_w(moves, totals, narrower, q, gradient, slope)
    new_value = value
    inside = True
    done = 0
    last = np.empty(bent)
    for n in range(steps):
        for k in range(bent):
            last[k] = q[moves.bent_variables[k]]
        for i in range(d):
            momentum[i] += 0.5 * step * slope[i]
            w[i] += step * momentum[i]
        rescaling.exponents(moves, w, narrower)
        square = 0.0
        for i in range(d):
            square += (w[i] - moves.origin[i]) ** 2  # D is a ball in w
            q[i] = w[i] * math.exp(narrower[i])
        for i in range(d):
            new[i] = 0.0
            for m in range(d):
                new[i] += moves.bent_back[i, m] * (q[m] + moves.bent_centre[m])
        inside = square < square_radius
        if not inside:
            for i in range(d):
                momentum[i] -= 0.5 * step * slope[i]
            if n == 0:
                new_value = -np.inf
            for k in range(bent):
                q[moves.bent_variables[k]] = last[k]
            break
        new_value = at(numbers, integers, temperature, new, new_gradient, s, by_s)
        done += 1
        _by_w(moves, totals, narrower, q, new_gradient, slope)
        for i in range(d):
            momentum[i] += 0.5 * step * slope[i]
    stability = new_value + _log_jacobian(moves, totals, q) - energy
    for i in range(d):
        stability -= 0.5 * momentum[i] * momentum[i]
    log_ratio = stability if inside else -np.inf
    return new_value, log_ratio, stability, inside, done


@njit(cache=True, inline="always")
def _log_jacobian(moves, totals, q):
    """Log |dq/dw|, but for a constant."""
    value = 0.0
    for k in range(totals.size):
        value += totals[k] * q[moves.bent_variables[k]]
    return value


@njit(cache=True, inline="always")
def _by_w(moves, totals, narrower, q, by_z, by_w):
    """Gradient with respect to w of f + log |dq/dw|."""
    d = q.size
    along = totals.copy()
    for i in range(d):
        by_q = 0.0
        for m in range(d):
            by_q += moves.bent_back[m, i] * by_z[m]
        for k in range(along.size):
            along[k] += by_q * q[i] * (moves.halves[k] * moves.bends[k, i])
        by_w[i] = by_q * math.exp(narrower[i])
    for k in range(along.size):
        by_w[moves.bent_variables[k]] += along[k]
