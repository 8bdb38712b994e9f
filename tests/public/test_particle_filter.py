"""Particle filters: unbiased against the exact Kalman likelihood and a grid, and equal to a slow one."""

import numpy as np
import pytest
from scipy import special, stats

from pymc_kameleon.particle_filter import (
    LinearGaussianFilter,
    StochasticVolatilityFilter,
    simulate_linear_gaussian,
    simulate_states,
    simulate_stochastic_volatility,
)

GAUSSIAN = (0.5, 0.9, 0.5, 0.8)
VOLATILITY = (-1.0, 0.9, 0.4)


def kalman(y, mean, persistence, sd, observation_sd):
    """Exact log likelihood of the linear Gaussian model."""
    m, v, total = mean, sd**2 / (1 - persistence**2), 0.0
    for value in y:
        if not np.isnan(value):
            s = v + observation_sd**2
            total += stats.norm.logpdf(value, m, np.sqrt(s))
            m, v = m + v / s * (value - m), v * observation_sd**2 / s
        m, v = mean + persistence * (m - mean), persistence**2 * v + sd**2
    return total


def grid_volatility(y, mean, persistence, sd, points=800):
    """The stochastic-volatility likelihood by the trapezoidal rule on a grid of states."""
    spread = sd / np.sqrt(1 - persistence**2)
    x = mean + spread * np.linspace(-7.0, 7.0, points)
    step = x[1] - x[0]
    move = stats.norm.pdf(x[:, None], mean + persistence * (x[None] - mean), sd) * step
    density, total = stats.norm.pdf(x, mean, spread), 0.0
    for t, value in enumerate(y):
        density = move @ density if t > 0 else density
        density = density * stats.norm.pdf(value, 0.0, np.exp(0.5 * x))
        mass = density.sum() * step
        density, total = density / mass, total + np.log(mass)
    return total


def slow_filter(y, theta, u, n, log_density, systematic, sort):
    """The bootstrap filter in six lines of NumPy."""
    mean, persistence, sd = theta[:3]
    x, total = mean + sd / np.sqrt(1 - persistence**2) * u[0, :n], 0.0
    for t in range(len(y)):
        if t > 0:
            uniforms = special.ndtr(u[t, n:])
            positions = (np.arange(n) + uniforms[0]) / n if systematic else uniforms
            parents = np.searchsorted(np.cumsum(w) / w.sum(), positions)  # noqa: F821
            x = mean + persistence * (x[parents] - mean) + sd * u[t, :n]
        x = np.sort(x) if sort else x
        w = np.exp(log_density(y[t], x))
        total += np.log(w.mean())
    return total


def z_score(values):
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.fixture(scope="module")
def gaussian_data():
    return simulate_linear_gaussian(np.random.default_rng(1), 25, *GAUSSIAN)[0]


@pytest.fixture(scope="module")
def volatility_data():
    return simulate_stochastic_volatility(np.random.default_rng(2), 25, *VOLATILITY)[0]


@pytest.mark.parametrize("resampling", ["systematic", "multinomial"])
@pytest.mark.parametrize("sort", [False, True])
def test_equals_the_slow_filter(resampling, sort, gaussian_data, volatility_data):
    rng = np.random.default_rng(3)
    norm = stats.norm.logpdf
    cases = [
        (LinearGaussianFilter, gaussian_data, GAUSSIAN, lambda y, x: norm(y, x, GAUSSIAN[3])),
        (StochasticVolatilityFilter, volatility_data, VOLATILITY, lambda y, x: norm(y, 0, np.exp(x / 2))),
    ]  # fmt: skip
    for make, y, theta, log_density in cases:
        fast = make(y, 30, resampling=resampling, sort=sort)
        for _ in range(5):
            u = rng.standard_normal(fast.aux_shape)
            slow = slow_filter(y, theta, u, 30, log_density, resampling == "systematic", sort)
            np.testing.assert_allclose(fast.log_estimate(theta, u), slow, rtol=1e-10)


# whatever the resampling, it equals the slow filter; missing observations are nowhere else
@pytest.mark.parametrize("missing", [[], [0, 3, 4, 5, 24]], ids=["all", "some missing"])
@pytest.mark.parametrize(("sort", "resampling"), [(True, "systematic"), (False, "multinomial")])
def test_unbiased_against_kalman(resampling, sort, missing, gaussian_data):
    y = gaussian_data.copy()
    y[missing] = np.nan
    exact = kalman(y, *GAUSSIAN)
    estimator = LinearGaussianFilter(y, 30, resampling=resampling, sort=sort)
    rng = np.random.default_rng(4)
    logs = np.array([estimator(rng, *GAUSSIAN) for _ in range(6_000)]) - exact
    assert abs(z_score(np.exp(logs) - 1.0)) < 4.5
    assert z_score(logs) < -10.0  # the control: the mean of the logs is biased
    # another control: the same draws against the likelihood of a state noise 10 % larger
    other = kalman(y, *GAUSSIAN[:2], 1.1 * GAUSSIAN[2], GAUSSIAN[3]) - exact
    assert abs(z_score(np.exp(logs - other) - 1.0)) > 10.0


