"""The log density as a function of one vector: the right value, at the linker's best speed, followed everywhere."""

import copy
import os
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps import log_density
from pymc_kameleon.steps.log_density import LogDensity, compile_log_density
from tests import step_tester as tester
from tests.step_tester import NO_BLAS, Counter, minus_half_square, run
from tests.support.hierarchies import BlackBox

pytestmark = NO_BLAS

LINKERS = {"cvm": {"mode": "CVM"}, "numba": {"mode": "NUMBA"}}  # the default is one of them
every_linker = pytest.mark.parametrize("compile_kwargs", LINKERS.values(), ids=LINKERS)
QUICK = {"mode": "FAST_COMPILE"}  # where the linker is not the point


def density(model, names=None, compile_kwargs=QUICK):
    vars = model.continuous_value_vars if names is None else [model[name] for name in names]
    vars = [model.rvs_to_values.get(v, v) for v in vars]
    return LogDensity(model, vars, model.initial_point(), compile_kwargs)


def linker_of(function):
    return type(function.maker.linker).__name__


def random_points(model, size, seed=1):
    rng = np.random.default_rng(seed)
    start = model.initial_point()
    return [{k: rng.standard_normal(v.shape) for k, v in start.items()} for _ in range(size)]


@cache
def _compiled_logp(model):
    return model.compile_logp(mode="FAST_COMPILE")


def pymcs_own(model, point):
    return float(_compiled_logp(model)(point))


# --- value -----------------------------------------------------------------------------------


