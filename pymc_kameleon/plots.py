"""What a step has learned, drawn.

:func:`surrogate` shows the log density that a :class:`~pymc_kameleon.KamiltonianStep` has learned, over pairs of
coordinates, with the points that it learned from. Traces, densities and pairs of draws are ArviZ's.
"""

import difflib
import logging
import math
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import Mode

from pymc_kameleon import factor_plots
from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.kamiltonian.factors import state as factors_state
from pymc_kameleon.samplers.kamiltonian.scores import sampler as kamiltonian
from pymc_kameleon.samplers.kamiltonian.values import state as kamiltonian_state
from pymc_kameleon.steps import KamiltonianStep, KernelStep
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate
from pymc_kameleon.surrogates.values import features as value_features
from pymc_kameleon.surrogates.values.regression import affordable

_log = logging.getLogger("pymc.kameleon")

LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0)  # nats; 2 is where a Gaussian is two standard deviations out
MOST = 5  # coordinates drawn unless some are named
EVALUATIONS = 40_000  # of f, all panels together: about a second for the slowest family
POINTS = 300  # of each kind drawn
MARGIN = 0.08  # around the points
LEARNED, ELSE, DRAWS = "#E69F00", "#666666", "#000000"  # Okabe & Ito's orange over blues


class Cloud(NamedTuple):
    """Points of one kind: ``positions`` (n, d), and how they are drawn."""

    label: str
    positions: np.ndarray
    colour: str
    marker: str


NOT_HERE = (
    "This step has not sampled in this process, so there is no surrogate to draw. With cores > 1 pm.sample gives each "
    "chain a copy of the step in a process of its own, and what the copies learn ends with them: use "
    "pm.sample(..., cores=1); one chain is enough for this plot."
)


class Learned(NamedTuple):
    """What is drawn of a state.

    Attributes
    ----------
    about : str
        The family of surrogates, and how good its fit is.
    values : callable
        f at the rows of x (n, d), shape (n,); -inf where the sampler does not use f.
    archive : ndarray of shape (n, d)
        Past states of the chain.
    clouds : list of Cloud
    current : ndarray of shape (d,) or None
        The chain's point, where the state knows it.
    """

    about: str
    values: Callable[[np.ndarray], np.ndarray]
    archive: np.ndarray
    clouds: list[Cloud]
    current: np.ndarray | None


