"""Approximate Bayesian computation on a skew normal simulator, with the exact ABC posterior.

An observation is skew normal about theta in R^d (Azzalini & Dalla Valle, 1996),

    p(y | theta) = 2 N(y; theta, I) Phi(alpha^T (y - theta)),   alpha = skewness (1, ..., 1),

a data set is n_observations of them, its summary s their mean. ABC replaces the likelihood of the observed summary s*
by E[N(s*; s, epsilon^2 I) | theta], estimated without bias by an average over simulated data sets. Here that
expectation is known, so that samplers of the noisy posterior can be judged by the truth.

From Strathmann et al. (2015), section 6: the 10-dimensional skew normal, alpha and the true theta of ten in every
coordinate. From their public experiments: data sets of ten observations, their mean as the summary, the Gaussian ABC
kernel, ten data sets an estimate, the prior N(0, 5^2 I).

Differs from the paper: it prints Phi(alpha^T y), which integrates to one half only where
alpha^T theta = 0; the skew normal has y - theta. Chosen here: epsilon = 0.6, which the stored
experiments do not settle (their random walk of step 0.55 accepted a quarter of its proposals, as
one would on a posterior of this width); the observed data, which are drawn with ``seed``.

References
----------
A. Azzalini, A. Dalla Valle (1996). The multivariate skew-normal distribution. Biometrika 83.
H. Strathmann, D. Sejdinovic, S. Livingstone, Z. Szabo, A. Gretton (2015). Gradient-free Hamiltonian Monte Carlo with
efficient kernel exponential families. NIPS.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, special

from pymc_kameleon.numerics.checks import at_least, count, positive
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import GaussianImage

NODES = 60  # of the Gauss rule: the log density's error is below 1e-9 for epsilon >= 0.3


def _simulate(theta, u, delta):
    """Summaries of data sets, shape (S, d), from standard normals ``u`` of shape (S, N, d + 1).

    y = theta + (delta |u_0| + sqrt(1 - delta^2) e) a + (the part of u orthogonal to a), with a the unit vector of ones
    and e the part of u along it (Azzalini & Dalla Valle, 1996, eq. 2.5).
    """
    half, rest, root = np.abs(u[:, :, 0]).mean(axis=1), u[:, :, 1:].mean(axis=1), math.sqrt(len(theta))
    along = rest.sum(axis=1) / root
    return theta + rest + (delta * half + (math.sqrt(1.0 - delta**2) - 1.0) * along)[:, None] / root


@njit(cache=True)
def _log_posterior(x, observed, prior_variance, variance, offsets, log_weights, variance_along):
    """The ABC log posterior: along the unit vector of ones a mixture, across it a normal."""
    residual = observed - x
    r = residual.sum() / np.sqrt(observed.size)
    terms = log_weights - 0.5 * (r - offsets) ** 2 / variance_along
    largest = terms.max()
    quadratic = np.square(x).sum() / prior_variance + (np.square(residual).sum() - r**2) / variance
    return -0.5 * quadratic + largest + np.log(np.exp(terms - largest).sum())


class ABCLikelihood:
    """Estimate of the ABC likelihood by simulation: ``likelihood(rng, theta)``, the log estimate.

    The estimate, not its logarithm, is unbiased for exp(log density - log prior) of the target, up to the constant (2
    pi epsilon^2)^(d/2). What :class:`pymc_kameleon.NoisyLogLikelihood` takes.
    """

    def __init__(self, target, n_datasets=10):
        count(1, n_datasets=n_datasets)
        self.target, self.simulations = target, 0  # data sets simulated so far
        # of the standard normals ``u`` behind an estimate, which is of ``n_datasets``
        self.auxiliary_shape = (int(n_datasets), target.n_observations, target.dim + 1)

    def __call__(self, rng: np.random.Generator, theta: np.ndarray) -> float:
        """Log of an unbiased estimate of the ABC likelihood, with its noise from ``rng``."""
        return self.given(rng.standard_normal(self.auxiliary_shape), theta)

    def given(self, u: np.ndarray, theta: np.ndarray) -> float:
        """The log estimate as a function of its standard normals, for a sampler that owns them."""
        distance = self.simulate(u, theta) - self.target.observed
        exponents = -0.5 * np.square(distance).sum(axis=1) / self.target.epsilon**2
        largest = exponents.max()
        return float(largest + np.log(np.exp(exponents - largest).mean()))

    def simulate(self, u: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Summaries, shape (S, d), of the data sets that ``u``, shape (S, n_observations, d + 1), gives at theta."""
        self.simulations += len(u)
        return _simulate(np.asarray(theta, dtype=float), u, self.target.delta)


