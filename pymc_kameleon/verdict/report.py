"""``pk.report``: in plain sentences, whether a run can be used, and what to do if not."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.steps.noise.hidden_generators import hidden_names
from pymc_kameleon.steps.noise.noisy_factors import noisy_names
from pymc_kameleon.steps.pooled_trace import group, plain
from pymc_kameleon.steps.prior_scale import bounded_names, finite_ends
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.watch import MODELLED
from pymc_kameleon.verdict import control_variates, convergence, directions, doubts, endless, of_steps, to_try

EDGES = 0.5  # of the evaluations, without a density
SHOWN = 3  # chains that are named, of those that are where the others are not


def report(idata: Any, model: Any = None) -> str:
    """Say in plain sentences whether the draws of ``pk.sample`` or ``pm.sample`` can be used, and why.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pk.sample`` or ``pm.sample`` returned.
    model : pymc.Model, optional
        Whose draws these are: where its priors end, draws may, which of its factors are estimates or hide one, by its
        unknowns it says how long to tune (without it by all variables, deterministics included), and of heavy or flat
        priors, with three evaluations an element, whether they are all that ends the posterior. ``pk.sample`` stored
        all but that.

    Returns
    -------
    str
        One page; the first line is the verdict.

    Raises
    ------
    ValueError
        If there is no posterior, fewer than two chains or ten draws of each, or nothing finite that varies.
    """
    posterior = group(idata, "posterior")
    if posterior is None:
        raise ValueError(
            f"report takes what pk.sample or pm.sample returned, with a posterior, got {type(idata).__name__}."
        )
    chains, n = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains < 2 or n < convergence.LEAST_DRAWS:
        few = "more evaluations, or fewer chains" if "evaluations" in posterior.attrs else "more draws"
        raise ValueError(
            f"report compares chains: it takes two of {convergence.LEAST_DRAWS} draws at least, got {chains} of {n}: "
            f"{few if chains > 1 else 'chains=4'}."
        )
    if group(idata, "sample_stats") is None:
        raise ValueError("report takes what pk.sample or pm.sample returned, and this has no group sample_stats.")
    attributes = dict(posterior.attrs)
    if "evaluations" not in attributes:  # pm.sample's
        attributes |= of_steps.known(idata)
    groups = of_steps.groups(posterior, attributes.get("groups"))
    derived = attributes.get("derived", "").split(", ") if model is None else [v.name for v in model.deterministics]
    elements = convergence.elements(plain(posterior))
    finite = {name: x for name, x in elements.items() if np.isfinite(x).all()}
    moving = {name: x for name, x in finite.items() if np.ptp(x) > 0.0}
    broken = [name for name in elements if name not in finite]
    if not moving:
        raise ValueError("report finds nothing to judge: no variable of the posterior has finite draws that differ.")
    whole = {name for name, values in posterior.data_vars.items() if values.dtype.kind in "iub"}
    still = [name for name in elements if name not in moving and name.split("[")[0] in whole]
    # an element of an unknown may be a constant (of a correlation matrix), and so may a deterministic
    may_stand = {*whole, *derived, *(name.split("[")[0] for name in (*moving, *broken))}
    stuck = [name for name in finite if name.split("[")[0] not in may_stand]
    if model is None and "derived" not in attributes:  # one may be a deterministic
        still, stuck = [*still, *stuck], []
    across = {name: x for name, x in moving.items() if directions.lies_across(x)}
    moving |= {name: directions.unrolled(x) for name, x in across.items()}
    names, draws = list(moving), np.stack(list(moving.values()), axis=2)
    judged = convergence.judge(draws, groups)
    judged = judged._replace(tail=float(np.fmin.reduce(convergence.of_each("ess", draws, method="tail"))))
    ess, rhat = _worst(names, draws)
    ends = attributes.get("ends") if model is None else finite_ends(model)
    noisy = attributes.get("noisy", "") if model is None else noisy_names(model)
    hidden = attributes.get("hidden_noise", "") if model is None else hidden_names(model)
    bounded = attributes.get("bounded", "").split(", ") if model is None else bounded_names(model)
    noise_sd = of_steps.noise_sd(idata)
    doubted = doubts.find(
        idata, attributes, names, draws, judged, None if ends is None else np.ravel(ends), noisy, bounded
    )
    doubted = doubts.without(doubted, derived)
    doubted = doubted._replace(hidden=hidden, stuck=stuck, diverged=of_steps.diverged(idata))
    if model is not None and not noisy:
        doubted = doubted._replace(
            endless=tuple(doubts.Worst(n, k, t) for n, t, k in endless.tails(model, plain(posterior)))
        )
    parts = [
        convergence.verdict(
            judged,
            len(names),
            doubts.in_short(doubted),
            "scales near 0" if doubted.short else "",
            _of(idata, attributes, [*still, *broken, *(tail.name for tail in doubted.derived)]),
        ),
        _no_climb(attributes),
        *_failures(idata, attributes),
        _cost(attributes, judged, ess, chains, n),
        _agreement(judged, rhat, ess, chains),
        directions.tell(across.items()),
        _standing_still(still),
        f"Not judged: {directions.listed(broken)}, of which draws are NaN or infinite." if broken else "",
        *doubts.in_full(doubted),
        *_noise(idata, noisy, noise_sd),
        *_surrogate(attributes, judged, noisy),
        *_moves(idata, attributes),
        *_modes(idata, attributes, judged),
        *_control_variates(idata),
        *_chains(
            idata,
            *_with_means(names, draws, (*doubted.heavy, *doubted.derived)),
            learned=attributes.get("surrogate") != "none",
        ),
        *of_steps.divergences(idata),
        *to_try.sentence(
            idata,
            model,
            attributes,
            judged,
            len(names),
            ess.value,
            n * of_steps.spacing(posterior["draw"].values),
            noise=(noisy, noise_sd),
            cut=bool(doubted.cut),
            biased=bool(doubted.biased or doubted.hidden),
        ),
        *_unseen(attributes, noise_sd),
    ]
    return "\n".join(part for part in parts if part)


def _of(idata: Any, attributes: dict[str, Any], but_for: list[str]) -> str:
    """What the verdict is about, if not all."""
    said = f"but for {directions.listed(list(dict.fromkeys(but_for)))}" if but_for else ""
    part = ""
    if _failing(attributes) > advice.FAILING_TUNING:
        part = "of what the model can evaluate"
    elif "evaluations" not in attributes and _is_much(*of_steps.not_finite(idata, attributes)):
        part = "of where the log density is finite"  # NaN or minus infinity: pm.sample does not tell
    # little has looked for others: chains from around the initial point were all in one of two
    elif "factors" in attributes and not attributes.get("looked") and _missed(attributes) > 0.5:
        part = "of the mode that these chains are in"
    return ", ".join(filter(None, (said, part)))


def _worst(names: list[str], draws: np.ndarray) -> tuple[doubts.Worst, doubts.Worst]:
    ess = np.nan_to_num(convergence.of_each("ess", draws, method="bulk"), nan=1.0)
    rhat = convergence.rhat_of_each(draws)
    fewest, apart = int(np.argmin(ess)), int(np.argmax(rhat))
    return doubts.Worst(names[fewest], float(ess[fewest])), doubts.Worst(names[apart], float(rhat[apart]))


def _cost(attributes: dict[str, Any], judged: convergence.Judgement, ess: doubts.Worst, chains: int, n: int) -> str:
    drawn = f"{n} draws of each of {chains} chains"
    of_one = chains <= np.size(attributes.get("groups", range(chains)))  # and not several runs' put together
    if "evaluations" not in attributes or not of_one:
        return f"There are {drawn}."
    total, tuning = int(attributes["evaluations"]), int(attributes["evaluations_tuning"])
    each = float(attributes["seconds"]) / max(int(attributes["rounds"]), 1)
    price = f" One effective draw of the worst parameter cost {total / ess.value:.1f} evaluations."
    return (
        f"{total} evaluations of the log density, {tuning} of them for tuning, in {int(attributes['rounds'])} rounds "
        f"of {each:.2g} s: {drawn}." + price * convergence.has_converged(judged)
    )


def _agreement(judged: convergence.Judgement, rhat: doubts.Worst, ess: doubts.Worst, chains: int) -> str:
    text = f"R-hat is {rhat.value:.3f} at most, of {rhat.name}; {ess.name} has fewest effective draws, {ess.value:.0f}."
    if chains < 4:  # as Vehtari et al. (2021) have it
        text += f" Of {chains} chains it sees little: a part that all of them lack is in none. Give four."
    nested = (
        f" Between the groups of chains that began together it is {judged.nested:.3f} (nested R-hat): with short "
        "chains that is the one to look at, and the verdict's."
    )
    return text if math.isnan(judged.nested) else text + nested


def _standing_still(names: list[str]) -> str:
    """Of what no chain has changed, integers or what nobody says to be an unknown."""
    if not names:
        return ""
    return (
        f"The same in every draw: {directions.listed(names)}. Nothing here tells whether the chains could have changed "
        "that: compare chains begun at other values (initvals=), or sum out what is discrete."
    )


def _noise(idata: Any, noisy: str, noise_sd: float) -> Iterator[str]:
    """How much there is, beside what is best, and the work that makes it."""
    if not noise_sd:
        return
    low, high = noise_probe.BEST_SD
    found = idata["sample_stats"]
    # two steps of one model have a value each
    work = ", ".join(f"{w:.0f}" for w in np.ravel(found["work"].values[:, -1])) if "work" in found else ""
    yield (
        f"The noise of {noisy or 'the log density'} had a standard deviation of {noise_sd:.2g} late in tuning, "
        f"in the noisiest chain ({low} to {high} is best){f'; work is {work} in the chains' if work else ''}."
    )
    if any(str(name).endswith("_lp") for name in found):  # a step of this package, and others
        yield (
            f"Other steps drew some of the variables: where {noisy or 'the log density'} depends on those, they are "
            "right only if pseudo_marginal.step_beside_noise made the step."
        )


def _surrogate(attributes: dict[str, Any], judged: convergence.Judgement, noisy: str) -> Iterator[str]:
    if "surrogate" not in attributes:
        return
    shared = "evaluations" in attributes  # otherwise each chain has its own, and this is the worst
    if attributes["surrogate"] == "none":
        where = "" if shared else " in a chain"
        yield f"Tuning ended{where} before a surrogate was learned; random-walk moves did all of the work."
        return
    error, uncovered = float(attributes["residual_sd"]), float(attributes["uncovered"])
    which, whose, its = (
        ("The", "the chains'", "it") if shared else ("The worst chain's", "a judged chain's", "its surrogate")
    )
    low = f"{'' if shared else 'at most '}{uncovered:.0%} of {whose} last tuning states lay where {its} is far too low"
    if uncovered == 1.0:  # nothing has been judged
        low = "tuning ended too soon after its last fit to say where it is too low"
    what = attributes["surrogate"]
    if boxes := int(attributes.get("factors", 0)):
        worst = attributes["worst_factor"]
        hardest = f", one by one, {f'that of {worst}' if shared else f'number {worst} (from 0)'} the hardest"
        what = "of the black box" if boxes == 1 else f"of {boxes} parts of black boxes{hardest}"
    units = "in units of the log density" + (f", the noise of {noisy} included" if noisy else "")
    yield f"{which} surrogate ({what}) was off by {error:.2g} out of sample, {units}; {low}."
    if "missed_where" in attributes:
        yield advice.missed(attributes)
    elif "probes" in attributes and convergence.has_converged(judged):  # else it comforts where nothing is known
        yield (
            f"{int(attributes['probes'])} points drawn from the flattened surrogate, farther out than the chains go, "
            "found nothing that it misses."
        )


def _moves(idata: Any, attributes: dict[str, Any]) -> Iterator[str]:
    """Who made the draws: the surrogate of the sentence before, or of screened moves."""
    own, accept = doubts.own_moves(idata, MODELLED)
    if own.any():
        who, rest = "It" if "surrogate" in attributes else "A surrogate", accept[~own]
        others = f"; of the random walk's {rest.mean():.0%}" if rest.size else ""
        yield f"{who} made {own.mean():.0%} of the moves, of which {accept[own].mean():.0%} were accepted{others}."
    elif own.size and attributes.get("step") == "pk.FastKameleonStep()":
        yield (
            "No move was screened by a surrogate: more unknowns than one is fitted in, a tuning that ended before, or "
            "screen=0."
        )


def _control_variates(idata: Any) -> Iterator[str]:
    gate = control_variates.gate_of(idata)
    if gate is not None:
        may = "may be used as a control variate, pk.expectations(idata)"
        yield f"It {may if gate.is_open else 'is no control variate, pk.expectations would refuse'}: {gate.why}"


def _missed(attributes: dict[str, Any]) -> float:
    """The largest basin that climbs would have missed in one run of twenty: its share of the starts."""
    met = int(attributes.get("climbs_met", 0))
    return 1.0 - 0.05 ** (1.0 / met) if met else 1.0


def _modes(idata: Any, attributes: dict[str, Any], judged: convergence.Judgement) -> Iterator[str]:
    """What climbs exclude; how many are known, how often chains changed, and what share of the draws is in each."""
    met = int(attributes.get("climbs_met", 0))
    if _missed(attributes) < 0.5 and convergence.has_converged(judged):  # of most of the starts they say something
        yield (
            f"{met} of {int(attributes['climbs'])} climbs met: at 95 % no basin with more than "
            f"{_missed(attributes):.0%} of the starts is missing."
        )
    known = int(attributes.get("modes", 1))
    if known < 2:
        return
    labels = np.asarray(idata["sample_stats"]["mode"].values)
    changes = int((np.diff(labels, axis=1) != 0).sum())
    shares = ", ".join(f"{np.mean(labels == k):.0%}" for k in range(known))
    yield (
        f"{known} modes are {'known' if convergence.has_converged(judged) else 'suspected'}, each with a surrogate of "
        f"its own; chains changed between them {changes} times."
        + f" In them are {shares} of the draws."
        + (" So these shares are those of the starts, and say nothing." if not changes else "")
        + " What no start came near may be missing."
    )


def _chains(idata: Any, names: list[str], draws: np.ndarray, *, learned: bool) -> Iterator[str]:
    """Which chain is where the others are not, or where the surrogate is wrong."""
    means = draws.mean(axis=1)
    # that of all draws grows with what is looked for: no mean of fewer than eight chains is three of those away
    centre, within = np.median(means, axis=0), np.median(draws.std(axis=1), axis=0)
    z = np.abs(means - centre) / np.maximum(within, np.finfo(float).tiny)
    statistics = idata["sample_stats"]
    share = np.ones(len(means))
    if learned and "share" in statistics:  # of several steps, the least
        share = statistics["share"].values.mean(axis=1).reshape(len(means), -1)
        if "surrogate" in statistics and (families := statistics["surrogate"].values).dtype.kind in "iu":
            fitted = families[:, -1].reshape(len(means), -1) != 0  # 0: "none", it was never learned
            share = np.where(fitted, share, 1.0) if fitted.shape == share.shape else share
        share = share.min(axis=1)
    strange = np.flatnonzero((share < 0.7) | (z.max(axis=1) > 3.0))
    if len(strange) > max(SHOWN, len(means) // 2):  # there are no others
        yield f"{len(strange)} of {len(means)} chains are far from the others, or stuck: they have not come together."
        return
    numbers = idata["posterior"]["chain"].values
    for chain in strange[:SHOWN]:
        furthest = int(np.argmax(z[chain]))
        others = np.median(np.delete(means[:, furthest], chain))
        stands = f"{names[furthest]} = {means[chain, furthest]:.3g} against {others:.3g} in the others"
        if share[chain] < 0.7:
            yield (
                f"Chain {numbers[chain]} spent much of its time where the log density is above the surrogate's, which "
                f"had at most {share[chain]:.0%} of its moves{f'; {stands}' if z[chain].max() > 1.0 else ''}."
            )
        else:
            yield f"Chain {numbers[chain]} is elsewhere: {stands}: another mode, or it has not come to them yet."
    if len(strange) > SHOWN:
        more = len(strange) - SHOWN
        are = "is" if more == 1 else "are"
        yield f"Of the {len(means)} chains {more} more {are} where the others are not, or stuck."


def _with_means(names: list[str], draws: np.ndarray, heavy: Any) -> tuple[list[str], np.ndarray]:
    """Without what has heavy tails: one far draw moves a chain's mean."""
    without = {tail.name for tail in heavy}
    kept = [k for k, name in enumerate(names) if name not in without] or [*range(len(names))]
    return [names[k] for k in kept], draws[:, :, kept]


