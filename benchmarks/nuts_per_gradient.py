"""NUTS on the twelve targets of ``cold_start.py``, per *gradient* evaluation: a reference, not a rival.

A log density without a gradient cannot be sampled by NUTS; these targets happen to have one, all twelve (through the
solver's scan for Lotka-Volterra), so that one can see what a gradient would be worth. ``pm.NUTS`` with PyMC's defaults
from the starting points that the other samplers get (``init="adapt_diag"``: no jitter added), four chains a seed:

- 1000 draws of tuning and 1000 more, PyMC's default, whatever that costs;
- as many of each as cost some 10,000 gradient evaluations a chain, the budget of the other tables.

Gradients are the leapfrog steps (``n_steps``) of all draws, tuning included; PyMC makes one more a draw, to start
from. A gradient costs more than an evaluation of the log density: one and a half to four times as much where it is
derived by reverse differentiation, d times as much or more where it is taken by differences.

    python -m benchmarks.nuts_per_gradient         # twenty minutes of one core; --table for the table alone

Stored in ``results/nuts_per_gradient.json``; what is there is not run again, unless ``--again`` is given.
"""

import argparse
import json
import logging
import time
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import versions
from benchmarks.cold_start import CHAINS, TARGETS, measure, starts, truth
from benchmarks.cold_start import Chain as Cell
from benchmarks.cold_start import load as load_cold_start

RESULTS = Path(__file__).parent / "results"
NAME = "nuts_per_gradient"
BUDGET = 10_000
DEFAULT = 1000  # draws of tuning, and after
FEWEST, MOST = 10, 2000  # draws of each half within the budget
TRIALS = 4


def sample(model, points, draws: int, seed: int, compile_kwargs: dict):
    """``draws`` of tuning and as many more.

    Returns draws (chains, n, d); gradients in all and of tuning, (chains,); divergences after tuning; seconds.
    """
    import pymc as pm

    begin = time.process_time()
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = pm.sample(
            draws=draws, tune=draws, step=None, nuts_sampler="pymc", init="adapt_diag", chains=len(points), cores=1,
            initvals=[{"x": x} for x in points], random_seed=seed, progressbar=False, quiet=True,
            compute_convergence_checks=False, discard_tuned_samples=False, compile_kwargs=compile_kwargs,
        )  # fmt: skip
    seconds = time.process_time() - begin
    tuning = trace.warmup_sample_stats["n_steps"].values.sum(axis=1)
    after = trace.sample_stats["n_steps"].values.sum(axis=1)
    diverging = int(trace.sample_stats["diverging"].values.sum())
    return trace.posterior["x"].values, tuning + after, tuning, diverging, seconds


def cell(name: str, seed: int, draws: int) -> dict:
    """Efficiencies per 1000 gradient evaluations."""
    target = TARGETS[name]
    points = starts(name, seed)
    values, gradients, tuning, diverging, seconds = sample(
        target.pymc_model(), points, draws, 1000 + seed, mode(name)
    )
    chains = [
        Cell(v, draws, int(g), seconds / CHAINS, 0.0)
        for v, g in zip(values, gradients, strict=True)
    ]
    found = measure(chains, truth(name, load_cold_start()))
    return {
        **{k: found[k] for k in ("ess_min", "ess_median", "rhat", "mean_error", "by_error")},
        "draws": draws, "gradients": float(gradients.mean()), "tuning_gradients": float(tuning.mean()),
        "diverging": diverging, "seconds": seconds,
    }  # fmt: skip


def affordable_draws(name: str, seed: int, default: dict) -> int:
    """Draws of each half that cost ``BUDGET`` gradients, by trial: early trees are deeper than later ones."""
    model, points = TARGETS[name].pymc_model(), starts(name, seed)
    n = BUDGET * DEFAULT / default["gradients"]
    for _ in range(TRIALS):
        n = int(np.clip(n, FEWEST, MOST))
        _, gradients, *_ = sample(model, points, n, seed, mode(name))
        if abs(gradients.mean() / BUDGET - 1.0) < 0.15:
            break
        n = n * BUDGET / gradients.mean()
    return int(np.clip(n, FEWEST, MOST))


def mode(name: str) -> dict:
    """PyTensor's: through the solver's scan Numba's gradient takes 2 ms, the C linker's 18."""
    return {"mode": "NUMBA"} if name == "lotka-volterra" else {}


# --- store and table -----------------------------------------------------------------------------


