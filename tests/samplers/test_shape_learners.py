"""Both walks whose shape, of determinant one, and size learn apart, M-GaA and (1+1)-CMA: as published, and exact."""

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from pymc_kameleon.numerics.covariance import multiply_lower, update_shape
from pymc_kameleon.samplers.seam import Outcome
from pymc_kameleon.samplers.shape_learners import base
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.support.chains import Uneven, change, held, run_chain, tuned
from tests.support.targets import Banana

PAPERS = {"sweeps": 0, "success": "indicator"}  # no search for the units, and a 0/1 success


def start(kind, x, **options):
    return held(kind, x, **PAPERS, **options)


def standard_normal(x):
    return -0.5 * float(x @ x)


# --- the published, dense definitions, with the steps as they are seen from outside ---------------


class PublishedGaA:
    """The paper's two recursions."""

    kind, size = GaussianAdaptation, "initial_radius"

    def __init__(self, radius, d):
        self.radius, self.shape, self.rate, self.branches = radius, np.eye(d), math.log(d + 1) / (d + 1) ** 2, set()

    def update(self, step, accepted, multiplier):
        self.branches.add(accepted)
        rate = multiplier * self.rate
        if accepted:
            shape = (1 - rate) * self.shape + rate * np.outer(step, step) / self.radius**2
            self.shape = shape / np.linalg.det(shape) ** (1 / len(step))
        self.radius *= 1 + rate * (1 - 0.234) if accepted else 1 - rate * 0.234

    @property
    def total(self):
        return self.radius**2 * self.shape

    def compare(self, state):
        assert state.log_size == pytest.approx(math.log(self.radius), rel=1e-10, abs=1e-10)


