"""A cell: four chains of a sampler on a model at a budget of evaluations each."""

import json
import time
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import provenance
from benchmarks.hierarchical import reference, rivals
from benchmarks.hierarchical.measures import measure, unconstrained
from benchmarks.hierarchical.models import BOXES, MODELS, Kit

STORE = Path(__file__).parents[1] / "results" / "hierarchical.json"
CHAINS = 4
FEWEST = 20  # draws of a chain, of which R-hat and effective draws mean something
SAMPLERS = ("boxes", "whole", *rivals.RIVALS)
MODULES = {
    "boxes": ("pymc_kameleon.steps.structure", "pymc_kameleon.samplers.kamiltonian.factors.sampler"),
    "whole": ("pymc_kameleon.steps.base", "pymc_kameleon.samplers.kamiltonian.values.sampler"),
}  # fmt: skip


def code(sampler: str) -> str:
    """Digest of what a cell of ``sampler`` runs."""
    measured = provenance.own_digest("benchmarks.hierarchical.measures")
    if sampler in MODULES:
        return f"{measured}, {provenance.digest(*MODULES[sampler])}"
    return f"{measured}, {provenance.own_digest(*rivals.MADE_WITH)}, pymc {pm.__version__}"


def load() -> list[dict]:
    """All that is stored."""
    return json.loads(STORE.read_text()) if STORE.is_file() else []


def key(cell: dict) -> tuple:
    """Model, sampler, budget, seed."""
    return cell["model"], cell["sampler"], cell["budget"], cell["seed"]


def same_draws(one: dict, other: dict) -> bool:
    """Whether two cells were measured in the same way and their draws agree in every figure."""
    figures = ("evaluations", "draws", "ess", "rhat", "residual_sd", "accept")
    measured = one["code"].split(",")[0] == other["code"].split(",")[0]
    return measured and all(one.get(f) == other.get(f) for f in figures)


def save(cell: dict) -> None:
    """Instead of the one that was stored."""
    cells = [c for c in load() if key(c) != key(cell)] + [cell]
    STORE.write_text(json.dumps(cells, indent=0) + "\n")


def tuning(budget: int) -> int:
    """Of a budget of evaluations, ours."""
    return min(budget // 2, 500 + budget // 10)


def sample(name: str, sampler: str, budget: int, seed: int) -> dict:
    """One cell."""
    cell = {"model": name, "sampler": sampler, "budget": budget, "seed": seed}
    run = _rival if sampler in rivals.RIVALS else _ours
    return {**cell, **run(name, sampler, budget, seed), "code": code(sampler)}


def _ours(name, sampler, budget, seed):
    kit, tune = Kit(black=True), tuning(budget)
    model = MODELS[name](kit)
    with model:
        begin = time.process_time()
        step = pk.KamiltonianStep(tune=tune, learn="auto" if sampler == "boxes" else "all")
        built = time.process_time() - begin
        counter = getattr(kit, "counts", kit)
        counter.calls, begin = 0, time.process_time()
        idata = pm.sample(
            budget - tune, tune=tune, chains=CHAINS, cores=1, step=step, random_seed=1000 + seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - begin
    calls = counter.calls / BOXES[name] / CHAINS
    found = {
        "evaluations": round(calls), "draws": budget - tune, "built": round(built, 1),
        "milliseconds": round(1e3 * seconds / CHAINS / budget, 2),
        **measure(unconstrained(model, idata), calls, reference.truth(name)),
    }  # fmt: skip
    if sampler == "boxes":
        stats = idata.sample_stats
        found["residual_sd"] = round(float(stats["residual_sd"].values.max()), 3)
        found["accept"] = round(float(stats["accept"].values.mean()), 3)
    return found


def _rival(name, sampler, budget, seed):
    begin = time.process_time()
    try:
        runs, calls = rivals.run(name, sampler, budget, seed, CHAINS)
    except rivals.CannotRunError as error:
        return {"failed": str(error)}
    seconds, n = time.process_time() - begin, min(run.values.shape[1] for run in runs)
    found = {
        "evaluations": round(calls / CHAINS), "draws": n, "milliseconds": round(1e3 * seconds / calls, 2),
        "note": ", ".join(sorted({run.note for run in runs})),
    }  # fmt: skip
    if n < FEWEST:
        return {**found, "failed": f"{n} draws a chain after tuning"}
    particles = runs[0].kind == "particles"  # in no order, and some of them copies
    rng = np.random.default_rng(seed)
    x = np.array([
        (rng.permutation(run.values[0]) if particles else run.values[0])[-n:] for run in runs
    ])  # fmt: skip
    distinct = sum(len(np.unique(row, axis=0)) for row in x) if particles else np.inf
    return {**found, **measure(x, calls / CHAINS, reference.truth(name), distinct)}
