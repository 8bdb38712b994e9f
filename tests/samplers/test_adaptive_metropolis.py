"""Adaptive Metropolis: what is learned, that it is frozen, and exactness."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.seam import Outcome, Proposal
from tests.support.chains import held
from tests.support.local_moves import change


def run(state, log_density, x, draws, seed=0):
    rng = np.random.default_rng(seed)
    outcomes = []
    for _, outcome, after in state.draws(rng, log_density, x, draws, tuning=True):
        outcomes.append(outcome)
        state = after
    positions = np.array([o.position for o in outcomes])
    probabilities = np.array([o.accept_prob for o in outcomes])
    return state, positions, probabilities, [o.proposal.move for o in outcomes]


def correlated(cov):
    precision = np.linalg.inv(cov)
    return lambda x: -0.5 * x @ precision @ x


# --- exactness -------------------------------------------------------------------------------


def mediocre(**options):
    state = held(AdaptiveMetropolis, np.zeros(2), **options)
    state = state._replace(factor=np.array([[1.0, 0.0], [0.8, 0.5]]), log_scale=math.log(1.2))
    return state.freeze()._replace(factor=np.array([[1.0, 0.0], [0.8, 0.5]]))


@pytest.mark.parametrize("options", [{}, {"exploration_share": 0.3}], ids=["plain", "mixture"])
def test_invariance(options):
    assert change(lambda *_: mediocre(**options), 10_000, 5) < 4.5


class RatioDropped:
    """Negative control: a move along the scale of x, which is not symmetric, with the ratio dropped."""

    @staticmethod
    def propose(rng, x, state):
        return Proposal(x * np.exp(0.5 * rng.standard_normal(2)), 0.0)


def test_invariance_fails_when_it_should():
    assert change(lambda *_: mediocre(), 10_000, 5, RatioDropped) > 10


# --- what is learned -------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["window", "recursive"])
def test_learns_the_covariance_and_the_acceptance(covariance):
    cov = np.array([[4.0, 1.9], [1.9, 1.0]])
    state = held(AdaptiveMetropolis, np.zeros(2), covariance=covariance)
    state, _, probabilities, _ = run(state, correlated(cov), np.zeros(2), 8000)
    learned = state.factor @ state.factor.T
    assert np.abs(learned / cov - 1.0).max() < 0.3
    assert abs(probabilities[4000:].mean() - 0.234) < 0.03


def test_coordinate_phase_moves_one_coordinate_at_a_time():
    state = held(AdaptiveMetropolis, np.zeros(3))
    _, positions, _, moves = run(state, lambda x: -0.5 * x @ x, np.zeros(3), 100)
    assert moves[:60] == ["coordinate"] * 60
    assert set(moves[60:]) == {"global"}
    changed = (np.diff(positions[:60], axis=0) != 0).sum(axis=1)
    assert changed.max() == 1


def test_identity_and_fixed_is_plain_metropolis():
    state = held(AdaptiveMetropolis, np.zeros(2), covariance="identity", scaling="fixed", scale=0.7)
    after, _, _, _ = run(state, lambda x: -0.5 * x @ x, np.zeros(2), 200)
    np.testing.assert_array_equal(after.factor, np.eye(2))
    assert after.log_scale == math.log(0.7)


def test_fixed_scaling_keeps_the_optimal_scale():
    state = held(AdaptiveMetropolis, np.zeros(2), scaling="fixed")
    after, _, _, _ = run(state, lambda x: -0.5 * x @ x, np.zeros(2), 2000)
    assert math.exp(after.log_scale) == pytest.approx(2.38 / math.sqrt(2))


def test_recursion_is_the_textbooks():
    """Andrieu & Thoms (2008), eq. 17, step by step, against the factor that is updated in O(d^2)."""
    state = held(AdaptiveMetropolis, np.zeros(3), covariance="recursive")
    rng = np.random.default_rng(4)
    mean, cov = np.zeros(3), np.eye(3)
    for t in range(1, 50):
        x = rng.standard_normal(3)
        proposal = Proposal(x, 0.0, "global")
        state = state.adapt(rng, Outcome(x, 0.0, proposal, 0.0, 1.0, True))
        rate = (t + 1.0) ** -0.6
        cov = cov + rate * (np.outer(x - mean, x - mean) - cov)
        mean = mean + rate * (x - mean)
    np.testing.assert_allclose(state.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(state.factor @ state.factor.T, cov, rtol=1e-10)


def test_covariance_update_keeps_the_volume_of_the_proposal():
    state = held(AdaptiveMetropolis, np.zeros(2))
    state, _, _, _ = run(state, correlated(np.diag([9.0, 0.01])), np.zeros(2), 300)
    before = 2 * state.log_scale + np.log(np.diag(state.factor)).sum()
    updated = state.sampler.update_covariance(np.random.default_rng(0), state.state)
    after = 2 * updated.log_scale + np.log(np.diag(updated.factor)).sum()
    assert updated.last_update == state.iteration
    assert after <= before + 1e-10
    np.testing.assert_allclose(after, before, atol=1e-10)


def test_freeze_drops_the_history_even_within_the_coordinate_phase():
    for draws in (5, 500):
        state = held(AdaptiveMetropolis, np.zeros(2))
        state, _, _, _ = run(state, lambda x: -0.5 * x @ x, np.zeros(2), draws)
        frozen = state.freeze()
        assert frozen.history is None
        move = frozen.propose(np.random.default_rng(0), np.zeros(2)).move
        assert move == "global"
