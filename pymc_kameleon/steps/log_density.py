"""A PyMC model's log density as a function of one vector: compiled once, evaluated as fast as the linker allows."""

import hashlib
import logging
import math
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from operator import is_
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pymc.pytensorf import join_nonshared_inputs, make_shared_replacements
from pymc.util import get_state_from_generator, random_generator_from_state
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.type import RandomType

from pymc_kameleon.steps import pytensor_internals
from pymc_kameleon.steps.noise import noisy_factors
from pymc_kameleon.steps.noise.hidden_generators import hidden_generators
from pymc_kameleon.steps.pytensor_internals import Cell

_log = logging.getLogger("pymc.kameleon")
NOWHERE = (None, None, 0.0)
OTHER_DATA = (
    "the model's data changed between two draws of a chain, and its likelihood is an estimate: what was estimated of "
    "other data cannot be kept. Let what changes be a variable of the model, sampled by this step, too."
)


def _held(cells: str, read: Callable, write: Callable, kind: type) -> Any:
    """The values of the cells in an attribute, to be read and set."""

    def put(density, values):
        for cell, value in zip(getattr(density, cells), values, strict=True):
            cell.value = write(value)

    return property(lambda density: kind(read(cell.value) for cell in getattr(density, cells)), put)


class ModelError(ValueError):
    """The model has to be mended: to return NaN, as where a model fails, is no help."""


def unaltered(evaluate: Callable, x: np.ndarray) -> Any:
    """What ``evaluate`` returns at ``x`` (d,). A black box that writes into its arguments writes into the point.

    Of an unknown with a transform it gets an array that the model has made of it, which nobody compares.

    Raises
    ------
    ModelError
        If ``x`` is another one now; it is put back.
    """
    given = x.copy()
    result = evaluate(x)
    if x.tobytes() == given.tobytes():
        return result
    i = int(np.flatnonzero(x.view(np.int64) != given.view(np.int64))[0])  # -0.0 is 0.0
    was, became = float(given[i]), float(x[i])
    x[:] = given
    raise ModelError(
        f"a black box of the model alters what it is given: coordinate {i} of the point was {was} before the log "
        f"density was evaluated, and {became} after. The rest of the model sees that, and so do the chains. Let the "
        "black box begin with a copy of its arguments: p = p.copy()."
    )


def _all_of(value) -> bytes:
    """All that a shared input's value is."""
    array = np.asarray(value)  # an object is a sparse matrix
    kind = f"{array.dtype} {array.shape} ".encode()
    return kind + (pickle.dumps(value) if array.dtype.hasobject else array.tobytes())


def _digest(values: Sequence[Any]) -> str:
    return hashlib.blake2b(b"".join(map(_all_of, values)), digest_size=16).hexdigest()


def _is_same(value, other) -> bool:
    return value is other or _all_of(value) == _all_of(other)


