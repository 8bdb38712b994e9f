"""Effective draws per log density evaluation from a cold start, beside PyMC's gradient-free steps.

Twelve targets, four chains from over-dispersed single points, nothing set by hand. A budget is a number of
*log density evaluations* per chain, start and tuning included; half of it is tuning. Per evaluation, because
that is what an expensive likelihood is paid in: ``pm.DEMetropolisZ`` evaluates twice in a draw (the current
point again) and so gets half as many draws, ``pm.Slice`` and ``pm.Metropolis`` pay by the coordinate.

Two measures, both per 1000 evaluations:

- bulk effective sample size of the worst coordinate, all four chains together. It cannot see what no chain
  has visited, and where the chains disagree it says only that (a floor of 5 to 7 draws in all);
- squared error against the truth, turned into equivalent independent draws of the worst coordinate
  (``diagnostics.error_efficiency``), over the chains of all seeds.

    python -m benchmarks.cold_start                      # everything: hours; --sampler, --target, --budget
    python -m benchmarks.cold_start --table              # the tables again, from results/cold_start.json
    python -m benchmarks.cold_start --ablation           # KameleonStep, one switch at a time
    python -m benchmarks.cold_start --check              # the chains are those of pm.sample

Every (sampler, target, budget, seed) is stored when it is done, with a digest of the code that made it, and not run
again until that code changes, or ``--again`` is given.
"""

import argparse
import copy
import importlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import basics, core, provenance, report
from benchmarks.report import digits, table
from pymc_kameleon.diagnostics import CountingLogDensity, MarginalTruth, error_efficiency
from pymc_kameleon.samplers import screened
from pymc_kameleon.samplers.kameleon import full as kameleon
from pymc_kameleon.targets import (
    Banana,
    Bimodal,
    CorrelatedGaussian,
    EightSchools,
    Flower,
    Funnel,
    LogisticRegression,
    LotkaVolterra,
    Ring,
    StudentT,
    odd_units_banana,
)
from pymc_kameleon.targets.importance import Envelope, laplace

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "cold_start.json"
BUDGETS = (10_000, 30_000)
CHAINS = 4
CONVERGED = 1.05  # R-hat
WORTH_COMPARING = 2.0  # effective draws per 1000 evaluations of the reference
TRUTH_DRAWS = 400_000

# --- targets -------------------------------------------------------------------------------------

TARGETS = {
    "banana .03": Banana(0.03, 100.0, 8),
    "banana .1": Banana(0.1, 100.0, 8),
    "flower": Flower(10.0, 6.0, 6, 1.0, 8),
    "ring": Ring(10.0, 1.0, 8),
    "funnel": Funnel(3.0, 5),
    "gauss20": CorrelatedGaussian(1e4, 20),
    "t5": StudentT(5.0, 10),
    "bimodal": Bimodal(4.0, 2),
    "logistic": LogisticRegression(),
    "lotka-volterra": LotkaVolterra(),
    "eight schools": EightSchools(),
    "odd units": odd_units_banana(),
}
# KamiltonianStep's surrogates can represent these log densities exactly: polynomials of the degree that they have,
# and a scale. Eight schools is a scale and polynomials, too, but for the prior of tau.
SPAN = ("banana .03", "banana .1", "funnel", "gauss20", "odd units")
TARGET_MODULES = tuple(sorted({type(target).__module__ for target in TARGETS.values()}))


def start(name: str, rng: np.random.Generator) -> np.ndarray:
    """One over-dispersed point, shape (d,): each coordinate uniform within two standard deviations of its mean.

    Four targets differ, as in the study that these benchmarks follow. Logistic: within 2 of zero, twenty posterior
    standard deviations wide. Funnel: within 6 in every coordinate (the neck's and the mouth's scales differ by
    thousands). Eight schools: mu within 10 of 0, log tau in (-1, 2.5), the effects within 10 of 4. Lotka-Volterra:
    within 0.2 of a point among the cycles, in the logarithms, since chains that start farther off may stay in the flat
    line, which is another mode.
    """
    target = TARGETS[name]
    u = rng.uniform(-2.0, 2.0, target.dim)
    if name == "logistic":
        return u
    if name == "funnel":
        return 3.0 * u
    if name == "eight schools":
        return np.concatenate([5.0 * u[:1], rng.uniform(-1.0, 2.5, 1), 4.0 + 5.0 * u[2:]])
    if name == "lotka-volterra":
        return target.initial_point + 0.1 * u
    return target.mean + np.sqrt(np.diag(target.cov)) * u


