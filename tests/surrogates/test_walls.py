"""Walls: where a density ends is learned from the points that had none, and is part of f."""

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.surrogates import transitions, walls
from pymc_kameleon.surrogates.values import features


def beyond(each, z):
    """Whether ``z`` (d,) is beyond any of the walls ``each``, term by term."""
    d = len(z)
    terms = [1.0, *z, *(z[i] * z[j] for i in range(d) for j in range(i + 1))]
    return any(sum(a * b for a, b in zip(wall, terms, strict=False)) < 0.0 for wall in each)


@pytest.mark.parametrize("columns", [4, 10])
def test_the_height_is_that_of_the_polynomials(columns):
    rng = np.random.default_rng(1)
    each, points = rng.standard_normal((2, columns)), rng.standard_normal((200, 3))
    heights = [walls.height(each, z) for z in points]
    assert heights == [walls.HEIGHT * beyond(each, z) for z in points]
    assert 0 < np.count_nonzero(heights) < 200
    assert walls.height(np.zeros((0, 4)), points[0]) == 0.0


EDGES = {
    "half": (5, 1, lambda z: z[:, 0] > 0.3),
    "corner": (4, 2, lambda z: (z[:, 0] < 0.5) & (z[:, 0] - z[:, 1] > -0.7)),
    "two of ten": (10, 2, lambda z: (z[:, 0] < 0.5) & (z[:, 1] < 0.5)),
    "ball": (3, 1, lambda z: np.square(z).sum(axis=1) < 3.0),
    "hole": (3, 1, lambda z: np.square(z).sum(axis=1) > 1.0),
    "simplex": (3, 4, lambda z: (z > -0.8).all(axis=1) & (z.sum(axis=1) < 1.5)),
}


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_is_learned(name):
    d, count, has_density = EDGES[name]
    rng = np.random.default_rng(2)
    z, new = rng.standard_normal((800, d)), rng.standard_normal((4000, d))
    found = walls.learn(z, has_density(z))
    behind, truth = np.array([walls.height(found, at) > 0.0 for at in new]), has_density(new)
    assert len(found) == count
    assert behind[truth].mean() < 0.01, "what has a density is behind a wall"
    assert behind[~truth].mean() > 0.7


@pytest.mark.parametrize(
    "has_density",
    [
        lambda rng, z: rng.random(len(z)) < 0.7,
        lambda rng, z: rng.random(len(z)) < np.where(z[:, 0] > 0.0, 0.4, 0.95),
        lambda rng, z: z[:, 0] < 2.6,
        lambda rng, z: z[:, 0] < -9.0,
    ],
)
def test_what_is_by_chance_or_too_few_is_no_edge(has_density):
    rng = np.random.default_rng(3)
    z = rng.standard_normal((800, 4))
    assert walls.learn(z, has_density(rng, z)).shape == (0, 5)


def dynamics_of_a_normal(d, precision=1.0):
    blank = features.blank(np.zeros(d), np.ones(d), np.eye(d))
    surrogate = blank._replace(quadratic=-precision * np.eye(d))
    archive = np.random.default_rng(4).standard_normal((100, d))
    dynamics = transitions.make_dynamics(surrogate, 0.5 * np.eye(d), archive, 0.5)
    return transitions.bounded(dynamics, dynamics.archive, np.zeros(1))


@pytest.mark.parametrize("instead", [-np.inf, np.nan, -1e10, -100.0])
def test_f_has_the_walls_wherever_it_is_asked(instead):
    """At points of the log density's coordinates, whatever the metric and what is returned ``instead`` of a density;
    without points that have none, as it was.
    """
    rng, smooth = np.random.default_rng(5), dynamics_of_a_normal(3)
    x = rng.standard_normal((600, 3))
    density = np.where(x[:, 0] > 0.0, -0.5 * np.square(x).sum(axis=1), instead)
    walled = transitions.walled(smooth, evaluations.table(x, density), x[x[:, 0] > 0.0])
    for at in rng.standard_normal((100, 3)):
        if abs(at[0]) < 0.5:
            continue
        z, f = transitions.located(walled, at)
        expected = transitions.value(smooth, z) - walls.HEIGHT * (at[0] < 0.0)
        assert f == transitions.value(walled, z) == transitions.value_inside(walled, at) == pytest.approx(expected)
    finite = np.where(x[:, 0] > 0.0, density, -9.0)
    assert transitions.walled(smooth, evaluations.table(x, finite), x) is smooth


@pytest.mark.parametrize("precision", [1.0, 1e-9])  # by f, or by the region that trajectories do not leave
def test_points_that_f_does_not_promise_say_nothing(precision):
    """A wall is where proposals go, not far out, where no density is missed."""
    rng, smooth = np.random.default_rng(6), dynamics_of_a_normal(3, precision)
    near, far = rng.standard_normal((300, 3)), 40.0 + rng.standard_normal((100, 3))
    density = np.concatenate([-0.5 * np.square(near).sum(axis=1), np.full(100, -np.inf)])
    walled = transitions.walled(smooth, evaluations.table(np.concatenate([near, far]), density), near)
    assert transitions.value(walled, np.full(3, 80.0)) == transitions.value(smooth, np.full(3, 80.0))


@pytest.mark.parametrize("both", [False, True])
def test_in_one_dimension_there_are_two_directions(both):
    """Of alike directions k-means divides by 0, and a warning is an error here."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-3.0, 3.0, (300, 1))
    by_chance = (z[:, 0] > 0.5) & (rng.random(300) < 0.4)  # so that more walls are tried
    found = walls.learn(z, (np.abs(z[:, 0]) < 1.5 if both else z[:, 0] < 1.5) & ~by_chance)
    assert walls.height(found, np.array([0.0])) == 0.0
    assert walls.height(found, np.array([2.9])) > 0.0


def test_beside_one_point_that_has_a_density_directions_are_numbers():
    """Its standard deviation is 0: 4e16 over 1e-300 was inf, and inf over inf no direction."""
    without = np.geomspace(1.0, 4e16, 40)[:, None] * np.where(np.arange(40) % 2, 1.0, -1.0)[:, None]
    z = np.concatenate([[[0.0]], without])
    assert np.isfinite(walls.learn(z, np.arange(41) < 1)).all()
