"""Hierarchies written centred, behind black boxes: in the coordinates that the graph asks for, and in the model's own.

``parametrization="auto"`` against ``"model"``, from ``pm.sample``'s starts, four chains. Seven models: five in which
groups say little of themselves, two in which they say nearly everything ("rich"), where the model's own are right.

    python -m benchmarks.parametrization [--budgets ...] [--steps ...] [--models ...] [--seeds ...]

Cells are stored in ``results/parametrization.json`` one by one, and made once; the table is
``results/parametrization.md``.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import provenance
from benchmarks.hierarchical import models, reference
from benchmarks.hierarchical.measures import Truth, measure, unconstrained

STORE = Path(__file__).parent / "results" / "parametrization.json"
TABLE = STORE.with_suffix(".md")
CHAINS = 4
STEPS = {
    "AdaptiveMetropolis": pk.AdaptiveMetropolisStep, "Kameleon": pk.KameleonStep,
    "FastKameleon": pk.FastKameleonStep, "GaussianMixture": pk.GaussianMixtureStep,
    "CMA": pk.CMAStep, "GaussianAdaptation": pk.GaussianAdaptationStep,
}  # fmt: skip
USUAL = ("AdaptiveMetropolis", "Kameleon", "FastKameleon", "GaussianMixture")


def rich_normal(kit):
    """Eight groups of 200 observations each: a group's mean is known to a fourteenth of how groups differ."""
    rng = np.random.default_rng(11)
    means = 2.0 + rng.standard_normal(8)
    y = means + rng.standard_normal(8) / np.sqrt(200.0)
    box = kit.box(lambda xp, theta, y: -100.0 * (theta - y) ** 2)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 3)
        theta = kit.group("theta", mu, tau, 8)
        for j in range(8):
            pm.Potential(f"y{j}", box(theta[j], y[j]))
    return model


def rich_poisson(kit):
    """Ten groups of 30 counts around 50: intercepts are known to a twentieth of how they differ."""
    rng = np.random.default_rng(12)
    rates = 4.0 + 0.5 * rng.standard_normal(10)
    y = rng.poisson(np.exp(rates), (30, 10)).sum(axis=0).astype(float)
    box = kit.box(lambda xp, a, y: y * a - 30.0 * xp.exp(xp.minimum(a, 30.0)))
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 2)
        a = kit.group("a", mu, tau, 10)
        for j in range(10):
            pm.Potential(f"y{j}", box(a[j], y[j]))
    return model


RICH = {"rich, normal": rich_normal, "rich, Poisson": rich_poisson}
MODELS = {
    **{n: models.MODELS[n] for n in ("eight schools", "Poisson, 20", "logistic", "PK, 6 patients", "ODE, 8 cultures")},
    **RICH,
}  # fmt: skip
CLOSED = ("ODE, 8 cultures",)


def load() -> dict:
    """Cells and the references of the rich models."""
    if STORE.is_file():
        return json.loads(STORE.read_text())
    return {"cells": [], "references": {}}


