"""The (1+1)-CMA sampler against its published, un-normalised, dense definition, and the rest."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers import cma
from pymc_kameleon.samplers.gaussian_adaptation import rate_multiplier
from pymc_kameleon.samplers.seam import Outcome
from tests.support.chains import average_z_scores, held, run_chain, run_transitions, z_scores
from tests.support.targets import Banana


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
        sigma = math.exp(state.log_sigma)
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


def test_the_proposal_is_a_symmetric_random_walk_with_covariance_sigma2_a_at():
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]])
    x = np.array([1.0, -2.0])
    state = start(x, initial_covariance=covariance, initial_sigma=0.7)
    proposal = state.propose(np.random.default_rng(2), x)
    z = np.random.default_rng(2).standard_normal(2)
    expected = x + 0.7 * np.linalg.cholesky(covariance) @ z
    np.testing.assert_allclose(proposal.position, expected, rtol=1e-10)
    assert proposal.log_q_ratio == 0.0
    assert state.stats()["scaling"] == pytest.approx(0.7 * 35**0.25, rel=1e-10)


def test_frozen_adaptation_leaves_a_skewed_target_invariant():
    target, rng = Banana(2), np.random.default_rng(3)
    state, _ = run_chain(rng, start(np.zeros(2)), target.log_density, np.zeros(2), 300)
    state = state.freeze()
    z = average_z_scores(rng, state, target, chains=120, steps=2000, adapt=False)
    assert np.abs(z).max() < 4.5


def test_control_adaptation_that_is_not_frozen_fails():
    target, rng = Banana(2), np.random.default_rng(3)
    state = start(np.zeros(2), rate_factor=2.5, diminishing=False)
    z = average_z_scores(rng, state, target, chains=120, steps=2000, adapt=True)
    assert np.abs(z).max() > 10


@pytest.mark.parametrize("ratio", ["kept", "dropped"])
@pytest.mark.parametrize("d", [2, 5])
def test_transitions_from_exact_draws_and_control_without_the_ratio(d, ratio):
    target, rng = Banana(d), np.random.default_rng(4)
    state = start(np.zeros(d), initial_scale=np.linspace(0.5, 2.0, d))
    log_density = target.log_density if ratio == "kept" else (lambda x: 0.0)
    ends = run_transitions(rng, state, log_density, target.draw(rng, 2000), steps=20)
    worst = np.abs(z_scores(ends, target.mean, target.cov)).max()
    assert worst < 4.5 if ratio == "kept" else worst > 10


@pytest.mark.parametrize("seed", range(3))
def test_the_shape_is_learned(seed):
    scales = np.array([30.0, 1.0, 0.3])
    rotation, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((3, 3)))
    precision = rotation / scales**2 @ rotation.T
    rng, x = np.random.default_rng(seed), np.zeros(3)
    first = start(x)
    state, _ = run_chain(rng, first, lambda x: -0.5 * float(x @ precision @ x), x, 6000)
    assert np.linalg.cond(first.factor.T @ precision @ first.factor) == pytest.approx(1e4)
    assert np.linalg.cond(state.factor.T @ precision @ state.factor) < 20


def test_initial_scales_make_the_chain_independent_of_units():
    units = np.array([1e-6, 1.0, 1e6])
    x, draws = np.ones(3), []
    for scale in (np.ones(3), units):
        state = start(x * scale, initial_scale=scale, condition_limit=20.0)
        log_density = lambda x, scale=scale: standard_normal(x / scale)  # noqa: E731
        rng = np.random.default_rng(7)
        state, trace = run_chain(rng, state, log_density, x * scale, 1000)
        draws.append(trace / scale)
        assert state.condition <= 20.0
    np.testing.assert_allclose(draws[1], draws[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("accepted", [True, False])
def test_step_size_and_condition_stay_within_their_bounds(accepted):
    rng, x = np.random.default_rng(8), np.zeros(3)
    first = start(x, diminishing=False, sigma_range=100.0, condition_limit=1.5)
    state, value = first, 0.0 if accepted else -math.inf
    for _ in range(400):
        proposal = state.propose(rng, x)
        outcome = Outcome(x, 0.0, proposal, value, float(accepted), accepted)
        state = state.adapt(rng, outcome)
        assert abs(state.log_sigma - first.log_sigma) <= math.log(100.0) + 1e-12
        assert np.linalg.cond(state.factor @ state.factor.T) <= 1.5 * (1 + 1e-10)
        assert np.isfinite(state.path).all()
    assert abs(state.log_sigma - first.log_sigma) == pytest.approx(math.log(100.0))


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


@pytest.mark.slow
def test_a_million_iterations_on_the_strongly_twisted_gaussian():
    # pi_4 of Haario, Saksman & Tamminen (1999): variances (100, 1, ..., 1), b = 0.1, d = 11
    def log_density(x):
        bend = x[1] + 0.1 * (x[0] * x[0] - 100.0)
        return -0.005 * x[0] * x[0] - 0.5 * bend * bend - 0.5 * float(x[2:] @ x[2:])

    def check(_, state, __):
        if state.iteration % 1000 == 0:
            assert np.isfinite(state.factor).all()
            assert np.isfinite(state.path).all()
            assert np.diag(state.factor).min() > 1e-6
            assert abs(np.log(np.diag(state.factor)).sum()) < 1e-9

    x = np.zeros(11)
    x[1] = 10.0
    state = start(x, diminishing=False)  # the rates that broke the published code
    rng = np.random.default_rng(10)
    state, draws = run_chain(rng, state, log_density, x, 1_000_000, visit=check)
    assert state.iteration == 1_000_000
    assert np.isfinite(draws).all()
    assert np.any(np.diff(draws[::10], axis=0) != 0, axis=1).mean() > 0.5
