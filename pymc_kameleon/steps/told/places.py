"""Where something is, in the model's own variables: what may be given as ``initvals=``."""

import numpy as np
import pymc as pm

from pymc_kameleon.steps.pytensor_internals import compile_strictly


def place(model: pm.Model, point: dict[str, np.ndarray]) -> str:
    """A ``point`` in words, by the model's variables; by its value variables, where those cannot be computed."""
    own = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name in point]
    try:
        values = model.replace_rvs_by_values(own)
        given = [model.rvs_to_values[rv] for rv in own]
        found = compile_strictly(given, values, mode="FAST_COMPILE", on_unused_input="ignore")(
            *(point[v.name] for v in given)
        )
    except Exception:  # ends that depend on other steps' variables; a user's transform
        return f"{_listed(point.items())} (unconstrained)"
    return _listed(zip((rv.name for rv in own), found, strict=True))


def _listed(values) -> str:
    return ", ".join(f"{name} = {_rounded(np.asarray(value))}" for name, value in values)


def _rounded(value):
    """To eight digits each: of a rate of 1e-9, too, and of a share of .99999."""
    return np.vectorize(lambda x: float(f"{x:.8g}"), otypes=[float])(value).tolist()