def surrogate(
    step,
    *,
    idata=None,
    coordinates: Sequence[str | int] | None = None,
    at: str | np.ndarray = "median",
    levels: Sequence[float] = LEVELS,
    figsize: tuple[float, float] | None = None,
    model: pm.Model | None = None,
) -> np.ndarray:
    """Draw the learned log density f over pairs of coordinates, with the points that it was learned from.

    Contours are of f, in nats below its top over all panels. With more than two unknowns they are slices: the
    coordinates that a panel does not show are held at one point, which is marked with a cross and written below. Points
    are projected, and where coordinates are correlated they spread further than the slices.

    A step that learns the model's black boxes one by one is drawn by black box, the hardest four first: what it returns
    along each of its own inputs, a row for each black box and a panel for each input.

    Parameters
    ----------
    step : KamiltonianStep, its ``sampling_state``, or the algorithm's ``State``
        One that has sampled in this process: ``pm.sample(step=step, cores=1)``. If it sampled several chains, one after
        the other, this is the last one's surrogate.
    idata : InferenceData or DataTree, optional
        Adds up to 300 draws of its posterior, all chains, in the coordinates in which the step works.
    coordinates : sequence of str or int, optional
        Two or more: names as on the axes ("sigma_log__[0]"), variables ("sigma_log__", or "sigma") for all their
        coordinates, or places in the vector. Default: the first five. Of black boxes learned one by one: names as in
        the statistic ``worst_factor``, or numbers; ``idata``, ``at`` and ``levels`` are not used then.
    at : {"median", "current"} or ndarray of shape (d,)
        What the other coordinates are held at. "median" (default): the past state of the chain that is nearest to the
        coordinates' medians, measured by its covariance; the medians themselves need not be near the posterior, think
        of a ring. "current": the chain's point.
    levels : sequence of float
        Of the contours, in nats, increasing. Default 0.5, 1, 2, 4, 8; beyond the last nothing is filled.
    figsize : (float, float), optional
        In inches.
    model : pymc.Model, optional
        Names the coordinates where ``step`` is a mere state. Default: the model on the context stack, if there is one.

    Returns
    -------
    ndarray of matplotlib Axes, shape (k - 1, k - 1)
        For k coordinates. Only the lower triangle is used; the figure is ``axes[0, 0].figure``. Of black boxes: shape
        (boxes, most inputs).

    Raises
    ------
    ValueError
        If there is no surrogate yet, or not in this process, and for coordinates, ``at`` or ``levels`` that cannot be.
    TypeError
        If ``step`` is none of the above.

    Notes
    -----
    While tuning, the points are all those where the log density was evaluated, by whether the chain stood there; when
    tuning ends they are dropped, and up to 500 of the chain's past states, which its moves use, remain. With
    ``surrogate="lite"`` and ``"finite"`` they are the states that f was fitted to. After tuning, f with
    ``surrogate="values"`` is used only in a region somewhat larger than where the chain has been; outside of it
    nothing is drawn.

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
    if isinstance(step, KamiltonianStep) and step.by_factors:
        return _black_boxes(step, coordinates, figsize)
    learned = _learned(step)
    dim = learned.archive.shape[1]
    model = _model(step, model)
    layout = _layout(step, dim, model)
    labels = [label for name, places in layout.items() for label in _labels(name, places)]
    chosen = _choose(coordinates, labels, layout, model)
    point = _point(at, learned)
    clouds, reached = learned.clouds, learned.archive
    if idata is not None:
        draws = _unconstrained(idata, layout, model)
        # What was learned from goes on top: draws where there is nothing else stand out.
        clouds = [Cloud("posterior draws", draws, DRAWS, "."), *clouds]
        reached = np.concatenate([reached, draws])
    size = int(math.sqrt(EVALUATIONS / math.comb(len(chosen), 2)))
    grids = [_grid(reached[:, c], size) for c in chosen]
    depths = _below_top(_slices(learned.values, point, chosen, grids))
    clouds = [c._replace(positions=c.positions[:, chosen]) for c in clouds]
    if dim > 2:
        clouds.append(Cloud("where the others are held", point[None, chosen], DRAWS, "+"))
    axes = _draw(depths, grids, edges, clouds, figsize)
    _name_axes(axes, [labels[c] for c in chosen])
    _caption(axes, _describe(learned, dict(zip(labels, point, strict=True))))
    return axes


# --- what there is to draw ------------------------------------------------------------------------


def _black_boxes(step, chosen, figsize) -> np.ndarray:
    """The emulators of a step that learns them one by one."""
    state = step.algorithm_state
    if state is None:
        raise ValueError(NOT_HERE)
    if state.surface is None:
        raise ValueError(
            "No black box has been learned yet: tuning ended, or was looked at, too early."
        )
    return factor_plots.draw(state, step.density.parts_known, chosen, figsize)


def _learned(step) -> Learned:
    """Find the surrogate and its points in a step, a sampling state or an algorithm's state."""
    if str(getattr(step, "method", "")).startswith(KamiltonianStep.name):
        if step.algorithm_state is None:
            raise ValueError(NOT_HERE)
        learned = _learned(step.algorithm_state)
        return learned if step.position is None else learned._replace(current=step.position)
    if isinstance(step, kamiltonian_state.State):
        return _learned_from_values(step)
    if isinstance(step, kamiltonian.State):
        return _learned_by_score_matching(step)
    if isinstance(step, factors_state.State):
        raise ValueError(
            "This is the state of a step that has learned the model's black boxes one by one: give the step itself, "
            "which knows what they depend on."
        )
    raise TypeError(
        "Only KamiltonianStep learns the log density: give such a step, its sampling_state or its algorithm_state "
        f"(of a CompoundStep one of its methods), not {type(step).__name__}."
    )


