"""plots.surrogate: marginals, one coordinate, and surrogates fitted to what a run returned."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

import pymc_kameleon as pk
from pymc_kameleon import plots
from pymc_kameleon.plots import surfaces
from tests.public.conftest import MEAN, PRECISION, QUICK, gaussian
from tests.public.test_plots import lines, points, quadratic_state
from tests.step_tester import begin, drive

COVARIANCE = np.linalg.inv(PRECISION)


def banana(x):
    """x_0 ~ N(0, 2^2), x_1 | x_0 ~ N(x_0^2 / 4, 1), x_2 | x_0 ~ N(x_0, 1)."""
    a, b, c = x.T
    return -0.5 * ((a / 2) ** 2 + (b - a**2 / 4) ** 2 + (c - a) ** 2)


def draws_of_banana(n):
    a, b, c = np.random.default_rng(1).standard_normal((3, n))
    return np.column_stack([2 * a, b + a**2, c + 2 * a])


def by_quadrature(shown, nodes):
    """The marginal of the banana: the coordinates that are not shown summed over a fine grid."""
    rest = [i for i in range(3) if i not in shown]
    axes = [np.linspace(-12, 24, 400 if len(rest) == 1 else 240)] * len(rest)
    others = np.stack([g.ravel() for g in np.meshgrid(*axes)], axis=1)
    found = []
    for node in nodes:
        x = np.empty((len(others), 3))
        x[:, list(shown)], x[:, rest] = node, others
        found.append(logsumexp(banana(x)))
    return np.array(found)


@pytest.mark.parametrize("shown", [(0, 1), (0, 2), (1, 2), (0,), (2,)])
def test_a_marginal_is_the_integral(shown):
    states = draws_of_banana(500)
    middle = np.percentile(states[:, list(shown)], [4, 50, 96], axis=0)
    nodes = surfaces.nodes_of(shown, list(middle.T))
    exact = by_quadrature(shown, nodes)
    found = surfaces.marginal(banana, states, shown, nodes, 1024)
    likely = exact > exact.max() - 4.0
    error = (found - exact) - (found - exact)[likely].mean()
    assert np.abs(error[likely]).max() < 0.25, error[likely]
    held = surfaces.slice_at(banana, np.median(states, axis=0), shown, nodes)
    missed = (held - exact) - (held - exact)[likely].mean()
    assert np.abs(missed[likely]).max() > 0.5  # the control: a slice is something else


def test_of_many_coordinates_the_others_are_at_their_means():
    """Not an integral over 28 of them by a few dozen points, whose top is anywhere; of a normal it is the marginal."""
    rng = np.random.default_rng(2)
    root = rng.standard_normal((30, 30)) / 3.0 + np.eye(30)
    covariance = root @ root.T
    precision, states = np.linalg.inv(covariance), rng.standard_normal((3000, 30)) @ root.T
    nodes = states[:40, [0, 3]]
    found = surfaces.marginal(lambda x: -0.5 * np.einsum("ni,ij,nj->n", x, precision, x), states, (0, 3), nodes, 48)
    own = np.linalg.inv(covariance[np.ix_([0, 3], [0, 3])])
    exact = -0.5 * np.einsum("ni,ij,nj->n", nodes, own, nodes)
    assert np.abs((found - exact) - (found - exact).mean()).max() < 0.1
    assert surfaces.near(states[:, [0, 3]], nodes).all()
    assert not surfaces.near(states[:, [0, 3]], 5.0 * np.abs(states[:, [0, 3]]).max(axis=0)[None]).any()


def check_lines(axes, rtol):
    """The line one nat below the top, in each of three panels, is that of the normal density's marginal."""
    for row, column in ((0, 0), (1, 0), (1, 1)):
        pair = [column, row + 1]
        x = lines(axes[row, column])[1.0] - MEAN[pair]
        np.testing.assert_allclose(0.5 * (x @ np.linalg.inv(COVARIANCE[np.ix_(pair, pair)]) * x).sum(1), 1, rtol=rtol)
        middle = 0.5 * (x.max(axis=0) + x.min(axis=0))
        assert (np.abs(middle) < rtol * np.ptp(x, axis=0)).all()


