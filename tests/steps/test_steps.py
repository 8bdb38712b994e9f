"""The steps inside ``pm.sample``: what users see, what they are told when something is wrong, what comes out."""

import re
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import Competence

import pymc_kameleon as pk
from pymc_kameleon.steps.base import NUTS_HAS
from tests import step_tester as tester
from tests.step_tester import begin, compiled_step, every_step, make, minus_half_square, sample
from tests.streams.make import STORED, stream
from tests.support.hierarchies import BlackBox

pytestmark = tester.NO_BLAS
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
STREAMS = Path(__file__).parents[1] / "streams"
AT_IMPORT = list(STEP_METHODS)
PUBLIC = [value for name, value in vars(pk).items() if name.endswith("Step")]


def black_box_model(function=minus_half_square):
    with pm.Model() as model:
        pm.Potential("black_box", BlackBox(function)(pm.Normal("x", shape=2)))
    return model


# --- variables -------------------------------------------------------------------------------


@every_step
def test_the_rest_of_a_mixed_model_gets_other_steps(case):
    model = tester.switch()
    step = make(case, model)
    assert [v.name for v in step.vars] == ["x"]
    idata = sample(step, model, chains=1)
    assert set(np.unique(idata["posterior"]["k"].values)) <= {0, 1}
    assert idata["posterior"]["k"].dtype.kind == "i"
    assert (idata["sample_stats"]["nonfinite"] == 0).all()


def test_data_that_are_listed_twice_are_taken_out():
    """PyMC 5.28's ``sample_posterior_predictive`` does it; ``list.append`` adds to one model's, not to its parent's."""
    with pm.Model() as outer, pm.Model(name="inner") as model:
        y = pm.Normal("y", pm.Normal("x"), observed=0.5)
        for listed in (outer.observed_RVs, model.observed_RVs):
            list.append(listed, y)
        step = pk.AdaptiveMetropolisStep(**QUICK)
    assert list(outer.observed_RVs) == list(model.observed_RVs) == [y]
    list.append(model.observed_RVs, y)  # a step that was built before
    point, _ = begin(step).step(model.initial_point())
    x = float(point["inner::x"])
    assert step.log_density == pytest.approx(-0.5 * x**2 - 0.5 * (x - 0.5) ** 2 - np.log(2.0 * np.pi), rel=1e-12)


@pytest.mark.parametrize("length", [2, 4])
def test_data_of_another_length_need_a_new_step(length):
    with pm.Model(coords={"place": range(3)}) as model:
        data = pm.Data("data", np.zeros(3), dims="place")
        pm.Normal("y", pm.Normal("x", dims="place"), observed=data, dims="place")
        step = pk.KamiltonianStep(learn="all", **QUICK)
        pm.set_data({"data": np.zeros(length)}, coords={"place": range(length)})
    said = rf"x had shape \(3,\) and has \({length},\)\. After pm\.set_data .* build a new step"
    with pytest.raises(SamplingError, match=said):
        begin(step).step(model.initial_point())
    with pytest.raises(SamplingError, match=said):
        pk.sample(model=model, step=step, progressbar=False)


# --- automatic assignment --------------------------------------------------------------------


def test_nothing_is_registered_at_import():
    assert not set(AT_IMPORT) & set(PUBLIC)
    assert not any(m.__module__.startswith("pymc_kameleon") for m in AT_IMPORT)


@pytest.fixture
def registered():
    pk.register()  # what choosing.md begins with
    yield pk.KamiltonianStep
    pk.unregister()


def test_register_and_unregister():
    pk.register(pk.AdaptiveMetropolisStep)
    pk.register(pk.AdaptiveMetropolisStep)
    assert STEP_METHODS.count(pk.AdaptiveMetropolisStep) == 1
    pk.unregister(pk.AdaptiveMetropolisStep)
    pk.unregister(pk.AdaptiveMetropolisStep)
    assert list(STEP_METHODS) == AT_IMPORT
    pk.register(pk.FastKameleonStep)
    pk.register()
    pk.unregister()
    assert list(STEP_METHODS) == AT_IMPORT


