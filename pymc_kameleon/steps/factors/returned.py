"""What a black box returned where it has to return something else: PyTensor's own errors name neither."""

import traceback
from typing import Any

import numpy as np
import pytensor
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import RandomType

from pymc_kameleon.steps.noise.noisy_factors import factors_of, of_host
from pymc_kameleon.steps.pytensor_internals import wrapped_function
from pymc_kameleon.steps.told import advice

HOSTS = {"pymc", "pymc_kameleon", "pytensor", "numba", "numpy"}


def raised_by_the_model(error: BaseException) -> bool:
    """Whether code that is neither ours nor PyTensor's was running: then the error tells what is wrong."""
    names = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name.partition(".")[0] not in HOSTS for name in names)


def misreturned(model, point: dict[str, np.ndarray]) -> str:
    """A sentence about the first black box that does not return at ``point`` what it has to; empty if there is none.

    Evaluates the black boxes once more. NoisyLogLikelihood looks at its estimates by itself.
    """
    values = [point[v.name] for v in model.value_vars]
    for factor, term, _ in factors_of(model):
        observed = model.rvs_to_values.get(factor) if factor in model.observed_RVs else None
        for node in toposort([term]):
            if of_host(node.op) or any(isinstance(v.type, RandomType) for v in node.inputs):
                continue
            arguments = pytensor.function(model.value_vars, node.inputs, mode="FAST_COMPILE", on_unused_input="ignore")
            said = _wrong(node, arguments(*values), None if observed is None else observed.shape)
            if said:
                made_of = wrapped_function(node.op) or node.op
                name = getattr(made_of, "__name__", type(made_of).__name__)
                found, has_to = said
                return advice.MISRETURNED.format(name=name, factor=factor.name, found=found, has_to=has_to)
    return ""


def _wrong(node, arguments, observed) -> tuple[str, str] | None:
    """What came out and what has to, if the two differ."""
    function = wrapped_function(node.op)
    if function is not None:  # as wrap_py calls it
        whole = function(*arguments)
        found = whole if isinstance(whole, (list, tuple)) else [whole]
    else:
        cells: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, arguments, cells)
        found = [cell[0] for cell in cells]
        whole = found[0] if len(found) == 1 else found
    types = [v.type for v in node.outputs]
    has_to = " and ".join(_declared(kind) for kind in types)
    if len(found) != len(types):
        return _described(whole), has_to
    for kind, value in zip(types, found, strict=True):
        if not kind.is_valid_value(value, strict=True):
            return _described(whole if len(types) == 1 else value), has_to
        shape = None if observed is None else tuple(int(n) for n in observed.eval())
        if shape is not None and kind.ndim and value.shape != shape:
            return _described(value), f"what fits the observed values, of shape {shape}"
    return None


def _declared(kind) -> str:
    if kind.ndim == 0:
        return f"a {kind.dtype} number, as np.asarray(value, dtype={kind.dtype!r}) of shape ()"
    array = f"a {kind.dtype} array of {kind.ndim} dimension{'s' * (kind.ndim > 1)}"
    return f"{array}, as np.asarray(values, dtype={kind.dtype!r})"


def _described(value) -> str:
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array of shape {value.shape}"
    return f"a {type(value).__name__}"
