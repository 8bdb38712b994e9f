"""Two posteriors from the text books: logistic regression, and the eight schools."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import GaussianImage, Target, require_integer, require_positive
from pymc_kameleon.targets.importance import (
    Moments,
    laplace,
    posterior_moments,
    rejection_sample,
    weight_bound,
)


@njit(cache=True)
def _logistic(x, signed_design, prior_variance):
    s = 0.0
    for i in range(x.size):
        s -= 0.5 * x[i] * x[i] / prior_variance
    for row in range(signed_design.shape[0]):
        t = 0.0
        for i in range(x.size):
            t += signed_design[row, i] * x[i]
        s -= math.log1p(math.exp(-abs(t))) + max(-t, 0.0)  # log(1 + exp(-t)) without overflow
    return s


@dataclass(frozen=True)
class LogisticRegression(Target):
    """Bayesian logistic regression on synthetic data that the seed fixes.

    log p(x) = -sum_k log(1 + exp(-y_k a_k^T x)) - |x|^2 / (2 prior_sd^2), without the constant of
    the prior. The rows a_k are N(0, (I + 11^T) / 2) with an intercept, the coefficients behind the
    labels y_k = +-1 are N(0, 0.7^2).

    ``sample`` is rejection from a multivariate t with 10 degrees of freedom about the mode. Its
    constant was found by local ascent from many points, and every draw checks it. ``mean`` and
    ``cov`` are importance sampling over 65,536 points; the standard error of the mean is 0.002
    standard deviations. No region of exactly known content.

    Parameters
    ----------
    n : int
        Observations.
    dim : int
        Coefficients, the intercept included, at least 2.
    prior_sd : float
        > 0.
    seed : int
        Of the data.
    """

    n: int = 300
    dim: int = 10
    prior_sd: float = 2.5
    seed: int = 1

    _kernel = staticmethod(_logistic)

    def __post_init__(self):
        require_integer(2, dim=self.dim)
        require_integer(1, n=self.n)
        require_positive(prior_sd=self.prior_sd)

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Design of shape (n, d), intercept first, and labels of -1 and 1, shape (n,)."""
        rng = np.random.default_rng(self.seed)
        common, own = rng.standard_normal((self.n, 1)), rng.standard_normal((self.n, self.dim))
        design = math.sqrt(0.5) * (common + own)
        design[:, 0] = 1.0
        coefficients = 0.7 * rng.standard_normal(self.dim)
        return design, np.where(
            rng.random(self.n) < special.expit(design @ coefficients), 1.0, -1.0
        )

    @cached_property
    def _signed_design(self):
        design, labels = self.data
        return design * labels[:, None]

    @property
    def _parameters(self):
        return self._signed_design, float(self.prior_sd**2)

    def _symbolic(self, x):
        import pytensor.tensor as pt

        return (
            -pt.softplus(-(self._signed_design @ x)).sum() - 0.5 * (x**2).sum() / self.prior_sd**2
        )

    @cached_property
    def _envelope(self):
        return laplace(self.log_density, np.zeros(self.dim))

    @cached_property
    def _bound(self):
        return weight_bound(self.log_density, self._envelope)

    def sample(self, rng, n):  # noqa: D102
        return rejection_sample(rng, n, self.log_density, self._envelope, self._bound)

    @cached_property
    def _moments(self) -> Moments:
        return posterior_moments(self.log_density, np.zeros(self.dim))


@njit(cache=True)
def _eight_schools(x, effects, errors):
    mu, log_tau = x[0], x[1]
    if abs(log_tau) > 300.0:  # the square of tau overflows, and there is no mass
        return -np.inf
    tau = math.exp(log_tau)
    s = -0.5 * (mu / 5.0) ** 2 - math.log1p((tau / 5.0) ** 2) + log_tau
    for j in range(effects.size):
        theta = x[2 + j]
        s -= (
            0.5 * ((effects[j] - theta) / errors[j]) ** 2
            + 0.5 * ((theta - mu) / tau) ** 2
            + log_tau
        )
    return s


