"""Scales that the model says: their formula, compiled, beside what is fitted, and in a neck where nothing has been."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.kamiltonian.values import tuning
from pymc_kameleon.surrogates import transitions
from pymc_kameleon.surrogates.values import features, flattened, known_scales, regression
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from tests.support.differences import slopes
from tests.support.known_scales import plain

D = 8
# Three effects about x_2 with log sd x_0, three about 0 with log sd .3 - x_1 / 2, as of a precision
KNOWN = (
    KnownScale(0, 1.0, np.eye(D)[2:5] - np.eye(D)[5], np.zeros(3), 3),
    KnownScale(1, -0.5, math.exp(-0.3) * np.eye(D)[[6, 7]], np.array([0.0, 0.7]), 2),
)


def log_density(x, counts=0.0):
    """A hierarchy of two scales: normal data about the effects, or counts as well; hyperpriors."""
    data = np.array([0.3, -0.2, 0.9]) - x[2:5]
    also = 0.4 - x[6:]
    more = counts * (5.0 * x[2:5] - np.exp(x[2:5])).sum()
    return plain(KNOWN, x) - 0.5 * data @ data - also @ also - 0.5 * x[:2] @ x[:2] - 0.1 * x[5] ** 2 + more


def data(seed, n=1500, counts=0.0):
    """Points near the mass, none with a scale below exp(-2)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, D))
    x[:, 0] = rng.uniform(-2.0, 1.0, n)
    x[:, 1] = rng.uniform(-2.0, 3.0, n)
    x[:, 2:5] = x[:, [5]] + np.exp(x[:, :1]) * x[:, 2:5]
    x[:, 6:] *= np.exp(0.3 - 0.5 * x[:, 1:2])
    return x, np.array([log_density(row, counts) for row in x])


def fitted(known, seed=1, counts=0.0):
    x, y = data(seed, counts=counts)
    return regression.fit(np.random.default_rng(seed), x, y, x[:300], y[:300], known=known)


def neck(n=40):
    """Draws of the effects where the first scale is exp(-6)."""
    rng = np.random.default_rng(9)
    x = data(5, n)[0]
    x[:, 0] = -6.0
    x[:, 2:5] = x[:, [5]] + np.exp(-6.0) * rng.standard_normal((n, 3))
    return x


def test_in_a_surrogate_they_are_the_formula():
    rng = np.random.default_rng(0)
    centre, scale, factor = rng.standard_normal(D), rng.uniform(0.5, 2.0, D), np.tril(rng.standard_normal((D, D)))
    factor += 3.0 * np.eye(D)
    blocks, linear = known_scales.in_surrogate(KNOWN, centre, scale, factor)
    f = features.blank(centre, scale, np.linalg.inv(factor))
    f = f._replace(blocks=blocks, known=len(KNOWN), known_linear=linear)
    x = centre + 0.7 * rng.standard_normal((20, D))
    expected = np.array([plain(KNOWN, row) for row in x])
    np.testing.assert_allclose(np.ptp(flattened.values(f, x) - expected), 0.0, atol=1e-9)
    h = 1e-3
    at = lambda z: flattened.values(f, (centre + scale * (factor @ z))[None])[0]  # noqa: E731
    steps = h * np.eye(D)
    numeric = [[at(a + b) - at(a - b) - at(b - a) + at(-a - b) for a in steps] for b in steps]
    rows = blocks.rates[:, None] * factor[blocks.variables]
    mixed = rows.T @ blocks.linear + blocks.linear.T @ rows
    found = known_scales.curvature(f, factor) + mixed
    np.testing.assert_allclose(np.array(numeric) / (4.0 * h * h), found, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [30, 1000])
def test_where_all_but_what_is_linear_is_known_the_metric_is_the_posteriors(seed, n):
    """What is fitted has no curvature along log sigma but rounding's: an axis was 1 or 20,000 sds long, by its sign."""
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = design @ [1.0, 2.0] + rng.standard_normal(n)
    rows = np.column_stack([-design, np.zeros(n)])
    known = (KnownScale(2, 1.0, rows, y, n), KnownScale(2, -1.0, np.zeros((1, 3)), np.ones(1), 1))
    chain = np.array([1.0, 2.0, 0.0]) + rng.standard_normal((300, 3)) / np.sqrt([n, n, 2.0 * n])
    values = np.array([plain(known, x) - 0.005 * x[:2] @ x[:2] for x in chain])
    fit = regression.fit(rng, chain, values, chain, values, known=known)
    assert fit.quadratic_error < 1e-9
    metric = transitions.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    axes = np.linalg.eigvals(np.linalg.solve(fit.whiten_factor, metric)).real
    assert 0.5 < axes.min() <= axes.max() < 2.0


