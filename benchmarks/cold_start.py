"""Effective draws per log density evaluation from a cold start, beside PyMC's gradient-free steps.

Twelve targets. A budget is a number of *log density evaluations* per chain, start and tuning included, because that is
what an expensive likelihood is paid in: ``pm.DEMetropolisZ`` evaluates twice in a draw (the current point again) and so
gets half as many draws, ``pm.Slice`` and ``pm.Metropolis`` pay by the coordinate. Beside effective draws, which cannot
see what no chain has visited, squared errors against the truth (``measures.error_efficiency``).

    python -m benchmarks.cold_start                        # 10,000 evaluations a chain, five seeds; 50 minutes
    python -m benchmarks.cold_start --budgets 30000 --seeds 1 --samplers kamiltonian
"""

import importlib
import math

import numpy as np

from benchmarks import basics, core, drive, report
from benchmarks.basics import geometric
from benchmarks.cells import Benchmark, Cell
from benchmarks.measures import error_efficiency
from benchmarks.report import digits, table
from benchmarks.targets import CHAINS, SPAN, TARGETS, starts, truth
from pymc_kameleon.samplers.screened import Screened

CONVERGED = 1.05  # R-hat
SAMPLERS = {  # label; "module:Class" of the package's samplers, or a step of PyMC's
    "adaptive_metropolis": ("AdaptiveMetropolis", "adaptive_metropolis:AdaptiveMetropolis"),
    "kameleon": ("Kameleon", "kameleon.full:Kameleon"),
    "fast_kameleon_screened": ("FastKameleon", "kameleon.fast:FastKameleon"),
    "fast_kameleon": ("FastKameleon, screen=0", "kameleon.fast:FastKameleon"),
    "gaussian_mixture": ("GaussianMixture", "gaussian_mixture.sampler:GaussianMixture"),
    "kamiltonian": ("Kamiltonian", "kamiltonian.values.sampler:ValueKamiltonian"),
    "demetropolisz": ("pm.DEMetropolisZ", "pm.DEMetropolisZ"),
    "demetropolisz_lambda": ("… tune=lambda", "pm.DEMetropolisZ:tune=lambda"),
    "demetropolisz_keep": ("… drop fraction 0", "pm.DEMetropolisZ:tune_drop_fraction=0.0"),
    "slice": ("pm.Slice", "pm.Slice"),
    "metropolis": ("pm.Metropolis", "pm.Metropolis"),
}
PYMC = tuple(name for name, (_, made) in SAMPLERS.items() if made.startswith("pm."))
OURS = tuple(name for name in SAMPLERS if name not in PYMC)
SCREEN = {"fast_kameleon_screened": 10}  # as the step's default: so many transitions make one screened move


def own(name: str):
    """The class of one of our samplers, or what else makes it of options."""
    module, _, kind = SAMPLERS[name][1].partition(":")
    inner = getattr(importlib.import_module(f"pymc_kameleon.samplers.{module}"), kind)
    if name not in SCREEN:
        return inner
    return lambda **options: Screened(inner=inner(**options), transitions=SCREEN[name])


def run(cell: Cell) -> list:
    """Chains: with ``draws``, ``evaluations``, ``tuning_seconds`` and ``seconds``."""
    rngs = basics.generators([basics.number(cell.problem), basics.number(cell.sampler), cell.seed], CHAINS)
    log_density, tune = TARGETS[cell.problem].numba_log_density, cell.budget // 2
    found = []
    for x, rng in zip(starts(cell.problem, cell.seed), rngs, strict=True):
        if cell.sampler in OURS:  # at most one evaluation in a draw, so half of the draws are tuning
            found.append(core.run_chain(own(cell.sampler), log_density, x, rng, tune=tune, draws=cell.budget - tune))
        else:
            counted = basics.Counted(log_density, cell.budget)
            parts = drive.pymc_step(None, SAMPLERS[cell.sampler][1], x, rng, counted)
            found.append(drive.walk(*parts, counted, tune))
    return found


def measure(cell: Cell) -> dict:
    return measured(run(cell), truth(cell.problem))


