"""What pools are for: a second mode that chains which share a surrogate may all miss.

One pool and two under a normal prior of sd 8: the share of draws in the second mode, R-hat, what ``pk.report`` says.

    python -m benchmarks.pools               # five minutes
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.cells import Benchmark, Cell

APART, WEIGHT, DIM = 8.0, 0.8, 3
CHAINS, EVALUATIONS = 16, 2000
POOLS = {"one pool": 1, "two pools": 2}


def two_modes():
    """The prior is almost flat over both."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 8.0, shape=DIM, initval=np.zeros(DIM))
        other = x - np.eye(DIM)[0] * APART
        here = np.log(WEIGHT) - 0.5 * (x**2).sum()
        there = np.log(1.0 - WEIGHT) - 0.5 * (other**2).sum()
        pm.Potential("likelihood", pt.logaddexp(here, there))
    return model


def measure(cell: Cell) -> dict:
    """Share of the second mode, by pool too, R-hat, the report's first sentence."""
    pools = POOLS[cell.sampler]
    with two_modes():
        idata = pk.sample(
            max_evaluations=cell.budget, chains=CHAINS, pools=pools, random_seed=cell.seed + 1, progressbar=False
        )
    there = idata["posterior"]["x"].values[..., 0] > APART / 2.0
    return {
        "share": float(there.mean()), "shares": [float(p.mean()) for p in np.array_split(there, pools)],
        "rhat": float(az.rhat(idata["posterior"])["x"].max()), "report": pk.report(idata).split("\n")[0],
    }  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    rows, counts = [], []
    for cell, m in sorted(cells.items(), key=lambda item: (item[0].seed, item[0].sampler)):
        said = m["report"].split(":")[0] + (": the pools" if "pools" in m["report"] else "")
        shares = ", ".join(f"{p:.2f}" for p in m["shares"])
        rows.append([cell.seed + 1, cell.sampler, shares, f"{m['rhat']:.2f}", said])
    for name, pools in POOLS.items():
        runs = [m for c, m in cells.items() if c.sampler == name]
        bad = [m for m in runs if not 0.1 <= m["share"] <= 0.4]
        refused = [m for m in runs if m["report"].startswith("Not usable")]
        told = [m for m in bad if m in refused]
        counts.append(
            f"pools={pools}: {len(bad)} of {len(runs)} runs wrong, of which {len(told)} were refused; "
            f"{len(refused) - len(told)} of the others were."
        )
    head = ["seed", "", "share of the second mode, by pool", "R-hat", "report"]
    table, counted, second = report.table(head, rows), " ".join(counts), 1 - WEIGHT
    return report.page("pools", globals() | locals())


if __name__ == "__main__":
    Benchmark("pools", measure, page).command(__doc__, list(POOLS), ["two modes"], (EVALUATIONS,), 20)
