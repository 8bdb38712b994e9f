"""F-KAMH: formulas against oracles, exactness against exact draws."""

import numpy as np
import pytest

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.normal_steps import log_step_density
from pymc_kameleon.numerics.random_features import at_lengthscale, features, jacobian
from pymc_kameleon.samplers.kameleon import feature_covariance
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from tests.samplers.test_kameleon import PREVIOUS
from tests.support.local_moves import Dropped, change, learned

EMBEDDINGS = ["sincos", "cos"]


def frozen_state(z, **options):
    return learned(FastKameleon, z, **options)


RAW = {
    "normalization": "none", "coordinates": "raw", "variance_share": 1.0, "whole_history": True, "mean_shift": False,
    "gamma": 0.3, "scale": 0.8,
}  # fmt: skip


def oracle(state, z, y):
    """J^T C J from the features' own derivatives and NumPy's covariance over the history."""
    scaled = at_lengthscale(state.model.unit, state.model.lengthscale)
    jac = jacobian(y, scaled)
    cov = np.atleast_2d(np.cov(features(z, scaled).T, bias=True))
    return jac.T @ cov @ jac


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplacian"])
def test_covariance_is_the_oracles(kernel, d, embedding):
    rng = np.random.default_rng(d)
    z = rng.standard_normal((150, d)) * np.arange(1, d + 1)
    state = frozen_state(z, freeze=False, kernel=kernel, embedding=embedding, n_features=40, **RAW)
    for y in (z[3], rng.standard_normal(d), 4.0 * np.ones(d)):
        fast = state.sampler.covariance(state.model, y)
        slow = oracle(state, z, y)
        np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-12 * np.abs(slow).max())
    frozen = state.freeze()
    np.testing.assert_array_equal(
        frozen.sampler.covariance(frozen.model, z[3]), state.sampler.covariance(state.model, z[3])
    )


def test_folding_block_by_block_is_the_whole():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((700, 2))
    whole = frozen_state(z, freeze=False, n_features=30, lengthscale=1.0, **RAW)
    part = frozen_state(z[:300], freeze=False, n_features=30, lengthscale=1.0, **RAW)
    past = part.walk.history
    for x in z[300:]:
        past = history.append(past, x)
    walk = part.walk._replace(history=past, iteration=700)
    part = part._replace(walk=walk).relearn(rng)
    assert part.model.seen == 700
    np.testing.assert_allclose(part.model.moments.mean, whole.model.moments.mean, atol=1e-13)
    np.testing.assert_allclose(part.model.moments.scatter, whole.model.moments.scatter, atol=1e-10)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_mean_shift_is_the_oracles(d, embedding):
    """The derivative of the log of the mean feature product, from the features' own derivatives."""
    rng = np.random.default_rng(d)
    z = rng.standard_normal((150, d))
    options = {**RAW, "mean_shift": True, "n_features": 60, "lengthscale": 1.5}
    state = frozen_state(z, freeze=False, embedding=embedding, **options)
    plain = frozen_state(z, freeze=False, embedding=embedding, **{**options, "mean_shift": False})
    scaled = at_lengthscale(state.model.unit, state.model.lengthscale)
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
    waves = feature_covariance._waves(far, model.frequencies, model.unit.offsets)
    shift = feature_covariance._shift(*waves, model.frequencies, model.density, model.unit.sincos, 60**-0.5)
    slope = jacobian(far, scaled).T @ mean
    assert np.linalg.norm(shift) <= np.linalg.norm(slope) * 60**0.5 * (1 + 1e-10)


def test_truncation_carries_the_stated_share():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((500, 3))
    ranks = []
    for share in (0.3, 0.75, 0.95, 1.0):
        state = frozen_state(z, freeze=False, n_features=60, **{**RAW, "variance_share": share})
        model = state.model
        kept = np.square(model.roots).sum() * 60 / 2
        total = np.trace(model.moments.scatter) / model.moments.count
        assert kept >= share * total * (1 - 1e-10)
        ranks.append(model.roots.shape[1])
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1] <= 60


@pytest.mark.parametrize("normalization", ["none", "trace"])
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_log_q_ratio_is_antisymmetric(embedding, normalization):
    """log_q_ratio(x -> x*) from the states at either end, the truncated covariance in both directions."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((200, 3)) * [1.0, 3.0, 0.2]
    options = {**RAW, "normalization": normalization, "variance_share": 0.7}
    state = frozen_state(z, embedding=embedding, **options)
    gamma, nu = 0.3, 0.8
    for x in z[:5]:
        here = state.start(x, 0.0)
        proposal = here.propose(rng, x)
        there = state.start(proposal.position, 0.0)
        delta = np.linalg.solve(state.factor, proposal.position - x)
        forward = log_step_density(delta, here.covariance, gamma, nu)
        reverse = log_step_density(-delta, there.covariance, gamma, nu)
        np.testing.assert_allclose(proposal.log_q_ratio, reverse - forward, rtol=1e-9, atol=1e-9)


# a mediocre proposal: the ratio matters
STRONG = {"normalization": "none", "scale": 10.0, "gamma": 0.05, "mean_shift": False}
CASES = {
    "sincos": {"embedding": "sincos", **STRONG},
    "cos": {"embedding": "cos", **STRONG},
    "trace": {"embedding": "sincos", "normalization": "trace"},
    "shift": {"embedding": "cos", "lengthscale": 2.0, "gamma": 0.3, "scale": 0.5},
    "mixed": {"embedding": "cos", "normalization": "trace", "global_share": 0.5},
}


def invariance(case, control=None, n=12_000):
    options = {"n_features": 60, "lengthscale": 0.6, "scale": 1.2, "gamma": 0.1, **CASES[case]}
    return change(lambda z, rng: frozen_state(z, **options), n, control=control)


slow = pytest.mark.slow


@pytest.mark.parametrize("case", ["sincos", "shift", *(pytest.param(c, marks=slow) for c in ("cos", "trace", "mixed"))])
def test_invariance(case):
    assert invariance(case) < 4.5


@pytest.mark.parametrize(("case", "control"), [("cos", Dropped), pytest.param("sincos", PREVIOUS, marks=slow)])
def test_a_wrong_ratio_is_noticed(case, control):
    assert invariance(case, control, 20_000) > 10
