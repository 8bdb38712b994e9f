"""Kernels: value, gradient and spectral sampler, at unit lengthscale.

One parametrisation everywhere: a kernel with lengthscale l is k(x / l, z / l). For the Gaussian that is exp(-|x -
z|^2 / (2 l^2)). (The papers write sigma for l, for 2 l^2 and for 1 / (2 l^2).) A gradient with respect to x is
therefore ``kernel.gradient(x / l, z / l) / l`` and a frequency ``kernel.frequencies(...) / l``.
"""

import math
from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import scipy


@runtime_checkable
class Kernel(Protocol):
    """What a kernel is: subclass nothing, provide a ``name`` and these three.

    Methods
    -------
    value(x, z)
        k(x, z_i): ``x`` of shape (d,), ``z`` of shape (n, d), result of shape (n,).
    gradient(x, z)
        d k(x, z_i) / d x, shape (n, d).
    frequencies(rng, size, dim)
        Draws from the kernel's spectral density, shape (size, dim). Only random features need it; a
        kernel that is not shift-invariant raises ``NotImplementedError``.
    """

    name: str

    def value(self, x: np.ndarray, z: np.ndarray) -> np.ndarray: ...  # noqa: D102

    def gradient(self, x: np.ndarray, z: np.ndarray) -> np.ndarray: ...  # noqa: D102

    def frequencies(self, rng: np.random.Generator, size: int, dim: int) -> np.ndarray: ...  # noqa: D102


class _Valued:
    """Equal where type and numbers are."""

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash((type(self), *vars(self).values()))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v:g}' for k, v in vars(self).items())})"


class RadialKernel(_Valued):
    """A kernel of r = |x - z|. Its gradient is weight(r^2) (z - x), with weight(r^2) = -k'(r) / r."""

    name = "radial"

    profile: Callable[[np.ndarray], np.ndarray]  # the kernel as a function of the squared distance
    weight: Callable[[np.ndarray], np.ndarray]  # -k'(r) / r as a function of it

    def value(self, x, z):
        """Kernel values k(x, z_i), shape (n,)."""
        return self.profile(np.square(z - x).sum(axis=1))

    def gradient(self, x, z):
        """Gradients d k(x, z_i) / d x, shape (n, d)."""
        delta = z - x
        return self.weight(np.square(delta).sum(axis=1))[:, None] * delta

    def frequencies(self, rng, size, dim):
        """Draws from the spectral density, shape (size, dim)."""
        raise NotImplementedError(f"kernel {self.name!r} has no spectral sampler")


class Gaussian(RadialKernel):
    """exp(-r^2 / 2); frequencies N(0, I)."""

    name = "gaussian"

    def profile(self, r2):  # noqa: D102
        return np.exp(-0.5 * r2)

    weight = profile  # -k'(r)/r = k(r): the Gaussian is its own weight

    def frequencies(self, rng, size, dim):  # noqa: D102
        return rng.standard_normal((size, dim))


class Matern(RadialKernel):
    """Matern kernel, 2^(1-nu) / Gamma(nu) s^nu K_nu(s) with s = sqrt(2 nu) r.

    Frequencies are **multivariate** t with 2 nu degrees of freedom (one chi-square for the whole
    vector; independent t's per axis would be another kernel as soon as d > 1).

    Parameters
    ----------
    nu : float
        Smoothness, in (0, 500]. The gradient at z = x exists for nu > 1 only.
    """

    name = "matern"

    def __init__(self, nu: float):
        if not 0 < nu <= 500:
            raise ValueError(
                f"Matern smoothness nu must be in (0, 500], got {nu!r}. For larger nu use the "
                "Gaussian kernel: they differ by O(1 / nu)."
            )
        self.nu = float(nu)

    def profile(self, r2):  # noqa: D102
        s = np.sqrt(2.0 * self.nu * np.asarray(r2, dtype=float))
        if self.nu == 1.5:
            return (1.0 + s) * np.exp(-s)
        if self.nu == 2.5:
            return (1.0 + s + s * s / 3.0) * np.exp(-s)
        return self._bessel(s, self.nu)

    def weight(self, r2):  # noqa: D102
        s = np.sqrt(2.0 * self.nu * np.asarray(r2, dtype=float))
        if self.nu == 1.5:
            return 3.0 * np.exp(-s)
        if self.nu == 2.5:
            return 5.0 / 3.0 * (1.0 + s) * np.exp(-s)
        if self.nu <= 1.0:
            raise NotImplementedError(f"Matern with nu = {self.nu} <= 1 has no gradient at zero distance.")
        # d/ds [s^nu K_nu(s)] = -s^nu K_{nu-1}(s)  (DLMF 10.29.4)
        return self._bessel(s, self.nu - 1.0) * self.nu / (self.nu - 1.0)

    @staticmethod
    def _bessel(s, nu):
        """M_nu(s) = 2^(1-nu) / Gamma(nu) s^nu K_nu(s), the Matern function, for orders up to 500.

        K_nu itself overflows for large orders. M_nu does not: from DLMF 10.29.1 it obeys
        M_{nu+1} = M_nu + s^2 / (4 nu (nu - 1)) M_{nu-1}, all terms positive, hence stable upwards.
        """
        zero = s < 1e-100
        safe = np.where(zero, 1.0, s)

        def direct(order):
            constant = (1.0 - order) * math.log(2.0) - scipy.special.gammaln(order)
            return np.exp(constant + order * np.log(safe)) * scipy.special.kve(order, safe)

        steps = max(math.ceil(nu) - 2, 0)
        order = nu - steps  # in (0, 2]
        value = direct(order)
        if steps:
            below = direct(order - 1.0)
            for _ in range(steps):
                above = value + safe**2 / (4.0 * order * (order - 1.0)) * below
                below, value, order = value, above, order + 1.0
        return np.where(zero, 1.0, np.exp(-safe) * value)

    def frequencies(self, rng, size, dim):  # noqa: D102
        df = 2.0 * self.nu
        return rng.standard_normal((size, dim)) / np.sqrt(rng.chisquare(df, (size, 1)) / df)