def test_registered_step_is_chosen_where_there_is_no_gradient(registered):
    with pm.Model() as model:
        a = pm.Normal("a")  # PyMC alone: Slice
        b = pm.Normal("b", shape=2)  # PyMC alone: Metropolis
        pm.Normal("c")  # has a gradient
        pm.Poisson("n", 2.0)
        pm.Potential("black_box", BlackBox(lambda a, b: -0.5 * (np.sum(np.square(a)) + np.sum(np.square(b))))(a, b))
    _, assigned = assign_step_methods(model)
    chosen = {v.name: step for step, vars in assigned.items() for v in vars}
    assert chosen["a"] is chosen["b"] is registered
    assert chosen["c"] is pm.NUTS
    assert chosen["n"] is pm.Metropolis


def test_registered_step_takes_its_options_from_pm_sample(registered, monkeypatch):
    model = black_box_model()
    steps = []
    pk.register(pk.KameleonStep)
    begin_chain = pk.KameleonStep.set_rng
    monkeypatch.setattr(pk.KameleonStep, "set_rng", lambda self, rng: steps.append(self) or begin_chain(self, rng))
    idata = sample(None, model, chains=1, kameleon={"target_accept": 0.3, "n_history": 77})
    assert {type(s) for s in steps} == {pk.KameleonStep}
    assert steps[0]._options == {"target_accept": 0.3, "n_history": 77}
    assert "n_history" in idata["sample_stats"]


def test_competence():
    continuous, discrete = tester.switch()["x"], tester.switch()["k"]
    for step in PUBLIC:
        assert step.competence(continuous, True) == Competence.COMPATIBLE
        assert step.competence(continuous, False) == Competence.PREFERRED
        assert {step.competence(discrete, g) for g in (False, True)} == {Competence.INCOMPATIBLE}


# --- log densities that are not finite -------------------------------------------------------


@every_step
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_start(case, value):
    model = black_box_model(lambda x: value)
    step = make(case, model)
    with pytest.raises(SamplingError) as error:
        sample(step, model)
    text = str(error.value)
    assert f"log density is {value} at the chain's first point" in text
    accused = text.split("Not finite there:")[1].split("The point")[0]
    assert accused.split() == ["black_box", "=", f"{value}."]  # and not x, which is in order
    assert "'x': [0.0, 0.0]" in text
    assert "initvals" in text


