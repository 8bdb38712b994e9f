"""F-KAMH at its dissertation's sizes, and wrong acceptance ratios of published code (Kotlicki, 2015, 5.2 to 5.5, A.1).

*Section 5.1*: B(0.03, 100) and B(0.1, 100) in 8 dimensions from exact draws: effective draws per 1000 (figures 5.2 and
5.3) and per second (5.4 and 5.5) of F-KAMH by its number D of random features, beside KAMH with n = 600 and 1000: in
its own paper's settings, and "gamma = 0.5", in those of the dissertation, which are F-KAMH's. There the initial eta, of
KAMH nu, comes from a trial run of each chain: at a rate of 1 / m it does not come far from where it starts. "Untuned":
from 2.38 / sqrt(d), which is isotropic Metropolis in effect.

*Two wrong ratios*, in the same settings: a second code's KAMH takes its proposal for symmetric; the dissertation's own
KAMH and F-KAMH (appendices B.1, B.2) weigh the way back by the covariance at the state accepted *before*, where that at
the proposed point belongs.

*A.1* adds a constant cost to each draw; "no cost but the target's" is its limit, effective draws per 1000. Beside it
the cost of a draw by the length of the history, KAMH with all of it beside F-KAMH, which no figure shows.

    python -m benchmarks.papers.features         # 50 chains of what the figures show, 14 of others, 5 of D = 600
"""

import math
import time
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from benchmarks.basics import bulk_ess, estimate, generators, timed
from benchmarks.cells import Benchmark, Cell
from benchmarks.core import born, run_chain
from benchmarks.measures import DECILES
from benchmarks.papers.wrong_ratios import NoReverse, WrongReverse, WrongReverseFast
from pymc_kameleon.kernels import Gaussian
from pymc_kameleon.numerics.covariance import cholesky_update
from pymc_kameleon.numerics.random_features import draw_features, features
from pymc_kameleon.samplers.kameleon.fast import FastKameleon, _roots
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.schedule import Scheduled
from pymc_kameleon.targets import Banana

SEED = 20260303
TARGETS = {"B(0.03, 100)": Banana(0.03, 100.0, 8), "B(0.1, 100)": Banana(0.1, 100.0, 8)}
TUNE, DRAWS = 5000, 15_000
COSTS = "cost by the length of the history"


def every_draw(**options):
    """F-KAMH whose feature covariance takes in every state at once (4.1), in place of at growing intervals."""
    return Scheduled(inner=FastKameleon(**options), schedule=lambda t: 1.0)


class Run(NamedTuple):
    """A sampler."""

    algorithm: Callable[..., Any]
    options: dict[str, Any]
    trial: type | None = None  # of the sampler whose trial run the initial scale of local moves comes from


SLOW = Kameleon.presets["paper"]
FAST = {**FastKameleon.presets["paper"], "rate": "harmonic"}  # with a trial run of its own, which the preset has within
ALIKE = {**SLOW, **{name: FAST[name] for name in ("gamma", "local_start", "rate")}}  # the dissertation's KAMH
WRONG = ", previous state's covariance"


def fast(n: int, kind=FastKameleon, trial: type | None = FastKameleon) -> Run:
    return Run(kind, {**FAST, "n_features": n}, trial)


def alike(n: int, kind=Kameleon) -> Run:
    return Run(kind, {**ALIKE, "n_history": n}, Kameleon)


