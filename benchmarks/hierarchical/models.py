"""The models, each twice: as one writes it, with Ops that have no gradient, and in plain PyTensor, non-centred by hand.

A model is a function of a :class:`Kit`, which makes the black boxes and the group-level variables of either kind.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.hierarchical.growth import cultures
from benchmarks.hierarchical.kit import BlackBox, Kit
from benchmarks.hierarchical.processes import series, sites
from pymc_kameleon.demo import PredatorPrey, lynx_hare_model

SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
TIMES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 9.0, 12.0, 24.0])
DOSE = 100.0

__all__ = ["BOXES", "MODELS", "BlackBox", "Kit", "pharmacokinetics"]


def schools(kit):
    """Eight schools: ten unknowns, a log likelihood a school."""
    box = kit.box(lambda xp, theta, y, s: -0.5 * ((theta - y) / s) ** 2)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = kit.group("theta", mu, tau, 8)
        for j, (y, s) in enumerate(zip(*SCHOOLS, strict=True)):
            pm.Potential(f"y{j}", box(theta[j], y, s))
    return model


def funnel(kit):
    """Neal's funnel as a graph, and one observation behind a black box."""
    box = kit.box(lambda xp, x: -0.5 * ((x - 0.5) / 2.0) ** 2)
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        x = kit.group("x", 0.0, pt.exp(v / 2), 9)
        pm.Potential("y", box(x[0]))
    return model


def _log_funnel(xp, v, x):
    """The same density, all of it."""
    prior = -0.5 * (v / 3.0) ** 2 - 0.5 * xp.exp(-v) * (x**2).sum() - 4.5 * v
    return prior - 0.5 * ((x[0] - 0.5) / 2.0) ** 2


def bare_funnel(kit):
    """The funnel as one Potential: a black box of all ten unknowns, in which nothing is known."""
    box = kit.box(_log_funnel)
    with pm.Model() as model:
        v = pm.Flat("v")
        x = pm.Flat("x", shape=9)
        pm.Potential("funnel", box(v, x))
    return model


def _poisson_group(xp, beta, x, y):
    eta = beta[0] + beta[1] * x
    return (y * eta - xp.exp(xp.minimum(eta, 30.0))).sum()


def poisson(kit, groups):
    """Random intercepts and slopes, a log likelihood a group."""
    rng = np.random.default_rng(3)
    beta = np.array([0.5, 0.4]) + np.array([0.5, 0.3]) * rng.standard_normal((groups, 2))
    x = rng.standard_normal((groups, 6))
    y = rng.poisson(np.exp(beta[:, :1] + beta[:, 1:] * x)).astype(float)
    box = kit.box(_poisson_group)
    with pm.Model() as model:
        mean, sd = pm.Normal("mean", 0, 1, shape=2), pm.HalfNormal("sd", 1, shape=2)
        beta = kit.group("beta", mean, sd, (groups, 2))
        for k in range(groups):
            pm.Potential(f"y{k}", box(beta[k], x[k], y[k]))
    return model


def _logit_group(xp, intercept, slope, x, y):
    eta = intercept + slope * x
    return (y * eta - xp.log1p(xp.exp(xp.clip(eta, -500.0, 500.0)))).sum()


def logistic(kit):
    """Varying intercepts and one slope for all twelve groups."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((12, 10))
    eta = 0.3 + rng.standard_normal((12, 1)) + 0.8 * x
    y = (rng.random((12, 10)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    box = kit.box(_logit_group)
    with pm.Model() as model:
        mean, sd, slope = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 2), pm.Normal("slope", 0, 2)
        intercept = kit.group("intercept", mean, sd, 12)
        for k in range(12):
            pm.Potential(f"y{k}", box(intercept[k], slope, x[k], y[k]))
    return model


def _log_concentration(xp, own, shared):
    """Two compartments, an oral dose: log clearance and log volume are a patient's, the rates are everybody's."""
    clearance, volume = xp.exp(own[0]), xp.exp(own[1])
    absorption, exchange, outer = xp.exp(shared[0]), xp.exp(shared[1]), xp.exp(shared[2])
    out, there, back = clearance / volume, exchange / volume, exchange / outer
    total, product = out + there + back, out * back
    root = xp.sqrt(total**2 - 4.0 * product)
    fast, slow = 0.5 * (total + root), 0.5 * (total - root)
    concentration = absorption * DOSE / volume * (
        (back - fast) / ((absorption - fast) * (slow - fast)) * xp.exp(-fast * TIMES)
        + (back - slow) / ((absorption - slow) * (fast - slow)) * xp.exp(-slow * TIMES)
        + (back - absorption) / ((fast - absorption) * (slow - absorption)) * xp.exp(-absorption * TIMES)
    )  # fmt: skip
    return xp.log(xp.abs(concentration) + 1e-6)


def pharmacokinetics(kit, patients):
    """A solver a patient, that returns a curve; the likelihood around it is PyMC's."""
    rng = np.random.default_rng(7)
    own = np.log([4.0, 20.0]) + np.array([0.4, 0.25]) * rng.standard_normal((patients, 2))
    shared = np.log([1.5, 3.0, 40.0])
    y = np.array([_log_concentration(np, a, shared) for a in own])
    y += 0.15 * rng.standard_normal(y.shape)
    box = kit.box(_log_concentration, pt.dvector)
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log([3.0, 15.0]), 0.7, shape=2)
        omega = pm.HalfNormal("omega", 0.5, shape=2)
        rates = pm.Normal("rates", np.log([1.0, 2.0, 30.0]), 0.5, shape=3)
        sigma = pm.HalfNormal("sigma", 0.5)
        theta = kit.group("theta", mean, omega, (patients, 2))
        for k in range(patients):
            pm.Normal(f"y{k}", box(theta[k], rates), sigma, observed=y[k])
    return model


def lynx_hare(kit):
    """Not a hierarchy: one solver in six of eight unknowns."""
    kit.counts = PredatorPrey()
    return lynx_hare_model(kit.counts)


MODELS: dict[str, Callable[[Kit], pm.Model]] = {
    "eight schools": schools, "funnel": funnel,
    "Poisson, 20": lambda kit: poisson(kit, 8), "Poisson, 64": lambda kit: poisson(kit, 30), "logistic": logistic,
    "PK, 6 patients": lambda kit: pharmacokinetics(kit, 6), "PK, 12 patients": lambda kit: pharmacokinetics(kit, 12),
    "PK, 40 patients": lambda kit: pharmacokinetics(kit, 40), "Poisson, 200": lambda kit: poisson(kit, 98),
    "ODE, 8 cultures": cultures, "GP, 20 sites": sites, "GP, 8 series": series, "lynx-hare": lynx_hare,
    "funnel, bare Potential": bare_funnel,
}  # fmt: skip
BOXES = {  # calls of a black box that one evaluation of the log density makes
    "eight schools": 8, "funnel": 1, "Poisson, 20": 8, "Poisson, 64": 30, "logistic": 12, "PK, 6 patients": 6,
    "PK, 12 patients": 12, "PK, 40 patients": 40, "Poisson, 200": 98, "ODE, 8 cultures": 8,
    "GP, 20 sites": 20, "GP, 8 series": 8, "lynx-hare": 1, "funnel, bare Potential": 1,
}  # fmt: skip
