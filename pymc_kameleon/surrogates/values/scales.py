"""Scales: blocks exp(a s_j) times a quadratic, what an unknown standard deviation does to a log density.

Where a model has y ~ N(m, sigma) with sigma unknown, its log density is sampled in x_j = log sigma, and contains

    exp(-2 x_j) (c + b'z + z'Qz/2):

exactly so for every linear regression, for every hierarchy in centred coordinates, for Neal's funnel (with -1, of the
log of a variance). No polynomial follows that far, and outside of the points the block has no mass that is not there.
The rate a is known but for a few values, since x_j is a logarithm without units; which coordinate it is, and which
rate, is found by what the block explains of a quadratic's residual.

A block also says how the others move with x_j: by ``exp(-a / 2)``. ``surrogates.rescaling`` makes a linear group of
that, by which a transition on f goes down a funnel's neck in one move (:mod:`pymc_kameleon.surrogates.transitions`).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply

KNOTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # in the coordinate's sds
STEEPNESS = 2.0  # t: a prior's tails are straight lines in log sigma, and so are these
STEEPEST = 100.0  # of the exponent: beyond that the block is a constant times its quadratic


class Blocks(NamedTuple):
    """exp(a s_j) (c + b'z + z'Qz/2), k of them."""

    variables: np.ndarray  # (k,): j
    rates: np.ndarray  # (k,): a, per sd of the coordinate
    constants: np.ndarray  # (k,): c
    linear: np.ndarray  # (k, d): b, in z
    quadratic: np.ndarray  # (k, d, d): the symmetric Q, in z
    # (k, len(KNOTS)): weights of log(1 + exp(t (s_j - knot))): what else, of s_j alone, its prior says
    bends: np.ndarray


def none(d: int) -> Blocks:
    """No block, in d dimensions."""
    return Blocks(
        np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros((0, d)), np.zeros((0, d, d)),
        np.zeros((0, len(KNOTS))),
    )  # fmt: skip


# --- columns --------------------------------------------------------------------------------------


def inner_features(t: np.ndarray, diagonal: bool) -> np.ndarray:
    """1, t_i and t_i^2, or all t_i t_k with i <= k: what a block multiplies, shape (n, m), for ``t`` (n, d - 1).

    t are coordinates of all but s_j. With s_j among them a block could be anything of s_j, and in the neck it would be.
    """
    if diagonal:
        return np.concatenate([np.ones((len(t), 1)), t, np.square(t)], axis=1)
    i, j = np.triu_indices(t.shape[1])
    return np.concatenate([np.ones((len(t), 1)), t, t[:, i] * t[:, j]], axis=1)


def growth(s: np.ndarray, variable: int, rate: float) -> np.ndarray:
    """exp(a s_j), shape (n,)."""
    return np.exp(np.clip(rate * s[:, variable], -STEEPEST, STEEPEST))


def columns(s: np.ndarray, inner: list[np.ndarray], variables, rates) -> np.ndarray:
    """All blocks' columns for ``inner`` (n, m) of each, then their variables' bends."""
    blocks = [growth(s, j, a)[:, None] * own for j, a, own in zip(variables, rates, inner, strict=True)]
    bends = [np.logaddexp(0.0, STEEPNESS * (s[:, j, None] - KNOTS)) for j in dict.fromkeys(variables)]
    return np.concatenate([*blocks, *bends], axis=1)


def size(d: int, variables, diagonal: bool) -> int:
    """Number of :func:`columns`."""
    inner = 2 * d - 1 if diagonal else d * (d + 1) // 2
    return len(variables) * inner + len(set(variables)) * len(KNOTS)


def _entries(d: int, variables: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of Q that a block has, of ``n`` coefficients in d dimensions: its diagonal alone, or all."""
    return np.diag_indices(d - 1) if n == size(d, variables.tolist(), True) else np.triu_indices(d - 1)


