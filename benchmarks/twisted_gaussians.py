"""Six samplers on the four twisted Gaussians of Haario, Saksman & Tamminen, as Khoury (2018) compares them.

pi_1 (uncorrelated), pi_2 (correlated), pi_3 (moderately twisted) and pi_4 (strongly twisted), d = 11;
N = 60,000 draws from the origin, of which the first half tunes and is thrown away and the second half is
frozen. For every sampler: acceptance, share of the draws inside the 68.3, 90, 95 and 99 % regions beside
independent draws, integrated autocorrelation time, and Geweke scores. Repeated, so that every share
has a standard error.

    python -m benchmarks.twisted_gaussians

Four minutes of processor time; ``--repeats`` and ``--draws`` make it shorter.
"""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import autocorrelation, autocorrelation_time, generators, versions
from benchmarks.core import run_chains
from pymc_kameleon.diagnostics import ConfidenceRegions, confidence_regions
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.cma import CMA
from pymc_kameleon.samplers.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.targets import TwistedGaussian

DIM = 11
TARGETS = {f"π{'₁₂₃₄'[i - 1]}": TwistedGaussian(i, DIM) for i in (1, 2, 3, 4)}
NAMES = ("uncorrelated", "correlated", "moderately twisted", "strongly twisted")
IID = "independent draws"
SAMPLERS = {
    "Metropolis": (AdaptiveMetropolis, {"covariance": "identity", "scaling": "fixed"}),
    "AM": (AdaptiveMetropolis, {}),
    "M-GaA": (GaussianAdaptation, {}),
    "(1+1)-CMA": (CMA, {}),
    "KAMH": (Kameleon, {}),
    "F-KAMH": (FastKameleon, {}),
}
LAGS = 2000


class Result(NamedTuple):
    """One sampler on one target."""

    target: str
    sampler: str
    acceptance: float
    regions: ConfidenceRegions
    time: float  # integrated autocorrelation time of the slow coordinate, mean of the chains
    time_error: float
    geweke: float  # root mean square of the Geweke scores
    geweke_error: float
    curve: np.ndarray  # autocorrelation of the slow coordinate at lags 0 ... LAGS