def starts(name: str, seed: int) -> np.ndarray:
    """Starting points of a group of chains, the same for every sampler, shape (chains, d)."""
    return np.array([start(name, rng) for rng in basics.generators([_key(name), seed], CHAINS)])


def _key(text):
    return zlib.crc32(text.encode())


def truth(name: str, store: dict) -> MarginalTruth:
    """Moments in closed form (or by quadrature), quantiles from exact draws; kept in the store."""
    if name not in store["truth"]:
        target = TARGETS[name]
        draws, weights = _reference(target)
        quantiles = [_quantiles(column, weights) for column in draws.T]
        found = (target.mean, np.diag(target.cov), np.transpose(quantiles))
        store["truth"][name] = [np.array(v).tolist() for v in found]
    return MarginalTruth(*(np.array(v) for v in store["truth"][name]))


def _reference(target):
    """Draws and weights: exact draws, or for Lotka-Volterra importance sampling about the mode."""
    rng = np.random.default_rng(20_251_120)
    if not isinstance(target, LotkaVolterra):
        return target.sample(rng, TRUTH_DRAWS), np.ones(TRUTH_DRAWS)
    df = laplace(target.log_density, target.initial_point).df
    envelope = Envelope(target.mean, np.linalg.cholesky(target.cov), df)
    normal = rng.standard_normal((TRUTH_DRAWS, target.dim))
    s = normal / np.sqrt(rng.chisquare(df, (TRUTH_DRAWS, 1)) / df)
    log_weight = envelope.log_weight(target.numba_log_density, s)
    return envelope.location + s @ envelope.factor.T, np.exp(log_weight - log_weight.max())


def _quantiles(values, weights):
    order = np.argsort(values)
    content = np.cumsum(weights[order])
    return np.interp((0.1, 0.25, 0.75, 0.9), content / content[-1], values[order])


# --- samplers ------------------------------------------------------------------------------------


class Sampler(NamedTuple):
    """``algorithm``: "module:Class" of ``pymc_kameleon.samplers``, or a step of PyMC's as "pm.Name".

    ``screen`` is the step's default: so many transitions make one screened move.
    """

    label: str
    algorithm: str
    options: dict[str, Any]
    screen: int = 0


SAMPLERS = {
    "adaptive_metropolis": Sampler(
        "AdaptiveMetropolis", "adaptive_metropolis:AdaptiveMetropolis", {}
    ),
    "kameleon": Sampler("Kameleon", "kameleon.full:Kameleon", {}),
    "fast_kameleon_screened": Sampler("FastKameleon", "kameleon.fast:FastKameleon", {}, screen=10),
    "fast_kameleon": Sampler("FastKameleon, screen=0", "kameleon.fast:FastKameleon", {}),
    "gaussian_mixture": Sampler("GaussianMixture", "gaussian_mixture.sampler:GaussianMixture", {}),
    "kamiltonian": Sampler("Kamiltonian", "kamiltonian.values.sampler:ValueKamiltonian", {}),
    "demetropolisz": Sampler("pm.DEMetropolisZ", "pm.DEMetropolisZ", {}),
    "demetropolisz_lambda": Sampler("… tune=lambda", "pm.DEMetropolisZ", {"tune": "lambda"}),
    "demetropolisz_keep": Sampler(
        "… drop fraction 0", "pm.DEMetropolisZ", {"tune_drop_fraction": 0.0}
    ),
    "slice": Sampler("pm.Slice", "pm.Slice", {}),
    "metropolis": Sampler("pm.Metropolis", "pm.Metropolis", {}),
}
PYMC = tuple(name for name, s in SAMPLERS.items() if s.algorithm.startswith("pm."))
OURS = tuple(name for name in SAMPLERS if name not in PYMC)

# One switch of KameleonStep's defaults at a time.
ABLATION_BUDGET, ABLATION_SEEDS = 20_000, 2
ABLATION_TARGETS = ("banana .03", "ring", "t5", "logistic", "gauss20")
ABLATIONS = {
    "defaults": {},
    "normalization none": {"normalization": "none"},
    "normalization trace": {"normalization": "trace"},
    "coordinates scaled": {"coordinates": "scaled"},
    "coordinates raw": {"coordinates": "raw"},
    "autoregressive share 0": {"autoregressive_share": 0.0},
    "learn_from_values no": {"learn_from_values": False},
    "global share 0": {"global_share": 0.0},
    "global share 0.25": {"global_share": 0.25},
    "n_history 200": {"n_history": 200},
    "lengthscale factor 0.25": {"lengthscale_factor": 0.25},
    "lengthscale factor 1": {"lengthscale_factor": 1.0},
    "gamma 0.1": {"gamma": 0.1},
    "gamma 0.8": {"gamma": 0.8},
    "target_accept 0.35": {"target_accept": 0.35},
    "subsample random": {"subsample": "random"},
    'preset "paper"': kameleon.PAPER,
}
ABLATED = {f"kameleon, {k}": Sampler(k, "kameleon.full:Kameleon", v) for k, v in ABLATIONS.items()}


