"""Distance to a long run against draws on UCI Glass (KAMH, figure 4; KMC, figure 4, left).

The posterior of ``benchmarks.glass``: nine log squared lengthscales of a Gaussian-process classifier, a likelihood
that is only estimated (16 draws of importance sampling; the papers take 100). KMC's protocol, 1,200 draws of burn-in
and 5,000 kept, from draws of the prior. After k kept draws: the distance of their mean from that of a long run, and
the maximum mean discrepancy with the kernel (1 + <x, y>)^3 to it. The floor: the long run's own halves, and 5,000 of
its draws, thinned, against the rest.

SM, AM-FS, AM-LS, KAMH-LS and KMC lite with the papers' settings, KMC with 1,000 draws of the long run as history, as in
its paper, and cold; the present KamiltonianStep's sampler beside them.

    python -m benchmarks.papers.glass_curves

Ten minutes of processor time at eight chains (the papers: 30); resumable (``--minutes``).
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import bulk_ess, generators, versions
from benchmarks.core import run_chain
from pymc_kameleon.diagnostics import mmd, norm_of_mean
from pymc_kameleon.glass import load_glass
from pymc_kameleon.gp.data import Whitening
from pymc_kameleon.gp.estimator import GPClassificationEstimator
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.sampler import LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian

RESULTS = Path(__file__).parents[1] / "results"
STORE = RESULTS / "paper_glass_curves.json"
REFERENCE = (
    RESULTS / ".paper_glass_reference.npz"
)  # not for git: what is shown of it is in the store
SEED, CHAINS = 20260305, 8
TUNE, DRAWS = 1200, 5000
LONG = {"chains": 4, "tune": 3000, "draws": 10_000}
TIMES = (250, 500, 1000, 1500, 2500, 3500, 5000)
COMMON = ("benchmarks.core", "pymc_kameleon.gp.estimator")
MEAN, SD = -math.log(2.0), math.sqrt(20.0)
NAMES = (
    "SM",
    "AM-FS",
    "AM-LS",
    "KAMH-LS",
    "KMC lite, cold",
    "KMC lite, history given",
    "KamiltonianStep, defaults",
)


LONG_RUN = "the long run"


class Posterior:
    """Log prior and an estimate of the log likelihood, anew at every call."""

    def __init__(self, rng):
        glass = load_glass()
        self.estimate = GPClassificationEstimator(Whitening.fit(glass.X).apply(glass.X), glass.y)
        self.rng = rng

    def __call__(self, theta):
        """Log prior plus log estimate."""
        if np.abs(theta).max() > 60.0:  # eleven prior sds away
            return -math.inf
        return self.estimate(self.rng, theta) - 0.5 * float(np.square((theta - MEAN) / SD).sum())


def values(**options):
    """KamiltonianStep's sampler, told the length of tuning as the step should be."""
    return ValueKamiltonian(tune=TUNE, **options)


def sampler(name, history):
    recursive = {"covariance": "recursive"}
    lite = LiteKamiltonian.presets["paper"]
    return {
        "SM": (AdaptiveMetropolis, {"covariance": "identity", "scaling": "fixed"}),
        "AM-FS": (AdaptiveMetropolis, {**recursive, "scaling": "fixed"}),
        "AM-LS": (AdaptiveMetropolis, recursive),
        "KAMH-LS": (Kameleon, Kameleon.presets["paper"]),
        "KMC lite, cold": (LiteKamiltonian, lite),
        "KMC lite, history given": (LiteKamiltonian, {**lite, "history": history}),
        "KamiltonianStep, defaults": (values, {}),
    }[name]


def code_of(name: str) -> str:
    """A digest of what makes a sampler's chains; the long run has the target's only, whoever made it."""
    if name == LONG_RUN:
        return provenance.digest("pymc_kameleon.gp.estimator")
    kind = sampler(name, np.zeros((1000, 9)))[0]
    return provenance.digest(*COMMON, (ValueKamiltonian if kind is values else kind).__module__)


def start(rng):
    return MEAN + SD * rng.standard_normal(9)


