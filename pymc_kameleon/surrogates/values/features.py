"""Feature families for a surrogate of the log density, as matrices to fit with and as compiled value and gradient.

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

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply
from pymc_kameleon.surrogates import rescaling
from pymc_kameleon.surrogates.values import power_tails, products, scales, sums
from pymc_kameleon.surrogates.values.sums import LOG_LADDER

NONE, GAUSSIAN, PAIRWISE, FOURIER = 0, 1, 2, 3  # values of Surrogate.kind


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


# --- as compiled functions read it ----------------------------------------------------------------


# Numbers; their table, whose rows are (begin, shape), and integers. A call into compiled code costs some 150 ns an
# array that it is given, and a surrogate has forty.
Flat = tuple[np.ndarray, np.ndarray]


def flatten(
    f: Surrogate,
    metric: np.ndarray | None = None,
    inverse: np.ndarray | None = None,
    moves: rescaling.Rescaling | None = None,
) -> Flat:
    """A surrogate, the ``metric`` B of coordinates z with s = B z, its ``inverse``, moves along scales: two buffers.

    Without a metric, for :func:`values` alone. Centres are transposed where the kernel is Gaussian or pairwise.
    """
    d, b = len(f.centre), f.blocks
    square = np.zeros((0, 0))
    moves = rescaling.nothing(d) if moves is None else moves
    pairs, starts, partners, monomials, dense = products.make(f, d)
    whole = f.kind == FOURIER or not len(f.weights)
    # What is read, by ``_row`` and its like, by its number in these lists: ``linear`` is 6, ``pairs`` 38.
    numbers = (
        np.array([f.constant, f.lengthscale, f.tail_scale, f.reach, f.slope, f.top]),
        f.centre, f.scale, f.origin, f.frame, f.whiten, f.linear, f.quadratic, square if metric is None else metric,
        square if inverse is None else inverse, monomials, f.centres if whole else f.centres.T,
        f.phases, f.weights, f.tails, f.tail_linear, f.tail_quadratic,
        b.rates, b.constants, b.linear, b.quadratic, b.bends,
        moves.rates, moves.exponents, moves.into, moves.back, moves.centres, moves.middles, moves.origin,
        dense, f.known_linear,
        moves.halves, moves.bends, moves.bent_into, moves.bent_back, moves.bent_centre, moves.bent_middles,
    )  # fmt: skip
    integers = (
        np.array([f.kind, is_quadratic(f), moves.straight, f.known]),
        pairs, starts, partners, b.variables, moves.variables, moves.bent_variables,
    )  # fmt: skip
    rows = np.ones((len(numbers) + len(integers) + 1, 4), dtype=np.int64)
    rows[-1] = 0  # of walls: there are none yet
    for arrays, row, begin in ((numbers, 0, 0), (integers, len(numbers), rows.size)):
        for k, array in enumerate(arrays, row):
            rows[k, 0], rows[k, 1 : 1 + array.ndim] = begin, array.shape
            begin += array.size
    return (
        np.concatenate([array.ravel() for array in numbers]),
        np.concatenate([rows.ravel(), *(array.ravel() for array in integers)]),
    )


def walled(flat: Flat, walls: np.ndarray) -> Flat:
    """With ``walls`` (w, columns), see :mod:`pymc_kameleon.surrogates.walls`."""
    numbers, integers = flat[0], flat[1].copy()
    integers[4 * 44 : 4 * 44 + 3] = len(numbers), *walls.shape
    return np.concatenate([numbers, walls.ravel()]), integers


@njit(cache=True, inline="always")
def walls_of(x, n):
    """The walls in what :func:`flatten`, or :func:`walled`, made."""
    return _grid(x, n, 44)


@njit(cache=True, inline="always")
def room(d, n):
    """How long what :func:`at` calls ``s`` and ``by_s`` has to be."""
    return d + n[4 * 38 + 2]


@njit(cache=True, inline="always")
def _row(x, rows, k):
    begin, n = rows[4 * k], rows[4 * k + 1]
    return x[begin : begin + n]


@njit(cache=True, inline="always")
def _grid(x, rows, k):
    begin, n, m = rows[4 * k], rows[4 * k + 1], rows[4 * k + 2]
    return x[begin : begin + n * m].reshape(n, m)


@njit(cache=True, inline="always")
def _cube(x, rows, k):
    begin, n, m, l = rows[4 * k], rows[4 * k + 1], rows[4 * k + 2], rows[4 * k + 3]
    return x[begin : begin + n * m * l].reshape(n, m, l)


@njit(cache=True, inline="always")
def _blocks(x, n):
    return scales.Blocks(
        _row(n, n, 41), _row(x, n, 17), _row(x, n, 18), _grid(x, n, 19), _cube(x, n, 20), _grid(x, n, 21)
    )


@njit(cache=True, inline="always")
def moves_of(x, n):
    """The moves in what :func:`flatten` made."""
    return rescaling.Rescaling(
        _row(n, n, 42), _row(x, n, 22), _grid(x, n, 23), _cube(x, n, 24), _cube(x, n, 25),
        _grid(x, n, 26), _row(x, n, 27), n[n[4 * 37] + 2], _row(x, n, 28),
        _row(n, n, 43), _row(x, n, 31), _grid(x, n, 32), _grid(x, n, 33), _grid(x, n, 34),
        _row(x, n, 35), _row(x, n, 36),
    )  # fmt: skip


@njit(cache=True, inline="always")
def to_x(x, n, z):
    """``z`` (d,) in the coordinates of the log density."""
    return _row(x, n, 1) + _row(x, n, 2) * multiply(_grid(x, n, 8), z)


# --- compiled value and gradient ------------------------------------------------------------------
# ``at``, ``_fitted`` and what they call are calls: inlined into their callers, they took 33 s to compile instead of
# 21, and a gradient is as fast.


@njit(cache=True)
def at(x, n, temperature, z, gradient, s, by_s):
    """Temperature * f at ``z`` and its gradient with respect to z, for a composed surrogate in buffers (``x``, ``n``).

    ``s`` and ``by_s`` have :func:`room`. Not for views of the buffers: to count the references to those takes longer
    than a quadratic.
    """
    value = _fitted(x, n, z, gradient, s, by_s)
    if x[3] < np.inf:
        value = _with_tails(x, n, z, value, gradient, s, by_s)
    if n[n[4 * 37] + 3] > 0:
        value += _with_known(x, n, z, gradient, s, by_s)
    if temperature != 1.0:
        for i in range(z.size):
            gradient[i] *= temperature
    return temperature * value


@njit(cache=True)
def _fitted(x, n, z, gradient, s, by_s):
    """What was fitted, at ``z``."""
    value = x[0] + _quadratic(x, n, z, gradient)
    if not n[n[4 * 37] + 1]:
        _into_s(x, n, z, s, by_s)
        value += _other_terms(x, n, z.size, s, by_s)
        _by_z(x, n, by_s, gradient)
    return value


@njit(cache=True)
def _with_tails(x, n, z, value, gradient, s, by_s):
    """What was fitted, whose value and gradient are given; where it is not believed, its power tails."""
    d, reach, whiten = z.size, x[3], n[4 * 5]
    r = power_tails.radius(x, whiten, s[:d])
    if r > reach:
        outward, slope, inner = power_tails.outward(x, whiten, s[:d], r), np.zeros(d), np.zeros(d)
        far = _fitted(x, n, reach / r * z, inner, s, by_s) - x[4] * reach * math.log(r / reach)
        if far > value or value > x[5]:
            value = far
            _by_z(x, n, outward, slope)
            power_tails.continued(reach / r, r, x[4], z, inner, slope, gradient)
    return value


@njit(cache=True)
def _with_known(x, n, z, gradient, s, by_s):
    """The value at ``z`` of what is known; its gradient is added to ``gradient``."""
    _into_s(x, n, z, s, by_s)
    value = _known(x, n, s[: z.size], by_s[: z.size])
    _by_z(x, n, by_s, gradient)
    return value


# By unsigned offsets, of which Numba need not ask whether they count from the end: half of what it takes otherwise.


@njit(cache=True, inline="always")
def _into_s(x, n, z, s, by_s):
    """Write s = B z; the gradient with respect to it is 0 yet."""
    d, metric = np.uint64(z.size), np.uint64(n[4 * 8])
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += x[metric + i * d + j] * z[j]
        s[i] = total
        by_s[i] = 0.0


@njit(cache=True, inline="always")
def _by_z(x, n, by_s, gradient):
    """Add the gradient with respect to z."""
    d, metric = np.uint64(gradient.size), np.uint64(n[4 * 8])
    for i in range(d):
        for j in range(d):
            gradient[j] += x[metric + i * d + j] * by_s[i]


def values(f: Surrogate, x: np.ndarray) -> np.ndarray:
    """F at every row of ``x`` (n, d), in the coordinates of the log density; shape (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):  # then it is not finite
        s = np.ascontiguousarray((x - f.centre) / f.scale)
    return values_and_slopes(f, s)[0]


