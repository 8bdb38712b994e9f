"""A model cut at its black boxes: what is known of its log density, with gradients, and what is to be learned.

    log p(x) = L(x, o_1, ..., o_K),    o_k = h_k(w_k(x)),

with h_k the black boxes, o_k their outputs and w_k what they depend on. L and w_k are PyTensor graphs, compiled here
with their gradients; a surrogate puts emulators in the place of h_k. The log density itself is compiled from the
model's own graph, black boxes and all: what is learned, and whether the cut is right, decides about speed and about
nothing else.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.factors.alike import consecutive, in_groups
from pymc_kameleon.steps.factors.black_boxes import Box, Unsplittable, find_boxes, has_boxes, is_added
from pymc_kameleon.steps.factors.probe import Factor, Inputs
from pymc_kameleon.steps.hierarchies.coordinates import Coordinates
from pymc_kameleon.steps.log_density import compile_for_numba
from pymc_kameleon.steps.noise.noisy_factors import all_factors
from pymc_kameleon.steps.prior_scale import finite_or_zero, look_at_prior
from pymc_kameleon.steps.pytensor_internals import callable_from_numba, compile_strictly, is_plain
from pymc_kameleon.surrogates.factors.layout import Layout


class Cut:
    """Where a model is cut, and what each black box depends on: graphs only, nothing is evaluated.

    Parameters
    ----------
    model : pymc.Model
    variables : list of value variables
        All of the model's.
    point : dict of name to ndarray
    noncentred : bool
        Whether hierarchies are moved to non-centred coordinates.
    declared : sequence of str
        See :func:`pymc_kameleon.steps.factors.black_boxes.find_boxes`.

    Attributes
    ----------
    terms : dict of name to Variable
        Log densities of the factors that are not moved, in the value variables.
    boxes : list of Box
    inputs : list of Inputs
        One a box.
    reaches : list of ndarray of bool, shape (d, n_elements)
        One a box: which elements of its raveled arguments change with which coordinate.
    added : list of bool
        Whether a box's outputs are log likelihoods, added up.
    start : ndarray of shape (d,)
        The point, raveled.
    """

    def __init__(self, model, variables, point, *, noncentred=True, declared: Sequence[str] = ()):
        if set(variables) != set(model.value_vars):
            raise Unsplittable("other steps sample some of the model's variables")
        if pytensor.config.floatX != "float64":
            raise Unsplittable("PyTensor computes in single precision")
        if not all(map(is_plain, variables)):
            raise Unsplittable("variables of it are of pymc.dims")
        self.coordinates = Coordinates(model, variables, point, noncentred)
        factors = all_factors(model)
        terms = dict(zip([f.name for f in factors], without_copies(model.logp(factors, sum=False)), strict=True))
        self.boxes: list[Box] = find_boxes(terms, model.value_vars, declared)
        for variable, prior in list(self.coordinates.priors.items()):
            if has_boxes([prior.location, prior.scale, *prior.others], model.value_vars, declared):
                del self.coordinates.priors[variable]  # a black box says where the prior is
        moved = {model.values_to_rvs[v].name for v in self.coordinates.priors}
        self.terms = {name: term.sum() for name, term in terms.items() if name not in moved}
        self.added = [all(is_added(v, self.terms.values()) for v in box.outputs) for box in self.boxes]
        start = np.concatenate([np.ravel(np.asarray(point[v.name], dtype=float)) for v, *_ in self.coordinates.layout])
        self.start = finite_or_zero(start)  # where it is none, nobody sees what moves
        self.reaches: list[np.ndarray] = []
        self.inputs = self._find_inputs(look_at_prior(model, variables, point).scale) if self.boxes else []

    def _find_inputs(self, spread: np.ndarray) -> list[Inputs]:
        """By perturbing one coordinate at a time and looking which arguments change: no black box is evaluated.

        As far as their priors' ``spread`` (d,) says: of one at 1e20 a step of 1 is none.
        """
        d, rng = self.coordinates.dim, np.random.default_rng(0)
        unit = np.where(self.coordinates.movable, 1.0, np.maximum(spread, 1.0))
        watched = [box.arguments or box.outputs for box in self.boxes]
        arguments = self._compile_arguments(watched)
        changed = [np.zeros((d, len(a)), dtype=bool) for a in arguments(self.start)]
        for size in (np.ones(d), np.ones(d), *[unit] * int((unit > 1.0).any())):
            x = self.start + 0.5 * size * rng.standard_normal(d)
            here = arguments(x)
            for i in range(d):
                there = x.copy()
                there[i] += size[i] * rng.uniform(0.1, 0.5)
                for was, now, row in zip(here, arguments(there), changed, strict=True):
                    row[i] |= ~((was == now) | (np.isnan(was) & np.isnan(now)))
        self.reaches = changed
        # what stays positive at points as wide apart as these is positive by construction
        far = [arguments(self.start + 5.0 * rng.standard_normal(d)) for _ in range(20)]
        farther = [arguments(self.start + 5.0 * unit * rng.standard_normal(d)) for _ in range(20)]
        chosen: list[Inputs] = []
        for k, box in enumerate(self.boxes):
            within = self._boxes_within(watched[k])
            direct = changed[k].any(axis=1)
            for j in within:
                direct[chosen[j].coordinates] = True
            coordinates, elements = np.flatnonzero(direct), np.flatnonzero(changed[k].any(axis=0))
            if not len(coordinates):
                raise Unsplittable(f"what the black box of {box.factor} depends on was not found")
            if within or not box.arguments or len(coordinates) <= len(elements):
                chosen.append(Inputs(coordinates, None, False))
            else:
                positive = all((draw[k][elements] > 0.0).all() for draw in far)
                positive &= all((draw[k][elements] >= 0.0).all() for draw in farther)  # exponentials may underflow
                chosen.append(Inputs(coordinates, elements, positive))
        return chosen

    def _boxes_within(self, variables) -> list[int]:
        """Boxes whose outputs enter ``variables``."""
        before = set(ancestors(variables))
        return [
            j for j, box in enumerate(self.boxes)
            if not before.isdisjoint(box.outputs) and not set(box.outputs) & set(variables)
        ]  # fmt: skip

    def _compile_arguments(self, watched):
        """The raveled arguments of every box as a function of x; boxes within them are given numbers."""
        rng, x = np.random.default_rng(1), pt.vector("x", dtype="float64")
        own, before = {v for row in watched for v in row}, set(ancestors([v for row in watched for v in row]))
        stand_ins = {}
        for v in (v for box in self.boxes for v in box.outputs if v not in own):  # in order: each draws its numbers
            if v in before:
                if None in v.type.shape:
                    raise Unsplittable("a black box feeds another one, and its shape is not declared")
                stand_ins[v] = pt.constant(rng.uniform(0.5, 1.5, v.type.shape), dtype=v.dtype)
        joined = [pt.concatenate([pt.as_tensor(v).ravel() for v in row]) for row in watched]
        joined = clone_replace(joined, stand_ins, rebuild_strict=False) if stand_ins else joined
        joined = clone_replace(joined, self.coordinates.unravel(x), rebuild_strict=False)
        function = compile_strictly(
            [x], [j.astype("float64") for j in joined], mode="FAST_COMPILE", on_unused_input="ignore"
        )

        def arguments(x):
            with np.errstate(all="ignore"):
                return [np.asarray(a) for a in function(x)]

        return arguments

    def graphs_of_inputs(self, moved, factors: Sequence[Factor]) -> Any:
        """All factors' inputs, concatenated, as a graph in u."""
        place = np.cumsum([0, *(f.inputs.size for f in factors)])
        whole = [k for k, f in enumerate(factors) if f.inputs.elements is None]
        rest = [k for k, f in enumerate(factors) if f.inputs.elements is not None]
        groups = in_groups([self._elements(factors[k]) for k in rest], (), pt.stack)
        parts = clone_replace([graph.ravel() for _, graph in groups], moved.values, rebuild_strict=False)
        members = [rest[i] for numbers, _ in groups for i in numbers]
        if whole:
            parts.append(moved.x[np.concatenate([factors[k].inputs.coordinates for k in whole])])
        order = np.concatenate([np.arange(place[k], place[k + 1]) for k in [*members, *whole]])
        joined = pt.concatenate(parts)
        return joined if np.array_equal(order, np.arange(len(order))) else joined[np.argsort(order)]

    def _elements(self, factor):
        """A factor's inputs that are elements of its black box's arguments, as a graph in the value variables."""
        w = pt.concatenate([pt.as_tensor(a).ravel() for a in self.boxes[factor.box].arguments])[factor.inputs.elements]
        return pt.log(w) if factor.inputs.positive else w.astype("float64")


