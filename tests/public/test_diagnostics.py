import math
import pickle

import numpy as np
import pytest

from pymc_kameleon import diagnostics
from pymc_kameleon.diagnostics import (
    CountingLogDensity,
    MarginalTruth,
    confidence_regions,
    efficiency,
    error_efficiency,
    marginal_truth,
    mmd,
    mmd_floor,
    norm_of_mean,
    quantile_deviation,
    squared_mmd,
    suboptimality,
)
from pymc_kameleon.targets import Banana

LIMIT = 4.5


# -- regions


def test_quantile_deviation_on_known_levels():
    midpoints = (np.arange(1000) + 0.5) / 1000
    assert quantile_deviation(midpoints) == pytest.approx(0.0, abs=1e-12)
    # everything in the innermost region: mean of 1 - q; everything outside: mean of q
    assert quantile_deviation(np.zeros(7)) == pytest.approx(0.5)
    assert quantile_deviation(np.ones(7)) == pytest.approx(0.5)
    # uniform on (0, 1/2): coverage min(1, 2 q), so the mean of q for q <= .5 and of 1 - q above
    assert quantile_deviation(midpoints / 2) == pytest.approx((1.5 + 1.0) / 9)
    assert quantile_deviation(midpoints / 2, [0.25]) == pytest.approx(0.25)
    assert quantile_deviation(midpoints.reshape(4, 250)) == quantile_deviation(midpoints)


def test_confidence_regions_on_known_levels():
    midpoints = (np.arange(1000) + 0.5) / 1000
    table = confidence_regions(midpoints)
    np.testing.assert_allclose(table.coverage, [0.683, 0.9, 0.95, 0.99])
    assert np.isnan(table.standard_error).all()
    two = confidence_regions(np.array([midpoints, np.zeros(1000)]))
    np.testing.assert_allclose(two.coverage, (table.coverage + 1) / 2)
    np.testing.assert_allclose(two.standard_error, (1 - table.coverage) / 2)
    lines = str(two).splitlines()
    assert lines[0].split() == ["region", "inside", "±", "s.e."]
    assert lines[1].split() == ["68.3", "84.15", "15.85"]


def test_confidence_regions_of_exact_draws():
    rng = np.random.default_rng(1)
    target = Banana(0.1)
    levels = target.level(target.sample(rng, 40 * 1000)).reshape(40, 1000)
    table = confidence_regions(levels)
    assert np.abs((table.coverage - table.probability) / table.standard_error).max() < LIMIT
    narrow = Banana(0.1, 80.0)
    levels = target.level(narrow.sample(rng, 40 * 1000)).reshape(40, 1000)
    table = confidence_regions(levels)
    assert np.abs((table.coverage - table.probability) / table.standard_error).max() > 10


def test_norm_of_mean():
    x = np.array([[[3.0, 0.0], [3.0, 8.0]], [[1.0, 1.0], [1.0, 1.0]]])  # (chains, n, d)
    np.testing.assert_allclose(norm_of_mean(x), [5.0, math.sqrt(2)])
    assert norm_of_mean(x[1], np.array([1.0, 1.0])) == 0.0


# -- maximum mean discrepancy


def gram(x, y):
    return (1.0 + x @ y.T) ** 3


@pytest.mark.parametrize("d", [1, 2, 5])
def test_mmd_equals_the_gram_matrices(d):
    rng = np.random.default_rng(d)
    x, y = rng.standard_normal((30, d)), 0.3 + 1.2 * rng.standard_normal((41, d))
    biased = gram(x, x).mean() + gram(y, y).mean() - 2 * gram(x, y).mean()
    off = [(g.sum() - np.trace(g)) / (len(g) * (len(g) - 1)) for g in (gram(x, x), gram(y, y))]
    unbiased = off[0] + off[1] - 2 * gram(x, y).mean()
    assert squared_mmd(x, y) == pytest.approx(biased, rel=1e-10)
    assert squared_mmd(x, y, unbiased=True) == pytest.approx(unbiased, rel=1e-10)
    assert mmd(x, y) == pytest.approx(math.sqrt(biased), rel=1e-10)
    assert mmd(x, x) == 0.0