def _learned_from_values(state: kamiltonian_state.State) -> Learned:
    learning, dynamics = state.learning, state.dynamics
    if dynamics is None:
        evaluations = state.quality.evaluations if learning is None else learning.evaluated.size
        dim = len(state.walk.mean)
        why = f"it takes {state.options.first_fit} evaluations and there were {evaluations}; tune longer"
        if not affordable(dim):
            why = f"{dim} dimensions are too many for one, and the step is adaptive Metropolis"
        raise ValueError(f"No surrogate has been fitted: {why}.")
    centre = dynamics.surrogate.centre

    def values(x):
        f = value_features.values(dynamics.surrogate, np.ascontiguousarray(x))
        square = np.square((x - centre) @ dynamics.inverse.T).sum(axis=1)
        inside = (square < dynamics.radius**2) & (f < dynamics.ceiling)  # False for NaN
        return np.where(inside, f, -np.inf)

    to_x = dynamics.surrogate.scale[:, None] * dynamics.metric
    archive = centre + dynamics.archive @ to_x.T
    clouds = [Cloud("past states of the chain", archive, LEARNED, ".")]
    if learning is not None:
        clouds = _evaluated(learning, state.walk.history)
    about = f"{state.fit.family}, held-out error {state.fit.error:.2g} nats"
    return Learned(about, values, archive, clouds, centre + to_x @ state.current.z)


def _evaluated(learning: kamiltonian_state.Learning, past: history.History) -> list[Cloud]:
    """Every point evaluated so far, by whether the chain was ever there."""
    positions = learning.evaluated.positions
    states = {row.tobytes() for row in past.buffer[: past.size]}
    visited = np.array([row.tobytes() in states for row in positions])
    return [
        Cloud("evaluated only", positions[~visited], ELSE, "x"),
        Cloud("visited by the chain", positions[visited], LEARNED, "."),
    ]


def _learned_by_score_matching(state: kamiltonian.State) -> Learned:
    fitted = state.fitted
    if fitted is None:
        raise ValueError(
            f"No surrogate has been fitted in {state.walk.iteration} tuning draws; tune longer."
        )

    def values(x):
        z = np.ascontiguousarray(np.linalg.solve(state.factor, (x - state.centre).T).T)
        return np.array([score_matching.value(row, fitted.surrogate) for row in z])

    archive = state.centre + fitted.states @ state.factor.T
    family = "lite" if isinstance(fitted.surrogate, LiteSurrogate) else "finite"
    about = f"{family}, by score matching to {len(archive)} states"
    clouds = [Cloud("states that f was fitted to", archive, LEARNED, ".")]
    return Learned(about, values, archive, clouds, None)


def _unconstrained(idata, layout: dict[str, np.ndarray], model: pm.Model | None) -> np.ndarray:
    """Posterior draws as the step sees them, transformed; at most ``POINTS``, shape (n, d)."""
    if model is None:
        raise ValueError("idata needs the model, which transforms its draws: give model=.")
    posterior = idata["posterior"]
    missing = [rv.name for rv in model.free_RVs if rv.name not in posterior]
    if missing:
        raise ValueError(f"idata's posterior has no draws of {', '.join(missing)}.")
    rvs = {value.name: model.values_to_rvs[value] for value in model.value_vars}
    outputs = []
    for name in layout:
        rv = rvs[name]
        transform = model.rvs_to_transforms[rv]  # its bounds may be other random variables
        outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    # A few draws of a few elementwise functions: not worth a compiler.
    function = pytensor.function(
        model.free_RVs, outputs, mode=Mode("py", None), on_unused_input="ignore"
    )
    draws = []
    for rv in model.free_RVs:
        values = posterior[rv.name].transpose("chain", "draw", ...).values
        values = values.reshape(-1, *values.shape[2:])
        draws.append(history.thin(values, POINTS).astype(rv.dtype))
    rows = [np.concatenate([np.ravel(v) for v in function(*d)]) for d in zip(*draws, strict=True)]
    return np.array(rows, dtype=float)


# --- names and places -----------------------------------------------------------------------------


def _model(step, model: pm.Model | None) -> pm.Model | None:
    if model is None and isinstance(step, KernelStep):
        return step._model
    with suppress(TypeError):  # no model on the stack
        return pm.modelcontext(model)
    return None


