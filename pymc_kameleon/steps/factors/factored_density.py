"""The log density of a model that is cut at its black boxes."""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt

from pymc_kameleon.steps import pytensor_internals
from pymc_kameleon.steps.batched import vectorized
from pymc_kameleon.steps.factors import probe
from pymc_kameleon.steps.factors.black_boxes import Unsplittable
from pymc_kameleon.steps.factors.split import Cut, Split, counts, whole_graph
from pymc_kameleon.steps.log_density import LogDensity, compile_log_density, unaltered
from pymc_kameleon.steps.noise.hidden_generators import hidden_generators
from pymc_kameleon.steps.prior_scale import look_at_prior, units


class Alone:
    """A function of v, and what the black boxes returned, ``outputs`` (n_o,), in ``order``: what a worker needs."""

    def __init__(self, function, order: np.ndarray):
        self.function, self.order = function, order
        self.outputs, self.tried = np.zeros(len(order)), False

    def __call__(self, x: np.ndarray) -> float:
        """The log density."""
        value, *outputs = self.function(x) if self.tried else unaltered(self.function, x)
        self.tried = self.tried or bool(x.all())  # p *= 2.0 alters no zero
        self.outputs = in_order(np.concatenate([np.ravel(o) for o in outputs]).astype(float), self.order)
        return pytensor_internals.number(value)


def in_order(outputs: np.ndarray, order: np.ndarray) -> np.ndarray:
    """What black boxes have returned, (..., n_o), by the factors that are learned of it.

    Raises
    ------
    ValueError
        If it is longer or shorter than when the step was made.
    """
    if outputs.shape[-1] != len(order):
        raise ValueError(
            f"the model's black boxes returned {outputs.shape[-1]} numbers, and {len(order)} when the step was made. "
            "Where a solver gives up it may return fewer (solve_ivp does): let the black box return as many NaN. After "
            "pm.set_data with data of another length a new step is needed."
        )
    return outputs[..., order]


