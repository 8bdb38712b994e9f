"""Differential equations behind a black box, and curves of physics, chemistry and biology."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_kameleon.datasets import load_lynx_hare
from pymc_kameleon.demo import PredatorPrey


def lynx_hare() -> pm.Model:
    """Carpenter's (2018) predator-prey model from where PyMC starts it: no initial values by hand, eight unknowns."""
    data = load_lynx_hare()
    with pm.Model() as model:
        alpha = pm.TruncatedNormal("alpha", 1.0, 0.5, lower=0.0)
        beta = pm.TruncatedNormal("beta", 0.05, 0.05, lower=0.0)
        gamma = pm.TruncatedNormal("gamma", 1.0, 0.5, lower=0.0)
        delta = pm.TruncatedNormal("delta", 0.05, 0.05, lower=0.0)
        initial = pm.LogNormal("initial", np.log(10.0), 1.0, shape=2)
        sigma = pm.LogNormal("sigma", -1.0, 1.0, shape=2)
        logs = PredatorPrey()(pt.stack([alpha, beta, gamma, delta, initial[0], initial[1]]))
        pm.LogNormal("pelts", logs, sigma, observed=np.column_stack([data.hare, data.lynx]))
    return model
