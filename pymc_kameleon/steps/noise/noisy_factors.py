"""Which factors of a model are noisy, what they depend on, and their standard normals as inputs."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.noise.noisy_likelihood import GivenAuxiliary, NoisyLogLikelihood
from pymc_kameleon.steps.pytensor_internals import find_rng_nodes, wrapped_function


def find_noise(model, factors, step_owns) -> list | None:
    """The two parts of a noisy log density, the deterministic factors' sum and the noisy ones'; None of any other.

    Refuses a step that does not own every variable that a noisy one of ``factors``, which draws random numbers, depends
    on. Another step that moves one of these makes the kept estimate belong to another point, and a fresh one would bias
    the chain. Refuses a random part of the data, too, which no step makes exact: its logarithm alone is unbiased.
    """
    noisy = [(factor, term) for factor, term, is_noisy in factors if is_noisy]
    if not noisy:
        return None
    for factor, term in noisy:
        if any(type(v.owner.op).__name__ == "MinibatchOp" for v in ancestors([term]) if v.owner is not None):
            raise ValueError(
                f"The log density of {factor.name!r} is of a random part of the data (pm.Minibatch): that is at "
                "best an unbiased estimate of the log likelihood, never of the likelihood, and no step samples the "
                "posterior with it. Give the model all of its data, without total_size=."
            )
        beside = set(model.value_vars).intersection(ancestors([term])).difference(step_owns)
        if beside:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that also depends on "
                f"{names(beside)}, which this step does not sample. The estimate at the current state "
                "has to be kept, so one step has to own every variable it depends on: pass them all to that step "
                "(vars=...), and build a step of other variables with pymc_kameleon.pseudo_marginal.step_beside_noise."
            )
    return [sum((t for _, t, n in factors if n is kind), start=pt.constant(0.0)) for kind in (False, True)]


def factors_of(model) -> list[tuple[Any, Any, bool]]:
    """(factor, log density, whether that is noisy) for each of the model's."""
    factors = all_factors(model)
    terms = [pt.as_tensor(term, allow_xtensor_conversion=True).sum() for term in model.logp(factors, sum=False)]
    return [(f, term, bool(find_rng_nodes([term]))) for f, term in zip(factors, terms, strict=True)]


def noisy_names(model) -> str:
    """Of the factors that are noisy, for a message; "" where there are none."""
    return names(factor for factor, _, is_noisy in factors_of(model) if is_noisy)


def all_factors(model) -> list:
    """What the log density of a model is made of: random variables and potentials."""
    # sample_posterior_predictive of PyMC 5.28 lists the data a second time
    return list(dict.fromkeys([*model.free_RVs, *model.observed_RVs, *model.potentials]))


def black_boxes(model) -> list[str]:
    """Names of the model's factors that run code that is neither PyTensor's nor PyMC's: the ones that may raise."""
    return [
        factor.name
        for factor, term, _ in factors_of(model)
        if any(v.owner is not None and not of_host(v.owner.op) for v in ancestors([term]))
    ]


def of_host(op) -> bool:
    """Whether an Op is PyTensor's or PyMC's, and not a user's function that PyTensor's ``wrap_py`` made an Op of."""
    return type(op).__module__.startswith(("pytensor.", "pymc.")) and wrapped_function(op) is None


def names(variables: Iterable) -> str:
    """Variables' names for a message."""
    return ", ".join(sorted(str(v.name) for v in variables))


def _estimators(outputs) -> list:
    """The calls of a NoisyLogLikelihood in a graph, each once, in a fixed order."""
    nodes = dict.fromkeys(v.owner for v in ancestors(outputs) if v.owner is not None)
    return [node for node in nodes if isinstance(node.op, NoisyLogLikelihood)]


def are_ours(model) -> bool:
    """Whether every noisy factor of a model is estimated by a NoisyLogLikelihood: not where one is a pm.Simulator."""
    return all(_estimators([term]) for _, term, is_noisy in factors_of(model) if is_noisy)


def work_inputs(outputs) -> list:
    """The shared numbers that say how much work the estimators in ``outputs`` do, in a fixed order."""
    found = [node.inputs[1] for node in _estimators(outputs) if node.op.work is not None]
    return [v for v in dict.fromkeys(found) if isinstance(v, SharedVariable)]


def take_auxiliary(outputs) -> tuple[list, list]:
    """Make the standard normals of every estimator that has some an explicit shared input, zeros for now.

    The outputs, deterministic given those inputs, and the inputs, one an estimator. Refuses noise of another kind, and
    none at all.
    """
    replacements: dict = {}
    auxiliary: list = []
    for node in _estimators(outputs):
        if node.op.auxiliary_shape is not None:
            u = pytensor.shared(np.zeros(node.op.auxiliary_shape), name=f"auxiliary_{len(auxiliary)}")
            replacements[node.outputs[1]] = GivenAuxiliary(node.op.fn)(u, *node.inputs[1:])
            auxiliary.append(u)
    if replacements:
        outputs = clone_replace(outputs, replacements)
    if not auxiliary or find_rng_nodes(outputs):
        raise ValueError(
            "correlation= and refresh_blocks= need a model all of whose noise comes from "
            "NoisyLogLikelihood(fn, auxiliary_shape=...), an estimator that is a function of standard normals; "
            f"{'some of the noise here is of another kind' if auxiliary else 'there is none here'}."
        )
    return outputs, auxiliary
