"""Every point ever evaluated, with its log density, in the order of evaluation: what samplers learn from.

A record that grows while a chain tunes and can be handed on: several chains' are merged into one, an earlier run's are
the warm start of the next.
Nothing here knows a model; :mod:`pymc_kameleon.steps` and :func:`pymc_kameleon.sample` give the coordinates names.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.history import doubled


class Evaluations(NamedTuple):
    """Points and their log densities, oldest first.

    Its properties are the first ``size`` rows of the columns. :func:`append` writes into them, as
    :func:`pymc_kameleon.numerics.history.append` does: a record belongs to who appends to it.
    """

    columns: tuple[np.ndarray, ...]
    size: int

    @property
    def positions(self) -> np.ndarray:
        """Where, in the sampler's unconstrained coordinates, shape (n, d)."""
        return self.columns[0][: self.size]

    @property
    def log_densities(self) -> np.ndarray:
        """What was found there, shape (n,); ``-inf`` where it was not finite."""
        return self.columns[1][: self.size]

    @property
    def chain(self) -> np.ndarray:
        """Which chain asked, shape (n,); -1 for none."""
        return self.columns[2][: self.size]

    @property
    def round(self) -> np.ndarray:
        """When, shape (n,): points of the same round were evaluated side by side."""
        return self.columns[3][: self.size]

    @property
    def move(self) -> np.ndarray:
        """Which kernel proposed the point, shape (n,)."""
        return self.columns[4][: self.size].view(MOVE)[:, 0]

    @property
    def outputs(self) -> np.ndarray:
        """What black boxes returned there, shape (n, n_o); n_o is 0 where that is not kept."""
        return self.columns[5][: self.size]

    def is_latest(self, position: np.ndarray, log_density: float) -> bool:
        """Whether the last evaluation is this one."""
        return (
            self.size > 0
            and bool(self.log_densities[-1] == log_density)
            and np.array_equal(self.positions[-1], position)
        )


# Kept as its 16 characters' numbers, (n, 16): PyMC compares the arrays of a sampling state as numbers.
MOVE, CHARACTER = np.dtype("U16"), np.dtype(np.int32)


def empty(dim: int, outputs: int = 0) -> Evaluations:
    """No evaluation yet, in ``dim`` dimensions, of black boxes with so many ``outputs``."""
    none = np.zeros(0, dtype=np.int64)
    blank = np.zeros((0, dim)), np.zeros(0), none, none, _characters("", 0), np.zeros((0, outputs))
    return Evaluations(blank, 0)


def copy(dim: int, known: Evaluations | None) -> Evaluations:
    """A record to append to that begins with what is known."""
    return empty(dim) if known is None else merge([empty(dim, known.outputs.shape[1]), known])


def append(evaluations: Evaluations, position, log_density: float, move: str = "", outputs=()) -> Evaluations:
    """Add what one chain evaluated alone: a round of its own, ``chain`` -1.

    A record without room is copied, so that what was handed in stays as it was.
    """
    columns, n = evaluations
    if n == len(columns[1]):
        columns = tuple(doubled(column, 256) for column in columns)
    columns[0][n] = position
    columns[1][n] = log_density
    columns[2][n] = -1
    columns[3][n] = n
    columns[4].view(MOVE)[n, 0] = move
    columns[5][n] = outputs
    return Evaluations(columns, n + 1)


def _characters(move, n):
    """``n`` strings, or one for all, as their characters' numbers (n, 16)."""
    strings = np.broadcast_to(np.asarray(move, dtype=MOVE), (n,)).copy()
    return strings.view(CHARACTER).reshape(n, -1) if n else np.zeros((0, 16), dtype=CHARACTER)


def table(positions, log_densities, chain=-1, round=0, move="", outputs=None) -> Evaluations:
    """Evaluations from a table; ``chain``, ``round`` and ``move`` may be one value for all."""
    positions = np.asarray(positions, dtype=float)
    values = np.asarray(log_densities, dtype=float)
    if positions.ndim != 2 or values.shape != (len(positions),):
        raise ValueError(
            "evaluations take points of shape (n, d) and their n log densities, got shapes "
            f"{positions.shape} and {values.shape}."
        )
    wrong = ~np.isfinite(positions).all(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"evaluations have {int(wrong.sum())} points that are not finite; the first is row {row}: "
            f"{positions[row].tolist()}. Leave them out."
        )
    values = np.where(np.isfinite(values), values, -np.inf)
    n = len(values)
    asked, when = (np.broadcast_to(np.asarray(each, dtype=np.int64), (n,)).copy() for each in (chain, round))
    found = np.zeros((n, 0)) if outputs is None else np.array(outputs, dtype=float).reshape(n, -1)
    return Evaluations((positions, values, asked, when, _characters(move, n), found), n)


def taken_apart(found: Sequence) -> tuple[list[float], np.ndarray]:
    """(log densities, outputs (n, n_o)) of what came back of n points: a number each, or an array that begins so."""
    rows = np.array([np.atleast_1d(row) for row in found], dtype=float).reshape(len(found), -1 if len(found) else 1)
    return rows[:, :1].ravel().tolist(), rows[:, 1:]


def merge(parts: Sequence[Evaluations]) -> Evaluations:
    """All of ``parts``, one after the other: the order of evaluation within each is kept."""
    dims = sorted({(part.positions.shape[1], part.outputs.shape[1]) for part in parts})
    if len(dims) != 1:
        raise ValueError(f"merge takes evaluations of one dimension and as many outputs, got {dims}.")
    columns = zip(*map(_rows, parts), strict=True)
    return Evaluations(tuple(map(np.concatenate, columns)), sum(part.size for part in parts))


def shifted(evaluations: Evaluations, offset: float) -> Evaluations:
    """With ``offset`` added to every log density."""
    positions, values, *rest = _rows(evaluations)
    return Evaluations((positions, values + offset, *rest), evaluations.size)


def _rows(evaluations):
    return [column[: evaluations.size] for column in evaluations.columns]
