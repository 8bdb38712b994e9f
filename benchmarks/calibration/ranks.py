"""Whether ranks are uniform, by their whole empirical distribution (Säilynoja, Bürkner & Vehtari, 2022).

Of n ranks in 0 ... L, the number below i is Bin(n, i / (L + 1)) for every i = 1 ... L if they are uniform. The
statistic is the smallest of the two-sided tail probabilities of the L counts; its distribution is found by simulation.
"""

from functools import cache

import numpy as np
from scipy.stats import binom

SIMULATIONS = 20_000


def _smallest_tail(below, n, levels):
    """For counts ``below``, shape (..., L), the smallest two-sided tail probability, shape (...)."""
    lower = binom.cdf(below, n, levels)
    upper = binom.sf(below - 1, n, levels)
    return 2.0 * np.minimum(lower, upper).min(axis=-1)


def _levels(largest):
    return np.arange(1, largest + 1) / (largest + 1)


@cache
def null(n: int, largest: int) -> np.ndarray:
    """The statistic of ``n`` uniform ranks in 0 ... ``largest``, simulated, sorted."""
    rng = np.random.default_rng(n)
    counts = rng.multinomial(n, np.full(largest + 1, 1.0 / (largest + 1)), SIMULATIONS)
    return np.sort(_smallest_tail(np.cumsum(counts, axis=1)[:, :-1], n, _levels(largest)))


def below(ranks: np.ndarray, largest: int) -> np.ndarray:
    """How many ranks are below 1 ... ``largest``, shape (L,)."""
    return np.cumsum(np.bincount(ranks, minlength=largest + 1))[:-1]


def p_value(ranks: np.ndarray, largest: int) -> float:
    """Probability of a statistic as small, if the ranks were uniform; at least 1 / (simulations + 1)."""
    found = _smallest_tail(below(ranks, largest), len(ranks), _levels(largest))
    simulated = null(len(ranks), largest)
    smaller = np.searchsorted(simulated, found * (1.0 + 1e-9), side="right")
    return float((smaller + 1) / (len(simulated) + 1))
