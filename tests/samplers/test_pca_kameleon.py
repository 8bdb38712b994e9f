"""PCA-Kameleon: formulas against oracles, exactness against exact draws."""

import copy
import inspect

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

from pymc_kameleon.kernels import Gaussian, InverseMultiquadric, Matern
from pymc_kameleon.samplers.kameleon import pca as pca_kameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.steps import KameleonStep
from tests.support.chains import held
from tests.support.local_moves import Dropped, Previous, change, learned, skewed_density

KERNELS = [Gaussian(), Matern(2.5), InverseMultiquadric()]
slow = pytest.mark.slow


def learned_state(z, **options):
    return learned(PCAKameleon, z, freeze=False, **options)


def with_scales(state, rng):
    """Different scales for different directions: with equal ones a test would not notice them being mixed up."""
    m = len(state.model.weights)
    log_scales = state.model.log_scales + 0.5 * rng.standard_normal(m)
    return state._replace(model=state.model._replace(log_scales=log_scales))


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
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_directions_are_the_papers(kernel, d, normalization):
    rng = np.random.default_rng(d)
    options = {"kernel": kernel, "normalization": normalization, "n_directions": 6}
    state = learned_state(history_of(rng, d), **options)
    oracle = SlowMixture(state)
    np.testing.assert_allclose(state.model.weights, oracle.weights, rtol=1e-10)
    for y in (state.model.points[:, 3], rng.standard_normal(d), 3.0 * np.ones(d)):
        fast = state.sampler.covariance(state.model, y)
        expected = oracle.directions(y)
        # An eigenvector's sign is nobody's business.
        fast, expected = ([np.outer(g, g) for g in gs] for gs in (fast, expected))
        np.testing.assert_allclose(fast, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("normalization", ["none", "trace"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_log_q_ratio_is_that_of_the_mixtures(d, normalization):
    """Against the slow mixture at either end, and with the sign turned for the way back."""
    rng = np.random.default_rng(2)
    z = history_of(rng, d)
    state = learned_state(z, normalization=normalization, gamma=0.3, n_directions=6, scale=0.8)
    state = with_scales(state, rng)
    oracle = SlowMixture(state)
    for x in z[:4]:
        here = state.start(x, 0.0)
        proposal = here.propose(rng, x)
        x_new = proposal.position
        expected = oracle.log_density(x, x_new) - oracle.log_density(x_new, x)
        np.testing.assert_allclose(proposal.log_q_ratio, expected, rtol=1e-7, atol=1e-8)
        there = state.start(x_new, 0.0)
        np.testing.assert_allclose(there.covariance, proposal.carry.directions, rtol=1e-8, atol=1e-12)
        delta = np.linalg.solve(state.factor, x_new - x)
        way = [
            pca_kameleon.log_mixture_density(
                sign * delta, end.covariance, state.model.weights, state.model.log_scales, 0.3
            )
            for sign, end in ((-1.0, there), (1.0, here))
        ]
        np.testing.assert_allclose(proposal.log_q_ratio, way[0] - way[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("d", [1, 2, 5])
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


# --- exactness -------------------------------------------------------------------------------

BASE = {"gamma": 0.05, "lengthscale": 0.6, "n_history": 200, "n_directions": 8}
CASES = {
    "trace": {**BASE, "normalization": "trace", "scale": 1.0},
    "none": {**BASE, "normalization": "none", "coordinates": "raw", "lengthscale": 1.0, "scale": 1.5},
    "matern": {**BASE, "normalization": "none", "kernel": "matern52", "scale": 0.3},
    "mixed": {**BASE, "normalization": "trace", "scale": 1.0, "global_share": 0.5},
}  # fmt: skip


def invariance(case, control=None, n=9_000):
    return change(lambda z, rng: with_scales(learned_state(z, **CASES[case]), rng).freeze(), n, control=control)


def component_density(state, directions, delta, j):
    """Of the component drawn alone."""
    log_scales, gamma = state.model.log_scales[j : j + 1], state.sampler.gamma
    return pca_kameleon.log_mixture_density(delta, directions[j : j + 1], np.ones(1), log_scales, gamma)


def mixture_density(state, directions, delta):
    weights, log_scales = state.model.weights, state.model.log_scales
    return pca_kameleon.log_mixture_density(delta, directions, weights, log_scales, state.sampler.gamma)


class OneSided:
    """Negative control: the mixture summed out on the way back only; the density of the component drawn forwards."""

    @staticmethod
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        there, j = proposal.carry
        delta = np.linalg.solve(state.factor, proposal.position - x)
        forward = component_density(state, state.covariance, delta, j)
        return proposal._replace(log_q_ratio=mixture_density(state, there, delta) - forward)


PREVIOUS = Previous(mixture_density)


@pytest.mark.parametrize("case", ["trace", "none", *(pytest.param(c, marks=slow) for c in ("matern", "mixed"))])
def test_invariance(case):
    assert invariance(case) < 4.5


@pytest.mark.parametrize(
    ("case", "control", "n"),
    [
        ("none", Dropped, 9_000),
        pytest.param("trace", OneSided, 16_000, marks=slow),
        pytest.param("trace", PREVIOUS, 9_000, marks=slow),
    ],
)
def test_a_wrong_ratio_is_noticed(case, control, n):
    assert invariance(case, control, n) > 10


# --- adaptation ------------------------------------------------------------------------------


def adapt_chain(state, draws, seed=0):
    """Tune for ``draws``; yield (state before, outcome, state after) of each."""
    rng, x = np.random.default_rng(seed), np.zeros(2)
    state = state.start(x, skewed_density(x))
    yield from state.draws(rng, skewed_density, x, draws, tuning=True)


def test_scales_adapt_only_the_direction_drawn():
    state = held(PCAKameleon, np.zeros(2), local_start=100, n_history=60, n_directions=5)
    tuned, refreshed = np.zeros(5), 0
    for before, outcome, after in adapt_chain(state, 800):
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
        weights=model.weights[:3],
        coefficients=model.coefficients[:3],
        log_scales=np.array([-1.0, 0.0, 1.0]),
        moves=np.array([100, 10, 40]),
    )
    more = state.sampler.learn(rng, state.state._replace(model=few), z)
    assert len(more.weights) == 20
    np.testing.assert_array_equal(more.log_scales[:3], few.log_scales)
    np.testing.assert_allclose(more.log_scales[3:], np.log(0.7))
    np.testing.assert_array_equal(more.moves[:4], [30, 10, 12, 10])


# --- options ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    return model


def test_the_step_chooses_the_module(model):
    assert KameleonStep(model=model).algorithm is Kameleon
    step = KameleonStep(model=model, proposal="pca", preset="paper", n_directions=7)
    options = step.sampler
    assert (options.n_directions, options.normalization) == (7, "none")
    for twin in (copy.deepcopy(step), cloudpickle.loads(cloudpickle.dumps(step))):
        assert twin.variant == "pca"
        assert twin.algorithm is PCAKameleon
    parameters = inspect.signature(KameleonStep).parameters
    assert parameters["proposal"].default == "full"
    assert parameters["n_directions"].default == 20
    assert parameters["normalization"].default == "local"
