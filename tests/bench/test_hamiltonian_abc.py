"""Hamiltonian ABC, the rival that the benchmarks run on the skew normal ABC posterior."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.stochastic_gradients import SPASGradient, hamiltonian_abc, synthetic_log_likelihood
from pymc_kameleon.targets import SkewNormalABC
from tests.support.differences import slopes

LIMIT = 4.5


def test_synthetic_likelihood_is_the_gaussian_of_the_simulated_moments():
    x = np.random.default_rng(5).standard_normal((12, 4))
    cov = np.cov(x.T) + 0.25 * np.eye(4)
    expected = stats.multivariate_normal.logpdf(np.ones(4), x.mean(axis=0), cov)
    assert synthetic_log_likelihood(x, np.ones(4), 0.5) == pytest.approx(expected, rel=1e-10)


@pytest.fixture(scope="module")
def gradients():
    """Gradients at one point, (1000, 4) each, with the same seeds on both sides and with others."""
    target = SkewNormalABC(dim=4)
    likelihood, rng = target.likelihood(10), np.random.default_rng(6)
    theta, shape = target.mean + 0.3, likelihood.auxiliary_shape

    def log_likelihood(u, x):
        return synthetic_log_likelihood(likelihood.simulate(u, x), target.observed, target.epsilon)

    found, differences = {"sticky": [], "fresh": []}, []
    for _ in range(1000):
        for seeds, values in found.items():
            gradient = SPASGradient(rng, log_likelihood, shape, np.zeros_like, seeds=seeds, width=0.02)
            values.append(gradient(theta))
        u = rng.standard_normal(shape)
        differences.append(slopes(lambda x, u=u: log_likelihood(u, x), theta, 0.05))
    return np.array(found["sticky"]), np.array(found["fresh"]), np.array(differences)


def test_simultaneous_perturbation_has_the_mean_of_finite_differences(gradients):
    sticky, fresh, differences = gradients
    for found in (sticky, fresh):
        error = np.sqrt((found.var(axis=0) + differences.var(axis=0)) / len(found))
        assert np.abs((found.mean(axis=0) - differences.mean(axis=0)) / error).max() < LIMIT
    error = np.sqrt((sticky.var(axis=0) + differences.var(axis=0)) / len(sticky))
    wrong = np.abs((sticky.mean(axis=0) + differences.mean(axis=0)) / error)  # the sign reversed
    assert wrong.max() > 10


def variance_z(gradient, friction, seed):
    """z-scores of the second moments of N(0, diag(1, 4)), over independent chains."""
    scale, squares = np.array([1.0, 4.0]), []
    for rng in map(np.random.default_rng, np.random.SeedSequence(seed).spawn(10)):
        x = hamiltonian_abc(
            rng, lambda t, rng=rng: gradient(rng, -t / scale), rng.standard_normal(2) * scale**0.5,
            warmup=40, draws=250, n_steps=15, step_size=(0.05, 0.15), friction=friction,
        )  # fmt: skip
        squares.append((x**2).mean(axis=0) / scale)
    squares = np.array(squares)
    return (squares.mean(axis=0) - 1.0) / (squares.std(axis=0, ddof=1) / np.sqrt(10))


def test_exact_gradients_of_a_quadratic_are_sampled_and_noise_heats():
    def exact(rng, g):
        return g

    def noisy(rng, g):
        return g + 4.0 * rng.standard_normal(2)

    assert np.abs(variance_z(exact, 0.0, 8)).max() < LIMIT
    assert np.abs(variance_z(exact, 1.0, 9)).max() < LIMIT
    assert np.abs(variance_z(noisy, 1.0, 10)).max() < LIMIT  # friction makes up for the noise
    assert variance_z(noisy, 0.0, 11).max() > 10  # leapfrog takes it for signal


def test_persistent_seeds_have_the_law_that_the_likelihood_gives_them():
    """u_1 ~ N(0, 1) weighted by exp(2 u_1) is N(2, 1); without the test it would stay N(0, 1)."""
    gradient = SPASGradient(
        np.random.default_rng(12), lambda u, x: 2.0 * u[0, 0], (3, 1), np.zeros_like, seeds="persistent"
    )  # fmt: skip
    seen = []
    for _ in range(20_000):
        gradient.new_trajectory(np.zeros(1))
        seen.append(gradient.u[:2, 0].copy())
    batches = np.array(seen).reshape(20, 1000, 2).mean(axis=1)[1:]
    z = (batches.mean(axis=0) - [2.0, 0.0]) / (batches.std(axis=0, ddof=1) / np.sqrt(19))
    assert np.abs(z).max() < LIMIT
    assert batches[:, 0].mean() > 10 * batches[:, 0].std() / np.sqrt(19)
