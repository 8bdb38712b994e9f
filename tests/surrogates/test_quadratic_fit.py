"""A quadratic is a quadratic in any units, rotated, ill-conditioned, seen from anywhere."""

import numpy as np
import pytest

from pymc_kameleon.surrogates.values import quadratic as quadratic_fit
from pymc_kameleon.surrogates.values.features import quadratic_size
from tests.quadratics import CLOUDS, cloud, normal


def relative_weights(y, reference=0.0):
    """Those of the regression on values: an error of 15 % of the depth."""
    return 1.0 / (0.09 + np.square(0.15 * np.maximum(0.0, reference - y)))


def fresh_residual_sd(rng, predict, log_density, place, d):
    x = place(rng.standard_normal((300, d)))
    return np.std(predict(x) - log_density(x))


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_a_quadratic_is_found(d, ratio, rotated, kind):
    rng = np.random.default_rng(d)
    log_density, place, sds = normal(rng, d, ratio, rotated)
    x = place(cloud(rng, kind, 3 * quadratic_size(d), sds))
    y = log_density(x)
    found = quadratic_fit.fit(x, y, relative_weights(y))

    def predict(x):
        return quadratic_fit.value(found, x)

    assert fresh_residual_sd(rng, predict, log_density, place, d) < 1e-4
    top = quadratic_fit.newton(found)[None]
    assert abs(log_density(top)[0] - 3.7) < 1e-4


@pytest.mark.parametrize("units", [1e-12, 1e12])
def test_units_do_not_matter(units):
    rng = np.random.default_rng(0)
    log_density, place, sds = normal(rng, 5, 1e4, True, units)
    x = place(cloud(rng, "draws", 80, sds))
    found = quadratic_fit.fit(x, log_density(x))
    test = place(rng.standard_normal((50, 5)))
    np.testing.assert_allclose(quadratic_fit.value(found, test), log_density(test), atol=1e-6)


def test_derivatives_and_axes():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((3, 3))
    precision = a @ a.T + np.eye(3)
    mean = rng.standard_normal(3)
    x = rng.standard_normal((40, 3))
    y = 1.5 - 0.5 * np.einsum("ni,ij,nj->n", x - mean, precision, x - mean)
    found = quadratic_fit.fit(x, y, rng.random(40))
    np.testing.assert_allclose(quadratic_fit.hessian(found), -precision, rtol=1e-9)
    np.testing.assert_allclose(
        quadratic_fit.gradient(found, x[0]), -precision @ (x[0] - mean), rtol=1e-9
    )
    np.testing.assert_allclose(quadratic_fit.newton(found), mean, rtol=1e-9)
    eigenvalues, axes = quadratic_fit.axes(found)
    np.testing.assert_allclose(axes.T @ precision @ axes, np.diag(eigenvalues), atol=1e-9)


def test_a_left_out_residual_is_the_residual_of_the_fit_without_that_point():
    rng = np.random.default_rng(2)
    x, y, weights = rng.standard_normal((30, 2)), rng.standard_normal(30), rng.random(30)
    found = quadratic_fit.fit(x, y, weights)
    for i in (0, 7):
        others = np.arange(30) != i
        without = quadratic_fit.fit(x[others], y[others], weights[others])
        expected = y[i] - quadratic_fit.value(without, x[i : i + 1])[0]
        np.testing.assert_allclose(found.left_out[i], expected, rtol=1e-9)
    np.testing.assert_allclose(found.residuals, y - quadratic_fit.value(found, x), atol=1e-12)


@pytest.mark.parametrize("points", ["few", "on a line", "in a plane", "twice the same"])
def test_points_that_determine_no_quadratic_are_refused(points):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((30, 3))
    if points == "few":
        x = x[:9]
    elif points == "on a line":
        x = x[:, :1] * np.ones(3)
    elif points == "in a plane":
        x[:, 1] = 0.1
    else:
        x = np.concatenate([x[:9]] * 4)
    with pytest.raises(np.linalg.LinAlgError, match="do not determine"):
        quadratic_fit.fit(x, np.square(x).sum(axis=1))