@cache
def beside_a_scale(linker):
    """A model, and its density as one of x."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, pm.HalfNormal("scale", 1.0), shape=2)
        pm.Normal("y", x.sum(), 1.0, observed=pm.Data("data", np.array([0.3, -0.2])))
    return model, density(model, ["x"], LINKERS[linker])


@pytest.mark.parametrize("linker", LINKERS)
def test_is_the_models_log_density_and_follows_new_data(linker):
    model, ours = beside_a_scale(linker)
    assert ours.dim == 2
    [*points, last] = random_points(model, 20)
    for point in (*points, last):
        ours.follow(point)
        assert ours(ours.ravel(point)) == pytest.approx(pymcs_own(model, point), rel=1e-10)
    known, values = model["data"].get_value(), set()
    for new in (np.zeros(3), np.ones(3), np.full(5, 2.0), known):  # the length may change too
        pm.set_data({"data": new}, model=model)
        values.add(ours(ours.ravel(last)))
        assert ours(ours.ravel(last)) == pytest.approx(pymcs_own(model, last), rel=1e-10)
    assert len(values) == 4


@every_linker
def test_non_finite_values_pass_as_they_come(compile_kwargs):
    # Fast-math flags must not assume them away.
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("edge", pt.switch(x > 2, np.nan, pt.switch(x > 1, np.inf, pt.switch(x < -1, -np.inf, x))))
    ours = density(model, compile_kwargs=compile_kwargs)
    values = [ours(np.array([x])) for x in (0.5, 3.0, 1.5, -2.0)]
    np.testing.assert_array_equal(values, [0.5, np.nan, np.inf, -np.inf])
    assert all(type(v) is float for v in values)


# --- points ----------------------------------------------------------------------------------


def test_ravel_and_update_are_inverse():
    model = tester.shapes()
    ours = density(model, ["unit", "scale"])  # another order than the model's
    [point, other] = random_points(model, 2)
    x = ours.ravel(other)
    assert x.shape == (2 + 1,)
    assert x.dtype == np.float64
    new = ours.update(point, x)
    assert list(new) == list(point)
    np.testing.assert_array_equal(ours.ravel(new), x)
    for name in point:
        expected = point if name == "matrix" else other
        np.testing.assert_array_equal(new[name], expected[name])
        assert isinstance(new[name], np.ndarray)
        assert new[name].shape == point[name].shape
    there = ours.ravel(new).copy()
    assert ours.is_at(ours.ravel(new), there)
    there[-1] = np.nextafter(there[-1], np.inf)
    assert not ours.is_at(ours.ravel(new), there)
    x[:] = np.nan  # nothing in the point is a view of x
    assert all(np.isfinite(v).all() for v in new.values())


# --- the other variables ---------------------------------------------------------------------


@pytest.mark.parametrize("linker", LINKERS)
def test_follows_other_variables(linker):
    model, ours = beside_a_scale(linker)
    assert ours.has_others
    x, values = np.array([0.7, 0.2]), set()
    ours.follow({"scale_log__": np.array(0.0), "x": x})
    for scale, moved in ((0.0, False), (1.0, True), (1.0, False), (0.0, True)):
        point = {"scale_log__": np.array(scale), "x": x}
        assert ours.follow(point) == moved
        assert ours(x) == pytest.approx(pymcs_own(model, point), rel=1e-10)
        values.add(ours(x))
        assert ours.others == {"scale_log__": scale}
    assert len(values) == 2


def test_data_with_the_name_of_a_shared_replacement():
    """PyMC calls the stand-in for the variable k ``k_shared``; a user may have chosen that name too."""
    with pm.Model() as model:
        k = pm.Normal("k")
        data = pm.Data("k_shared", 5.0)
        x = pm.Normal("x", k)
        pm.Normal("y", x, 1.0, observed=data)
    ours = density(model, ["x"])
    point = {"k": np.array(-1.0), "x": np.array(0.3)}
    ours.follow(point)
    assert ours(np.array([0.3])) == pytest.approx(pymcs_own(model, point), rel=1e-10)
    assert model["k_shared"].get_value() == 5.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0])
def test_what_did_not_move_is_not_followed(value):
    """NaN differs from itself: a step beside one evaluated twice at every draw."""
    ours = density(tester.pair(), ["a"])
    point = {"a": np.zeros(()), "b": np.array([1.0, value])}
    assert ours.follow(point)
    assert not ours.follow({name: v.copy() for name, v in point.items()})
    assert ours.follow({**point, "b": np.array([2.0, value])})


# --- linkers ---------------------------------------------------------------------------------


def test_numba_is_called_without_the_function_around_it(monkeypatch):
    _, ours = beside_a_scale("numba")
    x = np.array([0.7, 0.2])
    value = ours(x)

    def refuse(*args, **kwargs):
        raise AssertionError("the PyTensor Function was called")

    monkeypatch.setattr(type(ours._function), "__call__", refuse)
    assert ours(x) == value
    monkeypatch.setattr(ours._function.vm, "jit_fn", None)
    slow = copy.copy(ours)
    slow._evaluate = None
    with pytest.raises(AssertionError, match="Function was called"):  # the watch works
        slow(x)


def test_black_box_runs_on_cvm_without_a_word(recwarn, tmp_path):
    counter = Counter(tmp_path / "calls")
    with pm.Model() as model:
        pm.Potential("black_box", BlackBox(minus_half_square, path=counter.path)(pm.Normal("x", shape=2)))
    ours = density(model, compile_kwargs=None)
    assert linker_of(ours._function) == "VMLinker"
    assert [w for w in recwarn if "object mode" in str(w.message)] == []
    assert counter.take() == 0  # compiling evaluates nothing
    x = np.array([0.3, -0.4])
    expected = -np.log(2 * np.pi) - 2 * 0.5 * (x @ x)
    assert ours(x) == pytest.approx(expected, rel=1e-12)
    assert counter.take() == 1


def test_other_warnings_of_the_compiler_are_passed_on(monkeypatch):
    def grumble(*args, mode=None, **kwargs):
        if mode is None:
            warnings.warn("something else", UserWarning, stacklevel=1)
            warnings.warn("Numba will use object mode to run it", UserWarning, stacklevel=1)
        return mode

    monkeypatch.setattr(log_density.pytensor_internals, "compile_strictly", grumble)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert compile_log_density([], [1], None) == "CVM"
    assert [str(w.message) for w in caught] == ["something else"]


NO_COMPILER = """
import warnings
import numpy as np, pymc as pm, pytensor
assert pytensor.config.cxx == ""
from pymc_kameleon.steps import AdaptiveMetropolisStep, KameleonStep
from tests.step_tester import minus_half_square
from tests.support.hierarchies import BlackBox
with pm.Model() as model:
    x = pm.Normal("x", shape=2)
for step in (KameleonStep, AdaptiveMetropolisStep):
    function = step(model=model).density._function
    print("linker", type(function.maker.linker).__name__)
with pm.Model() as model:
    x = pm.Normal("x", shape=2)
    pm.Potential("black_box", BlackBox(minus_half_square)(x))
with warnings.catch_warnings():
    warnings.simplefilter("error")
    step = AdaptiveMetropolisStep(model=model)
