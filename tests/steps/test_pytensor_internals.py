"""Each thing that the package uses of PyMC's, PyTensor's and Python's insides: it is there, and how it goes without."""

import dis
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import compile as compile_pymc
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pytensor.compile.ops import wrap_py
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.raise_op import Assert
from pytensor.tensor.random.type import RandomType

import pymc_kameleon
from pymc_kameleon.steps import AdaptiveMetropolisStep
from pymc_kameleon.steps import pytensor_internals as internals
from pymc_kameleon.steps.log_density import compile_log_density
from pymc_kameleon.steps.noise.hidden_generators import hidden_generators
from tests import step_tester as tester
from tests.step_tester import NO_BLAS, assert_same_draws, begin
from tests.support.hierarchies import BlackBox

pytestmark = [
    NO_BLAS,
    pytest.mark.filterwarnings("ignore:RandomVariable Ops will stop hiding:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Calling a RandomVariable without:DeprecationWarning"),
]
every_mode = pytest.mark.parametrize("mode", ["CVM", "NUMBA"])


def noisy_function(mode):
    """s . x + noise, and its shared inputs."""
    x, s = pt.dvector("x"), pytensor.shared(np.array(2.0), name="s")
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    return compile_pymc([x], (x * s).sum() + pt.random.normal(rng=rng), mode=mode), s, rng


# --- vm.jit_fn -------------------------------------------------------------------------------


LOST = {
    "vm": lambda f: delattr(f, "vm"),
    "jit_fn": lambda f: setattr(f.vm, "jit_fn", None),
    "input_storage": lambda f: setattr(f, "input_storage", ()),
    "outputs": lambda f: setattr(f.maker, "fgraph", SimpleNamespace()),
}


def test_jitted_function_is_found_and_without_it_the_function_is_called():
    x, s = pt.dvector("x"), pytensor.shared(np.array(2.0), name="s")
    function, calls = compile_pymc([x], (x * s).sum(), mode="NUMBA"), []

    class Function(SimpleNamespace):
        def __call__(self, x):
            calls.append(1)
            return function(x)

    for strip in (None, *LOST.values()):
        twin = Function(
            vm=SimpleNamespace(jit_fn=function.vm.jit_fn),
            maker=SimpleNamespace(fgraph=function.maker.fgraph, inputs=function.maker.inputs),
            input_storage=function.input_storage,
        )
        if strip is not None:
            strip(twin)
        calls.clear()
        call = internals.raw_callable(twin)
        for value in (2.0, 3.0):
            s.set_value(np.array(value))
            assert call(np.ones(3)) == 3.0 * value
        assert len(calls) == (0 if strip is None else 2)


def raises_when_negative(x):
    if x[0] < 0.0:
        raise ZeroDivisionError("below 0")
    return np.asarray(x.sum())


@pytest.mark.parametrize("lost", ["nothing", "output_storage", "input_storage", "vm", "profile"])
def test_the_virtual_machine_is_called_between_its_containers(monkeypatch, lost):
    """And without one of them the Function is, which names the Op that raised in the same words."""
    x, s = pt.dvector("x"), pytensor.shared(np.array(2.0), name="s")
    box = wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])(raises_when_negative)
    function, calls = compile_pymc([x], box(x) * s, mode="CVM"), []
    function.trust_input = True

    class Twin(SimpleNamespace):
        def __call__(self, x):
            calls.append(1)
            return function(x)

    parts = {name: getattr(function, name) for name in ("vm", "maker", "input_storage", "output_storage")}
    parts |= {"profile": function} if lost == "profile" else {}
    call = internals.raw_callable(
        Twin(**{name: part for name, part in parts.items() if name != lost or lost == "profile"})
    )
    for value in (2.0, 3.0):
        s.set_value(np.array(value))
        assert call(np.ones(3)) == 3.0 * value
    assert len(calls) == (0 if lost == "nothing" else 2)
    with pytest.raises(ZeroDivisionError) as said:
        call(-np.ones(3))
    with pytest.raises(ZeroDivisionError) as expected:
        function(-np.ones(3))
    whole, word = (f"{e.value} {getattr(e.value, '__notes__', '')}" for e in (said, expected))
    assert whole == word
    assert "exception_verbosity" in word  # PyTensor's own words
    assert call(np.ones(3)) == 9.0  # it goes on
    if lost == "nothing":
        assert function.input_storage[0].storage == [None]


