"""A normal target is learned whatever its axes and wherever the points lie, and stays learned as a chain goes on."""

import numpy as np
import pytest

from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values import flattened, preparation
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from tests.quadratics import CLOUDS, RATIOS, cloud, normal
from tests.support import runs

LEARNED = 1e-3  # nats: fresh residual sd


def fitted(d, ratio, rotated, kind):
    """Two fits, the second with the weights that follow from the first; residuals at fresh draws of the target."""
    rng = np.random.default_rng(d)
    log_density, place, sds = normal(rng, d, ratio, rotated)
    n = max(3 * quadratic_size(d), 60)
    x = place(cloud(rng, kind, n, sds))
    y = log_density(x)
    recent = slice(n // 2, n)
    fit = None
    for _ in range(2):
        fit = value_regression.fit(rng, x, y, x[recent], y[recent], previous=fit)
    fresh = place(rng.standard_normal((200, d)))
    return fit, x[recent], fresh, log_density(fresh)


def dynamics_of(fit, chain, error):
    metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, *error)
    return surrogate_dynamics.make_dynamics(fit.surrogate, metric, chain[:20], 0.3)


def residual_sds(fit, chain, fresh, truth):
    """Of the surrogate as it is, and as the dynamics see it."""
    dynamics = dynamics_of(fit, chain, [fit.quadratic_error])
    seen = [surrogate_dynamics.value(dynamics, surrogate_dynamics.to_z(dynamics, x)) for x in fresh]
    return np.std(flattened.values(fit.surrogate, fresh) - truth), np.std(seen - truth)


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize(
    "d", [2, 5, 12, pytest.param(20, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)]
)
def test_a_normal_target_is_learned(d, rotated, kind):
    for ratio in RATIOS:
        sds = residual_sds(*fitted(d, ratio, rotated, kind))
        assert max(sds) < LEARNED, f"ratio {ratio:g}: {sds}"


@pytest.mark.parametrize("kind", ["draws", "transient"])
def test_standardised_one_by_one_it_is_not(kind, monkeypatch):
    """The control: the same regression in the coordinates that kernels and monomials keep."""

    def one_by_one(points, weights):
        centre = weights @ points / weights.sum()
        scale = np.sqrt(weights @ np.square(points - centre) / weights.sum())
        return centre, np.diag(scale)

    monkeypatch.setattr(preparation, "whiten", one_by_one)
    assert max(residual_sds(*fitted(5, 1e6, True, kind))) > 100 * LEARNED


@pytest.mark.parametrize("ratio", [1e3, 1e4])
@pytest.mark.parametrize("d", [2, 12])
def test_the_metric_is_the_targets_own(d, ratio):
    """Leapfrog steps and times are in units in which f is round, from a chain that has seen 30 shortest axes."""
    rng = np.random.default_rng(d)
    log_density, place, sds = normal(rng, d, ratio)
    x = place(cloud(rng, "local", 3 * quadratic_size(d) + 60, sds))
    y = log_density(x)
    fit = value_regression.fit(rng, x, y, x, y)
    made = (dynamics_of(fit, x, error) for error in ([fit.quadratic_error], []))
    curvatures, cautious = (
        -np.linalg.eigvalsh(value_features.compose(each.surrogate, each.metric).quadratic) for each in made
    )
    np.testing.assert_allclose(curvatures, 1.0, rtol=1e-3)
    assert cautious.min() < 0.1  # without an error it goes three times as far as the chain


@pytest.mark.parametrize("ratio", [7e3, 1e6])
def test_it_stays_learned_as_a_chain_goes_on(ratio):
    d, rng = 12, np.random.default_rng(0)
    log_density, place, _ = normal(rng, d, ratio)
    start = place(rng.uniform(-2.0, 2.0, d))
    found = runs.run(rng, ValueKamiltonian(tune=2000), log_density, start, tune=2000, n=1000)
    assert found.state.fit.family == "quadratic"
    assert found.state.quality.residual_sd < LEARNED
    centre = place(np.zeros((1, d)))
    whitened = np.linalg.lstsq((place(np.eye(d)) - centre).T, (found.draws - centre).T, rcond=None)[0]
    lagged = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in whitened]
    assert max(lagged) < 0.6  # 0.99 and more where the fit is lost
    assert 0.6 < np.square(whitened).mean() < 1.5
