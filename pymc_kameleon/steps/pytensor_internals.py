"""What this package uses of PyMC's, PyTensor's and Python's insides: all here, so that a new version breaks one file.

Each function says what it relies on and checks that it is there; where it is not, the slow public way is taken, or
nothing is found and nothing said. ``tests/steps/test_pytensor_internals.py`` has a test for each, of the fast way and
of the other.
"""

import copy
import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as compile_pymc
from pymc.pytensorf import find_rng_nodes
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pytensor.compile import Function
from pytensor.compile.mode import Mode, get_default_mode, get_mode, optdb
from pytensor.graph import replace
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.utils import raise_with_op
from pytensor.tensor import subtensor
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

try:
    from pytensor.tensor.random.utils import custom_rng_deepcopy as copy_generator
except ImportError:  # slower
    copy_generator = copy.deepcopy

# Ops that take a part of a tensor; before PyTensor 3 there is one more
PARTS = (
    subtensor.Subtensor, subtensor.AdvancedSubtensor,
    *(type(op) for op in (getattr(subtensor, "advanced_subtensor1", None),) if op),
)  # fmt: skip

__all__ = [
    "PARTS", "STEP_METHODS", "Cell", "NotScalar", "RNGConsumerOp", "callable_from_numba", "cells", "compile_strictly",
    "compiling_step", "copy_generator", "draws_random_numbers", "find_rng_nodes", "has_default_mode", "is_cholesky_rv",
    "model_with", "number", "operations", "other_steps", "raw_callable", "referred_to", "register_rewrite",
    "register_vectorized", "runs_in_python", "says_object_mode", "wrapped_function",
]  # fmt: skip


def is_cholesky_rv(rv: Variable) -> bool:
    """Whether ``rv`` is a packed Cholesky factor, of ``pm.LKJCholeskyCov``, whose Op has no public name."""
    return type(rv.owner.op).__name__ == "_LKJCholeskyCovRV"


# --- compiled functions ----------------------------------------------------------------------


def compile_strictly(inputs, outputs, **kwargs):
    """``pymc.pytensorf.compile``, but that Numba rounds as the graph is written: to the same bits in every process.

    PyTensor's Numba linker asks for ``fastmath``. A function and what it calls are then optimised anew wherever one is
    inlined in the other, with other roundings, and which of the versions runs depends on what a process compiled and
    what it loaded from the cache.
    """
    mode = get_mode(kwargs.pop("mode", None))
    if type(mode.linker) is NumbaLinker and hasattr(pytensor.config, "numba__fastmath"):
        mode = Mode(StrictNumbaLinker(), mode.provided_optimizer)
    return compile_pymc(inputs, outputs, mode=mode, **kwargs)


class StrictNumbaLinker(NumbaLinker):
    """Without ``fastmath``; pickled with a function's mode, so that a worker compiles the same."""

    def fgraph_convert(self, *args, **kwargs):
        with pytensor.config.change_flags(numba__fastmath=False):
            return super().fgraph_convert(*args, **kwargs)

    def jit_compile(self, *args, **kwargs):
        with pytensor.config.change_flags(numba__fastmath=False):
            return super().jit_compile(*args, **kwargs)


def raw_callable(function) -> Callable[[np.ndarray], float]:
    """The cheapest way from a float64 vector to a float that the linker offers.

    The Numba linker's jitted function (``function.vm.jit_fn``), called directly, costs a third of the PyTensor
    Function around it; the C virtual machine, called between its containers, half. Shared values are read from their
    live containers, so ``set_value`` and ``pm.set_data`` are followed. Other linkers, several outputs (generators to
    write back among them), a profile, or an unknown inside: the Function.
    """
    function.trust_input = True
    outputs = getattr(getattr(getattr(function, "maker", None), "fgraph", None), "outputs", ())
    found = _jitted(function, 1)
    if len(outputs) != 1 or getattr(function, "profile", None):
        return lambda x: number(function(x))
    if found is None:
        return _by_virtual_machine(function) or (lambda x: number(function(x)))
    jitted, stored = found
    if not stored:
        return lambda x: float(jitted(x)[0])
    return lambda x: float(jitted(x, *[cell[0] for cell in stored])[0])