def measure(repeats, draws, seed):
    results = []
    for target_name, target in TARGETS.items():
        independent = np.stack([target.sample(g, draws // 2) for g in generators(seed, repeats)])
        results.append(judge(target_name, IID, target, independent, np.ones(repeats)))
        for sampler, (algorithm, options) in SAMPLERS.items():
            chains = run_chains(
                algorithm,
                target,
                chains=repeats,
                tune=draws // 2,
                draws=draws // 2,
                seed=seed,
                **options,
            )
            results.append(judge(target_name, sampler, target, chains.draws, chains.acceptance))
            print(format_row(results[-1]), flush=True)
    return results


def judge(target_name, sampler, target, draws, acceptance):
    slow = draws @ target.axis  # the long axis, which is the slow direction of all four
    times = autocorrelation_time(slow)
    squares = np.square(geweke_scores(draws)).mean(axis=1)  # (chains,)
    geweke = math.sqrt(squares.mean())
    return Result(
        target=target_name,
        sampler=sampler,
        acceptance=float(acceptance.mean()),
        regions=confidence_regions(np.array([target.level(x) for x in draws])),
        time=float(times.mean()),
        time_error=float(times.std(ddof=1)) / math.sqrt(len(times)),
        geweke=geweke,
        geweke_error=float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * geweke),
        curve=autocorrelation(slow)[:, : LAGS + 1].mean(axis=0),
    )


def geweke_scores(draws, first=0.1, last=0.5):
    """Geweke's z: mean of the first tenth against the last half, shape (chains, d).

    Variance and integrated autocorrelation time are those of the whole chain: from a tenth of it the time
    comes out too short, and the scores of a stationary chain too large.
    """
    n = draws.shape[1]
    head, tail = int(first * n), int(last * n)
    difference = draws[:, :head].mean(axis=1) - draws[:, n - tail :].mean(axis=1)
    spread = draws.var(axis=1) * autocorrelation_time(np.moveaxis(draws, 1, 2))
    return difference / np.sqrt(spread * (1 / head + 1 / tail))


HEADER = (
    "| target | sampler | acceptance | in 68.3 % | in 90 % | in 95 % | in 99 % | "
    "autocorrelation time | Geweke, r.m.s. |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"
)


def format_row(r):
    shares = " | ".join(
        f"{100 * c:.1f} ± {100 * s:.1f}"
        for c, s in zip(r.regions.coverage, r.regions.standard_error, strict=True)
    )
    times = f"{r.time:.0f} ± {r.time_error:.0f}"
    geweke = f"{r.geweke:.1f} ± {r.geweke_error:.1f}"
    return f"| {r.target} | {r.sampler} | {r.acceptance:.2f} | {shares} | {times} | {geweke} |"


COLORS = {name: f"C{k}" for k, name in enumerate(SAMPLERS)}


def draw_figure(results, path):
    figure, panels = report.subplots(2, 4, figsize=(14, 6.6), sharey="row", height_ratios=(1.1, 1))
    for k, (column, target) in enumerate(zip(panels.T, TARGETS, strict=True)):
        mine = [r for r in results if r.target == target]
        draw_coverage(column[0], mine)
        column[0].set_title(f"{target}  {NAMES[k]}", fontsize=11)
        for r in mine[1:]:
            column[1].plot(np.arange(1, LAGS + 1), r.curve[1:], color=COLORS[r.sampler], lw=1.5)
        column[1].axhline(0.0, color="0.6", lw=1, zorder=0)
        column[1].set(xlabel="lag (draws)", xscale="log", xlim=(1, LAGS), ylim=(-0.1, 1.02))
        column[1].set_xticks([1, 10, 100, 1000], [1, 10, 100, 1000])
    panels[0, 0].set_ylabel("share inside the region − its content\n(points, ± 2 s.e.)")
    panels[1, 0].set_ylabel("autocorrelation\nalong the long axis")
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    report.save_figure(figure, path)


def draw_coverage(panel, results):
    panel.axhline(0.0, color="0.6", lw=1, zorder=0)
    places = np.arange(4)
    for k, r in enumerate(results[1:]):
        error = 100 * (r.regions.coverage - r.regions.probability)
        panel.errorbar(
            places + 0.11 * (k - 2.5), error, yerr=200 * r.regions.standard_error, fmt="o", ms=4,
            lw=1.2, color=COLORS[r.sampler], label=r.sampler,
        )  # fmt: skip
    panel.set_xticks(places, [f"{100 * p:g} %" for p in results[0].regions.probability])
    panel.set_xlabel("region")


def write(results, arguments):
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw_figure(results, arguments.output / "twisted_gaussians.png")
    sections = [
        f"# Six samplers on the twisted Gaussians, d = {DIM}",
        f"{arguments.repeats} chains a row from the origin, {arguments.draws:,} draws each, half of them "
        f"tuning and not counted; seed {arguments.seed}; {versions()}. Shares of the draws inside the "
        "regions in per cent with standard errors over the chains; integrated autocorrelation time along "
        "the long axis, in draws; root mean square of the Geweke scores over coordinates and chains, 1 "
        "where a chain is long enough to be stationary by that measure.",
        "\n".join([HEADER, *map(format_row, results)]),
        "π₄: a random walk with one covariance gets to the ends of the arms rarely and stays there long, "
        "longer than a chain here. The shares of single chains are skew: most a little too large, a few much too "
        "small, and the mean of these few chains, started at the origin, tends to be too large.",
        "All samplers have this package's defaults, F-KAMH without screened moves (screen=0); Metropolis is "
        "N(x, (2.38² / d) I), untuned. A million "
        "iterations of M-GaA and (1+1)-CMA on π₄ at constant rates, without an overflow, an underflow or a "
        "failed factorisation, are a slow test of tests/samplers/test_shape_learners.py.",
    ]
    provenance.write(arguments.output / "twisted_gaussians.md", "\n\n".join(sections))


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="chains a row")
    parser.add_argument(
        "--draws", type=int, default=60_000, help="draws a chain, half of them tuning"
    )
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args(arguments)


def main():
    arguments = parse()
    print(HEADER)
    write(measure(arguments.repeats, arguments.draws, arguments.seed), arguments)


if __name__ == "__main__":
    main()
