"""Three posteriors of the text books, whose truth is known although it has no closed form.

Moments of the first two come from a Student envelope about the mode. With proposal t = location + factor s, s a
multivariate t with ``df`` degrees of freedom, and w = p / q,

    E f = E_q[w f] / E_q[w],

over a Sobol sequence under independent random shifts: the spread between the shifts is the standard error.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.stats import qmc

from pymc_kameleon.datasets import load_lynx_hare
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import Target
from pymc_kameleon.targets.predator_prey import solve_logs

LogDensity = Callable[[np.ndarray], float]


class Envelope(NamedTuple):
    """A multivariate t distribution: location (d,), lower factor (d, d), degrees of freedom."""

    location: np.ndarray
    factor: np.ndarray
    df: float

    def log_density(self, s: np.ndarray) -> np.ndarray:
        """Log density at location + factor s, without its constant; ``s`` of shape (..., d)."""
        d = len(self.location)
        return -0.5 * (self.df + d) * np.log1p(np.square(s).sum(axis=-1) / self.df)

    def log_weight(self, log_density: LogDensity, s: np.ndarray) -> np.ndarray:
        """Log p / q at location + factor s, without its constant; ``s`` of shape (n, d)."""
        points = self.location + s @ self.factor.T
        return np.array([log_density(point) for point in points]) - self.log_density(s)


class Moments(NamedTuple):
    """Mean (d,), covariance (d, d), standard error of the mean (d,), effective draws per point."""

    mean: np.ndarray
    cov: np.ndarray
    mean_error: np.ndarray
    efficiency: float


def laplace(log_density: LogDensity, start: np.ndarray, df: float = 10.0, inflation: float = 1.1) -> Envelope:
    """Student envelope at the mode, with the inverse Hessian there times ``inflation`` squared."""
    d = len(start)

    def negative(x):
        return -log_density(x)

    mode = optimize.minimize(negative, start, method="BFGS", options={"gtol": 1e-3}).x
    step = 1e-3 * np.eye(d)  # the coordinates of both posteriors have scales of about 0.1
    hessian = np.empty((d, d))
    for i in range(d):
        for j in range(i + 1):
            a, b = step[i], step[j]
            rise = negative(mode + a + b) - negative(mode + a - b)
            fall = negative(mode - a + b) - negative(mode - a - b)
            hessian[i, j] = hessian[j, i] = (rise - fall) / (4 * 1e-6)
    return Envelope(mode, inflation * np.linalg.cholesky(np.linalg.inv(hessian)), df)


def importance_moments(
    log_density: LogDensity, envelope: Envelope, log2_points: int = 12, shifts: int = 16, seed: int = 0
) -> Moments:
    """Mean and covariance by self-normalised importance sampling: 2^``log2_points`` points of each of the shifts."""
    d = len(envelope.location)
    rng = np.random.default_rng(seed)
    sobol = qmc.Sobol(d + 1, scramble=False).random_base2(log2_points)
    s = np.concatenate([_student(np.mod(sobol + rng.random(d + 1), 1.0), envelope.df) for _ in range(shifts)])
    log_weight = envelope.log_weight(log_density, s)
    weight = np.exp(log_weight - log_weight.max())
    x = envelope.location + s @ envelope.factor.T
    mean = weight @ x / weight.sum()
    centred = x - mean
    cov = (centred * weight[:, None]).T @ centred / weight.sum()
    parts = zip(np.split(weight, shifts), np.split(x, shifts), strict=True)
    per_shift = np.array([w @ p / w.sum() for w, p in parts])
    error = per_shift.std(axis=0, ddof=1) / math.sqrt(shifts)
    return Moments(mean, cov, error, weight.sum() ** 2 / np.square(weight).sum() / len(weight))


def posterior_moments(log_density: LogDensity, start: np.ndarray) -> Moments:
    """Moments in two stages: about the mode, then about the mean and covariance that this finds."""
    pilot = importance_moments(log_density, laplace(log_density, start), log2_points=9)
    return importance_moments(log_density, Envelope(pilot.mean, np.linalg.cholesky(pilot.cov), 10.0))


def _student(u, df):
    """Map uniforms (n, d + 1) to a spherical multivariate t, (n, d)."""
    u = np.clip(u, 1e-12, 1 - 1e-12)
    return special.ndtri(u[:, :-1]) / np.sqrt(special.chdtri(df, u[:, -1:]) / df)


@njit(cache=True)
def _logistic(x, signed_design, prior_variance):
    t = signed_design @ x
    missed = np.log1p(np.exp(-np.abs(t))) + np.maximum(-t, 0.0)  # log(1 + exp(-t)) without overflow
    return -0.5 * np.square(x).sum() / prior_variance - missed.sum()


@dataclass(frozen=True)
class LogisticRegression(Target):
    """Bayesian logistic regression on synthetic data that the seed fixes.

    log p(x) = -sum_k log(1 + exp(-y_k a_k^T x)) - |x|^2 / (2 prior_sd^2), without the constant of the prior. The rows
    a_k are N(0, (I + 11^T) / 2) with an intercept, the coefficients behind the labels y_k = +-1 are N(0, 0.7^2).

    ``mean`` and ``cov`` are importance sampling over 65,536 points; the standard error of the mean is 0.002 standard
    deviations.
    """

    n: int = 300
    dim: int = 10
    prior_sd: float = 2.5
    seed: int = 1

    _kernel = staticmethod(_logistic)

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Design of shape (n, d), intercept first, and labels of -1 and 1, shape (n,)."""
        rng = np.random.default_rng(self.seed)
        common, own = rng.standard_normal((self.n, 1)), rng.standard_normal((self.n, self.dim))
        design = math.sqrt(0.5) * (common + own)
        design[:, 0] = 1.0
        coefficients = 0.7 * rng.standard_normal(self.dim)
        return design, np.where(rng.random(self.n) < special.expit(design @ coefficients), 1.0, -1.0)

    @cached_property
    def _parameters(self):
        design, labels = self.data
        return design * labels[:, None], float(self.prior_sd**2)

    @cached_property
    def _moments(self) -> Moments:
        return posterior_moments(self.log_density, np.zeros(self.dim))