class Chain(NamedTuple):
    """Draws after tuning (n, d); how many draws were tuning; evaluations in all; processor time of both parts."""

    draws: np.ndarray
    tuning_draws: int
    evaluations: int
    tuning_seconds: float
    seconds: float


def run(name: str, target_name: str, budget: int, seed: int) -> list[Chain]:
    """Chains of one cell."""
    sampler = (SAMPLERS | ABLATED)[name]
    target = TARGETS[target_name]
    rngs = basics.generators([_key(target_name), _key(name), seed], CHAINS)
    one = _pymc_chain if sampler.algorithm.startswith("pm.") else _own_chain
    return [
        one(sampler, target, x, rng, budget)
        for x, rng in zip(starts(target_name, seed), rngs, strict=True)
    ]


@cache
def code(name: str) -> str:
    """Digest of what a cell of a sampler is made with: its module and the targets, with all they use, or PyMC."""
    sampler = (SAMPLERS | ABLATED)[name]
    algorithm = sampler.algorithm
    if algorithm.startswith("pm."):
        version = importlib.metadata.version("pymc")
        return f"pymc {version}, {provenance.digest(*TARGET_MODULES)}"
    return provenance.digest(
        f"pymc_kameleon.samplers.{algorithm.partition(':')[0]}",
        *["pymc_kameleon.samplers.screened"] * (sampler.screen > 0),
        "pymc_kameleon.targets",
        "benchmarks.core",
    )


def _own_chain(sampler, target, x, rng, budget):
    """At most one evaluation in a draw, so half of the draws are tuning."""
    module, _, name = sampler.algorithm.partition(":")
    inner = getattr(importlib.import_module(f"pymc_kameleon.samplers.{module}"), name)

    def algorithm(**options):
        made = inner(**options)
        return screened.Screened(inner=made, transitions=sampler.screen) if sampler.screen else made

    tune = budget // 2
    chain = core.run_chain(
        algorithm, target.numba_log_density, x, rng, tune=tune, draws=budget - tune,
        **sampler.options,
    )  # fmt: skip
    return Chain(chain.draws, tune, chain.evaluations, chain.tuning_seconds, chain.seconds)


class _BudgetSpentError(Exception):
    pass


class _Limited(CountingLogDensity):
    """Raises once the budget is spent: one draw of Slice's may take thousands of evaluations."""

    def __init__(self, log_density, limit):
        super().__init__(log_density)
        self.limit = limit

    def __call__(self, x):
        if self.evaluations >= self.limit:
            raise _BudgetSpentError
        return super().__call__(x)


def _pymc_chain(sampler, target, x, rng, budget):
    """PyMC's step, its log density swapped for the target's compiled and counted one; the calls stay PyMC's."""
    log_density = _Limited(target.numba_log_density, budget)
    step = _pymc_step(sampler, _stand_in(target.dim), rng)
    if hasattr(step, "delta_logp"):  # log p(proposed) - log p(current): both are evaluated
        step.delta_logp = lambda q, q0: log_density(q) - log_density(q0)
    else:
        step.logp = log_density
    positions, tuning_draws, begin = [np.array(x)], None, time.process_time()
    half_time = math.nan
    with np.errstate(all="ignore"):  # exp of a large log ratio, for a statistic
        try:
            while True:
                if tuning_draws is None and log_density.evaluations >= budget / 2:
                    tuning_draws, half_time = len(positions) - 1, time.process_time()
                    step.stop_tuning()
                positions.append(step.step({"x": positions[-1]})[0]["x"])
        except _BudgetSpentError:
            end = time.process_time()
    if tuning_draws is None:  # one draw took more than the second half
        tuning_draws, half_time = len(positions) - 1, end
    draws = np.array(positions[tuning_draws + 1 :] or positions[-1:])
    return Chain(draws, tuning_draws, log_density.evaluations, half_time - begin, end - half_time)


@cache
def _stand_in(dim):
    """A model of the right shape: PyMC compiles its density, which is then replaced."""
    import pymc as pm

    with pm.Model() as model:
        pm.Normal("x", shape=dim)
    return model


