"""The benchmark's hierarchical models: black boxes and the graphs of their references are the same posterior."""

import numpy as np
import pytest

from benchmarks.cells import Cell
from benchmarks.hierarchical import board, models, truth
from pymc_kameleon.steps.log_density import LogDensity

CHEAP = ("eight schools", "funnel", "PK, 6 patients")


def log_density(model):
    """Of one vector of the model's value variables."""
    return LogDensity(model, model.continuous_value_vars, model.initial_point())


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in CHEAP else pytest.mark.slow)
     for n in models.MODELS if n not in ("lynx-hare", "Poisson, 200", "PK, 40 patients")],
)  # fmt: skip
def test_the_black_boxes_are_the_graphs(name):
    """Centred both, at points about the initial one; differences, so that a constant would not be seen."""
    black = models.MODELS[name](models.Kit(black=True))
    graph = models.MODELS[name](models.Kit(black=False, centred=True))
    start = log_density(black).ravel(black.initial_point()).copy()
    rng = np.random.default_rng(3)
    points = start + 0.2 * rng.standard_normal((4, len(start)))
    mine, theirs = log_density(black), log_density(graph)
    a, b = np.array([mine(x) for x in points]), np.array([theirs(x) for x in points])
    np.testing.assert_allclose(a - a[0], b - b[0], rtol=1e-6, atol=1e-6)
    assert np.ptp(a) > 0.01


def test_the_bare_funnel_is_the_funnel():
    """One Potential, and the graph with its observation."""
    bare = log_density(models.MODELS["funnel, bare Potential"](models.Kit(black=True)))
    graph = log_density(models.MODELS["funnel"](models.Kit(black=True)))
    points = np.random.default_rng(4).standard_normal((5, 10))
    differences = [bare(x) - graph(x) for x in points]
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


def test_black_boxes_are_counted():
    """Calls of one evaluation are what the table divides by."""
    for name in ("eight schools", "ODE, 8 cultures", "funnel, bare Potential"):
        kit = models.Kit(black=True)
        model = models.MODELS[name](kit)
        density = log_density(model)
        x = density.ravel(model.initial_point()).copy() + 0.01
        before = kit.calls
        density(x)
        assert kit.calls - before == models.BOXES[name]


def test_no_particles_without_a_prior():
    found = board.measure(Cell("smc", "funnel, bare Potential", 100, 0))
    assert "no prior" in found["failed"]


def test_what_is_silently_wrong_is_said():
    """A mean or an sd that is off by more than its noise, with a good R-hat; and not with a bad one, or within it."""
    cell, good = (Cell("boxes", "eight schools", 3000, 0), {"per_1000": 500.0, "ess": 2500.0, "rhat": 1.001})
    known = truth.Truth(np.zeros(3), np.ones(3), 10_000.0)
    x = np.random.default_rng(5).standard_normal((4, 1000, 3))
    assert not board.silently_wrong(good | truth.errors(x, known))
    for wrong in (x + np.array([0.2, 0.0, 0.0]), x * np.array([1.0, 1.0, 0.85])):
        found = good | truth.errors(wrong, known)
        assert board.silently_wrong(found)
        assert not board.silently_wrong(found | {"rhat": 1.02})
        assert "standard errors off: eight schools at 3,000" in board.summary({cell: found})
    assert "No run" in board.summary({cell: good})


def test_the_funnel_by_quadrature():
    """Against the prior's own draws, weighted by the observation."""
    rng, n = np.random.default_rng(6), 400_000
    v = 3.0 * rng.standard_normal(n)
    z = rng.standard_normal((n, 9))
    weights = np.exp(-0.5 * ((np.exp(0.5 * v) * z[:, 0] - 0.5) / 2.0) ** 2)
    weights /= weights.sum()
    mean, sd = truth.funnel_moments()
    u = np.column_stack([v, z])
    for values, expected in ((u, mean), ((u - mean) ** 2, sd**2)):
        error = weights @ values - expected
        noise = np.sqrt(weights**2 @ (values - expected) ** 2)
        assert (np.abs(error) < 4.5 * noise).all()
    assert abs(mean[0]) > 0.5  # the observation says something, or the test would not
