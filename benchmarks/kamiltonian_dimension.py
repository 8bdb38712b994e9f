"""What the surrogate of KamiltonianStep("values") costs and brings as the dimension grows.

The surrogate begins with a quadratic, (d + 1)(d + 2) / 2 coefficients, and cannot be fitted to fewer evaluations than
that; richer families have to be found among what is left of the budget. Three targets in up to a hundred dimensions,
from cold starts at 10,000 evaluations, half of them tuning, beside adaptive Metropolis:

- a correlated normal distribution with condition number 100: all that a quadratic can do;
- a banana: non-Gaussian in two coordinates that the sampler has to find among d;
- a multivariate t with 5 degrees of freedom: non-Gaussian in all coordinates together.

For each: effective draws, R-hat, error against the truth, the family chosen, processor time of fitting and of the
free trajectories, and memory. ``--part costs`` asks the last three of the twelve targets of ``cold_start.py``.

    python -m benchmarks.kamiltonian_dimension            # both parts; --table for the report alone

Every cell is stored in ``results/kamiltonian_dimension.json`` when it is done and not run again, unless ``--again``
is given. Twenty minutes of one core. Use one BLAS thread.
"""

import argparse
import contextlib
import json
import logging
import math
import pickle
import time
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import bulk_ess, generators, versions
from benchmarks.cold_start import TARGETS, starts
from benchmarks.core import run_chain
from benchmarks.report import digits, table
from pymc_kameleon.diagnostics import MarginalTruth, error_efficiency
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.library import LIBRARY
from pymc_kameleon.targets import Banana, CorrelatedGaussian, StudentT

RESULTS = Path(__file__).parent / "results"
NAME = "kamiltonian_dimension"
BUDGET = 10_000
CHAINS = 4
DIMENSIONS = (2, 5, 10, 20, 50, 78, 100)
FAMILIES = {
    "normal": lambda d: CorrelatedGaussian(100.0, d),
    "banana": lambda d: Banana(0.03, 100.0, d),
    "t5": lambda d: StudentT(5.0, d),
}
SAMPLERS = {"AM": AdaptiveMetropolis, "Kamiltonian": ValueKamiltonian}
TRUTH_DRAWS = 200_000
MEGABYTE = 1e6
PARTS = ("dimension", "costs")


# --- one chain, metered --------------------------------------------------------------------------


@contextlib.contextmanager
def metered(memory: bool):
    """Processor time inside ``value_regression.fit`` and ``surrogate_dynamics.run``; the largest fit's working memory.

    Tracing the memory slows allocation, so it is asked of one chain only.
    """
    spent = {"fitting": 0.0, "trajectories": 0.0, "fits": 0, "working_memory": 0.0}
    fit, run = value_regression.fit, surrogate_dynamics.run

    def timed_fit(*arguments, **options):
        if memory:
            tracemalloc.start()
        begin = time.process_time()
        try:
            return fit(*arguments, **options)
        finally:
            spent["fitting"] += time.process_time() - begin
            spent["fits"] += 1
            if memory:
                peak = tracemalloc.get_traced_memory()[1] / MEGABYTE
                tracemalloc.stop()
                spent["working_memory"] = max(spent["working_memory"], peak)

    def timed_run(*arguments, **options):
        begin = time.process_time()
        path = run(*arguments, **options)
        spent["trajectories"] += time.process_time() - begin
        return path

    value_regression.fit, surrogate_dynamics.run = timed_fit, timed_run
    try:
        yield spent
    finally:
        value_regression.fit, surrogate_dynamics.run = fit, run


def measure_chain(algorithm, target, x, rng, memory=False) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws (n, d) after tuning, and what they cost."""
    sizes = []

    class Watched(algorithm):
        def freeze(self, state):
            sizes.append(len(pickle.dumps(state)) / MEGABYTE)  # the history only grows: the peak
            return super().freeze(state)

    tune = BUDGET // 2
    with metered(memory) as spent:
        chain = run_chain(Watched, target.numba_log_density, x, rng, tune=tune, draws=BUDGET - tune)
    state = chain.state
    return chain.draws, {
        **spent,
        "seconds": chain.tuning_seconds + chain.seconds,
        "evaluations": chain.evaluations,
        "acceptance": chain.acceptance,
        "state": sizes[0],
        "frozen_state": len(pickle.dumps(state)) / MEGABYTE,
        "family": state.fit.family if getattr(state, "fit", None) is not None else "none",
        "residual_sd": state.quality.residual_sd if hasattr(state, "quality") else math.nan,
    }


def warm_up():
    """Compile everything, so that it is in nobody's seconds."""
    rng = np.random.default_rng(0)
    for target in (StudentT(5.0, 3), Banana(0.03, 100.0, 3)):
        for algorithm in SAMPLERS.values():
            run_chain(algorithm, target.numba_log_density, np.ones(3), rng, tune=900, draws=50)
    for family in LIBRARY:
        library = (family,)
        run_chain(
            ValueKamiltonian, StudentT(5.0, 3).numba_log_density, np.ones(3), rng, tune=400, draws=20,
            library=library,
        )  # fmt: skip


