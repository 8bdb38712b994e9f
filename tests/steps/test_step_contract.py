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

from pymc_kameleon.kernels import Matern
from pymc_kameleon.numerics.history import History
from pymc_kameleon.steps import KameleonStep
from pymc_kameleon.steps.options import described
from tests import step_tester as tester
from tests.step_tester import (
    NO_BLAS,
    BlackBox,
    Counter,
    assert_same_draws,
    begin,
    compiled_step,
    drive,
    every_step,
    every_step_with_a_scale,
    make,
    sample,
)

TUNE = 200
FEW = {"draws": 20, "tune": 100}
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}  # where the linker is not the point
pytestmark = NO_BLAS


def tuned(case, model, seed=0):
    """A step that has just stopped tuning, and the point where it is."""
    step = compiled_step(case, model, seed)
    points, _ = drive(step, model.initial_point(), 0, TUNE)
    step.stop_tuning()
    return step, points[-1]


# --- tuning ----------------------------------------------------------------------------------


@every_step_with_a_scale
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
    found = drive(begin(bounded), model.initial_point(), 20, TUNE + 40)
    assert_same_draws(found, drive(begin(plain), model.initial_point(), 60, TUNE))
    assert not equal_dataclass_values(bounded.sampling_state, plain.sampling_state)  # the option
    points, _ = drive(begin(bounded), model.initial_point(), 0, TUNE + 40)
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


def assert_same_state(first, second):
    """Equal to the last bit. Of a ``History`` only the first ``size`` rows mean anything: a chain that begins again
    gets other memory, and what was in it before."""
    first, second = copy.deepcopy(first), copy.deepcopy(second)
    for state in (first, second):
        for past in histories(state.algorithm_state):
            past.buffer[past.size :] = 0.0
    assert equal_dataclass_values(first, second)


def histories(state):
    if isinstance(state, History):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from histories(part)


# --- the sampling state ----------------------------------------------------------------------

MOMENTS = {"before the first draw": 0, "early": 1, "while tuning": 120, "after tuning": TUNE}


def at_moment(case, model, draws, seed=0):
    step = compiled_step(case, model, seed)
    point = model.initial_point()
    if draws:
        points, _ = drive(step, point, 0, draws)
        point = points[-1]
    if draws == TUNE:
        step.stop_tuning()
    return step, point


@every_step
@pytest.mark.parametrize("draws", MOMENTS.values(), ids=MOMENTS)
def test_state_goes_on_here_and_in_another_step(case, draws):
    """30 draws, the state put back, the same 30 draws: points, statistics and final state, to the last bit."""
    model = tester.shapes()
    step, point = at_moment(case, model, draws)
    state = step.sampling_state
    assert equal_dataclass_values(state, state)  # a NaN would not be equal to itself
    first = drive(step, point, 30)
    final, evaluations = step.sampling_state, step.evaluations
    other = compiled_step(case, model, seed=7, twin=True)
    drive(other, model.initial_point(), 20)
    for again, given in ((step, state), (other, pickle.loads(pickle.dumps(state)))):
        again.sampling_state = given
        assert_same_draws(first, drive(again, point, 30))
        assert evaluations == again.evaluations
        assert_same_state(final, again.sampling_state)


@every_step
def test_state_remembers_the_other_variables(case):
    """The retained value was evaluated at k = 0; that k is 1 now must not be hidden by the step's memory of the draws
    that were undone."""
    model = tester.switch()
    x = model["x"]
    step = begin(make(case, model, [x]))
    start = {"k": np.array(0), "x": np.array(0.3)}
    start = {name: start[name] for name in model.initial_point()}
    point, _ = step.step(start)
    state = step.sampling_state
    point["k"] = np.array(1)  # another step moved it
    step.step(point)  # is followed ...
    step.sampling_state = state  # ... and undone
    after, _ = step.step(point)
    assert step.log_density == pytest.approx(float(model.compile_logp()(after)), rel=1e-12)


def other_shape():
    with pm.Model() as model:
        pm.Normal("x", shape=4)
    return model


REFUSED = {
    "shapes": (other_shape, {}, "shapes is {'x': \\(4,\\)}"),
    "options": (tester.gaussian, {"n_history": 41}, "options is {'n_history': 41}"),
    "kernel": (tester.gaussian, {"kernel": Matern(1.5)}, "options is {'kernel'"),
}


