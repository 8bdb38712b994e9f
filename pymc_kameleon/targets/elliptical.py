"""Gaussian, Student and two Gaussians: no curvature, but scales, tails and modes."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from pymc_kameleon.numerics.checks import at_least, count, positive
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import GaussianImage, Target


@njit(cache=True)
def _gaussian(x, whitener):
    return -0.5 * np.square(whitener @ x).sum()


@dataclass(frozen=True)
class CorrelatedGaussian(GaussianImage):
    """N(0, Q diag(e) Q^T), Q a random rotation, the eigenvalues log-spaced about 1.

    They go from condition^(-1/2) to condition^(1/2). Log density without its constant.

    Parameters
    ----------
    condition : float
        Ratio of the largest to the smallest variance, >= 1.
    dim : int
        At least 2.
    seed : int
        Of the rotation.
    """

    condition: float = 1e4
    dim: int = 20
    seed: int = 1

    _kernel = staticmethod(_gaussian)

    def __post_init__(self):
        count(2, dim=self.dim)
        at_least(1.0, condition=self.condition)

    @cached_property
    def _eigen(self):
        """Eigenvalues (d,) and eigenvectors (d, d), in columns."""
        rotation, _ = np.linalg.qr(np.random.default_rng(self.seed).standard_normal((self.dim, self.dim)))
        half = 0.5 * math.log10(self.condition)
        return np.logspace(-half, half, self.dim), rotation

    @cached_property
    def _whitener(self):
        values, vectors = self._eigen
        return np.ascontiguousarray((vectors / np.sqrt(values)).T)

    @property
    def _parameters(self):
        return (self._whitener,)

    def from_normal(self, z):  # noqa: D102
        values, vectors = self._eigen
        return (z * np.sqrt(values)) @ vectors.T

    def to_normal(self, x):  # noqa: D102
        return x @ self._whitener.T

    @property
    def _moments(self):
        values, vectors = self._eigen
        return np.zeros(self.dim), (vectors * values) @ vectors.T


@njit(cache=True)
def _student(x, df):
    return -0.5 * (df + x.size) * np.log1p(np.square(x).sum() / df)


@dataclass(frozen=True)
class StudentT(Target):
    """The spherical multivariate t distribution: heavy tails in every direction at once.

    log p(x) = -(df + d) / 2 log(1 + |x|^2 / df), without its constant; |x|^2 / d ~ F(d, df).

    Parameters
    ----------
    df : float
        Degrees of freedom, > 0. The mean exists above 1, the covariance df / (df - 2) I above 2.
    dim : int
        At least 1.
    """

    df: float = 5.0
    dim: int = 10

    _kernel = staticmethod(_student)

    def __post_init__(self):
        count(1, dim=self.dim)
        positive(df=self.df)

    def sample(self, rng, n):  # noqa: D102
        scale = np.sqrt(rng.chisquare(self.df, (n, 1)) / self.df)
        return rng.standard_normal((n, self.dim)) / scale

    @property
    def mean(self):  # noqa: D102
        if self.df <= 1:
            raise ValueError(f"The mean of {self!r} does not exist: it needs df > 1.")
        return np.zeros(self.dim)

    @property
    def cov(self):  # noqa: D102
        if self.df <= 2:
            raise ValueError(f"The covariance of {self!r} is infinite: it needs df > 2.")
        return np.eye(self.dim) * self.df / (self.df - 2)

    def level(self, x):  # noqa: D102
        return special.fdtr(self.dim, self.df, np.square(x).sum(axis=1) / self.dim)


@njit(cache=True)
def _bimodal(x, separation):
    a = separation * np.abs(x[0])
    return -0.5 * np.square(x).sum() + a + np.log1p(np.exp(-2.0 * a))


@dataclass(frozen=True)
class Bimodal(Target):
    """Two equal, unit Gaussians at plus and minus ``separation`` on the first axis.

    log p(x) = -|x|^2 / 2 + log(2 cosh(separation x_1)), without its constant.

    Parameters
    ----------
    separation : float
        Half the distance between the modes, in their standard deviations, > 0.
    dim : int
        At least 2.
    """

    separation: float = 4.0
    dim: int = 2

    _kernel = staticmethod(_bimodal)

    def __post_init__(self):
        count(2, dim=self.dim)
        positive(separation=self.separation)

    @property
    def initial_point(self):
        """One of the modes."""
        return np.eye(self.dim)[0] * self.separation

    def sample(self, rng, n):  # noqa: D102
        x = rng.standard_normal((n, self.dim))
        x[:, 0] += self.separation * rng.choice([-1.0, 1.0], n)
        return x

    @property
    def _moments(self):
        return np.zeros(self.dim), np.diag([1.0 + self.separation**2] + [1.0] * (self.dim - 1))

    def _first(self, t):
        """Log density of the first coordinate, without its constant."""
        return np.logaddexp(self.separation * t, -self.separation * t) - 0.5 * t * t

    @cached_property
    def _contents(self):
        """Table of minus log density and the content of its highest-density region, increasing.

        Given x_1 the other coordinates add a chi-square with d - 1 degrees of freedom to the drop of log density, so
        the content is a one-dimensional integral over x_1 (trapezoidal rule).
        """
        t = np.linspace(0.0, self.separation + 9.0, 4001)  # by symmetry one half is enough
        log_first = self._first(t)
        weight = np.exp(log_first - log_first.max())
        weight[0] *= 0.5
        weight /= weight.sum()
        drop = np.linspace(0.0, math.sqrt(2 * (45.0 + self.dim)), 801) ** 2 / 2  # dense near the modes
        threshold = log_first.max() - drop
        room = np.maximum(log_first[None, :] - threshold[:, None], 0.0)  # (levels, grid of x_1)
        return -threshold, special.chdtr(self.dim - 1, 2 * room) @ weight

    def level(self, x):
        """Content of the highest-density region through each point.

        Tabulated once by quadrature; error below 3e-5.
        """
        x = np.asarray(x, dtype=float)
        log_density = self._first(x[:, 0]) - 0.5 * np.square(x[:, 1:]).sum(axis=1)
        return np.interp(-log_density, *self._contents)