value = step.density(np.ones(2))
print("black box", value)
"""


@pytest.mark.slow
def test_no_c_compiler():
    """PyTensor 2 would run the graph in Python without a word; PyTensor 3 takes Numba by itself."""
    flags = {"PYTENSOR_FLAGS": "cxx=", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", NO_COMPILER]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **flags})
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[:2] == ["linker StrictNumbaLinker"] * 2
    assert float(lines[2].split()[-1]) == pytest.approx(-np.log(2 * np.pi) - 2.0, rel=1e-12)
    said = run.stderr.count("PyTensor found no C++ compiler")
    assert said == (1 if pytensor.__version__.startswith("2.") else 0)


# --- float32 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compile_kwargs", [QUICK, pytest.param(LINKERS["numba"], marks=pytest.mark.slow)])
def test_single_precision(compile_kwargs):
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            pm.Normal("x", shape=2)
            pm.HalfNormal("y")
        step = tester.begin(tester.make(tester.CASES["adaptive_metropolis"], model, compile_kwargs=compile_kwargs))
        points, stats = tester.drive(step, model.initial_point(), 60, 300)
        assert {v.dtype for p in points for v in p.values()} == {np.dtype("float32")}
        assert sum(s["accepted"] for s in stats) > 20
        assert step.evaluations == 360 + 1  # a point rounded to float32 is not a point that was moved
        expected = float(model.compile_logp()(points[-1]))
        assert stats[-1]["model_logp"] == pytest.approx(expected, rel=1e-5)


# --- noise -----------------------------------------------------------------------------------


def noisy_model():
    """a has a noisy factor, b only deterministic ones."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a)
        pm.Potential("noisy", -0.5 * (a - pm.Normal.dist(0.0, 1.0)) ** 2)
    return model


def seed(ours, number):
    for i, cell in enumerate(ours.noise_cells()):
        cell.value = np.random.default_rng([number, i])


def test_noise_comes_from_streams_of_its_own_and_is_the_same_on_every_linker():
    model, x, found = noisy_model(), np.ones(2), []
    densities = [density(model, compile_kwargs=kwargs) for kwargs in LINKERS.values()]
    for one, two in (densities, densities[::-1]):
        assert one.noisy
        assert not one.split
        assert len(one.noise_cells()) == 1
        seed(one, 3)
        found.append([one(x) for _ in range(4)])
        seed(one, 3)
        again = []
        for _ in range(4):
            again.append(one(x))
            two(x)  # another density of the same model draws in between
        assert len(set(again)) == 4
        assert again == found[-1]
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_noisy_and_deterministic_parts():
    model = noisy_model()
    ours = density(model, ["a"])
    assert ours.split
    x = np.array([0.3])
    ours.follow({"a": np.array(0.3), "b": np.array(1.0)})
    expected = -np.log(2 * np.pi) - 0.5 * (0.3**2 + 0.7**2)
    parts = [ours.parts(x) for _ in range(3)]
    for total, noisy in parts:
        assert total - noisy == pytest.approx(expected, rel=1e-12)
    assert len({noisy for _, noisy in parts}) == 3
    before = ours.noise_cells()[0].value.bit_generator.state
    assert ours.deterministic_part(x) == pytest.approx(expected, rel=1e-12)
    assert ours.noise_cells()[0].value.bit_generator.state == before
    ours.follow({"a": np.array(0.3), "b": np.array(0.3)})
    expected = -np.log(2 * np.pi) - 0.5 * 0.3**2
    assert ours.deterministic_part(x) == pytest.approx(expected, rel=1e-12)


def test_variables_with_dims_are_summed_as_pymc_sums_them():
    dims = pytest.importorskip("pymc.dims")
    with pm.Model(coords={"group": range(3)}) as model:
        mu = dims.Normal("mu")
        dims.Normal("theta", mu, 1.0, dims=("group",))
    assert density(model)(np.arange(4.0)) == pymcs_own(model, {"mu": 0.0, "theta": np.array([1.0, 2.0, 3.0])})


@pytest.mark.parametrize("kind", [pk.KameleonStep, pk.FastKameleonStep, pk.KamiltonianStep])
def test_a_hierarchy_beside_variables_with_dims(kind):
    dims = pytest.importorskip("pymc.dims")
    with pm.Model(coords={"group": range(3)}) as model:
        dims.Normal("beside", 0.0, 1.0, dims=("group",))
        pm.Normal("theta", pm.Normal("mu"), pm.HalfNormal("scale"), dims="group")
        step = kind(compile_kwargs={"mode": "FAST_COMPILE"})
    points, [*_, last] = run(step, 5, tune=20)
    assert last["model_logp"] == pytest.approx(pymcs_own(model, points[-1]), rel=1e-12)


@pytest.mark.parametrize("by", [2.0, -1.0])
def test_a_box_that_alters_its_argument_is_told_wherever_it_begins(by):
    """Twice 0 is 0, which is where most chains begin; and -0.0 is 0.0, but other bytes."""

    def box(x):
        x *= by
        return minus_half_square(x)

    with pm.Model() as model:
        pm.Potential("box", BlackBox(box)(pm.Normal("x", shape=2)))
    evaluate = density(model)
    if by > 0.0:
        evaluate(np.zeros(2))
    point = np.full(2, 0.3) if by > 0.0 else np.zeros(2)
    for _ in range(2):  # and again, where it was caught
        with pytest.raises(ValueError, match="alters what it is given: coordinate 0"):
            evaluate(point)
    assert point.tolist() == [0.3 * (by > 0.0)] * 2
