"""What a first user stumbled over: what is said, and whether a run goes on."""

import logging
import math
from inspect import signature

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_kameleon as pk
from pymc_kameleon.numerics import compiled
from pymc_kameleon.samplers.pooled.chains import Chains, Plan
from pymc_kameleon.sampling import arguments
from pymc_kameleon.steps import base
from pymc_kameleon.steps.factors import structure
from pymc_kameleon.steps.told import advice
from pymc_kameleon.surrogates.values import preparation
from pymc_kameleon.verdict import convergence
from tests.step_tester import sample
from tests.support.hierarchies import BlackBox

QUICK = {"mode": "FAST_COMPILE"}


def run(log_density, initial, starts, plan, **options):
    chains = Chains(np.array(initial), np.array(starts), np.random.SeedSequence(1), plan, **options)
    while not (chains.done or chains.nowhere):
        chains.tell([log_density(request.position) for request in chains.ask()])
    return chains


def half_nan(x):
    return -0.5 * float(np.sum(np.square(x))) if np.all(np.asarray(x) > -0.5) else math.nan


# --- a first run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cold", [True, False])
def test_what_a_first_run_waits_for_is_said_once(cold, monkeypatch, caplog):
    monkeypatch.setattr(compiled, "is_cold", lambda: cold)
    base.say_compilation.cache_clear()
    with pm.Model(), caplog.at_level(logging.INFO, "pymc.kameleon"):
        pm.Normal("x")
        for _ in range(2):
            pk.AdaptiveMetropolisStep(compile_kwargs=QUICK)
    assert [r.getMessage() for r in caplog.records] == [advice.COMPILES] * cold


# --- the start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("climb", [True, False])
def test_chains_begin_at_starts_where_the_initial_point_is_nan(climb):
    plan = Plan(5, 60, 60, 200, climb)
    found = run(half_nan, [-1.0], [[-2.0], [0.3], [0.1], [1.0]], plan)
    assert len(found.rows) == 5
    assert all(np.isfinite(row.log_densities).all() for row in found.rows)


@pytest.mark.parametrize("climb", [True, False])
def test_nowhere_to_begin(climb):
    found = run(lambda x: math.nan, [-1.0], [[-2.0], [0.3]], Plan(5, 60, 60, 200, climb))
    assert found.nowhere
    assert not found.rows
    assert found.failed == found.evaluated.size == 3  # the initial point is among them, as is said


def far_off(x):
    return -0.5 * float(np.square(x - 6.0).sum()) if x[0] > 5.0 else -math.inf


@pytest.mark.parametrize("climb", [True, False])
def test_where_nowhere_near_is_a_density_chains_begin_elsewhere(climb):
    starts, elsewhere = [[-2.0], [0.3]], np.array([[1.0], [0.0], [7.0], [6.0], [2.0], [6.5]])
    found = run(far_off, [-1.0], starts, Plan(5, 60, 60, 200, climb), elsewhere=elsewhere)
    assert len(found.rows) == 5
    begun = found.evaluated.positions[: 3 + 2 * 3]
    assert (np.isin(begun, [[-1.0], *starts, *elsewhere]).sum(axis=1) == 1).sum() >= 5
    assert found.evaluated.size <= 200


def test_where_chains_begin_takes_no_more_evaluations_than_are_given():
    """Whole rounds: a run that goes on with more has evaluated the same points up to there."""
    elsewhere = np.zeros((40, 1))
    sizes = [
        run(far_off, [-1.0], np.zeros((8, 1)), Plan(5, 10, 10, most, True), elsewhere=elsewhere).evaluated.size
        for most in (16, 45, 100)
    ]
    assert sizes == [9, 17, 49]
    points = np.linspace(5.5, 8.0, 40)[:, None]
    for most in range(20, 80, 7):  # where tuning can follow it ends in time, too
        found = run(far_off, [-1.0], np.zeros((8, 1)), Plan(5, 10, 10, most, True), elsewhere=points)
        assert found.evaluated.size <= most


