"""The chain's past, in a buffer that grows by doubling and belongs to the algorithm that adapts."""

from typing import NamedTuple

import numpy as np


class History(NamedTuple):
    """Past states, oldest first."""

    # (capacity, d): only the first ``size`` rows mean anything. ``append`` writes into it: the one array of an
    # algorithm's state that is mutated in place, because copying it at every draw would cost more than the draw.
    buffer: np.ndarray
    size: int


def empty(dim: int, capacity: int = 256) -> History:
    """A history with no states."""
    return History(np.zeros((capacity, dim)), 0)


def append(history: History, x: np.ndarray) -> History:
    """Add the state ``x`` of shape (d,)."""
    buffer, size = history
    if size == len(buffer):
        buffer = doubled(buffer)
    buffer[size] = x
    return History(buffer, size + 1)


def doubled(rows: np.ndarray, least: int = 0) -> np.ndarray:
    """``rows`` (n, ...) with room for as many again, and for ``least`` in all."""
    wider = np.zeros((max(least, 2 * len(rows)), *rows.shape[1:]), dtype=rows.dtype)
    wider[: len(rows)] = rows
    return wider


def window(history: History, forget: float) -> np.ndarray:
    """The states after the first share ``forget`` of them, shape (m, d): a view, not to be kept."""
    return history.buffer[int(forget * history.size) : history.size]


def count_distinct(states: np.ndarray) -> int:
    """How many times the chain moved within ``states`` (m, d), plus one: a chain repeats a state at a rejection."""
    if len(states) == 0:
        return 0
    return 1 + int((states[1:] != states[:-1]).any(axis=1).sum())


def thin(states: np.ndarray, size: int) -> np.ndarray:
    """At most ``size`` evenly spaced rows of ``states`` (m, d), as a copy of shape (n, d)."""
    if len(states) <= size:
        return states.copy()
    return states[((np.arange(size) + 0.5) * len(states) / size).astype(int)]
