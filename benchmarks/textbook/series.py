"""Time series: autoregression, a hidden Markov model, a changepoint, GARCH, a local level."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def _loop(step, sequences, start, constants):
    """The sequence of states of a recursion; PyMC's and PyTensor's spelling of it differ by version."""
    found = pytensor.scan(
        step, sequences=sequences, outputs_info=start, non_sequences=constants, strict=True, return_updates=False
    )  # fmt: skip
    return found


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
    """Two hidden states, normal emissions, the states summed out by the forward algorithm: six unknowns.

    The labels are told apart by the prior means of the emissions alone, so the exchanged labelling is another, lower
    mode.
    """
    rng = np.random.default_rng(202)
    stay, mean, sd = (0.9, 0.8), (1.0, 4.0), (0.7, 1.2)
    state, y = 0, np.empty(100)
    for t in range(100):
        if rng.random() > stay[state]:
            state = 1 - state
        y[t] = rng.normal(mean[state], sd[state])
    with pm.Model() as model:
        p = pm.Beta("p", 5.0, 2.0, shape=2)  # of staying
        mu = pm.Normal("mu", np.array([0.0, 5.0]), 2.0, shape=2)
        sigma = pm.HalfNormal("sigma", 2.0, shape=2)
        emission = pm.logp(pm.Normal.dist(mu, sigma), pt.as_tensor(y[:, None]))  # (t, states)
        transition = pt.log(pt.stack([pt.stack([p[0], 1 - p[0]]), pt.stack([1 - p[1], p[1]])]))
        forward = _loop(
            lambda e, a, log_p: e + pt.logsumexp(a[:, None] + log_p, axis=0),
            [emission[1:]], emission[0] - np.log(2.0), [transition],
        )  # fmt: skip
        pm.Potential("likelihood", pt.logsumexp(forward[-1]))
    return model
