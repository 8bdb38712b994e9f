"""Hierarchies written centred, behind black boxes: in the coordinates that the graph asks for, and in the model's own.

``parametrization="auto"`` against ``"model"``, from ``pm.sample``'s starts, four chains. Seven models: five in which
groups say little of themselves, two in which they say nearly everything ("rich"), where the model's own are right.

    python -m benchmarks.parametrization           # an hour; a sampler is a step and how, as "Kameleon, auto"
"""

import time

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import cells, drive, report
from benchmarks.basics import geometric
from benchmarks.cells import Benchmark, Cell
from benchmarks.hierarchical import models
from benchmarks.hierarchical.truth import Truth, by_nuts, measured, truth, unconstrained

CHAINS = 4
STEPS = {
    "AdaptiveMetropolis": pk.AdaptiveMetropolisStep, "Kameleon": pk.KameleonStep,
    "FastKameleon": pk.FastKameleonStep, "GaussianMixture": pk.GaussianMixtureStep,
    "CMA": pk.CMAStep, "GaussianAdaptation": pk.GaussianAdaptationStep,
}  # fmt: skip
USUAL = ("AdaptiveMetropolis", "Kameleon", "FastKameleon", "GaussianMixture")


def rich(kit, name, log_likelihood, y, sd):
    """Groups of which the data say nearly everything."""
    box = kit.box(log_likelihood)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", sd)
        group = kit.group(name, mu, tau, len(y))
        for j in range(len(y)):
            pm.Potential(f"y{j}", box(group[j], y[j]))
    return model


def rich_normal(kit):
    """Eight groups of 200 observations each: a group's mean is known to a fourteenth of how groups differ."""
    rng = np.random.default_rng(11)
    means = 2.0 + rng.standard_normal(8)
    y = means + rng.standard_normal(8) / np.sqrt(200.0)
    return rich(kit, "theta", lambda xp, theta, y: -100.0 * (theta - y) ** 2, y, 3)


def rich_poisson(kit):
    """Ten groups of 30 counts around 50: intercepts are known to a twentieth of how they differ."""
    rng = np.random.default_rng(12)
    rates = 4.0 + 0.5 * rng.standard_normal(10)
    y = rng.poisson(np.exp(rates), (30, 10)).sum(axis=0).astype(float)
    return rich(kit, "a", lambda xp, a, y: y * a - 30.0 * xp.exp(xp.minimum(a, 30.0)), y, 2)


RICH = {"rich, normal": rich_normal, "rich, Poisson": rich_poisson}
MODELS = {
    **{n: models.MODELS[n] for n in ("eight schools", "Poisson, 20", "logistic", "PK, 6 patients", "ODE, 8 cultures")},
    **RICH,
}
CLOSED = ("ODE, 8 cultures",)


def known(name: str) -> Truth:
    """Moments of a model; of a rich one by a long run of NUTS on its graph, made once."""
    if name not in RICH:
        return truth(name)
    stored = cells.truth("parametrization", name, lambda: by_nuts(MODELS[name], centred=True))
    return Truth(np.array(stored["mean"]), np.array(stored["sd"]), stored["ess"])


def measure(cell: Cell) -> dict:
    """Four chains of so many evaluations each, half of them tuning up to 3,000."""
    step, how = cell.sampler.split(", ")
    tune, box = min(cell.budget // 2, 3000), cell.problem not in CLOSED
    # the ODE by its closed form: the same density, and SciPy would take hours
    model = MODELS[cell.problem](models.Kit(black=box, centred=True))
    with model:
        built = STEPS[step](tune=tune, parametrization=how)
        begin = time.process_time()
        idata = drive.sample(cell.budget - tune, tune=tune, chains=CHAINS, step=built, random_seed=1000 + cell.seed)
        seconds = time.process_time() - begin
    density = built.density
    lam = density.centring[density.movable] if density.reparametrized else np.ones(1)
    return {
        **measured(unconstrained(model, idata), cell.budget, known(cell.problem)),
        "milliseconds": 1e3 * seconds / CHAINS / cell.budget,
        "centring": [float(v) for v in (lam.min(), np.median(lam), lam.max())],
    }


def page(found: dict[Cell, dict]) -> str:
    """Steps and budgets; seeds that both have."""
    parts = []
    for step, budget in sorted({(c.sampler.split(", ")[0], c.budget) for c in found}):
        rows = []
        for name in MODELS:
            by_how = [
                {c.seed: m for c, m in found.items() if c[:3] == (f"{step}, {how}", name, budget)}
                for how in ("auto", "model")
            ]
            seeds = sorted(by_how[0].keys() & by_how[1].keys())
            if seeds:
                runs = [[of[seed] for seed in seeds] for of in by_how]
                lam = np.median([m["centring"] for m in runs[0]], axis=0)
                rows.append([name, len(seeds), *map(entry, runs), ", ".join(f"{v:.2f}" for v in lam)])
        parts.append(f"## {step}Step, {budget:,} evaluations a chain")
        parts.append(report.table(["model", "seeds", '"auto"', '"model"', "lambda"], rows, left=5))
    tables = "\n\n".join(parts)
    return report.page("parametrization", locals())


def entry(runs) -> str:
    """Effective draws, the worst R-hat and sd."""
    per = geometric([max(m["per_1000"], 0.01) for m in runs])
    rhat, sd = (max(m[k] for m in runs) for k in ("rhat", "sd_error"))
    shown = f"{per:.0f}" if per >= 10.0 else f"{per:.2g}"
    return f"{shown} (R-hat {rhat:.2f}, sd {sd:.2f})"


if __name__ == "__main__":
    samplers = [f"{step}, {how}" for step in USUAL for how in ("model", "auto")]
    Benchmark("parametrization", measure, page).command(__doc__, samplers, list(MODELS), (3000, 10_000), seeds=3)
