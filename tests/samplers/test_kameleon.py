"""KAMH and F-KAMH: local covariances against oracles, and the ratio that both have by the same lines."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.kernels import Gaussian, InverseMultiquadric, Laplacian, Linear, Matern
from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.random_features import at_lengthscale, features, jacobian
from pymc_kameleon.samplers.kameleon import feature_covariance
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_covariance import local_covariance
from tests.support.local_moves import learned

each_embedding = pytest.mark.parametrize("embedding", ["sincos", "cos"])
each_dimension = pytest.mark.parametrize("d", [1, 2, 5])
KERNELS = [Gaussian(), Matern(1.5), Matern(2.5), Matern(3.7), InverseMultiquadric(), Laplacian(), Linear()]
IDS = [repr(k) if not isinstance(k, Linear) else "Linear" for k in KERNELS]


def slow_paper_covariance(y, points, kernel, lengthscale):
    """M H M^T as in the paper, with H formed."""
    z = points.T / lengthscale
    m = 2.0 * np.array(kernel.gradient(y / lengthscale, z) / lengthscale).T  # (d, n)
    n = len(z)
    return m @ (np.eye(n) - np.ones((n, n)) / n) @ m.T


def slow_local_covariance(y, points, kernel, lengthscale):
    weights = kernel.value(y / lengthscale, points.T / lengthscale)
    total = sum(w * np.outer(z - y, z - y) for w, z in zip(weights, points.T, strict=True))
    return total / weights.sum()


@each_dimension
@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_fast_covariance_is_the_slow_one(kernel, d):
    rng = np.random.default_rng(d)
    points = rng.standard_normal((d, 37)) * 2.0
    for y in (points[:, 3], rng.standard_normal(d), 3.0 * np.ones(d)):
        fast = local_covariance(y, points, kernel, 1.7, "none")
        slow = slow_paper_covariance(y, points, kernel, 1.7)
        np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-12 * np.abs(slow).max())
        trace = local_covariance(y, points, kernel, 1.7, "trace")
        np.testing.assert_allclose(trace, slow * d / np.trace(slow), rtol=1e-9)
        if not isinstance(kernel, Linear):
            fast = local_covariance(y, points, kernel, 1.7, "local")
            slow = slow_local_covariance(y, points, kernel, 1.7)
            np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-12 * np.abs(slow).max())


def test_a_covariance_of_its_own_goes_both_ways():
    """A subclass's is not the one that is compiled whole."""

    class Twice(Kameleon):
        def covariance(self, model, y):
            return 2.0 * super().covariance(model, y)

    rng = np.random.default_rng(3)
    z = rng.standard_normal((80, 2)) * np.arange(1, 3)
    states = [learned(kind, z, scale=0.8 / root, gamma=0.3) for kind, root in ((Kameleon, 1.0), (Twice, 2.0**0.5))]
    ours, theirs = (s.start(z[0], 0.0).propose(np.random.default_rng(4), z[0]) for s in states)
    np.testing.assert_allclose(ours.position, theirs.position, rtol=1e-12)
    np.testing.assert_allclose(ours.log_q_ratio, theirs.log_q_ratio, rtol=1e-9, atol=1e-12)


def test_local_covariance_does_not_underflow_far_away():
    points = np.random.default_rng(0).standard_normal((3, 50))
    y = np.array([300.0, 0.0, 0.0])
    moment = local_covariance(y, points, Gaussian(), 1.0, "local")
    nearest = points[:, np.argmin(((points - y[:, None]) ** 2).sum(0))]
    np.testing.assert_allclose(moment, np.outer(nearest - y, nearest - y), rtol=1e-10)


@pytest.mark.parametrize("normalization", ["none", "local", "trace"])
@each_dimension
def test_log_q_ratio_is_the_ratio_of_the_densities(d, normalization):
    """Against the slow densities, both with the covariance of the point that they start from."""
    rng = np.random.default_rng(2)
    z = rng.standard_normal((80, d)) * np.arange(1, d + 1)
    state = learned(Kameleon, z, normalization=normalization, scale=0.8, gamma=0.3)
    for x in z[:3]:
        here = state.start(x, 0.0)
        proposal = here.propose(rng, x)
        forward = slow_log_q(proposal.position, x, state, 0.8, 0.3)
        reverse = slow_log_q(x, proposal.position, state, 0.8, 0.3)
        np.testing.assert_allclose(proposal.log_q_ratio, reverse - forward, rtol=1e-9, atol=1e-9)
        there = state.start(proposal.position, 0.0)
        np.testing.assert_allclose(there.covariance, proposal.carry, rtol=1e-9, atol=1e-14)


def slow_log_q(x_new, x, state, nu, gamma):
    y = np.linalg.solve(state.factor, x - state.centre)
    oracle = {
        "none": slow_paper_covariance,
        "local": slow_local_covariance,
        "trace": lambda *a: slow_paper_covariance(*a) * len(y) / np.trace(slow_paper_covariance(*a)),
    }[state.sampler.normalization]
    local = oracle(y, state.model.points, state.sampler.chosen, state.model.lengthscale)
    r = gamma**2 * np.eye(len(y)) + nu**2 * local
    return multivariate_normal(x, state.factor @ r @ state.factor.T).logpdf(x_new)


# --- F-KAMH ----------------------------------------------------------------------------------

RAW = {
    "normalization": "none", "coordinates": "raw", "variance_share": 1.0, "whole_history": True, "mean_shift": False,
    "gamma": 0.3, "scale": 0.8,
}  # fmt: skip


def tuning(z, **options):
    """What is learned from ``z``, before it is frozen."""
    return learned(FastKameleon, z, freeze=False, **{**RAW, **options})


def oracle(state, z, y):
    """J^T C J from the features' own derivatives and NumPy's covariance over the history."""
    scaled = at_lengthscale(state.model.unit, state.model.lengthscale)
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
    shift = feature_covariance._shift(*waves, model.frequencies, model.density, 60**-0.5)
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