# --- dimension -----------------------------------------------------------------------------------


def measure_dimension(family: str, d: int, sampler: str) -> dict[str, Any]:
    target = FAMILIES[family](d)
    sd = np.sqrt(np.diag(target.cov))
    draws, rows = [], []
    for chain, rng in enumerate(generators([d, list(FAMILIES).index(family)], CHAINS)):
        x = target.mean + sd * rng.uniform(-2.0, 2.0, d)
        target.numba_log_density(x)
        found, row = measure_chain(SAMPLERS[sampler], target, x, rng, memory=chain == 0)
        draws.append(found)
        rows.append(row)
    return summary(np.array(draws), rows, truth(target), sd)


def truth(target) -> MarginalTruth:
    exact = target.sample(np.random.default_rng(1), TRUTH_DRAWS)
    quantiles = np.quantile(exact, [0.1, 0.25, 0.75, 0.9], axis=0)
    return MarginalTruth(target.mean, np.diag(target.cov), quantiles)


def summary(draws, rows, reference, sd):
    import arviz as az

    evaluations = sum(r["evaluations"] for r in rows)
    rhat = np.asarray(az.rhat({"x": draws})["x"].values)
    efficiency = error_efficiency(draws, reference, evaluations / len(rows)).coordinates
    ess = bulk_ess(draws)
    timed = rows[1:] or rows  # the first traced its memory
    return {
        "ess": 1000.0 * ess.min() / evaluations,
        "ess_median": 1000.0 * float(np.median(ess)) / evaluations,
        "rhat": float(rhat.max()),
        "by_error": float(1.0 / np.mean(1.0 / efficiency)),
        "mean_error": float(np.abs((draws.mean((0, 1)) - reference.mean) / sd).max()),
        "sd_error": float(np.abs(draws.std((0, 1)) / sd - 1.0).max()),
        "families": [r["family"] for r in rows],
        **{
            k: float(np.mean([r[k] for r in timed]))
            for k in ("fitting", "trajectories", "seconds", "fits", "evaluations", "acceptance")
        },
        **{
            k: float(max(r[k] for r in rows))
            for k in ("working_memory", "state", "frozen_state", "residual_sd")
        },
    }


# --- the targets of cold_start -------------------------------------------------------------------


def measure_costs(name: str) -> dict[str, Any]:
    """Two chains of the same seed: one with its memory traced, one for the clock."""
    target, x = TARGETS[name], starts(name, 0)[0]
    target.numba_log_density(x)  # compiled
    begin = time.process_time()
    for _ in range(1000):
        target.numba_log_density(x)
    microseconds = 1000.0 * (time.process_time() - begin)
    _, traced = measure_chain(ValueKamiltonian, target, x, generators(7, 1)[0], memory=True)
    _, row = measure_chain(ValueKamiltonian, target, x, generators(7, 1)[0])
    return {**row, "working_memory": traced["working_memory"], "log_density": microseconds}


# --- store ---------------------------------------------------------------------------------------


@cache
def code() -> str:
    """Digest of what a cell is made with."""
    return provenance.digest(*provenance.RESULTS[NAME].modules)


def load() -> dict:
    path = RESULTS / f"{NAME}.json"
    return json.loads(path.read_text()) if path.exists() else {"dimension": {}, "costs": {}}


def save(store: dict) -> None:
    store["versions"] = versions()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.json").write_text(json.dumps(report.rounded(store), indent=1) + "\n")


# --- report --------------------------------------------------------------------------------------


def dimension_table(cells, family):
    head = [
        "d", "AM: ESS", "R-hat", "by error", "Kamiltonian: ESS", "R-hat", "by error", "mean error", "sd error",
        "acceptance", "residual sd", "family",
    ]  # fmt: skip
    rows = []
    for d in DIMENSIONS:
        am, own = (cells.get(f"{family} | {d} | {s}") for s in SAMPLERS)
        if am is None or own is None:
            continue
        rows.append(
            [
                f"{d}",
                *(digits(am[k]) for k in ("ess",)), f"{am['rhat']:.2f}", digits(am["by_error"]),
                digits(own["ess"]), f"{own['rhat']:.2f}", digits(own["by_error"]),
                digits(own["mean_error"]), digits(own["sd_error"]), f"{own['acceptance']:.2f}",
                digits(own["residual_sd"]), counted(own["families"]),
            ]
        )  # fmt: skip
    return table(head, rows)


