"""What holds of both walks whose shape, of determinant one, and size learn apart: M-GaA and (1+1)-CMA."""

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from pymc_kameleon.samplers.seam import Outcome
from pymc_kameleon.samplers.shape_learners import base
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.support.chains import held, run_chain, run_transitions, z_scores
from tests.support.targets import Banana


class Walk(NamedTuple):
    """A sampler; its option for the size at the start; options with which it learns so fast that it shows."""

    sampler: Any
    size: str
    hasty: dict
    learned: float  # condition number that is left of 1e4

    def start(self, x, **options):
        """As published: no search for the units, and a 0/1 success."""
        return held(self.sampler, x, **{"sweeps": 0, "success": "indicator", **options})


WALKS = [
    Walk(GaussianAdaptation, "initial_radius", {"rate": 0.5}, learned=10),
    Walk(CMA, "initial_sigma", {"rate_factor": 2.5}, learned=20),
]
both = pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.sampler.__name__)


@both
def test_the_proposal_is_a_symmetric_random_walk_with_the_covariance_given(walk):
    root = np.linalg.cholesky(np.array([[4.0, 1.0], [1.0, 9.0]]))
    x = np.array([1.0, -2.0])
    state = walk.start(x, factor=root, **{walk.size: 0.7})  # as an arrival brings it
    np.testing.assert_allclose(np.linalg.det(state.factor), 1.0, rtol=1e-10)
    scale = state.stats()["scaling"]
    assert scale == pytest.approx(0.7 * 35**0.25, rel=1e-10)
    total = scale**2 * state.factor @ state.factor.T
    np.testing.assert_allclose(total, 0.49 * root @ root.T, rtol=1e-10)
    proposal = state.propose(np.random.default_rng(2), x)
    z = np.random.default_rng(2).standard_normal(2)
    expected = x + 0.7 * root @ z
    np.testing.assert_allclose(proposal.position, expected, rtol=1e-10)
    assert proposal.log_q_ratio == 0.0


@pytest.mark.parametrize("ratio", ["kept", "dropped"])
@both
def test_transitions_from_exact_draws_and_control_without_the_ratio(walk, ratio):
    d = 2
    target, rng = Banana(d), np.random.default_rng(4)
    state = walk.start(np.zeros(d), initial_scale=np.linspace(0.5, 2.0, d))
    log_density = target.log_density if ratio == "kept" else (lambda x: 0.0)
    ends = run_transitions(rng, state, log_density, target.draw(rng, 2000), steps=20)
    worst = np.abs(z_scores(ends, target.mean, target.cov)).max()
    assert worst < 4.5 if ratio == "kept" else worst > 10


@both
def test_the_shape_is_learned(walk):
    scales = np.array([30.0, 1.0, 0.3])
    rotation, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((3, 3)))
    precision = rotation / scales**2 @ rotation.T
    rng, x = np.random.default_rng(0), np.zeros(3)
    first = walk.start(x)
    state, _ = run_chain(rng, first, lambda x: -0.5 * float(x @ precision @ x), x, 6000)
    assert np.linalg.cond(first.factor.T @ precision @ first.factor) == pytest.approx(1e4)
    assert np.linalg.cond(state.factor.T @ precision @ state.factor) < walk.learned


@both
@pytest.mark.parametrize("accepted", [True, False])
def test_size_and_condition_stay_within_their_bounds_and_states_are_values(walk, accepted, monkeypatch):
    monkeypatch.setattr(base, "REACH", 100.0)
    monkeypatch.setattr(base, "CONDITION_LIMIT", 1.5)
    rng, x = np.random.default_rng(8), np.zeros(3)
    first = walk.start(x, diminishing=False, **walk.hasty)
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