def _no_climb(attributes: dict[str, Any]) -> str:
    if "no_climb" not in attributes:
        return ""
    return f"No climb has ended that could tell of other modes: {attributes['no_climb']}."


def _failing(attributes: dict[str, Any]) -> float:
    return int(attributes.get("failed", 0)) / int(attributes.get("evaluations", 1))


def _failures(idata: Any, attributes: dict[str, Any]) -> Iterator[str]:
    """First, because what cannot be evaluated is not learned either."""
    if "failed_where" in attributes:
        yield (
            f"{int(attributes['failed'])} evaluations ({_failing(attributes):.0%}) were NaN or +inf, "
            f"{attributes['failed_where']}"
        )
        return
    count, tried = of_steps.not_finite(idata, attributes)
    together = "evaluations" in attributes
    of = f"{count} of {tried} evaluations" if together else f"{count} of the draws' {tried} evaluations"
    if _is_much(count, tried) or (count and together):
        yield (
            f"{of} {'was' if count == 1 else 'were'} not finite. Minus infinity where the density is zero by "
            "right loses nothing; elsewhere the posterior lacks what lies there."
        )
    if count > EDGES * tried:
        yield (
            "Where so many are, the density ends at edges inside of what is sampled, as bounded errors make them: "
            "of those a surrogate learns a few, and its moves end beyond the others. Smooth errors, or a step without "
            "one (pk.AdaptiveMetropolisStep) from initvals near the posterior."
        )


def _is_much(count: int, tried: int) -> bool:
    return count > advice.FAILING * tried


def _unseen(attributes: dict[str, Any], noise_sd: float) -> Iterator[str]:
    """What these chains cannot tell."""
    if "step" in attributes:
        if not attributes.get("looked", True):
            options = "arrival=False, evaluations=" + ", initvals=" * ("factors" in attributes)
            why = f"none has ended in this tuning, or begins beside other steps or with {options}"
            yield f"No climb has looked for other modes: {'none begins under noise' if noise_sd else why}."
        yield "The chains learned alone: a mode that none of them has come to is missing from all, and from R-hat."
    elif "evaluations" in attributes:
        yield (
            "The chains share what they learned: a region that none of them has seen is missing from all. Where that "
            "matters, run again with another seed and initvals='prior', and compare."
        )
