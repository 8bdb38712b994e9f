"""What KamiltonianStep says when tuning ends: the noise first, then what was measured and what could help."""

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps.told import surrogate_report
from pymc_kameleon.steps.told.surrogate_report import INACCURATE, WORTH_SAYING, Report, describe
from tests import step_tester as tester

pytestmark = tester.NO_BLAS
GOOD = Report("quadratic", 0.1, 0.3, 0.01, 0.9, 0.0)


def test_a_good_surrogate_is_not_spoken_of():
    assert describe(GOOD, None) is None
    assert describe(GOOD, 4000) is None


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"uncovered": 0.26}, "does not cover the posterior"),
        ({"residual_sd": 3.1}, "is inaccurate"),
        ({"uncovered": 1.0}, "was not judged"),
        ({"uncovered": 1.0, "residual_sd": 3.1}, "is inaccurate"),  # a large error is said, whatever else is known
    ],
)
def test_what_is_wrong_is_said_with_what_was_measured(change, wrong):
    said = describe(GOOD._replace(**change), None)
    assert f"the surrogate {wrong}" in said
    assert "family quadratic, held-out error 0.1" in said
    assert "at most 90% of the moves are its own" in said
    if change.get("uncovered") == 0.26:
        assert "out-of-sample sd 0.3" in said
        assert "26% of the chain's late states" in said


def test_what_other_steps_move_is_the_likeliest_reason(caplog, monkeypatch):
    """What was learned is of one value of k, and y of another."""
    monkeypatch.setattr(surrogate_report, "WORTH_SAYING", -1.0)  # whatever the surrogate is like
    with pm.Model() as model:
        k, x = pm.Poisson("k", 1.0), pm.Normal("x", shape=8)
        pm.Potential("y", -0.5 * k * pm.math.sqr(x).sum() + 4.0 * pm.math.log(1.0 + k))
        tester.sample([pk.KamiltonianStep([x]), pm.Metropolis([k])], model, tune=400, chains=1, random_seed=1)
    said = [record.message for record in caplog.records if "the surrogate does not cover" in record.message]
    assert len(said) == 1
    assert "the likeliest first: one step for all, for what was learned is of old values of k" in said[0]
    assert "old values of" in describe(GOOD._replace(uncovered=0.5), None, beside="k")
    assert "old values of" not in describe(GOOD._replace(uncovered=0.5), None)


def test_longer_tuning_comes_first_where_it_was_short_and_last_where_not():
    report = GOOD._replace(uncovered=0.5)
    short, long = describe(report, 8000), describe(report, None)
    assert short.index("tune=8000 or more") < short.index("parametrisation")
    assert long.index("parametrisation") < long.index("longer tuning, least likely")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("options", "hierarchy", "advised"),
    [({}, False, False), ({}, True, False), ({"learn": "all", "parametrization": "model"}, True, True)],
)
def test_no_hierarchy_is_to_be_non_centred_that_is_not_or_is_moved(options, hierarchy, advised):
    with pm.Model():
        pm.Normal("x", 0.0, pm.HalfNormal("sd") if hierarchy else 1.0, shape=2)
        step = pk.KamiltonianStep(**options)
    tester.run(step, 5, tune=500)
    state = step.algorithm_state
    step.life_state = step.life_state._replace(own=state._replace(quality=state.quality._replace(residual_sd=3.0)))
    step.watch.reset()
    step.watch.is_frozen()
    [warning] = step.pending
    assert ("non-centred hierarchies" in warning.message) == advised
    assert "fewer unknowns" in warning.message


def test_what_the_noise_explains_is_not_laid_to_the_surrogate():
    """Retained values under noise of sd 2 scatter about their median by 2: 11 % are 2.5 above it."""
    noisy = GOOD._replace(residual_sd=2.1, uncovered=0.12, noise_sd=2.0)
    assert describe(noisy, None) is None
    assert "does not cover" in describe(noisy._replace(noise_sd=0.0), None)
    worse = describe(noisy._replace(uncovered=0.5), None)
    assert worse.index("less noise") < worse.index("parametrisation")
    assert "out-of-sample sd 2.1 in the log density, 2 of it noise" in worse


def test_under_noise_the_noise_is_said_first_and_not_that_the_surrogate_does_not_cover():
    step = pk.KamiltonianStep(model=tester.noisy_model(tester.Estimate(3.5), shape=2))
    _, stats = tester.run(step, 5, tune=1500, seed=1)
    said = tester.warnings_in(stats)
    quality = step.algorithm_state.quality  # one of these would be said without noise
    assert quality.uncovered > WORTH_SAYING or quality.residual_sd > INACCURATE
    assert [w.extra["key"] for w in said] == ["noise"]
    assert abs(said[0].extra["noise_sd"] - 3.5) < 0.8
    assert "times the work" in said[0].message


@pytest.mark.filterwarnings("ignore:.*RandomVariable:DeprecationWarning")  # of PyMC 6 itself
def test_a_simulator_of_pymcs_is_told_of_no_option_that_it_has_not():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 2.0)
        pm.Simulator("s", lambda rng, a, size=None: rng.normal(a, 0.5, 3), a, epsilon=0.2, observed=np.zeros(3))
    step = pk.AdaptiveMetropolisStep(model=model, arrival=False)
    _, stats = tester.run(step, 5, tune=400, seed=1)
    [said] = [w.message for w in tester.warnings_in(stats) if w.extra["key"] == "noise"]
    assert "(a pm.Simulator, say): write the likelihood as a pk.NoisyLogLikelihood" in said
    assert "correlation=" not in said


@pytest.fixture(scope="module")
def tuned():
    """A step, and its state after 700 draws of tuning, of which 800 would do; it has said nothing."""
    with pm.Model():
        pm.Normal("x", shape=2)
        step = pk.KamiltonianStep()
    tester.run(step, 5, tune=700)
    assert step.algorithm_state.fit is not None
    assert step.pending == []
    assert step.said == []
    return step, step.algorithm_state


def said_of(tuned, **quality):
    """What it says had the surrogate been found to be like that."""
    step, state = tuned
    step.life_state = step.life_state._replace(own=state._replace(quality=state.quality._replace(**quality)))
    step.watch.reset()
    step.pending.clear()
    step.watch.is_frozen()
    [warning] = step.pending
    return warning


def test_a_surrogate_that_does_not_cover_is_reported_with_its_figures(tuned):
    warning, (_, state) = said_of(tuned, uncovered=0.4, residual_sd=1.5), tuned
    assert warning.extra["uncovered"] == 0.4
    assert warning.extra["family"] == state.fit.family
    assert warning.extra["share"] == pytest.approx(1.0 - state.mixture.floor)
    assert np.isfinite(warning.extra["error"])


def test_a_short_tuning_is_spoken_of_where_the_surrogate_is_not_good(tuned):
    assert "the likeliest first: tune=800 or more" in said_of(tuned, residual_sd=3.0).message