def _pymc_step(sampler, model, rng):
    import pymc as pm

    with model:
        return getattr(pm, sampler.algorithm.removeprefix("pm."))(rng=rng, **sampler.options)


# --- measures ------------------------------------------------------------------------------------


def measure(chains: list[Chain], reference: MarginalTruth) -> dict:
    """What is stored of a cell; efficiencies per 1000 evaluations."""
    import arviz as az

    evaluations = sum(c.evaluations for c in chains)
    n = min(len(c.draws) for c in chains)
    draws = np.array([c.draws[-n:] for c in chains])
    ess, rhat = np.zeros(draws.shape[2]), math.nan
    if n >= 4:
        ess = np.nan_to_num(basics.bulk_ess(draws))
        rhat = float(az.rhat({"x": draws})["x"].values.max())  # NaN if a coordinate never moved
    ess = np.maximum(ess, 1.0)  # there is no less than one draw
    low, centre_low, centre_high, high = reference.quantiles
    shares = [
        (draws < low).mean((0, 1)) - 0.1,
        (draws > high).mean((0, 1)) - 0.1,
        ((draws > centre_low) & (draws < centre_high)).mean((0, 1)) - 0.5,
    ]
    mean_error = np.abs(draws.mean((0, 1)) - reference.mean) / np.sqrt(reference.variance)
    return {
        "ess_min": 1000.0 * ess.min() / evaluations,
        "ess_median": 1000.0 * float(np.median(ess)) / evaluations,
        "rhat": rhat if math.isfinite(rhat) else None,
        "mean_error": mean_error.max(),
        "coverage_error": np.abs(shares).max(),
        "by_error": [_by_error(c, reference) for c in chains],
        "evaluations": evaluations,
        "draws": n,
        "tuning_seconds": sum(c.tuning_seconds for c in chains),
        "seconds": sum(c.seconds for c in chains),
    }


def _by_error(chain, reference):
    """``error_efficiency`` of one chain, by coordinate: the harmonic mean over chains is that of all together."""
    twice = np.stack([chain.draws, chain.draws])  # the function estimates a spread as well
    return error_efficiency(twice, reference, chain.evaluations).coordinates.tolist()


class ErrorScore(NamedTuple):
    """Equivalent independent draws per 1000 evaluations."""

    worst: float
    median: float
    relative_error: float  # of the worst coordinate's, one standard error
    chains: int


def error_score(cells: list[dict]) -> ErrorScore:
    """Squared-error efficiency over the chains of several cells."""
    squared = 1.0 / np.concatenate([c["by_error"] for c in cells])  # (chains, d)
    coordinates = 1.0 / squared.mean(axis=0)
    worst = int(coordinates.argmin())
    spread = squared[:, worst].std(ddof=1) / math.sqrt(len(squared)) / squared[:, worst].mean()
    return ErrorScore(
        coordinates[worst], float(np.median(coordinates)), float(spread), len(squared)
    )


# --- the store -----------------------------------------------------------------------------------


def load() -> dict:
    if not STORE.exists():
        return {"truth": {}, "cells": {}}
    return json.loads(STORE.read_text())


def save(key: str, cell: dict, truths: dict) -> dict:
    """Add a cell to what is in the file by now; one cell a line."""
    store = load()
    store["cells"][key] = _rounded(cell)
    store["truth"].update(truths)
    store["versions"] = basics.versions()
    rows = {
        part: ",\n".join(
            f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(store[part].items())
        )
        for part in ("truth", "cells")
    }
    text = (
        f'{{"versions": {json.dumps(store["versions"])},\n"truth": {{\n{rows["truth"]}\n}},\n'
        f'"cells": {{\n{rows["cells"]}\n}}}}\n'
    )
    STORE.parent.mkdir(exist_ok=True)
    temporary = STORE.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(STORE)
    return store


def _rounded(value):
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def cell_key(sampler, target, budget, seed):
    return f"{sampler} | {target} | {budget} | {seed}"


def _job(arguments):
    sampler, target, budget, seed, store = arguments
    cell = measure(run(sampler, target, budget, seed), truth(target, store))
    cell["code"] = code(sampler)
    return arguments[:4], cell, {target: store["truth"][target]}


def run_all(cells: list[tuple], again: bool, processes: int, minutes: float) -> None:
    """Run and store those of ``cells``, (sampler, target, budget, seed), that the present code has not made."""
    deadline = time.monotonic() + 60.0 * minutes
    store = load()
    stored = store["cells"]
    todo = [c for c in cells if again or stored.get(cell_key(*c), {}).get("code") != code(c[0])]
    print(f"{len(todo)} of {len(cells)} cells to run", flush=True)
    jobs = ((*c, {"truth": store["truth"]}) for c in todo)
    if processes == 1:
        _collect(map(_job, jobs), deadline)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        _collect(pool.imap_unordered(_job, jobs), deadline)