def test_a_function_without_a_number():
    with pytest.raises(internals.NotScalar, match=r"shape \(1,\) instead of \(\)"):
        internals.raw_callable(compile_pymc([x := pt.dvector()], x, mode="CVM"))(np.ones(1))


# --- calling a Function from compiled code -----------------------------------------------------


@numba.njit
def called(function, arguments):
    return function(arguments)


def two_outputs(mode, operation=lambda x: x):
    x, s = pt.dvector("x"), pytensor.shared(np.array([2.0, 3.0]), name="s")
    return compile_pymc([x], [(operation(x) * s).sum(), 2.0 * operation(x)], mode=mode), s


@pytest.fixture(scope="module")
def by_numba():
    return two_outputs("NUMBA")


@pytest.mark.parametrize("of_any_number", [True, False])
def test_compiled_code_calls_it_with_what_is_shared_now(monkeypatch, by_numba, of_any_number):
    function, s = by_numba
    if not of_any_number:  # as PyTensor does what it cannot keep in its cache
        monkeypatch.setattr(function.vm, "jit_fn", numba.njit(lambda x, s: (np.array((x * s).sum()), 2.0 * x)))
    pointer, more = internals.callable_from_numba(function, [np.zeros(2)])
    x = np.array([1.0, 10.0])
    for values in ([2.0, 3.0], [4.0, 5.0]):
        s.set_value(np.array(values))
        total, twice = called(pointer, (x, *more()))
        assert total[()] == np.dot(values, x)
        np.testing.assert_array_equal(twice, 2.0 * x)
    s.set_value(np.arange(4.0)[::2], borrow=True)  # not contiguous
    assert called(pointer, (x, *more()))[0][()] == 20.0


def test_what_it_raises_leaves_all_it_returns_empty(monkeypatch):
    function, _ = two_outputs("NUMBA", lambda x: Assert("below 0")(x, x[0] > 0.0))
    pointer, more = internals.callable_from_numba(function, [np.zeros(2)])
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda given: seen.append(given.exc_type))
    assert called(pointer, (np.ones(2), *more()))[1].size == 2
    assert not seen
    assert called(pointer, (-np.ones(2), *more()))[1].size == 0
    assert seen == [AssertionError]


@pytest.mark.parametrize("lost", ["linker", "vm", "overloads", "type"])
def test_without_it_compiled_code_cannot(monkeypatch, by_numba, lost):
    function, s = two_outputs("CVM") if lost == "linker" else by_numba
    value = s.container.storage[0]
    if lost == "vm":
        function = SimpleNamespace(input_storage=function.input_storage, maker=function.maker)
    elif lost == "overloads":
        monkeypatch.setattr(function.vm, "jit_fn", function.vm.jit_fn.py_func)
    elif lost == "type":
        s.container.storage[0] = object()
    found = internals.callable_from_numba(function, [np.zeros(2)])
    s.container.storage[0] = value
    assert found is None


def test_whether_the_linker_is_pytensors_choice():
    for mode, linker, default in (("Mode", "auto", True), ("FAST_COMPILE", "auto", False), ("Mode", "py", False)):
        with pytensor.config.change_flags(mode=mode, linker=linker):
            assert internals.has_default_mode() == default


# --- fastmath --------------------------------------------------------------------------------


def test_numba_adds_in_the_order_of_the_graph_in_a_worker_too():
    """Other roundings would be this process's own. The control's flag: whether its bits differ is the processor's."""
    x = pt.dvector("x")
    data = np.random.default_rng(0).normal(size=1001)
    strict = internals.compile_strictly([x], (x * data).sum(), mode="NUMBA")
    loose = compile_pymc([x], (x * data).sum(), mode="NUMBA")
    worker = cloudpickle.loads(cloudpickle.dumps(strict))
    point = np.random.default_rng(1).normal(size=data.size)
    in_order = 0.0
    for term in point * data:
        in_order += term
    assert [float(f(point)) for f in (strict, worker)] == [in_order] * 2
    flags = [bool(f.vm.jit_fn.targetoptions["fastmath"]) for f in (strict, worker, loose)]
    assert flags == [False, False, True]
    assert pytensor.config.numba__fastmath


