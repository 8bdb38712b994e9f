"""Coordinates in which a hierarchy is easy to move: location-scale priors with unknown parents, non-centred.

Where the model says x ~ F(mu, sigma) with F a location-scale family and mu or sigma unknown, a chain moves in

    u = lambda mu + sigma^lambda z,    x = mu + sigma z,    z ~ F(0, 1),

lambda = 1 being the model's own x and lambda = 0 the non-centred z (Papaspiliopoulos et al., 2007). The density of u is

    log F(z; 0, 1) - lambda log sigma,    z = (u - lambda mu) / sigma^lambda,

and *replaces* the prior's term. Exactness hangs on not computing it as log F(x; mu, sigma) + log|dx/du|: with
x = mu + sigma z in floating point, x - mu is 0 as soon as sigma < 1e-16 |mu|, whatever z is. The prior of z would
vanish there and z have infinite volume, into which chains disappear with an acceptance rate of 1.

Whoever has written z ~ F(0, 1) and mu + sigma z has the model's own coordinates at lambda = 0, and the same u
(:mod:`pymc_kameleon.steps.hierarchies.written_apart`).

A multivariate normal with covariance L L' is one of these for each of its coordinates, given those before it:
mu_i + sum_(j < i) L_ij z_j is the location, L_ii the scale. Effects that sum to zero are independent normals in the
coordinates that PyMC gives them.

References
----------
O. Papaspiliopoulos, G. O. Roberts, M. Skoeld (2007). A general framework for the parametrization of hierarchical
models. Statistical Science 22.
M. I. Gorinova, D. Moore, M. D. Hoffman (2020). Automatic reparameterisation of probabilistic programs. ICML.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc import Model
from pymc.distributions.transforms import LogTransform, ZeroSumTransform
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.hierarchies import written_apart
from pymc_kameleon.steps.hierarchies.written_apart import constant


def _normal(z):
    return -0.5 * pt.sqr(z) - 0.5 * math.log(2.0 * math.pi)


def _student(z, nu):
    constant = pt.gammaln(0.5 * (nu + 1.0)) - pt.gammaln(0.5 * nu) - 0.5 * pt.log(math.pi * nu)
    return constant - 0.5 * (nu + 1.0) * pt.log1p(pt.sqr(z) / nu)


# Log densities at location 0 and scale 1, by the random variable's Op, whose last two parameters those are.
FAMILIES: dict[str, Callable] = {
    **dict.fromkeys(("NormalRV", "LogNormalRV", "MvNormalRV", "ZeroSumNormalRV"), _normal),
    "LaplaceRV": lambda z: -pt.abs(z) - math.log(2.0),
    "CauchyRV": lambda z: -pt.log1p(pt.sqr(z)) - math.log(math.pi),
    "LogisticRV": lambda z: -z - 2.0 * pt.softplus(-z),
    "StudentTRV": _student,
}
TRANSFORMS: dict[str, type] = {"LogNormalRV": LogTransform, "ZeroSumNormalRV": ZeroSumTransform}
WIDEST = 12  # of a multivariate normal, whose coordinates are written out one by one


class Prior(NamedTuple):
    """A location-scale prior with unknown parents: graphs in the model's value variables."""

    location: Variable
    scale: Variable
    others: tuple[Variable, ...]
    log_density: Callable  # of z and the others, elementwise
    factor: Variable | None = None  # L of a multivariate normal; its diagonal is the scale
    first: bool = False  # whether that multivariate normal's vectors are along the first axis
    own: float = 1.0  # the model's lambda: 0 where it has z itself, and mu + sigma z elsewhere


class Moved(NamedTuple):
    """The model's variables as functions of u; the vectors have shape (d,)."""

    values: dict  # by value variable
    terms: list[Variable]  # log densities of the variables in ``Coordinates.priors``
    x: Variable  # the model's own coordinates
    v: Variable  # the non-centred ones
    location: Variable  # mu; 0 where there is nothing to move
    log_scale: Variable  # log sigma, likewise