class Split:
    """The compiled functions of a :class:`Cut`: the log density, and what is known of it.

    Attributes
    ----------
    layout : Layout
        Which inputs and outputs belong to which factor.
    movable : ndarray of bool, shape (d,)
        The coordinates that can be centred by a degree.
    units : ndarray of shape (d,)
        How long a coordinate is, whatever the posterior: steps of so many are the first. Default 1.
    factors : list of str
        Names of the model's factors that the black boxes belong to.
    parts : list of Factor
        What is learned as one: a black box, or some outputs of one.
    order : ndarray of int, shape (n_o,)
        Where each output is among those of all black boxes, one after another.
    """

    def __init__(
        self, cut: Cut, shapes: list[list[tuple[int, ...]]], factors: list[Factor], compile_kwargs=None
    ):  # fmt: skip
        self.cut, self._shapes, self.parts = cut, shapes, factors
        self.layout = Layout(
            np.concatenate([[0], np.cumsum([f.inputs.size for f in factors])]).astype(np.int64),
            np.concatenate([[0], np.cumsum([len(f.outputs) for f in factors])]).astype(np.int64),
            np.array([cut.added[f.box] for f in factors], dtype=bool),
        )
        first = np.concatenate([[0], np.cumsum(counts(shapes))])
        self.order = np.concatenate([first[f.box] + f.outputs for f in factors]).astype(np.int64)
        self.movable = cut.coordinates.movable
        self.units = np.ones(len(self.movable))
        self.factors = [f.name for f in factors]
        given = self._like_what_is_given()
        inputs, outputs = cut.coordinates.places(lambda moved: [cut.graphs_of_inputs(moved, factors)])
        self._places, places = compile_for_numba(inputs, outputs, given[:2], compile_kwargs)
        inputs, outputs = self._graph_of_known()
        self._known, known = compile_for_numba(inputs, outputs, given, compile_kwargs)
        self._compiled: Any = (places, known)

    def _like_what_is_given(self):
        """Zeros in the shapes of what ``known`` is given; the first two are what ``places`` is given."""
        d, n_w, n_o = len(self.movable), self.layout.inputs[-1], self.layout.outputs[-1]
        return [np.zeros(shape) for shape in (d, d, n_w, n_o, (n_o, self.layout.widest), n_w)]

    def __getstate__(self):
        return {**self.__dict__, "_compiled": ()}  # addresses are this process's own

    def __setstate__(self, state):
        self.__dict__.update(state)
        given = self._like_what_is_given()
        self._compiled = callable_from_numba(self._places, given[:2]), callable_from_numba(self._known, given)

    def places(self, u: np.ndarray, centring: np.ndarray) -> tuple[np.ndarray, ...]:
        """(w, x, v, mu, log sigma) at ``u``: inputs, the model's coordinates, the non-centred ones, the priors'."""
        return tuple(self._places(u, centring))

    def known(self, u, centring, w, outputs, jacobian, slope) -> tuple[float, np.ndarray, np.ndarray]:
        """Log density of u, and its derivatives with respect to u and o, for o = outputs + jacobian (w(u) - w).

        Parameters
        ----------
        u, centring : ndarray of shape (d,)
        w : ndarray of shape (n_w,)
            The inputs at ``u``.
        outputs : ndarray of shape (n_o,)
        jacobian : ndarray of shape (n_o, widest)
            Each output's derivatives with respect to its own factor's inputs, padded.
        slope : ndarray of shape (n_w,)
            Subtracted from the derivative with respect to w.
        """
        value, by_u, by_o = self._known(u, centring, w, outputs, jacobian, slope)
        return float(value), by_u, by_o

    def compiled(self) -> tuple | None:
        """(places, known, what each is given beside: shared values), for compiled code; None where that cannot be."""
        if None in self._compiled:
            return None
        (places, of_places), (known, of_known) = self._compiled
        return places, known, (of_places(), of_known())

    def _graph_of_known(self):
        cut, layout = self.cut, self.layout
        u, centring, w0, o0, slope = (pt.vector(name, dtype="float64") for name in ("u", "centring", "w", "o", "slope"))
        jacobian = pt.matrix("jacobian", dtype="float64")
        moved = cut.coordinates.move(u, centring)
        way = cut.graphs_of_inputs(moved, self.parts) - w0
        o = o0 + (jacobian * way[layout.columns.ravel()].reshape(layout.columns.shape)).sum(axis=1)
        places = self._places_of_outputs()
        pieces = {v: self._piece(o, places, [v])[0] for v in places}
        groups = in_groups(list(cut.terms.values()), places, lambda boxes: self._piece(o, places, boxes))
        terms = clone_replace([graph.sum() for _, graph in groups], {**pieces, **moved.values}, rebuild_strict=False)
        added = pt.constant(layout.is_added.astype(float))
        total = summed([*terms, *moved.terms, (added * o).sum(), -(slope * way).sum()])
        gradients = pytensor.grad(total, [u, o0], disconnected_inputs="ignore")
        return [u, centring, w0, o0, jacobian, slope], [total, *gradients]

    def _places_of_outputs(self) -> dict:
        """Of each black box's outputs: where they are in o, their shape, and whether they are only added up."""
        cut, flat = self.cut, [tuple(shape) for shapes in self._shapes for shape in shapes]
        where = np.split(np.argsort(self.order), np.cumsum([math.prod(shape) for shape in flat])[:-1])
        outputs = [(v, added) for box, added in zip(cut.boxes, cut.added, strict=True) for v in box.outputs]
        return {v: (i, shape, added) for (v, added), i, shape in zip(outputs, where, flat, strict=True)}

    def _piece(self, o, places, variables):
        """What stands in the graph for some black boxes' outputs, one after another: zeros where they are added up."""
        index, shapes, added = zip(*(places[v] for v in variables), strict=True)
        if len(set(shapes)) > 1 or len(set(added)) > 1:
            raise ValueError("black boxes that are not alike")
        shape = (len(variables), *shapes[0])
        piece = pt.zeros(shape) if added[0] else o[consecutive(np.concatenate(index))].reshape(shape)
        return piece.astype(variables[0].dtype)


