"""plots.proposals, plots.adaptation, plots.evaluations, and that nothing is cut off in any figure."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import pymc_kameleon as pk
from pymc_kameleon import plots
from pymc_kameleon.plots import evaluated_points
from pymc_kameleon.plots.adaptation_curves import running_mean
from pymc_kameleon.plots.panels import COLOURS
from pymc_kameleon.plots.proposal_ellipses import kernels_of, outline
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.steps.pooled_trace import plain
from pymc_kameleon.targets import Banana
from tests.public.conftest import QUICK, gaussian
from tests.public.test_plots import lines
from tests.step_tester import sample
from tests.support.runs import run

BANANA = Banana(b=0.1, v=9.0, dim=2)


# -- proposals

MOVES = [
    (Kameleon(tune=1000), "local"), (FastKameleon(tune=1000), "local"), (PCAKameleon(tune=1000), "local"),
    (GaussianMixture(), "local"), (AdaptiveMetropolis(), "global"), (GaussianAdaptation(), ""), (CMA(), ""),
]  # fmt: skip


@pytest.mark.parametrize(("sampler", "move"), MOVES, ids=lambda v: str(v) if isinstance(v, str) else type(v).__name__)
def test_an_ellipse_is_the_covariance_of_what_is_proposed(sampler, move):
    rng = np.random.default_rng(1)
    found = run(rng, sampler, BANANA.log_density, np.zeros(2), tune=1000, n=1)
    kernels = {kernel.name: kernel for kernel in kernels_of(sampler, found.state)}
    x = np.array([6.0, 2.7])  # far out on an arm
    state = sampler.place(found.state, Point(x, BANANA.log_density(x)))
    made = [sampler.propose(rng, x, state) for _ in range(6000)]
    steps = np.array([p.position - x for p in made if p.move == move])
    assert len(steps) > 800
    covariance = kernels["local move" if move == "local" else "global move"].covariance(x)
    worst = largest_z(steps, covariance)
    assert worst < 4.5
    if move == "local":  # the control: on the banana's other arm it is another one
        other = kernels["local move"].covariance(x * [-1.0, 1.0])
        assert largest_z(steps, other) > 10


def largest_z(steps, covariance):
    """L^-1 steps have the identity as second moment; the standard errors come from the steps themselves."""
    z = np.linalg.solve(np.linalg.cholesky(covariance), steps.T)
    products = np.array([z[0] ** 2 - 1.0, z[1] ** 2 - 1.0, z[0] * z[1]])
    return np.abs(products.mean(axis=1) / products.std(axis=1)).max() * np.sqrt(z.shape[1])


def test_an_outline_holds_its_probability():
    covariance = np.array([[4.0, 1.5], [1.5, 1.0]])
    line = outline(np.array([1.0, -1.0]), covariance, 0.95) - [1.0, -1.0]
    np.testing.assert_allclose((line @ np.linalg.inv(covariance) * line).sum(1), 5.991, rtol=1e-3)


@pytest.fixture(scope="module")
def kameleon():
    """A KameleonStep and its draws, with those of tuning."""
    with BANANA.pymc_model():
        step = pk.KameleonStep(tune=600, compile_kwargs=QUICK)
        idata = sample(step, None, draws=100, tune=600, random_seed=1, discard_tuned_samples=False)
    return step, idata


def test_proposals_are_drawn_around_draws_over_a_density(kameleon):
    step, idata = kameleon
    axis = plots.proposals(step, idata=idata, at=5, density=BANANA, probability=0.5)
    local = [line for line in axis.lines if len(line.get_xdata()) == 100 and line.get_ls() == "-"]
    (whole,) = [line for line in axis.lines if line.get_ls() == "--"]
    assert 3 <= len(local) <= 5
    draws = idata["posterior"]["x"].values.reshape(-1, 2)
    kernel = kernels_of(step.sampler, step.algorithm_state)[0]
    for line in local:
        centre = line.get_xydata().mean(axis=0) - line.get_xydata()[-1] / 100 + line.get_xydata()[0] / 100
        centre = draws[np.square(draws - centre).sum(axis=1).argmin()]
        expected = outline(centre, kernel.covariance(centre), 0.5)
        np.testing.assert_allclose(line.get_xydata(), expected, rtol=1e-10)
    assert whole.get_color() != local[0].get_color()
    contours = [c for c in axis.collections if hasattr(c, "levels")]
    assert len(contours) == 1
    assert axis.get_xlabel() == "x[0]"
    given = np.array([[0.0, 0.0], [1.0, 1.0]])
    axis = plots.proposals(step, at=given, coordinates=[1, 0])
    assert len([line for line in axis.lines if len(line.get_xdata()) == 100]) == 3
    assert axis.get_xlabel() == "x[1]"


def test_refusals_of_proposals(kameleon, sampled):
    step, idata = kameleon
    with pytest.raises(TypeError, match=r"got KamiltonianStep; .* plots.surrogate"):
        plots.proposals(sampled[0])
    with pytest.raises(ValueError, match="has not sampled in this process"):
        plots.proposals(pk.KameleonStep(model=gaussian(), compile_kwargs=QUICK))
    for options, said in (
        ({"idata": None}, "Give draws to choose the points from"),
        ({"at": 0}, "at must be from 1 to the number of draws, 200, got 0"),
        ({"at": [[0.0, 1.0, 2.0]]}, r"finite points of shape \(m, 2\)"),
        ({"coordinates": [0]}, r"two coordinates, got \['x\[0\]'\]"),
        ({"probability": 1}, r"probability must be in \(0, 1\), got 1"),
        ({"idata": np.zeros(3)}, r"finite draws of shape \(n, 2\), got shape \(3,\)"),
    ):
        with pytest.raises(ValueError, match=said):
            plots.proposals(step, **{"idata": idata} | options)
    assert plt.get_fignums() == []


# -- adaptation


def test_adaptation_draws_the_statistics_of_tuning_and_after(kameleon):
    _, idata = kameleon
    axes = plots.adaptation(idata)
    scale, acceptance = axes
    warmup, after = (idata[name]["scaling"].values for name in ("warmup_sample_stats", "sample_stats"))
    for chain in range(2):
        drawn = scale.lines[chain].get_xydata()
        np.testing.assert_array_equal(drawn[:, 1], np.concatenate([warmup[chain], after[chain]]))
        np.testing.assert_array_equal(drawn[:, 0], np.arange(1, 701))
        assert scale.lines[chain].get_color() == COLOURS[chain]
    assert scale.get_yscale() == "log"
    assert [line.get_xdata()[0] for line in (scale.lines[2], acceptance.lines[2])] == [600, 600]
    accept = np.concatenate([idata[name]["accept"].values[1] for name in ("warmup_sample_stats", "sample_stats")])
    by_hand = [accept[max(0, n - 99) : n + 1].mean() for n in range(700)]
    np.testing.assert_allclose(acceptance.lines[1].get_ydata(), by_hand, rtol=1e-10)
    np.testing.assert_allclose(running_mean(accept), by_hand, rtol=1e-10)
    # of ``pk.sample`` the first draws are without a move
    known = np.concatenate([[np.nan] * 3, accept])
    np.testing.assert_allclose(running_mean(known)[3:53], running_mean(accept)[:50], rtol=1e-10)


def test_adaptation_of_a_surrogate_from_a_steps_own_rows(tuning):
    _, _, rows = tuning
    axes = plots.adaptation(rows)
    by_label = {axis.get_ylabel().replace("\n", " "): axis for axis in axes}
    assert list(by_label)[-2:] == ["surrogate's moves of 100", "refits"]
    refits = by_label["refits"].lines[0].get_ydata()
    np.testing.assert_array_equal(refits, [row["refits"] for row in rows])
    own = np.array([str(row["move"]).startswith("surrogate") for row in rows], dtype=float)
    drawn = by_label["surrogate's moves of 100"].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, running_mean(own), rtol=1e-10)
    assert 0.0 < drawn[-1] < 1.0
    errors = by_label["held-out error (nats)"].lines[0].get_ydata()
    assert np.isnan(errors[0])  # before the first fit
    assert errors[-1] == rows[-1]["surrogate_error"]


def test_adaptation_needs_the_tuning_draws(sampled):
    with pytest.raises(ValueError, match="sample with discard_tuned_samples=False"):
        plots.adaptation(sampled[1])
    with pytest.raises(ValueError, match="None of the statistics is of what a step"):
        plots.adaptation([{"something": 1.0}])


# -- evaluations


@pytest.fixture(scope="module")
def pooled():
    with BANANA.pymc_model() as model:
        idata = pk.sample(max_evaluations=300, chains=4, random_seed=1, progressbar=False)
    return model, idata


def test_evaluations_are_drawn_where_they_were_by_who_asked(pooled):
    _, idata = pooled
    group = idata["evaluations"]
    (axis,) = plots.evaluations(idata, within=None).ravel()
    drawn = np.concatenate([line.get_xydata() for line in axis.lines])
    x = group["x"].values[np.isfinite(group["_log_density"].values)]
    assert {tuple(row) for row in drawn} == {tuple(row) for row in x}
    assert len(drawn) == len(x)
    kinds = [evaluated_points.kind_of(move) for move in group["_move"].values]
    for line in axis.lines:
        assert len(line.get_xdata()) <= kinds.count(line.get_label())
    assert "other" not in kinds
    assert len({line.get_color() for line in axis.lines}) == len(axis.lines) >= 4
    assert f"{group.sizes['evaluation']} evaluations" in axis.figure.legends[0].get_title().get_text()


def test_far_evaluations_are_left_out_and_counted(pooled):
    _, idata = pooled
    values = idata["evaluations"]["_log_density"].values
    (axis,) = plots.evaluations(idata, within=2.0, color="round").ravel()
    (scatter,) = axis.collections
    near = values >= values.max() - 2.0
    assert 10 < near.sum() < len(values)
    np.testing.assert_array_equal(scatter.get_offsets(), idata["evaluations"]["x"].values[near])
    np.testing.assert_array_equal(scatter.get_array(), idata["evaluations"]["_round"].values[near])
    assert f"{(~near).sum()} are not drawn" in axis.figure.get_supxlabel()


def test_a_variable_with_an_underscore_is_drawn(pooled):
    group = plain(pooled[1]["evaluations"]).rename(x="_x")
    axes = plots.evaluations({"evaluations": group}, within=None)
    assert axes[-1, 0].get_xlabel() == "_x[0]"


def test_a_tuning_step_has_a_record_and_a_frozen_one_has_none(sampled, tuning):
    step, _, _ = tuning
    axes = plots.evaluations(step, coordinates=["a", "b"], within=None)
    record = step.algorithm_state.learning.evaluated
    assert sum(len(line.get_xdata()) for line in axes[1, 0].lines) == np.isfinite(record.log_densities).sum()
    assert axes[1, 1].get_xlabel() == "b[0]"
    with pytest.raises(ValueError, match="evaluations: tuning has ended, when a step drops its own"):
        plots.evaluations(sampled[0])
    with pytest.raises(ValueError, match=r"evaluations: pm\.sample returns none"):
        plots.evaluations(sampled[1])
    with pytest.raises(ValueError, match="evaluations: NoneType has none"):
        plots.evaluations(None)
    with pytest.raises(ValueError, match=r"color must be one of .*, got 'who'"):
        plots.evaluations(step, color="who")


def test_a_pooled_runs_surrogate_is_fitted_to_its_evaluations(pooled):
    model, idata = pooled
    with model:
        (axis,) = plots.surrogate(idata, levels=(1.0, 2.0)).ravel()
    n = idata["evaluations"].sizes["evaluation"]
    assert f"fitted anew to {n} evaluations" in axis.figure.get_supxlabel()
    exact = np.array([BANANA.log_density(row) for row in lines(axis)[1.0]])
    top = BANANA.log_density(np.array([0.0, -0.9]))  # x_1 = b (x_0^2 - v) there
    np.testing.assert_allclose(top - exact, 1.0, atol=0.1)


# -- nothing is cut off


def cut_off(figure):
    """What reaches out of the canvas, and legends that lie on a panel."""
    figure.canvas.draw()
    renderer, (width, height) = figure.canvas.get_renderer(), figure.bbox.max
    shown = [axis for axis in figure.axes if axis.axison]
    above = [t for t in (*figure.texts, figure._suptitle, figure._supxlabel) if t is not None]
    boxes = {str(axis): axis.get_tightbbox(renderer) for axis in shown}
    boxes |= {str(a): a.get_window_extent(renderer) for a in (*above, *figure.legends)}
    found = [
        name for name, box in boxes.items()
        if box.width and (min(box.x0, box.y0) < -1.5 or box.x1 > width + 1.5 or box.y1 > height + 1.5)
    ]  # fmt: skip
    for legend in figure.legends:
        box = legend.get_window_extent(renderer).padded(-2)
        found += [f"legend on {a}" for a in shown if box.overlaps(a.get_window_extent(renderer))]
    return found


@pytest.mark.parametrize("figsize", [pytest.param(None, marks=pytest.mark.slow), (4.5, 4.0)])
def test_nothing_is_cut_off(kameleon, sampled, pooled, figsize):
    step, idata = kameleon
    kamiltonian, draws = sampled
    made = [
        plots.surrogate(kamiltonian, idata=draws, coordinates=[0, 2], figsize=figsize),
        plots.surrogate(kamiltonian, idata=draws, coordinates=[0], figsize=figsize),
        plots.proposals(step, idata=idata, figsize=figsize),
        plots.adaptation(idata, figsize=figsize),
        plots.evaluations(pooled[1], figsize=figsize),
        plots.evaluations(pooled[1], color="round", figsize=figsize),
    ]
    for axes in made:
        assert cut_off(np.ravel(axes)[0].figure) == []


def test_what_is_cut_off_would_be_seen():
    figure, axis = plt.subplots(figsize=(2, 2))
    axis.set_title("a title that is far wider than the figure is")
    assert cut_off(figure)
