"""Where the log density was evaluated, why and when."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.plots import panels
from pymc_kameleon.plots.names import Layout, choose, is_idata, labels_of, layout_of, model_of, places_of
from pymc_kameleon.plots.panels import Cloud
from pymc_kameleon.samplers import screened
from pymc_kameleon.samplers.kamiltonian.values import state as values_state
from pymc_kameleon.steps.pooled_trace import OURS, group, record_of

BY = ("move", "round", "chain")
# Kinds of moves, by what their names begin with; what is left is "other".
KINDS = {
    "start": ("start",),
    "climb to the posterior": ("arrival", "search", "climb", "explore"),
    "random walk": ("walk", "short", "long", "differential", "ray", "global", "coordinate", "local"),
    "surrogate": ("surrogate", "hamiltonian", "screened", "jump"),
    "to teach or check the surrogate": (
        "companion",
        "design",
        "elsewhere",
        "probe",
        "audit",
        "look",
        "between",
        "refresh",
        "renewal",
        "swap",
    ),
}
OTHER = "other"
OPEN = ("o", "^", "s", "v")  # markers that are drawn as outlines
REACH = 40.0  # nats: what lies lower is not drawn unless asked for


def evaluations(
    source: Any,
    *,
    coordinates: str | Sequence[str | int] | None = None,
    color: str = "move",
    within: float | None = REACH,
    figsize: tuple[float, float] | None = None,
    ax: Any = None,
    model: pm.Model | None = None,
) -> np.ndarray:
    """Draw where the log density was evaluated, coloured by who asked or when.

    Over pairs of coordinates; over one, against the log density.

    Parameters
    ----------
    source : InferenceData, DataTree, KamiltonianStep or FastKameleonStep
        What ``pk.sample`` returned (its group ``evaluations``). Or a step, or its state, while it tunes in this
        process: the record is dropped when tuning ends.
    coordinates : str or sequence of str or int, optional
        As of :func:`surrogate`: value variables' names, or places. Default: the first five.
    color : {"move", "round", "chain"}
        By the kind of move that asked (default), by the order of evaluation, or by chain.
    within : float, optional
        Only points at most so many nats below the best. Default 40: climbs begin far out; None for all. What is left
        out is counted in the caption.
    figsize : (float, float), optional
        In inches.
    ax : Axes or array of Axes, optional
        Where to draw, one for each panel, (k - 1)^2 for k coordinates. Default: a new figure.
    model : pymc.Model, optional
        Names the coordinates where ``source`` is a mere state.

    Returns
    -------
    ndarray of matplotlib Axes, shape (k - 1, k - 1)
        For k coordinates; (1, 1) for one. Only the lower triangle is used.

    Raises
    ------
    ValueError
        If there is no record of evaluations, and for coordinates or colours that there are not.

    Examples
    --------
    >>> import pymc_kameleon as pk
    >>> idata = pk.sample(max_evaluations=1000)  # doctest: +SKIP
    >>> pk.plots.evaluations(idata, coordinates=["alpha", "gamma"])  # doctest: +SKIP
    """
    if color not in BY:
        raise ValueError(f"color must be one of {BY}, got {color!r}.")
    record, layout, model = _record(source, model)
    labels, chosen = labels_of(layout, model), choose(coordinates, layout, model, "evaluations")
    kept = _kept(record, within)
    labels = [labels[c] for c in chosen]
    columns, k = record.positions[:, chosen], len(chosen)
    if k == 1:
        columns, labels = np.column_stack([columns, record.log_densities]), [*labels, "log density"]
    figure, axes, new = panels.triangle(k, figsize, ax)
    mappable = None
    for row, column, axis in panels.lower(axes):
        mappable = _draw(axis, record, columns[:, [column, row + 1]], kept, color)
        axis.locator_params(nbins=4)
    panels.name_axes(axes, labels)
    if mappable is not None:
        figure.colorbar(mappable, ax=axes, label=color, aspect=30)
    panels.explain(axes, *_describe(record, kept, within), new)
    return axes


def _kept(record: Evaluations, within: float | None) -> np.ndarray:
    """Which evaluations are drawn."""
    values = record.log_densities
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError("None of the evaluations has a finite log density.")
    least = -np.inf if within is None else values[finite].max() - within
    return finite & (values >= least)


def _draw(axis: Any, record: Evaluations, x: np.ndarray, kept: np.ndarray, color: str) -> Any:
    """One panel; returns what a colour bar is made of, if there has to be one."""
    if color != "move":
        return axis.scatter(*x[kept].T, c=getattr(record, color)[kept], s=7, cmap="cividis", lw=0)
    for cloud in _clouds(record, x, kept):
        open_marker = {"mfc": "none"} if cloud.marker in OPEN else {}
        axis.plot(
            *cloud.positions.T, cloud.marker, color=cloud.colour, label=cloud.label, ms=3.2, mew=0.7, alpha=0.75,
            **open_marker,
        )  # fmt: skip
    return None


def _describe(record: Evaluations, kept: np.ndarray, within: float | None) -> tuple[str, str]:
    left = int(np.sum(~kept))
    title = f"{record.size} evaluations of the log density"
    if not left:
        return title, ""
    below = "not finite" if within is None else f"more than {within:g} nats below the best, or not finite"
    return title, f"{left} are not drawn: {below}."


def _clouds(record: Evaluations, columns: np.ndarray, kept: np.ndarray) -> list[Cloud]:
    """Points by kind of move, the most frequent first, so that the rare ones lie on top."""
    kinds = np.array([kind_of(move) for move in record.move])
    clouds = [
        Cloud(name, columns[kept & (kinds == name)], colour, marker)
        for name, colour, marker in zip([*KINDS, OTHER], panels.COLOURS, panels.MARKERS, strict=False)
    ]
    return sorted((c for c in clouds if len(c.positions)), key=lambda c: -len(c.positions))


def kind_of(move: str) -> str:
    """What a move's name, as in the record, is called in the legend."""
    return next((kind for kind, begins in KINDS.items() if str(move).startswith(begins)), OTHER)


def _record(source: Any, model: pm.Model | None) -> tuple[Evaluations, Layout, pm.Model | None]:
    """(evaluations, layout, model)."""
    found = group(source, "evaluations")
    if found is not None:
        names = [str(n) for n in found.data_vars if n not in OURS]
        layout = places_of({name: found[name].shape[1:] for name in names})
        return record_of(found, names), layout, model_of(None, model)
    state = getattr(source, "algorithm_state", source)
    if isinstance(state, (values_state.State, screened.State)) and state.learning is not None:
        record = state.learning.evaluated
        model = model_of(source, model)
        return record, layout_of(source, record.positions.shape[1], model), model
    why = f"{type(source).__name__} has none"
    if is_idata(source):
        why = "pm.sample returns none"
    elif isinstance(state, (values_state.State, screened.State)):
        why = "tuning has ended, when a step drops its own"
    raise ValueError(
        f"There is no record of evaluations: {why}. pk.sample returns one, in the group evaluations; a step with a "
        "surrogate has one while it tunes in this process."
    )
