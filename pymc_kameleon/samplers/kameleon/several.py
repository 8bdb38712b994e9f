"""Transitions of Fast KAMH on a surrogate, one after the other in compiled code, for screened moves.

Each is what :func:`pymc_kameleon.samplers.chain.transition` does, with a row of random numbers for each: which kernel,
its normals, its acceptance. ``tests/samplers/test_screened.py`` compares the two.
"""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply_lower, solve_lower
from pymc_kameleon.numerics.normal_steps import log_step_density
from pymc_kameleon.samplers.autoregressive import contract
from pymc_kameleon.samplers.kameleon.feature_covariance import covariance_at
from pymc_kameleon.samplers.kameleon.local_moves import step_from
from pymc_kameleon.samplers.kameleon.shear import bend, straighten
from pymc_kameleon.surrogates.transitions import value_at

UNIFORMS = 4  # of a transition: columns GLOBAL to ACCEPT
GLOBAL, SHEARED, TOWARDS, ACCEPT = range(UNIFORMS)


@njit(cache=True, nogil=True)
def transitions(
    normals, uniforms, x, value, covariance, numbers, integers, radius, ceiling,
    centre, factor, gamma, nu, frequencies, offsets, roots, density, scaled, lengthscale, noise,
    global_share, sheared_share, towards, mean, root, scale, step,
    straight, s_centre, s_scale, knots, sinks, coefficients, s_mean, s_root, s_length, s_step,
):  # fmt: skip
    """(x, f there, S there, whether it moved) after transitions from ``x`` (d,), where f is ``value``.

    Parameters
    ----------
    normals, uniforms : ndarrays of shape (n, d) and (n, UNIFORMS)
        A row for each transition.
    covariance : ndarray of shape (d, d)
        S at ``x``.
    numbers, integers, radius, ceiling
        f and D, see :func:`pymc_kameleon.surrogates.transitions.value_at`.
    centre, ..., noise
        The local kernel and what S is computed from, see ``covariance_at``.
    global_share, ..., step
        The global kernel: shares; mean, factor and scale of its walk; the step of its autoregressive moves.
    straight, ..., s_step
        Whether there is no shear; the shear.
    """
    moved, stale = False, False
    for k in range(len(normals)):
        normal, u = normals[k], uniforms[k]
        local, log_ratio = False, 0.0
        if u[GLOBAL] < global_share:
            if not straight and u[SHEARED] < sheared_share:
                r = straighten(x, s_centre, s_scale, knots, sinks, coefficients)
                if u[TOWARDS] < 0.5:
                    r = r + s_length * np.dot(s_root, normal)
                else:
                    r, log_ratio = contract(r, s_mean, s_root, s_step, normal)
                new = bend(r, s_centre, s_scale, knots, sinks, coefficients)
            elif u[TOWARDS] < towards:
                new, log_ratio = contract(x, mean, root, step, normal)
            else:
                new = x + scale * multiply_lower(root, normal)
        else:
            local = True
            if stale:
                y = solve_lower(factor, x - centre)
                covariance = covariance_at(
                    y, frequencies, offsets, roots, density, scaled, lengthscale, noise
                )  # fmt: skip
                stale = False
            delta, forward, new, y = step_from(x, centre, factor, covariance, gamma, nu, normal)
            there = covariance_at(y, frequencies, offsets, roots, density, scaled, lengthscale, noise)
            # Exactness hangs here: the reverse density takes S at the new point, as in ``LocalMoves.local_move``.
            log_ratio = log_step_density(delta, there, gamma, nu) - forward
        new_value = value_at(numbers, integers, new, radius, ceiling)
        log_ratio += new_value - value
        if np.abs(new).max() < 1e100 and u[ACCEPT] < math.exp(min(0.0, log_ratio)):  # of NaN it is false
            x, value, moved, stale = new, new_value, True, not local
            if local:
                covariance = there
    if stale:
        y = solve_lower(factor, x - centre)
        covariance = covariance_at(y, frequencies, offsets, roots, density, scaled, lengthscale, noise)
    return x, value, covariance, moved
