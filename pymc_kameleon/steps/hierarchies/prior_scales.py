"""What the graph says of a hierarchy's scales, so that no surrogate has to learn them from values.

Looked for are normal priors whose location is linear in the unknowns and whose scale is the exponential of one of them,
as log-transformed standard deviations, variances and precisions are; and the steps of Gaussian random walks, which are
normal given where the walk was before. The question is put to the compiled graph: what is linear is linear at a few
random points. Whatever the answer, a surrogate only proposes.
"""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_kameleon.steps.hierarchies.coordinates import FAMILIES, Coordinates
from pymc_kameleon.steps.hierarchies.reparametrized_density import depends_on_others, movable_coordinates
from pymc_kameleon.steps.noise.noisy_factors import names
from pymc_kameleon.steps.pytensor_internals import compile_strictly
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from pymc_kameleon.surrogates.values.regression import affordable

_log = logging.getLogger("pymc.kameleon")
ROUNDING = 1e-9  # relative, of what is linear


def known_scales(model: pm.Model, variables: list, point: dict, as_if_centred: bool) -> tuple[KnownScale, ...]:
    """The scales of normal priors and walks, in centred coordinates; none where nothing is learned from values.

    ``as_if_centred``: whether those are the coordinates of what is non-centred by hand, too.
    """
    coordinates = movable_coordinates(model, variables, point) or Coordinates(model, variables, point, noncentred=False)
    if not affordable(coordinates.dim):
        return ()
    for variable, prior in list(coordinates.priors.items()):
        if prior.log_density is not FAMILIES["NormalRV"] or not (prior.own or as_if_centred):
            del coordinates.priors[variable]
    walks = _walks(model, variables)
    if not (coordinates.priors or walks):
        return ()
    d, normal = coordinates.dim, coordinates.movable
    for v, where, shape in coordinates.layout:
        if v in walks:  # steps, each by where it ends
            normal[where] = (np.arange(where.stop - where.start) % shape[-1]) > 0
    at_zero, slopes, linear = _linear_parts(coordinates, walks)
    groups: dict = {}
    taken = np.zeros(d, dtype=bool)
    for i in np.flatnonzero(normal & linear[:d] & linear[d:]):
        location, log_scale = slopes[i], slopes[d + i]
        by = np.flatnonzero(log_scale)
        if len(by) != 1 or location[i] or log_scale[i]:
            continue
        taken[i] = True
        precision = np.exp(-at_zero[d + i])
        row = precision * (np.eye(d)[i] - location)
        groups.setdefault((int(by[0]), float(log_scale[by[0]])), []).append((row, -precision * at_zero[i]))
    if groups:
        _log.info(
            "Taken from the model, not learned: the priors of %s.",
            names(v for v, where, _ in coordinates.layout if taken[where].any()),
        )
    return tuple(
        KnownScale(j, slope, *(np.array(part) for part in zip(*rows, strict=True)))
        for (j, slope), rows in groups.items()
    )


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


def _linear_parts(coordinates, walks):
    """Locations, then log scales, at 0, (2 d,); their slopes, (2 d, d); and which of them are linear, (2 d,)."""
    d, rng = coordinates.dim, np.random.default_rng(0)

    def of_steps(moved):
        return [
            part for v, where, shape in coordinates.layout if v in walks
            for mean, scale in [clone_replace(walks[v], moved.values, rebuild_strict=False)]
            for part in (mean, pt.log(scale))
        ]  # fmt: skip

    places = compile_strictly(*coordinates.places(of_steps), mode="FAST_COMPILE", on_unused_input="ignore")

    def at(u):
        with np.errstate(all="ignore"):
            *of_walks, x, _, location, log_scale = map(np.array, places(u, np.ones(d)))
        of_each = iter(of_walks)
        for v, where, shape in coordinates.layout:
            if v in walks:
                mean, log_of_steps = next(of_each), next(of_each)
                before = np.roll(x[where].reshape(shape), 1, axis=-1)
                location[where], log_scale[where] = (before + mean).ravel(), log_of_steps
        return np.concatenate([location, log_scale])

    at_zero = at(np.zeros(d))
    slopes = np.stack([at(unit) - at_zero for unit in np.eye(d)], axis=1)
    slopes = np.where(np.abs(slopes) < ROUNDING, 0.0, np.round(slopes, 12))
    linear = np.isfinite(slopes).all(axis=1)
    for u in rng.standard_normal((3, d)):
        expected = at_zero + slopes @ u
        with np.errstate(all="ignore"):
            linear &= np.abs(at(u) - expected) < ROUNDING * (1.0 + np.abs(expected))
    return at_zero, slopes, linear
