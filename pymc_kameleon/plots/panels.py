"""Figures, panels, legends and captions that all plots share; colours that the colour-blind tell apart."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import history

# Okabe and Ito's, by what they stand for
LEARNED, ELSE, DRAWS = "#E69F00", "#666666", "#000000"  # orange over blues
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "x", "^", "+", "s", "v", ".")
POINTS = 300  # of each kind drawn
SMALL = 8  # points, of captions and legends


class Cloud(NamedTuple):
    """Points of one kind: ``positions`` (n, d), and how they are drawn; ``log_densities`` (n,) where they are known."""

    label: str
    positions: np.ndarray
    colour: str
    marker: str
    log_densities: np.ndarray | None = None


def pyplot() -> Any:
    """matplotlib.pyplot, or a message that says how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pymc_kameleon.plots needs matplotlib: pip install matplotlib") from error
    return plt


def panels(
    shape: tuple[int, int], size: tuple[float, float], figsize: Any, given: Any, **kwargs: Any
) -> tuple[Any, np.ndarray, bool]:
    """(figure, axes of this shape, whether they are new): those given, or of a new figure, of ``size`` by default."""
    if given is None:
        figsize = size if figsize is None else figsize
        figure, axes = pyplot().subplots(*shape, squeeze=False, layout="constrained", figsize=figsize, **kwargs)
        return figure, axes, True
    pyplot()
    axes = np.array(given, dtype=object)
    if axes.size != shape[0] * shape[1]:
        raise ValueError(f"ax must hold one Axes for each panel, {shape[0]} x {shape[1]}, got {axes.size}.")
    axes = axes.reshape(shape)
    return axes[0, 0].figure, axes, False


def triangle(k: int, figsize: Any, given: Any) -> tuple[Any, np.ndarray, bool]:
    """As :func:`panels`, for all pairs of ``k`` coordinates; of one, a single panel."""
    if k == 1:
        return panels((1, 1), (6.0, 3.6), figsize, given)
    n = k - 1
    return panels((n, n), (2.1 * n + 3.4, 1.9 * n + 2.6), figsize, given, sharex="col", sharey="row")


def lower(axes: np.ndarray) -> Iterator[tuple[int, int, Any]]:
    """Row, column and axes of the panels of the lower triangle; the others are switched off."""
    for (row, column), axis in np.ndenumerate(axes):
        if column > row:
            axis.set_axis_off()
        else:
            yield row, column, axis


def grid(x: np.ndarray, size: int, margin: float = 0.08) -> np.ndarray:
    """Evenly spaced values over a coordinate's points, with a margin in shares of their range."""
    low, high = x.min(), x.max()
    beside = margin * (high - low) if high > low else 1.0
    return np.linspace(low - beside, high + beside, size)


def draw_cloud(axis: Any, cloud: Cloud, i: int, j: int) -> None:
    """Points of two of their coordinates."""
    x = history.thin(cloud.positions, POINTS)
    axis.plot(x[:, i], x[:, j], cloud.marker, color=cloud.colour, label=cloud.label, **look(len(x)))


def look(count: int) -> dict[str, Any]:
    """Of markers: one alone is larger."""
    return {"ms": 9, "mew": 1.5} if count == 1 else {"ms": 3, "mew": 0.5, "alpha": 0.7}


def name_axes(axes: np.ndarray, labels: Sequence[str]) -> None:
    """Labels of the lower triangle of pairs, at its left and bottom."""
    for axis, label in zip(axes[-1], labels, strict=False):
        axis.set_xlabel(label)
    for axis, label in zip(axes[:, 0], labels[1:], strict=True):
        axis.set_ylabel(label)
    axes[0, 0].figure.align_labels()


def explain(axes: np.ndarray, title: str, text: str, new: bool) -> None:
    """A title and a legend above the panels, in as many lines as fit, and below what else the reader has to know.

    Of somebody's own axes: a title and a legend inside the first of them.
    """
    first = axes[0, 0]
    figure, (handles, names) = first.figure, first.get_legend_handles_labels()
    style = {"frameon": False, "markerscale": 1.6, "handletextpad": 0.3, "fontsize": SMALL}
    if not new:
        first.set_title(title, loc="left", fontsize=SMALL + 1)
        if handles:
            first.legend(handles, names, loc="best", **style)
        return
    width = figure.get_figwidth()
    title = textwrap.fill(title, int(11 * width))
    if handles:  # the title is the legend's: a layout keeps one thing above the panels apart from them, not two
        widest = 0.075 * max(len(name) for name in names) + 0.45  # inches of an entry
        columns = max(1, min(len(names), int(width / widest)))
        figure.legend(
            handles, names, loc="outside upper left", ncols=columns, title=title, alignment="left",
            title_fontsize=SMALL + 2, borderpad=0.1, **style,
        )  # fmt: skip
    else:
        figure.suptitle(title, x=0.01, ha="left", fontsize=SMALL + 2)
    if text:
        text = textwrap.fill(text, int(15 * width))
        figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALL, color="0.3")
