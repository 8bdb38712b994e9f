"""Adaptive Metropolis: what is learned, that it is frozen, and exactness."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.seam import Outcome, Proposal
from tests.support.chains import Uneven, change, held, recursive_moments, tuned
from tests.support.targets import Skewed


def run(draws, *, cov=None, **options):
    """A chain that tunes on a normal target, from its centre."""
    precision = np.eye(2) if cov is None else np.linalg.inv(cov)
    x = np.zeros(len(precision))
    return tuned(AdaptiveMetropolis(**options), lambda x: -0.5 * x @ precision @ x, x, draws, seed=0)


PLAIN, MIXTURE = {}, {"exploration_share": 0.3}


@pytest.mark.parametrize(("options", "control"), [(PLAIN, None), (MIXTURE, None), (PLAIN, Uneven)])
def test_invariance(options, control):
    mediocre = {"factor": np.array([[1.0, 0.0], [0.8, 0.5]]), "log_scale": math.log(1.2)}
    state = held(AdaptiveMetropolis, np.zeros(2), **options).freeze()._replace(**mediocre)
    z = change(state, Skewed, 3000, 5, control)
    assert z > 10 if control else z < 4.5


# --- what is learned -------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["window", "recursive"])
def test_learns_the_covariance_and_the_acceptance(covariance):
    cov = np.array([[4.0, 1.9], [1.9, 1.0]])
    chain = run(8000, cov=cov, covariance=covariance)
    learned = chain.held.factor @ chain.held.factor.T
    assert np.abs(learned / cov - 1.0).max() < 0.3
    assert abs(chain.accept_probs[4000:].mean() - 0.234) < 0.03


def test_coordinate_phase_moves_one_coordinate_at_a_time():
    chain = run(100, cov=np.eye(3))
    assert chain.moves[:60] == ["coordinate"] * 60
    assert set(chain.moves[60:]) == {"global"}
    changed = (np.diff(chain.draws[:60], axis=0) != 0).sum(axis=1)
    assert changed.max() == 1


@pytest.mark.parametrize(
    ("options", "scale"), [({"covariance": "identity", "scale": 0.7}, 0.7), ({}, 2.38 / math.sqrt(2))]
)
def test_a_fixed_scale_stays(options, scale):
    """With the identity that is plain Metropolis."""
    after = run(300, scaling="fixed", **options).held
    assert math.exp(after.log_scale) == pytest.approx(scale, rel=1e-12)
    assert np.array_equal(after.factor, np.eye(2)) == ("covariance" in options)


def test_recursion_is_the_textbooks():
    """Andrieu & Thoms (2008), eq. 17, step by step, against the factor that is updated in O(d^2)."""
    state = held(AdaptiveMetropolis, np.zeros(3), covariance="recursive")
    rng = np.random.default_rng(4)
    draws = rng.standard_normal((49, 3))
    for x in draws:
        state = state.adapt(rng, Outcome(x, 0.0, Proposal(x, 0.0, "global"), 0.0, 1.0, True))
    mean, cov = recursive_moments(np.zeros(3), draws, np.arange(2.0, 51.0) ** -0.6)
    np.testing.assert_allclose(state.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(state.factor @ state.factor.T, cov, rtol=1e-10)


def test_covariance_update_keeps_the_volume_of_the_proposal():
    state = run(300, cov=np.diag([9.0, 0.01])).held
    updated = state.sampler.update_covariance(np.random.default_rng(0), state.state)
    before, after = (2 * s.log_scale + np.log(np.diag(s.factor)).sum() for s in (state, updated))
    assert updated.last_update == state.iteration
    np.testing.assert_allclose(after, before, atol=1e-10)


@pytest.mark.parametrize("draws", [5, 500])
def test_freeze_drops_the_history_even_within_the_coordinate_phase(draws):
    frozen = run(draws).held.freeze()
    assert frozen.history is None
    assert frozen.propose(np.random.default_rng(0), np.zeros(2)).move == "global"