class Coordinates:
    """Both ways between a model's raveled value variables, in the order of ``variables``, and u.

    ``point`` gives shapes. With ``noncentred=False``, u is x.
    """

    def __init__(self, model: Model, variables: list, point: dict, noncentred: bool = True):
        shapes = [np.shape(point[v.name]) for v in variables]
        ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
        self.layout = list(zip(variables, itertools.starmap(slice, itertools.pairwise(ends)), shapes, strict=True))
        self.dim = ends[-1]
        # the variables that are moved; one that is left as the model has it is taken out
        self.priors: dict[Variable, Prior] = find_priors(model) if noncentred else {}
        self.priors |= find_written_apart(model, self.priors) if noncentred else {}
        self.order = _parents_first([model.rvs_to_values[rv] for rv in model.free_RVs], self.priors)
        self._order = sorted(self.layout, key=lambda entry: self.order.index(entry[0]))

    @property
    def depth(self) -> int:
        """Longest chain of coordinates whose priors depend on one another, at most."""
        return 1 + sum(
            1 if self.priors[v].factor is None else shape[-1]
            for v, _, shape in self.layout if v in self.priors
        )  # fmt: skip

    @property
    def movable(self) -> np.ndarray:
        """The coordinates that are moved, bool, shape (d,)."""
        return self._each(lambda v: v in self.priors)

    @property
    def own(self) -> np.ndarray:
        """The lambda at which u is x, shape (d,)."""
        return self._each(lambda v: self.priors[v].own if v in self.priors else 1.0)

    def _each(self, value: Callable) -> np.ndarray:
        return np.repeat([value(v) for v, *_ in self.layout], [w.stop - w.start for _, w, _ in self.layout])

    def unravel(self, x: Variable) -> dict:
        """The value variables as pieces of the vector ``x``."""
        return {v: x[where].reshape(shape).astype(v.dtype) for v, where, shape in self.layout}

    def move(self, u: Variable, centring: Variable | None = None) -> Moved:
        """The model's variables as functions of ``u``; ``centring`` is lambda of shape (d,), 0 if not given."""
        values: dict = {}
        terms = []
        whole: dict = {}
        for variable, where, shape in self._order:
            own = u[where].reshape(shape)
            prior = self.priors.get(variable)
            if prior is None:
                values[variable] = own.astype(variable.dtype)
                whole[variable] = own, own, pt.zeros_like(own), pt.zeros_like(own)
                continue
            share = None if centring is None else centring[where].reshape(shape)
            location, scale, z, *others = _place(prior, values, own, share)
            log_scale = pt.log(scale)
            term = prior.log_density(z, *others)
            if share is not None:
                term = term - share * log_scale
            # where sigma is 0 or no number there is no density, whatever z is
            terms.append(pt.switch(pt.gt(scale, 0.0), term, -np.inf).sum())
            values[variable] = (location + scale * z if prior.own else z).astype(variable.dtype)
            whole[variable] = (values[variable], z, location, log_scale)
        x, v, location, log_scale = (
            pt.concatenate([whole[variable][i].ravel() for variable, *_ in self.layout]) for i in range(4)
        )
        return Moved(values, terms, x, v, location, log_scale)

    def places(self, more: Callable = lambda moved: []) -> tuple[list[Variable], list[Variable]]:
        """Graphs of u and lambda, and of ``more`` of what :meth:`move` makes, and x, v, mu and log sigma."""
        u, centring = pt.vector("u", dtype="float64"), pt.vector("centring", dtype="float64")
        at = self.move(u, centring)
        return [u, centring], [o.astype("float64") for o in (*more(at), at.x, at.v, at.location, at.log_scale)]

    def noncentred(self, x: Variable) -> Variable:
        """The non-centred coordinates v as a graph in the model's own coordinates ``x``."""
        values, v = self.unravel(x), []
        for variable, where, shape in self.layout:
            prior, own = self.priors.get(variable), x[where].reshape(shape)
            if prior is not None and prior.own:
                # lambda = 1, where u is x
                _, _, own, *_ = _place(prior, values, own, pt.ones_like(own))
            v.append(own.ravel())
        return pt.concatenate(v)


def _place(prior: Prior, values: dict, u: Variable, share: Variable | None) -> list[Variable]:
    """Location, scale, z and the prior's other parameters at ``u`` = lambda mu + sigma^lambda z, lambda = ``share``."""
    if prior.first:  # vectors along the last axis, and back
        placed = _place(prior._replace(first=False), values, u.T, None if share is None else share.T)
        return [*(a.T for a in placed[:3]), *placed[3:]]
    matrix = [] if prior.factor is None else [prior.factor]
    location, scale, *others = clone_replace(
        [prior.location, prior.scale, *matrix, *prior.others], values, rebuild_strict=False
    )
    # constants that need no more digits come in single precision, and so would their logarithms
    location, scale = (pt.broadcast_to(a.astype("float64"), u.shape) for a in (location, scale))
    if not prior.own:
        # Exactness hangs here: what is added to z, and what scales it, may be no number where the model does not look
        there = pt.lt(pt.abs(location), np.inf) & pt.gt(scale, 0.0) & pt.lt(scale, np.inf)
        location, scale = pt.switch(there, location, 0.0), pt.switch(there, scale, 1.0)

    def z_of(location, i):
        if share is None:
            return u[i]
        return (u[i] - share[i] * location) * pt.exp(-share[i] * pt.log(scale[i]))

    if not matrix:
        return [location, scale, z_of(location, ...), *others]
    factor, *others = others
    z: list[Variable] = []
    locations: list[Variable] = []
    for i in range(u.type.shape[-1]):
        before = [factor[..., i, j] * z[j] for j in range(i)]
        locations.append(pt.add(location[..., i], *before) if before else location[..., i])
        z.append(z_of(locations[-1], (..., i)))
    return [pt.stack(locations, axis=-1), scale, pt.stack(z, axis=-1), *others]


