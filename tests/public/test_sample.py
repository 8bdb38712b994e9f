"""``pk.sample``: what it returns, its budget and seeds, what it refuses, and that who evaluates does not matter."""

import multiprocessing
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, repeat
from threading import Barrier, Event

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from scipy.stats import norm
from threadpoolctl import threadpool_limits

import pymc_kameleon as pk
from pymc_kameleon.sampling import workers
from pymc_kameleon.steps.known_points import known_points
from tests.public.faults import Elsewhere, kill, quadratic
from tests.support.hierarchies import BlackBox

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
X = np.random.default_rng(0).standard_normal((30, 2))
Y = 1.0 + X @ [1.0, -0.5] + 0.7 * np.random.default_rng(1).standard_normal(30)


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"obs": range(30)}) as model:
        a = pm.Normal("a", 0.0, 5.0)
        b = pm.Normal("b", 0.0, 5.0, shape=2)
        s = pm.HalfNormal("s", 2.0)
        pm.Normal("y", a + (X * b).sum(axis=1), s, observed=Y, dims="obs")
    return model


@pytest.fixture(scope="module")
def step(model):
    return pk.KamiltonianStep(model=model)


def sample(model, step, **options):
    chosen = {"max_evaluations": 240, "chains": 8, "random_seed": 1, "progressbar": False} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.steps.pooled_trace.NDArray", _cached_trace(model))
        return pk.sample(model=model, step=step, **chosen)


_traces: dict = {}


def _cached_trace(model):
    """PyMC's, its compiled function kept between the tests."""
    from pymc.backends.ndarray import NDArray

    def trace(**options):
        if "fn" not in options:
            first = _traces.setdefault(id(model), NDArray(model=model))
            options |= {
                "vars": first.vars, "fn": first.fn, "var_shapes": first.var_shapes,
                "var_dtypes": first.var_dtypes,
            }  # fmt: skip
        return NDArray(**options)

    return trace


@pytest.fixture(scope="module")
def idata(model, step):
    return sample(model, step, discard_tuned_samples=False)


def test_it_returns_what_pm_sample_returns(model, idata):
    posterior, stats = idata["posterior"], idata["sample_stats"]
    assert {"a", "b", "s"} == set(posterior.data_vars)
    assert posterior.sizes["chain"] == 8
    assert posterior["b"].dims[:2] == ("chain", "draw")
    assert posterior.attrs["inference_library"] == "pymc"
    assert (posterior["s"] > 0).all()
    assert idata["observed_data"]["y"].dims == ("obs",)
    assert idata["warmup_posterior"].sizes["draw"] == posterior.attrs["tuning_steps"]
    for name in ("lp", "accept", "move", "diverging", "evaluations", "residual_sd"):
        assert stats[name].shape == (8, posterior.sizes["draw"])
    assert not stats["diverging"].any()
    with model:
        pm.compute_log_likelihood(idata, progressbar=False)
    assert "log_likelihood" in idata


def test_the_posterior_is_right(model, idata):
    design = np.column_stack([np.ones(30), X])
    least_squares = np.linalg.lstsq(design, Y, rcond=None)[0]
    draws = np.concatenate([idata["posterior"]["a"].values[..., None], idata["posterior"]["b"].values], axis=2)
    found, sds = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    ess = float(az.ess(idata["posterior"])["a"])
    # the prior's sd is 5: what it adds is far below these errors
    assert (np.abs(found - least_squares) < 4.5 * sds / np.sqrt(0.5 * ess)).all()


def test_every_evaluation_is_there(step, idata):
    made = idata["evaluations"]
    assert made.sizes["evaluation"] == idata["posterior"].attrs["evaluations"] <= 240
    point = {name: made[name].values[-1] for name in ("a", "b", "s_log__")}
    value = step.density(np.concatenate([np.ravel(v) for v in point.values()]))
    assert value == made["_log_density"].values[-1]
    # a retained value is that of the evaluation that it came from
    assert np.isin(idata["sample_stats"]["lp"].values, made["_log_density"].values).all()


def test_the_seed_decides(model, step, idata):
    other = sample(model, step, random_seed=2, max_evaluations=80)["posterior"]["a"].values
    assert other[0, 0] != idata["posterior"]["a"].values[0, 0]


def fork(n=2):
    return ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("fork"))


def test_who_evaluates_does_not_matter(model, step, idata):
    """In threads, with noise, it is a test of test_ways_to_run."""
    with fork() as executor:
        found = sample(model, step, executor=executor)
    assert found["posterior"]["a"].values.tobytes() == idata["posterior"]["a"].values.tobytes()


