"""Monomials of degree 3 and 4 as products of two: of the variables, and of the pairs of them that occur.

s_i (s_j s_k) and (s_i s_j) (s_k s_l), terms w t_a t_b of t = (s, pairs): a third of what powers cost, or a sixth. All
is read from one buffer by unsigned offsets, of which Numba need not ask whether they count from the end, and written
into room that the caller has: a value and gradient of three monomials take 20 ns so, and took 200 with arrays.
"""

from typing import Any

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.surrogates.values.sums import dot

DENSE = 8.0  # numbers in a dense matrix of products that cost less than one sparse product does


def make(f: Any, d: int) -> tuple[np.ndarray, ...]:
    """The products of a :class:`pymc_kameleon.surrogates.values.features.Surrogate`.

    ``pairs`` (2, p), the variables of each; ``starts`` (d + p + 1,), where the terms of t_a begin; ``partners`` (m,), b
    of each; ``monomials`` (m,), w; or, instead of the last three, ``dense`` (d + p, d + p), W of t'Wt/2.
    """
    m = len(f.monomials)
    flat, degree = np.repeat(f.variables.ravel(), f.powers.ravel()), f.powers.sum(axis=1)
    ends = np.cumsum(degree)
    quartic = degree == 4
    last = flat[ends[:, None] - np.array([2, 1])].reshape(m, 2)
    first = flat[(ends - degree)[quartic, None] + np.array([0, 1])].reshape(-1, 2)
    codes, where = np.unique(np.concatenate([last, first]) @ np.array([d, 1]), return_inverse=True)
    a, b = flat[ends - degree], d + where[:m]
    a[quartic] = d + where[m:]
    pairs, n = np.stack([codes // d, codes % d]), d + len(codes)
    if n * n < DENSE * m:
        dense = np.zeros((n, n))
        dense[a, b] = f.monomials
        none = np.zeros(0, dtype=np.int64)
        return pairs, none, none, np.zeros(0), dense + dense.T
    order = np.lexsort((b, a))
    starts = np.searchsorted(a[order], np.arange(n + 1))
    return pairs, starts, b[order], f.monomials[order], np.zeros((0, 0))


@njit(cache=True)
def add(x, n, d, pairs, p, starts, partners, weights, dense, is_dense, t, by_t):
    """The value of all monomials at ``t[:d]``; their gradient is added to ``by_t[:d]``, which is 0 before.

    ``pairs`` to ``dense`` are where each begins in the buffers, numbers ``x`` and integers ``n``; ``p`` is how many
    pairs there are, for which ``t`` and ``by_t`` have room.
    """
    d, p = np.uint64(d), np.uint64(p)
    first = np.uint64(pairs)
    second = first + p
    for k in range(p):
        t[d + k] = t[np.uint64(n[first + k])] * t[np.uint64(n[second + k])]
        by_t[d + k] = 0.0
    if is_dense:
        value = _dense(x, np.uint64(dense), d + p, t, by_t)
    else:
        value = _sparse(x, n, np.uint64(starts), np.uint64(partners), np.uint64(weights), d + p, t, by_t)
    for k in range(p):
        i, j, slope = np.uint64(n[first + k]), np.uint64(n[second + k]), by_t[d + k]
        by_t[i] += slope * t[j]
        by_t[j] += slope * t[i]
    return value


@njit(cache=True, inline="always")
def _sparse(x, n, starts, partners, weights, size, t, by_t):
    value, e = 0.0, np.uint64(0)
    one = np.uint64(1)
    for a in range(size):
        own, total, end = t[a], 0.0, np.uint64(n[starts + a + one])
        while e < end:
            b, w = np.uint64(n[partners + e]), x[weights + e]
            total += w * t[b]
            by_t[b] += w * own
            e += one
        by_t[a] += total
        value += total * own
    return value


@njit(cache=True, inline="always")
def _dense(x, begin, size, t, by_t):
    """By four rows, in an order that is the same on every processor."""
    one, four, a = np.uint64(1), np.uint64(4), np.uint64(0)
    while a + four <= size:
        r0 = begin + a * size
        r1 = r0 + size
        r2 = r1 + size
        r3 = r2 + size
        t0, t1, t2, t3 = t[a], t[a + one], t[a + one + one], t[a + one + one + one]
        for b in range(size):
            by_t[b] += (x[r0 + b] * t0 + x[r1 + b] * t1) + (x[r2 + b] * t2 + x[r3 + b] * t3)
        a += four
    while a < size:
        for b in range(size):
            by_t[b] += x[begin + a * size + b] * t[a]
        a += one
    whole = np.int64(size)
    return 0.5 * dot(t[:whole], by_t[:whole])