class FactoredDensity(LogDensity):
    """log p of the non-centred coordinates v, and what every black box has returned.

    It is compiled from the model's own graph, black boxes and all.

    Parameters
    ----------
    cut : Cut
    model : pymc.Model
        Whose prior says how far a coordinate may be moved.
    initial_point : dict of name to ndarray
    compile_kwargs : dict, optional
        See :class:`LogDensity`.

    Attributes
    ----------
    parts_known : Split
        What is known of it, with gradients.
    probes : int
        Evaluations that it took to find what depends on what.
    alone : Alone
        What evaluates it, and no more.

    Raises
    ------
    Unsplittable
        If the log density is noisy, the shape of a black box's output cannot be found, or an output depends on too
        many unknowns.
    """

    def __init__(self, cut: Cut, model, initial_point, compile_kwargs=None):
        self.compile_kwargs = compile_kwargs
        self._lay_out([v for v, *_ in cut.coordinates.layout], initial_point)
        v, total, outputs = whole_graph(cut)
        if pytensor_internals.find_rng_nodes([total]):
            raise Unsplittable("the log density is noisy")
        self.suspects = hidden_generators([total])
        self._function = compile_log_density([v], [total, *outputs], compile_kwargs)
        self._function.trust_input = True
        self._given = self._data = pytensor_internals.cells(self._function)
        shapes = self._shapes(cut)
        self.probes = 0
        factors = self._factors(cut, model, initial_point, counts(shapes))
        self.parts_known: Split = Split(cut, shapes, factors, compile_kwargs)
        self.movable, self._zero = self.parts_known.movable, np.zeros(self.dim)
        prior = look_at_prior(model, [v for v, *_ in cut.coordinates.layout], initial_point)
        self.parts_known.units = units(self.spread(prior))
        self._own = cut.coordinates.own
        self.alone = Alone(self._function, self.parts_known.order)

    def __call__(self, x: np.ndarray) -> float:
        """The log density at ``x`` = v, of shape (d,); NaN and infinities as they come."""
        return self.alone(x)

    @property
    def outputs(self):
        """What the black boxes returned at the last evaluation, (n_o,)."""
        return self.alone.outputs

    def by_outputs(self, x: np.ndarray, outputs: np.ndarray) -> float:
        """The log density at ``x`` = v where the black boxes return ``outputs``: calls none of them."""
        layout, w = self.parts_known.layout, self.parts_known.places(x, self._zero)[0]
        flat, still = np.zeros((len(outputs), layout.widest)), np.zeros(len(w))
        return self.parts_known.known(x, self._zero, w, outputs, flat, still)[0]

    def batched(self) -> Callable[[np.ndarray], np.ndarray]:
        """The same at many points (n, d) -> (n, 1 + n_o): log densities, and what the black boxes return."""
        v, total, outputs = whole_graph(self.parts_known.cut)
        function, order = vectorized(v, [total, *outputs], self.compile_kwargs), self.parts_known.order

        def evaluate(x):
            values, *found = function(x)
            found = np.concatenate([o.reshape(len(x), -1) for o in found], axis=1)
            return np.column_stack([values, in_order(found, order)])

        return evaluate

    def enter(self, x: np.ndarray) -> np.ndarray:
        """The non-centred coordinates of ``x``, raveled from a point."""
        # the priors' locations and scales depend on other coordinates, which lie before: one of them is right each time
        v = x.copy()
        for _ in range(self.parts_known.cut.coordinates.depth):
            _, _, _, location, log_scale = self.parts_known.places(v, self._zero)
            with np.errstate(all="ignore"):
                v = np.where(self._own == 0.0, x, (x - location) * np.exp(-log_scale))
        return v

    def _placed(self, u):
        _, x, _, _, log_scale = self.parts_known.places(u, self._zero)
        return x, float((self._own * log_scale).sum())

    def _shapes(self, cut):
        """Of all outputs: as declared, or as they come at the centre of the priors that are moved."""
        declared = [[v.type.shape for v in box.outputs] for box in cut.boxes]
        if all(None not in shape for row in declared for shape in row):
            return declared
        _, *outputs = self._tried(np.where(cut.coordinates.movable, 0.0, cut.start))
        shapes = iter([np.shape(o) for o in outputs])
        return [[next(shapes) for _ in box.outputs] for box in cut.boxes]

    def _factors(self, cut, model, initial_point, sizes):
        """A factor a black box; or several, where some of its outputs depend on some of its inputs."""
        factors = [
            probe.Factor(k, inputs, np.arange(size), box.factor)
            for k, (box, inputs, size) in enumerate(zip(cut.boxes, cut.inputs, sizes, strict=True))
        ]
        asked = [f.box for f in factors if f.may_be_divided]
        if asked:
            coordinates = np.unique(np.concatenate([cut.inputs[k].coordinates for k in asked]))
            variables = [v for v, *_ in cut.coordinates.layout]
            scale = np.minimum(look_at_prior(model, variables, initial_point).scale, 1.0)
            depends, self.probes = probe.dependences(self._outputs_at(cut), cut.start, scale, coordinates)
            mine = np.split(depends, np.cumsum(sizes)[:-1], axis=1)
            divided = (probe.divide(f, mine[f.box], cut.reaches[f.box]) if f.box in asked else [f] for f in factors)
            factors = [part for parts in divided for part in parts]
        widest = max(factors, key=lambda f: f.inputs.size)
        if widest.inputs.size > probe.WIDEST:
            raise Unsplittable(f"the black box of {widest.name} has {widest.inputs.size} inputs")
        return factors

    def _outputs_at(self, cut):
        """The black boxes' outputs as a function of the model's own coordinates x."""
        x = pt.vector("x", dtype="float64")
        v_at = pytensor_internals.compile_strictly(
            [x], cut.coordinates.noncentred(x).astype("float64"), mode="FAST_COMPILE"
        )

        def outputs(x):
            with np.errstate(all="ignore"):
                v = np.asarray(v_at(x))
            _, *found = self._tried(v)
            return np.concatenate([np.ravel(o) for o in found]).astype(float)

        return outputs

    def _tried(self, v):
        try:
            return self._function(v)
        except Exception as error:  # a user's black box may raise anything
            raise Unsplittable(f"a black box could not be evaluated ({type(error).__name__})") from error
