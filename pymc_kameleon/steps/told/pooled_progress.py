"""One bar for a run, in evaluations."""

import math
import time
from typing import Any

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column


class Progress:
    """A context in which a run, a ``Chains``, tells where it is; shows nothing unless ``wanted``."""

    def __init__(self, wanted: bool, run: Any, max_evaluations, target_ess):
        self.run, self.most, self.target = run, max_evaluations, target_ess
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.completed}{task.fields[of]} evaluations"),
            TextColumn("{task.fields[said]}", table_column=Column(no_wrap=False, overflow="fold")),
            disable=not wanted,
        )
        self.said = ""

    def __enter__(self):
        self.begin = time.perf_counter()
        self.bar.start()
        of = "" if self.most is None else f"/{self.most}"
        self.task = self.bar.add_task("start", total=self.most, said="", of=of)
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def update(self, judged: Any) -> None:
        """Show the round that has ended."""
        if self.bar.disable:
            return
        run = self.run
        if not math.isnan(judged.ess):
            rhat = judged.rhat if math.isnan(judged.nested) else judged.nested
            self.said = f"{judged.ess:.0f} effective draws, R-hat {rhat:.3f}{self._remaining(judged.ess)}"
        nonfinite = f"{run.nonfinite} not finite" if run.nonfinite else ""
        self.bar.update(
            self.task,
            completed=run.evaluated.size,
            description=run.phase,
            said=", ".join(filter(None, [self.said, self._surrogate(), nonfinite])),
        )

    def _remaining(self, ess):
        """The expected time to the target, from the measured seconds per evaluation."""
        if self.target is None or not ess > 0:
            return ""
        run = self.run
        before = run.warmup[-1].evaluations if run.warmup else 0
        per_draw = (run.evaluated.size - before) / ess
        seconds = (time.perf_counter() - self.begin) / run.evaluated.size
        return f", {max(0.0, self.target - ess) * per_draw * seconds:.0f} s to {self.target:g}"

    def _surrogate(self):
        hub = self.run.hub
        if hub is None or hub.fit is None:
            return ""
        if hub.learning is None:
            error, uncovered = hub.quality.residual_sd, hub.quality.uncovered
            return f"surrogate off by {error:.2g}, {uncovered:.0%} uncovered"
        return f"surrogate off by {hub.fit.residual_sd:.2g}, {hub.learning.schedule.refits} fits"
