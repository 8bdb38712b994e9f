"""What is drawn of a learned log density: over which coordinates, and how high it, or its marginal, is there."""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.plots import panels, surfaces
from pymc_kameleon.plots.learned import Learned, learned, sampled_here
from pymc_kameleon.plots.names import Layout, choose, labels_of, layout_of, unconstrained
from pymc_kameleon.plots.panels import DRAWS, POINTS, Cloud
from pymc_kameleon.plots.refitted import refitted

EVALUATIONS = 300_000  # of f, all panels together: some seconds
COARSE, FINE = 25, 41  # nodes of a coordinate of a marginal over pairs, for many panels and for one
MOST_AVERAGED = 1024
WHOLE, CURVE = 200, 201  # nodes of a coordinate where nothing is integrated out, and of a curve

Heights = dict[tuple[int, int], np.ndarray]


class Scene(NamedTuple):
    """What is drawn."""

    learned: Learned
    labels: list[str]  # of all coordinates
    chosen: list[int]  # those drawn
    panels: dict[tuple[int, int], tuple[int, ...]]  # coordinates by row and column
    grids: dict[int, np.ndarray]  # values of those drawn
    clouds: list[Cloud]
    reached: np.ndarray  # (n, d): past states of the chain, and draws
    whole: bool  # a panel shows all coordinates that there are; otherwise the others are integrated out


def make_scene(step: Any, idata: Any, coordinates: Any, model: Any) -> Scene:
    """What :func:`pymc_kameleon.plots.surrogate` draws."""
    found, layout = _find(step, idata, model)
    labels, chosen = labels_of(layout, model), choose(coordinates, layout, model, "surrogate")
    shown, clouds, reached = surfaces.places(chosen), found.clouds, found.archive
    if idata is not None:
        draws = unconstrained(idata, layout, model, POINTS)
        # What was learned from goes on top: draws where there is nothing else stand out.
        clouds = [Cloud("posterior draws", draws, DRAWS, "."), *clouds]
        reached = np.concatenate([reached, draws])
    whole = len(labels) == min(len(chosen), 2)
    averaged = max(COARSE, min(FINE, int(math.sqrt(EVALUATIONS / (128 * len(shown))))))
    size = CURVE if len(chosen) == 1 else WHOLE if whole else averaged
    grids = {c: panels.grid(reached[:, c], size) for c in chosen}
    return Scene(found, labels, chosen, shown, grids, clouds, reached, whole)


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


def heights_of(scene: Scene) -> Heights:
    """The surrogate, or its marginal, by the panel's row and column; shape (up, across) of a pair."""
    found, heights = scene.learned, {}
    nodes_in_all = sum(math.prod(len(scene.grids[c]) for c in p) for p in scene.panels.values())
    count = min(MOST_AVERAGED, max(32, EVALUATIONS // nodes_in_all))
    for place, shown in scene.panels.items():
        grids = [scene.grids[c] for c in shown]
        nodes = surfaces.nodes_of(shown, grids)
        values = surfaces.marginal(found.values, found.archive, shown, nodes, count)
        if not scene.whole:
            values = np.where(surfaces.near(scene.reached[:, list(shown)], nodes), values, -np.inf)
        heights[place] = values.reshape([len(g) for g in grids[::-1]])
    return heights


def title_of(scene: Scene) -> str:
    """What is drawn, in words."""
    if scene.whole:
        return "The learned log density f"
    if len(scene.labels) - min(len(scene.chosen), 2) > surfaces.MOST_INTEGRATED:
        return "The learned density: the other coordinates at their means, given those shown"
    return "Marginals of the learned density: the other coordinates integrated out"


def below_top(heights: Heights) -> tuple[Heights, float]:
    """Depth below each panel's top, masked where the surrogate is not used; and the highest top."""
    tops = {place: values.max() for place, values in heights.items()}
    top = max(tops.values())
    if top == -np.inf:
        raise ValueError("The sampler uses the surrogate nowhere here: draw other coordinates.")
    return {p: np.ma.masked_invalid(tops[p] - values) for p, values in heights.items()}, float(top)
