"""Three models whose likelihood is an estimate: a synthetic likelihood, a particle filter, importance sampling.

``NAME_estimate`` makes the log of the likelihood's estimate as a function of a generator and the unconstrained vector:
what every sampler evaluates. ``NAME`` is the model with the same function behind ``NoisyLogLikelihood``.
"""

from functools import cache

import numpy as np
import pymc as pm
from numba import njit
from scipy import stats
from scipy.special import expit, logit, ndtri

from pymc_kameleon import NoisyLogLikelihood
from pymc_kameleon.gp_classification import gp_classification_model
from pymc_kameleon.particle_filter import (
    StochasticVolatilityFilter,
    simulate_stochastic_volatility,
)

# --- Ricker's map, synthetic likelihood (Wood, 2010) -------------------------------------------------

WEEKS, BURN_IN, SIMULATIONS = 50, 10, 60
RICKER = (3.8, 0.3, 10.0)  # log growth rate, process noise, catchability


@njit(cache=True)
def _statistics(y):
    """Mean, zeros, autocovariances, and a regression of the root's next value on this one and its square."""
    n, mean, out = len(y), y.mean(), np.empty(7)
    out[0] = mean
    out[1] = np.sum(y == 0.0)
    for lag in range(3):
        out[2 + lag] = np.sum((y[lag:] - mean) * (y[: n - lag] - mean)) / n
    root = y**0.3
    design = np.empty((n - 1, 2))
    design[:, 0], design[:, 1] = root[:-1], root[:-1] ** 2
    normal = design.T @ design
    right = design.T @ root[1:]
    determinant = normal[0, 0] * normal[1, 1] - normal[0, 1] ** 2 + 1e-9
    out[5] = (normal[1, 1] * right[0] - normal[0, 1] * right[1]) / determinant
    out[6] = (normal[0, 0] * right[1] - normal[0, 1] * right[0]) / determinant
    return out


@njit(cache=True)
def _simulate(rng, log_r, sd, catch, n):
    """Statistics of ``n`` simulated series, (n, 7), and the last series."""
    found, y = np.empty((n, 7)), np.empty(WEEKS)
    for k in range(n):
        size = 1.0
        for t in range(BURN_IN + WEEKS):
            size = size * np.exp(log_r - size + sd * rng.standard_normal())
            if t >= BURN_IN:
                y[t - BURN_IN] = rng.poisson(min(catch * size, 1e6))
        found[k] = _statistics(y)
    return found, y


@cache
def _ricker_data():
    _, y = _simulate(np.random.default_rng(43), *RICKER, 1)
    return _statistics(y)


def synthetic(rng, log_r, sd, catch):
    """Log of a normal density fitted to the statistics of simulations, at those of the data."""
    if not (np.isfinite([log_r, sd, catch]).all() and log_r < 20.0 and catch < 1e4 and sd < 5.0):
        return -np.inf
    found, _ = _simulate(rng, float(log_r), float(sd), float(catch), SIMULATIONS)
    with np.errstate(all="ignore"):
        covariance = np.cov(found.T) + 1e-9 * np.eye(found.shape[1])
        difference = _ricker_data() - found.mean(0)
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return -np.inf
        z = np.linalg.solve(factor, difference)
    value = -0.5 * z @ z - np.log(np.diag(factor)).sum()
    return float(value) if np.isfinite(value) else -np.inf


def ricker_estimate():
    """Of log r, log sd, log catchability."""
    return lambda rng, x: synthetic(rng, x[0], np.exp(min(x[1], 5.0)), np.exp(min(x[2], 50.0)))


def ricker() -> pm.Model:
    """Growth, process noise and catchability of a population seen through Poisson counts."""
    with pm.Model() as model:
        log_r = pm.Normal("log_r", 3.5, 0.5)
        sd = pm.LogNormal("sd", np.log(0.3), 0.5)
        catch = pm.LogNormal("catch", np.log(8.0), 0.5)
        pm.Potential("likelihood", NoisyLogLikelihood(synthetic)(log_r, sd, catch))
    return model


def ricker_prior(u):
    """Quantiles."""
    return np.array([3.5, np.log(0.3), np.log(8.0)]) + 0.5 * ndtri(u)


# --- stochastic volatility, bootstrap filter ---------------------------------------------------------

RETURNS, PARTICLES = 120, 80


@cache
def _filter():
    y, _ = simulate_stochastic_volatility(np.random.default_rng(44), RETURNS)
    return StochasticVolatilityFilter(y, PARTICLES)


def volatility_estimate():
    """Of the mean, the persistence' log odds, the log sd."""
    likelihood = _filter()
    return lambda rng, x: likelihood(rng, x[0], expit(x[1]), np.exp(min(x[2], 50.0)))


def volatility() -> pm.Model:
    """Log volatility as an autoregression, its likelihood by 80 particles."""
    with pm.Model() as model:
        mean = pm.Normal("mean", -1.0, 1.0)
        persistence = pm.Beta("persistence", 20.0, 1.5, initval=0.93)
        sd = pm.HalfNormal("sd", 0.5, initval=0.3)
        pm.Potential("likelihood", NoisyLogLikelihood(_filter())(mean, persistence, sd))
    return model


def volatility_prior(u):
    """Quantiles."""
    persistence = np.clip(stats.beta(20.0, 1.5).ppf(u[1]), 1e-12, 1.0 - 1e-12)
    return np.array([-1.0 + ndtri(u[0]), logit(persistence), np.log(0.5 * ndtri(0.5 * (1 + u[2])))])


# --- a Gaussian-process classifier -------------------------------------------------------------------

ROWS = 60


@cache
def _rows():
    rng = np.random.default_rng(45)
    X = rng.standard_normal((ROWS, 3))
    f = 2.5 * np.sin(1.5 * X[:, 0]) + 1.5 * X[:, 1] - 0.5
    return X, np.where(rng.random(ROWS) < expit(f), 1, -1)


def classifier() -> pm.Model:
    """Three log squared lengthscales, the latent function summed out by importance sampling."""
    return gp_classification_model(*_rows(), target="log-lengthscale", whiten=False)


def classifier_estimate():
    """Of the lengthscales' log squares."""
    estimator = classifier().gp_classifier.estimator
    return lambda rng, x: estimator(rng, np.ascontiguousarray(x))


def classifier_prior(u):
    """Quantiles."""
    return np.sqrt(5.0) * ndtri(u)