def measured(chains, reference) -> dict:
    """Efficiencies per 1000 evaluations: of the worst coordinate; by error, of every chain and coordinate."""
    evaluations, n = sum(c.evaluations for c in chains), min(len(c.draws) for c in chains)
    draws = np.array([c.draws[-n:] for c in chains])
    ess = basics.bulk_ess(draws).min() if n >= 4 else 1.0
    mean_error = np.abs(draws.mean((0, 1)) - reference.mean) / np.sqrt(reference.variance)
    # by chain: the harmonic mean over chains is that of all together
    by_error = [error_efficiency(c.draws[None], reference, c.evaluations).tolist() for c in chains]
    return {
        "ess": 1000.0 * max(ess, 1.0) / evaluations, "rhat": basics.rhat(draws) if n >= 4 else math.nan,
        "mean_error": float(mean_error.max()), "by_error": by_error,
        "evaluations": evaluations, "draws": n, "seconds": sum(c.tuning_seconds + c.seconds for c in chains),
    }  # fmt: skip


class Board:
    """The cells of one budget, and what is read off them."""

    def __init__(self, cells: dict[Cell, dict], budget: int):
        self.cells: dict[tuple[str, str], dict[int, dict]] = {}
        for cell, found in cells.items():
            if cell.budget == budget:
                self.cells.setdefault((cell.sampler, cell.problem), {})[cell.seed] = found
        self.samplers = [s for s in SAMPLERS if any(k[0] == s for k in self.cells)]
        self.targets = [t for t in TARGETS if any(k[1] == t for k in self.cells)]
        self.head = ["target", *(SAMPLERS[s][0] for s in self.samplers)]

    def ess(self, sampler, target):
        return geometric([c["ess"] for c in self.cells.get((sampler, target), {}).values()])

    def error(self, sampler, target):
        """Squared-error efficiency of the worst coordinate, over the chains of all seeds."""
        if (sampler, target) not in self.cells:
            return math.nan
        squared = 1.0 / np.concatenate([c["by_error"] for c in self.cells[sampler, target].values()])  # (chains, d)
        return float((1.0 / squared.mean(axis=0)).min())

    def time(self, sampler, target):
        """Processor microseconds an evaluation, median over the seeds."""
        cells = self.cells.get((sampler, target), {}).values()
        return float(np.median([1e6 * c["seconds"] / c["evaluations"] for c in cells] or math.nan))

    def converged(self, sampler, target):
        """Whether the chains agree with every seed, by R-hat."""
        return all((c["rhat"] or math.inf) < CONVERGED for c in self.cells.get((sampler, target), {}).values())

    def best(self, score, target, converged=False):
        """Of PyMC's steps on this target, or of those that have converged; NaN if none has."""
        found = [s for s in PYMC if (s, target) in self.cells]
        found = [s for s in found if not converged or self.converged(s, target)]
        return max((score(s, target) for s in found), default=math.nan)

    def ratios(self, sampler, score, converged=False):
        """To the best of PyMC's, by target."""
        found = {t: score(sampler, t) / self.best(score, t, converged) for t in self.targets}
        return {t: r for t, r in found.items() if math.isfinite(r)}

    def seeds(self, sampler):
        counts = {len(self.cells[k]) for k in self.cells if k[0] == sampler}
        return f"{min(counts)}" if len(counts) == 1 else f"{min(counts)}–{max(counts)}"


def both(ratios, counted=False):
    """Geometric means over all targets, and without the span's."""
    found = (ratios, {t: r for t, r in ratios.items() if t not in SPAN})
    words = [f" ({len(r)} targets)" if counted else "" for r in found]
    means = [digits(geometric(r.values())) for r in found]
    return [m + w if r else "–" for m, w, r in zip(means, words, found, strict=True)]


def lowest_of(ratios):
    target = min(ratios, key=ratios.get, default=None)
    return "–" if target is None else f"{digits(ratios[target])} ({target})"


def score_table(board, score, marks=False):
    """Targets by samplers; the last rows compare with the best of PyMC's, with the surrogate's span and without."""
    rows = []
    for target in board.targets:
        row = [f"{target} §" if target in SPAN else target]
        for s in board.samplers:
            star = "\\*" if marks and not board.converged(s, target) else ""
            row.append(digits(score(s, target)) + star)
        rows.append(row)
    for name, converged in (("× the best of PyMC's", False), ("× the best converged of PyMC's", True)):
        found = [both(board.ratios(s, score, converged)) for s in board.samplers]
        for title, values in zip((name, f"{name}, without §"), zip(*found, strict=True), strict=True):
            rows.append([f"**{title}**", *(f"**{v}**" for v in values)])
    return table(board.head, rows)


