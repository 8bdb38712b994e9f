"""Coordinates and their names: places in the vector that a step moves, labels of axes, and draws in that vector."""

import difflib
import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode

from pymc_kameleon.numerics import history
from pymc_kameleon.steps import KernelStep
from pymc_kameleon.steps.known_points import unconstrain
from pymc_kameleon.steps.pooled_trace import group

_log = logging.getLogger("pymc.kameleon")

MOST = 5  # coordinates drawn unless some are named
Layout = dict[str, np.ndarray]


def is_idata(source: Any) -> bool:
    """Whether it is what ``pm.sample`` or ``pk.sample`` returned."""
    return group(source, "posterior") is not None


def model_of(step: Any, model: pm.Model | None) -> pm.Model | None:
    """The model given, the step's, or the one on the context stack."""
    with suppress(TypeError):  # no model on the stack
        return pm.modelcontext(step.model if model is None and isinstance(step, KernelStep) else model)
    return None


def layout_of(step: Any, dim: int, model: pm.Model | None) -> Layout:
    """Places in the vector by name of the value variable, each in the variable's shape."""
    if isinstance(step, KernelStep):
        return places_of(step.shapes)
    names = getattr(step, "var_names", None)  # of a sampling state
    if model is not None:
        point = model.initial_point()
        names = [v.name for v in model.continuous_value_vars] if names is None else names
        shapes = {name: np.shape(point[name]) for name in names if name in point}
    elif names is not None and len(names) == dim:
        shapes = dict.fromkeys(names, ())
    else:
        shapes = {names[0] if names is not None and len(names) == 1 else "x": (dim,)}
    layout = places_of(shapes)
    if (size := sum(places.size for places in layout.values())) != dim:
        raise ValueError(f"The state has {dim} coordinates, the model has {size} of them: give its own (model=).")
    return layout


def places_of(shapes: dict[str, tuple[int, ...]]) -> Layout:
    """Places in the vector of variables of these shapes, one after the other."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    places = np.split(np.arange(ends[-1] if shapes else 0), ends[:-1])
    return {n: p.reshape(shapes[n]) for n, p in zip(shapes, places, strict=False)}


def labels_of(layout: Layout, model: pm.Model | None) -> list[str]:
    """A name for every coordinate, in the vector's order; ArviZ's where the model has ``coords``."""
    return [
        f"{name}[{', '.join(map(str, index))}]" if index else name
        for name, places in layout.items()
        for index in _indices(name, places.shape, model)
    ]


def _indices(name: str, shape: tuple[int, ...], model: pm.Model | None) -> Iterable[tuple[Any, ...]]:
    """Of every element of a value variable; a transform may have changed the shape that ``coords`` are for."""
    values = [] if model is None else [v for v in model.value_vars if v.name == name]
    dims = [d for v in values for d in model.named_vars_to_dims.get(model.values_to_rvs[v].name, ())]
    coords = [model.coords.get(dim) or () for dim in dims]
    return product(*coords) if tuple(map(len, coords)) == shape else np.ndindex(shape)


def choose(coordinates: Any, layout: Layout, model: pm.Model | None, plot: str) -> list[int]:
    """Places of the coordinates to draw, by name or number; by default the first five."""
    labels = labels_of(layout, model)
    if coordinates is None:
        if len(labels) > MOST:
            _log.info(f"plots.{plot} draws the first {MOST} of {len(labels)} coordinates; choose with coordinates=.")
        coordinates = range(min(MOST, len(labels)))
    known: dict[str | int, list[int]] = {label: [i] for i, label in enumerate(labels)}
    known |= {name: list(places.ravel()) for name, places in layout.items()}
    for value in model.value_vars if model is not None else ():
        if value.name in layout:
            known.setdefault(model.values_to_rvs[value].name, known[value.name])
    known |= {i: [i] for i in range(len(labels))}
    if isinstance(coordinates, (str, int, np.integer)):
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
    if not chosen:
        raise ValueError(f"coordinates names none of {', '.join(labels)}.")
    return chosen


def unconstrained(
    idata: Any, layout: Layout, model: pm.Model | None, size: int, where: str = "posterior"
) -> np.ndarray:
    """Draws as a step sees them, transformed: at most ``size`` of all chains, evenly spaced, shape (n, d)."""
    if model is None:
        raise ValueError("idata needs the model, which transforms its draws: give model=.")
    posterior = idata[where]
    missing = [rv.name for rv in model.free_RVs if rv.name not in posterior]
    if missing:
        raise ValueError(f"idata's {where} has no draws of {', '.join(missing)}.")
    draws = {}
    for rv in model.free_RVs:
        values = posterior[rv.name].transpose("chain", "draw", ...).values
        draws[rv.name] = history.thin(values.reshape(math.prod(values.shape[:2]), *values.shape[2:]), size)
    # A few draws of a few elementwise functions: not worth a compiler.
    return unconstrain(draws, model, layout, mode=Mode("py", None))[0]