def _by_virtual_machine(function) -> Callable[[np.ndarray], float] | None:
    """``function`` of one vector, with one output, by PyTensor's C virtual machine; None where that is not what it has.

    Relies on its two containers, and on what names the Op that raised.
    """
    machine = getattr(function, "vm", None)
    needed = [getattr(machine, name, None) for name in ("position_of_error", "nodes", "thunks", "storage_map")]
    held: list[Any] = [getattr(function, name, ()) for name in ("input_storage", "output_storage")]
    if any(part is None for part in needed) or not held[0] or len(held[1]) != 1:
        return None
    given, returned = held[0][0].storage, held[1][0].storage

    def call(x):
        given[0] = x
        try:
            machine()
        except Exception:
            at = machine.position_of_error
            node, thunk = machine.nodes[at], machine.thunks[at]
            raise_with_op(function.maker.fgraph, node, thunk, storage_map=machine.storage_map)
        given[0] = None  # nobody's memory is kept, or pickled
        return number(returned[0])

    return call


def _jitted(function, n_inputs: int) -> tuple[Any, list] | None:
    """The Numba linker's jitted function, which returns a tuple, and the cells of what it takes beside its inputs."""
    jitted, containers = getattr(getattr(function, "vm", None), "jit_fn", None), _containers(function)
    if not callable(jitted) or containers is None:
        return None
    return jitted, [container.storage for _, container in containers[n_inputs:]]


class FirstClass(numba.types.WrapperAddressProtocol):
    """A function of one tuple that compiled code can be given; ``compiled`` may be of any number of arguments instead.

    What it raises does not reach the caller: ``sys.unraisablehook`` has it, and all arrays returned are empty.
    """

    def __init__(self, compiled, kinds):
        self._address = numba.types.CompileResultWAP(compiled).address
        # of a plain tuple, which is stored as any number of arguments are; ``_numba_type_`` is found ten times as fast
        self._signature = numba.core.typing.signature(compiled.signature.return_type, kinds)
        self._numba_type_ = numba.types.FunctionType(self._signature)
        self._keep = compiled  # what lies at the address

    def __wrapper_address__(self):
        return self._address

    def signature(self):
        """For Numba."""
        return self._signature


def callable_from_numba(function, given: Sequence[np.ndarray]) -> tuple[FirstClass, Callable[[], tuple]] | None:
    """A PyTensor Function for compiled code, and what gives its further arguments.

    It takes arrays like ``given``, and after them what the second function returns, the shared values as they are now,
    in one tuple; it returns a tuple of arrays. None where the Function is not Numba's.

    Relies on ``vm.jit_fn`` and on Numba's ``overloads`` and ``CompileResultWAP``.
    """
    found = _jitted(function, len(given))
    if found is None:
        return None
    jitted, stored = found

    def more():
        values = [cell[0] for cell in stored]
        return tuple(v if v.flags.c_contiguous and v.flags.writeable else v.copy(order="C") for v in values)

    def of_tuple(arguments):
        return jitted(*arguments)

    try:
        kinds = [numba.typeof(a) for a in (*given, *more())]
        of, alike = numba.types.Tuple(kinds), numba.types.StarArgTuple(kinds)
        takes_any_number = not jitted.py_func.__code__.co_argcount
        function, of_it = (jitted, alike) if takes_any_number else (numba.njit(of_tuple), of)
        function.compile((of_it,))
        return FirstClass(function.overloads[(of_it,)], of), more
    except (AttributeError, KeyError, TypeError, numba.core.errors.NumbaError):
        return None


def number(value) -> float:
    """The float that a Function returned as an array of shape ()."""
    try:
        return float(value)
    except TypeError:
        raise NotScalar(value) from None


class NotScalar(TypeError):
    """A log density that is no number: an Op returned an array of another shape than it had declared."""

    def __init__(self, value):
        super().__init__(f"the log density has shape {np.shape(value)} instead of ()")


