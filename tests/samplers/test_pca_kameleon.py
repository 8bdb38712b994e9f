"""PCA-Kameleon: formulas against oracles, and what adapts."""

import copy

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.kernels import Gaussian, InverseMultiquadric, Matern
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.steps import KameleonStep
from tests.support.chains import held
from tests.support.local_moves import learned, with_scales
from tests.support.targets import Skewed

each_dimension = pytest.mark.parametrize("d", [1, 2, 5])


def learned_state(z, **options):
    return learned(PCAKameleon, z, freeze=False, **options)


# --- identities ------------------------------------------------------------------------------


class SlowMixture:
    """The proposal as in the paper's appendix C: H formed, all of its spectrum, one SciPy normal a component."""

    def __init__(self, state):
        model, options = state.model, state.sampler
        self.state, self.kernel, self.lengthscale = state, options.chosen, model.lengthscale
        self.z = model.points.T / self.lengthscale
        n, m = len(self.z), len(model.weights)
        self.centring = np.eye(n) - np.ones((n, n)) / n
        gram = np.array([self.kernel.value(z, self.z) for z in self.z])
        eigenvalues, vectors = np.linalg.eigh(self.centring @ gram @ self.centring)
        self.eigenvalues, self.alpha = eigenvalues[::-1][:m], vectors[:, ::-1][:, :m]
        self.weights = self.eigenvalues / self.eigenvalues.sum()
        self.gamma = state.sampler.local_gamma(state.state)

    def directions(self, y):
        gradient = self.kernel.gradient(y / self.lengthscale, self.z) / self.lengthscale
        g = (2.0 * gradient.T @ self.centring @ self.alpha).T  # (m, d)
        if self.state.sampler.normalization == "trace":
            g = g * np.sqrt(len(y) / np.sum(self.weights * np.square(g).sum(axis=1)))
        return g

    def components(self, x):
        """One covariance a component, in the kernel's coordinates and in those of ``x``."""
        factor = self.state.factor
        y = np.linalg.solve(factor, x - self.state.centre)
        for g, log_scale in zip(self.directions(y), self.state.model.log_scales, strict=True):
            inner = self.gamma**2 * np.eye(len(x)) + np.exp(2 * log_scale) * np.outer(g, g)
            yield factor @ inner @ factor.T

    def log_density(self, x_new, x):
        parts = [multivariate_normal(x, c).logpdf(x_new) for c in self.components(x)]
        return np.logaddexp.reduce(np.log(self.weights) + np.atleast_1d(parts))


def history_of(rng, d, n=40):
    return rng.standard_normal((n, d)) * np.arange(1, d + 1)


@pytest.mark.parametrize("normalization", ["none", "trace"])
@each_dimension
@pytest.mark.parametrize("kernel", [Gaussian(), Matern(2.5), InverseMultiquadric()], ids=repr)
def test_log_q_ratio_is_that_of_the_mixtures(kernel, d, normalization):
    """Against the slow mixture at either end."""
    rng = np.random.default_rng(2)
    z = history_of(rng, d)
    options = {"kernel": kernel, "normalization": normalization, "gamma": 0.3, "n_directions": 6, "scale": 0.8}
    state = with_scales(learned_state(z, **options), rng)
    oracle = SlowMixture(state)
    np.testing.assert_allclose(state.model.weights, oracle.weights, rtol=1e-10)
    for x in z[:4]:
        here = state.start(x, 0.0)
        proposal = here.propose(rng, x)
        x_new = proposal.position
        expected = oracle.log_density(x, x_new) - oracle.log_density(x_new, x)
        np.testing.assert_allclose(proposal.log_q_ratio, expected, rtol=1e-7, atol=1e-8)
        there = state.start(x_new, 0.0)
        np.testing.assert_allclose(there.covariance, proposal.carry.directions, rtol=1e-8, atol=1e-12)


