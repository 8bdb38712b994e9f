"""KMC on the banana with exact draws as its history (Strathmann et al., 2015, figure 3).

B(0.03, 100) in 8 dimensions with n exact draws given as history, for KMC, KAMH and a random walk with that history's
covariance; Hamiltonian Monte Carlo has the true gradient. Acceptance, the error of the mean, effective draws and the
error of the target's decile regions.

    python -m benchmarks.papers.banana           # 30 chains; a quarter of an hour
"""

import math
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from benchmarks.basics import bulk_ess, estimate, generators
from benchmarks.cells import Benchmark, Cell
from benchmarks.core import run_chain
from benchmarks.measures import DECILES
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.seam import NOTHING, Point
from pymc_kameleon.surrogates.scores import choose as kamiltonian_surrogate
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.targets import Banana

SEED, CHAINS = 20260201, 30
TUNE, DRAWS = 1000, 2000
SIZES = {f"{n} given": n for n in (100, 200, 500, 1000, 2000)}
TARGET = Banana(0.03, 100.0, 8)
SD = np.sqrt(np.diag(TARGET.cov))
NEVER = 1 << 62


class ExactBanana(NamedTuple):
    """The banana's own log density in learned coordinates: a surrogate without an error."""

    b: float
    v: float
    centre: np.ndarray
    factor: np.ndarray


@njit()
def _exact(z, surrogate):
    b, v, centre, factor = surrogate
    x = centre + factor @ z
    bend = x[1] - b * (x[0] * x[0] - v)
    slope = -x
    slope[0] = -x[0] / v + 2.0 * b * x[0] * bend
    slope[1] = -bend
    return -0.5 * (x[0] * x[0] / v + bend * bend + np.sum(x[2:] ** 2)), factor.T @ slope


score_matching.implement(ExactBanana, _exact)


class Given:
    """A sampler that is started from a given history by ``start(x, history, rng)``: (sampler, state)."""

    def __init__(self, *, start, history):
        self.begin, self.history = start, history

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def init(self, rng, x, known=NOTHING):
        self.sampler, state = self.begin(x, self.history, rng)
        return state

    def place(self, state, point, proposal=None):
        """The sampler's, which there is when the chain has begun: the runner asks for it before."""
        return self.sampler.place(state, point, proposal)


def start_kmc(kind, **options):
    def start(x, history, rng):
        # the paper's one kernel beside a constant share of random walk: shares by residual do not matter here
        size = {"n_history": len(history), "mixture": "constant"}
        if kind is FiniteKamiltonian:
            size["n_features"] = len(history)
        sampler = kind(history=history, **(size | options))
        return sampler, sampler.init(rng, x)

    return start


def start_hmc(x, history, rng):
    """The same algorithm with the true gradient; the history gives the coordinates only."""
    sampler = FiniteKamiltonian(history=history[:100], n_leapfrog=(10, 30), random_walk_share=0.0)
    state = sampler.init(rng, x)
    _, walk = am_from(x, history)
    state = state._replace(centre=walk.mean, factor=walk.factor)
    exact = ExactBanana(TARGET.b, TARGET.v, state.centre, state.factor)
    fitted = state.fitted._replace(surrogate=exact)
    limit = math.log(kamiltonian_surrogate.stable_step_size(rng, fitted, (10, 30)))
    return sampler, state._replace(fitted=fitted, log_step=limit, log_step_average=limit, log_step_limit=limit)


def am_from(x, history):
    """Adaptive Metropolis that has already learned ``history``'s mean and covariance, and keeps them."""
    sampler = AdaptiveMetropolis()
    walk = sampler.init(None, x)
    return sampler, walk._replace(
        mean=history.mean(axis=0), factor=np.linalg.cholesky(np.cov(history.T, ddof=0)), next_update=NEVER, warmup=0
    )


def start_kamh(x, history, rng):
    """KAMH with this package's defaults, its subsample the history."""
    _, walk = am_from(x, history)
    sampler = Kameleon(n_history=len(history))
    state = sampler.init(rng, x)._replace(
        walk=walk, centre=walk.mean, factor=walk.factor, log_scale=walk.log_scale, next_refresh=NEVER
    )
    state = state._replace(model=sampler.learn(rng, state, history))
    return sampler, sampler.place(state, Point(x, 0.0))


