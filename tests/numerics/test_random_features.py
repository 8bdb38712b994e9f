"""Random features against the exact kernels, and their derivatives against differences."""

import numpy as np
import pytest

from pymc_kameleon.kernels import CustomKernel, Gaussian, InverseMultiquadric, Laplacian, Matern, Sinc, SincSquared
from pymc_kameleon.numerics import random_features as rff
from tests.support.differences import slopes

KERNELS = [
    Gaussian(), Laplacian(), Matern(0.5), Matern(0.8), Matern(1.5), Matern(2.5), Matern(3.3), InverseMultiquadric(),
    InverseMultiquadric(1.7), Sinc(), SincSquared(),
]  # fmt: skip
RADIAL = [k for k in KERNELS if isinstance(k, rff.RadialKernel)]
LENGTHSCALE = 1.7

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
each_dim = pytest.mark.parametrize("dim", [1, 2, 5])
each_embedding = pytest.mark.parametrize("embedding", rff.EMBEDDINGS)


def worst_z(rng, kernel, dim, embedding, n_features=200, orthogonal=False, repeats=300):
    """Of means of independent estimates of k(x, z_i) at points whose difference has no zero coordinate.

    On the axes wrong kernels pass.
    """
    x = rng.standard_normal(dim)
    z = x + LENGTHSCALE * np.linspace(0.3, 2.0, 6)[:, None] * rng.uniform(0.5, 1.0, (6, dim))
    draws = np.empty((repeats, 6))
    for row in draws:
        rf = rff.draw_features(rng, kernel, dim, n_features, LENGTHSCALE, embedding, orthogonal=orthogonal)
        row[:] = rff.features(z, rf) @ rff.features(x, rf)
    error = draws.mean(0) - kernel.value(x / LENGTHSCALE, z / LENGTHSCALE)
    return np.abs(error / (draws.std(0, ddof=1) / np.sqrt(repeats))).max()


@each_embedding
@each_dim
@each_kernel
def test_unbiased(kernel, dim, embedding):
    assert worst_z(np.random.default_rng([1, dim]), kernel, dim, embedding) < 4.5


@each_embedding
@pytest.mark.parametrize("kernel", RADIAL, ids=repr)
def test_orthogonal_unbiased(kernel, embedding):
    """22 frequencies are not a multiple of 5: the last block is cut."""
    assert worst_z(np.random.default_rng([2, 5]), kernel, 5, embedding, 44, True, repeats=200) < 4.5


def test_independent_t_frequencies_would_be_caught():
    """Negative control: per-axis t frequencies are right on the axes only."""
    matern = Matern(1.5)
    wrong = CustomKernel(
        matern.value, matern.gradient, lambda rng, size, dim: rng.standard_t(3.0, (size, dim)), name="wrong"
    )
    assert worst_z(np.random.default_rng(3), wrong, 5, "sincos") > 10


def test_orthogonal_blocks():
    rf = rff.draw_features(np.random.default_rng(6), "gaussian", 4, 16, 0.5, orthogonal=True)
    for block in rf.frequencies.reshape(2, 4, 4):
        gram = block @ block.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10 * gram.max())


@each_embedding
@each_dim
def test_single_and_batch_agree(dim, embedding):
    rng = np.random.default_rng([7, dim])
    rf = rff.draw_features(rng, "gaussian", dim, 30, LENGTHSCALE, embedding)
    x = rng.standard_normal((9, dim))
    phi, slope = rff.features(x, rf), rff.slopes(x, rf)
    assert phi.shape == slope.shape == (9, 30) == (9, rf.n_features)
    one_by_one = np.stack([rff.features(row, rf) for row in x])
    np.testing.assert_allclose(phi, one_by_one, rtol=1e-10, atol=1e-14)
    for row, s in zip(x, slope, strict=True):
        np.testing.assert_allclose(rff.slopes(row, rf), s, rtol=1e-10, atol=1e-14)
        by_slopes = s[:, None] * rff.stacked_frequencies(rf)
        np.testing.assert_allclose(rff.jacobian(row, rf), by_slopes, rtol=1e-10, atol=1e-14)


@each_embedding
@each_dim
def test_derivatives_against_differences(dim, embedding):
    rng = np.random.default_rng([8, dim])
    rf = rff.draw_features(rng, "matern52", dim, 40, LENGTHSCALE, embedding)
    for x in rng.standard_normal((3, dim)):
        first = slopes(lambda x: rff.features(x, rf), x, 1e-4)
        np.testing.assert_allclose(rff.jacobian(x, rf), first.T, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"n_features": 11}, ValueError, "even"),
        ({"n_features": 0}, ValueError, "n_features"),
        ({"lengthscale": 0.0}, ValueError, "lengthscale"),
        ({"lengthscale": np.nan}, ValueError, "lengthscale"),
        ({"embedding": "sin"}, ValueError, "embedding"),
        ({"kernel": "laplacian", "orthogonal": True}, ValueError, "radial"),
        ({"kernel": "linear"}, NotImplementedError, "shift-invariant"),
    ],
)
def test_refusals(kwargs, error, match):
    arguments = {"kernel": "gaussian", "dim": 2, "n_features": 10} | kwargs
    with pytest.raises(error, match=match):
        rff.draw_features(np.random.default_rng(0), **arguments)
