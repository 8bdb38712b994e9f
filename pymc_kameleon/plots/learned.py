"""The surrogate of a step, as a function and points, whatever it was learned by and wherever it comes from."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.plots.panels import ELSE, LEARNED, Cloud
from pymc_kameleon.samplers.kamiltonian.factors import state as factors_state
from pymc_kameleon.samplers.kamiltonian.scores import sampler as kamiltonian
from pymc_kameleon.samplers.kamiltonian.values import state as kamiltonian_state
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate
from pymc_kameleon.surrogates.values import flattened
from pymc_kameleon.surrogates.values.regression import affordable

NOT_HERE = (
    "This step has not sampled in this process, so there is no surrogate to draw. With cores > 1 pm.sample gives each "
    "chain a copy of the step in a process of its own, and what the copies learn ends with them: give idata=, and a "
    "surrogate is fitted to it, or use pm.sample(..., cores=1); one chain is enough for this plot."
)
NO_BOXES = "No black box has been learned: {}."


class Learned(NamedTuple):
    """What is drawn of a state."""

    about: str  # the family of surrogates, and how good its fit is
    values: Callable[[np.ndarray], np.ndarray]  # f at the rows of x (n, d); -inf where the sampler does not use f
    archive: np.ndarray  # (n, d): past states of the chain
    clouds: list[Cloud]


def sampled_here(step: Any) -> bool:
    """Whether a step, or the state given for one, has anything to draw in this process."""
    return getattr(step, "algorithm_state", step) is not None


def learned(step: Any) -> Learned:
    """Find the surrogate and its points in a step, a sampling state or an algorithm's state."""
    if str(getattr(step, "method", "")).startswith(KamiltonianStep.name):
        if step.algorithm_state is None:
            raise ValueError(NOT_HERE)
        return learned(step.algorithm_state)
    if isinstance(step, kamiltonian_state.State):
        return _from_values(step)
    if isinstance(step, kamiltonian.State):
        return _by_score_matching(step)
    if isinstance(step, factors_state.State):
        raise ValueError(
            "This is the state of a step that has learned the model's black boxes one by one: give the step itself, "
            "which knows what they depend on."
        )
    raise TypeError(
        "plots.surrogate draws what KamiltonianStep learns: give such a step, its sampling_state or its "
        "algorithm_state (of a CompoundStep one of its methods), or what pm.sample or pk.sample returned, not "
        f"{type(step).__name__}."
    )


def _from_values(state: kamiltonian_state.State) -> Learned:
    learning, dynamics = state.learning, state.dynamics
    if dynamics is None:
        evaluations = state.quality.evaluations if learning is None else learning.evaluated.size
        dim = len(state.walk.mean)
        why = f"it takes {state.options.first_fit} evaluations and there were {evaluations}; tune longer"
        if not affordable(dim):
            why = f"{dim} dimensions are too many for one, and the step is adaptive Metropolis"
        raise ValueError(f"No surrogate has been fitted: {why}.")
    centre = dynamics.surrogate.centre
    to_x = dynamics.surrogate.scale[:, None] * dynamics.metric
    archive = centre + dynamics.archive @ to_x.T
    clouds = [Cloud("past states of the chain", archive, LEARNED, ".")]
    if learning is not None:
        clouds = _evaluated(learning, state.walk.history)
    about = f"{state.fit.family}, held-out error {state.fit.error:.2g} nats"
    return Learned(about, partial(values_within, dynamics), archive, clouds)


def values_within(dynamics: Any, x: np.ndarray) -> np.ndarray:
    """The surrogate at the rows of x (n, d); -inf outside of the region where it is used."""
    f = flattened.values(dynamics.surrogate, np.ascontiguousarray(x))
    out = surrogate_dynamics.reach(dynamics, (x - dynamics.surrogate.centre) @ dynamics.inverse.T)
    inside = (out < dynamics.radius) & (f < dynamics.ceiling)  # False for NaN
    return np.where(inside, f, -np.inf)


def _evaluated(learning: kamiltonian_state.Learning, past: history.History) -> list[Cloud]:
    """Every point evaluated so far, by whether the chain was ever there."""
    positions, values = learning.evaluated.positions, learning.evaluated.log_densities
    states = {row.tobytes() for row in past.buffer[: past.size]}
    visited = np.array([row.tobytes() in states for row in positions])
    return [
        Cloud("evaluated only", positions[~visited], ELSE, "x", values[~visited]),
        Cloud("visited by the chain", positions[visited], LEARNED, ".", values[visited]),
    ]


def _by_score_matching(state: kamiltonian.State) -> Learned:
    fitted = state.fitted
    if fitted is None:
        raise ValueError(f"No surrogate has been fitted in {state.walk.iteration} tuning draws; tune longer.")

    def values(x: np.ndarray) -> np.ndarray:
        z = np.ascontiguousarray(np.linalg.solve(state.factor, (x - state.centre).T).T)
        return np.array([score_matching.value(row, fitted.surrogate) for row in z])

    archive = state.centre + fitted.states @ state.factor.T
    family = "lite" if isinstance(fitted.surrogate, LiteSurrogate) else "finite"
    about = f"{family}, by score matching to {len(archive)} states"
    return Learned(about, values, archive, [Cloud("states that f was fitted to", archive, LEARNED, ".")])
