"""What is said of a group of chains, against the reference posterior."""

import math

import arviz as az
import numpy as np

from benchmarks import basics
from benchmarks.textbook.drive import Chain
from benchmarks.textbook.posterior import Reference

CONVERGED = 1.01  # R-hat
OFF = 5.0  # standard errors of a mean


def measure(chains: list[Chain], reference: Reference) -> dict:
    """What is stored of a cell.

    ``ess``: bulk effective draws of the worst coordinate, all chains, per 1000 evaluations, tuning included; ``rhat``:
    the worst; ``mean_z`` and ``mean_sd``: the largest error of a mean, in standard errors (its own and the
    reference's) and in posterior standard deviations; ``log_sd``: the largest |log(sd / reference sd)|; ``arrived``:
    evaluations until the level, by chain, None if never; ``silently_wrong``: R-hat below 1.01 while a mean is off by
    more than 5 standard errors.
    """
    evaluations = sum(c.evaluations for c in chains)
    n = min(len(c.draws) for c in chains)
    draws = np.array([c.draws[-n:] for c in chains])
    pooled = draws.mean((0, 1)), draws.std((0, 1))
    ess, ess_mean, rhat = np.ones(draws.shape[2]), np.ones(draws.shape[2]), math.nan
    if n >= 4:
        ess = np.maximum(np.nan_to_num(basics.bulk_ess(draws)), 1.0)
        ess_mean = _by_coordinate(az.ess, draws, method="mean")
        rhat = float(np.max(_by_coordinate(az.rhat, draws)))  # NaN if a coordinate never moved
    error = np.abs(pooled[0] - reference.mean)
    ess_mean = np.maximum(np.nan_to_num(ess_mean, nan=1.0), 1.0)
    standard_error = np.sqrt(pooled[1] ** 2 / ess_mean + reference.sd**2 / reference.ess)
    mean_z = float(np.max(error / standard_error))
    with np.errstate(divide="ignore"):
        log_sd = np.abs(np.log(pooled[1] / reference.sd))
    return {
        "ess": 1000.0 * float(ess.min()) / evaluations,
        "rhat": rhat if math.isfinite(rhat) else None,
        "mean_z": mean_z,
        "mean_sd": float(np.max(error / reference.sd)),
        "log_sd": float(min(log_sd.max(), 99.0)),
        "arrived": [c.arrived for c in chains],
        "below": [round(reference.level - c.best, 2) for c in chains],
        "silently_wrong": bool(rhat < CONVERGED and mean_z > OFF),
        "evaluations": evaluations,
        "draws": n,
        "seconds": sum(c.seconds for c in chains),
    }


def _by_coordinate(function, draws, **options):
    with np.errstate(all="ignore"):
        return np.atleast_1d(np.asarray(function({"x": draws}, **options)["x"].values))
