"""An epidemic a region, its solver takes 50 ms, on 16 processes: ``pk.sample`` beside ``pm.sample(cores=4)``.

Eight regions, 22 unknowns: each has its reproduction number and its first cases, from shared hyperparameters; the
recovery rate is everybody's, weekly counts are negative binomial. An evaluation of the log density takes 0.4 s.

    python -m benchmarks.regions        # half an hour, nearly all of it asleep
"""

import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.basics import bulk_ess, rhat
from benchmarks.cells import Benchmark, Cell
from benchmarks.hierarchical.kit import Kit
from benchmarks.hierarchical.truth import unconstrained

REGIONS, PEOPLE, WEEKS = 8, 1e5, np.arange(0.0, 13.0)
EVALUATIONS, CORES, WORKERS, NAP = 2000, 4, 16, 0.05
SAMPLERS = ["pk.sample", "pm.sample(step=KamiltonianStep())", "pm.sample(step=pm.DEMetropolisZ())"]


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


def measure(cell: Cell) -> dict:
    usual = {"random_seed": cell.seed, "progressbar": False}
    with epidemics() as model:
        begin = time.monotonic()
        if cell.sampler == "pk.sample":
            with ProcessPoolExecutor(WORKERS) as executor:
                idata = pk.sample(max_evaluations=cell.budget, executor=executor, **usual)
        else:
            half = cell.budget // CORES // 2
            step = pm.DEMetropolisZ() if "DEMetropolisZ" in cell.sampler else pk.KamiltonianStep()
            idata = pm.sample(half, tune=half, chains=CORES, cores=CORES, step=step, **usual)
        seconds, x = time.monotonic() - begin, unconstrained(model, idata)
    said = pk.report(idata).split(":")[0]
    return {"wall": seconds, "ess": float(bulk_ess(x).min()), "rhat": rhat(x), "said": said}


def page(cells: dict[Cell, dict]) -> str:
    rows = [
        [f"`{c.sampler}`", c.seed, f"{m['wall']:.0f}", f"{m['ess']:.0f}", f"{m['rhat']:.3f}",
         f"{m['ess'] / m['wall']:.2g}", m["said"]]
        for c, m in sorted(cells.items(), key=lambda item: (SAMPLERS.index(item[0].sampler), item[0].seed))
    ]  # fmt: skip
    head = ["", "seed", "seconds", "effective draws", "R-hat", "a second", "`pk.report`"]
    table = report.table(head, rows, left=1)
    return report.page("regions", globals() | locals())


if __name__ == "__main__":
    Benchmark("regions", measure, page).command(__doc__, SAMPLERS, ["eight regions"], (EVALUATIONS,), 3)