@each_dimension
def test_draws_have_the_mixtures_covariance_and_weights(d):
    rng = np.random.default_rng(3)
    state = learned_state(history_of(rng, d), gamma=0.3, n_directions=4)
    state = with_scales(state, rng)
    x = np.ones(d)
    state = state.start(x, 0.0)
    n = 6000
    proposals = [state.propose(rng, x) for _ in range(n)]
    steps = np.array([p.position for p in proposals]) - x
    oracle = SlowMixture(state)
    expected = np.einsum("j,jab->ab", oracle.weights, list(oracle.components(x)))
    products = steps[:, :, None] * steps[:, None, :] - expected
    z = products.mean(axis=0) / (products.std(axis=0, ddof=1) / np.sqrt(n))
    assert np.abs(z).max() < 4.5
    drawn = np.bincount([p.carry.drawn for p in proposals], minlength=4)
    p = oracle.weights
    assert np.abs((drawn - n * p) / np.sqrt(n * p * (1 - p))).max() < 4.5
    # Power: the weights or the scales of one direction given to another are noticed.
    assert np.abs((drawn - n * p[::-1]) / np.sqrt(n * p * (1 - p))).max() > 10


def test_far_from_the_history_nothing_underflows():
    rng = np.random.default_rng(4)
    z = rng.standard_normal((60, 3))
    y = np.array([300.0, 0.0, 0.0])
    for normalization in ("trace", "none"):
        state = learned_state(z, normalization=normalization, coordinates="raw", gamma=0.2)
        g = state.sampler.covariance(state.model, y)
        size = state.model.weights @ np.square(g).sum(axis=1)
        np.testing.assert_allclose(size, 3.0 if normalization == "trace" else 0.0, rtol=1e-10)
        proposal = state.start(y, 0.0).propose(rng, y)
        assert np.isfinite(proposal.log_q_ratio)


# --- adaptation ------------------------------------------------------------------------------


def test_scales_adapt_only_the_direction_drawn():
    x = np.zeros(2)
    state = held(PCAKameleon, x, local_start=100, n_history=60, n_directions=5).start(x, Skewed.log_density(x))
    tuned, refreshed = np.zeros(5), 0
    for before, outcome, after in state.draws(np.random.default_rng(0), Skewed.log_density, x, 800, tuning=True):
        if after.model is None or before.model is None:
            continue
        if after.model.points is not before.model.points:
            # Scales stay with their rank, and so does the one that this draw has just tuned.
            refreshed += 1
            continue
        changed = before.model.log_scales != after.model.log_scales
        if outcome.proposal.move != "local":
            assert not changed.any()
            continue
        j = outcome.proposal.carry.drawn
        assert changed.sum() <= 1
        assert not np.delete(changed, j).any()
        error = outcome.accept_prob - 0.234
        assert np.sign(after.model.log_scales[j] - before.model.log_scales[j]) == np.sign(error)
        np.testing.assert_array_equal(np.flatnonzero(after.model.moves - before.model.moves), [j])
        tuned[j] += 1
    assert refreshed > 5
    assert (tuned > 10).all()


def test_unknown_directions_start_where_the_scale_starts():
    """A history of higher rank brings new directions; those known before keep what they have learned."""
    rng = np.random.default_rng(6)
    z = rng.standard_normal((30, 2))
    state = learned_state(z, n_directions=20, scale=0.7)
    model = state.model
    few = model._replace(
        weights=model.weights[:3], coefficients=model.coefficients[:3],
        log_scales=np.array([-1.0, 0.0, 1.0]), moves=np.array([100, 10, 40]),
    )  # fmt: skip
    more = state.sampler.learn(rng, state.state._replace(model=few), z)
    assert len(more.weights) == 20
    np.testing.assert_array_equal(more.log_scales[:3], few.log_scales)
    np.testing.assert_allclose(more.log_scales[3:], np.log(0.7))
    np.testing.assert_array_equal(more.moves[:4], [30, 10, 12, 10])


# --- options ---------------------------------------------------------------------------------


def test_the_step_chooses_the_module():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    assert KameleonStep(model=model).algorithm is Kameleon
    step = KameleonStep(model=model, proposal="pca", preset="paper", n_directions=7)
    options = step.sampler
    assert (options.n_directions, options.normalization) == (7, "none")
    for twin in (copy.deepcopy(step), cloudpickle.loads(cloudpickle.dumps(step))):
        assert twin.variant == "pca"
        assert twin.algorithm is PCAKameleon
