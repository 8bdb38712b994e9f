"""A cell of the textbook models, four chains of a step, what is said of it, and the tables of all."""

import math

import arviz as az
import numpy as np

from benchmarks import basics, drive, report
from benchmarks.basics import geometric
from benchmarks.cells import Benchmark, Cell
from benchmarks.report import digits, table
from benchmarks.textbook import MODELS
from benchmarks.textbook.posterior import Posterior, Reference, posterior, reference

CONVERGED = 1.01  # R-hat
OFF = 5.0  # standard errors of a mean
GOOD = 300.0  # effective draws per 1000 evaluations
PACKAGES = {"pm.DEMetropolisZ": "pymc", "pm.Slice": "pymc", "pm.Metropolis": "pymc"}


def measure(cell: Cell) -> dict:
    return measured(cell, posterior(cell.problem), reference(cell.problem))


def measured(cell: Cell, of: Posterior, known: Reference) -> dict:
    """Four chains, a third of the evaluations tuning."""
    chains = drive.chains(
        of, cell.sampler, cell.seed, evaluations=cell.budget, tune=cell.budget // 3, level=known.level
    )
    return judged(chains, known)


def judged(chains: list[drive.Chain], known: Reference) -> dict:
    """What is said of a group of chains, against the reference posterior.

    ``ess``: bulk effective draws of the worst coordinate, all chains, per 1000 evaluations, tuning included; ``rhat``:
    the worst; ``mean_z`` and ``mean_sd``: the largest error of a mean, in standard errors (its own and the reference's)
    and in posterior standard deviations; ``log_sd``: the largest |log(sd / reference sd)|; ``arrived``: evaluations
    until the level, by chain, None if never; ``silently_wrong``: R-hat below 1.01 while a mean is off by more than 5
    standard errors.
    """
    evaluations, n = sum(c.evaluations for c in chains), min(len(c.draws) for c in chains)
    draws = np.array([c.draws[-n:] for c in chains])
    mean, sd = draws.mean((0, 1)), draws.std((0, 1))
    ess, ess_mean, rhat = 1.0, np.ones(draws.shape[2]), math.nan
    if n >= 4:
        ess, rhat = max(float(basics.bulk_ess(draws).min()), 1.0), basics.rhat(draws)
        with np.errstate(all="ignore"):
            of_mean = np.atleast_1d(np.asarray(az.ess({"x": draws}, method="mean")["x"].values))
        ess_mean = np.maximum(np.nan_to_num(of_mean, nan=1.0), 1.0)
    error = np.abs(mean - known.mean)
    mean_z = float(np.max(error / np.sqrt(sd**2 / ess_mean + known.sd**2 / known.ess)))
    with np.errstate(divide="ignore"):
        log_sd = np.abs(np.log(sd / known.sd))
    return {
        "ess": 1000.0 * ess / evaluations, "rhat": rhat, "mean_z": mean_z, "mean_sd": float(np.max(error / known.sd)),
        "log_sd": float(min(log_sd.max(), 99.0)), "arrived": [c.arrived for c in chains],
        "below": [round(known.level - c.best, 2) for c in chains],
        "silently_wrong": bool(rhat < CONVERGED and mean_z > OFF),
        "evaluations": evaluations, "draws": n, "seconds": sum(c.tuning_seconds + c.seconds for c in chains),
    }  # fmt: skip


def tables(cells: dict[Cell, dict], dimensions: dict[str, int]) -> str:
    """Models by steps: efficiency, in short, arrivals, errors; ``dimensions`` of the models, in their order."""
    found: dict[tuple[str, str], list[dict]] = {}
    for cell, made in sorted(cells.items()):
        found.setdefault((cell.problem, cell.sampler), []).append(made)
    models = [m for m in dimensions if any(pair[0] == m for pair in found)]
    steps = sorted({s for _, s in found}, key=lambda s: (s.startswith("pm."), s))

    def by_model(text):
        rows = []
        for m in models:
            entries = [text(found[m, s]) if (m, s) in found else "–" for s in steps]
            rows.append([f"{m} ({dimensions[m]})", *entries])
        return table(["model (d)", *steps], rows)

    head = ["step", "good", "converged", "silently wrong", "geometric mean", "× best of PyMC's", "µs per evaluation"]
    seeds = sorted({len(runs) for runs in found.values()})
    budgets = ", ".join(f"{b:,}" for b in sorted({c.budget for c in cells}))
    of, efficiencies = " to ".join(map(str, sorted({seeds[0], seeds[-1]}))), by_model(efficiency)
    short, arrivals = table(head, [summary(s, found) for s in steps]), by_model(arrival)
    errors = by_model(lambda runs: " ".join(digits(max(c[f] for c in runs)) for f in ("mean_z", "mean_sd", "log_sd")))
    return report.page("textbook_tables", globals() | locals())


def page(cells: dict[Cell, dict]) -> str:
    named = {c.problem for c in cells}
    by_step = tables(cells, {m: len(reference(m).mean) for m in MODELS if m in named})
    return report.page("textbook", locals())


def _worst_rhat(runs):
    return max(math.inf if c["rhat"] is None else c["rhat"] for c in runs)


def _mean_ess(runs):
    return geometric([c["ess"] for c in runs])


def efficiency(runs) -> str:
    """Effective draws, R-hat where it is not small, a mark."""
    rhat = f" ({_worst_rhat(runs):.2f})" if _worst_rhat(runs) >= CONVERGED else ""
    mark = " **!**" if any(c["silently_wrong"] for c in runs) else ""
    return f"{digits(_mean_ess(runs))}{rhat}{mark}"


def arrival(runs) -> str:
    pairs = [pair for c in runs for pair in zip(c["arrived"], c["below"], strict=True)]
    return ", ".join(f"no ({b:.3g})" if a is None else f"{a}" for a, b in pairs)


def summary(step, found) -> list[str]:
    own = {m: runs for (m, s), runs in found.items() if s == step}
    converged = [m for m, runs in own.items() if _worst_rhat(runs) < CONVERGED]
    good = [m for m in converged if min(c["ess"] for c in own[m]) >= GOOD]
    ratios = [
        _mean_ess(runs) / max(others) for m, runs in own.items()
        if (others := [_mean_ess(r) for (n, s), r in found.items() if n == m and s.startswith("pm.")])
    ]  # fmt: skip
    wrong = sum(any(c["silently_wrong"] for c in runs) for runs in own.values())
    every = [c for runs in own.values() for c in runs]
    cost = 1e6 * sum(c["seconds"] for c in every) / sum(c["evaluations"] for c in every)
    return [
        step, f"{len(good)}/{len(own)}", f"{len(converged)}/{len(own)}", str(wrong),
        digits(geometric([_mean_ess(runs) for runs in own.values()])), digits(geometric(ratios)), digits(cost),
    ]  # fmt: skip


BENCHMARK = Benchmark("textbook", measure, page, PACKAGES)
