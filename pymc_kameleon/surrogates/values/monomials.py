"""Monomials, and which a surrogate has: all of a kind where the points allow it, else the most promising."""

import itertools
from functools import lru_cache

import numpy as np

from pymc_kameleon.surrogates.values.features import Surrogate
from pymc_kameleon.surrogates.values.least_squares import Problem, column_size, solve_stubbornly, weighted_gram
from pymc_kameleon.surrogates.values.library import GOOD_ENOUGH, Data, parts

MAX_MONOMIALS = 700
ROWS = 4  # for every column of the quadratic, by which the sizes of what it leaves are known well enough
NO_MONOMIALS = np.zeros((0, 3), dtype=np.int64)


@lru_cache(maxsize=64)
def exponents(d: int, degree: int, order: int, least: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Variables and powers, (m, 3) each, of all monomials in at most ``order`` variables.

    Their degree is ``least`` to ``degree``; they are padded with variable 0 to the power of 0.
    """
    rows = [
        (chosen + (0,) * (3 - n), powers + (0,) * (3 - n))
        for n in range(min(order, d) + 1)
        for chosen in itertools.combinations(range(d), n)
        for powers in itertools.product(range(1, degree + 1), repeat=n)
        if least <= sum(powers) <= degree
    ]
    variables, powers = np.array(rows, dtype=np.int64).reshape(-1, 2, 3).transpose(1, 0, 2).copy()
    return variables, powers


def features(s: np.ndarray, variables: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """s^e for ``s`` (n, d) and m monomials, shape (n, m), in Fortran's order."""
    highest = int(powers.max(initial=0))
    table = np.ones((highest + 1, s.shape[1], len(s)))
    for k in range(highest):
        table[k + 1] = table[k] * s.T
    product = table[powers[:, 0], variables[:, 0]]  # (m, n)
    product *= table[powers[:, 1], variables[:, 1]]
    if powers[:, 2].any():
        product *= table[powers[:, 2], variables[:, 2]]
    return product.T


def choose(data: Data, quadratic: np.ndarray, earlier: Surrogate | None) -> tuple[np.ndarray, np.ndarray]:
    """Variables and powers, (m, 3) each, of the richest set that the points allow.

    ``quadratic`` (n, p) are the quadratic's columns.
    """
    n, d = data.s.shape
    pairs = exponents(d, 4, 2)
    if len(pairs[0]) > MAX_MONOMIALS:
        return _screen(data, quadratic, *pairs, earlier)
    for degree, order in ((4, 3), (4, 2), (3, 3), (3, 2)):
        variables, powers = exponents(d, degree, order)
        if len(variables) <= min(0.35 * n, MAX_MONOMIALS):
            return variables, powers
    return NO_MONOMIALS, NO_MONOMIALS


def _screen(data: Data, quadratic, variables, powers, earlier):
    """The monomials that explain most of what the quadratic leaves over, each for itself, in two stages.

    The second stage looks at what the first selection leaves over: in a banana, x_0^4 and x_0^2 x_1 hide each other.
    Residuals are clipped, or a few points far out decide. Held-out points have no say.
    """
    train, _ = parts(data)
    weights = data.weights[train]
    s, y, root = data.s[train], data.y[train], np.sqrt(weights)
    base = quadratic[train] / column_size(quadratic[train], weights)
    chosen = _largest(s, weights, variables, powers, earlier)
    beside = _sizes_beside(base, s, variables, powers, root)
    for keep in (100, 300):
        extra = features(s, variables[chosen], powers[chosen])
        columns = np.concatenate([base, extra / column_size(extra, weights)], axis=1)
        problem = Problem(columns, y, weights, base.shape[1], weighted_gram(columns, columns, weights))
        residual = root * (y - columns @ solve_stubbornly(problem, 1e-4))
        if residual @ residual < GOOD_ENOUGH * weights.sum():
            break
        bound = np.quantile(np.abs(residual), 0.8)
        residual = np.clip(residual, -bound, bound)
        products = [np.abs(residual @ block) for block in _blocks(s, variables, powers, root)]
        score = np.concatenate(products) / beside
        score[chosen] = np.inf
        chosen = np.sort(np.argsort(-score, kind="stable")[: int(min(keep, 0.35 * len(data.s)))])
    return variables[chosen], powers[chosen]


def _largest(s, weights, variables, powers, earlier):
    """Where among ``variables`` and ``powers`` the monomials are that contributed most to the earlier surrogate."""
    if earlier is None or not len(earlier.monomials):
        return np.zeros(0, dtype=np.int64)
    size = column_size(features(s, earlier.variables, earlier.powers), weights)
    order = np.argsort(-np.abs(earlier.monomials) * size, kind="stable")[:30]
    where = {key: k for k, key in enumerate(map(tuple, np.hstack([variables, powers]).tolist()))}
    keys = map(tuple, np.hstack([earlier.variables, earlier.powers])[order].tolist())
    return np.sort(np.array([where[key] for key in keys], dtype=np.int64))


def _sizes_beside(base, s, variables, powers, root):
    """Weighted norm of what is left of each monomial beside the quadratic's columns, ``base``, up to a constant.

    Most of x^3 is x, and most of x^4 is x^2: beside their own sizes those that a curved log density has came behind
    hundreds that it has not (d = 20, 1,000 points of a banana: held-out error 1.0, now 3e-6).
    """
    few = slice(None, None, max(1, len(s) // (ROWS * base.shape[1])))
    others = np.linalg.qr(root[few, None] * base[few])[0]
    found = []
    for block in _blocks(s[few], variables, powers, root[few]):
        squares = np.square(block).sum(axis=0)
        found.append(np.maximum(squares - np.square(others.T @ block).sum(axis=0), 1e-6 * squares))
    return np.sqrt(np.concatenate(found)) + 1e-300


def _blocks(s, variables, powers, root):
    """The weighted monomials, some at a time: thousands of columns would need much memory."""
    for begin in range(0, len(variables), 500):
        block = slice(begin, begin + 500)
        yield features(s, variables[block], powers[block]) * root[:, None]
