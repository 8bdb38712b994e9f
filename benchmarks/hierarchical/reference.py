"""What is true of the models: long runs of NUTS on their graphs, or what is known otherwise.

Moments are compared in unconstrained coordinates, of a funnel with x exp(-v / 2) in place of x: the sd of x itself is
made by the one draw in a thousand that is widest.
"""

import json
from pathlib import Path

import numpy as np
import pymc as pm

from benchmarks.hierarchical.measures import Truth, measure, unconstrained
from benchmarks.hierarchical.models import MODELS, Kit
from pymc_kameleon.targets.predator_prey import LotkaVolterra

STORE = Path(__file__).parents[1] / "results" / "hierarchical_reference.json"
CENTRED = ("PK, 40 patients",)  # where the data say more of each group than the hierarchy does
FUNNELS = ("funnel", "funnel, bare Potential")
DRAWS = {
    "GP, 20 sites": 8000,
    "PK, 12 patients": 8000,
    "GP, 8 series": 12000,
}  # a chain, where it is not 4000


def load() -> dict[str, dict]:
    """Stored references by model."""
    return json.loads(STORE.read_text()) if STORE.is_file() else {}


def truth(name: str) -> Truth | None:
    """What a model's draws are held against, or None."""
    if name in FUNNELS:
        return Truth(*funnel_moments(), np.inf, standardised)
    if name == "lynx-hare":  # by importance sampling
        target = LotkaVolterra()
        sd = np.sqrt(np.diag(target.cov))
        return Truth(target.mean, sd, float(np.min(sd / target.mean_error)) ** 2)
    stored = load().get(name)
    if stored is None:
        return None
    return Truth(np.array(stored["mean"]), np.array(stored["sd"]), stored["ess"])


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
    variances = np.array(
        [weights @ v**2 - (weights @ v) ** 2, weights @ square - first**2, *np.ones(8)]
    )
    return means, np.sqrt(variances)


def make(name: str) -> None:
    """Long NUTS chains on the graph version, non-centred by hand or as :data:`CENTRED` says."""
    with MODELS[name](Kit(black=False, centred=name in CENTRED)):
        idata = pm.sample(
            DRAWS.get(name, 4000), tune=1500, chains=4, cores=1, random_seed=1, target_accept=0.95,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    x = unconstrained(MODELS[name](Kit(black=True)), idata)
    found, stored = measure(x, 1.0), load()
    stored[name] = {
        "mean": x.mean(axis=(0, 1)).round(5).tolist(), "sd": x.std(axis=(0, 1)).round(5).tolist(),
        "ess": found["ess"], "rhat": found["rhat"],
        "divergences": int(idata.sample_stats["diverging"].values.sum()),
    }  # fmt: skip
    STORE.write_text(json.dumps(stored, indent=1) + "\n")
    print(
        f"{name}: reference with {found['ess']:.0f} effective draws, R-hat {found['rhat']}",
        flush=True,
    )
