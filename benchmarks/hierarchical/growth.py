"""An ordinary differential equation a group, with parameters that all groups share: cultures that grow.

    d log y / dt = r (1 - (y / K)^nu)        (Richards)

Each culture has its own rate r and first size y(0); the capacity K and the shape nu are everybody's. SciPy solves it, a
culture at a time. There is a closed form, which the reference has and the black box has not.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

HOURS = np.array([1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 10.0, 13.0, 17.0, 24.0])
NOISE = 0.08


def solve(own, shared):
    """Logs of the sizes at ``HOURS``; ``own``: logs of rate and first size, ``shared``: of capacity and shape."""
    rate, shape = np.exp(own[0]), np.exp(shared[1])

    def slope(log_size, hour):
        return rate * (1.0 - np.exp(np.minimum(shape * (log_size - shared[0]), 300.0)))

    found = odeint(slope, own[1], np.append(0.0, HOURS), rtol=1e-8, atol=1e-8)
    return found[1:, 0]


def closed_form(own, shared):
    rate, shape = pt.exp(own[0]), pt.exp(shared[1])
    begin = pt.expm1(shape * (shared[0] - own[1]))
    return shared[0] - pt.log1p(begin * pt.exp(-rate * shape * HOURS)) / shape


def cultures(kit, groups=8):
    """A solver a culture, that returns a curve; 23 unknowns."""
    rng = np.random.default_rng(11)
    own = np.log([0.6, 0.03]) + np.array([0.3, 0.4]) * rng.standard_normal((groups, 2))
    shared = np.log([1.2, 0.7])
    y = np.array([solve(a, shared) for a in own])
    y += NOISE * rng.standard_normal(y.shape)
    box = kit.box(solve, pt.dvector, closed_form)
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log([0.5, 0.05]), [0.7, 1.0], shape=2)
        spread = pm.HalfNormal("spread", 0.5, shape=2)
        shared = pm.Normal("shared", 0.0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 0.3)
        theta = kit.group("theta", mean, spread, (groups, 2))
        for k in range(groups):
            pm.Normal(f"y{k}", box(theta[k], shared), sigma, observed=y[k])
    return model