def unpack(coefficients: np.ndarray, variables, rates, d: int) -> Blocks:
    """The blocks with these coefficients of :func:`columns`, b and Q in t: one coordinate fewer."""
    variables, k = np.array(variables, dtype=np.int64), len(variables)
    bends = np.zeros((k, len(KNOTS)))
    first = np.unique(variables, return_index=True)[1]
    last = len(coefficients) - len(first) * len(KNOTS)
    bends[np.sort(first)] = coefficients[last:].reshape(-1, len(KNOTS))
    blocks = coefficients[:last].reshape(k, last // k)
    quadratic, where = np.zeros((k, d - 1, d - 1)), _entries(d, variables, len(coefficients))
    for q, row in zip(quadratic, blocks, strict=True):
        q[where] = row[d:]
        q += q.T.copy()
    rates = np.array(rates, dtype=float)
    return Blocks(variables, rates, blocks[:, 0].copy(), blocks[:, 1:d].copy(), quadratic, bends)


def in_z(blocks: Blocks, maps: np.ndarray) -> Blocks:
    """The blocks with b and Q in z, for t = map z of each: (k, d - 1, d)."""
    linear = np.einsum("kij,ki->kj", maps, blocks.linear)
    quadratic = np.einsum("kia,kij,kjb->kab", maps, blocks.quadratic, maps)
    return blocks._replace(linear=linear, quadratic=0.5 * (quadratic + quadratic.transpose(0, 2, 1)))


def concave(blocks: Blocks, null: float, pinned: bool = False) -> Blocks:
    """The blocks with what is positive in them left out: a sum of squares, times -1, and a constant below zero.

    What a scale multiplies in a log density is never positive, or it had no mass but where the scale is 0. A fit's
    small errors are, and exp(a s_j) makes them the deepest mass of all where no point has been. Curvatures below
    ``null`` times the largest are taken for none; ``pinned`` blocks are 0 where they are highest, as of a prior.
    """
    constants, linear = blocks.constants.copy(), blocks.linear.copy()
    quadratic = blocks.quadratic.copy()
    for k, (c, b, q) in enumerate(zip(constants, linear, quadratic, strict=True)):
        values, vectors = np.linalg.eigh(q)
        kept = values < -null * np.abs(values).max(initial=0.0)
        values, vectors = values[kept], vectors[:, kept]
        top = -vectors @ ((vectors.T @ b) / values)
        q[:] = (vectors * values) @ vectors.T
        highest = 0.0 if pinned else min(c + 0.5 * b @ top, 0.0)
        linear[k] = -q @ top
        constants[k] = highest + 0.5 * top @ q @ top
    return blocks._replace(constants=constants, linear=linear, quadratic=quadratic)


def coefficients(blocks: Blocks, n: int) -> np.ndarray:
    """The ``n`` coefficients that :func:`unpack` makes the blocks of; where these are few, of diagonals alone."""
    where = _entries(blocks.linear.shape[1] + 1, blocks.variables, n)
    half = np.where(where[0] == where[1], 0.5, 1.0)
    squares = blocks.quadratic[:, where[0], where[1]] * half
    inner = np.concatenate([blocks.constants[:, None], blocks.linear, squares], axis=1)
    first = np.sort(np.unique(blocks.variables, return_index=True)[1])
    return np.concatenate([inner.ravel(), blocks.bends[first].ravel()])


# --- compiled -------------------------------------------------------------------------------------


@njit(cache=True)
def add_blocks(blocks, first, last, whiten, s, gradient):
    """The value at s of shape (d,) of the blocks ``first`` to ``last``; their gradient is added to ``gradient``."""
    d = s.size
    z = multiply(whiten, s)
    by_z = np.zeros(d)
    value = 0.0
    for k in range(first, last):
        j, a = blocks.variables[k], blocks.rates[k]
        exponent = a * s[j]
        inside = -STEEPEST < exponent < STEEPEST
        e = np.exp(min(max(exponent, -STEEPEST), STEEPEST))
        inner = blocks.constants[k]
        for i in range(d):
            row = 0.0
            for m in range(d):
                row += blocks.quadratic[k, i, m] * z[m]
            by_z[i] += e * (blocks.linear[k, i] + row)
            inner += z[i] * (blocks.linear[k, i] + 0.5 * row)
        value += e * inner
        if inside:
            gradient[j] += a * e * inner
        for m in range(KNOTS.size):
            weight = blocks.bends[k, m]
            if weight != 0.0:
                t = STEEPNESS * (s[j] - KNOTS[m])
                e = np.exp(-abs(t))
                value += weight * (max(t, 0.0) + np.log1p(e))
                gradient[j] += weight * STEEPNESS * (1.0 if t > 0.0 else e) / (1.0 + e)
    for i in range(d):
        for j in range(d):
            gradient[j] += whiten[i, j] * by_z[i]
    return value
