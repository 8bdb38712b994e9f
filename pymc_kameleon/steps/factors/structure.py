"""Whether a model has a structure worth learning by: black boxes that each depend on a few of its unknowns."""

import logging
from typing import Any, Literal

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.steps.factors.black_boxes import Box, Unsplittable, find_boxes
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.factors.probe import WIDEST
from pymc_kameleon.steps.factors.split import Cut
from pymc_kameleon.steps.noise.noisy_factors import factors_of, names
from pymc_kameleon.steps.pytensor_internals import is_plain
from pymc_kameleon.surrogates.factors.layout import Layout

_log = logging.getLogger("pymc.kameleon")
LONGEST = 20_000  # outputs of all black boxes together


def check(learn: str, expensive) -> None:
    """Refuse values that do not exist with a ``ValueError``."""
    check_types({"learn": learn}, {"learn": Literal["auto", "all"]})
    if not isinstance(expensive, (list, tuple)) or not all(isinstance(name, str) for name in expensive):
        raise ValueError(f"expensive must be a list of names of variables or of Ops' classes, got {expensive!r}.")
    if expensive and learn == "all":
        raise ValueError("expensive names black boxes to learn one by one, and learn='all' does not.")


def factored_density(
    model, variables, point, compile_kwargs=None, *, noncentred=True, expensive=()
) -> FactoredDensity | None:
    """The log density cut at its black boxes; None where the whole is to be learned as one.

    That is where there are none (NUTS is for such models), where they are noisy, where other steps sample some of the
    variables, where one log likelihood depends on nearly all unknowns, or where one has too many inputs.
    """
    try:
        cut = Cut(model, variables, point, noncentred=noncentred, declared=tuple(expensive))
        if not cut.boxes:
            return None
        _check_cut(cut)
        density = FactoredDensity(cut, model, point, compile_kwargs)
        _check_parts(cut, density.parts_known.layout)
    except Unsplittable as reason:
        if expensive:
            raise ValueError(
                f"expensive names {', '.join(expensive)}, and the black boxes of this model cannot be learned one by "
                f"one: {reason}. Without expensive= the log density is learned as a whole."
            ) from None
        say_whole(model, str(reason))
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
    _log.info(describe(cut, density))
    return density


def _check_cut(cut: Cut) -> None:
    """Before anything is compiled: one number that depends on too much cannot be taken apart."""
    numbers = [all(v.type.ndim == 0 for v in box.outputs) for box in cut.boxes]
    widest = max((i.size for is_number, i in zip(numbers, cut.inputs, strict=True) if is_number), default=0)
    if widest > WIDEST:
        raise Unsplittable(f"one of them has {widest} inputs, more than {WIDEST}")
    if all(numbers):
        _check_number(cut, len(cut.boxes))


def _check_parts(cut: Cut, layout: Layout) -> None:
    """Whether the black boxes, or their parts, are worth learning one by one."""
    outputs = int(layout.outputs[-1])
    if outputs > LONGEST:
        raise Unsplittable(f"they have {outputs} outputs, more than {LONGEST}")
    _check_number(cut, layout.size)


def _check_number(cut: Cut, n_factors: int) -> None:
    alone = n_factors == 1 and all(cut.added) and not cut.coordinates.priors
    if alone and 2 * len(cut.inputs[0].coordinates) > cut.coordinates.dim:
        raise Unsplittable("it is one log likelihood of most of the unknowns")


def say_whole(model, reason: str) -> None:
    """Say why black boxes are not learned one by one; a model without any has nothing to be said."""
    boxes = boxes_of(model)
    if boxes:
        what = f"{boxes} black boxes" if boxes > 1 else "black box by itself"
        _log.info("Learning the log density as a whole, not its %s: %s.", what, reason)


def boxes_of(model) -> int:
    """How many black boxes there are in the log density of a model."""
    terms = {factor.name: term for factor, term, _ in factors_of(model)}
    if not all(map(is_plain, model.value_vars)):  # nobody can tell
        return 0
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
    what = f"{n} black box{'es' * (n > 1)}"
    if layout.size > len(cut.boxes):
        of = "a black box" if n == 1 else f"{n} black boxes"
        n = layout.size
        what = f"{n} parts of {of}, found with {density.probes} evaluations,"
        ins, outs = _span(wide), _span(long)
    kind = kind.removesuffix("s") if outs == "1" else kind
    line = f"Learning {what} of {ins} input{'s' * (ins != '1')} ({outs} {kind}"
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
    same: dict[Variable, Any] = {}  # what each is equal to, whichever copy of the graph it is in
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
