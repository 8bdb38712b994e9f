"""A composed surrogate and its gradient in coordinates z with s = B z, tempered."""

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates.values.features import (
    add_other_terms,
    is_quadratic,
    quadratic_value,
)


@njit(cache=True, inline="always")
def at(composed, metric, temperature, z, gradient, s, by_s):
    """Temperature * f at z, and its gradient with respect to z."""
    d = z.size
    value = composed.constant + quadratic_value(composed.linear, composed.quadratic, z, gradient)
    if not is_quadratic(composed):
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += metric[i, j] * z[j]
            s[i] = total
            by_s[i] = 0.0
        value += add_other_terms(composed, s, by_s)
        for i in range(d):
            for j in range(d):
                gradient[j] += metric[i, j] * by_s[i]
    if temperature != 1.0:
        for i in range(d):
            gradient[i] *= temperature
    return temperature * value
