"""Hierarchical models behind black boxes: effective draws per evaluation, and whether means *and sds* are right.

Every model is written as one writes it, centred, with an Op without gradient for each group; budgets of 300 to 10,000
evaluations a chain, tuning included. ``KamiltonianStep()`` learns the black boxes one by one; ``learn="all"`` learns
the whole log density, as it does where there is no structure; ``pm.DEMetropolisZ`` learns nothing. References are long
runs of NUTS on the same models in plain PyTensor, non-centred by hand: a chain that never enters a hierarchy's neck has
a good R-hat, and the sd of the log scale wrong by a third.

    python -m benchmarks.hierarchical                     # whatever is not stored yet; --models, --budgets, --seeds
    python -m benchmarks.hierarchical --reference NAME    # make a reference anew
    python -m benchmarks.hierarchical --table             # the report alone

Cells are stored in ``results/hierarchical.json`` as they are done. Use one BLAS thread.
"""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import provenance
from benchmarks.basics import bulk_ess, versions
from benchmarks.hierarchical.models import BOXES, MODELS, Kit, truth

RESULTS = Path(__file__).parents[1] / "results"
NAME = "hierarchical"
CELLS, REFERENCE = RESULTS / f"{NAME}.json", RESULTS / f"{NAME}_reference.json"
CHAINS = 4
BUDGETS = (300, 1000, 3000, 10_000)
FIRST = ("eight schools", "funnel", "Poisson, 20", "Poisson, 64", "PK, 6 patients")
SAMPLERS = ("boxes", "whole", "DEMetropolisZ")
CODE = ("pymc_kameleon.steps.structure", "pymc_kameleon.samplers.kamiltonian.factors.sampler")


