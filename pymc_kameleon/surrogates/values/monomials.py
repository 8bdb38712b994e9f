"""Monomials, and which a surrogate has: all of a kind where the points allow it, else the most promising."""

import itertools
from functools import lru_cache

import numpy as np

from pymc_kameleon.surrogates.values.features import Surrogate
from pymc_kameleon.surrogates.values.least_squares import Problem, column_size, solve_stubbornly, weighted_gram
from pymc_kameleon.surrogates.values.library import GOOD_ENOUGH, Data, parts

MAX_MONOMIALS = 700
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
    """The monomials that correlate most with what the quadratic leaves over, in two stages.

    The second stage looks at what the first selection leaves over: in a banana, x_0^4 and x_0^2 x_1 hide each other.
    Residuals are clipped, or a few points far out decide. Held-out points have no say.
    """
    train, _ = parts(data)
    weights = data.weights[train]
    s, y, root = data.s[train], data.y[train], np.sqrt(weights)
    base = quadratic[train] / column_size(quadratic[train], weights)
    chosen = _largest(s, weights, variables, powers, earlier)
    for keep in (100, 300):
        extra = features(s, variables[chosen], powers[chosen])
        columns = np.concatenate([base, extra / column_size(extra, weights)], axis=1)
        problem = Problem(columns, y, weights, base.shape[1], weighted_gram(columns, columns, weights))
        residual = root * (y - columns @ solve_stubbornly(problem, 1e-4))
        if residual @ residual < GOOD_ENOUGH * weights.sum():
            break
        bound = np.quantile(np.abs(residual), 0.8)
        score = _correlate(s, variables, powers, root, np.clip(residual, -bound, bound))
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


def _correlate(s, variables, powers, root, residual):
    """|cosine|, up to a constant, between each monomial and the residual, both weighted."""
    score = np.empty(len(variables))
    for begin in range(0, len(score), 500):  # thousands of columns would need much memory
        block = slice(begin, begin + 500)
        columns = features(s, variables[block], powers[block]) * root[:, None]
        score[block] = np.abs(residual @ columns) / (np.linalg.norm(columns, axis=0) + 1e-300)
    return score