def time_table(board):
    rows = [[t, *(digits(board.time(s, t)) for s in board.samplers)] for t in board.targets]
    return table(board.head, rows)


def summary_table(board):
    one = ["× best of PyMC's", "without §", "× best converged one", "without §", "lowest target"]
    head = ["sampler", "seeds", f"ESS, {one[0]}", *one[1:], f"by squared error, {one[0]}", *one[1:]]
    rows = []
    for s in board.samplers:
        row = [SAMPLERS[s][0], board.seeds(s)]
        for score in (board.ess, board.error):
            ratios = board.ratios(s, score)
            row += [*both(ratios), *both(board.ratios(s, score, True), True), lowest_of(ratios)]
        rows.append(row)
    return table(head, rows)


def page(cells: dict[Cell, dict]) -> str:
    sections, budgets = [], sorted({cell.budget for cell in cells})
    for budget in budgets:
        board = Board(cells, budget)
        few = len(board.targets) < len(TARGETS)
        so_far = f" (so far {len(board.targets)} of the {len(TARGETS)} targets)" if few else ""
        sections += [
            f"## {budget:,} evaluations per chain{so_far}",
            summary_table(board),
            "### Effective draws per 1000 evaluations, worst coordinate, tuning counted",
            score_table(board, board.ess, marks=True),
            "### By squared error: equivalent independent draws per 1000 evaluations, worst coordinate",
            score_table(board, board.error),
            "### Processor time per evaluation, microseconds, log density included",
            time_table(board),
        ]
    draw(Board(cells, budgets[0]), budgets[0])
    tables = "\n\n".join(sections)
    return report.page("cold_start", globals() | locals())


def draw(board, budget):
    from matplotlib.lines import Line2D

    figure, panels = report.subplots(2, 1, figsize=(7.5, 8.5))
    colours = {s: f"C{i}" for i, s in enumerate(OURS)}
    rows = np.arange(len(board.targets))[::-1]
    titles = "effective draws per 1000 evaluations", "by squared error, per 1000 evaluations"
    for panel, score, title in zip(panels, (board.ess, board.error), titles, strict=True):
        for row, t in zip(rows, board.targets, strict=True):
            for s in (s for s in board.samplers if s in OURS):
                face = colours[s] if board.converged(s, t) else "white"
                panel.plot(score(s, t), row, "o", color=colours[s], mfc=face, mew=1.5, ms=6.5)
        for converged, shade in ((False, "0.7"), (True, "black")):
            best = [board.best(score, t, converged) for t in board.targets]
            panel.plot(best, rows, "|", color=shade, ms=15, mew=2.5)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_yticks(rows, board.targets)
        panel.set_title(f"{budget:,} evaluations: {title}", fontsize=10)
        panel.grid(axis="both", color="0.92")
        panel.set_axisbelow(True)
    dot, bar = {"ls": "", "marker": "o", "ms": 6.5}, {"ls": "", "marker": "|", "ms": 15, "mew": 2.5}
    samplers = [Line2D([], [], color=c, label=SAMPLERS[s][0], **dot) for s, c in colours.items()]
    hollow = f"hollow: R-hat ≥ {CONVERGED} in a seed, not converged"
    marks = [
        Line2D([], [], color="0.3", mfc="white", mew=1.5, label=hollow, **dot),
        Line2D([], [], color="black", label="best converged one of PyMC's", **bar),
        Line2D([], [], color="0.7", label="best of PyMC's, if it has not converged", **bar),
    ]
    for handles, columns, height in ((samplers, 3, 0.05), (marks, 2, 0.0)):
        figure.legend(handles=handles, ncols=columns, bbox_to_anchor=(0.5, height), loc="lower center",
                      frameon=False, fontsize=9)  # fmt: skip
    report.save_figure(figure, "cold_start", 110, rect=(0, 0.1, 1, 1))


BENCHMARK = Benchmark("cold_start", measure, page, dict.fromkeys(PYMC, "pymc"))

if __name__ == "__main__":
    BENCHMARK.command(__doc__, list(SAMPLERS), list(TARGETS), (10_000,), seeds=5)
