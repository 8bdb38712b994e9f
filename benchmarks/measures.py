"""How far draws are from a known truth, and what they cost in log-density evaluations.

Effective sample size alone misleads: a chain that never enters the arms of a banana looks efficient, and a constant one
looks perfect.
"""

import math
from typing import NamedTuple

import numpy as np

DECILES = tuple(np.arange(1, 10) / 10)


def confidence_regions(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of draws inside the 68.3, 90, 95 and 99 % regions and its standard error between chains, shapes (4,).

    As Haario, Saksman and Tamminen (1999) tabulate it; ``levels``: the target's, of the draws, shape (chains, draws).
    """
    inside = np.array([(levels <= p).mean(axis=1) for p in (0.683, 0.90, 0.95, 0.99)])
    return inside.mean(axis=1), inside.std(axis=1, ddof=1) / math.sqrt(len(levels))


def mmd(x: np.ndarray, y: np.ndarray) -> float:
    """Maximum mean discrepancy of two samples, (n, d) and (m, d), with the kernel (1 + <x, y>)^3.

    The root of the V-statistic, which is too large by O(1 / n + 1 / m). The kernel's features are the moments up to
    order three, since (1 + <x, y>)^3 = 1 + 3 <x, y> + 3 <x, y>^2 + <x, y>^3: no Gram matrix, O(n d^3).
    """
    moments = zip((3.0, 3.0, 1.0), _moments(x), _moments(y), strict=True)
    return math.sqrt(sum(c * float(np.square(a - b).sum()) for c, a, b in moments))


def _moments(x: np.ndarray, block: int = 4096) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw moment tensors E x, E x x^T and E x (x) x (x) x, of d, d^2 and d^3 numbers."""
    n, d = x.shape
    third = np.zeros((d * d, d))
    for start in range(0, n, block):
        part = x[start : start + block]
        third += (part[:, :, None] * part[:, None, :]).reshape(len(part), d * d).T @ part
    return x.mean(axis=0), x.T @ x / n, third / n


class MarginalTruth(NamedTuple):
    """Of every coordinate: mean (d,), variance (d,), and quantiles (4, d) at 0.1, 0.25, 0.75 and 0.9."""

    mean: np.ndarray
    variance: np.ndarray
    quantiles: np.ndarray


def error_efficiency(draws: np.ndarray, truth: MarginalTruth, evaluations_per_chain: float) -> np.ndarray:
    """How many independent draws, per 1000 evaluations, would estimate as well as a chain does, shape (d,).

    Effective sample size cannot see a region that no chain has visited; an error against the truth does. Each chain of
    ``draws`` (chains, draws, d) estimates, for each coordinate, the mean, P(x < q10), P(x > q90) and P(q25 < x < q75).
    With e the error of such an estimate and s^2 the variance of the functional under the target, n independent draws
    have E e^2 / s^2 = 1 / n; so n is estimated by one over the mean of e^2 / s^2 over chains and functionals.
    """
    low, centre_low, centre_high, high = truth.quantiles
    estimates = np.stack([  # (4, chains, d)
        draws.mean(axis=1) - truth.mean, (draws < low).mean(axis=1) - 0.1, (draws > high).mean(axis=1) - 0.1,
        ((draws > centre_low) & (draws < centre_high)).mean(axis=1) - 0.5,
    ])  # fmt: skip
    one = np.ones_like(truth.variance)
    variances = np.stack([truth.variance, 0.09 * one, 0.09 * one, 0.25 * one])
    squared = (np.square(estimates) / variances[:, None, :]).mean(axis=0)  # (chains, d)
    return 1000.0 / squared.mean(axis=0) / evaluations_per_chain
