"""The covariance of a step's proposals, drawn where the chain may be."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import solve_lower
from pymc_kameleon.plots import panels, surfaces
from pymc_kameleon.plots.names import Layout, choose, is_idata, labels_of, layout_of, model_of, unconstrained
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.moves import local_moment
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.local_moves import LocalMoves
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.schedule import Scheduled
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation

GRID = 121
ROUNDS = 10  # of Lloyd's
MOST_DRAWS = 2000
LOCAL, GLOBAL = panels.COLOURS[0], panels.COLOURS[1]
LEVELS = (-8.0, -4.0, -2.0, -1.0, -0.5, 0.0)  # of the density beneath, in nats


class Kernel(NamedTuple):
    """A normal proposal: its name, and its covariance at a point x (d,), shape (d, d)."""

    name: str
    covariance: Callable[[np.ndarray], np.ndarray]


def proposals(
    step: Any,
    *,
    idata: Any = None,
    at: Any = 12,
    density: Any = None,
    probability: float = 0.95,
    coordinates: Sequence[str | int] | None = None,
    figsize: tuple[float, float] | None = None,
    ax: Any = None,
    model: pm.Model | None = None,
) -> Any:
    """Draw a step's proposals as ellipses at some points, inside of which most moves from there end (PCA's
    proposal is a mixture, of which it is the covariance).

    Solid: the local move, whose covariance follows the history near the point. Dashed: the same step's global move, one
    covariance for all points, drawn once (Sejdinovic et al., 2014, figures 2 and 6, have the first over a banana, a
    flower and a ring).

    Parameters
    ----------
    step : KameleonStep, FastKameleonStep, GaussianMixtureStep or another random walk of this package
        One that has sampled in this process: ``pm.sample(step=step, cores=1)``. Of steps without a local move only the
        global one is drawn.
    idata : InferenceData, DataTree or ndarray of shape (n, d), optional
        Draws, which are scattered below, and from which the points are chosen.
    at : int or ndarray of shape (m, d)
        How many points, spread over the draws (default 12); or where.
    density : Target or callable, optional
        A log density of one point (d,), drawn beneath over the two coordinates, the others at the draws' median: 14,641
        evaluations. Give it where that is cheap.
    probability : float
        Of a move to end inside its ellipse, were it not for the other coordinates and the accept/reject test, in (0,
        1). Default 0.95, the paper's; smaller ones overlap less.
    coordinates : two of str or int, optional
        Names or places of the coordinates drawn. Default: the first two.
    figsize : (float, float), optional
        In inches.
    ax : Axes, optional
        Where to draw, and only that. Default: a new figure.
    model : pymc.Model, optional
        Default: the step's.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the step has not sampled here, has learned nothing, or neither draws nor points are given; for other than two
        coordinates; if the step moves a hierarchy in other coordinates than the model's.
    TypeError
        For a step that has no normal proposals, as ``KamiltonianStep``.

    Examples
    --------
    >>> import pymc_kameleon as pk
    >>> pk.plots.proposals(step, idata=idata, density=target)  # doctest: +SKIP
    """
    kernels = kernels_of(*_random_walk(step))
    if step.density.reparametrized:
        raise ValueError(
            "The proposals of this step are normal in the partially non-centred coordinates of the hierarchy, not in "
            "the model's: draw those of a step with parametrization='model'."
        )
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must be in (0, 1), got {probability!r}.")
    model, dim = model_of(step, model), step.density.dim
    layout = layout_of(step, dim, model)
    labels, chosen = labels_of(layout, model), [0, 1]
    if coordinates is not None or dim < 2:
        chosen = choose(coordinates, layout, model, "proposals")
    if len(chosen) != 2:
        raise ValueError(f"proposals draws two coordinates, got {[labels[c] for c in chosen]}.")
    draws = _draws(idata, layout, model, dim)
    points = _points(at, draws, dim)
    _, axes, new = panels.panels((1, 1), (5.2, 4.6), figsize, ax)
    axis = axes[0, 0]
    drawn = points if draws is None else np.concatenate([points, draws])
    if density is not None:
        _draw_density(axis, density, np.median(drawn, axis=0), drawn, chosen)
    if draws is not None:
        x = history.thin(draws, MOST_DRAWS)[:, chosen]
        axis.plot(*x.T, ".", color=panels.ELSE, ms=1.5, alpha=0.4, label="draws", zorder=1.5)
    for kernel in kernels:
        _draw_kernel(axis, kernel, points, chosen, probability)
    axis.set(xlabel=labels[chosen[0]], ylabel=labels[chosen[1]])
    panels.explain(axes, f"{type(step).__name__}: where {probability:.0%} of the proposals end", "", new)
    return axis


# --- covariances ----------------------------------------------------------------------------------


def kernels_of(sampler: Any, state: Any) -> list[Kernel]:
    """A sampler's local proposal, if it has learned one, and its global one."""
    walk = getattr(state, "walk", state)
    log_scale = walk.log_size if isinstance(sampler, (GaussianAdaptation, CMA)) else walk.log_scale
    covariance = math.exp(2.0 * log_scale) * walk.factor @ walk.factor.T
    everywhere = Kernel("global move", lambda x: covariance)
    if getattr(state, "model", None) is None and getattr(state, "surrogate", None) is None:
        return [everywhere]
    return [Kernel("local move", partial(_local, sampler, state)), everywhere]