@njit(cache=True)
def _eight_schools(x, effects, errors):
    mu, log_tau, theta = x[0], x[1], x[2:]
    if abs(log_tau) > 300.0:  # the square of tau overflows, and there is no mass
        return -np.inf
    tau = math.exp(log_tau)
    prior = -0.5 * (mu / 5.0) ** 2 - math.log1p((tau / 5.0) ** 2) + log_tau - effects.size * log_tau
    return prior - 0.5 * (np.square((effects - theta) / errors) + np.square((theta - mu) / tau)).sum()


class _TauGrid:
    """The marginal of log tau on a grid; the normal law of (mu, theta) given tau."""

    def __init__(self, effects, errors):
        self.effects, self.variances = effects, errors**2
        self.log_tau = np.linspace(-30.0, 12.0, 42001)
        mean, variance, tau2 = self.mu_given(self.log_tau)
        spread = self.variances + tau2[:, None]  # of y_j given mu, (grid, 8)
        log_p = self.log_tau - np.log1p(tau2 / 25.0) - 0.5 * np.log(spread).sum(axis=1) + 0.5 * np.log(variance)
        log_p = log_p + 0.5 * mean**2 / variance - 0.5 * (effects**2 / spread).sum(axis=1)
        p = np.exp(log_p - log_p.max())
        cells = 0.5 * (p[1:] + p[:-1])
        self.cdf = np.concatenate([[0.0], cells.cumsum()]) / cells.sum()
        self.weights = p / p.sum()

    def mu_given(self, log_tau):
        """Mean and variance of mu given tau and the data; and tau squared."""
        tau2 = np.exp(2.0 * log_tau)
        precisions = 1.0 / (self.variances + tau2[:, None])  # (grid, 8)
        variance = 1.0 / (1.0 / 25.0 + precisions.sum(axis=1))
        return variance * (precisions @ self.effects), variance, tau2

    def shrink(self, tau2):
        """Weight of y_j, against mu, in the mean of theta_j; shape (n, 8)."""
        return tau2[:, None] / (tau2[:, None] + self.variances)