def _collect(finished, deadline):
    for cell, found, truths in finished:
        save(cell_key(*cell), found, truths)
        rhat = math.nan if found["rhat"] is None else found["rhat"]
        print(
            f"{time.strftime('%H:%M:%S')} {cell_key(*cell)}: ESS {found['ess_min']:.3g}, R-hat {rhat:.3f}, "
            f"{found['tuning_seconds']:.1f} + {found['seconds']:.1f} s",
            flush=True,
        )
        if time.monotonic() > deadline:
            print("out of time; the next call goes on from here")
            return


# --- tables --------------------------------------------------------------------------------------


class Board:
    """The cells of one budget, and what is read off them."""

    def __init__(self, store: dict, budget: int):
        self.cells: dict[tuple[str, str], dict[int, dict]] = {}
        for key, cell in store["cells"].items():
            sampler, target, of, seed = key.split(" | ")
            if int(of) == budget:
                self.cells.setdefault((sampler, target), {})[int(seed)] = cell
        self.samplers = [s for s in SAMPLERS if any(k[0] == s for k in self.cells)]
        self.targets = [t for t in TARGETS if any(k[1] == t for k in self.cells)]

    def ess(self, sampler, target, which="ess_min"):
        """Geometric mean over the seeds."""
        cells = self.cells.get((sampler, target))
        return geometric([c[which] for c in cells.values()]) if cells else math.nan

    def error(self, sampler, target):
        """Squared-error efficiency of the worst coordinate, over the chains of all seeds."""
        cells = self.cells.get((sampler, target))
        return error_score(list(cells.values())).worst if cells else math.nan

    def converged(self, sampler, target):
        """Whether R-hat is small in every seed."""
        cells = self.cells.get((sampler, target), {}).values()
        return all(map(agree, cells))

    def best(self, score, target):
        """Of PyMC's steps on this target."""
        return max((score(s, target) for s in PYMC if (s, target) in self.cells), default=math.nan)

    def ratios(self, sampler, score):
        """To the best of PyMC's, over the targets that both have."""
        found = {t: score(sampler, t) / self.best(score, t) for t in self.targets}
        return {t: r for t, r in found.items() if math.isfinite(r)}

    def best_converged(self, score, target):
        """Of those of PyMC's steps that have converged on this target; NaN if none has."""
        found = (s for s in PYMC if (s, target) in self.cells and self.converged(s, target))
        return max((score(s, target) for s in found), default=math.nan)

    def fair_ratios(self, sampler, score):
        """To the best converged one of PyMC's, over the targets that have one."""
        found = {t: score(sampler, t) / self.best_converged(score, t) for t in self.targets}
        return {t: r for t, r in found.items() if math.isfinite(r)}

    def lowest(self, sampler):
        """(ratio, target, seed): the lowest over converged cells of the best of PyMC's in the same seed."""
        ratios = []
        for target in self.targets:
            for seed, cell in self.cells.get((sampler, target), {}).items():
                others = [self.cells.get((s, target), {}).get(seed) for s in PYMC]
                reference = max((o for o in others if o), key=lambda o: o["ess_min"], default=None)
                if reference and comparable(reference):
                    ratios.append((cell["ess_min"] / reference["ess_min"], target, seed))
        return min(ratios, default=None)

    def seeds(self, sampler):
        """How many, in words."""
        counts = [len(self.cells[k]) for k in self.cells if k[0] == sampler]
        return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"


def agree(cell):
    """Whether the chains do, by R-hat."""
    return cell["rhat"] is not None and cell["rhat"] < CONVERGED


def comparable(cell):
    return agree(cell) and cell["ess_min"] > WORTH_COMPARING


def geometric(values):
    return math.exp(np.mean(np.log(list(values)))) if len(values) else math.nan


def score_table(board, score, marks):
    """Targets by samplers; the last rows compare with the best of PyMC's, with the surrogate's span and without."""
    head = ["target", *(SAMPLERS[s].label for s in board.samplers)]
    rows = []
    for target in board.targets:
        mark = ["" if board.converged(s, target) or not marks else "\\*" for s in board.samplers]
        values = [digits(score(s, target)) for s in board.samplers]
        rows.append([labelled(target), *(v + m for v, m in zip(values, mark, strict=True))])
    for name, of, named in (
        ("× the best of PyMC's", board.ratios, False),
        ("× the best converged of PyMC's", board.fair_ratios, True),
    ):
        found = [of(s, score) for s in board.samplers]
        rows.append(ratio_row(name, found, named))
        rows.append(ratio_row(f"{name}, without §", [outside_span(f) for f in found], named))
    return table(head, [row for row in rows if row])


