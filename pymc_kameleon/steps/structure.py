"""Whether a model has a structure worth learning by: black boxes that each depend on a few of its unknowns."""

import logging
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_kameleon.steps.black_boxes import Box, Unsplittable, find_boxes
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
        if cut.boxes and (reason := _not_worth_it(cut)):
            raise Unsplittable(reason)
        if not cut.boxes:
            return None
        density = FactoredDensity(cut, point, compile_kwargs)
    except Unsplittable as reason:
        _say_whole(model, str(reason))
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
    outputs = int(density.parts_known.layout.outputs[-1])
    if outputs > LONGEST:
        _say_whole(model, f"they have {outputs} outputs, more than {LONGEST}")
        return None
    _log.info(describe(cut, density))
    return density


def _not_worth_it(cut: Cut) -> str:
    """Why the black boxes are not worth learning one by one; empty if they are."""
    widest = max(inputs.size for inputs in cut.inputs)
    if widest > WIDEST:
        return f"one of them has {widest} inputs, more than {WIDEST}"
    if len(cut.boxes) > 1 or not all(cut.added) or cut.coordinates.priors:
        return ""
    if 2 * len(cut.inputs[0].coordinates) > cut.coordinates.dim:
        return "it is one log likelihood of most of the unknowns"
    return ""


def _say_whole(model, reason: str) -> None:
    """Say why black boxes are not learned one by one; a model without any has nothing to be said."""
    boxes = boxes_of(model)
    if boxes:
        what = f"{boxes} black boxes" if boxes > 1 else "black box by itself"
        _log.info("Learning the log density as a whole, not its %s: %s.", what, reason)


def boxes_of(model) -> int:
    """How many black boxes there are in the log density of a model."""
    factors = [*model.free_RVs, *model.observed_RVs, *model.potentials]
    terms = dict(zip([f.name for f in factors], model.logp(factors, sum=False), strict=True))
    try:
        return len(distinct(find_boxes(terms, model.value_vars)))
    except Unsplittable:
        return 1


def describe(cut: Cut, density: FactoredDensity) -> str:
    """One line on what was found."""
    layout, groups = density.parts_known.layout, distinct(cut.boxes)
    n = len(groups)
    wide, long = np.diff(layout.inputs), np.diff(layout.outputs)
    ins = _span(np.array([max(wide[list(g.values())]) for g in groups]))
    outs = _span(np.array([sum(long[list(g.values())]) for g in groups]))
    kind = "log likelihoods" if all(cut.added) else "outputs" if not any(cut.added) else "mixed"
    known = names(v for v, *_ in cut.coordinates.layout)
    line = (
        f"Learning {n} black box{'es' * (n > 1)} of {ins} input{'s' * (ins != '1')} ({outs} {kind}"
    )
    line += f"{' each' if n > 1 else ''}); known, with gradients: all else about {known}"
    if cut.coordinates.priors:
        line += f"; non-centred: {names(cut.coordinates.priors)}"
    return line + "."


def distinct(boxes: list[Box]) -> list[dict[tuple[int, ...], int]]:
    """The calls of black boxes, each by numbers of its parts in ``boxes``: PyMC may copy one for every factor.

    Returns
    -------
    list of dict
        One a call; keys are which of its outputs a part stands for.
    """
    keys: dict = {}
    same: dict[
        Variable, Any
    ] = {}  # what a variable is equal to, whichever copy of the graph it is in
    for node in toposort([o for box in boxes for o in box.outputs]):
        key = (node.op, tuple(same.get(v, v) for v in node.inputs))
        number = keys.setdefault(key, len(keys))
        same |= {v: (number, i) for i, v in enumerate(node.outputs)}
    calls: dict = {}
    for k, box in enumerate(boxes):
        number = same[box.outputs[0]][0]
        calls.setdefault(number, {}).setdefault(tuple(same[o][1] for o in box.outputs), k)
    return list(calls.values())


def _span(sizes) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return str(low) if low == high else f"{low} to {high}"