SAMPLERS = {
    "HMC, true gradient": start_hmc,
    "KMC lite": start_kmc(LiteKamiltonian),
    "KMC finite": start_kmc(FiniteKamiltonian),
    "KMC finite, paper's settings": start_kmc(
        FiniteKamiltonian, embedding="cos", lengthscale=9.45, regularization=1e-6, base_scale=math.inf, whiten=False,
        n_leapfrog=(10, 100), random_walk_share=0.0,
    ),
    "KAMH": start_kamh,
    "random walk": lambda x, history, rng: am_from(x, history),
}  # fmt: skip


HMC, KMC = "HMC, true gradient", "KMC finite, paper's settings"


def measure(cell: Cell) -> dict[str, Any]:
    """One chain from an exact draw."""
    n = SIZES[cell.problem]
    rng = generators(SEED + n, cell.seed + 1)[cell.seed]  # the same for all samplers: start and history too
    x, given = TARGET.sample(rng, 1)[0], {"start": SAMPLERS[cell.sampler], "history": TARGET.sample(rng, n)}
    chain = run_chain(Given, TARGET.numba_log_density, x, rng, tune=TUNE, draws=cell.budget - TUNE, **given)
    levels = TARGET.level(chain.draws)
    return {
        "acceptance": chain.acceptance, "ess": float(bulk_ess(chain.draws[None]).min()),
        "error": [float(e) for e in (chain.draws.mean(axis=0) - TARGET.mean) / SD],
        "coverage": [float((levels <= q).mean()) for q in DECILES],
        "microseconds": 1e6 * chain.seconds / len(chain.draws),
    }  # fmt: skip


def column(mine, name) -> np.ndarray:
    return np.array([m[name] for m in mine])


HEAD = ("sampler", "n", "acceptance", "error of mean (sd)", "ESS / 1000, median chain", "mean", "± s.e.",
        "lowest chain", "decile error", "all chains: error of mean", "decile error", "µs a draw", "chains")  # fmt: skip


def row(name, n, mine):
    error, coverage, ess = column(mine, "error"), column(mine, "coverage"), 1000.0 * column(mine, "ess") / DRAWS
    return [
        name, n, f"{column(mine, 'acceptance').mean():.2f}", f"{np.median(np.linalg.norm(error, axis=1)):.3f}",
        f"{np.median(ess):.1f}", *(f"{value:.1f}" for value in estimate(ess)),
        f"{ess.min():.1f}", f"{np.median(np.abs(coverage - DECILES).mean(axis=1)):.3f}",
        f"{np.linalg.norm(error.mean(axis=0)):.3f}", f"{np.abs(coverage.mean(axis=0) - DECILES).mean():.3f}",
        f"{np.median(column(mine, 'microseconds')):.0f}", len(mine),
    ]  # fmt: skip


def ratio(one, other) -> str:
    """Effective draws of two rows' mean chains, with a 95 % interval on the logarithm."""
    (mean, error), (rivals, other_error) = (estimate(column(mine, "ess")) for mine in (one, other))
    value, width = mean / rivals, math.exp(1.96 * math.hypot(error / mean, other_error / rivals))
    return f"{value:.2f} ({value / width:.2f} to {value * width:.2f})"


def page(cells: dict[Cell, dict]) -> str:
    found = {
        (name, n): mine
        for name in SAMPLERS
        for given, n in SIZES.items()
        if len(mine := [m for c, m in cells.items() if c[:2] == (name, given)]) > 1
    }
    most = max(SIZES.values())
    kmc, hmc, kamh = (found[name, most] for name in (KMC, HMC, "KAMH"))
    table = report.table(HEAD, [row(*key, mine) for key, mine in found.items()])
    to_hmc, to_kamh = ratio(kmc, hmc), ratio(kmc, kamh)
    return report.page("paper_banana", globals() | locals())


def wanted(cell: Cell) -> bool:
    """HMC takes nothing from the history but coordinates: one size."""
    return cell.sampler != HMC or SIZES[cell.problem] == max(SIZES.values())


if __name__ == "__main__":
    benchmark = Benchmark("paper_banana", measure, page)
    benchmark.command(__doc__, list(SAMPLERS), list(SIZES), (TUNE + DRAWS,), CHAINS, wanted)