def find_priors(model: Model) -> dict:
    """The location-scale priors of ``model`` with unknown parents, by value variable."""
    found: dict = {}
    unknowns = set(model.value_vars)
    for rv in model.free_RVs:
        op, transform = rv.owner.op, model.rvs_to_transforms.get(rv)
        kind = type(op).__name__
        if not _has_usual_transform(kind, transform):
            continue
        if kind == "MvNormalRV" and not 0 < (rv.type.shape[-1] or 0) <= WIDEST:
            continue
        prior = _prior(kind, model.replace_rvs_by_values(list(op.dist_params(rv.owner))))
        if not unknowns.isdisjoint(ancestors([prior.location, prior.scale])):
            found[model.rvs_to_values[rv]] = prior
    return found


def find_written_apart(model: Model, found: dict) -> dict:
    """Those that somebody has non-centred by hand, by value variable; ``found`` are the others."""
    graph, unknowns = written_apart.Graph(model), set(model.value_vars)
    known = dict(found)
    for rv in model.free_RVs:
        kind, variable = type(rv.owner.op).__name__, model.rvs_to_values[rv]
        # exactness hangs on this: of a lognormal variable, not it but its logarithm is of a location-scale family
        if variable in known or kind in ("MvNormalRV", "LogNormalRV"):
            continue
        if not _has_usual_transform(kind, model.rvs_to_transforms.get(rv)):
            continue
        location, scale, others, *_ = _prior(kind, list(rv.owner.op.dist_params(rv.owner)))
        if (constant(location), constant(scale)) != (0.0, 1.0):
            continue
        use = graph.use(rv)
        if use is None or (use.factor is not None and not 0 < (use.factor.type.shape[-1] or 0) <= WIDEST):
            continue
        matrix = [] if use.factor is None else [use.factor]
        scale, *graphs = model.replace_rvs_by_values([use.scale, *others, *matrix, *use.terms])
        others, graphs = graphs[: len(others)], graphs[len(others) :]
        factor, terms = (graphs[0], graphs[1:]) if matrix else (None, graphs)
        # no variable may depend on itself
        if _depends({*ancestors([scale, *others])}, variable, known):
            continue
        terms = [t for t in terms if not _depends({*ancestors([t])}, variable, known)]
        if not unknowns.isdisjoint(ancestors([scale, *terms])):
            location = pt.add(*terms) if len(terms) > 1 else terms[0] if terms else pt.zeros(())
            known[variable] = Prior(location, scale, tuple(others), FAMILIES[kind], factor, use.first, own=0.0)
    return {v: prior for v, prior in known.items() if v not in found}


def _has_usual_transform(kind: str, transform) -> bool:
    """Whether a variable of a ``kind`` is of a location-scale family, in the coordinates that PyMC gives it."""
    return kind in FAMILIES and isinstance(transform, TRANSFORMS.get(kind, type(None)))


def _depends(before: set, variable: Variable, priors: dict) -> bool:
    """Whether what has ``before`` as its ancestors depends on ``variable`` by way of ``priors``."""
    if variable in before:
        return True
    parents = [v for v in priors if v in before]
    return any(_depends(set(ancestors(_graphs(priors[v]))), variable, priors) for v in parents)


def _graphs(prior: Prior) -> list[Variable]:
    return [a for a in (prior.location, prior.scale, *prior.others, prior.factor) if a is not None]


def _parents_first(variables: list, priors: dict) -> list:
    """``variables``, each after all that the location and scale of its prior depend on; else as they come."""
    order: list = []

    def visit(variable):
        if variable in order:
            return
        if variable in priors:
            before = set(ancestors(_graphs(priors[variable])))
            for parent in variables:
                if parent in before:
                    visit(parent)
        order.append(variable)

    for variable in variables:
        visit(variable)
    return order


def _prior(kind: str, parameters: list[Variable]) -> Prior:
    """The prior of a family, from its random variable's parameters."""
    if kind == "ZeroSumNormalRV":
        return Prior(pt.zeros(()), parameters[0], (), FAMILIES[kind])
    *others, location, scale = parameters
    if kind != "MvNormalRV":
        return Prior(location, scale, tuple(others), FAMILIES[kind])
    factor = pt.linalg.cholesky(scale.astype("float64"), on_error="nan")
    return Prior(location, pt.diagonal(factor, axis1=-2, axis2=-1), (), FAMILIES[kind], factor)
