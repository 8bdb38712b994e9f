"""Modes that are missed without a word: silent runs, false alarms, and what looking for modes costs.

``pk.sample``'s engine on NumPy densities, 16 chains and 2,000 evaluations in all, seed by seed: targets with several
modes, with modes away from all starts, and with one.

    python -m benchmarks.discovery           # 15 minutes
"""

import math
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from benchmarks import report
from benchmarks.cells import Benchmark, Cell
from benchmarks.posteriors import LogisticRegression
from pymc_kameleon import targets
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.plan import automatic
from pymc_kameleon.verdict import convergence

CHAINS, TOTAL, SMALL, QUARTER, DISAGREE = 16, 2000, 0.04, 0.25, 1.05
LOOKING = ("start", "arrival", "between", "look")  # kinds of evaluations


class Case(NamedTuple):
    """A target: starts are uniform, ``half`` to either side of ``initial``; ``modes`` says in which points are."""

    log_density: Any
    initial: np.ndarray
    half: Any
    scale: Any = 1.0
    masses: tuple = (1.0,)
    modes: Any = None
    prior: float = 0.0  # sd of the prior that looks are drawn from; 0 for none


def mixture(means, masses, initial, half, scale) -> Case:
    """Standard normal modes."""
    means, logs = np.array(means, dtype=float), np.log(masses)

    def log_density(x):
        return float(logsumexp(logs - 0.5 * np.square(x - means).sum(axis=1)))

    def modes(x):
        return np.square(x[:, None] - means).sum(axis=2).argmin(axis=1)

    return Case(log_density, np.asarray(initial, dtype=float), half, scale, tuple(masses), modes)


def two(d, distance, masses, at=0.5, half=1.0) -> Case:
    """Along a fixed direction, ``distance`` sds apart; starts around ``at`` of the way from the first."""
    u = np.random.default_rng(d).standard_normal(d)
    u *= distance / math.sqrt(u @ u)
    return mixture([-0.5 * u, 0.5 * u], masses, (at - 0.5) * u, half, distance / 4.0)


def hidden(d, distance, second, prior) -> Case:
    """Starts are in the first of two modes, under a normal prior."""
    there = distance * np.eye(d)[0]
    case = mixture([np.zeros(d), there], (1 - second, second), np.zeros(d), 1.0, 0.67 * prior)
    second *= math.exp(-0.5 * distance**2 / (1.0 + prior**2))

    def log_density(x):
        return case.log_density(x) - 0.5 * float(x @ x) / prior**2

    return case._replace(log_density=log_density, masses=(1 - second, second), prior=prior)


def labels() -> Case:
    """Two normal components of unknown means, sds and shares, in no order."""
    rng = np.random.default_rng(5)
    which = rng.integers(2, size=120)
    data = np.array([-3.0, 2.0])[which] + np.array([1.0, 0.7])[which] * rng.standard_normal(120)

    def log_density(x):
        mu, log_sd, shares = x[:2], x[2:4], -np.logaddexp(0.0, [x[4], -x[4]])
        z = (data[:, None] - mu) * np.exp(-np.clip(log_sd, -300, 300))
        terms = np.logaddexp(*(shares - 0.5 * z**2 - log_sd).T)
        return float(terms.sum() - 0.5 * (mu @ mu / 25.0 + 4.0 * log_sd @ log_sd + x[4] ** 2))

    scale = 0.67 * np.array([5.0, 5.0, 0.5, 0.5, 1.0])
    return Case(log_density, np.zeros(5), np.minimum(scale, 1.0), scale, (0.5, 0.5), lambda x: x[:, 0] < x[:, 1])


def regressions() -> Case:
    """Two lines mixed, in no order: intercepts, slopes, log noise and log odds of the shares."""
    rng, t = np.random.default_rng(17), np.linspace(0.0, 10.0, 100)
    data = np.where(rng.random(100) < 0.4, 1.0 + 2.0 * t, 8.0 - 0.5 * t) + rng.standard_normal(100)
    prior = np.array([10.0, 10.0, 3.0, 3.0, 1.0, 1.0])  # sds

    def log_density(x):
        z = (data[:, None] - x[:2] - x[2:4] * t[:, None]) * np.exp(-np.clip(x[4], -300, 300))
        terms = np.logaddexp(*(-np.logaddexp(0.0, [x[5], -x[5]]) - 0.5 * z**2 - x[4]).T)
        return float(terms.sum() - 0.5 * np.square(x / prior).sum())

    return Case(log_density, np.zeros(6), np.ones(6), 0.67 * prior, (0.5, 0.5), lambda x: x[:, 2] < x[:, 3])


