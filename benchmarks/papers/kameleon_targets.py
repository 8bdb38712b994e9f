"""KAMH on its paper's three targets (Sejdinovic et al., 2014, figures 5 and 7).

B(0.03, 100), B(0.1, 100) and the flower F(10, 6, 6, 1) in 8 dimensions; isotropic Metropolis (SM), adaptive Metropolis
with fixed and with learned scale (AM-FS, AM-LS) and KAMH-LS in the paper's settings and lengths: acceptance, effective
draws, distance of the mean from the true one and deviation of the deciles' regions, these two by the number of draws.

Two starts: exact, with what the authors' scripts give to the samplers, and cold, with the present defaults beside.

    python -m benchmarks.papers.kameleon_targets          # twenty minutes
"""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from benchmarks.basics import bulk_ess, generators
from benchmarks.cells import Benchmark, Cell
from benchmarks.core import run_chain
from benchmarks.measures import DECILES
from benchmarks.report import middle
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.schedule import Scheduled
from pymc_kameleon.targets import Banana, Flower

SEED, CHAINS = 20260301, 20
TIMES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])  # of the draws after burn-in


class Setting(NamedTuple):
    """A target of the paper: how many draws, and what the authors' scripts knew about it."""

    target: Any
    draws: int  # burn-in included
    lengthscale: float
    scales: tuple[float, ...]


WIDE = (10.0, *[1.0] * 7)  # the banana's first coordinate
TARGETS = {
    "B(0.03, 100)": Setting(Banana(0.03, 100.0, 8), 40_000, 5.0, WIDE),
    "B(0.1, 100)": Setting(Banana(0.1, 100.0, 8), 80_000, 10.0, WIDE),
    "flower": Setting(Flower(), 120_000, 5.0, (1.0,) * 8),
}
STARTS = ("exact", "cold")
PAPER = ("SM", "AM-FS", "AM-LS", "KAMH-LS")
NOW = ("AM, defaults", "KAMH, defaults")


def kamh(**options):
    """KAMH-LS as published, a new subsample with probability t^-1/2."""
    return Scheduled(inner=Kameleon(**{**Kameleon.presets["paper"], **options}), schedule="root")


def metropolis(**known) -> dict[str, tuple]:
    """The papers' own: isotropic, adaptive with a fixed scale, adaptive with a learned one."""
    recursive = {"covariance": "recursive", **known}
    return {
        "SM": (AdaptiveMetropolis, {"covariance": "identity", "scaling": "fixed"}),
        "AM-FS": (AdaptiveMetropolis, {**recursive, "scaling": "fixed"}),
        "AM-LS": (AdaptiveMetropolis, recursive),
    }


def sampler(name: str, start: str, setting: Setting):
    """What makes the sampler, and its options."""
    exact = start == "exact"
    return {
        **metropolis(**({"initial_scale": np.array(setting.scales)} if exact else {})),
        "KAMH-LS": (kamh, {"lengthscale": setting.lengthscale} if exact else {}),
        "AM, defaults": (AdaptiveMetropolis, {}),
        "KAMH, defaults": (Kameleon, {}),
    }[name]


def names(start):
    return PAPER if start == "exact" else PAPER + NOW


def measure(cell: Cell) -> dict[str, Any]:
    """One chain: what it is worth at the end, and its two errors at ``TIMES``."""
    (name, start), setting = cell.sampler.rsplit(", ", 1), TARGETS[cell.problem]
    rng = generators(SEED, cell.seed + 1)[cell.seed]
    target, half = setting.target, setting.draws // 2
    x = target.sample(rng, 1)[0] if start == "exact" else np.zeros(8)
    algorithm, options = sampler(name, start, setting)
    chain = run_chain(algorithm, target.numba_log_density, x, rng, tune=half, draws=half, **options)
    levels, ends = target.level(chain.draws), (TIMES * half).astype(int)
    coverage = np.array([[(levels[:n] <= q).mean() for q in DECILES] for n in ends])
    return {
        "acceptance": chain.acceptance, "ess": bulk_ess(chain.draws[None]).tolist(),
        "norm": [float(np.linalg.norm(chain.draws[:n].mean(0) - target.mean)) for n in ends],
        "deviation": np.abs(coverage - DECILES).mean(axis=1).tolist(), "coverage": coverage[-1].tolist(),
    }  # fmt: skip


# the chains of one sampler: arrays by chain, ESS by coordinate too, norm and deviation by time; pooled is the deviation
# of all chains together at the end
Row = namedtuple("Row", "target start name acceptance ess norm deviation pooled")


def rows(cells) -> list[Row]:
    found = []
    for target in TARGETS:
        for start in STARTS:
            for name in names(start):
                mine = [m for c, m in cells.items() if c[:2] == (f"{name}, {start}", target)]
                if not mine:
                    continue
                coverage = np.array([c["coverage"] for c in mine])
                by_chain = (np.array([c[what] for c in mine]) for what in ("acceptance", "ess", "norm", "deviation"))
                pooled = float(np.abs(coverage.mean(axis=0) - DECILES).mean())
                found.append(Row(target, start, name, *by_chain, pooled))
    return found


