"""Hierarchies that are non-centred by hand, as PyMC's own pages write them: seen for what they are, and not.

python -m benchmarks.by_hand
"""

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import drive, provenance, report
from pymc_kameleon.verdict import convergence

RNG = np.random.default_rng(20261127)
SEEDS, GROUP, X = (1, 2), np.repeat(np.arange(6), 15), RNG.standard_normal(90)
INTERCEPT, SLOPE, NOISE = RNG.normal(1.0, 0.6, 6), RNG.normal(0.5, 0.3, 6), 0.4 * RNG.standard_normal(90)
COUNTS = RNG.poisson(np.exp(INTERCEPT[GROUP]))


def effect(name: str, scale: float, location=0.0, size: int = 6):
    """Location + scale z."""
    return location + pm.HalfNormal(f"sd_{name}", scale) * pm.Normal(f"z_{name}", shape=size)


MODELS = {
    "eight schools": lambda: pm.Normal(
        "y", effect("school", 10.0, pm.Normal("mu", 0.0, 10.0), 8), np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
        observed=[28.0, 8, -3, 7, -1, 1, 18, 12]),
    "fifteen counts a group": lambda: pm.Poisson(
        "y", pm.math.exp(effect("a", 1.0, pm.Normal("mu", 0.0, 2.0)))[GROUP], observed=COUNTS),
    "intercepts and slopes": lambda: pm.Normal(
        "y", effect("a", 1.0, pm.Normal("mu"))[GROUP] + effect("b", 1.0, pm.Normal("nu"))[GROUP] * X,
        pm.HalfNormal("noise"), observed=INTERCEPT[GROUP] + SLOPE[GROUP] * X + NOISE),
}  # fmt: skip
WAYS = {
    "pk.sample, 3,000 in all": lambda how, seed: pk.sample(
        max_evaluations=3000, step=pk.KamiltonianStep(parametrization=how), random_seed=seed, progressbar=False),
    "FastKameleonStep, 4,000 a chain": lambda how, seed: drive.sample(
        2000, tune=2000, chains=4, step=pk.FastKameleonStep(parametrization=how), random_seed=seed),
}  # fmt: skip


def measure(model, way, how, seed):
    """Effective draws per 1000 evaluations, and R-hat."""
    with pm.Model():
        MODELS[model]()
        found = WAYS[way](how, seed)
    judged = convergence.judge(np.stack(list(convergence.elements(found["posterior"]).values()), axis=2))
    return f"{1000.0 * judged.ess / (3000 if way.startswith('pk') else 16_000):.0f} ({judged.rhat:.2f})"


def page(options):
    """The table."""
    rows = [[m, w, *(measure(m, w, how, s) for how in ("model", "auto") for s in SEEDS)] for m in MODELS for w in WAYS]
    table = report.table(["model", "by", *(f'"{h}", seed {s}' for h in ("model", "auto") for s in SEEDS)], rows, left=2)
    return report.page("by_hand", globals() | locals())


if __name__ == "__main__":
    provenance.command("by_hand", __doc__, page)