def ordered():
    """Two unknowns that begin equal, and are to be in order."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("order", pm.math.switch(x[0] < x[1], 0.0, -np.inf))
    return model


@pytest.mark.parametrize("case", ["adaptive_metropolis", "kamiltonian"])
def test_a_chain_leaves_an_initial_point_without_density(case):
    model = ordered()
    idata = sample(make(tester.CASES[case], model), model, draws=30, tune=60)
    x = idata["posterior"]["x"].values
    assert (x[..., 0] < x[..., 1]).all()
    assert np.ptp(x) > 0.5
    with pytest.raises(SamplingError, match="order = -inf"):  # where somebody put it, it stays
        sample(make(tester.CASES[case], model), model, initvals={"x": [1.0, 1.0]})


def test_that_it_begins_elsewhere_is_said():
    model = ordered()
    point, [stats] = tester.begin(make(tester.CASES["adaptive_metropolis"], model)).step(model.initial_point())
    assert point["x"][0] < point["x"][1]
    assert "at the model's initial point there is no density (order = -inf)" in stats["warning"].message


def test_value_spoiled_by_another_step_is_not_called_a_start():
    with pm.Model() as model:
        a = pm.Flat("a")
        b = pm.Normal("b")
        pm.Potential("log", pm.math.log(a) * pm.math.exp(-b))
    step = begin(pk.AdaptiveMetropolisStep([b], model=model))
    point, _ = step.step({"a": np.array(1.0), "b": np.array(0.0)})
    with pytest.raises(SamplingError, match=r"became nan when another step.*log = nan"):
        step.step({**point, "a": np.array(-1.0)})


def cliffs(x):
    """NaN, +inf and -inf where the first coordinate exceeds 1, the second does, or either is below -1."""
    if x[0] > 1:
        return np.nan
    if x[1] > 1:
        return np.inf
    return 0.0 if x.min() > -1 else -np.inf


@every_step
def test_later_non_finite_values_are_rejected_and_counted(case):
    bad = []

    def watched(x):
        value = cliffs(x)
        bad.append(not np.isfinite(value))
        return value

    model = black_box_model(watched)
    step = begin(make(case, model))
    point, seen = model.initial_point(), []
    for i in range(700):
        if i == 400:
            evaluations = len(bad)
            step.stop_tuning()
            del bad[evaluations:]  # to name the factor in a warning
        before, evaluations = point["x"].copy(), len(bad)
        point, [stat] = step.step(point)
        seen.append(point["x"])
        if len(bad) == evaluations + 2:  # once, to name the factor in a warning
            bad.pop()
        assert stat["nonfinite"] == sum(bad)
        # the last draw of an arrival is where it arrived, whatever it tried last
        if len(bad) > evaluations and bad[-1] and stat["move"] != "arrival":
            assert stat["accept"] == stat["accepted"] == 0.0
            np.testing.assert_array_equal(point["x"], before)
        assert np.isfinite(stat["model_logp"])
    seen = np.array(seen)
    assert np.abs(seen).max() < 1
    assert 50 < sum(bad) < 650
    assert np.ptp(seen[400:], axis=0).min() > 1  # it does move


def told_of_failures(share, value, tune=400, draws=1500):
    """Of a model that fails in ``share`` of the support, and outside of it, where the density is zero anyway."""
    with pm.Model() as model:
        x = pm.Uniform("x", 0.0, 1.0, default_transform=None, initval=0.5)
        pm.Potential("fine", -(x**2))
        pm.Potential("solver", BlackBox(lambda x: value if x > 1.0 - share else 0.0)(x))
    step = pk.AdaptiveMetropolisStep(model=model, **QUICK)
    _, stats = tester.run(step, draws, tune, seed=4)
    return step, " ".join(w.message for w in tester.warnings_in(stats))


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_a_factor_that_fails_in_part_of_the_space_is_named(value):
    step, told = told_of_failures(0.3, value)
    assert told.count("proposals after tuning have a log density of NaN or +inf") == 1
    assert re.search(rf"solver = {value} at x = 0\.[789]\d* \(unconstrained\)", told)
    assert "fine =" not in told
    assert step.failures[0] > 30


@pytest.mark.parametrize(("share", "value"), [(0.3, -np.inf), (0.002, np.nan), (0.0, np.nan)], ids=str)
def test_what_is_no_failure_is_not_warned_about(share, value):
    """-inf is a density of zero, and a NaN now and then truncates nothing."""
    _, told = told_of_failures(share, value)
    assert "proposals after tuning" not in told


def test_failures_while_tuning_are_not_counted():
    step, told = told_of_failures(0.3, np.nan, tune=600, draws=1)
    assert "proposals after tuning" not in told
    assert step.failures[0] <= 1
    assert step.nonfinite > 20


def test_finding_the_factor_costs_one_evaluation(tmp_path):
    counter = tester.Counter(tmp_path / "evaluations")
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.5)
        pm.Potential("box", BlackBox(lambda x: 0.0 if 0 < x < 1 else np.nan, path=counter.path)(x))
    step = pk.AdaptiveMetropolisStep(model=model, **QUICK)
    counter.take()
    tester.run(step, 500, 400, seed=4)
    assert step.failures[0] > 50
    assert counter.take() == step.evaluations + 1 == 902


def test_a_black_box_that_returns_an_array_is_named_beside_another():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("box", BlackBox(lambda x: np.array([-float(x)]))(x))
        pm.Potential("other", BlackBox(minus_half_square)(x))
    step = pk.AdaptiveMetropolisStep(model=model, **QUICK)
    expected = r"shape \(1,\) instead of \(\).* the black box of 'box', returned .* shape \(1,\)"
    with pytest.raises(SamplingError, match=expected):
        step.step(model.initial_point())


# --- exactness that hangs on the base step ---------------------------------------------------


def sweep(rng, step, point):
    """k given x, exactly, for ``tester.switch``; x given k by ``step``."""
    x = float(point["x"])
    weights = np.array([0.6, 0.4]) * np.exp(-0.5 * np.array([x, (x - 3.0) / 2.0]) ** 2) / [1.0, 2.0]
    return step.step({**point, "k": np.array(int(rng.random() < weights[1] / weights.sum()))})[0]


def switch_z(step, starts=3000, sweeps=3):
    """z-scores of the change of four moments, from exact draws of (k, x) through sweeps."""
    rng = np.random.default_rng(5)
    k = (rng.random(starts) < 0.4).astype(int)
    before = np.stack([k, 3.0 * k + (1.0 + k) * rng.standard_normal(starts)])
    after = np.empty_like(before)
    for i, (k, x) in enumerate(before.T):
        point = {"k": np.array(int(k)), "x": np.array(x)}
        for _ in range(sweeps):
            point = sweep(rng, step, point)
        after[:, i] = point["k"], point["x"]
    change = np.stack([[k, x, x**2, k * x] for k, x in (after, before)])
    change = change[0] - change[1]
    return change.mean(axis=1) / (change.std(axis=1, ddof=1) / np.sqrt(starts))


@every_step
@pytest.mark.usefixtures("default_linker")
def test_target_is_left_invariant_next_to_another_step(case, monkeypatch):
    model = tester.switch()
    step = begin(make(case, model, [model["x"]]))
    rng, point = np.random.default_rng(1), {"k": np.array(0), "x": np.array(0.0)}
    for _ in range(300):
        point = sweep(rng, step, point)
    step.stop_tuning()
    z = switch_z(step)
    assert np.abs(z).max() < 4.5, z
    # Control: the moves of k go unnoticed.
    monkeypatch.setattr(step.density, "follow", lambda point: False)
    z = switch_z(step)
    assert np.abs(z).max() > 10, z


def test_noisy_estimate_is_kept_when_another_step_moves():
    """b enters deterministic factors only: the estimate at the current a stays, the rest is evaluated again."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a)
        pm.Potential("noisy", 1.5 * pm.Normal.dist(0.0, 1.0) + 0.0 * a)
    step = begin(pk.AdaptiveMetropolisStep([a], model=model))
    point, rng = model.initial_point(), np.random.default_rng(3)
    for i in range(200):
        point = {**point, "b": np.array(rng.standard_normal())}
        kept = step.life.here.noise[0] if i else None
        a_before = float(point["a"])
        point, [stat] = step.step(point)
        rest = -np.log(2 * np.pi) - 0.5 * (point["a"] ** 2 + (point["b"] - point["a"]) ** 2)
        assert stat[f"{step.name}_lp"] - step.life.here.noise[0] == pytest.approx(float(rest), rel=1e-9)
        if i and not stat[f"{step.name}_accepted"]:
            assert (step.life.here.noise[0] == kept) == (stat["move"] != "renewal")
            assert float(point["a"]) == a_before


