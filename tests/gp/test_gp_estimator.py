"""The GP classification estimator: unbiased, exact in its algebra, calm at the edges."""

import functools
import pickle

import numpy as np
import pytest
from scipy import special, stats

from pymc_kameleon.datasets import load_glass
from pymc_kameleon.gp.estimator import GPClassificationEstimator
from pymc_kameleon.gp.sites import LINKS, _log_normal_cdf, link_terms

SIGMA = {"logit": special.expit, "probit": special.ndtr}
LOG_SIGMA = {"logit": special.log_expit, "probit": special.log_ndtr}

# How the proposal is made: none of these may move the mean of the estimate.
METHODS = {
    "laplace": {"approximation": "laplace"},
    "one Newton step": {"approximation": "laplace", "max_newton": 1, "start": 0.0},
    "bad start": {"approximation": "laplace", "max_newton": 1, "start": [3.0, -4.0, 2.0]},
    "ep": {"approximation": "ep"},
}


def made(*given, start=None, **settings):
    """An estimator whose proposal is spoiled, or made with more pains, on purpose."""
    apart = {n: settings.pop(n) for n in ("max_newton", "tolerance", "ep_tolerance") if n in settings}
    estimator = GPClassificationEstimator(*given, **settings)
    vars(estimator).update(apart)
    if start is not None:
        estimator._start = np.broadcast_to(np.asarray(start, dtype=float), estimator.y.shape).copy()
    return estimator


def covariance(X, theta, nugget=1e-3):
    """The model's covariance matrix, by the book; theta of length d or d + 1."""
    d = X.shape[1]
    distances = np.square(X[:, None] - X[None]) @ np.exp(-theta[:d])
    variance = np.exp(theta[d]) if len(theta) > d else 1.0
    return variance * (np.exp(-0.5 * distances) + nugget * np.eye(len(X)))


def quadrature(K, y, link, nodes=40):
    """Product Gauss-Hermite rule for three latent values: points, prior times likelihood."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    f = grid @ np.linalg.cholesky(K).T
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel()
    return f, weights * np.exp(LOG_SIGMA[link](y * f).sum(axis=1))


def three_points(setting, link="logit"):
    """A random problem of three observations, (X, y, theta), with signal variances up to 4.5 (probit: 1.6).

    Beyond that the weights' variance may be infinite, and so a z-score's.
    """
    rng = np.random.default_rng([4, setting])
    X = rng.standard_normal((3, 2))
    y = rng.permutation([1.0, -1.0, rng.choice([-1.0, 1.0])])
    largest = 1.5 if link == "logit" else 0.5
    return X, y, np.append(rng.normal(0.5, 1.5, 2), rng.uniform(-1.0, largest))


@functools.cache
def log_truth(setting, link):
    X, y, theta = three_points(setting, link)
    return np.log(quadrature(covariance(X, theta), y, link)[1].sum())


def z_score(values):
    return values.mean() / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.fixture(scope="module")
def glass():
    data = load_glass()
    X = data.X - data.X.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(X.T))
    return np.linalg.solve(factor, X.T).T, data.y


def small_problem(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return X, y


# Unbiasedness ---------------------------------------------------------------------------------


def unbiasedness_scores(link, **settings):
    """z-scores of the mean weight against quadrature, one for each of 50 problems."""
    scores = []
    for setting in range(50):
        X, y, theta = three_points(setting, link)
        estimator = made(X, y, 20_000, signal_variance="free", link=link, **settings)
        u = np.random.default_rng([5, setting]).standard_normal(estimator.aux_shape)
        weights = np.exp(estimator.log_weights(theta, u) - log_truth(setting, link))
        # antithetic pairs are independent of one another
        scores.append(z_score(weights.reshape(-1, 2).mean(axis=1) - 1.0))
    return np.array(scores)


def pooled(scores):
    return scores.sum() / np.sqrt(len(scores))


def test_quadrature_is_exact_enough():
    """The truth's own error is far below the standard errors (about 1e-3)."""
    for link in LINKS:
        for setting in range(0, 50, 17):
            X, y, theta = three_points(setting, link)
            finer = quadrature(covariance(X, theta), y, link, nodes=64)[1].sum()
            assert abs(np.log(finer) - log_truth(setting, link)) < 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_unbiased(method, link):
    scores = unbiasedness_scores(link, **METHODS[method])
    assert np.abs(scores).max() < 4.5, scores
    assert abs(pooled(scores)) < 4.5, scores


