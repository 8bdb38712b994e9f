"""F-KAMH: formulas against oracles."""

import numpy as np
import pytest

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.normal_steps import log_step_density
from pymc_kameleon.numerics.random_features import features, jacobian
from pymc_kameleon.samplers.kameleon import fast as fast_kameleon
from pymc_kameleon.samplers.kameleon import feature_covariance
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from tests.support.local_moves import learned

each_embedding = pytest.mark.parametrize("embedding", ["sincos", "cos"])
each_dimension = pytest.mark.parametrize("d", [1, 2, 5])

RAW = {
    "normalization": "none", "coordinates": "raw", "variance_share": 1.0, "whole_history": True, "mean_shift": False,
    "gamma": 0.3, "scale": 0.8,
}  # fmt: skip


def tuning(z, **options):
    """What is learned from ``z``, before it is frozen."""
    return learned(FastKameleon, z, freeze=False, **{**RAW, **options})


def oracle(state, z, y):
    """J^T C J from the features' own derivatives and NumPy's covariance over the history."""
    scaled = fast_kameleon._scaled(state.model.unit, state.model.lengthscale)
    jac = jacobian(y, scaled)
    cov = np.atleast_2d(np.cov(features(z, scaled).T, bias=True))
    return jac.T @ cov @ jac


@each_embedding
@each_dimension
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplacian"])
def test_covariance_is_the_oracles(kernel, d, embedding):
    rng = np.random.default_rng(d)
    z = rng.standard_normal((150, d)) * np.arange(1, d + 1)
    state = tuning(z, kernel=kernel, embedding=embedding, n_features=40)
    for y in (z[3], rng.standard_normal(d), 4.0 * np.ones(d)):
        fast = state.sampler.covariance(state.model, y)
        slow = oracle(state, z, y)
        np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-12 * np.abs(slow).max())
    before, after = (s.sampler.covariance(s.model, z[3]) for s in (state, state.freeze()))
    np.testing.assert_array_equal(before, after)


def test_folding_block_by_block_is_the_whole():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((700, 2))
    whole, part = (tuning(seen, n_features=30, lengthscale=1.0) for seen in (z, z[:300]))
    past = part.walk.history
    for x in z[300:]:
        past = history.append(past, x)
    walk = part.walk._replace(history=past, iteration=700)
    part = part._replace(walk=walk).relearn(rng)
    assert part.model.seen == 700
    np.testing.assert_allclose(part.model.moments.mean, whole.model.moments.mean, atol=1e-13)
    np.testing.assert_allclose(part.model.moments.scatter, whole.model.moments.scatter, atol=1e-10)


@each_embedding
@each_dimension
def test_mean_shift_is_the_oracles(d, embedding):
    """The derivative of the log of the mean feature product, from the features' own derivatives."""
    rng = np.random.default_rng(d)
    z = rng.standard_normal((150, d))
    state, plain = (
        tuning(z, embedding=embedding, mean_shift=shift, n_features=60, lengthscale=1.5) for shift in (True, False)
    )
    scaled = fast_kameleon._scaled(state.model.unit, state.model.lengthscale)
    mean = features(z, scaled).mean(axis=0)
    for y in (z[3], 0.1 * np.ones(d)):
        value, gradient = features(y, scaled) @ mean, jacobian(y, scaled).T @ mean
        assert value > 60**-0.5
        shift = 1.5**2 * gradient / value
        expected = plain.sampler.covariance(plain.model, y) + np.outer(shift, shift)
        fast = state.sampler.covariance(state.model, y)
        np.testing.assert_allclose(fast, expected, rtol=1e-10, atol=1e-12)
    far = 30.0 * np.ones(d)  # where the history is not: noise over noise, but bounded
    model = state.model
    shift = feature_covariance.mean_shift(
        far, model.frequencies, model.unit.offsets, model.density, model.unit.sincos, 60**-0.5
    )
    slope = jacobian(far, scaled).T @ mean
    assert np.linalg.norm(shift) <= np.linalg.norm(slope) * 60**0.5 * (1 + 1e-10)


def test_truncation_carries_the_stated_share():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((500, 3))
    ranks = []
    for share in (0.3, 0.75, 0.95, 1.0):
        model = tuning(z, n_features=60, variance_share=share).model
        kept = np.square(model.roots).sum() * 60 / 2
        total = np.trace(model.moments.scatter) / model.moments.count
        assert kept >= share * total * (1 - 1e-10)
        ranks.append(model.roots.shape[1])
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1] <= 60


@pytest.mark.parametrize("normalization", ["none", "trace"])
@each_embedding
def test_log_q_ratio_is_antisymmetric(embedding, normalization):
    """log_q_ratio(x -> x*) from the states at either end, the truncated covariance in both directions."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((200, 3)) * [1.0, 3.0, 0.2]
    state = tuning(z, embedding=embedding, normalization=normalization, variance_share=0.7).freeze()
    for x in z[:5]:
        here = state.start(x, 0.0)
        proposal = here.propose(rng, x)
        there = state.start(proposal.position, 0.0)
        delta = np.linalg.solve(state.factor, proposal.position - x)
        forward = log_step_density(delta, here.covariance, 0.3, 0.8)
        reverse = log_step_density(-delta, there.covariance, 0.3, 0.8)
        np.testing.assert_allclose(proposal.log_q_ratio, reverse - forward, rtol=1e-9, atol=1e-9)