def test_unbiased_against_a_grid(volatility_data):
    exact = grid_volatility(volatility_data, *VOLATILITY)
    np.testing.assert_allclose(grid_volatility(volatility_data, *VOLATILITY, 400), exact, rtol=1e-8)
    estimator = StochasticVolatilityFilter(volatility_data, 10)
    rng = np.random.default_rng(5)
    logs = np.array([estimator(rng, *VOLATILITY) for _ in range(20_000)]) - exact
    assert abs(z_score(np.exp(logs) - 1.0)) < 4.5
    assert z_score(logs) < -10.0


def test_sorting_correlates_the_estimates(gaussian_data):
    """Close u, close estimates: what the correlated pseudo-marginal method needs."""
    rho, spread = 0.999, {}
    for sort in (False, True):
        estimator = LinearGaussianFilter(gaussian_data, 100, sort=sort)
        rng = np.random.default_rng(8)
        changes = []
        for _ in range(500):
            u = rng.standard_normal(estimator.aux_shape)
            near = rho * u + np.sqrt(1 - rho**2) * rng.standard_normal(estimator.aux_shape)
            changes.append(estimator.log_estimate(GAUSSIAN, near) - estimator.log_estimate(GAUSSIAN, u))
        spread[sort] = np.std(changes)
    assert spread[True] < 0.5 * spread[False]


def test_any_parameters_give_a_number_or_minus_infinity(gaussian_data, volatility_data):
    rng = np.random.default_rng(11)
    values = [0.0, 0.5, -1.0, 1.0, 1e3, -1e3, 1e-300, 1e308, np.inf, -np.inf, np.nan]
    quiet = np.append(volatility_data, 0.0)  # a return of exactly zero: exp(-x) times zero
    for estimator in (StochasticVolatilityFilter(quiet, 20), LinearGaussianFilter(gaussian_data, 20)):
        failures = 0
        for _ in range(300):
            theta = rng.choice(values, len(estimator.parameters))
            value = estimator(rng, *theta)
            assert not np.isnan(value)
            assert value < np.inf
            failures += value == -np.inf
            inside = np.isfinite(theta).all() and abs(theta[1]) < 1 and (theta[2:] > 0).all()
            assert inside or value == -np.inf
        assert estimator.failures == failures
        assert 0 < failures < 300
    assert np.isfinite(StochasticVolatilityFilter(quiet, 20)(rng, *VOLATILITY))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_particles": 0}, "n_particles must be an integer of at least 1, got 0"),
        ({"n_particles": 2.5}, "n_particles"),
        ({"resampling": "residual"}, "resampling must be 'systematic' or 'multinomial'"),
        ({"y": np.zeros((3, 2))}, "y must be a series"),
        ({"y": []}, "y must be a series"),
        ({"y": [0.0, np.inf]}, "y must be a series"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        StochasticVolatilityFilter(**{"y": np.zeros(3), **change})


def test_wrong_shapes_raise(volatility_data):
    estimator = StochasticVolatilityFilter(volatility_data, 20)
    with pytest.raises(ValueError, match="expected the parameters"):
        estimator(np.random.default_rng(0), 0.0, 0.5)
    with pytest.raises(ValueError, match="u must have shape"):
        estimator.log_estimate(VOLATILITY, np.zeros((25, 20)))


def test_simulated_data_have_the_models_moments():
    rng = np.random.default_rng(12)
    mean, persistence, sd, observation_sd = GAUSSIAN
    pairs = np.array([simulate_linear_gaussian(rng, 3, *GAUSSIAN)[0] for _ in range(20_000)])
    variance = sd**2 / (1 - persistence**2)
    centred = pairs - mean
    for t in range(3):
        assert abs(z_score(centred[:, t])) < 4.5
        assert abs(z_score(centred[:, t] ** 2 - variance - observation_sd**2)) < 4.5
    assert abs(z_score(centred[:, 0] * centred[:, 2] - variance * persistence**2)) < 4.5
    y, x = simulate_stochastic_volatility(rng, 20_000, *VOLATILITY)
    assert abs(z_score((y / np.exp(0.5 * x)) ** 2 - 1.0)) < 4.5
    with pytest.raises(ValueError, match="persistence"):
        simulate_states(rng, 3, 0.0, 1.0, 1.0)
