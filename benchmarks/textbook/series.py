"""Time series: autoregression, a hidden Markov model, a changepoint, GARCH, a local level."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from benchmarks.textbook.data import data

NILE, DISASTERS = data("nile", "disasters")


def _loop(step, sequences, start, constants):
    """The states of a recursion."""
    return pytensor.scan(
        step, sequences=sequences, outputs_info=start, non_sequences=constants, strict=True, return_updates=False
    )


def autoregression() -> pm.Model:
    """AR(5) about an intercept, conditional on the first five values: seven unknowns."""
    rng = np.random.default_rng(201)
    phi = np.array([0.6, -0.3, 0.2, 0.1, -0.2])
    y = np.zeros(260)
    for t in range(5, 260):
        y[t] = 3.0 + phi @ y[t - 5 : t][::-1] + rng.standard_normal()
    y = y[60:]
    lags = np.column_stack([y[5 - k : len(y) - k] for k in range(1, 6)])
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        coefficients = pm.Normal("phi", 0.0, 1.0, shape=5)
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Normal("y", intercept + pm.math.dot(lags, coefficients), sigma, observed=y[5:])
    return model


def hidden_markov() -> pm.Model:
    """Two hidden states, normal emissions, the states summed out by the forward algorithm: six unknowns."""
    rng = np.random.default_rng(202)
    stay, mean, sd = (0.9, 0.8), (1.0, 4.0), (0.7, 1.2)
    state, y = 0, np.empty(100)
    for t in range(100):
        if rng.random() > stay[state]:
            state = 1 - state
        y[t] = rng.normal(mean[state], sd[state])
    with pm.Model() as model:
        p = pm.Beta("p", 5.0, 2.0, shape=2)  # of staying
        mu = pm.Normal(
            "mu", 0.0, 5.0, shape=2, transform=pm.distributions.transforms.ordered, initval=np.array([-1.0, 1.0])
        )
        sigma = pm.HalfNormal("sigma", 2.0, shape=2)
        emission = pm.logp(pm.Normal.dist(mu, sigma), pt.as_tensor(y[:, None]))  # (t, states)
        transition = pt.log(pt.stack([pt.stack([p[0], 1 - p[0]]), pt.stack([1 - p[1], p[1]])]))
        forward = _loop(
            lambda e, a, log_p: e + pt.logsumexp(a[:, None] + log_p, axis=0),
            [emission[1:]], emission[0] - np.log(2.0), [transition],
        )  # fmt: skip
        pm.Potential("likelihood", pt.logsumexp(forward[-1]))
    return model


def changepoint() -> pm.Model:
    """Coal mining disasters: a rate that changes smoothly from early to late; when, in calendar years, and how fast."""
    year = 1851.0 + np.arange(len(DISASTERS))
    known = DISASTERS >= 0
    with pm.Model() as model:
        early = pm.Exponential("early", 1.0)
        late = pm.Exponential("late", 1.0)
        when = pm.Uniform("when", 1851.0, 1961.0)
        width = pm.HalfNormal("width", 5.0)
        rate = early + (late - early) * pm.math.invlogit((year[known] - when) / width)
        pm.Poisson("disasters", rate, observed=DISASTERS[known])
    return model


def garch() -> pm.Model:
    """GARCH(1, 1) of daily returns in per cent, as in Stan's manual: the coefficients sum to less than one."""
    rng = np.random.default_rng(203)
    returns, variance = np.empty(500), 1.0
    for t in range(500):
        returns[t] = 0.05 + np.sqrt(variance) * rng.standard_normal()
        variance = 0.08 + 0.12 * (returns[t] - 0.05) ** 2 + 0.8 * variance
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 10.0)
        constant = pm.HalfNormal("constant", 5.0)
        shock = pm.Uniform("shock", 0.0, 1.0)
        memory = pm.Uniform("memory", 0.0, 1.0)  # as a share of what the shock leaves
        squares = (pt.as_tensor(returns) - mean) ** 2
        variance = _loop(
            lambda s, v, c, a, b: c + a * s + b * v, [squares[:-1]], pt.as_tensor(returns.var()),
            [constant, shock, memory * (1.0 - shock)],
        )  # fmt: skip
        sd = pt.sqrt(pt.concatenate([[returns.var()], variance]))
        pm.Normal("returns", mean, sd, observed=returns)
    return model


def local_level() -> pm.Model:
    """The Nile as a random walk plus noise, the level summed out by the Kalman filter; sds and start in raw units."""
    with pm.Model() as model:
        sd_noise = pm.HalfNormal("sd_noise", 500.0)
        sd_level = pm.HalfNormal("sd_level", 500.0)
        start = pm.Normal("start", 0.0, 2000.0)

        def filtered(y, mean, variance, noise, level):
            predicted = variance + level**2
            total = predicted + noise**2
            log_density = -0.5 * (pt.log(2.0 * np.pi * total) + (y - mean) ** 2 / total)
            gain = predicted / total
            return mean + gain * (y - mean), predicted * (1.0 - gain), log_density

        *_, log_density = _loop(
            filtered, [pt.as_tensor(NILE)], [start, pt.zeros((), dtype="float64"), None], [sd_noise, sd_level]
        )
        pm.Potential("likelihood", log_density.sum())
    return model
