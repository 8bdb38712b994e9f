"""Feature families for a surrogate of the log density, as matrices to fit with and as compiled value and gradient.

Everything lives in standardised coordinates s = (x - centre) / scale and ones that are whitened: z =
W s by the chain, u = V (s - o) by the points of the fit. A surrogate is

    f(s) = c + b'u + u'Qu/2  +  sum_k a_k s^(e_k)  +  g(s)  +  h(s)  +  e(s),

with the quadratic in u, because on a rotated target with axes of 1 : 1e6 its second derivatives in s
cancel to twelve digits; monomials of total degree 3 or 4 in at most three variables, in s, where
curved targets have few of them; g a sum over centres of one of

    Gaussian    exp(-|z - z_k|^2 / 2 l^2), in whitened coordinates,
    pairwise    (1 / 2d) sum_i k_i + (1 / d(d-1)) sum_{i<j} k_i k_j with k_i = exp(-(s_i - s_ki)^2 /
    2 l^2), Fourier     cos(w_k's + u_k) with one or two non-zero entries in w_k;

and h the heavy tails, a ladder of logarithms and a rational quadratic in r^2 = |z|^2,

    h = sum_j v_j log(1 + r^2 / q_j)  +  (p's + s'Rs/2) / (1 + r^2 / q).

A multivariate t is one logarithm exactly; the rational part is the derivative of that logarithm with respect to its
centre and its matrix, so that both need be known only roughly. e are blocks exp(a s_j) times a quadratic in z:
unknown standard deviations, see :mod:`pymc_kameleon.surrogates.values.scales`. All of it is linear in its
coefficients, which is what lets :mod:`pymc_kameleon.surrogates.values.regression` fit it by least squares.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates.values import scales
from pymc_kameleon.surrogates.values.scales import Blocks, add_blocks

NONE, GAUSSIAN, PAIRWISE, FOURIER = 0, 1, 2, 3  # values of Surrogate.kind
LOG_LADDER = 2.0 ** np.arange(0, 7)  # q_j: from within one standard deviation to the far tail


class Surrogate(NamedTuple):
    """A fitted surrogate: what the compiled functions need to evaluate f and its gradient."""

    centre: np.ndarray  # (d,): s = (x - centre) / scale
    scale: np.ndarray  # (d,)
    whiten: np.ndarray  # (d, d): W: z = W s
    origin: np.ndarray  # (d,): o
    frame: np.ndarray  # (d, d): V, u = V (s - o)
    constant: float
    linear: np.ndarray  # (d,): b, in u
    quadratic: np.ndarray  # (d, d): the symmetric Q, in u
    variables: np.ndarray  # (m, 3): which variables a monomial has
    powers: np.ndarray  # (m, 3): to what power; 0 means "not there"
    monomials: np.ndarray  # (m,): a_k
    kind: int  # of kernel: ``NONE``, ``GAUSSIAN``, ``PAIRWISE`` or ``FOURIER``
    centres: np.ndarray  # (k, d): z_k, s_k or w_k
    phases: np.ndarray  # (k,)
    weights: np.ndarray  # (k,)
    lengthscale: float
    tails: np.ndarray  # (j,): v_j, beside ``LOG_LADDER``; of length 0 when there is no h
    tail_scale: float  # q
    tail_linear: np.ndarray  # (d,): p
    tail_quadratic: np.ndarray  # (d, d): the symmetric R
    blocks: Blocks  # e


def blank(centre: np.ndarray, scale: np.ndarray, whiten: np.ndarray) -> Surrogate:
    """The surrogate f = 0 in given coordinates, u = s; the families fill it in with ``_replace``."""
    d = len(centre)
    none, vector, matrix = np.zeros(0), np.zeros(d), np.zeros((d, d))
    return Surrogate(
        centre=np.array(centre, dtype=float), scale=np.array(scale, dtype=float),
        whiten=np.ascontiguousarray(whiten, dtype=float), origin=vector, frame=np.eye(d),
        constant=0.0, linear=vector, quadratic=matrix,
        variables=np.zeros((0, 3), dtype=np.int64), powers=np.zeros((0, 3), dtype=np.int64),
        monomials=none, kind=NONE, centres=np.zeros((0, d)), phases=none, weights=none,
        lengthscale=1.0, tails=none, tail_scale=1.0, tail_linear=vector, tail_quadratic=matrix,
        blocks=scales.none(d),
    )  # fmt: skip


def work(surrogate: Surrogate) -> float:
    """About how many multiply-adds one value and gradient take."""
    d = len(surrogate.centre)
    # an exponential or a pair of sine and cosine
    kernel = len(surrogate.weights) * (4.0 * d + 30.0)
    tails = 2.0 * d * d if len(surrogate.tails) else 0.0
    blocks = (2.0 + len(surrogate.blocks.rates)) * d * d if len(surrogate.blocks.rates) else 0.0
    return 3.0 * d * d + 12.0 * len(surrogate.monomials) + kernel + tails + blocks


# --- features as matrices -------------------------------------------------------------------------


def quadratic_size(d: int) -> int:
    """Number of columns of :func:`quadratic_features`."""
    return (d + 1) * (d + 2) // 2


def quadratic_features(s: np.ndarray) -> np.ndarray:
    """1, s_i, s_i s_j (i <= j) of ``s`` (n, d): shape (n, (d + 1)(d + 2) / 2)."""
    i, j = np.triu_indices(s.shape[1])
    return np.concatenate([np.ones((len(s), 1)), s, s[:, i] * s[:, j]], axis=1)


def unpack_quadratic(coefficients: np.ndarray, d: int) -> tuple[float, np.ndarray, np.ndarray]:
    """(c, b, Q) with c + b's + s'Qs/2 equal to ``quadratic_features(s) @ coefficients``."""
    q = np.zeros((d, d))
    q[np.triu_indices(d)] = coefficients[1 + d :]
    return float(coefficients[0]), coefficients[1 : 1 + d].copy(), q + q.T


def gaussian_kernel(z: np.ndarray, centres: np.ndarray, lengthscale: float) -> np.ndarray:
    """exp(-|z - z_k|^2 / 2 l^2), shape (n, k)."""
    square = np.square(z).sum(1)[:, None] + np.square(centres).sum(1) - 2.0 * z @ centres.T
    return np.exp(np.maximum(square, 0.0) * (-0.5 / lengthscale**2))


def pairwise_kernel(s: np.ndarray, centres: np.ndarray, lengthscale: float) -> np.ndarray:
    """The additive kernel of main effects and pairs, shape (n, k).

    sum_{i<j} k_i k_j = ((sum k_i)^2 - sum k_i^2) / 2, so a pair costs no more than a single variable.
    """
    d = s.shape[1]
    total = np.zeros((len(s), len(centres)))
    squares = np.zeros_like(total)
    for i in range(d):
        k = np.exp(np.square(s[:, i, None] - centres[:, i]) * (-0.5 / lengthscale**2))
        total += k
        squares += k * k
    pairs = 0.5 * (total * total - squares) / (d * (d - 1)) if d > 1 else 0.0
    return 0.5 * total / d + pairs


def fourier_features(s: np.ndarray, frequencies: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """cos(w_k's + u_k), shape (n, k)."""
    return np.cos(s @ frequencies.T + phases)


def sparse_frequencies(
    rng: np.random.Generator, size: int, d: int, lengthscales=(0.5, 1.0, 2.0, 4.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (size, d) with one or two non-zero entries of mixed lengthscales, and phases (size,)."""
    frequencies = np.zeros((size, d))
    for row in frequencies:
        chosen = rng.choice(d, size=min(d, int(rng.integers(1, 3))), replace=False)
        row[chosen] = (
            rng.standard_normal(len(chosen)) / lengthscales[rng.integers(len(lengthscales))]
        )
    return frequencies, rng.uniform(0.0, 2.0 * np.pi, size)


def tail_features(s: np.ndarray, z: np.ndarray, tail_scale: float) -> np.ndarray:
    """log(1 + r^2 / q_j), then s_i / (1 + r^2 / q) and s_i s_j / (1 + r^2 / q): the block of the heavy tails."""
    r2 = np.square(z).sum(axis=1)[:, None]
    rational = quadratic_features(s)[:, 1:] / (1.0 + r2 / tail_scale)
    return np.concatenate([np.log1p(r2 / LOG_LADDER), rational], axis=1)


def compose(f: Surrogate, matrix: np.ndarray) -> Surrogate:
    """The same f with its quadratic in coordinates y in which s = ``matrix`` y; everything else stays in s.

    Composed once, so that no factor of V is multiplied in and out at every gradient.
    """
    to_u = f.frame @ matrix
    u = -f.frame @ f.origin
    slope = f.linear + f.quadratic @ u
    quadratic = to_u.T @ f.quadratic @ to_u
    return f._replace(
        origin=np.zeros(len(u)),
        frame=np.linalg.inv(matrix),
        constant=f.constant + float(u @ (f.linear + 0.5 * f.quadratic @ u)),
        linear=to_u.T @ slope,
        quadratic=np.ascontiguousarray(0.5 * (quadratic + quadratic.T)),
    )


# --- compiled value and gradient ------------------------------------------------------------------


@njit(cache=True)
def value_and_gradient(f, s, gradient):
    """F(s) for s of shape (d,), writing df/ds into ``gradient``."""
    d = s.size
    u = np.zeros(d)
    by_u = np.empty(d)
    for i in range(d):
        for j in range(d):
            u[i] += f.frame[i, j] * (s[j] - f.origin[j])
        gradient[i] = 0.0
    value = f.constant + quadratic_value(f.linear, f.quadratic, u, by_u)
    for i in range(d):
        for j in range(d):
            gradient[j] += f.frame[i, j] * by_u[i]
    return value + add_other_terms(f, s, gradient)


@njit(cache=True, inline="always")
def quadratic_value(linear, quadratic, u, gradient):
    """Return b'u + u'Qu/2, writing its gradient."""
    d = u.size
    value = 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += quadratic[i, j] * u[j]
        gradient[i] = linear[i] + row
        value += u[i] * (linear[i] + 0.5 * row)
    return value


@njit(cache=True, inline="always")
def is_quadratic(f):
    """Whether there is nothing but c + b'u + u'Qu/2."""
    nothing = f.monomials.size == 0 and f.kind == NONE and f.tails.size == 0
    return nothing and f.blocks.rates.size == 0


@njit(cache=True, inline="always")
def add_other_terms(f, s, gradient):
    """The value at s of everything but the quadratic; its gradient is added to ``gradient``."""
    value = 0.0
    if f.monomials.size > 0:
        value += _monomials(f.variables, f.powers, f.monomials, s, gradient)
    if f.kind == GAUSSIAN:
        value += _gaussian(f.centres, f.weights, f.lengthscale, f.whiten, s, gradient)
    elif f.kind == PAIRWISE:
        value += _pairwise(f.centres, f.weights, f.lengthscale, s, gradient)
    elif f.kind == FOURIER:
        value += _fourier(f.centres, f.phases, f.weights, s, gradient)
    if f.tails.size > 0:
        value += _tails(
            f.tails, f.tail_scale, f.tail_linear, f.tail_quadratic, f.whiten, s, gradient
        )
    if f.blocks.rates.size > 0:
        value += add_blocks(f.blocks, f.whiten, s, gradient)
    return value


@njit(cache=True)
def _monomials(variables, powers, weights, s, gradient):
    d = s.size
    table = np.empty((d, 5))
    for i in range(d):
        table[i, 0] = 1.0
        for k in range(4):
            table[i, k + 1] = table[i, k] * s[i]
    value = 0.0
    for k in range(weights.size):
        w = weights[k]
        i, j, l = variables[k, 0], variables[k, 1], variables[k, 2]
        p, q, r = powers[k, 0], powers[k, 1], powers[k, 2]
        a, b, c = table[i, p], table[j, q], table[l, r]
        value += w * a * b * c
        gradient[i] += w * p * table[i, p - 1] * b * c  # the first power is never 0
        if q > 0:
            gradient[j] += w * q * table[j, q - 1] * a * c
            if r > 0:
                gradient[l] += w * r * table[l, r - 1] * a * b
    return value


@njit(cache=True)
def _gaussian(centres, weights, lengthscale, whiten, s, gradient):
    d = s.size
    z = np.zeros(d)
    slope = np.zeros(d)
    for i in range(d):
        for j in range(d):
            z[i] += whiten[i, j] * s[j]
    precision = 1.0 / (lengthscale * lengthscale)
    value = 0.0
    for k in range(weights.size):
        square = 0.0
        for i in range(d):
            square += (centres[k, i] - z[i]) ** 2
        term = weights[k] * math.exp(-0.5 * precision * square)
        value += term
        term *= precision
        for i in range(d):
            slope[i] += term * (centres[k, i] - z[i])
    for i in range(d):
        for j in range(d):
            gradient[j] += whiten[i, j] * slope[i]
    return value


@njit(cache=True)
def _pairwise(centres, weights, lengthscale, s, gradient):
    d = s.size
    single = 0.5 / d
    pair = 1.0 / (d * (d - 1)) if d > 1 else 0.0
    precision = 1.0 / (lengthscale * lengthscale)
    factors = np.empty(d)
    value = 0.0
    for k in range(weights.size):
        total = 0.0
        squares = 0.0
        for i in range(d):
            delta = centres[k, i] - s[i]
            e = math.exp(-0.5 * precision * delta * delta)
            factors[i] = e
            total += e
            squares += e * e
        w = weights[k]
        value += w * (single * total + 0.5 * pair * (total * total - squares))
        w *= precision
        for i in range(d):
            e = factors[i]
            gradient[i] += w * (single + pair * (total - e)) * e * (centres[k, i] - s[i])
    return value


@njit(cache=True)
def _fourier(frequencies, phases, weights, s, gradient):
    d = s.size
    value = 0.0
    for k in range(weights.size):
        angle = phases[k]
        for i in range(d):
            angle += frequencies[k, i] * s[i]
        value += weights[k] * math.cos(angle)
        slope = -weights[k] * math.sin(angle)
        for i in range(d):
            gradient[i] += slope * frequencies[k, i]
    return value


@njit(cache=True)
def _tails(tails, tail_scale, linear, quadratic, whiten, s, gradient):
    d = s.size
    z = np.zeros(d)
    r2 = 0.0
    for i in range(d):
        for j in range(d):
            z[i] += whiten[i, j] * s[j]
        r2 += z[i] * z[i]
    value = 0.0
    by_r2 = 0.0  # derivative with respect to r^2
    for j in range(tails.size):
        value += tails[j] * math.log1p(r2 / LOG_LADDER[j])
        by_r2 += tails[j] / (LOG_LADDER[j] + r2)
    shrink = 1.0 / (1.0 + r2 / tail_scale)
    numerator = 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += quadratic[i, j] * s[j]
        gradient[i] += shrink * (linear[i] + row)
        numerator += s[i] * (linear[i] + 0.5 * row)
    value += shrink * numerator
    by_r2 -= numerator * shrink * shrink / tail_scale
    for i in range(d):
        for j in range(d):
            gradient[j] += 2.0 * by_r2 * whiten[i, j] * z[i]
    return value


@njit(cache=True)
def values(f, x):
    """F at every row of ``x`` (n, d), in the coordinates of the log density; shape (n,)."""
    n, d = x.shape
    result = np.empty(n)
    s = np.empty(d)
    gradient = np.empty(d)
    for k in range(n):
        for i in range(d):
            s[i] = (x[k, i] - f.centre[i]) / f.scale[i]
        result[k] = value_and_gradient(f, s, gradient)
    return result
