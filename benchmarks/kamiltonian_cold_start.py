"""KamiltonianStep's score-matching estimators from a cold start, seed by seed, beside adaptive Metropolis.

Score matching needs a sample, which a cold chain does not have: the published adaptive KMC collapses there. Four chains
a seed from single over-dispersed points, 10,000 evaluations each, half of them tuning, nothing given and nothing set.
By seed: bulk effective draws per 1000 evaluations of the worst coordinate, all four chains together, and the longest
run without a move among them after tuning. Below, what needs more than four chains to be seen: the same of all chains
together, and their squared error against the truth, as equivalent independent draws of the worst coordinate per 1000
evaluations.

On the banana the worst coordinate, a square with long tails, gets some 50 to 100 effective draws from four chains of
adaptive Metropolis, and its effective sample size is as uncertain as that: two groups of the *same* sampler differ by
factors (the second column of adaptive Metropolis, with other random numbers, says by how much). A count of seeds is
to be read beside that column's.

What came out (results/): on lynx-hare lite and finite get 5 and 7 times as much as adaptive Metropolis, in every one of
ten seeds. On the banana all of them are alike: no chain stands still for longer than adaptive Metropolis' own do, the
medians over seeds are higher, all chains together and the squared errors within the two columns of adaptive Metropolis
or a little below; of ten seeds 6 and 7 reach 0.8 of its effective draws, and it does itself in 5.

    python -m benchmarks.kamiltonian_cold_start

prints the tables (also written as Markdown); ten minutes of one core.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import provenance
from benchmarks.basics import bulk_ess, generators, versions
from benchmarks.cold_start import CHAINS, TARGETS, load, starts, truth
from benchmarks.core import run_chain
from pymc_kameleon.diagnostics import error_efficiency
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.scores.sampler import FiniteKamiltonian, LiteKamiltonian

BUDGET = 10_000
AGAIN = 1000  # added to the seed
SAMPLERS = {
    "AM": (AdaptiveMetropolis, 0, {}),
    "AM again": (AdaptiveMetropolis, AGAIN, {}),
    "lite": (LiteKamiltonian, 0, {}),
    "finite": (FiniteKamiltonian, 0, {}),
}
AS_GOOD = 0.8  # of adaptive Metropolis, "about as good"


class Cell(NamedTuple):
    """One sampler at one seed."""

    draws: np.ndarray  # (chains, n, d)
    ess: float  # per 1000 evaluations, worst coordinate
    longest_run: int
    seconds: float


def measure(target_name, sampler, seed):
    algorithm, shift, options = SAMPLERS[sampler]
    target = TARGETS[target_name]
    chains = [
        run_chain(
            algorithm, target.numba_log_density, x, rng, tune=BUDGET // 2, draws=BUDGET - BUDGET // 2,
            **options,
        )
        for x, rng in zip(
            starts(target_name, seed), generators(seed + shift, CHAINS), strict=True
        )
    ]  # fmt: skip
    draws = np.array([c.draws for c in chains])
    return Cell(
        draws,
        bulk_ess(draws).min() / (CHAINS * BUDGET) * 1000,
        max(longest_run(c) for c in draws),
        sum(c.tuning_seconds + c.seconds for c in chains),
    )


def longest_run(draws):
    """The most draws in a row at one place; ``draws`` (n, d)."""
    moved = np.append(True, (draws[1:] != draws[:-1]).any(axis=1))
    return int(np.diff(np.append(np.flatnonzero(moved), len(draws))).max())


def table(target_name, cells):
    """Cells by sampler, one a seed."""
    seeds = len(cells["AM"])
    lines = [
        "| seed | " + " | ".join(f"{name}: ESS / 1000 | longest run" for name in SAMPLERS) + " |",
        "|---:|" + "---:|---:|" * len(SAMPLERS),
    ]
    for seed in range(seeds):
        row = [f"{cells[n][seed].ess:.2f} | {cells[n][seed].longest_run}" for n in SAMPLERS]
        lines.append(f"| {seed} | " + " | ".join(row) + " |")
    reference = np.array([c.ess for c in cells["AM"]])
    exact = truth(target_name, load())
    summary = {"median of seeds": [], "all chains": [], "by squared error": [], "as good": []}
    for own in cells.values():
        ess, draws = np.array([c.ess for c in own]), np.concatenate([c.draws for c in own])
        longest = max(c.longest_run for c in own)
        evaluations = seeds * CHAINS * BUDGET
        by_error = error_efficiency(draws, exact, BUDGET).coordinates.min()
        summary["median of seeds"].append(f"{np.median(ess):.2f} | ")
        summary["all chains"].append(
            f"{bulk_ess(draws).min() / evaluations * 1000:.2f} | {longest}"
        )
        summary["by squared error"].append(f"{by_error:.2f} | ")
        good = int(np.sum(ess >= AS_GOOD * reference))
        summary["as good"].append(f"{good} of {seeds} | ")
    summary[f"at least {AS_GOOD} × AM"] = summary.pop("as good")
    lines += [f"| {name} | " + " | ".join(row) + " |" for name, row in summary.items()]
    seconds = [sum(c.seconds for c in own) / seeds / CHAINS for own in cells.values()]
    lines.append("| s a chain | " + " | ".join(f"{s:.1f} | " for s in seconds) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--targets", nargs="+", default=["banana .03", "lotka-volterra"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    a = parser.parse_args()
    a.output.mkdir(parents=True, exist_ok=True)
    parts = [
        "# KamiltonianStep lite and finite from a cold start\n\n"
        f"{CHAINS} chains a seed, {BUDGET:,} evaluations each, tuning included."
    ]
    for name in a.targets:
        cells = {s: [measure(name, s, seed) for seed in range(a.seeds)] for s in SAMPLERS}
        parts.append(f"## {name}\n\n{table(name, cells)}")
        print(parts[-1], flush=True)
    path = a.output / "kamiltonian_cold_start.md"
    provenance.write(path, "\n\n".join([*parts, versions()]))


if __name__ == "__main__":
    main()
