"""What ``pk.report`` says first, against known truths: over 200 runs of ``pk.sample``.

16 chains from starts 1.5 posterior sds wide, 1,000 to 3,000 evaluations in all, four seeds.

    python -m benchmarks.verdicts           # an hour
"""

import re
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.cells import Benchmark, Cell

TOTALS, CHAINS, EXACT = (1000, 1500, 2000, 3000), 16, 200_000
UNSEEN = 10  # added to the seeds: no threshold was chosen on these
HEAVY = "t, 1.2 degrees of freedom"
COVARIANCE = 0.7 * np.ones((5, 5)) + 0.3 * np.eye(5)


def curved(sd, slope, width):
    """``x0 ~ N(0, sd^2)``, ``x1 ~ N(slope x0^2, width^2)``."""
    return (
        lambda x: -0.5 * (x[0] / sd) ** 2 - 0.5 * ((x[1] - slope * x[0] ** 2) / width) ** 2,
        lambda rng, n: (z := rng.standard_normal((n, 2)) * [sd, width]) + slope * z[:, :1] ** 2 * [0, 1],
    )


def student(df, dim):
    """Independent coordinates."""
    return lambda x: -0.5 * (df + 1) * pt.sum(pt.log1p(x**2 / df)), lambda rng, n: rng.standard_t(df, (n, dim))


def mixture(weights, centres, sd=1.0):
    """Round normals."""
    w, c = np.array(weights), np.array(centres, float)
    return (
        lambda x: pt.logsumexp(pt.log(w) - 0.5 * pt.sum((x - c) ** 2, axis=1) / sd**2),
        lambda rng, n: c[rng.choice(len(w), n, p=w)] + sd * rng.standard_normal((n, c.shape[1])), w, c,
    )  # fmt: skip


TARGETS = {  # log density, exact draws; weights and centres of modes
    "normal, correlated": (
        lambda x: -0.5 * pt.dot(x, pt.dot(np.linalg.inv(COVARIANCE), x)),
        lambda rng, n: rng.multivariate_normal(np.zeros(5), COVARIANCE, n),
    ),
    "banana": curved(3.0, 0.3, 1.0), "ridge, .05": curved(2.0, 1.0, 0.05), "ridge, .02": curved(2.0, 1.0, 0.02),
    "t, 7 degrees of freedom": student(7.0, 4), HEAVY: student(1.2, 2),
    "log of exponentials": (lambda x: pt.sum(x - pt.exp(x)), lambda rng, n: np.log(rng.exponential(size=(n, 3)))),
    "funnel": (
        lambda x: -0.5 * (x[0] / 1.5) ** 2 - x[0] - 0.5 * pt.exp(-x[0]) * pt.sum(x[1:] ** 2),
        lambda rng, n: (z := rng.standard_normal((n, 3)) * [1.5, 1, 1]) * np.exp(0.5 * z[:, :1] * [0, 1, 1]),
    ),
    "two modes, 8 sds": mixture([0.5, 0.5], [[0, 0, 0, 0], [8, 0, 0, 0]]),
    "two modes, 20 sds, 70:30": mixture([0.7, 0.3], [[0, 0], [20, 0]]),
    "three modes": mixture([0.5, 0.3, 0.2], [[0, 0], [15, 0], [0, 15]]),
    "switched labels": mixture([0.5, 0.5], [[3, -3, 0, 0, 1], [-3, 3, 0, 0, 1]], 0.5),
    "normal, scales 1:100": (
        lambda x: -0.5 * pt.sum((x / np.geomspace(0.1, 10, 10)) ** 2),
        lambda rng, n: rng.standard_normal((n, 10)) * np.geomspace(0.1, 10, 10),
    ),
}  # fmt: skip


@cache
def truth(target):
    """Exact draws in order, (n, d), their means, and what stands for sds."""
    exact = np.sort(TARGETS[target][1](np.random.default_rng(0), EXACT), axis=0)
    quartiles = np.quantile(exact, [0.25, 0.75], axis=0)
    return (exact, exact.mean(0), np.ptp(quartiles, axis=0) / 1.35 if target == HEAVY else exact.std(0))


def measure(cell: Cell) -> dict:
    target, seed = cell.problem, cell.seed + UNSEEN
    exact, mean, sd = truth(target)
    starts = mean + 1.5 * sd * np.random.default_rng(seed).standard_normal((CHAINS, mean.size))
    with pm.Model():
        pm.Potential("p", TARGETS[target][0](pm.Flat("x", shape=mean.size)))
        idata = pk.sample(
            max_evaluations=cell.budget, chains=CHAINS, random_seed=seed, progressbar=False,
            initvals=[{"x": s} for s in starts],
        )  # fmt: skip
    draws = idata["posterior"]["x"].values.reshape(-1, mean.size)
    first, second = pk.report(idata).split("\n")[:2]
    ends = np.quantile(draws, [0.05, 0.95], axis=0).T
    held = [np.diff(np.searchsorted(x, e))[0] / EXACT for x, e in zip(exact.T, ends, strict=True)]
    missing = False
    for weights, centres in [TARGETS[target][2:]] if TARGETS[target][2:] else []:
        nearest = np.argmin(((draws[:, None] - centres) ** 2).sum(axis=2), axis=1)
        missing = bool((np.bincount(nearest, minlength=len(weights)) < weights / 3 * len(draws)).any())
    return {
        "first": first, "said": first.startswith("Usable"), "missing": missing, "held": [min(held), max(held)],
        "bound": max((float(p) / 100 for p in re.findall(r"([\d.]+) ?%", first)), default=None),
        "error": float(np.max(np.abs(draws.mean(axis=0) - mean) / sd)), "intervals": "hold 85" in second,
    }  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    rows = []
    for target in (*TARGETS, "all"):
        runs = [m for c, m in cells.items() if target in ("all", c.problem)]
        said = [r for r in runs if r["said"]]
        true = [r for r in said if not r["missing"] and r["error"] <= r["bound"]]
        good = [r for r in runs if not r["missing"] and r["error"] < 0.25]
        told = [r for r in said if r["intervals"]]
        hold = [r for r in told if r["held"][0] >= 0.85 and r["held"][1] <= 0.95]
        kept = [r for r in good if r["said"]]
        rows.append((target, *map(len, (runs, said, true, good, kept, told, hold))))
    head = ["target", "runs", "said", "true", "good", "kept", "intervals said", "and true"]
    table = report.table(head, rows)
    return report.page("verdicts", locals())


if __name__ == "__main__":
    Benchmark("verdicts", measure, page).command(__doc__, ["pk.sample"], list(TARGETS), TOTALS, seeds=4)