# --- what comes out --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results():
    """A small run on a model with all kinds of shapes."""
    model = tester.shapes()
    step = compiled_step(tester.CASES["kameleon"], model)
    return step, sample(step, model, draws=200, tune=700)  # half of them to arrive


def test_statistics(results):
    step, idata = results
    stats = idata["sample_stats"]
    renamed = {"model_logp": "lp"}
    declared = {renamed.get(k, k): ((2, 200), np.dtype(v[0])) for k, v in step.stats_dtypes_shapes.items()}
    assert declared.pop("warning")[1].kind == "O"  # which PyMC drops
    assert {name: (stats[name].shape, stats[name].dtype) for name in stats.data_vars} == declared
    assert ((stats["accept"] >= 0) & (stats["accept"] <= 1)).all()
    assert set(np.unique(stats["accepted"])) == {0.0, 1.0}
    assert (stats["scaling"] > 0).all()
    assert set(np.unique(stats["move"])) == set(tester.KAMELEON_MOVES)
    assert (np.diff(stats["nonfinite"], axis=-1) >= 0).all()
    assert (stats["n_history"] == 40).all()
    assert min(stats["lengthscale"].min(), stats["gamma"].min()) > 0
    # the log density recorded is that of the point recorded
    moved = (np.diff(idata["posterior"]["scale"], axis=-1) != 0).astype(float)
    np.testing.assert_array_equal(moved, stats["accepted"].values[:, 1:])
    constant = np.diff(stats["lp"].values, axis=-1) == 0
    np.testing.assert_array_equal(constant, moved == 0)


def test_netcdf_and_back(results, tmp_path):
    _, idata = results
    idata.to_netcdf(str(tmp_path / "run.nc"), engine="h5netcdf")
    back = az.from_netcdf(str(tmp_path / "run.nc"))
    for group in ("posterior", "sample_stats"):
        for variable in idata[group].data_vars:
            np.testing.assert_array_equal(back[group][variable].values, idata[group][variable].values, err_msg=variable)


