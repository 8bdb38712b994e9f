"""Black boxes that do not depend on an input far out: a rate that may be 0, an efficiency that may be 1."""

from functools import cache

import numpy as np
import pytest

from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.emulator import bend, emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from tests.support.differences import assert_jacobian, slopes

TIMES = np.array([0.5, 1.0, 2.0])


def decay(w, sign):
    """Amount x left after each of ``TIMES``: inputs (n, 2) are the log of a rate, or minus it, and x."""
    return w[:, 1:] * np.exp(-TIMES * np.exp(sign * w[:, :1]))


@cache
def fitted(sign):
    rng = np.random.default_rng(0)
    layout = Layout(np.array([0, 2]), np.array([0, 3]), np.array([False]))
    rate = np.abs(0.5 * rng.standard_normal(400)) + 1e-300  # that may be 0
    w = np.stack([sign * np.log(rate), 3.0 + 0.3 * rng.standard_normal(400)], axis=1)
    sample = regression.Sample(w, decay(w, sign), np.zeros(400))
    return regression.fit(rng, layout, sample, w[:200], w[0], np.full(3, 1e4))


def worst(emulator, sign):
    """Largest error, in units of the errors of measurement, where the rate is hardly there."""
    far = np.array([[-sign * below, 3.0] for below in (7.0, 9.0, 12.0)])
    found = np.array([emulate(emulator, row)[0] for row in far])
    return 100.0 * np.abs(found - decay(far, sign)).max()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_tail_on_which_nothing_depends_is_level(monkeypatch, sign):
    found = fitted(sign)
    assert np.isfinite(found.emulator.knots[0, 0 if sign > 0 else 1])
    assert not np.isfinite(found.emulator.knots[1]).any()
    assert worst(found.emulator, sign) < 1.0
    monkeypatch.setattr(regression, "LONG", np.inf)
    assert worst(fitted.__wrapped__(sign).emulator, sign) > 10.0  # the control


def test_a_long_record_is_thinned_to_its_heaviest_rows():
    weights = np.array([0.9, 0.1, 0.0, 0.5, 0.1, 0.8, 0.1, 1e-12])
    assert regression.heaviest(weights, 3).tolist() == [0, 3, 5]
    assert regression.heaviest(weights, 4).tolist() == [0, 3, 5, 6]  # of three that weigh alike the last
    assert regression.heaviest(weights).tolist() == [0, 1, 3, 4, 5, 6]


def test_an_ordinary_posterior_keeps_its_inputs():
    rng = np.random.default_rng(0)
    assert not np.isfinite(regression.long_tails(rng.standard_normal((4000, 5)))).any()


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (-1.0, np.inf), (-np.inf, 2.0), (-1.0, 2.0)])
def test_the_bend_is_that_of_the_fit_and_its_slope_that_of_differences(low, high):
    for w in np.array([[-9.0], [-1.0], [0.3], [2.0], [9.0]]):
        value, slope = bend(w[0], low, high)
        assert value == regression.bent(w, np.array([[low, high]]))[0]
        assert slope == pytest.approx(slopes(lambda w: bend(w[0], low, high)[0], w)[0], abs=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("far", [0.0, 4.0, 30.0])
def test_the_jacobian_is_that_of_differences(sign, far):
    assert_jacobian(fitted(sign).emulator, np.array([-sign * 2.0, 3.0 + far]))


def test_inputs_that_are_no_numbers_are_an_error_that_the_sampler_knows():
    """What was positive wherever one had looked is learned as its logarithm, and a chain may go beyond 0."""
    rng = np.random.default_rng(0)
    layout = Layout(np.array([0, 1]), np.array([0, 1]), np.array([False]))
    w = np.log(rng.standard_normal((60, 1)) ** 2)
    sample = regression.Sample(w, 2.0 * w, np.zeros(60))
    beyond = np.full_like(w, np.nan)
    around = np.concatenate([w[:20], beyond[:5]])
    assert regression.fit(rng, layout, sample, around, w[0], np.ones(1)).errors.max() < 1e-3
    for reference, here in ((around, beyond[0]), (beyond, w[0])):
        with pytest.raises(np.linalg.LinAlgError, match="no numbers where the chain is"):
            regression.fit(rng, layout, sample, reference, here, np.ones(1))