def source() -> Case:
    """A source seen by sensors nearly on a line: place, strength, background, log noise; masses by quadrature."""
    rng = np.random.default_rng(2)
    sensors = np.column_stack([np.linspace(-4, 4, 10), 0.1 * rng.standard_normal(10)])
    prior = np.array([3.0, 3.0, 10.0, 2.0, 0.5])  # sds; the log noise is about -1.5

    def response(at):
        return 1.0 / (1.0 + np.square(sensors - at[..., None, :]).sum(axis=-1))

    seen = 8.0 * response(np.array([1.0, 2.0])) + 0.5 + 0.25 * rng.standard_normal(10)

    def log_density(x):
        sd = math.exp(min(max(x[4], -300.0), 300.0))
        z = (seen - x[2] * response(x[:2]) - x[3]) / sd
        return float(-0.5 * z @ z - 10.0 * x[4] - 0.5 * np.square((x - [0, 0, 0, 0, -1.5]) / prior).sum())

    def evidence(x, y, log_noise):
        design = np.column_stack([response(np.array([x, y])), np.ones(10)]) * prior[2:4]
        factor = np.linalg.cholesky(design @ design.T + math.exp(2.0 * log_noise) * np.eye(10))
        z = np.linalg.solve(factor, seen)
        scaled = np.array([x, y, log_noise + 1.5]) / prior[[0, 1, 4]]
        return -0.5 * (z @ z + scaled @ scaled) - np.log(np.diag(factor)).sum()

    grid = product(np.linspace(-3, 5, 33), np.linspace(-7.9, 7.9, 80), np.linspace(-2.5, -0.1, 7))
    values = np.array([(y, evidence(x, y, s)) for x, y, s in grid])
    weights = np.exp(values[:, 1] - logsumexp(values[:, 1]))
    above = float(weights[values[:, 0] > 0].sum())
    centre, scale = np.array([0, 0, 0, 0, -1.5]), 0.67 * prior
    return Case(log_density, centre, np.minimum(scale, 1.0), scale, (1 - above, above), lambda x: x[:, 1] > 0)


def control(target) -> Case:
    """One mode; starts up to ten sds away."""
    sds = np.sqrt(np.diag(target.cov))
    return Case(target.numba_log_density, target.mean + 5.0 * sds, 5.0 * sds, sds)


def ridge() -> Case:
    """Within .02 of a parabola."""
    return Case(lambda x: float(-0.5 * (((x[1] - x[0] ** 2) / 0.02) ** 2 + (x[0] / 2.0) ** 2)),
                np.array([10.0, 30.0]), np.array([10.0, 30.0]), np.array([2.0, 6.0]))  # fmt: skip


CASES = {
    "labels switched, d = 5": labels,
    "two regressions, d = 6": regressions,
    "50:30:20, d = 2, 15 sds": lambda: mixture(
        [(-7.5, -4.3), (7.5, -4.3), (0, 8.7)], (0.5, 0.3, 0.2), np.zeros(2), 1.0, 4.0),
    "source, d = 5": source,
    "50:50, d = 5, 40 sds, off centre": partial(two, 5, 40.0, (0.5, 0.5), at=0.25, half=25.0),
    "95:5, d = 5, 20 sds": partial(two, 5, 20.0, (0.95, 0.05)),
    "50:50, d = 10, 20 sds": partial(two, 10, 20.0, (0.5, 0.5)),
    "80:20, d = 3, 8 sds, hidden": partial(hidden, 3, 8.0, 0.2, 8.0),
    "80:20, d = 5, 8 sds, hidden": partial(hidden, 5, 8.0, 0.2, 8.0),
    "70:30, d = 5, 12 sds, hidden": partial(hidden, 5, 12.0, 0.3, 6.0),
    "correlated normal, d = 5": lambda: control(targets.CorrelatedGaussian(condition=100.0, dim=5)),
    "banana, d = 4": lambda: control(targets.Banana(0.03, 100.0, 4)),
    "thin ridge, d = 2": ridge,
    "Student t, d = 5": lambda: control(targets.StudentT(dim=5)),
    "funnel, d = 4": lambda: control(targets.Funnel(dim=4)),
    "logistic regression": lambda: control(LogisticRegression()),
}  # fmt: skip
case_of = cache(lambda name: CASES[name]())


