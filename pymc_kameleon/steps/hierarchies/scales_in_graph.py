"""What the graph says of a model's scales, so that no surrogate has to learn them from values.

Looked for are normal and lognormal priors and data whose location is linear in the unknowns and whose scale is the
exponential of one of them, as log-transformed standard deviations, variances and precisions are; and the steps of
Gaussian random walks, which are normal given where the walk was before. The question is put to the compiled graph: what
is linear is linear at draws of the prior. With a scale goes its own prior, if that is one of ``OF_SCALES``. Whatever
the answer, a surrogate only proposes.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import LogTransform
from pytensor.compile.mode import Mode
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_kameleon.steps.factors.structure import LONGEST
from pymc_kameleon.steps.hierarchies.coordinates import FAMILIES, Coordinates
from pymc_kameleon.steps.hierarchies.reparametrized_density import depends_on_others, movable_coordinates
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.noise.noisy_factors import names
from pymc_kameleon.steps.prior_scale import look_at_prior
from pymc_kameleon.steps.pytensor_internals import compile_strictly
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from pymc_kameleon.surrogates.values.regression import affordable

_log = logging.getLogger("pymc.kameleon")
OF_SCALES = ("HalfNormalRV", "ExponentialRV", "GammaRV", "InvGammaRV")
LINEAR, ROUNDING, DRAWS = 1e-6, 1e-13, 10  # of a sd, how far what is linear may be off; relative; of the prior


def known_scales(model: pm.Model, variables: list, point: dict, density: LogDensity) -> tuple[KnownScale, ...]:
    """The scales of normal priors, walks and data, in the coordinates of ``density``, where it is learned from values.

    Those are the model's own, or :class:`.AsIfCentred`.
    """
    coordinates = _coordinates(model, variables, point, by_hand=density.entered)
    if not affordable(coordinates.dim):
        return ()
    walks, data = _walks(model, variables), _data(model, variables)
    if not (coordinates.priors or walks or data):
        return ()
    normal = np.zeros(coordinates.dim, dtype=bool)
    for v, where, shape in coordinates.layout:
        if v in walks:  # steps, each by where it ends
            normal[where] = (np.arange(where.stop - where.start) % shape[-1]) > 0
        elif v in coordinates.priors:
            normal[where] = coordinates.priors[v].log_density is FAMILIES["NormalRV"]
    groups: dict = {}
    try:
        at = _locations_and_scales(coordinates, normal, walks, data)
        values = np.concatenate([np.zeros(coordinates.dim), *(values.ravel() for *_, values in data.values())])
        taken = _add(groups, values, at, _points(model, variables, point, density))
    except Exception as error:  # what a surrogate could have known is learned
        _log.info("What the model says of its scales could not be looked at (%s: %s).", type(error).__name__, error)
        return ()
    ends = np.cumsum([coordinates.dim, *(values.size for *_, values in data.values())])
    said = [v for v, where, _ in coordinates.layout if taken[where].any()]
    said += [rv for rv, (first, last) in zip(data, pairwise(ends), strict=True) if taken[first:last].any()]
    with suppress(Exception):  # a user's graph may say what a scale's prior is
        said += _add_their_own(groups, model, coordinates.layout)
    if groups:
        _log.info("Taken from the model, not learned: the densities of %s.", names(said))
    return tuple(_known(j, slope, rows) for (j, slope), rows in groups.items())


def _coordinates(model, variables, point, *, by_hand):
    """With the priors that are centred, and if ``by_hand`` those that are not: what a density as if centred has moved.

    At lambda = 1 the first are where the model has them, moved or not.
    """
    found = movable_coordinates(model, variables, point) or Coordinates(model, variables, point, noncentred=False)
    moved = movable_coordinates(model, variables, point, of_all=False) if by_hand else None
    apart = {v for v, prior in found.priors.items() if not prior.own}
    if moved is not None and apart != set(moved.priors):
        return moved
    for variable in apart if moved is None else ():
        del found.priors[variable]
    return found


def _points(model, variables, point, density):
    """Where to ask, (n, d): the initial point, then draws of the prior, or about it where that cannot be drawn from."""
    initial, rng = density.ravel(point), np.random.default_rng(0)
    draws = look_at_prior(model, variables, point).draws[:DRAWS]
    draws = np.where(np.isfinite(draws), draws, initial + rng.standard_normal(draws.shape))
    points = np.array([density.enter(x) for x in (initial, *draws)])
    return points[np.isfinite(points).all(axis=1)]


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
    found, unknowns, size = {}, set(model.value_vars), 0
    for rv in model.observed_RVs:
        kind, values = type(rv.owner.op).__name__, model.rvs_to_values[rv]
        if kind not in ("NormalRV", "LogNormalRV"):
            continue
        given = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
        if unknowns.isdisjoint(ancestors(given[1:])) or any(_may_be_expensive(v) for v in ancestors(given)):
            continue
        if depends_on_others(model, variables, given[0], given):
            continue
        with np.errstate(all="ignore"):
            numbers = np.asarray(compile_strictly([], values)(), dtype=float)
            numbers = np.log(numbers) if kind == "LogNormalRV" else numbers
        size += numbers.size
        if size <= LONGEST and np.isfinite(numbers).all():
            found[rv] = (*given, numbers)
    return found


def _may_be_expensive(variable):
    """Whether an evaluation may take as long as one of the log density: loops, and what somebody has written."""
    op = variable.owner and variable.owner.op
    return op is not None and (
        (isinstance(op, HasInnerGraph) and not isinstance(op, Elemwise))
        or not type(op).__module__.startswith(("pytensor.", "pymc."))
        or type(op).__module__.startswith("pytensor.link.jax.")  # what somebody has written for JAX
    )


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

    # as it is written: rewritten, forty sums are one of forty arguments, and NumPy takes 32
    as_written = Mode(linker="py", optimizer=None)
    places = compile_strictly(*coordinates.places(more), mode=as_written, on_unused_input="ignore")

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


def _add(groups: dict, values: np.ndarray, at: Callable, points: np.ndarray) -> np.ndarray:
    """Add to ``groups`` those of n normals that are known, coordinates and then data; which of them, (n,).

    ``values`` (n,) are those of data, 0 for coordinates; locations and log scales are ``at`` a point (2 n,), and asked
    at ``points``. What is known of a scale is by its variable and slope: rows of A and c.
    """
    n, d, here = len(values), points.shape[1], points[0]
    at_here, steps = at(here), np.maximum(np.abs(points - here).max(axis=0), 1.0)
    with np.errstate(all="ignore"):
        rises = np.stack([at(x) - at_here for x in here + np.diag(steps)], axis=1)
        rounding = ROUNDING * (np.abs(at_here) + np.abs(rises).max(axis=1))
        slopes = np.where(np.abs(rises) < rounding[:, None], 0.0, rises) / steps
        at_zero = at_here - slopes @ here
        linear = np.isfinite(slopes).all(axis=1)
        for x in (*points, *(here + np.random.default_rng(0).standard_normal((3, d)))):
            there, size = at(x), np.abs(at_zero) + np.abs(slopes) @ np.abs(x)
            # in units of sigma, for locations
            allowed = LINEAR * np.concatenate([np.exp(np.minimum(there[n:], 0.0)), np.ones(n)]) + ROUNDING * size
            linear &= np.abs(there - at_zero - slopes @ x) <= allowed
    location, by = slopes[:n], slopes[n:]
    known = linear[:n] & linear[n:] & (np.count_nonzero(by, axis=1) == 1)
    known[:d] &= (np.diag(location) == 0.0) & (np.diag(by) == 0.0)
    for i in np.flatnonzero(known):
        j, row = int(np.flatnonzero(by[i])[0]), np.append(-location[i], values[i] - at_zero[i])
        if i < d:
            row[i] += 1.0
        groups.setdefault((j, round(float(by[i, j]), 9)), []).append(np.exp(-at_zero[n + i]) * row)
    return known


def _of_a_scale(kind: str, scale: np.ndarray) -> tuple[float, np.ndarray]:
    """(beta, c) of a prior that adds -exp(-2 beta x) c^2 / 2, and what is linear, in the logarithm x of an unknown."""
    if kind == "HalfNormalRV":
        return -1.0, 1.0 / scale
    if kind == "InvGammaRV":
        return 0.5, np.sqrt(2.0 * scale)
    return -0.5, np.sqrt(2.0 / scale)


def _add_their_own(groups: dict, model, layout) -> list:
    """Add the priors of the scales that are known, where they have no unknown parents, and return whose they are.

    Without them a normal hierarchy's quadratic is right but for these, and scales are looked for among hundreds of
    columns: of 40 groups' means 7 effective draws per 1000 evaluations.
    """
    known, unknowns, said = {j for j, _ in groups}, set(model.value_vars), []
    for v, where, shape in layout:
        rv = model.values_to_rvs[v]
        kind, transform = type(rv.owner.op).__name__, model.rvs_to_transforms.get(rv)
        if kind not in OF_SCALES or type(transform) is not LogTransform:
            continue
        given = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
        if not unknowns.isdisjoint(ancestors(given)):
            continue
        with np.errstate(all="ignore"):
            slope, offsets = _of_a_scale(kind, np.asarray(compile_strictly([], given[-1])(), dtype=float))
        for j, c in zip(range(where.start, where.stop), np.broadcast_to(offsets, shape).ravel(), strict=True):
            if j in known and np.isfinite(c):
                width = len(next(iter(groups.values()))[0])
                groups.setdefault((j, slope), []).append(np.append(np.zeros(width - 1), c))
                said += [rv] * (rv not in said)
    return said
