"""The sampling state of a step in a file: a chain goes on in another process, with the same bits.

Not a pickle: reading a file runs nothing of it. It is one line of text, a digest, and NumPy's archive of a JSON table
and arrays. The table lists every record of the state once, records within records by their number, so that what was one
object is one again.
Records are made of this package's named tuples and dataclasses and of three classes of PyMC's, and nothing else is.
"""

import hashlib
import importlib
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.util import RandomGeneratorState

from pymc_kameleon.steps.base import KernelStep
from pymc_kameleon.steps.noise.demands import differ

MAGIC = b"pymc_kameleon sampling state, format 2\n"
PYMC = {c.__name__: c for c in (SamplerWarning, WarningType, RandomGeneratorState)}


def save_state(step: KernelStep, path: str | os.PathLike) -> None:
    """Keep the state of a step's chain in a file, to go on with it in another process.

    Everything mutable is kept: where the chain is, with the retained log density, what has been learned so far, the
    random generators, those of a noisy log density included. A draw after :func:`load_state` is the draw that would
    have come next, to the last bit, while tuning as well as after it.

    Parameters
    ----------
    step : step of this package
        Between two draws: after ``pm.sample(..., cores=1)``, of the last chain; in a loop of one's own over
        ``step.step(point)``; in the ``callback`` of ``pm.sample(..., cores=1)``. One of a ``CompoundStep``'s
        ``methods``, not itself.
    path : path-like
        The file; one that is there is replaced in one piece, or not at all.

    Raises
    ------
    TypeError
        For what is not a step of this package.
    ValueError
        If the step has not sampled yet.

    See Also
    --------
    pymc_kameleon.sample : keeps its evaluations as it goes, with ``checkpoint=``.
    """
    name = type(step).__name__
    if not isinstance(step, KernelStep):
        raise TypeError(f"save_state takes a step of pymc_kameleon (of a CompoundStep one of its methods), got {name}.")
    if step.position is None:
        raise ValueError(f"{name} has not made a draw yet: there is nothing to keep.")
    data, path = _packed(step.sampling_state), Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_state(step: KernelStep, path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Put a step where :func:`save_state` found one.

    Parameters
    ----------
    step : step of this package
        Of the same class, variables and options, built in the same model, in this or another process.
    path : path-like

    Returns
    -------
    dict of name to ndarray
        The point, for ``step.step(point)``: values of the value variables, those of other steps included.

    Raises
    ------
    ValueError
        If the file is not a sampling state or damaged, or is of another version of the package, or of another step,
        other variables, shapes or options (functions by their names alone), or of another log density: it is evaluated
        once, where it is not noisy.
    TypeError
        If ``step`` is not a step of this package.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     step = pk.KamiltonianStep()
    ...     idata = pm.sample(1000, tune=2000, chains=1, cores=1, step=step)
    >>> pk.save_state(step, "chain.state")  # doctest: +SKIP

    In another process, after the same model has been built:

    >>> with model:  # doctest: +SKIP
    ...     step = pk.KamiltonianStep()
    >>> point = pk.load_state(step, "chain.state")  # doctest: +SKIP
    >>> for _ in range(1000):  # doctest: +SKIP
    ...     point, [statistics] = step.step(point)
    """
    if not isinstance(step, KernelStep):
        raise TypeError(f"load_state takes a step of pymc_kameleon, got {type(step).__name__}.")
    before = step.sampling_state
    # refuses other names, shapes, options before anything is changed
    step.sampling_state = _unpacked(Path(path).read_bytes(), path)
    try:
        _verify(step, path)
    except Exception:
        step.sampling_state = before
        raise
    point = step.density.update(dict(step.others), step.position)
    return {v.name: point[v.name] for v in step.model.value_vars}  # PyMC 6 takes a point by its order


def _verify(step, path):
    density = step.density
    if density.noisy:  # another estimate
        return
    value, known = density(np.array(step.position)), step.log_density
    if math.isfinite(known) and (not math.isfinite(value) or differ(known, value)):
        raise ValueError(
            f"{path} is of another log density: at {density.update({}, step.position)} it was {known}, and is {value}. "
            "The model or its data have changed."
        )


def _packed(value: Any) -> bytes:
    table = _Writer()
    header = {"package": package_version(), "root": table.reference(value), "records": table.records}
    body = io.BytesIO()
    np.savez(body, json.dumps(header), *table.arrays)
    return MAGIC + _digest(body.getvalue()) + body.getvalue()


def _unpacked(data: bytes, path: str | os.PathLike) -> Any:
    if not data.startswith(MAGIC):
        what = "a sampling state of another format" if data.startswith(MAGIC.split(b",")[0]) else "no sampling state"
        raise ValueError(f"{path} is {what} of pymc_kameleon.")
    digest, body = data[len(MAGIC) :][:16], data[len(MAGIC) + 16 :]
    if _digest(body) != digest:
        raise ValueError(f"{path} is damaged: not all of it is what was written.")
    text, *arrays = np.load(io.BytesIO(body), allow_pickle=False).values()
    header = json.loads(text.item())
    if header["package"] != package_version():
        raise ValueError(
            f"{path} was written by pymc_kameleon {header['package']}, and this is {package_version()}: states are for "
            "the version that made them."
        )
    return _Reader(header["records"], arrays).value(header["root"])


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def package_version() -> str:
    """The version of this one."""
    try:
        return version("pymc-kameleon")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


class _Writer:
    """Fills the table. A value is a JSON scalar, or [kind, ...]."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.records: list[list] = []
        self._known: dict[int, tuple] = {}  # the values too, so that no id is used twice

    def reference(self, value: Any) -> Any:
        """``value``, or where it stands in the table."""
        if type(value) in (type(None), bool, int, float, str):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = value, self._place(value)
        return self._known[id(value)][1]

    def _place(self, value):
        if isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.hasobject:
                raise TypeError("an array of objects cannot be kept in a file.")
            self.arrays.append(np.array(value, order="K", copy=True))
            return ["scalar" if isinstance(value, np.generic) else "array", len(self.arrays) - 1]
        self.records.append(self._entry(value))  # after the records within it
        return ["record", len(self.records) - 1]

    def _entry(self, value):
        if isinstance(value, Enum):
            return ["enum", _name(type(value)), value.name]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["tuple", _name(type(value)), [self.reference(v) for v in value]]
        if is_dataclass(value):
            row = {f.name: self.reference(getattr(value, f.name)) for f in fields(value)}
            return ["dataclass", _name(type(value)), row]
        if type(value) in (list, tuple):
            return [type(value).__name__, "", [self.reference(v) for v in value]]
        if isinstance(value, Mapping):
            return ["dict", "", [[self.reference(k), self.reference(v)] for k, v in value.items()]]
        raise TypeError(f"{type(value).__qualname__} cannot be kept in a file.")


class _Reader:
    """Makes the objects of a table, each once."""

    def __init__(self, records: list, arrays: list[np.ndarray]):
        self.records, self.arrays = records, arrays
        self._made: dict[int, Any] = {}

    def value(self, reference: Any) -> Any:
        """What ``reference`` stands for."""
        if not isinstance(reference, list):
            return reference
        kind, number = reference
        if kind in ("array", "scalar"):
            return self.arrays[number] if kind == "array" else self.arrays[number][()]
        if number not in self._made:
            self._made[number] = self._make(*self.records[number])
        return self._made[number]

    def _make(self, kind, name, content):
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in content}
        if kind == "enum":
            return _class(name)[content]
        if kind == "dataclass":
            return _class(name)(**{n: self.value(v) for n, v in content.items()})
        row = [self.value(v) for v in content]
        if kind == "list":
            return row
        return _class(name)(*row) if name else tuple(row)


def _name(kind: type) -> str:
    if kind.__name__ in PYMC and PYMC[kind.__name__] is kind:
        return kind.__name__
    name = f"{kind.__module__}:{kind.__qualname__}"
    _class(name)  # or it could not be read
    return name


def _class(name: str) -> Any:
    """A class of the table: one of PyMC's, or a record of this package."""
    if name in PYMC:
        return PYMC[name]
    module, _, qualified = name.partition(":")
    if module.partition(".")[0] == "pymc_kameleon":
        kind = getattr(importlib.import_module(module), qualified, None)
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            return kind
    raise ValueError(f"a sampling state has no {name}.")
