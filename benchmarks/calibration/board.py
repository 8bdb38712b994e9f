"""A cell of the calibration, so many replications of a step on a model, and the page of all."""

import math

import numpy as np

from benchmarks import report
from benchmarks.basics import number
from benchmarks.calibration import ranks
from benchmarks.calibration.drive import AFTER, LARGEST, RATIO_DROPPED, STEPS, Driver
from benchmarks.calibration.models import MODELS, NOISE_UNDERSTATED, problem
from benchmarks.cells import Benchmark, Cell

FAILS = 1e-3  # of a cell's smallest p-value times the number of its quantities
CONTROLS = (("bounded", RATIO_DROPPED), ("black box", RATIO_DROPPED), (NOISE_UNDERSTATED, "AdaptiveMetropolisStep"))


def measure(cell: Cell) -> dict:
    """Ranks as letters, sums over replications of what changed after the tuned kernel was put at the true values."""
    driver, stream = (Driver(problem(cell.problem), cell.sampler), number(f"{cell.problem} | {cell.sampler}"))
    replications = range(cell.seed * cell.budget, (cell.seed + 1) * cell.budget)
    found = [driver.replicate((stream, i)) for i in replications]
    changes = np.array([change for _, change, _ in found])
    return {
        "ranks": "".join(chr(ord("a") + r) for ranked, _, _ in found for r in ranked), "n": cell.budget,
        "sums": changes.sum(axis=0).tolist(), "squares": np.square(changes).sum(axis=0).tolist(),
        "lag": sum(lag for _, _, lag in found),
    }  # fmt: skip


class Verdict:
    """What the cells of a step on a model say: of ``n`` replications, with ``ranks`` (n, q).

    ``cold`` is the smallest p-value of uniform ranks over the quantities, times their number, ``worst`` its quantity;
    ``frozen`` the largest |z| of a change after the tuned kernel was put at the true values, NaN under noise.
    """

    def __init__(self, model: str, cells: list[dict]):
        names = problem(model).quantities
        q, self.n = len(names), sum(c["n"] for c in cells)
        letters = np.frombuffer("".join(c["ranks"] for c in cells).encode(), np.uint8)
        self.ranks = letters.reshape(-1, q).astype(int) - ord("a")
        p = [ranks.p_value(self.ranks[:, k], LARGEST) for k in range(q)]
        self.cold, self.worst = min(1.0, min(p) * q), names[int(np.argmin(p))]
        mean, square = (np.sum([c[k] for c in cells], axis=0) / self.n for k in ("sums", "squares"))
        z = np.abs(mean) / np.sqrt(np.maximum(square - mean**2, 1e-300) / self.n)
        self.frozen = math.nan if problem(model).noisy else float(z.max())
        self.lag, self.seconds = (sum(c[k] for c in cells) / self.n for k in ("lag", "seconds"))

    @property
    def fails(self) -> bool:
        return self.cold < FAILS or self.frozen > 4.5

    def __str__(self):
        frozen = "" if math.isnan(self.frozen) else f", {self.frozen:.1f}"
        which = f" ({self.worst})" if self.cold < 0.05 else ""
        p = "< .001" if self.cold < FAILS else f"{self.cold:.2f}".lstrip("0")
        return f"{'**fails** ' * self.fails}{p}{which}{frozen}; {self.n}"


def page(cells: dict[Cell, dict]) -> str:
    groups: dict[tuple, list] = {}
    for cell, made in sorted(cells.items()):
        groups.setdefault((cell.problem, cell.sampler), []).append(made)
    found = {pair: Verdict(pair[0], runs) for pair, runs in groups.items()}
    of_steps = {pair: v for pair, v in found.items() if pair not in CONTROLS}

    def by_model(text):
        rows = [[s, *(text(found[m, s]) if (m, s) in found else "–" for m in MODELS)] for s in STEPS]
        return report.table(["step", *MODELS], rows)

    low = sum(v.cold < 0.05 for v in of_steps.values())
    failed = [f"{step} on {model}" for (model, step), v in of_steps.items() if v.fails]
    n, largest = [v.n for v in of_steps.values()], np.nanmax([v.frozen for v in of_steps.values()])
    least, most = min(n), max(n)
    controls = [[f"{s}, {m}", str(found[m, s])] for m, s in CONTROLS if (m, s) in found]
    entries = [
        [name, e.tune, e.draws, ", ".join(f"`{k}={v!r}`" for k, v in e.options.items()) or "–"]
        for name, e in STEPS.items()
    ]
    made, whole, expected, after = len(of_steps), len(MODELS) * len(STEPS), 0.05 * len(of_steps), AFTER
    failed = f"These fail: {', '.join(failed)}" if failed else "No cell fails"
    verdicts, times = by_model(str), by_model(lambda v: f"{v.lag:.2f}, {v.seconds:.2f} s")
    controls = report.table(["wrong on purpose", "p, largest z; replications"], controls)
    options = report.table(["step", "tuning", "draws", "options"], entries)
    return report.page("calibration", globals() | locals())


BENCHMARK = Benchmark("calibration", measure, page)