RUNS = {
    "KAMH, n = 1000": Run(Kameleon, SLOW),
    "KAMH, n = 1000, no reverse density": Run(NoReverse, SLOW),
    **{f"F-KAMH, D = {n}": fast(n) for n in (10, 50, 100, 300)},
    "F-KAMH, defaults": Run(FastKameleon, {}),
    **{f"F-KAMH, D = {n}{WRONG}": fast(n, WrongReverseFast) for n in (100, 300)},
    **{f"F-KAMH, D = {n}, untuned": fast(n, trial=None) for n in (50, 300)},
    "KAMH, n = 600": Run(Kameleon, {**SLOW, "n_history": 600}),
    "F-KAMH, D = 100, learned at every draw": fast(100, every_draw),
    f"KAMH, n = 1000{WRONG}": Run(WrongReverse, SLOW),
    **{f"KAMH, n = {n}, gamma = 0.5": alike(n) for n in (1000, 600)},
    **{f"KAMH, n = {n}, gamma = 0.5{WRONG}": alike(n, WrongReverse) for n in (1000, 600)},
    "F-KAMH, D = 600": fast(600),
}
UNIT = "KAMH, n = 1000"
SLOW_ONES = {"0.2": (UNIT, "KAMH, n = 600"), "0.5": ("KAMH, n = 1000, gamma = 0.5", "KAMH, n = 600, gamma = 0.5")}
FAST_ONES = tuple(f"F-KAMH, D = {n}" for n in (10, 50, 100, 300, 600))
CHAINS, FEWER, COSTLY = 50, 14, 5  # of what the figures show, of the others, of D = 600


def trial_scale(sampler, target, options, rng) -> float:
    """Eta, or nu, as a chain of its own learns it at a rate that can: ten times the draws before the first move."""
    options = {**options, "rate": "renewed"}
    x = target.sample(rng, 1)[0]
    found = run_chain(sampler, target.numba_log_density, x, rng, tune=10_000, draws=1, **options)
    return math.exp(found.state.log_scale)


def measure(cell: Cell) -> dict[str, Any]:
    """One chain from an exact draw."""
    if cell.sampler == COSTS:
        by_target = {name: costs(target) for name, target in TARGETS.items()}
        return {"table": history_costs(), "draws": by_target, "updates": [update_costs(d) for d in (100, 300)]}
    target, run = TARGETS[cell.problem], RUNS[cell.sampler]
    rng = generators(SEED + list(TARGETS).index(cell.problem), cell.seed + 1)[cell.seed]
    rng = rng.spawn(len(RUNS))[list(RUNS).index(cell.sampler)]  # new arms last: the others keep their streams
    density = target.numba_log_density
    options = dict(run.options)
    run_chain(run.algorithm, density, np.zeros(8), np.random.default_rng(0), tune=1200, draws=20, **options)
    x = target.sample(rng, 1)[0]
    if run.trial:
        options["scale"] = trial_scale(run.trial, target, options, rng)
    chain = run_chain(run.algorithm, density, x, rng, tune=TUNE, draws=cell.budget - TUNE, **options)
    levels = target.level(chain.draws)
    return {
        "ess": bulk_ess(chain.draws[None]).tolist(), "coverage": [float((levels <= q).mean()) for q in DECILES],
        "variance": float(np.square(chain.draws[:, 0]).mean()), "acceptance": chain.acceptance,
    }  # fmt: skip


def costs(target) -> dict[str, float]:
    """Microseconds of a draw after tuning by sampler: all in turns, the least of fifty hundreds."""
    lives, found = {}, dict.fromkeys(RUNS, math.inf)
    for name, run in RUNS.items():
        rng = np.random.default_rng(SEED)
        ends = {FastKameleon: {"scale": 50.0}, Kameleon: {"scale": 1.0}}  # trial runs, about
        options = run.options | ends.get(run.trial, {})
        life, evaluate = born(run.algorithm(**options), target.numba_log_density, target.sample(rng, 1)[0], rng)
        for _ in range(TUNE):
            life.draw(evaluate)
        life.freeze()
        lives[name] = life, evaluate
    for _ in range(50):  # others may be at work too
        for name, (life, evaluate) in lives.items():
            begin = time.process_time()
            for _ in range(100):
                life.draw(evaluate)
            found[name] = min(found[name], 1e4 * (time.process_time() - begin))
    return found


