"""Simulation-based calibration (Talts et al., 2018): six models by every step, whole chains from cold, ranks and bands.

For every replication parameters are drawn from the prior and data given them; a chain starts where ``pm.sample``
starts it, tunes and draws; the true values are ranked among its draws. Then the tuned kernel is put at the true values
and must leave the posterior as it is (:mod:`benchmarks.calibration.drive` says why both). Three controls have to fail.
Interrupted, it goes on from results/calibration.json; more replications are added to those that are there. Half an hour
of processor time for 100 replications.

    python -m benchmarks.calibration                                         # 300 replications of every cell
    python -m benchmarks.calibration --steps CMAStep --models simplex --replications 50
    python -m benchmarks.calibration --table                                 # only results/calibration.md and .png
"""

import argparse
import logging
import math
import time
import warnings
import zlib
from pathlib import Path

import numpy as np

from benchmarks import basics, provenance, report
from benchmarks.calibration import ranks
from benchmarks.calibration.drive import AFTER, LARGEST, RATIO_DROPPED, STEPS, Driver
from benchmarks.calibration.models import MODELS, NOISE_UNDERSTATED, problem

STORE = Path(__file__).parents[1] / "results" / "calibration.json"
BLOCK = 10  # replications between two writes
FAILS = 1e-3  # of a cell's smallest p-value times the number of its quantities
CONTROLS = (
    ("bounded", RATIO_DROPPED),
    ("black box", RATIO_DROPPED),
    (NOISE_UNDERSTATED, "AdaptiveMetropolisStep"),
)


def cells() -> list[tuple[str, str]]:
    """All (model, step)."""
    return [(model, step) for model in MODELS for step in STEPS]


def code(step: str) -> str:
    """Digest of what a step's cells depend on (after a change of how they are measured, delete the store)."""
    entry = STEPS["GaussianMixtureStep" if step == RATIO_DROPPED else step]
    return provenance.digest(*entry.modules)


def run(model: str, step: str, replications: int, deadline: float) -> None:
    """Add replications to a cell until there are so many, or time is over."""
    key, driver = f"{model} | {step}", None
    stream = zlib.crc32(key.encode())  # of random numbers: the cell's own
    while time.monotonic() < deadline:
        cell = report.load_cells(STORE).get(key, {})
        if cell.get("code") != code(step):
            cell = {
                "code": code(step),
                "ranks": "",
                "n": 0,
                "sums": None,
                "squares": None,
                "lag": 0.0,
                "seconds": 0.0,
            }
        if cell["n"] >= replications:
            return
        driver = driver or Driver(problem(model), step)
        began, first = time.process_time(), cell["n"]
        found = [
            driver.replicate((stream, first + i)) for i in range(min(BLOCK, replications - first))
        ]
        changes = np.array([change for _, change, _ in found])
        q = changes.shape[1]
        cell["ranks"] += "".join(chr(ord("a") + r) for ranked, _, _ in found for r in ranked)
        cell["sums"] = list(np.add(cell["sums"] or np.zeros(q), changes.sum(axis=0)))
        cell["squares"] = list(
            np.add(cell["squares"] or np.zeros(q), np.square(changes).sum(axis=0))
        )
        cell["lag"] += sum(lag for _, _, lag in found)
        cell["seconds"] += time.process_time() - began
        cell["n"] = first + len(found)
        report.save_cells(STORE, {key: report.rounded(cell)}, basics.versions())
    if driver:
        print(f"{time.strftime('%H:%M:%S')} {key}: {cell['n']}", flush=True)


