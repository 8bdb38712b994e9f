"""The log density of coordinates u in which a hierarchy is easy to move, for steps that need no more than its value.

u = lambda mu + sigma^lambda z for every location-scale prior whose unknown parents the same step samples, see
:mod:`pymc_kameleon.steps.hierarchies.coordinates`; everything else is as the model has it. What is compiled is the
model's own graph with these priors' terms replaced: one evaluation a draw, as
:class:`~pymc_kameleon.steps.log_density.LogDensity` makes.
"""

import logging

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps import pytensor_internals
from pymc_kameleon.steps.factors.black_boxes import has_boxes
from pymc_kameleon.steps.hierarchies.coordinates import Coordinates, find_priors
from pymc_kameleon.steps.log_density import NOWHERE, LogDensity
from pymc_kameleon.steps.noise.noisy_factors import names
from pymc_kameleon.steps.prior_scale import half_interquartile_range, look_at_prior

_log = logging.getLogger("pymc.kameleon")


class ReparametrizedDensity(LogDensity):
    """log p of u, partially centred by lambda; ``coordinates`` have the priors that are moved."""

    reparametrized = entered = True
    of_all = True  # priors, rather than of what is non-centred by hand
    says = "Partially non-centred, as the data say: %s."

    def __init__(self, coordinates, model, initial_point, compile_kwargs=None, own_auxiliary=False):
        self.movable, self._own = coordinates.movable, coordinates.own
        start = self.noncentred
        centring = pytensor.shared(start, name="centring")
        moved, variables = _moved(model, coordinates, centring), [v for v, *_ in coordinates.layout]
        super().__init__(moved, variables, initial_point, compile_kwargs, own_auxiliary)
        self._centring = self._cells_of(centring)
        self._data = [cell for cell in self._data if cell not in self._centring]
        self._share = start
        self._places = pytensor_internals.compile_strictly(
            *coordinates.places(), on_unused_input="ignore", **dict(compile_kwargs or {})
        )
        self._places.trust_input = True

    @property
    def centring(self) -> np.ndarray:
        """Lambda, shape (d,): 1 leaves a coordinate as it is, 0 is non-centred, as all that can be are at first."""
        return self._share.copy()

    @centring.setter
    def centring(self, share: np.ndarray) -> None:
        self._share, self._last = np.array(share, dtype=float), NOWHERE
        for cell in self._centring:
            cell.value = self._share.copy()

    def suits(self, model, variables, point) -> bool:
        """Whether nothing is lost in these coordinates: lambda is chosen so."""
        return True

    def enter(self, x: np.ndarray) -> np.ndarray:
        """The coordinates u of ``x``, raveled from a point."""
        return self.recast(x, self._share, self._own)[0]

    def log_scale(self, u: np.ndarray) -> np.ndarray:
        """Log sigma of the priors that are moved at ``u``, shape (d,); 0 elsewhere."""
        with np.errstate(all="ignore"):
            return np.asarray(self._places(u, self._share)[3])

    @property
    def noncentred(self) -> np.ndarray:
        """The lambda of the non-centred coordinates, in which a chain begins: 0 for all that can be moved."""
        return np.where(self.movable, 0.0, 1.0)

    def recast(self, u: np.ndarray, share: np.ndarray, origin: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """``u`` in the coordinates of another lambda, ``share`` (d,), and what that adds to its log density.

        ``origin`` is the lambda of ``u``, by default ``centring``.
        """
        origin = self._share if origin is None else origin
        with np.errstate(all="ignore"):
            _, v, location, log_scale = self._places(u, origin)
            other = share * location + np.exp(share * log_scale) * v
            change = ((origin - share) * log_scale)[self.movable].sum()  # the Jacobian
        return np.where(self.movable, other, u), float(change)

    def columns(self) -> list[np.ndarray]:
        """The coordinates of each variable; of one with several axes, of each position on the last."""
        widths = [(*place, shape[-1] if len(shape) > 1 else 1) for _, *place, shape, _ in self._layout]
        return [np.arange(first + i, last, n) for first, last, n in widths for i in range(n) if first + i < last]

    def _placed(self, u):
        x, _, _, log_scale = self._places(u, self._share)
        jacobian = float(((self._own - self._share) * log_scale)[self.movable].sum())
        return np.where(self.movable, x, u), jacobian


class AsIfCentred(ReparametrizedDensity):
    """log p of mu + sigma z where somebody has written z: lambda = 1 throughout.

    For surrogates of the log density, which have families for what is centred and take to it whatever the data say.
    """

    reparametrized = False  # there is nothing to choose
    of_all = False
    says = "Sampled as if they were written centred: %s."

    @property
    def noncentred(self) -> np.ndarray:
        """The lambda in which a chain begins, and stays."""
        return np.ones(np.shape(self.movable))

    def suits(self, model, variables, point) -> bool:
        """Whether z can be told from mu + sigma z, in floating point, wherever the prior lets sigma be.

        Where sigma may be 1e-16 mu, all z are one point of u, of infinite density: who has written z had none.
        """
        draws = look_at_prior(model, variables, point).draws
        draws = np.where(np.isfinite(draws), draws, self.ravel(point))  # of a flat prior
        with np.errstate(all="ignore"):
            location, log_scale = np.moveaxis([self._places(x, self._own)[2:] for x in draws], 1, 0)
            # as far below the lowest of a hundred draws as that is below the median
            lowest = 2.0 * log_scale.min(axis=0) - np.median(log_scale, axis=0)
            rounding = np.finfo(float).eps * np.maximum(np.abs(location).max(axis=0), 1.0)
            return bool((lowest > np.log(rounding))[self.movable].all())

    def spread(self, prior) -> np.ndarray:
        """See :meth:`.LogDensity.spread`; of the draws, where they are: mu may be far from 0."""
        entered = np.array([self.enter(x) for x in prior.draws])
        return np.where(self.movable, half_interquartile_range(entered, np.ones(self.dim)), prior.scale)

    def source(self, model):
        """See :meth:`.LogDensity.source`."""
        values = {v.name: v for v in model.value_vars}
        variables = [values[name] for name, *_ in self._layout]
        coordinates = movable_coordinates(model, variables, model.initial_point(), self.of_all)
        return _moved(model, coordinates, pt.constant(self._share))


def _moved(model, coordinates, centring):
    """The model with value variables that stand for u."""
    moved = coordinates.move(pt.concatenate([v.ravel() for v, *_ in coordinates.layout]), centring)
    priors = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] in coordinates.priors]
    # exactness hangs on these terms taking the priors' place, Jacobian and all
    terms = dict(zip(priors, moved.terms, strict=True))
    return pytensor_internals.model_with(model, terms, {v: moved.values[v] for v in coordinates.priors})


