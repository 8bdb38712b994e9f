"""Which outputs of a black box depend on which of its inputs: most are written once, for all groups.

The graph cannot look inside an Op that takes the parameters of all patients and returns all their curves. Evaluating it
can: one coordinate at a time is moved, and an output that stays the same, bit for bit or nearly, does not depend on it.
That takes d + 1 evaluations of the model, once a step and not once a chain. What the outputs depend on is then as if
there were an Op a group.

A dependence that is missed, because an output was saturated where it was looked at, makes an emulator worse; the chain
stays exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_kameleon.steps.factors.black_boxes import Unsplittable

WIDEST = 20  # inputs of one factor: more, and a quadratic in them takes hundreds of evaluations


class Inputs(NamedTuple):
    """What a factor is learned as a function of."""

    coordinates: np.ndarray  # of x, that it depends on
    elements: np.ndarray | None  # of its black box's raveled arguments; None: of the coordinates
    positive: bool  # whether it is of the elements' logarithms

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.coordinates if self.elements is None else self.elements)


class Factor(NamedTuple):
    """Outputs of one black box that are learned together."""

    box: int
    inputs: Inputs
    outputs: np.ndarray  # which of the box's raveled ones
    name: str

    @property
    def may_be_divided(self) -> bool:
        """Whether looking inside the black box can make its factors smaller; few inputs are learned as cheaply."""
        return len(self.outputs) > 1 and self.inputs.size > 6


def dependences(
    outputs: Callable[[np.ndarray], np.ndarray], start: np.ndarray, scale: np.ndarray, coordinates: np.ndarray
) -> tuple[np.ndarray, int]:
    """(which of all outputs change with which coordinate, evaluations), a matrix of shape (d, n_o).

    Parameters
    ----------
    outputs : callable
        All black boxes' outputs at a point x.
    start : ndarray of shape (d,)
    scale : ndarray of shape (d,)
        By how much each coordinate may be moved.
    coordinates : ndarray of int
        Those that are moved.

    Raises
    ------
    Unsplittable
        If outputs are not finite anywhere near ``start``, or there are too many coordinates.
    """
    if len(coordinates) > 400:
        raise Unsplittable(f"{len(coordinates)} unknowns are too many to look at one by one")
    rng = np.random.default_rng(0)
    count = 0
    for jitter in (0.25, 0.1, 0.02, 0.0):  # zeros and equal values hide products and differences
        x = start + jitter * scale * rng.standard_normal(len(start))
        here = outputs(x)
        count += 1
        if np.isfinite(here).all():
            break
    else:
        raise Unsplittable("black boxes return no finite numbers near the initial point")
    change = np.zeros((len(start), len(here)))
    for i in coordinates:
        for shrink in (1.0, 0.1):  # where the solver fails, it may not a little nearer
            there = x.copy()
            there[i] += shrink * rng.uniform(0.1, 0.3) * scale[i]
            change[i] = np.abs(outputs(there) - here)
            count += 1
            if np.isfinite(change[i]).all():
                break
    failed = ~np.isfinite(change)
    largest = np.where(failed, 0.0, change).max(axis=0)
    # adaptive solvers of all groups together let so much through
    return failed | (change > 1e-7 * largest), count


def divide(factor: Factor, depends: np.ndarray, reaches: np.ndarray) -> list[Factor]:
    """A black box's outputs by what they depend on.

    Parameters
    ----------
    depends : ndarray of bool, shape (d, n)
        Which of the box's outputs change with which coordinate.
    reaches : ndarray of bool, shape (d, n_elements)
        Which elements of its arguments do.
    """
    sets = [frozenset(np.flatnonzero(column)) for column in depends.T]
    groups = _grouped(sets)
    factors = []
    for members in groups:
        coordinates = np.array(sorted(frozenset().union(*(sets[j] for j in members))), dtype=int)
        found = Inputs(coordinates, None, False)
        inputs, name = factor.inputs, factor.name
        if inputs.elements is not None:
            # an output that depends on an element changes with every coordinate that the element depends on
            mine = np.isin(np.arange(len(depends)), coordinates)
            elements = [e for e in inputs.elements if mine[reaches[:, e]].all()]
            if 0 < len(elements) < len(coordinates):
                found = Inputs(coordinates, np.array(elements), inputs.positive)
        label = name if len(groups) == 1 else f"{name}[{members[0]}]"
        factors.append(Factor(factor.box, found, np.array(members), label))
    return factors


def _grouped(sets: list[frozenset]) -> list[list[int]]:
    """Outputs with the same set, and those with a subset that is hardly smaller, in the order of their first."""
    kept: list[frozenset] = []
    for found in sorted(set(sets), key=lambda s: (-len(s), sorted(s))):
        # an output may be given two inputs beyond its own, to be learned with its neighbours
        if found and not any(found < other and len(other) <= len(found) + 2 for other in kept):
            kept.append(found)
    if not kept:
        raise Unsplittable("no output of a black box changes with any of its inputs")
    groups: dict[frozenset, list[int]] = {}
    for j, found in enumerate(sets):
        # the smallest that holds it, itself if it was kept
        home = min((s for s in kept if found <= s), key=len, default=kept[0])
        groups.setdefault(home, []).append(j)
    return sorted(groups.values())