@dataclass(frozen=True)
class SkewNormalABC(GaussianImage):
    """ABC posterior of a skew normal's location; see the module for the model.

    Log density, without constants: that of the prior plus that of the exact ABC likelihood. Along the unit vector of
    ones, a, the mean of n half normals is replaced by its Gauss rule of 60 nodes; everything else is closed form. So
    the posterior is a mixture of normals along a, a normal across it, and draws, moments and regions are those of that
    mixture. :meth:`likelihood` is the noisy estimate of it.

    Parameters
    ----------
    dim : int
    skewness : float
        Of every coordinate of alpha, >= 0.
    n_observations : int
        In a data set.
    epsilon : float
        Standard deviation of the ABC kernel, at least 0.3.
    prior_sd : float
    location : float
        Of every coordinate of the theta that the observed data were drawn with.
    seed : int
        Of the observed data.
    """

    dim: int = 10
    skewness: float = 10.0
    n_observations: int = 10
    epsilon: float = 0.6
    prior_sd: float = 5.0
    location: float = 10.0
    seed: int = 0

    _kernel = staticmethod(_log_posterior)

    def __post_init__(self):
        count(1, dim=self.dim, n_observations=self.n_observations)
        positive(prior_sd=self.prior_sd)
        at_least(0.0, skewness=self.skewness)
        at_least(0.3, epsilon=self.epsilon)  # the rule has too few nodes for a narrower kernel

    @property
    def delta(self) -> float:
        """Weight of the half normal along a: |alpha| / sqrt(1 + |alpha|^2)."""
        norm = self.skewness * math.sqrt(self.dim)
        return norm / math.sqrt(1.0 + norm * norm)

    @cached_property
    def observed(self) -> np.ndarray:
        """The observed summary, shape (d,)."""
        u = np.random.default_rng(self.seed).standard_normal((1, self.n_observations, self.dim + 1))
        return _simulate(np.full(self.dim, float(self.location)), u, self.delta)[0]

    def likelihood(self, n_datasets: int = 10) -> ABCLikelihood:
        """A new estimator, which counts its simulations."""
        return ABCLikelihood(self, n_datasets)

    @property
    def _variances(self):
        """Of the summary about theta plus kernel: across a, and along it beside the half normals."""
        across = 1.0 / self.n_observations + self.epsilon**2
        return across, across - self.delta**2 / self.n_observations

    @cached_property
    def _parameters(self):
        nodes, weights = mean_of_half_normals(self.n_observations, NODES)  # of the half normals' part
        across, along = self._variances
        return self.observed, float(self.prior_sd**2), across, self.delta * nodes, np.log(weights), along

    def noisy_pymc_model(self, likelihood: ABCLikelihood | None = None, *, given: bool = False):
        """Return the PyMC model in which a simulator stands for the likelihood.

        x ~ N(0, prior_sd^2 I), of shape (d,), and a Potential with the log of an unbiased estimate; give ``likelihood``
        to read its count of simulations. With ``given`` the standard normals behind an estimate are handed over, so
        that a step may correlate those of successive draws (``correlation=``).
        """
        import pymc as pm

        from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood

        likelihood = self.likelihood() if likelihood is None else likelihood
        with pm.Model() as model:
            x = pm.Normal("x", 0.0, self.prior_sd, shape=self.dim, initval=self.initial_point)
            arguments = (likelihood.given, likelihood.auxiliary_shape) if given else (likelihood,)
            pm.Potential("likelihood", NoisyLogLikelihood(*arguments)(x))
        return model

    @property
    def initial_point(self) -> np.ndarray:
        """The observed summary."""
        return self.observed.copy()

    @cached_property
    def _along(self):
        """Posterior of a^T x: means and weights of the mixture's components, their variance."""
        observed, prior, _, offsets, log_weights, along = self._parameters
        centres = observed.sum() / math.sqrt(self.dim) - offsets
        log_w = log_weights - 0.5 * centres**2 / (prior + along)
        w = np.exp(log_w - log_w.max())
        return centres * prior / (prior + along), w / w.sum(), prior * along / (prior + along)

    @cached_property
    def _moments(self):
        _, prior, across, *_ = self._parameters
        means, weights, variance = self._along
        mean = weights @ means
        spread = variance + weights @ (means - mean) ** 2
        ones = np.full(self.dim, 1.0 / math.sqrt(self.dim))
        rest = self.observed - ones * (ones @ self.observed)
        shrink = prior / (prior + across)
        projection = np.outer(ones, ones)
        return (shrink * rest + mean * ones, shrink * across * (np.eye(self.dim) - projection) + spread * projection)

    @cached_property
    def _frame(self):
        """Orthogonal matrix whose first column is a, shape (d, d)."""
        basis = np.eye(self.dim)
        basis[:, 0] = 1.0 / math.sqrt(self.dim)
        q, r = np.linalg.qr(basis)
        return q * np.sign(np.diag(r))

    @cached_property
    def _table(self):
        """A grid over the posterior of a^T x and, at its points, the normal scores of its cdf."""
        means, weights, variance = self._along
        middle, sd = self.mean.sum() / math.sqrt(self.dim), math.sqrt(variance + np.ptp(means) ** 2)
        grid = np.linspace(middle - 9.0 * sd, middle + 9.0 * sd, 40_001)
        z = (grid[:, None] - means) / math.sqrt(variance)
        # from both tails: 1 - cdf has no digits left in the upper one
        lower, upper = special.ndtr(z) @ weights, special.ndtr(-z) @ weights
        score = np.where(lower < 0.5, special.ndtri(lower), -special.ndtri(upper))
        inside = np.abs(score) < 8.0
        return grid[inside], score[inside]

    def from_normal(self, z):  # noqa: D102
        grid, score = self._table
        _, prior, across, *_ = self._parameters
        y = math.sqrt(prior * across / (prior + across)) * z + self.mean @ self._frame
        y[:, 0] = np.interp(z[:, 0], score, grid)
        return y @ self._frame.T

    def to_normal(self, x):  # noqa: D102
        grid, score = self._table
        _, prior, across, *_ = self._parameters
        y = x @ self._frame
        z = (y - self.mean @ self._frame) / math.sqrt(prior * across / (prior + across))
        z[:, 0] = np.interp(y[:, 0], grid, score)
        return z