def test_of_a_normal_density_marginals_are_exact(sampled):
    step, _ = sampled
    axes = plots.surrogate(step, levels=(1.0, 2.0))
    check_lines(axes, 0.05)
    assert "integrated out" in axes[0, 0].figure.legends[0].get_title().get_text()


# -- one coordinate


def test_one_unknown_is_a_curve_with_the_evaluated_points_at_their_log_density():
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("log_density", -0.5 * ((x - 3.0) / 2.0) ** 2)
    step = pk.KamiltonianStep(model=model, compile_kwargs=QUICK)
    drive(begin(step, 3), model.initial_point(), 200)
    (axis,) = plots.surrogate(step, levels=(1.0, 4.0)).ravel()
    assert axis.get_ylim() == pytest.approx((4.6, -0.2))  # the top is above
    assert axis.get_xlabel() == "x"
    for label in ("f", "visited by the chain", "evaluated only"):
        drawn = points(axis, label)
        np.testing.assert_allclose(drawn[:, 1], 0.5 * ((drawn[:, 0] - 3.0) / 2.0) ** 2, atol=1e-4)
    assert len(points(axis, "visited by the chain")) > 20


def test_one_coordinate_of_several_is_its_marginal_with_ticks_for_the_draws(sampled):
    step, idata = sampled
    axes = plots.surrogate(step, idata=idata, coordinates="a", levels=(2.0,))
    assert axes.shape == (1, 1)
    found = points(axes[0, 0], "f")
    inside = found[:, 1] < 2.0
    expected = 0.5 * (found[:, 0] - MEAN[0]) ** 2 / COVARIANCE[0, 0]
    assert inside.sum() > 50
    np.testing.assert_allclose(found[inside, 1], expected[inside], atol=0.05)
    drawn = points(axes[0, 0], "posterior draws")
    np.testing.assert_array_equal(np.sort(drawn[:, 0]), np.sort(idata["posterior"]["a"].values.ravel()))
    assert len(set(drawn[:, 1])) == 1


# -- after cores=2


def test_a_run_in_other_processes_is_fitted_anew_to_its_draws(sampled):
    """The step has not sampled in this process; what it returned is enough."""
    _, idata = sampled
    step = pk.KamiltonianStep(model=gaussian(), compile_kwargs=QUICK)
    axes = plots.surrogate(step, idata=idata, levels=(1.0, 2.0))
    check_lines(axes, 0.06)
    caption = " ".join(axes[0, 0].figure.get_supxlabel().split())
    assert "fitted anew to" in caption
    assert "distinct draws" in caption
    with gaussian():
        same = plots.surrogate(idata=idata, levels=(1.0, 2.0))
    np.testing.assert_array_equal(lines(same[0, 0])[1.0], lines(axes[0, 0])[1.0])
    with pytest.raises(ValueError, match="idata needs the model"):
        plots.surrogate(idata)
    with gaussian(), pytest.raises(ValueError, match="sample_stats has no statistic lp of one"):
        plots.surrogate({"posterior": idata["posterior"]})


# -- axes in


def test_somebodys_own_axes():
    state = quadratic_state(2)
    figure, own = plt.subplots(1, 2)
    axes = plots.surrogate(state, ax=own[1])
    assert axes.shape == (1, 1)
    assert axes[0, 0] is own[1]
    assert not own[0].collections
    assert own[1].get_title(loc="left").startswith("The learned log density")
    assert not figure.legends
    assert own[1].get_legend() is not None
    with pytest.raises(ValueError, match="one Axes for each panel, 2 x 2, got 1"):
        plots.surrogate(quadratic_state(3), ax=own[1])
