"""What the graph says of a model's scales, so that no surrogate has to learn them from values.

Looked for are normal and lognormal priors and data whose location is linear in the unknowns and whose scale is the
exponential of one of them, as log-transformed standard deviations, variances and precisions are; and the steps of
Gaussian random walks, which are normal given where the walk was before. The question is put to the compiled graph: what
is linear is linear at a few random points. Whatever the answer, a surrogate only proposes.
"""

import logging
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.factors.structure import LONGEST
from pymc_kameleon.steps.hierarchies.coordinates import FAMILIES, Coordinates
from pymc_kameleon.steps.hierarchies.reparametrized_density import depends_on_others, movable_coordinates
from pymc_kameleon.steps.noise.noisy_factors import names
from pymc_kameleon.steps.pytensor_internals import compile_strictly
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from pymc_kameleon.surrogates.values.regression import affordable

_log = logging.getLogger("pymc.kameleon")
LINEAR, ROUNDING = 1e-9, 1e-13  # relative: of what is linear, and of a slope that is none


def known_scales(model: pm.Model, variables: list, point: dict, as_if_centred: bool) -> tuple[KnownScale, ...]:
    """The scales of normal priors, walks and data, in centred coordinates; none where nothing is learned from values.

    ``as_if_centred``: whether those are the coordinates of what is non-centred by hand, too.
    """
    coordinates = movable_coordinates(model, variables, point) or Coordinates(model, variables, point, noncentred=False)
    if not affordable(coordinates.dim):
        return ()
    for variable, prior in list(coordinates.priors.items()):
        if prior.log_density is not FAMILIES["NormalRV"] or not (prior.own or as_if_centred):
            del coordinates.priors[variable]
    walks, data = _walks(model, variables), _data(model, variables)
    if not (coordinates.priors or walks or data):
        return ()
    normal = coordinates.movable
    for v, where, shape in coordinates.layout:
        if v in walks:  # steps, each by where it ends
            normal[where] = (np.arange(where.stop - where.start) % shape[-1]) > 0
    ends = np.cumsum([coordinates.dim, *(values.size for *_, values in data.values())])
    own = np.zeros((ends[-1], coordinates.dim))
    own[: coordinates.dim] = np.diag(normal)
    values = np.concatenate([np.zeros(coordinates.dim), *(values.ravel() for *_, values in data.values())])
    groups: dict = {}
    taken = _add(groups, own, values, _locations_and_scales(coordinates, normal, walks, data), coordinates.dim)
    said = [v for v, where, _ in coordinates.layout if taken[where].any()]
    said += [rv for rv, (first, last) in zip(data, pairwise(ends), strict=True) if taken[first:last].any()]
    if groups:
        _log.info("Taken from the model, not learned: the densities of %s.", names(said))
    return tuple(_known(j, slope, rows) for (j, slope), rows in groups.items())


def _known(variable, slope, rows):
    """One scale; of more rows than A'A has, as many."""
    table, count = np.array(rows), len(rows)
    if count > table.shape[1]:
        table = np.linalg.qr(table, mode="r")
    return KnownScale(variable, slope, table[:, :-1], table[:, -1], count)


def _walks(model, variables):
    """(Mean, scale) of the steps of Gaussian random walks, where all of a variable's are alike, by value variable."""
    found = {}
    for rv in model.free_RVs:
        steps = rv.owner.inputs[1].owner if type(rv.owner.op).__name__ == "RandomWalkRV" else None
        if steps is None or type(steps.op).__name__ != "NormalRV" or model.rvs_to_transforms.get(rv) is not None:
            continue
        parameters = steps.op.dist_params(steps)
        given = model.replace_rvs_by_values([p.squeeze() for p in parameters if all(p.broadcastable)])
        variable = model.rvs_to_values[rv]
        if len(given) == 2 and not depends_on_others(model, variables, variable, given):
            found[variable] = given
    return found


