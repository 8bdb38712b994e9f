"""Regressions as textbooks write them: raw units, interactions, many or correlated coefficients, wide priors."""

import numpy as np
import pymc as pm

from benchmarks.textbook.data import data

MPG, WEIGHT, POWER, LONGLEY, STACK_LOSS = data("mpg", "weight", "power", "longley", "stack_loss")


def linear() -> pm.Model:
    """Miles per gallon on weight in pounds: intercept and slope are correlated at -.96 in units 1 : 10,000."""
    with pm.Model() as model:
        intercept = pm.Flat("intercept")
        slope = pm.Flat("slope")
        sigma = pm.HalfNormal("sigma", 10.0)
        pm.Normal("mpg", intercept + slope * 1000.0 * np.array(WEIGHT), sigma, observed=MPG)
    return model


def trend() -> pm.Model:
    """A linear trend with the calendar year as covariate, not centred."""
    rng = np.random.default_rng(101)
    year = np.arange(1970, 2020)
    extent = 7.5 - 0.06 * (year - 1980) + rng.normal(0.0, 0.5, len(year))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 1000.0)
        slope = pm.Normal("slope", 0.0, 10.0)
        sigma = pm.Exponential("sigma", 1.0)
        pm.Normal("extent", intercept + slope * year, sigma, observed=extent)
    return model


def interaction() -> pm.Model:
    """Fuel economy on horse power, weight and their product, none of them centred."""
    power, weight = np.array(POWER, dtype=float), np.array(WEIGHT)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 100.0, shape=4)
        sigma = pm.HalfCauchy("sigma", 5.0)
        mean = b[0] + b[1] * power + b[2] * weight + b[3] * power * weight
        pm.Normal("mpg", mean, sigma, observed=MPG)
    return model


def log_log() -> pm.Model:
    """Log cost on an intercept and six log inputs, uncentred: a Cobb-Douglas cost function with correlated inputs."""
    rng = np.random.default_rng(102)
    size = rng.normal(9.0, 1.2, 120)
    inputs = np.column_stack([c + size + rng.normal(0.0, s, 120) for c, s in
                              [(0.0, 0.3), (1.0, 0.5), (-2.0, 0.4), (3.0, 0.6), (-4.0, 0.5), (2.0, 0.8)]])  # fmt: skip
    elasticity = np.array([0.35, 0.2, 0.15, 0.1, 0.12, 0.05])
    cost = -1.5 + inputs @ elasticity + rng.normal(0.0, 0.25, 120)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        beta = pm.Normal("beta", 0.0, 10.0, shape=6)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("log_cost", intercept + pm.math.dot(inputs, beta), sigma, observed=cost)
    return model


def correlated() -> pm.Model:
    """Six standardised covariates that correlate at .98, known noise: six coefficients and nothing else."""
    rng = np.random.default_rng(103)
    common = rng.standard_normal((80, 1))
    x = np.sqrt(0.98) * common + np.sqrt(0.02) * rng.standard_normal((80, 6))
    y = x @ np.array([1.0, -0.5, 0.3, 0.0, 2.0, -1.0]) + rng.standard_normal(80)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 10.0, shape=6)
        pm.Normal("y", pm.math.dot(x, beta), 1.0, observed=y)
    return model


def survey() -> pm.Model:
    """Ten coefficients of a logistic regression on a survey: age in years, its square, income in thousands, dummies."""
    rng = np.random.default_rng(104)
    n = 500
    age = rng.integers(18, 85, n).astype(float)
    income = np.round(np.exp(rng.normal(3.5, 0.6, n)), 1)
    education = rng.integers(8, 20, n).astype(float)
    female, urban, married = (rng.random((3, n)) < [[0.51], [0.7], [0.55]]).astype(float)
    region = np.eye(4)[rng.integers(0, 4, n)][:, 1:]
    x = np.column_stack([np.ones(n), age, age**2 / 100, income, education, female, urban, married, region[:, :2]])
    true = np.array([-4.0, 0.08, -0.06, 0.01, 0.1, 0.4, 0.3, -0.2, 0.5, -0.3])
    voted = rng.random(n) < 1 / (1 + np.exp(-x @ true))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 5.0, shape=10)
        pm.Bernoulli("voted", logit_p=pm.math.dot(x, beta), observed=voted.astype(int))
    return model


