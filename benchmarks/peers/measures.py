"""What is told of a cell: the runs' draws against each other and against the reference.

Effective draws are ArviZ's bulk ones of the worst coordinate: of single chains over all runs, of walkers with each
walker a chain. Weighted draws have Kish's size (sum w)^2 / sum w^2, which sees uneven weights and nothing else: no
correlation, no mode that is missing. Particles of sequential Monte Carlo count once however often they were copied. An
approximation has none: its draws are as many as one likes, only its errors say anything.

R-hat is the larger of two, of the runs, which are independent, and of all chains or walkers: runs of walkers that stay
where they began agree with each other, and so many of them have "effective draws" as many as they are.

Errors are of one run's mean in reference sds and of the log of its sd, root mean squares over runs and coordinates. "By
error": n independent normal draws have squared errors of 1 / n and 1 / (2 n), so it is 2 / (mean^2 + 2 log sd^2). It is
the same measure for all kinds.
"""

import math

import numpy as np

from benchmarks import basics
from benchmarks.peers.adapters import Draws

LEAST_SD = 1e-3  # of the reference's: a chain that never moved has no logarithm


def kish(weights: np.ndarray) -> float:
    """(sum w)^2 / sum w^2."""
    weights = np.asarray(weights, dtype=float)
    return float(weights.sum() ** 2 / np.square(weights).sum())


def moments(draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd, shape (d,) each."""
    flat = draws.values.reshape(-1, draws.values.shape[-1])
    weights = np.ones(len(flat)) if draws.weights is None else draws.weights
    mean = np.average(flat, axis=0, weights=weights)
    return mean, np.sqrt(np.average(np.square(flat - mean), axis=0, weights=weights))


def sequence(draws: Draws, rng: np.random.Generator) -> np.ndarray:
    """One sequence of equally weighted draws, (n, d): walkers in turns; shuffled if in no order."""
    values = draws.values
    flat = values.swapaxes(0, 1).reshape(-1, values.shape[-1])
    if draws.weights is not None:
        n = max(int(kish(draws.weights)), 4)
        share = np.cumsum(draws.weights / np.sum(draws.weights))
        # evenly spaced: no more noise than the weights have
        at = (np.arange(n) + rng.uniform()) / n
        flat = flat[np.minimum(np.searchsorted(share, at), len(flat) - 1)]
    return flat if draws.kind == "chains" and draws.weights is None else rng.permutation(flat)


def effective(runs: list[Draws]) -> float | None:
    """Effective draws of all runs together, of the worst coordinate; None of an approximation."""
    if runs[0].kind == "approximation":
        return None
    if runs[0].weights is not None:
        return sum(kish(run.weights) for run in runs)
    n = min(run.values.shape[1] for run in runs)
    if n < 4:
        return float(len(runs))
    together = np.concatenate([run.values[:, -n:] for run in runs])
    found = float(np.nan_to_num(basics.bulk_ess(together)).min())
    if runs[0].kind == "particles":
        distinct = sum(len(np.unique(run.values[0], axis=0)) for run in runs)
        found = min(found, float(distinct))
    return max(found, 1.0)


def rhat(runs: list[Draws]) -> float | None:
    """The larger of the runs' and of all chains' or walkers'; None of a single run, or of what never moved."""
    rng = np.random.default_rng(0)
    rows = [sequence(run, rng) for run in runs]
    found = [_rhat(rows)]
    if runs[0].kind == "chains" and len(runs[0].values) > 1 and runs[0].weights is None:
        found.append(_rhat([chain for run in runs for chain in run.values]))
    return None if None in found else max(found)


def _rhat(rows):
    """The worst coordinate's, rank-normalised, of sequences (n, d)."""
    import arviz as az

    n = min(map(len, rows))
    if len(rows) < 2 or n < 4:
        return None
    with np.errstate(all="ignore"):
        found = float(np.max(az.rhat({"x": np.array([row[-n:] for row in rows])})["x"].values))
    return found if math.isfinite(found) else None


def measure(
    runs: list[Draws], evaluations: list[int], mean: np.ndarray, sd: np.ndarray
) -> dict[str, float | int | None]:
    """What is stored of a cell; efficiencies per 1000 evaluations."""
    found = [moments(run) for run in runs]
    errors = np.array([(m - mean) / sd for m, _ in found])
    spreads = np.array([np.log(np.maximum(s / sd, LEAST_SD)) for _, s in found])
    ess, total = effective(runs), sum(evaluations)
    mean_error, sd_error = (float(np.sqrt(np.mean(np.square(e)))) for e in (errors, spreads))
    squared = 0.5 * (mean_error**2 + 2.0 * sd_error**2)
    return {
        "ess": None if ess is None else 1000.0 * ess / total,
        "rhat": rhat(runs),
        "mean_error": mean_error,
        "sd_error": sd_error,
        "by_error": 1000.0 / squared / (total / len(runs)),
        "evaluations": total,
        "runs": len(runs),
    }
