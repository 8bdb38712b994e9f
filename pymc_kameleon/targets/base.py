"""What every target offers, and the two ways a target can be made from something simpler.

A target is a log density with a known truth. The truth is what samplers are judged by: independent draws, moments, and
regions of exactly known probability.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import special

from pymc_kameleon.numerics.compiled import njit


class Target:
    """A log density on R^d together with what is known about it.

    A subclass is a frozen dataclass with a ``dim`` (field or property) that provides ``_kernel`` (a static, compiled
    ``(x, *_parameters) -> float``, of functions that take numbers and PyTensor's variables alike), ``_parameters``, and
    whatever of ``sample``, ``_moments`` (mean and covariance) and ``level`` is known; the rest raises
    ``NotImplementedError``.
    """

    dim: int
    _kernel: ClassVar[Any]

    @property
    def _parameters(self) -> tuple:
        """What the kernel takes besides x: all fields but ``dim``, unless a subclass says otherwise."""
        return tuple(float(getattr(self, f.name)) for f in fields(self) if f.name != "dim")  # type: ignore[arg-type]

    def _symbolic(self, x):
        """The log density as a PyTensor expression of the (d,) vector ``x``: the kernel's formula."""
        return self._kernel.py_func(x, *self._parameters)

    def log_density(self, x: np.ndarray) -> float:
        """Unnormalised log density at one point, of shape (d,)."""
        x = np.asarray(x, dtype=np.float64)
        if x.shape != (self.dim,):
            raise ValueError(f"{self!r} takes a point of shape ({self.dim},), got {x.shape}; one point at a time.")
        return self._kernel(x, *self._parameters)

    @cached_property
    def numba_log_density(self):
        """The log density as a compiled function ``(x) -> float``, for Numba code to call."""
        kernel, parameters = self._kernel, self._parameters

        @njit()
        def log_density(x):
            return kernel(x, *parameters)

        return log_density

    def pymc_model(self):
        """Return a PyMC model whose only variable ``x``, of shape (d,), has this density.

        ``x`` is flat and unconstrained, and the density is a differentiable ``Potential``, so the space the step
        methods see is that of ``log_density`` itself and NUTS works as well. Starts at ``initial_point``.
        """
        import pymc as pm

        with pm.Model() as model:
            x = pm.Flat("x", shape=self.dim, initval=self.initial_point)
            pm.Potential("log_density", self._symbolic(x))
        return model

    @property
    def initial_point(self) -> np.ndarray:
        """A point of shape (d,) with finite log density and gradient. It is fixed, not a draw."""
        return np.zeros(self.dim)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw ``n`` exact, independent points, shape (n, d)."""
        raise NotImplementedError(f"{self!r} has no exact sampler.")

    @property
    def _moments(self) -> tuple[np.ndarray, ...]:
        raise NotImplementedError(f"The mean and covariance of {self!r} are not known.")

    @property
    def mean(self) -> np.ndarray:
        """True mean, shape (d,)."""
        return self._moments[0]

    @property
    def cov(self) -> np.ndarray:
        """True covariance, shape (d, d)."""
        return self._moments[1]

    def level(self, x: np.ndarray) -> np.ndarray:
        """Probability of the smallest of a family of nested regions that contains each point of ``x`` (n, d): (n,).

        Uniform on (0, 1) under the target, so that the share of draws with ``level <= q`` is q.
        """
        raise NotImplementedError(f"{self!r} has no regions of exactly known probability.")


class GaussianImage(Target):
    """The image of N(0, I) under an invertible map; the regions are the images of centred balls.

    A subclass gives ``from_normal`` and its inverse ``to_normal``. Where the map preserves volume (bananas, linear
    maps) these regions are the highest-density regions; where it does not (funnel, eight schools) they are other nested
    regions, of equally exact probability.
    """

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        """Map standard normal points to the target, (n, d) to (n, d)."""
        raise NotImplementedError

    def to_normal(self, x: np.ndarray) -> np.ndarray:
        """Map the target to N(0, I), (n, d) to (n, d)."""
        raise NotImplementedError

    def sample(self, rng, n):  # noqa: D102
        return self.from_normal(rng.standard_normal((n, self.dim)))

    def level(self, x):  # noqa: D102
        z = self.to_normal(np.asarray(x, dtype=float))
        return special.chdtr(self.dim, np.square(z).sum(axis=1))


@dataclass(frozen=True)
class Rescaled(Target):
    """Another target with its coordinates in other units: x = units * y, with y from ``base``.

    Log density: that of ``base`` at x / units (the constant Jacobian is left out). A sampler that learns its scales
    mixes on both equally.

    Parameters
    ----------
    base : Target
    units : tuple of d positive floats
    """

    base: Target
    units: tuple[float, ...]
    dim: int = field(init=False, repr=False)

    def __post_init__(self):
        units = np.asarray(self.units, dtype=float)
        if units.shape != (self.base.dim,) or not np.all(np.isfinite(units) & (units > 0)):
            raise ValueError(f"units must be {self.base.dim} positive numbers, got {self.units!r}.")
        object.__setattr__(self, "units", tuple(units.tolist()))  # frozen: no other way
        object.__setattr__(self, "dim", self.base.dim)

    @cached_property
    def _units(self):
        return np.array(self.units)

    def log_density(self, x):  # noqa: D102
        return self.base.log_density(np.asarray(x, dtype=float) / self._units)

    @cached_property
    def numba_log_density(self):
        """The log density as a compiled function ``(x) -> float``, for Numba code to call."""
        inner, units = self.base.numba_log_density, self._units

        @njit()
        def log_density(x):
            return inner(x / units)

        return log_density

    def _symbolic(self, x):
        return self.base._symbolic(x / self._units)

    @property
    def initial_point(self):  # noqa: D102
        return self.base.initial_point * self._units

    def sample(self, rng, n):  # noqa: D102
        return self.base.sample(rng, n) * self._units

    @property
    def _moments(self):
        return self.base.mean * self._units, self.base.cov * np.outer(self._units, self._units)

    def level(self, x):  # noqa: D102
        return self.base.level(np.asarray(x, dtype=float) / self._units)
