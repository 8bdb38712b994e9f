"""Where a prior with a heavy or a flat tail is all that ends the posterior, however far the draws went.

Chains stop short of such tails, and then the draws' own tails look light: of a logistic regression with separation and
Cauchy priors the mean does not exist, R-hat is 1.00, and their Pareto k below .2. The model knows: far beyond the draws
its log density changes, along one parameter, by s times the logarithm of the distance; k is -1 / (1 + s). What is heavy
with the others held is heavy, so nothing is accused that is not; what is light so may be heavy along several at once.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymc as pm
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
    """(Name, "lower" or "upper", Pareto k) of what has no mean: k is inf where the posterior is improper.

    ``posterior`` has the draws of all of the model's unknowns. Two evaluations of the model for each that has such a
    prior; nothing where the model cannot be asked.
    """
    names = [rv.name for rv in model.free_RVs if type(rv.owner.op).__name__ in FAMILIES]
    if not names or any(rv.name not in posterior for rv in model.free_RVs):
        return []
    try:
        plain = remove_value_transforms(model)
        log_density = plain.compile_logp(jacobian=False)
        return [found for name in names for found in _of(name, plain, log_density, posterior)]
    except Exception:  # a user's model may do anything where no draw was
        return []


def _of(name: str, model: pm.Model, log_density: Any, posterior: Any) -> Iterator[tuple[str, str, float]]:
    values = posterior[name].transpose("chain", "draw", ...)
    draws, labels = values.values, [values[d].values for d in values.dims[2:]]
    for index in list(np.ndindex(draws.shape[2:]))[:20]:
        x = draws[(..., *index)]
        centre = float(np.median(x))
        chain, draw = np.unravel_index(np.argmax(np.abs(x - centre)), x.shape)
        point = {v.name: posterior[v.name].values[chain, draw].copy() for v in model.value_vars}
        reach, heights = float(x[chain, draw]) - centre, []
        for times in (100.0, 1000.0):  # as far as any draw
            moved = np.array(point[name], dtype=float)
            moved[index] = centre + times * reach
            heights.append(float(log_density({**point, name: moved})))
        slope = (heights[1] - heights[0]) / math.log(10.0)
        if slope > -2.05:  # of Cauchy's density it is -2, and of none that has a mean
            at = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            k = -1.0 / (1.0 + slope) if slope < -1.05 else math.inf
            yield f"{name}[{at}]" if index else name, "lower" if reach < 0.0 else "upper", k
