"""Mixtures, simplices and latent fields."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def _two_groups(seed, n, weight, means, sds):
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < weight).astype(int)
    return rng.normal(np.array(means)[group], np.array(sds)[group])


def mixture() -> pm.Model:
    """Two normal components whose means are kept in order: five unknowns, waiting times in minutes."""
    waiting = _two_groups(301, 150, 0.63, (54.0, 80.0), (6.0, 6.0))
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(2))
        mean = pm.Normal(
            "mean", np.array([50.0, 90.0]), 20.0, shape=2,
            transform=pm.distributions.transforms.ordered, initval=np.array([50.0, 90.0]),
        )  # fmt: skip
        sd = pm.HalfNormal("sd", 20.0, shape=2)
        pm.NormalMixture("waiting", w=weight, mu=mean, sigma=sd, observed=waiting)
    return model


def unordered() -> pm.Model:
    """Two normal components that overlap, priors that do not tell them apart: two modes that mirror each other."""
    y = _two_groups(303, 80, 0.5, (0.0, 2.6), (1.0, 1.0))
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", 2.0 * np.ones(2))
        mean = pm.Normal("mean", 0.0, 5.0, shape=2)
        sd = pm.HalfNormal("sd", 2.0, shape=2)
        pm.NormalMixture("y", w=weight, mu=mean, sigma=sd, observed=y)
    return model


def simplex() -> pm.Model:
    """Dirichlet-multinomial counts of five species in eight plots: their shares, and a concentration."""
    rng = np.random.default_rng(304)
    shares = rng.dirichlet(8.0 * np.array([0.45, 0.3, 0.15, 0.08, 0.02]), 8)
    counts = np.array([rng.multinomial(60, share) for share in shares])
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(5))
        concentration = pm.LogNormal("concentration", 1.0, 1.0)
        pm.DirichletMultinomial("counts", n=60, a=share * concentration, observed=counts)
    return model


def gaussian_process() -> pm.Model:
    """Counts in ten intervals about a log rate with a Gaussian process prior, not centred: 13 unknowns."""
    rng = np.random.default_rng(302)
    t = np.arange(10.0)
    counts = rng.poisson(np.exp(2.0 + np.sin(t / 2.0)))
    squared = (t[:, None] - t) ** 2
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 3.0)
        scale = pm.HalfNormal("scale", 2.0)
        length = pm.InverseGamma("length", 5.0, 10.0)
        z = pm.Normal("z", 0.0, 1.0, shape=10)
        factor = pt.linalg.cholesky(pt.exp(-0.5 * squared / length**2) + 1e-6 * np.eye(10))
        pm.Poisson("counts", pt.exp(mean + scale * pm.math.dot(factor, z)), observed=counts)
    return model
