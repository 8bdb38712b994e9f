"""Moves that contract towards the history's mean: their ratio, their exactness, their use."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.samplers import autoregressive
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.autoregressive import Tuning
from pymc_kameleon.samplers.seam import Outcome, Proposal
from tests.support.chains import Dropped, change, held
from tests.support.targets import Banana


@pytest.mark.parametrize("log_step", [-3.0, -1.0, -1e-3])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_ratio_is_that_of_the_normal_densities(d, log_step):
    """So that where m and L are right every proposal is accepted, however long."""
    rng = np.random.default_rng(d)
    factor = np.tril(rng.standard_normal((d, d))) + 2.0 * np.eye(d)
    mean, x = rng.standard_normal((2, d))
    proposal = autoregressive.propose(rng, x, mean, factor, Tuning(log_step, 0))
    y = proposal.position
    law = multivariate_normal(mean, factor @ factor.T)
    np.testing.assert_allclose(proposal.log_q_ratio, law.logpdf(x) - law.logpdf(y), rtol=1e-10, atol=1e-10)

    # the oracle: the ratio of the two conditional densities, forward and back
    def log_density(to, at):
        centre = mean + np.sqrt(1.0 - np.exp(2 * log_step)) * (at - mean)
        return multivariate_normal(centre, np.exp(2 * log_step) * factor @ factor.T).logpdf(to)

    np.testing.assert_allclose(proposal.log_q_ratio, log_density(x, y) - log_density(y, x), rtol=1e-7, atol=1e-8)


def test_the_step_follows_acceptance_and_stays_below_one():
    tuning, x = Tuning(), np.zeros(1)
    accepted, refused = (Outcome(x, 0.0, Proposal(x, 0.0, "towards"), 0.0, p, True) for p in (1.0, 0.0))
    for _ in range(2000):
        tuning = autoregressive.adapt(tuning, accepted)
    assert tuning.moves == 2000
    assert tuning.log_step == autoregressive.LOG_STEP_BOUNDS[1]
    for _ in range(2000):
        tuning = autoregressive.adapt(tuning, refused)
    assert tuning.log_step < -3.0


@pytest.mark.parametrize("control", [None, Dropped])
def test_invariance(control):
    """A mediocre mean and covariance; half of the moves autoregressive."""
    state = held(AdaptiveMetropolis, np.zeros(3), covariance="identity", scale=0.5)._replace(
        autoregressive_share=0.5, mean=np.array([0.5, -1.0, 0.2]), autoregression=Tuning(-0.4, 0),
        factor=np.array([[1.5, 0.0, 0.0], [0.7, 2.0, 0.0], [0.0, 0.3, 1.2]]),
    )  # fmt: skip
    z = change(state, Banana(3), 2000, 8, control)
    assert z > 10 if control else z < 4.5
