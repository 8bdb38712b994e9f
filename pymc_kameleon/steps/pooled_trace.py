"""Rows of draws as what ``pm.sample`` returns, and the evaluations as a group beside them."""

import math
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.base import MultiTrace
from pymc.backends.ndarray import NDArray

from pymc_kameleon.numerics.evaluations import Evaluations, table
from pymc_kameleon.samplers.pooled.checks.audits import Free
from pymc_kameleon.samplers.pooled.drawing import Row
from pymc_kameleon.steps.log_density import LogDensity

FLOATS = (
    "accept", "accepted", "lp", "share", "step_size", "surrogate_error", "residual_sd", "uncovered", "energy_error",
    "n_steps",
)  # fmt: skip
DTYPES: dict[str, Any] = {
    **dict.fromkeys(FLOATS, np.float64),
    **dict.fromkeys(("diverging", "surrogate_diverging"), np.bool_),
    **dict.fromkeys(("refits", "evaluations", "mode"), np.int64),
    "move": np.dtype("U15"),
    "surrogate": np.dtype("U24"),
}
BY_FACTORS: dict[str, Any] = {"factors": np.int64, "noncentred": np.int64, "worst_factor": np.dtype("U32")}
OURS = ("_chain", "_round", "_move", "_log_density", "_outputs")  # of the evaluations
MISSING = {"f": math.nan, "b": False, "i": 0, "U": ""}


def to_idata(
    model: pm.Model,
    density: LogDensity,
    warmup: list[Row],
    rows: list[Row],
    evaluated: Evaluations,
    *,
    seconds: float,
    keep_warmup: bool,
    attributes: dict[str, Any],
    **kwargs: Any,
):
    """InferenceData (PyMC 5) or DataTree (PyMC 6) of ``rows``, one draw of every chain each.

    ``attributes`` are of the posterior and of the evaluations, ``kwargs`` of ``pm.to_inference_data``.
    """
    idata = _inference_data(model, density, warmup, rows, seconds, keep_warmup, kwargs)
    for name, value in attributes.items():
        idata["posterior"].attrs[name] = value
    return _with_group(idata, "evaluations", to_dataset(density, evaluated, attributes))


def _inference_data(model, density, warmup, rows, seconds, keep_warmup, kwargs, variables=None):
    """As ``pm.sample`` makes it of its traces."""
    kept = [*warmup, *rows] if keep_warmup else rows
    traces, first = [], NDArray(model=model, vars=variables)
    compiled = {
        name: getattr(first, name) for name in ("vars", "fn", "var_shapes", "var_dtypes")
    }  # once, for all chains
    for chain in range(len(rows[0].positions)):
        trace = NDArray(model=model, **compiled)
        trace.setup(len(kept), chain, [_dtypes(density)])
        template = {v.name: None for v in model.value_vars}
        for n, row in enumerate(kept):
            point = density.update(template, row.positions[chain])
            trace.record(point, [_statistics(density, row, chain)], in_warmup=keep_warmup and n < len(warmup))
        traces.append(trace)
    trace = MultiTrace(traces)
    trace.report._n_draws = len(rows)
    trace.report._n_tune = len(warmup)
    trace.report._t_sampling = seconds
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(More chains|Found chain dim)", UserWarning)  # as is meant here
        return pm.to_inference_data(trace, model=model, save_warmup=keep_warmup, **kwargs)


def _dtypes(density):
    return DTYPES if density.outputs is None else {**DTYPES, **BY_FACTORS}


def _statistics(density, row, chain):
    values: dict[str, Any] = {name: MISSING[np.dtype(dtype).kind] for name, dtype in _dtypes(density).items()}
    values |= {name: value for name, value in row.statistics[chain].items() if name in values}
    values["lp"] = density.model_log_density(row.positions[chain], row.log_densities[chain])
    values["diverging"] = density.diverges(values["energy_error"])
    values["evaluations"] = row.evaluations
    return values


