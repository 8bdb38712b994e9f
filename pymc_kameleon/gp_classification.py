"""Gaussian-process classification as a PyMC model: lengthscales sampled, latent values summed out.

    theta_k = log l_k^2 ~ Normal,    p(y | theta) estimated without bias for every draw,

so that a pseudo-marginal step (any of this package's) samples p(theta | y) exactly. PyMC's own steps do not: they
forget the estimate at the current state. The estimator is :class:`GPClassificationEstimator`.

References
----------
Filippone, M. & Girolami, M. (2014). Pseudo-marginal Bayesian inference for Gaussian processes. IEEE Transactions on
Pattern Analysis and Machine Intelligence 36(11), 2214-2226.
Sejdinovic, D., Strathmann, H., Lomeli Garcia, M., Andrieu, C. & Gretton, A. (2014). Kernel adaptive
Metropolis-Hastings. ICML 31, section 5.1.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_kameleon.gp.data import Whitening, check_covariates, check_data, one_of
from pymc_kameleon.gp.estimator import GPClassificationEstimator
from pymc_kameleon.numerics.blas import one_thread
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood
from pymc_kameleon.verdict.convergence import of_each

__all__ = ["GPClassificationEstimator", "Prediction", "gp_classification_model", "predict"]

# Mean and variance of every log l_k^2.
_PRIORS = {"kameleon": (-math.log(2.0), 20.0), "log-lengthscale": (0.0, 5.0)}


class Prediction(NamedTuple):
    """Predictive probabilities p(label 1 | y) at every new point, and how far the simulation may be off."""

    probability: np.ndarray  # (m,)
    mcse: np.ndarray  # (m,): its Monte Carlo standard error, autocorrelation of the chains included


class OneThread:
    """``estimator.log_estimate(theta, u)``, as ``fn(u, theta)`` and on one BLAS thread; picklable.

    ``pm.sample`` leaves BLAS as it is wherever processes are forked.
    """

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def __call__(self, u: np.ndarray, theta: np.ndarray) -> float:
        """Log of an unbiased estimate of p(y | theta)."""
        with one_thread():
            return self.estimator.log_estimate(theta, u)


class _Classifier(NamedTuple):
    """What ``predict`` needs to know of a model."""

    estimator: GPClassificationEstimator
    whitening: Whitening | None


def gp_classification_model(
    X: Any,
    y: Any,
    *,
    target: str = "kameleon",
    whiten: bool = True,
    feature_names: Sequence[str] | None = None,
    **settings: Any,
) -> pm.Model:
    """A PyMC model of a Gaussian-process classifier's lengthscales, latent values integrated out.

    One variable, ``theta``: log l_k^2 for every covariate (and log s^2 last, if the signal variance is free), and one
    potential, the log of an unbiased estimate of p(y | theta). Sample it with a step of this package, with
    ``correlation=`` if you like; ``pm.Metropolis``, ``pm.DEMetropolisZ`` and ``pm.Slice`` are biased here.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Covariates in any units.
    y : array_like of shape (n,)
        Labels in {-1, 1} or {0, 1}.
    target : {"kameleon", "log-lengthscale"}, default "kameleon"
        Prior of every log l_k^2: N(-log 2, 20) is the posterior that Kernel adaptive
        Metropolis-Hastings was shown on; N(0, 5), variances both, is easier. The papers' code
        samples theta_code = -(theta + log 2) / 2 ~ N(0, 5), the log of a *weight*: k = exp(-sum_k
        e^(2 theta_code) dx_k^2).
    whiten : bool, default True
        Multiply the centred covariates by the inverse Cholesky factor of their covariance, as the papers' code does.
        The order of the columns then matters: lengthscale k belongs to what column k says beyond the columns before it.
        False takes ``X`` as it is.
    feature_names : sequence of str, optional
        Names of the columns, as coordinates of ``theta``.
    **settings
        Of :class:`GPClassificationEstimator`: ``n_importance``, ``approximation``, ``link``, ``nugget``,
        ``signal_variance`` (if "free", log s^2 ~ N(0, 5)), ...

    Returns
    -------
    pm.Model

    Raises
    ------
    ValueError
        For bad data or settings.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_kameleon as pk
    >>> from pymc_kameleon.datasets import load_glass
    >>> from pymc_kameleon.gp_classification import gp_classification_model, predict
    >>> glass = load_glass()
    >>> with gp_classification_model(glass.X, glass.y):  # doctest: +SKIP
    ...     idata = pm.sample(step=pk.FastKameleonStep(), tune=5000, draws=20000)
    ...     prediction = predict(idata, glass.X[:3])
    """
    one_of("target", target, _PRIORS)
    X, y = check_data(X, y)
    whitening = Whitening.fit(X) if whiten else None
    estimator = GPClassificationEstimator(X if whitening is None else whitening.apply(X), y, **settings)
    names = [f"x{k}" for k in range(X.shape[1])] if feature_names is None else list(feature_names)
    if len(names) != X.shape[1]:
        raise ValueError(f"X has {X.shape[1]} columns, but feature_names has {len(names)} names")
    mean, variance = np.tile(_PRIORS[target], (len(names), 1)).T
    if estimator.dim > len(names):
        names.append("log signal variance")
        mean, variance = np.append(mean, 0.0), np.append(variance, 5.0)
    with pm.Model(coords={"parameter": names}) as model:
        theta = pm.Normal("theta", mean, np.sqrt(variance), dims="parameter")
        estimate = NoisyLogLikelihood(OneThread(estimator), auxiliary_shape=estimator.aux_shape)
        pm.Potential("marginal_likelihood", estimate(theta))
    model.gp_classifier = _Classifier(estimator, whitening)
    return model


def predict(
    idata: Any,
    X_new: Any,
    *,
    model: pm.Model | None = None,
    n_draws: int = 400,
    n_importance: int = 64,
    random_seed: Any = None,
) -> Prediction:
    """Probabilities of label 1 at new points, averaged over posterior draws of the lengthscales.

    For every draw of theta latent values are drawn afresh and weighted; the rows of ``X_new`` are whitened with the
    training rows' mean and covariance.

    Parameters
    ----------
    idata : InferenceData or DataTree
        With ``theta`` in its posterior, from :func:`gp_classification_model`.
    X_new : array_like of shape (m, d)
        In the units of the model's ``X``.
    model : pm.Model, optional
        Default: the model of the surrounding ``with``.
    n_draws : int, default 400
        Posterior draws used, spread evenly over the chains; at most all.
    n_importance : int, default 64
        Latent draws for each; at least the estimator's own number. The weights are normalised by their sum, which
        biases a probability in the order of 1 / n_importance times the variance of a weight.
    random_seed : int or Generator, optional

    Returns
    -------
    Prediction
    """
    model = pm.modelcontext(model)
    classifier = getattr(model, "gp_classifier", None)
    if classifier is None:
        raise ValueError("the model was not made by gp_classification_model")
    estimator = classifier.estimator.with_importance(max(n_importance, classifier.estimator.n_importance))
    X_new = check_covariates("X_new", X_new, estimator.X.shape[1])
    if classifier.whitening is not None:
        X_new = classifier.whitening.apply(X_new)
    thetas = _thin(np.asarray(idata["posterior"]["theta"]), n_draws)  # (chains, draws, dim)
    rng = np.random.default_rng(random_seed)
    draws = np.empty((*thetas.shape[:2], len(X_new)))
    with one_thread():
        for index in np.ndindex(draws.shape[:2]):
            draws[index] = estimator.predict(thetas[index], rng.standard_normal(estimator.aux_shape), X_new)
    # of draws that are all the same ArviZ says NaN
    mcse = np.where(np.ptp(draws, axis=(0, 1)) > 0, of_each("mcse", draws), 0.0)
    return Prediction(draws.mean(axis=(0, 1)), mcse)


def _thin(thetas: np.ndarray, n_draws: int) -> np.ndarray:
    """``n_draws`` in all, evenly spaced along every chain."""
    chains, draws, _ = thetas.shape
    each = min(draws, max(n_draws // chains, 1))
    if each < 4:
        more = "sample more of them" if draws < 4 else f"n_draws={4 * chains} or more"
        raise ValueError(
            f"{each} draws in each of {chains} chains are too few for a Monte Carlo error, it takes at least 4: {more}."
        )
    return thetas[:, np.linspace(0, draws - 1, each).round().astype(int)]
