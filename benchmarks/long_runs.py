"""A million draws of every step, and a hundred thousand of tuning: whether memory grows, or the cost of a draw.

Each step in a process of its own on a three-dimensional normal with correlations, driven as ``pm.sample`` drives it but
with nothing kept; memory is the process's, after a collection. A tenth of the budget is how many draws of tuning there
are.

    python -m benchmarks.long_runs                        # all steps; fifteen minutes
    python -m benchmarks.long_runs --samplers CMAStep --budgets 100000
"""

import gc
import math
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.basics import nested
from benchmarks.cells import Benchmark, Cell

STEPS: dict[str, tuple[type, dict[str, Any]]] = {
    "AdaptiveMetropolisStep": (pk.AdaptiveMetropolisStep, {}),
    "KameleonStep": (pk.KameleonStep, {}),
    "KameleonStep, pca": (pk.KameleonStep, {"proposal": "pca", "n_history": 100}),
    "FastKameleonStep": (pk.FastKameleonStep, {}),
    "FastKameleonStep, screen=0": (pk.FastKameleonStep, {"screen": 0}),
    "GaussianMixtureStep": (pk.GaussianMixtureStep, {}),
    "KamiltonianStep": (pk.KamiltonianStep, {}),
    "KamiltonianStep, finite": (pk.KamiltonianStep, {"surrogate": "finite"}),
    "KamiltonianStep, lite": (pk.KamiltonianStep, {"surrogate": "lite", "n_history": 200}),
    "GaussianAdaptationStep": (pk.GaussianAdaptationStep, {}),
    "CMAStep": (pk.CMAStep, {}),
}
COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.5], [0.0, -0.5, 0.5]])
PRECISION = np.linalg.inv(COVARIANCE)
BLOCKS = 100
TUNE = 3000  # before the million
DIGITS = ("accept", "accepted", "model_logp", "nonfinite")  # always numbers


def normal() -> pm.Model:
    """N(0, COVARIANCE)."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=3)
        pm.Potential("target", -0.5 * (PRECISION * x[:, None] * x[None, :]).sum())
    return model


def megabytes() -> float:
    """Resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch:
    """Runs a step and keeps its times, its memory and moments, and no draw."""

    def __init__(self, name: str):
        step, options = STEPS[name]
        model = normal()
        self.step = step(model=model, **nested(step, options))
        self.point = model.initial_point()
        self.step.setup_chain(np.random.default_rng(1), 0, 0)
        gc.collect()
        gc.freeze()  # what is imported need not be looked at at every block's end

    def run(self, n: int) -> dict[str, Any]:
        """``n`` steps in ``BLOCKS`` blocks."""
        seconds, memory, wrong = [], [megabytes()], 0
        total, squares = np.zeros(3), np.zeros(3)
        for _ in range(BLOCKS):
            began = time.process_time()
            for _ in range(n // BLOCKS):
                self.point, [stats] = self.step.step(self.point)
                x = self.point["x"]
                total += x
                squares += x * x
                wrong += not all(math.isfinite(stats[name]) for name in DIGITS)
            seconds.append(time.process_time() - began)
            memory.append(megabytes())
        mean = total / n
        sd = np.sqrt(squares / n - mean**2)
        times = 1e6 * np.array(seconds) / (n // BLOCKS)
        true = np.sqrt(np.diag(COVARIANCE))
        return {
            "first": float(np.median(times[: BLOCKS // 10])), "last": float(np.median(times[-BLOCKS // 10 :])),
            "memory": memory[-1] - memory[1], "wrong": wrong, "n": n,
            "mean": float(np.abs(mean / true).max()), "sd": float(np.abs(np.log(sd / true)).max()),
        }  # fmt: skip


def state_bytes(step: Any) -> int:
    """Size of the sampling state's arrays."""
    seen: set[int] = set()

    def size(value):
        if id(value) in seen:
            return 0
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            return value.nbytes
        if isinstance(value, dict):
            return sum(size(v) for v in value.values())
        return sum(size(v) for v in value) if isinstance(value, list | tuple) else 0

    return size(step.algorithm_state)


def measure(cell: Cell) -> dict[str, Any]:
    """One step, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(alone, (cell.sampler, cell.budget))


def alone(name: str, draws: int) -> dict[str, Any]:
    """So many draws after a short tuning, then another chain's long tuning."""
    watch = Watch(name)
    for _ in range(TUNE):
        watch.point, _ = watch.step.step(watch.point)
    watch.step.stop_tuning()
    found = {"draws": watch.run(draws), "bytes_frozen": state_bytes(watch.step)}
    watch = Watch(name)
    return {**found, "tune": watch.run(draws // 10), "bytes_tuning": state_bytes(watch.step)}


def page(cells: dict[Cell, dict]) -> str:
    """Draws, and tuning."""
    drawn, tuned = [], []
    for name, found in ((n, m) for n in STEPS for c, m in cells.items() if c.sampler == n):
        d, t = found["draws"], found["tune"]
        rows = [
            [name, f"{r['n']:,}", f"{r['first']:.1f}", f"{r['last']:.1f}", f"{r['last'] / r['first']:.2f}",
             f"{r['memory']:+.1f}"]
            for r in (d, t)
        ]  # fmt: skip
        kilobytes = f"{found['bytes_frozen'] / 1024:.0f}"
        drawn.append([*rows[0], kilobytes, d["wrong"], f"{d['mean']:.4f}", f"{d['sd']:.4f}"])
        tuned.append([*rows[1], f"{found['bytes_tuning'] / t['n']:.0f}"])
    times = ["us, first tenth", "last tenth", "ratio", "MB"]
    return "\n\n".join([
        "# A million draws",
        f"{len(cells)} of {len(STEPS)} steps were run.",
        "`python -m benchmarks.long_runs`. Microseconds of processor time a draw (log density of a 3-d normal "
        "included), medians over the first and the last tenth; resident memory at the end less that after the first "
        "hundredth; draws whose statistics were not all numbers; largest error of a mean, in sds, and |log ratio| of "
        "an sd.",
        report.table(["step", "draws", *times, "state, kB", "not finite", "mean", "sd"], drawn),
        "## Long tuning",
        "While tuning a step keeps the states and the points that it learns from, all of them: memory grows with the "
        "number of tuning draws (bytes: of the state, for each tuning draw of three unknowns), and is given back when "
        "tuning ends. `learning_draws=` bounds it: the step learns from so many and is frozen from then on. "
        "Covariances forget the first third, refits become rarer as the points grow in number, and their work "
        "has a cap: the ratio says what that does to the time of a draw.",
        report.table(["step", "tuning draws", *times, "bytes a draw"], tuned),
    ])  # fmt: skip


if __name__ == "__main__":
    Benchmark("long_runs", measure, page).command(__doc__, list(STEPS), ["normal"], (1_000_000,))
