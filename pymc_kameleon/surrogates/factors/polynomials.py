"""Monomials of bounded degree in at most three variables, nested: a larger set begins with every smaller one."""

import itertools
import math
from functools import lru_cache

import numpy as np

from pymc_kameleon.surrogates.factors.emulator import DEGREE, VARIABLES


def size(d: int, degree: int, order: int) -> int:
    """How many monomials of total ``degree`` at most there are in at most ``order`` of ``d`` variables."""
    return sum(math.comb(d, n) * math.comb(degree, n) for n in range(min(d, order, degree) + 1))


# (degree, variables in one monomial): the candidates, smallest first
CANDIDATES = ((1, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 3), (6, 3))


@lru_cache(maxsize=64)
def monomials(d: int, degree: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Variables and powers, (m, 3) each, sorted by degree; padded with variable 0 to the power of 0."""
    if not (1 <= degree <= DEGREE and 1 <= order <= VARIABLES):
        raise ValueError(
            f"degree and order must be at most {DEGREE} and {VARIABLES}, got {degree}, {order}."
        )
    rows = [((0,) * VARIABLES, (0,) * VARIABLES)]
    for n in range(1, min(order, d) + 1):
        for chosen in itertools.combinations(range(d), n):
            for powers in itertools.product(range(1, degree + 1), repeat=n):
                if sum(powers) <= degree:
                    pad = (0,) * (VARIABLES - n)
                    rows.append((chosen + pad, powers + pad))
    rows.sort(key=lambda row: sum(row[1]))  # stable
    variables, powers = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    return variables, powers


def within(powers: np.ndarray, degree: int, order: int) -> np.ndarray:
    """Which rows of a larger set belong to a smaller one, shape (m,)."""
    return (powers.sum(axis=1) <= degree) & ((powers > 0).sum(axis=1) <= order)


def columns(s: np.ndarray, variables: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """The monomials at ``s`` (n, d), shape (n, m)."""
    table = np.ones((DEGREE + 1, *s.shape))
    for p in range(DEGREE):
        table[p + 1] = table[p] * s
    result = np.ones((len(s), len(variables)))
    for i in range(VARIABLES):
        on = powers[:, i] > 0
        result[:, on] *= table[powers[on, i], :, variables[on, i]].T
    return result
