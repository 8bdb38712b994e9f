"""A surrogate of the log density: its terms, and each as a matrix over points.

Everything lives in standardised coordinates s = (x - centre) / scale and ones that are whitened: z =
W s by the chain, u = V (s - o) by the points of the fit. A surrogate is

    f(s) = c + b'u + u'Qu/2  +  sum_k a_k s^(e_k)  +  g(s)  +  h(s)  +  e(s),

with the quadratic in u, because on a rotated target with axes of 1 : 1e6 its second derivatives in s
cancel to twelve digits; monomials of total degree 3 or 4 in at most three variables, in s, where
curved targets have few of them; g a sum over centres of one of

    Gaussian    exp(-|z - z_k|^2 / 2 l^2), in whitened coordinates,
    pairwise    (1 / 2d) sum_i k_i + (1 / d(d-1)) sum_{i<j} k_i k_j with k_i = exp(-(s_i - s_ki)^2 / 2 l^2),
    Fourier     cos(w_k's + u_k) with one or two non-zero entries in w_k;

and h the heavy tails, a ladder of logarithms and a rational quadratic in r^2 = |z|^2,

    h = sum_j v_j log(1 + r^2 / q_j)  +  (p's + s'Rs/2) / (1 + r^2 / q).

A multivariate t is one logarithm exactly; the rational part is the derivative of that logarithm with respect to its
centre and its matrix, so that both need be known only roughly. e are blocks exp(a s_j) times a quadratic in z:
unknown standard deviations, see :mod:`pymc_kameleon.surrogates.values.scales`. All of it is linear in its
coefficients, which is what lets :mod:`pymc_kameleon.surrogates.values.regression` fit it by least squares. Far out
its tails may be powers of the distance, see :mod:`pymc_kameleon.surrogates.values.power_tails`.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.surrogates.values import scales
from pymc_kameleon.surrogates.values.sums import LOG_LADDER

# Values of Surrogate.kind. What ``njit`` compiles holds them, and by this word its cache is of this file, too: see
# numerics.compiled.
NONE, GAUSSIAN, PAIRWISE, FOURIER = 0, 1, 2, 3


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
    blocks: scales.Blocks  # e
    known: int  # of the blocks, the first that are known: beside what has power tails
    known_linear: np.ndarray  # (d,), in s: what is known with them
    # of :mod:`pymc_kameleon.surrogates.values.power_tails`: its R and k, and what g is not believed above, beyond R
    reach: float = np.inf
    slope: float = 0.0
    top: float = np.inf


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
        blocks=scales.none(d), known=0, known_linear=vector,
    )  # fmt: skip


def is_quadratic(f: Surrogate) -> bool:
    """Whether there is nothing but c + b'u + u'Qu/2."""
    return f.kind == NONE and not (len(f.monomials) or len(f.tails) or len(f.blocks.rates))


def work(surrogate: Surrogate) -> float:
    """About how many multiply-adds one value and gradient take."""
    d = len(surrogate.centre)
    # an exponential or a pair of sine and cosine
    kernel = len(surrogate.weights) * (4.0 * d + 30.0)
    tails = 2.0 * d * d if len(surrogate.tails) else 0.0
    blocks = (2.0 + len(surrogate.blocks.rates)) * d * d if len(surrogate.blocks.rates) else 0.0
    # the first is what a step of the leapfrog takes besides, the allocation of its arrays included
    return 500.0 + 3.0 * d * d + 12.0 * len(surrogate.monomials) + kernel + tails + blocks


# --- features as matrices -------------------------------------------------------------------------

ROWS = 128  # of a kernel at a time: they stay in the cache, .4 of the time of all at once (n = 20,000, d = 20)


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
    d, kernel = s.shape[1], np.empty((len(s), len(centres)))
    for begin in range(0, len(s), ROWS):
        rows = slice(begin, begin + ROWS)
        total = np.zeros_like(kernel[rows])
        squares, k = np.zeros_like(total), np.empty_like(total)
        for i in range(d):
            np.subtract(s[rows, i, None], centres[:, i], out=k)
            np.square(k, out=k)
            k *= -0.5 / lengthscale**2
            total += np.exp(k, out=k)
            squares += np.square(k, out=k)
        pairs = 0.5 * (total * total - squares) / (d * (d - 1)) if d > 1 else 0.0
        kernel[rows] = 0.5 * total / d + pairs
    return kernel


def sparse_frequencies(rng: np.random.Generator, size: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (size, d) with one or two non-zero entries of mixed lengthscales, and phases (size,)."""
    frequencies, lengthscales = np.zeros((size, d)), (0.5, 1.0, 2.0, 4.0)
    for row in frequencies:
        chosen = rng.choice(d, size=min(d, int(rng.integers(1, 3))), replace=False)
        row[chosen] = rng.standard_normal(len(chosen)) / lengthscales[rng.integers(len(lengthscales))]
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
