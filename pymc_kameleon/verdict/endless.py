"""Where a prior with a heavy or a flat tail is all that ends the posterior, however far the draws went.

Chains stop short of such tails, and then the draws' own tails look light: of a logistic regression with separation and
Cauchy priors the mean does not exist, R-hat is 1.00, and their Pareto k below .2. The model knows: far beyond the draws
its log density changes, along one parameter, by s times the logarithm of the distance; k is -1 / (1 + s). What is heavy
with the others held is heavy, so nothing is accused that is not; what is light so may be heavy along several at once.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.transforms import IntervalTransform, LogTransform
from pymc.model.transform.conditioning import remove_value_transforms

FAMILIES = (
    "CauchyRV",
    "HalfCauchyRV",
    "StudentTRV",
    "HalfStudentTRV",
    "InvGammaRV",
    "ParetoRV",
    "FlatRV",
    "HalfFlatRV",
)


def tails(model: pm.Model, posterior: Any) -> list[tuple[str, str, float]]:
    """(Name, "lower" or "upper", Pareto k) of what has no sd: k is 1 without a mean, inf of a flat prior, improper.

    ``posterior`` has the draws of all of the model's unknowns. Three evaluations of the model for each element that has
    such a prior, of twenty of a variable at most; nothing where the model cannot be asked.
    """
    names = [rv.name for rv in model.free_RVs if _is_asked(model, rv)]
    if not names or any(rv.name not in posterior for rv in model.free_RVs):
        return []
    posterior = posterior.transpose("chain", "draw", ...)
    try:
        plain = _without_transforms(model)
        log_density = plain.compile_logp(jacobian=False)
    except Exception:  # a user's distribution may do anything
        return []
    found: list[tuple[str, str, float]] = []
    for name in names:
        with suppress(Exception):  # so may the model, where no draw was
            found += list(_of(name, plain, log_density, posterior))
    return sorted(found, key=lambda tail: -tail[2])


def _is_asked(model, rv):
    """Not what has another transform: one of the user's may have ends that its distribution has not."""
    transform, open_above = model.rvs_to_transforms.get(rv), False
    if isinstance(transform, IntervalTransform):  # Pareto's
        open_above = transform.args_fn(*rv.owner.inputs)[1] is None
    known = transform is None or isinstance(transform, LogTransform) or open_above
    return known and type(rv.owner.op).__name__ in FAMILIES


def _without_transforms(model):
    starts = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(starts))  # PyMC refuses to copy them
        return remove_value_transforms(model)
    finally:
        model.rvs_to_initial_values.update(starts)


def _of(name: str, model: pm.Model, log_density: Any, posterior: Any) -> Iterator[tuple[str, str, float]]:
    values = posterior[name]
    draws, labels = values.values, [values[d].values for d in values.dims[2:]]
    flat = "Flat" in type(next(rv for rv in model.free_RVs if rv.name == name).owner.op).__name__
    for index in list(np.ndindex(draws.shape[2:]))[:20]:
        x = draws[(..., *index)]
        centre = float(np.median(x))
        chain, draw = np.unravel_index(np.argmax(np.abs(x - centre)), x.shape)
        point = {v.name: posterior[v.name].values[chain, draw].copy() for v in model.value_vars}
        reach, heights = float(x[chain, draw]) - centre, []
        for times in (1.0, 100.0, 1000.0):  # as far as any draw
            moved = np.array(point[name], dtype=float)
            moved[index] = centre + times * reach
            heights.append(float(log_density({**point, name: moved})))
        slope = (heights[2] - heights[1]) / math.log(10.0)
        # of t's density with one degree of freedom it is -2, with two -3, and of none that has an sd; where it was
        # steeper before, no mass is out there
        if slope > -3.05 and heights[1] > heights[0] - max(-slope, 2.0) * math.log(100.0) - 4.0:
            at = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            k = math.inf if flat and slope > -1.05 else -1.0 / (1.0 + min(slope, -1.5))
            yield f"{name}[{at}]" if index else name, "lower" if reach < 0.0 else "upper", k
