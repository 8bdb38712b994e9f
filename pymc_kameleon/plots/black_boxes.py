"""What a step has learned of a model's black boxes, drawn: each over its own inputs."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_kameleon.plots import panels as shared
from pymc_kameleon.plots.names import labels_of
from pymc_kameleon.samplers.kamiltonian.factors.state import State
from pymc_kameleon.steps.factors.split import Split
from pymc_kameleon.surrogates.factors.emulator import emulate
from pymc_kameleon.surrogates.factors.regression import bent

MOST = 4  # factors that are drawn if none are named
LINES = 12  # outputs of one factor that are drawn, at most
GRID = 101
SEEN, TRUSTED = "0.35", "0.92"


class Panels(NamedTuple):
    """What is drawn of one factor."""

    name: str
    error: float  # held out, in nats
    labels: list[str]  # of its inputs
    grids: np.ndarray  # (inputs, GRID)
    curves: np.ndarray  # (inputs, GRID, outputs): its outputs along each input, the others held at ``point``
    trusted: np.ndarray  # bool, (inputs, GRID)
    point: np.ndarray  # (inputs,)
    visited: np.ndarray  # (n, inputs): where the chain has been
    added: bool  # its outputs are log likelihoods


def draw(
    state: State,
    known: Split,
    model: pm.Model,
    chosen: Sequence[str | int] | None,
    figsize: tuple[float, float] | None,
    ax: Any = None,
) -> np.ndarray:
    """One row a factor, one panel an input; see :func:`pymc_kameleon.plots.surrogate`."""
    names = labels_of({v.name: np.empty(shape) for v, _, shape in known.cut.coordinates.layout}, model)
    rows = [panels(state, known, k, names) for k in choose(state, known, chosen)]
    n = max(len(row.labels) for row in rows)
    size = 2.6 * n + 0.8, 2.2 * len(rows) + 0.7
    _, axes, new = shared.panels((len(rows), n), size, figsize, ax, sharey="row")
    for row, line in zip(rows, axes, strict=True):
        for axis in line[len(row.labels) :]:
            axis.set_visible(False)
        for i, axis in enumerate(line[: len(row.labels)]):
            _draw_panel(axis, row, i)
        what = "log likelihood" if row.added else "outputs"
        line[0].set_ylabel(textwrap.fill(f"{row.name}: {what}", 24), fontsize=shared.SMALL)
        line[0].set_title(f"held-out error {row.error:.2g} nats", loc="left", fontsize="small")
    more = (
        "Along each input, the others where the cross is; ticks: past states of the chain; shaded: where the emulator "
        "is trusted."
    )
    shared.explain(axes, "What was learned of the black boxes, the hardest first", more, new)
    return axes


def choose(state: State, known: Split, chosen: Sequence[str | int] | None) -> list[int]:
    """Places of the factors to draw, by name or number; by default the hardest."""
    if chosen is None:
        return [int(k) for k in np.argsort(-state.fit.errors, kind="stable")[:MOST]]
    chosen = [chosen] if isinstance(chosen, str) else chosen
    names: dict[str | int, int] = {c: k for k, name in enumerate(known.factors) for c in (name, k)}
    if missing := [c for c in chosen if c not in names]:
        raise ValueError(
            f"This step has learned black boxes one by one, and there is no {missing[0]!r} among them; there are "
            f"{', '.join(known.factors)}."
        )
    return [names[c] for c in chosen]


def panels(state: State, known: Split, k: int, names: list[str]) -> Panels:
    """Factor ``k`` along each of its inputs."""
    emulator, layout = state.surface.emulator, known.layout
    inputs, outputs = layout.inputs_of(k), layout.outputs_of(k)
    rows = state.archive if len(state.archive) else state.current.z[None]
    all_inputs = np.array([known.places(u, state.surface.centring)[0] for u in rows])
    visited = all_inputs[:, inputs]
    middle = np.square((visited - np.median(visited, axis=0)) / (visited.std(axis=0) + 1e-300))
    base = all_inputs[np.argmin(middle.sum(axis=1))]
    d = visited.shape[1]
    grids, trusted = np.empty((d, GRID)), np.empty((d, GRID), dtype=bool)
    curves = np.empty((d, GRID, outputs.stop - outputs.start))
    for i in range(d):
        grids[i] = shared.grid(visited[:, i], GRID, margin=0.15)
        for j, value in enumerate(grids[i]):
            w = base.copy()
            w[inputs.start + i] = value
            curves[i, j] = emulate(emulator, w)[0][outputs]
            s = (bent(w[inputs], emulator.knots[inputs]) - emulator.centre[inputs]) / emulator.scale[inputs]
            trusted[i, j] = np.linalg.norm(emulator.whitening[k, :d, :d] @ s) < emulator.radius[k]
    return Panels(
        known.factors[k], float(state.fit.errors[k]), labels(known, k, names), grids, curves, trusted,
        base[inputs], visited, bool(layout.added[k]),
    )  # fmt: skip


def labels(known: Split, k: int, names: list[str]) -> list[str]:
    """Of factor ``k``'s inputs: ``names`` of coordinates, or elements of the black box's arguments."""
    part = known.parts[k]
    if part.inputs.elements is not None:
        name = "log argument" if part.inputs.positive else "argument"
        return [f"{name} {e}" for e in part.inputs.elements]
    return [names[c] for c in part.inputs.coordinates]


def _draw_panel(axis: Any, row: Panels, i: int) -> None:
    grid, trusted = row.grids[i], row.trusted[i]
    axis.set_facecolor("white")
    axis.fill_between(grid, 0.0, 1.0, where=trusted, color=TRUSTED, lw=0.0, transform=axis.get_xaxis_transform())
    shown = np.unique(np.linspace(0, row.curves.shape[2] - 1, LINES).astype(int))
    for j in shown:
        axis.plot(grid, row.curves[i][:, j], lw=1.2)
    here = row.curves[i][np.argmin(np.abs(grid - row.point[i]))][shown]
    axis.plot(np.full(len(shown), row.point[i]), here, "x", color="black", ms=4)
    axis.plot(
        row.visited[:, i], np.full(len(row.visited), 0.02), "|", color=SEEN, ms=5, alpha=0.4,
        transform=axis.get_xaxis_transform(),
    )  # fmt: skip
    axis.set_xlabel(row.labels[i])