def _layout(step, dim: int, model: pm.Model | None) -> dict[str, np.ndarray]:
    """Places in the vector by name of the value variable, each in the variable's shape."""
    if isinstance(step, KernelStep):
        return {n: p.astype(int) for n, p in step._density.update({}, np.arange(dim)).items()}
    names = getattr(step, "var_names", None)  # of a sampling state
    if model is not None:
        point = model.initial_point()
        names = [v.name for v in model.continuous_value_vars] if names is None else names
        shapes = {name: np.shape(point[name]) for name in names if name in point}
    elif names is not None and len(names) == dim:
        shapes = dict.fromkeys(names, ())
    else:
        shapes = {names[0] if names is not None and len(names) == 1 else "x": (dim,)}
    ends = np.cumsum([0, *(math.prod(shape) for shape in shapes.values())])
    if ends[-1] != dim:
        raise ValueError(
            f"The state has {dim} coordinates, the model has {ends[-1]} of them: give its own (model=)."
        )
    places = np.split(np.arange(dim), ends[1:-1])
    return {n: p.reshape(shapes[n]) for n, p in zip(shapes, places, strict=True)}


def _labels(name: str, places: np.ndarray) -> list[str]:
    return [
        f"{name}[{', '.join(map(str, index))}]" if index else name
        for index in np.ndindex(places.shape)
    ]


def _choose(coordinates, labels: list[str], layout, model: pm.Model | None) -> list[int]:
    """Places of the coordinates to draw."""
    if coordinates is None:
        if len(labels) > MOST:
            _log.info(
                f"plots.surrogate draws the first {MOST} of {len(labels)} coordinates; choose with coordinates=."
            )
        coordinates = range(min(MOST, len(labels)))
    known: dict[str | int, list[int]] = {label: [i] for i, label in enumerate(labels)}
    known |= {name: list(places.ravel()) for name, places in layout.items()}
    for value in model.value_vars if model is not None else ():
        if value.name in layout:
            known.setdefault(model.values_to_rvs[value].name, known[value.name])
    known |= {i: [i] for i in range(len(labels))}
    if isinstance(coordinates, str):
        coordinates = [coordinates]
    chosen: list[int] = []
    for c in coordinates:
        if c not in known:
            close = difflib.get_close_matches(str(c), [k for k in known if isinstance(k, str)], 1)
            raise ValueError(
                f"There is no coordinate {c!r}{f' (did you mean {close[0]!r}?)' if close else ''}; there are "
                f"{', '.join(labels)}."
            )
        chosen += [i for i in known[c] if i not in chosen]
    if len(chosen) < 2:
        raise ValueError(
            f"A pair needs two coordinates, got {[labels[i] for i in chosen]} of {labels}."
        )
    return chosen


def _point(at, learned: Learned) -> np.ndarray:
    """What the coordinates that a panel does not show are held at, shape (d,)."""
    archive, dim = learned.archive, learned.archive.shape[1]
    if isinstance(at, str) and at == "median":
        from_median = archive - np.median(archive, axis=0)
        precision = np.linalg.pinv(np.cov(archive.T), hermitian=True)
        return archive[np.argmin((from_median @ precision * from_median).sum(axis=1))]
    if isinstance(at, str) and at == "current" and learned.current is not None:
        return learned.current
    with suppress(TypeError, ValueError):
        point = np.asarray(at, dtype=float)
        if point.shape == (dim,) and np.isfinite(point).all():
            return point
    known = "'median'" if learned.current is None else "'median', 'current'"
    raise ValueError(f"at must be {known} or an array of {dim} finite numbers, got {at!r}.")


# --- slices ---------------------------------------------------------------------------------------


def _grid(x: np.ndarray, size: int) -> np.ndarray:
    low, high = x.min(), x.max()
    margin = MARGIN * (high - low) if high > low else 1.0
    return np.linspace(low - margin, high + margin, size)


def _slices(values, point, chosen: list[int], grids) -> dict[tuple[int, int], np.ndarray]:
    """The surrogate over each pair of coordinates, by the panel's row and column."""
    return {
        (j - 1, i): _slice(values, point, (chosen[i], grids[i]), (chosen[j], grids[j]))
        for j in range(1, len(chosen))
        for i in range(j)
    }


