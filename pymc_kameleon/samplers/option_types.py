"""Options of the wrong type are refused before anything is made of them: by the annotations that editors show.

What a value has to be beyond its type, the sampler says that takes it (:mod:`pymc_kameleon.numerics.checks`). Without
this, text passes for true, True for the number 1 and "0.3" for a number, and arrays raise NumPy's own errors.
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

WORDS = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "None",
    np.ndarray: "an array of finite numbers",
    dict: "a dict",
    Callable: "a function",
}


def check_types(options: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuse options that are not of the type that their annotation says; one without an annotation may be anything.

    A ``TypeError`` with the name, the value and what is right; a ``ValueError`` for a number that is not of the right
    kind, and for another word than those there are.
    """
    for name, value in options.items():
        kind = annotations.get(name, Any)
        if not fits(value, kind):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            misspelt = isinstance(value, str) and "one of" in words(kind)
            raise (ValueError if number or misspelt else TypeError)(f"{name} must be {words(kind)}, got {value!r}.")


def fits(value: Any, kind: Any) -> bool:
    """Whether ``value`` is of the annotated type ``kind``: NumPy's numbers are numbers, lists are tuples and arrays."""
    parts = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind is Any or (getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)):
        return True
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, part) for part in parts)
    if origin is tuple:
        return _is_row(value, parts)
    if kind is np.ndarray:
        return _is_array(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if kind is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if kind is float:  # infinity is one, for what may be unbounded; NaN is none
        real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        return real and not math.isnan(value)
    return isinstance(value, origin or kind)


def _is_array(value):
    if not isinstance(value, (list, tuple, np.ndarray)):
        return False
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return False
    return array.dtype.kind in "iuf" and array.ndim > 0 and bool(np.isfinite(array).all())


def _is_row(value, parts):
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim == 1 else None
    if not isinstance(value, (list, tuple)):
        return False
    if len(parts) == 2 and parts[1] is Ellipsis:
        return all(fits(v, parts[0]) for v in value)
    return len(value) == len(parts) and all(map(fits, value, parts))


def words(kind: Any) -> str:
    """What a value of the annotated type is, in words."""
    parts = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        known = [words(part) for part in parts]
        return f"{', '.join(known[:-1])} or {known[-1]}"
    if origin is Literal:
        return f"one of {parts}"
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return f"a tuple, each of it {words(parts[0])}"
        return f"a tuple of {len(parts)}, each of it {words(parts[0])}"
    return WORDS.get(origin or kind, f"a {getattr(kind, '__name__', kind)}")
