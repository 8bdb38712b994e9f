"""The (1+1)-CMA sampler against its published, un-normalised, dense definition, and the rest."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.seam import Outcome
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


@pytest.mark.parametrize("accepted", [True, False])
def test_step_size_and_condition_stay_within_their_bounds(accepted):
    rng, x = np.random.default_rng(8), np.zeros(3)
    first = start(x, diminishing=False, sigma_range=100.0, condition_limit=1.5)
    state, value = first, 0.0 if accepted else -math.inf
    for _ in range(400):
        proposal = state.propose(rng, x)
        outcome = Outcome(x, 0.0, proposal, value, float(accepted), accepted)
        state = state.adapt(rng, outcome)
        assert abs(state.log_size - first.log_size) <= math.log(100.0) + 1e-12
        assert np.linalg.cond(state.factor @ state.factor.T) <= 1.5 * (1 + 1e-10)
        assert np.isfinite(state.path).all()
    assert abs(state.log_size - first.log_size) == pytest.approx(math.log(100.0))


def test_states_are_values():
    rng, x = np.random.default_rng(9), np.zeros(2)
    state = start(x)
    factor, path = state.factor.copy(), state.path.copy()
    proposal = state.propose(rng, x)
    moved = state.adapt(rng, Outcome(proposal.position, 0.0, proposal, 0.0, 1.0, True))
    np.testing.assert_array_equal(state.factor, factor)
    np.testing.assert_array_equal(state.path, path)
    assert not np.array_equal(moved.path, path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_sigma": 0.0}, "initial_sigma"),
        ({"target_accept": 1.0}, "target_accept"),
        ({"rate_factor": 5.0}, "rate_factor"),
        ({"rate_factor": math.nan}, "rate_factor"),
        ({"sigma_range": 1.0}, "sigma_range"),
        ({"condition_limit": 0.5}, "condition_limit"),
        ({"initial_scale": [1.0, -1.0]}, "initial_scale"),
    ],
)
def test_options_out_of_their_domain_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        held(cma.CMA, np.zeros(2), **options)
