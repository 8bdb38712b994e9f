"""Whether chains agree, and how many draws theirs are worth: effective draws, R-hat, and R-hat of groups of chains."""

import math
import warnings
from typing import NamedTuple

import arviz as az
import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

EVERY = 10  # draws between two looks
CONVERGED = (
    1.02  # R-hat: with 16 chains of 60 independent draws the worst of ten coordinates has 1.010
)
LEAST_DRAWS = 10  # of a chain, or nothing is judged
NESTED = 4  # chains in a group from which on R-hat is that of the groups


class Judgement(NamedTuple):
    """What the draws so far say; NaN where there are too few.

    Attributes
    ----------
    ess : float
        Least bulk effective sample size over the coordinates, of all chains together.
    rhat : float
        Largest over the coordinates: rank-normalised, split.
    nested : float
        The same of groups of chains that began together; NaN where there are none.
    """

    ess: float = math.nan
    rhat: float = math.nan
    nested: float = math.nan


def judge(draws: np.ndarray, groups: list[int] | None = None) -> Judgement:
    """Judge ``draws`` (chains, n, d); ``groups`` says which chains began together."""
    if draws.shape[1] < LEAST_DRAWS or len(draws) < 2:
        return Judgement()
    data = {"x": draws}
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "(More chains|Found chain dim)", UserWarning
        )  # as is meant here
        ess = np.nan_to_num(np.asarray(az.ess(data, method="bulk")["x"]), nan=1.0)
        rhat = np.asarray(az.rhat(data)["x"])
    ess = np.where(np.ptp(draws, axis=(0, 1)) == 0.0, 1.0, ess)
    nested = math.nan
    if groups is not None and _are_groups(groups):
        nested = float(np.max(nested_rhat(draws, groups)))
    return Judgement(float(ess.min()), float(np.max(rhat)), nested)


def _are_groups(groups: list[int]) -> bool:
    sizes = np.bincount(groups)
    return len(sizes) > 1 and sizes.min() >= NESTED and sizes.min() == sizes.max()


def nested_rhat(draws: np.ndarray, groups: list[int]) -> np.ndarray:
    """Rank-normalised nested R-hat of every coordinate, shape (d,) (Margossian et al., 2024, eq. 3).

    Many short chains: the variance within a group is that within its chains and that between them, which the plain
    R-hat would take for disagreement.

    Parameters
    ----------
    draws : ndarray of shape (chains, n, d)
    groups : list of int
        Of every chain; groups of one size.
    """
    labels = np.asarray(groups)
    ranks = rankdata(draws.reshape(-1, draws.shape[2]), axis=0).reshape(draws.shape)
    z = ndtri((ranks - 0.375) / (draws.shape[0] * draws.shape[1] + 0.25))
    within, means = [], []
    for g in np.unique(labels):
        part = z[labels == g]
        own = part.var(axis=1, ddof=1).mean(axis=0) if part.shape[1] > 1 else 0.0
        within.append(own + part.mean(axis=1).var(axis=0, ddof=1))
        means.append(part.mean(axis=(0, 1)))
    within_all = np.mean(within, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1.0 + np.var(means, axis=0, ddof=1) / within_all)


def describe(judged: Judgement) -> str:
    """In a few words."""
    if math.isnan(judged.rhat):
        return "too few to judge"
    return f"{judged.ess:.0f} effective, R-hat {judged.rhat:.3f}"


def has_converged(judged: Judgement) -> bool:
    """Whether the chains, or the groups where there are such, agree."""
    rhat = judged.rhat if math.isnan(judged.nested) else judged.nested
    return rhat < CONVERGED


def is_enough(judged: Judgement, target_ess: float) -> bool:
    """Whether to stop: so many effective draws, and the chains agree."""
    return judged.ess >= target_ess and has_converged(judged)
