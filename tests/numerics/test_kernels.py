"""Kernels: gradients against differences, values against known forms, and useful errors."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

from pymc_kameleon.kernels import (
    CustomKernel,
    Gaussian,
    InverseMultiquadric,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Sinc,
    SincSquared,
    get_kernel,
    median_distance,
)
from tests.support.differences import slopes

KERNELS = [
    Gaussian(), Matern(0.5), Matern(1.2), Matern(1.5), Matern(2.5), Matern(4.1), Matern(60.0), InverseMultiquadric(),
    InverseMultiquadric(1.7), Linear(), Laplacian(), Sinc(), SincSquared(),
]  # fmt: skip
each_dim = pytest.mark.parametrize("dim", [1, 2, 5])
each_smooth = pytest.mark.parametrize("kernel", [k for k in KERNELS if repr(k) != "Matern(nu=0.5)"], ids=repr)


def points(dim, n=7):
    rng = np.random.default_rng([11, dim])
    return rng.standard_normal(dim), 1.5 * rng.standard_normal((n, dim))


@each_dim
@each_smooth
def test_gradient_against_differences(kernel, dim):
    x, z = points(dim)
    differences = slopes(lambda x: kernel.value(x, z), x)
    np.testing.assert_allclose(kernel.gradient(x, z), differences.T, rtol=1e-6, atol=1e-8)


@each_dim
@each_smooth
def test_at_zero_distance(kernel, dim):
    """At z = x: value 1 and gradient 0 (a chain's history contains the current point)."""
    x, _ = points(dim)
    if kernel.name == "linear":
        np.testing.assert_array_equal(kernel.gradient(x, x[None]), x[None])
        return
    np.testing.assert_allclose(kernel.value(x, x[None]), 1.0, rtol=1e-10)
    np.testing.assert_allclose(kernel.gradient(x, x[None]), 0.0, atol=1e-12)


@each_dim
def test_values_against_known_forms(dim):
    x, z = points(dim)
    r = np.linalg.norm(z - x, axis=1)
    np.testing.assert_allclose(Gaussian().value(x, z), np.exp(-(r**2) / 2), rtol=1e-12)
    np.testing.assert_allclose(Matern(0.5).value(x, z), np.exp(-r), rtol=1e-10)
    np.testing.assert_allclose(InverseMultiquadric(0.5).value(x, z), 1 / np.sqrt(1 + r**2), rtol=1e-12)
    np.testing.assert_allclose(Laplacian().value(x, z), np.exp(-np.abs(z - x).sum(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(Linear().value(x, z), z @ x, rtol=1e-12)


def test_matern_against_textbook_formula_and_closed_forms():
    nu, r = 3.3, np.array([0.1, 1.0, 4.0])
    s = np.sqrt(2 * nu) * r
    expected = 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s)
    np.testing.assert_allclose(Matern(nu).profile(r**2), expected, rtol=1e-10)
    r2 = np.array([0.0, 1e-8, 0.01, 1.0, 9.0, 400.0])
    for nu in (1.5, 2.5):  # next to the half-integer, the general branch is taken; the kernel is smooth in nu
        own, close = Matern(nu), Matern(nu + 1e-12)
        np.testing.assert_allclose(own.profile(r2), close.profile(r2), rtol=1e-8)
        np.testing.assert_allclose(own.weight(r2), close.weight(r2), rtol=1e-8)


@pytest.mark.parametrize("nu", [0.05, 0.5, 1.0, 2.0, 3.0, 40.0, 500.0])
def test_matern_near_zero(nu):
    """No overflow: close pairs are common in a chain's history (and rare in a test's)."""
    s = np.array([0.0, 1e-120, 1e-12, 1e-6, 1e-3])
    value = Matern(nu).profile(s**2 / (2 * nu))
    assert value[0] == value[1] == 1.0 or nu < 0.5
    if nu > 1.5:
        np.testing.assert_allclose(value, 1 - s**2 / (4 * (nu - 1)), rtol=1e-8)
    if nu < 0.5:  # leading term of 1 - k, DLMF 10.31.1 and 10.27.4
        slope = special.gamma(1 - nu) / special.gamma(1 + nu) * (s / 2) ** (2 * nu)
        np.testing.assert_allclose(value, 1 - slope, rtol=1e-5)


def test_names_and_protocol():
    for name in ("gaussian", "matern32", "matern52", "inverse_multiquadric", "linear"):
        assert isinstance(get_kernel(name), Kernel)
    kernel = Matern(1.5)
    assert get_kernel(kernel) is kernel
    assert repr(get_kernel("matern32")) == repr(kernel)
    for k in KERNELS:
        assert repr(pickle.loads(pickle.dumps(k))) == repr(k)


@pytest.mark.parametrize("without", ["value", "frequencies", "name"])
def test_what_lacks_something_is_no_kernel(without):
    named = {
        name: getattr(Gaussian(), name) for name in ("name", "value", "gradient", "frequencies") if name != without
    }
    with pytest.raises(TypeError, match=rf"is not a kernel: it has no (method )?{without}\."):
        get_kernel(SimpleNamespace(**named))


CUSTOM = CustomKernel(Gaussian().value, Gaussian().gradient, name="mine")


def test_custom_kernel_has_what_it_was_given():
    x, z = points(2)
    np.testing.assert_array_equal(get_kernel(CUSTOM).gradient(x, z), Gaussian().gradient(x, z))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        *((lambda bad=bad: Matern(bad), ValueError, "nu") for bad in (0.0, -1.0, math.nan, math.inf)),
        *((lambda bad=bad: InverseMultiquadric(bad), ValueError, "beta") for bad in (0.0, -1.0, math.nan, math.inf)),
        (lambda: get_kernel("gauss"), ValueError, "gaussian"),
        (lambda: get_kernel(object()), TypeError, "frequencies"),
        (lambda: Linear().frequencies(np.random.default_rng(0), 3, 2), NotImplementedError, "shift-invariant"),
        (lambda: Matern(0.5).gradient(*points(2)), NotImplementedError, "gradient"),
        (lambda: CUSTOM.frequencies(np.random.default_rng(0), 3, 2), NotImplementedError, "mine"),
    ],
)
def test_refusals(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_median_distance():
    z = np.array([[0.0], [1.0], [3.0]])
    assert median_distance(z) == 2.0
    # repeats of a chain's state do not pull the median to zero
    assert median_distance(np.repeat(z, 20, axis=0)) == 2.0
    assert math.isnan(median_distance(np.zeros((10, 2))))
    assert math.isnan(median_distance(np.zeros((1, 2))))
    rng = np.random.default_rng(14)
    many = rng.standard_normal((5000, 3))
    full = median_distance(many[:1000], max_points=1000)
    assert abs(median_distance(many) / full - 1) < 0.1
    np.testing.assert_allclose(median_distance(1e6 * many), 1e6 * median_distance(many), rtol=1e-10)
