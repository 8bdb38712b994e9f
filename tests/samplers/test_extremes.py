"""Log densities as real models give them where a chain has no business: nothing that learns ends in an error.

A base composed with extremes, drawn by Hypothesis, through every sampler, arrivals and chains together. Warnings are
errors here: no number may overflow on the way either.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.pooled.chains import Chains
from pymc_kameleon.samplers.pooled.plan import Plan
from pymc_kameleon.samplers.seam import Known, Point
from tests.samplers.test_seam import SAMPLERS
from tests.support import runs
from tests.support.hierarchies import Toy

TUNE = 200
EXTREME = [1e300, -1e300, np.inf, -np.inf, np.nan, 1e150, -1e150, 1e15]
BASES = {
    "normal": lambda x: -0.5 * x @ x,
    "tiny": lambda x: -0.5 * np.square(1e8 * x).sum(),
    "banana": lambda x: -0.5 * (x[0] ** 2 / 4 + np.square(x[1:] - x[0] ** 2 / 2).sum()),
    "explosive": lambda x: -np.exp(np.clip(30 * x, None, 700)).sum() - 0.5 * x @ x,
    "powers": lambda x: -(np.abs(x) ** 30).sum(),
}
COMPOSED = {
    "times": lambda f, v, c: lambda x: v * f(x),
    "cliff": lambda f, v, c: lambda x: f(x) + (v if x.sum() > c else 0.0),
    "plateau": lambda f, v, c: lambda x: v if x[0] > c else f(x),
    "stripes": lambda f, v, c: lambda x: v if np.sin(20 * x[0] + c) > 0.6 else f(x),
    "floor": lambda f, v, c: lambda x: np.floor(f(x)),
    "overflow": lambda f, v, c: lambda x: -np.expm1(-f(x)),
    "offset": lambda f, v, c: lambda x: f(x) + v,
}
layer = st.tuples(st.sampled_from(list(COMPOSED)), st.sampled_from(EXTREME), st.floats(-2.0, 2.0, width=16))


def density(base, layers):
    f = BASES[base]
    for name, value, cut in layers:
        f = COMPOSED[name](f, value, cut)

    def log_density(x):
        with np.errstate(all="ignore"):
            return float(f(x))

    return log_density


def chain_of(sampler, log_density, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(2) * rng.choice([1.0, 5.0])
    if np.isfinite(log_density(x)):
        run = runs.run(rng, sampler, log_density, x, tune=TUNE, n=10)
        assert np.isfinite(run.draws).all()


def climb(state, rng, log_density):
    """The search from its beginning to its end."""
    while not state.done:
        point = state.propose(rng)
        assert np.isfinite(point).all()
        state = state.tell(rng, point, log_density(point))
    return state


def arrival_and_walk(log_density, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(2) * rng.choice([1.0, 5.0])
    if not np.isfinite(log_density(x)):
        return
    looks = rng.standard_normal((3, 2)) * rng.choice([1.0, 1e3])
    scale = 10.0 ** rng.uniform(-3, 3)
    state = climb(search.init(x, log_density(x), scale=scale, start=3 * x, looks=looks), rng, log_density)
    assert state.factor is None or (np.isfinite(state.factor).all() and (np.diag(state.factor) > 0).all())
    sampler, point = ValueKamiltonian(tune=TUNE), Point(state.position, state.log_density)
    own = sampler.place(sampler.init(rng, state.position, Known(100, **state.learned())), point)
    for draw in runs.draws(rng, sampler, log_density, point, own, 100, tuning=True):
        point, own = draw.point, draw.state
    assert np.isfinite(point.position).all()
    chain.freeze(sampler, point, own)


class Boxes(Toy):
    """Two black boxes of any values."""

    def __init__(self, log_density):
        super().__init__()
        self.log_density = log_density

    def boxes(self, x):
        return np.array([self.log_density(np.full(2, a)) for a in x])


def one_by_one(log_density, seed):
    toy, rng = Boxes(log_density), np.random.default_rng(seed)
    x = rng.standard_normal(4)
    if np.isfinite(toy(x)):
        run = runs.run(rng, FactoredKamiltonian(known=toy, tune=TUNE), toy, x, tune=TUNE, n=10)
        assert np.isfinite(run.draws).all()


def together(log_density, seed):
    starts = 2 * np.random.default_rng(seed).standard_normal((9, 2))
    plan = Plan(draws=5, tune=None, longest=90, max_evaluations=None, audits=10)
    chains = Chains(starts[0], starts[1:], np.random.SeedSequence(seed), plan)
    while not (chains.done or chains.nowhere):
        asked = [request.position for request in chains.ask()]
        assert np.isfinite(asked).all()
        chains.tell([log_density(x) for x in asked])
    assert all(np.isfinite(row.positions).all() for row in chains.rows)


def shorter(sampler):
    """The same with as much tuning as there is here, and a surrogate sooner."""
    changed = {"tune": TUNE, "first_fit": 100}
    return replace(sampler, **{k: v for k, v in changed.items() if getattr(sampler, k, None)})


RUNS = {
    **{name: partial(chain_of, shorter(sampler)) for name, sampler in SAMPLERS.items()}, "arrival": arrival_and_walk,
    "factors": one_by_one, "pooled": together,
}  # fmt: skip


@pytest.mark.parametrize("examples", [1, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_any_log_density_is_survived(run, examples):
    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        base=st.sampled_from(list(BASES)), layers=st.lists(layer, min_size=1, max_size=3), seed=st.integers(0, 10**6)
    )
    def check(base, layers, seed):
        run(density(base, layers), seed)

    check()


def recursion(x):
    """The one-step errors of an ARMA(1, 1), which explode outside of a small region."""
    error, square = 0.0, 0.0
    with np.errstate(all="ignore"):
        for t in range(1, 200):
            error = np.sin(t) - x[0] - x[1] * np.sin(t - 1) - x[2] * error
            square += error * error
        return float(-0.5 * square / np.exp(2 * x[3]) - 200 * x[3] - 0.5 * x @ x)


def test_a_climb_comes_out_of_where_a_recursion_explodes():
    """From -1e187: curvatures of falls that large are no numbers."""
    x = np.full(4, 3.0)
    assert climb(search.init(x, recursion(x)), np.random.default_rng(0), recursion).log_density > -1000.0