def test_it_stops_at_the_target(model, step):
    found = sample(model, step, max_evaluations=3000, target_ess=40)
    assert found["posterior"].attrs["stopped"] == "target"
    assert found["posterior"].sizes["draw"] % 10 == 0
    assert found["posterior"].attrs["evaluations"] < 2900


def test_a_number_of_draws_and_of_tuning_draws(model, step):
    found = sample(model, step, draws=6, tune=20, max_evaluations=None)
    assert found["posterior"].sizes["draw"] == 6
    attributes = found["posterior"].attrs
    assert 160 - 8 < attributes["evaluations_tuning"] <= 160


@pytest.mark.parametrize(
    ("start", "least"), [("prior", 1.0), ({"a": 40.0}, 30.0), ([{"a": 10.0 * k} for k in range(1, 9)], 5.0)]
)
def test_starts(model, step, start, least):
    found = sample(model, step, initvals=start, max_evaluations=40)
    climbs = found["evaluations"]
    first = climbs["a"].values[climbs["_round"].values == 1]
    assert len(first) == 4
    assert np.abs(first).max() > least


def test_contradictions_are_refused(model, step):
    """Beside those of tests.public.bad_input."""
    with pytest.raises(ValueError, match="at least 488 for 8 chains and tune=60, got 240"):
        sample(model, step, tune=60)
    with pytest.raises(ValueError, match="surrogate='values'"):
        pk.sample(model=model, step=pk.KamiltonianStep(model=model, surrogate="lite"))
    with pytest.raises(ValueError, match="b, s_log__ is not among"):
        pk.sample(model=model, step=pk.KamiltonianStep([model["a"]], model=model))


# --- black boxes that fail, hang and die ----------------------------------------------------------


class Box:
    """A log density in one dimension."""

    def noise_cells(self):
        return []

    def __call__(self, x):
        return quadratic(x)


class Once(Elsewhere, Box):
    """One that misbehaves at one call of all workers."""


class Fails(Box):
    def __call__(self, x):
        if x[0] > 2.5:
            raise ZeroDivisionError("no solution")
        return quadratic(x)


POINTS = [np.array([float(k)]) for k in range(5)]
VALUES = [-0.5 * k * k for k in range(5)]


def test_a_dead_worker_is_replaced_where_there_is_a_factory(tmp_path):
    assert workers.Elsewhere(Once(tmp_path, 1, kill), None, fork)(POINTS, 0) == VALUES
    (tmp_path / "done").unlink()
    with pytest.raises(BrokenExecutor) as raised:
        workers.Elsewhere(Once(tmp_path, 1, kill), None, fork())(POINTS, 0)
    assert "a callable" in raised.value.__notes__[0]


ENDED = Event()


class Hangs(Box):
    """Until it has ENDED: in threads, whose boxes are copies of one class."""

    def __call__(self, x):
        seconds = next(Hangs.seconds)
        if seconds is None:
            ENDED.wait()
        else:
            time.sleep(seconds)
        return super().__call__(x)


@contextmanager
def hanging(workers, *seconds):
    """An executor; how long each evaluation takes, None for ever, and the last for all that follow."""
    ENDED.clear()
    Hangs.seconds = chain(seconds, repeat(seconds[-1]))
    with ThreadPoolExecutor(workers) as executor:
        try:
            yield executor
        finally:
            ENDED.set()


def test_a_point_that_hangs_is_submitted_once_more():
    with hanging(2, None, 0.0) as executor:
        begin = time.monotonic()
        assert workers.Elsewhere(Hangs(), None, executor, timeout=0.1)(POINTS, 0) == VALUES
        assert time.monotonic() - begin >= 0.1


def test_what_comes_after_all_is_taken():
    """A first evaluation that compiles is given up by nobody who cannot stop it, and evaluated once more at most."""
    with hanging(3, 0.8, 0.8, 0.8, None) as executor:
        assert workers.Elsewhere(Hangs(), None, executor, timeout=0.5)(POINTS[:3], 0) == VALUES[:3]


def test_a_worker_has_that_long_for_each_of_its_points():
    with hanging(1, 0.15) as executor:
        assert workers.Elsewhere(Hangs(), None, executor, timeout=0.25)(POINTS[:4], 0) == VALUES[:4]


def test_twice_is_a_timeout_and_not_a_zero():
    with hanging(2, None) as executor:
        evaluate = workers.Elsewhere(Hangs(), None, executor, timeout=0.05)
        with pytest.raises(TimeoutError) as raised:
            evaluate(POINTS[:1], 0)
    assert "twice" in raised.value.__notes__[0]
    assert "[0.0]" in raised.value.__notes__[0]


