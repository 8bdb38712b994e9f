"""The skew normal ABC posterior; its model, draws, levels and map to the normal are among those of test_targets."""

import pickle

import numpy as np
import pytest
from pytensor.compile.mode import Mode
from scipy import special, stats

from pymc_kameleon.targets import SkewNormalABC
from pymc_kameleon.targets.skew_normal_abc import mean_of_half_normals
from tests.public.test_targets import LIMIT, each
from tests.public.test_targets import SKEWED as TARGETS


def near(target, n, seed=0):
    """Points about the posterior's bulk, shape (n, d)."""
    sd = np.sqrt(np.diag(target.cov))
    return target.mean + sd * np.random.default_rng(seed).standard_normal((n, target.dim))


# --- the simulator and the estimate -----------------------------------------------------------


def slow_data(target, rng, theta, size):
    """Observations, shape (size, d), by rejection from the density that defines them."""
    alpha, kept = np.full(target.dim, target.skewness), []
    while len(kept) < size:
        y = theta + rng.standard_normal((size, target.dim))
        kept += list(y[rng.random(size) < special.ndtr((y - theta) @ alpha)])
    return np.array(kept[:size])


@each("target", TARGETS, ids=str)
def test_simulator_draws_from_the_skew_normal(target):
    rng, theta, n = np.random.default_rng(1), np.full(target.dim, 0.7), 20_000
    likelihood = target.likelihood(n)
    ours = likelihood.simulate(rng.standard_normal(likelihood.auxiliary_shape), theta)
    assert likelihood.simulations == n
    k = target.n_observations
    theirs = slow_data(target, rng, theta, n * k).reshape(n, k, -1).mean(axis=1)

    def z_against(other):
        f = [g(x - theta) for x in (ours, other) for g in (np.asarray, np.square, np.sin)]
        f += [(x - theta)[:, :1] * (x - theta)[:, -1:] ** 2 for x in (ours, other)]
        pairs = [(f[0], f[3]), (f[1], f[4]), (f[2], f[5]), (f[6], f[7])]
        return max(np.abs((a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / n)).max() for a, b in pairs)

    assert z_against(theirs) < LIMIT
    symmetric = theta + (theirs - theta) * rng.choice([-1.0, 1.0], size=(n, 1))
    assert z_against(symmetric) > 10


@each("target", TARGETS, ids=str)
def test_estimate_is_the_mean_kernel_of_simulated_data_sets(target):
    likelihood, rng = target.likelihood(7), np.random.default_rng(2)
    d, delta = target.dim, target.delta
    for theta in near(target, 3):
        u = rng.standard_normal(likelihood.auxiliary_shape)
        a = np.full(d, d**-0.5)
        root = np.eye(d) + (np.sqrt(1 - delta**2) - 1) * np.outer(a, a)
        densities = []
        for data_set in u:
            y = np.array([theta + delta * abs(row[0]) * a + root @ row[1:] for row in data_set])
            densities.append(np.exp(-0.5 * np.sum((y.mean(0) - target.observed) ** 2) / target.epsilon**2))
        expected = np.log(np.mean(densities))
        assert likelihood.given(u, theta) == pytest.approx(expected, rel=1e-10)
    assert likelihood.simulations == 21
    same = [likelihood(np.random.default_rng(5), theta) for _ in range(2)]
    assert same[0] == same[1]


@each("target", TARGETS, ids=str)
def test_estimate_is_unbiased_for_the_exact_likelihood(target):
    rng, n = np.random.default_rng(3), 3000
    likelihood = target.likelihood(20 if target.dim > 5 else 2)
    points = near(target, 3)
    variance = target._variances[1]
    d = target.dim
    ratios = []
    for x in points:
        # the exact log density has constants of its own: prior, and the normalisers of the kernel
        exact = target.log_density(x) + 0.5 * x @ x / target.prior_sd**2
        exact += d * np.log(target.epsilon) - 0.5 * np.log(variance)
        exact -= 0.5 * (d - 1) * np.log(target._variances[0])
        ratios.append([np.exp(likelihood(rng, x) - exact) for _ in range(n)])
    ratios = np.array(ratios)
    error = ratios.std(axis=1, ddof=1) / np.sqrt(n)
    assert np.abs((ratios.mean(axis=1) - 1) / error).max() < LIMIT
    logs = np.log(ratios).mean(axis=1)  # the logarithm is biased: the control
    assert (np.abs(logs) / (np.log(ratios).std(axis=1) / np.sqrt(n))).max() > 10


# --- the exact posterior ------------------------------------------------------------------------


@each("n", [1, 2, 3, 10])
def test_density_along_the_skewed_direction_by_fourier_inversion(n):
    nodes, weights = mean_of_half_normals(n, 60)
    r, t = np.linspace(-1.5, 3.5, 41), np.linspace(-140, 140, 100_001)
    for sd in (0.3, 1.0):
        # the characteristic function of |N(0, 1)| is Faddeeva's w(t / sqrt 2)
        phi = special.wofz(t / n / np.sqrt(2)) ** n * np.exp(-0.5 * (sd * t) ** 2)
        expected = np.array([(np.exp(-1j * t * x) * phi).real.sum() for x in r])
        expected *= (t[1] - t[0]) / (2 * np.pi)
        ours = stats.norm.pdf(r[:, None], nodes, sd) @ weights
        bulk = expected > 1e-5 * expected.max()
        np.testing.assert_allclose(ours[bulk], expected[bulk], rtol=1e-9)


def test_one_observation_has_the_skew_normal_likelihood():
    target = SkewNormalABC(dim=3, skewness=2.0, n_observations=1, epsilon=0.5, prior_sd=2.0)
    alpha, points = np.full(3, 2.0), near(target, 8)
    # a skew normal plus N(0, epsilon^2 I) is skew normal (Azzalini & Dalla Valle, 1996)
    total = 1 + target.epsilon**2
    delta = alpha / np.sqrt(1 + alpha @ alpha)
    shape = delta / total / np.sqrt(1 - delta @ delta / total)
    r = target.observed - points
    expected = stats.norm.logcdf(r @ shape) - 0.5 * (r**2).sum(1) / total
    expected += stats.norm.logpdf(points, scale=2.0).sum(1)
    ours = np.array([target.log_density(x) for x in points])
    np.testing.assert_allclose(ours - ours[0], expected - expected[0], rtol=1e-9, atol=1e-9)


def test_the_noisy_model_has_another_estimate_every_time():
    target = pickle.loads(pickle.dumps(TARGETS[2]))
    mode = Mode(linker="py", optimizer="fast_compile")  # an identity needs no compiler
    likelihood = target.likelihood(3)
    for given in (False, True):
        noisy = target.noisy_pymc_model(likelihood, given=given).compile_logp(mode=mode)
        assert len({float(noisy({"x": target.mean})) for _ in range(5)}) == 5
    assert likelihood.simulations == 30


def test_domains():
    for wrong in ({"epsilon": 0.1}, {"skewness": -1.0}, {"n_observations": 0}, {"prior_sd": 0.0}):
        with pytest.raises(ValueError, match=str(next(iter(wrong)))):
            SkewNormalABC(**wrong)