@cache
def code() -> str:
    """Digest of what a cell is made with."""
    return f"pymc {version('pymc')}, {provenance.digest(*provenance.RESULTS[NAME].modules)}"


def load() -> dict:
    path = RESULTS / f"{NAME}.json"
    return json.loads(path.read_text()) if path.exists() else {"cells": {}}


def save(key, value) -> None:
    report.save_cells(RESULTS / f"{NAME}.json", {key: report.rounded(value)}, versions())


def number(x):
    return f"{x:,.0f}" if x >= 99.5 else f"{x:.2g}" if x >= 9.95 or x < 0.995 else f"{x:.1f}"


def by_error(cells):
    """Worst coordinate, over the chains of all seeds."""
    squared = 1.0 / np.concatenate([c["by_error"] for c in cells])
    return (1.0 / squared.mean(axis=0)).min()


def table(cells):
    head = ["target"]
    for part in ("1000 + 1000", "10,000 gradients"):
        head += [f"{part}: ESS", "R-hat", "by error", "gradients a chain", "draws", "divergences"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name in TARGETS:
        row = [f"{name}"]
        for part in ("default", "budget"):
            found = [c for k, c in cells.items() if k.startswith(f"{name} | {part} | ")]
            if not found:
                row += ["–"] * 6
                continue
            rhat = max(np.inf if c["rhat"] is None else c["rhat"] for c in found)
            row += [
                number(np.exp(np.mean([np.log(c["ess_min"]) for c in found]))), f"{rhat:.2f}",
                number(by_error(found)), number(np.mean([c["gradients"] for c in found])),
                f"{np.mean([c['draws'] for c in found]):.0f}", f"{sum(c['diverging'] for c in found)}",
            ]  # fmt: skip
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_table(store):
    seeds = sorted({k.split(" | ")[2] for k in store["cells"]})
    text = [
        "# NUTS per gradient evaluation",
        f"`benchmarks/{NAME}.py`: `pm.NUTS` on the targets of `cold_start.py`, from the same over-dispersed points "
        f"without jitter, {CHAINS} chains, {len(seeds)} seeds. All columns are per 1000 **gradient** evaluations "
        "(leapfrog steps), tuning counted: ESS is ArviZ's bulk effective sample size of the worst coordinate "
        "(geometric mean over seeds), by error the equivalent independent draws by squared error against the truth "
        "(worst coordinate, all chains), R-hat the largest. Left: 1000 draws of tuning and 1000 more, PyMC's default, "
        "whatever they cost. Right: as many draws of each as cost about 10,000 gradients a chain, the budget of "
        "`cold_start.md`. Divergences: draws after tuning, all chains and seeds. Where R-hat is 1.05 or more the ESS "
        "says that the chains disagree and little else.",
        "A gradient costs more than an evaluation of the log density (by reverse differentiation some two to four "
        "times as much, by differences at least d + 1 times), and many log densities have none: these columns are a "
        "reference for what a gradient is worth, not a comparison at equal cost. All twelve targets have one here; "
        "Lotka-Volterra's, one seed, goes back through the 400 Runge-Kutta steps of its solver (2 ms by Numba, "
        "18 ms by PyTensor's C linker, where the log density takes 0.03).",
        table(store["cells"]),
        store["versions"] + ".",
    ]
    stale = provenance.stale_cells(
        (k.split(" | ")[0], c.get("code"), code()) for k, c in store["cells"].items()
    )
    provenance.write(RESULTS / f"{NAME}.md", "\n\n".join(text), stale_cells=stale)
    print(table(store["cells"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    a = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    RESULTS.mkdir(exist_ok=True)
    for seed in range(0 if a.table else a.seeds):
        for name in a.target:
            keys = {part: f"{name} | {part} | {seed}" for part in ("default", "budget")}
            for part, key in keys.items():
                done = load()["cells"]
                if done.get(key, {}).get("code") == code() and not a.again:
                    continue
                draws = DEFAULT
                if part == "budget":
                    draws = affordable_draws(name, seed, done[keys["default"]])
                found = cell(name, seed, draws)
                save(key, found | {"code": code()})
                print(
                    f"{key}: {draws} draws, ESS {found['ess_min']:.3g}, R-hat {found['rhat']}, "
                    f"{found['gradients']:.0f} gradients a chain, {found['seconds']:.0f} s",
                    flush=True,
                )
    write_table(load())


if __name__ == "__main__":
    main()
