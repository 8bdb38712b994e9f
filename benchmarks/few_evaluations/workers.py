"""Wall time by workers, and by the number of points in a call."""

import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations.samplers import Cell, plan, starts
from pymc_kameleon.samplers.modes.chains import Chains
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.workers import Elsewhere

STORE = Path(__file__).parents[1] / "results" / "few_evaluations_workers.json"


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
            chains = Chains(
                points[-1], points[:-1], np.random.SeedSequence(0), plan(cell), apply=threads.map
            )
            evaluate = Elsewhere(log_density, None, executor)
            evaluate.meanwhile = chains.ahead
            while not chains.done:
                asked = [request.position for request in chains.ask()]
                chains.tell(evaluate(asked, chains.evaluated.size) if asked else [])
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


def table(measured: dict) -> str:
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


def measure() -> None:
    """All of it; eight minutes of wall time on a machine that does nothing else."""
    measured = {
        "workers": {
            "0.05": by_workers((1, 2, 4, 8, 16), 0.05),
            "0.5": by_workers((4, 16), 0.5),
        },
        "batches": by_batch(),
    }
    STORE.write_text(json.dumps(measured, indent=1) + "\n")
