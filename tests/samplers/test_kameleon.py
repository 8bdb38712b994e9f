"""KAMH: formulas against oracles."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.kernels import Gaussian, InverseMultiquadric, Laplacian, Linear, Matern
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_covariance import local_covariance
from tests.support.local_moves import learned

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


@pytest.mark.parametrize("d", [1, 2, 5])
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


def test_local_covariance_does_not_underflow_far_away():
    points = np.random.default_rng(0).standard_normal((3, 50))
    y = np.array([300.0, 0.0, 0.0])
    moment = local_covariance(y, points, Gaussian(), 1.0, "local")
    nearest = points[:, np.argmin(((points - y[:, None]) ** 2).sum(0))]
    np.testing.assert_allclose(moment, np.outer(nearest - y, nearest - y), rtol=1e-10)


@pytest.mark.parametrize("normalization", ["none", "local", "trace"])
@pytest.mark.parametrize("d", [1, 2, 5])
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