class Cell:
    """The value of one shared input of a compiled function, to be read and set.

    In the function's own container (``function.input_storage``), which survives fork and pickling by place and costs
    nothing; through the shared variable where that container does not hold the variable's value.
    """

    def __init__(self, function, variable):
        self.variable, self._function = variable, function
        self._place = None
        for i, (given, container) in enumerate(_containers(function) or ()):
            if given is variable and container.storage[0] is variable.get_value(borrow=True):
                self._place = i

    @property
    def value(self):
        """What the function will use."""
        if self._place is None:
            return self.variable.get_value(borrow=True)
        return self._function.input_storage[self._place].storage[0]

    @value.setter
    def value(self, value):
        if self._place is None:
            self.variable.set_value(value, borrow=True)
        else:
            self._function.input_storage[self._place].storage[0] = value


def cells(function, wanted: Callable[[Any], bool] = lambda variable: True) -> list[Cell]:
    """The shared inputs of ``function`` that are wanted, in the function's order."""
    return [Cell(function, variable) for variable in function.get_shared() if wanted(variable)]


def _containers(function) -> list | None:
    """Each input's variable and container; None if they are not where they are looked for."""
    try:
        pairs = zip(function.maker.inputs, function.input_storage, strict=True)
        found = [(given.variable, container) for given, container in pairs]
        for _, container in found:
            container.storage[0]
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return found


def is_plain(variable) -> bool:
    """Whether it is a tensor without named dimensions (of ``pymc.dims``), which the graphs made here are of."""
    return isinstance(variable.type, TensorType)


def says_object_mode(warning) -> bool:
    """Whether a warning caught while compiling says that Numba will call Python for a black-box Op.

    Known by its text. Unrecognised, the Op stays in Numba's object mode: slower, and PyTensor says so.
    """
    return "object mode" in str(warning.message)


def wrapped_function(op) -> Callable | None:
    """The Python function that ``wrap_py`` made ``op`` of; None of other Ops, and where it is not looked for."""
    return getattr(op, "_FromFunctionOp__fn", None)


def runs_in_python() -> bool:
    """Whether the default linker is the virtual machine of PyTensor 2, Python without a C++ compiler."""
    return type(get_default_mode().linker).__name__ == "VMLinker"


def has_default_mode() -> bool:
    """Whether PyTensor chooses mode and linker, rather than the user's configuration."""
    return pytensor.config.mode == "Mode" and pytensor.config.linker == "auto"


def register_rewrite(name: str, rewriter, *tags: str, position: float) -> None:
    """Have every compilation in the modes ``tags`` apply ``rewriter`` once to each node."""
    optdb.register(name, dfs_rewriter(rewriter, ignore_newtrees=True), *tags, position=position)


# --- steps and models ------------------------------------------------------------------------


def register_vectorized(op: type, vectorize: Callable) -> None:
    """``vectorize(op, node, *arguments)`` makes the node of many points for ``pytensor.graph.replace.vectorize_graph``.

    Relies on ``_vectorize_node``, the dispatcher that Ops outside PyTensor have to register with; without it PyTensor
    calls the Op point by point.
    """
    dispatch = getattr(replace, "_vectorize_node", None)
    if dispatch is not None:
        dispatch.register(op)(vectorize)


def compiling_step() -> BlockedStep | None:
    """The step, of whatever package, that asks for what is being compiled now; None if it is not a step that asks.

    Found among the callers. A step that has its functions compiled by somebody else is not found.
    """
    return next((caller for caller in _callers() if isinstance(caller, BlockedStep)), None)


def other_steps(step: BlockedStep) -> list[BlockedStep]:
    """The steps that PyMC's driver calls in turn with ``step``, which is being called now."""
    methods = (m for caller in _callers() if isinstance(caller, CompoundStep) for m in caller.methods)
    return [m for m in methods if isinstance(m, BlockedStep) and m is not step]


