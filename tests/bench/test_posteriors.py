"""Three posteriors of the text books: the density is the published one, and what is said to be true of it is."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from benchmarks import posteriors
from benchmarks.posteriors import EightSchools, LogisticRegression, LotkaVolterra
from pymc_kameleon.datasets import load_lynx_hare
from pymc_kameleon.targets import CorrelatedGaussian
from tests.public.test_targets import LIMIT, balance_z, moment_z


def logistic(x, t):
    design, labels = t.data
    p = 1 / (1 + np.exp(-labels * (design @ x)))
    return np.log(p).sum() + stats.norm.logpdf(x, 0, t.prior_sd).sum()


def eight_schools(x, t):
    (effects, errors), mu, tau, theta = t.data, x[0], np.exp(x[1]), x[2:]
    prior = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, scale=5) + np.log(tau)
    groups = stats.norm.logpdf(theta, mu, tau) + stats.norm.logpdf(effects, theta, errors)
    return prior + groups.sum()


def lotka_volterra(x, t):
    alpha, beta, gamma, delta, u0, v0, *sigma = np.exp(x)
    times = np.arange(21)
    path = solve_ivp(
        lambda _, s: [(alpha - beta * s[1]) * s[0], (delta * s[0] - gamma) * s[1]],
        (0, 20), [u0, v0], t_eval=times, method="DOP853", rtol=1e-12, atol=1e-12,
    ).y  # fmt: skip
    data = load_lynx_hare()
    prior = stats.norm.logpdf([alpha, gamma], 1, 0.5).sum()
    prior += stats.norm.logpdf([beta, delta], 0.05, 0.05).sum()
    prior += stats.lognorm.logpdf([u0, v0], 1.0, scale=10.0).sum()
    prior += stats.lognorm.logpdf(sigma, 1.0, scale=np.exp(-1)).sum()
    likelihood = sum(
        stats.lognorm.logpdf(counts, s, scale=mean).sum()
        for counts, s, mean in zip((data.hare, data.lynx), sigma, path, strict=True)
    )
    return prior + likelihood + x.sum()  # the Jacobian of the logarithm, for all eight


ORACLES = [
    (LogisticRegression(n=100, dim=4), logistic, 1e-10),
    (EightSchools(), eight_schools, 1e-10),
    # SciPy's solver stops at 1e-12, our Runge-Kutta of fixed step at 1e-6 (times 42 counts over sigma^2)
    (LotkaVolterra(), lotka_volterra, 1e-4),
]


@pytest.mark.parametrize(("target", "oracle", "tolerance"), ORACLES)
def test_log_density_is_the_published_one_up_to_a_constant(target, oracle, tolerance):
    rng = np.random.default_rng(0)
    x = target.initial_point + 0.3 * rng.standard_normal((6, target.dim))
    ours = np.array([target.log_density(p) for p in x])
    theirs = np.array([oracle(p, target) for p in x])
    scale = max(1.0, abs(theirs).max())
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=0, atol=tolerance * scale)
    assert target.numba_log_density(x[0]) == pytest.approx(ours[0], rel=1e-12)


def test_eight_schools_is_drawn_exactly():
    target, rng = EightSchools(), np.random.default_rng(3)
    x = target.sample(rng, 20_000)
    assert np.abs(moment_z(x, target.mean, target.cov)).max() < LIMIT
    assert np.abs(balance_z(target, x, rng)).max() < LIMIT
    x[:, 1] += 0.5  # the control: tau 1.6 times too large
    assert np.abs(balance_z(target, x, rng)).max() > 10


def test_importance_moments_of_a_known_density():
    target, shift = CorrelatedGaussian(25.0, 3), np.array([1.0, -2.0, 0.5])

    def log_density(x):
        return target.log_density(x - shift)

    found = posteriors.importance_moments(log_density, posteriors.laplace(log_density, np.zeros(3)), log2_points=8)
    assert np.abs((found.mean - shift) / found.mean_error).max() < LIMIT
    # independent draws of the same number would have errors of 1 / 64
    deviations = np.sqrt(np.diag(target.cov))
    assert (found.mean_error / deviations).max() < 1 / 64
    np.testing.assert_allclose((found.cov - target.cov) / np.outer(deviations, deviations), 0.0, atol=0.02)


def test_far_points_have_log_density_minus_infinity_not_nan():
    target = LotkaVolterra()
    for k in range(8):
        for size in (-800.0, -30.0, 30.0, 800.0):
            value = target.log_density(target.initial_point + size * np.eye(8)[k])
            assert value < -100
            assert not np.isnan(value)