def _slice(values, point, across, up) -> np.ndarray:
    """The surrogate over two coordinates (place, grid), the others held at ``point``; shape (up, across)."""
    (i, horizontal), (j, vertical) = across, up
    x = np.tile(point, (len(vertical) * len(horizontal), 1))
    x[:, i] = np.tile(horizontal, len(vertical))
    x[:, j] = np.repeat(vertical, len(horizontal))
    return values(x).reshape(len(vertical), len(horizontal))


def _below_top(panels: dict) -> dict:
    """How far the surrogate is below its top over all panels, masked where it is not used."""
    top = max(values.max() for values in panels.values())
    if top == -np.inf:
        raise ValueError(
            "The sampler uses the surrogate nowhere on these slices: hold the other coordinates at another point (at=)."
        )
    return {place: np.ma.masked_invalid(top - values) for place, values in panels.items()}


# --- drawing --------------------------------------------------------------------------------------


def _draw(depths, grids, edges, clouds: list[Cloud], figsize) -> np.ndarray:
    """Contours and points in the lower triangle, a colour bar, a legend where no panel is."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import BoundaryNorm, ListedColormap
    except ImportError as error:
        raise ImportError("pymc_kameleon.plots needs matplotlib: pip install matplotlib") from error
    n = len(grids) - 1
    figure, axes = plt.subplots(
        n, n, squeeze=False, sharex="col", sharey="row", layout="constrained",
        figsize=(2.1 * n + 3.4, 1.9 * n + 2.6) if figsize is None else figsize,
    )  # fmt: skip
    shades = plt.colormaps["Blues"](np.linspace(0.9, 0.12, len(edges)))  # darkest at the top
    colours, bounds = ListedColormap(shades), [0.0, *edges]
    norm = BoundaryNorm(bounds, len(edges))
    for (row, column), axis in np.ndenumerate(axes):
        if column > row:
            axis.set_axis_off()
            continue
        place = grids[column], grids[row + 1], depths[row, column]
        axis.contourf(*place, levels=bounds, cmap=colours, norm=norm)
        crossed = [e for e in edges if place[-1].min() < e < place[-1].max()]
        if crossed:  # matplotlib before 3.10 draws a line of its own choice where there is none
            axis.contour(*place, levels=crossed, colors="#08306B", linewidths=0.5)
        for cloud in clouds:
            _draw_cloud(axis, cloud, column, row + 1)
        axis.set(xlim=grids[column][[0, -1]], ylim=grids[row + 1][[0, -1]])
        axis.locator_params(nbins=4)
    bar = figure.colorbar(
        ScalarMappable(norm, colours), ax=axes, ticks=bounds, format="%g", aspect=30, label="nats below the top of f"
    )  # fmt: skip
    bar.ax.invert_yaxis()
    style = {"frameon": False, "markerscale": 1.6, "handletextpad": 0.3}
    handles, names = axes[0, 0].get_legend_handles_labels()
    if n == 1:
        figure.legend(handles, names, loc="outside upper left", ncols=3, **style)
    else:
        axes[0, -1].legend(handles, names, loc="upper right", **style)
    return axes


def _draw_cloud(axis, cloud: Cloud, i: int, j: int) -> None:
    x = history.thin(cloud.positions, POINTS)
    look = {"ms": 3, "mew": 0.5, "alpha": 0.7}
    if len(x) == 1:
        look = {"ms": 9, "mew": 1.5}
    axis.plot(x[:, i], x[:, j], cloud.marker, color=cloud.colour, label=cloud.label, **look)


def _name_axes(axes: np.ndarray, labels: list[str]) -> None:
    for axis, label in zip(axes[-1], labels, strict=False):
        axis.set_xlabel(label)
    for axis, label in zip(axes[:, 0], labels[1:], strict=True):
        axis.set_ylabel(label)
    axes[0, 0].figure.align_labels()


def _describe(learned: Learned, point: dict[str, float]) -> str:
    if len(point) == 2:
        return f"f: {learned.about}."
    held = ", ".join(f"{name}\u00a0=\u00a0{value:.3g}" for name, value in point.items())
    return (
        f"f: {learned.about}. Contours are slices of f through +, where the coordinates that a panel does not show are "
        f"held: {held}. Points are projected."
    )


def _caption(axes: np.ndarray, text: str) -> None:
    figure = axes[0, 0].figure
    text = textwrap.fill(text, int(15 * figure.get_figwidth()))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color="0.3")
