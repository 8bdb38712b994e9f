"""A model's posterior as a log density of one unconstrained vector, its starts, and what is known to be true of it."""

import ast
import inspect
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm

from benchmarks import cells
from benchmarks.basics import generators, number
from benchmarks.textbook import MODELS
from pymc_kameleon.steps.log_density import LogDensity

RETRIES = 10  # pm.sample's jitter_max_retries


class Reference(NamedTuple):
    """Long runs' moments and quantiles in unconstrained coordinates, each of shape (d,); see ``reference.py``.

    ``ess`` and ``rhat`` are the reference's own, ``level`` is its highest log density less d / 2 + 3.
    """

    mean: np.ndarray
    sd: np.ndarray
    q05: np.ndarray
    q95: np.ndarray
    ess: np.ndarray
    rhat: float
    level: float

    @classmethod
    def of(cls, stored: dict) -> "Reference":
        arrays = (np.array(stored[f]) for f in ("mean", "sd", "q05", "q95", "ess"))
        return cls(*arrays, stored["rhat"], stored["level"])


def moments(draws: np.ndarray, ess: np.ndarray, worst_rhat: float, best: float) -> dict:
    """Of draws (n, d), as a reference is stored."""
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    found = {"mean": draws.mean(0), "sd": draws.std(0), "q05": low, "q95": high, "ess": ess}
    level = best - draws.shape[1] / 2 - 3.0
    return {k: v.tolist() for k, v in found.items()} | {"rhat": worst_rhat, "level": level}


class Posterior:
    """Log density of ``model``, by default ``MODELS[name]``; vectors are in the order of the model's value variables.

    ``black_box``: the model has no gradient.
    """

    def __init__(self, name: str, model: pm.Model | None = None):
        self.name, self.model = name, MODELS[name]() if model is None else model
        self.variables = self.model.continuous_value_vars
        if len(self.variables) != len(self.model.value_vars):
            raise ValueError(f"{name} has discrete unknowns; sum them out.")
        self.point = self.model.initial_point()
        self.black_box = not _has_gradient(self.model)
        # Numba's linker makes a call cost microseconds; black boxes run by whichever is the default.
        mode = None if self.black_box else {"mode": "NUMBA"}
        self._density = LogDensity(self.model, self.variables, self.point, mode)
        self.initial = self._density.ravel(self.point).copy()
        self.dim = len(self.initial)

    def log_density(self, x: np.ndarray) -> float:
        """As the model gives it: NaN and infinities too."""
        with np.errstate(all="ignore"):
            return self._density(x)

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Where ``pm.sample`` would start NUTS: the initial point + U(-1, 1), again if that is not finite."""
        for _ in range(RETRIES):
            x = self.initial + rng.uniform(-1.0, 1.0, self.dim)
            if np.isfinite(self.log_density(x)):
                break
        return x

    def starts(self, seed: int, chains: int) -> np.ndarray:
        """Shape (chains, d); the same for every step."""
        return np.array([self.start(rng) for rng in generators([number(self.name), seed], chains)])

    def to_point(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return self._density.update(self.point, np.ascontiguousarray(x))

    def ravel(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """The vector of a point, a copy."""
        return np.array(self._density.ravel(point))


def _has_gradient(model) -> bool:
    try:
        model.dlogp()
    except (NotImplementedError, AttributeError):
        return False
    return True


@cache
def posterior(name: str) -> Posterior:
    return Posterior(name)


def model_digest(name: str) -> str:
    """Of the model's own function, less its docstring: what was measured with another one is of another model."""
    [function] = ast.parse(inspect.getsource(MODELS[name])).body
    function.body = function.body[ast.get_docstring(function) is not None :]
    return f"{number(ast.unparse(function)):08x}"


def reference(name: str) -> Reference:
    """The model's reference posterior, refused if the model has changed since."""
    stored = cells.truth("textbook", name)
    if stored["digest"] != model_digest(name):
        raise ValueError(
            f"{name!r} is not the model whose reference is stored: take it out of results/textbook_reference.json, and "
            f"run python -m benchmarks.textbook.reference."
        )
    return Reference.of(stored)
