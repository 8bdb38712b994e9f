"""Splines among the factors' emulators: what they are, and that they are taken only where a polynomial is far worse."""

import numpy as np
import pytest

from pymc_kameleon.surrogates.factors import regression, splines
from pymc_kameleon.surrogates.factors.emulator import emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.regression import Sample, fit
from pymc_kameleon.surrogates.factors.splines import columns, nested
from tests.support.differences import assert_jacobian


def kinked(w):
    """No polynomial follows it: a log likelihood of distances, (n, d) to (n,)."""
    return -3.0 * np.sqrt(0.01 + np.square(w).sum(axis=1)) + np.sin(2.0 * w[:, 0])


def fitted(d, function=kinked, **options):
    """Two factors of the same d inputs each: a kinked one, and a quadratic."""
    rng = np.random.default_rng(0)
    layout = Layout(np.array([0, d, 2 * d]), np.arange(3), np.full(2, True))
    w = np.tile(rng.standard_normal((250, d)), 2)
    o = np.stack([function(w[:, :d]), -0.5 * np.square(w[:, d:]).sum(axis=1)], axis=1)
    reference = options.pop("reference", w[:100])
    found = fit(rng, layout, Sample(w, o, o.sum(axis=1)), reference, w[0], np.ones(2), **options)
    return found, w


def plain(emulator, k, t):
    """The definition, term by term, at ``t`` in the ball: the first output."""
    e, value = emulator, 0.0
    for m in range(e.first[k], e.first[k + 1]):
        row = e.start[k] + m - e.first[k]
        value += e.coefficients[row] * np.prod(t[e.variables[m]] ** e.powers[m])
    d = len(t)
    for c in range(e.splines.first[k], e.splines.first[k + 1]):
        gap = e.whitening[k, :d, :d] @ t - e.splines.centres[c, :d]
        value += e.splines.heights[e.splines.start[k] + c - e.splines.first[k]] * np.sqrt(gap @ gap) ** 3
    return value