def many() -> pm.Model:
    """Intercept, 24 coefficients and the noise: 26 unknowns, covariates of three different magnitudes."""
    rng = np.random.default_rng(105)
    n, k = 200, 24
    mixing = np.eye(k) + 0.3 * rng.standard_normal((k, k)) / np.sqrt(k) * 3
    units = np.repeat([0.1, 1.0, 10.0], 8)
    x = 1.0 + rng.standard_normal((n, k)) @ mixing
    true = rng.normal(0.0, 1.0, k) * (rng.random(k) < 0.5)
    y = 3.0 + x @ true + rng.normal(0.0, 1.5, n)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        beta = pm.Normal("beta", 0.0, 10.0, shape=k)
        sigma = pm.HalfNormal("sigma", 5.0)
        pm.Normal("y", intercept + pm.math.dot(x * units, beta), sigma, observed=y)
    return model


def longley() -> pm.Model:
    """Longley's employment data as printed, six covariates that nearly depend on each other: a strong ridge."""
    x, employed = LONGLEY[:, :6], LONGLEY[:, 6]
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10_000.0)
        beta = pm.Normal("beta", 0.0, 10.0, shape=6)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("employed", intercept + pm.math.dot(x, beta), sigma, observed=employed)
    return model


def dollars() -> pm.Model:
    """House prices in dollars on square feet, flat priors: hundreds of thousands away from where a chain starts."""
    rng = np.random.default_rng(106)
    area = np.round(rng.normal(1800.0, 500.0, 60).clip(600.0), 0)
    price = 40_000.0 + 155.0 * area + rng.normal(0.0, 45_000.0, 60)
    with pm.Model() as model:
        intercept = pm.Flat("intercept")
        slope = pm.Flat("slope")
        sigma = pm.HalfFlat("sigma")
        pm.Normal("price", intercept + slope * area, sigma, observed=price)
    return model


def gravity() -> pm.Model:
    """Log trade between pairs of countries: log products in dollars, distance in kilometres, border, language."""
    rng = np.random.default_rng(107)
    n = 150
    exporter, importer = rng.normal(26.5, 1.5, (2, n))
    distance = np.exp(rng.normal(8.3, 0.7, n))
    border = (rng.random(n) < np.where(distance < 2000.0, 0.3, 0.02)).astype(float)
    language = (rng.random(n) < 0.2).astype(float)
    mean = -28.0 + 0.9 * exporter + 0.8 * importer - 1.5e-4 * distance + 0.7 * border + 0.4 * language
    trade = mean + rng.normal(0.0, 1.1, n)
    with pm.Model() as model:
        constant = pm.Normal("constant", 0.0, 100.0)
        elasticity = pm.Normal("elasticity", 1.0, 1.0, shape=2)
        decay = pm.Normal("decay", 0.0, 1.0)  # by kilometre
        bonus = pm.Normal("bonus", 0.0, 2.0, shape=2)
        sigma = pm.HalfCauchy("sigma", 2.0)
        mean = constant + elasticity[0] * exporter + elasticity[1] * importer + decay * distance
        pm.Normal("trade", mean + bonus[0] * border + bonus[1] * language, sigma, observed=trade)
    return model


def robust() -> pm.Model:
    """The stack loss data with Student t errors of unknown degrees of freedom, covariates as printed."""
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 100.0)
        beta = pm.Normal("beta", 0.0, 10.0, shape=3)
        sigma = pm.HalfCauchy("sigma", 5.0)
        nu = pm.Gamma("nu", 2.0, 0.1)
        mean = intercept + pm.math.dot(STACK_LOSS[:, :3], beta)
        pm.StudentT("loss", nu=nu, mu=mean, sigma=sigma, observed=STACK_LOSS[:, 3])
    return model
