"""What known scales add to a log density, by their definition."""

import math


def plain(known, x):
    """At ``x`` (d,), of :class:`pymc_kameleon.surrogates.values.known_scales.KnownScale`."""
    value = 0.0
    for j, slope, matrix, offset, normals in known:
        rest = matrix @ x + offset
        value -= normals * slope * x[j] + 0.5 * math.exp(-2.0 * slope * x[j]) * rest @ rest
    return value