def _local(sampler: Any, state: Any, x: np.ndarray) -> np.ndarray:
    """F (gamma^2 I + S(y)) F', S what was learned, in the parameters' coordinates, x = centre + F y."""
    y = solve_lower(state.factor, x - state.centre)
    if isinstance(sampler, GaussianMixture):
        gamma, lower = 0.5 * math.exp(state.walk.log_scale), local_moment(y, state.surrogate)
        found = math.exp(2.0 * state.log_scale) * (lower + np.tril(lower, -1).T)
    elif isinstance(sampler, PCAKameleon):
        gamma, rows = sampler.local_gamma(state), sampler.covariance(state.model, y)
        weights = state.model.weights * np.exp(2.0 * state.model.log_scales)
        found = (rows.T * weights) @ rows  # g_j, each with a weight and a scale of its own
    else:
        gamma = sampler.local_gamma(state)
        found = math.exp(2.0 * state.log_scale) * sampler.covariance(state.model, y)
    return state.factor @ (gamma**2 * np.eye(len(x)) + found) @ state.factor.T


def _random_walk(step: Any) -> tuple[Any, Any]:
    """The step's sampler and its state; of one that screens its moves on a surrogate, those of its own moves."""
    sampler, state = getattr(step, "sampler", None), getattr(step, "algorithm_state", None)
    if isinstance(sampler, Screened):
        sampler, state = sampler.inner, None if state is None else state.inner
    if isinstance(sampler, Scheduled):
        sampler = sampler.inner
    normal = (LocalMoves, GaussianMixture, AdaptiveMetropolis, GaussianAdaptation, CMA)
    if not isinstance(sampler, normal):
        raise TypeError(
            "proposals draws normal proposals, of KameleonStep, FastKameleonStep, GaussianMixtureStep and the adaptive "
            f"random walks (of a CompoundStep one of its methods), got {type(step).__name__}; what KamiltonianStep has "
            "learned is drawn by plots.surrogate."
        )
    if state is None:
        raise ValueError(
            "This step has not sampled in this process, so there are no proposals to draw: use pm.sample(..., cores=1)."
        )
    return sampler, state


# --- points ---------------------------------------------------------------------------------------


def _draws(idata: Any, layout: Layout, model: pm.Model | None, dim: int) -> np.ndarray | None:
    if idata is None:
        return None
    if is_idata(idata):
        return unconstrained(idata, layout, model, MOST_DRAWS)
    draws = np.asarray(idata, dtype=float)
    if draws.ndim != 2 or draws.shape[1] != dim or not np.isfinite(draws).all():
        raise ValueError(
            f"idata must be InferenceData, a DataTree or finite draws of shape (n, {dim}), got shape {draws.shape}."
        )
    return draws


def _points(at: Any, draws: np.ndarray | None, dim: int) -> np.ndarray:
    """Where ellipses are drawn, (m, d): given, or the draws nearest to the centres of as many clusters."""
    if not isinstance(at, (int, np.integer)) or isinstance(at, bool):
        points = np.atleast_2d(np.asarray(at, dtype=float))
        if points.shape[1:] != (dim,) or not np.isfinite(points).all():
            raise ValueError(f"at must be a number of points or finite points of shape (m, {dim}), got {at!r}.")
        return points
    if draws is None:
        raise ValueError("Give draws to choose the points from (idata=), or the points (at=).")
    if not 1 <= at <= len(draws):
        raise ValueError(f"at must be from 1 to the number of draws, {len(draws)}, got {at}.")
    scaled = (draws - draws.mean(axis=0)) / np.maximum(draws.std(axis=0), 1e-300)
    centres = history.thin(scaled, int(at))
    for _ in range(ROUNDS):
        nearest = np.square(scaled[:, None] - centres).sum(axis=2).argmin(axis=1)
        centres = np.array(
            [scaled[nearest == k].mean(axis=0) if (nearest == k).any() else c for k, c in enumerate(centres)]
        )
    return draws[sorted({int(np.square(scaled - c).sum(axis=1).argmin()) for c in centres})]


# --- drawing --------------------------------------------------------------------------------------


def outline(centre: np.ndarray, covariance: np.ndarray, probability: float) -> np.ndarray:
    """The contour of a normal distribution in the plane that holds this probability, shape (100, 2)."""
    reach = math.sqrt(-2.0 * math.log1p(-probability))  # chi^2 with two degrees of freedom
    angle = np.linspace(0.0, 2.0 * np.pi, 100)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return centre + reach * np.column_stack([np.cos(angle), np.sin(angle)]) @ root.T


def _draw_kernel(axis: Any, kernel: Kernel, points: np.ndarray, chosen: list[int], probability: float) -> None:
    one = kernel.name == "global move"  # the same everywhere: at the point in the middle
    style = {"color": GLOBAL, "ls": "--"} if one else {"color": LOCAL}
    if one:
        middle = np.square(points - np.median(points, axis=0)).sum(axis=1).argmin()
        points = points[middle : middle + 1]
    for k, x in enumerate(points):
        line = outline(x[chosen], kernel.covariance(x)[np.ix_(chosen, chosen)], probability)
        axis.plot(*line.T, lw=1.4, label=kernel.name if k == 0 else None, zorder=3, **style)
    axis.plot(*points[:, chosen].T, ".", ms=4, color=style["color"], zorder=3)


def _draw_density(axis: Any, density: Any, held: np.ndarray, drawn: np.ndarray, chosen: list[int]) -> None:
    log_density = getattr(density, "log_density", density)
    grids = [panels.grid(drawn[:, c], GRID) for c in chosen]

    def values(x: np.ndarray) -> np.ndarray:
        return np.array([float(log_density(row)) for row in x])

    heights = surfaces.slice_at(values, held, chosen, surfaces.nodes_of(chosen, grids)).reshape(GRID, GRID)
    axis.contourf(*grids, heights - np.nanmax(heights), levels=LEVELS, cmap="Greys", alpha=0.5)
