"""What PyMC asks of a step method: life cycle, sampling state, points, evaluations.

The fast suite asks one step, for PyMC's side is the same for all; what each sampler owes is asked of all of them, on
:class:`~pymc_kameleon.samplers.life.Life`, in tests/samplers/test_life.py.
"""

import copy
import pickle

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.state import equal_dataclass_values

import pymc_kameleon as pk
from pymc_kameleon.kernels import Matern
from pymc_kameleon.steps.options import described
from tests import step_tester as tester
from tests.step_tester import assert_same_draws, begin, compiled_step, drive, every_step, make, run, sample
from tests.support.hierarchies import BlackBox

TUNE = 200
FEW = {"draws": 20, "tune": 100}
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}  # where the linker is not the point
pytestmark = tester.NO_BLAS


def tuned(case, model, seed=0):
    """A step that has just stopped tuning, and the point where it is."""
    step = compiled_step(case, model)
    points, _ = run(step, TUNE, seed=seed)
    step.stop_tuning()
    return step, points[-1]


# --- tuning ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", tester.step_params(n for n, c in tester.CASES.items() if "scaling" in c.step.stats_dtypes_shapes)
)
def test_tuning_starts_anew_in_every_sequential_chain(case):
    model = tester.gaussian()
    step = compiled_step(case, model)
    idata = sample(step, model, chains=3, discard_tuned_samples=False)
    warmup = idata["warmup_sample_stats"]["scaling"].values
    start = model.initial_point()["x"]
    initial = step.sampler.stats(step.sampler.init(step.rng, start))["scaling"]
    for chain in range(3):  # the first draw may have adapted once
        assert abs(np.log(warmup[chain, 0] / initial)) < 0.1
        assert np.ptp(np.log(warmup[chain])) > 0.2


@every_step
def test_state_does_not_grow_after_tuning(case):
    model = tester.gaussian()
    step, point = tuned(case, model)
    [point, *_], _ = drive(step, point, 1)  # what there was to warn of leaves with it
    size = len(pickle.dumps(step.sampling_state))
    drive(step, point, 400)
    assert abs(len(pickle.dumps(step.sampling_state)) - size) < 200


@every_step
def test_learning_may_end_before_tuning_does(case):
    """The same draws as if tuning had ended there; what was learned from is dropped."""
    model = tester.gaussian()
    bounded, plain = make(case, model, learning_draws=TUNE, **QUICK), make(case, model, **QUICK)
    assert_same_draws(run(bounded, 20, tune=TUNE + 40), run(plain, 60, tune=TUNE))
    assert not equal_dataclass_values(bounded.sampling_state, plain.sampling_state)  # the option
    points, _ = run(bounded, TUNE + 40)
    assert not bounded.tune
    before = len(cloudpickle.dumps(bounded.sampling_state))
    drive(bounded, points[-1], 100)
    assert len(cloudpickle.dumps(bounded.sampling_state)) < before + 1000


@every_step
def test_phases_are_reached_in_these_tests(case):
    """The options of CASES take the step through all its moves: without this, the tests here prove little."""
    model = tester.gaussian()
    step, point = tuned(case, model)
    _, stats = drive(step, point, 100)
    seen = {s["move"] for s in stats}
    assert seen <= {*case.moves, *case.rare}
    assert seen & set(case.moves)  # a walk that does not pay is rare
    assert 0.02 < np.mean([s["accepted"] for s in stats]) < (0.99 if case.skips else 0.7)


# --- the sampling state ----------------------------------------------------------------------


@every_step
def test_state_remembers_the_other_variables(case):
    """The retained value was evaluated at k = 0; that k is 1 now must not be hidden by the step's memory of the draws
    that were undone."""
    model = tester.switch()
    x = model["x"]
    step = begin(make(case, model, [x]))
    point, _ = step.step({**model.initial_point(), "k": np.array(0), "x": np.array(0.3)})
    state = step.sampling_state
    point["k"] = np.array(1)  # another step moved it
    step.step(point)  # is followed ...
    step.sampling_state = state  # ... and undone
    after, _ = step.step(point)
    assert step.log_density == pytest.approx(float(model.compile_logp()(after)), rel=1e-12)


def test_options_are_described_alike_in_every_process():
    history = np.arange(6.0).reshape(3, 2)
    one = described({"k": Matern(1.5), "h": history, "n": np.float64(2.0), "f": np.sum, "v": (1, None), "x": np.nan})
    two = described({"k": Matern(1.5), "h": history.copy(), "n": 2.0, "f": np.sum, "v": (1, None), "x": np.nan})
    assert one == two
    assert pickle.loads(pickle.dumps(one)) == one
    assert "0x" not in repr(one)
    for name, value in {"k": Matern(2.5), "h": history + 1, "n": 3.0, "f": np.mean, "v": (1,), "x": 0.0}.items():
        assert described(value) != one[name]


# --- copies ----------------------------------------------------------------------------------