@pytest.mark.parametrize("method", ["laplace", "one Newton step", "bad start"])
def test_a_wrong_proposal_covariance_is_caught(method, monkeypatch):
    """The control: draws with 10 % more variance than q has.

    EP's own bias under it is of second order, because its q has the posterior's moments.
    """
    honest = GPClassificationEstimator._deviations
    monkeypatch.setattr(GPClassificationEstimator, "_deviations", lambda self, u: np.sqrt(1.1) * honest(self, u))
    assert abs(pooled(unbiasedness_scores("logit", **METHODS[method]))) > 10.0


@pytest.mark.parametrize("n_importance", [1, 5])
def test_log_estimate_is_unbiased_for_few_draws(n_importance):
    X, y, theta = three_points(1)
    estimator = made(X, y, n_importance, signal_variance="free", **METHODS["bad start"])
    rng = np.random.default_rng(6)
    logs = np.array([estimator(rng, theta) for _ in range(5000)]) - log_truth(1, "logit")
    assert abs(z_score(np.exp(logs) - 1.0)) < 4.5
    if n_importance == 1:  # the control: the mean of the logs is not the log of the mean
        assert z_score(logs) < -10.0


# Algebra --------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("approximation", ["laplace", "ep"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_log_weights_are_the_ratio_of_densities(link, approximation, d):
    """log w = log p(y | f) + log p(f) - log q(f), every density written out with dense matrices."""
    X, y = small_problem(12, d)
    estimator = GPClassificationEstimator(X, y, 6, approximation=approximation, link=link, signal_variance="free")
    theta = np.append(np.random.default_rng(1).normal(0.0, 1.0, d), 0.7)
    u = np.random.default_rng(2).standard_normal(estimator.aux_shape)
    log_weights = estimator.log_weights(theta, u)
    q = estimator._fit(theta)
    K = covariance(X, theta)
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(q.tau))
    np.testing.assert_allclose(q.mean, S @ q.nu, rtol=1e-8, atol=1e-10)
    # the draws' second moments are q's: deviations of unit vectors, one after another
    root = np.concatenate([estimator._deviations(row[None]).copy() for row in np.eye(len(y))])
    np.testing.assert_allclose(root.T @ root, S, rtol=1e-8, atol=1e-10)
    for row in range(3):
        for side, sign in enumerate((1.0, -1.0)):
            f = q.mean + sign * (u[row] @ root)
            direct = (
                LOG_SIGMA[link](y * f).sum()
                + stats.multivariate_normal(np.zeros(len(y)), K).logpdf(f)
                - stats.multivariate_normal(q.mean, S).logpdf(f)
            )
            np.testing.assert_allclose(log_weights[2 * row + side], direct, rtol=1e-8)


def test_more_draws_than_a_block_are_the_same_draws():
    X, y = small_problem()
    many, few = (GPClassificationEstimator(X, y, n) for n in (300, 11))
    theta, u = np.zeros(3), np.random.default_rng(3).standard_normal(many.aux_shape)
    np.testing.assert_allclose(many.log_weights(theta, u)[:11], few.log_weights(theta, u[:6]), rtol=1e-12)
    single = [GPClassificationEstimator(X, y, 1).log_weights(theta, row[None])[0] for row in u[:3]]
    np.testing.assert_allclose(many.log_weights(theta, u)[:6:2], single, rtol=1e-12)


@pytest.mark.parametrize("offset", [-1.0, 0.0, 2.0])
def test_laplace_evidence_is_scikit_learns(offset, glass):
    """At u = 0 the weight is Laplace's evidence; scikit-learn finds the same mode another way."""
    from sklearn.gaussian_process import GaussianProcessClassifier, kernels

    X, y = glass
    theta = np.linspace(0.0, 3.0, 9) + offset
    kernel = kernels.RBF(np.exp(0.5 * theta)) + kernels.WhiteKernel(1e-3)
    reference = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=200).fit(X, y)
    estimator = made(X, y, tolerance=1e-9)
    found = estimator.log_estimate(theta, np.zeros(estimator.aux_shape))
    np.testing.assert_allclose(found, reference.log_marginal_likelihood_value_, rtol=1e-8)