def values_and_slopes(f: Surrogate, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F at every row of ``s`` (n, d), and df/ds: shapes (n,), (n, d)."""
    return _values_and_slopes(*flatten(f), s)


@njit(cache=True)
def _values_and_slopes(numbers, integers, points):
    n, d = points.shape
    result = np.empty(n)
    slopes = np.zeros((n, d))
    reach, k, top = numbers[3], numbers[4], numbers[5]
    for row in range(n):
        s = points[row]
        value = _fitted_at(numbers, integers, s, slopes[row])
        r = power_tails.radius(numbers, integers[4 * 5], s) if reach < np.inf else 0.0
        if r > reach:
            inner = np.zeros(d)
            far = _fitted_at(numbers, integers, reach / r * s, inner) - k * reach * math.log(r / reach)
            if far > value or value > top:
                value = far
                outward = power_tails.outward(numbers, integers[4 * 5], s, r)
                power_tails.continued(reach / r, r, k, s, inner, outward, slopes[row])
        if integers[integers[4 * 37] + 3] > 0:
            value += _known(numbers, integers, s, slopes[row])
        result[row] = value
    return result, slopes


@njit(cache=True)
def _fitted_at(numbers, integers, s, gradient):
    """What was fitted, at ``s``; its gradient, with respect to s, is added to ``gradient``."""
    d, frame = s.size, _grid(numbers, integers, 4)
    u, by_u = multiply(frame, s - _row(numbers, integers, 3)), np.empty(d)
    value = numbers[0] + _quadratic(numbers, integers, u, by_u)
    t, by_s = np.empty(room(d, integers)), np.zeros(room(d, integers))
    t[:d] = s
    value += _other_terms(numbers, integers, d, t, by_s)
    for i in range(d):
        for j in range(d):
            gradient[j] += frame[i, j] * by_u[i]
        gradient[i] += by_s[i]
    return value


@njit(cache=True, inline="always")
def _quadratic(x, n, u, gradient):
    """Return b'u + u'Qu/2, writing its gradient; by Q's rows, which are its columns: side by side, the same bits."""
    d, linear, quadratic = np.uint64(u.size), np.uint64(n[4 * 6]), np.uint64(n[4 * 7])
    for i in range(d):
        gradient[i] = 0.0
    for j in range(d):
        for i in range(d):
            gradient[i] += x[quadratic + j * d + i] * u[j]
    value = 0.0
    for i in range(d):
        value += u[i] * (x[linear + i] + 0.5 * gradient[i])
        gradient[i] += x[linear + i]
    return value


def is_quadratic(f: Surrogate) -> bool:
    """Whether there is nothing but c + b'u + u'Qu/2."""
    return f.kind == NONE and not (len(f.monomials) or len(f.tails) or len(f.blocks.rates))


@njit(cache=True)
def _other_terms(x, n, d, s, by_s):
    """The value at ``s[:d]`` of everything but the quadratic; its gradient is added to ``by_s[:d]``, which is 0."""
    value = 0.0
    if n[4 * 38 + 2] > 0:
        value += products.add(
            x, n, d, n[4 * 38], n[4 * 38 + 2], n[4 * 39], n[4 * 40], n[4 * 10], n[4 * 29], n[4 * 29 + 1] > 0, s, by_s
        )  # fmt: skip
    if n[n[4 * 37]] != NONE or n[4 * 14 + 1] > 0 or n[4 * 17 + 1] > n[n[4 * 37] + 3]:
        value = _sums(x, n, value, s[:d], by_s[:d])
    return value


@njit(cache=True)
def _sums(x, n, value, s, gradient):
    """``value`` and that of kernels, tails and what was fitted of the scales; their gradient is added."""
    kind = n[n[4 * 37]]
    if kind == GAUSSIAN:
        value += sums.gaussian(_grid(x, n, 11), _row(x, n, 13), x[1], _grid(x, n, 5), s, gradient)
    elif kind == PAIRWISE:
        value += sums.pairwise(_grid(x, n, 11), _row(x, n, 13), x[1], s, gradient)
    elif kind == FOURIER:
        value += sums.fourier(_grid(x, n, 11), _row(x, n, 12), _row(x, n, 13), s, gradient)
    if n[4 * 14 + 1] > 0:
        value += sums.tails(_row(x, n, 14), x[2], _row(x, n, 15), _grid(x, n, 16), _grid(x, n, 5), s, gradient)
    known, blocks = n[n[4 * 37] + 3], n[4 * 17 + 1]
    if blocks > known:
        value += scales.add_blocks(_blocks(x, n), known, blocks, _grid(x, n, 5), s, gradient)
    return value


@njit(cache=True)
def _known(x, n, s, gradient):
    """The value at s of what is known; its gradient is added to ``gradient``."""
    linear, value = n[4 * 30], 0.0
    for i in range(s.size):
        value += x[linear + i] * s[i]
        gradient[i] += x[linear + i]
    return value + scales.add_blocks(_blocks(x, n), 0, n[n[4 * 37] + 3], _grid(x, n, 5), s, gradient)