def labelled(target):
    """A target's name, marked if the log density is in the span of KamiltonianStep's surrogates."""
    return f"{target} §" if target in SPAN else target


def outside_span(ratios):
    """Ratios by target, without the span's."""
    return {t: r for t, r in ratios.items() if t not in SPAN}


def ratio_row(name, found, named=False):
    """Geometric means of every sampler's ratios by target, or nothing if there is no target."""
    if not any(found):
        return []
    targets = f" ({', '.join(found[0])})" if named else ""
    return [f"**{name}**{targets}", *(f"**{digits(geometric(f.values()))}**" for f in found)]


def summary_table(board):
    head = [
        "sampler", "seeds", "ESS, × best of PyMC's", "without §", "× best converged one", "without §", "lowest target",
        "lowest converged cell", "by squared error, × best of PyMC's", "without §", "× best converged one", "without §",
        "lowest target",
        "× AdaptiveMetropolis: ESS", "squared error",
    ]  # fmt: skip
    rows = []
    for s in board.samplers:
        row = [SAMPLERS[s].label, board.seeds(s)]
        ratios, cell = board.ratios(s, board.ess), board.lowest(s)
        row += [*both(ratios), *fair_of(board, s, board.ess), lowest_of(ratios)]
        row.append("–" if cell is None else f"{digits(cell[0])} ({cell[1]}, seed {cell[2]})")
        ratios = board.ratios(s, board.error)
        row += [*both(ratios), *fair_of(board, s, board.error), lowest_of(ratios)]
        for score in (board.ess, board.error):
            relative = [score(s, t) / score("adaptive_metropolis", t) for t in board.targets]
            row.append(digits(geometric([r for r in relative if math.isfinite(r)])))
        rows.append(row)
    return table(head, rows)


def both(ratios):
    """Geometric means over all targets, and without the span's."""
    return [digits(geometric(r.values())) for r in (ratios, outside_span(ratios))]


def fair_of(board, sampler, score):
    """The same over the targets where one of PyMC's has converged, and how many those are."""
    ratios = board.fair_ratios(sampler, score)
    found = (ratios, outside_span(ratios))
    return [f"{digits(geometric(r.values()))} ({len(r)} targets)" if r else "–" for r in found]


def lowest_of(ratios):
    if not ratios:
        return "–"
    target = min(ratios, key=ratios.get)
    return f"{digits(ratios[target])} ({target})"


def time_table(board):
    """Processor time per evaluation, the log density included."""

    def microseconds(s, t):
        cells = board.cells.get((s, t))
        if not cells:
            return math.nan
        spent = [
            1e6 * (c["tuning_seconds"] + c["seconds"]) / c["evaluations"] for c in cells.values()
        ]
        return float(np.median(spent))

    head = ["target", *(SAMPLERS[s].label for s in board.samplers)]
    return table(
        head, [[t, *(digits(microseconds(s, t)) for s in board.samplers)] for t in board.targets]
    )


def write_tables(store: dict) -> None:
    budgets = sorted({int(k.split(" | ")[2]) for k in store["cells"]} - {ABLATION_BUDGET})
    sections = ["# Cold start", INTRODUCTION, store["versions"] + "."]
    for budget in budgets:
        board = Board(store, budget)
        sections += [
            f"## {budget:,} evaluations per chain{so_far(board)}",
            summary_table(board),
            "### Effective draws per 1000 evaluations, worst coordinate, tuning counted",
            score_table(board, board.ess, marks=True),
            "### The same, median coordinate",
            score_table(board, lambda s, t, b=board: b.ess(s, t, "ess_median"), marks=False),
            "### By squared error: equivalent independent draws per 1000 evaluations, worst coordinate",
            score_table(board, board.error, marks=False),
            "### Processor time per evaluation, microseconds, log density included",
            time_table(board),
        ]
    stale = stale_cells(store, SAMPLERS)
    provenance.write(RESULTS / "cold_start.md", "\n\n".join(sections), stale_cells=stale)
    print(stale)
    for budget in budgets:
        print(f"\n{budget:,} evaluations\n{summary_table(Board(store, budget))}")
    draw_figure(store, budgets)


