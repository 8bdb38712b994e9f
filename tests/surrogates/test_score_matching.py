"""Score matching against brute-force loops, differences and the paper's own matrix formulas."""

from functools import partial

import numpy as np
import pytest

from pymc_kameleon.numerics import random_features as rff
from pymc_kameleon.surrogates.scores import finite, lite, low_rank
from pymc_kameleon.surrogates.scores import lengthscales as search
from pymc_kameleon.surrogates.scores import objective as sm
from pymc_kameleon.surrogates.scores import online as online_finite
from tests.support.differences import slopes

each_dim = pytest.mark.parametrize("dim", [1, 2, 5])
each_base = pytest.mark.parametrize("with_base", [False, True], ids=["flat", "base"])
each_embedding = pytest.mark.parametrize("embedding", rff.EMBEDDINGS)
LENGTHSCALE = 1.3


def lengthscales(dim):
    """A different one for each coordinate."""
    return LENGTHSCALE * np.linspace(0.8, 1.3, dim)


def draw_features(rng, kernel, dim, n_features, embedding="sincos"):
    """Features with those lengthscales."""
    unit = rff.draw_features(rng, kernel, dim, n_features, 1.0, embedding)
    return rff.at_lengthscale(unit, lengthscales(dim))


def problem(dim, with_base=True, n=12, seed=0):
    rng = np.random.default_rng([seed, dim])
    points = rng.standard_normal((n, dim)) * np.linspace(0.7, 1.2, dim)
    weights = rng.integers(1, 4, n).astype(float)
    scale = np.linspace(1.5, 2.5, dim) if with_base else np.inf
    base = sm.gaussian_base(dim, rng.standard_normal(dim) * 0.3, scale)
    return rng, points, weights, base


def surrogates(dim, with_base=True):
    """One fitted surrogate of each family (both embeddings)."""
    rng, points, weights, base = problem(dim, with_base)
    fits = [lite.fit_lite(points, lengthscales(dim), 1e-2, weights, base)]
    for embedding in rff.EMBEDDINGS:
        features = draw_features(rng, "gaussian", dim, 14, embedding)
        fits.append(finite.fit_finite(points, features, 1e-2, weights, base))
    return rng, points, weights, fits


# --- oracles: loops -----------------------------------------------------------------------------


def values(fit, x):
    """f at the rows of ``x``, as it is written down."""
    base = -0.5 * np.square(x - fit.base.mean) @ fit.base.precision
    if isinstance(fit, lite.LiteSurrogate):
        squared = np.square((x[:, None] - fit.centres) / fit.lengthscale).sum(axis=2)
        return base + np.exp(-0.5 * squared) @ fit.coefficients
    return base + rff.features(x, fit.features) @ fit.coefficients


def loop_objective(value, points, weights, dim, h=1e-3):
    """J of a function known by its values only, with fourth-order differences."""
    total = 0.0
    for x, w in zip(points, weights / weights.sum(), strict=True):
        for e in h * np.eye(dim):
            f = [value(x + k * e) for k in (-2, -1, 0, 1, 2)]
            first = (f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * h)
            second = (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * h * h)
            total += w * (second + 0.5 * first**2)
    return total


# --- value, gradient, Laplacian, objective ------------------------------------------------------