class Verdict:
    """What a cell says.

    Attributes
    ----------
    n : int
        Replications.
    ranks : ndarray of shape (n, q)
    cold : float
        Smallest p-value of uniform ranks over the quantities, times their number.
    frozen : float
        Largest |z| of a change after the tuned kernel was put at the true values; NaN under noise.
    worst : str
        The quantity of the smallest p-value.
    """

    def __init__(self, model: str, cell: dict):
        self.n, names = cell["n"], problem(model).quantities
        q = len(names)
        self.ranks = np.frombuffer(cell["ranks"].encode(), np.uint8).reshape(-1, q).astype(
            int
        ) - ord("a")
        p = [ranks.p_value(self.ranks[:, k], LARGEST) for k in range(q)]
        self.cold, self.worst = min(1.0, min(p) * q), names[int(np.argmin(p))]
        mean = np.array(cell["sums"]) / self.n
        variance = np.array(cell["squares"]) / self.n - mean**2
        z = np.abs(mean) / np.sqrt(np.maximum(variance, 1e-300) / self.n)
        self.frozen = math.nan if problem(model).noisy else float(z.max())
        self.frozen_worst = names[int(np.argmax(z))]
        self.lag, self.seconds = cell["lag"] / self.n, cell["seconds"] / self.n

    @property
    def fails(self) -> bool:
        """Whether either test says so."""
        return self.cold < FAILS or self.frozen > 4.5

    def __str__(self):
        frozen = "" if math.isnan(self.frozen) else f", {self.frozen:.1f}"
        mark = "**fails** " if self.fails else ""
        which = f" ({self.worst})" if self.cold < 0.05 else ""
        p = (
            "< .001"
            if self.cold < FAILS
            else f"{self.cold:.2f}".lstrip("0")
            if self.cold < 0.995
            else "1"
        )
        return f"{mark}{p}{which}{frozen}; {self.n}"


def verdicts() -> dict[tuple[str, str], Verdict]:
    """Of all stored cells."""
    stored = report.load_cells(STORE)
    wanted = [*cells(), *CONTROLS]
    return {
        (model, step): Verdict(model, stored[f"{model} | {step}"])
        for model, step in wanted
        if f"{model} | {step}" in stored
    }  # fmt: skip


def table(found: dict[tuple[str, str], Verdict]) -> str:
    """The page."""
    of_steps = {cell: v for cell, v in found.items() if cell in set(cells())}
    rows = [[s, *(str(found.get((m, s), "–")) for m in MODELS)] for s in STEPS]
    costs = [
        [s, *(f"{found[m, s].lag:.2f}, {found[m, s].seconds:.2f} s" if (m, s) in found else "–" for m in MODELS)]
        for s in STEPS
    ]  # fmt: skip
    done = sorted({v.n for v in of_steps.values()})
    low = sum(v.cold < 0.05 for v in of_steps.values())
    failed = [f"{step} on {model}" for (model, step), v in of_steps.items() if v.fails]
    largest = max(
        (v.frozen for v in of_steps.values() if not math.isnan(v.frozen)), default=math.nan
    )
    controls = [
        [f"{step}, {model}", str(found[model, step])]
        for model, step in CONTROLS
        if (model, step) in found
    ]
    entries = [
        [name, e.tune, e.draws, ", ".join(f"{k}={v!r}" for k, v in e.options.items()) or "–"]
        for name, e in STEPS.items()
    ]  # fmt: skip
    return "\n\n".join([
        "# Simulation-based calibration",
        "`make calibrate`. In each cell: the smallest p-value of uniform ranks over the model's quantities (every "
        "unconstrained coordinate, and the log joint density), times their number, with the quantity where that is "
        "below .05; then the largest |z| of a change of their means after the tuned kernel was put at the true "
        f"values for {AFTER} draws (not under noise); then how many replications. **fails**: p below {FAILS}, "
        "or |z| above 4.5.",
        f"{len(of_steps)} of {len(cells())} cells, replications: {done[0]} to {done[-1]}. "
        f"{'No cell fails' if not failed else 'These fail: ' + ', '.join(failed)}; {low} have p below .05, where "
        f"{0.05 * len(of_steps):.1f} are expected; the largest |z| is {largest:.1f}. Every cell has parameters, "
        "data and random numbers of its own.",
        report.table(["step", *MODELS], rows),
        "![Empirical distributions of the ranks with bands](calibration.png)",
        "*Share of ranks below each of 1 to 19, less what uniform ranks have; a line for every quantity; shaded: where "
        "95 of 100 whole lines of uniform ranks stay. A cup upwards then downwards: draws too narrow; a shift: bias.*",
        "## Controls, which must fail",
        report.table(["wrong on purpose", "p, largest z; replications"], controls),
        "## Chains",
        "Every chain starts at the model's initial point, as in `pm.sample`, with options that bring it through all "
        f"its phases; {LARGEST} draws are kept of each, evenly.",
        report.table(["step", "tuning", "draws", "options"], entries),
        "Mean autocorrelation of neighbouring kept draws (it would widen the ranks' distribution), and processor "
        "seconds of a replication.",
        report.table(["step", *MODELS], costs),
        f"{basics.versions()}.",
    ])  # fmt: skip