def reference() -> np.ndarray:
    """The long run, (chains, n, 9), every other draw."""
    code = code_of(LONG_RUN)
    if REFERENCE.exists():
        with np.load(REFERENCE) as file:
            if str(file["code"]) == code:
                return file["draws"].astype(float)
    draws = []
    for rng in generators(SEED - 1, LONG["chains"]):
        chain = run_chain(
            ValueKamiltonian,
            Posterior(rng),
            start(rng),
            rng,
            tune=LONG["tune"],
            draws=LONG["draws"],
        )
        draws.append(chain.draws[::2])
    draws = np.array(draws)
    np.savez_compressed(REFERENCE, draws=draws.astype(np.float32), code=code)
    return draws


def cell(name, long, rng) -> dict[str, Any]:
    """One chain."""
    pooled = long.reshape(-1, 9)
    history = pooled[rng.choice(len(pooled), 1000, replace=False)]
    kind, options = sampler(name, history)
    chain = run_chain(kind, Posterior(rng), start(rng), rng, tune=TUNE, draws=DRAWS, **options)
    return {
        "acceptance": chain.acceptance,
        "ess": float(bulk_ess(chain.draws[None]).min()),
        "evaluations": chain.evaluations,
        "norm": [float(norm_of_mean(chain.draws[:k], pooled.mean(axis=0))) for k in TIMES],
        "mmd": [mmd(chain.draws[:k], pooled) for k in TIMES],
    }


def measure(minutes, chains):
    end = time.monotonic() + 60.0 * minutes
    long, codes = reference(), {name: code_of(name) for name in NAMES}
    about = {"code": code_of(LONG_RUN), "ess": float(bulk_ess(long).min()), "floors": floors(long)}
    report.save_cells(STORE, {LONG_RUN: report.rounded(about)}, versions())
    for k, rng in enumerate(generators(SEED, chains)):
        for name, own in zip(NAMES, rng.spawn(len(NAMES)), strict=True):
            key = f"{name} | {k}"
            if report.load_cells(STORE).get(key, {}).get("code") == codes[name]:
                continue
            try:
                found = cell(name, long, own)
            except ValueError as error:  # a published cold start may end where no trajectory goes
                found = {"failed": str(error)[:80]}
            report.save_cells(
                STORE, {key: {"code": codes[name], **report.rounded(found)}}, versions()
            )
            print(key, flush=True)
            if time.monotonic() > end:
                return


# --- what is shown -------------------------------------------------------------------------------


def floors(long) -> dict[str, list[float]]:
    """(distance of means, MMD) between halves of the long run, and of 5,000 thinned draws against the rest."""
    half = len(long) // 2
    a, b = long[:half].reshape(-1, 9), long[half:].reshape(-1, 9)
    pooled = long.reshape(-1, 9)
    step = len(pooled) // DRAWS
    few = pooled[::step][:DRAWS]
    rest = np.delete(pooled, np.arange(0, len(pooled), step)[:DRAWS], axis=0)
    return {
        "the long run's two halves": [float(np.linalg.norm(a.mean(0) - b.mean(0))), mmd(a, b)],
        "5,000 of its draws, thinned, against the rest": [
            float(np.linalg.norm(few.mean(0) - rest.mean(0))),
            mmd(few, rest),
        ],
    }


def by_name(cells):
    found = {}
    for name in NAMES:
        mine = [c for k, c in cells.items() if k.startswith(f"{name} | ") and "norm" in c]
        if mine:
            found[name] = mine
    return found


def row(name, mine) -> list[Any]:
    def middle(values, fmt):
        low, mid, high = np.quantile(values, [0.1, 0.5, 0.9])
        return f"{mid:{fmt}} ({low:{fmt}} to {high:{fmt}})"

    norm, discrepancy = np.array([c["norm"] for c in mine]), np.array([c["mmd"] for c in mine])
    at = TIMES.index(1000)
    evaluations = np.mean([c["evaluations"] for c in mine])
    ess = 1000.0 * np.mean([c["ess"] for c in mine]) / evaluations
    return [
        name, len(mine), f"{np.mean([c['acceptance'] for c in mine]):.2f}", middle(norm[:, at], ".2f"),
        middle(norm[:, -1], ".2f"), middle(discrepancy[:, at], ".0f"), middle(discrepancy[:, -1], ".0f"), f"{ess:.1f}",
    ]  # fmt: skip