@pytest.mark.parametrize("reach", [math.inf, 1.5])
def test_compiled_value_and_gradient_beside_power_tails(reach):
    """What was fitted goes on as a power of the distance; what is known does not."""
    fit = fitted(KNOWN)
    whole = fit.surrogate._replace(reach=reach, slope=2.0, top=1e9)
    rest = known_scales.left_out(whole)
    x = data(3, 30)[0]
    s = (x - whole.centre) / whole.scale
    known = np.array([plain(KNOWN, row) for row in x])
    value, gradient = flattened.values_and_slopes(whole, s)
    np.testing.assert_allclose(np.ptp(value - flattened.values(rest, x) - known), 0.0, atol=1e-7)
    if math.isfinite(reach):
        assert np.abs(flattened.values(rest, x) - flattened.values(rest._replace(reach=math.inf), x)).max() > 0.1
    for row, by_s in zip(s[:5], gradient, strict=False):
        numeric = slopes(lambda at: flattened.values_and_slopes(whole, at[None])[0][0], row)
        np.testing.assert_allclose(by_s, numeric, rtol=1e-4, atol=1e-4)
    metric = transitions.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    dynamics = transitions.make_dynamics(whole, metric, x, 0.3)
    for row, expected in zip(x, value, strict=True):
        z = transitions.to_z(dynamics, row)
        assert transitions.value(dynamics, z) == pytest.approx(expected, rel=1e-8)
        by_z, buffer, other = np.empty(D), *np.empty((2, flattened.room(D, dynamics.flat[1])))
        half = flattened.at(*dynamics.flat, 0.5, z, by_z, buffer, other)
        assert half == pytest.approx(0.5 * expected, rel=1e-8)
    numeric = slopes(lambda at: 0.5 * transitions.value(dynamics, at), z)
    np.testing.assert_allclose(by_z, numeric, rtol=1e-4, atol=1e-4)


def test_where_all_else_is_learned_chains_may_go_farther_than_they_have_been():
    """A few hundred states tell all that is not known, and not how wide it is: of 34 unknowns 28 draws for 490."""
    exact = fitted(KNOWN)
    assert exact.error < 1e-3
    assert tuning._times(exact) == 10.0
    assert tuning._times(exact._replace(error=0.1)) == transitions.REACH
    assert tuning._times(fitted(())) == transitions.REACH


def test_a_neck_where_nothing_has_been_is_right():
    """The control: what is learned of the same points is wrong there by more than nats."""
    x = neck()
    truth = np.array([log_density(row, 1.0) for row in x])
    known, learned = (flattened.values(fitted(known, counts=1.0).surrogate, x) for known in (KNOWN, ()))
    assert np.abs(known - truth).max() < 0.3
    assert np.abs(learned - truth).max() > 2.0


def test_one_is_found_beside_what_is_known():
    """A scale that nobody knew is learned as ever, and does not take the others' place."""
    fit = fitted(KNOWN[:1])
    assert fit.family.startswith("scales")
    assert fit.surrogate.known == 1
    assert len(fit.surrogate.blocks.rates) > 1
    np.testing.assert_array_equal(fit.surrogate.blocks.rates[0], -2.0 * fit.surrogate.scale[0])
    x, y = data(7, 200)
    assert np.abs(flattened.values(fit.surrogate, x) - y).max() < 0.3


def test_without_any_no_bit_changes():
    x, y = data(2)
    fits = [regression.fit(np.random.default_rng(0), x, y, x[:300], y[:300], **more) for more in ({}, {"known": ()})]
    np.testing.assert_array_equal(*(flattened.values(fit.surrogate, x) for fit in fits))


def test_curvature_is_that_of_all():
    """Of a normal prior of scale 1 and nothing else, of which the fitted quadratic has none."""
    rng = np.random.default_rng(4)
    known = (KnownScale(0, 1.0, np.eye(3)[1:], np.zeros(2), 2),)
    x = rng.standard_normal((400, 3)) * np.array([0.01, 1.0, 1.0])
    y = np.array([plain(known, row) - 0.5 * (100.0 * row[0]) ** 2 for row in x])
    fit = regression.fit(rng, x, y, x, y, known=known)
    np.testing.assert_allclose(np.diag(fit.curvature), -1.0, atol=0.25)