class InverseMultiquadric(RadialKernel):
    """(1 + r^2)^(-beta), a scale mixture of Gaussians: r^2 precision ~ Gamma(beta).

    (1 + r^2)^(-beta) = E exp(-t r^2) with t ~ Gamma(beta, 1), hence frequencies sqrt(2 t) N(0, I).
    """

    name = "inverse_multiquadric"

    def __init__(self, beta: float = 0.5):
        if not (math.isfinite(beta) and beta > 0):
            raise ValueError(f"Inverse multiquadric exponent beta must be a positive number, got {beta!r}.")
        self.beta = float(beta)

    def profile(self, r2):  # noqa: D102
        return (1.0 + r2) ** (-self.beta)

    def weight(self, r2):  # noqa: D102
        return 2.0 * self.beta * (1.0 + r2) ** (-self.beta - 1.0)

    def frequencies(self, rng, size, dim):  # noqa: D102
        precision = rng.standard_gamma(self.beta, (size, 1))
        return np.sqrt(2.0 * precision) * rng.standard_normal((size, dim))


class Linear(_Valued):
    """<x, z>. Turns KAMH into Adaptive Metropolis with covariance 4 nu^2 Z^T H Z (a test oracle)."""

    name = "linear"

    def value(self, x, z):  # noqa: D102
        return z @ x

    def gradient(self, x, z):  # noqa: D102
        return np.array(z, dtype=float)

    def frequencies(self, rng, size, dim):  # noqa: D102
        raise NotImplementedError("kernel 'linear' is not shift-invariant: it has no random Fourier features")


class ProductKernel(_Valued):
    """A product over coordinates of one even function of x_i - z_i; subclasses give it and its derivative."""

    name = "product"

    factor: Callable[[np.ndarray], np.ndarray]  # the one-dimensional kernel of delta = z - x
    factor_slope: Callable[[np.ndarray], np.ndarray]  # its derivative with respect to delta

    def value(self, x, z):
        """Kernel values k(x, z_i), shape (n,)."""
        return self.factor(z - x).prod(axis=1)

    def gradient(self, x, z):
        """Gradients d k(x, z_i) / d x, shape (n, d)."""
        delta = z - x
        factors = self.factor(delta)
        gradient = -self.factor_slope(delta)  # d/dx = -d/ddelta
        for i in range(delta.shape[1]):  # times the product over the other coordinates
            gradient[:, i] *= np.delete(factors, i, axis=1).prod(axis=1)
        return gradient


class Laplacian(ProductKernel):
    """exp(-|x - z|_1); frequencies are independent standard Cauchy (Kotlicki 2015, Table 2.1)."""

    name = "laplacian"

    def factor(self, delta):  # noqa: D102
        return np.exp(-np.abs(delta))

    def factor_slope(self, delta):  # noqa: D102
        return -np.sign(delta) * np.exp(-np.abs(delta))

    def frequencies(self, rng, size, dim):  # noqa: D102
        return rng.standard_cauchy((size, dim))