@every_step
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
def test_a_copy_is_independent(case, copied):
    model = tester.switch()
    step = begin(make(case, model, [model["x"]]))
    point = {**model.initial_point(), "k": np.array(1)}
    points, _ = drive(step, point, 100)
    twin = copied(step)
    elsewhere = {**points[-1], "k": np.array(0)}
    drive(twin, elsewhere, 20)  # moves the twin's k and its generator
    fresh = copied(step)
    assert_same_draws(drive(step, points[-1], 20), drive(fresh, points[-1], 20))


# --- points ----------------------------------------------------------------------------------


@every_step
def test_variables_given_in_another_order_are_not_swapped(case):
    """On PyMC 6, a point with its keys in another order swaps the variables in the trace, silently."""
    model = tester.simplex()
    order = [model[name] for name in ("scale", "level", "weights")]
    posterior = sample(make(case, model, order, **QUICK), model, chains=4, **FEW)["posterior"]
    assert posterior["weights"].shape == (4, 20, 3)
    np.testing.assert_allclose(posterior["weights"].values.sum(axis=-1), 1.0, rtol=1e-12)
    assert posterior["level"].shape == (4, 20, 2, 2)
    assert posterior["level"].values.min() < 0
    assert posterior["scale"].values.min() > 0


@every_step
def test_points_keep_order_shape_and_dtype_and_are_not_written_to_again(case):
    model = tester.shapes()
    step, start, seen = compiled_step(case, model), model.initial_point(), []
    point = start
    for i in range(130):
        if i == 100:
            step.stop_tuning()
        point, _ = step.step(point)
        seen.append((point, {k: v.copy() for k, v in point.items()}))
    for now, then in seen:
        assert list(now) == list(start)
        for name, value in now.items():
            assert isinstance(value, np.ndarray)
            assert (value.shape, value.dtype) == (start[name].shape, start[name].dtype)
            assert value.flags.c_contiguous
            np.testing.assert_array_equal(value, then[name])


def test_an_initial_point_of_integers_makes_no_integers():
    """Neither of the step's own variables nor of another step's, whose density it would be at a rounded point."""
    model = tester.pair()
    step = begin(pk.AdaptiveMetropolisStep([model["b"]], model=model, initial_point={"a": 0, "b": [1, 2]}))
    points, _ = drive(step, {"a": np.array(0.7), "b": np.array([1.0, 2.0])}, 20)
    assert {point["b"].dtype for point in points} == {np.dtype(float)}
    assert np.any(points[-1]["b"] % 1.0 != 0.0)
    after, _ = step.step({**points[-1], "a": np.array(-0.4)})
    assert step.log_density == pytest.approx(float(model.compile_logp()(after)), rel=1e-12)


@every_step
def test_drivers_memory_may_be_overwritten(case):
    """PyMC's workers hand out views of shared memory and write the next point into them."""
    model = tester.shapes()
    tune, draws = 100, 30
    expected = run(compiled_step(case, model), draws, tune)
    step = compiled_step(case, model)
    shared = {k: v.copy() for k, v in model.initial_point().items()}
    points, stats = [], []
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, [stat] = step.step(shared)
        points.append({k: v.copy() for k, v in point.items()})
        stats.append(stat)
        for name in shared:
            shared[name][...] = np.nan  # as if something else lived there in between
        for name in shared:
            shared[name][...] = points[-1][name]
    assert_same_draws(expected, (points, stats))


# --- evaluations -----------------------------------------------------------------------------


@pytest.fixture
def counter(tmp_path):
    return tester.Counter(tmp_path / "evaluations")


def counted_model(counter):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=2)
        pm.Potential("black_box", BlackBox(counted_density, path=counter.path)(a, b))
    return model


def counted_density(a, b):
    return -0.5 * float(a**2 + np.sum(np.square(b - a)))


@every_step
def test_one_evaluation_a_draw_and_one_a_chain_also_in_workers(case, counter):
    model = counted_model(counter)
    step = make(case, model)
    counter.take()
    workers = {"cores": 2, "mp_ctx": "fork"}
    for tune, chains, kwargs in ((130, 3, {}), (0, 2, {}), (130, 2, workers)):
        idata = sample(step, model, draws=40, tune=tune, chains=chains, **kwargs)
        expected = at_most = chains * (tune + 40 + 1)
        if case.skips:  # a draw may need none
            expected = int(idata["sample_stats"]["evaluations"].values[:, -1].sum())
            assert 0.7 * at_most < expected <= at_most
        assert counter.take() == expected


@every_step
def test_evaluated_again_only_when_another_step_moved_a_variable(case, counter):
    model = counted_model(counter)
    step = begin(make(case, model, [model["b"]]))
    point = model.initial_point()
    counter.take()
    rng, moves = np.random.default_rng(1), 0
    for i in range(TUNE + 60):
        if i == TUNE:
            before = counter.take()
            if case.skips:
                assert moves < before == step.evaluations <= TUNE + 1 + moves
            else:
                assert before == TUNE + 1 + moves
            moves = 0
            step.stop_tuning()
            assert counter.take() == 0  # freezing evaluates nothing
        if i > 0 and rng.random() < 0.3:
            point = {**point, "a": np.array(rng.standard_normal())}
            moves += 1
        point, [stat] = step.step(point)
        assert stat[f"{step.name}_lp"] == pytest.approx(logp(point), rel=1e-12)
    after = counter.take()
    assert step.evaluations == before + after
    assert moves < after <= 60 + moves if case.skips else after == 60 + moves


