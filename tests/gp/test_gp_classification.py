"""Gaussian-process classification as a PyMC model: the prior, the whitening, sampling, prediction."""

import pickle

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import special
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_kameleon.datasets import load_glass
from pymc_kameleon.gp.estimator import GPClassificationEstimator
from pymc_kameleon.gp_classification import OneThread, gp_classification_model, predict
from pymc_kameleon.steps import AdaptiveMetropolisStep


def small_problem(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ np.array([[2.0, 0.7], [0.0, 0.5]])[:d, :d] + 3.0
    y = (X[:, 0] - 3.0 + rng.standard_normal(n) > 0).astype(int)
    return X, y


def posterior(thetas):
    """Draws of theta, (chains, draws, dim), in the shape that both InferenceData and DataTree present."""
    return {"posterior": xr.Dataset({"theta": (("chain", "draw", "parameter"), thetas)})}


def log_prior(model, theta):
    """log density of theta without the potential."""
    return float(model.compile_logp(vars=model.free_RVs)({"theta": np.asarray(theta)}))


# The model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mean", "variance"),
    [
        ({}, -np.log(2.0), 20.0),
        ({"target": "log-lengthscale"}, 0.0, 5.0),
        ({"signal_variance": "free"}, np.array([*2 * [-np.log(2.0)], 0.0]), np.array([20.0, 20.0, 5.0])),
    ],
)
def test_prior(options, mean, variance):
    """A free signal variance is the last parameter."""
    model = gp_classification_model(*small_problem(), feature_names=["a", "b"], **options)
    theta = np.array([0.3, -2.0, 3.0])[: 2 + ("signal_variance" in options)]
    one = np.ones(len(theta))
    expected = (-0.5 * np.square(theta - mean) / variance - 0.5 * np.log(2 * np.pi * variance * one)).sum()
    np.testing.assert_allclose(log_prior(model, theta), expected, rtol=1e-12)
    assert [v.name for v in model.value_vars] == ["theta"]
    assert list(model.coords["parameter"]) == ["a", "b", "log signal variance"][: len(theta)]
    assert model.gp_classifier.estimator.approximation == ("ep" if len(theta) == 3 else "laplace")


def test_papers_parametrisation():
    """With theta_code = -(theta + log 2) / 2, whose prior is N(0, 5): k = exp(-sum e^(2 theta_code) dx^2)."""
    covariance = gp_classification_model(*small_problem()).gp_classifier.estimator._covariance
    theta, rows = np.array([0.3, -2.0]), covariance.X
    covariance.update(theta)
    k = np.exp(-(np.exp(-(theta + np.log(2.0))) * np.square(rows[3] - rows[1])).sum())
    np.testing.assert_allclose(covariance.matrix[3, 1], k, rtol=1e-12)


def test_whitening():
    """Unit covariance in training; column k is what column k says beyond those before it."""
    X, y = small_problem(200)
    classifier = gp_classification_model(X, y).gp_classifier
    rows = classifier.whitening.apply(X)
    np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cov(rows.T), np.eye(2), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows[:, 0], (X[:, 0] - X[:, 0].mean()) / X[:, 0].std(ddof=1))
    slope = np.polyfit(X[:, 0], X[:, 1], 1)
    residual = X[:, 1] - np.polyval(slope, X[:, 0])
    np.testing.assert_allclose(rows[:, 1], residual / residual.std(ddof=1), rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(classifier.estimator.X, rows)
    unwhitened = gp_classification_model(X, y, whiten=False).gp_classifier
    np.testing.assert_array_equal(unwhitened.estimator.X, X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "kamelion"}, "target must be one of 'kameleon', 'log-lengthscale'"),
        ({"feature_names": ["a"]}, "X has 2 columns, but feature_names has 1"),
        ({"X": np.repeat(np.arange(40.0)[:, None], 2, axis=1)}, "collinear"),
        ({"X": np.column_stack([np.arange(40.0), np.ones(40)])}, r"columns \[1\] of X are constant"),
        ({"y": np.ones(40)}, "one class only"),
        ({"n_importance": 0}, "n_importance must be an integer of at least 1"),
    ],
)
def test_bad_input_is_named(change, message):
    X, y = small_problem()
    with pytest.raises(ValueError, match=message):
        gp_classification_model(**{"X": X, "y": y, **change})


# Prediction -----------------------------------------------------------------------------------


def test_prediction_is_the_average_over_theta_and_latent_values():
    """Against importance sampling from the prior of f and f* jointly, with dense matrices."""
    X, y = small_problem(8)
    model = gp_classification_model(X, y, whiten=False)
    thetas = np.array([[[0.0, 1.0]] * 8, [[2.0, -1.0]] * 8])
    X_new = np.array([[3.0, 3.0], [5.0, 3.5], [1.0, 2.5]])
    rng = np.random.default_rng(1)
    truth = []
    for theta in thetas[:, 0]:
        rows = np.vstack([X, X_new])
        K = np.exp(-0.5 * np.square(rows[:, None] - rows[None]) @ np.exp(-theta))
        f = rng.standard_normal((200_000, 11)) @ np.linalg.cholesky(K + 1e-3 * np.eye(11)).T
        w = np.exp(special.log_expit((2 * y - 1) * f[:, :8]).sum(axis=1))
        p = special.expit(f[:, 8:])
        mean = w @ p / w.sum()
        error = np.sqrt((w**2) @ (p - mean) ** 2) / w.sum()
        truth.append((mean, error))
    mean = np.mean([m for m, _ in truth], axis=0)
    error = np.sqrt(np.sum([e**2 for _, e in truth], axis=0)) / 2
    result = predict(posterior(thetas), X_new, model=model, n_importance=4000, random_seed=2)
    # the two thetas are two chains that never mix, so mcse says nothing here; the draws' own noise is small
    assert np.abs((result.probability - mean) / error).max() < 4.5
    swapped = predict(posterior(thetas[:1]), X_new, model=model, n_importance=4000, random_seed=2)
    assert np.abs((swapped.probability - mean) / error).max() > 10.0  # the control: one theta only


