"""How a step tuned: what it adapted, draw by draw."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.plots import panels
from pymc_kameleon.steps.pooled_trace import group
from pymc_kameleon.verdict.of_steps import spacing

WINDOW = 100  # draws, of the running mean of the acceptance probability
FEW = 4  # chains that get colours of their own


class Curve(NamedTuple):
    """A panel."""

    names: tuple[str, ...]  # statistics that it may show; the first that there is
    label: str
    scale: str = "linear"
    averaged: bool = False


CURVES = (
    Curve(("kamiltonian_step_size", "scaling", "step_size"), "scale of\nproposals", "log"),
    Curve(("accept",), f"acceptance,\nmean of {WINDOW}", averaged=True),
    Curve(("surrogate_error",), "held-out\nerror (nats)", "log"),
    Curve(("surrogate_moves",), f"surrogate's\nmoves of {WINDOW}", averaged=True),
    Curve(("refits",), "refits"),
)


def adaptation(idata: Any, *, figsize: tuple[float, float] | None = None, ax: Any = None) -> np.ndarray:
    """Draw how a step tuned: scale of its proposals, acceptance, error, use and refits of its surrogate, over the
    draws.

    A dashed line marks the end of tuning; from there on nothing adapts. A panel for each of these that the step has;
    with several steps, those of the first.

    Parameters
    ----------
    idata : InferenceData, DataTree or list of dict
        Of ``pm.sample(..., discard_tuned_samples=False)`` or ``pk.sample(..., discard_tuned_samples=False)``: the
        tuning draws' statistics have to be there. Or the statistics of successive ``step.step(point)`` of one chain.
    figsize : (float, float), optional
        In inches.
    ax : array of Axes, optional
        Where to draw, one for each panel. Default: a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (panels,)

    Raises
    ------
    ValueError
        If there are no statistics of tuning draws, or none that are adapted.

    Notes
    -----
    ``surrogate_error`` is of points that the fit has not seen (see the page on sample statistics); infinite
    and missing values, before the first fit, leave gaps.

    Examples
    --------
    >>> import pymc_kameleon as pk
    >>> idata = pm.sample(step=step, discard_tuned_samples=False)  # doctest: +SKIP
    >>> pk.plots.adaptation(idata)  # doctest: +SKIP
    """
    found, tuning, every = _statistics(idata)
    curves = [(c, name) for c in CURVES if (name := next((n for n in c.names if n in found), ""))]
    if not curves:
        raise ValueError(
            f"None of the statistics is of what a step of this package adapts; there are {', '.join(found)}."
        )
    _, axes, new = panels.panels((len(curves), 1), (7.0, 1.35 * len(curves) + 0.6), figsize, ax, sharex=True)
    for axis, (curve, name) in zip(axes[:, 0], curves, strict=True):
        _draw(axis, curve, found[name], every)
        if tuning:
            axis.axvline(tuning, color="black", lw=0.9, ls="--")
    axes[-1, 0].set_xlabel("draw, tuning included")
    if new:
        axes[0, 0].figure.align_ylabels(axes[:, 0])
    end = f"; tuning ends at draw {tuning}" if tuning else ""
    panels.explain(axes, f"Adaptation, a line for each chain{end}", "", new)
    return axes[:, 0]


def _statistics(source: Any) -> tuple[dict[str, np.ndarray], int, int]:
    """Every statistic, (chain, draw), tuning first; how many draws tuning took (0: not known), and which of them are
    kept: every such one.
    """
    if isinstance(source, Sequence) and source and all(isinstance(row, dict) for row in source):
        return _with_moves({n: np.array([[row[n] for row in source]]) for n in source[0]}), 0, 1
    warmup, after = group(source, "warmup_sample_stats"), group(source, "sample_stats")
    if warmup is None or after is None:
        raise ValueError(
            "There are no statistics of tuning draws: sample with discard_tuned_samples=False, which keeps them."
        )
    both = [n for n in warmup.data_vars if n in after]
    step, every = _first_step(warmup), spacing(warmup["draw"].values)
    found = {str(n): np.concatenate([_of_step(part[n], step) for part in (warmup, after)], axis=1) for n in both}
    return _with_moves(found), every * warmup.sizes["draw"], every


def _with_moves(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Whether a draw was made by a surrogate, for a step that has one."""
    if "refits" in found and "move" in found:
        made = np.vectorize(lambda move: move.startswith(("surrogate", "hamiltonian", "jump")), otypes=[float])
        found["surrogate_moves"] = made(found["move"].astype(str))
    return found


def _first_step(found: Any) -> int:
    """The first of several steps whose ``accept`` is a probability; of PyMC's Metropolis it is a ratio."""
    accept = found.get("accept")
    if accept is None or accept.ndim == 2:
        return 0
    values = np.nan_to_num(accept.transpose("chain", "draw", ...).values)
    return int(np.argmax((values <= 1.0).all(axis=(0, 1))))


def _of_step(values: Any, step: int) -> np.ndarray:
    values = values.transpose("chain", "draw", ...).values
    return values if values.ndim == 2 else values[:, :, min(step, values.shape[2] - 1)]


def _draw(axis: Any, curve: Curve, values: np.ndarray, every: int) -> None:
    values = np.asarray(values, dtype=float)
    if curve.averaged:
        values = np.array([running_mean(row) for row in values])
    values = np.where(np.isfinite(values), values, np.nan)
    if curve.scale == "log":
        values = np.where(values > 0.0, values, np.nan)
    few = len(values) <= FEW
    for k, row in enumerate(values):
        colour = panels.COLOURS[k if few else 0]
        axis.plot(every * np.arange(1, len(row) + 1), row, lw=0.9, color=colour, alpha=0.9 if few else 0.35)
    axis.set_ylabel(curve.label, fontsize=panels.SMALL)
    if curve.scale == "log" and np.isfinite(values).any():
        _in_decades(axis, values[np.isfinite(values)])
    if curve.averaged:
        axis.set_ylim(0.0, 1.0)
    if curve.scale == "linear" and not curve.averaged:  # a count
        axis.locator_params(axis="y", integer=True)


def _in_decades(axis: Any, values: np.ndarray) -> None:
    """A logarithmic axis over one decade at least, whose labels are powers of ten, and 2 and 5 where those are few."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    low, high = np.log10(values.min()), np.log10(values.max())
    spare = max(0.1, 0.55 * (1.2 - (high - low)))
    axis.set_yscale("log")
    axis.set_ylim(10.0 ** (low - spare), 10.0 ** (high + spare))
    if high - low + 2.0 * spare > 1.5:
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.yaxis.set_minor_formatter(FormatStrFormatter("%g"))


def running_mean(x: np.ndarray) -> np.ndarray:
    """Mean of the last ``WINDOW`` values, or of all so far, shape as ``x`` (n,)."""
    known = np.isfinite(x)
    total, count = (np.concatenate([[0.0], np.cumsum(v)]) for v in (np.where(known, x, 0.0), known))
    n = np.arange(1, len(x) + 1)
    start = np.maximum(0, n - WINDOW)
    with np.errstate(invalid="ignore"):  # none so far
        return (total[n] - total[start]) / (count[n] - count[start])
