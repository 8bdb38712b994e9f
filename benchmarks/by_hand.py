"""Hierarchies that are non-centred by hand, as PyMC's own pages write them: seen for what they are, and not.

python -m benchmarks.by_hand
"""

from functools import cache

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import drive, provenance, report
from pymc_kameleon.verdict import convergence

RNG = np.random.default_rng(20261127)
SEEDS, GROUP, X = (1, 2), np.repeat(np.arange(6), 15), RNG.standard_normal(90)
FEW = np.repeat(np.arange(6), [2, 3, 5, 8, 20, 30])  # observations of each of six counties
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
    "the same, few": lambda: pm.Normal(
        "y", effect("a", 1.0, pm.Normal("mu"))[FEW] + effect("b", 1.0, pm.Normal("nu"))[FEW] * X[:68],
        pm.HalfNormal("noise"), observed=INTERCEPT[FEW] + SLOPE[FEW] * X[:68] + 2.0 * NOISE[:68]),
}  # fmt: skip
WAYS = {
    "pk.sample, 3,000 in all": lambda seed, **how: pk.sample(
        max_evaluations=3000, step=pk.KamiltonianStep(**how), random_seed=seed, progressbar=False),
    "FastKameleonStep, 4,000 a chain": lambda seed, learn="", **how: drive.sample(
        2000, tune=2000, chains=4, step=pk.FastKameleonStep(**how), random_seed=seed),
}  # fmt: skip
HOWS = {"model": {"parametrization": "model", "learn": "all"}, "all": {"learn": "all"}, "auto": {}}


@cache
def truth(model):
    """The lowest twentieth's upper end of every scale, by NUTS."""
    with pm.Model():
        MODELS[model]()
        drawn = drive.sample(2000, tune=2000, chains=4, random_seed=0, target_accept=0.98)["posterior"]
    return {name: float(drawn[name].quantile(0.05)) for name in drawn if name.startswith("sd_")}


def measure(model, way, how, seed):
    """Effective draws per 1000 evaluations, R-hat, and the percentage of a scale's draws in its lowest twentieth."""
    with pm.Model():
        MODELS[model]()
        drawn = WAYS[way](seed, **HOWS[how])["posterior"]
    judged = convergence.judge(np.stack(list(convergence.elements(drawn).values()), axis=2))
    low = min(100.0 * float((drawn[name] < end).mean()) for name, end in truth(model).items())
    return f"{1000.0 * judged.ess / (3000 if way.startswith('pk') else 16_000):.0f} ({judged.rhat:.2f}; {low:.1f} %)"


def page(options):
    """The table."""
    rows = [
        [m, w, *(measure(m, w, how, s) if how != "all" or w.startswith("pk") else "" for how in HOWS for s in SEEDS)]
        for m in MODELS for w in WAYS
    ]  # fmt: skip
    table = report.table(["model", "by", *(f"{how}, seed {s}" for how in HOWS for s in SEEDS)], rows, left=2)
    return report.page("by_hand", globals() | locals())


if __name__ == "__main__":
    provenance.command("by_hand", __doc__, page)