def plot(found: dict[tuple[str, str], Verdict], path: Path) -> None:
    """A panel a cell: empirical distribution of the ranks, less that of uniform ones."""
    steps = [*STEPS, RATIO_DROPPED]
    figure, axes = report.subplots(
        len(steps), len(MODELS), figsize=(2.1 * len(MODELS), 1.45 * len(steps)), sharex=True, sharey=True,
        layout="constrained",
    )  # fmt: skip
    x = np.arange(1, LARGEST + 1)
    for row, step in zip(axes, steps, strict=True):
        for ax, model in zip(row, MODELS, strict=True):
            ax.tick_params(labelsize=7)
            if (model, step) not in found:
                ax.text(
                    0.5,
                    0.5,
                    "not run",
                    transform=ax.transAxes,
                    ha="center",
                    fontsize=7,
                    color="0.5",
                )
                continue
            verdict = found[model, step]
            low, high = ranks.band(verdict.n, LARGEST)
            uniform = x / (LARGEST + 1)
            ax.fill_between(x, low - uniform, high - uniform, color="0.88", lw=0)
            for k in range(verdict.ranks.shape[1]):
                last = k == verdict.ranks.shape[1] - 1
                ax.plot(
                    x, ranks.below(verdict.ranks[:, k], LARGEST) / verdict.n - uniform,
                    lw=1.4 if last else 0.8, color="#c44" if last else "#27a", alpha=0.9,
                )  # fmt: skip
            ax.text(
                0.97,
                0.9,
                f"n = {verdict.n}",
                transform=ax.transAxes,
                ha="right",
                va="top",
                fontsize=6,
            )
        row[0].set_ylabel(step.replace(", ", ",\n").replace("Step", "\nStep", 1), fontsize=7)
    for ax, model in zip(axes[0], MODELS, strict=True):
        ax.set_title(model, fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("rank", fontsize=7)
    axes[0, 0].set_ylim(-0.34, 0.34)
    figure.suptitle(
        "Ranks of the true values: blue parameters, red log density; last row: wrong on purpose",
        fontsize=10,
    )
    report.save_figure(figure, path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # that a chain is short is known
    logging.getLogger("pymc").setLevel(logging.ERROR)
    deadline = time.monotonic() + 60.0 * arguments.minutes
    if not arguments.table:
        chosen = [c for c in cells() if c[0] in arguments.models and c[1] in arguments.steps]
        for model, step in chosen + ([] if arguments.no_controls else list(CONTROLS)):
            run(model, step, arguments.replications, deadline)
    found = verdicts()
    text = table(found)
    print(text)
    plot(found, STORE.with_suffix(".png"))
    stored = report.load_cells(STORE)
    codes = [(step, stored[f"{model} | {step}"]["code"], code(step)) for model, step in found]
    provenance.write(STORE.with_suffix(".md"), text, stale_cells=provenance.stale_cells(codes))


if __name__ == "__main__":
    main()