def test_without_the_flag_it_is_pymcs_compile(monkeypatch):
    monkeypatch.delattr(type(pytensor.config), "numba__fastmath")
    x = pt.dvector("x")
    function = internals.compile_strictly([x], x.sum(), mode="FAST_COMPILE")
    assert function([1.0, 2.0]) == 3.0


# --- maker.inputs, input_storage -------------------------------------------------------------


def set_and_call(function, value, noise, number):
    value.value = np.array(number)
    noise.value = np.random.default_rng(3)
    return float(function(np.ones(2)))


@every_mode
def test_cells_are_the_functions_own_or_else_the_shared_variables(mode, monkeypatch):
    function, s, rng = noisy_function(mode)
    found = []
    for own in (True, False):
        if not own:
            monkeypatch.setattr(internals, "_containers", lambda function: None)
        [value] = internals.cells(function, lambda v: not isinstance(v.type, RandomType))
        [noise] = internals.cells(function, lambda v: isinstance(v.type, RandomType))
        assert (value.variable, noise.variable) == (s, rng)
        assert [cell._place is not None for cell in (value, noise)] == [own] * 2
        found.append(set_and_call(function, value, noise, 5.0))
        twin = cloudpickle.loads(cloudpickle.dumps((function, value, noise)))
        assert set_and_call(*twin, 5.0) == found[0]
        assert set_and_call(*twin, 6.0) == pytest.approx(found[0] + 2.0)
        assert value.value == 5.0
        assert function(np.ones(2)) != found[0]  # the stream has advanced
    assert s.get_value() == 5.0
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["plain", "noisy"])
def test_a_step_without_any_of_it_makes_the_same_draws(kind, monkeypatch):
    def draws():
        with pm.Model() as model:
            x, k = pm.Normal("x"), pm.Poisson("k", 2.0)
            data = pm.Data("data", np.array([0.3, 1.2]))
            pm.Normal("y", x + k, 1.0, observed=data)
            if kind == "noisy":
                pm.Potential("noise", pt.random.normal(-0.5, 1.0) + 0.0 * x)
        step, point = begin(AdaptiveMetropolisStep([x], model=model)), model.initial_point()
        points, stats = [], []
        for i in range(60):
            point, [stat] = step.step({**point, "k": np.array(1 + i // 20)})
            points.append(point), stats.append(stat)
        return points, stats, step.noise, step.others

    fast = draws()
    monkeypatch.setattr(internals, "_containers", lambda function: None)
    slow = draws()
    assert_same_draws(fast, slow)
    assert fast[2:] == slow[2:]


# --- Numba's object mode, the default linker -------------------------------------------------


def test_numba_says_that_it_calls_python():
    x = pt.dscalar()
    for output, said in ((BlackBox(np.square)(x), True), (x**2, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compile_pymc([x], output, mode="NUMBA")
        assert any(internals.says_object_mode(w) for w in caught) == said


@pytest.mark.filterwarnings("ignore:.*object mode.*:UserWarning")
def test_unrecognised_it_costs_speed_only(monkeypatch):
    monkeypatch.setattr(internals, "says_object_mode", lambda warning: False)
    x = pt.dscalar()
    with pytensor.config.change_flags(mode="NUMBA"):
        assert compile_log_density([x], [BlackBox(np.square)(x)], None)(3.0) == 9.0


# --- random generators -----------------------------------------------------------------------


def test_generators_are_found_and_copied():
    rng = pytensor.shared(np.random.default_rng(1))
    noise = pt.random.normal(rng=rng)
    assert internals.find_rng_nodes([noise + 1.0]) == [rng]
    assert internals.find_rng_nodes([pt.dscalar() + 1.0]) == []
    original = np.random.default_rng(4)
    copied = internals.copy_generator(original)
    assert copied.random() == np.random.default_rng(4).random()
    assert original.random() == np.random.default_rng(4).random()


# --- rewrites, and who compiles --------------------------------------------------------------


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "FAST_COMPILE", "FAST_RUN"])
def test_rewrites_see_every_compilation(mode):
    seen = []

    class Watched(BlackBox):
        pass

    @node_rewriter([Watched])
    def watch(fgraph, node):
        seen.append(internals.compiling_step())
        return False

    name = f"test_watch_{mode}"
    internals.register_rewrite(name, watch, "fast_run", "fast_compile", position=50.9)
    try:
        with pm.Model() as model:
            pm.Potential("p", Watched(np.square)(pm.Normal("x")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.compile_logp(mode=mode)
            assert set(seen) == {None}
            steps = (pm.Metropolis, pm.Slice, pm.DEMetropolisZ, AdaptiveMetropolisStep)
            for step in steps if mode == "FAST_COMPILE" else steps[::3]:
                del seen[:]
                built = step(model=model, compile_kwargs={"mode": mode})
                assert set(seen) == {built}
    finally:
        pytensor.compile.mode.optdb.remove_tags(name, "fast_run", "fast_compile")


def test_step_methods_is_the_list_that_pm_sample_reads(monkeypatch):
    assert internals.STEP_METHODS[0] is pm.NUTS
    monkeypatch.setattr(internals.STEP_METHODS[0], "competence", staticmethod(lambda var, has_grad: 0))
    _, assigned = assign_step_methods(tester.pair())
    assert pm.NUTS not in assigned
    monkeypatch.undo()
    _, assigned = assign_step_methods(tester.pair())
    assert set(assigned) == {pm.NUTS}


# --- the driver's other steps ----------------------------------------------------------------


class Asking(BlockedStep):
    name = "asking"

    def __init__(self, vars=None, model=None, blocked=True, **kwargs):
        self.vars = vars

    def step(self, point):
        self.found = internals.other_steps(self)
        return point, [{}]


def test_other_steps_of_the_driver():
    model = tester.pair()
    a, b = model.value_vars
    one, two = Asking([a], model=model), Asking([b], model=model)
    third = pm.Metropolis([b], model=model)
    CompoundStep([one, CompoundStep([two]), third]).step(model.initial_point())
    assert one.found == [third]  # of a compound inside a compound, those that stand beside it
    CompoundStep([one, two]).step({})
    assert (one.found, two.found) == ([two], [one])
    one.step({})
    assert one.found == []


@pytest.mark.parametrize("kind", [pm.Metropolis, pm.Slice, pm.DEMetropolisZ, pm.NUTS])
def test_steps_that_draw_random_numbers(kind):
    for noisy in (False, True):
        with pm.Model() as model:
            x = pm.Normal("x")
            if noisy:
                pm.Potential("noise", pt.random.normal(0.0, 1.0))
        assert internals.draws_random_numbers(kind([x], model=model)) == noisy


# --- models less a factor --------------------------------------------------------------------


def full_model():
    with pm.Model(coords={"i": range(2)}) as model:
        x, scale = pm.Normal("x", dims="i"), pm.Gamma("scale", 2.0, 1.0)
        pm.Normal("y", 0.3, scale, observed=np.array([0.1, 2.0]))
        pm.Potential("penalty", -(scale**2))
        pm.Potential("out", 100.0 * x[0])
    return model


def at_point(model):
    """Its log density, of which ``out`` is 200."""
    return float(model.compile_logp(mode="FAST_COMPILE")({"x": np.array([2.0, 0.0]), "scale_log__": np.array(0.3)}))


def without_out(model):
    return internals.model_with(model, {"out": pt.constant(0.0)}, {})


def test_model_without_a_factor():
    model = full_model()
    before, attributes = model.logp, dict(vars(model))
    view = without_out(model)
    assert vars(model) == attributes
    assert model.logp == before
    assert view.value_vars == model.value_vars
    whole = at_point(model)
    assert at_point(view) == pytest.approx(whole - 200.0, rel=1e-12)
    terms = view.logp(sum=False)
    assert len(terms) == 5
    assert float(terms[4].eval()) == 0.0
    term = view.logp(model["penalty"])
    assert float(term.eval({view.value_vars[1]: 0.3})) == pytest.approx(-np.exp(0.6))
    assert view.dlogp(model["scale"]) is not None
    twin = cloudpickle.loads(cloudpickle.dumps((model, view)))[1]
    assert at_point(twin) == pytest.approx(whole - 200.0, rel=1e-12)
    with view:
        assert pm.modelcontext(None) is view
    moved = internals.model_with(view, {}, {model.value_vars[1]: model.value_vars[1] - 1.0})
    assert float(moved.logp(model["penalty"]).eval({view.value_vars[1]: 1.3})) == pytest.approx(-np.exp(0.6))
    assert float(moved.logp(model["out"]).eval()) == 0.0


@pytest.mark.skipif(not hasattr(pm.model, "FrozenModel") and pm.__version__ < "6", reason="PyMC 6")
def test_frozen_model_without_a_factor():
    """Its ``logp`` and compiled functions are cached: neither must the view read them, nor write them."""
    from pymc.model.transform.optimization import freeze_model

    model = freeze_model(full_model())
    first = at_point(model)
    assert at_point(without_out(model)) == pytest.approx(first - 200.0, rel=1e-12)
    assert at_point(model) == first


# --- opcodes ---------------------------------------------------------------------------------


def uses(x):
    return np.random.default_rng().normal(x) + tester.MEAN.sum() + sys.maxsize


@pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")
def test_operations_of_a_step():
    with pm.Model():
        x = pm.Normal("x")
        box = BlackBox(lambda x: -(float(x) ** 2))
        pm.Potential("y", box(x))
        assert box in internals.operations(pm.Metropolis())
    assert internals.operations(SimpleNamespace(function=SimpleNamespace(maker=None))) == []


def test_the_function_behind_wrap_py():
    def doubled(x):
        return 2.0 * x

    assert internals.wrapped_function(wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])(doubled)) is doubled
    assert internals.wrapped_function(pt.exp) is None
    assert internals.wrapped_function(SimpleNamespace(fn=doubled)) is None  # elsewhere


def test_what_functions_refer_to():
    found = internals.referred_to(uses)
    assert (np.random.default_rng, True) in found
    assert any(value is tester.MEAN for value, _ in found)
    assert not any(value is np for value, _ in found)  # but what is taken from it
    inner = 5.0
    assert (inner, False) in internals.referred_to(lambda x: [x + inner for _ in range(3)])


def test_with_unknown_opcodes(monkeypatch):
    """Less is seen: generators that a function holds, not those that it finds in a module."""
    plain = dis.get_instructions

    def renamed(code):
        for i in plain(code):
            yield SimpleNamespace(opname=f"NEW_{i.opname}", argval=i.argval)

    generator = np.random.default_rng(1)
    monkeypatch.setattr(internals.dis, "get_instructions", renamed)
    assert (generator, False) in internals.referred_to(lambda x: generator.normal(x))
    x = pt.dscalar()
    assert hidden_generators([BlackBox(lambda x: generator.normal(x))(x)])
    assert not hidden_generators([BlackBox(tester.minus_half_square)(x)])
    assert not hidden_generators([BlackBox(uses)(x)])


# --- nothing of it elsewhere -----------------------------------------------------------------

PRIVATE = (
    "jit_fn", "input_storage", "maker.", ".storage", "opname", "LOAD_", "optdb", "_getframe", "f_locals", "f_back",
    "custom_rng_deepcopy", "pytensor.tensor.random.op", "STEP_METHODS: ", "VMLinker",
    'in str(w.message)',
)  # fmt: skip


def test_it_stands_in_one_module():
    package = Path(pymc_kameleon.__file__).parent
    elsewhere = {
        (path.name, name)
        for path in package.rglob("*.py")
        for name in PRIVATE
        if path.name != "pytensor_internals.py" and name in path.read_text()
    }
    assert not elsewhere
    text = (package / "steps" / "pytensor_internals.py").read_text()
    assert sum(name in text for name in PRIVATE) > 10  # the names are those that are used
