"""How large each coordinate may be, and where chains set out, from draws of the prior: no likelihood is evaluated."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.exceptions import NotConstantValueError
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.transforms import CircularTransform, IntervalTransform, LogOddsTransform, SimplexTransform
from pymc.pytensorf import constant_fold
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.arrival.phase import REACH
from pymc_kameleon.samplers.arrival.state import LONG, default_budget
from pymc_kameleon.samplers.life import LOOKS, Life
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.steps.factors.black_boxes import differentiable

DRAWS = 100
BESIDE, ELSEWHERE = 10, 40  # tries where the initial point has no density: PyMC jitters ten times for NUTS


class Prior(NamedTuple):
    """What draws of the prior say of the unconstrained coordinates of value variables."""

    scale: np.ndarray  # (d,), half the interquartile range
    draws: np.ndarray  # (DRAWS, d), NaN in the coordinates of a variable that cannot be drawn


def look_at_prior(model: pm.Model, variables: list, point: dict[str, np.ndarray]) -> Prior:
    """Draw from the prior.

    The scale of a coordinate is half the interquartile range of its draws; 1 (that of a transformed positive variable,
    roughly) for a variable whose prior cannot be drawn from, or has no spread; for such a variable without a transform
    its distance from 0, if that is larger.
    """
    draws = _draws(model)
    scales, columns = [], []
    for variable in variables:
        here = np.abs(np.asarray(point[variable.name], dtype=float)).ravel()
        transformed = model.rvs_to_transforms.get(model.values_to_rvs[variable]) is not None
        columns.append(draws.get(variable.name, np.full((DRAWS, here.size), np.nan)))
        scales.append(
            half_interquartile_range(columns[-1], np.ones_like(here) if transformed else np.maximum(here, 1.0))
        )
    return Prior(np.concatenate(scales), np.concatenate(columns, axis=1))


def half_interquartile_range(draws: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Of ``draws`` (n, d); ``otherwise`` (d,) where they have none."""
    with np.errstate(all="ignore"):
        spread = 0.5 * np.subtract(*np.quantile(draws, [0.75, 0.25], axis=0))
    return np.where(np.isfinite(spread) & (spread > 0.0), spread, otherwise)


def jitter(scale: np.ndarray) -> np.ndarray:
    """Half the width of the box around the initial point that chains start in: PyMC's 1, less where the prior is
    narrower, and a thousandth of the prior's scale where that is more, which is units rather than ignorance.
    """
    return np.maximum(np.minimum(scale, 1.0), scale / 1e3)


def units(scale: np.ndarray) -> np.ndarray:
    """How long steps may be before anything is known: 1, more where a prior's ``scale`` is far more than ignorance.

    A background of 4900 with a prior's sd of 5000: in steps of 1 three chains of four had not come there after 500.
    """
    return np.maximum(1.0, scale / 100.0)


