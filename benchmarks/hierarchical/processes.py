"""Gaussian processes whose hyperparameters stand over black boxes: a latent one over sites, and one for each series."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import solve_triangular

SITES = np.linspace(0.0, 10.0, 20)
POINTS = 14  # of a series


def _count(xp, log_rate, y):
    return y * log_rate - xp.exp(xp.minimum(log_rate, 30.0))


def sites(kit):
    """A latent process over twenty sites, as ``pm.gp.Latent`` writes it; a log likelihood a site; 23 unknowns."""
    rng = np.random.default_rng(13)
    distance = np.abs(SITES[:, None] - SITES)
    root = np.linalg.cholesky(np.exp(-0.5 * (distance / 1.5) ** 2) + 1e-8 * np.eye(len(SITES)))
    y = rng.poisson(np.exp(1.2 + 0.8 * root @ rng.standard_normal(len(SITES)))).astype(float)
    box = kit.box(_count)
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 1.0)
        amplitude = pm.HalfNormal("amplitude", 1.0)
        lengthscale = pm.LogNormal("lengthscale", 0.5, 0.5)
        process = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, ls=lengthscale))
        field = process.prior("field", X=SITES[:, None])
        for k, count in enumerate(y):
            pm.Potential(f"y{k}", box(level + field[k], count))
    return model


def _kernel(xp, own, log_noise, t):
    """Covariance of a series; ``own``: logs of lengthscale and amplitude. Shape (points, points)."""
    scaled = (t[:, None] - t[None, :]) * xp.exp(-own[0])
    return xp.exp(2.0 * own[1] - 0.5 * scaled**2) + xp.exp(2.0 * log_noise) * np.eye(POINTS)


def marginal_likelihood(own, log_noise, t, y):
    """Log marginal likelihood of a series as a library returns it; NaN where there is no Cholesky factor."""
    try:
        root = np.linalg.cholesky(_kernel(np, own, log_noise, t))
    except np.linalg.LinAlgError:
        return np.nan
    return -0.5 * np.sum(solve_triangular(root, y, lower=True, check_finite=False) ** 2) - np.log(np.diag(root)).sum()


def _marginal_graph(own, log_noise, t, y):
    root = pt.linalg.cholesky(_kernel(pt, own, log_noise, t))
    z = pt.linalg.solve_triangular(root, y, lower=True)
    return -0.5 * (z**2).sum() - pt.log(pt.diag(root)).sum()


def series(kit, groups=8):
    """A lengthscale and an amplitude a series, one noise for all; a marginal likelihood a series; 21 unknowns."""
    rng = np.random.default_rng(17)
    own = np.array([0.0, 0.2]) + np.array([0.4, 0.3]) * rng.standard_normal((groups, 2))
    t = np.sort(rng.uniform(0.0, 10.0, (groups, POINTS)), axis=1)
    y = np.array([
        np.linalg.cholesky(_kernel(np, a, np.log(0.3), times)) @ rng.standard_normal(POINTS)
        for a, times in zip(own, t, strict=True)
    ])  # fmt: skip
    box = kit.box(marginal_likelihood, graph=_marginal_graph)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1.0, shape=2)
        spread = pm.HalfNormal("spread", 0.5, shape=2)
        noise = pm.HalfNormal("noise", 0.5)
        theta = kit.group("theta", mean, spread, (groups, 2))
        for k in range(groups):
            pm.Potential(f"y{k}", box(theta[k], pt.log(noise), t[k], y[k]))
    return model