def mean_of_half_normals(n: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of the mean of ``n`` independent half normals |N(0, 1)|: at most ``nodes`` nodes, weights.

    The moments of a sum up to an order follow from its parts' moments up to that order, so that the rule of a sum is
    the rule of the sums of all pairs of nodes, compressed.
    """

    def add(a, b):
        return _gauss_rule(np.add.outer(a[0], b[0]).ravel(), np.outer(a[1], b[1]).ravel(), nodes)

    x, w = np.polynomial.legendre.leggauss(400)
    x = 7.0 * (x + 1.0)  # up to 14 standard deviations
    doubled, total = _gauss_rule(x, w * np.exp(-0.5 * x * x), nodes), None
    for bit in reversed(f"{n:b}"):  # by doubling
        if bit == "1":
            total = doubled if total is None else add(total, doubled)
        doubled = add(doubled, doubled)
    return total[0] / n, total[1]


def _gauss_rule(points, weights, nodes):
    """Compress a discrete measure by Lanczos (Golub & Welsch, 1969); negligible nodes are left out."""
    basis = np.zeros((nodes, len(points)))
    diagonal, beside = np.zeros(nodes), np.zeros(nodes)
    v = np.sqrt(weights / weights.sum())
    for k in range(nodes):
        basis[k] = v
        v = points * basis[k]
        diagonal[k] = v @ basis[k]
        for _ in range(2):  # once leaves digits behind
            v = v - basis[: k + 1].T @ (basis[: k + 1] @ v)
        beside[k] = np.linalg.norm(v)
        v = v / beside[k]
    x, vectors = linalg.eigh_tridiagonal(diagonal, beside[:-1])
    kept = vectors[0] ** 2 > 1e-25
    return x[kept], vectors[0, kept] ** 2
