"""Points whose log density is known, from an earlier run or from a user's table, as the record that samplers take."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_kameleon.numerics.evaluations import Evaluations, table
from pymc_kameleon.samplers.known_points import CHECKED
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.pooled_trace import from_dataset, group

_log = logging.getLogger("pymc.kameleon")


def known_points(given: Any, model: pm.Model, density: LogDensity) -> Evaluations:
    """The record of what a user gives as ``evaluations``: of ``pk.sample``, or a table (points, log densities).

    A table's points are an array of shape (n, d) in the order of the model's value variables, or a dict of arrays of
    shape (n, *shape) by the names of the value variables (unconstrained), or by those of the model's variables; then
    the log density is that of the model's variables, too, and the transforms' Jacobians are added.
    """
    moved = False
    if isinstance(given, Evaluations):
        made, moved = given, given.outputs.shape[1] > 0  # a checkpoint's: in the coordinates of what made it
    elif isinstance(given, tuple) and len(given) == 2:
        made = _from_table(*given, model, density)
    else:
        made = from_dataset(density, _group(given))
    if made.positions.shape[1] != density.dim:
        raise ValueError(
            f"evaluations have {made.positions.shape[1]} coordinates, and the model has {density.dim}: "
            f"{', '.join(density.update({}, np.zeros(density.dim)))}, unconstrained."
        )
    if isinstance(density, FactoredDensity):
        return _with_outputs(made if moved else _entered(made, density), density)
    if moved:
        raise ValueError(
            "the evaluations in this checkpoint are of black boxes learned one by one, in coordinates of their own. "
            "Here the log density is learned as a whole. Resume the run, and give what pk.sample returns."
        )
    return table(made.positions, made.log_densities, made.chain, made.round, made.move)


def _entered(made, density):
    """In the non-centred coordinates, with the log density of those."""
    points = np.array([density.enter(x) for x in made.positions]).reshape(made.positions.shape)
    usable = np.isfinite(points).all(axis=1)
    points, values = points[usable], made.log_densities[usable]
    values = values - np.array([density.model_log_density(v, 0.0) for v in points])
    return table(
        points, values, made.chain[usable], made.round[usable], made.move[usable], made.outputs[usable]
    )  # fmt: skip


def _with_outputs(made, density):
    """The same, if what black boxes returned fits the log densities; without any, chains begin there, and no more."""
    found = made.outputs.shape[1]
    if not found:
        _log.info(
            "The evaluations given are log densities alone: chains begin there, and learn the black boxes anew. What "
            "pk.sample returns has what they returned, too; learn='all' learns the log density as a whole, from these."
        )
        return made
    best = np.argsort(-made.log_densities, kind="stable")[:CHECKED]
    best = best[np.isfinite(made.log_densities[best])]
    wanted = len(density.outputs)
    wrong = "" if found == wanted else f"is of length {found}, and what this model's return of length {wanted}"
    if not wrong and len(best):
        off = [density.by_outputs(made.positions[k], made.outputs[k]) - made.log_densities[k] for k in best]
        if not np.ptp(off) <= 0.01 + 1e-6 * np.abs(made.log_densities[best]).max():
            wrong = f"does not give their log densities in this model, which is off by {min(off):.6g} to {max(off):.6g}"
    if wrong:
        raise ValueError(
            f"what black boxes returned in the evaluations given {wrong}: another model or other data made them. "
            "Without the variable '_outputs' their points can still be where chains begin."
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
    blank, names = density.update({}, np.zeros(density.dim)), {rv.name for rv in model.free_RVs}
    lengths = {name: len(np.atleast_1d(points[name])) for name in sorted(points)}
    if set(points) in (set(blank), names) and (not values.size or set(lengths.values()) != {values.size}):
        raise ValueError(
            f"evaluations take columns with one row for each of the {values.size} log densities; theirs have {lengths}."
        )
    if set(points) == set(blank):
        columns = [np.asarray(points[name], dtype=float).reshape(len(values), -1) for name in blank]
        return _without_nan(np.concatenate(columns, axis=1), values)
    if set(points) != names:
        raise ValueError(
            f"evaluations have the variables {sorted(points)}; wanted are {sorted(blank)} (unconstrained) or "
            f"{sorted(names)} (the model's own)."
        )
    positions, log_jacobians = unconstrain({name: points[name] for name in names}, model, blank)
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