Row = namedtuple(  # the chains of one sampler on one target; two, the dissertation's measure: of two coordinates
    "Row", "name chains ess error two two_error microseconds deviation noise variance variance_error acceptance"
)


def rows(cells, target) -> dict[str, Row]:
    found: dict[str, Row] = {}
    about = next((m["draws"][target] for c, m in cells.items() if c.sampler == COSTS), dict.fromkeys(RUNS, math.nan))
    for name in RUNS:
        mine = [m for c, m in cells.items() if c[:2] == (name, target)]
        if len(mine) < 2:
            continue
        ess = 1000.0 * np.array([c["ess"] for c in mine]) / DRAWS
        coverage, variance = (np.array([c[what] for c in mine]) for what in ("coverage", "variance"))
        _, error = estimate(coverage)
        found[name] = Row(
            name, len(mine), *estimate(ess[:, ess.mean(axis=0).argmin()]), *estimate(ess[:, :2].mean(axis=1)),
            about[name], np.abs(coverage.mean(axis=0) - DECILES).mean(), math.sqrt(2.0 / math.pi) * error.mean(),
            *estimate(variance), np.mean([c["acceptance"] for c in mine]),
        )  # fmt: skip
    return found


def table(found: dict[str, Row]) -> str:
    unit = found[UNIT]
    head = ["sampler", "chains", "ESS / 1000", "± s.e.", "x₁ and x₂", "± s.e.", "cost of a draw", "ESS per second",
            "quantile error", "of which noise", "var x₁ (100)", "± s.e.", "acceptance"]  # fmt: skip
    lines = []
    for r in found.values():
        cost = r.microseconds / unit.microseconds
        lines.append(
            [r.name, r.chains, f"{r.ess:.2f}", f"{r.error:.2f}", f"{r.two:.2f}", f"{r.two_error:.2f}",
             f"{cost:.2f}", f"{r.two / unit.two / cost:.2f}", f"{r.deviation:.3f}", f"{r.noise:.3f}",
             f"{r.variance:.0f}", f"{r.variance_error:.0f}", f"{r.acceptance:.2f}"]
        )  # fmt: skip
    return report.table(head, lines)


def headline(by_target: dict[str, dict[str, Row]]) -> str:
    """The dissertation's claim against what is measured: ratios with 95 % intervals, on the logarithm."""
    lines = []
    for target, wrong, (gamma, names) in product(by_target, ("", WRONG), SLOW_ONES.items()):
        # a draw of a wrong ratio costs as one of the right one: ours are not made for speed
        fast, slow = (
            [
                by_target[target][name + wrong]._replace(microseconds=by_target[target][name].microseconds)
                for name in among
                if name + wrong in by_target[target]
            ]
            for among in (FAST_ONES, names)
        )
        for per, worth in (("second", lambda r: r.two / r.microseconds), ("draw", lambda r: r.two)):
            best, unit = max(fast, key=worth), max(slow, key=worth)
            ratio = worth(best) / worth(unit)
            width = math.exp(1.96 * math.hypot(best.two_error / best.two, unit.two_error / unit.two))
            which = [r.name.split(", ")[1] for r in (best, unit)]
            lines.append(
                [target, wrong.removeprefix(", ") or "the right one", gamma, per, *which, f"{ratio:.2f}",
                 f"{ratio / width:.2f} to {ratio * width:.2f}"]
            )  # fmt: skip
    head = ["target", "reverse density", "KAMH's gamma", "effective draws per", "F-KAMH", "KAMH", "ratio", "95 %"]
    return report.table(head, lines, left=6)


