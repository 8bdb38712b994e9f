"""A normal target is learned whatever its axes and wherever the points lie, and stays learned as a chain goes on."""

import numpy as np
import pytest

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from tests.quadratics import CLOUDS, RATIOS, cloud, normal

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


def residual_sds(fit, chain, fresh, truth):
    """Of the surrogate as it is, and as the dynamics see it."""
    metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, chain[:20], 0.3)
    z = [surrogate_dynamics.to_z(dynamics, x) for x in fresh]
    return (
        np.std(value_features.values(fit.surrogate, fresh) - truth),
        np.std([surrogate_dynamics.value(dynamics, row) for row in z] - truth),
    )


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

    monkeypatch.setattr(value_regression, "whiten", one_by_one)
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
    metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, metric, x[:20], 0.3)
    np.testing.assert_allclose(
        -np.linalg.eigvalsh(value_features.compose(dynamics.surrogate, dynamics.metric).quadratic), 1.0, rtol=1e-3
    )
    cautious = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature)
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, cautious, x[:20], 0.3)
    curvatures = -np.linalg.eigvalsh(value_features.compose(dynamics.surrogate, dynamics.metric).quadratic)
    assert curvatures.min() < 0.1  # without an error it goes three times as far as the chain


def run_chain(rng, log_density, x, draws, tune):
    """A chain of KamiltonianStep's algorithm; its state and the draws after tuning."""
    found = chain.run(rng, ValueKamiltonian(tune=tune), log_density, x, tune=tune, n=draws - tune)
    return found.state, found.draws


@pytest.mark.parametrize("ratio", [7e3, 1e6])
def test_it_stays_learned_as_a_chain_goes_on(ratio):
    d = 12
    for seed in range(2):
        rng = np.random.default_rng(seed)
        log_density, place, _ = normal(rng, d, ratio)
        start = place(rng.uniform(-2.0, 2.0, d))
        state, draws = run_chain(rng, log_density, start, 3000, 2000)
        assert state.fit.family == "quadratic"
        assert state.quality.residual_sd < LEARNED
        whitened = np.linalg.lstsq(
            (place(np.eye(d)) - place(np.zeros((1, d)))).T, (draws - place(np.zeros((1, d)))).T, rcond=None
        )[0]
        lagged = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in whitened]
        assert max(lagged) < 0.6  # 0.99 and more where the fit is lost
        assert 0.6 < np.square(whitened).mean() < 1.5