@dataclass(frozen=True)
class EightSchools(Target):
    """Rubin's eight schools, centred: x = (mu, log tau, theta_1, ..., theta_8).

    mu ~ N(0, 5^2), tau ~ half-Cauchy(5), theta_j ~ N(mu, tau^2), y_j ~ N(theta_j, s_j^2), with the Jacobian tau of log
    tau. Log density without the constants of the normals and the half-Cauchy.

    Given tau everything is normal, and log tau is drawn by inverting its distribution function, tabulated at 42,001
    points and linear in between (error below 1e-6). Moments by the trapezoidal rule over log tau of the closed-form
    conditional moments.

    References
    ----------
    Rubin (1981), Estimation in parallel randomized experiments. Priors as in Gelman, Carlin, Stern, Dunson, Vehtari &
    Rubin (2013), Bayesian Data Analysis, section 5.7, and posteriordb's ``eight_schools_centered``.
    """

    _kernel = staticmethod(_eight_schools)
    dim = 10

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Estimated effects y_j and their standard errors s_j, each of shape (8,)."""
        effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
        return effects, np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    @property
    def _parameters(self):
        return self.data

    @property
    def initial_point(self):
        """All effects at 5, tau = e."""
        return np.array([5.0, 1.0] + [5.0] * 8)

    @cached_property
    def _grid(self):
        return _TauGrid(*self.data)

    def sample(self, rng, n):
        grid, z = self._grid, rng.standard_normal((n, self.dim))
        log_tau = np.interp(special.ndtr(z[:, 1]), grid.cdf, grid.log_tau)
        mean, variance, tau2 = grid.mu_given(log_tau)
        mu = mean + np.sqrt(variance) * z[:, 0]
        share = grid.shrink(tau2)
        theta = share * grid.effects + (1 - share) * mu[:, None]
        theta += np.sqrt(share * grid.variances) * z[:, 2:]
        return np.column_stack([mu, log_tau, theta])

    @cached_property
    def _moments(self):
        """Mean and covariance over tau: E cov(. | tau) + cov E(. | tau)."""
        grid = self._grid
        mean, variance, tau2 = grid.mu_given(grid.log_tau)
        share = grid.shrink(tau2)
        theta = share * grid.effects + (1 - share) * mean[:, None]
        means = np.column_stack([mean, grid.log_tau, theta])
        # on mu, (grid, 10)
        loading = np.column_stack([np.ones_like(mean), np.zeros_like(mean), 1 - share])
        overall = grid.weights @ means
        centred = means - overall
        cov = (centred * grid.weights[:, None]).T @ centred
        cov += (loading * (grid.weights * variance)[:, None]).T @ loading
        cov[np.arange(2, 10), np.arange(2, 10)] += grid.weights @ (share * grid.variances)
        return overall, cov


@njit(cache=True)
def _lotka_volterra(x, log_counts):
    alpha, beta, gamma, delta = math.exp(x[0]), math.exp(x[1]), math.exp(x[2]), math.exp(x[3])
    s = -0.5 * ((alpha - 1.0) / 0.5) ** 2 - 0.5 * ((gamma - 1.0) / 0.5) ** 2
    s -= 0.5 * ((beta - 0.05) / 0.05) ** 2 + 0.5 * ((delta - 0.05) / 0.05) ** 2
    s += x[0] + x[1] + x[2] + x[3]  # Jacobian of the logs; lognormal priors have theirs inside
    s -= 0.5 * (x[4] - math.log(10.0)) ** 2 + 0.5 * (x[5] - math.log(10.0)) ** 2
    s -= 0.5 * (x[6] + 1.0) ** 2 + 0.5 * (x[7] + 1.0) ** 2
    if not s > -1e8:  # so far out that solving could only overflow
        return -np.inf
    logs = solve_logs(alpha, beta, gamma, delta, x[4], x[5], log_counts.shape[0], 20)
    for j in range(2):
        precision = math.exp(-x[6 + j])
        for t in range(log_counts.shape[0]):
            e = (log_counts[t, j] - logs[t, j]) * precision
            s -= 0.5 * e * e + x[6 + j]
    return s if math.isfinite(s) else -np.inf


@dataclass(frozen=True)
class LotkaVolterra(Target):
    """Posterior of the lynx-hare data, in the logarithms of alpha, beta, gamma, delta, the
    initial populations and the sds of both species.

    Priors: alpha, gamma ~ N+(1, 0.5), beta, delta ~ N+(0.05, 0.05), initial populations ~ LogNormal(log 10, 1), sigmas
    ~ LogNormal(-1, 1). All 21 yearly counts, the first included, are lognormal about the solution. Log density with the
    Jacobian of the logarithms and without the constants of the normals, of their truncation and of the counts.

    ``mean`` and ``cov`` are importance sampling over 65,536 points; ``mean_error``, the standard error of the mean, is
    about 0.003 standard deviations. Of the other modes, among them a flat line in which chains started far away get
    stuck, the two found are lower by 15.6 and 40 in log density.

    References
    ----------
    Carpenter (2018), Predator-prey population dynamics: the Lotka-Volterra model in Stan.
    """

    _kernel = staticmethod(_lotka_volterra)
    dim = 8

    @cached_property
    def _parameters(self):
        """Log hares and lynxes, shape (21, 2)."""
        data = load_lynx_hare()
        return (np.log(np.column_stack([data.hare, data.lynx])),)

    @property
    def initial_point(self):
        """A point among the cycles, near the mode."""
        return np.array([-0.6, -3.6, -0.2, -3.7, 3.5, 1.8, -1.4, -1.4])

    @cached_property
    def _moments(self) -> Moments:
        return posterior_moments(self.log_density, self.initial_point)

    @property
    def mean_error(self) -> np.ndarray:
        """Standard error of ``mean``, shape (d,)."""
        return self._moments.mean_error