def history_costs() -> str:
    """Microseconds of a local covariance by the length of the history, least of twenty."""
    target, rng, lines = TARGETS["B(0.1, 100)"], np.random.default_rng(SEED), []
    for n in (250, 500, 1000, 2000, 5000, 10_000, 20_000):
        past = target.sample(rng, n)
        row: list[Any] = [n]
        for sampler in (Kameleon(**{**SLOW, "n_history": n}), FastKameleon(**{**FAST, "n_features": 100})):
            state = sampler.init(rng, past[0])._replace(log_scale=0.0)
            learning, model = timed(partial(sampler.learn, rng, state, past))

            def hundred(of=sampler, model=model, y=past[1]):
                for _ in range(100):
                    of.covariance(model, y)

            row += [f"{1e4 * min(timed(hundred)[0] for _ in range(20)):.0f}", f"{1e3 * learning:.0f}"]
        lines.append(row)
    head = ["n", "KAMH, all of it: a covariance, µs", "its refresh, ms", "F-KAMH, D = 100: a covariance, µs",
            "from scratch, ms"]  # fmt: skip
    return report.table(head, lines)


def update_costs(n_features: int) -> tuple[float, float]:
    """Microseconds for a root of the features' covariance: brought up to date by one state, and from scratch."""
    rng = np.random.default_rng(SEED)
    unit = draw_features(rng, Gaussian(), 8, n_features, 1.0, "sincos")
    phi = features(rng.standard_normal((5000, 8)), unit)
    cov = np.cov(phi.T)
    root = np.linalg.cholesky(cov + 1e-9 * np.eye(n_features))
    ways = (lambda: cholesky_update(root, phi[0]), lambda: _roots(cov, unit, 1.0))
    once, anew = (1e6 * min(timed(how)[0] for _ in range(20)) for how in ways)
    return once, anew


def page(cells: dict[Cell, dict]) -> str:
    found = {target: rows(cells, target) for target in TARGETS}
    least = min(r.chains for t in found.values() for r in t.values())
    about = next(m for c, m in cells.items() if c.sampler == COSTS)
    once, more = about["updates"]
    length, claim, beside = TUNE + DRAWS, headline(found), wrong(found)
    tables = "\n\n".join(f"## {target}\n\n{table(r)}" for target, r in found.items())
    return report.page("paper_features", globals() | locals())


def wrong(found) -> str:
    """Wrong ratios beside the right ones."""
    previous = WRONG.removeprefix(", ")
    pairs = (
        ("KAMH, n = 1000", "no reverse density"), ("KAMH, n = 1000", previous),
        ("KAMH, n = 1000, gamma = 0.5", previous), ("KAMH, n = 600, gamma = 0.5", previous),
        ("F-KAMH, D = 100", previous), ("F-KAMH, D = 300", previous),
    )  # fmt: skip
    lines = []
    for (target, by), (name, how) in product(found.items(), pairs):
        if (off := by.get(f"{name}, {how}")) is not None:
            widths = [f"{r.variance:.0f} ± {r.variance_error:.0f}" for r in (off, by[name])]
            errors = [f"{e:.3f}" for e in (off.deviation, by[name].deviation, by[name].noise)]
            lines.append([target, name, how, *errors, *widths, f"{off.ess:.2f}", f"{by[name].ess:.2f}"])
    head = ["target", "sampler", "reverse density", "quantile error", "in place of", "of which noise", "variance of x₁",
            "in place of", "ESS per 1000 draws", "in place of"]  # fmt: skip
    return report.table(head, lines, left=3)


def wanted(cell: Cell) -> bool:
    """Whether a cell is one of those that the command runs."""
    if cell.sampler == COSTS:
        return cell.seed == 0 and cell.problem == "B(0.1, 100)"
    shown = (*FAST_ONES[:-1], *(name for names in SLOW_ONES.values() for name in names))
    return cell.seed < (CHAINS if cell.sampler in shown else COSTLY if cell.sampler == FAST_ONES[-1] else FEWER)


if __name__ == "__main__":
    benchmark = Benchmark("paper_features", measure, page)
    benchmark.command(__doc__, [*RUNS, COSTS], list(TARGETS), (TUNE + DRAWS,), CHAINS, wanted)
