"""Scales that are known: what normal priors and normal data add to a log density, which nobody has to learn.

k priors x_i ~ N(m_i(x), sigma_i), or data y_i in their place, with m_i linear and log sigma_i = alpha_i + beta x_j add

    -k beta x_j - exp(-2 beta x_j) |A x + c|^2 / 2,    rows of A x + c: exp(-alpha_i) (x_i - m_i(x)),

a block of :mod:`pymc_kameleon.surrogates.values.scales` whose coefficients the model says. A fit's are off by what its
points leave open, and exp(-2 beta x_j) makes nats of that where sigma is a hundredth of what it was at the points.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pymc_kameleon.surrogates.values.scales import KNOTS, Blocks

if TYPE_CHECKING:
    from pymc_kameleon.surrogates.values.features import Surrogate


class KnownScale(NamedTuple):
    """One of them, in the coordinates x of the log density."""

    variable: int  # j
    slope: float  # beta
    matrix: np.ndarray  # (k, d): A
    offset: np.ndarray  # (k,): c
    normals: int  # how many: rows may stand for more, with the same A'A, A'c and c'c


def in_surrogate(
    known: tuple[KnownScale, ...], centre: np.ndarray, scale: np.ndarray, factor: np.ndarray
) -> tuple[Blocks, np.ndarray]:
    """Blocks, and what is linear in s, (d,): for s = (x - centre) / scale, s = ``factor`` z."""
    d, k = len(centre), len(known)
    linear = np.zeros(d)
    made = Blocks(
        np.array([own.variable for own in known], dtype=np.int64), np.zeros(k), np.zeros(k), np.zeros((k, d)),
        np.zeros((k, d, d)), np.zeros((k, len(KNOTS))),
    )  # fmt: skip
    for i, (j, slope, matrix, offset, normals) in enumerate(known):
        to_z, at_centre = matrix @ (scale[:, None] * factor), matrix @ centre + offset
        height = -np.exp(-2.0 * slope * centre[j])
        made.rates[i] = -2.0 * slope * scale[j]
        made.constants[i] = 0.5 * height * (at_centre @ at_centre)
        made.linear[i] = height * (at_centre @ to_z)
        made.quadratic[i] = height * (to_z.T @ to_z)
        linear[j] -= normals * slope * scale[j]
    return made, linear


def beside(f: "Surrogate", fitted: Blocks) -> Blocks:
    """Those that are known in ``f``, then ``fitted``."""
    return Blocks(*(np.concatenate([own[: f.known], more]) for own, more in zip(f.blocks, fitted, strict=True)))


def left_out(f: "Surrogate") -> "Surrogate":
    """What of ``f`` has been fitted."""
    return f._replace(blocks=Blocks(*(own[f.known :] for own in f.blocks)), known=0)


def curvature(f: "Surrogate", factor: np.ndarray) -> np.ndarray:
    """Second derivative at the centre, in z, (d, d), of what is known but for what is mixed with s_j; s = ``factor`` z.

    From a far start the mixed ones lead nowhere: of 25 coefficients 18 effective draws for 710. Without those of s_j
    nothing tells an axis from rounding's: one of four seeds had none.
    """
    rows = f.blocks.rates[: f.known, None] * factor[f.blocks.variables[: f.known]]
    return np.asarray(f.blocks.quadratic[: f.known].sum(axis=0) + (rows.T * f.blocks.constants[: f.known]) @ rows)
