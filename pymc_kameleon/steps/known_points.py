"""Points whose log density is known, from an earlier run or from a user's table, as the record that samplers take."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_kameleon.numerics.evaluations import Evaluations, table
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.pooled_trace import from_dataset, group


def known_points(given: Any, model: pm.Model, density: LogDensity) -> Evaluations:
    """The record of what a user gives as ``evaluations``: of ``pk.sample``, or a table (points, log densities).

    A table's points are an array of shape (n, d) in the order of the model's value variables, or a dict of arrays of
    shape (n, *shape) by the names of the value variables (unconstrained), or by those of the model's variables; then
    the log density is that of the model's variables, too, and the transforms' Jacobians are added.
    """
    if isinstance(given, Evaluations):
        made = given
    elif isinstance(given, tuple) and len(given) == 2:
        made = _from_table(*given, model, density)
    else:
        made = from_dataset(density, _group(given))
    if made.positions.shape[1] != density.dim:
        raise ValueError(
            f"evaluations have {made.positions.shape[1]} coordinates, and the model has {density.dim}: "
            f"{', '.join(density.update({}, np.zeros(density.dim)))}, unconstrained."
        )
    return made


def _group(given):
    for candidate in (given, group(given, "evaluations")):
        if "_log_density" in getattr(candidate, "data_vars", ()):
            return candidate
    raise ValueError(
        "evaluations must be what pk.sample returned, its group 'evaluations', or a tuple (points, log densities), got "
        f"{type(given).__name__}."
    )


def _from_table(points, values, model, density):
    values = np.asarray(values, dtype=float)
    if not isinstance(points, Mapping):
        return _without_nan(np.asarray(points, dtype=float), values)
    blank = density.update({}, np.zeros(density.dim))
    if set(points) == set(blank):
        columns = [np.asarray(points[name], dtype=float).reshape(len(values), -1) for name in blank]
        return _without_nan(np.concatenate(columns, axis=1), values)
    names = {rv.name for rv in model.free_RVs}
    if set(points) != names:
        raise ValueError(
            f"evaluations have the variables {sorted(points)}; wanted are {sorted(blank)} (unconstrained) or "
            f"{sorted(names)} (the model's own)."
        )
    positions, log_jacobians = unconstrain({name: points[name][: len(values)] for name in names}, model, blank)
    return _without_nan(positions, values + log_jacobians)


def _without_nan(positions, values):
    if positions.ndim == 2 and values.shape == (len(positions),):
        known = ~np.isnan(values)  # NaN: never evaluated, or it failed
        if not known.any():
            raise ValueError(
                f"evaluations have {len(values)} points, none of them with a log density that is a number."
            )
        positions, values = positions[known], values[known]
    return table(positions, values)


def unconstrain(
    columns: Mapping[str, Any], model: pm.Model, order: Iterable[str], mode: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Value variables of the model's, in ``order``, shape (n, d), and the logs of the Jacobian, (n,).

    ``columns`` are arrays of shape (n, *shape) by the names of the model's variables.
    """
    values, jacobian = {}, pt.constant(0.0)
    for rv in model.free_RVs:
        transform, value = model.rvs_to_transforms.get(rv), rv
        if transform is not None:  # its bounds may be other random variables
            value = transform.forward(rv, *rv.owner.inputs)
            jacobian = jacobian + transform.log_jac_det(value, *rv.owner.inputs).sum()
        values[model.rvs_to_values[rv].name] = value
    outputs = [*(values[name] for name in order), jacobian]
    function = pytensor.function(model.free_RVs, outputs, mode=mode, on_unused_input="ignore")
    given = [np.asarray(columns[rv.name]).astype(rv.dtype) for rv in model.free_RVs]
    rows = [function(*row) for row in zip(*given, strict=True)]
    positions = np.array([np.concatenate([np.ravel(v) for v in row[:-1]]) for row in rows], dtype=float)
    return positions.reshape(len(rows), -1), np.array([float(row[-1]) for row in rows])
