"""plots.surrogate: what is drawn is the surrogate, and the points are what they are said to be."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon import plots
from pymc_kameleon.numerics import history
from pymc_kameleon.plots import surfaces
from pymc_kameleon.plots.learned import learned as learned_from
from pymc_kameleon.plots.names import choose, labels_of, layout_of, unconstrained
from pymc_kameleon.plots.panels import POINTS
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values.regression import Fit
from tests.public.conftest import QUICK, gaussian
from tests.public.test_diagnostics import as_inference_data
from tests.step_tester import begin, drive
from tests.support.chains import held, scored


def quadratic_state(d):
    """A frozen state whose surrogate is -|(x - centre) / scale|^2 / 2, with the identity as metric."""
    scale = 1.0 + np.arange(d)
    f = value_features.blank(np.arange(d) - 0.5, scale, np.eye(d))._replace(quadratic=-np.eye(d))
    archive = f.centre + scale * np.random.default_rng(d).standard_normal((200, d))
    fit = Fit(f, "quadratic", 0.25, 0.2, 0.3, 0.1, 1e-8, 0.25, -np.eye(d), np.eye(d), 200)
    state = held(ValueKamiltonian, np.zeros(d)).state
    return state._replace(
        fit=fit,
        dynamics=surrogate_dynamics.make_dynamics(f, np.eye(d), archive, 0.3),
        current=state.current._replace(z=np.full(d, 0.1)),
        learning=None,
    )


def lines(axis):
    """Vertices (n, 2) of the contour lines of a panel, by level."""
    (contours,) = [c for c in axis.collections if hasattr(c, "levels") and not c.filled]
    return {float(level): path.vertices for level, path in zip(contours.levels, contours.get_paths(), strict=True)}


def points(axis, label):
    """What is drawn in a panel under ``label``, shape (n, 2)."""
    (found,) = [line for line in axis.lines if line.get_label() == label]
    return found.get_xydata()


# -- contours


@pytest.mark.parametrize("d", [2, 5])
def test_a_slice_is_the_surrogate_at_its_grid_points(d):
    state = quadratic_state(d)
    values = learned_from(state).values
    point, across, up = np.full(d, 0.7), np.array([-1.0, 0.5, 3.0]), np.array([2.0, 4.0])
    nodes = surfaces.nodes_of([0, 1], [across, up])
    found = surfaces.slice_at(values, point, [0, 1], nodes).reshape(2, 3)
    # centre (-0.5, 0.5, 1.5, ...), scale (1, 2, 3, ...)
    rest = sum(((0.7 - (i - 0.5)) / (i + 1)) ** 2 for i in range(2, d))
    by_hand = -0.5 * ((3.0 + 0.5) ** 2 + ((2.0 - 0.5) / 2) ** 2 + rest)
    assert found[0, 2] == pytest.approx(by_hand, rel=1e-10)
    swapped = surfaces.slice_at(values, point, [1, 0], surfaces.nodes_of([1, 0], [up, across]))
    np.testing.assert_allclose(swapped.reshape(3, 2), found.T, rtol=1e-10)


def test_contours_lie_where_the_surrogate_is_that_far_below_its_top():
    state = quadratic_state(2)
    (axis,) = plots.surrogate(state, levels=(0.5, 1.0, 2.0)).ravel()
    drawn = lines(axis)
    assert list(drawn) == [0.5, 1.0, 2.0]
    h = max(np.ptp(axis.get_xlim()), np.ptp(axis.get_ylim()) / 2.0) / 199  # of the grid, in sd
    for level, x in drawn.items():
        below = 0.5 * np.square((x - [-0.5, 0.5]) / [1.0, 2.0]).sum(axis=1)
        assert len(x) > 50
        # in each coordinate h^2 / 8 for the top on the grid, and as much for linear interpolation of the lines
        assert np.abs(below - level).max() < 4 * h**2 / 8 < 0.01


def test_nothing_is_drawn_where_the_sampler_does_not_use_the_surrogate():
    state = quadratic_state(2)
    small = state._replace(dynamics=state.dynamics._replace(radius=1.0))
    (axis,) = plots.surrogate(small, levels=(0.25, 0.6)).ravel()
    assert list(lines(axis)) == [0.25]  # |z| < 1 is less than 1/2 nat
    values = learned_from(small).values(np.array([[-0.5, 0.5], [0.6, 0.5], [-0.5, 2.6]]))
    np.testing.assert_array_equal(values, [0.0, -np.inf, -np.inf])
    low = state._replace(dynamics=state.dynamics._replace(ceiling=-1.0))
    assert learned_from(low).values(np.array([[-0.5, 0.5]])) == -np.inf
    with pytest.raises(ValueError, match="nowhere here"):
        plots.surrogate(state._replace(dynamics=state.dynamics._replace(ceiling=-1e9)))


@pytest.mark.parametrize("kind", ["lite", "finite"])
def test_surrogates_fitted_by_score_matching(kind):
    rng = np.random.default_rng(2)
    x = 3.0 + rng.standard_normal((400, 2)) * [1.0, 20.0]
    state = scored(x[0], surrogate=kind, history=x, rng=rng, n_history=200, lengthscale=2.0, regularization=1e-3).state
    learned = learned_from(state)
    z = np.linalg.solve(state.factor, x[5] - state.centre)
    expected = score_matching.value(z, state.fitted.surrogate)
    assert learned.values(x[4:7])[1] == pytest.approx(expected, rel=1e-10)
    (axis,) = plots.surrogate(state).ravel()
    assert len(points(axis, "states that f was fitted to")) == 200
    # every one of them is a point of the history
    distance = np.abs(learned.archive[:, None] - x).max(axis=2).min(axis=1)
    assert distance.max() < 1e-10


# -- points


def test_while_tuning_the_evaluated_points_are_told_from_the_visited_ones(tuning):
    step, visited, _ = tuning
    visited = np.unique([step.density.ravel(point) for point in visited], axis=0)
    clouds = {c.label: c.positions for c in learned_from(step).clouds}
    learning = step.algorithm_state.learning
    assert sum(map(len, clouds.values())) == learning.evaluated.size
    seen = np.unique(clouds["visited by the chain"], axis=0)
    assert 10 < len(seen) <= len(visited)
    assert {x.tobytes() for x in seen} <= {x.tobytes() for x in visited}
    others = {x.tobytes() for x in clouds["evaluated only"]}
    assert len(others) > 50
    assert not others & {x.tobytes() for x in seen}
    axes = plots.surrogate(step)
    drawn = history.thin(clouds["evaluated only"], POINTS)
    np.testing.assert_array_equal(points(axes[1, 0], "evaluated only"), drawn[:, [0, 2]])


def test_after_tuning_the_archive_is_drawn(sampled):
    step, _ = sampled
    axes = plots.surrogate(step)
    dynamics = step.algorithm_state.dynamics
    archive = np.array([surrogate_dynamics.to_x(dynamics, z) for z in dynamics.archive])
    drawn = points(axes[1, 0], "past states of the chain")
    np.testing.assert_allclose(drawn, history.thin(archive, POINTS)[:, [0, 2]], rtol=1e-10)


def test_draws_are_transformed_even_where_a_bound_is_random():
    with pm.Model() as model:
        s = pm.HalfNormal("s", shape=2)
        pm.Uniform("u", -1.0, s[0])
    rng = np.random.default_rng(4)
    scale = rng.gamma(2.0, size=(2, 50, 2))
    u = -1.0 + (scale[..., 0] + 1.0) * rng.random((2, 50))
    idata = as_inference_data({"u": u, "s": scale})
    layout = layout_of(None, 3, model)
    found = unconstrained(idata, layout, model, POINTS)
    p = ((u + 1.0) / (scale[..., 0] + 1.0)).ravel()
    expected = np.column_stack([np.log(scale.reshape(-1, 2)), np.log(p / (1.0 - p))])
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    with pytest.raises(ValueError, match="no draws of u"):
        unconstrained(as_inference_data({"s": scale}), layout, model, POINTS)


def test_draws_of_a_variable_without_elements_are_none():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Normal("nothing", shape=0)
    draws = {"x": np.arange(6.0).reshape(2, 3), "nothing": np.zeros((2, 3, 0))}
    found = unconstrained(as_inference_data(draws), layout_of(None, 1, model), model, POINTS)
    assert found.tolist() == [[float(k)] for k in range(6)]


# -- names, figure


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        (["b[1]", "a"], [2, 0]),
        (["b"], [1, 2]),
        ("b", [1, 2]),
        ([2, "b", 1, "a"], [2, 1, 0]),
        (np.array([0, 2]), [0, 2]),
        (np.int64(1), [1]),
    ],
)
def test_coordinates_by_name_variable_and_place(sampled, coordinates, expected):
    step, _ = sampled
    layout = layout_of(step, 3, step.model)
    assert layout["a"].shape == ()
    assert choose(coordinates, layout, step.model, "surrogate") == expected


def test_coords_name_the_elements():
    """As ArviZ does; but not those of a simplex, which has one element less."""
    with pm.Model(coords={"place": ["a", "b"], "year": [3, 4]}) as model:
        model.add_coord("n", length=1)
        pm.HalfNormal("s", dims=("place", "year"))
        pm.Dirichlet("w", np.ones(2), dims="place")
        pm.Normal("x", dims="n")
    layout = layout_of(None, 6, model)
    labels = labels_of(layout, model)
    assert labels[:4] == ["s_log__[a, 3]", "s_log__[a, 4]", "s_log__[b, 3]", "s_log__[b, 4]"]
    assert labels[4:] == ["w_simplex__[0]", "x[0]"]
    assert choose(["s_log__[b, 3]", "w"], layout, model, "surrogate") == [2, 4]


# -- refusals


def test_a_step_that_sampled_elsewhere_or_nothing_or_has_no_surrogate():
    step = pk.KamiltonianStep(model=gaussian(), compile_kwargs=QUICK)
    for source in (step, step.sampling_state):
        with pytest.raises(ValueError, match=r"cores > 1 .* give idata=.* or use pm.sample\(..., cores=1\)"):
            plots.surrogate(source)
    drive(begin(step), gaussian().initial_point(), 1)
    with pytest.raises(ValueError, match=r"takes 100 evaluations and there were [12]; tune longer"):
        plots.surrogate(step)
    step.stop_tuning()
    with pytest.raises(ValueError, match="tune longer"):
        plots.surrogate(step)
    with pytest.raises(ValueError, match="200 dimensions are too many"):
        plots.surrogate(held(ValueKamiltonian, np.zeros(200)).state)
    with pytest.raises(ValueError, match="in 0 tuning draws"):
        plots.surrogate(scored(np.zeros(2)).state)
    with pytest.raises(TypeError, match=r"what KamiltonianStep learns: give .* not FastKameleonStep"):
        plots.surrogate(pk.FastKameleonStep(model=gaussian(), compile_kwargs=QUICK))
    with pytest.raises(TypeError, match="not NoneType"):
        plots.surrogate()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"coordinates": ["a", "b[2]"]}, r"no coordinate 'b\[2\]' \(did you mean 'b\[[01]\]'\?\)"),
        ({"coordinates": [0, 3]}, r"no coordinate 3; there are a, b\[0\], b\[1\]"),
        ({"coordinates": []}, "coordinates names none of a, b"),
        *(({"levels": wrong}, "levels must be positive and increasing") for wrong in ((), (1.0, 1.0), (0.0, 1.0), 2.0)),
    ],
)
def test_wrong_arguments(sampled, options, said):
    with pytest.raises(ValueError, match=said):
        plots.surrogate(sampled[0], **options)
    assert plt.get_fignums() == []
