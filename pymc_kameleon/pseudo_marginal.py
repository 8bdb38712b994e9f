"""Log densities that are noisy: which factors of a model draw random numbers, and what those depend on."""

from typing import Any, NamedTuple

from pymc.pytensorf import find_rng_nodes
from pytensor.graph.traversal import ancestors


class Noise(NamedTuple):
    """The noisy factors of a model and the two parts of its log density.

    Attributes
    ----------
    factors : list
        The model's random variables and potentials whose log density draws random numbers.
    deterministic, noisy : TensorVariable or None
        The sums of the two kinds of factors; ``None`` when nothing is noisy.
    """

    factors: list
    deterministic: Any
    noisy: Any


def find_noise(model, vars, step_owns) -> Noise:
    """Find the noisy factors; refuse a step that does not own every variable that they depend on.

    A Metropolis-Hastings step is exact with an unbiased likelihood *estimate* only if the estimate at the current
    state is kept (Andrieu & Roberts, 2009). Another step that moves a variable of the noisy factor makes the kept
    estimate belong to another point, and a fresh one would bias the chain.

    Raises
    ------
    ValueError
        Naming the factor, and the variables that would have to be in the same step.
    """
    factors = model.free_RVs + model.observed_RVs + model.potentials
    terms = [term.sum() for term in model.logp(factors, sum=False)]
    is_noisy = [bool(find_rng_nodes([term])) for term in terms]
    if not any(is_noisy):
        return Noise([], None, None)
    owned = set(step_owns)
    for factor, term, noisy in zip(factors, terms, is_noisy, strict=True):
        if not noisy:
            continue
        foreign = {v for v in ancestors([term]) if v in set(model.value_vars)} - owned
        if foreign:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that also depends on "
                f"{', '.join(sorted(v.name for v in foreign))}, which this step does not sample. The estimate at the "
                "current state has to be kept, so one step has to own every variable it depends on: pass them all to "
                "this step (vars=...)."
            )
    deterministic = sum(
        (t for t, noisy in zip(terms, is_noisy, strict=True) if not noisy), start=0.0
    )
    noisy_part = sum((t for t, noisy in zip(terms, is_noisy, strict=True) if noisy), start=0.0)
    noisy_factors = [f for f, noisy in zip(factors, is_noisy, strict=True) if noisy]
    return Noise(noisy_factors, deterministic, noisy_part)


def noise_streams(outputs) -> list:
    """The shared random generators that ``outputs`` draw from, in a fixed order."""
    return find_rng_nodes(outputs)
