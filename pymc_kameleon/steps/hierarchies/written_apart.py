"""Hierarchies that somebody has non-centred by hand: z ~ F(0, 1), and mu + sigma z wherever it is used.

That is right where the data say little of a group, and as wrong as centring is elsewhere where they say much: then mu
and sigma can hardly move while z stays. In theta = mu + sigma z, and between the two, they can.

Found in the model's graph: a product with something positive, and what is added to it. What is found decides about
speed alone: for any mu and any sigma > 0 of other coordinates u = lambda mu + sigma^lambda z is a change of variables,
wherever else z is used.
"""

import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc import Model
from pymc.distributions.transforms import Interval, LogExpM1, LogTransform
from pytensor import scalar
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.basic import get_underlying_scalar_constant_value as constant_value
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedIncSubtensor, Subtensor, indices_from_subtensor

from pymc_kameleon.steps.pytensor_internals import PARTS, is_cholesky_rv

SAME = (scalar.Identity, scalar.Cast)
# positive whatever they are given; where all that they are given is
POSITIVE = (scalar.Exp, scalar.Softplus, scalar.Sigmoid)
POSITIVE_OF_POSITIVE = (scalar.Mul, scalar.Add, scalar.TrueDiv, scalar.Sqrt, scalar.Sqr, scalar.Reciprocal, *SAME)
DEEPEST = 20  # nodes: a loop over time is a graph as deep as the series is long


class Use(NamedTuple):
    """A sum that a variable enters: the terms, and scale z; or L z, with the scales on the diagonal of L."""

    terms: list[Variable]
    scale: Variable
    factor: Variable | None = None  # L
    first: bool = False  # whether it is of vectors along the first axis of z, rather than the last


