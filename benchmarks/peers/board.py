"""What is read off the cells of one budget: means over seeds, who has converged, ratios."""

import math

import numpy as np

from benchmarks.cold_start import SPAN, geometric
from benchmarks.peers.samplers import SAMPLERS
from benchmarks.peers.targets import TARGETS

CONVERGED = 1.05  # R-hat, of every seed


class Board:
    """The cells of one budget.

    Attributes
    ----------
    cells : dict of (sampler, target) to list of cells
        One of each seed, those that could be run.
    failed : dict of (sampler, target) to str
        Why it could not be run.
    """

    def __init__(self, cells: dict[str, dict], budget: int):
        self.budget, self.cells, self.failed = budget, {}, {}
        for key, cell in sorted(cells.items()):
            sampler, target, of, _ = key.split(" | ")
            if int(of) != budget or sampler not in SAMPLERS or target not in TARGETS:
                continue
            if "failed" in cell:
                self.failed[sampler, target] = cell["failed"]
            else:
                self.cells.setdefault((sampler, target), []).append(cell)
        for pair in self.cells:
            self.failed.pop(pair, None)
        both = self.cells.keys() | self.failed.keys()
        self.samplers = [s for s in SAMPLERS if any(pair[0] == s for pair in both)]
        self.targets = [t for t in TARGETS if any(pair[1] == t for pair in both)]

    def ess(self, sampler: str, target: str) -> float:
        """Effective draws per 1000 evaluations, geometric mean over seeds; NaN if there are none."""
        found = [c["ess"] for c in self.cells.get((sampler, target), [])]
        return geometric(found) if found and None not in found else math.nan

    def by_error(self, sampler: str, target: str) -> float:
        """Independent draws per 1000 evaluations that have the same errors; NaN if there are none."""
        found = [1.0 / c["by_error"] for c in self.cells.get((sampler, target), [])]
        return 1.0 / float(np.mean(found)) if found else math.nan

    def error(self, sampler: str, target: str, name: str) -> float:
        """Root mean square of ``mean_error`` or ``sd_error`` over seeds."""
        found = [c[name] for c in self.cells.get((sampler, target), [])]
        return float(np.sqrt(np.mean(np.square(found)))) if found else math.nan

    def rhat(self, sampler: str, target: str) -> float:
        """The largest of the seeds; infinite where there is none, as of one run."""
        found = [c["rhat"] for c in self.cells.get((sampler, target), [])]
        return max((math.inf if r is None else r for r in found), default=math.nan)

    def converged(self, sampler: str, target: str) -> bool:
        """Whether all runs of every seed agree."""
        return self.rhat(sampler, target) < CONVERGED

    def ratios(self, mine: str, theirs: str, score, *, converged: bool, span: bool) -> list[float]:
        """Of a score, target by target: where ``theirs`` has converged, or all; with the span's targets or without."""
        found = [
            score(mine, t) / score(theirs, t)
            for t in self.targets
            if (span or t not in SPAN) and (not converged or self.converged(theirs, t))
        ]
        return [r for r in found if math.isfinite(r)]

    def best(self, score, target: str, names) -> str | None:
        """The converged one with the largest score."""
        found = {
            s: score(s, target)
            for s in names
            if self.converged(s, target) and math.isfinite(score(s, target))
        }
        return max(found, key=found.get) if found else None
