"""Graphs that differ only in what they are of, as one graph with a leading axis.

A model that calls a solver for every patient in a loop has as many terms as patients, all alike. PyTensor compiles and
calls each by itself: minutes to begin, and most of a draw. Together they cost what one costs.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

Stack = Callable[[Sequence[Variable]], Variable]


def in_groups(
    graphs: Sequence[Variable], leaves: Collection[Variable], stack: Stack
) -> list[tuple[list[int], Variable]]:
    """``graphs`` in groups, each as one graph: (numbers of its members, their graphs along a leading axis).

    Two are in one group if they are the same operations on the same variables, and differ in constants, in which row of
    a variable they take, or in ``leaves``. What is alone in its group, or cannot be written as one, has a leading axis
    of length one.

    Parameters
    ----------
    graphs : sequence of Variable
    leaves : collection of Variable
        Variables that differ between the graphs, whatever they are computed from.
    stack : callable
        Makes one variable, with a leading axis, of as many ``leaves``.
    """
    read = [_read(graph, leaves) for graph in graphs]
    groups: dict[Any, list[int]] = {}
    for i, (structure, _) in enumerate(read):
        groups.setdefault(structure, []).append(i)
    found: list[tuple[list[int], Variable]] = []
    for members in groups.values():
        together = _together(graphs[members[0]], [read[i][1] for i in members], leaves, stack)
        if together is None:
            found += [([i], graphs[i][None]) for i in members]
        else:
            found.append((members, together))
    return found


def _read(graph, leaves) -> tuple[tuple, list[Variable]]:
    """What a graph does, and what to: equal structures do the same to what stands at the same places."""
    nodes = list(toposort([graph], blockers=leaves))
    rows = {node.outputs[0] for node in nodes if _takes_a_row(node)}
    places: dict[Variable, tuple] = {}
    found: list[Variable] = []

    def place(v):
        if v not in places:
            row = v in rows
            if not (row or v in leaves or (isinstance(v, Constant) and isinstance(v.type, TensorType))):
                return (type(v), repr(v.data)) if isinstance(v, Constant) else v
            places[v] = ("leaf", len(found), v.type, v.owner.inputs[0] if row else None)
            found.append(v)
        return places[v]

    structure = []
    for number, node in enumerate(toposort([graph], blockers=[*leaves, *rows])):
        structure.append((node.op, *map(place, node.inputs)))
        places |= {v: ("made", number, i) for i, v in enumerate(node.outputs)}
    return (*structure, place(graph)), found


def _takes_a_row(node) -> bool:
    """Whether a node is ``variable[3]``, of a variable that is not computed."""
    if not isinstance(node.op, Subtensor) or node.inputs[0].owner is not None or len(node.inputs) != 2:
        return False
    index = node.inputs[1]
    return isinstance(index, Constant) and np.ndim(index.data) == 0 and node.outputs[0].ndim < node.inputs[0].ndim


def _together(graph, rows, leaves, stack) -> Variable | None:
    """The graphs of which ``graph`` is the first; None where they cannot be written as one."""
    if len(rows) < 2:
        return None
    try:
        replaced = _replaced(rows, leaves, stack)
        found = vectorize_graph(graph, replaced) if replaced else pt.stack([graph] * len(rows))
    except Exception:  # an Op may have no way to do several at once, black boxes may return as many as they like
        return None
    # one after the other in Python is no faster, and may have no gradient
    slow = _in_python(found) > _in_python(graph)
    return None if slow or found.ndim != graph.ndim + 1 else found


def _in_python(graph) -> int:
    return sum(isinstance(node.op, Blockwise) for node in toposort([graph]))


def _replaced(rows, leaves, stack) -> dict[Variable, Variable]:
    """What differs, of the first graph, and what stands for it in all."""
    replaced = {}
    for of_all in zip(*rows, strict=True):
        first = of_all[0]
        if first in leaves:
            if any(v is not first for v in of_all):
                replaced[first] = stack(of_all)
        elif not isinstance(first, Constant):
            base, index = first.owner.inputs[0], np.array([int(v.owner.inputs[1].data) for v in of_all])
            if (index != index[0]).any():
                replaced[first] = base[consecutive(index)]
        elif any(not np.array_equal(v.data, first.data) for v in of_all):
            replaced[first] = pt.constant(np.stack([v.data for v in of_all]))
    return replaced


def consecutive(index: np.ndarray) -> Any:
    """A slice in place of an array of integers, where they follow one another: its gradient is cheaper."""
    first, n = int(index.flat[0]), index.size
    if first >= 0 and np.array_equal(index, np.arange(first, first + n)):
        return slice(first, first + n)
    return index
