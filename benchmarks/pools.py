"""What pools are for: a second mode that chains which share a surrogate may all miss.

Two normal modes 8 sds apart in 3 dimensions, with weights .8 and .2, under a normal prior of sd 8. ``pk.sample`` with
16 chains and 2,000 evaluations, one pool and two: the share of draws in the second mode, R-hat, and what ``pk.report``
says first.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.pools

Five minutes.
"""

import logging
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk
from benchmarks import provenance
from benchmarks.basics import versions
from benchmarks.report import table

APART, WEIGHT, DIM = 8.0, 0.8, 3
CHAINS, EVALUATIONS, SEEDS = 16, 2000, range(1, 21)
RESULTS = Path(__file__).parent / "results"


def two_modes():
    """The prior is almost flat over both."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 8.0, shape=DIM, initval=np.zeros(DIM))
        other = x - np.eye(DIM)[0] * APART
        here = np.log(WEIGHT) - 0.5 * (x**2).sum()
        there = np.log(1.0 - WEIGHT) - 0.5 * (other**2).sum()
        pm.Potential("likelihood", pt.logaddexp(here, there))
    return model


def run(model, pools, seed):
    """(share of the second mode, the same by pool, R-hat, the report's first sentence)."""
    idata = pk.sample(
        max_evaluations=EVALUATIONS, chains=CHAINS, pools=pools, model=model, random_seed=seed, progressbar=False
    )  # fmt: skip
    there = idata["posterior"]["x"].values[..., 0] > APART / 2.0
    parts = [float(p.mean()) for p in np.array_split(there, pools)]
    rhat = float(az.rhat(idata["posterior"])["x"].max())
    return float(there.mean()), parts, rhat, pk.report(idata).split("\n")[0]


def wrong(share):
    """Off by a factor of two, or more."""
    return not 0.1 <= share <= 0.4


def report(found):
    """The table as Markdown, and the counts."""
    rows, counts = [], []
    for seed in SEEDS:
        one, two = found[seed, 1], found[seed, 2]
        rows.append(
            (
                seed, f"{one[0]:.2f}", f"{one[2]:.2f}", one[3].split(":")[0], ", ".join(f"{p:.2f}" for p in two[1]),
                f"{two[2]:.2f}", two[3].split(":")[0] + (": the pools" if "pools" in two[3] else ""),
            )
        )  # fmt: skip
    for pools in (1, 2):
        runs = [found[seed, pools] for seed in SEEDS]
        bad = [r for r in runs if wrong(r[0])]
        told = [r for r in bad if r[3].startswith("Not usable")]
        alarms = [r for r in runs if r not in bad and r[3].startswith("Not usable")]
        counts.append(
            f"pools={pools}: {len(bad)} of {len(runs)} runs wrong, of which {len(told)} were refused; "
            f"{len(alarms)} of the others were."
        )
    header = [
        "seed", "one pool: second mode", "R-hat", "report", "two pools: second mode in each", "R-hat", "report",
    ]  # fmt: skip
    return f"""# One pool and two

{versions()}. Two normal modes {APART:g} sds apart in {DIM} dimensions, the second with weight {1 - WEIGHT:.1f};
`pk.sample`, {CHAINS} chains, {EVALUATIONS:,} evaluations. A run is wrong whose share of the second mode is off by a
factor of two. What both pools miss they cannot tell. `python -m benchmarks.pools`

{" ".join(counts)}

{table(header, rows)}
"""


def main():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*could not link to a BLAS.*")
    model = two_modes()
    found = {}
    for seed in SEEDS:
        for pools in (1, 2):
            found[seed, pools] = run(model, pools, seed)
            print(seed, pools, found[seed, pools], flush=True)
    text = report(found)
    print(text)
    provenance.write(RESULTS / "pools.md", text, "pools")


if __name__ == "__main__":
    main()