def reparametrized_density(
    model: pm.Model, variables: list, point: dict, compile_kwargs=None, own_auxiliary: bool = False,
    kind: type[ReparametrizedDensity] = ReparametrizedDensity,
) -> ReparametrizedDensity | None:  # fmt: skip
    """The log density of u, of a ``kind``; None where there is nothing to move, or digits would be lost."""
    coordinates = movable_coordinates(model, variables, point, kind.of_all)
    if coordinates is None:
        return None
    density = kind(coordinates, model, point, compile_kwargs, own_auxiliary)
    if not density.suits(model, variables, point):
        return None
    _log.info(density.says, names(coordinates.priors))
    return density


def left_centred(model: pm.Model, density: LogDensity | None = None) -> bool:
    """Whether a scale leaves a prior to be non-centred: none where ``density`` has moved them, or knows the scale."""
    if density is not None and density.entered:
        return False
    known = set() if density is None else {density.name_at(scale.variable) for scale in density.scales}
    unknowns = {v for v in model.value_vars if v.name not in known}
    return any(not unknowns.isdisjoint(ancestors([p.scale])) for p in find_priors(model).values())


def depends_on_others(model: pm.Model, variables: list, variable: Variable, given: list) -> bool:
    """Whether ``variable``, or what it is ``given``, is another step's; or that is random, or asks a black box."""
    others = set(model.value_vars) - set(variables)
    theirs = not others.isdisjoint({variable, *ancestors(given)})
    # of what is random u would be another point each time
    return theirs or bool(pytensor_internals.find_rng_nodes(given)) or has_boxes(given, model.value_vars)


def movable_coordinates(model: pm.Model, variables: list, point: dict, of_all: bool = True) -> Coordinates | None:
    """The coordinates, with the priors that are moved: all that can be, or of what is non-centred by hand.

    None where there are none. A prior is moved if its unknown parents are among ``variables``: u would be another point
    whenever another step moved them, and what z is where sigma is small cannot be read off a point. Nor if a black box
    says where it is, which would have to be asked twice a draw, nor below the third level. In single precision nothing
    is, nor where there are more than twenty such variables: a hierarchy is written as arrays.
    """
    moves = [v.dtype == "float64" and pytensor_internals.is_plain(v) for v in variables]
    if pytensor.config.floatX != "float64" or not all(moves):
        return None
    coordinates = Coordinates(model, variables, point)
    levels: dict = {}
    for variable in coordinates.order:
        prior = coordinates.priors.get(variable)
        if prior is None:
            continue
        given = [prior.location, prior.scale, *prior.others, *([] if prior.factor is None else [prior.factor])]
        if not of_all and prior.own:
            del coordinates.priors[variable]
            continue
        before = set(ancestors(given))
        levels[variable] = 1 + max((n for v, n in levels.items() if v in before), default=0)
        # a random walk of scalars has as many levels as steps, and a graph that compiles for minutes
        deep = levels[variable] > 3 or 0 in np.shape(point[variable.name])  # one without elements has nothing to move
        if deep or depends_on_others(model, variables, variable, given):
            del coordinates.priors[variable], levels[variable]
    return coordinates if 0 < len(coordinates.priors) <= 20 else None
