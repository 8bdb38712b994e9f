"""The flower and the ring: mass along a closed curve around the origin.

With r and theta the polar coordinates of (x_1, x_2) and m(theta) = radius + amplitude cos(frequency theta),

    log p(x) = -(r - m(theta))^2 / (2 width^2) - (x_3^2 + ... + x_d^2) / 2.

This is a density with respect to x, so the polar coordinates carry the Jacobian r: neither is theta uniform nor r
Gaussian. (Sejdinovic et al. 2014, section 5, print the formula without the square.)
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from pymc_kameleon.numerics.checks import at_least, count, positive
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.targets.base import Target


@njit(cache=True)
def _flower(x, radius, amplitude, frequency, width):
    r, theta = math.sqrt(x[0] ** 2 + x[1] ** 2), math.atan2(x[1], x[0])
    e = (r - radius - amplitude * math.cos(frequency * theta)) / width
    return -0.5 * (e**2 + np.square(x[2:]).sum())


@dataclass(frozen=True)
class Flower(Target):
    """Petals in the first two coordinates, standard normal in the others.

    Log density without its constant. Mean and covariance by the trapezoidal rule over the angle (2048 points; the
    integrand is periodic, so that is exact to rounding) with closed-form radial moments.

    Parameters
    ----------
    radius : float
        Of the curve r = radius + amplitude cos(frequency theta), > 0.
    amplitude : float
        How far the petals go out and in from that radius, >= 0.
    frequency : int
        Number of petals, >= 1.
    width : float
        Standard deviation of the radial residual, > 0.
    dim : int
        At least 2; the paper's is 8.

    References
    ----------
    Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (2014), Kernel adaptive Metropolis-Hastings, section 5:
    F(10, 6, 6, 1).
    """

    radius: float = 10.0
    amplitude: float = 6.0
    frequency: int = 6
    width: float = 1.0
    dim: int = 8

    _kernel = staticmethod(_flower)

    def __post_init__(self):
        count(2, dim=self.dim)
        positive(radius=self.radius, width=self.width)
        at_least(0.0, amplitude=self.amplitude)
        count(1, frequency=self.frequency)

    def _symbolic(self, x):
        import pytensor.tensor as pt

        r = pt.sqrt(x[0] ** 2 + x[1] ** 2)
        curve = self.radius + self.amplitude * pt.cos(self.frequency * pt.arctan2(x[1], x[0]))
        return -0.5 * (((r - curve) / self.width) ** 2 + (x[2:] ** 2).sum())

    @property
    def initial_point(self):
        """The tip of the first petal: at the origin the gradient does not exist."""
        return np.eye(self.dim)[0] * (self.radius + self.amplitude)

    def _curve(self, theta):
        return self.radius + self.amplitude * np.cos(self.frequency * theta)

    def _radial_moments(self, m, order):
        """Integrals over r > 0 of r^k exp(-(r - m)^2 / (2 width^2)), k = 0, ..., order."""
        variance = self.width**2
        moments = [self.width * math.sqrt(2 * math.pi) * special.ndtr(m / self.width)]
        moments.append(m * moments[0] + variance * np.exp(-0.5 * m * m / variance))
        for k in range(1, order):  # by parts
            moments.append(m * moments[k] + k * variance * moments[k - 1])
        return moments

    def sample(self, rng, n):
        """Draw ``n`` exact points, shape (n, d): angle by rejection, radius given the angle."""
        # The angle's weight, the integral over r, increases with m, so its maximum is at the tips of the petals.
        most, theta = self._radial_moments(np.array(self.radius + self.amplitude), 1)[1], np.empty(0)
        while len(theta) < n:
            block = rng.uniform(-np.pi, np.pi, 2 * (n - len(theta)) + 100)
            kept = rng.uniform(0, most, len(block)) < self._radial_moments(self._curve(block), 1)[1]
            theta = np.concatenate([theta, block[kept]])
        theta = theta[:n]
        r = self._sample_radius(rng, self._curve(theta))
        return np.column_stack([r * np.cos(theta), r * np.sin(theta), rng.standard_normal((n, self.dim - 2))])

    def _sample_radius(self, rng, m):
        """Radii from p(r) proportional to r exp(-(r - m)^2 / (2 width^2)), r > 0.

        log r <= log t + (r - t) / t at the mode t of p makes N(t, width^2) an envelope, with acceptance probability (r
        / t) exp(1 - r / t): near 1 when the ring is thin.
        """
        mode = 0.5 * (m + np.sqrt(m * m + 4 * self.width**2))
        r = np.empty_like(m)
        todo = np.arange(len(m))
        while todo.size:
            t = mode[todo]
            candidate = t + self.width * rng.standard_normal(todo.size)
            ratio = candidate / t
            ok = (candidate > 0) & (rng.uniform(size=todo.size) < ratio * np.exp(1.0 - ratio))
            r[todo[ok]] = candidate[ok]
            todo = todo[~ok]
        return r

    @property
    def _moments(self):
        """From E[x_1], E[x_1^2] and E[x_2^2] (the others vanish by the symmetry theta -> -theta)."""
        theta = np.arange(2048) * (2 * np.pi / 2048)
        _, w1, w2, w3 = self._radial_moments(self._curve(theta), 3)  # r dr, and r^k on top of it
        cos, sin = np.cos(theta), np.sin(theta)
        m, s1, s2 = np.array([(w2 * cos).sum(), (w3 * cos**2).sum(), (w3 * sin**2).sum()]) / w1.sum()
        return np.eye(self.dim)[0] * m, np.diag([s1 - m * m, s2] + [1.0] * (self.dim - 2))

    def level(self, x):
        """Content of the highest-density region through each point: chi-square, d - 1 degrees.

        Integrating r over a region symmetric in the residual e = r - m leaves m, whatever the region, so that the
        content is that of N(0, I) in d - 1 dimensions. The part of e < -m that r > 0 cuts off disturbs this by less
        than width (phi(a) - a Phi(-a)) / radius with a = (radius - amplitude) / width: 7e-7 for the paper's flower.
        Below a = 4 the petals meet at the origin, and the content is not closed-form: ``NotImplementedError``.
        """
        if self.radius - self.amplitude < 4 * self.width:
            raise NotImplementedError(
                f"{self!r} has no closed-form regions: radius - amplitude must be at least 4 width."
            )
        x = np.asarray(x, dtype=float)
        e = (np.hypot(x[:, 0], x[:, 1]) - self._curve(np.arctan2(x[:, 1], x[:, 0]))) / self.width
        return special.chdtr(self.dim - 1, e * e + np.square(x[:, 2:]).sum(axis=1))


class Ring(Flower):
    """A flower without petals: r ~ r N(r; radius, width^2), the angle uniform.

    Parameters
    ----------
    radius, width : float
        > 0.
    dim : int
        At least 2.
    """

    def __init__(self, radius: float = 10.0, width: float = 1.0, dim: int = 8):
        super().__init__(radius=radius, amplitude=0.0, frequency=1, width=width, dim=dim)

    def __repr__(self):
        return f"Ring(radius={self.radius!r}, width={self.width!r}, dim={self.dim!r})"
