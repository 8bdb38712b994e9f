"""What is drawn of a learned log density: over which coordinates, how, and how high it is there."""

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.plots import panels, surfaces
from pymc_kameleon.plots.learned import Learned, learned, sampled_here
from pymc_kameleon.plots.names import Layout, choose, labels_of, layout_of, unconstrained
from pymc_kameleon.plots.panels import DRAWS, POINTS, Cloud
from pymc_kameleon.plots.refitted import refitted

EVALUATIONS = 40_000  # of f, all slices together: about a second for the slowest family
MARGINAL_EVALUATIONS = 300_000  # and for marginals, each an average over many
COARSE, FINE = 25, 41  # nodes of a coordinate of a marginal over pairs, for many panels and for one
MOST_AVERAGED = 1024
CURVE = 201  # nodes of a curve

Heights = dict[tuple[int, int], np.ndarray]


class Scene(NamedTuple):
    """What is drawn."""

    learned: Learned
    labels: list[str]  # of all coordinates
    chosen: list[int]  # those drawn
    panels: dict[tuple[int, int], tuple[int, ...]]  # coordinates by row and column
    grids: dict[int, np.ndarray]  # values of those drawn
    clouds: list[Cloud]
    point: np.ndarray  # (d,): where the others are held
    whole: bool  # a panel shows all coordinates that there are
    by_margin: bool  # the others are integrated out instead


def make_scene(step: Any, idata: Any, coordinates: Any, how: tuple[str, Any], model: Any) -> Scene:
    """What :func:`pymc_kameleon.plots.surrogate` draws; ``how``: ``contours`` and ``at``."""
    found, layout = _find(step, idata, model)
    labels, chosen = labels_of(layout, model), choose(coordinates, layout, model, "surrogate")
    point, shown = point_at(how[1], found), surfaces.places(chosen)
    clouds, reached = found.clouds, found.archive
    if idata is not None:
        draws = unconstrained(idata, layout, model, POINTS)
        # What was learned from goes on top: draws where there is nothing else stand out.
        clouds = [Cloud("posterior draws", draws, DRAWS, "."), *clouds]
        reached = np.concatenate([reached, draws])
    whole = len(labels) == min(len(chosen), 2)
    by_margin = not whole and _by_margin(found, point, list(shown.values()), *how)
    if not (whole or by_margin):
        clouds = [*clouds, Cloud("where the others are held", point[None], DRAWS, "+")]
    size = CURVE if len(chosen) == 1 else _nodes(len(shown), by_margin)
    grids = {c: panels.grid(reached[:, c], size) for c in chosen}
    return Scene(found, labels, chosen, shown, grids, clouds, point, whole, by_margin)


def _find(step: Any, idata: Any, model: Any) -> tuple[Learned, Layout]:
    """The surrogate and the names of its coordinates: the step's, or one fitted to what it returned."""
    if idata is None or (step is not None and sampled_here(step)):
        found = learned(step)
        return found, layout_of(step, found.archive.shape[1], model)
    if model is None:
        raise ValueError("idata needs the model, which transforms its draws: give model=.")
    point = model.initial_point()
    layout = layout_of(step, sum(np.size(point[v.name]) for v in model.continuous_value_vars), model)
    return refitted(idata, layout, model), layout


def _by_margin(found: Learned, point: np.ndarray, shown: list[tuple[int, ...]], contours: str, at: Any) -> bool:
    if contours != "auto":
        return contours == "marginal"
    by_default = isinstance(at, str) and at == "median"
    return by_default and surfaces.slices_mislead(found.values, point, found.archive, shown)


def _nodes(pairs: int, by_margin: bool) -> int:
    """Of one coordinate's grid, so that all panels together take a second, or of marginals some seconds."""
    if not by_margin:
        return int(math.sqrt(EVALUATIONS / pairs))
    return max(COARSE, min(FINE, int(math.sqrt(MARGINAL_EVALUATIONS / (128 * pairs)))))


def point_at(at: Any, found: Learned) -> np.ndarray:
    """What the coordinates that a panel does not show are held at, shape (d,)."""
    archive, dim = found.archive, found.archive.shape[1]
    if isinstance(at, str) and at == "median":
        from_median = archive - np.median(archive, axis=0)
        precision = np.linalg.pinv(surfaces.covariance_of(archive), hermitian=True)
        return archive[np.argmin((from_median @ precision * from_median).sum(axis=1))]
    if isinstance(at, str) and at == "current" and found.current is not None:
        return found.current
    with suppress(TypeError, ValueError):
        point = np.asarray(at, dtype=float)
        if point.shape == (dim,) and np.isfinite(point).all():
            return point
    known = "'median'" if found.current is None else "'median', 'current'"
    raise ValueError(f"at must be {known} or an array of {dim} finite numbers, got {at!r}.")


def heights_of(scene: Scene) -> Heights:
    """The surrogate, or its marginal, by the panel's row and column; shape (up, across) of a pair."""
    values, heights = scene.learned.values, {}
    nodes_in_all = sum(math.prod(len(scene.grids[c]) for c in p) for p in scene.panels.values())
    count = min(MOST_AVERAGED, max(32, MARGINAL_EVALUATIONS // nodes_in_all))
    for place, shown in scene.panels.items():
        grids = [scene.grids[c] for c in shown]
        nodes = surfaces.nodes_of(shown, grids)
        if scene.by_margin:
            found = surfaces.marginal(values, scene.learned.archive, shown, nodes, count)
        else:
            found = surfaces.slice_at(values, scene.point, shown, nodes)
        heights[place] = found.reshape([len(g) for g in grids[::-1]])
    return heights


def below_top(heights: Heights, each: bool) -> tuple[Heights, float]:
    """Depth below the top over all panels (a marginal: below its own), masked where the surrogate is not used."""
    top = max(values.max() for values in heights.values())
    if top == -np.inf:
        raise ValueError(
            "The sampler uses the surrogate nowhere on these slices: hold the other coordinates at another point (at=)."
        )
    tops = {place: values.max() if each else top for place, values in heights.items()}
    depths = {p: np.ma.masked_invalid(tops[p] - values) for p, values in heights.items()}
    return depths, float(top)
