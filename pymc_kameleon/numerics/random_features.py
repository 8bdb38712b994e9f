"""Random Fourier features: a finite map phi with phi(x) . phi(z) ~ k(x, z), and its derivatives.

Two embeddings of a shift-invariant kernel (Rahimi & Recht, 2007; Sutherland & Schneider, 2015), with frequencies w_i
drawn from the kernel's spectral density:

- ``"sincos"``: phi(x) = sqrt(2/D) [sin(w_1.x), ..., sin(w_m.x), cos(w_1.x), ..., cos(w_m.x)],
  m = D/2 frequencies;
- ``"cos"``: phi(x) = sqrt(2/D) [cos(w_1.x + b_1), ..., cos(w_m.x + b_m)],
  m = D frequencies, b_i ~ U(0, 2 pi).

``"sincos"`` has the lower variance for the Gaussian kernel, and phi(x) . phi(x) = 1 exactly.

References
----------
A. Rahimi, B. Recht (2007). Random features for large-scale kernel machines. NIPS.
D. J. Sutherland, J. Schneider (2015). On the error of random Fourier features. UAI.
F. X. Yu et al. (2016). Orthogonal random features. NIPS.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.kernels import Kernel, RadialKernel, get_kernel

EMBEDDINGS = ("sincos", "cos")
MOST = 10**6  # features: a mistyped number is refused before there is no memory left


class RandomFeatures(NamedTuple):
    """A drawn feature map."""

    # (m, d): in units of 1 / (units of x): the lengthscale is already divided out
    frequencies: np.ndarray
    offsets: np.ndarray  # (m,): phases b_i of the ``"cos"`` embedding; zeros for ``"sincos"``
    sincos: bool  # which embedding: D = 2 m features if True, D = m if False

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return len(self.offsets) * (2 if self.sincos else 1)


def draw_features(
    rng: np.random.Generator,
    kernel: str | Kernel,
    dim: int,
    n_features: int,
    lengthscale: float = 1.0,
    embedding: str = "sincos",
    orthogonal: bool = False,
) -> RandomFeatures:
    """Draw a feature map for k(x / l, z / l), of a kernel with a spectral sampler, see :mod:`pymc_kameleon.kernels`.

    The number of features D is even for ``"sincos"``. ``orthogonal``: directions of the frequencies are so within
    blocks of d, with the norms of independent draws (Yu et al., 2016); still unbiased, with less variance; of radial
    kernels only.
    """
    kernel = get_kernel(kernel)
    if embedding not in EMBEDDINGS:
        raise ValueError(f"Unknown embedding {embedding!r}; choose one of {EMBEDDINGS}.")
    sincos = embedding == "sincos"
    fits = 1 <= n_features <= MOST and n_features == int(n_features)
    if not fits or (sincos and n_features % 2):
        raise ValueError(
            f"n_features must be a positive {'even ' * sincos}integer for embedding {embedding!r}, at most {MOST:,}, "
            f"got {n_features!r}."
        )
    if not (math.isfinite(lengthscale) and lengthscale > 0):
        raise ValueError(f"lengthscale must be a positive number, got {lengthscale!r}.")
    m = int(n_features) // 2 if sincos else int(n_features)
    frequencies = kernel.frequencies(rng, m, dim)  # (m, d)
    if orthogonal:
        frequencies = _orthogonalize(rng, kernel, frequencies)
    offsets = np.zeros(m) if sincos else rng.uniform(0.0, 2.0 * np.pi, m)
    return RandomFeatures(np.ascontiguousarray(frequencies / lengthscale), offsets, sincos)


def at_lengthscale(unit: RandomFeatures, lengthscale: float | np.ndarray) -> RandomFeatures:
    """The same draw of features for another lengthscale than 1, or one for each coordinate, (d,)."""
    return unit._replace(frequencies=unit.frequencies / lengthscale)


def _orthogonalize(rng, kernel, frequencies):
    """Replace directions by uniform ones that are orthogonal within blocks of d; keep the norms.

    A radial kernel's spectral density is radial too, so that direction and norm are independent and every single
    frequency keeps its distribution (for the Gaussian the norms are chi-distributed with d degrees of freedom).
    """
    if not isinstance(kernel, RadialKernel):
        raise ValueError(
            f"orthogonal=True needs a radial kernel (a subclass of RadialKernel), not "
            f"{kernel.name!r}: its spectral density is not rotation-invariant, so orthogonal "
            "directions would give another kernel. Pass orthogonal=False."
        )
    m, dim = frequencies.shape
    norms = np.sqrt(np.square(frequencies).sum(axis=1, keepdims=True))  # (m, 1)
    rotations = [np.linalg.qr(rng.standard_normal((dim, dim))) for _ in range(-(-m // dim))]
    # uniformly distributed: the signs make QR's Q Haar (Mezzadri, 2007)
    return norms * np.concatenate([q * np.sign(np.diagonal(r)) for q, r in rotations])[:m]


def features(x: np.ndarray, rf: RandomFeatures) -> np.ndarray:
    """phi(x): shape (D,) for ``x`` of shape (d,), shape (n, D) for a batch of shape (n, d)."""
    return _embedded(x, rf, np.sin, np.cos)


def slopes(x: np.ndarray, rf: RandomFeatures) -> np.ndarray:
    """Derivative of phi_i with respect to its argument w_i . x, shape (D,) or (n, D) for a batch.

    Row i of the Jacobian is this times w_i (see :func:`stacked_frequencies`).
    """
    return _embedded(x, rf, np.cos, lambda argument: -np.sin(argument))


def _embedded(x, rf, sine, cosine):
    """What ``sine`` and ``cosine`` stand for, or their slopes, of w_i . x, scaled."""
    argument = np.atleast_2d(x) @ rf.frequencies.T  # (n, m)
    both = [sine(argument), cosine(argument)] if rf.sincos else [cosine(argument + rf.offsets)]
    phi = np.concatenate(both, axis=1)
    phi *= math.sqrt(2.0 / phi.shape[1])
    return phi if x.ndim == 2 else phi[0]


def jacobian(x: np.ndarray, rf: RandomFeatures) -> np.ndarray:
    """Jacobian d phi_i / d x_l at ``x`` of shape (d,); shape (D, d)."""
    return slopes(x, rf)[:, None] * stacked_frequencies(rf)


def stacked_frequencies(rf: RandomFeatures) -> np.ndarray:
    """The frequency of every feature, shape (D, d): once for ``"cos"``, twice for ``"sincos"``."""
    return np.concatenate([rf.frequencies, rf.frequencies]) if rf.sincos else rf.frequencies
