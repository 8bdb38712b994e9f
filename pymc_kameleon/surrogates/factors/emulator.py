"""Emulators of many black boxes at once: each a polynomial in few inputs, with its Jacobian, compiled.

Input i of a factor enters as s_i = (w_i - centre_i) / scale_i. Its emulator is trusted in the ball |R s| < rho.
Outside, it is evaluated at the projection onto the ball, and the log density is lowered by SOFT (|R s| - rho)^2:
continuous, bounded, and no obstacle to dynamics. A hard wall rejects nearly everything as soon as a dozen factors each
have one.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

SOFT = 2.0
DEGREE = 6  # at most
VARIABLES = 3  # in one monomial, at most


class Emulator(NamedTuple):
    """K fitted factors as flat arrays.

    Attributes
    ----------
    inputs, outputs : ndarray of int, shape (K + 1,)
        See :class:`pymc_kameleon.surrogates.factors.layout.Layout`.
    centre, scale : ndarray of shape (n_w,)
    whitening : ndarray of shape (K, widest, widest)
        R.
    radius : ndarray of shape (K,)
        rho.
    first : ndarray of int, shape (K + 1,)
        Factor k has the monomials ``first[k]`` to ``first[k + 1]``.
    variables, powers : ndarray of int, shape (M, VARIABLES)
        The product of s[variable]^power; power 0 where there are fewer.
    coefficients : ndarray of shape (sum of monomials x outputs,)
        Factor by factor, monomials in rows.
    start : ndarray of int, shape (K + 1,)
        Where each factor's coefficients begin.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    whitening: np.ndarray
    radius: np.ndarray
    first: np.ndarray
    variables: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray
    start: np.ndarray


@njit(cache=True)
def emulate(emulator, w):
    """(outputs, their Jacobian padded to (n_o, widest), penalty, its derivative) at the inputs ``w``."""
    e = emulator
    n_factors, widest = e.radius.size, e.whitening.shape[1]
    outputs = np.zeros(e.outputs[-1])
    jacobian = np.zeros((e.outputs[-1], widest))
    slope = np.zeros(w.size)
    penalty = 0.0
    s = np.empty(widest)
    t = np.empty(widest)
    whitened = np.empty(widest)
    normal = np.empty(widest)
    table = np.empty((widest, DEGREE + 1))
    partial = np.empty(VARIABLES)
    for k in range(n_factors):
        first, d = e.inputs[k], e.inputs[k + 1] - e.inputs[k]
        square = 0.0
        for i in range(d):
            s[i] = (w[first + i] - e.centre[first + i]) / e.scale[first + i]
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += e.whitening[k, i, j] * s[j]
            whitened[i] = total
            square += total * total
        rho = e.radius[k]
        outside = not square <= rho * rho
        shrink = 1.0
        r = math.sqrt(square)
        if outside:
            shrink = rho / r
            penalty += SOFT * (r - rho) ** 2
            for j in range(d):  # the gradient of r
                total = 0.0
                for i in range(d):
                    total += e.whitening[k, i, j] * whitened[i]
                normal[j] = total / r
                slope[first + j] = 2.0 * SOFT * (r - rho) * normal[j] / e.scale[first + j]
        for i in range(d):
            t[i] = shrink * s[i]
            table[i, 0] = 1.0
            for p in range(DEGREE):
                table[i, p + 1] = table[i, p] * t[i]
        o, n_out, c = e.outputs[k], e.outputs[k + 1] - e.outputs[k], e.start[k]
        for m in range(e.first[k], e.first[k + 1]):
            value = 1.0
            for i in range(VARIABLES):
                value *= table[e.variables[m, i], e.powers[m, i]]
                partial[i] = 0.0
            for i in range(VARIABLES):
                power = e.powers[m, i]
                if power > 0:
                    slope_i = power * table[e.variables[m, i], power - 1]
                    for j in range(VARIABLES):
                        if j != i:
                            slope_i *= table[e.variables[m, j], e.powers[m, j]]
                    partial[i] = slope_i
            for j in range(n_out):
                coefficient = e.coefficients[c]
                c += 1
                outputs[o + j] += coefficient * value
                for i in range(VARIABLES):
                    if e.powers[m, i] > 0:
                        jacobian[o + j, e.variables[m, i]] += coefficient * partial[i]
        for j in range(n_out):
            if outside:  # through the projection: dt/ds = (rho / r) (I - s (dr/ds)' / r)
                along = 0.0
                for i in range(d):
                    along += jacobian[o + j, i] * s[i]
                for i in range(d):
                    change = jacobian[o + j, i] - along * normal[i] / r
                    jacobian[o + j, i] = shrink * change
            for i in range(d):
                jacobian[o + j, i] /= e.scale[first + i]
    return outputs, jacobian, penalty, slope
