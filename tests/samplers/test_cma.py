"""The (1+1)-CMA sampler against its published, un-normalised, dense definition, and the rest."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.shape_learners import cma
from pymc_kameleon.samplers.shape_learners.base import rate_multiplier
from tests.support.chains import held, run_chain


def start(x, **options):
    """As published: no search for the units, and a 0/1 success."""
    return held(cma.CMA, x, **{"sweeps": 0, "success": "indicator", **options})


def standard_normal(x):
    return -0.5 * float(x @ x)


class Published:
    """The algorithm as printed: dense, nothing normalised, steps as they are seen from outside."""

    def __init__(self, sigma, d):
        self.sigma, self.d, self.p = sigma, d, 2 / 11
        self.covariance, self.path = np.eye(d), np.zeros(d)

    def update(self, step, accepted, multiplier):
        d, target, c_p, c_c = self.d, 2 / 11, 1 / 12, 2 / (self.d + 2)
        c_cov = multiplier * 2 / (d * d + 6)
        mutation = step / self.sigma  # A z
        self.p = (1 - c_p) * self.p + c_p * accepted
        exponent = (self.p - target / (1 - target) * (1 - self.p)) / (1 + d / 2)
        self.sigma *= math.exp(multiplier * exponent)
        if not accepted:
            return
        if self.p < 0.44:
            self.path = (1 - c_c) * self.path + math.sqrt(c_c * (2 - c_c)) * mutation
            rank_one = np.outer(self.path, self.path)
        else:
            self.path = (1 - c_c) * self.path
            rank_one = np.outer(self.path, self.path) + c_c * (2 - c_c) * self.covariance
        self.covariance = (1 - c_cov) * self.covariance + c_cov * rank_one


@pytest.mark.parametrize("diminishing", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_proposals_are_the_published_ones_without_normalisation(d, diminishing):
    x = np.zeros(d)
    state = start(x, initial_sigma=0.05, diminishing=diminishing)
    published, previous, branches = Published(0.05, d), x, set()

    def compare(_, state, outcome):
        nonlocal previous
        multiplier = rate_multiplier(state.iteration) if diminishing else 1.0
        published.update(outcome.position - previous, outcome.accepted, multiplier)
        previous = outcome.position
        if outcome.accepted:
            branches.add(published.p < 0.44)
        sigma = math.exp(state.log_size)
        assert state.success_rate == pytest.approx(published.p, rel=1e-10)
        total = published.sigma**2 * published.covariance
        ours = sigma**2 * state.factor @ state.factor.T
        np.testing.assert_allclose(ours, total, rtol=1e-10, atol=1e-10 * total.max())
        path = published.sigma * published.path
        atol = 1e-10 * math.sqrt(total.max())
        np.testing.assert_allclose(sigma * state.path, path, rtol=1e-10, atol=atol)
        assert np.diag(state.factor).prod() == pytest.approx(1.0, rel=1e-10)

    run_chain(np.random.default_rng(1), state, standard_normal, x, 500, visit=compare)
    assert branches == {True, False}
