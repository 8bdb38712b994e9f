"""Which factors of a model are noisy, what they depend on, and their standard normals as inputs."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.noise.noisy_likelihood import GivenAuxiliary, NoisyLogLikelihood
from pymc_kameleon.steps.pytensor_internals import find_rng_nodes, wrapped_function


class Noise(NamedTuple):
    """The noisy factors of a model and the two parts of its log density."""

    factors: list  # random variables and potentials whose log density draws random numbers
    deterministic: Any  # the sum of the other factors; None when nothing is noisy
    noisy: Any  # the sum of these, likewise


def find_noise(model, step_owns) -> Noise:
    """Find the noisy factors; refuse a step that does not own every variable that they depend on.

    Another step that moves a variable of the noisy factor makes the kept estimate belong to another point, and a fresh
    one would bias the chain.
    """
    factors, terms, noisy = factors_of(model)
    if not any(noisy):
        return Noise([], None, None)
    value_vars, owned = set(model.value_vars), set(step_owns)
    for factor, term, is_noisy in zip(factors, terms, noisy, strict=True):
        depends_on = {v for v in ancestors([term]) if v in value_vars} if is_noisy else set()
        if depends_on - owned:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that also depends on "
                f"{names(depends_on - owned)}, which this step does not sample. The estimate at the current state "
                "has to be kept, so one step has to own every variable it depends on: pass them all to that step "
                "(vars=...), and build a step of other variables with pymc_kameleon.pseudo_marginal.step_beside_noise."
            )
    parts = [
        sum((t for t, n in zip(terms, noisy, strict=True) if n is kind), start=pt.constant(0.0))
        for kind in (False, True)
    ]
    return Noise([f for f, n in zip(factors, noisy, strict=True) if n], *parts)


def factors_of(model) -> tuple[list, list, list[bool]]:
    """The model's factors, their log densities, and whether these are noisy."""
    factors = all_factors(model)
    terms = [term.sum() for term in model.logp(factors, sum=False)]
    return factors, terms, [bool(find_rng_nodes([term])) for term in terms]


def noisy_names(model) -> str:
    """Of the factors that are noisy, for a message; "" where there are none."""
    factors, _, noisy = factors_of(model)
    return names(f for f, is_noisy in zip(factors, noisy, strict=True) if is_noisy)


def all_factors(model) -> list:
    """What the log density of a model is made of: random variables and potentials."""
    return [*model.free_RVs, *model.observed_RVs, *model.potentials]


def black_boxes(model) -> list[str]:
    """Names of the model's factors that run code that is neither PyTensor's nor PyMC's: the ones that may raise."""
    factors, terms, _ = factors_of(model)
    return [
        factor.name
        for factor, term in zip(factors, terms, strict=True)
        if any(v.owner is not None and not of_host(v.owner.op) for v in ancestors([term]))
    ]


def of_host(op) -> bool:
    """Whether an Op is PyTensor's or PyMC's, and not a user's function that PyTensor's ``wrap_py`` made an Op of."""
    of_theirs = type(op).__module__.startswith(("pytensor.", "pymc."))
    return of_theirs and wrapped_function(op) is None


def names(variables: Iterable) -> str:
    """Variables' names for a message."""
    return ", ".join(sorted(str(v.name) for v in variables))


def noise_streams(outputs) -> list:
    """The shared random generators that ``outputs`` draw from, in a fixed order."""
    return find_rng_nodes(outputs)


def work_inputs(outputs) -> list:
    """The shared numbers that say how much work the estimators in ``outputs`` do, in a fixed order."""
    nodes = {v.owner: None for v in ancestors(outputs) if v.owner is not None}
    estimators = [n for n in nodes if isinstance(n.op, NoisyLogLikelihood) and n.op.work is not None]
    found = dict.fromkeys(n.inputs[1] for n in estimators)
    return [v for v in found if isinstance(v, SharedVariable)]


def take_auxiliary(outputs) -> tuple[list, list]:
    """Make the standard normals of every estimator that has some an explicit shared input, zeros for now.

    The outputs, deterministic given those inputs, and the inputs, one an estimator. Refuses noise of another kind, and
    none at all.
    """
    replacements: dict = {}
    auxiliary: list = []
    for variable in ancestors(outputs):
        node = variable.owner
        if node is None or not isinstance(node.op, NoisyLogLikelihood):
            continue
        if node.op.auxiliary_shape is None or variable is not node.outputs[1]:
            continue
        u = pytensor.shared(np.zeros(node.op.auxiliary_shape), name=f"auxiliary_{len(auxiliary)}")
        replacements[variable] = GivenAuxiliary(node.op.fn)(u, *node.inputs[1:])
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
