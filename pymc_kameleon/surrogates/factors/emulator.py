"""Emulators of many black boxes at once, with Jacobians, compiled: a polynomial in few inputs each, or a spline.

Input i of a factor enters as s_i = (b(w_i) - centre_i) / scale_i. b is the identity, or levels off in a long tail: a
rate that may be 0 is w = log(rate), on which a black box does not depend where w is low, and no polynomial is level.

Its emulator is trusted in the ball |R s| < rho. Outside, with x = |R s| - rho, it goes on along the tangent at its
projection onto the ball, and the log density is lowered by GENTLE x^2 / (1 + x). A tangent lies above a concave log
likelihood, and where a surrogate is too high proposals are rejected; where it is too low a chain that comes there stays
for tens of draws, and with tens of factors one of them is always out there. A log likelihood that rises outwards, which
is most often a polynomial's end, stays as high as on the ball.

For a climb outputs stay what they are on the ball, and the wall is STEEP x^2: continuous, and no obstacle to dynamics.
A hard wall rejects nearly everything as soon as a dozen factors each have one.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit

STEEP, GENTLE = 2.0, 0.1  # nats
DEGREE, VARIABLES = 6, 3  # at most; in one monomial, what monomials.exponents pads to
LOG, LOGIT = 1, 2  # of an output what is emulated, if not itself


class Splines(NamedTuple):
    """What is added to the polynomials: a |R t - c|^3, see :mod:`pymc_kameleon.surrogates.factors.splines`."""

    # (K + 1,), int: factor k has the centres ``first[k]`` to ``first[k + 1]``; most have none
    first: np.ndarray
    centres: np.ndarray  # (C, widest): c, in whitened coordinates
    heights: np.ndarray  # (sum of centres x outputs,): a, factor by factor, centres in rows
    start: np.ndarray  # (K + 1,), int: where each factor's heights begin


class Emulator(NamedTuple):
    """K fitted factors as flat arrays."""

    inputs: np.ndarray  # (K + 1,), int: see :class:`pymc_kameleon.surrogates.factors.layout.Layout`
    outputs: np.ndarray  # (K + 1,), int
    centre: np.ndarray  # (n_w,)
    scale: np.ndarray  # (n_w,)
    knots: np.ndarray  # (n_w, 2): below and above which inputs level off; -inf and inf where they do not
    whitening: np.ndarray  # (K, widest, widest): R
    radius: np.ndarray  # (K,): rho
    # (K,): of the log density's slope in a factor's outputs where it is linear in them (log likelihoods 1, sums of
    # squares -1), else 0
    sign: np.ndarray
    first: np.ndarray  # (K + 1,), int: factor k has the monomials ``first[k]`` to ``first[k + 1]``
    # (M, VARIABLES), int: the product of s[variable]^power; power 0 where there are fewer
    variables: np.ndarray
    powers: np.ndarray  # (M, VARIABLES), int
    coefficients: np.ndarray  # (sum of monomials x outputs,): factor by factor, monomials in rows
    start: np.ndarray  # (K + 1,), int: where each factor's coefficients begin
    splines: Splines
    links: np.ndarray  # (n_o,), int: of an output itself is emulated (0), its logarithm (1), or its logit (2)
    straight: bool  # whether emulators go on beyond their balls; if not, they are for a climb


@njit(cache=True)
def bend(w, low, high):
    """(b, db/dw): w between the knots, level a few units beyond them."""
    value, slope = w, 1.0
    if low > -math.inf:
        value = np.logaddexp(w, low)
        slope = math.exp(w - value)
    if high < math.inf:
        inner = value
        value = -np.logaddexp(-inner, -high)
        slope *= math.exp(value - inner)
    return value, slope


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
    by_w = np.empty(widest)  # ds/dw
    whitened = np.empty(widest)
    normal = np.empty(widest)
    table = np.empty((widest, DEGREE + 1))
    for k in range(n_factors):
        first, d = e.inputs[k], e.inputs[k + 1] - e.inputs[k]
        square = 0.0
        for i in range(d):
            bent, slope_i = bend(w[first + i], e.knots[first + i, 0], e.knots[first + i, 1])
            s[i] = (bent - e.centre[first + i]) / e.scale[first + i]
            by_w[i] = slope_i / e.scale[first + i]
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
            x = r - rho
            if e.straight:
                penalty += GENTLE * x * x / (1.0 + x)
                force = GENTLE * (2.0 + x) * x / (1.0 + x) ** 2
            else:
                penalty += STEEP * x * x
                force = 2.0 * STEEP * x
            for j in range(d):  # the gradient of r
                total = 0.0
                for i in range(d):
                    total += e.whitening[k, i, j] * whitened[i]
                normal[j] = total / r
                slope[first + j] = force * normal[j] * by_w[j]
        for i in range(d):
            t[i] = shrink * s[i]
        outputs_k = outputs[e.outputs[k] : e.outputs[k + 1]]
        slopes = np.zeros((d, outputs_k.size))
        monomials = e.first[k], e.first[k + 1]
        _polynomial(
            e.variables, e.powers, e.coefficients, monomials, e.start[k], t, table, False, outputs_k, slopes
        )  # fmt: skip
        if e.splines.first[k] < e.splines.first[k + 1]:
            _splines(e, k, t, False, outputs_k, slopes)
        if outside:
            _go_on(e, k, t, table, r, normal[:d], outputs_k, slopes)
        for j in range(outputs_k.size):
            rises = 1.0
            link = e.links[e.outputs[k] + j]
            if link == LOG:
                rises = outputs_k[j] = math.exp(outputs_k[j])
            elif link == LOGIT:
                outputs_k[j] = 1.0 / (1.0 + math.exp(-outputs_k[j]))
                rises = outputs_k[j] * (1.0 - outputs_k[j])
            for i in range(d):
                jacobian[e.outputs[k] + j, i] = rises * slopes[i, j] * by_w[i]
    return outputs, jacobian, penalty, slope


# Outputs are innermost, where they lie side by side: two to three times as fast as monomials, and the same bits.
# What is called for every factor is not given the emulator, whose twenty arrays are then counted as held once more, and
# one buffer serves all: 16 us in place of 34, of 40 factors of two inputs. By unsigned offsets, of which Numba need not
# ask whether they count from the end: 10.
@njit(cache=True)
def _polynomial(variables, powers, coefficients, monomials, c, t, table, radial, outputs, slopes):
    """A factor's outputs, or their derivatives along ``t`` times |t|, and the derivatives of that by ``t``, (d, n).

    ``monomials``: the first and after the last; ``c``: where the coefficients begin; ``table``: a buffer.
    """
    d, n, c = np.uint64(slopes.shape[0]), np.uint64(outputs.size), np.uint64(c)
    for i in range(d):
        table[i, 0] = 1.0
        for p in range(DEGREE):
            table[i, p + 1] = table[i, p] * t[i]
    for m in range(np.uint64(monomials[0]), np.uint64(monomials[1])):
        value, degree = 1.0, 0
        for i in range(VARIABLES):
            degree += powers[m, i]
            value *= table[np.uint64(variables[m, i]), np.uint64(powers[m, i])]
        # a homogeneous function's derivative along its argument is its degree times it
        times = float(degree) if radial else 1.0
        for j in range(n):
            outputs[j] += coefficients[c + j] * times * value
        for i in range(VARIABLES):
            power, mine = powers[m, i], np.uint64(variables[m, i])
            if power == 0:
                continue
            partial = power * table[mine, np.uint64(power - 1)]
            for j in range(VARIABLES):
                if j != i:
                    partial *= table[np.uint64(variables[m, j]), np.uint64(powers[m, j])]
            for j in range(n):
                slopes[mine, j] += coefficients[c + j] * times * partial
        c += n


@njit(cache=True)
def _splines(e, k, t, radial, outputs, slopes):
    """What factor k's spline adds to what its polynomial has put into ``outputs`` and ``slopes``."""
    first, last = e.splines.first[k], e.splines.first[k + 1]
    d, n = slopes.shape
    root = e.whitening[k]
    z, gap, by_z = np.zeros(d), np.empty(d), np.zeros((d, n))
    for i in range(d):
        for j in range(d):
            z[i] += root[i, j] * t[j]
    c = e.splines.start[k]
    for m in range(first, last):
        square = along = 0.0
        for i in range(d):
            gap[i] = z[i] - e.splines.centres[m, i]
            square += gap[i] * gap[i]
            along += gap[i] * z[i]
        r = math.sqrt(square)
        turn = along / r if r > 0.0 else 0.0
        for j in range(n):
            a = e.splines.heights[c + j]
            if radial:  # z' grad, and its gradient
                outputs[j] += 3.0 * a * r * along
                for i in range(d):
                    by_z[i, j] += 3.0 * a * (r * (gap[i] + z[i]) + turn * gap[i])
            else:
                outputs[j] += a * r * square
                for i in range(d):
                    by_z[i, j] += 3.0 * a * r * gap[i]
        c += n
    for i in range(d):
        for j in range(n):
            for h in range(d):
                slopes[i, j] += root[h, i] * by_z[h, j]


@njit(cache=True)
def _go_on(e, k, t, table, r, normal, outputs, slopes):
    """From the projection ``t`` along the tangent to the distance ``r``; derivatives by t become those by s.

    ``normal`` is dr/ds.
    """
    rho, n, d = e.radius[k], outputs.size, normal.size
    radial, bent = np.zeros(n), np.zeros((d, n))
    monomials = e.first[k], e.first[k + 1]
    _polynomial(e.variables, e.powers, e.coefficients, monomials, e.start[k], t, table, True, radial, bent)
    if e.splines.first[k] < e.splines.first[k + 1]:
        _splines(e, k, t, True, radial, bent)
    straight = e.straight and not e.sign[k] * radial.sum() > 0.0
    beyond = (r - rho) / rho if straight else 0.0
    for j in range(n):
        outputs[j] += beyond * radial[j]
        inwards = 0.0
        for i in range(d):
            slopes[i, j] += beyond * bent[i, j]
            inwards += slopes[i, j] * t[i]
        # dt/ds = (rho / r) (I - t (dr/ds)' / rho)
        for i in range(d):
            slopes[i, j] = rho / r * (slopes[i, j] - inwards * normal[i] / rho)
            if straight:
                slopes[i, j] += radial[j] / rho * normal[i]
