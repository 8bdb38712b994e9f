"""Wall time of ``pk.sample``'s chains by workers.

    python -m benchmarks.few_evaluations_workers     # half an hour of wall time, on a machine that does nothing else

A part of the page of few_evaluations, which is written anew.
"""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import report
from benchmarks.cells import Benchmark, Cell, load
from benchmarks.targets import TARGETS, starts

NAME, TARGET = "few_evaluations_workers", "logistic"
ROWS = [  # seconds that an evaluation takes, evaluations in all, workers
    *((0.05, 2000, workers) for workers in (1, 2, 4, 8, 16)),
    *((0.05, 5000, workers) for workers in (1, 16)),
    *((0.5, 2000, workers) for workers in (1, 16)),
]


def of_row(nap: float, total: int, workers: int) -> Cell:
    return Cell(f"{workers} workers", f"{nap:g} s", total, 0)


def measure(cell: Cell) -> dict:
    """A whole run, tuning included, of a log density that sleeps: in threads, which sleep side by side."""
    from benchmarks.few_evaluations import plan
    from pymc_kameleon.samplers.pooled.chains import Chains, posterior
    from pymc_kameleon.sampling.workers import Elsewhere

    nap, count = float(cell.problem.split()[0]), int(cell.sampler.split()[0])

    def log_density(x):
        time.sleep(nap)
        return TARGETS[TARGET].numba_log_density(x)

    points = starts(TARGET, 0, 17)
    begin, computing = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(count) as executor, ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as threads:
        how = plan(TARGET, 16, cell.budget)
        chains = Chains(points[-1], points[:-1], np.random.SeedSequence(0), how, apply=threads.map)
        evaluate = Elsewhere(log_density, None, executor)
        evaluate.meanwhile = chains.ahead
        while not chains.done:
            asked = [request.position for request in chains.ask()]
            chains.tell(evaluate(asked, chains.evaluated.size) if asked else [])
    draws = posterior(chains)
    return {
        "wall": time.monotonic() - begin, "computing": time.process_time() - computing,
        "rounds": chains.rounds, "evaluations": chains.evaluated.size,
        "draws": hashlib.blake2b(draws.tobytes(), digest_size=8).hexdigest(),
    }  # fmt: skip


def table() -> str:
    """Seconds by workers, and by the size of a batch."""
    cells, rows = load(NAME), []
    for nap, total, count in ROWS:
        row, alone = (cells.get(of_row(nap, total, n)) for n in (count, 1))
        if row is None or alone is None:
            continue
        assert row["draws"] == alone["draws"]
        rows.append([
            f"{nap:g} s", f"{row['evaluations']:,}", count, f"{row['wall']:.1f}", f"{alone['wall'] / row['wall']:.1f}",
            f"{row['computing']:.1f}", row["rounds"],
        ])  # fmt: skip
    head = ["an evaluation takes", "evaluations", "workers", "seconds", "times as fast", "seconds of computing",
            "rounds"]  # fmt: skip
    return report.table(head, rows, left=0)


if __name__ == "__main__":
    from benchmarks import few_evaluations

    rows = [of_row(*row) for row in ROWS]
    benchmark, stored = Benchmark(NAME, measure, str), load(NAME)
    benchmark.run(cell for cell in rows if stored.get(cell, {}).get("code") != benchmark.code(cell.sampler))
    of = few_evaluations.BENCHMARK
    kept = {c: m for c, m in load(of.name).items() if c.sampler in of.packages or m["code"] == of.code(c.sampler)}
    of.write(kept)
