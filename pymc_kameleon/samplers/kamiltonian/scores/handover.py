"""When trajectories on the surrogate take over from the random walk: the rule of the cold start.

A surrogate that was fitted to a chain's first states knows little, and a chain that relies on it
stands still. What can be seen while tuning, without an evaluation of its own, is

- its held-out score beside a Gaussian fit's: no better, no trajectories;
- how far either kernel moves the chain. With alpha the acceptance probability and dz the proposed
  jump in learned coordinates, s_l = mean of alpha dz_l^2 is the expected squared jump along
  coordinate l (Pasarica & Gelman, 2010), and

      r = min_l s_l(trajectories) / min_l s_l(random walk)

  what a trajectory brings, in random-walk moves, where it is slowest.

- the residuals log p - f at the chain's states, which were not there yet when f was fitted.

The share of random-walk moves is 1 / r within its bounds: a surrogate that brings twice as much gets half of the draws,
one that brings nothing keeps what it is tried out with; the worse the residuals, the higher the lower bound
(:func:`least_share`). When tuning has ended that share becomes the least one, and how much of the rest the surrogate
gets depends on how far it is too low where the chain is (:func:`frozen_mixture`).

References
----------
C. Pasarica, A. Gelman (2010). Adaptively scaling the Metropolis algorithm using expected squared
jumped distance. Statistica Sinica 20.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.checks import moderate
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import Quality
from pymc_kameleon.samplers.kamiltonian.trust import Mixture

TRIAL = 0.1  # largest share of a surrogate that has not proved itself
ENOUGH = 20  # proposals of either kernel before the two are compared, and residuals to judge by


class Jumps(NamedTuple):
    """Of either kernel, the random walk first, since the last fit."""

    # (2, d): sums of acceptance probability times squared jump in learned coordinates
    squares: np.ndarray
    trials: np.ndarray  # (2,): proposals


def no_jumps(dim: int) -> Jumps:
    """Nothing seen yet."""
    return Jumps(np.zeros((2, dim)), np.zeros(2))


def count(jumps: Jumps, kernel: int, accept_prob: float, jump: np.ndarray) -> Jumps:
    """Add a proposal ``jump`` (d,) away, in learned coordinates; where it was refused that need not be finite."""
    squares, trials = jumps.squares.copy(), jumps.trials.copy()
    trials[kernel] += 1.0
    if accept_prob > 0.0:
        squares[kernel] += accept_prob * jump**2
    return Jumps(squares, trials)


def efficiency(jumps: Jumps) -> float:
    """The ratio r; NaN while there are too few proposals of either kind to say."""
    if jumps.trials.min() < ENOUGH:
        return math.nan
    random_walk, hamiltonian = jumps.squares.min(axis=1) / jumps.trials
    if random_walk > 0.0:
        return float(hamiltonian / random_walk)
    return math.inf if hamiltonian > 0.0 else 0.0  # where neither has moved, nothing is proved


def judge(residuals: np.ndarray) -> Quality | None:
    """From log p - f at the chain's states since the last fit, shape (n,); ``None`` from too few.

    The noise of a retained log p is part of it.
    """
    residuals = residuals[moderate(residuals)]
    if len(residuals) < ENOUGH:
        return None
    typical = float(np.median(residuals))
    uncovered = float(np.mean(trust.is_too_low(residuals, typical)))
    return Quality(trust.spread(residuals), uncovered, typical=typical)


def random_walk_share(jumps: Jumps, gain: float, share: float, least: float) -> float:
    """The share of random-walk moves, which has been ``share`` and is never less than ``least``, the safety net.

    ``gain`` is that of the surrogate's held-out score over a Gaussian fit's; one that has not proved itself gets
    ``TRIAL`` of the draws.
    """
    if not gain > 0.0:
        return 1.0
    ratio = efficiency(jumps)
    wanted = share if math.isnan(ratio) else 1.0 / ratio if ratio > 0.0 else 1.0
    return max(min(wanted, 1.0 - TRIAL), least)


def least_share(quality: Quality | None, least: float) -> float:
    """Least share of random-walk moves: ``least``, or more for a surrogate that is bad.

    Jumps are means over the bulk. They do not see how slowly a chain gets in and out of where f is too low: that is
    left to the random walk, whose traffic between the two is proportional to its least share, with whatever mixture.
    """
    if quality is None:
        return least
    if quality.uncovered > 0.1:  # mostly wrong
        return max(least, 0.75)
    return max(least, trust.choose_floor(quality.uncovered, quality.residual_sd))


def frozen_mixture(quality: Quality | None, share: float) -> Mixture | None:
    """How the two kernels share the draws when tuning has ended, with ``share`` the random walk's least.

    ``None``, for constant shares, without a random walk or with nothing to judge the surrogate by.
    """
    if quality is None or not 0.0 < share < 1.0:
        return None
    return Mixture(share, quality.typical, trust.slack(quality.residual_sd, most=3.0))