class Graph:
    """Of a model's random variables: what uses what, and what is positive."""

    def __init__(self, model: Model):
        self.model = model
        self.clients: dict[Variable, list] = defaultdict(list)
        self._positive: dict[Variable, bool] = {}
        nodes = {v.owner: None for v in ancestors([*model.basic_RVs, *model.potentials]) if v.owner}
        for node in nodes:
            for i, v in enumerate(node.inputs):
                self.clients[v].append((node, i))

    def use(self, rv: Variable) -> Use | None:
        """Where ``rv`` is scaled by something positive, if it is always the same; moved by the same, or by nothing.

        Or where it is a matrix, multiplied once by the Cholesky factor of a covariance. Of effects that sum to zero one
        number is the scale, and nothing moves them: their coordinates are others than they are.
        """
        if type(rv.owner.op).__name__ == "ZeroSumNormalRV":
            use = _agreed(self._uses(rv, rv, 0))
            return use and Use([], use.scale)
        vectors = [use for use in self._vector_uses(rv, rv, False) if use is not None]
        if len(vectors) == 1:
            return vectors[0]
        return _agreed(self._uses(rv, rv, rv.ndim)) or self._use_by_parts(rv)

    def _use_by_parts(self, rv):
        """Where ``rv`` is used at constant indices of one axis, and what is at each is always scaled by the same."""
        parts: dict = defaultdict(list)
        for node, i in self.clients[rv]:
            where, part = _index_of(node), node.outputs[0]
            parts[where] += self._uses(part, part, part.ndim) if where else self._uses_by(node, i, rv, rv, rv.ndim)
        agreed = {where: _agreed(uses) for where, uses in parts.items() if uses}
        apart = None not in agreed and len({axis for axis, _ in agreed}) == 1  # parts of two axes overlap
        shape = rv.owner.op.size_param(rv.owner) if None in rv.type.shape else rv.type.shape
        if not apart or None in agreed.values() or len(agreed) > DEEPEST or isinstance(shape, Constant):  # none given
            return None
        location, scale = pt.zeros(shape, "float64"), pt.ones(shape, "float64")
        for (axis, k), use in agreed.items():
            where = (*[slice(None)] * axis, k)
            moved = sum(t for t in use.terms if rv not in ancestors([t]))  # by another part, it would be by itself
            location, scale = pt.set_subtensor(location[where], moved), pt.set_subtensor(scale[where], use.scale)
        return Use([location], scale)

    def _uses(self, v, rv, whole):
        """Of ``v``, a part of ``rv`` with its last axes, ``whole`` in number, as they are; None of a use that differs.

        Parts may have another location and scale each, where these are no single numbers.
        """
        for node, i in self.clients[v]:
            yield from self._uses_by(node, i, v, rv, whole)

    def _uses_by(self, node, i, v, rv, whole):
        op, kind = node.op, _kind(node)
        if kind in SAME or isinstance(op, ViewOp):
            yield from self._uses(node.outputs[0], rv, whole)
        elif i == 0 and isinstance(op, (DimShuffle, *PARTS)):
            yield from self._uses(node.outputs[0], rv, _left_whole(node, v, whole))
        elif kind is scalar.Mul or (kind is scalar.TrueDiv and i == 0):
            yield from self._scaled(node, i, kind, rv, whole)

    def _scaled(self, node, i, kind, rv, whole):
        others = [a for j, a in enumerate(node.inputs) if j != i]
        # exactness hangs on this: where sigma is below 0 there is no u, and the posterior would be cut off
        if not all(self.is_positive(a) for a in others):
            yield None
            return
        product = others[0] if len(others) == 1 else pt.mul(*others)
        scale = _fitting(1.0 / product if kind is scalar.TrueDiv else product, rv, whole)
        if scale is None:
            yield None
            return
        further = list(self._uses(node.outputs[0], rv, whole))  # scaled more than once
        if further and None not in further:
            yield from (Use(use.terms, scale * use.scale) for use in further)
        else:
            yield Use(_in_common(list(self._sums(node.outputs[0], rv, whole))), scale)

    def _sums(self, v, rv, whole, depth=DEEPEST):
        """What is added to ``v``, a list of terms for each way to go on from it."""
        for node, i in self.clients[v] if depth else ():
            op, kind, on = node.op, _kind(node), (node.outputs[0], rv)
            if kind is scalar.Add:
                terms = [t for j, a in enumerate(node.inputs) if j != i for t in _terms(a)]
                fitting = [t for t in (_fitting(t, rv, whole) for t in terms) if t is not None]
                yield fitting + _in_common(list(self._sums(*on, whole, depth - 1)))
            elif kind in SAME or isinstance(op, ViewOp):
                yield from self._sums(*on, whole, depth - 1)
            elif i == 0 and isinstance(op, (DimShuffle, *PARTS)):
                yield from self._sums(*on, _left_whole(node, v, whole), depth - 1)
            else:
                yield []

    def _vector_uses(self, v, rv, transposed):
        for node, i in self.clients[v]:
            op = node.op
            if isinstance(op, ViewOp):
                yield from self._vector_uses(node.outputs[0], rv, transposed)
            elif _transposes(op):
                yield from self._vector_uses(node.outputs[0], rv, not transposed)
            elif rv.ndim == 2 and isinstance(getattr(op, "core_op", op), Dot):
                yield self._multiplied(node, i, rv, transposed)

    def _multiplied(self, node, i, rv, transposed):
        factor = _seen_through(node.inputs[1 - i])
        if i == 0 and not (factor.owner and _transposes(factor.owner.op)):  # z L', of rows
            return None
        factor = factor if i else _seen_through(factor.owner.inputs[0])
        if not self._is_factor(factor):
            return None
        rows = [node.outputs[0]]
        if i:  # L z, of columns
            rows = [n.outputs[0] for n in self._followed(rows[0]) if _transposes(n.op)]
        terms = _in_common([terms for v in rows for terms in self._sums(v, rv, 2)])
        return Use(terms, pt.diagonal(factor), factor, bool(i) != transposed)

    def _followed(self, v):
        """The nodes that use ``v``, as it is."""
        for node, _ in self.clients[v]:
            yield from self._followed(node.outputs[0]) if isinstance(node.op, ViewOp) else (node,)

    def _is_factor(self, v):
        """Whether ``v`` is what PyMC unpacks from ``LKJCholeskyCov``: lower triangular, its diagonal positive."""
        if not v.owner or not isinstance(v.owner.op, AdvancedIncSubtensor):
            return False
        packed = v.owner.inputs[1]
        return packed in self.model.rvs_to_values and is_cholesky_rv(packed)

    def is_positive(self, v: Variable, depth: int = DEEPEST) -> bool:
        """Whether ``v`` is known to be positive."""
        if v not in self._positive:
            self._positive[v] = depth > 0 and self._is_positive(v, depth - 1)
        return self._positive[v]

    def _is_positive(self, v, depth):
        if isinstance(v, Constant):
            return bool(np.all(np.asarray(v.data) > 0.0))
        if v in self.model.rvs_to_values:
            return self._has_positive_support(v)
        if v.owner is None or not v.dtype.startswith("float"):
            return False
        op, given, kind = v.owner.op, v.owner.inputs, _kind(v.owner)
        if kind in POSITIVE:
            return True
        if kind is scalar.Maximum:
            return any(self.is_positive(a, depth) for a in given)
        if kind in POSITIVE_OF_POSITIVE or isinstance(op, MakeVector):
            return all(self.is_positive(a, depth) for a in given)
        if kind is scalar.Clip:
            return all(self.is_positive(a, depth) for a in given[1:])
        of_the_first = kind is scalar.Pow or isinstance(op, (DimShuffle, ViewOp, *PARTS))
        return of_the_first and self.is_positive(given[0], depth)

    def _has_positive_support(self, rv):
        transform = self.model.rvs_to_transforms.get(rv)
        if isinstance(transform, Interval):
            low, _ = transform.args_fn(*rv.owner.inputs)
            return low is not None and constant(low) >= 0.0
        return isinstance(transform, (LogTransform, LogExpM1))


