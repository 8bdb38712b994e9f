"""What tuning an estimator's work is worth: a bootstrap filter with its particles fixed and tuned.

An autoregression seen 150 times with little error, which makes a bootstrap filter noisy. ``NoisyLogLikelihood(filter)``
with 100 and 300 particles as they are, and ``NoisyLogLikelihood(filter, work=N)`` begun with 10, 100 and 2,000.
Effective draws (of the worst parameter, ArviZ) per 1000 evaluations and per 100,000 particles, tuning included in both;
R-hat; the log estimate's sd at the posterior mean.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.tuned_work

Each cell is stored in results/tuned_work.json as soon as it is done, so that a run goes on where it was stopped.
"""

import argparse
import json
import logging
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import provenance
from benchmarks.basics import versions
from benchmarks.report import table
from pymc_kameleon.particle_filter import LinearGaussianFilter, simulate_linear_gaussian

TIMES, ERROR = 150, 0.2  # of the observations; the states' own sd is 0.5
CHAINS, TUNE, DRAWS = 4, 1500, 1500
SEEDS = (1, 2)
STEPS = (pk.FastKameleonStep, pk.KamiltonianStep)
PLANS = (("fixed", 100), ("fixed", 300), ("tuned", 10), ("tuned", 100), ("tuned", 2000))
NAMES = ("mean", "persistence", "sd")
RESULTS = Path(__file__).parent / "results"


class Counted:
    """A filter that counts its particles."""

    def __init__(self, y):
        self.filter, self.particles, self.calls = LinearGaussianFilter(y), 0, 0

    def __call__(self, rng, *parameters, work):
        """The log estimate."""
        self.particles += work
        self.calls += 1
        return self.filter(rng, *parameters, ERROR, work=work)


def model_of(likelihood, plan, n):
    """Weak priors."""
    if plan == "tuned":
        op = pk.NoisyLogLikelihood(likelihood, work=n)
    else:
        op = pk.NoisyLogLikelihood(lambda rng, *parameters: likelihood(rng, *parameters, work=n))
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1.0)
        persistence = pm.Beta("persistence", 5.0, 1.5)
        sd = pm.HalfNormal("sd", 1.0)
        pm.Potential("likelihood", op(mean, persistence, sd))
    return model


def cell(step, plan, n, seed):
    """One run of pm.sample."""
    y, _ = simulate_linear_gaussian(np.random.default_rng(seed), TIMES, observation_sd=ERROR)
    likelihood = Counted(y)
    model = model_of(likelihood, plan, n)
    with model:
        idata = pm.sample(
            DRAWS, tune=TUNE, chains=CHAINS, cores=1, step=step(), random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    posterior = idata["posterior"]
    ess = min(float(az.ess(posterior)[name]) for name in NAMES)
    chosen = [n] * CHAINS
    if plan == "tuned":
        chosen = [int(v) for v in idata["sample_stats"]["work"].values[:, -1]]
    centre = [float(posterior[name].mean()) for name in NAMES]
    rng, middle = np.random.default_rng(0), int(np.median(chosen))
    spread = np.std([likelihood.filter(rng, *centre, ERROR, work=middle) for _ in range(200)])
    return {
        "chosen": chosen, "ess": ess, "rhat": max(float(az.rhat(posterior)[name]) for name in NAMES),
        "calls": likelihood.calls, "particles": likelihood.particles, "noise_sd": float(spread),
        "accepted": float(idata["sample_stats"]["accepted"].mean()), "means": centre,
        "sds": [float(posterior[name].std()) for name in NAMES],
    }  # fmt: skip


def rows(cells):
    """One for each step and plan, seeds side by side."""
    found = []
    for step in STEPS:
        for plan, n in PLANS:
            runs = [cells.get(key(step, plan, n, seed)) for seed in SEEDS]
            runs = [r for r in runs if r is not None]
            if not runs:
                continue
            chosen = sorted(c for r in runs for c in r["chosen"])
            found.append(
                (
                    step.__name__, f"{plan}, {n}" if plan == "fixed" else f"tuned from {n}",
                    f"{chosen[0]}" if chosen[0] == chosen[-1] else f"{chosen[0]} to {chosen[-1]}",
                    side_by_side(runs, lambda r: f"{r['noise_sd']:.2f}"),
                    side_by_side(runs, lambda r: f"{r['rhat']:.2f}"),
                    side_by_side(runs, lambda r: f"{1000 * r['ess'] / r['calls']:.1f}"),
                    side_by_side(runs, lambda r: f"{1e5 * r['ess'] / r['particles']:.1f}"),
                )
            )  # fmt: skip
    return found


def side_by_side(runs, shown):
    return ", ".join(map(shown, runs))


def key(step, plan, n, seed):
    return f"{step.__name__} {plan} {n} {seed}"


def report(cells):
    """The table as Markdown."""
    header = [
        "step", "particles", "chosen", "noise sd at the mean", "R-hat", "effective draws per 1000 evaluations",
        "per 100,000 particles",
    ]  # fmt: skip
    return f"""# An estimator's work, fixed and tuned

{versions()}. An autoregression seen {TIMES} times, observation sd {ERROR},
state sd 0.5, three unknowns, bootstrap filter; {CHAINS} chains of {DRAWS:,} draws after {TUNE:,}; seeds
{", ".join(map(str, SEEDS))} (data and chains), side by side. Effective draws of the worst parameter; evaluations and
particles of tuning are counted. `python -m benchmarks.tuned_work`

{table(header, rows(cells))}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    settings = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*object mode.*|.*could not link to a BLAS.*")
    path = RESULTS / "tuned_work.json"
    cells = json.loads(path.read_text())["cells"] if path.exists() else {}
    for seed in SEEDS:
        for step in STEPS:
            for plan, n in PLANS:
                name = key(step, plan, n, seed)
                if name in cells or settings.only not in name:
                    continue
                cells[name] = cell(step, plan, n, seed)
                print(name, cells[name], flush=True)
                path.write_text(json.dumps({"cells": cells}, indent=1) + "\n")
    text = report(cells)
    print(text)
    provenance.write(RESULTS / "tuned_work.md", text, "tuned_work")


if __name__ == "__main__":
    main()