def test_blocks_do_not_change_the_moments():
    x = np.random.default_rng(0).standard_normal((1000, 3))
    for whole, parts in zip(diagnostics._moments(x), diagnostics._moments(x, 77), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        diagnostics._moments(x)[2].reshape(3, 3, 3), np.einsum("ni,nj,nk->ijk", x, x, x) / 1000
    )


def test_unbiased_mmd_is_unbiased_and_the_other_is_not():
    rng = np.random.default_rng(2)
    pairs = [(rng.standard_normal((40, 2)), rng.standard_normal((40, 2))) for _ in range(400)]
    unbiased = np.array([squared_mmd(x, y, unbiased=True) for x, y in pairs])
    biased = np.array([squared_mmd(x, y) for x, y in pairs])
    assert abs(unbiased.mean() / (unbiased.std(ddof=1) / 20)) < LIMIT
    assert biased.mean() / (biased.std(ddof=1) / 20) > 10
    assert (unbiased < 0).any()


def test_mmd_floor_is_what_independent_samples_show():
    rng = np.random.default_rng(3)
    target = Banana(0.03)
    floor = mmd_floor(target.sample(rng, 8000), rng)
    same = mmd(target.sample(rng, 4000), target.sample(rng, 4000))
    assert abs(same - floor.mean) < LIMIT * floor.sd
    # a sampler that has seen only one arm
    x = target.sample(rng, 8000)
    assert mmd(x[x[:, 0] > 0][:3000], target.sample(rng, 4000)) > floor.mean + 10 * floor.sd
    again = mmd_floor(x, np.random.default_rng(5), 3)
    assert again == mmd_floor(x, np.random.default_rng(5), 3)


# -- sub-optimality


def random_covariance(rng, d):
    a = rng.standard_normal((d, d))
    return a @ a.T + 0.1 * np.eye(d)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_suboptimality_from_its_definition(d):
    rng = np.random.default_rng(d)
    proposal, target = random_covariance(rng, d), random_covariance(rng, d)

    def power(matrix, exponent):
        values, vectors = np.linalg.eigh(matrix)
        return vectors @ np.diag(values**exponent) @ vectors.T

    eigenvalues = np.linalg.eigvals(power(proposal, 0.5) @ power(target, -0.5)).real
    expected = d * (eigenvalues**-2).sum() / (1 / eigenvalues).sum() ** 2
    assert suboptimality(proposal, target) == pytest.approx(expected, rel=1e-10)
    assert suboptimality(7 * proposal, target) == pytest.approx(expected, rel=1e-10)
    assert suboptimality(3 * target, target) == pytest.approx(1.0, rel=1e-10)
    assert expected >= 1.0 - 1e-12


def test_suboptimality_of_an_isotropic_walk():
    # eigenvalues of S_p^(1/2) S^(-1/2) are 1 / s_i: b = d sum s_i^2 / (sum s_i)^2
    s = np.array([1.0, 10.0, 100.0])
    assert suboptimality(np.eye(3), np.diag(s**2)) == pytest.approx(3 * 10101 / 111**2)
    with pytest.raises(ValueError, match="must be positive definite; smallest eigenvalue 0"):
        suboptimality(np.diag([1.0, 0.0, 1.0]), np.eye(3))


# -- cost


def test_counting():
    counted = CountingLogDensity(Banana().log_density)
    x = np.zeros(8)
    assert [counted(x) for _ in range(3)] == [Banana().log_density(x)] * 3
    assert counted.evaluations == 3
    counted.evaluations = 0
    counted(x)
    assert counted.evaluations == 1
    assert pickle.loads(pickle.dumps(counted)).evaluations == 1
    assert "evaluations=1" in repr(counted)


def as_inference_data(arrays):
    import arviz as az

    if az.__version__.startswith("0."):
        return az.from_dict(posterior=arrays)
    return az.from_dict({"posterior": arrays})