def test_link_terms():
    t = np.concatenate([np.linspace(-60.0, 40.0, 801), [-1e4, -5.0, 5.0, 1e4]])
    for name, link in LINKS.items():
        linear, factor, slope, curvature = np.array([link_terms(v, link) for v in t]).T
        np.testing.assert_allclose(linear - np.log(factor), LOG_SIGMA[name](t), rtol=1e-12, atol=1e-15)
        assert factor.min() >= 1.0
        assert factor.max() < 1e7
        h = 1e-4
        inside = np.abs(t) < 30
        x = t[inside]
        change = (LOG_SIGMA[name](x + h) - LOG_SIGMA[name](x - h)) / (2 * h)
        np.testing.assert_allclose(slope[inside], change, rtol=1e-6, atol=1e-9)
        up, down = (np.array([link_terms(v, link)[2] for v in x + s]) for s in (h, -h))
        np.testing.assert_allclose(curvature[inside], (down - up) / (2 * h), rtol=1e-6, atol=1e-9)
        assert curvature.min() >= 0.0
    ratio = np.array([_log_normal_cdf(v)[1] for v in np.linspace(-300.0, -5.0, 50)])
    exact = np.sqrt(2 / np.pi) / special.erfcx(np.linspace(300.0, 5.0, 50) / np.sqrt(2))
    np.testing.assert_allclose(ratio, exact, rtol=1e-12)


# Latent values and prediction -----------------------------------------------------------------


def test_latent_values_follow_the_posterior():
    """(theta fixed) picked latent values have the posterior's moments; unweighted draws do not."""
    X, y, theta = three_points(5)
    f, w = quadrature(covariance(X, theta), y, "logit")
    mean = w @ f / w.sum()
    estimator = made(X, y, 200, signal_variance="free", **METHODS["bad start"])
    rng = np.random.default_rng(7)
    picked = np.array([estimator.latent(theta, rng.standard_normal(estimator.aux_shape), rng) for _ in range(5000)])
    assert max(abs(z_score(column)) for column in (picked - mean).T) < 4.5
    q = estimator._fit(theta)
    unweighted = q.mean + np.array([estimator._deviations(rng.standard_normal((1, 3)))[0].copy() for _ in range(5000)])
    assert max(abs(z_score(column)) for column in (unweighted - mean).T) > 10.0


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_prediction_matches_quadrature(link):
    X, y, theta = three_points(2)
    X_new = np.array([[0.0, 0.0], X[0], [50.0, 50.0]])
    K, nugget = covariance(X, theta), 1e-3
    f, w = quadrature(K, y, link, nodes=30)
    variance = np.exp(theta[2])
    x, node_weights = np.polynomial.hermite_e.hermegauss(40)
    exact = []
    for point in X_new:
        k = variance * np.exp(-0.5 * np.square(X - point) @ np.exp(-theta[:2]))
        a = np.linalg.solve(K, k)
        spread = np.sqrt(variance * (1 + nugget) - k @ a)
        inner = SIGMA[link]((f @ a)[:, None] + spread * x) @ node_weights / node_weights.sum()
        exact.append(w @ inner / w.sum())
    estimator = made(X, y, 400, signal_variance="free", link=link, **METHODS["bad start"])
    rng = np.random.default_rng(10)
    draws = [estimator.predict(theta, rng.standard_normal(estimator.aux_shape), X_new) for _ in range(100)]
    z = [z_score(column) for column in (np.array(draws) - exact)[:, :2].T]
    assert np.abs(z).max() < 4.5, z
    # far away the latent value is its prior, and the two classes are alike
    np.testing.assert_allclose(np.array(draws)[:, 2], 0.5, rtol=1e-10)


# Determinism, pickling, failures --------------------------------------------------------------


@pytest.mark.parametrize("approximation", ["laplace", "ep"])
def test_deterministic_and_without_memory(approximation):
    """The estimate depends on (theta, u) alone: not on what was evaluated before."""
    X, y = small_problem()
    estimator = GPClassificationEstimator(X, y, approximation=approximation)
    rng = np.random.default_rng(11)
    thetas = rng.normal(0.0, 3.0, (20, 3))
    us = rng.standard_normal((20, *estimator.aux_shape))
    forwards = [*map(estimator.log_estimate, thetas, us)]
    assert forwards == [*map(estimator.log_estimate, thetas[::-1], us[::-1])][::-1]
    assert forwards == [*map(pickle.loads(pickle.dumps(estimator)).log_estimate, thetas, us)]


