"""An epidemic a region, its solver takes 50 ms, on 16 processes: ``pk.sample`` beside ``pm.sample(cores=4)``.

Eight regions, twenty unknowns: each has its reproduction number and its first cases, from shared hyperparameters; the
recovery rate is everybody's, weekly counts are negative binomial. An evaluation of the log density takes 0.4 s.

    python -m benchmarks.hierarchical.regions        # six minutes for a seed, nearly all of them asleep
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.basics import bulk_ess, rhat
from benchmarks.hierarchical.kit import Kit
from benchmarks.hierarchical.truth import unconstrained

REGIONS, PEOPLE, WEEKS = 8, 1e5, np.arange(0.0, 13.0)
EVALUATIONS, CORES, WORKERS, NAP = 2000, 4, 16, 0.05


def solve(own, recovery):
    """Logs of weekly cases; ``own``: logs of the reproduction number and of the first cases."""
    time.sleep(NAP)
    rate, first = np.exp(recovery), np.exp(own[1]) / PEOPLE

    def slope(state, week):
        infections = np.exp(own[0]) * rate * state[0] * max(state[1], 0.0)
        return [-infections, infections - rate * state[1]]

    susceptible = odeint(slope, [1.0 - first, first], WEEKS, rtol=1e-8, atol=1e-12)[:, 0]
    return np.log(np.maximum(-PEOPLE * np.diff(susceptible), 1e-8))


def epidemics() -> pm.Model:
    rng = np.random.default_rng(8)
    truth = np.log([1.9, 12.0]) + np.array([0.2, 0.6]) * rng.standard_normal((REGIONS, 2))
    cases = [rng.negative_binomial(20.0, 20.0 / (20.0 + np.exp(solve(own, np.log(0.9))))) for own in truth]
    kit = Kit(black=True)
    solver = kit.box(solve, pt.dvector, solve)
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log([2.0, 10.0]), [0.4, 1.0], shape=2)
        spread = pm.HalfNormal("spread", [0.3, 1.0], shape=2)
        recovery = pm.Normal("recovery", np.log(1.0), 0.2)
        dispersion = pm.Exponential("dispersion", 0.05)
        own = kit.group("own", mean, spread, (REGIONS, 2))
        for k in range(REGIONS):
            pm.NegativeBinomial(f"cases{k}", mu=pt.exp(solver(own[k], recovery)), alpha=dispersion, observed=cases[k])
    return model


def row(name: str, model, seed: int) -> list[str]:
    begin, usual = time.monotonic(), {"random_seed": seed, "progressbar": False}
    with model:
        if name == "pk.sample":
            with ProcessPoolExecutor(WORKERS) as executor:
                idata = pk.sample(max_evaluations=EVALUATIONS, executor=executor, **usual)
        else:
            half = EVALUATIONS // CORES // 2
            step = pm.DEMetropolisZ() if "DEMetropolisZ" in name else pk.KamiltonianStep()
            idata = pm.sample(half, tune=half, chains=CORES, cores=CORES, step=step, **usual)
    seconds = time.monotonic() - begin
    x = unconstrained(model, idata)
    ess = float(bulk_ess(x).min())
    return [f"`{name}`", seed, f"{seconds:.0f}", f"{ess:.0f}", f"{rhat(x):.3f}", f"{ess / seconds:.2f}"]


if __name__ == "__main__":
    names = ("pk.sample", "pm.sample(step=KamiltonianStep())", "pm.sample(step=pm.DEMetropolisZ())")
    rows = [row(name, epidemics(), int(seed)) for seed in sys.argv[1:] or ["0"] for name in names]
    print(report.table(["", "seed", "seconds", "effective draws", "R-hat", "a second"], rows, left=1))