@pytest.mark.parametrize(("model", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_state_of_another_shape_or_other_options_is_refused(model, options, message):
    """And nothing of it is taken over: the step goes on as if it had not been given."""
    given = {"n_history": 40, "local_start": 60}
    step, _ = at_moment(tester.CASES["kameleon"], tester.gaussian(), 30)
    other = KameleonStep(model=model(), **QUICK, **{**given, **options})
    begin(other, 3).step(model().initial_point())
    before = step.sampling_state
    with pytest.raises(ValueError, match=message):
        step.sampling_state = other.sampling_state
    assert equal_dataclass_values(before, step.sampling_state)
    same = KameleonStep(model=tester.gaussian(), **QUICK, **given)
    same.sampling_state = before  # told apart are options, not instances
    assert same.evaluations == step.evaluations


def test_state_of_another_version_is_refused():
    step, _ = at_moment(tester.CASES["kameleon"], tester.gaussian(), 3)
    state = step.sampling_state
    assert state.state_version == step.state_version > 0
    state.state_version += 1
    with pytest.raises(ValueError, match="state_version"):
        step.sampling_state = state
    del state.state_version, state.options  # as pickled before there were any
    with pytest.raises(ValueError, match="state_version is 0"):
        step.sampling_state = state


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
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
def test_a_copy_is_independent(case, copied):
    model = tester.switch()
    step = begin(make(case, model, [model["x"]]))
    point = {**model.initial_point(), "k": np.array(1)}
    points, _ = drive(step, point, 0, 100)
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
    posterior = sample(make(case, model, order, **QUICK), model, chains=1, **FEW)["posterior"]
    assert posterior["weights"].shape == (1, 20, 3)
    np.testing.assert_allclose(posterior["weights"].values.sum(axis=-1), 1.0, rtol=1e-12)
    assert posterior["level"].shape == (1, 20, 2, 2)
    assert posterior["level"].values.min() < 0
    assert posterior["scale"].values.min() > 0


@every_step
def test_points_keep_order_shape_and_dtype_and_are_not_written_to_again(case):
    model = tester.shapes()
    step, start = compiled_step(case, model), model.initial_point()
    point, seen = start, []
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


@every_step
def test_drivers_memory_may_be_overwritten(case):
    """PyMC's workers hand out views of shared memory and write the next point into them."""
    model = tester.shapes()
    tune, draws = 100, 30
    expected = drive(compiled_step(case, model), model.initial_point(), draws, tune)
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
    return Counter(tmp_path / "evaluations")


def counted_model(counter):
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", shape=2)
        pm.Potential("black_box", BlackBox(counted_density, counter.path)(a, b))
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
        assert counter.take() == evaluations(case, idata, chains * (tune + 40 + 1))


def evaluations(case, idata, at_most):
    """One a draw and one a chain, or what the statistic says where a draw may need none."""
    if not case.skips:
        return at_most
    counted = int(idata["sample_stats"]["evaluations"].values[:, -1].sum())
    assert 0.7 * at_most < counted <= at_most
    return counted


@every_step
def test_evaluated_again_only_when_another_step_moved_a_variable(case, counter):
    model = counted_model(counter)
    step = begin(make(case, model, [model["b"]]))
    point = model.initial_point()
    counter.take()
    rng = np.random.default_rng(1)
    moves = 0
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
            point = {**point, "a": rng.standard_normal(())[()] * np.ones(())}
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
    step, point = begin(make(case, model)), model.initial_point()
    for _ in range(8):
        point, _ = step.step(point)
    assert step.life.state.stage is not None
    counter.take()
    elsewhere = {**point, "b": point["b"] + 0.5}
    point, [stat] = step.step(elsewhere)
    assert stat["move"] != "arrival"
    assert step.life.state.stage is None
    assert counter.take() == 2
    assert stat["model_logp"] == pytest.approx(logp(point), rel=1e-12)


# --- the same seed, the same draws -----------------------------------------------------------


def trace_of(idata):
    groups = idata["posterior"], idata["sample_stats"]
    found = {name: group[name].values for group in groups for name in group.data_vars}
    return {name: value for name, value in found.items() if name not in TIMES}  # NUTS reports them


TIMES = ("perf_counter_diff", "perf_counter_start", "process_time_diff")


def assert_same_trace(first, second):
    first, second = trace_of(first), trace_of(second)
    assert set(first) == set(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@every_step
def test_same_draws_sequentially_and_forked(case):
    model = tester.shapes()
    step = compiled_step(case, model)
    one = sample(step, model, **FEW)
    assert_same_trace(one, sample(step, model, **FEW))  # and again: nothing is left over
    assert_same_trace(one, sample(step, model, **FEW, cores=2, mp_ctx="fork"))
    draws = one["posterior"]["matrix"].values
    assert not np.array_equal(draws[0], draws[1])  # the chains differ
    other = sample(step, model, **FEW, random_seed=3)["posterior"]["matrix"].values
    assert not np.array_equal(draws, other)


@pytest.mark.slow
@every_step
def test_same_draws_in_spawned_processes(case):
    model = tester.shapes()
    step = compiled_step(case, model)
    assert_same_trace(sample(step, model), sample(step, model, cores=2, mp_ctx="spawn"))


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
    assert one["sample_stats"]["scaling"].shape == (2, 20, 2)
    # the last step's value belongs to the point that is recorded
    value = model.compile_logp()
    posterior = one["posterior"]
    for draw in (0, 7, 19):
        point = {name: posterior[name].values[1, draw] for name in ("a", "b")}
        lp = one["sample_stats"][f"{case.step.name}_lp"].values[1, draw]
        assert lp.all()  # PyMC empties its own name in all but the last
        assert lp[-1] == pytest.approx(float(value(point)), rel=1e-12)
