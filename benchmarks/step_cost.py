"""What a draw costs: every step beside a no-op and ``pm.DEMetropolisZ``, in one run.

Processor time per draw after tuning on the 8-dimensional banana B(0.1, 100), whose log density costs next to
nothing, so that what is measured is the step. Twice: in a bare loop that calls ``step.step(point)``, and inside
the real ``pm.sample`` (one core, no progress bar), which adds its own recording of every draw. The steps take
turns, block by block, and the fastest block counts: other programs only ever add.

Then FastKameleonStep alone: draw 100,000 beside draw 1,000, after tuning and while tuning.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.step_cost

Two minutes; prints the tables and writes them, with a figure, under the name of the PyMC version.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator

from benchmarks import provenance, report
from benchmarks.basics import versions
from pymc_kameleon.steps import (
    AdaptiveMetropolisStep,
    FastKameleonStep,
    GaussianMixtureStep,
    KameleonStep,
)
from pymc_kameleon.targets import Banana

TARGET = Banana(0.1, 100.0, 8)
TUNE = 3200  # the steps' own default in 8 dimensions
REFERENCE = "pm.DEMetropolisZ"


class NoOp(BlockedStep):
    """Stays where it is: what is left is the loop's."""

    name = "no_op"
    default_blocked = True
    stats_dtypes_shapes = {"accept": (np.float64, [])}  # noqa: RUF012

    def __init__(self, vars=None, *, model=None, rng=None, **_):
        self.vars = pm.modelcontext(model).value_vars
        self.rng = get_random_generator(rng)

    def set_rng(self, rng):
        """Nothing is drawn."""

    def setup_chain(self, rng, tune, draws):
        """Nothing is drawn."""

    def step(self, point):
        """One draw: the same point."""
        return point, [{"accept": 1.0}]


STEPS = {
    "no-op": NoOp,
    "AdaptiveMetropolisStep": AdaptiveMetropolisStep,
    "KameleonStep, n = 1000": KameleonStep,
    "FastKameleonStep, D = 300": FastKameleonStep,
    "FastKameleonStep, D = 300, paper": partial(FastKameleonStep, preset="paper"),
    "GaussianMixtureStep": GaussianMixtureStep,
    REFERENCE: pm.DEMetropolisZ,
}


class Cost(NamedTuple):
    """Microseconds per draw, one entry a block or a run."""

    name: str
    loop: np.ndarray
    sample: np.ndarray


class Loop:
    """A step, its current point, and a clock."""

    def __init__(self, step_class, model):
        with model:
            self.step, self.point = step_class(rng=np.random.default_rng(1)), model.initial_point()

    def run(self, n):
        """Microseconds per draw of ``n`` draws."""
        step, point = self.step, self.point
        begin = time.process_time()
        for _ in range(n):
            point, _ = step.step(point)
        seconds = time.process_time() - begin
        self.point = point
        return 1e6 * seconds / n

    def tuned(self, n=TUNE):
        """After ``n`` draws of tuning."""
        self.run(n)
        self.step.stop_tuning()
        return self


def loop_costs(model, repeats, block):
    loops = [Loop(step, model).tuned() for step in STEPS.values()]
    return np.array([[loop.run(block) for loop in loops] for _ in range(repeats)]).T


def sample_costs(model, repeats, draws):
    with model:
        steps = [step() for step in STEPS.values()]
    costs = np.empty((len(steps), repeats))
    for r in range(repeats):
        for k, step in enumerate(steps):
            costs[k, r] = sample_cost(model, step, draws, seed=r)
    return costs


def sample_cost(model, step, draws, seed):
    """Microseconds per draw from the end of tuning to the end of ``pm.sample``."""
    begin = []
    stop_tuning = type(step).stop_tuning

    def and_start_the_clock():
        stop_tuning(step)
        begin.append(time.process_time())

    step.stop_tuning = and_start_the_clock
    with model:
        pm.sample(
            draws=draws, tune=TUNE, chains=1, cores=1, step=step, random_seed=seed, progressbar=False,
            compute_convergence_checks=False, return_inferencedata=False, quiet=True,
        )  # fmt: skip
    return 1e6 * (time.process_time() - begin[-1]) / draws