def measure(cell: Cell) -> dict:
    case = case_of(cell.problem)
    d, words = len(case.initial), np.random.SeedSequence(cell.seed)
    box = np.random.default_rng(words.spawn(1)[0]).uniform(-1.0, 1.0, (CHAINS, d))
    far = case.prior * np.random.default_rng(cell.seed).standard_normal((100 if case.prior else 0, d))
    plan = automatic(d, CHAINS, most=TOTAL)
    made = pooled_chains.Chains(case.initial, case.initial + case.half * box, words, plan, scale=case.scale, far=far)
    while not made.done:
        made.tell([case.log_density(request.position) for request in made.ask()])
    draws = pooled_chains.posterior(made)
    judged = convergence.judge(draws, made.groups)
    apart = max(np.nan_to_num(judged.nested, nan=1.0), 1.0 + 0.5 * (judged.rhat - 1.0)) > DISAGREE
    sought = made.sought()
    found = np.zeros(draws.shape[:2], int) if case.modes is None else case.modes(draws.reshape(-1, d))
    shares = np.bincount(found.ravel().astype(int), minlength=len(case.masses)) / found.size
    lost = [k for k, m in enumerate(case.masses) if m >= SMALL and shares[k] < QUARTER * m]
    return {
        "shares": shares.tolist(), "masses": list(case.masses), "lost": lost, "disagree": bool(apart),
        "elsewhere": None if sought is None or sought.where is None else sought.where.tolist(),
        "climbs": None if sought is None else [sought.climbs, sought.met],
        "looking": int(np.isin(made.evaluated.move, LOOKING).sum()), "ess": judged.ess, "rhat": judged.rhat,
        "nested": judged.nested, "modes": made.modes, "draws": len(made.rows), "total": made.evaluated.size,
        "missed_probes": made.probed().missed,
    }  # fmt: skip


def row(name: str, when: str, runs: list[dict]) -> tuple:
    told = [r["disagree"] or r["elsewhere"] is not None for r in runs]
    lost = [bool(r["lost"]) for r in runs]
    looking = [r["looking"] for r in runs]
    climbs = [r["climbs"] for r in runs if r["climbs"]]
    return (
        name, when, len(runs), sum(lost), sum(not t for t, gone in zip(told, lost, strict=True) if gone),
        sum(r["elsewhere"] is not None for r in runs), sum(r["disagree"] for r in runs),
        f"{np.mean(looking) / TOTAL:.1%}", f"{max(looking) / TOTAL:.1%}",
        f"{np.mean([m for _, m in climbs]):.1f} of {np.mean([n for n, _ in climbs]):.1f}" if climbs else "",
        f"{math.exp(np.mean([math.log(max(r['ess'], 1.0)) for r in runs])):.0f}",
    )  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    head = ["target", "", "runs", "a mode lost", "silent", "ends elsewhere", "chains disagree", "looking, mean", "most",
            "climbs met", "effective draws"]  # fmt: skip
    groups = {
        (name, when): [m for c, m in sorted(cells.items()) if c[:2] == (when, name)]
        for name, when in product(CASES, ("before", "after"))
    }
    table = report.table(head, [row(*pair, runs) for pair, runs in groups.items() if runs], left=2)
    return report.page("discovery", locals())


if __name__ == "__main__":
    # what "before" is made by does not change: as a package of others
    Benchmark("discovery", measure, page, {"before": "pymc-kameleon"}).command(
        __doc__, ["after"], list(CASES), (TOTAL,), seeds=10
    )