def format_row(r: Row) -> list[Any]:
    draws = TARGETS[r.target].draws // 2
    ess = 1000.0 * r.ess / draws
    least, half, most = (f"{np.median(f(ess, axis=1)):.1f}" for f in (np.min, np.median, np.max))
    return [
        r.target, r.start, r.name, len(r.norm), f"{r.acceptance.mean():.2f}", middle(r.norm[:, -1], ".2f"),
        middle(r.deviation[:, -1], ".3f"), f"{r.pooled:.3f}", least, half, most,
    ]  # fmt: skip


HEAD = (
    "target", "start", "sampler", "chains", "acceptance", "distance of the mean", "deviation of the deciles",
    "all chains together", "ESS / 1000, least", "median", "largest coordinate",
)  # fmt: skip


def ratio(a: np.ndarray, b: np.ndarray) -> str:
    """Of two medians over chains, with a bootstrap's central 95 %."""
    rng = np.random.default_rng(SEED)

    def medians(x):
        return np.median(x[rng.integers(len(x), size=(4000, len(x)))], axis=1)

    low, high = np.quantile(medians(a) / medians(b), [0.025, 0.975])
    return f"{np.median(a) / np.median(b):.2f} ({low:.2f} to {high:.2f})"


def comparison(found: list[Row]) -> str:
    """KAMH-LS against AM-LS and the best of the three others, target by target."""
    lines = []
    for start in STARTS:
        for target in TARGETS:
            mine = {r.name: r for r in found if (r.target, r.start) == (target, start)}
            if not set(PAPER) <= set(mine):
                continue
            parts = []
            for what, value in (
                ("distance of the mean", lambda r: r.norm[:, -1]),
                ("deviation of the deciles", lambda r: r.deviation[:, -1]),
            ):
                best = min(PAPER[:3], key=lambda n: np.median(value(mine[n])))
                rivals = dict.fromkeys(("AM-LS", best))
                against = [f"{ratio(value(mine['KAMH-LS']), value(mine[n]))} times {n}'s" for n in rivals]
                parts.append(f"{what} {', '.join(against)}")
            lines.append(f"- {start} start, {target}: {'; '.join(parts)}.")
    return "\n".join(lines)


STYLES = {
    "SM": ("0.55", "o", ":"), "AM-FS": ("C0", "s", "--"), "AM-LS": ("C2", "^", "-."), "KAMH-LS": ("C3", "D", "-"),
    "AM, defaults": ("C4", "v", (0, (1, 1))), "KAMH, defaults": ("k", "*", (0, (5, 1))),
}  # fmt: skip


def draw_figure(found: list[Row]) -> None:
    figure, panels = report.subplots(4, 3, figsize=(12, 13.5), sharex="col", sharey="row")
    kinds = [("distance of the mean", lambda r: r.norm), ("deviation of the deciles", lambda r: r.deviation)]
    for row, (what, start) in enumerate([(w, s) for w in kinds for s in STARTS]):
        for panel, target in zip(panels[row], TARGETS, strict=True):
            half = TARGETS[target].draws // 2
            for r in [r for r in found if (r.target, r.start) == (target, start)]:
                color, marker, style = STYLES[r.name]
                low, mid, high = np.quantile(what[1](r), [0.1, 0.5, 0.9], axis=0)
                panel.plot(TIMES * half / 1000, mid, color=color, marker=marker, ls=style, ms=6, lw=1.6, label=r.name)
                if r.name in ("AM-LS", "KAMH-LS"):
                    panel.fill_between(TIMES * half / 1000, low, high, color=color, alpha=0.15, lw=0)
            panel.set_yscale("log")
        panels[row, 0].set_ylabel(f"{what[0]}\n{start} start", fontsize=12)
    for panel, target in zip(panels[0], TARGETS, strict=True):
        panel.set_title(target, fontsize=13)
    for panel in panels[-1]:
        panel.set_xlabel("draws after burn-in, thousands", fontsize=12)
    handles, labels = panels[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, frameon=False, fontsize=12)
    report.save_figure(figure, "paper_kameleon_targets", rect=(0, 0.03, 1, 1))


def page(cells: dict[Cell, dict]) -> str:
    found = rows(cells)
    draw_figure(found)
    table, compared = report.table(HEAD, map(format_row, found), left=3), comparison(found)
    return report.page("paper_kameleon_targets", globals() | locals())


if __name__ == "__main__":
    samplers = [f"{name}, {start}" for start in STARTS for name in names(start)]
    draws = sorted({setting.draws for setting in TARGETS.values()})
    Benchmark("paper_kameleon_targets", measure, page).command(
        __doc__, samplers, list(TARGETS), draws, CHAINS, lambda c: TARGETS[c.problem].draws == c.budget
    )
