"""A mixture of two Metropolis-Hastings kernels whose weights depend on how wrong the surrogate is,
and its ratio.

Let y be the retained log density (or its retained estimate) at x, f a fixed surrogate, r = y - f(x)
- m its residual about a fixed typical value m, and

    t(x, y) = exp(-max(0, r - slack))  for x in D = {|z| < radius, f < ceiling},   0 outside,

the *share*. With probability (1 - floor) t the surrogate's kernel proposes, otherwise the random
walk does, and the ratio of either carries the ratio of the probabilities with which it is chosen:

    surrogate     exp{y' - y + f(x) - f(x')} t' / t,
    random walk   exp{y' - y} (1 - (1 - floor) t') / (1 - (1 - floor) t).

Each of the two satisfies detailed balance on its own with its probability of being chosen counted
as part of it. Since exp(y) t = min(exp(y), exp(f + m + slack)) on D, the surrogate's kernel samples
the part of the target that lies below the surrogate, and the random walk the remainder: where f <<
y the surrogate's kernel would stick for
exp(y - f) draws, and is not used there.

On what exactness hangs:

- t is a function of (x, y), the *extended* state: with a noisy log density the residual contains
  the retained noise, and a fresh estimate at x' must enter t' as it enters the test. Nothing is
  re-evaluated at x.
- f, m, slack, floor, D, the archive, the step size and the probabilities of the arms are fixed when
  tuning ends.
- A draw in which no inner transition moved stays where it is, with y: no test, no evaluation. That
  is the diagonal part of P^K, which is reversible by itself.
- floor > 0: the random walk can be chosen everywhere, so the chain is irreducible whatever the
  surrogate.
"""

import math
from typing import NamedTuple

import numpy as np

TOO_LOW = 2.5  # how far log p - f above its typical value says that f does not cover the point
LAST_REFIT = 0.85  # of tuning: the rest judges the surrogate out of sample


class Mixture(NamedTuple):
    """What fixes the shares, with the region D in
    :class:`pymc_kameleon.surrogates.transitions.Dynamics`.

    Attributes
    ----------
    floor : float
        Least probability of the random walk, p0, in (0, 1).
    typical : float
        m: the median residual, a constant that the surrogate need not know.
    slack : float
        Residuals up to this much above ``typical`` leave the surrogate its full share.
    rays : float
        Share of the random walk's moves that are along rays, where the walk has them.
    """

    floor: float
    typical: float
    slack: float
    rays: float = 0.0


class Current(NamedTuple):
    """What is retained at the chain's point.

    Attributes
    ----------
    z : ndarray of shape (d,)
    log_density : float
        y, as the test used it.
    value : float
        f.
    """

    z: np.ndarray
    log_density: float
    value: float


def share(mixture: Mixture, radius: float, ceiling: float, point: Current) -> float:
    """t, in [0, 1]."""
    if not (point.value < ceiling and np.vdot(point.z, point.z) < radius * radius):  # without a warning
        return 0.0
    excess = point.log_density - point.value - mixture.typical - mixture.slack
    return math.exp(-max(0.0, excess))


def log_ratio(mixture: Mixture, surrogate_moved: bool, share: float, new_share: float) -> float:
    """Log of (probability of choosing this kernel at x') / (at x)."""
    if surrogate_moved:
        return math.log(new_share / share) if new_share > 0.0 else -math.inf
    keep = 1.0 - mixture.floor
    return math.log((1.0 - keep * new_share) / (1.0 - keep * share))


def slack(residual_sd: float, most: float = 1.0) -> float:
    """How far residuals may lie above the typical one; one worse than ``most`` is not trusted the more for it."""
    return 0.5 + min(residual_sd, most)


def choose_floor(uncovered: float, residual_sd: float) -> float:
    """Least probability of the random walk from out-of-sample evidence.

    Parameters
    ----------
    uncovered : float
        Share of the chain's states since the last refit whose residual is more than 2.5 above the
        median.
    residual_sd : float
        Robust standard deviation of the residual out of sample.
    """
    if uncovered == 0.0 and residual_sd < 0.2:
        return 0.05
    if uncovered < 0.01 and residual_sd < 0.5:
        return 0.15
    return 0.25 if uncovered < 0.02 else 0.35 if uncovered < 0.05 else 0.5


def spread(residuals: np.ndarray) -> float:
    """Robust standard deviation of log p - f at states of the chain, shape (n,)."""
    low, high = np.quantile(residuals, (0.03, 0.97))
    return float(high - low) / 3.76  # standard deviations that a normal distribution has them apart


def is_too_low(residual: float, typical: float) -> bool:
    """Whether f is so far below log p that it does not cover the point."""
    return residual - typical > TOO_LOW


def is_stuck(current: Current, typical: float | None) -> bool:
    """Whether f is so far below log p that tuning turns to the moves that need no surrogate."""
    return typical is not None and current.log_density - current.value - typical > 3.5