def without_copies(terms: list[Variable]) -> list[Variable]:
    """The same graphs with one call of each black box: PyMC copies what several factors share."""
    graph = FunctionGraph(outputs=terms, clone=False)
    MergeOptimizer().rewrite(graph)
    return list(graph.outputs)


def summed(terms: list[Variable]) -> Variable:
    """Of any number of scalars.

    NumPy's functions, and so PyTensor's ``Add`` in Python, have 32 operands at most, the result among them; a sum of
    scalars is rewritten to that.
    """
    return pt.add(*terms) if len(terms) < 32 else pt.dot(pt.stack(terms), np.ones(len(terms)))


def counts(shapes: list[list[tuple[int, ...]]]) -> list[int]:
    """Elements of each black box's outputs."""
    return [int(sum(np.prod(s, dtype=int) for s in row)) for row in shapes]


def whole_graph(cut: Cut):
    """(v, log density, the black boxes' outputs): the model as it is, in the non-centred coordinates v."""
    v = pt.vector("v", dtype="float64")
    moved = cut.coordinates.move(v)
    outputs = [o for box in cut.boxes for o in box.outputs]
    replaced = clone_replace([*cut.terms.values(), *outputs], moved.values, rebuild_strict=False)
    return v, summed([*replaced[: len(cut.terms)], *moved.terms]), replaced[len(cut.terms) :]