@each_base
@each_dim
def test_compiled_and_batch_agree_and_derivatives_are_those_of_differences(dim, with_base):
    rng, points, weights, fits = surrogates(dim, with_base)
    for fit in fits:
        x = rng.standard_normal((4, dim))

        def value(z, fit=fit):
            return values(fit, z[None])[0]

        def gradient(z, fit=fit):
            return fit.gradients(z[None])[0]

        for row, laplacian in zip(x, fit.laplacians(x), strict=True):
            assert sm.value(row, fit) == pytest.approx(value(row), rel=1e-10, abs=1e-12)
            np.testing.assert_allclose(sm.gradient(row, fit), gradient(row), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(gradient(row), slopes(value, row, 1e-4), rtol=1e-6, atol=1e-7)
            assert laplacian == pytest.approx(np.trace(slopes(gradient, row, 1e-4)), rel=1e-6, abs=1e-7)
        slow = loop_objective(value, points, weights, dim)
        np.testing.assert_allclose(sm.score_objective(fit, points, weights), slow, rtol=1e-6)


def test_gaussian_objective_is_that_of_the_gaussian_fit():
    rng, points, weights, _ = problem(3, n=30)
    mean = np.average(points, axis=0, weights=weights)
    cov = np.cov(points.T, aweights=weights, ddof=0)
    test = rng.standard_normal((5, 3))
    slow = loop_objective(lambda x: -0.5 * (x - mean) @ np.linalg.solve(cov, x - mean), test, np.ones(5), 3)
    np.testing.assert_allclose(sm.gaussian_objective(points, test, weights), slow, rtol=1e-6)


# --- lite ---------------------------------------------------------------------------------------


def text_lite(z, sigma, lam, factor):
    """Proposition 1 of Strathmann et al. (2015), literally; k = exp(-r^2 / sigma)."""
    n = len(z)
    K = np.exp(-np.square(z[:, None] - z[None]).sum(-1) / sigma)
    b, C = np.zeros(n), np.zeros((n, n))
    for l in range(z.shape[1]):
        D, s = np.diag(z[:, l]), z[:, l] ** 2
        one = np.ones(n)
        b += 2 / sigma * (K @ s + np.diag(s) @ K @ one - 2 * D @ K @ z[:, l]) - K @ one
        C += (D @ K - K @ D) @ (K @ D - D @ K)
    return factor * np.linalg.solve(C + lam * np.eye(n), b)


@each_dim
def test_lite_is_the_papers_proposition_1(dim):
    """With -sigma / 2 and lambda scaled by n^2 sigma^2 / 4; the appendix, which drops -sigma / 2, is off."""
    _, points, _, _ = problem(dim)
    sigma, regularization = 2 * LENGTHSCALE**2, 1e-3
    fit = lite.fit_lite(points, LENGTHSCALE, regularization, None, sm.gaussian_base(dim))
    lam = regularization * len(points) ** 2 * sigma**2 / 4
    alpha = text_lite(points, sigma, lam, -sigma / 2)
    np.testing.assert_allclose(fit.coefficients, alpha, rtol=1e-7, atol=1e-9)
    appendix = fit._replace(coefficients=text_lite(points, sigma, lam, 1.0))
    assert sm.score_objective(fit, points) < 0 < sm.score_objective(appendix, points)


@each_base
@each_dim
def test_lite_minimises_its_penalised_objective(dim, with_base):
    rng, points, weights, base = problem(dim, with_base)
    regularization = 1e-2
    fit = lite.fit_lite(points, lengthscales(dim), regularization, weights, base)

    def penalised(a):
        objective = sm.score_objective(fit._replace(coefficients=a), points, weights)
        return objective + 0.5 * regularization * len(points) * a @ a

    check_minimum(penalised, fit.coefficients, rng)


def check_minimum(objective, at, rng, h=1e-4):
    """A quadratic's central differences are exact: zero slope, and up in every direction."""
    best = objective(at)
    for _ in range(10):
        e = h * rng.standard_normal(len(at))
        up, down = objective(at + e), objective(at - e)
        curvature = up + down - 2 * best
        assert curvature > 0
        assert abs(up - down) < 1e-4 * curvature + 1e-13 * abs(best)


def test_duplicates_are_weights_and_regularization_means_the_same_for_every_n():
    rng, points, _, base = problem(2)
    x = rng.standard_normal((5, 2))
    once = lite.fit_lite(points, LENGTHSCALE, 1e-3, None, base)
    twice = lite.fit_lite(np.concatenate([points, points]), LENGTHSCALE, 1e-3, None, base)
    np.testing.assert_allclose(once.gradients(x), twice.gradients(x), rtol=1e-7)
    features = rff.draw_features(rng, "gaussian", 2, 20, LENGTHSCALE)
    once = finite.fit_finite(points, features, 1e-3, None, base)
    twice = finite.fit_finite(points, features, 1e-3, np.full(len(points), 2.0), base)
    thrice = finite.fit_finite(np.repeat(points, 3, axis=0), features, 1e-3, None, base)
    np.testing.assert_allclose(once.gradients(x), twice.gradients(x), rtol=1e-8)
    np.testing.assert_allclose(once.gradients(x), thrice.gradients(x), rtol=1e-8)


@each_base
def test_low_rank_converges_to_dense(with_base):
    """Error against the tolerance of the incomplete Cholesky factor, down to conjugate gradients' own."""
    rng, points, weights, base = problem(2, with_base, n=150)
    x = rng.standard_normal((20, 2))
    exact = lite.fit_lite(points, lengthscales(2), 1e-3, weights, base).gradients(x)
    errors = []
    for tolerance in (1e-2, 1e-4, 1e-6, 1e-10):
        how = {"tolerance": tolerance, "residual": 1e-10}
        fit, _ = low_rank.fit_low_rank(points, lengthscales(2), 1e-3, weights, base, **how)
        errors.append(np.abs(fit.gradients(x) - exact).max() / np.abs(exact).max())
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[3] < 1e-6


def test_incomplete_cholesky_leaves_no_more_than_its_tolerance():
    _, points, _, _ = problem(2, n=80)
    kernel = lite._gram(points, points, np.full(2, LENGTHSCALE))
    factor = low_rank._incomplete_cholesky(points / LENGTHSCALE, 1e-3)
    assert factor.shape[1] < 60
    rest = np.diag(kernel - factor @ factor.T)
    assert rest.min() > -1e-12
    assert rest.max() <= 1e-3


def test_too_little_regularization_is_reported_not_raised():
    points = np.repeat(np.array([[0.0], [1.0]]), 20, axis=0)
    assert lite.fit_lite(points, 1.0, 0.0, None, sm.gaussian_base(1)) is None


# --- finite -------------------------------------------------------------------------------------


@each_embedding
@each_base
@each_dim
def test_finite_minimises_its_penalised_objective(dim, with_base, embedding):
    rng, points, weights, base = problem(dim, with_base)
    features = draw_features(rng, "matern52", dim, 16, embedding)
    fit = finite.fit_finite(points, features, 1e-2, weights, base)
    sums = finite.score_sums(points, features, weights, base)

    def penalised(theta):
        objective = sm.score_objective(fit._replace(coefficients=theta), points, weights)
        np.testing.assert_allclose(finite.objective(sums, theta), objective, rtol=1e-8)
        return objective + 0.5 * 1e-2 * theta @ theta

    check_minimum(penalised, fit.coefficients, rng)


def test_sums_add():
    rng, points, weights, base = problem(3)
    features = rff.draw_features(rng, "gaussian", 3, 10, LENGTHSCALE)
    whole = finite.score_sums(points, features, weights, base)
    parts = [finite.score_sums(points[s], features, weights[s], base) for s in (slice(5), slice(5, 12))]
    for a, b in zip(whole, finite.merge(*parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# --- online -------------------------------------------------------------------------------------


@each_embedding
def test_online_is_the_batch_estimate(embedding):
    """After every point: theta is the batch solution at the ridge kept, which stays within a factor 2."""
    rng, points, _, base = problem(2, n=60)
    features = draw_features(rng, "gaussian", 2, 20, embedding)
    online = online_finite.start(points[:10], features, 1e-3, base)
    refactored = 0
    for t in range(10, 60):
        ridge = online.ridge
        online = online_finite.push(online, points[t])
        refactored += online.ridge != ridge
        asked = 1e-3 * (t + 1)
        assert asked / 2 < online.ridge <= asked * (1 + 1e-12)
        batch = finite.fit_finite(points[: t + 1], features, online.ridge / (t + 1), None, base)
        found = online_finite.surrogate(online).coefficients
        np.testing.assert_allclose(found, batch.coefficients, rtol=1e-7, atol=1e-9)
    assert refactored == 2  # at 20 and 40


def test_online_refuses_no_regularization():
    rng, points, _, _ = problem(2)
    features = rff.draw_features(rng, "gaussian", 2, 60, LENGTHSCALE)
    with pytest.raises(np.linalg.LinAlgError, match=r"regularization = 0\.0"):
        online_finite.start(points, features, 0.0, sm.gaussian_base(2))


# --- validation ---------------------------------------------------------------------------------

GRID = np.array([0.3, 1.0, 3.0, 10.0]), np.array([1e-1, 1e-3, 1e-5])


def validate(family, rng, points, folds, weights, base):
    scores = lite.lite_scores
    if family == "finite":
        scores = partial(finite.finite_scores, rff.draw_features(rng, "gaussian", points.shape[1], 60))
    return sm.validate(scores, points, folds, *GRID, weights, base)


@each_base
@pytest.mark.parametrize("family", ["lite", "finite"])
def test_validation_scores_are_held_out_refits(family, with_base):
    _, points, weights, base = problem(2, with_base, n=24)
    folds = sm.block_folds(24, 3, 2)
    result = validate(family, np.random.default_rng(1), points, folds, weights, base)
    unit = rff.draw_features(np.random.default_rng(1), "gaussian", 2, 60)
    for i, lengthscale in enumerate(GRID[0]):
        for j, regularization in enumerate(GRID[1]):
            scores = []
            for fold in folds:
                train = np.setdiff1d(np.arange(24), fold)
                if family == "lite":
                    fit = lite.fit_lite(points[train], lengthscale, regularization, weights[train], base)
                else:
                    features = rff.at_lengthscale(unit, lengthscale)
                    fit = finite.fit_finite(points[train], features, regularization, weights[train], base)
                scores.append(sm.score_objective(fit, points[fold], weights[fold]))
            np.testing.assert_allclose(result.scores[i, j], np.mean(scores), rtol=1e-6)
    assert result.score == result.scores.min()
    best = np.argwhere(result.scores == result.score)[0]
    assert result.lengthscale == GRID[0][best[0]]
    assert result.regularization == GRID[1][best[1]]
    np.testing.assert_allclose(result.gain, result.gaussian_score - result.score, rtol=1e-10)


def banana(rng, n):
    x = rng.standard_normal((n, 2))
    x[:, 1] += 1.5 * (x[:, 0] ** 2 - 1)
    return x


def test_validation_recognises_a_gaussian_and_a_banana():
    """The gain over a Gaussian fit: clearly positive for a banana, not for a Gaussian."""
    rng = np.random.default_rng(2)
    folds, weights, base = sm.block_folds(600), np.ones(600), sm.gaussian_base(2, 0.0, 3.0)
    for family in ("lite", "finite"):
        curved = validate(family, rng, banana(rng, 600), folds, weights, base)
        assert curved.gain > 4 * curved.gain_error > 0
        straight = validate(family, rng, rng.standard_normal((600, 2)), folds, weights, base)
        assert straight.gain < 2 * straight.gain_error
        assert straight.lengthscale > curved.lengthscale or family == "finite"


def slow_banana(rng, n):
    """Bent in the first two of five coordinates, standard normal in the others."""
    x = rng.standard_normal((n, 5))
    x[:, :2] = banana(rng, n)
    return x / x.std(axis=0)


@pytest.mark.parametrize("family", ["lite", "finite"])
def test_search_finds_the_coordinates_that_matter(family):
    """Shorter lengthscales where the target bends, and a better held-out score on fresh draws."""
    rng = np.random.default_rng(5)
    points, fresh = slow_banana(rng, 500), slow_banana(rng, 2000)
    folds, base, weights = sm.block_folds(500), sm.gaussian_base(5, 0.0, 2.0), np.ones(500)
    unit = rff.draw_features(rng, "gaussian", 5, 150)
    grid = 10.0 ** np.arange(-1.0, -7.0, -1.0)
    found = search.search_lengthscales(points, folds, unit, grid, weights, base)
    assert found[:2].max() < 0.5 * found[2:].min()
    flat = sm.gaussian_base(5)
    finite_scores = partial(finite.finite_scores, unit)
    isotropic = sm.validate(finite_scores, points, folds, sm.lengthscale_grid(points, 5), grid, weights, flat)
    scores = []
    for lengthscale in (found, isotropic.lengthscale):
        if family == "lite":
            few = points[:200], sm.block_folds(200), [lengthscale], grid, weights[:200]
            best = sm.validate(lite.lite_scores, *few, flat)
            fit = lite.fit_lite(points, lengthscale, best.regularization, None, base)
        else:
            best = sm.validate(finite_scores, points, folds, [lengthscale], grid, weights, base)
            features = rff.at_lengthscale(unit, lengthscale)
            fit = finite.fit_finite(points, features, best.regularization, None, base)
        scores.append(sm.score_objective(fit, fresh))
    assert scores[0] < 1.3 * scores[1] < 0  # in units of the true score's -J


def test_distinct_states():
    points = np.array([[2.0, 1.0], [2.0, 1.0], [0.0, 5.0], [2.0, 1.0], [1.0, 1.0]])
    states, weights = sm.distinct_states(points)
    np.testing.assert_array_equal(states, [[2.0, 1.0], [0.0, 5.0], [1.0, 1.0]])
    np.testing.assert_array_equal(weights, [3.0, 1.0, 1.0])


def test_block_folds_partition_into_blocks():
    folds = sm.block_folds(50, 4, 3)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(50))
    for fold in folds:
        assert (np.diff(fold) > 1).sum() == 2  # three contiguous blocks


def test_failed_pairs_are_never_selected():
    scores = np.array([[[np.inf, -1.0]], [[-50.0, -2.0]]])
    best = sm.select(scores, [0.0, 0.0], [1.0], [1e-9, 1e-3])
    assert best.regularization == 1e-3
    assert best.score == -1.5
    none = sm.select(np.full((2, 1, 2), np.inf), [0.0, 0.0], [1.0], [1e-9, 1e-3])
    assert none.gain == -np.inf


def test_base_density_needs_a_positive_scale():
    with pytest.raises(ValueError, match="scale"):
        sm.gaussian_base(2, 0.0, 0.0)
