"""Distance to a long run against draws on UCI Glass (KAMH, figure 4; KMC, figure 4, left).

The posterior of ``benchmarks.glass`` by KMC's protocol. After k kept draws: the distance of their mean from that of a
long run, and the maximum mean discrepancy with the kernel (1 + <x, y>)^3 to it. The floor: the long run's own halves,
and some of its draws, thinned, against the rest.

SM, AM-FS, AM-LS, KAMH-LS and KMC lite with the papers' settings, KMC with 1,000 draws of the long run as history, as in
its paper, and cold; the present KamiltonianStep's sampler beside them.

    python -m benchmarks.papers.glass_curves        # 30 chains, as the papers; `--seeds` of them, and it goes on
"""

import math
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.basics import bulk_ess, generators
from benchmarks.cells import Benchmark, Cell
from benchmarks.core import run_chain
from benchmarks.measures import mmd
from benchmarks.papers.kameleon_targets import metropolis
from benchmarks.report import middle
from pymc_kameleon.datasets import load_glass
from pymc_kameleon.gp.data import Whitening
from pymc_kameleon.gp.estimator import GPClassificationEstimator
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian

REFERENCE = report.RESULTS / ".paper_glass_reference.npz"  # not for git: what is shown of it is in the store
SEED, CHAINS = 20260305, 30
TUNE, DRAWS = 1200, 5000
LONG = {"chains": 4, "tune": 3000, "draws": 10_000}
TIMES = (250, 500, 1000, 1500, 2500, 3500, 5000)
MEAN, SD = -math.log(2.0), math.sqrt(20.0)
NAMES = ("SM", "AM-FS", "AM-LS", "KAMH-LS", "KMC lite, cold", "KMC lite, history given", "KamiltonianStep, defaults")
LONG_RUN = "the long run"


class Posterior:
    """Log prior and an estimate of the log likelihood, anew at every call."""

    def __init__(self, rng):
        glass = load_glass()
        self.estimate = GPClassificationEstimator(Whitening.fit(glass.X).apply(glass.X), glass.y)
        self.rng = rng

    def __call__(self, theta):
        if np.abs(theta).max() > 60.0:  # eleven prior sds away
            return -math.inf
        return self.estimate(self.rng, theta) - 0.5 * float(np.square((theta - MEAN) / SD).sum())


def sampler(name, history):
    lite = LiteKamiltonian.presets["paper"]
    return {
        **metropolis(),
        "KAMH-LS": (Kameleon, Kameleon.presets["paper"]),
        "KMC lite, cold": (LiteKamiltonian, lite),
        "KMC lite, history given": (LiteKamiltonian, {**lite, "history": history}),
        "KamiltonianStep, defaults": (partial(ValueKamiltonian, tune=TUNE), {}),  # told it, as the step should be
    }[name]


def start(rng):
    return MEAN + SD * rng.standard_normal(9)


@cache
def reference() -> np.ndarray:
    """The long run, (chains, n, 9), every other draw; kept in a file."""
    if not REFERENCE.exists():
        draws = []
        for rng in generators(SEED - 1, LONG["chains"]):
            how = {"tune": LONG["tune"], "draws": LONG["draws"]}
            draws.append(run_chain(ValueKamiltonian, Posterior(rng), start(rng), rng, **how).draws[::2])
        np.savez_compressed(REFERENCE, draws=np.array(draws, dtype=np.float32))
    with np.load(REFERENCE) as file:
        return file["draws"].astype(float)


def measure(cell: Cell) -> dict[str, Any]:
    """One chain, or the long run's floors."""
    long = reference()
    if cell.sampler == LONG_RUN:
        return {"ess": float(bulk_ess(long).min()), "floors": floors(long)}
    rng = generators(SEED, cell.seed + 1)[cell.seed].spawn(len(NAMES))[NAMES.index(cell.sampler)]
    pooled = long.reshape(-1, 9)
    history = pooled[rng.choice(len(pooled), 1000, replace=False)]
    kind, options = sampler(cell.sampler, history)
    try:
        chain = run_chain(kind, Posterior(rng), start(rng), rng, tune=TUNE, draws=DRAWS, **options)
    except ValueError as error:  # a published cold start may end where no trajectory goes
        return {"failed": str(error)[:80]}
    return {
        "acceptance": chain.acceptance, "ess": float(bulk_ess(chain.draws[None]).min()),
        "evaluations": chain.evaluations, "mmd": [mmd(chain.draws[:k], pooled) for k in TIMES],
        "norm": [float(np.linalg.norm(chain.draws[:k].mean(0) - pooled.mean(0))) for k in TIMES],
    }  # fmt: skip


def floors(long) -> dict[str, list[float]]:
    """(distance of means, MMD) between halves of the long run, and of 5,000 thinned draws against the rest."""
    half = len(long) // 2
    a, b = long[:half].reshape(-1, 9), long[half:].reshape(-1, 9)
    pooled = long.reshape(-1, 9)
    step = len(pooled) // DRAWS
    few = pooled[::step][:DRAWS]
    rest = np.delete(pooled, np.arange(0, len(pooled), step)[:DRAWS], axis=0)

    def apart(x, y):
        return [float(np.linalg.norm(x.mean(0) - y.mean(0))), mmd(x, y)]

    return {"the long run's two halves": apart(a, b), "5,000 of its draws, thinned, against the rest": apart(few, rest)}


def by_name(cells):
    found = {name: [m for c, m in cells.items() if c.sampler == name and "norm" in m] for name in NAMES}
    return {name: mine for name, mine in found.items() if mine}


def row(name, mine) -> list[Any]:
    norm, discrepancy = np.array([c["norm"] for c in mine]), np.array([c["mmd"] for c in mine])
    at = TIMES.index(1000)
    evaluations = np.mean([c["evaluations"] for c in mine])
    ess = 1000.0 * np.mean([c["ess"] for c in mine]) / evaluations
    return [
        name, len(mine), f"{np.mean([c['acceptance'] for c in mine]):.2f}", middle(norm[:, at], ".2f"),
        middle(norm[:, -1], ".2f"), middle(discrepancy[:, at], ".0f"), middle(discrepancy[:, -1], ".0f"), f"{ess:.1f}",
    ]  # fmt: skip


HEAD = (
    "sampler", "chains", "acceptance", "distance of the mean, 1,000 draws", "5,000 draws", "MMD, 1,000 draws",
    "5,000 draws", "ESS / 1000 evaluations",
)  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    found, about = by_name(cells), next(m for c, m in cells.items() if c.sampler == LONG_RUN)
    floor, ess = about["floors"], about["ess"]
    failed = [c.key for c, m in cells.items() if "failed" in m]
    table = report.table(HEAD, [row(n, m) for n, m in found.items()])
    floor = "; ".join(f"{n} {a:.2f} and {b:.0f}" for n, (a, b) in floor.items())
    text = report.page("paper_glass_curves", globals() | locals())
    if failed:
        text += f"\nCould not begin where their burn-in had ended: {', '.join(failed)}."
    return text


if __name__ == "__main__":
    Benchmark("paper_glass_curves", measure, page).command(
        __doc__, [*NAMES, LONG_RUN], ["glass"], (TUNE + DRAWS,), CHAINS, lambda c: c.sampler != LONG_RUN or c.seed == 0
    )
