"""Sites for a Gaussian-process classifier: where an importance sampler's Gaussian should be.

A classifier with p(y_j | f_j) = sigma(y_j f_j) and f ~ N(0, K) is approximated by *sites*, one unnormalised Gaussian
exp(nu_j f_j - tau_j f_j^2 / 2) an observation, so that q(f) is proportional to N(f | 0, K) times their product. The two
recipes here, Laplace's and expectation propagation, solve for q with

    B = I + T^1/2 K T^1/2,  T = diag(tau),    mean = K a,  a = nu - T^1/2 B^-1 T^1/2 K nu,

so nothing inverts K (Rasmussen & Williams, 2006, algorithms 3.1 and 3.5). What they return may be stopped anywhere:
:mod:`pymc_kameleon.gp.estimator` is unbiased for every choice of sites.

References
----------
Minka, T. P. (2001). Expectation propagation for approximate Bayesian inference. UAI 17. Rasmussen, C. E. & Williams, C.
K. I. (2006). Gaussian Processes for Machine Learning. MIT Press.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from pymc_kameleon.numerics.compiled import njit

LOGIT, PROBIT = 0, 1
LINKS = {"logit": LOGIT, "probit": PROBIT}

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # for the weight exp(-x^2 / 2)
_FLUSH = 1e200  # a product of factors goes into the sum of logarithms before it can overflow


class Sites(NamedTuple):
    """Precisions ``tau`` >= 0, precisions times means ``nu``, shape (n,); Choleskys of B made."""

    tau: np.ndarray
    nu: np.ndarray
    factorizations: int


@njit(cache=True, error_model="numpy")
def _log_normal_cdf(z):
    """(log Phi(z), phi(z) / Phi(z)), accurate in the lower tail."""
    if z > -5.0:
        cdf = 0.5 * math.erfc(-z / math.sqrt(2.0))
        return math.log(cdf), math.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * cdf)
    # phi / Phi = x + 1/(x + 2/(x + 3/...)), x = -z (Abramowitz & Stegun, 26.2.14)
    ratio = -z
    for k in range(60, 0, -1):
        ratio = -z + k / ratio
    return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - math.log(ratio), ratio


@njit(cache=True, error_model="numpy")
def link_terms(t, link):
    """Log sigma(t) as ``linear - log(factor)``, 1 <= factor < 1e7; first derivative; minus the second.

    The split turns a sum of n logarithms into one product and one logarithm.
    """
    if link == LOGIT:
        e = math.exp(-abs(t))
        d = 1.0 / (1.0 + e)
        return min(t, 0.0), 1.0 + e, (e * d if t > 0.0 else d), e * d * d
    log_cdf, ratio = _log_normal_cdf(t)
    curvature = max(ratio * (ratio + t), 0.0)
    if t > -5.0:
        return 0.0, math.exp(-log_cdf), ratio, curvature
    return log_cdf, 1.0, ratio, curvature


@njit(cache=True, error_model="numpy")
def _expand(f, y, link, tau, nu):
    """Write the second-order expansion of log p(y | f) into ``tau``, ``nu``; return its value."""
    total, product = 0.0, 1.0
    for j in range(f.shape[0]):
        linear, factor, slope, curvature = link_terms(y[j] * f[j], link)
        tau[j] = curvature
        nu[j] = curvature * f[j] + y[j] * slope
        total += linear
        product *= factor
        if product > _FLUSH:
            total -= math.log(product)
            product = 1.0
    return total - math.log(product)


@njit(cache=True, error_model="numpy")
def fill_log_weights(deviations, tau, nu, mean, log_normalizer, y, link, first, out):
    """Log weights of mean + deviation and mean - deviation, row after row, into ``out[first:]``."""
    for i in range(deviations.shape[0]):
        for side in range(2):
            index = first + 2 * i + side
            if index >= out.shape[0]:
                break  # an odd number of draws leaves the last without its mirror image
            sign = 1.0 - 2.0 * side
            total, product = log_normalizer, 1.0
            for j in range(y.shape[0]):
                f = mean[j] + sign * deviations[i, j]
                linear, factor, _, _ = link_terms(y[j] * f, link)
                total += linear - f * (nu[j] - 0.5 * tau[j] * f)
                product *= factor
                if product > _FLUSH:
                    total -= math.log(product)
                    product = 1.0
            out[index] = total - math.log(product)


@njit(cache=True, error_model="numpy")
def _fill_b(covariance, root, out):
    """Lower triangle of B = I + T^1/2 K T^1/2."""
    n = root.shape[0]
    for j in range(n):  # slices from zero, so that LLVM vectorises the loop
        column, source, rows, scale = out[j:, j], covariance[j:, j], root[j:], root[j]
        for i in range(n - j):
            column[i] = rows[i] * source[i] * scale
        column[0] += 1.0


def _solve(covariance, tau, nu, workspace):
    """Return (a, mean = K a) of the sites' q, or None on failure; chol B into ``workspace``."""
    root = np.sqrt(tau)
    _fill_b(covariance, root, workspace)
    _, info = lapack.dpotrf(workspace, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        return None
    c = root * blas.dsymv(1.0, covariance, nu, lower=1)
    c = blas.dtrsv(workspace, c, lower=1, overwrite_x=1)
    c = blas.dtrsv(workspace, c, lower=1, trans=1, overwrite_x=1)
    a = nu - root * c
    return a, blas.dsymv(1.0, covariance, a, lower=1)


def laplace_sites(covariance, y, link, start, workspace, tolerance, max_newton):
    """Sites of Laplace's approximation, by Newton's method with step halving; None if a Cholesky failed.

    The sites of the expansion at f are tau = W(f), nu = W(f) f + grad log p(y | f), and the mean of their q is exactly
    the next Newton iterate. So the last of Newton's steps is taken for nothing by whoever builds q, and there is a q
    for every f: convergence buys variance, not correctness.

    Of ``covariance``, K in Fortran order, only the lower triangle is read; ``y`` is in {-1, 1}; ``link`` is ``LOGIT``
    or ``PROBIT``; ``workspace`` (n, n), in Fortran order, is overwritten. From ``start`` (n,) it goes on until
    psi(f) = log p(y | f) - f' K^-1 f / 2 changed by less than ``tolerance``: convergence is quadratic. ``max_newton``
    counts the builder's step, too; not to have converged after that is no failure.
    """
    tau, nu, next_tau, next_nu = np.empty((4, len(y)))
    f, dual, objective = start, None, -math.inf
    _expand(f, y, link, tau, nu)
    steps = 0
    while steps < max_newton - 1:
        steps += 1
        solution = _solve(covariance, tau, nu, workspace)
        if solution is None:
            return None
        next_dual, next_f = solution
        value = _expand(next_f, y, link, next_tau, next_nu) - 0.5 * float(next_dual @ next_f)
        halvings = 0 if dual is None else 10  # the start has no K^-1 f, so no objective to fall below
        while halvings and value < objective - tolerance:
            halvings, next_dual, next_f = halvings - 1, 0.5 * (next_dual + dual), 0.5 * (next_f + f)
            value = _expand(next_f, y, link, next_tau, next_nu) - 0.5 * float(next_dual @ next_f)
        change = abs(value - objective)
        f, dual, objective = next_f, next_dual, value
        tau, next_tau, nu, next_nu = next_tau, tau, next_nu, nu
        if not change >= tolerance:  # also where it is NaN
            break
    return Sites(tau, nu, steps)


@njit(cache=True, error_model="numpy")
def _logit_moments(y, mean, variance, nodes, weights):
    """Mean and variance of f under sigma(y f) N(f | mean, variance), by Gauss-Hermite."""
    sd = math.sqrt(variance)
    z0, z1, z2 = 0.0, 0.0, 0.0
    for k in range(nodes.shape[0]):
        t = y * (mean + sd * nodes[k])
        e = math.exp(-abs(t))
        w = weights[k] * (1.0 if t > 0.0 else e) / (1.0 + e)
        z0 += w
        z1 += w * nodes[k]
        z2 += w * nodes[k] * nodes[k]
    shift = z1 / z0
    return mean + sd * shift, variance * (z2 / z0 - shift * shift)


@njit(cache=True, error_model="numpy")
def _probit_moments(y, mean, variance):
    """The same under Phi(y f) N(f | mean, variance): Rasmussen & Williams, eq. 3.85, 3.87."""
    root = math.sqrt(1.0 + variance)
    z = y * mean / root
    _, ratio = _log_normal_cdf(z)
    shrinkage = ratio * (z + ratio) / (1.0 + variance)
    return mean + y * variance * ratio / root, variance - variance * variance * shrinkage


@njit(cache=True, error_model="numpy")
def _match_moments(inverse, mean, y, link, floor, damping, tau, nu, nodes, weights):
    """One parallel sweep over the sites, in place; return the largest mismatch of tilted and marginal moments.

    ``inverse`` is L_B^-1. With b_j = [B^-1]_jj, a squared column norm of it, the marginal variance of q is (1 - b_j) /
    tau_j and the cavity's (1 - b_j) / (tau_j b_j), positive whatever the sites.
    """
    mismatch = 0.0
    for j in range(y.shape[0]):
        column, b = inverse[j:, j], 0.0
        for i in range(column.shape[0]):
            b += column[i] * column[i]
        variance = (1.0 - b) / tau[j]
        cavity_variance = variance / b
        cavity_mean = (mean[j] / variance - nu[j]) * cavity_variance
        if link == LOGIT:
            new_mean, new_variance = _logit_moments(y[j], cavity_mean, cavity_variance, nodes, weights)
        else:
            new_mean, new_variance = _probit_moments(y[j], cavity_mean, cavity_variance)
        if not 0.0 < new_variance < math.inf or not abs(new_mean) < math.inf:
            continue  # beyond the quadrature: the site stays as it is, and any site will do
        mismatch = max(mismatch, abs(new_mean - mean[j]) / math.sqrt(variance))
        mismatch = max(mismatch, abs(new_variance / variance - 1.0))
        precision = max(1.0 / new_variance - 1.0 / cavity_variance, floor)
        tau[j] += damping * (precision - tau[j])
        nu[j] += damping * (new_mean / new_variance - cavity_mean / cavity_variance - nu[j])
    return mismatch


def ep_sites(covariance, y, link, start, workspace, tolerance, max_sweeps, damping=0.9):
    """Sites of parallel expectation propagation, from the sites ``start``, Laplace's; None if a Cholesky failed.

    The first three arguments and ``workspace`` are as of :func:`laplace_sites`. It stops when every tilted mean was
    within ``tolerance`` standard deviations of the marginal mean, and every tilted variance within that fraction of the
    marginal variance. ``damping`` is the fraction of a full update, below 1 because all sites move at once.
    """
    # 1 - b_j loses digits as tau_j -> 0; a floor on tau costs nothing, as any sites are allowed
    floor = 1e-8 / covariance[0, 0]
    tau, nu = np.maximum(start.tau, floor), start.nu.copy()
    sweeps = 0
    while sweeps < max_sweeps:
        sweeps += 1
        solution = _solve(covariance, tau, nu, workspace)
        if solution is None:
            return None
        _, info = lapack.dtrtri(workspace, lower=1, overwrite_c=1)
        if info != 0:
            return None
        mismatch = _match_moments(workspace, solution[1], y, link, floor, damping, tau, nu, _NODES, _WEIGHTS)
        if mismatch < tolerance:
            break
    return Sites(tau, nu, start.factorizations + sweeps)
