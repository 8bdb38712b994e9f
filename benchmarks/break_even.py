"""From how many milliseconds an evaluation on a step brings more effective draws a second than another sampler.

Steps as they ship and PyMC's, in the class that ``pm.sample`` drives, NUTS by differences and emcee.

    python -m benchmarks.break_even           # ten minutes, on a machine that does nothing else
"""

from functools import partial
from types import SimpleNamespace

import numpy as np

from benchmarks import basics, drive, few_evaluations, report
from benchmarks.basics import geometric
from benchmarks.cells import Benchmark, Cell, Cells
from benchmarks.report import digits, table
from benchmarks.rivals import Task, pymc_steps
from benchmarks.targets import CHAINS, TARGETS, Boxed, starts

OURS = ["KamiltonianStep", "FastKameleonStep", "KameleonStep", "GaussianMixtureStep", "AdaptiveMetropolisStep"]
PACKAGES = {"pm.DEMetropolisZ": "pymc", "pm.Slice": "pymc", "NUTS, differences": "pymc", "emcee": "emcee"}
PROBLEMS = {
    "lotka-volterra": "lynx-hare", "logistic": "logistic regression", "eight schools": "hierarchy, eight schools",
}  # fmt: skip
MILLISECONDS = np.geomspace(0.001, 1000.0, 60)


def stand(name: str) -> SimpleNamespace:
    """A target as :func:`benchmarks.drive.chains` takes it: in a model of the right shape."""
    target = TARGETS[name]
    return SimpleNamespace(
        name=name, log_density=target.numba_log_density, model=drive.stand_in(target.dim), starts=partial(starts, name),
        to_point=lambda x: {"x": np.array(x)}, ravel=lambda point: np.array(point["x"]),
    )  # fmt: skip


def run(cell: Cell) -> tuple[np.ndarray, int, float]:
    """Draws after tuning, (chains, n, d), evaluations in all, and seconds of computing."""
    log_density, budget = TARGETS[cell.problem].numba_log_density, cell.budget
    if cell.sampler == "emcee":
        counted, whole = basics.Counted(log_density, CHAINS * budget), cell._replace(budget=CHAINS * budget)
        seconds, draws = basics.timed(lambda: few_evaluations.emcee(whole, counted).values)
        return draws, counted.evaluations, seconds
    if cell.sampler == "NUTS, differences":
        counters = [basics.Counted(log_density, budget) for _ in range(CHAINS)]
        problem = Boxed(cell.problem)
        made = [pymc_steps.nuts(Task(problem, c, budget, cell.seed, k)) for k, c in enumerate(counters)]
        found, evaluations = [each.values[0] for each in made], sum(c.evaluations for c in counters)
        seconds = sum(each.seconds for each in made)
    else:
        options = {"evaluations": budget, "tune": budget // 2, "level": np.inf, "n_chains": CHAINS}
        chains = drive.chains(stand(cell.problem), cell.sampler, cell.seed, **options)
        found, evaluations = [chain.draws for chain in chains], sum(chain.evaluations for chain in chains)
        seconds = sum(chain.tuning_seconds + chain.seconds for chain in chains)
    n = min(map(len, found))
    return np.array([draws[-n:] for draws in found]), evaluations, seconds


def measure(cell: Cell) -> dict:
    if cell.sampler in OURS:
        run(cell._replace(budget=2000))  # what compiles, compiles now
    draws, evaluations, seconds = run(cell)
    ess = max(float(basics.bulk_ess(draws).min()), 1.0)
    return {
        "ess": ess / evaluations, "microseconds": 1e6 * seconds / evaluations, "rhat": basics.rhat(draws),
        "evaluations": evaluations,
    }  # fmt: skip


def measured(cells: Cells, problem: str) -> dict[str, tuple[float, float, float]]:
    """By sampler: effective draws and milliseconds per evaluation, geometric means over the seeds; the worst R-hat."""
    found = {}
    for sampler in [*OURS, *PACKAGES]:
        if made := [m for c, m in cells.items() if (c.sampler, c.problem) == (sampler, problem)]:
            ess, microseconds = (geometric([m[field] for m in made]) for field in ("ess", "microseconds"))
            found[sampler] = ess, 1e-3 * microseconds, max(m["rhat"] or np.inf for m in made)
    return found


def break_even(ours: tuple, other: tuple) -> float:
    """Milliseconds of an evaluation from which on ``ours`` brings more a second; inf if it never does."""
    (ess, own), (less, rest) = ours[:2], other[:2]
    if ess <= less:
        return 0.0 if less * own < ess * rest else np.inf
    return max(0.0, (less * own - ess * rest) / (ess - less))


def figure(cells: Cells) -> None:
    """Effective draws a second by the cost of an evaluation."""
    drawn, panels = report.subplots(1, len(PROBLEMS), figsize=(12.0, 4.4), sharey=True)
    for panel, (problem, title) in zip(panels, PROBLEMS.items(), strict=True):
        for sampler, (ess, own, _) in measured(cells, problem).items():
            style = "--" if sampler in PACKAGES else "-"
            panel.loglog(MILLISECONDS, 1e3 * ess / (MILLISECONDS + own), style, label=sampler)
        panel.set_title(title)
        panel.set_xlabel("milliseconds an evaluation")
    panels[0].set_ylabel("effective draws a second")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=5, frameon=False)
    report.save_figure(drawn, "break_even", 110, rect=(0, 0.12, 1, 1))


def page(cells: Cells) -> str:
    parts = []
    for problem, title in PROBLEMS.items():
        found = measured(cells, problem)
        rivals = [sampler for sampler in PACKAGES if sampler in found]
        rows = []
        for sampler, made in found.items():
            ess, own, rhat = made
            points = [digits(break_even(made, found[r])) for r in rivals] if sampler in OURS else ["" for _ in rivals]
            rows.append([sampler, digits(1e3 * ess), f"{rhat:.2f}", digits(1e3 * own), *points])
        head = ["", "effective draws per 1000 evaluations", "R-hat", "µs beside an evaluation", *rivals]
        parts += [f"## {title}", table(head, rows)]
    figure(cells)
    tables = "\n\n".join(parts)
    return report.page("break_even", locals())


if __name__ == "__main__":
    Benchmark("break_even", measure, page, PACKAGES).command(
        __doc__, [*OURS, *PACKAGES], list(PROBLEMS), [10_000], seeds=2
    )