class PublishedCMA:
    """Nothing normalised."""

    kind, size = CMA, "initial_sigma"

    def __init__(self, sigma, d):
        self.sigma, self.d, self.p = sigma, d, 2 / 11
        self.covariance, self.path, self.branches = np.eye(d), np.zeros(d), set()

    def update(self, step, accepted, multiplier):
        d, target, c_p, c_c = self.d, 2 / 11, 1 / 12, 2 / (self.d + 2)
        c_cov = multiplier * 2 / (d * d + 6)
        mutation = step / self.sigma  # A z
        self.p = (1 - c_p) * self.p + c_p * accepted
        exponent = (self.p - target / (1 - target) * (1 - self.p)) / (1 + d / 2)
        self.sigma *= math.exp(multiplier * exponent)
        if not accepted:
            return
        self.branches.add(self.p < 0.44)
        if self.p < 0.44:
            self.path = (1 - c_c) * self.path + math.sqrt(c_c * (2 - c_c)) * mutation
            rank_one = np.outer(self.path, self.path)
        else:
            self.path = (1 - c_c) * self.path
            rank_one = np.outer(self.path, self.path) + c_c * (2 - c_c) * self.covariance
        self.covariance = (1 - c_cov) * self.covariance + c_cov * rank_one

    @property
    def total(self):
        return self.sigma**2 * self.covariance

    def compare(self, state):
        assert state.success_rate == pytest.approx(self.p, rel=1e-10)
        path, atol = self.sigma * self.path, 1e-10 * math.sqrt(self.total.max())
        np.testing.assert_allclose(math.exp(state.log_size) * state.path, path, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("published", [PublishedGaA, PublishedCMA])
@pytest.mark.parametrize("diminishing", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_adaptation_is_the_published_one(published, d, diminishing):
    oracle = published(0.05, d)
    sampler = published.kind(**PAPERS, diminishing=diminishing, **{published.size: 0.05})
    chain = tuned(sampler, standard_normal, np.zeros(d), 500)
    steps = np.diff(chain.draws, axis=0, prepend=0.0)
    for t, (step, state, outcome) in enumerate(zip(steps, chain.hands, chain.outcomes, strict=True), 1):
        oracle.update(step, outcome.accepted, min(1, (t / 200) ** -0.6) if diminishing else 1)
        total = math.exp(2 * state.log_size) * state.factor @ state.factor.T
        np.testing.assert_allclose(total, oracle.total, rtol=1e-10, atol=1e-10 * oracle.total.max())
        assert np.diag(state.factor).prod() == pytest.approx(1.0, rel=1e-10)
        oracle.compare(state)
    assert oracle.branches == {True, False}


class DeterminantInTheRadius(GaussianAdaptation):
    """Negative control."""

    def adapt(self, rng, state, outcome):
        moved = super().adapt(rng, state, outcome)
        if not outcome.accepted:
            return moved
        rate = self.rate_at(state.iteration + 1, 2)
        step = multiply_lower(state.factor, outcome.proposal.carry)
        _, log_scale, _ = update_shape(state.factor, state.base, 1.0, 1e12, step, 1.0 - rate, rate)
        return moved._replace(log_size=moved.log_size + log_scale)


@pytest.mark.parametrize("kind", [GaussianAdaptation, DeterminantInTheRadius])
def test_acceptance_settles_at_its_target_and_control_with_the_determinant(kind):
    rng, x, rates = np.random.default_rng(5), np.zeros(2), []
    for seed in range(12):
        state = tuned(kind(**PAPERS), standard_normal, x, 1500, seed).held
        frozen = run_chain(rng, state, standard_normal, x, 1000, tuning=False)
        rates.append(np.mean([outcome.accepted for outcome in frozen.outcomes]))
    z = (np.mean(rates) - 0.234) / (np.std(rates, ddof=1) / math.sqrt(len(rates)))
    assert abs(z) < 4.5 if kind is GaussianAdaptation else z > 10


# --- what holds of both ---------------------------------------------------------------------------


class Walk(NamedTuple):
    """A sampler; its option for the size at the start; options with which it learns so fast that it shows."""

    kind: Any
    size: str
    hasty: dict
    learned: float  # condition number that is left of 1e4


WALKS = [
    Walk(GaussianAdaptation, "initial_radius", {"rate": 0.5}, learned=10),
    Walk(CMA, "initial_sigma", {"rate_factor": 2.5}, learned=20),
]
both = pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.kind.__name__)


@both
def test_the_proposal_is_a_symmetric_random_walk_with_the_covariance_given(walk):
    root = np.linalg.cholesky(np.array([[4.0, 1.0], [1.0, 9.0]]))
    x = np.array([1.0, -2.0])
    state = start(walk.kind, x, factor=root, **{walk.size: 0.7})  # as an arrival brings it
    np.testing.assert_allclose(np.linalg.det(state.factor), 1.0, rtol=1e-10)
    scale = state.stats()["scaling"]
    assert scale == pytest.approx(0.7 * 35**0.25, rel=1e-10)
    np.testing.assert_allclose(scale**2 * state.factor @ state.factor.T, 0.49 * root @ root.T, rtol=1e-10)
    proposal = state.propose(np.random.default_rng(2), x)
    z = np.random.default_rng(2).standard_normal(2)
    np.testing.assert_allclose(proposal.position, x + 0.7 * root @ z, rtol=1e-10)
    assert proposal.log_q_ratio == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("control", [None, Uneven])
@both
def test_invariance(walk, control):
    state = start(walk.kind, np.zeros(2), initial_scale=np.linspace(0.5, 2.0, 2))
    z = change(state, Banana(2), 1400, 20, control)
    assert z > 10 if control else z < 4.5


@both
def test_the_shape_is_learned(walk):
    scales = np.array([30.0, 1.0, 0.3])
    rotation, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((3, 3)))
    precision = rotation / scales**2 @ rotation.T
    chain = tuned(walk.kind(**PAPERS), lambda x: -0.5 * float(x @ precision @ x), np.zeros(3), 6000, seed=0)
    first, last = (np.linalg.cond(held.factor.T @ precision @ held.factor) for held in (chain.hands[0], chain.held))
    assert first > 5e3
    assert last < walk.learned


@both
@pytest.mark.parametrize("accepted", [True, False])
def test_size_and_condition_stay_within_their_bounds_and_states_are_values(walk, accepted, monkeypatch):
    monkeypatch.setattr(base, "REACH", 100.0)
    monkeypatch.setattr(base, "CONDITION_LIMIT", 1.5)
    rng, x = np.random.default_rng(8), np.zeros(3)
    first = start(walk.kind, x, diminishing=False, **walk.hasty)
    before, state, value = pickle.dumps(first.state), first, 0.0 if accepted else -math.inf
    for _ in range(400):
        proposal = state.propose(rng, x)
        state = state.adapt(rng, Outcome(x, 0.0, proposal, value, float(accepted), accepted))
        assert abs(state.log_size - first.log_size) <= math.log(100.0) + 1e-12
        assert np.linalg.cond(state.factor @ state.factor.T) <= 1.5 * (1 + 1e-10)
        np.testing.assert_allclose(np.diag(state.factor).prod(), 1.0, rtol=1e-10)
    assert abs(state.log_size - first.log_size) == pytest.approx(math.log(100.0))
    assert accepted == (not np.array_equal(state.factor, first.factor))
    assert pickle.dumps(first.state) == before
    np.testing.assert_array_equal(x, 0.0)