@pytest.mark.parametrize("d", [1, 2, 5])
def test_compiled_values_are_those_of_the_definition(d):
    found, w = fitted(d)
    e = found.emulator
    assert e.splines.first[1] > 0
    for row in w[:5]:
        outputs, _, penalty, _ = emulate(e, row)
        assert penalty == 0.0
        for k in range(2):
            mine = slice(k * d, (k + 1) * d)
            t = (row[mine] - e.centre[mine]) / e.scale[mine]
            assert outputs[k] == pytest.approx(plain(e, k, t), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("far", [1.0, 12.0])
def test_the_jacobian_is_that_of_the_value(d, straight, far):
    e = fitted(d)[0].emulator._replace(straight=straight)
    point = far * np.array([0.7, -0.4, 0.6, 0.5, -0.8, 0.7, -0.4, 0.6, 0.5, -0.8])[: 2 * d]
    assert (assert_jacobian(e, point)[2] > 0.0) == (far > 1.0)


def test_at_a_centre_it_has_a_slope():
    e = fitted(2)[0].emulator
    at = np.linalg.solve(e.whitening[0], e.splines.centres[0]) * e.scale[:2] + e.centre[:2]
    point = np.concatenate([at, at])
    for value in emulate(e, point)[:2]:
        assert np.isfinite(value).all()


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_fit_is_that_of_the_saddle_point_equations(d, monkeypatch):
    """min sum w (g - o)^2 + RIDGE sum(w) a' Phi a under P' a = 0, with a centre at every point."""
    monkeypatch.setattr(splines, "ROUNDING", 1e-15)
    monkeypatch.setattr(splines, "RIDGE", 1e-4)
    rng = np.random.default_rng(d)
    z, weights = rng.standard_normal((90, d)), rng.uniform(0.5, 1.0, 90)
    o = kinked(z)[:, None]
    found = splines.fit_spline(z, z, o, weights)
    phi = np.array([[np.sqrt(((a - b) ** 2).sum()) ** 3 for b in z] for a in z])
    x = columns(z, *nested(d, 2, 2))
    p = x.shape[1]
    top = phi + splines.RIDGE * weights.sum() * np.diag(1.0 / weights)
    solved = np.linalg.solve(np.block([[top, x], [x.T, np.zeros((p, p))]]), np.vstack([o, np.zeros((p, 1))]))
    fresh = 0.7 * rng.standard_normal((20, d))
    cubes = np.array([[np.sqrt(((a - b) ** 2).sum()) ** 3 for b in z] for a in fresh])
    want = cubes @ solved[:90] + columns(fresh, *nested(d, 2, 2)) @ solved[90:]
    np.testing.assert_allclose(splines.values(found, fresh, fresh), want, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_sum_of_cubes_stays_bounded(d):
    """Which it does because no quadratic sees the heights; one of them changed is the control."""
    rng = np.random.default_rng(d)
    z = rng.standard_normal((120, d))
    found = splines.fit_spline(z, z, kinked(z)[:, None], np.ones(120))
    seen = columns(found.centres, *nested(d, 2, 2)).T @ found.heights
    assert np.abs(seen).max() < 1e-9 * np.abs(found.heights).sum()
    direction = rng.standard_normal(d) / np.sqrt(d)
    alone = found._replace(coefficients=np.zeros_like(found.coefficients))
    wrong = alone._replace(heights=alone.heights + np.eye(len(z))[:, :1] * 1e-3)

    def size(spline, r):
        return abs(float(splines.values(spline, r * direction[None], r * direction[None])[0, 0]))

    assert size(alone, 200.0) < 2.0 * size(alone, 20.0) + 1.0
    assert size(wrong, 200.0) > 100.0 * size(wrong, 20.0)


def test_it_is_taken_where_it_pays_and_the_polynomial_where_that_is_exact(monkeypatch):
    found, _ = fitted(2)
    assert np.diff(found.emulator.splines.first).tolist() == [250, 0]
    fresh = np.random.default_rng(1).standard_normal((300, 2))

    def error(emulator):
        got = np.array([emulate(emulator, np.concatenate([a, a]))[0] for a in fresh])
        return np.abs(got - np.stack([kinked(fresh), -0.5 * (fresh**2).sum(axis=1)], axis=1))

    with_spline = error(found.emulator)
    assert with_spline[:, 1].max() < 1e-5
    monkeypatch.setattr(regression, "POOR", np.inf)
    without, _ = fitted(2)
    assert without.emulator.splines.first[-1] == 0
    assert np.quantile(with_spline[:, 0], 0.9) < 0.5 * np.quantile(error(without.emulator)[:, 0], 0.9)
    assert found.errors[0] < without.errors[0] * np.sqrt(splines.MARGIN)


def test_errors_are_those_of_points_that_are_held_out():
    """Of noise nothing is known: its sd is the error, though a spline goes through every point."""
    rng = np.random.default_rng(4)
    w, held = rng.standard_normal((200, 2)), rng.random(200) < 0.2
    o = rng.standard_normal((200, 1))

    def squared_error(wrong):
        assert wrong.shape == (held.sum(), 1)
        return float(np.square(wrong).mean())

    _, error = splines.better(w, w, o, np.ones(200), held, squared_error, np.inf)
    assert error > 0.7
    assert splines.better(w, w, o, np.ones(200), held, squared_error, 0.7) is None


@pytest.mark.parametrize("case", ["climb", "many inputs", "few points", "smooth"])
def test_where_none_is_tried(case, monkeypatch):
    if case == "few points":  # tried, but there are not enough to fit one
        assert splines.fit_spline(*[np.eye(3)[:, :1]] * 3, np.ones(3)) is None
        return
    monkeypatch.setattr(splines, "fit_spline", None)
    if case == "climb":
        fitted(2, reference=None, nearest=True)
    elif case == "smooth":
        fitted(2, function=lambda w: -0.5 * (w**2).sum(axis=1) + 0.1 * w[:, 0] ** 3)
    else:
        fitted(splines.INPUTS + 1)


def test_predictions_that_wiggle_have_one():
    """A calibration curve of radiocarbon ages: no polynomial of degree 6 follows it, whatever the number of points."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((200, 1))
    layout, o = Layout(np.array([0, 1]), np.arange(2), np.full(1, False)), w + 2.0 * np.sin(4.0 * w)
    found = fit(rng, layout, Sample(w, o, -0.5 * o[:, 0] ** 2), w, w[0], np.ones(1))
    assert found.emulator.splines.first[1] > 0
    assert found.error < 0.01


def test_careful_takes_what_is_about_as_good():
    """A quartic is as good as a spline here; the exact quadratic stays what it is."""

    def bent(w):
        return -0.5 * (w**2).sum(axis=1) + 0.3 * np.sin(w[:, 0] + w[:, 1])

    found, _ = fitted(2, function=bent)
    careful, _ = fitted(2, function=bent, careful=True)
    assert np.diff(found.emulator.splines.first).tolist() == [0, 0]
    assert np.diff(careful.emulator.splines.first).tolist() == [250, 0]


def test_centres_are_spread_out():
    rng = np.random.default_rng(2)
    z = np.concatenate([0.01 * rng.standard_normal((400, 2)), rng.standard_normal((100, 2))])
    chosen = splines.spread_out(z, np.ones(500), 60)
    assert len(np.unique(chosen)) == 60
    assert (chosen >= 400).mean() > 0.8
    heavy = np.where(np.arange(500) < 450, 1.0, 1e-9)
    assert (splines.spread_out(z, heavy, 60) < 450).all()