def counted(families):
    """As "polynomial" or "polynomial 3, quadratic"."""
    counts = {f: families.count(f) for f in sorted(set(families), key=families.count, reverse=True)}
    if len(counts) == 1:
        return families[0]
    return ", ".join(f"{f} {n}" if n > 1 else f for f, n in counts.items())


def cost_row(cell):
    rest = cell["seconds"] - cell["fitting"] - cell["trajectories"]
    return [
        digits(cell["evaluations"]), f"{cell['fits']:.0f}", digits(cell["fitting"]), digits(cell["trajectories"]),
        digits(rest), digits(1e6 * cell["seconds"] / cell["evaluations"]), f"{cell['state']:.2f}",
        f"{cell['frozen_state']:.2f}", digits(cell["working_memory"]),
    ]  # fmt: skip


COSTS = [
    "evaluations", "fits", "fitting, s", "trajectories, s", "rest, s", "µs an evaluation", "state while tuning, MB",
    "after, MB", "a fit's working memory, MB",
]  # fmt: skip


def dimension_costs(cells):
    rows = []
    for family in FAMILIES:
        for d in DIMENSIONS:
            own = cells.get(f"{family} | {d} | Kamiltonian")
            if own is not None:
                rows.append([f"{family}, {d}", *cost_row(own)])
    return table(["target, d", *COSTS], rows)


def cold_start_costs(cells):
    rows = [
        [f"{name} ({TARGETS[name].dim})", digits(c["log_density"]), *cost_row(c), c["family"]]
        for name, c in cells.items()
    ]
    return table(["target (d)", "log density, µs", *COSTS, "family"], rows)


def message(d: int) -> str:
    """What KamiltonianStep prints when it stands aside."""
    import pymc as pm

    from pymc_kameleon import KamiltonianStep

    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    log = logging.getLogger("pymc.kameleon")
    log.addHandler(handler)
    with StudentT(5.0, d).pymc_model():
        pm.sample(
            draws=1, tune=1, chains=1, cores=1, step=KamiltonianStep(), progressbar=False, quiet=True,
            compute_convergence_checks=False, random_seed=1,
        )  # fmt: skip
    log.removeHandler(handler)
    return said[0]


def figure(cells):
    picture, panels = report.subplots(
        1, len(FAMILIES), figsize=(11.0, 3.6), sharey=True, sharex=True
    )
    limit = largest()
    for panel, family in zip(panels, FAMILIES, strict=True):
        for sampler, color in zip(SAMPLERS, ("0.45", "C0"), strict=True):
            found = [(d, cells.get(f"{family} | {d} | {sampler}")) for d in DIMENSIONS]
            found = [(d, c) for d, c in found if c]
            panel.plot(
                [d for d, _ in found], [c["ess"] for _, c in found], "-", color=color, lw=1.2
            )
            for agree, face in ((True, color), (False, "white")):
                points = [(d, c["ess"]) for d, c in found if (c["rhat"] < 1.05) == agree]
                if points:
                    panel.plot(*zip(*points, strict=True), "o", color=color, mfc=face, ms=5)
        panel.axvline(limit + 0.5, color="0.6", ls=":", lw=1)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS], fontsize=8)
        panel.minorticks_off()
        panel.set_title(family, fontsize=11)
        panel.set_xlabel("dimension")
        panel.grid(color="0.93")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("effective draws\nper 1000 evaluations")
    panels[0].plot([], [], "o-", color="C0", label="Kamiltonian")
    panels[0].plot([], [], "o-", color="0.45", label="adaptive Metropolis")
    panels[0].plot([], [], "o", color="0.2", mfc="white", label="R-hat 1.05 or more")
    panels[0].legend(frameon=False, fontsize=8, loc="lower left")
    panels[-1].text(
        limit, panels[-1].get_ylim()[1], "stands aside", ha="right", va="top", fontsize=8
    )
    picture.tight_layout()
    report.save_figure(picture, RESULTS / f"{NAME}.png")


def largest() -> int:
    """The largest dimension in which a surrogate is fitted at all."""
    return max(d for d in range(1, 300) if value_regression.affordable(d))


