"""Every point ever evaluated, with its log density, in the order of evaluation: what samplers learn from.

A record that can be handed on: several chains' are merged into one, an earlier run's are the warm start of the next.
Nothing here knows a model; :mod:`pymc_kameleon.steps` and :func:`pymc_kameleon.sample` give the coordinates names.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Evaluations(NamedTuple):
    """Points and their log densities, oldest first.

    Attributes
    ----------
    positions : ndarray of shape (n, d)
        In the sampler's unconstrained coordinates.
    log_densities : ndarray of shape (n,)
        ``-inf`` where they were not finite.
    chain : ndarray of shape (n,), int
        Which chain asked; -1 for none.
    round : ndarray of shape (n,), int
        Points of the same round were evaluated side by side.
    move : ndarray of shape (n,), str
        Which kernel proposed the point.
    """

    positions: np.ndarray
    log_densities: np.ndarray
    chain: np.ndarray
    round: np.ndarray
    move: np.ndarray

    @property
    def size(self) -> int:
        """How many evaluations."""
        return len(self.log_densities)


MOVE = np.dtype("U16")


def empty(dim: int) -> Evaluations:
    """No evaluation yet, in ``dim`` dimensions."""
    none = np.zeros(0, dtype=np.int64)
    return Evaluations(np.zeros((0, dim)), np.zeros(0), none, none, np.zeros(0, dtype=MOVE))


def table(positions, log_densities, chain=-1, round=0, move="") -> Evaluations:
    """Evaluations from a table; ``chain``, ``round`` and ``move`` may be one value for all.

    Raises
    ------
    ValueError
        For shapes that do not fit, and for positions that are not finite, with what was found.
    """
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
    return Evaluations(
        positions,
        values,
        np.broadcast_to(np.asarray(chain, dtype=np.int64), (n,)).copy(),
        np.broadcast_to(np.asarray(round, dtype=np.int64), (n,)).copy(),
        np.broadcast_to(np.asarray(move, dtype=MOVE), (n,)).copy(),
    )


def merge(parts: Sequence[Evaluations]) -> Evaluations:
    """All of ``parts``, one after the other: the order of evaluation within each is kept.

    Raises
    ------
    ValueError
        If they differ in dimension, or there are none.
    """
    dims = sorted({part.positions.shape[1] for part in parts})
    if len(dims) != 1:
        raise ValueError(f"merge takes evaluations of one dimension, got dimensions {dims}.")
    return Evaluations(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def distinct(evaluations: Evaluations) -> Evaluations:
    """Without the repetitions of a point at which the log density was the same; the first of each stays."""
    rows = np.column_stack([evaluations.positions, evaluations.log_densities])
    _, first = np.unique(rows, axis=0, return_index=True)
    return Evaluations(*(column[np.sort(first)] for column in evaluations))