STYLES = dict(
    zip(
        NAMES,
        [
            ("0.55", "o", ":"),
            ("C0", "s", "--"),
            ("C2", "^", "-."),
            ("C3", "D", "-"),
            ("C1", "v", ":"),
            ("C4", "P", "--"),
            ("k", "*", "-"),
        ],
        strict=True,
    )
)


def draw_figure(found, floor, path):
    figure, panels = report.subplots(1, 2, figsize=(12, 5.4))
    for panel, what, label, k in (
        (panels[0], "norm", "distance of the mean from the long run's", 0),
        (panels[1], "mmd", "MMD to the long run", 1),
    ):  # fmt: skip
        for name, mine in found.items():
            color, marker, style = STYLES[name]
            values = np.median([c[what] for c in mine], axis=0)
            panel.plot(
                TIMES, values, color=color, marker=marker, ls=style, ms=7, lw=1.7, label=name
            )
        least = floor["5,000 of its draws, thinned, against the rest"][k]
        panel.axhspan(0.5 * least, max(f[k] for f in floor.values()), color="0.9", lw=0, zorder=0)
        panel.axhline(least, color="0.6", lw=1, zorder=0)
        panel.set(xscale="log", yscale="log", xlabel="draws after burn-in", ylabel=label)
        panel.set_ylim(bottom=0.5 * least)
        panel.set_xticks([250, 500, 1000, 2500, 5000], [250, 500, 1000, 2500, 5000])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="lower center",
        ncols=4,
        frameon=False,
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    report.save_figure(figure, path, dpi=90)


HEAD = (
    "sampler", "chains", "acceptance", "distance of the mean, 1,000 draws", "5,000 draws", "MMD, 1,000 draws",
    "5,000 draws", "ESS / 1000 evaluations",
)  # fmt: skip


def write():
    cells = report.load_cells(STORE)
    found, about = by_name(cells), cells[LONG_RUN]
    floor, ess = about["floors"], about["ess"]
    draw_figure(found, floor, RESULTS / "paper_glass_curves.png")
    failed = [k for k, c in cells.items() if "failed" in c]
    sections = [
        "# UCI Glass: distance to a long run",
        f"{TUNE:,} draws of burn-in and {DRAWS:,} kept, from draws of the prior (the papers: 30 chains, 100 draws of "
        f"importance "
        f"sampling; here 16, as many chains as the column says); the long run: {LONG['chains']} chains of "
        f"{LONG['draws']:,}, "
        f"{ess:,.0f} effective draws in the worst coordinate. Seed {SEED}; {versions()}. Medians over the chains with "
        f"the central 80 %.",
        "![Distance of the mean and MMD against draws](paper_glass_curves.png)",
        report.table(HEAD, [row(n, m) for n, m in found.items()]),
        "The floor, distance of means and MMD: "
        + "; ".join(f"{n} {a:.2f} and {b:.0f}" for n, (a, b) in floor.items())
        + " (grey in the figure). The kernel's value is dominated by cubes of the tails.",
    ]
    if failed:
        sections.append(f"Could not begin where their burn-in had ended: {', '.join(failed)}.")
    names = [(k.split(" | ")[0], c["code"]) for k, c in cells.items()]
    stale = provenance.stale_cells((name, code, code_of(name)) for name, code in names)
    provenance.write(RESULTS / "paper_glass_curves.md", "\n\n".join(sections), stale_cells=stale)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop after so many; begin again to go on"
    )
    parser.add_argument("--tables", action="store_true", help="from what is stored")
    arguments = parser.parse_args()
    if not arguments.tables:
        measure(arguments.minutes, arguments.chains)
    write()


if __name__ == "__main__":
    main()
