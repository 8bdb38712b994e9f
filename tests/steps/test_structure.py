"""KamiltonianStep where a model has a structure: what it finds, that its draws are the model's, that chains resume."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps.factors import structure
from pymc_kameleon.surrogates.values.library import FAMILIES
from tests import step_tester as tester
from tests.support.hierarchies import BlackBox, curves, schools

QUICK = {"mode": "FAST_COMPILE"}


def step(model, **options):
    return pk.KamiltonianStep(model=model, compile_kwargs=QUICK, **options)


@pytest.fixture(scope="module")
def run():
    model, box = schools()
    sampler = step(model)
    points, stats = tester.run(sampler, 8, tune=30, seed=1)
    return model, box.calls, sampler, points, stats


@pytest.mark.whole
def test_a_hierarchy_is_learned_by_its_black_boxes(run):
    _, _, sampler, _, stats = run
    last = stats[-1]
    assert sampler.by_factors
    assert sampler.sampling_state.options["learn"] == "auto"
    assert last["factors"] == 3
    assert last["noncentred"] == 3
    assert last["worst_factor"] in {0, 1, 2}
    assert FAMILIES[last["surrogate"]] == "factors"
    assert last["surrogate_error"] < 1e-3  # the boxes are quadratics
    assert {s["move"] for s in stats[:10]} == {"arrival", "climb"}


def test_draws_are_of_the_models_own_variables(run):
    model, _, _, points, stats = run
    logp = model.compile_logp(jacobian=True, **QUICK)
    assert set(points[0]) == {"mu", "tau_log__", "theta"}
    for point, found in zip(points[-5:], stats[-5:], strict=True):
        np.testing.assert_allclose(found["model_logp"], logp(point), rtol=1e-9)


def test_one_evaluation_a_draw_at_most(run):
    _, calls, _, _, stats = run
    assert stats[-1]["evaluations"] <= len(stats) + 1
    assert calls == 3 * stats[-1]["evaluations"]


def test_nothing_adapts_after_tuning(run):
    *_, stats = run
    for name in ("step_size", "surrogate_error", "refits", "residual_sd"):
        assert len({s[name] for s in stats[30:]}) == 1, name


def test_a_solver_that_fails_is_named_when_tuning_ends():
    """Where it is learned by itself, as where the whole is."""
    solver = BlackBox(lambda theta: np.full(2, np.nan if theta[0] > 1.0 else -theta[0]), pt.dvector)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=1)
        pm.Normal("y", solver(theta), 0.5, observed=[-0.9, -1.1])
    sampler = step(model)
    _, stats = tester.run(sampler, 5, tune=60, seed=1)
    assert sampler.by_factors
    said = " ".join(warning.message for warning in tester.warnings_in(stats))
    assert "evaluations while tuning are NaN or +inf, last y = nan at theta = [1." in said


@pytest.mark.whole
def test_a_chain_resumes_bit_for_bit():
    """In the climb; while tuning, and frozen: test_saved_state.py."""
    model, _ = schools()
    first, second = step(model), tester.begin(step(model), 99)
    points, _ = tester.run(first, 10, seed=1)
    second.sampling_state = first.sampling_state
    tester.assert_same_draws(*(tester.drive(s, points[-1], 8) for s in (first, second)))


def test_one_log_likelihood_of_everything_is_learned_as_a_whole():
    with pm.Model() as model:
        pm.Potential("y", BlackBox(lambda x: -0.5 * np.sum(np.square(x)))(pm.Normal("x", shape=2)))
    auto, whole = step(model), step(model, learn="all")
    assert not auto.by_factors
    tester.assert_same_draws(*(tester.run(s, 5, tune=110, seed=1) for s in (auto, whole)))


def test_options_that_are_for_the_whole():
    model, _ = schools()
    some = [model[name] for name in ("mu", "theta")]
    for options in ({"learn": "all"}, {"surrogate": "lite"}, {"blocked": False}, {"vars": some}):
        made = step(model, **options)
        assert not any(s.by_factors for s in getattr(made, "methods", [made]))


def test_an_option_for_the_whole_says_so_and_one_at_its_default_is_none(caplog):
    model, _ = schools()
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        assert step(model, surrogate=pk.Values(growth=1.35), tune=9).by_factors
        assert "as a whole" not in caplog.text
        assert "Learning 3 black boxes of 1 input (1 log likelihood each)" in caplog.text
        assert not step(model, surrogate=pk.Values(growth=1.5)).by_factors
        assert "not its 3 black boxes: surrogate=pk.Values(...) with growth is for" in caplog.text
    with pytest.raises(ValueError, match=r"expensive names .* with growth is for the whole"):
        step(model, surrogate=pk.Values(growth=1.5), expensive=["y0"])


@pytest.mark.slow
def test_predictions_of_unknown_length_and_noise_that_is_not_learned():
    model, _ = curves()
    found = step(model)
    assert found.by_factors
    _, stats = tester.run(found, 10, tune=80, seed=1)
    assert FAMILIES[stats[-1]["surrogate"]] == "factors"
    layout = found.density.parts_known.layout
    assert list(np.diff(layout.inputs)) == [2, 2]  # not sigma
    assert list(np.diff(layout.outputs)) == [3, 3]


@pytest.mark.slow
def test_in_the_models_coordinates():
    model, _ = schools()
    _, stats = tester.run(step(model, parametrization="model"), 5, tune=60, seed=1)
    assert stats[-1]["noncentred"] == 0


def test_too_short_a_tuning_says_so():
    model, _ = schools()
    found = step(model)
    _, stats = tester.run(found, 3, tune=12, seed=1)
    assert any("before a surrogate was learned" in w.message for w in tester.warnings_in(stats))
    for found.tune, why in ((False, "tuning ended too early; tune longer"), (True, "has just begun to tune")):
        with pytest.raises(ValueError, match=f"No black box has been learned: .*{why}"):
            pk.plots.surrogate(found)


def test_a_model_that_cannot_be_cut_is_learned_as_a_whole_and_says_so(monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("no gradient after all")

    monkeypatch.setattr(structure, "FactoredDensity", refuse)
    with caplog.at_level("WARNING", logger="pymc.kameleon"):
        assert not step(schools()[0]).by_factors
    assert "no gradient after all" in caplog.text


def test_black_boxes_are_drawn_over_their_own_inputs(run):
    _, _, sampler, _, _ = run
    axes = pk.plots.surrogate(sampler)
    assert axes.shape == (3, 1)
    hardest = sampler.sampler.known.factors[int(np.argmax(sampler.algorithm_state.fit.errors))]
    assert axes[0, 0].get_ylabel() == f"{hardest}: log likelihood"
    axis = pk.plots.surrogate(sampler, coordinates=["y2"])[0, 0]
    assert axis.get_xlabel() == "theta[2]"
    x, f = axis.lines[0].get_data()
    inside = np.abs(x - 2.0) < 1.0
    np.testing.assert_allclose(f[inside], -0.5 * (x[inside] - 2.0) ** 2, atol=1e-3)  # what it is
    with pytest.raises(ValueError, match="there are y0, y1, y2"):
        pk.plots.surrogate(sampler, coordinates=["y9"])
    with pytest.raises(ValueError, match="give the step itself"):
        pk.plots.surrogate(sampler.algorithm_state)