def truth(name: str) -> Truth | None:
    """Moments of a model; of a rich one by a long run of NUTS on its graph, made once."""
    if name not in RICH:
        return reference.truth(name)
    stored = load()
    if name not in stored["references"]:
        with MODELS[name](models.Kit(black=False, centred=True)) as model:
            idata = pm.sample(
                4000, tune=1500, chains=4, cores=1, random_seed=1, target_accept=0.95,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
        x = unconstrained(model, idata)
        found = {"mean": x.mean(axis=(0, 1)).tolist(), "sd": x.std(axis=(0, 1)).tolist()}
        stored["references"][name] = {**found, "ess": measure(x, 1.0)["ess"]}
        STORE.write_text(json.dumps(stored, indent=0) + "\n")
    found = stored["references"][name]
    return Truth(np.array(found["mean"]), np.array(found["sd"]), found["ess"])


def sample(name: str, step: str, how: str, budget: int, seed: int) -> dict:
    """One cell: four chains of ``budget`` evaluations each, half of them tuning up to 3,000."""
    tune = min(budget // 2, 3000)
    # the ODE by its closed form: the same density, and SciPy would take hours
    model = MODELS[name](models.Kit(black=name not in CLOSED, centred=True))
    with model:
        begin = time.process_time()
        built = STEPS[step](tune=tune, parametrization=how)
        compiled, begin = time.process_time() - begin, time.process_time()
        idata = pm.sample(
            budget - tune, tune=tune, chains=CHAINS, cores=1, step=built, random_seed=1000 + seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - begin
    lam = built.density.centring[built.density.movable] if built.reparametrized else np.ones(1)
    return {
        "model": name, "step": step, "how": how, "budget": budget, "seed": seed,
        **measure(unconstrained(model, idata), budget, truth(name)),
        "built": round(compiled, 1), "milliseconds": round(1e3 * seconds / CHAINS / budget, 3),
        "centring": [round(float(v), 2) for v in (lam.min(), np.median(lam), lam.max())],
        "code": code(step),
    }  # fmt: skip


def code(step: str) -> str:
    """Digest of what a cell runs: the coordinates, and the sampler."""
    sampler = STEPS[step].variants[next(iter(STEPS[step].variants))]
    return provenance.digest("pymc_kameleon.steps.centring", sampler.__module__)


def key(cell: dict) -> tuple:
    """What tells cells apart."""
    return tuple(cell[k] for k in ("model", "step", "how", "budget", "seed"))


INTRODUCTION = """# Hierarchies in the coordinates of their graph

Every step, with `parametrization="auto"` (the default) and `"model"`: models written centred, behind black boxes,
four chains from `pm.sample`'s starts; tuning is half the evaluations, 3,000 at most, and counted. Geometric means over
seeds of the worst coordinate's effective draws per 1000 evaluations; the largest R-hat, and the largest error of a log
posterior sd against NUTS, in brackets: effective draws of a chain that has missed the neck mean nothing.
"rich": groups of which the data say nearly everything, for which the model's own coordinates are right. lambda: least,
median and largest of the coordinates that can be moved, 0 non-centred, 1 as the model has it.
"""


def table() -> str:
    """All cells."""
    cells = load()["cells"]
    lines = [INTRODUCTION]
    for step, budget in sorted({(c["step"], c["budget"]) for c in cells}):
        lines += [
            f"## {step}Step, {budget:,} evaluations a chain", "",
            '| model | seeds | "auto" | "model" | lambda |', "|---|---|---|---|---|",
        ]  # fmt: skip
        for name in MODELS:
            here = [
                c for c in cells if (c["step"], c["budget"], c["model"]) == (step, budget, name)
            ]
            seeds = [c["seed"] for c in here]
            here = [c for c in here if seeds.count(c["seed"]) == 2]
            row = {how: [c for c in here if c["how"] == how] for how in ("auto", "model")}
            if all(row.values()):
                lam = np.median([c["centring"] for c in row["auto"]], axis=0)
                shown = " ".join(f"{v:.2f}" for v in lam)
                lines.append(
                    f"| {name} | {len(row['auto'])} | {_entry(row['auto'])} | {_entry(row['model'])} | {shown} |"
                )
        lines.append("")
    return "\n".join(lines)


def _entry(cells):
    per = np.exp(np.mean(np.log([max(c["per_1000"], 0.01) for c in cells])))
    worst = [max(c[k] for c in cells) for k in ("rhat", "sd_error")]
    shown = f"{per:.0f}" if per >= 10.0 else f"{per:.2g}"
    return f"{shown} (R-hat {worst[0]:.2f}, sd {worst[1]:.2f})"


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--budgets", nargs="+", type=int, default=[3000, 10000])
    parser.add_argument("--steps", nargs="+", default=USUAL)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--hows", nargs="+", default=["model", "auto"])
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    cells = itertools.product(given.budgets, given.seeds, given.steps, given.models, given.hows)
    for budget, seed, step, name, how in cells:
        wanted = (name, step, how, budget, seed)
        if not given.again and any(key(c) == wanted for c in load()["cells"]):
            continue
        truth(name)
        cell = sample(name, step, how, budget, seed)
        stored = load()
        stored["cells"] = [c for c in stored["cells"] if key(c) != wanted] + [cell]
        STORE.write_text(json.dumps(stored, indent=0) + "\n")
        figures = {k: cell[k] for k in ("per_1000", "rhat", "error", "sd_error", "z", "centring")}
        print(*wanted, figures, flush=True)
    provenance.write(TABLE, table())


if __name__ == "__main__":
    main()
