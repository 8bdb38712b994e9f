"""What is told of draws, shape (chains, draws, d), in the model's unconstrained coordinates."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.basics import bulk_ess


class Truth(NamedTuple):
    """Mean and sd, shape (d,), of how many effective draws, and the coordinates of which they are."""

    mean: np.ndarray
    sd: np.ndarray
    ess: float
    coordinates: Callable[[np.ndarray], np.ndarray] = np.asarray


def measure(
    x: np.ndarray, evaluations: float, truth: Truth | None = None, most: float = np.inf
) -> dict[str, float]:
    """Effective draws and R-hat of the worst coordinate, and errors against ``truth``.

    ``evaluations`` of one chain, tuning included; ``most`` effective draws there can be.
    """
    import arviz as az

    ess = min(float(bulk_ess(x).min()), most)
    rhat = np.asarray(az.rhat({"x": x})["x"].values)
    found = {
        "ess": round(ess, 1), "per_1000": round(1000 * ess / len(x) / evaluations, 2),
        "rhat": round(float(np.nanmax(rhat)), 4),
    }  # fmt: skip
    return found if truth is None else {**found, **errors(truth.coordinates(x), truth, most)}


def errors(x: np.ndarray, truth: Truth, most: float = np.inf) -> dict[str, float]:
    """The largest of means, in sds, and of log sds; "z", the largest of both in standard errors.

    Standard errors have the noise of these draws, by ArviZ's effective draws for a mean, and that of the reference.
    """
    import arviz as az

    apart = (x - truth.mean) / truth.sd
    spread = np.maximum(x.std(axis=(0, 1)) / truth.sd, 1e-3)  # what never moved has no logarithm
    z = []
    for values, expected in ((apart, 0.0), (apart**2, 1.0)):
        ess = np.minimum(np.asarray(az.ess({"x": values}, method="mean")["x"].values), most)
        variance = values.var(axis=(0, 1)) * (1.0 / ess + 1.0 / truth.ess)
        z.append(np.abs(values.mean(axis=(0, 1)) - expected) / np.sqrt(np.maximum(variance, 1e-12)))
    return {
        "error": round(float(np.abs(apart.mean(axis=(0, 1))).max()), 3),
        "sd_error": round(float(np.abs(np.log(spread)).max()), 3),
        "z": round(float(np.max(z)), 2),
    }


def unconstrained(model, idata) -> np.ndarray:
    """All draws of ``pm.sample`` in the model's unconstrained coordinates, (chains, draws, d)."""
    parts = []
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv].name
        x = np.asarray(idata.posterior[rv.name].values)
        x = x.reshape(*x.shape[:2], -1)
        parts.append(np.log(x) if value.endswith(("_log__", "_interval__")) else x)
    return np.concatenate(parts, axis=2)