def test_an_exception_comes_with_its_point():
    with fork() as executor:
        for evaluate in (workers.Here(Fails(), None), workers.Elsewhere(Fails(), None, executor)):
            with pytest.raises(workers.EvaluationError, match=r"at \[3.0\]") as raised:
                evaluate(POINTS, 0)
            assert isinstance(raised.value.error, ZeroDivisionError)


def test_the_log_density_travels_once(monkeypatch):
    """Workers that lose it ask again; nobody else gets it."""
    sent = []
    original = workers.evaluate

    def spied(digest, density, *rest):
        sent.append(density is not None)
        return original(digest, density, *rest)

    monkeypatch.setattr(workers, "evaluate", spied)
    with ThreadPoolExecutor(1) as executor:
        evaluate = workers.Elsewhere(Box(), None, executor)
        assert evaluate(POINTS, 0) == evaluate(POINTS, 5) == VALUES
        assert sent == [True, False]
        executor.submit(lambda: (workers._here.__dict__.clear(), workers._sent.clear())).result()
        assert evaluate(POINTS, 10) == VALUES
    assert sent == [True, False, False, True]


def test_workers_that_lack_the_log_density_are_asked_again_at_once(monkeypatch):
    """Four workers, three of whom have not got it: they are ready before the first has evaluated."""
    together, original = Barrier(4, timeout=20.0), workers.evaluate_with

    def waits(*arguments):
        together.wait()  # breaks unless four evaluate at the same time
        return original(*arguments)

    with ThreadPoolExecutor(4) as executor:
        evaluate = workers.Elsewhere(Box(), None, executor)
        assert evaluate(POINTS[:1], 0) == VALUES[:1]
        workers._sent.clear()  # the threads of a process have it from each other
        evaluate.sent = 100  # or it would send it to everyone
        monkeypatch.setattr(workers, "evaluate_with", waits)
        assert evaluate(POINTS[:4], 0) == VALUES[:4]


def broken(x):
    """A solver that has no solution everywhere."""
    if x[0] > 0.3:
        raise ZeroDivisionError("no solution")
    return -0.5 * x @ x


def test_draws_are_the_same_with_more_blas_threads():
    """Matrices of ten dimensions round differently on two: a fit that does is another surrogate."""
    x, drawn = np.random.default_rng(0).standard_normal((60, 10)), []
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=10)
        pm.Bernoulli("y", logit_p=x @ slopes, observed=(x[:, 0] > 0).astype(int))
        step = pk.KamiltonianStep()
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            drawn.append(sample(model, step, max_evaluations=204, tune=50, chains=4).posterior["slopes"].values)
    assert np.array_equal(*drawn)


def test_an_exception_of_the_models_names_the_variables():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("likelihood", BlackBox(broken)(x))
    with pytest.raises(ZeroDivisionError) as raised:
        pk.sample(model=model, chains=4, max_evaluations=100, progressbar=False, random_seed=0)
    assert "'x': [" in raised.value.__notes__[-1]


def test_a_start_without_density_is_refused():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("wall", pt.switch(x > -5.0, -np.inf, 0.0))
    with pytest.raises(SamplingError, match="wall = -inf"):
        pk.sample(model=model, chains=4, max_evaluations=100, progressbar=False)


# --- noise ----------------------------------------------------------------------------------------


def estimate(rng, mu):
    return -0.5 * ((mu - 1.0) / 0.5) ** 2 + 0.7 * rng.standard_normal() - 0.245


