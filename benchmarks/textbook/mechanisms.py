"""Differential equations behind a black box, and curves of physics, chemistry and biology."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

from benchmarks.hierarchical.kit import BlackBox, Kit
from benchmarks.textbook.data import data
from pymc_kameleon.datasets import load_lynx_hare
from pymc_kameleon.demo import PredatorPrey

YEAST, IN_BED, SUBSTRATE, VELOCITY, HOURS, PLASMA = data("yeast", "in_bed", "substrate", "velocity", "hours", "plasma")


class Solution(BlackBox):
    """A function from a vector to a vector that PyTensor cannot look into, for instance SciPy's solver."""

    def __init__(self, solve):
        super().__init__(Kit(black=True), lambda x: solve(*x), pt.dvector)


def _yeast(rate, capacity, first):
    hours = np.arange(float(len(YEAST)))
    return odeint(lambda n, t: rate * n * (1.0 - n / capacity), first, hours)[:, 0]


def _infected(contact, recovery):
    def slope(state, t):
        new, healed = contact * state[0] * state[1] / 763.0, recovery * state[1]
        return [-new, new - healed]

    return odeint(slope, [762.0, 1.0], np.arange(len(IN_BED) + 1.0))[1:, 1]


def logistic_growth() -> pm.Model:
    """Yeast growing to a capacity, SciPy's solver as a black box, lognormal errors."""
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1.0)
        capacity = pm.HalfNormal("capacity", 1000.0)
        first = pm.HalfNormal("first", 50.0)
        sigma = pm.HalfNormal("sigma", 0.5)
        solution = Solution(_yeast)(pt.stack([rate, capacity, first]))
        pm.LogNormal("yeast", pt.log(solution), sigma, observed=YEAST)
    return model


def epidemic() -> pm.Model:
    """SIR, SciPy's solver as a black box, negative binomial errors (Grinsztajn et al., 2021)."""
    with pm.Model() as model:
        contact = pm.TruncatedNormal("contact", 2.0, 1.0, lower=0.0)
        recovery = pm.TruncatedNormal("recovery", 0.4, 0.5, lower=0.0)
        dispersion = pm.Exponential("dispersion", 5.0)
        infected = Solution(_infected)(pt.stack([contact, recovery]))
        pm.NegativeBinomial("in_bed", mu=pt.maximum(infected, 1e-9), alpha=1.0 / dispersion, observed=IN_BED)
    return model


def michaelis_menten() -> pm.Model:
    """Velocity of a reaction on the substrate's concentration: counts in hundreds, a constant of some hundredths."""
    with pm.Model() as model:
        maximum = pm.HalfNormal("maximum", 500.0)
        half = pm.HalfNormal("half", 1.0)
        sigma = pm.HalfNormal("sigma", 50.0)
        pm.Normal("velocity", maximum * SUBSTRATE / (half + SUBSTRATE), sigma, observed=VELOCITY)
    return model


def decay() -> pm.Model:
    """A sum of two exponentials; the faster rate is the slower one and something more."""
    with pm.Model() as model:
        amplitude = pm.HalfNormal("amplitude", 5.0, shape=2)
        slow = pm.LogNormal("slow", -1.0, 1.0)
        more = pm.HalfNormal("more", 5.0)
        sigma = pm.HalfNormal("sigma", 0.5)
        mean = amplitude[0] * pt.exp(-slow * HOURS) + amplitude[1] * pt.exp(-(slow + more) * HOURS)
        pm.LogNormal("plasma", pt.log(mean), sigma, observed=PLASMA)
    return model


def dose_response() -> pm.Model:
    """A four-parameter logistic curve on the log10 of the dose in mol per litre, response in per cent."""
    rng = np.random.default_rng(501)
    dose = np.repeat(np.arange(-9.0, -3.5, 0.5), 3)
    response = 4.0 + 92.0 / (1.0 + 10.0 ** (1.3 * (-6.2 - dose))) + rng.normal(0.0, 5.0, len(dose))
    with pm.Model() as model:
        bottom = pm.Normal("bottom", 0.0, 50.0)
        top = pm.Normal("top", 100.0, 50.0)
        log_half = pm.Normal("log_half", -6.0, 3.0)
        hill = pm.LogNormal("hill", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 20.0)
        mean = bottom + (top - bottom) / (1.0 + 10.0 ** (hill * (log_half - dose)))
        pm.Normal("response", mean, sigma, observed=response)
    return model


def psychometric() -> pm.Model:
    """Share of correct answers by contrast: threshold, slope, guessing and lapsing, each between bounds."""
    rng = np.random.default_rng(502)
    contrast = np.linspace(0.5, 8.0, 12)
    p = 0.2 + (1.0 - 0.2 - 0.03) / (1.0 + np.exp(-1.5 * (contrast - 4.0)))
    correct = rng.binomial(40, p)
    with pm.Model() as model:
        threshold = pm.Uniform("threshold", 0.0, 10.0)
        slope = pm.Uniform("slope", 0.0, 10.0)
        guess = pm.Uniform("guess", 0.0, 0.5)
        lapse = pm.Uniform("lapse", 0.0, 0.1)
        mean = guess + (1.0 - guess - lapse) * pm.math.invlogit(slope * (contrast - threshold))
        pm.Binomial("correct", n=40, p=mean, observed=correct)
    return model


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