def test_a_density_where_the_prior_alone_has_draws():
    with pm.Model():
        x = pm.Normal("x", 0.0, 5.0)
        pm.Potential("late", pt.switch(x > 4.0, 0.0, -np.inf))
        idata = pk.sample(50, tune=20, chains=4, random_seed=1, progressbar=False, max_evaluations=400)
    assert float(idata.posterior["x"].min()) > 4.0
    assert idata.evaluations.sizes["evaluation"] <= 400


def in_order():
    with pm.Model() as model:
        t = pm.Uniform("t", 0.0, 10.0, shape=5)
        pm.Potential("order", pt.switch(pt.all(t[1:] > t[:-1]), 0.0, -np.inf))
    return model


def below_an_unknown_end():
    with pm.Model() as model:
        pm.Uniform("y", 0.0, pm.HalfFlat("end"), observed=[3.0, 30.0])
    return model


@pytest.mark.whole
@pytest.mark.parametrize("model", [in_order(), below_an_unknown_end()], ids=["order", "flat"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_one_draw_of_the_prior_in_120_or_none_has_a_density(model, seed):
    with model:
        alone = sample(pk.AdaptiveMetropolisStep(), model, draws=5, tune=20, random_seed=seed)
        together = pk.sample(5, tune=20, chains=4, random_seed=seed, progressbar=False, max_evaluations=400)
    for idata in (alone, together):
        for name in idata.posterior.data_vars:
            x = idata.posterior[name].values
            assert (np.diff(x) > 0.0).all() if name == "t" else (x > 30.0).all()


# --- NaN in part of the space -------------------------------------------------------------------------


def test_pooled_chains_and_report_name_the_factor(caplog):
    with pm.Model() as model:
        pm.Potential("solver", BlackBox(half_nan)(pm.Normal("x", 0.0, 1.0, initval=0.5)))
        step = pk.KamiltonianStep(learn="all", compile_kwargs=QUICK)
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        idata = pk.sample(15, tune=10, chains=4, step=step, model=model, random_seed=1, progressbar=False)
    failed = [r.message for r in caplog.records if "were NaN or +inf" in r.message]
    assert "last solver = nan at x = -" in failed[0]
    verdict, second, *_ = pk.report(idata).splitlines()
    assert "usable" in verdict.lower()
    assert "were NaN or +inf, last solver = nan at x = -" in second


def test_every_argument_of_pm_sample_has_a_sentence():
    ours, theirs = (set(signature(f).parameters) for f in (pk.sample, pm.sample))
    assert len(theirs - ours - {"kwargs"}) > 12
    for name in theirs - ours - {"kwargs"}:
        with pytest.raises(TypeError, match=rf"^pk.sample has no argument {name}: .+\.$") as refused:
            pk.sample(**{name: None})
        assert "it has draws" not in str(refused.value)
    assert set(arguments._INSTEAD) - theirs <= {"start", "backend"}


# --- what is said of black boxes ----------------------------------------------------------------------


class TwoOutputs(Op):
    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector(), pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0], outputs[1][0] = np.full(3, inputs[0]), np.full(3, inputs[0] ** 2)


def two_outputs(discrete=False):
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", a, 1.0)
        u, v = TwoOutputs()(b)
        pm.Normal("y", u, 1.0, observed=np.ones(3))
        pm.Normal("z", v, 1.0, observed=np.ones(3))
        if discrete:
            pm.Bernoulli("k", pm.math.sigmoid(a))
    return model


def test_outputs_and_copies_of_a_black_box_are_one(caplog):
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        pk.KamiltonianStep(model=two_outputs(), compile_kwargs=QUICK)
    [line] = [r.message for r in caplog.records if "Learning" in r.message]
    assert line.startswith("Learning 1 black box of 1 input (6 outputs)")
    assert structure.boxes_of(two_outputs()) == 1


def test_it_is_said_why_the_whole_is_learned(caplog):
    model = two_outputs(discrete=True)
    vars = model.continuous_value_vars
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        found = structure.factored_density(model, vars, model.initial_point())
    assert found is None
    assert "not its black box by itself: other steps sample some" in caplog.text


# --- a run that is resumed ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def easy():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=2)
        step = pk.KamiltonianStep(learn="all", compile_kwargs=QUICK)
    return model, step


def resume(easy, folder, **options):
    model, step = easy
    chosen = {"max_evaluations": 90, "chains": 4, "random_seed": 1, "checkpoint": folder}
    return pk.sample(model=model, step=step, progressbar=False, **(chosen | options))


@pytest.fixture(scope="module")
def finished(easy, tmp_path_factory):
    """The folder of a run; that it can be made longer is a test of test_ways_to_run."""
    folder = tmp_path_factory.mktemp("run")
    resume(easy, folder)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"random_seed": 2}, "begun with random_seed=1, and this is random_seed=2"),
        ({"initvals": "prior"}, 'initvals was "jitter", is "prior"'),
        ({"tune": 20}, 'tune was "auto", is 20'),
        ({"max_evaluations": 60}, "can be made longer and not shorter"),
    ],
    ids=["seed", "start", "tune", "budget"],
)
def test_a_refusal_speaks_of_what_was_given(easy, finished, change, said):
    with pytest.raises(ValueError, match=said) as refused:
        resume(easy, finished, **change)
    assert "longest" not in str(refused.value)


