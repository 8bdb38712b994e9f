"""Steps N(0, gamma^2 I + nu^2 S), S depending on the point: drawn, and how likely the way back is."""

import math

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import cholesky, log_normal_density, multiply_lower


@njit(cache=True)
def draw_step(covariance, gamma, nu, normals):
    """A step (d,) from standard ``normals``, and its log density; of ``covariance`` the lower triangle is read."""
    root, _ = cholesky(_regularised(covariance, gamma, nu))
    log_density = 0.0
    for i in range(normals.size):
        log_density -= 0.5 * normals[i] * normals[i] + math.log(root[i, i])
    return multiply_lower(root, normals), log_density


@njit(cache=True)
def log_step_density(delta, covariance, gamma, nu):
    """Log N(delta; 0, gamma^2 I + nu^2 covariance) up to the constant that both directions share."""
    root, ok = cholesky(_regularised(covariance, gamma, nu))
    return log_normal_density(delta, root) if ok else -math.inf


@njit(cache=True)
def _regularised(covariance, gamma, nu):
    result = nu * nu * covariance
    for i in range(covariance.shape[0]):
        result[i, i] += gamma * gamma
    return result
