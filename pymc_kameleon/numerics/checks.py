"""Options outside their domain are refused, with the name, the value and what is right: one sentence each."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def positive(**values: Any) -> None:
    """Refuse what is not None, nor a finite positive number or an array of such."""
    for name, value in values.items():
        if value is not None:
            numbers = np.asarray(value, dtype=float)
            if not (np.isfinite(numbers).all() and (numbers > 0).all()):
                raise ValueError(f"{name} must be positive and finite, got {value!r}.")


def inside(**values: tuple[float, float, float]) -> None:
    """Refuse a value that is not strictly between the two numbers beside it."""
    for name, (value, low, high) in values.items():
        if not low < value < high:
            raise ValueError(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}.")


def share(**values: float) -> None:
    """Refuse what is not in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")


def moderate(values: Any) -> np.ndarray:
    """Which numbers can be learned from: not NaN, and their squares, and sums of those, are still numbers."""
    return np.abs(values) < 1e100


def count(least: int, **values: Any) -> None:
    """Refuse what is not an integer of at least ``least``."""
    for name, value in values.items():
        if not (isinstance(value, (int, np.integer)) and value >= least):
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def at_least(least: float, **values: float) -> None:
    """Refuse what is not a finite number of at least ``least``."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name} must be at least {least:g}, got {value!r}.")


def called(k: int, **functions: Callable[[int], float]) -> float:
    """What an option that is a function of a whole number returns at ``k``."""
    ((name, function),) = functions.items()
    try:
        found = np.asarray(function(k))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise TypeError(f"{name} must be a function that returns a number; at {k} it raised {said}") from error
    if found.ndim or found.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be a function that returns a number, got {found[()]!r} at {k}.")
    return float(found)


def shaped(dim: int, **values: Any) -> None:
    """Refuse what is neither None, nor a number, nor an array of one number for each of ``dim`` coordinates."""
    for name, value in values.items():
        if value is not None and np.shape(value) not in ((), (dim,)):
            raise ValueError(
                f"{name} must be a number or have shape {(dim,)}, got an array of shape {np.shape(value)}."
            )
