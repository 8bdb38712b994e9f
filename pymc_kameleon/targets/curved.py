"""Bananas and the funnel: Gaussians bent by a map that is known in closed form."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_kameleon.numerics.checks import count, positive
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import GaussianImage, Rescaled


@njit(cache=True)
def _banana(x, b, v):
    bend = x[1] - b * (x[0] ** 2 - v)
    return -0.5 * (x[0] ** 2 / v + bend**2 + np.square(x[2:]).sum())


@dataclass(frozen=True)
class Banana(GaussianImage):
    """The banana B(b, v), a Gaussian bent upwards in its second coordinate.

    x = (y_1, y_2 + b (y_1^2 - v), y_3, ..., y_d) with y ~ N(0, diag(v, 1, ..., 1)).

    Log density without the constant -(d log(2 pi) + log v) / 2. The level sets are the twisted ellipsoids, with
    chi-square contents. The mean is zero and the covariance diag(v, 1 + 2 b^2 v^2, 1, ..., 1).

    Parameters
    ----------
    b : float
        Bend; the paper's moderate banana has 0.03, the strong one 0.1.
    v : float
        Variance of the first coordinate, > 0.
    dim : int
        At least 2; the paper's is 8.

    References
    ----------
    Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (2014), Kernel adaptive Metropolis-Hastings, section 5.
    """

    b: float = 0.03
    v: float = 100.0
    dim: int = 8

    _kernel = staticmethod(_banana)

    def __post_init__(self):
        count(2, dim=self.dim)
        positive(v=self.v)
        if not math.isfinite(self.b):
            raise ValueError(f"b must be a finite number, got {self.b!r}.")

    def from_normal(self, z):  # noqa: D102
        x = np.array(z, dtype=float)
        x[:, 0] *= math.sqrt(self.v)
        x[:, 1] += self.b * (x[:, 0] ** 2 - self.v)
        return x

    def to_normal(self, x):  # noqa: D102
        z = np.array(x, dtype=float)
        z[:, 1] -= self.b * (z[:, 0] ** 2 - self.v)
        z[:, 0] /= math.sqrt(self.v)
        return z

    @property
    def _moments(self):
        return np.zeros(self.dim), np.diag([self.v, 1.0 + 2.0 * (self.b * self.v) ** 2] + [1.0] * (self.dim - 2))


def odd_units_banana(b: float = 0.03, v: float = 100.0) -> Rescaled:
    """Return the 8-d banana B(b, v) in units between a thousandth and a thousand."""
    return Rescaled(Banana(b, v, 8), tuple(10.0**p for p in (-3, 2, 0, 3, -2, -1, 1, -3)))


@njit(cache=True)
def _twisted(x, b, v, axis):
    twist = b * (x[0] ** 2 - v)
    along = (axis * x).sum() + axis[1] * twist
    squares = x[0] ** 2 + (x[1] + twist) ** 2 + np.square(x[2:]).sum()
    return -0.5 * (squares - (1.0 - 1.0 / v) * along**2)


@dataclass(frozen=True)
class TwistedGaussian(GaussianImage):
    """The test distributions pi_1 to pi_4 of Haario, Saksman & Tamminen.

    The density at x is that of N(0, C) at phi_b(x) = (x_1, x_2 + b x_1^2 - 100 b, x_3, ..., x_d), where C has variance
    100 along one axis and 1 across it:

    - pi_1, uncorrelated Gaussian: b = 0, the axis is the first coordinate;
    - pi_2, correlated Gaussian: b = 0, the axis is (1, ..., 1) / sqrt(d);
    - pi_3, moderately twisted: b = 0.03, first coordinate;
    - pi_4, strongly twisted: b = 0.1, first coordinate.

    pi_3 and pi_4 are the bananas B(0.03, 100) and B(0.1, 100) upside down. Log density without its constant.

    Parameters
    ----------
    number : {1, 2, 3, 4}
        Which of the four.
    dim : int
        At least 2.

    References
    ----------
    Haario, Saksman & Tamminen (1999), Adaptive proposal distribution for random walk Metropolis algorithm,
    Computational Statistics 14.
    Haario, Saksman & Tamminen (2001), An adaptive Metropolis algorithm, Bernoulli 7.
    """

    number: int
    dim: int = 8

    _kernel = staticmethod(_twisted)
    v = 100.0

    def __post_init__(self):
        count(2, dim=self.dim)
        if self.number not in (1, 2, 3, 4):
            raise ValueError(f"number must be 1, 2, 3 or 4 (pi_1 to pi_4), got {self.number!r}.")

    @property
    def b(self) -> float:
        """The nonlinearity parameter."""
        return {3: 0.03, 4: 0.1}.get(self.number, 0.0)

    @cached_property
    def axis(self) -> np.ndarray:
        """Unit vector of the long axis before twisting, shape (d,)."""
        return np.full(self.dim, self.dim**-0.5) if self.number == 2 else np.eye(self.dim)[0]

    @property
    def _parameters(self):
        return self.b, self.v, self.axis

    def _stretch(self, z, factor):
        """Multiply the component along the axis by ``factor``."""
        return z + (factor - 1.0) * np.outer(z @ self.axis, self.axis)

    def from_normal(self, z):  # noqa: D102
        x = self._stretch(z, math.sqrt(self.v))
        x[:, 1] -= self.b * (x[:, 0] ** 2 - self.v)
        return x

    def to_normal(self, x):  # noqa: D102
        y = np.array(x, dtype=float)
        y[:, 1] += self.b * (y[:, 0] ** 2 - self.v)
        return self._stretch(y, 1.0 / math.sqrt(self.v))

    @property
    def _moments(self):
        cov = np.eye(self.dim) + (self.v - 1.0) * np.outer(self.axis, self.axis)
        cov[1, 1] += 2.0 * (self.b * self.v) ** 2
        return np.zeros(self.dim), cov


@njit(cache=True)
def _funnel(x, scale):
    scaled = x[1:] * np.exp(-0.5 * x[0])
    return -0.5 * ((x[0] / scale) ** 2 + np.square(scaled).sum() + (x.size - 1) * x[0])


@dataclass(frozen=True)
class Funnel(GaussianImage):
    """Neal's funnel: x_1 ~ N(0, scale^2), x_i | x_1 ~ N(0, exp(x_1)) for i > 1.

    Log density without its constant. The regions are the images of centred balls, not highest-density regions.

    Parameters
    ----------
    scale : float
        Standard deviation of the log variance, > 0; Neal's is 3.
    dim : int
        At least 2; Neal's is 10.

    References
    ----------
    Neal (2003), Slice sampling, Annals of Statistics 31, section 8.
    """

    scale: float = 3.0
    dim: int = 5

    _kernel = staticmethod(_funnel)

    def __post_init__(self):
        count(2, dim=self.dim)
        positive(scale=self.scale)

    def from_normal(self, z):  # noqa: D102
        v = self.scale * z[:, :1]
        return np.hstack([v, z[:, 1:] * np.exp(0.5 * v)])

    def to_normal(self, x):  # noqa: D102
        return np.hstack([x[:, :1] / self.scale, x[:, 1:] * np.exp(-0.5 * x[:, :1])])

    @property
    def _moments(self):
        return np.zeros(self.dim), np.diag([self.scale**2] + [math.exp(0.5 * self.scale**2)] * (self.dim - 1))
