"""Black boxes that draw random numbers from a generator that PyTensor cannot see."""

import random
from functools import partial
from types import FunctionType, MethodType, ModuleType

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.noise.noisy_factors import factors_of
from pymc_kameleon.steps.pytensor_internals import referred_to

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_MAKERS = (np.random.default_rng, np.random.RandomState, random.Random)


def hidden_generators(outputs) -> list[str]:
    """Names of black-box Ops in the graph that seem to draw random numbers from a generator PyTensor cannot see.

    Found by looking at what an Op and its functions hold or refer to, without an evaluation; a generator behind
    compiled code stays hidden. A generator that a function makes anew from a seed of its own is no noise.
    """
    operations = {id(v.owner.op): v.owner.op for v in ancestors(outputs) if v.owner is not None}
    looked_at = (
        (op, [*vars(op).values(), *([] if _of_pymc(op) else [type(op).perform])]) for op in operations.values()
    )
    return list(dict.fromkeys(str(op) for op, values in looked_at if any(map(_holds_generator, values))))


def hidden_names(model) -> str:
    """Of the Ops of a model's log density that seem to, for a message; "" where there are none."""
    return ", ".join(hidden_generators([term for _, term, _ in factors_of(model)]))


def _holds_generator(value, depth=3) -> bool:
    if isinstance(value, GENERATORS):
        return True
    if depth == 0 or isinstance(value, (str, bytes, int, float, np.ndarray, type, ModuleType)):
        return False
    if type(value).__module__.startswith("scipy.stats"):  # a distribution holds NumPy's global one
        return False
    return any(_holds_generator(part, depth - 1) for part in _parts(value))


def _parts(value) -> list:
    """What ``value`` holds or, if it is a function, refers to."""
    if isinstance(value, FunctionType):
        return _referred_to(value)
    if isinstance(value, MethodType):
        return [value.__self__, *_parts(value.__func__)]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    parts = [*getattr(value, "__dict__", {}).values()]
    # of a built-in method: np.random.normal belongs to a RandomState
    parts.append(getattr(value, "__self__", None))
    call = getattr(type(value), "__call__", None)  # noqa: B004
    if isinstance(call, FunctionType) and not _of_pymc(value):
        parts += _referred_to(call)
    return parts


def _of_pymc(value) -> bool:
    return type(value).__module__.startswith(("pytensor.", "pymc.", "pymc_kameleon."))


def _referred_to(function: FunctionType) -> list:
    """Defaults, variables of enclosing scopes and globals of a Python function; attributes of modules are followed."""
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value, called in referred_to(function):
        found.append(value)
        if called and any(value is maker for maker in _MAKERS):
            found.append(value())  # without a seed: a generator that differs every time
    return [value for value in found if value is not function]
