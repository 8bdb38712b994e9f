"""Hierarchies whose log density is learned as a whole, by ``pk.sample``: what is known of them, and what is not.

python -m benchmarks.priors
"""

from functools import cache

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import drive, provenance, report
from pymc_kameleon.surrogates.values.library import LIBRARY
from pymc_kameleon.verdict import convergence

SEEDS, EVALUATIONS, RNG = (1, 2), 3000, np.random.default_rng(20261127)
GROUP, X = np.repeat(np.arange(6), 15), RNG.standard_normal(90)
FEW = np.repeat(np.arange(6), [2, 3, 5, 8, 20, 30])  # observations of each of six counties
INTERCEPT, SLOPE, NOISE = RNG.normal(1.0, 0.6, 6), RNG.normal(0.5, 0.3, 6), 0.4 * RNG.standard_normal(90)
COUNTS = RNG.poisson(np.exp(INTERCEPT[GROUP]))
MEANS, COVARIATE = RNG.normal(0.3, 0.7, (8, 1)), RNG.standard_normal((8, 10))
EVENTS, YES = RNG.poisson(np.exp(MEANS), (8, 6)), RNG.binomial(12, 1.0 / (1.0 + np.exp(-MEANS)))
RIGHT = RNG.random((8, 10)) < 1.0 / (1.0 + np.exp(-MEANS - COVARIATE))


def effect(name: str, scale: float, location=0.0, size: int = 6):
    """Location + scale z."""
    return location + pm.HalfNormal(f"sd_{name}", scale) * pm.Normal(f"z_{name}", shape=size)


def counties(group, times):
    """An intercept and a slope in each; ``times`` the noise."""
    n, effects = len(group), [effect(name, 1.0, pm.Normal(f"mu_{name}"))[group] for name in "ab"]
    y = INTERCEPT[group] + SLOPE[group] * X[:n] + times * NOISE[:n]
    pm.Normal("y", effects[0] + effects[1] * X[:n], pm.HalfNormal("noise"), observed=y)


def centred():
    """The effects of eight groups."""
    return pm.Normal("a", pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("sd_a", 1.0), shape=(8, 1))


MODELS = {
    "eight schools": lambda: pm.Normal(
        "y", effect("school", 10.0, pm.Normal("mu", 0.0, 10.0), 8), np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
        observed=[28.0, 8, -3, 7, -1, 1, 18, 12]),
    "fifteen counts a group": lambda: pm.Poisson(
        "y", pm.math.exp(effect("a", 1.0, pm.Normal("mu", 0.0, 2.0)))[GROUP], observed=COUNTS),
    "intercepts and slopes": lambda: counties(GROUP, 1.0),
    "the same, few": lambda: counties(FEW, 2.0),
    "Poisson, centred": lambda: pm.Poisson("y", pm.math.exp(centred()), observed=EVENTS),
    "negative binomial, centred": lambda: pm.NegativeBinomial(
        "y", mu=pm.math.exp(centred()), alpha=pm.Exponential("alpha", 0.5), observed=EVENTS),
    "binomial, centred": lambda: pm.Binomial("y", 12, logit_p=centred(), observed=YES),
    "logistic, centred": lambda: pm.Bernoulli("y", logit_p=centred() + pm.Normal("b") * COVARIATE, observed=RIGHT),
}  # fmt: skip
HOWS = {
    "z": {"parametrization": "model", "learn": "all"},
    "without": {
        "learn": "all", "surrogate": pk.Values(library=tuple(f for f in LIBRARY if not (f.scales and f.monomials))),
    },
    "all": {"learn": "all"}, "auto": {},
}  # fmt: skip


@cache
def truth(model):
    """The lowest twentieth's upper end of every scale, by NUTS."""
    with pm.Model():
        MODELS[model]()
        drawn = drive.sample(2000, tune=2000, chains=4, random_seed=0, target_accept=0.98)["posterior"]
    return {name: float(drawn[name].quantile(0.05)) for name in drawn if name.startswith("sd_")}


def measure(model, how, seed):
    """Effective draws per 1000 evaluations, R-hat, and the percentage of a scale's draws in its lowest twentieth."""
    if how == "z" and "centred" in model:
        return ""
    with pm.Model():
        MODELS[model]()
        step = pk.KamiltonianStep(**HOWS[how])
        drawn = pk.sample(max_evaluations=EVALUATIONS, step=step, random_seed=seed, progressbar=False)["posterior"]
    judged = convergence.judge(np.stack(list(convergence.elements(drawn).values()), axis=2))
    low = min(100.0 * float((drawn[name] < end).mean()) for name, end in truth(model).items())
    return f"{1000.0 * judged.ess / EVALUATIONS:.0f} ({judged.rhat:.2f}), {low:.1f} %"


def page(options):
    """The table."""
    rows = [[model, *(measure(model, how, seed) for how in HOWS for seed in SEEDS)] for model in MODELS]
    table = report.table(["model", *(f"{how}, seed {seed}" for how in HOWS for seed in SEEDS)], rows)
    return report.page("priors", globals() | locals())


if __name__ == "__main__":
    provenance.command("priors", __doc__, page)
