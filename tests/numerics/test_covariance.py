"""Running moments against two-pass NumPy, triangular algebra against dense LAPACK."""

import numpy as np
import pytest
import scipy.linalg
from scipy.stats import multivariate_normal

from pymc_kameleon.numerics import covariance as cov

DIMS = (1, 2, 5, 20)


def spd(rng, d):
    """A covariance matrix with a condition number of a few hundred."""
    q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return (q * np.geomspace(0.1, 20.0, d)) @ q.T


def assert_close(actual, expected, rtol=1e-10):
    """Relative to the largest entry: a matrix's small entries carry its large ones' rounding."""
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("d", DIMS)
def test_moments_by_blocks_and_at_once_agree_with_numpy(d):
    rng = np.random.default_rng(1)
    points = rng.standard_normal((57, d)) @ rng.standard_normal((d, d)) + 3.0
    first, *blocks = np.split(points, [1, 20, 50])  # one of a single point, others
    merged = cov.summarise(first)
    np.testing.assert_array_equal(cov.covariance(merged), np.zeros((d, d)))
    for block in blocks:
        merged = cov.merge(merged, cov.summarise(block))
    for moments in (merged, cov.summarise(points)):
        assert moments.count == 57
        assert_close(moments.mean, points.mean(axis=0))
        assert_close(cov.covariance(moments), np.cov(points.T, ddof=0).reshape(d, d))
        np.testing.assert_array_equal(moments.scatter, moments.scatter.T)


def test_moments_survive_a_mean_far_from_zero():
    # the textbook sum of squares loses all 16 digits here
    points = 1e8 + np.array([[4.0], [7.0], [13.0], [16.0]])
    halves = cov.merge(cov.summarise(points[:2]), cov.summarise(points[2:]))
    for moments in (cov.summarise(points), halves):
        assert cov.covariance(moments)[0, 0] == 22.5


@pytest.mark.parametrize("d", DIMS)
def test_triangular_algebra_agrees_with_lapack(d):
    rng = np.random.default_rng(2)
    a, b = spd(rng, d), rng.standard_normal(d)
    factor, ok = cov.cholesky(a)
    assert ok
    expected = np.linalg.cholesky(a)
    assert_close(factor, expected)
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)
    assert_close(cov.multiply_lower(expected, b), expected @ b)
    assert_close(cov.solve_lower(expected, b), scipy.linalg.solve_triangular(expected, b, lower=True))
    assert cov.log_determinant(expected) == pytest.approx(0.5 * np.linalg.slogdet(a)[1], rel=1e-10, abs=1e-10)
    density = multivariate_normal(np.zeros(d), a).logpdf(b) + 0.5 * d * np.log(2 * np.pi)
    assert cov.log_normal_density(b, expected) == pytest.approx(density, rel=1e-10)


NOT_DEFINITE = [
    [[0.0]], [[-1.0]], [[np.nan]], [[np.inf]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]],
    [[1.0, 0.0], [np.nan, 1.0]], [[1.0, 0.0], [0.0, np.nan]],
]  # fmt: skip


@pytest.mark.parametrize("a", NOT_DEFINITE)
def test_cholesky_reports_failure_instead_of_raising(a):
    assert not cov.cholesky(np.array(a))[1]


@pytest.mark.parametrize("d", DIMS)
def test_rank_one_update_agrees_with_dense(d):
    rng = np.random.default_rng(3)
    a, v = spd(rng, d), 3.0 * rng.standard_normal(d)
    factor = np.linalg.cholesky(a)
    before = factor.copy()
    updated = cov.cholesky_update(factor, v)
    expected = np.linalg.cholesky(a + np.outer(v, v))
    assert_close(updated, expected)
    np.testing.assert_array_equal(np.triu(updated, 1), 0.0)
    np.testing.assert_array_equal(factor, before)


def dense_shape(shape, v, keep, weight):
    shape = keep * shape + weight * np.outer(v, v)
    log_scale = 0.5 * np.linalg.slogdet(shape)[1] / len(v)
    return shape * np.exp(-2.0 * log_scale), log_scale


def test_shape_updates_agree_with_dense_over_many():
    rng, d, limit = np.random.default_rng(6), 5, 1e12
    root = np.linalg.cholesky(spd(rng, d))
    factor = base = np.eye(d)
    shape, condition = np.eye(d), 1.0
    for n in range(300):  # measured to 100,000: 1e-13 throughout
        v, weight = root @ rng.standard_normal(d), 0.05 * rng.random()
        factor, log_scale, condition = cov.update_shape(factor, base, condition, limit, v, 1.0 - weight, weight)
        shape, expected = dense_shape(shape, v, 1.0 - weight, weight)
        if n % 50 == 49:
            assert_close(factor @ factor.T, shape)
            assert log_scale == pytest.approx(expected, rel=1e-8, abs=1e-10)
            assert np.linalg.cond(shape) <= condition * (1 + 1e-10)
    assert cov.log_determinant(factor) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("units", [1.0, 1e6])
@pytest.mark.parametrize("d", [2, 5])
def test_shape_updates_that_would_pass_the_condition_limit_are_refused(d, units):
    rng, limit = np.random.default_rng(7), 100.0
    base = np.diag(np.geomspace(units, 1.0 / units, d))
    factor, condition, refused = base, 1.0, 0
    direction = 20.0 * base @ rng.standard_normal(d)
    for _ in range(60):
        v = direction + 0.1 * base @ rng.standard_normal(d)
        new, log_scale, condition = cov.update_shape(factor, base, condition, limit, v, 0.8, 0.2)
        relative = np.linalg.solve(base, new)
        assert np.linalg.cond(relative) ** 2 <= condition * (1 + 1e-10)
        assert condition <= limit
        if np.array_equal(new, factor):
            refused += 1
            assert log_scale == 0.0
            proposed, _ = dense_shape(factor @ factor.T, v, 0.8, 0.2)
            proposed = np.linalg.solve(base, np.linalg.cholesky(proposed))
            assert np.linalg.cond(proposed) ** 2 > limit * (1 - 1e-8)
        factor = new
    assert refused > 10


def test_shape_updates_refuse_what_is_not_finite():
    factor = np.eye(2)
    for v in ([np.nan, 1.0], [np.inf, 1.0]):
        new, log_scale, condition = cov.update_shape(factor, factor, 3.0, 1e12, np.array(v), 0.9, 0.1)
        np.testing.assert_array_equal(new, factor)
        assert (log_scale, condition) == (0.0, 3.0)
