"""The mixture step against SciPy's normals, and each of its moves for invariance, with controls that must fail."""

import copy
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pymc_kameleon.samplers.gaussian_mixture import fit as mixture_fit
from pymc_kameleon.samplers.gaussian_mixture import moves as mixture_moves
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from tests.support.chains import Dropped, change, held, tuned

MOVES = ("global", "local", "auxiliary", "independence")
each_dimension = pytest.mark.parametrize("d", [1, 2, 5])


# --- oracles: SciPy's normals, one component at a time ------------------------------------------


def slow_log_terms(mixture, z, extra=0.0):
    """log w_k N(z; mu_k, C_k + extra I), shape (K,)."""
    terms = zip(*mixture, strict=True)
    return np.array([math.log(w) + multivariate_normal(m, c + extra * np.eye(len(z))).logpdf(z) for w, m, c in terms])


def slow_log_density(mixture, z):
    return logsumexp(slow_log_terms(mixture, z))


def slow_local_moment(mixture, z):
    logs = slow_log_terms(mixture, z)
    responsibilities = np.exp(logs - logsumexp(logs))
    moment = np.zeros((len(z), len(z)))
    for r, mu, c in zip(responsibilities, mixture.means, mixture.covariances, strict=True):
        moment += r * (c + np.outer(z - mu, z - mu))
    return moment


def slow_conditional(mixture, u, h):
    """pihat(z) N(u; z, h^2 I) / p(u) as a mixture, from precisions: completing the square."""
    d = len(u)
    logs = slow_log_terms(mixture, u, extra=h * h)
    precisions = np.linalg.inv(mixture.covariances)
    covariances = np.linalg.inv(precisions + np.eye(d) / h**2)
    shifts = np.einsum("kij,kj->ki", precisions, mixture.means) + u / h**2
    means = np.einsum("kij,kj->ki", covariances, shifts)
    return mixture_fit.Mixture(np.exp(logs - logsumexp(logs)), means, covariances)


def some_mixture(rng, d, size=3):
    roots = rng.standard_normal((size, d, d)) + 0.5 * np.eye(d)
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d)
    return mixture_fit.Mixture(rng.dirichlet(np.ones(size)), rng.standard_normal((size, d)), covariances)


# --- identities ---------------------------------------------------------------------------------


@each_dimension
def test_log_density_of_the_mixture_is_scipys(d):
    rng = np.random.default_rng(d)
    mixture, points = some_mixture(rng, d), 3.0 * rng.standard_normal((6, d))
    expected = [slow_log_density(mixture, z) + 0.5 * d * math.log(2 * math.pi) for z in points]
    np.testing.assert_allclose(mixture_fit.log_density(mixture, points), expected, rtol=1e-10)