@pytest.mark.parametrize("name", STORED)
def test_stored_stream(name):
    """The draws are those that were stored, whatever the version of PyMC and the linker: see tests/streams."""
    with np.load(STREAMS / f"{name}.npz") as file:
        stored = dict(file)
    now = stream(name)
    assert set(stored) == set(now)
    for key, value in now.items():
        # compilers and LAPACKs round differently: PyMC 5 and 6 differ by 3e-7 at most
        # and an arrival amplifies that
        tolerance = 1e-2 if name.endswith("-arrival") else 1e-5
        np.testing.assert_allclose(value, stored[key], rtol=tolerance, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", [n for n in tester.CASES if n != "kamiltonian_finite"])
def test_statistics_of_a_draw_take_no_more_than_120_bytes(name):
    """What a trace keeps of them; ``warning`` is a reference, which PyMC drops."""
    assert _bytes(tester.make(tester.CASES[name], tester.gaussian())) <= 120


def test_statistics_take_no_more_of_boxes_and_under_noise():
    with pm.Model():
        x = pm.Normal("x")
        pm.Potential("estimate", pk.NoisyLogLikelihood(lambda rng, x: rng.standard_normal() - x**2)(x))
        noisy = pk.KamiltonianStep()
    with pm.Model():
        predicted = BlackBox(np.exp, pt.dvector)(pm.Normal("x", shape=2))
        pm.Normal("y", predicted, 1.0, observed=np.ones(2))
        boxes = pk.KamiltonianStep()
    assert (_bytes(noisy), _bytes(boxes)) == (114, 116)


def _bytes(step):
    declared = step.stats_dtypes_shapes
    return sum(np.dtype(dtype).itemsize for stat, (dtype, _) in declared.items() if stat != "warning")


@pytest.mark.parametrize("other", [pm.Metropolis, pm.Slice])
def test_statistics_that_steps_have_in_common_have_one_type(other):
    """PyMC refuses steps side by side otherwise. ``NUTS_HAS`` have other names there."""
    types = {}
    for step in [*(getattr(pk, name) for name in pk.__all__ if name.endswith("Step")), other]:
        for stat in step.stats_dtypes_shapes.keys() - NUTS_HAS.keys():
            dtype, _ = step.stats_dtypes_shapes[stat]
            types.setdefault(stat, set()).add(np.dtype(dtype))
    assert {stat: found for stat, found in types.items() if len(found) > 1} == {}


# PyMC's converter gives NUTS' statistics these names: one of ours would take another's place in a compound step.
RENAMED_BY_PYMC = {"lp", "acceptance_rate", "tree_depth", "n_steps"}


@pytest.mark.parametrize("step", PUBLIC)
def test_statistics_of_the_same_name_have_the_type_of_pymcs(step):
    """PyMC refuses to sample two steps whose statistics share a name and not a type; ``bool`` is not ``np.bool_``."""
    ours = step.stats_dtypes_shapes
    assert not set(ours) & RENAMED_BY_PYMC
    for other in (pm.NUTS, pm.HamiltonianMC, pm.Metropolis, pm.Slice, pm.DEMetropolis, pm.DEMetropolisZ):
        for name in set(ours) & set(other.stats_dtypes_shapes) - set(NUTS_HAS):  # which are renamed there
            assert ours[name][0] is other.stats_dtypes_shapes[name][0], (other, name)


@pytest.mark.parametrize("other", [pm.HamiltonianMC, pm.Metropolis])
def test_beside_a_step_of_pymcs(other):
    """One calls ``accepted`` a bool, the other a float: beside either it has the step's name."""
    with pm.Model():
        x, y = pm.Normal("x"), pm.Normal("y")
        steps = [pk.KameleonStep([x], **QUICK), other([y], **QUICK)]
        idata = pm.sample(5, tune=5, step=steps, chains=2, cores=1, progressbar=False, compute_convergence_checks=False)
    assert set(np.unique(idata["sample_stats"]["kameleon_accepted"])) <= {0.0, 1.0}


# --- progress and messages -------------------------------------------------------------------


def test_tuning_length_by_default():
    """PyMC's 1000 on either version: its maximum over the steps would have NUTS tune 400 draws a dimension of ours."""
    step = compiled_step(tester.CASES["kameleon"], tester.gaussian())
    assert getattr(step, "default_tune_steps", None) is None
    with pm.Model():
        pm.Normal("x", shape=4)
        step = pk.AdaptiveMetropolisStep(**QUICK)
        idata = pm.sample(10, step=step, chains=1, cores=1, progressbar=False, random_seed=1)
    assert idata["posterior"].attrs["tuning_steps"] == 1000
