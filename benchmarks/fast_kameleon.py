"""F-KAMH beside KAMH on two bananas: effective draws, their price, and whether they are the target's.

The experiment of Kotlicki (2015), section 5.1: B(0.03, 100) and B(0.1, 100) in 8 dimensions,
D = 10 ... 600 random features, both embeddings, beside KAMH with n = 600 and 1000; once with this
package's defaults and once with the dissertation's and the paper's settings (``preset="paper"``). The
published figures came from a chain without the right invariant distribution: its acceptance ratio
took the covariance at the *previous* accepted state where the one at the proposed point belongs. A
chain with that ratio is run as well, to show what its effective sample size is worth.

    python -m benchmarks.fast_kameleon

``--redraw`` draws the figure again from the stored tables.

About ten minutes of processor time; ``--seeds``, ``--draws`` and ``--paper-draws`` make it shorter.
A draw with the dissertation's settings and D = 600 costs 15 to 25 times one with the defaults, so
those chains are shorter.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import bulk_ess, generators, versions
from benchmarks.core import run_chain
from pymc_kameleon.diagnostics import DECILES
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.seam import NOTHING
from pymc_kameleon.targets import Banana

TARGETS = {"B(0.03, 100)": Banana(0.03, 100.0, 8), "B(0.1, 100)": Banana(0.1, 100.0, 8)}
SIZES = (10, 50, 100, 200, 300, 600)
EMBEDDINGS = ("sincos", "cos")
SETTINGS = ("defaults", "paper")
WRONG = "previous state's covariance"


# --- the chain that the published figures came from --------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class WrongReverse(FastKameleon):
    """F-KAMH in all but the ratio; its state is a pair: the covariance where the chain was before comes with it."""

    def init(self, rng, x, known=NOTHING):
        """See :class:`pymc_kameleon.samplers.seam.Sampler`."""
        return super().init(rng, x, known), None

    def propose(self, rng, x, state):
        """See :class:`pymc_kameleon.samplers.seam.Sampler`."""
        inner, previous = state
        proposal = super().propose(rng, x, inner)
        if proposal.move != "local" or previous is None:
            return proposal
        gamma, eta = self.local_gamma(inner), math.exp(inner.log_scale)
        delta = np.linalg.solve(inner.factor, proposal.position - x)
        forward = local_moves.log_step_density(delta, inner.covariance, gamma, eta)
        reverse = local_moves.log_step_density(delta, previous, gamma, eta)  # the error
        return proposal._replace(log_q_ratio=reverse - forward)

    def place(self, state, point, proposal=None):
        """See :class:`pymc_kameleon.samplers.seam.Sampler`."""
        inner, previous = state
        if proposal is not None:
            previous = inner.covariance
        return super().place(inner, point, proposal), previous

    def adapt(self, rng, state, outcome):
        """See :class:`pymc_kameleon.samplers.seam.Sampler`."""
        inner, previous = state
        own = FastKameleon(**{name: getattr(self, name) for name in self.defaults()})
        return own.adapt(rng, inner, outcome), previous

    def freeze(self, state):
        """See :class:`pymc_kameleon.samplers.seam.Sampler`."""
        return super().freeze(state[0]), state[1]


# --- what is run ---------------------------------------------------------------------------------


class Run(NamedTuple):
    """One sampler: ``size`` is D for F-KAMH, n for KAMH and 0 for adaptive Metropolis."""

    name: str
    settings: str
    size: int
    algorithm: type | None
    options: dict[str, Any]


def all_runs():
    fast = {"defaults": {}, "paper": FastKameleon.presets["paper"]}
    slow = {"defaults": {}, "paper": Kameleon.presets["paper"]}
    runs = [Run("adaptive Metropolis", "defaults", 0, AdaptiveMetropolis, {})]
    for settings in SETTINGS:
        for n in (600, 1000):
            options = {**slow[settings], "n_history": n}
            runs.append(Run("KAMH", settings, n, Kameleon, options))
        for embedding in EMBEDDINGS:
            for size in SIZES:
                options = {**fast[settings], "embedding": embedding, "n_features": size}
                runs.append(Run(f"F-KAMH, {embedding}", settings, size, FastKameleon, options))
    for size in (100, 300):
        options = {**FastKameleon.presets["paper"], "n_features": size}
        runs.append(Run(f"F-KAMH, {WRONG}", "paper", size, WrongReverse, options))
    return runs


class Summary(NamedTuple):
    """What is kept of one chain."""

    ess: np.ndarray  # bulk, per 1000 draws, by coordinate
    coverage: np.ndarray  # of the nine decile regions
    variance: float  # of x_1
    acceptance: float
    microseconds: float  # per draw after tuning


class Result(NamedTuple):
    """One row: a sampler, and what its chains were worth on one target."""

    target: str
    run: Run
    ess: float  # mean of the chains', of the worst coordinate, per 1000 draws
    ess_error: float
    quantile_error: float  # of all chains together
    quantile_noise: float  # what of it chance explains
    variance: float  # of x_1, truth 100
    acceptance: float
    microseconds: float  # of the fastest chain


def measure(runs, seeds, tune, draws, seed):
    """All samplers on both targets. Seeds are the outer loop, so that a busy machine hits all alike."""
    results = []
    for target_name, target in TARGETS.items():
        for run in runs:
            one(run, target, np.random.default_rng(0), 1200, 100)  # compile
        found = [[] for _ in runs]
        for k, rng in enumerate(generators(seed, seeds)):
            print(f"{target_name}: seed {k + 1} of {seeds}", flush=True)
            for run, summaries in zip(runs, found, strict=True):
                summaries.append(one(run, target, rng.spawn(1)[0], tune, draws[run.settings]))
        results += [judge(target_name, *pair) for pair in zip(runs, found, strict=True)]
    return results


def one(run, target, rng, tune, draws):
    density, x = target.numba_log_density, target.initial_point
    chain = run_chain(run.algorithm, density, x, rng, tune=tune, draws=draws, **run.options)
    levels = target.level(chain.draws)
    return Summary(
        ess=1000.0 * bulk_ess(chain.draws[None]) / draws,
        coverage=np.array([(levels <= q).mean() for q in DECILES]),
        variance=float(np.square(chain.draws[:, 0]).mean()),
        acceptance=chain.acceptance,
        microseconds=1e6 * chain.seconds / draws,
    )


def judge(target_name, run, summaries):
    stacked = Summary(*map(np.array, zip(*summaries, strict=True)))
    root = math.sqrt(len(summaries))
    worst = stacked.ess.mean(axis=0).argmin()
    standard_errors = stacked.coverage.std(axis=0, ddof=1) / root
    return Result(
        target=target_name,
        run=run._replace(algorithm=None, options={}),
        ess=float(stacked.ess[:, worst].mean()),
        ess_error=float(stacked.ess[:, worst].std(ddof=1)) / root,
        quantile_error=float(np.abs(stacked.coverage.mean(axis=0) - DECILES).mean()),
        quantile_noise=math.sqrt(2 / math.pi) * float(standard_errors.mean()),  # E |N(0, s.e.)|
        variance=float(stacked.variance.mean()),
        acceptance=float(stacked.acceptance.mean()),
        microseconds=float(stacked.microseconds.min()),
    )


# --- what is shown -------------------------------------------------------------------------------

HEADER = (
    "| sampler | settings | D or n | ESS per 1000 draws | ± s.e. | cost of a draw | ESS per second | "
    "quantile error | of which noise | var x₁ (100) | acceptance |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def relative(results, r):
    """(cost of a draw, ESS per second), those of KAMH with n = 1000 by default settings being 1."""
    unit = next(
        u for u in results if u.target == r.target and u.run[:3] == ("KAMH", "defaults", 1000)
    )
    cost = r.microseconds / unit.microseconds
    return cost, r.ess / unit.ess / cost


def format_row(results, r):
    cost, per_second = relative(results, r)
    numbers = (
        f"{r.run.size or '–'} | {r.ess:.2f} | {r.ess_error:.2f} | {cost:.2f} | {per_second:.2f} | "
        f"{r.quantile_error:.3f} | {r.quantile_noise:.3f} | {r.variance:.0f} | {r.acceptance:.2f}"
    )
    return f"| {r.run.name} | {r.run.settings} | {numbers} |"


STYLES = {
    "F-KAMH, sincos": {"color": "C0", "marker": "o"},
    "F-KAMH, cos": {"color": "C1", "marker": "s"},
}
LINES = {"defaults": "-", "paper": ":"}
TITLES = ("Effective draws per 1000 draws", "Effective draws per second", "Quantile error")


def draw_figure(results, path):
    figure, panels = report.subplots(2, 3, figsize=(12.5, 7.4), sharex=True)
    for row, target in zip(panels, TARGETS, strict=True):
        mine = [r for r in results if r.target == target]
        draw_panel(row[0], mine, lambda r: r.ess, lambda r: r.ess_error)
        draw_panel(row[1], mine, lambda r: relative(results, r)[1])
        draw_panel(row[2], mine, lambda r: r.quantile_error)
        noise = max(r.quantile_noise for r in mine)
        row[2].axhspan(0.0, noise, color="0.9", lw=0, zorder=0, label="explained by chance")
        row[0].set_ylabel(f"{target}\n\nper 1000 draws, worst coordinate")
        row[1].set_ylabel("in units of KAMH, n = 1000, defaults")
        row[2].set_ylabel("mean error of the deciles' coverage")
        worst = max((r for r in mine if WRONG in r.run.name), key=lambda r: r.run.size)
        row[2].annotate(
            "wrong ratio,\nas published", (worst.run.size, worst.quantile_error), xytext=(8, 0),
            textcoords="offset points", va="center", color="C3", fontsize=9,
        )  # fmt: skip
        for panel in row:
            panel.set_ylim(bottom=0)
    for panel, title in zip(panels[0], TITLES, strict=True):
        panel.set_title(title, fontsize=11)
    for panel in panels[1]:
        panel.set_xlabel("number of features D")
        panel.set_xscale("log")
        panel.set_xticks([10, 50, 100, 300, 600], [10, 50, 100, 300, 600])
        panel.minorticks_off()
    handles, labels = panels[0, 2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    report.save_figure(figure, path)


def draw_panel(panel, results, value, error=lambda r: None):
    panel.spines[["top", "right"]].set_visible(False)
    for settings in SETTINGS:
        for name, style in STYLES.items():
            mine = [r for r in results if r.run[:2] == (name, settings)]
            errors = None if error(mine[0]) is None else [error(r) for r in mine]
            panel.errorbar(
                [r.run.size for r in mine], [value(r) for r in mine], yerr=errors, lw=1.5, ms=5,
                elinewidth=1, ls=LINES[settings], mfc=style["color"] if settings == "defaults" else "white",
                label=f"{name}, {settings}", **style,
            )  # fmt: skip
        kamh = next(r for r in results if r.run[:3] == ("KAMH", settings, 1000))
        panel.axhline(value(kamh), color="0.4", lw=1.2, ls=LINES[settings],
                      label=f"KAMH, n = 1000, {settings}")  # fmt: skip
    walk = next(r for r in results if r.run.size == 0)
    panel.axhline(value(walk), color="C2", lw=1.2, ls="--", label="adaptive Metropolis, defaults")
    wrong = [r for r in results if WRONG in r.run.name]
    panel.plot([r.run.size for r in wrong], [value(r) for r in wrong], "x", color="C3", ms=8, mew=2,
               label="F-KAMH, wrong ratio as published")  # fmt: skip


def what_changes(results):
    """The published chain against the right one, in words."""
    lines = []
    for r in results:
        if WRONG not in r.run.name:
            continue
        right = next(
            o for o in results
            if o.target == r.target and o.run[:3] == ("F-KAMH, sincos", "paper", r.run.size)
        )  # fmt: skip
        lines.append(
            f"- {r.target}, D = {r.run.size}: effective draws per 1000 {r.ess:.2f} (right ratio "
            f"{right.ess:.2f}), quantile error {r.quantile_error:.3f} ({right.quantile_error:.3f}), "
            f"variance of x₁ {r.variance:.0f} ({right.variance:.0f}; truth 100)."
        )
    return "\n".join(lines)


def write(results, arguments):
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw_figure(results, arguments.output / "fast_kameleon.png")
    sections = [
        "# F-KAMH beside KAMH on two bananas, d = 8",
        f"{arguments.seeds} chains a row from the origin, {arguments.tune:,} draws of tuning each, then "
        f"{arguments.draws:,} draws with the defaults and {arguments.paper_draws:,} with the settings of the "
        f"papers; seed {arguments.seed}; {versions()}.",
    ]
    for target in TARGETS:
        rows = [format_row(results, r) for r in results if r.target == target]
        sections += [f"## {target}", "\n".join([HEADER, *rows])]
    sections += [
        "Cost of a draw (after tuning, the fastest chain) and ESS per second are in units of KAMH with "
        "n = 1000 and the defaults, on the same target. ESS: mean over the chains of ArviZ's bulk effective "
        "sample size, of the worst coordinate. Quantile error: mean over the deciles of |share of the "
        'draws inside the region − its content|; "of which noise" is what it would be on average by '
        "chance alone, from the spread between the chains. Read the columns together: a chain that "
        "stays out of the arms has many effective draws of the wrong distribution, and its variance of "
        "x₁ shows it. Chains with the right ratio on B(0.1, 100) err by more than chance because they are "
        "short: they visit the ends of the arms rarely and for long, and have not forgotten where tuning left "
        "them (that the frozen kernels keep exact draws exact is what tests/samplers/test_fast_kameleon.py tests). The "
        "log density costs next to nothing here; where it takes a millisecond, the first column counts alone.",
        "## What changes against the published figures",
        "The dissertation's acceptance ratio took the covariance of the previous accepted state for the "
        "reverse density, so that its chain does not have the target as invariant distribution. The same "
        "chain, right but for that:",
        what_changes(results),
    ]
    provenance.write(arguments.output / "fast_kameleon.md", "\n\n".join(sections))


def read(path):
    """The stored tables, as they round."""
    results, target = [], ""
    for line in path.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## B("):
            target = line.removeprefix("## ")
        elif len(cells) == 11 and cells[1] in SETTINGS:
            run = Run(cells[0], cells[1], int(cells[2].replace("–", "0")), None, {})
            ess, error, cost, _, wrong, noise, variance, acceptance = map(float, cells[3:])
            results.append(
                Result(target, run, ess, error, wrong, noise, variance, acceptance, cost)
            )
    return results


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="chains a row")
    parser.add_argument("--tune", type=int, default=3200, help="adaptive draws a chain")
    parser.add_argument("--draws", type=int, default=10_000, help="counted draws, defaults")
    parser.add_argument(
        "--paper-draws", type=int, default=4000, help="counted draws, paper settings"
    )
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--redraw", action="store_true", help="the figure, from the stored tables")
    return parser.parse_args(arguments)


def main():
    arguments = parse()
    if arguments.redraw:
        stored = read(arguments.output / "fast_kameleon.md")
        draw_figure(stored, arguments.output / "fast_kameleon.png")
        return
    draws = {"defaults": arguments.draws, "paper": arguments.paper_draws}
    results = measure(all_runs(), arguments.seeds, arguments.tune, draws, arguments.seed)
    write(results, arguments)


if __name__ == "__main__":
    main()