@pytest.mark.parametrize("h", [0.1, 1.0, 10.0])
@each_dimension
def test_conditional_mixture_of_the_auxiliary_move(d, h):
    """Weights from where the uniform changes component, means from zero normals, covariances from unit ones."""
    rng = np.random.default_rng(20 + d)
    mixture = some_mixture(rng, d)
    s = mixture_moves.build_surrogate(mixture)
    u = rng.standard_normal(d)
    expected = slow_conditional(mixture, u, h)
    edges = np.concatenate([[0.0], np.cumsum(expected.weights)])

    def draw(normals, uniform):
        return mixture_moves.draw_given(u, s, h * h, normals, uniform)

    for k in range(len(expected.weights)):
        width = edges[k + 1] - edges[k]
        for uniform in (edges[k] + 1e-9 * width, edges[k] + 0.5 * width, edges[k + 1] - 1e-9 * width):
            mean = draw(np.zeros(d), uniform)
            np.testing.assert_allclose(mean, expected.means[k], rtol=1e-9, atol=1e-12)
        root = np.array([draw(e, uniform) - mean for e in np.eye(d)])
        np.testing.assert_allclose(root.T @ root, expected.covariances[k], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("move", MOVES[1:])
@each_dimension
def test_ratio_of_every_move_is_the_oracles(d, move):
    """log q(x | x*) - log q(x* | x) from SciPy's densities, in the parameters' own coordinates."""
    rng = np.random.default_rng(40 + d)
    mixture = some_mixture(rng, d)
    factor = np.linalg.cholesky(np.cov(rng.standard_normal((d, 3 * d + 2))).reshape(d, d))
    state = fixed_state(mixture, move, rng.standard_normal(d), factor)
    s, nu = math.exp(state.walk.log_scale), math.exp(state.log_scale)
    for x in rng.standard_normal((5, d)):
        proposal = state.propose(rng, x)
        assert proposal.move == move
        z, z_new = (np.linalg.solve(state.factor, p - state.centre) for p in (x, proposal.position))
        if move == "local":
            expected = 0.0
            for sign, here in ((-1, z), (1, z_new)):
                covariance = 0.25 * s**2 * np.eye(d) + nu**2 * slow_local_moment(mixture, here)
                expected += sign * multivariate_normal(here, covariance).logpdf(z + z_new - here)
        else:
            expected = slow_log_density(mixture, z) - slow_log_density(mixture, z_new)
        assert proposal.log_q_ratio == pytest.approx(expected, rel=1e-9, abs=1e-9)


def fixed_state(mixture, move, centre, factor, nu=0.8, h=0.7):
    """A frozen state with this mixture and only this move; "all" for all of them."""
    shares = (0.25,) * 4 if move == "all" else tuple(float(m == move) for m in MOVES)
    return held(GaussianMixture, centre, shares=shares).freeze()._replace(
        centre=centre, factor=factor, surrogate=mixture_moves.build_surrogate(mixture),
        log_scale=math.log(nu), auxiliary_log_scale=math.log(h),
    )  # fmt: skip


# --- the fit ------------------------------------------------------------------------------------


def two_clusters(rng, n=400, d=2):
    """Sorted by nothing; separation 8 sd."""
    points = rng.standard_normal((n, d))
    points[:, 0] += 8.0 * (rng.random(n) < 0.5)
    return points


def test_features_give_the_textbook_m_step():
    rng = np.random.default_rng(50)
    points, d, n_eff = rng.standard_normal((40, 3)), 3, 25.0
    responsibilities = rng.dirichlet(np.ones(4), size=40)
    counts = responsibilities.sum(axis=0)
    means = (responsibilities.T @ points) / counts[:, None]
    of_each = zip(means, responsibilities.T, strict=True)
    scatters = np.array([((points - m).T * r) @ (points - m) for m, r in of_each])
    pooled = scatters.sum(axis=0) / 40 + 1e-6 * np.eye(d)
    kappa = (d + 1) * 40 / n_eff
    covariances = [(s + kappa * pooled) / (c + kappa) for s, c in zip(scatters, counts, strict=True)]
    fitted = mixture_fit._maximise(responsibilities, mixture_fit._features(points), d, n_eff)
    np.testing.assert_allclose(fitted.means, means, rtol=1e-10)
    np.testing.assert_allclose(fitted.covariances, covariances, rtol=1e-10)
    np.testing.assert_allclose(fitted.weights, (counts + 1e-3) / (40 + 4e-3), rtol=1e-10)


def test_em_finds_two_clusters_and_never_lowers_its_likelihood():
    rng = np.random.default_rng(51)
    points = two_clusters(rng)
    mixture = mixture_fit.fit(rng, points, 2, len(points))
    left, right = mixture.means[np.argsort(mixture.means[:, 0])]
    assert abs(left[0]) < 0.4
    assert abs(right[0] - 8.0) < 0.4
    likelihoods = [  # unshrunk, EM is monotone: kappa to 0 with an infinite effective size
        mixture_fit.log_density(mixture_fit.fit(copy.deepcopy(rng), points, 4, 1e12, k), points).mean()
        for k in (1, 3, 6, 12)
    ]  # fmt: skip
    assert np.all(np.diff(likelihoods) > 0)


def test_size_is_chosen_by_what_is_held_out(monkeypatch):
    rng = np.random.default_rng(52)
    normal = rng.standard_normal((600, 3))
    with monkeypatch.context() as patched:
        patched.setattr(mixture_fit, "INFLATION", 1.0)
        assert mixture_fit.choose_size(rng, normal, 16, 600.0) == 1
    clusters = two_clusters(rng, 600, 3)
    clusters = (clusters - clusters.mean(axis=0)) / clusters.std(axis=0)
    assert mixture_fit.choose_size(rng, clusters, 16, 600.0) > 1
    assert mixture_fit.choose_size(rng, clusters, 1, 600.0) == 1


def test_a_component_without_points_keeps_the_pooled_shape():
    points = np.repeat([[0.0, 0.0], [1.0, 1.0]], 30, axis=0)  # 2 distinct points, 8 components
    mixture = mixture_fit.fit(np.random.default_rng(54), points, 8, 5.0)
    assert all(np.isfinite(part).all() for part in mixture)
    assert np.linalg.eigvalsh(mixture.covariances).min() > 0
    assert mixture.weights.sum() == pytest.approx(1.0)


# --- invariance: exact draws of a curved, skewed target in, exact draws out --------------------

CURVATURE, SHAPE = 2.0, 2.0


class Bent:
    """(x0, x1): x0 a standardised log-gamma, skewed to the left; x1 | x0 normal about a parabola."""

    @staticmethod
    def draw(rng, size):
        draws = rng.standard_normal((size, 2))
        draws[:, 0] = np.log(rng.gamma(SHAPE, size=size))
        draws[:, 1] += CURVATURE * draws[:, 0] ** 2
        return draws

    @staticmethod
    def log_density(x):
        return SHAPE * x[0] - math.exp(x[0]) - 0.5 * (x[1] - CURVATURE * x[0] ** 2) ** 2


IN_THE_FAST_SUITE = (("all", None), ("local", Dropped))
EACH = [*((m, None) for m in [*MOVES[1:], "all"]), *((m, Dropped) for m in MOVES[1:])]


@pytest.mark.parametrize(
    ("move", "control"),
    [pytest.param(*each, marks=[] if each in IN_THE_FAST_SUITE else pytest.mark.slow) for each in EACH],
)
def test_every_move_leaves_the_target_invariant(move, control):
    """With a mixture that was fitted to few points, not where the chains are."""
    rng = np.random.default_rng(60)
    points = Bent.draw(rng, 120) * [0.8, 0.7] + [0.4, -0.3]
    mean, factor = points.mean(axis=0), np.linalg.cholesky(np.cov(points.T))
    z = np.linalg.solve(factor, (points - mean).T).T
    state = fixed_state(mixture_fit.widen(mixture_fit.fit(rng, z, 6, 120)), move, mean, factor, nu=0.9)
    state = state._replace(walk=state.walk._replace(mean=mean, factor=factor, log_scale=math.log(0.3)))
    z = change(state, Bent, 4000, 6, control, moved=0.3)
    assert z > 10 if control else z < 4.5


# --- life ---------------------------------------------------------------------------------------


def test_life_cold_start_fit_freeze():
    chain = tuned(GaussianMixture(tune=2000), Bent.log_density, [0.5, 0.5], 2000, seed=70)
    moves, last = np.array(chain.moves), chain.held
    assert set(moves[:40]) == {"coordinate"}
    assert set(moves[40:700]) == {"global"}  # 200 d = 400 lies below 0.35 tune
    for move in MOVES:  # binomial, known sd
        assert abs(np.mean(moves[700:1900] == move) - 0.25) < 4.5 * math.sqrt(0.25 * 0.75 / 1200)
    assert last.surrogate is chain.hands[1899].surrogate  # refits end at 0.95 tune
    assert 0.02 < math.exp(last.auxiliary_log_scale) < 60
    frozen = last.freeze()
    assert frozen.walk.history is None
    assert frozen.surrogate is last.surrogate
    assert (frozen.log_scale, frozen.auxiliary_log_scale) == (last.log_scale, last.auxiliary_log_scale)


@pytest.mark.parametrize(
    ("d", "tune", "start"), [(2, 2000, 700), (2, 10_000, 3500), (8, 4000, 1600), (20, 5000, 2500), (20, 9000, 4000)]
)
def test_local_start_follows_the_length_of_tuning(d, tune, start):
    assert held(GaussianMixture, np.zeros(d), tune=tune).next_refresh == start
