"""A surrogate as compiled functions read it, in two flat buffers: its value and gradient, at one point or at many."""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply
from pymc_kameleon.surrogates import rescaling
from pymc_kameleon.surrogates.values import power_tails, products, scales, sums
from pymc_kameleon.surrogates.values.features import FOURIER, GAUSSIAN, NONE, PAIRWISE, Surrogate, is_quadratic

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