class LogDensity:
    """log p of the model as a function of the raveled values of ``vars``, the other variables held at shared values.

    ``vars`` are value variables, the vector's in this order; ``initial_point`` gives shapes and dtypes;
    ``own_auxiliary`` makes the standard normals of the model's estimators inputs (``auxiliary``) instead of drawing
    them anew. ``compile_kwargs`` are passed to ``pymc.pytensorf.compile`` as they are. Without a ``mode``, PyTensor's
    default is used, except that black-box Ops are run by the C virtual machine (Numba's object mode costs more), and
    that Numba is chosen where PyTensor would silently fall back to Python for want of a C++ compiler.

    A subclass may have other coordinates u than the model's, which the point that PyMC sees has.
    """

    dim: int
    noisy = False  # the log density is an estimate
    suspects: list[str]  # black-box Ops that seem to draw random numbers that PyTensor cannot see
    # Noisy and deterministic factors are kept apart: another step may move variables that only the latter depend on.
    split = False
    given_work: tuple[int, ...] = ()  # what ``work`` was when the model was built
    scales: tuple = ()  # what of it is known, see surrogates/values/known_scales
    circles = np.zeros(0, dtype=np.int64)  # (k,): the coordinates that are angles; see samplers/arrival/circles
    reparametrized = False  # its coordinates are not the model's, and are yet to be chosen
    entered = False  # they are not the model's, and only ``enter`` says what they are
    movable: np.ndarray | bool = False  # (d,): the coordinates that are not the model's ...
    _placed: Callable[[np.ndarray], tuple[np.ndarray, float]]  # ... and, there, what they are: (x, log|dx/du|) at u
    _last: tuple = NOWHERE
    # (n_o,): what black boxes returned at the last evaluation, where they are learned one by one
    outputs: np.ndarray | None = None
    _others: Mapping[str, list[Cell]] = {}
    _auxiliary: Sequence[Cell] = ()
    _work: Sequence[Cell] = ()
    _noise: Sequence[Cell] = ()
    _data: Sequence[Cell] = ()  # what the user may set: pm.set_data
    _seen: Sequence[Any] = ()  # their values at the last draw, or a digest
    _evaluate: Any = None
    _is_tried = False  # whether it has been evaluated, and its argument has not been altered
    _explain: Any = None

    def __init__(self, model, vars, initial_point, compile_kwargs=None, own_auxiliary=False):
        self.compile_kwargs = compile_kwargs
        self._lay_out(vars, initial_point)
        shared = make_shared_replacements(initial_point, vars, model)
        factors = noisy_factors.factors_of(model)
        parts = noisy_factors.find_noise(model, factors, step_owns=vars)
        self.noisy, self.split = parts is not None, bool(parts and shared)
        # as model.logp() sums them, which would make them once more: a tenth of what building a step takes
        first, *others = [term for _, term, _ in factors]
        outputs = parts if self.split else [pt.add(first, *others) if others else first]
        outputs, joined = join_nonshared_inputs(initial_point, outputs, vars, shared)
        self.suspects = hidden_generators(outputs)
        outputs, auxiliary = noisy_factors.take_auxiliary(outputs) if own_auxiliary else (outputs, [])
        # Never the model's own streams: every function compiled from the model shares those.
        streams = pytensor_internals.find_rng_nodes(outputs)
        own_streams = {r: pytensor.shared(np.random.default_rng(), name="noise") for r in streams}
        own_work = {n: pytensor.shared(n.get_value(), name="work") for n in noisy_factors.work_inputs(outputs)}
        if own_streams or own_work:
            outputs = clone_replace(outputs, {**own_streams, **own_work})
        self._dtype = joined.dtype
        self._function = compile_log_density([joined], outputs, compile_kwargs)
        self._deterministic = compile_log_density([joined], outputs[:1], compile_kwargs) if self.split else None
        own = pytensor_internals.cells(self._function)
        self._cells = own if self._deterministic is None else own + pytensor_internals.cells(self._deterministic)
        self._others = {v.name: self._cells_of(value) for v, value in shared.items()}
        self._auxiliary, self._work = (
            [self._cells_of(value)[0] for value in values] for values in (auxiliary, own_work.values())
        )
        self._noise = [cell for cell in own if isinstance(cell.variable.type, RandomType)]
        self._given = [cell for cell in own if cell not in self._noise and cell not in self._work]
        held = [*self._auxiliary, *(cell for cells in self._others.values() for cell in cells)]
        self._data = [cell for cell in self._given if cell not in held]
        self.given_work = self.work

    def _cells_of(self, shared):
        """Where a shared variable's value is held: once in each function that takes it."""
        return [cell for cell in self._cells if cell.variable is shared]

    def _lay_out(self, vars, initial_point):
        """Where each variable is in the vector."""
        blank = {v.name: np.asarray(initial_point[v.name]) for v in vars}
        ends = np.cumsum([0, *(value.size for value in blank.values())]).tolist()
        self._layout = [
            (name, *place, value.shape, value.dtype)
            for (name, value), place in zip(blank.items(), pairwise(ends), strict=True)
        ]
        self.dim = ends[-1]
        self._single = len(self._layout) == 1
        self._rounds = any(dtype != np.float64 for *_, dtype in self._layout)

    # -- evaluating ---------------------------------------------------------------------------

    def __call__(self, x: np.ndarray) -> float:
        """The log density at ``x``, a C-contiguous float64 array of shape (d,); NaN and infinities as they come."""
        if not self._is_tried:
            return self._at_first(x)
        # PyTensor's floatX; the algorithms stay in float64
        return self._evaluate(x if self._dtype == "float64" else x.astype(self._dtype))

    def _at_first(self, x):
        if self._evaluate is None:
            self._evaluate = pytensor_internals.raw_callable(self._function)
        value = unaltered(lambda x: self._evaluate(x.astype(self._dtype, copy=False)), x)
        self._is_tried = bool(x.all())  # p *= 2.0 alters no zero
        return value

    def parts(self, x: np.ndarray) -> tuple[float, float]:
        """(log density at ``x``, its noisy part where the two are kept apart, else 0)."""
        if not self.split:
            return self(x), 0.0
        deterministic, noisy = map(pytensor_internals.number, self._function(x.astype(self._dtype, copy=False)))
        return deterministic + noisy, noisy

    def deterministic_part(self, x: np.ndarray) -> float:
        """The deterministic factors at ``x``; draws nothing; needs ``split``."""
        return pytensor_internals.number(self._deterministic(x.astype(self._dtype, copy=False)))

    def diverges(self, energy_error: float) -> bool:
        """Whether a tested trajectory is what NUTS calls diverging: an infinite error is in ``nonfinite``.

        Never under noise: an overestimate is no fault of the integrator's, and no ``target_accept`` would mend it.
        """
        return not self.noisy and 1000.0 < energy_error < math.inf  # PyMC's Emax

    # -- points -------------------------------------------------------------------------------

    def ravel(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """The vector of ``point``, shape (d,). May share its memory."""
        if self._single:
            return np.ascontiguousarray(point[self._layout[0][0]], dtype=np.float64).reshape(-1)
        return np.concatenate([np.asarray(point[name]).ravel() for name, *_ in self._layout], dtype=np.float64)

    def name_at(self, i: int) -> str:
        """The variable that coordinate ``i`` is of."""
        return next(name for name, first, last, *_ in self._layout if first <= i < last)

    def enter(self, x: np.ndarray) -> np.ndarray:
        """A copy of ``x``, raveled from a point, in the coordinates of this log density: the model's own, here."""
        return x.copy()

    def _at(self, u) -> tuple[np.ndarray, float]:
        """(the model's own coordinates x, log|dx/du|) at ``u``, remembered: a draw asks more than once."""
        if self._last[0] is None or self._last[0].tobytes() != u.tobytes():
            with np.errstate(all="ignore"):
                self._last = (u.copy(), *self._placed(u))
        return self._last[1:]

    def leave(self, x: np.ndarray) -> np.ndarray:
        """The model's own coordinates at ``x``, shape (d,)."""
        return x if self.movable is False else self._at(x)[0]

    def model_log_density(self, x: np.ndarray, value: float) -> float:
        """The model's log density at ``x``, where this one is ``value``."""
        return value if self.movable is False else value - self._at(x)[1]

    def spread(self, prior: Any) -> np.ndarray:
        """The scale of ``prior`` (:class:`.prior_scale.Prior`) in these coordinates: 1 where they are non-centred."""
        return np.where(self.movable, 1.0, prior.scale)

    def source(self, model: Any) -> Any:
        """The model whose log density this is, where ``model`` is the user's."""
        return model

    def update(self, point: dict[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
        """A copy of ``point``, keys in the same order, with the variables of this vector set from ``x``."""
        new, x = point.copy(), self.leave(x)
        for name, first, last, shape, dtype in self._layout:
            value = x[first:last].reshape(shape)
            new[name] = value.copy() if value.dtype == dtype else value.astype(dtype)
        return new

    def is_at(self, x: np.ndarray, position: np.ndarray) -> bool:
        """Whether ``x``, raveled from a point, is ``position`` as ``update`` writes it into one."""
        # a float32 variable holds less than ``position``
        position = self.ravel(self.update({}, position)) if self._rounds else self.leave(position)
        return x.tobytes() == position.tobytes()

    def follow(self, point: dict[str, np.ndarray]) -> bool:
        """Take over the other variables' values; whether any of them moved."""
        moved = False
        for name, cell in ((name, cell) for name, cells in self._others.items() for cell in cells):
            value = np.asarray(point[name], dtype=cell.value.dtype)
            if value.tobytes() != cell.value.tobytes():  # NaN is what it was, too
                cell.value = value.copy()
                moved = True
        return moved

    def changed(self, point: dict[str, np.ndarray], begins: bool) -> bool:
        """Whether the log density is another than at the last draw of the chain: other steps have moved their
        variables, which are taken over, or somebody has set the model's data (a callback, a step that imputes).

        Raises
        ------
        pymc.exceptions.SamplingError
            If the data of a noisy log density are other than at the chain's last draw: what was estimated of those
            data cannot be kept.
        """
        if not (self._others or self._data):  # at every draw
            return begins
        now = [cell.value for cell in self._data]
        # exactness hangs on it: both ends of an acceptance ratio are of one log density
        is_same = begins or not self._seen or self._are_seen(now)
        if self.noisy and not is_same:
            raise SamplingError(OTHER_DATA)
        self._seen = now
        return self.follow(point) or begins or not is_same

    def _are_seen(self, now: Sequence[Any]) -> bool:
        if isinstance(self._seen, str):  # in a state
            return _digest(now) == self._seen
        return all(map(is_, now, self._seen)) or all(map(_is_same, now, self._seen))

    @property
    def data(self) -> str:
        """A digest of the model's data at the last draw, empty before; can be given to the chain's next log density."""
        return self._seen if isinstance(self._seen, str) else _digest(self._seen) if self._seen else ""

    @data.setter
    def data(self, digest: str) -> None:
        self._seen = digest

    @property
    def others(self) -> dict[str, np.ndarray]:
        """The other variables' values as the log density has them now; can be given to ``follow``."""
        return {name: cells[0].value for name, cells in self._others.items() if cells}

    @others.setter
    def others(self, values):
        self.follow(values)

    def digest(self, x: np.ndarray) -> bytes:
        """16 bytes for all that the log density depends on beside noise: ``x``, other variables, the model's data."""
        digest = hashlib.blake2b(x.tobytes(), digest_size=16)
        for cell in self._given:
            digest.update(_all_of(cell.value))
        return digest.digest()

    @property
    def has_others(self) -> bool:
        """Whether the model has variables outside this vector."""
        return bool(self._others)

    # -- noise --------------------------------------------------------------------------------

    def noise_cells(self) -> Sequence[Cell]:
        """The cells of this density's own random generators, in a fixed order."""
        return self._noise

    # States of those generators; how many particles, simulations ... each estimator that is told uses; the standard
    # normals that the estimators are a function of, one array an estimator.
    noise = _held("_noise", get_state_from_generator, random_generator_from_state, list)
    work = _held("_work", int, lambda n: np.asarray(n, "int64"), tuple)
    auxiliary = _held("_auxiliary", lambda value: value, lambda value: value, list)

    # -- explaining ---------------------------------------------------------------------------

    def offending_factors(self, model, point: dict[str, np.ndarray]) -> dict[str, float]:
        """Name and value of every factor of the model that is not finite at ``point``."""
        factors, terms, _ = zip(*noisy_factors.factors_of(model), strict=True)
        if self._explain is None:
            # With the linker that sampling uses, so that what is not finite there is not finite here.
            self._explain = compile_log_density(model.value_vars, list(terms), self.compile_kwargs)
            self._explain.trust_input = False
        values = self._explain(*[point[v.name] for v in model.value_vars])
        found = zip(factors, values if len(factors) > 1 else [values], strict=True)
        return {f.name: float(np.sum(v)) for f, v in found if not np.isfinite(v).all()}

    def __getstate__(self):
        # a raw Numba handle does not survive the trip
        fresh = {"_evaluate": None, "_is_tried": False, "_explain": None, "_last": NOWHERE, "_seen": self.data}
        return self.__dict__ | fresh


def compile_log_density(inputs, outputs, compile_kwargs: dict[str, Any] | None):
    """Compile with the linker that runs this graph fastest; see :class:`LogDensity`."""
    outputs = outputs[0] if len(outputs) == 1 else outputs
    kwargs = dict(compile_kwargs or {})
    if "mode" in kwargs:  # the user's word is final
        return pytensor_internals.compile_strictly(inputs, outputs, **kwargs)
    if not pytensor.config.cxx and pytensor_internals.runs_in_python():
        _say_once(
            "PyTensor found no C++ compiler and would run the log density in Python; using its Numba linker instead."
        )
        kwargs["mode"] = "NUMBA"
    function, calls_python = _compile_watched(inputs, outputs, kwargs)
    if calls_python and pytensor.config.cxx:
        function = pytensor_internals.compile_strictly(inputs, outputs, **{**kwargs, "mode": "CVM"})
    return function


def compile_for_numba(inputs, outputs, given: Sequence[np.ndarray], compile_kwargs: dict[str, Any] | None):
    """Compile so that compiled code can call it with arrays like ``given``, where that is possible: and what it calls.

    With Numba where it has every Op, unless the user has chosen a linker; else as :func:`compile_log_density` does. See
    :func:`pymc_kameleon.steps.pytensor_internals.callable_from_numba`, whose result is returned beside the function.
    """
    kwargs = {"on_unused_input": "ignore", **(compile_kwargs or {})}
    found = None
    if "mode" not in kwargs and pytensor_internals.has_default_mode():
        function, calls_python = _compile_watched(inputs, outputs, {**kwargs, "mode": "NUMBA"})
        found = None if calls_python else pytensor_internals.callable_from_numba(function, given)
    if found is None:
        function = compile_log_density(inputs, outputs, kwargs)
        found = pytensor_internals.callable_from_numba(function, given)
    function.trust_input = True
    return function, found


def _compile_watched(inputs, outputs, kwargs) -> tuple[Any, bool]:
    """A function, and whether Numba said that it will call Python; other warnings are passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function = pytensor_internals.compile_strictly(inputs, outputs, **kwargs)
    black_box = [w for w in caught if pytensor_internals.says_object_mode(w)]
    for other in caught:
        if other not in black_box:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return function, bool(black_box)


@cache
def _say_once(message: str) -> None:
    _log.info(message)
