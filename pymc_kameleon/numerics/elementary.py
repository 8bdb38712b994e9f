"""Exponentials, sines and cosines of whole arrays, compiled: arithmetic that runs side by side, whatever the width.

No call of a library, no branch and no fused operation: the same bits on every processor, several times as fast.
"""

import numpy as np

from pymc_kameleon.numerics.compiled import njit


@njit(cache=True)
def exponentials(x):
    """Exp of every entry of ``x`` in place, at most 0, to 3e-16.

    x = k log 2 + r, with k from the last bits of x / log 2 + 1.5 * 2^52, and a Taylor polynomial of r. What is below
    -700 counts as -700.
    """
    n = x.size
    shifted = np.empty(n)
    for i in range(n):
        x[i] = max(x[i], -700.0)
        shifted[i] = x[i] * 1.4426950408889634 + 6755399441055744.0
    bits = shifted.view(np.int64)
    for i in range(n):
        k = shifted[i] - 6755399441055744.0
        r = (x[i] - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
        p = 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        x[i] = p * r + 1.0
    for i in range(n):
        bits[i] = (bits[i] << 52) + (1023 << 52)
    for i in range(n):
        x[i] *= shifted[i]


@njit(cache=True)
def waves(x):
    """Sines and cosines of every entry of ``x``, to 3e-16 up to 1e6, to 1e-16 of ``x`` beyond; of 0 beyond 1e9.

    x = k pi/2 + r, with k as above and |r| <= pi/4, for which Taylor polynomials are enough.
    """
    n = x.size
    x = np.where(np.abs(x) > 1e9, 0.0, x)  # beyond, r has no digits
    shifted, sine, cosine = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        shifted[i] = x[i] * 0.6366197723675814 + 6755399441055744.0
    bits = shifted.view(np.int64)
    for i in range(n):
        k = shifted[i] - 6755399441055744.0
        r = ((x[i] - k * 1.5707963267341256) - k * 6.077100506303966e-11) - k * 2.0222662487959506e-21
        q = r * r
        s = -1.0 / 1307674368000.0
        s = s * q + 1.0 / 6227020800.0
        s = s * q - 1.0 / 39916800.0
        s = s * q + 1.0 / 362880.0
        s = s * q - 1.0 / 5040.0
        s = s * q + 1.0 / 120.0
        s = s * q - 1.0 / 6.0
        s = r + r * q * s
        c = 1.0 / 20922789888000.0
        c = c * q - 1.0 / 87178291200.0
        c = c * q + 1.0 / 479001600.0
        c = c * q - 1.0 / 3628800.0
        c = c * q + 1.0 / 40320.0
        c = c * q - 1.0 / 720.0
        c = c * q + 1.0 / 24.0
        c = 1.0 - 0.5 * q + q * q * c
        quarter = bits[i]
        first, second = (c, s) if quarter & 1 else (s, c)
        sine[i] = -first if quarter & 2 else first
        cosine[i] = -second if (quarter + 1) & 2 else second
    return sine, cosine
