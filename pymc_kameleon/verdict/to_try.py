"""What to try next, after draws that are not usable, or not for intervals: longer, otherwise, or with another step."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.steps.factors.structure import boxes_of
from pymc_kameleon.steps.hierarchies.reparametrized_density import left_centred
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.surrogate_report import beyond_noise
from pymc_kameleon.verdict import convergence

MOST = 10  # times as much, in one advice
KAMILTONIAN = "pk.KamiltonianStep()"
ALL_MODES = (
    'pk.sample(step=pk.KamiltonianStep(learn="all"), initvals="prior"), which jumps between modes that its starts reach'
)

AS_A_WHOLE = (
    "if the black box jumps, bends sharply or turns, the log density as a whole: step=pk.KamiltonianStep("
    'learn="all"), or pm.sample(step=pk.FastKameleonStep())'
)


def _wanted(attributes: dict[str, Any], elements: int, model: Any) -> int:
    """How many tuning draws the step asked for if there were fewer, by its own rule; 0 where it did not.

    That is by the unknowns. Where they are not known, all ``elements`` count: as far as ten times the tuning.
    """
    if "step" not in attributes or "factors" in attributes:
        return 0
    if model is not None:
        point = model.initial_point()
        return advice.TUNING * sum(np.size(point[v.name]) for v in model.continuous_value_vars)
    return min(advice.TUNING * elements, MOST * int(attributes.get("tuning_steps", 0)))


def _centred(idata: Any, attributes: dict[str, Any], model: Any) -> bool:
    """Whether there may be a hierarchy that nobody has non-centred: True where it is not known."""
    found = idata["sample_stats"]
    if "noncentred" in found and found["noncentred"].values.any():
        return False
    if "centred" in attributes:
        return bool(attributes["centred"])
    return model is None or left_centred(model)


def _beside(attributes: dict[str, Any], model: Any) -> str:
    """The discrete unknowns, which another step moves; nothing is known of them without the model."""
    if "step" not in attributes or model is None:
        return ""
    return ", ".join(rv.name for rv in model.free_RVs if rv.dtype.startswith(("int", "uint", "bool")))


def _longer(more: int, attributes: dict[str, Any], n: int, wanted: int) -> str:
    """The run ``more`` times as long, in the words of whoever made it."""
    if "evaluations" in attributes:  # pk.sample
        total = more * int(attributes["evaluations"])
        if "checkpoint" in attributes:
            rest = "(and draws=, target_ess= as much greater, where given): its checkpoint goes on"
            return f"{more} times the evaluations, the same call with max_evaluations={total} {rest}"
        call = f"pk.sample(max_evaluations={total}, evaluations=idata)"
        return f"{more} times the evaluations, {call}, which learns from these, the rest as before"
    if "tuning_steps" not in attributes:
        return f"{more} times the draws and the tuning"
    tune, what = int(attributes["tuning_steps"]), "the tuning"
    longer = more * tune
    if MOST * tune < 1000:  # pm.sample's own, of which no multiple of so few is
        longer, what = max(1000, wanted), "tuning to learn from"
    elif tune < wanted:
        longer, what = wanted, f"{advice.TUNING} tuning draws an unknown" if wanted != MOST * tune else what
    step, its = (f", step={attributes['step']}", "its options and ") if "step" in attributes else ("", "")
    return f"{more} times the draws and {what}, pm.sample({more * n}, tune={longer}{step}), {its}the rest as before"


def sentence(
    idata: Any, model: Any, attributes: dict[str, Any], judged: convergence.Judgement, elements: int, ess: float,
    n: int, *, noise: tuple[str, float], cut: bool, biased: bool,
) -> Iterator[str]:  # fmt: skip
    """The sentence, if there is anything: of ``n`` draws a chain, the worst of whose ``elements`` has ``ess``.

    ``noise``: the names of what is estimated, and its sd; ``cut`` and ``biased`` are doubts.
    """
    noisy, noise_sd = noise
    wanted = _wanted(attributes, elements, model)
    helps = []
    if biased:  # more draws of another distribution are no help
        return
    if beside := _beside(attributes, model):
        helps.append(f"sum out {beside}, which another step moves: what is learned here is of its old values")
    if not convergence.is_enough(judged, convergence.ENOUGH):
        more = int(min(max(2.0, math.ceil(convergence.ENOUGH / max(ess, 1.0))), MOST))
        helps.append(_longer(more, attributes, n, wanted))
    elif cut or not convergence.are_intervals_known(judged):
        helps.append(_longer(2, attributes, n, wanted))
    error = beyond_noise(float(attributes.get("residual_sd", 0.0)), noise_sd)
    wrong = attributes.get("surrogate") == "none" or error > 1.0
    if wrong:
        if "evaluations" in attributes:
            helps.append("fewer chains with as many evaluations, so that more rounds are left to learn in")
        if int(attributes.get("factors", 0)) == 1 and not noisy:  # a hierarchy has too many unknowns for that
            helps.append(AS_A_WHOLE)
        if noise_sd or not noisy:
            centring = ", non-centred hierarchies" * _centred(idata, attributes, model)
            helps.append(f"another parametrisation (no wall or kink, fewer unknowns{centring})")
    ours = bool({"step", "evaluations", "surrogate"} & set(attributes))
    if ours and "factors" not in attributes and not noisy and not convergence.has_converged(judged):
        if model is None or not boxes_of(model):
            helps.append("NUTS, pm.sample() without a step, where the model has a gradient")
        elif attributes.get("step", KAMILTONIAN) != KAMILTONIAN:
            helps.append(f"step={KAMILTONIAN}, which learns black boxes of few inputs one by one")
    if noise_sd > noise_probe.TOO_MUCH or (wrong and noisy and not noise_sd):
        measured = "" if noise_sd else ", if there is much: it was not measured"
        estimator = f" for the estimator of {noisy}" if noisy else ""
        helps.append(f"less noise{measured} (more work{estimator})")
    if {"other_mode", "ends_elsewhere"} & set(attributes):
        goes = {"step", "factors"} <= set(attributes)
        longer = "longer tuning, in which chains go to what their climbs have found; or " * goes
        helps.append(f"{longer}{ALL_MODES} (the place named above has to be among its draws)")
    elif "factors" in attributes and not noisy and not convergence.has_converged(judged):
        helps.append(f"if there are several modes, {ALL_MODES}")
    if "missed_where" in attributes:
        helps.append("more evaluations for tuning, and another seed with initvals='prior' to compare")
    if n < 50 and ess >= convergence.FEW:
        helps.append("longer chains: below 50 draws their starts may still show")
    if helps:
        yield "To try next: " + "; ".join(helps) + "."
