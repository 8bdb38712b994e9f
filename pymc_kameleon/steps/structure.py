"""Whether a model has a structure worth learning by: black boxes that each depend on a few of its unknowns."""

import logging

from pymc_kameleon.steps.black_boxes import Unsplittable
from pymc_kameleon.steps.factored_density import FactoredDensity
from pymc_kameleon.steps.noisy_factors import names
from pymc_kameleon.steps.split import Cut

_log = logging.getLogger("pymc.kameleon")

LEARN, COORDINATES = ("auto", "all"), ("auto", "model")
WIDEST = 20  # inputs of one black box: more, and a quadratic in them takes hundreds of evaluations
LONGEST = 20_000  # outputs of all


def check(learn: str, coordinates: str, expensive) -> None:
    """Refuse values that do not exist.

    Raises
    ------
    ValueError
    """
    if learn not in LEARN:
        raise ValueError(f"learn must be one of {LEARN}, got {learn!r}.")
    if coordinates not in COORDINATES:
        raise ValueError(f"coordinates must be one of {COORDINATES}, got {coordinates!r}.")
    if isinstance(expensive, str) or not all(isinstance(name, str) for name in expensive):
        raise ValueError(
            f"expensive must be a list of names of variables or of Ops' classes, got {expensive!r}."
        )
    if expensive and learn == "all":
        raise ValueError(
            "expensive names black boxes to learn one by one, and learn='all' does not."
        )


def factored_density(
    model, variables, point, compile_kwargs=None, *, coordinates="auto", expensive=()
) -> FactoredDensity | None:
    """The log density cut at its black boxes; None where the whole is to be learned as one.

    That is where there are none (NUTS is for such models), where they are noisy, where other steps sample some of the
    variables, where one log likelihood depends on nearly all unknowns, or where one has too many inputs.
    """
    try:
        cut = Cut(
            model, variables, point, noncentred=coordinates == "auto", declared=tuple(expensive)
        )
        if not _is_worth_it(cut):
            return None
        density = FactoredDensity(cut, point, compile_kwargs)
    except Unsplittable as reason:
        _log.debug("Learning the log density as a whole: %s.", reason)
        return None
    except Exception as error:  # what PyTensor evaluates it may still not differentiate, or cut
        if expensive:
            raise
        _log.warning(
            "KamiltonianStep could not cut the model at its black boxes (%s: %s) and learns the log density as a "
            "whole; learn='all' does so without trying.",
            type(error).__name__,
            error,
        )
        return None
    if density.parts_known.layout.outputs[-1] > LONGEST:
        return None
    _log.info(describe(cut, density))
    return density


def _is_worth_it(cut: Cut) -> bool:
    if not cut.boxes or max(inputs.size for inputs in cut.inputs) > WIDEST:
        return False
    if len(cut.boxes) > 1 or not all(cut.added) or cut.coordinates.priors:
        return True
    return 2 * len(cut.inputs[0].coordinates) <= cut.coordinates.dim


def describe(cut: Cut, density: FactoredDensity) -> str:
    """One line on what was found."""
    layout = density.parts_known.layout
    n = len(cut.boxes)
    ins, outs = (_span(edges[1:] - edges[:-1]) for edges in (layout.inputs, layout.outputs))
    kind = "log likelihoods" if all(cut.added) else "outputs" if not any(cut.added) else "mixed"
    known = names(v for v, *_ in cut.coordinates.layout)
    line = (
        f"Learning {n} black box{'es' * (n > 1)} of {ins} input{'s' * (ins != '1')} ({outs} {kind}"
    )
    line += f"{' each' if n > 1 else ''}); known, with gradients: all else about {known}"
    if cut.coordinates.priors:
        line += f"; non-centred: {names(cut.coordinates.priors)}"
    return line + "."


def _span(sizes) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return str(low) if low == high else f"{low} to {high}"
