"""Moves that contract towards the history's mean: their ratio, their exactness, their use."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.samplers import autoregressive
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.autoregressive import Tuning
from pymc_kameleon.samplers.seam import Outcome, Proposal
from tests.support.chains import held, run_transitions, z_scores
from tests.support.local_moves import Dropped
from tests.support.targets import Banana


def normal(d, seed=0):
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.standard_normal((d, d))) + 2.0 * np.eye(d)
    return rng.standard_normal(d), factor


@pytest.mark.parametrize("d", [1, 2, 5])
def test_ratio_is_that_of_the_normal_densities(d):
    mean, factor = normal(d)
    rng = np.random.default_rng(1)
    law = multivariate_normal(mean, factor @ factor.T)
    for log_step in (-3.0, -1.0, -1e-3):
        x = 3.0 * rng.standard_normal(d)
        proposal = autoregressive.propose(rng, x, mean, factor, Tuning(log_step, 0))
        expected = law.logpdf(x) - law.logpdf(proposal.position)
        np.testing.assert_allclose(proposal.log_q_ratio, expected, rtol=1e-10, atol=1e-10)
        # the oracle: the ratio of the two conditional densities, forward and back
        step = np.exp(log_step)
        keep = np.sqrt(1.0 - step**2)

        def log_density(to, at, keep=keep, step=step):
            centre = mean + keep * (at - mean)
            return multivariate_normal(centre, step**2 * factor @ factor.T).logpdf(to)

        both = log_density(x, proposal.position) - log_density(proposal.position, x)
        np.testing.assert_allclose(proposal.log_q_ratio, both, rtol=1e-7, atol=1e-8)


def test_a_normal_target_accepts_everything():
    """Where m and L are right every proposal is accepted, however long."""
    mean, factor = normal(3)
    law = multivariate_normal(mean, factor @ factor.T)
    rng = np.random.default_rng(2)
    for _ in range(50):
        x = mean + factor @ rng.standard_normal(3)
        proposal = autoregressive.propose(rng, x, mean, factor, Tuning(-0.5, 0))
        ratio = law.logpdf(proposal.position) - law.logpdf(x) + proposal.log_q_ratio
        assert abs(ratio) < 1e-9


def outcome(accept_prob):
    """Of a log density without noise; only the acceptance probability matters here."""
    x = np.zeros(1)
    return Outcome(x, 0.0, Proposal(x, 0.0, "autoregressive"), 0.0, accept_prob, True)


def test_the_step_follows_acceptance_and_stays_below_one():
    tuning = Tuning()
    for _ in range(2000):
        tuning = autoregressive.adapt(tuning, outcome(1.0))
    assert tuning.moves == 2000
    assert tuning.log_step == autoregressive.LOG_STEP_BOUNDS[1]
    for _ in range(2000):
        tuning = autoregressive.adapt(tuning, outcome(0.0))
    assert tuning.log_step < -3.0


TARGET = Banana(3)


def frozen():
    """A mediocre mean and covariance; half of the moves autoregressive."""
    state = held(AdaptiveMetropolis, np.zeros(3), covariance="identity", scale=0.5)._replace(autoregressive_share=0.5)
    factor = np.array([[1.5, 0.0, 0.0], [0.7, 2.0, 0.0], [0.0, 0.3, 1.2]])
    return state._replace(mean=np.array([0.5, -1.0, 0.2]), factor=factor, autoregression=Tuning(-0.4, 0))


def invariance(control=None):
    rng = np.random.default_rng(20261120)
    starts = TARGET.draw(rng, 4000)
    ends = run_transitions(rng, frozen().but(control), TARGET.log_density, starts, 8)
    return z_scores(ends, TARGET.mean, TARGET.cov)


def test_invariance():
    assert np.abs(invariance()).max() < 4.5


def test_without_the_ratio_it_is_another_distribution():
    assert np.abs(invariance(Dropped)).max() > 10
