"""Measures against a known truth."""

import math

import numpy as np
import pytest

from benchmarks.measures import MarginalTruth, _moments, confidence_regions, error_efficiency, mmd
from pymc_kameleon.targets import Banana

LIMIT = 4.5


def test_confidence_regions_of_exact_draws():
    rng, target = np.random.default_rng(1), Banana(0.1)
    for drawn, exact in ((target, True), (Banana(0.1, 80.0), False)):
        levels = target.level(drawn.sample(rng, 40 * 1000)).reshape(40, 1000)
        coverage, error = confidence_regions(levels)
        worst = np.abs((coverage - [0.683, 0.9, 0.95, 0.99]) / error).max()
        assert worst < LIMIT if exact else worst > 10


def gram(x, y):
    return (1.0 + x @ y.T) ** 3


@pytest.mark.parametrize("d", [1, 2, 5])
def test_mmd_equals_the_gram_matrices(d):
    rng = np.random.default_rng(d)
    x, y = rng.standard_normal((30, d)), 0.3 + 1.2 * rng.standard_normal((41, d))
    square = gram(x, x).mean() + gram(y, y).mean() - 2 * gram(x, y).mean()
    assert mmd(x, y) == pytest.approx(math.sqrt(square), rel=1e-10)
    assert mmd(x, x) == 0.0
    for whole, parts in zip(_moments(x), _moments(x, 7), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)


STANDARD_NORMAL = MarginalTruth(
    np.zeros(2), np.ones(2), np.array([[-1.2815515655], [-0.6744897502], [0.6744897502], [1.2815515655]]) * np.ones(2)
)


def test_error_efficiency_of_independent_draws_is_their_number():
    draws = np.random.default_rng(7).standard_normal((400, 50, 2))
    each = np.array([error_efficiency(d[None], STANDARD_NORMAL, 200) for d in draws])
    found = error_efficiency(draws, STANDARD_NORMAL, 200)
    np.testing.assert_allclose(found, 1 / (1 / each).mean(axis=0))
    spread = (1 / each).std(axis=0, ddof=1) / 20
    assert (np.abs(1 / found - 1 / 250) < LIMIT * spread).all()


def test_error_efficiency_sees_through_repetition_and_through_missing_mass():
    draws = np.random.default_rng(7).standard_normal((400, 50, 2))
    once = error_efficiency(draws, STANDARD_NORMAL, 50)
    repeated = error_efficiency(np.repeat(draws, 5, axis=1), STANDARD_NORMAL, 250)
    np.testing.assert_allclose(repeated, once / 5, rtol=1e-10)
    draws[:, :, 0] = np.abs(draws[:, :, 0])  # perfect by effective sample size
    assert error_efficiency(draws, STANDARD_NORMAL, 50)[0] < 0.2 * once[0]