def _callers() -> Iterator[Any]:
    """The objects whose methods are running, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_argcount and frame.f_code.co_varnames[0] == "self":
            yield frame.f_locals.get("self")
        frame = frame.f_back


def draws_random_numbers(step: BlockedStep) -> bool:
    """Whether a compiled function that ``step`` holds draws from a generator: its log density is noisy."""
    return any(
        isinstance(variable.type, RandomType) for function in _functions(step) for variable in function.get_shared()
    )


def operations(step: BlockedStep) -> list[Any]:
    """The Ops in the compiled functions that ``step`` holds."""
    graphs = [getattr(getattr(f, "maker", None), "fgraph", None) for f in _functions(step)]
    return [node.op for graph in graphs for node in getattr(graph, "apply_nodes", ())]


def _functions(value, depth=3) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    elif depth and not isinstance(value, (type, ModuleType)):
        parts = value if isinstance(value, (list, tuple)) else list(getattr(value, "__dict__", {}).values())
        for part in parts:
            yield from _functions(part, depth - 1)


def mend(model: Model) -> None:
    """Undo what ``sample_posterior_predictive`` without ``var_names`` does in PyMC 5.28: the data are in it twice."""
    while model is not None:
        listed = model.observed_RVs
        once = list(dict.fromkeys(listed))
        if len(once) < len(listed):
            list.clear(listed)
            list.extend(listed, once)
        model = getattr(model, "parent", None)


def model_with(model: Model, terms: dict[str, Variable], values: dict[Variable, Variable]) -> Model:
    """A view of ``model`` with another log density, for who compiles that. The model is untouched.

    ``terms`` stand in the places of its factors of these names; in those of all others ``values`` stand in the places
    of its value variables.
    """
    view = object.__new__(_ModelWith)
    view.__dict__.update(vars(model))
    # of a view, too, whose own stay
    view._terms = getattr(model, "_terms", {}) | terms
    view._values = getattr(model, "_values", {}) | values
    return view


class _ModelWith(Model):
    """Has everything of the model, the same objects, and a ``logp`` of its own."""

    _terms: dict[str, Variable]
    _values: dict[Variable, Variable]

    def logp(self, vars=None, jacobian=True, sum=True):
        """As of :class:`pymc.Model`."""
        vars = [*self.free_RVs, *self.observed_RVs, *self.potentials] if vars is None else vars
        vars = vars if isinstance(vars, (list, tuple)) else [vars]
        found = {v: self._terms.get(self.values_to_rvs.get(v, v).name) for v in vars}
        rest = [v for v, term in found.items() if term is None]
        theirs = super().logp(rest, jacobian, sum=False) if rest else []
        found |= zip(rest, replace.clone_replace(theirs, self._values, rebuild_strict=False), strict=True)
        terms = [found[v] for v in vars]
        return pt.sum([pt.sum(term) for term in terms]) if sum else terms


# --- Python functions ------------------------------------------------------------------------


def referred_to(function: FunctionType) -> list[tuple[Any, bool]]:
    """What the code of a Python function loads from outside, and whether it calls that without an argument.

    Attributes of modules are followed, by the names of opcodes. Where these are others than they were, by
    :func:`inspect.getclosurevars`, which does not see attributes or calls.
    """
    enclosing = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            enclosing[name] = cell.cell_contents
    if _loads(_known.__code__, globals(), {}) == [(np.random.default_rng, True)]:
        return _loads(function.__code__, function.__globals__, enclosing)
    outside = inspect.getclosurevars(function)
    return [(v, False) for v in [*outside.nonlocals.values(), *outside.globals.values()]]


def _known():
    return np.random.default_rng()


def _loads(code: CodeType, globals_: dict, enclosing: dict) -> list[tuple[Any, bool]]:
    missing = object()
    current: Any = missing
    found: list[tuple[Any, bool]] = []
    for instruction in dis.get_instructions(code):
        operation, argument = instruction.opname, instruction.argval
        if operation in ("PRECALL", "PUSH_NULL"):
            continue
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(current, ModuleType):
            current = getattr(current, argument, missing)
            continue
        if current is not missing:
            found.append((current, operation == "CALL" and argument == 0))
        current = missing
        if operation == "LOAD_GLOBAL":
            current = globals_.get(argument, missing)
        elif operation == "LOAD_DEREF":
            current = enclosing.get(argument, missing)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _loads(inner, globals_, enclosing)
    return found
