"""The benchmark's hierarchical models: black boxes and the graphs of their references are the same posterior."""

import numpy as np
import pytest

from benchmarks.hierarchical import __main__ as command
from benchmarks.hierarchical import cells, measures, models, reference, rivals, tables
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
    with pytest.raises(rivals.CannotRunError, match="no prior"):
        rivals.run("funnel, bare Potential", "smc", 100, 0, 1)


def test_what_is_silently_wrong_is_said():
    """A mean or an sd that is off by more than its noise, with a good R-hat; and not with a bad one, or within it."""
    cell = {
        "model": "eight schools", "sampler": "boxes", "budget": 3000, "seed": 0, "per_1000": 500.0, "ess": 2500.0,
        "rhat": 1.001,
    }  # fmt: skip
    truth = measures.Truth(np.zeros(3), np.ones(3), 10_000.0)
    x = np.random.default_rng(5).standard_normal((4, 1000, 3))
    assert not tables.silently_wrong(cell | measures.errors(x, truth))
    for wrong in (x + np.array([0.2, 0.0, 0.0]), x * np.array([1.0, 1.0, 0.85])):
        found = cell | measures.errors(wrong, truth)
        assert tables.silently_wrong(found)
        assert not tables.silently_wrong(found | {"rhat": 1.02})
        assert "standard errors off: eight schools at 3,000" in tables.summary([found])
    assert "No run" in tables.summary([cell])


def test_one_cell_speaks_for_the_others_if_it_is_the_same(monkeypatch, tmp_path):
    """Made anew under the present code: the same figures, or the others stay stale."""
    monkeypatch.setattr(cells, "STORE", tmp_path / "cells.json")
    now = cells.code("boxes")
    measured = now.split(",")[0]
    cell = {
        "model": "funnel",
        "sampler": "boxes",
        "seed": 0,
        "code": f"{measured}, then",
        "ess": 9.0,
    }
    for ess, codes in ((9.0, {now}), (9.1, {now, f"{measured}, then"})):
        cells.STORE.unlink(missing_ok=True)
        for budget in (300, 1000):
            cells.save(cell | {"budget": budget})
        made = cell | {"budget": 300, "ess": ess, "code": now}
        monkeypatch.setattr(cells, "sample", lambda *job, made=made: made)
        command.verify()
        assert {c["code"] for c in cells.load()} == codes
    assert not cells.same_draws(cell, cell | {"code": "another measure, then"})


def test_the_funnel_by_quadrature():
    """Against the prior's own draws, weighted by the observation."""
    rng, n = np.random.default_rng(6), 400_000
    v = 3.0 * rng.standard_normal(n)
    z = rng.standard_normal((n, 9))
    weights = np.exp(-0.5 * ((np.exp(0.5 * v) * z[:, 0] - 0.5) / 2.0) ** 2)
    weights /= weights.sum()
    mean, sd = reference.funnel_moments()
    u = np.column_stack([v, z])
    for values, expected in ((u, mean), ((u - mean) ** 2, sd**2)):
        error = weights @ values - expected
        noise = np.sqrt(weights**2 @ (values - expected) ** 2)
        assert (np.abs(error) < 4.5 * noise).all()
    assert abs(mean[0]) > 0.5  # the observation says something, or the test would not
