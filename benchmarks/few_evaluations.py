"""Effective draws from 500 to 5,000 log density evaluations in all: chains that learn together, beside others.

The twelve targets of ``cold_start``, from its over-dispersed starts; nothing is set by hand, and every evaluation
counts: starts, tuning and draws. A budget is a *total*, for all chains together.

- "together": ``pk.sample``'s chains (:mod:`pymc_kameleon.samplers.pooled`), 4, 16 and 64 of them;
- "alone": ``KamiltonianStep``'s sampler in four independent chains, with its arrival, half of the budget tuning;
- ``pm.DEMetropolisZ``, four chains, half of the budget tuning;
- emcee, 32 walkers, differential evolution and snooker moves, half of the budget thrown away. If it is installed.

Effective draws are ArviZ's bulk ones of the worst coordinate. R-hat is the worst coordinate's, rank-normalised, of all
chains (of an ensemble's walkers: they are no independent chains, and their R-hat says less). Errors are of the pooled
mean in posterior sds and of the log sd, root mean squares over coordinates. With four to eight draws a chain, or chains
that have not met, effective draws mean little: look at the errors.

    python -m benchmarks.few_evaluations                 # everything; --sampler, --target, --total, --chains, --seeds
    python -m benchmarks.few_evaluations --table         # the tables again, from results/few_evaluations.json
    python -m benchmarks.few_evaluations --workers       # wall time by workers; points in one call

Every cell is stored when it is done, with a digest of the code that made it, and not run again until that changes.
About 10 seconds of processor time a cell.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import basics, cold_start, core, provenance, report
from benchmarks.arriving import ArrivingWalk
from benchmarks.cold_start import TARGETS
from pymc_kameleon import convergence
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.chains import Plan

RESULTS = Path(__file__).parent / "results"
STORE, TEXT = RESULTS / "few_evaluations.json", RESULTS / "few_evaluations.md"
TOTALS, CHAINS, SEEDS = (500, 1000, 2000, 5000), (4, 16, 64), 3
ALONE = 4  # chains, where they learn alone
WALKERS = 32
LABELS = {
    "together": "together", "alone": "alone", "demetropolisz": "pm.DEMetropolisZ", "emcee": "emcee",
}  # fmt: skip
GOAL = (2000, 16, 300.0, 1.02)  # total, chains, effective draws, R-hat: on eight of the twelve


class Cell(NamedTuple):
    """One run."""

    sampler: str
    target: str
    total: int
    chains: int
    seed: int

    @property
    def key(self) -> str:
        """Its name in the store."""
        return " | ".join(map(str, self))


# --- samplers ---------------------------------------------------------------------------------------


def starts(cell: Cell, n: int) -> np.ndarray:
    """Over-dispersed points, shape (n, d): the same for every sampler."""
    rngs = basics.generators([cold_start._key(cell.target), cell.seed], n)
    return np.array([cold_start.start(cell.target, rng) for rng in rngs])


def together(cell: Cell, log_density: Callable) -> np.ndarray:
    """Draws (chains, n, d). The point that is evaluated first is a start, too: nobody knows a better one."""
    points = starts(cell, cell.chains + 1)
    chains = pooled_chains.Chains(
        points[-1], points[:-1], np.random.SeedSequence([cell.seed, cell.chains]), plan(cell)
    )
    while not chains.done:
        chains.tell([log_density(request.position) for request in chains.ask()])
    return pooled_chains.posterior(chains)


def plan(cell: Cell) -> Plan:
    """As ``pk.sample(max_evaluations=total)``."""
    longest = min(400 * TARGETS[cell.target].dim, cell.total // 2)
    return Plan(None, None, max(longest, 2 * cell.chains), cell.total)


def alone(cell: Cell, log_density: Callable) -> np.ndarray:
    """Four chains, each with its share of the budget."""
    budget = cell.total // ALONE
    found = [
        core.run_chain(
            ValueKamiltonian, log_density, x, rng, tune=budget // 2, draws=budget - budget // 2,
            walk=ArrivingWalk,
        )
        for x, rng in zip(starts(cell, ALONE), basics.generators([cell.seed, 1], ALONE), strict=True)
    ]  # fmt: skip
    n = min(len(chain.draws) for chain in found)
    return np.array([chain.draws[:n] for chain in found])


def demetropolisz(cell: Cell, log_density: Callable) -> np.ndarray:
    """PyMC's step; ``cold_start`` counts its evaluations, two a draw."""
    sampler = cold_start.SAMPLERS["demetropolisz"]
    budget = cell.total // ALONE
    rngs = basics.generators([cell.seed, 2], ALONE)
    found = [
        cold_start._pymc_chain(sampler, TARGETS[cell.target], x, rng, budget)
        for x, rng in zip(starts(cell, ALONE), rngs, strict=True)
    ]
    n = min(len(chain.draws) for chain in found)
    return np.array([chain.draws[:n] for chain in found])


