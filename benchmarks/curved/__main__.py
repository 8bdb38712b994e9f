"""The steps on curved and ill-conditioned posteriors, from where ``pm.sample`` starts.

Four chains a seed from the model's initial point + U(-1, 1); a third of the evaluations are tuning. Evaluations are
counted in the log density. Chains, measures and the ranking are those of the textbook models
(:mod:`benchmarks.textbook`); the truth is exact draws, or NUTS's where there are data. Half an hour for all.

    python -m benchmarks.curved                                     # all models, the default steps, one seed
    python -m benchmarks.curved --models shell --steps FastKameleonStep pm.Slice --seeds 3
    python -m benchmarks.curved --steps FastKameleonStep:screen=0
    python -m benchmarks.curved --table                             # only re-make results/curved.md

Every (model, step, seed, evaluations, code) is stored when it is done, in results/curved.json, and not run again.
"""

import argparse
import inspect
import json
import logging
import math
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks import basics, provenance, report
from benchmarks.curved import DRAWS, MODELS
from benchmarks.textbook import reference, tables
from benchmarks.textbook.drive import chains
from benchmarks.textbook.measures import measure
from benchmarks.textbook.posterior import Posterior, Reference
from benchmarks.textbook.store import source

RESULTS = Path(__file__).parents[1] / "results"
STORE, TRUTH = RESULTS / "curved.json", RESULTS / "curved_reference.json"
STEPS = (
    "FastKameleonStep", "KameleonStep", "GaussianMixtureStep", "AdaptiveMetropolisStep", "KamiltonianStep",
    "pm.DEMetropolisZ", "pm.Slice", "pm.Metropolis",
)  # fmt: skip
TRUTH_DRAWS = 200_000


@cache
def posterior(name: str) -> Posterior:
    """Compiled once in a process."""
    return Posterior(name, MODELS[name]())


def _moments(draws, ess, rhat):
    quantiles = np.quantile(draws, (0.05, 0.95), axis=0)
    return [np.asarray(v).tolist() for v in (draws.mean(0), draws.std(0), *quantiles, ess)] + [rhat]


def truth(name: str) -> Reference:
    """Moments of exact draws; of NUTS's, which are kept in a file, where there are none."""
    if name in DRAWS:
        draws = DRAWS[name](np.random.default_rng(20_261_122), TRUTH_DRAWS)
        found = _moments(draws, np.full(draws.shape[1], float(len(draws))), 1.0)
        best = max(map(posterior(name).log_density, draws[:5000]))
    else:
        stored = json.loads(TRUTH.read_text()) if TRUTH.exists() else {}
        source_text = inspect.getsource(MODELS[name])
        if stored.get(name, {}).get("source") != source_text:
            draws, log_densities = reference.by_nuts(posterior(name), 1)
            rhat = reference._rhat(draws)
            moments = _moments(draws.reshape(-1, draws.shape[-1]), basics.bulk_ess(draws), rhat)
            stored[name] = {
                "source": source_text, "moments": moments, "best": float(log_densities.max())
            }  # fmt: skip
            TRUTH.write_text(json.dumps(stored, indent=0) + "\n")
        found, best = stored[name]["moments"], stored[name]["best"]
    level = best - len(found[0]) / 2 - 3.0
    return Reference(*map(np.array, found[:5]), found[5], level)


def key(model: str, step: str, seed: int, evaluations: int) -> str:
    """Of a cell in the store, with the code's digest."""
    return f"{model} | {step} | {seed} | {evaluations} | {source(step)}"


def run(models, steps, seeds, evaluations, again):
    """Run and store the cells that are not stored yet."""
    for model in models:
        true = truth(model)
        for step in steps:
            for seed in seeds:
                cell = key(model, step, seed, evaluations)
                if cell in report.load_cells(STORE) and not again:
                    continue
                found = measure(
                    chains(
                        posterior(model), step, seed, evaluations=evaluations, tune=evaluations // 3, level=true.level
                    ),
                    true,
                )  # fmt: skip
                report.save_cells(STORE, {cell: report.rounded(found)}, basics.versions())
                print(
                    f"{time.strftime('%H:%M:%S')} {model}, {step}, seed {seed}: {found['ess']:.3g} effective draws per "
                    f"1000, R-hat {found['rhat'] or math.nan:.3f}, mean off by {found['mean_sd']:.2g} sd "
                    f"({found['mean_z']:.1f} s.e.), {1e6 * found['seconds'] / found['evaluations']:.0f} us"
                    f"{'  SILENTLY WRONG' if found['silently_wrong'] else ''}",
                    flush=True,
                )


def table(steps, seeds, evaluations) -> str:
    """The results of the present code."""
    stored = report.load_cells(STORE)
    found = {}
    for model in MODELS:
        for step in steps:
            cells = [stored.get(key(model, step, seed, evaluations)) for seed in seeds]
            if any(cells):
                found[model, step] = [c for c in cells if c]
    rows = [
        [f"{model} ({posterior(model).dim})", *(tables._efficiency(found.get((model, s))) for s in steps)]
        for model in MODELS
    ]  # fmt: skip
    errors = [
        [f"{model}", *(tables._error(found.get((model, s))) for s in steps)] for model in MODELS
    ]
    return "\n\n".join([
        "# Curved and ill-conditioned posteriors, from where pm.sample starts",
        f"`python -m benchmarks.curved`. Four chains a seed, {evaluations:,} evaluations each, a third of them tuning, "
        f"up to {len(seeds)} seeds: bulk effective draws of the worst coordinate per 1000 evaluations, geometric mean "
        "over the seeds (the worst R-hat, from 1.01 on). **!**: R-hat below that while a mean is off by 5 s.e.",
        f"{basics.versions()}.",
        report.table(["model (d)", *steps], rows),
        "## In short",
        report.table(tables.SUMMARY, [tables._summary(s, list(MODELS), found) for s in steps]),
        "## Errors: a mean's, in standard errors | in sds; |log sd ratio|",
        report.table(["model", *steps], errors),
    ])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", nargs="+", default=list(STEPS))
    parser.add_argument("--seeds", type=int, default=1, help="0, ..., seeds - 1")
    parser.add_argument("--evaluations", type=int, default=10_000, help="per chain")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # that a short chain has not converged is what is measured
    logging.getLogger("pymc").setLevel(logging.ERROR)
    seeds = range(arguments.seeds)
    if not arguments.table:
        run(arguments.models, arguments.steps, seeds, arguments.evaluations, arguments.again)
    text = table(arguments.steps, seeds, arguments.evaluations)
    print(text)
    if arguments.table:
        provenance.write(RESULTS / "curved.md", text)


if __name__ == "__main__":
    main()