def so_far(board):
    """What is missing from a board, in words."""
    done = len(board.targets)
    return "" if done == len(TARGETS) else f" (so far {done} of the {len(TARGETS)} targets)"


def stale_cells(store, samplers):
    """In words, which cells of these samplers the present code has not made."""
    names = [(key.split(" | ")[0], cell) for key, cell in store["cells"].items()]
    return provenance.stale_cells(
        (samplers[name].label, cell.get("code"), code(name))
        for name, cell in names
        if name in samplers
    )


INTRODUCTION = f"""\
{CHAINS} chains a seed from over-dispersed single points, half of the evaluations are tuning, defaults throughout
(`benchmarks/cold_start.py`). Evaluations are counted in the log density. ESS: ArviZ's bulk effective sample size over
the four chains, geometric mean over the seeds; **\\*** marks an R-hat of {CONVERGED} or more in at least one seed,
where the number says that the chains disagree and little else. Squared error: over the chains of all seeds; relative
standard error about 0.3 with twelve chains. "× best of PyMC's": geometric mean over the targets of the ratio to
whichever of PyMC's steps is best on that target by that measure, converged or not; where it has not, the ratio
divides by a number that says little. "× best converged one": to the best of those of PyMC's steps whose R-hat is
below {CONVERGED} in every seed, over the targets that have one. "Without §": without the targets marked so,
polynomials and the funnel, which KamiltonianStep's surrogates can represent exactly. "Lowest converged
cell": the lowest ratio in one seed, over targets where that seed's best of PyMC's has R-hat < {CONVERGED} and more
than {WORTH_COMPARING:g} effective draws per 1000 evaluations."""


def write_ablation(store: dict) -> None:
    cells = store["cells"]
    head = ["switch", *ABLATION_TARGETS, "geometric mean", "by squared error"]
    rows = []
    for name, sampler in ABLATED.items():
        by_target = [
            [
                cells[k]
                for seed in range(ABLATION_SEEDS)
                if (k := cell_key(name, t, ABLATION_BUDGET, seed)) in cells
            ]
            for t in ABLATION_TARGETS
        ]
        if not all(by_target):
            continue
        ess = [geometric([c["ess_min"] for c in found]) for found in by_target]
        stars = ["" if all(map(agree, found)) else "\\*" for found in by_target]
        error = geometric([error_score(found).worst for found in by_target])
        values = [digits(e) + s for e, s in zip(ess, stars, strict=True)]
        rows.append([sampler.label, *values, digits(geometric(ess)), digits(error)])
    text = [
        "# KameleonStep, one switch at a time",
        f"{ABLATION_BUDGET:,} evaluations per chain, half of them tuning, {CHAINS} chains, {ABLATION_SEEDS} seeds "
        "(`benchmarks/cold_start.py --ablation`). Effective draws per 1000 evaluations, worst coordinate, tuning "
        f"counted; **\\***: R-hat of {CONVERGED} or more in a seed. Last column: the geometric mean by squared error "
        f"against the truth, over {CHAINS * ABLATION_SEEDS} chains. A difference below about 20 % in a mean is noise.",
        store["versions"] + ".",
        table(head, rows),
    ]
    provenance.write(
        RESULTS / "cold_start_ablation.md",
        "\n\n".join(text),
        stale_cells=stale_cells(store, ABLATED),
    )
    print(table(head, rows))


def draw_figure(store, budgets):
    # Budgets of which only some targets have been run are in the tables, not in the figure.
    budgets = [b for b in budgets if len(Board(store, b).targets) == len(TARGETS)] or budgets[:1]
    figure, panels = report.subplots(
        2, len(budgets), figsize=(6.0 * len(budgets) + 1.5, 8.5), squeeze=False
    )
    colours = {s: f"C{i}" for i, s in enumerate(s for s in SAMPLERS if s in OURS)}
    for column, budget in zip(panels.T, budgets, strict=True):
        board = Board(store, budget)
        titles = (
            "effective draws per 1000 evaluations",
            "by squared error, per 1000 evaluations",
        )
        for panel, score, title in zip(column, (board.ess, board.error), titles, strict=True):
            rows = np.arange(len(board.targets))[::-1]
            for s in (s for s in board.samplers if s in OURS):
                for row, t in zip(rows, board.targets, strict=True):
                    face = colours[s] if board.converged(s, t) else "white"
                    panel.plot(score(s, t), row, "o", color=colours[s], mfc=face, mew=1.5, ms=6.5)
            best = [board.best(score, t) for t in board.targets]
            panel.plot(best, rows, "|", color="0.7", ms=15, mew=2.5)
            best = [board.best_converged(score, t) for t in board.targets]
            panel.plot(best, rows, "|", color="black", ms=15, mew=2.5)
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter("{x:g}")
            panel.set_yticks(rows, board.targets)
            panel.set_title(f"{budget:,} evaluations: {title}", fontsize=10)
            panel.grid(axis="both", color="0.92")
            panel.set_axisbelow(True)
            panel.spines[["top", "right"]].set_visible(False)
    draw_legend(figure, colours, len(budgets))
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    report.save_figure(figure, RESULTS / "cold_start.png", 110)