def emcee(cell: Cell, log_density: Callable) -> np.ndarray:
    """Walkers are chains here."""
    import emcee as package

    moves = [(package.moves.DEMove(), 0.8), (package.moves.DESnookerMove(), 0.2)]
    points = starts(cell, WALKERS)
    sampler = package.EnsembleSampler(
        WALKERS, points.shape[1], lambda x: float(log_density(np.ascontiguousarray(x))), moves=moves
    )
    state = np.random.RandomState(cell.seed).get_state()
    sampler.run_mcmc(package.State(points, random_state=state), cell.total // WALKERS - 1)
    made = sampler.get_chain().swapaxes(0, 1)
    return made[:, made.shape[1] // 2 :]


RUN = {"together": together, "alone": alone, "demetropolisz": demetropolisz, "emcee": emcee}


def run(cell: Cell) -> dict:
    """What is stored of a cell."""
    target = TARGETS[cell.target]
    calls = 0

    def log_density(x):
        nonlocal calls
        calls += 1
        return target.numba_log_density(x)

    begin = time.process_time()
    draws = RUN[cell.sampler](cell, log_density)
    seconds = time.process_time() - begin
    judged = convergence.judge(draws)
    sd = np.sqrt(np.diag(target.cov))
    flat = draws.reshape(-1, target.dim)
    with np.errstate(all="ignore"):
        errors = (flat.mean(0) - target.mean) / sd, np.log(flat.std(0) / sd)
    return {
        "ess": judged.ess,
        "rhat": judged.rhat,
        "mean_error": float(np.sqrt(np.mean(np.square(errors[0])))),
        "sd_error": float(np.sqrt(np.mean(np.square(errors[1])))),
        "draws": draws.shape[1],
        "evaluations": calls,
        "seconds": seconds,
        "code": code(cell.sampler),
    }


@cache
def code(sampler: str) -> str:
    """Digest of the code that makes a sampler's cells."""
    roots = {
        "together": ("pymc_kameleon.samplers.pooled.chains",),
        "alone": ("pymc_kameleon.samplers.kamiltonian.values.sampler", "benchmarks.arriving"),
    }
    package = {"demetropolisz": "pymc", "emcee": "emcee"}.get(sampler)
    if package is None:
        return provenance.digest(*roots[sampler], *cold_start.TARGET_MODULES)
    return f"{package} {version(package)}, {provenance.digest(*cold_start.TARGET_MODULES)}"


# --- the store --------------------------------------------------------------------------------------


def load() -> dict:
    """Cells by key."""
    return report.load_cells(STORE)


def _rounded(cell):
    def short(v):
        if not isinstance(v, float):
            return v
        return float(f"{v:.4g}") if math.isfinite(v) else None

    return {name: short(value) for name, value in cell.items()}


def cells_of(samplers, targets, totals, chains, seeds) -> list[Cell]:
    """In the order in which they tell most."""
    found = []
    for sampler in samplers:
        sizes = chains if sampler == "together" else (ALONE,)
        found += [
            Cell(sampler, target, total, size, seed)
            for size in sizes
            for total in totals
            for seed in range(seeds)
            for target in targets
            if total >= 4 * size
        ]
    return sorted(found, key=lambda c: (c.seed, (c.total, c.chains) != GOAL[:2]))


def run_all(cells: list[Cell], minutes: float) -> None:
    """Run and store what the present code has not made."""
    deadline = time.monotonic() + 60.0 * minutes
    for cell in cells:
        stored = load().get(cell.key)
        if stored is not None and stored["code"] == code(cell.sampler):
            continue
        if time.monotonic() > deadline:
            print("stopped at the time limit; the same command goes on")
            return
        made = _rounded(run(cell))
        report.save_cells(STORE, {cell.key: made}, basics.versions())
        print(cell.key, {k: v for k, v in made.items() if k != "code"}, flush=True)


# --- tables -----------------------------------------------------------------------------------------


def _of(cells, *wanted):
    found = {}
    for key, cell in cells.items():
        sampler, target, total, chains, seed = key.split(" | ")
        if (sampler, int(total), int(chains)) == wanted:
            found.setdefault(target, {})[int(seed)] = cell
    return found


def _median(by_seed, name):
    values = [cell[name] for cell in by_seed.values() if cell[name] is not None]
    return float(np.median(values)) if values else math.nan


def goal_table(cells) -> str:
    """The goal's row, every seed by itself."""
    total, chains, least, most = GOAL
    found = _of(cells, "together", total, chains)
    lines = [
        f"## {total} evaluations in all, {chains} chains\n",
        "| target | effective draws, seed by seed | R-hat | error of means, sds | error of sds | reached |",
        "|---|---|---|---:|---:|---|",
    ]
    reached = 0
    for target in TARGETS:
        by_seed = found.get(target, {})
        if not by_seed:
            continue
        runs = [by_seed[seed] for seed in sorted(by_seed)]
        good = [r["ess"] >= least and (r["rhat"] or math.inf) < most for r in runs]
        reached += all(good)
        ess = ", ".join(f"{r['ess']:.0f}" for r in runs)
        rhat = ", ".join("-" if r["rhat"] is None else f"{r['rhat']:.3f}" for r in runs)
        lines.append(
            f"| {target} | {ess} | {rhat} | "
            f"{_median(by_seed, 'mean_error'):.2f} | {_median(by_seed, 'sd_error'):.2f} | "
            f"{sum(good)} of {len(good)} |"
        )
    lines.append(
        f"\n{reached} of {len(found)} targets have at least {least:.0f} effective draws and R-hat below {most} with "
        "every seed.\n"
    )
    return "\n".join(lines)


def total_table(cells, total: int) -> str:
    """Every sampler at one total: medians over seeds."""
    columns = [("together", size) for size in CHAINS] + [(s, ALONE) for s in RUN if s != "together"]
    found = {column: _of(cells, column[0], total, column[1]) for column in columns}
    columns = [column for column in columns if found[column]]
    if (
        columns in ([], [("together", GOAL[1])]) and total == GOAL[0]
    ):  # all of it stands in the goal's table
        return ""
    if not columns:
        return ""
    heads = [LABELS[s] + (f", {size} chains" if s == "together" else "") for s, size in columns]
    lines = [
        f"## {total} evaluations in all\n",
        "Effective draws; R-hat; errors of means and of sds. Medians over seeds.\n",
        f"| target | {' | '.join(heads)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for target in TARGETS:
        row = []
        for column in columns:
            by_seed = found[column].get(target)
            if not by_seed:
                row.append("")
                continue
            ess, rhat, mean, sd = (
                _median(by_seed, name) for name in ("ess", "rhat", "mean_error", "sd_error")
            )
            row.append(f"{ess:.0f}; {rhat:.3f}; {mean:.2f}, {sd:.2f}")
        lines.append(f"| {target} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def table(cells: dict) -> str:
    """The whole result."""
    parts = [
        "# Few evaluations\n",
        (__doc__ or "").split("\n\n    python")[0].split("\n", 2)[2] + "\n",
    ]
    parts += [goal_table(cells), *(total_table(cells, total) for total in TOTALS)]
    workers = STORE.with_name("few_evaluations_workers.json")
    if workers.exists():
        parts.append(worker_table(json.loads(workers.read_text())))
    return "\n".join(parts)


# --- wall time --------------------------------------------------------------------------------------


def by_workers(counts=(1, 2, 4, 8, 16), nap=0.05, total=2000, target="logistic") -> list[dict]:
    """Wall time of a whole run, tuning included, of a log density that sleeps: threads, which sleep side by side."""
    found = []
    for count in counts:

        def log_density(x):
            time.sleep(nap)
            return TARGETS[target].numba_log_density(x)

        cell = Cell("together", target, total, 16, 0)  # as pk.sample would
        points = starts(cell, 17)
        begin = time.monotonic()
        computing = time.process_time()
        with (
            ThreadPoolExecutor(count) as executor,
            ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as threads,
        ):
            chains = pooled_chains.Chains(
                points[-1], points[:-1], np.random.SeedSequence(0), plan(cell), apply=threads.map
            )
            while not chains.done:
                asked = [request.position for request in chains.ask()]
                chains.tell(list(executor.map(log_density, asked)))
        found.append(
            {
                "workers": count, "seconds": time.monotonic() - begin, "rounds": chains.rounds,
                "computing": time.process_time() - computing, "evaluations": chains.evaluated.size,
                "draws": pooled_chains.posterior(chains).tolist()[0][-1],
            }
        )  # fmt: skip
        print({k: v for k, v in found[-1].items() if k != "draws"}, flush=True)
    assert all(run["draws"] == found[0]["draws"] for run in found)  # the same bits
    return [{k: v for k, v in run.items() if k != "draws"} for run in found]


def predators(size: int):
    """A NumPy simulator: predators and prey by 400 steps of Runge and Kutta, ``size`` points at a time."""
    rates = np.array([0.55, 0.028, 0.84, 0.026]) * np.exp(
        0.1 * np.random.default_rng(0).standard_normal((size, 4))
    )

    def slope(y, a, b, c, d):
        return np.stack([y[0] * (a - b * y[1]), y[1] * (d * y[0] - c)])

    y, h = np.array([[30.0], [4.0]]) * np.ones(size), 0.05
    for _ in range(400):
        first = slope(y, *rates.T)
        second = slope(y + 0.5 * h * first, *rates.T)
        third = slope(y + 0.5 * h * second, *rates.T)
        y = y + h / 6.0 * (first + 2.0 * second + 2.0 * third + slope(y + h * third, *rates.T))
    return y


def by_batch(sizes=(1, 4, 16, 64), repeats=5) -> dict[str, float]:
    """Seconds a point of :func:`predators`, by the size of the batch: least of ``repeats``, taken in turns."""
    found = dict.fromkeys(sizes, math.inf)
    for _ in range(repeats):
        for size in sizes:
            begin = time.perf_counter()
            predators(size)
            found[size] = min(found[size], (time.perf_counter() - begin) / size)
    return {str(size): seconds for size, seconds in found.items()}


def worker_table(measured: dict) -> str:
    """Seconds by workers, and by the size of a batch."""
    parts = [
        "## Wall time by workers\n",
        "`logistic`, 16 chains, 2,000 evaluations; tuning and all computing of the driver included. The same bits with "
        'any number of workers. An evaluation sleeps; "computing" is the driver\'s processor time, on a server of two '
        "cores: what is less than that does not show in the wall time. The last columns are what the rounds alone "
        "allow.\n",
        "| an evaluation takes | workers | seconds | times as fast | seconds of computing | evaluations | rounds | "
        "evaluations a round |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for nap, runs in measured["workers"].items():
        first = runs[0]["seconds"]
        parts += [
            f"| {float(nap):g} s | {r['workers']} | {r['seconds']:.1f} | {first / r['seconds']:.1f} | "
            f"{r['computing']:.1f} | {r['evaluations']} | {r['rounds']} | {r['evaluations'] / r['rounds']:.1f} |"
            for r in runs
        ]
    single = measured["batches"]["1"]
    parts += [
        "\n## Points in one call\n",
        'What `pk.sample(executor="vectorized")` and a `BatchedBlackBox` can save: a simulator in NumPy (Lotka and '
        "Volterra's equations, 400 steps of Runge and Kutta) by the number of points in a call.\n",
        "| points a call | milliseconds a point | times as fast |",
        "|---:|---:|---:|",
    ]
    parts += [
        f"| {size} | {1e3 * seconds:.3f} | {single / seconds:.1f} |"
        for size, seconds in measured["batches"].items()
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sampler", nargs="*", choices=list(RUN), default=list(RUN))
    parser.add_argument("--target", nargs="*", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--total", nargs="*", type=int, default=TOTALS)
    parser.add_argument("--chains", nargs="*", type=int, default=CHAINS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--table", action="store_true", help="only the tables")
    parser.add_argument("--workers", action="store_true", help="wall time by workers")
    chosen = parser.parse_args()
    if chosen.workers:
        measured = {
            "workers": {
                "0.05": by_workers((1, 2, 4, 8, 16), 0.05),
                "0.5": by_workers((4, 16), 0.5),
            },
            "batches": by_batch(),
        }
        STORE.with_name("few_evaluations_workers.json").write_text(
            json.dumps(measured, indent=1) + "\n"
        )
    elif not chosen.table:
        samplers = [s for s in chosen.sampler if s != "emcee" or find_spec("emcee")]
        run_all(
            cells_of(samplers, chosen.target, chosen.total, chosen.chains, chosen.seeds),
            chosen.minutes,
        )
    cells = load()
    names = {key: key.split(" | ")[0] for key in cells}
    codes = [(names[key], cell["code"], code(names[key])) for key, cell in cells.items()]
    provenance.write(TEXT, table(cells), stale_cells=provenance.stale_cells(codes))


if __name__ == "__main__":
    main()