def tuning(budget: int) -> int:
    """Of a budget of evaluations."""
    return min(budget // 2, 500 + budget // 10)


# --- running --------------------------------------------------------------------------------------


def sample(name: str, sampler: str, budget: int, seed: int) -> dict:
    """One cell: four chains."""
    kit = Kit(black=True)
    model, tune = MODELS[name](kit), tuning(budget)
    with model:
        begin = time.process_time()
        if sampler == "DEMetropolisZ":  # two evaluations a draw
            tune, draws, step = tune // 2, (budget - tune) // 2, pm.DEMetropolisZ(tune_interval=50)
        else:
            draws = budget - tune
            step = pk.KamiltonianStep(tune=tune, learn="auto" if sampler == "boxes" else "all")
        built = time.process_time() - begin
        counter = getattr(kit, "counts", kit)
        counter.calls, begin = 0, time.process_time()
        idata = pm.sample(
            draws, tune=tune, chains=CHAINS, cores=1, step=step, random_seed=1000 + seed,
            initvals=_starts(model, seed) if sampler == "DEMetropolisZ" else None,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - begin
    x = unconstrained(model, idata)
    calls = counter.calls / BOXES[name] / CHAINS
    cell = {
        "model": name, "sampler": sampler, "budget": budget, "seed": seed, "evaluations": round(calls),
        "draws": draws, "built": round(built, 1), "milliseconds": round(1e3 * seconds / CHAINS / (tune + draws), 2),
        "code": provenance.digest(*CODE), **measure(name, x, calls),
    }  # fmt: skip
    if sampler == "boxes":
        stats = idata.sample_stats
        cell["residual_sd"] = round(float(stats["residual_sd"].values.max()), 3)
        cell["accept"] = round(float(stats["accept"].values.mean()), 3)
    return cell


def measure(name: str, x: np.ndarray, evaluations: float) -> dict:
    """Figures of ``x``, shape (chains, draws, d)."""
    import arviz as az

    ess = bulk_ess(x)
    rhat = np.asarray(az.rhat({"x": x})["x"].values)
    cell = {
        "ess": round(float(ess.min()), 1), "per_1000": round(1000 * float(ess.min()) / CHAINS / evaluations, 2),
        "rhat": round(float(np.nanmax(rhat)), 4),
    }  # fmt: skip
    reference = moments(name)
    if reference is not None:
        mean, sd = reference
        cell["error"] = round(float(np.abs((x.mean(axis=(0, 1)) - mean) / sd).max()), 3)
        cell["sd_error"] = round(float(np.abs(np.log(x.std(axis=(0, 1)) / sd)).max()), 3)
    return cell


def unconstrained(model, idata) -> np.ndarray:
    """All draws in the model's unconstrained coordinates, (chains, draws, d)."""
    parts = []
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv].name
        x = np.asarray(idata.posterior[rv.name].values)
        x = x.reshape(*x.shape[:2], -1)
        parts.append(np.log(x) if value.endswith(("_log__", "_interval__")) else x)
    return np.concatenate(parts, axis=2)


def _starts(model, seed):
    """The initial point and U(-1, 1) in unconstrained coordinates, chain by chain, as users' variables."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(CHAINS):
        start = {}
        for rv in model.free_RVs:
            value = model.rvs_to_values[rv]
            u = model.initial_point()[value.name]
            u = u + rng.uniform(-1.0, 1.0, np.shape(u)) * (0.1 if "interval" in value.name else 1.0)
            start[rv.name] = np.exp(u) if value.name.endswith(("_log__", "_interval__")) else u
        found.append(start)
    return found


# --- references -----------------------------------------------------------------------------------


def moments(name: str):
    """(mean, sd) of the reference, or None."""
    known = truth(name)
    if known is not None:
        return known
    stored = _load(REFERENCE, {})
    return tuple(np.array(stored[name][k]) for k in ("mean", "sd")) if name in stored else None


def make_reference(name: str) -> None:
    """Long NUTS chains on the graph version, non-centred by hand."""
    model = MODELS[name](Kit(black=False))
    with model:
        idata = pm.sample(
            4000, tune=1500, chains=4, cores=1, random_seed=1, target_accept=0.95, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    centred = MODELS[name](Kit(black=True))
    x = unconstrained(centred, idata)
    cell = measure("", x, 1.0)
    stored = _load(REFERENCE, {})
    stored[name] = {
        "mean": x.mean(axis=(0, 1)).round(5).tolist(), "sd": x.std(axis=(0, 1)).round(5).tolist(),
        "ess": cell["ess"], "rhat": cell["rhat"],
        "divergences": int(idata.sample_stats["diverging"].values.sum()),
    }  # fmt: skip
    REFERENCE.write_text(json.dumps(stored, indent=1) + "\n")
    print(
        f"{name}: reference with {cell['ess']:.0f} effective draws, R-hat {cell['rhat']}",
        flush=True,
    )


# --- report ---------------------------------------------------------------------------------------


def report(cells: list[dict]) -> str:
    """The tables."""
    lines = [
        "# Hierarchical models behind black boxes",
        "",
        "Effective draws (bulk, worst coordinate, unconstrained, four chains) per 1000 evaluations, tuning counted;",
        "R-hat; largest error of a mean in posterior sds; largest |log ratio| of an sd. Medians over seeds, the worst",
        "R-hat. Errors are against NUTS on the same model, non-centred by hand, and contain the noise of both",
        "runs: about 2 / sqrt(effective draws) for the largest of twenty, more for sds of heavy tails (the funnel).",
        "",
        "| model | budget a chain | sampler | seeds | per 1000 | R-hat | mean error | sd error | ms a draw |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in MODELS:
        for budget in BUDGETS:
            for sampler in SAMPLERS:
                rows = [
                    c for c in cells
                    if (c["model"], c["budget"], c["sampler"]) == (name, budget, sampler)
                ]  # fmt: skip
                if rows:
                    lines.append(_row(name, budget, sampler, rows))
    lines += [
        "",
        _missing(cells),
        "",
        f"![Effective draws per 1000 evaluations]({NAME}.png)",
        "",
        f"{versions()}.",
        "",
        "Compilation (`built`, seconds of processor time, first run): ",
    ]
    built = {c["model"]: c["built"] for c in cells if c["sampler"] == "boxes"}
    lines[-1] += ", ".join(f"{name} {built[name]}" for name in MODELS if name in built) + "."
    return "\n".join(lines)


def _missing(cells):
    """What has not been run: rows of ``KamiltonianStep()``, and seeds short of five."""
    found = [(c["model"], c["budget"]) for c in cells if c["sampler"] == "boxes"]
    parts = []
    for budget in BUDGETS:
        none = [name for name in MODELS if (name, budget) not in found]
        if none:
            which = "any" if len(none) == len(MODELS) else ", ".join(none)
            parts.append(f"at {budget:,} a chain on {which}")
    if not parts:
        return ""
    return f"`KamiltonianStep()` was not run {'; '.join(parts)}. Fewer seeds than five: for want of time."


def _row(name, budget, sampler, rows):
    def middle(key, digits):
        values = [r[key] for r in rows if key in r]
        return f"{np.median(values):.{digits}f}" if values else ""

    shown = {
        "boxes": "`KamiltonianStep()`",
        "whole": '`learn="all"`',
        "DEMetropolisZ": "`pm.DEMetropolisZ`",
    }
    per = np.median([r["per_1000"] for r in rows])
    figures = [
        f"{per:.0f}" if per >= 10 else f"{per:.2g}", f"{max(r['rhat'] for r in rows):.3f}",
        middle("error", 2), middle("sd_error", 2), middle("milliseconds", 1),
    ]  # fmt: skip
    return f"| {name} | {budget} | {shown[sampler]} | {len(rows)} | " + " | ".join(figures) + " |"


def draw(cells: list[dict], path: Path) -> None:
    """Effective draws per 1000 evaluations, a point a seed; hollow where R-hat is 1.01 or more."""
    names = [name for name in MODELS if any(c["model"] == name for c in cells)]
    styles = {
        ("boxes", 1000): ("tab:blue", "o"), ("boxes", 3000): ("tab:blue", "s"),
        ("whole", 3000): ("tab:orange", "s"), ("DEMetropolisZ", 3000): ("tab:gray", "s"),
    }  # fmt: skip
    labels = {
        "boxes": "KamiltonianStep()", "whole": 'learn="all"', "DEMetropolisZ": "pm.DEMetropolisZ",
    }  # fmt: skip
    figure, axis = plt.subplots(figsize=(8, 0.45 * len(names) + 1.6), layout="constrained")
    for (sampler, budget), (colour, marker) in styles.items():
        mine = [c for c in cells if (c["sampler"], c["budget"]) == (sampler, budget)]
        axis.plot([], [], marker, color=colour, label=f"{labels[sampler]}, {budget:,} a chain")
        for c in mine:
            shift = 0.14 if budget == 3000 else -0.14
            axis.plot(
                c["per_1000"], names.index(c["model"]) + shift, marker, color=colour, ms=5.5,
                mfc=colour if c["rhat"] < 1.01 else "white",
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(axis="x", color="0.9")
    axis.set_xlabel(
        "effective draws per 1000 evaluations, tuning counted (hollow: R-hat above 1.01)"
    )
    axis.legend(
        frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _load(path, default):
    return json.loads(path.read_text()) if path.is_file() else default


def main():
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=FIRST, choices=MODELS)
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS)
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS, choices=SAMPLERS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--reference", nargs="+", default=(), choices=MODELS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for name in options.reference:
        make_reference(name)
    cells = _load(CELLS, [])
    jobs = [
        (name, sampler, budget, seed)
        for budget in options.budgets for name in options.models for sampler in options.samplers
        for seed in range(options.seeds)
    ]  # fmt: skip
    for job in [] if options.table or options.reference else jobs:
        same = [
            c for c in cells if (c["model"], c["sampler"], c["budget"], c["seed"]) == job
        ]  # fmt: skip
        if same and not options.again:
            continue
        if moments(job[0]) is None:
            make_reference(job[0])
        cell = sample(*job)
        cells = [c for c in cells if c not in same] + [cell]
        CELLS.write_text(json.dumps(cells, indent=0) + "\n")
        print({k: v for k, v in cell.items() if k != "code"}, flush=True)
    code = provenance.digest(*CODE)
    stale = provenance.stale_cells(
        (f"{c['sampler']} at {c['budget']:,}", c["code"], code) for c in cells
    )
    draw(cells, RESULTS / f"{NAME}.png")
    provenance.write(RESULTS / f"{NAME}.md", report(cells), stale_cells=stale)


if __name__ == "__main__":
    main()
