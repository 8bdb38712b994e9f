"""Generalised linear models: counts, grades, survival."""

import numpy as np
import pymc as pm

from benchmarks.textbook.data import data

DEATHS, PERSON_YEARS = data("deaths", "person_years")
AGE = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], 2)  # 35 to 44 years, ..., 75 to 84
GERMINATED, SEEDS = data("germinated", "seeds")
KIND = np.repeat([0.0, 1.0], [11, 10])
EXTRACT = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5])
PLACEBO, TREATED = data("placebo", "treated")


def poisson_offset() -> pm.Model:
    """Deaths by age group (1 to 5) and its square, smoking, their interaction; person-years as offset."""
    smokes = np.repeat([0.0, 1.0], 5)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 10.0, shape=5)
        log_rate = b[0] + b[1] * smokes + b[2] * AGE + b[3] * AGE**2 + b[4] * smokes * AGE
        pm.Poisson("deaths", pm.math.exp(log_rate + np.log(PERSON_YEARS)), observed=DEATHS)
    return model


def negative_binomial() -> pm.Model:
    """Days absent on the mathematics score (0 to 100) and two dummies of the programme."""
    rng = np.random.default_rng(401)
    score = rng.integers(1, 100, 200).astype(float)
    programme = rng.integers(0, 3, 200)
    mean = np.exp(2.6 - 0.006 * score - 0.45 * (programme == 1) - 1.3 * (programme == 2))
    days = rng.negative_binomial(1.0, 1.0 / (1.0 + mean))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 5.0, shape=4)
        alpha = pm.Exponential("alpha", 0.5)
        log_mean = b[0] + b[1] * score + b[2] * (programme == 1) + b[3] * (programme == 2)
        pm.NegativeBinomial("days", mu=pm.math.exp(log_mean), alpha=alpha, observed=days)
    return model


def ordinal() -> pm.Model:
    """Four grades of satisfaction on age in years and two dummies: three ordered cutpoints, three coefficients."""
    rng = np.random.default_rng(402)
    age = rng.integers(20, 75, 250).astype(float)
    dummies = (rng.random((2, 250)) < 0.5).astype(float)
    score = 0.04 * age + 0.8 * dummies[0] - 0.5 * dummies[1] + rng.logistic(size=250)
    grade = np.digitize(score, [0.5, 2.0, 3.5])
    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints", 0.0, 10.0, shape=3,
            transform=pm.distributions.transforms.ordered, initval=np.array([-1.0, 0.0, 1.0]),
        )  # fmt: skip
        beta = pm.Normal("beta", 0.0, 2.0, shape=3)
        eta = beta[0] * age + beta[1] * dummies[0] + beta[2] * dummies[1]
        pm.OrderedLogistic("grade", eta=eta, cutpoints=cutpoints, observed=grade)
    return model


def beta_binomial() -> pm.Model:
    """Germination with overdispersion between plates: two factors, their interaction, a concentration."""
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 5.0, shape=4)
        concentration = pm.HalfCauchy("concentration", 50.0)
        mean = pm.math.invlogit(b[0] + b[1] * KIND + b[2] * EXTRACT + b[3] * KIND * EXTRACT)
        pm.BetaBinomial(
            "germinated", n=SEEDS, alpha=mean * concentration, beta=(1 - mean) * concentration, observed=GERMINATED
        )
    return model


def weibull() -> pm.Model:
    """Weeks of remission, Weibull with right censoring: shape, log scale, effect of the treatment."""
    weeks = np.concatenate([PLACEBO, TREATED]).astype(float)
    weeks, censored = np.abs(weeks), weeks < 0
    treated = np.repeat([0.0, 1.0], [len(PLACEBO), len(TREATED)])
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 10.0)
        effect = pm.Normal("effect", 0.0, 10.0)
        shape = pm.HalfNormal("shape", 5.0)
        scale = pm.math.exp(intercept + effect * treated)
        pm.Weibull("weeks", shape, scale[~censored], observed=weeks[~censored])
        pm.Potential("survival", -((weeks[censored] / scale[censored]) ** shape).sum())
    return model
