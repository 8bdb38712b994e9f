"""Wall time by workers, and by the number of points in a call."""

import hashlib
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks import provenance
from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations.samplers import Cell, plan, starts
from pymc_kameleon.samplers.modes.chains import Chains
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.workers import Elsewhere

STORE = Path(__file__).parents[1] / "results" / "few_evaluations_workers.json"


ROWS = [  # seconds that an evaluation takes, evaluations in all, workers
    *((0.05, 2000, workers) for workers in (1, 2, 4, 8, 16)),
    *((0.05, 5000, workers) for workers in (1, 16)),
    *((0.5, 2000, workers) for workers in (1, 16)),
]
TARGET = "logistic"


def with_workers(nap: float, total: int, count: int) -> dict:
    """A whole run, tuning included, of a log density that sleeps: in threads, which sleep side by side."""

    def log_density(x):
        time.sleep(nap)
        return TARGETS[TARGET].numba_log_density(x)

    cell = Cell("together", TARGET, total, 16, 0)  # as pk.sample would
    points = starts(cell, 17)
    begin, computing = time.monotonic(), time.process_time()
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
    draws = pooled_chains.posterior(chains)
    return {
        "seconds": time.monotonic() - begin, "computing": time.process_time() - computing,
        "rounds": chains.rounds, "evaluations": chains.evaluated.size,
        "draws": hashlib.blake2b(draws.tobytes(), digest_size=8).hexdigest(),
    }  # fmt: skip


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
        f"`{TARGET}`, 16 chains; tuning and all computing of the driver included. The same bits with any number of "
        'workers. An evaluation sleeps; "computing" is the driver\'s processor time, on a server of two cores: what of '
        "it goes on while workers evaluate does not show in the wall time.\n",
        "| an evaluation takes | evaluations | workers | seconds | times as fast | seconds of computing | rounds |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for nap, total, count in ROWS:
        row, alone = (measured["rows"].get(_key(nap, total, n)) for n in (count, 1))
        if row is None or alone is None:
            continue
        assert row["draws"] == alone["draws"]
        parts.append(
            f"| {nap:g} s | {row['evaluations']:,} | {count} | {row['seconds']:.1f} | "
            f"{alone['seconds'] / row['seconds']:.1f} | {row['computing']:.1f} | {row['rounds']} |"
        )
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


def _key(nap, total, count):
    return f"{nap:g} s, {total}, {count} workers"


def measure(counts=None) -> None:
    """What is not stored of it; half an hour of wall time, on a machine that does nothing else."""
    measured = json.loads(STORE.read_text()) if STORE.exists() else {"rows": {}}
    code = provenance.digest("pymc_kameleon.samplers.modes.chains", "pymc_kameleon.workers")
    for row in ROWS:
        stored = measured["rows"].get(_key(*row))
        if (counts is None or row[2] in counts) and (stored is None or stored["code"] != code):
            measured["rows"][_key(*row)] = {**with_workers(*row), "code": code}
            print(_key(*row), measured["rows"][_key(*row)], flush=True)
            STORE.write_text(json.dumps(measured, indent=1) + "\n")
    if "batches" not in measured:
        measured["batches"] = by_batch()
        STORE.write_text(json.dumps(measured, indent=1) + "\n")
