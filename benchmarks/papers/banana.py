"""KMC on the banana with exact draws as its history (Strathmann et al., 2015, figure 3).

B(0.03, 100) in 8 dimensions with n exact draws given as history, for KMC, KAMH and a random walk with that history's
covariance; Hamiltonian Monte Carlo has the true gradient. Acceptance, the error of the mean, effective draws and the
error of the target's decile regions.

    python -m benchmarks.papers.banana

Five minutes of processor time.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from benchmarks import provenance, report
from benchmarks.basics import bulk_ess, generators
from benchmarks.core import run_chain
from benchmarks.measures import DECILES
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.seam import NOTHING, Point
from pymc_kameleon.surrogates.scores import choose as kamiltonian_surrogate
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.targets import Banana

SIZES = (100, 200, 500, 1000, 2000)
TARGET = Banana(0.03, 100.0, 8)
SD = np.sqrt(np.diag(TARGET.cov))
NEVER = 1 << 62


class ExactBanana(NamedTuple):
    """The banana's own log density in learned coordinates: a surrogate without an error."""

    b: float
    v: float
    centre: np.ndarray
    factor: np.ndarray


def _value(z, surrogate):
    b, v, centre, factor = surrogate
    x = centre + factor @ z
    bend = x[1] - b * (x[0] * x[0] - v)
    return -0.5 * (x[0] * x[0] / v + bend * bend + np.sum(x[2:] ** 2))


def _gradient(z, surrogate):
    b, v, centre, factor = surrogate
    x = centre + factor @ z
    bend = x[1] - b * (x[0] * x[0] - v)
    slope = -x
    slope[0] = -x[0] / v + 2.0 * b * x[0] * bend
    slope[1] = -bend
    return factor.T @ slope


def _is_exact(surrogate):
    return isinstance(surrogate, types.NamedTuple) and surrogate.instance_class is ExactBanana


overload(score_matching.value)(lambda z, surrogate: _value if _is_exact(surrogate) else None)
overload(score_matching.gradient)(lambda z, surrogate: _gradient if _is_exact(surrogate) else None)


class Given:
    """A sampler that is started from a given history by ``start(x, history, rng)``: (sampler, state)."""

    def __init__(self, *, start, history):
        self.begin, self.history = start, history

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def init(self, rng, x, known=NOTHING):
        """The state at ``x``."""
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


class Row(NamedTuple):
    """One sampler at one size: each entry of shape (chains,)."""

    sampler: str
    n: int
    acceptance: np.ndarray
    error: np.ndarray  # |mean of draws - mean|, in standard deviations, over coordinates
    ess: np.ndarray  # smallest over coordinates, per 1000 draws
    pooled_ess: float  # of all chains together, which sees what each of them missed
    quantiles: np.ndarray
    microseconds: float  # per draw


def measure(seed, chains, tune, draws):
    rows = []
    for name, start in SAMPLERS.items():
        sizes = SIZES[-1:] if name.startswith("HMC") else SIZES
        for n in sizes:
            results = []
            for rng in generators(seed + n, chains):
                x, given = TARGET.sample(rng, 1)[0], {"start": start, "history": TARGET.sample(rng, n)}
                results.append(run_chain(Given, TARGET.numba_log_density, x, rng, tune=tune, draws=draws, **given))
            x = np.array([c.draws for c in results])
            row = Row(
                name,
                n,
                np.array([c.acceptance for c in results]),
                np.linalg.norm((x.mean(axis=1) - TARGET.mean) / SD, axis=1),
                np.array([bulk_ess(c[None]).min() for c in x]) / draws * 1000,
                bulk_ess(x).min() / x[..., 0].size * 1000,
                np.array([deviation(TARGET.level(c)) for c in x]),
                np.median([c.seconds for c in results]) / draws * 1e6,
            )
            rows.append(row)
            print(*format_row(row), flush=True)
    return rows


def deviation(levels: np.ndarray) -> float:
    """Mean over the deciles q of |share of draws inside the region of content q, minus q|: .3 / sqrt(n) by chance."""
    return float(np.mean([abs(np.mean(levels <= q) - q) for q in DECILES]))


HEAD = ("sampler", "n", "acceptance", "error of mean (sd)", "ESS / 1000, median chain", "lowest chain", "all chains",
        "decile error", "µs a draw")  # fmt: skip


def format_row(r):
    return [
        r.sampler, r.n, f"{r.acceptance.mean():.2f}", f"{np.median(r.error):.3f}", f"{np.median(r.ess):.1f}",
        f"{r.ess.min():.1f}", f"{r.pooled_ess:.1f}", f"{np.median(r.quantiles):.3f}", f"{r.microseconds:.0f}",
    ]  # fmt: skip


def page(a):
    rows = measure(a.seed, a.chains, a.tune, a.draws)
    sections = [
        "# The 8-dimensional banana B(0.03, 100) with n exact draws given",
        f"{a.chains} chains of {a.draws:,} draws after {a.tune:,} of tuning, started from exact draws; seed {a.seed}.",
        report.table(HEAD, map(format_row, rows)),
    ]
    return "\n\n".join(sections)


if __name__ == "__main__":
    provenance.command("paper_banana", __doc__, page, chains=8, tune=1000, draws=2000, seed=20260201)