@pytest.mark.parametrize("approximation", ["laplace", "ep"])
@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("signal_variance", ["fixed", "free"])
def test_any_theta_gives_a_number_or_minus_infinity(approximation, link, signal_variance, glass):
    how = {"approximation": approximation, "link": link, "signal_variance": signal_variance}
    estimator = GPClassificationEstimator(*glass, 4, **how)
    u = np.random.default_rng(14).standard_normal(estimator.aux_shape)
    values = [0.0, 50.0, -60.0, 1e3, -1e3, -800.0, 1e308, -1e308, np.inf, -np.inf, np.nan]
    rng = np.random.default_rng(15)
    thetas = [np.full(estimator.dim, v) for v in values]
    thetas += [rng.choice(values, estimator.dim) for _ in range(30)]
    failures = 0
    for theta in thetas:
        value = estimator.log_estimate(theta, u)
        assert isinstance(value, float)
        assert value < np.inf  # which NaN is not
        failures += value == -np.inf
        assert np.isfinite(theta).all() or value == -np.inf
    middle = np.zeros(estimator.dim)
    assert np.isfinite(estimator.log_estimate(middle, u))
    assert estimator.log_estimate(middle, np.full(estimator.aux_shape, np.nan)) == -np.inf
    assert estimator.failures == failures + 1
    if signal_variance == "fixed":  # a fixed variance has a valid covariance matrix everywhere
        for v in (50.0, -60.0, 1e3, -1e3):
            assert np.isfinite(estimator.log_estimate(np.full(9, v), u))


def test_duplicated_rows():
    X, y = small_problem()
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    u = np.random.default_rng(17).standard_normal((8, 80))
    assert np.isfinite(GPClassificationEstimator(X, y).log_estimate(np.zeros(3), u))
    with pytest.raises(ValueError, match="nugget > 0"):
        GPClassificationEstimator(X, y, nugget=0.0)
    singular = GPClassificationEstimator(X, y)
    singular._covariance.nugget = 0.0
    assert singular.log_estimate(np.zeros(3), u) == -np.inf
    assert singular.failures == 1
    for method, last in ((singular.latent, np.random.default_rng(0)), (singular.predict, X)):
        with pytest.raises(ValueError, match="-inf"):
            method(np.zeros(3), u, last)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_importance": 0}, "n_importance must be an integer of at least 1, got 0"),
        ({"n_importance": 2.5}, "n_importance"),
        ({"nugget": -1e-3}, "nugget must be at least 0"),
        ({"nugget": np.nan}, "nugget"),
        ({"approximation": "vb"}, "approximation must be one of 'laplace', 'ep'; got 'vb'"),
        ({"link": "cauchit"}, "link must be one of"),
        ({"signal_variance": 2.0}, "signal_variance must be one of"),
        ({"X": np.zeros(40)}, "two-dimensional"),
        ({"X": np.zeros((1, 3)), "y": [1.0]}, "two rows and one column at least"),
        ({"X": np.zeros((40, 0))}, "two rows and one column at least"),
        ({"X": np.full((40, 3), np.nan)}, r"X has NaN or infinite values in rows \[0, 1,"),
        ({"X": np.column_stack([np.arange(40.0), np.ones(40)])}, r"columns \[1\] of X are constant"),
        ({"y": np.ones(40)}, "one class only"),
        ({"y": np.zeros(40)}, "one class only"),
        ({"y": np.ones(39)}, r"y must have shape \(40,\)"),
        ({"y": np.repeat([1.0, 2.0], 20)}, r"labels must be in \{-1, 1\} or \{0, 1\}; got \[1.0, 2.0\]"),
        ({"y": np.repeat([-1.0, 0.0, 1.0, 1.0], 10)}, "labels must be in"),
        ({"y": np.repeat([np.nan, 1.0], 20)}, "labels must be in"),
    ],
)
def test_bad_input_is_named(change, message):
    X, y = small_problem()
    with pytest.raises(ValueError, match=message):
        GPClassificationEstimator(**{"X": X, "y": y, **change})


def test_zero_one_labels_are_the_same_problem():
    (X, y), u = small_problem(), np.random.default_rng(18).standard_normal((8, 40))
    estimators = [GPClassificationEstimator(X, labels) for labels in (y, (y > 0).astype(int), y > 0)]
    assert len({estimator.log_estimate(np.zeros(3), u) for estimator in estimators}) == 1


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("log_estimate", [np.zeros(4), np.zeros((8, 40))], r"theta must have shape \(3,\); got \(4,\)"),
        ("log_estimate", [np.zeros(3), np.zeros((7, 40))], "u must have shape"),
        ("predict", [np.zeros(3), np.zeros((8, 40)), np.zeros((40, 2))], "3 columns"),
    ],
)
def test_wrong_shapes_raise(method, given, message):
    with pytest.raises(ValueError, match=message):
        getattr(GPClassificationEstimator(*small_problem()), method)(*given)