SUMMARY = """\
What the tables show. Up to 20 dimensions all three targets give some 200 to 560 effective draws per 1000 evaluations
with R-hat 1.00, where adaptive Metropolis gives 4 to 56 in 2 dimensions and 0.7 to 5 in 20. In 50 the normal target
is no harder (351). The banana is: every chain finds its terms among 6225 possible ones or some that replace them, but
the chains do not agree yet (R-hat 1.08; by error 12 against the random walk's 2.1). The t in 50 dimensions is not
learned at this budget: the step is then a random walk with a surrogate beside it, at the same efficiency (by error
1.2 against 1.5) and ten times the processor time. In 78, the last dimension with a surrogate, a single fit falls
within this tuning: better than a random walk on the normal target (7.7 against 0.26 by error), not yet good, and no
better on the other two. So: to 20 dimensions as it is; to 50 where the posterior is close to normal, or with more
tuning; beyond that another step. Fitting costs seconds to 20 dimensions and up to half a minute a chain in 50, where
its working memory is a third of a gigabyte, in 78 two thirds."""


def write_report(store):
    cells, limit = store["dimension"], largest()
    default = max(d for d in range(1, limit + 1) if first_fit(d) < 1000)
    parts = [
        "# KamiltonianStep and the dimension",
        f"{CHAINS} chains from over-dispersed single points, {BUDGET:,} evaluations each at most (a draw in which "
        f"nothing moved costs none), half of the draws tuning, defaults throughout (`benchmarks/{NAME}.py`). ESS: "
        "bulk, per 1000 evaluations, worst coordinate, tuning counted. By error: equivalent independent draws per "
        "1000 evaluations by squared error against the truth, all coordinates together. Mean error: of all draws, "
        "in standard deviations, worst coordinate; sd error relative. Residual sd: of log p - f out of sample, the "
        "worst chain's. Where R-hat is 1.05 or more (hollow in the figure) the ESS says that the chains disagree and "
        "little else; half of this budget does not get a random walk through its transient in 50 dimensions.",
        SUMMARY,
    ]
    for family in FAMILIES:
        parts += [f"## {family}", dimension_table(cells, family)]
    parts += [
        "## Where it stands aside",
        f"A quadratic in d dimensions has (d + 1)(d + 2) / 2 coefficients, {quadratic_size(limit):,} at d = {limit}; "
        f"the first is fitted to one and a half times as many evaluations, {first_fit(limit):,} at d = {limit}. "
        f"Beyond d = {limit} a fit would exceed its cap of {value_regression.MAX_WORK:.0e} multiply-adds, and the "
        "step is adaptive Metropolis from the start. It says so:",
        f"> {message(limit + 1)}",
        f"With PyMC's default of 1000 tuning draws the first fit falls within tuning up to d = {default}; above that "
        "tuning must be longer, and the step says that too.",
        "## Seconds and memory, a chain",
        "Processor time of the chain without its memory traced, mean over chains; rest: adaptation, the random walk "
        "and the log density itself. State: pickled `sampling_state` at the end of tuning, its largest, with every "
        "evaluated point in it, and after tuning. Working memory: peak of the largest fit, freed after it.",
        dimension_costs(cells),
    ]
    if store["costs"]:
        parts += [
            "## The targets of `cold_start.py`",
            f"One chain each, {BUDGET:,} evaluations, as above. These log densities cost microseconds, the surrogate "
            "adds 0.1 to 1 ms an evaluation: per second, it pays where the gain in effective draws per evaluation "
            "(`cold_start.md`) is larger than the ratio of (µs an evaluation) to (log density + some 10 µs).",
            cold_start_costs(store["costs"]),
        ]
    parts.append(store["versions"] + ".")
    stale = provenance.stale_cells(
        (key.split(" | ")[0], cell.get("code"), code())
        for part in PARTS
        for key, cell in store[part].items()
    )
    provenance.write(RESULTS / f"{NAME}.md", "\n\n".join(parts), stale_cells=stale)
    figure(cells)


def first_fit(d: int) -> int:
    return ValueKamiltonian().init(None, np.zeros(d)).learning.schedule.next_refit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--dimensions", nargs="+", type=int, default=list(DIMENSIONS))
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="only write the report again")
    a = parser.parse_args()
    jobs = []
    if "dimension" in a.part:
        jobs += [
            ("dimension", f"{family} | {d} | {sampler}", measure_dimension, (family, d, sampler))
            for d in a.dimensions
            for family in a.family
            for sampler in SAMPLERS
        ]
    if "costs" in a.part:
        jobs += [("costs", name, measure_costs, (name,)) for name in TARGETS]
    if not a.table:
        warm_up()
        for part, key, measure, arguments in jobs:
            if load()[part].get(key, {}).get("code") == code() and not a.again:
                continue
            cell, store = measure(*arguments), load()
            store[part][key] = cell | {"code": code()}
            save(store)
            print(key, {k: v for k, v in cell.items() if not isinstance(v, float)},
                  *(f"{k} {v:.3g}" for k, v in cell.items() if isinstance(v, float)), flush=True)  # fmt: skip
    write_report(load())


if __name__ == "__main__":
    main()
