"""The three moves that a Gaussian mixture pihat serves, compiled: normals and uniforms in, (x*, log_q_ratio) out.

See ``gaussian_mixture`` for what they are and why their ratios are right. x = centre + factor z; densities leave out
the constant -(d/2) log(2 pi) and the volume of ``factor``, which cancel.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply, solve_lower
from pymc_kameleon.numerics.normal_steps import draw_step, log_step_density
from pymc_kameleon.samplers.gaussian_mixture.fit import Mixture


class Surrogate(NamedTuple):
    """pihat, with C_k = sum_i e_ki q_ki q_ki^T: in its axes, C_k + h^2 I is diagonal for every h."""

    cumulative: np.ndarray  # (K,): of the weights
    log_weights: np.ndarray  # (K,): log w_k
    log_norms: np.ndarray  # (K,): log w_k - (1/2) log |C_k|
    means: np.ndarray  # (K, d)
    covariances: np.ndarray  # (K, d, d)
    axes: np.ndarray  # (K, d, d): rows q_ki
    variances: np.ndarray  # (K, d): e_ki


def build_surrogate(mixture: Mixture) -> Surrogate:
    """``mixture`` with what the moves need of it."""
    weights, means, covariances = mixture
    variances, axes = np.linalg.eigh(covariances)
    return Surrogate(
        cumulative=np.cumsum(weights),
        log_weights=np.log(weights),
        log_norms=np.log(weights) - 0.5 * np.log(variances).sum(axis=1),
        means=means,
        covariances=covariances,
        axes=np.ascontiguousarray(axes.transpose(0, 2, 1)),
        variances=variances,
    )


@njit(cache=True)
def local(x, centre, factor, pihat, gamma, nu, normals):
    """Propose z* ~ N(z, gamma^2 I + nu^2 S(z)); ``normals`` (d,)."""
    z = solve_lower(factor, x - centre)
    delta, forward = draw_step(local_moment(z, pihat), gamma, nu, normals)
    z_new = z + delta
    # Exactness hangs here: the way back has the covariance *at z_new*, with the same mixture, gamma and nu.
    reverse = log_step_density(delta, local_moment(z_new, pihat), gamma, nu)
    return _position(z_new, centre, factor), reverse - forward


@njit(cache=True)
def auxiliary(x, centre, factor, pihat, h, normals, uniform):
    """Draw u ~ N(z, h^2 I), z* ~ pihat given u; ``normals`` (2 d,)."""
    z = solve_lower(factor, x - centre)
    u = z + h * normals[: x.size]
    z_new = draw_given(u, pihat, h * h, normals[x.size :], uniform)
    # Exactness hangs here: pihat alone, without u: its density and p(u) cancel.
    return _position(z_new, centre, factor), _independent(z, z_new, pihat)


@njit(cache=True)
def independence(x, centre, factor, pihat, normals, uniform):
    """Propose z* ~ pihat; ``normals`` (d,)."""
    z = solve_lower(factor, x - centre)
    cumulative, k = pihat.cumulative, 0
    while k < cumulative.size - 1 and uniform * cumulative[-1] > cumulative[k]:
        k += 1
    z_new = _displaced(pihat.means[k], pihat.axes[k], np.sqrt(pihat.variances[k]) * normals)
    return _position(z_new, centre, factor), _independent(z, z_new, pihat)


@njit(cache=True)
def _independent(z, z_new, pihat):
    """Log pihat(z) - log pihat(z*)."""
    _, _, log_norms, means, _, axes, variances = pihat
    here = log_sum(log_terms(z, log_norms, means, axes, variances))
    return here - log_sum(log_terms(z_new, log_norms, means, axes, variances))


@njit(cache=True)
def draw_given(u, pihat, h2, normals, uniform):
    """Draw z ~ pihat(z) N(u; z, h2 I) / p(u): component k with probability proportional to w_k N(u; mu_k, C_k + h2 I),
    then N(mu_k + C_k (C_k + h2 I)^-1 (u - mu_k), h2 C_k (C_k + h2 I)^-1), in the axes of C_k.
    """
    _, log_weights, _, means, _, axes, variances = pihat
    size, d = means.shape
    widened = variances + h2
    log_norms = np.empty(size)
    for k in range(size):
        log_norms[k] = log_weights[k]
        for i in range(d):
            log_norms[k] -= 0.5 * math.log(widened[k, i])
    logs = log_terms(u, log_norms, means, axes, widened)
    peak = logs.max()
    total = 0.0
    for k in range(size):
        logs[k] = math.exp(logs[k] - peak)
        total += logs[k]
    threshold, k = uniform * total, 0
    while k < size - 1 and threshold > logs[k]:
        threshold -= logs[k]
        k += 1
    gain = variances[k] / widened[k]
    along = gain * multiply(axes[k], u - means[k]) + np.sqrt(gain * h2) * normals
    return _displaced(means[k], axes[k], along)


@njit(cache=True)
def _displaced(mean, axes, along):
    """The point that is ``along`` (d,) the ``axes`` away from ``mean``."""
    z = mean.copy()
    for i in range(z.size):
        z += along[i] * axes[i]
    return z


@njit(cache=True)
def log_terms(z, log_norms, means, axes, variances):
    """Terms log w_k + log N(z; mu_k, .) without -(d/2) log(2 pi), shape (K,): ``variances`` along the ``axes``."""
    size, d = means.shape
    logs = np.empty(size)
    for k in range(size):
        delta = z - means[k]
        square = 0.0
        for i in range(d):
            coordinate = 0.0
            for j in range(d):
                coordinate += axes[k, i, j] * delta[j]
            square += coordinate * coordinate / variances[k, i]
        logs[k] = log_norms[k] - 0.5 * square
    return logs


@njit(cache=True)
def log_sum(logs):
    """Log of the sum of exponentials."""
    peak = logs.max()
    total = 0.0
    for value in logs:
        total += math.exp(value - peak)
    return peak + math.log(total)


@njit(cache=True)
def local_moment(z, pihat):
    """S(z) = sum_k r_k(z) [C_k + (z - mu_k)(z - mu_k)^T], shape (d, d); only the lower triangle is filled."""
    _, _, log_norms, means, covariances, axes, variances = pihat
    size, d = means.shape
    logs = log_terms(z, log_norms, means, axes, variances)
    peak = logs.max()
    moment = np.zeros((d, d))
    total = 0.0
    for k in range(size):
        weight = math.exp(logs[k] - peak)
        total += weight
        if weight < 1e-16:  # of the largest: nothing in floating point
            continue
        for i in range(d):
            weighted = weight * (z[i] - means[k, i])
            for j in range(i + 1):
                moment[i, j] += weight * covariances[k, i, j] + weighted * (z[j] - means[k, j])
    moment /= total
    return moment


@njit(cache=True)
def _position(z, centre, factor):
    """The parameters' own coordinates, x = m + L z."""
    d = z.size
    x = np.empty(d)
    for i in range(d):
        total = centre[i]
        for j in range(i + 1):
            total += factor[i, j] * z[j]
        x[i] = total
    return x
