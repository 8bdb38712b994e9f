"""Autoregressive moves: x* = m + sqrt(1 - b^2) (x - m) + b L N(0, I).

m and L L^T are the history's mean and covariance. Reversible with respect to N(m, L L^T), so that the
Metropolis-Hastings ratio is

    pi(x*) N(x; m, L L^T) / {pi(x) N(x*; m, L L^T)}.

A random walk has to be short to stay where the mass is, of order d^-1/2; a proposal that contracts towards the mean
while it moves sideways does not, and with b = 1 it is an independent draw from the normal approximation. The step b is
tuned by Robbins-Monro: near 1 where the posterior is close to normal, small where it is not.

Neal (1999), section 5, and, as "pCN", Cotter, Roberts, Stuart & White (2013). Differs from the papers: there m and
L L^T are the prior's; here they are learned, and fixed when tuning ends.

References
----------
R. M. Neal (1999). Regression and classification using Gaussian process priors. Bayesian Statistics 6.
S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White (2013). MCMC methods for functions. Statistical Science 28.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import solve_lower
from pymc_kameleon.samplers.seam import Outcome, Proposal

TARGET_ACCEPT = 0.4  # as the localised independence of gaussian_mixture
LOG_STEP_BOUNDS = (-8.0, -1e-3)


class Tuning(NamedTuple):
    """What adapts beside m and L."""

    log_step: float = -1.0  # log b
    moves: int = 0  # so far


def propose(rng: np.random.Generator, x: np.ndarray, mean: np.ndarray, factor: np.ndarray, tuning: Tuning) -> Proposal:
    """A move from ``x``, shape (d,); ``factor`` (d, d) is L, lower triangular."""
    position, log_q_ratio = contract(x, mean, factor, math.exp(tuning.log_step), rng.standard_normal(len(x)))
    return Proposal(position, log_q_ratio, "towards")


def adapt(tuning: Tuning, outcome: Outcome) -> Tuning:
    """Tune the step after one move."""
    moves = tuning.moves + 1
    return Tuning(outcome.tuned(tuning.log_step, TARGET_ACCEPT, 2.0 * moves**-0.6, *LOG_STEP_BOUNDS), moves)


@njit(cache=True)
def contract(x, mean, factor, step, normals):
    """(x*, log ratio): a move of size ``step``, b, from ``x`` (d,) by standard ``normals`` (d,)."""
    d = x.size
    y = solve_lower(factor, x - mean)
    keep = math.sqrt(1.0 - step * step)
    y_new = keep * y + step * normals
    x_new = np.empty(d)
    log_ratio = 0.0
    for i in range(d):
        total = mean[i]
        for j in range(i + 1):
            total += factor[i, j] * y_new[j]
        x_new[i] = total
        # Exactness hangs here: log N(x; m, L L') - log N(x*; m, L L')
        log_ratio += 0.5 * (y_new[i] * y_new[i] - y[i] * y[i])
    return x_new, log_ratio
