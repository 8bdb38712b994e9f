"""Which parts of a model's log density are black boxes: Ops that PyTensor cannot differentiate.

The question is put to the Op itself: its pullback is asked for, and what raises or answers with a null gradient is a
black box. An Op is skipped if it does not depend on the unknowns, or depends on them through integers alone. Ops whose
gradient is merely expensive can be declared by name.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from pytensor.compile.ops import ViewOp
from pytensor.gradient import DisconnectedType, NullType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor


class Unsplittable(Exception):
    """A model that cannot be cut at its black boxes; the message says why."""


class Box(NamedTuple):
    """One black box."""

    outputs: tuple[Variable, ...]  # those that the log density uses; the graph is cut there
    # The Op's inputs that depend on the unknowns. Empty for a variable that was declared: what it depends on are the
    # unknowns themselves.
    arguments: tuple[Variable, ...]
    factor: str  # of the model, that it belongs to, for messages


def find_boxes(terms: dict[str, Variable], unknowns: Iterable[Variable], declared: Sequence[str] = ()) -> list[Box]:
    """The black boxes in the log densities ``terms`` of the model's factors, in topological order.

    Parameters
    ----------
    terms : dict of name to Variable
        Log density of every factor, in the order of the model.
    unknowns : iterable of Variable
        Black boxes that do not depend on these are constants.
    declared : sequence of str
        Names of variables, or of Ops' classes, to learn although they have a gradient.

    Raises
    ------
    Unsplittable
        Where a black box draws random numbers, or returns integers that the log density uses.
    ValueError
        If ``declared`` has a name that is not found.
    """
    dependent, boxes, met = set(unknowns), [], set()
    # in the order of the model's factors; within one, what enters a box before the box
    nodes = list(dict.fromkeys(node for term in terms.values() for node in toposort([term])))
    used = {v for node in nodes for v in node.inputs} | set(terms.values())
    for node in nodes:
        arguments = tuple(v for v in node.inputs if v in dependent)
        if not arguments:
            continue
        dependent.update(node.outputs)
        names = {v.name for v in node.outputs} & set(declared)
        kinds = {type(node.op).__name__} & set(declared)
        met |= names | kinds
        if not (names or kinds) and differentiable(node, arguments):
            continue
        if any(isinstance(v.type, RandomType) for v in node.inputs):
            raise Unsplittable(f"{_owner(terms, node.outputs)} is an estimate, which draws random numbers")
        outputs = tuple(v for v in node.outputs if v in used)
        if not all(_is_float(v) for v in outputs):
            raise Unsplittable(f"{node.op} has no gradient and returns integers")
        boxes.append(Box(outputs, () if names else arguments, _owner(terms, outputs)))
    missing = set(declared) - met
    if missing:
        raise ValueError(
            f"expensive names {', '.join(sorted(missing))}, and the log density has no variable and no Op's class of "
            "that name that depends on the unknowns."
        )
    factors, cuts = list(terms.values()), {v for box in boxes for v in box.outputs}
    users: dict[Variable, list[Apply]] = {}
    for node in nodes:
        for v in dict.fromkeys(node.inputs):
            users.setdefault(v, []).append(node)

    def above(v):
        """What is made of ``v`` alone, if it is no more than a multiple of it; None where it is not, or a cut."""
        (node,) = found if len(found := users.get(v, [])) == 1 else (None,)
        if node is None or v in factors or not cuts.isdisjoint(node.outputs) or not _is_scaling(node, v, dependent):
            return None
        return node.outputs[0]

    return [box._replace(outputs=tuple(as_added(v, above, factors) for v in box.outputs)) for box in boxes]


def has_boxes(variables: Sequence[Variable], unknowns: Iterable[Variable], declared: Sequence[str] = ()) -> bool:
    """Whether a black box enters ``variables``, one that cannot be learned by itself included."""
    before = list(ancestors(variables))
    known = {v.name for v in before} | {type(v.owner.op).__name__ for v in before if v.owner}
    terms = {str(i): v for i, v in enumerate(variables)}
    try:
        return not known.isdisjoint(declared) or bool(find_boxes(terms, unknowns))
    except Unsplittable:
        return True


def differentiable(node: Apply, arguments: Sequence[Variable]) -> bool:
    """Whether the Op has a gradient with respect to its floating-point ``arguments``."""
    floats = [v for v in arguments if _is_float(v)]
    if not floats or not any(_is_float(v) for v in node.outputs):
        return not any(isinstance(v.type, RandomType) for v in node.inputs)
    try:
        cotangents = [v.zeros_like() if _is_float(v) else DisconnectedType()() for v in node.outputs]
        pull_back = getattr(node.op, "pullback", None) or node.op.L_op
        gradients = pull_back(list(node.inputs), list(node.outputs), cotangents)
    except Exception:  # a user's Op may raise anything where it has no gradient
        return False
    return not any(v in floats and isinstance(g.type, NullType) for v, g in zip(node.inputs, gradients, strict=True))


def as_added(output: Variable, above: Callable[[Variable], Variable | None], terms: Collection[Variable]) -> Variable:
    """What of ``output`` is added to the log density: itself, its one element, -output / 2, its logarithm.

    A log likelihood is often returned as a chi-squared, as a likelihood, or in an array of one number. ``output`` where
    it enters in another way, as a prediction does. ``above(v)`` is the next multiple of v, None where there is none.
    """
    top, found = output, above(output)
    while found is not None:
        top, found = found, above(found)
    return output if is_added(output, terms) or not is_added(top, terms) else top


def _is_scaling(node, variable, dependent):
    """Whether a node makes a multiple, a sum with constants, an element or a logarithm of ``variable`` alone.

    Sums of several numbers are none: their terms are learned one by one.
    """
    others, made = [v for v in node.inputs if v is not variable], node.outputs[0].type
    if len(others) + 1 != len(node.inputs) or any(v in dependent for v in others):
        return False
    if isinstance(node.op, Elemwise):
        name = str(node.op.scalar_op).lower()
        divides = name == "true_div" and node.inputs[0] is variable
        known = divides or name in ("mul", "neg", "log", "add", "sub", "identity")
        return known and made.broadcastable == variable.type.broadcastable
    if isinstance(node.op, Sum):
        return all(variable.type.broadcastable)
    return (isinstance(node.op, Subtensor) and made.ndim == 0) or _only_adds(node)


def is_added(output: Variable, terms: Iterable[Variable]) -> bool:
    """Whether the log density is the sum of ``output``'s elements and of terms without it.

    Read off the graph: from each term down through sums, and reshapings that keep every element.
    """
    found = 0
    for term in terms:
        rest, leaves = [term], []
        often: list[Variable] = []
        while rest:
            variable = rest.pop()
            node = variable.owner
            if variable is output or node is None or not _only_adds(node):
                leaves.append(variable)
            elif isinstance(node.op, Elemwise):  # what is broadcast is added more than once
                whole = node.outputs[0].type.broadcastable
                for v in node.inputs:
                    (rest if v.type.broadcastable == whole else often).append(v)
            else:
                rest.append(node.inputs[0])
        found += sum(v is output for v in leaves)
        elsewhere = ancestors([*often, *(v for v in leaves if v is not output)])
        if found > 1 or output in elsewhere:
            return False
    return True


def _only_adds(node):
    if isinstance(node.op, Elemwise):
        return str(node.op.scalar_op).lower() in ("add", "identity")
    return isinstance(node.op, (Sum, DimShuffle, Reshape, SpecifyShape, ViewOp))  # every element comes through once


def _is_float(variable) -> bool:
    return str(getattr(variable.type, "dtype", "")).startswith("float")


def _owner(terms, outputs):
    return next((name for name, term in terms.items() if not set(outputs).isdisjoint(ancestors([term]))), "?")