def _data(model, variables):
    """(Location, scale, values) of normal data with an unknown scale, or their logarithms, by random variable."""
    found, unknowns = {}, set(model.value_vars)
    for rv in model.observed_RVs:
        kind, values = type(rv.owner.op).__name__, model.rvs_to_values[rv]
        if kind not in ("NormalRV", "LogNormalRV"):
            continue
        given = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
        # of a loop each evaluation may take as long as one of the log density
        loops = any(type(v.owner.op).__name__ == "Scan" for v in ancestors(given) if v.owner is not None)
        if loops or unknowns.isdisjoint(ancestors(given[1:])) or depends_on_others(model, variables, given[0], given):
            continue
        numbers = np.asarray(compile_strictly([], values)(), dtype=float)
        if numbers.size <= LONGEST:
            found[rv] = (*given, np.log(numbers) if kind == "LogNormalRV" else numbers)
    return found


def _locations_and_scales(coordinates, normal, walks, data) -> Callable:
    """Locations, then log scales, of ``normal`` coordinates and of data, (2 n,), as a function of u."""

    def more(moved):
        of_walks = [
            part for v, where, shape in coordinates.layout if v in walks
            for mean, scale in [clone_replace(walks[v], moved.values, rebuild_strict=False)]
            for part in (mean, pt.log(scale))
        ]  # fmt: skip
        of_data = [
            part.ravel() for location, scale, values in data.values()
            for mean, sd in [clone_replace([location, scale], moved.values, rebuild_strict=False)]
            for part in pt.broadcast_arrays(mean, pt.log(sd), values)[:2]
        ]  # fmt: skip
        return [*of_walks, *of_data]

    places = compile_strictly(*coordinates.places(more), mode="FAST_COMPILE", on_unused_input="ignore")

    def at(u):
        with np.errstate(all="ignore"):
            *others, x, _, location, log_scale = map(np.array, places(u, np.ones(coordinates.dim)))
        of_walks, of_data = iter(others[: 2 * len(walks)]), others[2 * len(walks) :]
        for v, where, shape in coordinates.layout:
            if v in walks:
                mean, log_of_steps = next(of_walks), next(of_walks)
                before = np.roll(x[where].reshape(shape), 1, axis=-1)
                location[where], log_scale[where] = (before + mean).ravel(), log_of_steps
        log_scale = np.where(normal, log_scale, 0.0)
        return np.concatenate([location, *of_data[::2], log_scale, *of_data[1::2]])

    return at


def _add(groups: dict, own: np.ndarray, values: np.ndarray, at: Callable, d: int) -> np.ndarray:
    """Add to ``groups`` those of n normals that are known; which of them, (n,).

    Their values are ``own`` x + ``values``, (n, d) and (n,), their locations and log scales ``at`` a point (2 n,). What
    is known of a scale is by its variable and slope: rows of A and c.
    """
    rng, at_zero, n = np.random.default_rng(0), at(np.zeros(d)), len(values)
    with np.errstate(all="ignore"):
        slopes = np.stack([at(unit) - at_zero for unit in np.eye(d)], axis=1)
        slopes[np.abs(slopes) < ROUNDING * (np.abs(at_zero) + np.abs(slopes).max(axis=1))[:, None]] = 0.0
        linear = np.isfinite(slopes).all(axis=1)
        for u in rng.standard_normal((3, d)):
            expected = at_zero + slopes @ u
            linear &= np.abs(at(u) - expected) < LINEAR * (1.0 + np.abs(expected))
    location, by = slopes[:n], slopes[n:]
    known = linear[:n] & linear[n:] & (np.count_nonzero(by, axis=1) == 1)
    known &= ~((own != 0.0) & ((location != 0.0) | (by != 0.0))).any(axis=1)
    for i in np.flatnonzero(known):
        j = int(np.flatnonzero(by[i])[0])
        row = np.append(own[i] - location[i], values[i] - at_zero[i])
        groups.setdefault((j, round(float(by[i, j]), 9)), []).append(np.exp(-at_zero[n + i]) * row)
    return known