def drawn(
    rng: np.random.Generator, prior: Prior, here: np.ndarray, scale: np.ndarray, n: int, width: Any = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """(``n`` draws of the prior, a box of ``width`` jitters): from the box around ``here`` (d,) what has no draws."""
    draws = rng.choice(prior.draws, n, replace=False)
    box = width * jitter(scale) * rng.uniform(-1.0, 1.0, draws.shape)
    return np.where(np.isfinite(draws), draws, finite_or_zero(here) + box), box


def elsewhere(
    rng: np.random.Generator, prior: Prior, here: np.ndarray, scale: np.ndarray, sizes: list[int], n: int
) -> np.ndarray:
    """Points to try where there is no density at ``here`` (d,), of variables of ``sizes``.

    ``n`` draws of the prior, then as many again, in which the elements of every variable are in order, up or down: of
    five that have to be, one draw in 120 is. What has no draws is ever farther from ``here``.
    """
    rows, _ = drawn(rng, prior, here, scale, n, np.linspace(2.0, 10.0, n)[:, None])
    other = rows.copy()
    for part in np.split(np.arange(len(here)), np.cumsum(sizes)[:-1]):
        other[0::2, part] = np.sort(other[0::2, part], axis=1)
        other[1::2, part] = -np.sort(-other[1::2, part], axis=1)
    return np.concatenate([rows, other])


class Starts:
    """Where the chains of a step set out: of the value variables of ``density``, in their order, from ``point``."""

    def __init__(self, model: pm.Model, variables: list, point: dict, density: Any):
        self.model, self.variables, self.point, self.density = model, variables, point, density

    @cached_property
    def prior(self) -> Prior:
        """What its draws say."""
        return look_at_prior(self.model, self.variables, self.point)

    def arrival(
        self, rng: np.random.Generator, x: np.ndarray, value: float, life: Life, tune: int | None, ours: bool = False
    ) -> search.State | None:
        """The arrival's state at a chain's first point ``x``; None where there is nothing to do.

        A chain at the initial point first jumps to an over-dispersed start; one that ``climbs`` then does so, for a
        share of ``tune`` at most. One that ``looks`` climbs from draws of the prior later, also where :meth:`elsewhere`
        has put it (``ours``).
        """
        climbs, looks = life.climbs, life.looks
        density, at_initial = self.density, self._is_initial(x) or (ours and looks and not climbs)
        if not (at_initial or climbs):
            return None
        scale = density.spread(self.prior)
        start, budget, long = None, 1, math.inf
        if at_initial:
            start = x + jitter(scale) * rng.uniform(-1.0, 1.0, len(x))
        if climbs:
            budget = default_budget(len(x))
            if tune is not None:
                budget = max(1, min(budget, int(0.4 * tune)))  # most of tuning is the walk's
            if density.scales:  # of their shape the surrogate knows more than any quadratic will
                long = LONG * max(len(x), 8)
        awaits = looks and not climbs
        far = self.looks(rng, scale) if climbs or awaits else None
        reach = np.where(np.isfinite(self.prior.draws).all(axis=0), REACH, math.inf)  # a flat prior's scale is no scale
        return search.init(
            x, value, scale=scale, budget=budget, start=start, looks=far, long=long, awaits=awaits, reach=reach
        )

    def elsewhere(self, rng: np.random.Generator, x: np.ndarray, evaluate: Callable) -> Point | None:
        """Where a chain begins that is at the initial point ``x``, if there is no density: beside it, or at a draw of
        the prior. Constraints end there (of what begins equal and is to be in order), and functions are undefined.

        None if ``evaluate`` finds none, and if somebody has put the chain there.
        """
        if not self._is_initial(x):
            return None
        scale = self.density.spread(self.prior)
        beside = finite_or_zero(x) + jitter(scale) * rng.uniform(-1.0, 1.0, (BESIDE, len(x)))
        here, sizes = self.density.ravel(self.point), [np.size(self.point[v.name]) for v in self.variables]
        far = elsewhere(rng, self.prior, here, scale, sizes, ELSEWHERE)
        for other in (*beside, *map(self.density.enter, far)):
            if not np.isfinite(other).all():  # where a scale is next to nothing
                continue
            there = evaluate(other, False)
            if math.isfinite(there.log_density):
                return there
        return None

    def _is_initial(self, x):
        density, initial = self.density, self.density.ravel(self.point)
        return np.array_equal(density.enter(initial), x) if density.entered else density.is_at(initial, x)

    def looks(self, rng: np.random.Generator, scale: np.ndarray) -> np.ndarray:
        """Where the second look begins: draws of the prior; around the initial point where it cannot be drawn from.

        Single draws, not the best of many: in a model of dynamics those are the ones that fit a flat line best.
        """
        looks, box = drawn(rng, self.prior, self.density.ravel(self.point), scale, LOOKS)
        if not self.density.entered:
            return looks
        entered = np.array([self.density.enter(x) for x in looks])
        return np.where(np.isfinite(entered), entered, box)


def finite_or_zero(point: np.ndarray) -> np.ndarray:
    """A ``point`` in transformed coordinates, 0 where it is no number.

    PyMC's initial point is NaN of pm.Uniform("x", 50, 100), whose mean overflows small integers; 0 is that mean.
    """
    return np.where(np.isfinite(point), point, 0)


def _draws(model):
    """Prior draws by name of the value variable, each of shape (DRAWS, size); without those that cannot be drawn."""
    boxed = _drawn_by_black_boxes(model)
    proper: list = [rv for rv in model.free_RVs if "Flat" not in type(rv.owner.op).__name__ and rv not in boxed]
    # a number instead, or the starting point asks the black box a hundred times
    numbers = {rv: np.ones(rv.type.shape) for rv in boxed if None not in rv.type.shape}
    if len(numbers) < len(boxed):
        return {}
    # Together, because scales depend on their parents; if something refuses, nothing is known.
    try:
        with model:
            function = make_initial_point_fn(
                model=model, overrides={**dict.fromkeys(proper, "prior"), **numbers}, jitter_rvs=None,
                default_strategy="support_point", return_transformed=True,
            )  # fmt: skip
            points = [function(seed) for seed in range(DRAWS)]
    except Exception:  # a user's distribution may do anything when asked for a draw
        return {}
    names = [model.rvs_to_values[rv].name for rv in proper]
    return {n: np.array([np.asarray(p[n], dtype=float).ravel() for p in points]) for n in names if n in points[0]}


def _drawn_by_black_boxes(model) -> list:
    """The free variables, imputed data for instance, whose prior depends on what a black box returns."""
    free = set(model.free_RVs)

    @cache
    def is_box(node):
        if isinstance(node.op, SymbolicRandomVariable) or any(isinstance(v.type, RandomType) for v in node.inputs):
            return False
        arguments = [v for v in node.inputs if not free.isdisjoint(ancestors([v]))]
        return bool(arguments) and not differentiable(node, arguments)

    return [rv for rv in model.free_RVs if any(is_box(v.owner) for v in ancestors(rv.owner.inputs) if v.owner)]


def angles(model: pm.Model, variables: list, shapes: dict[str, tuple[int, ...]]) -> np.ndarray:
    """Which coordinates of the raveled ``variables`` are angles to PyMC, on the whole line: (k,)."""
    transforms = (model.rvs_to_transforms.get(model.values_to_rvs[v]) for v in variables)
    kinds = [np.full(math.prod(shapes[v.name]), t) for v, t in zip(variables, transforms, strict=True)]
    return np.flatnonzero([isinstance(t, CircularTransform) for t in np.concatenate(kinds)])


def finite_ends(model: pm.Model) -> list[float]:
    """Where the model's variables have to end, as far as these are constants, in order; PyMC's ``Interval`` knows."""
    return sorted({end for rv in model.free_RVs for side in _ends(model, rv) for end in side if math.isfinite(end)})


def bounded_names(model: pm.Model) -> list[str]:
    """The variables that lie between two constants."""
    sides = {rv.name: _ends(model, rv) for rv in model.free_RVs}
    return [name for name, both in sides.items() if all(len(s) and np.isfinite(s).all() for s in both)]


def _ends(model, rv):
    """The lower and the upper ends of a variable's elements, none where they are no constants."""
    transform = model.rvs_to_transforms.get(rv)
    if isinstance(transform, CircularTransform):
        return [-math.pi], [math.pi]
    if isinstance(transform, LogOddsTransform | SimplexTransform):
        return [0.0], [1.0]
    if not isinstance(transform, IntervalTransform):
        return [], []
    return tuple(_constants(end) for end in transform.args_fn(*rv.owner.inputs))


def _constants(end):
    with suppress(NotConstantValueError):
        return [] if end is None else np.ravel(constant_fold([pt.as_tensor(end)])).astype(float).tolist()
    return []