def logp(point):
    """Of ``counted_model``."""
    a, b = point["a"], point["b"]
    constant = -1.5 * np.log(2 * np.pi)
    return counted_density(a, b) + constant - 0.5 * float(a**2 + np.sum(np.square(b)))


@every_step
def test_a_point_that_the_driver_moved_is_evaluated(case, counter):
    """And an arrival that was under way is over: its climb is not of that point."""
    model = counted_model(counter)
    step = make(case, model)
    [*_, point], _ = run(step, 8)
    assert step.life.state.stage is not None
    counter.take()
    elsewhere = {**point, "b": point["b"] + 0.5}
    point, [stat] = step.step(elsewhere)
    assert stat["move"] != "arrival"
    assert step.life.state.stage is None
    assert counter.take() == 2
    assert stat["model_logp"] == pytest.approx(logp(point), rel=1e-12)


# --- the same seed, the same draws -----------------------------------------------------------


def assert_same_trace(first, second):
    for group in ("posterior", "sample_stats"):
        assert set(first[group].data_vars) == set(second[group].data_vars)
        for name in first[group].data_vars:
            if name not in ("perf_counter_diff", "perf_counter_start", "process_time_diff"):  # NUTS reports them
                np.testing.assert_array_equal(first[group][name], second[group][name], err_msg=name)


@every_step
@pytest.mark.parametrize("mp_ctx", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_same_draws_sequentially_and_in_workers(case, mp_ctx):
    model = tester.shapes()
    step = compiled_step(case, model)
    one = sample(step, model, **FEW)
    assert_same_trace(one, sample(step, model, **FEW))  # and again: nothing is left over
    assert_same_trace(one, sample(step, model, **FEW, cores=2, mp_ctx=mp_ctx))
    draws = one["posterior"]["matrix"].values
    assert not np.array_equal(draws[0], draws[1])  # the chains differ
    other = sample(step, model, **FEW, random_seed=3)["posterior"]["matrix"].values
    assert not np.array_equal(draws, other)


@pytest.mark.slow
@every_step
def test_same_draws_next_to_nuts(case):
    model = tester.pair()
    ours, nuts = make(case, model, [model["b"]]), pm.NUTS([model["a"]], model=model)
    step, untuned = CompoundStep([ours, nuts]), nuts.sampling_state
    one = sample(step, model, **FEW)
    nuts.sampling_state = untuned  # forked processes inherit what NUTS has learned, and keep it
    assert_same_trace(one, sample(step, model, **FEW, cores=2, mp_ctx="fork"))
    assert np.isfinite(one["posterior"]["a"].values).all()


@every_step
def test_same_draws_one_step_a_variable(case):
    model = tester.pair()
    step = make(case, model, blocked=False)
    assert isinstance(step, CompoundStep)
    assert [m.vars for m in step.methods] == [[v] for v in model.value_vars]
    one = sample(step, model, **FEW)
    assert_same_trace(one, sample(step, model, **FEW, cores=2, mp_ctx="fork"))
    assert one["sample_stats"]["nonfinite"].shape == (2, 20, 2)
    # the last step's value belongs to the point that is recorded
    value = model.compile_logp()
    for draw in (0, 7, 19):
        point = {name: one["posterior"][name].values[1, draw] for name in ("a", "b")}
        lp = one["sample_stats"][f"{case.step.name}_lp"].values[1, draw]
        assert lp.all()  # PyMC empties its own name in all but the last
        assert lp[-1] == pytest.approx(float(value(point)), rel=1e-12)


@pytest.mark.parametrize("surrogate", ["values", "lite"])
def test_once_frozen_each_draw_has_statistics_of_its_own(surrogate):
    """But for those of the fit, which are made once."""
    with pm.Model() as model:
        pm.StudentT("x", 1.2, shape=2)
    lowest = 1.0
    for seed in range(1, 11):  # until a chain has stood above its surrogate: half of them do
        step = begin(pk.KamiltonianStep(surrogate=surrogate, model=model), seed)
        points, _ = drive(step, model.initial_point(), 1, tune=120 if surrogate == "values" else 1500)
        rows = []
        for _ in range(300):
            points, [row] = drive(step, points[-1], 1)
            rows.append(row)
            assert row["share"] == step.algorithm_state.share
        learned = np.array([row["move"].startswith(("surrogate", "hamiltonian")) for row in rows])
        assert [row["tree_size"] > 0 for row in rows] == learned.tolist()
        assert len({row["surrogate_error"] for row in rows if surrogate == "values"}) <= 1
        lowest = min(row["share"] for row in rows)
        if lowest < 1.0 and 0 < learned.sum() < len(rows):
            break
    assert lowest < 1.0
    assert 0 < learned.sum() < len(rows)
