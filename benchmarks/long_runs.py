"""A million draws of every step, and a hundred thousand of tuning: whether memory grows, or the cost of a draw.

Each step in a process of its own on a three-dimensional normal with correlations, driven as ``pm.sample`` drives it but
with nothing kept: times are processor time, medians over blocks; memory is the process's, after a collection. The last
columns compare all draws' means and standard deviations with the true ones. Interrupted, it goes on from
results/long_runs.json. Fifteen minutes.

    python -m benchmarks.long_runs                        # all steps
    python -m benchmarks.long_runs --steps CMAStep --draws 100000
"""

import argparse
import gc
import logging
import math
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep

import pymc_kameleon as pk
from benchmarks import basics, provenance, report

STORE = Path(__file__).parent / "results" / "long_runs.json"
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
}  # fmt: skip
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
        self.step = step(model=model, **options)
        self.point = model.initial_point()
        rng = np.random.default_rng(1)
        if hasattr(BlockedStep, "setup_chain"):
            self.step.setup_chain(rng, 0, 0)
        else:
            self.step.set_rng(rng)
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


def measure(name: str, draws: int, tune: int) -> dict[str, Any]:
    """One step: a million draws after a short tuning, then another chain's long tuning."""
    watch = Watch(name)
    for _ in range(TUNE):
        watch.point, _ = watch.step.step(watch.point)
    watch.step.stop_tuning()
    drawn = watch.run(draws)
    bytes_frozen = state_bytes(watch.step)
    watch = Watch(name)
    tuned = watch.run(tune)
    bytes_tuning = state_bytes(watch.step)
    return {
        "draws": drawn, "tune": tuned, "bytes_frozen": bytes_frozen, "bytes_tuning": bytes_tuning,
        "code": code(name),
    }  # fmt: skip


def code(name: str) -> str:
    """Digest of a step's sampler and of the steps' base."""
    step, options = STEPS[name]
    variant = options.get(step.chooses) or next(iter(step.variants))
    screened = options.get("screen", step.screens)
    more = ["pymc_kameleon.samplers.screened"] if screened else []
    return provenance.digest(step.variants[variant].__module__, "pymc_kameleon.steps.base", *more)


def table(cells: dict[str, dict]) -> str:
    """The page."""
    drawn, tuned = [], []
    for name in (n for n in STEPS if n in cells):
        d, t = cells[name]["draws"], cells[name]["tune"]
        drawn.append([
            name, f"{d['n']:,}", f"{d['first']:.1f}", f"{d['last']:.1f}", f"{d['last'] / d['first']:.2f}",
            f"{d['memory']:+.1f}", f"{cells[name]['bytes_frozen'] / 1024:.0f}", d["wrong"], f"{d['mean']:.4f}",
            f"{d['sd']:.4f}",
        ])  # fmt: skip
        tuned.append([
            name, f"{t['n']:,}", f"{t['first']:.1f}", f"{t['last']:.1f}", f"{t['last'] / t['first']:.2f}",
            f"{t['memory']:+.1f}", f"{cells[name]['bytes_tuning'] / t['n']:.0f}",
        ])  # fmt: skip
    return "\n\n".join([
        "# A million draws",
        f"{len(cells)} of {len(STEPS)} steps were run.",
        "`python -m benchmarks.long_runs`. Microseconds of processor time a draw (log density of a 3-d normal "
        "included), medians over the first and the last tenth; resident memory at the end less that after the first "
        "hundredth; "
        "draws whose statistics were not all numbers; largest error of a mean, in sds, and |log ratio| of an sd.",
        report.table(
            ["step", "draws", "us, first tenth", "last tenth", "ratio", "MB", "state, kB", "not finite", "mean", "sd"],
            drawn,
        ),
        "## Long tuning",
        "While tuning a step keeps the states and the points that it learns from, all of them: memory grows with the "
        "number of tuning draws (bytes: of the state, for each tuning draw of three unknowns), and is given back when "
        "tuning ends. `learning_draws=` bounds it: the step learns from so many and is frozen from then on. "
        "Covariances forget the first third, refits become rarer as the points grow in number, and their work "
        "has a cap: the ratio says what that does to the time of a draw.",
        report.table(["step", "tuning draws", "us, first tenth", "last tenth", "ratio", "MB", "bytes a draw"], tuned),
        f"{basics.versions()}.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--tune", type=int, default=100_000)
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--one", action="store_true", help="in this process, and print nothing")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for name in [] if arguments.table else arguments.steps:
        if arguments.one:
            found = measure(name, arguments.draws, arguments.tune)
            report.save_cells(STORE, {name: report.rounded(found)}, basics.versions())
        elif arguments.again or report.load_cells(STORE).get(name, {}).get("code") != code(name):
            command = [sys.executable, "-m", "benchmarks.long_runs", "--one", "--steps", name]
            command += ["--draws", str(arguments.draws), "--tune", str(arguments.tune)]
            subprocess.run(command, check=True)
            print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    if not arguments.one:
        cells = report.load_cells(STORE)
        text = table(cells)
        print(text)
        stale = provenance.stale_cells([(n, c["code"], code(n)) for n, c in cells.items()])
        provenance.write(STORE.with_suffix(".md"), text, stale_cells=stale)


if __name__ == "__main__":
    main()