def test_an_option_that_differs_is_named(easy, finished):
    step = pk.KamiltonianStep(model=easy[0], learn="all", surrogate=pk.Values(growth=2.0), compile_kwargs=QUICK)
    with pytest.raises(ValueError, match=r"is another one: options.growth was 1.35, is 2.0\. "):
        resume((easy[0], step), finished)


# --- figures ------------------------------------------------------------------------------------------


def test_too_few_draws_are_not_judged(easy, caplog):
    """``nan effective, R-hat nan`` says nothing."""
    model, step = easy
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        pk.sample(3, tune=8, chains=4, model=model, step=step, random_seed=1, progressbar=False)
    assert "nan" not in caplog.text
    assert "3 draws of each of 4 chains are too few to judge" in caplog.text
    assert "give more evaluations, or fewer chains." in caplog.text
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        pk.sample(12, tune=8, chains=1, model=model, step=step, random_seed=1, progressbar=False)
    said = "12 draws of one chain are too few to judge (10 of two chains at least): give more chains."
    assert said in caplog.text
    assert convergence.describe(convergence.Judgement()) == "too few to judge"


def test_a_log_density_of_minus_1e200_is_no_overflow():
    """Warnings are errors here."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    y = -0.5 * np.square(x).sum(axis=1)
    y[:3] = -1e200
    data = preparation.prepare(rng, x, y, y, x[3:], y[3:], 0.1, 0.1)
    assert len(data.y) == 57


# --- what a black box answers in ----------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize(("of", "units"), [(pm.Normal, 1e-9), (pm.Gamma, 1e12)])
def test_outputs_may_have_any_unit(of, units):
    """A solver's concentration in particles, or in moles: the same surrogate, and the same draws but for rounding."""
    t, found = np.linspace(0.2, 4.0, 12), {}
    observed = 5.0 * np.exp(-0.6 * t) + 0.05 * np.random.default_rng(0).standard_normal(12)
    for unit in (1.0, units):
        with pm.Model() as model:
            a, k = pm.LogNormal("a", 1.0, 1.0), pm.LogNormal("k", 0.0, 1.0)
            decay = wrap_py(itypes=[pt.dscalar] * 2, otypes=[pt.dvector])(lambda a, k, u=unit: u * a * np.exp(-k * t))
            of("y", mu=decay(a, k) / unit, sigma=0.15, observed=observed)
            run = sample(pk.KamiltonianStep(), model, draws=10, tune=50, chains=1, random_seed=1)
        found[unit] = run["sample_stats"]["surrogate_error"].values[0, -1], run["posterior"]["a"].values.mean()
    for error, mean in found.values():
        assert 0.5 < error / found[1.0][0] < 2.0
        assert mean == pytest.approx(found[1.0][1], rel=0.02)