def _kind(node):
    """What an elementwise node does."""
    return type(node.op.scalar_op) if isinstance(node.op, Elemwise) else None


def _transposes(op) -> bool:
    """Whether an Op transposes a matrix."""
    return isinstance(op, DimShuffle) and tuple(op.new_order) == (1, 0)


def _seen_through(v):
    """``v`` without its name."""
    while v.owner and isinstance(v.owner.op, ViewOp):
        v = v.owner.inputs[0]
    return v


def _terms(v, depth=DEEPEST) -> list[Variable]:
    """What ``v`` is the sum of."""
    bare = _seen_through(v)
    if depth and bare.owner and _kind(bare.owner) is scalar.Add:
        return [t for a in bare.owner.inputs for t in _terms(a, depth - 1)]
    return [v]


def _agreed(uses) -> Use | None:
    """Uses as one, if all scale by the same."""
    found = list(uses)
    if not found or None in found or not all(_same(use.scale, found[0].scale) for use in found):
        return None
    return Use(_in_common([use.terms for use in found]), found[0].scale)


def _in_common(ways: list[list[Variable]]) -> list[Variable]:
    """The terms of the first that are in all."""
    if not ways:
        return []
    return [t for t in ways[0] if all(any(_same(t, other) for other in way) for way in ways[1:])]


def _same(a, b) -> bool:
    """Whether two graphs compute the same."""
    return _bare(a) is _bare(b) or equal_computations([_bare(a)], [_bare(b)])


def _bare(v):
    """``v`` without what only lays it out."""
    while v.owner and (isinstance(v.owner.op, (DimShuffle, ViewOp))):
        v = v.owner.inputs[0]
    return v


def _index_of(node):
    """The axis and the index of a node that takes what is at one constant index of an axis; None of any other."""
    indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list) if isinstance(node.op, Subtensor) else ()
    taken = [(axis, k) for axis, k in enumerate(indices) if k != slice(None)]
    if len(taken) != 1 or isinstance(taken[0][1], slice):
        return None
    axis, k = taken[0][0], constant(taken[0][1])
    return (axis, int(k)) if k >= 0.0 else None  # from the end, it may be one from the beginning, too


def _left_whole(node, v, whole):
    """How many of the last axes a node that lays out ``v``, or takes a part of it, leaves as they are."""
    op = node.op
    if isinstance(op, DimShuffle):
        kept = [axis for axis in op.new_order if axis != "x"]
        as_they_are = kept == list(range(v.ndim)) and op.new_order[len(op.new_order) - v.ndim :] == tuple(kept)
        return whole if as_they_are else 0
    indices = getattr(op, "idx_list", None) or (0,)
    of_the_first = isinstance(op, Subtensor) or len(node.inputs) == 2  # axes, rather than of any
    if v.ndim > whole or any(isinstance(index, slice) for index in indices) or not of_the_first:  # a part of a part
        return 0
    return whole - len(indices)


def _fitting(v, z, whole):
    """``v`` so that it broadcasts to the last ``whole`` axes of ``z``; None if it does not."""
    while v.ndim > whole and v.broadcastable[0]:
        v = v[0]
    pairs = zip(v.broadcastable[::-1], z.broadcastable[::-1], strict=False)
    return v if v.ndim <= whole and all(a or not b for a, b in pairs) else None


def constant(v) -> float:
    """The value of ``v`` if all of it is one constant; NaN otherwise."""
    try:
        return float(constant_value(pt.as_tensor(v)))
    except NotScalarConstantError:
        return math.nan