class Sinc(ProductKernel):
    """prod_i sin(delta_i) / delta_i; frequencies uniform on [-1, 1] (Kotlicki 2015, Table 2.1)."""

    name = "sinc"

    def factor(self, delta):  # noqa: D102
        return np.sinc(delta / np.pi)

    def factor_slope(self, delta):  # noqa: D102
        # spherical Bessel: (sin t / t)' = -j_1(t)
        return -scipy.special.spherical_jn(1, np.abs(delta)) * np.sign(delta)

    def frequencies(self, rng, size, dim):  # noqa: D102
        return rng.uniform(-1.0, 1.0, (size, dim))


class SincSquared(ProductKernel):
    """prod_i (sin(delta_i / 2) / (delta_i / 2))^2; frequencies triangular on [-1, 1]."""

    name = "sinc_squared"

    def factor(self, delta):  # noqa: D102
        return np.sinc(0.5 * delta / np.pi) ** 2

    def factor_slope(self, delta):  # noqa: D102
        half = 0.5 * delta
        return -np.sinc(half / np.pi) * scipy.special.spherical_jn(1, np.abs(half)) * np.sign(half)

    def frequencies(self, rng, size, dim):  # noqa: D102
        return rng.triangular(-1.0, 0.0, 1.0, (size, dim))


class CustomKernel(_Valued):
    """A kernel from functions.

    Parameters
    ----------
    value : callable
        ``(x, z) -> (n,)``, k(x, z_i) at unit lengthscale, ``x`` of shape (d,), ``z`` of (n, d).
    gradient : callable
        ``(x, z) -> (n, d)``, its derivatives d k(x, z_i) / d x.
    frequencies : callable, optional
        ``(rng, size, dim) -> (size, dim)``, draws from the spectral density; needed for random features only.
    name : str
    """

    def __init__(
        self,
        value: Callable[[np.ndarray, np.ndarray], np.ndarray],
        gradient: Callable[[np.ndarray, np.ndarray], np.ndarray],
        frequencies: Callable[[np.random.Generator, int, int], np.ndarray] | None = None,
        name: str = "custom",
    ):
        self.value, self.gradient, self.name = value, gradient, name
        self._frequencies = frequencies

    __repr__ = object.__repr__

    def frequencies(self, rng, size, dim):  # noqa: D102
        if self._frequencies is None:
            raise NotImplementedError(
                f"kernel {self.name!r} was given no spectral sampler (frequencies=): it cannot be "
                "used with random Fourier features."
            )
        return self._frequencies(rng, size, dim)


KernelName = Literal[
    "gaussian", "matern32", "matern52", "inverse_multiquadric", "linear", "laplacian", "sinc", "sinc_squared"
]  # fmt: skip
_NAMED: dict[str, Callable[[], Kernel]] = {
    "gaussian": Gaussian,
    "matern32": lambda: Matern(1.5),
    "matern52": lambda: Matern(2.5),
    "inverse_multiquadric": InverseMultiquadric,
    "linear": Linear,
    "laplacian": Laplacian,
    "sinc": Sinc,
    "sinc_squared": SincSquared,
}


def get_kernel(kernel: str | Kernel) -> Kernel:
    """A kernel by its name, or the object itself if it is one.

    Raises
    ------
    ValueError
        For an unknown name, listing the known ones.
    TypeError
        For an object that lacks ``value``, ``gradient``, ``frequencies`` or a ``name``, naming what is missing.
    """
    if isinstance(kernel, str):
        if kernel not in _NAMED:
            raise ValueError(f"Unknown kernel {kernel!r}; choose one of {sorted(_NAMED)} or pass a kernel.")
        return _NAMED[kernel]()
    missing = [f"method {m}" for m in ("value", "gradient", "frequencies") if not callable(getattr(kernel, m, None))]
    missing += [] if isinstance(getattr(kernel, "name", None), str) else ["name"]
    if missing:
        raise TypeError(
            f"{kernel!r} is not a kernel: it has no {', no '.join(missing)}. See "
            "pymc_kameleon.kernels.Kernel or wrap functions in CustomKernel."
        )
    return kernel


def median_distance(points: np.ndarray, max_points: int = 150) -> float:
    """Median pairwise distance of at most ``max_points`` evenly spaced rows: the median heuristic.

    Zero distances (a chain repeats its state at every rejection) are left out; ``nan`` if nothing is left.
    """
    points = np.asarray(points, dtype=float)
    if len(points) > max_points:
        points = points[np.linspace(0, len(points) - 1, max_points).astype(int)]
    distances = scipy.spatial.distance.pdist(points)
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else math.nan
