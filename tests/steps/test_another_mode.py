"""A mode that a look has found, and in which the chain is not, is told when tuning ends; nothing else is."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.steps import AdaptiveMetropolisStep
from tests.step_tester import NO_BLAS, begin, drive, warnings_in

pytestmark = NO_BLAS


def two(x):
    """Standard normals at 8 and -8."""
    return pt.logaddexp(-0.5 * ((x - 8.0) ** 2).sum(), -0.5 * ((x + 8.0) ** 2).sum())


SHAPES = {
    "normal": lambda x: -0.5 * (x**2).sum(),
    "banana": lambda x: -0.5 * (x[0] ** 2 / 4.0 + (x[1] - 0.5 * x[0] ** 2) ** 2),
    "funnel": lambda x: -0.5 * x[0] ** 2 - 0.5 * x[1] ** 2 * pt.exp(-x[0]) - 0.5 * x[0],
    "much less": lambda x: pt.logaddexp(-0.5 * ((x - 8.0) ** 2).sum(), -0.5 * ((x + 8.0) ** 2).sum() - 7.0),
}


def told(log_density, seed, start=8.0):
    """(what was said of another mode, the points)."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 20.0, shape=2)
        pm.Potential("p", log_density(x))
        step = begin(AdaptiveMetropolisStep(compile_kwargs={"mode": "FAST_COMPILE"}), seed)
    at = {**model.initial_point(), "x": np.full(2, start)}
    points, stats = drive(step, at, 5, tune=700)
    said = [w for w in warnings_in(stats) if w.extra["key"] == "another mode"]
    # the statistic says the same, from the end of tuning on, as long as no draw comes near
    assert float(stats[-1]["other_mode"]) == pytest.approx(np.exp(said[0].extra["log_mass"]) if said else 0.0)
    return said, points


def test_it_is_said_once_with_where_and_how_much():
    [[warning], points] = told(two, 0)
    assert (points[-1]["x"] > 0.0).all()
    assert "near x = [-" in warning.message
    assert abs(warning.extra["log_mass"]) < 1.0
    assert "GaussianMixtureStep" in warning.message


@pytest.mark.parametrize(("parametrization", "may_be"), [("model", True), ("auto", False)])
def test_of_a_hierarchy_left_as_it_is_it_may_be_the_neck_of_a_funnel(parametrization, may_be):
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfNormal("sigma"), shape=2)
        options = {"parametrization": parametrization, "compile_kwargs": {"mode": "FAST_COMPILE"}}
        step, point = begin(AdaptiveMetropolisStep(arrival=False, **options), 0), model.initial_point()
    for _ in range(5):
        point, _ = step.step(point)
    rival = arrival_search.Rival(step.position + 100.0, np.eye(3), 0.0, 0.0)
    step.life.state = step.life.state._replace(elsewhere=(rival,))
    step.stop_tuning()
    _, stats = step.step(point)
    [warning] = warnings_in(stats)
    assert ("neck of a hierarchy's funnel" in warning.message) == may_be


def test_after_tuning_the_statistic_goes_when_the_chain_comes_near():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        step = begin(AdaptiveMetropolisStep(arrival=False, compile_kwargs={"mode": "FAST_COMPILE"}), 0)
    points, _ = drive(step, model.initial_point(), 5, tune=50)
    far, here = (arrival_search.Rival(step.position + by, np.eye(2), 0.0, 0.0) for by in (100.0, 0.0))
    # a climb ended in a flat part, compared with another place there; the walk has found a spike
    flat, not_so_flat = (far._replace(top=by) for by in (-30.0, -10.0))
    for rivals, left in (((far,), 1.0), ((here,), 0.0), ((far, here), 1.0), ((flat,), 0.0), ((not_so_flat,), 1.0)):
        step.life.state = step.life.state._replace(elsewhere=rivals)
        _, [stats] = step.step(points[-1])
        points.append(step.density.update(points[-1], step.position))
        assert float(stats["other_mode"]) == left
        assert len(step.life.state.elsewhere) == left


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        pytest.param(shape, seed, marks=[] if seed == 0 and shape in ("banana", "much less") else pytest.mark.slow)
        for shape in SHAPES for seed in (0, 1, 2)
    ],
)  # fmt: skip
def test_one_mode_is_no_news(shape, seed):
    assert told(SHAPES[shape], seed, start=8.0 if shape == "much less" else 1.0)[0] == []


def test_where_the_walk_comes_by_itself_nothing_is_said(monkeypatch):
    """As if it had: near is what ``contains`` says, here only of what has been found to be another mode."""
    near = arrival_search.contains
    monkeypatch.setattr(arrival_search, "contains", lambda m, x: isinstance(m, arrival_search.Rival) or near(m, x))
    assert told(two, 0)[0] == []
