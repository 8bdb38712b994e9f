"""The learned log density, drawn over pairs of coordinates or over one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_kameleon.numerics import history
from pymc_kameleon.plots import black_boxes, panels
from pymc_kameleon.plots.learned import NO_BOXES, NOT_HERE, sampled_here
from pymc_kameleon.plots.names import is_idata, model_of
from pymc_kameleon.plots.panels import POINTS
from pymc_kameleon.plots.scene import Heights, Scene, below_top, heights_of, make_scene, title_of

LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0)  # nats; 2 is where a Gaussian is two standard deviations out


def surrogate(
    step: Any = None,
    *,
    idata: Any = None,
    coordinates: str | Sequence[str | int] | None = None,
    levels: Sequence[float] = LEVELS,
    figsize: tuple[float, float] | None = None,
    ax: Any = None,
    model: pm.Model | None = None,
) -> np.ndarray:
    """Draw the learned log density f over pairs of coordinates, or over one, with the points that it was learned from.

    Contours are in nats below the top. With more unknowns than a panel shows they are of the marginal of f, the other
    coordinates integrated out, which is what draws are to be compared with. The title says which. Points are projected.

    A step that learns the model's black boxes one by one is drawn by black box, the hardest four first: what it returns
    along each of its own inputs, a row for each black box and a panel for each input.

    Parameters
    ----------
    step : KamiltonianStep, its ``sampling_state``, the algorithm's ``State``, InferenceData or DataTree
        A step that has sampled in this process, ``pm.sample(step=step, cores=1)``; if it sampled several chains, one
        after the other, this is the last one's surrogate. Or what ``pm.sample`` (with any number of ``cores``) or
        ``pk.sample`` returned: then a surrogate is fitted anew to the draws and their log densities, tuning included
        where it was kept, or to the evaluations, and the caption says so. May be left out where there is ``idata``.
    idata : InferenceData or DataTree, optional
        Adds up to 300 draws of its posterior, all chains, in the coordinates in which the step works. Where the step
        has not sampled in this process, it is what a surrogate is fitted to.
    coordinates : str or sequence of str or int, optional
        Names as on the axes ("sigma_log__[0]"), variables ("sigma_log__", or "sigma") for all their coordinates, or
        places in the vector. One alone is drawn as a curve. Default: the first five. Of black boxes learned one by
        one: names of factors, or numbers as in the statistic ``worst_factor``; ``idata`` and ``levels`` are not used
        then.
    levels : sequence of float
        Of the contours, in nats, increasing. Default 0.5, 1, 2, 4, 8; beyond the last nothing is filled.
    figsize : (float, float), optional
        In inches.
    ax : Axes or array of Axes, optional
        Where to draw, one for each panel, (k - 1)^2 for k coordinates. Default: a new figure.
    model : pymc.Model, optional
        Names the coordinates where ``step`` is a mere state. Default: the model on the context stack, if there is one.

    Returns
    -------
    ndarray of matplotlib Axes, shape (k - 1, k - 1)
        For k coordinates; (1, 1) for one. Only the lower triangle is used; the figure is ``axes[0, 0].figure``. Of
        black boxes: shape (boxes, most inputs).

    Raises
    ------
    ValueError
        If there is no surrogate yet, or not in this process and no idata, and for coordinates, ``levels`` or ``ax``
        that cannot be.
    TypeError
        If ``step`` is none of the above.

    Notes
    -----
    While tuning, the points are all those where the log density was evaluated, by whether the chain stood there; when
    tuning ends they are dropped, and up to 500 of the chain's past states, which its moves use, remain. With
    ``surrogate="lite"`` and ``"finite"`` they are the states that f was fitted to. After tuning, f with
    ``surrogate="values"`` is used only up to twice as far out as the chain has been, ten times where a part of it
    is known and the rest all but exact; outside of that nothing is drawn.

    A marginal is an average over points of a normal distribution fitted to the past states, so it is exact where the
    other coordinates are normal given those shown, and rough where they are strongly curved. Where more than ten are
    left, f is drawn at their means given those shown; farther out than the chain has been nothing is.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     step = pk.KamiltonianStep()
    ...     idata = pm.sample(step=step, cores=1)  # doctest: +SKIP
    >>> pk.plots.surrogate(step, idata=idata)  # doctest: +SKIP
    """
    edges = np.asarray(levels, dtype=float)
    if edges.ndim != 1 or not edges.size or not (np.diff(edges, prepend=0.0) > 0.0).all():
        raise ValueError(f"levels must be positive and increasing, got {levels!r}.")
    here, idata = (None, step) if is_idata(step) else (step, idata)
    if getattr(here, "by_factors", False) and (idata is None or sampled_here(here)):
        return _black_boxes(here, coordinates, figsize, ax)
    scene = make_scene(here, idata, coordinates, model_of(here, model))
    depths, top = below_top(heights_of(scene))
    draw = _draw_curve if len(scene.chosen) == 1 else _draw_pairs
    axes, new = draw(scene, depths, top, edges, figsize, ax)
    panels.explain(axes, *_describe(scene), new)
    return axes


def _black_boxes(step: Any, chosen: Any, figsize: Any, ax: Any) -> np.ndarray:
    """The emulators of a step that learns them one by one."""
    state = step.algorithm_state
    if state is None:
        raise ValueError(NOT_HERE)
    if state.surface is None:
        why = "the step has just begun to tune; look later" if step.tune else "tuning ended too early; tune longer"
        raise ValueError(NO_BOXES.format(why))
    return black_boxes.draw(state, step.density.parts_known, step.model, chosen, figsize, ax)


# --- drawing --------------------------------------------------------------------------------------


def _draw_pairs(
    scene: Scene, depths: Heights, top: float, edges: np.ndarray, figsize: Any, ax: Any
) -> tuple[np.ndarray, bool]:
    """Contours and points in the lower triangle, and a colour bar."""
    figure, axes, new = panels.triangle(len(scene.chosen), figsize, ax)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    shades = panels.pyplot().colormaps["Blues"](np.linspace(0.9, 0.12, len(edges)))  # darkest at the top
    colours, bounds = ListedColormap(shades), [0.0, *edges]
    norm = BoundaryNorm(bounds, len(edges))
    for row, column, axis in panels.lower(axes):
        across, up = scene.panels[row, column]
        place = scene.grids[across], scene.grids[up], depths[row, column]
        axis.contourf(*place, levels=bounds, cmap=colours, norm=norm)
        crossed = [e for e in edges if place[-1].min() < e < place[-1].max()]
        if crossed:  # matplotlib before 3.10 draws a line of its own choice where there is none
            axis.contour(*place, levels=crossed, colors="#08306B", linewidths=0.5)
        for cloud in scene.clouds:
            panels.draw_cloud(axis, cloud, across, up)
        axis.set(xlim=scene.grids[across][[0, -1]], ylim=scene.grids[up][[0, -1]])
        axis.locator_params(nbins=4)
    what = "f" if scene.whole else "what is drawn"
    bar = figure.colorbar(
        ScalarMappable(norm, colours), ax=axes, ticks=bounds, format="%g", aspect=30,
        label=f"nats below the top of {what}",
    )  # fmt: skip
    bar.ax.invert_yaxis()
    panels.name_axes(axes, [scene.labels[c] for c in scene.chosen])
    return axes, new


def _draw_curve(
    scene: Scene, depths: Heights, top: float, edges: np.ndarray, figsize: Any, ax: Any
) -> tuple[np.ndarray, bool]:
    """One coordinate: f below its top, points at their log density where that is known, else as ticks."""
    (c,) = scene.chosen
    _, axes, new = panels.triangle(1, figsize, ax)
    axis, grid, lowest = axes[0, 0], scene.grids[c], 1.15 * edges[-1]
    axis.plot(grid, depths[0, 0], color=panels.COLOURS[0], lw=1.8, label="f")
    for line, cloud in enumerate(scene.clouds):
        x, values = cloud.positions[:, c], cloud.log_densities
        if scene.whole and values is not None:
            rows = history.thin(np.column_stack([x, top - values]), POINTS)
            rows = rows[rows[:, 1] < lowest]
            look = panels.look(len(rows))
            axis.plot(*rows.T, cloud.marker, color=cloud.colour, label=cloud.label, zorder=3, **look)
        else:
            x = history.thin(x[:, None], POINTS)[:, 0]
            axis.plot(
                x, np.full(len(x), 0.03 + 0.05 * line), "|", color=cloud.colour, ms=6, alpha=0.5, label=cloud.label,
                transform=axis.get_xaxis_transform(),
            )  # fmt: skip
    axis.set(xlim=grid[[0, -1]], ylim=(lowest, -0.05 * edges[-1]), xlabel=scene.labels[c])
    axis.set_ylabel(f"nats below the top\nof {'f' if scene.whole else 'its marginal'}")
    return axes, new


def _describe(scene: Scene) -> tuple[str, str]:
    """The title, which says what is drawn, and the caption."""
    return title_of(scene), f"f: {scene.learned.about}."