def test_prediction_sees_new_rows_only_through_the_training_rows():
    """One row at a time gives the same probabilities: nothing is computed from the new rows' statistics."""
    model = gp_classification_model(*small_problem())
    thetas = np.random.default_rng(4).normal(0.0, 1.0, (2, 10, 2))
    X_new = np.random.default_rng(5).normal(3.0, 2.0, (4, 2))
    together = predict(posterior(thetas), X_new, model=model, random_seed=6)
    alone = [predict(posterior(thetas), row[None], model=model, random_seed=6) for row in X_new]
    np.testing.assert_allclose(together.probability, [a.probability[0] for a in alone], rtol=1e-10)
    np.testing.assert_allclose(together.mcse, [a.mcse[0] for a in alone], rtol=1e-8)


def test_prediction_with_the_model_in_context_and_its_errors():
    X, y = small_problem()
    thetas = np.zeros((2, 30, 2))
    with gp_classification_model(X, y):
        result = predict(posterior(thetas), X[:3], n_draws=10, random_seed=0)
        assert result.probability.shape == result.mcse.shape == (3,)
        assert (result.mcse > 0).all()
        far = predict(posterior(thetas), [[1e6, 1e6]], random_seed=0)
        np.testing.assert_allclose([far.probability, far.mcse], [[0.5], [0.0]], atol=1e-10)
        for draws, rows, n, message in (
            (thetas, X[:, :1], 400, "2 columns"), (thetas, [[np.nan, 0.0]], 400, "NaN"),
            (thetas[:, :3], X, 400, "at least 4: sample more of them"), (thetas, X, 7, "at least 4: n_draws=8 or more"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=message):
                predict(posterior(draws), rows, n_draws=n)
    with pm.Model() as other, pytest.raises(ValueError, match="gp_classification_model"):
        predict(posterior(thetas), X, model=other)


def test_estimates_run_on_one_blas_thread_and_leave_the_setting_alone():
    X, y = small_problem()

    class Spy:
        def log_estimate(self, theta, u):
            return [library["num_threads"] for library in threadpool_info()]

    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        counts = OneThread(Spy())(None, None)
        after = threadpool_info()
    assert set(counts) == {1}
    assert before == after
    estimator = GPClassificationEstimator(X, y)
    copy = pickle.loads(pickle.dumps(OneThread(estimator)))
    theta, u = np.zeros(2), np.random.default_rng(0).standard_normal(estimator.aux_shape)
    assert copy(u, theta) == estimator.log_estimate(theta, u)


# Sampling -------------------------------------------------------------------------------------


def grid_posterior(X, y, edges):
    """Mean and variance of theta over a grid of a one-covariate model, by estimates of negligible noise."""
    classifier = gp_classification_model(X, y).gp_classifier
    estimator = GPClassificationEstimator(classifier.estimator.X, y, 1000, approximation="ep")
    rng = np.random.default_rng(10)
    logs = np.array([estimator(rng, [t]) - (t + np.log(2.0)) ** 2 / 40 for t in edges])
    w = np.exp(logs - logs.max())
    w /= w.sum()
    return w @ edges, w @ (edges - w @ edges) ** 2


@pytest.mark.slow
def test_sampling_and_predicting():
    """pm.sample on a one-covariate model: theta's moments are the grid's, and the prediction works on the result."""
    X, y = small_problem(30, 1)
    mean, variance = grid_posterior(X, y, np.linspace(-22.0, 20.0, 169))
    with gp_classification_model(X, y, n_importance=2):
        idata = pm.sample(  # two importance draws: in the tails an estimate holds the chain for long
            3000, step=AdaptiveMetropolisStep(), tune=500, chains=4, cores=1, random_seed=11, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        result = predict(idata, X[:5], n_draws=40, random_seed=12)
    theta = np.asarray(idata["posterior"]["theta"])[:, :, 0]
    assert ((result.probability > 0) & (result.probability < 1)).all()
    # standard errors from batch means, 10 batches in each of 4 chains
    batches = theta.reshape(40, 300)
    for values, exact in ((batches, mean), ((batches - mean) ** 2, variance)):
        means = values.mean(axis=1)
        assert abs(means.mean() - exact) < 4.5 * means.std(ddof=1) / np.sqrt(40)


@pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")  # PyMC 6's default linker
def test_glass_at_the_papers_settings():
    """The real data run through model, compiled log density and prediction."""
    data = load_glass()
    train = np.arange(214) % 5 != 0
    model = gp_classification_model(data.X[train], data.y[train], feature_names=data.feature_names)
    theta = np.full(9, np.log(9.0))
    logp = model.compile_logp()
    values = np.array([float(logp({"theta": theta})) for _ in range(4)])
    prior = log_prior(model, theta)
    assert len(set(values)) == 4  # an estimate, and a new one every time
    # the likelihood of guessing is log(1/2) a row; a classifier that has learnt something is far above it
    assert (values - prior > 0.7 * train.sum() * np.log(0.5)).all()
    thetas = np.tile(theta, (1, 4, 1))
    result = predict(posterior(thetas), data.X[~train], model=model, random_seed=13)
    accuracy = ((result.probability > 0.5) == (data.y[~train] > 0)).mean()
    assert accuracy > 0.85  # 0.76 for the majority class; published figures are about 0.92
