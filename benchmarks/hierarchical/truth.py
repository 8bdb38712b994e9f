"""What is true of the models, and how far draws are from it; all in the model's unconstrained coordinates.

Truth is long runs of NUTS on their graphs, or what is known otherwise. Of a funnel x exp(-v / 2) is compared in place
of x: the sd of x itself is made by the one draw in a thousand that is widest.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import cells, drive
from benchmarks.basics import bulk_ess, rhat
from benchmarks.hierarchical.models import MODELS, Kit
from benchmarks.posteriors import LotkaVolterra

CENTRED = ("PK, 40 patients",)  # where the data say more of each group than the hierarchy does
FUNNELS = ("funnel", "funnel, bare Potential")
DRAWS = {"GP, 20 sites": 8000, "PK, 12 patients": 8000, "GP, 8 series": 12_000}  # a chain, where not 4000


class Truth(NamedTuple):
    """Mean and sd, shape (d,), of how many effective draws, and the coordinates of which they are."""

    mean: np.ndarray
    sd: np.ndarray
    ess: float
    coordinates: Callable[[np.ndarray], np.ndarray] = np.asarray


def truth(name: str) -> Truth:
    """What a model's draws are held against; made if it is not stored."""
    if name in FUNNELS:
        return Truth(*funnel_moments(), np.inf, standardised)
    if name == "lynx-hare":  # by importance sampling
        target = LotkaVolterra()
        sd = np.sqrt(np.diag(target.cov))
        return Truth(target.mean, sd, float(np.min(sd / target.mean_error)) ** 2)
    stored = cells.truth("hierarchical", name, lambda: by_nuts(MODELS[name], name in CENTRED, DRAWS.get(name, 4000)))
    return Truth(np.array(stored["mean"]), np.array(stored["sd"]), stored["ess"])


def by_nuts(model: Callable, centred: bool, draws: int = 4000) -> dict:
    """Long chains on the graph version of a model."""
    with model(Kit(black=False, centred=centred)):
        idata = drive.sample(draws, tune=1500, chains=4, random_seed=1, target_accept=0.95)
    x = unconstrained(model(Kit(black=True)), idata)
    return {
        "mean": x.mean(axis=(0, 1)).round(5).tolist(), "sd": x.std(axis=(0, 1)).round(5).tolist(),
        "ess": round(float(bulk_ess(x).min()), 1), "rhat": round(rhat(x), 4),
        "divergences": int(idata.sample_stats["diverging"].values.sum()),
    }  # fmt: skip


def standardised(x: np.ndarray) -> np.ndarray:
    """(v, x) of the funnel as (v, x exp(-v / 2))."""
    v = x[..., :1]
    return np.concatenate([v, x[..., 1:] * np.exp(-0.5 * v)], axis=-1)


def funnel_moments() -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of (v, x exp(-v / 2)), by quadrature over v: given v, all x are normal."""
    v = np.linspace(-30.0, 40.0, 20_001)
    variance = np.exp(v) + 2.0**2  # of the observation
    log_weights = -0.5 * (v / 3.0) ** 2 - 0.5 * 0.5**2 / variance - 0.5 * np.log(variance)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = 0.5 * np.exp(0.5 * v) / variance  # of the first, given v
    square = mean**2 + 2.0**2 / variance
    first = weights @ mean
    means = np.array([weights @ v, first, *np.zeros(8)])
    variances = [weights @ v**2 - (weights @ v) ** 2, weights @ square - first**2, *np.ones(8)]
    return means, np.sqrt(variances)


def measured(x: np.ndarray, evaluations: float, known: Truth, most: float = np.inf) -> dict:
    """Effective draws and R-hat of the worst coordinate of draws (chains, n, d), and errors.

    ``evaluations`` of one chain, tuning included; ``most`` effective draws there can be.
    """
    ess = min(float(bulk_ess(x).min()), most)
    found = {"ess": ess, "per_1000": 1000 * ess / len(x) / evaluations, "rhat": rhat(x)}
    return {**found, **errors(known.coordinates(x), known, most)}


def errors(x: np.ndarray, known: Truth, most: float = np.inf) -> dict[str, float]:
    """The largest of means, in sds, and of log sds; "z", the largest of both in standard errors.

    Standard errors have the noise of these draws, by ArviZ's effective draws for a mean, and that of the reference.
    """
    import arviz as az

    apart = (x - known.mean) / known.sd
    spread = np.maximum(x.std(axis=(0, 1)) / known.sd, 1e-3)  # what never moved has no logarithm
    z = []
    for values, expected in ((apart, 0.0), (apart**2, 1.0)):
        ess = np.minimum(np.asarray(az.ess({"x": values}, method="mean")["x"].values), most)
        variance = values.var(axis=(0, 1)) * (1.0 / ess + 1.0 / known.ess)
        z.append(np.abs(values.mean(axis=(0, 1)) - expected) / np.sqrt(np.maximum(variance, 1e-12)))
    error = float(np.abs(apart.mean(axis=(0, 1))).max())
    return {"error": error, "sd_error": float(np.abs(np.log(spread)).max()), "z": float(np.max(z))}


def unconstrained(model, idata) -> np.ndarray:
    """All draws of ``pm.sample`` in the model's unconstrained coordinates, (chains, draws, d)."""
    parts = []
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv].name
        x = np.asarray(idata.posterior[rv.name].values)
        x = x.reshape(*x.shape[:2], -1)
        parts.append(np.log(x) if value.endswith(("_log__", "_interval__")) else x)
    return np.concatenate(parts, axis=2)