def draw_legend(figure, colours, columns):
    """Colours are samplers; hollow and grey have not converged."""
    from matplotlib.lines import Line2D

    samplers = [
        Line2D([], [], ls="", marker="o", color=c, ms=6.5, label=SAMPLERS[s].label)
        for s, c in colours.items()
    ]
    bar = {"ls": "", "marker": "|", "ms": 15, "mew": 2.5}
    marks = [
        Line2D([], [], ls="", marker="o", color="0.3", mfc="white", mew=1.5, ms=6.5,
               label=f"hollow: R-hat ≥ {CONVERGED} in a seed, not converged"),
        Line2D([], [], color="black", label="best converged one of PyMC's", **bar),
        Line2D([], [], color="0.7", label="best of PyMC's, if it has not converged", **bar),
    ]  # fmt: skip
    place = {"loc": "lower center", "frameon": False, "fontsize": 9}
    figure.legend(
        handles=samplers, ncols=6 if columns > 1 else 3, bbox_to_anchor=(0.5, 0.035), **place
    )
    figure.legend(handles=marks, ncols=3 if columns > 1 else 2, bbox_to_anchor=(0.5, 0.0), **place)


# --- the check -----------------------------------------------------------------------------------


def check() -> None:
    """The chains here are those of ``pm.sample``: PyMC's steps on one target, then (``core``) this package's."""
    import pymc as pm

    from benchmarks import core_check

    target, x = TARGETS["banana .03"], starts("banana .03", 0)[0]
    sample = {
        "chains": 1, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True,
        "compute_convergence_checks": False, "initvals": {"x": x},
    }  # fmt: skip
    for name in PYMC:
        sampler = SAMPLERS[name]
        step, seen = _recording(getattr(pm, sampler.algorithm.removeprefix("pm.")))
        with target.pymc_model():
            pm.sample(draws=1, tune=0, step=step(**sampler.options), **sample)
        chain = _pymc_chain(sampler, target, x, seen[0], 4000)
        with target.pymc_model():
            trace = pm.sample(
                draws=len(chain.draws),
                tune=chain.tuning_draws,
                step=step(**sampler.options),
                **sample,
            )
        expected = trace.posterior["x"].values[0]
        np.testing.assert_allclose(chain.draws, expected, rtol=1e-8, atol=1e-8)
        print(f"{sampler.label}: the same {len(chain.draws)} draws as pm.sample's")
    core_check.main()


def _recording(step):
    """The step's class, and a list that gets the generator which ``pm.sample`` hands to its chain."""
    seen = []

    class Recorder(step):
        def set_rng(self, rng):  # PyMC < 6.3
            super().set_rng(rng)
            seen.append(copy.deepcopy(self.rng))

        def setup_chain(self, rng, tune, draws):
            super().setup_chain(rng, tune, draws)
            seen.append(copy.deepcopy(self.rng))

    return Recorder, seen


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--budget", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--seeds", type=int, default=5, help="0, ..., seeds - 1 are run")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no cell after that")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="only re-make the tables")
    parser.add_argument("--ablation", action="store_true", help="KameleonStep's switches")
    parser.add_argument("--check", action="store_true", help="compare with pm.sample and stop")
    return parser.parse_args(arguments)


def main():
    arguments = parse()
    if arguments.check:
        check()
        return
    if arguments.ablation:
        order = [
            (s, t, ABLATION_BUDGET, seed)
            for seed in range(ABLATION_SEEDS)
            for t in ABLATION_TARGETS
            for s in ABLATED
        ]
    else:
        order = [
            (s, t, budget, seed)
            for budget in arguments.budget
            for seed in range(arguments.seeds)
            for t in arguments.target
            for s in arguments.sampler
        ]
    if not arguments.table:
        run_all(order, arguments.again, arguments.processes, arguments.minutes)
    if arguments.ablation:
        write_ablation(load())
    else:
        write_tables(load())


if __name__ == "__main__":
    main()
