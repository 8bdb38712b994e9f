"""Whether tuning that is frozen early, or learned badly, leaves a bias: many chains from cold, short and long tuning.

The twelve targets of :mod:`benchmarks.cold_start` and its over-dispersed starts; every chain is tuned, frozen and
draws. Over the chains, in standard errors: the mean of (x - m) / s, of ((x - m) / s)^2 - 1, and of the indicators that
x is below the true 5 % and 95 % quantiles less those shares. Such averages have no bias of their own if chains have
forgotten their start, however few draws they are of. Interrupted, it goes on from results/short_tuning.json. Ten
minutes for 40 seeds of four samplers.

    python -m benchmarks.short_tuning                              # 200 seeds
    python -m benchmarks.short_tuning --seeds 40 --samplers CMA --targets "banana .1"
    python -m benchmarks.short_tuning --table
"""

import argparse
import math
import time
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks import basics, core, provenance, report
from benchmarks.cold_start import TARGETS, _key, _reference, start
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.cma import CMA
from pymc_kameleon.samplers.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian

STORE = Path(__file__).parent / "results" / "short_tuning.json"
SAMPLERS = {
    "AdaptiveMetropolis": AdaptiveMetropolis, "Kameleon": Kameleon, "FastKameleon": FastKameleon,
    "GaussianMixture": GaussianMixture, "GaussianAdaptation": GaussianAdaptation, "CMA": CMA,
    "Kamiltonian": ValueKamiltonian,
}  # fmt: skip
TUNE = {"short": 500, "long": 4000}
DRAWS = 1000
BLOCK = 10
QUANTITIES = ("mean", "square", "5 %", "95 %")
INDEPENDENT = (1.0, 2.0, 0.0475, 0.0475)  # variances of one normal draw
LARGE = 4.5


@cache
def truth(target: str) -> tuple[np.ndarray, ...]:
    """Mean, sd, 5 % and 95 % quantiles of every coordinate, each of shape (d,), by exact draws."""
    draws, weights = _reference(TARGETS[target])
    low, high = np.transpose([_weighted_quantiles(c, weights) for c in draws.T])
    return TARGETS[target].mean, np.sqrt(np.diag(TARGETS[target].cov)), low, high


def _weighted_quantiles(values, weights):
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.searchsorted(share, [0.05, 0.95])]


def deviations(target: str, draws: np.ndarray) -> np.ndarray:
    """What has expectation zero, averaged over the draws, shape (4, d)."""
    mean, sd, low, high = truth(target)
    x = (draws - mean) / sd
    return np.array([
        x.mean(axis=0), np.square(x).mean(axis=0) - 1.0, (draws < low).mean(axis=0) - 0.05,
        (draws < high).mean(axis=0) - 0.95,
    ])  # fmt: skip


def run(target: str, sampler: str, tuning: str, seeds: int, deadline: float) -> None:
    """Add chains to a cell until there are so many, or time is over."""
    key, code = f"{target} | {sampler} | {tuning}", provenance.digest(SAMPLERS[sampler].__module__)
    zero = np.zeros((4, TARGETS[target].dim)).tolist()
    while time.monotonic() < deadline:
        cell = report.load_cells(STORE).get(key, {})
        if cell.get("code") != code:
            cell = {"code": code, "n": 0, "sums": zero, "squares": zero}
        if cell["n"] >= seeds:
            return
        last = min(cell["n"] + BLOCK, seeds)
        found = np.array([chain(target, sampler, tuning, seed) for seed in range(cell["n"], last)])
        sums, squares = (
            cell["sums"] + found.sum(axis=0),
            cell["squares"] + np.square(found).sum(axis=0),
        )
        cell |= {"n": last, "sums": sums.tolist(), "squares": squares.tolist()}
        report.save_cells(STORE, {key: report.rounded(cell)}, basics.versions())


def chain(target: str, sampler: str, tuning: str, seed: int) -> np.ndarray:
    """One chain's deviations."""
    rng = basics.generators([_key(target), _key(sampler), seed], 1)[0]
    log_density = TARGETS[target].numba_log_density
    found = core.run_chain(
        SAMPLERS[sampler], log_density, start(target, rng), rng, tune=TUNE[tuning], draws=DRAWS
    )
    return deviations(target, found.draws)


def verdict(cell: dict) -> tuple[float, str, float, float]:
    """Largest |z|, of what, and the largest biases of a mean (in sds) and of a quantile's share."""
    n = cell["n"]
    mean = np.array(cell["sums"]) / n
    variance = np.array(cell["squares"]) / n - mean**2
    # no less than independent draws have: where no chain went there, all say the same
    variance = np.maximum(variance, np.array(INDEPENDENT)[:, None] / DRAWS)
    error = np.sqrt(variance / (n - 1))
    z = np.abs(mean) / error
    worst = np.unravel_index(np.argmax(z), z.shape)
    return (
        float(z.max()),
        QUANTITIES[worst[0]],
        float(np.abs(mean[0]).max()),
        float(np.abs(mean[2:]).max()),
    )


def table(cells: dict[str, dict]) -> str:
    """The page."""
    parts, few, many = [], math.inf, 0
    for tuning, tune in TUNE.items():
        rows = []
        for target in TARGETS:
            row = [target]
            for sampler in SAMPLERS:
                cell = cells.get(f"{target} | {sampler} | {tuning}")
                if cell is None:
                    row.append("–")
                    continue
                few, many = min(few, cell["n"]), max(many, cell["n"])
                z, what, mean, share = verdict(cell)
                bold = f"**{z:.1f}** ({what})" if z > LARGE else f"{z:.1f}"
                row.append(f"{bold}; {report.digits(mean)}, {100 * share:.1f}; {cell['n']}")
            rows.append(row)
        parts += [f"## {tune} tuning draws", report.table(["target", *SAMPLERS], rows)]
    seeds = few if few == many else f"{few} to {many}"
    return "\n\n".join([
        "# What short tuning does to the draws",
        f"`python -m benchmarks.short_tuning`. {seeds} chains a cell, each from an over-dispersed start of its "
        f"own; {DRAWS} draws after tuning. In each cell: the largest |z| over all coordinates of the mean, the square, "
        "and the shares below the true 5 % and 95 % quantiles (bold, and which, above 4.5); the largest bias of a mean "
        "in sds and of a quantile's share in percentage points; the number of chains.",
        "A kernel that is frozen is exact whatever it learned (calibration.md); what this shows is whether chains that "
        "begin far off and learned for so long have forgotten where they began. "
        "Where few chains ever get into a tail, their averages are skewed, and z says too much.",
        *parts,
        f"{basics.versions()}.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--tuning", nargs="+", choices=TUNE, default=list(TUNE))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60.0 * arguments.minutes
    if not arguments.table:
        for target in arguments.targets:
            for sampler in arguments.samplers:
                for tuning in arguments.tuning:
                    run(target, sampler, tuning, arguments.seeds, deadline)
            print(f"{time.strftime('%H:%M:%S')} {target}", flush=True)
    cells = report.load_cells(STORE)
    text = table(cells)
    print(text)
    present = {name: provenance.digest(s.__module__) for name, s in SAMPLERS.items()}
    codes = [
        (key.split(" | ")[1], c["code"], present[key.split(" | ")[1]]) for key, c in cells.items()
    ]
    provenance.write(STORE.with_suffix(".md"), text, stale_cells=provenance.stale_cells(codes))


if __name__ == "__main__":
    main()