class _TauGrid:
    """The marginal of log tau on a grid; the normal law of (mu, theta) given tau."""

    def __init__(self, effects, errors):
        self.effects, self.variances = effects, errors**2
        self.log_tau = np.linspace(-30.0, 12.0, 42001)
        mean, variance, tau2 = self.mu_given(self.log_tau)
        spread = self.variances + tau2[:, None]  # of y_j given mu, (grid, 8)
        log_p = (
            self.log_tau
            - np.log1p(tau2 / 25.0)
            - 0.5 * np.log(spread).sum(axis=1)
            + 0.5 * np.log(variance)
            + 0.5 * mean**2 / variance
            - 0.5 * (effects**2 / spread).sum(axis=1)
        )
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
class EightSchools(GaussianImage):
    """Rubin's eight schools, centred: x = (mu, log tau, theta_1, ..., theta_8).

    mu ~ N(0, 5^2), tau ~ half-Cauchy(5), theta_j ~ N(mu, tau^2), y_j ~ N(theta_j, s_j^2), with the
    Jacobian tau of log tau. Log density without the constants of the normals and the half-Cauchy.

    Given tau everything is normal, and log tau is drawn by inverting its distribution function,
    tabulated at 42,001 points and linear in between (error below 1e-6). The regions are the images
    of centred balls under that construction. Moments by the trapezoidal rule over log tau of the
    closed-form conditional moments.

    References
    ----------
    Rubin (1981), Estimation in parallel randomized experiments. Priors as in Gelman,
    Carlin, Stern, Dunson, Vehtari & Rubin (2013), Bayesian Data Analysis, section 5.7, and
    posteriordb's ``eight_schools_centered``.
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

    def _symbolic(self, x):
        import pytensor.tensor as pt

        effects, errors = self.data
        mu, log_tau, theta = x[0], x[1], x[2:]
        prior = -0.5 * (mu / 5.0) ** 2 - pt.log1p((pt.exp(log_tau) / 5.0) ** 2) + log_tau
        groups = (
            -0.5 * ((theta - mu) / pt.exp(log_tau)) ** 2
            - log_tau
            - 0.5 * ((effects - theta) / errors) ** 2
        )
        return prior + groups.sum()

    @property
    def initial_point(self):
        """All effects at 5, tau = e."""
        return np.array([5.0, 1.0] + [5.0] * 8)

    @cached_property
    def _grid(self):
        return _TauGrid(*self.data)

    def from_normal(self, z):  # noqa: D102
        grid = self._grid
        log_tau = np.interp(special.ndtr(z[:, 1]), grid.cdf, grid.log_tau)
        mean, variance, tau2 = grid.mu_given(log_tau)
        mu = mean + np.sqrt(variance) * z[:, 0]
        share = grid.shrink(tau2)
        theta = (
            share * grid.effects
            + (1 - share) * mu[:, None]
            + np.sqrt(share * grid.variances) * z[:, 2:]
        )
        return np.column_stack([mu, log_tau, theta])

    def to_normal(self, x):  # noqa: D102
        grid = self._grid
        mu, log_tau, theta = x[:, 0], x[:, 1], x[:, 2:]
        mean, variance, tau2 = grid.mu_given(log_tau)
        share = grid.shrink(tau2)
        residual = theta - share * grid.effects - (1 - share) * mu[:, None]
        return np.column_stack(
            [
                (mu - mean) / np.sqrt(variance),
                special.ndtri(np.interp(log_tau, grid.log_tau, grid.cdf)),
                residual / np.sqrt(share * grid.variances),
            ]
        )

    @cached_property
    def _moments(self):
        """Mean and covariance over tau: E cov(. | tau) + cov E(. | tau)."""
        grid = self._grid
        mean, variance, tau2 = grid.mu_given(grid.log_tau)
        share = grid.shrink(tau2)
        means = np.column_stack(
            [mean, grid.log_tau, share * grid.effects + (1 - share) * mean[:, None]]
        )
        loading = np.column_stack(
            [np.ones_like(mean), np.zeros_like(mean), 1 - share]
        )  # on mu, (grid, 10)
        overall = grid.weights @ means
        centred = means - overall
        cov = (centred * grid.weights[:, None]).T @ centred
        cov += (loading * (grid.weights * variance)[:, None]).T @ loading
        cov[np.arange(2, 10), np.arange(2, 10)] += grid.weights @ (share * grid.variances)
        return overall, cov