def test_efficiency_is_arvizs_bulk_ess_per_thousand_evaluations():
    import arviz as az

    rng = np.random.default_rng(4)
    x = rng.standard_normal((4, 500, 3))
    x[:, :, 2] = np.cumsum(x[:, :, 2], axis=1)  # a random walk: hardly any effective draws
    ess = np.array([float(az.ess(x[:, :, i], method="bulk")) for i in range(3)])
    found = efficiency(x, 8000)
    assert found.minimum == pytest.approx(ess.min() / 8, rel=1e-12)
    assert found.median == pytest.approx(np.median(ess) / 8, rel=1e-12)
    assert ess[2] < 100 < 1000 < ess[0]


def test_efficiency_reads_the_posterior_of_inference_data():
    rng = np.random.default_rng(5)
    arrays = {"a": rng.standard_normal((2, 400)), "b": rng.standard_normal((2, 400, 2, 3))}
    data = as_inference_data(arrays)
    flat = np.concatenate([arrays["a"][:, :, None], arrays["b"].reshape(2, 400, 6)], axis=2)
    assert efficiency(data, 1000) == pytest.approx(efficiency(flat, 1000), rel=1e-12)
    only = efficiency(data, 1000, var_names=["a"])
    assert only == pytest.approx(efficiency(flat[:, :, :1], 1000), rel=1e-12)


def test_a_constant_chain_has_no_effective_draws():
    x = np.random.default_rng(6).standard_normal((2, 400, 2))
    x[:, :, 1] = 3.0
    assert efficiency(x, 1000).minimum == 0.0


STANDARD_NORMAL = MarginalTruth(
    np.zeros(2),
    np.ones(2),
    np.array([[-1.2815515655], [-0.6744897502], [0.6744897502], [1.2815515655]]) * np.ones(2),
)


def test_error_efficiency_of_independent_draws_is_their_number():
    draws = np.random.default_rng(7).standard_normal((400, 50, 2))
    found = error_efficiency(draws, STANDARD_NORMAL, 200)
    z = (found.coordinates - 250.0) / (found.relative_error * found.coordinates)
    assert np.abs(z).max() < LIMIT
    assert found.relative_error.max() < 0.1
    assert found.worst == found.coordinates.min()
    assert found.median == pytest.approx(found.coordinates.mean())  # of two


def test_error_efficiency_sees_through_repetition_and_through_missing_mass():
    rng = np.random.default_rng(7)
    draws = rng.standard_normal((400, 50, 2))
    once = error_efficiency(draws, STANDARD_NORMAL, 50)
    repeated = error_efficiency(np.repeat(draws, 5, axis=1), STANDARD_NORMAL, 250)
    np.testing.assert_allclose(repeated.coordinates, once.coordinates / 5, rtol=1e-10)
    # never below zero in the first coordinate: perfect by effective sample size
    folded = draws.copy()
    folded[:, :, 0] = np.abs(folded[:, :, 0])
    found = error_efficiency(folded, STANDARD_NORMAL, 50)
    assert found.coordinates[0] < 0.2 * once.coordinates[0]
    four_chains = folded.reshape(4, 5000, 2)
    assert efficiency(four_chains, 20_000).minimum > 900


def test_marginal_truth_from_exact_draws():
    rng = np.random.default_rng(8)
    truth = marginal_truth(rng.standard_normal((400_000, 2)))
    # asymptotic standard errors of mean, variance and quantiles of n = 400,000 independent draws
    n = 400_000
    assert np.abs(truth.mean).max() * math.sqrt(n) < LIMIT
    assert np.abs(truth.variance - 1).max() * math.sqrt(n / 2) < LIMIT
    q = np.array([0.1, 0.25, 0.75, 0.9])[:, None]
    density = np.exp(-0.5 * STANDARD_NORMAL.quantiles**2) / math.sqrt(2 * math.pi)
    error = np.sqrt(q * (1 - q) / n) / density
    assert np.abs((truth.quantiles - STANDARD_NORMAL.quantiles) / error).max() < LIMIT
