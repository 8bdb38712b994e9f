"""Polyharmonic splines: a quadratic, and a sum of cubes of distances where the bends are too many for a polynomial.

    g(s) = q(s) + sum_c a_c |R (s - s_c)|^3,   sum_c a_c p(s_c) = 0 for every quadratic p,

fitted by least squares with the penalty a' Phi a, Phi the cubed distances between centres (Wahba 1990, section 2.4;
Wendland 2005, theorem 8.16, for why it is positive under the condition). A polynomial of degree 6 that is right where
the points are may be hundreds of nats too high in an empty corner of its ball, where a free run then stays; a spline
bends no more than the points ask for. Far out the condition takes all that grows from the sum: it stays bounded, and g
goes on like q.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.surrogates.factors.emulator import Splines
from pymc_kameleon.surrogates.values import monomials
from pymc_kameleon.surrogates.values.least_squares import with_ridge

INPUTS = 6  # at most: in more, hundreds of points are far from each other
RIDGE, ROUNDING = 1e-6, 1e-10
FEWEST = 150  # evaluations: where a polynomial has had fewer, the next refit tells more than another family
MARGIN = 0.25  # of a polynomial's squared error: one that is nearly as good is faster
CAREFUL = 4.0  # ... and where the peaks of polynomials have done harm


class Spline(NamedTuple):
    """One factor's: centres in whitened coordinates (c, d), heights a (c, outputs) and the quadratic's coefficients."""

    centres: np.ndarray
    heights: np.ndarray
    coefficients: np.ndarray


def columns(s: np.ndarray, variables: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """The monomials at ``s`` (n, d), shape (n, m), row by row."""
    return np.ascontiguousarray(monomials.features(s, variables, powers))


@lru_cache(maxsize=64)
def nested(d: int, degree: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Variables and powers, (m, 3) each, sorted by degree from the constant on: a larger set begins with a smaller."""
    variables, powers = monomials.exponents(d, degree, order, least=0)
    by_degree = np.argsort(powers.sum(axis=1), kind="stable")
    return variables[by_degree], powers[by_degree]


def spread_out(z: np.ndarray, weights: np.ndarray, most: int) -> np.ndarray:
    """Rows of ``z`` (n, d), at most ``most``: each far from those before it, from the heaviest on; shape (c,)."""
    if len(z) <= most:
        return np.arange(len(z))
    near = weights**0.25
    chosen = [int(np.argmax(weights))]
    distance = np.full(len(z), np.inf)
    while len(chosen) < most:
        distance = np.minimum(distance, np.sqrt(np.square(z - z[chosen[-1]]).sum(axis=1)))
        chosen.append(int(np.argmax(distance * near)))
    return np.sort(chosen)


def fit_spline(s: np.ndarray, z: np.ndarray, outputs: np.ndarray, weights: np.ndarray) -> Spline | None:
    """The spline of the points ``s`` (n, d), which are ``z`` = R s in whitened coordinates; None where there is none.

    ``outputs`` are (n, m), ``weights`` (n,).
    """
    x = columns(s, *nested(s.shape[1], 2, 2))
    rows = spread_out(z, weights, 300)  # at most: what a value costs
    p = x.shape[1]
    if len(rows) <= 2 * p:
        return None
    free = scipy.linalg.qr(x[rows])[0][:, p:]  # heights that no quadratic sees, (c, c - p)
    cubes = _cubes(z, z[rows])
    design = np.hstack([x, cubes @ free])
    weighted = design * weights[:, None]
    gram = weighted.T @ design
    gram[p:, p:] += RIDGE * weights.sum() * (free.T @ cubes[rows] @ free)
    try:
        factor = with_ridge(gram, ROUNDING * np.trace(gram) / len(gram))
    except scipy.linalg.LinAlgError:
        return None
    found = scipy.linalg.cho_solve(factor, weighted.T @ outputs, check_finite=False)
    return Spline(z[rows], free @ found[p:], found[:p])


def values(spline: Spline, s: np.ndarray, z: np.ndarray) -> np.ndarray:
    """G at ``s`` (n, d), which are ``z`` in whitened coordinates: shape (n, m)."""
    quadratic = columns(s, *nested(s.shape[1], 2, 2)) @ spline.coefficients
    return quadratic + _cubes(z, spline.centres) @ spline.heights


def _cubes(z, centres):
    """Cubes of the distances, shape (n, c)."""
    r = scipy.spatial.distance.cdist(z, centres)
    return r * r * r


def assemble(splines: list[Spline | None], widest: int) -> Splines:
    """All factors' as flat arrays; None of those that have none."""
    found = [spline for spline in splines if spline is not None]
    centres = [np.pad(f.centres, ((0, 0), (0, widest - f.centres.shape[1]))) for f in found]
    sizes = [(0, 0) if f is None else (len(f.centres), f.heights.size) for f in splines]
    ends = np.concatenate([[(0, 0)], np.cumsum(sizes, axis=0)]).astype(np.int64)
    return Splines(
        first=np.ascontiguousarray(ends[:, 0]),
        centres=np.concatenate([np.zeros((0, widest)), *centres]),
        heights=np.concatenate([np.zeros(0), *(f.heights.ravel() for f in found)]),
        start=np.ascontiguousarray(ends[:, 1]),
    )


def better(
    s: np.ndarray, z: np.ndarray, outputs: np.ndarray, weights: np.ndarray, held: np.ndarray,
    squared_error: Callable[[np.ndarray], float], most: float,
) -> tuple[Spline, float] | None:  # fmt: skip
    """(spline, squared error on the points that are ``held`` out), if that is below ``most``.

    ``squared_error`` prices what is wrong at these points, (n held, m).
    """
    tried = fit_spline(s[~held], z[~held], outputs[~held], weights[~held])
    if tried is None:
        return None
    error = squared_error(values(tried, s[held], z[held]) - outputs[held])
    if not error < most:
        return None
    spline = fit_spline(s, z, outputs, weights)
    return None if spline is None else (spline, error)
