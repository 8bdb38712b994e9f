"""What the log density's values say about axes that the chain has not explored."""

import numpy as np
import pytest

from pymc_kameleon import adaptive_metropolis, value_covariance
from pymc_kameleon.metropolis import Outcome, Proposal
from pymc_kameleon.targets import CorrelatedGaussian, Funnel
from tests.adaptation import run_chain


def seen(log_density, points, chain):
    """Values of proposals at ``points`` (n, d) by a chain that was at ``chain`` (n, d)."""
    values = value_covariance.empty(points.shape[1])
    for point, x in zip(points, chain, strict=True):
        proposal = Proposal(point, 0.0, "global")
        outcome = Outcome(x, log_density(x), proposal, log_density(point), 0.3, False)
        values = value_covariance.record(values, outcome)
    return values


def local_cloud(target, rng, n=600, size=0.01):
    """States within a hundredth of the target's standard deviations, and proposals around them."""
    scale = size * np.sqrt(np.diag(target.cov))
    chain = target.sample(rng, 1)[0] + scale * rng.standard_normal((n, target.dim))
    return chain, chain + scale * rng.standard_normal((n, target.dim))


def test_a_small_cloud_knows_a_normal_targets_axes():
    target, rng = CorrelatedGaussian(1e3, 5), np.random.default_rng(0)
    chain, points = local_cloud(target, rng)
    values = seen(target.log_density, points, chain)
    root = value_covariance.factor(rng, values, chain)
    # in the target's own coordinates the learned covariance is the identity, the chain's 1e-4 of it or less
    own = np.linalg.cholesky(target.cov)
    eigenvalues = np.linalg.eigvalsh(np.linalg.solve(own, root) @ np.linalg.solve(own, root).T)
    assert eigenvalues.min() > 0.9
    assert eigenvalues.max() < 1.1
    history = np.linalg.solve(own, (chain - chain.mean(axis=0)).T)
    assert np.linalg.eigvalsh(history @ history.T / len(chain)).min() < 1e-3


def test_a_chain_that_has_seen_its_target_keeps_its_own_covariance():
    target, rng = CorrelatedGaussian(10.0, 3), np.random.default_rng(1)
    chain = target.sample(rng, 1000)
    points = chain + rng.standard_normal(chain.shape)
    root = value_covariance.factor(rng, seen(target.log_density, points, chain), chain)
    cov = np.cov(chain.T, ddof=0)
    # the regression's coordinates shrink the correlation by a thousandth
    np.testing.assert_allclose(root @ root.T, cov, rtol=0.01, atol=0.01 * cov.max())


def test_nothing_is_said_where_a_quadratic_does_not_predict():
    target, rng = Funnel(3.0, 5), np.random.default_rng(2)
    chain = target.sample(rng, 600)
    points = chain + rng.standard_normal(chain.shape)
    assert value_covariance.factor(rng, seen(target.log_density, points, chain), chain) is None

    def noisy(x):
        return -0.5 * float(x @ x) + 3.0 * rng.standard_normal()

    chain = rng.standard_normal((600, 5))
    assert value_covariance.factor(rng, seen(noisy, chain + 0.1, chain), chain) is None


@pytest.mark.parametrize("n", [0, 1, 20, 59])
def test_nothing_is_said_too_early(n):
    rng = np.random.default_rng(3)
    chain = rng.standard_normal((n, 2))
    values = seen(lambda x: -0.5 * float(x @ x), chain, chain)
    assert value_covariance.factor(rng, values, chain) is None


def test_values_that_are_not_finite_are_left_out():
    rng = np.random.default_rng(4)
    chain = rng.standard_normal((300, 2))

    def halved(x):
        return -0.5 * float(x @ x) if x[0] < 1.0 else -np.inf

    points = chain + rng.standard_normal(chain.shape)
    root = value_covariance.factor(rng, seen(halved, points, chain), chain)
    assert root is None or np.isfinite(root).all()
    degenerate = np.zeros((300, 2))
    values = seen(lambda x: -0.5 * float(x @ x), degenerate, degenerate)
    assert value_covariance.factor(rng, values, degenerate) is None


def longest_axis(learn_from_values):
    """Share of the longest axis' standard deviation that adaptive Metropolis has learned in 3000 draws."""
    target = CorrelatedGaussian(1e4, 20)
    learned = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = target.sample(rng, 1)[0]
        state = adaptive_metropolis.init(x, learn_from_values=learn_from_values)
        state, _ = run_chain(rng, adaptive_metropolis, state, target.log_density, x, 3000)
        own = np.linalg.cholesky(target.cov)
        root = np.linalg.solve(own, state.factor)
        learned.append(np.sqrt(np.linalg.eigvalsh(root @ root.T).min()))
    return np.median(learned)


def test_an_ill_conditioned_target_is_learned_from_a_cold_start():
    assert longest_axis(True) > 0.5


def test_without_the_values_it_is_not():
    assert longest_axis(False) < 0.2
