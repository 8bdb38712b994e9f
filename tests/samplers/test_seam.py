"""What every sampler promises, without PyMC: the conformance test that a new one is added to by one line."""

import pickle
from functools import cache

import numpy as np
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.schedule import Scheduled
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.samplers.hit_and_run import HitAndRun
from tests.support import runs
from tests.support.targets import Banana

TARGET = Banana(2)
TUNE = 400
SAMPLERS = {
    "adaptive Metropolis": AdaptiveMetropolis(tune=TUNE),
    "adaptive Metropolis, as published": AdaptiveMetropolis(covariance="recursive"),
    "Gaussian adaptation": GaussianAdaptation(tune=TUNE), "CMA": CMA(tune=TUNE),
    "Kameleon": Kameleon(n_history=60, tune=TUNE),
    "PCA-Kameleon": PCAKameleon(n_history=60, n_directions=5, tune=TUNE),
    "fast Kameleon": FastKameleon(n_features=40, tune=TUNE), "Gaussian mixture": GaussianMixture(tune=TUNE),
    "Kamiltonian, lite": LiteKamiltonian(first_fit=150, n_history=60, tune=TUNE),
    "Kamiltonian, finite": FiniteKamiltonian(first_fit=150, n_features=40, tune=TUNE),
    "Kamiltonian, lite, low rank": LiteKamiltonian(first_fit=150, n_history=60, solver="low-rank", tune=TUNE),
    "Kamiltonian, finite, online": FiniteKamiltonian(first_fit=150, n_features=40, online=True, tune=TUNE),
    "Kamiltonian, values": ValueKamiltonian(tune=TUNE),
    "screened": Screened(inner=FastKameleon(n_features=40, tune=TUNE), transitions=3),
    "scheduled": Scheduled(inner=Kameleon(n_history=60, tune=TUNE), schedule="root"), "hit and run": HitAndRun(),
}  # fmt: skip
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def bytes_of(value):
    """What a state, a proposal or a generator is, to the last bit."""
    return pickle.dumps(value)


def tuned(sampler, draws=TUNE):
    """(generator, point, state) after ``draws`` of tuning; a copy of its own for every test."""
    return pickle.loads(_tuned(sampler, draws))


@cache
def _tuned(sampler, draws):
    rng, x = np.random.default_rng(1), np.array([1.0, -0.5])
    point = Point(x, TARGET.log_density(x))
    state = sampler.place(sampler.init(rng, x), point)
    for draw in runs.draws(rng, sampler, TARGET.log_density, point, state, draws, tuning=True):
        point, state = draw.point, draw.state
    return pickle.dumps((rng, point, state))


def frozen(sampler, draws=TUNE):
    rng, point, state = tuned(sampler, draws)
    return rng, point, chain.freeze(sampler, point, state)


def leaves(value):
    """All arrays in a state."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value if isinstance(value, (tuple, list)) else vars(value).values() if hasattr(value, "__dict__") else ()
    return [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize(
    ("draws", "lock"),
    [(5, False), (TUNE, False), pytest.param(TUNE, True, marks=pytest.mark.slow)],  # Numba compiles anew for it
)
@every_sampler
def test_propose_writes_nothing(sampler, draws, lock):
    """Not even for a moment, where the arrays are locked."""
    rng, point, state = tuned(sampler, draws)
    before = bytes_of((point, state))
    if lock:
        for array in leaves(state):
            array.setflags(write=False)
    for _ in range(30):
        sampler.propose(rng, point.position, state)
    assert bytes_of((point, state)) == before


@every_sampler
def test_a_frozen_state_never_changes_but_for_what_it_retains_of_the_point(sampler):
    rng, point, state = frozen(sampler)
    here, first, moved = point, state, 0
    for draw in runs.draws(rng, sampler, TARGET.log_density, point, state, 150):
        moved += draw.accepted
        here, state = draw.point, draw.state
    assert moved > 3
    assert bytes_of(sampler.place(state, point)) == bytes_of(sampler.place(first, point))
    assert bytes_of(sampler.place(first, here)) == bytes_of(sampler.place(state, here))


@every_sampler
def test_placing_twice_is_placing_once(sampler):
    """While tuning; afterwards placing changes nothing, see below."""
    _, point, state = tuned(sampler)
    once = sampler.place(state, point)
    assert bytes_of(sampler.place(once, point)) == bytes_of(once)


@every_sampler
def test_a_frozen_chain_begins_with_what_is_found_where_it_is(sampler):
    """Not with what was cached there while tuning."""
    _, point, state = frozen(sampler)
    assert bytes_of(sampler.place(state, point)) == bytes_of(state)


@every_sampler
def test_what_a_proposal_brings_along_is_what_is_found_there(sampler):
    """Moving by a proposal retains what putting the chain there retains."""
    rng, point, state = frozen(sampler)
    compared = 0
    for draw in runs.draws(rng, sampler, TARGET.log_density, point, state, 60):
        if draw.accepted:
            put = sampler.place(draw.before, draw.point)
            for a, b in zip(leaves(draw.state), leaves(put), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
            compared += 1
    assert compared > 0


@every_sampler
@pytest.mark.parametrize("draws", [0, TUNE])
def test_statistics_are_the_declared_ones(sampler, draws):
    rng, point, state = tuned(sampler, draws)
    alone = sampler.stats(state)
    found = sampler.stats(state, sampler.propose(rng, point.position, state))
    assert set(alone) <= set(found) <= set(sampler.statistics)
    for name, value in found.items():
        np.dtype(sampler.statistics[name]).type(value)
        if sampler.statistics[name] is not str:
            assert isinstance(value, (int, float, np.number, np.bool_)), name
    assert set(sampler.stats(frozen(sampler)[2])) == set(alone)


def test_the_conformance_test_notices():
    """A sampler that writes, one that goes on learning, and one that says what it has not declared."""

    class Writes(HitAndRun):
        def propose(self, rng, x, state):
            state.log_scale[...] += 1.0
            return super().propose(rng, x, state)

    class Learns(HitAndRun):
        def place(self, state, point, proposal=None):
            return state._replace(log_scale=state.log_scale + 0.1)

    class Tells(HitAndRun):
        def stats(self, state, proposal=None):
            return {**super().stats(state), "mood": 1.0}

    for test, *given in (
        (test_propose_writes_nothing, Writes(), 5, False),
        (test_a_frozen_state_never_changes_but_for_what_it_retains_of_the_point, Learns()),
        (test_placing_twice_is_placing_once, Learns()),
        (test_statistics_are_the_declared_ones, Tells(), 5),
    ):
        with pytest.raises((AssertionError, ValueError)):
            test(*given)


def test_every_step_s_sampler_is_among_them():
    steps = [getattr(pk, name) for name in dir(pk) if name.endswith("Step")]
    used = {kind for step in steps for kind in step.variants.values()}
    assert len(used) >= 10
    assert used <= {type(sampler) for sampler in SAMPLERS.values()}
