"""What tuning an estimator's work is worth: a bootstrap filter with its particles fixed and tuned.

Little error of the observations makes a bootstrap filter noisy. ``NoisyLogLikelihood(filter)`` with 100 and 300
particles as they are, and ``NoisyLogLikelihood(filter, work=N)`` begun with 10, 100 and 2,000.

    python -m benchmarks.tuned_work            # 25 minutes
"""

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import drive, report
from benchmarks.cells import Benchmark, Cell
from pymc_kameleon.particle_filter import LinearGaussianFilter, simulate_linear_gaussian

TIMES, ERROR = 150, 0.2  # of the observations; the states' own sd is 0.5
CHAINS = 4
STEPS = ("FastKameleonStep", "KamiltonianStep")
PLANS = ("fixed 100", "fixed 300", "tuned 10", "tuned 100", "tuned 2000")
NAMES = ("mean", "persistence", "sd")


class Counted:
    """A filter that counts its particles."""

    def __init__(self, y):
        self.filter, self.particles, self.calls = LinearGaussianFilter(y), 0, 0

    def __call__(self, rng, *parameters, work):
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


def measure(cell: Cell) -> dict:
    """One run of pm.sample, half of the draws tuning; the seed makes the data, too."""
    plan, n = cell.problem.split()
    y, _ = simulate_linear_gaussian(np.random.default_rng(cell.seed + 1), TIMES, observation_sd=ERROR)
    likelihood, n = Counted(y), int(n)
    half = cell.budget // 2
    with model_of(likelihood, plan, n):
        step = getattr(pk, cell.sampler)()
        idata = drive.sample(half, tune=half, chains=CHAINS, step=step, random_seed=cell.seed + 1)
    posterior, chosen = idata["posterior"], [n] * CHAINS
    if plan == "tuned":
        chosen = [int(v) for v in idata["sample_stats"]["work"].values[:, -1]]
    centre = [float(posterior[name].mean()) for name in NAMES]
    rng, middle = np.random.default_rng(0), int(np.median(chosen))
    spread = np.std([likelihood.filter(rng, *centre, ERROR, work=middle) for _ in range(200)])
    return {
        "chosen": chosen, "ess": min(float(az.ess(posterior)[name]) for name in NAMES),
        "rhat": max(float(az.rhat(posterior)[name]) for name in NAMES), "calls": likelihood.calls,
        "particles": likelihood.particles, "noise_sd": float(spread),
    }  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    """One row for each step and plan, seeds side by side."""
    rows = []
    for step in STEPS:
        for plan in PLANS:
            runs = [m for c, m in sorted(cells.items()) if c[:2] == (step, plan)]
            if not runs:
                continue
            few, *_, many = sorted(c for r in runs for c in r["chosen"])
            rows.append([
                step, plan.replace("tuned", "tuned from").replace("fixed ", "fixed, "),
                f"{few}" if few == many else f"{few} to {many}",
                ", ".join(f"{r['noise_sd']:.2f}" for r in runs), ", ".join(f"{r['rhat']:.2f}" for r in runs),
                ", ".join(f"{1000 * r['ess'] / r['calls']:.1f}" for r in runs),
                ", ".join(f"{1e5 * r['ess'] / r['particles']:.1f}" for r in runs),
            ])  # fmt: skip
    head = ["step", "particles", "chosen", "noise sd at the mean", "R-hat", "effective draws per 1000 evaluations",
            "per 100,000 particles"]  # fmt: skip
    table = report.table(head, rows)
    return report.page("tuned_work", globals() | locals())


if __name__ == "__main__":
    Benchmark("tuned_work", measure, page).command(__doc__, STEPS, PLANS, (3000,), seeds=2)
