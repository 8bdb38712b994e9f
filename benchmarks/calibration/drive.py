"""One replication: parameters from the prior, data given them, a chain from cold, ranks; then a test without patience.

``cold``
    The chain starts where ``pm.sample`` starts it, tunes, and draws; the true values are ranked among 19 thinned draws.
    Ranks are uniform if the whole workflow is right: arrival, tuning, kernel, *and* the chain long enough. (A chain
    started at the true values would start in its posterior and hide whatever does not arrive or does not move.)
``frozen``
    The tuned kernel, which knows the data and not the true values, is then put at the true values, which are an exact
    draw of the posterior given the data, and makes ``AFTER`` draws. If it leaves the posterior as it is, no quantity's
    mean changes, over replications, whatever the length of the chain. Not under noise: there the estimate at the true
    values would have to be drawn from its distribution in the chain, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep, CompoundStep

import pymc_kameleon as pk
from benchmarks import basics
from benchmarks.calibration.models import Problem

LARGEST = 19  # ranks are 0 ... 19
AFTER = 20


class Entry(NamedTuple):
    """A step with options with which it goes through all its phases in ``tune`` draws."""

    step: type
    options: dict[str, Any]
    tune: int
    draws: int  # a multiple of LARGEST


def _entry(step, every, **options):
    return Entry(step, options, 500, every * LARGEST)


def _scores(surrogate, **options):
    options = {"surrogate": surrogate, "first_fit": 200, **options, "n_leapfrog": (1, 8)}
    return _entry(pk.KamiltonianStep, 40, **options)


STEPS = {
    "AdaptiveMetropolisStep": _entry(pk.AdaptiveMetropolisStep, 60),
    "KameleonStep": _entry(pk.KameleonStep, 60, n_history=100, local_start=150),
    "KameleonStep, pca": _entry(pk.KameleonStep, 60, proposal="pca", n_history=50, n_directions=5, local_start=150),
    "FastKameleonStep, screen=0": _entry(pk.FastKameleonStep, 60, n_features=50, local_start=150, screen=0),
    "FastKameleonStep": _entry(pk.FastKameleonStep, 20, n_features=50, local_start=150),
    "GaussianMixtureStep": _entry(pk.GaussianMixtureStep, 60, max_components=3, local_start=150),
    "KamiltonianStep": _entry(pk.KamiltonianStep, 20),
    "KamiltonianStep, finite": _scores("finite", n_history=200, n_features=50),
    "KamiltonianStep, lite": _scores("lite", n_history=100),
    "GaussianAdaptationStep": _entry(pk.GaussianAdaptationStep, 60),
    "CMAStep": _entry(pk.CMAStep, 60),
}
RATIO_DROPPED = "GaussianMixtureStep, its ratio dropped"


class WithoutRatio:
    """A sampler whose test leaves out the densities of its proposals: wrong."""

    def __init__(self, sampler):
        self._sampler = sampler

    def __getattr__(self, name):
        return getattr(self._sampler, name)

    def log_ratio(self, state, point, proposal, there) -> float:
        return 0.0


class Driver:
    """A step on a problem, compiled once, that makes one replication after the other."""

    def __init__(self, problem: Problem, name: str):
        wrong = name == RATIO_DROPPED
        self.entry, self.problem = STEPS["GaussianMixtureStep" if wrong else name], problem
        ours = [problem.model[v] for v in problem.ours]
        with problem.model:
            chosen = {"vars": ours} if ours else {}
            self.step: Any = self.entry.step(**chosen, **basics.nested(self.entry.step, self.entry.options))
            if wrong:
                self.step.sampler = WithoutRatio(self.step.sampler)
            if ours:
                rest = [v for v in problem.model.free_RVs if v not in ours]
                self.step = CompoundStep([self.step, pm.NUTS(rest)])
        self.fresh = self.step.sampling_state
        self.start = problem.model.initial_point()

    def begin(self, rng) -> None:
        self.step.sampling_state = self.fresh
        if hasattr(BlockedStep, "setup_chain"):
            self.step.setup_chain(rng, self.entry.tune, self.entry.draws)
        else:
            self.step.set_rng(rng)
        self.step.tune = True
        self.step.reset_tuning()

    def replicate(self, seed: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray, float]:
        """Ranks and changes of all quantities, shape (q,); mean lag-1 autocorrelation of the thinned draws."""
        data_rng, chain_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
        values, data = self.problem.simulate(data_rng)
        self.problem.set_data(data)
        truth = self.problem.measured(values)
        thinned = self._cold(chain_rng)
        ranks = (thinned < truth).sum(axis=0)
        point = {name: np.array(v) for name, v in values.items()}
        for _ in range(AFTER):
            point, _ = self.step.step(point)
        return ranks, self.problem.measured(point) - truth, _lag_one(thinned)

    def _cold(self, rng):
        """Thinned draws of a chain from cold, shape (LARGEST, q)."""
        self.begin(rng)
        point, every = self.start, self.entry.draws // LARGEST
        for _ in range(self.entry.tune):
            point, _ = self.step.step(point)
        self.step.stop_tuning()
        kept = []
        for i in range(self.entry.draws):
            point, _ = self.step.step(point)
            if i % every == every - 1:
                kept.append(self.problem.measured(point))
        return np.array(kept)


def _lag_one(draws):
    centred = draws - draws.mean(axis=0)
    variance = np.square(centred).mean(axis=0)
    products = (centred[1:] * centred[:-1]).mean(axis=0)
    return float(np.mean(products[variance > 0] / variance[variance > 0]))