def add_control_variates(
    idata: Any, model: pm.Model, density: LogDensity, free: Free, ratios: dict[str, np.ndarray]
) -> Any:
    """Draws of the surrogate in the model's variables, and how far it is off, as groups of their own.

    ``ratios`` are f - log p of the posterior's draws, (chains, draws), and of the audits, (n,).
    """
    rows = [Row(x, np.zeros(len(x)), [{}] * len(x)) for x in free.positions.swapaxes(0, 1)]
    # without deterministics, which may stand behind the simulator whose evaluations are counted
    names = {v.name for v in (*model.free_RVs, *model.value_vars)}
    variables = [v for v in model.unobserved_value_vars if v.name in names]
    made = _inference_data(model, density, [], rows, 0.0, False, {}, variables)["posterior"]
    idata = _with_group(idata, "surrogate_posterior", plain(made))
    columns = {
        "log_ratio": (["chain", "draw"], ratios["draws"]),
        "audit_log_ratio": ("audit", ratios["audits"]),
        "is_inside": (["surrogate_chain", "surrogate_draw"], free.inside),
    }
    return _with_group(idata, "control_variates", xr.Dataset(columns))


def _with_group(idata, name, dataset):
    add_groups = getattr(idata, "add_groups", None)  # of ArviZ's InferenceData, not of a DataTree
    if add_groups is not None:
        add_groups({name: dataset}, warn_on_custom_groups=False)
        return idata
    idata[name] = xr.DataTree(dataset)
    return idata


def to_dataset(density: LogDensity, evaluated: Evaluations, attributes: dict[str, Any]):
    """Every evaluation, value variable by value variable, as a dataset with the dimension ``evaluation``."""
    columns: dict[str, Any] = {}
    blank = density.update({}, np.zeros(density.dim))
    points, values = evaluated.positions, evaluated.log_densities
    if evaluated.outputs.size:  # of the non-centred coordinates
        values = np.array([density.model_log_density(x, y) for x, y in zip(points, values, strict=True)])
        points = np.array([density.leave(x) for x in points])
        columns["_outputs"] = (["evaluation", "output"], evaluated.outputs)
    parts = np.split(points, np.cumsum([value.size for value in blank.values()])[:-1], axis=1)
    for (name, value), part in zip(blank.items(), parts, strict=True):
        dims = ["evaluation", *(f"{name}_dim_{k}" for k in range(value.ndim))]
        columns[name] = (dims, part.reshape(len(part), *value.shape))
    for name in ("chain", "round", "move"):
        columns[f"_{name}"] = ("evaluation", getattr(evaluated, name))
    columns["_log_density"] = ("evaluation", values)
    return xr.Dataset(columns, attrs={**attributes, "value_variables": list(blank)})


def from_dataset(density: LogDensity, dataset) -> Evaluations:
    """The record that ``to_dataset`` made a dataset of, for a model with the same value variables."""
    dataset, blank = plain(dataset), density.update({}, np.zeros(density.dim))
    wanted = {name: value.shape for name, value in blank.items()}
    given = {str(name): value.shape[1:] for name, value in dataset.items() if name not in OURS}
    if wanted != given:
        raise ValueError(
            f"the evaluations are of the value variables {given}, and the model has {wanted}. Give evaluations of the "
            "same model, unconstrained, by the names of its value variables."
        )
    return record_of(dataset, blank)


def group(source: Any, name: str) -> Any:
    """A group of an InferenceData or a DataTree; None where there is none."""
    with suppress(KeyError, TypeError, AttributeError, IndexError):
        return source[name]
    return None


def plain(group: Any) -> Any:
    """A group as an ``xarray.Dataset``, whatever holds it."""
    return group.to_dataset() if hasattr(group, "to_dataset") else group


def record_of(dataset: Any, names: Iterable[str]) -> Evaluations:
    """The record in ``to_dataset``'s, with the value variables ``names`` in their order."""
    values = dataset["_log_density"].values
    parts = [np.asarray(dataset[name].values, dtype=float).reshape(len(values), -1) for name in names]
    chain, round_, move = (dataset[f"_{name}"].values for name in ("chain", "round", "move"))
    outputs = dataset["_outputs"].values if "_outputs" in dataset else None
    return table(np.concatenate(parts, axis=1), values, chain, round_, move, outputs)