def long_run(model, repeats, block, late):
    """FastKameleonStep: (draw 100,000 over draw 1,000 after tuning, the same while tuning)."""
    loop, saved = Loop(FastKameleonStep, model).tuned(), []
    for n in (1000, late - 1000):
        loop.run(n)
        saved.append((loop.step.sampling_state, loop.point))
    costs = np.empty((repeats, 2))
    for row in costs:
        for k, (state, point) in enumerate(saved):
            loop.step.sampling_state, loop.point = state, point
            row[k] = loop.run(block)
    tuning = np.empty((3, 2))
    for row in tuning:
        loop = Loop(FastKameleonStep, model)
        loop.run(1000)
        row[:] = loop.run(late // 10 - 1000), loop.run(late - late // 10)
    return costs.min(axis=0), tuning.min(axis=0)


def table(costs):
    header = ["step", "loop: fastest", "median", "pm.sample: fastest", "median"]
    reference = next(c for c in costs if c.name == REFERENCE)
    rows = []
    for c in costs:
        values = [
            statistic(mine) / statistic(theirs)
            for mine, theirs in ((c.loop, reference.loop), (c.sample, reference.sample))
            for statistic in (np.min, np.median)
        ]
        rows.append([c.name, *(f"{v:.2f}" for v in values)])
    return report.table(header, rows)


def draw_figure(costs, path):
    reference = next(c for c in costs if c.name == REFERENCE)
    figure, panels = report.subplots(1, 2, figsize=(10, 3.2), sharey=True, sharex=True)
    y = np.arange(len(costs))[::-1]
    titles = ("in a bare loop", "inside pm.sample")
    for panel, title, attribute in zip(panels, titles, ("loop", "sample"), strict=True):
        unit = getattr(reference, attribute).min()
        ratios = [getattr(c, attribute).min() / unit for c in costs]
        colors = ["C0" if "Step" in c.name else "0.7" for c in costs]
        panel.barh(y, ratios, height=0.6, color=colors)
        panel.axvline(1.0, color="0.4", lw=1, ls=":")
        for place, ratio in zip(y, ratios, strict=True):
            panel.text(ratio + 0.01, place, f"{ratio:.2f}", va="center", fontsize=9)
        panel.set_title(title, fontsize=11)
        panel.set_xlabel(f"cost of a draw ({REFERENCE}: 1)")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(y, [c.name for c in costs])
    figure.suptitle(
        f"This package's steps (blue) and PyMC's, 8-d banana, after tuning; PyMC {pm.__version__}",
        fontsize=11,
    )
    figure.tight_layout()
    report.save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40, help="blocks a step in the loop")
    parser.add_argument("--block", type=int, default=1000, help="draws a block")
    parser.add_argument("--runs", type=int, default=8, help="runs of pm.sample a step")
    parser.add_argument("--draws", type=int, default=4000, help="draws a run, after tuning")
    parser.add_argument("--late", type=int, default=100_000, help="which draw is late")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    model = TARGET.pymc_model()
    loop = loop_costs(model, arguments.repeats, arguments.block)
    sample = sample_costs(model, arguments.runs, arguments.draws)
    costs = [Cost(*values) for values in zip(STEPS, loop, sample, strict=True)]
    after, tuning = long_run(model, arguments.repeats, arguments.block, arguments.late)
    reference = costs[-1].loop.min()
    sections = [
        f"# Cost of a draw, PyMC {pm.__version__}",
        f"8-d banana B(0.1, 100), after {TUNE:,} draws of tuning, processor time in units of a draw of "
        f"{REFERENCE} in the same column; the fastest and the median of {arguments.repeats} blocks of "
        f"{arguments.block:,} draws, taken in turns, and of {arguments.runs} runs of pm.sample with "
        f"{arguments.draws:,} draws. {versions()}. One draw of {REFERENCE} in the loop was {reference:.0f} "
        'microseconds on the machine that wrote this. The row "paper" is preset="paper": every move local and '
        "the feature covariance not truncated, D = 300 too.",
        table(costs),
        f"FastKameleonStep, D = 300, draw {arguments.late:,} over draw 1,000 after tuning, the fastest of "
        f"{arguments.repeats} blocks each, taken in turns: {after[1] / after[0]:.3f}. While tuning, which "
        "includes the refreshes of the features' covariance at growing intervals, the mean draw between "
        f"{arguments.late // 10:,} and {arguments.late:,} over that between 1,000 and "
        f"{arguments.late // 10:,}: {tuning[1] / tuning[0]:.2f}.",
    ]
    print("\n\n".join(sections))
    arguments.output.mkdir(parents=True, exist_ok=True)
    name = f"step_cost_pymc{pm.__version__.split('.')[0]}"
    draw_figure(costs, arguments.output / f"{name}.png")
    provenance.write(arguments.output / f"{name}.md", "\n\n".join(sections))


if __name__ == "__main__":
    main()