def test_every_evaluation_has_noise_of_its_own():
    """That it is the same in workers is a test of test_ways_to_run."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Potential("likelihood", pk.NoisyLogLikelihood(estimate)(mu))
    found = sample(model, pk.KamiltonianStep(model=model), max_evaluations=400)
    made = found["evaluations"]
    exact = norm.logpdf(made["mu"].values, 0.0, 2.0) - 2.0 * np.square(made["mu"].values - 1.0)
    noise = made["_log_density"].values - exact
    assert 0.6 < noise.std() < 0.8
    assert len(np.unique(noise.round(9))) == len(noise)
    precision = 4.0 + 0.25
    means = found["posterior"]["mu"].values.mean(axis=1)  # independent chains
    assert abs(means.mean() - 4.0 / precision) < 4.5 * means.std(ddof=1) / np.sqrt(len(means))


# --- checkpoint -----------------------------------------------------------------------------------


@contextmanager
def evaluated_here(most=10**9):
    """How many points each round evaluates in this process, which goes down after ``most`` of them."""
    rounds, original = [], workers.Here.__call__

    def counted(self, points, first):
        if len(rounds) >= most:
            raise OSError("the machine goes down")
        rounds.append(len(points))
        return original(self, points, first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers.Here, "__call__", counted)
        yield rounds


def test_a_run_with_a_checkpoint_goes_on(model, step, idata, tmp_path):
    with evaluated_here(20) as before, pytest.raises(OSError, match="goes down"):
        sample(model, step, checkpoint=tmp_path)
    with evaluated_here() as after:
        found = sample(model, step, checkpoint=tmp_path)
    assert found["posterior"]["a"].values.tobytes() == idata["posterior"]["a"].values.tobytes()
    assert sum(before) + sum(after) == found["posterior"].attrs["evaluations"] + 1  # one again
    with pytest.raises(ValueError, match="initvals was"):
        sample(model, step, checkpoint=tmp_path, initvals="prior")


# --- warm start -----------------------------------------------------------------------------------


def test_chains_begin_at_known_points(model, step, idata):
    warm = sample(model, step, evaluations=idata, max_evaluations=240, random_seed=3)
    made = warm["evaluations"]
    first = made["_move"].values == "start"
    assert first.sum() == 8  # at points of the earlier run, and nothing climbs
    assert not (made["_move"].values == "arrival").any()
    assert "other modes: none begins from known points." in pk.report(warm)
    assert np.isin(made["a"].values[first], idata["evaluations"]["a"].values).all()
    # those that are known are not evaluations of this run: it tunes as long as it takes to judge a surrogate
    assert 40 < warm["posterior"].attrs["evaluations_tuning"] <= 120


def as_table(model, idata, space):
    made = idata["evaluations"]
    logp = made["_log_density"].values
    b, s_log = made["b"].values, made["s_log__"].values
    if space == "array":
        return np.column_stack([made["a"].values, b, s_log]), logp
    if space == "unconstrained":
        return {"a": made["a"].values, "b": b, "s_log__": s_log}, logp
    # density of s instead of log s: one Jacobian less
    return {"a": made["a"].values, "b": b, "s": np.exp(s_log)}, logp - s_log


@pytest.mark.parametrize("space", ["array", "unconstrained", "model"])
def test_a_table_is_taken_in_any_space(model, step, idata, space):
    known = known_points(as_table(model, idata, space), model, step.density)
    stored = known_points(idata["evaluations"], model, step.density)
    np.testing.assert_allclose(known.positions, stored.positions, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(known.log_densities, stored.log_densities, rtol=1e-10)


def test_a_variable_without_elements_and_one_with_an_underscore():
    """They are there in what is returned, and what is returned can be given again."""
    with pm.Model() as model:
        x = pm.Normal("_x")
        pm.Normal("nothing", x, 1.0, shape=0)
        pm.Normal("y", x, 1.0, observed=0.3)
        step = pk.KamiltonianStep()
    found = sample(model, step, max_evaluations=60, chains=4, tune=10)
    assert found["posterior"]["nothing"].shape[2:] == found["evaluations"]["nothing"].shape[1:] == (0,)
    known = known_points(found, model, step.density)
    assert (known.positions[:, 0] == found["evaluations"]["_x"].values).all()
    assert (known.log_densities == found["evaluations"]["_log_density"].values).all()


def test_points_of_another_log_density_are_refused(model, step, idata):
    x, logp = as_table(model, idata, "array")
    with pytest.raises(ValueError, match="no constant; the worst is"):
        sample(model, step, evaluations=(x, 3.0 * logp))
    with pytest.raises(ValueError, match=r"variables \['z'\]; wanted are"):
        sample(model, step, evaluations=({"z": x}, logp))


@pytest.mark.parametrize("space", ["unconstrained", "model"])
def test_columns_of_different_lengths_and_of_none_are_refused(model, step, idata, space):
    columns, logp = as_table(model, idata, space)
    n = len(logp)
    with pytest.raises(ValueError, match=rf"one row for each of the {n} log densities; .*'a': {n - 1}, 'b': {n}"):
        known_points((columns | {"a": columns["a"][1:]}, logp), model, step.density)
    with pytest.raises(ValueError, match=r"one row for each of the 0 log densities; .*'a': 0, 'b': 0"):
        known_points(({name: column[:0] for name, column in columns.items()}, logp[:0]), model, step.density)


@pytest.mark.parametrize("values", [{"x": 1.5}, {"s": -1.0}, {"s": 0.0}])
def test_a_start_outside_of_the_support_is_refused(values):
    with pm.Model():
        x, s = pm.Uniform("x", 0, 1), pm.HalfNormal("s")
        pm.Normal("y", x, s, observed=[0.2, 0.4])
        with pytest.raises(ValueError, match=r"not inside of its support"):
            pk.sample(max_evaluations=200, initvals=values, progressbar=False)
