"""When a run is usable: effective draws, R-hat, R-hat of groups of chains, and tails. The rule stands here alone.

``pk.report``, the log of ``pk.sample`` and its ``target_ess`` all ask here. The bounds are measured, by
``benchmarks/verdicts.py``.
"""

import math
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy

EVERY = 10  # draws between two looks
# R-hat (that of the groups, where there are such) and effective draws, of means and of intervals (Vehtari et al., 2021)
CONVERGED, FEW = 1.03, 100.0
STRICTLY, ENOUGH = 1.01, 400.0
USABLE = "Usable"  # how a verdict begins that says so
LEAST_DRAWS = 10  # of a chain, or nothing is judged


class Judgement(NamedTuple):
    """What the draws so far say; NaN where there are too few."""

    ess: float = math.nan  # least bulk effective sample size over the coordinates, of all chains together
    rhat: float = math.nan  # largest over the coordinates: rank-normalised, split
    nested: float = math.nan  # the same of groups of chains that began together; NaN where there are none
    tail: float = math.nan  # least effective sample size of the 5 and 95 % quantiles; NaN where nobody has asked


def elements(dataset: Any) -> dict[str, np.ndarray]:
    """Arrays (chains, draws) of every element of a dataset, by ArviZ's names: ``x[a]`` where ``a`` is a coordinate."""
    found = {}
    for name, values in dataset.data_vars.items():
        values = values.transpose("chain", "draw", ...)
        array, labels = (np.asarray(values.values, float), [values[d].values for d in values.dims[2:]])
        for index in np.ndindex(array.shape[2:]):
            at = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            found[f"{name}[{at}]" if index else str(name)] = array[(..., *index)]
    return found


def of_each(statistic: str, draws: np.ndarray, **options: Any) -> np.ndarray:
    """ArviZ's ``ess``, ``rhat`` or ``mcse`` of every coordinate of ``draws`` (chains, n, d), shape (d,)."""
    import arviz as az

    with warnings.catch_warnings(), np.errstate(all="ignore"):  # of many chains, as is meant here; of some that stand
        warnings.filterwarnings("ignore", "(More chains|Found chain dim)", UserWarning)
        return np.asarray(getattr(az, statistic)({"x": draws}, **options)["x"])


def rhat_of_each(draws: np.ndarray) -> np.ndarray:
    """R-hat of every coordinate of ``draws`` (chains, n, d), shape (d,): infinite of chains that stand still."""
    found, still = of_each("rhat", draws), np.all(np.ptp(draws, axis=1) == 0.0, axis=0)
    return np.where(still | np.isnan(found), math.inf, found)  # rounding makes numbers of what is none


def judge(draws: np.ndarray, groups: list[int] | None = None) -> Judgement:
    """Judge ``draws`` (chains, n, d); ``groups`` says which chains began together."""
    if draws.shape[1] < LEAST_DRAWS or len(draws) < 2:
        return Judgement()
    ess = np.nan_to_num(of_each("ess", draws, method="bulk"), nan=1.0)
    ess = np.where(np.ptp(draws, axis=(0, 1)) == 0.0, 1.0, ess)
    sizes = np.bincount([] if groups is None else groups)  # smaller groups say too little of the variance within
    are_groups = len(sizes) > 1 and sizes.min() >= 4 and sizes.min() == sizes.max()
    nested = float(np.max(nested_rhat(draws, groups))) if groups is not None and are_groups else math.nan
    return Judgement(float(ess.min()), float(np.max(rhat_of_each(draws))), nested)


def nested_rhat(draws: np.ndarray, groups: list[int]) -> np.ndarray:
    """Rank-normalised nested R-hat of every coordinate, shape (d,) (Margossian et al., 2024, eq. 3).

    Many short chains: the variance within a group is that within its chains and that between them, which the plain
    R-hat would take for disagreement. ``groups``, of every chain, are of one size.
    """
    from scipy.stats import rankdata  # slow to import, as ArviZ is

    labels = np.asarray(groups)
    ranks = rankdata(draws.reshape(-1, draws.shape[2]), axis=0).reshape(draws.shape)
    z = scipy.special.ndtri((ranks - 0.375) / (draws.shape[0] * draws.shape[1] + 0.25))
    within, means = [], []
    for g in np.unique(labels):
        part = z[labels == g]
        own = part.var(axis=1, ddof=1).mean(axis=0) if part.shape[1] > 1 else 0.0
        within.append(own + part.mean(axis=1).var(axis=0, ddof=1))
        means.append(part.mean(axis=(0, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1.0 + np.var(means, axis=0, ddof=1) / np.mean(within, axis=0))


def describe(judged: Judgement) -> str:
    """In a few words."""
    return "too few to judge" if math.isnan(judged.rhat) else f"{judged.ess:.0f} effective, {named(judged)}"


def agreement(judged: Judgement) -> float:
    """The R-hat that decides: that of the groups of chains, or of the chains where there are no such groups."""
    return judged.rhat if math.isnan(judged.nested) else judged.nested


def named(judged: Judgement) -> str:
    """That number and which of the two it is; with a digit more where three would be a bound."""
    number = agreement(judged)
    digits = 4 if round(number, 3) in (STRICTLY, CONVERGED) else 3
    return f"{'nested ' * (not math.isnan(judged.nested))}R-hat {number:.{digits}f}"


def has_converged(judged: Judgement) -> bool:
    """Whether the chains, or the groups where there are such, agree."""
    return agreement(judged) < CONVERGED


def is_enough(judged: Judgement, target_ess: float) -> bool:
    """Whether to stop: so many effective draws, and the chains agree."""
    return judged.ess >= target_ess and has_converged(judged)


def are_intervals_known(judged: Judgement) -> bool:
    """Whether quantiles may be relied on: of heavy tails, with 210 to 340 effective draws there, 90 % were 85 to 87."""
    return agreement(judged) < STRICTLY and bool(np.fmin(judged.ess, judged.tail) >= ENOUGH)


def verdict(judged: Judgement, parameters: int, doubts: Iterable[str] = (), but_for: str = "", of: str = "") -> str:
    """What may be said of means, in one line, and of intervals, in another.

    The more ``parameters`` are judged, the farther off is the worst mean (Bonferroni: 2.6 standard errors of one, 3.3
    of ten). ``doubts``: what else was found that makes the draws unusable; ``but_for``: where intervals do not hold;
    ``of``: what part of the posterior the draws are of, if not all.
    """
    found = list(doubts)
    if not has_converged(judged):
        found.insert(0, f"the chains disagree ({named(judged)})")
    if not judged.ess >= FEW:
        found.append(f"the worst parameter has {judged.ess:.0f} effective draws")
    if found:
        return f"Not usable: {'; '.join(found)}."
    error = 100.0 / math.sqrt(judged.ess)
    # 1 % that a mean is off by more: one standard error is a false bound in every second run
    bound = math.ceil(float(scipy.special.ndtri(1.0 - 0.5 * 0.01 / parameters)) * error)
    said = (
        f"{USABLE}: standard error {error:.1f}% of a posterior sd, every mean within {bound:.0f}%{of and f', {of}'}.\n"
    )
    if are_intervals_known(judged):
        return said + f"Intervals of 90% hold 85 to 95%{but_for and f', but for {but_for}'}."
    wanted, least = [], np.fmin(judged.ess, judged.tail)
    if not agreement(judged) < STRICTLY:
        wanted.append(f"R-hat has to be below {STRICTLY} ({named(judged)})")
    if not least >= ENOUGH:
        wanted.append(f"it takes {ENOUGH:.0f} effective draws, at their ends too ({least:.0f})")
    return f"{said}Intervals are rough: for those {', and '.join(wanted)}."


def tail_indices(draws: np.ndarray) -> tuple[float, float]:
    """Pareto k of the lower and the upper tail of ``draws`` (chains, n): 1 / df of Student's t, 0 or less of a normal.

    NaN of whole numbers, and where all values in a tail are the same.
    """
    if (draws == np.round(draws)).all():
        return math.nan, math.nan
    # effective draws, of n: correlated ones take a longer tail
    relative = min(float(of_each("ess", draws[..., None])[0]) / draws.size, 1.0)
    below, above = (_upper_tail(side, relative) for side in (-draws, draws))
    return below, above


def heavy_from(draws: np.ndarray) -> np.ndarray:
    """From which Pareto k on tails of ``draws`` (chains, n, d) are heavy: .45, or more where chance makes that; (d,).

    The fewer effective draws, and the more tails are looked at (Bonferroni), the larger is the largest k of tails whose
    own is 0. ArviZ shrinks k as if ten draws of the tail more had told .5.
    """
    n = draws[..., 0].size
    tail, effective = (np.minimum(0.2 * k, 3.0 * np.sqrt(k)) for k in (n, np.minimum(of_each("ess", draws), n)))
    most = scipy.special.ndtri(1.0 - 0.01 / (2.0 * draws.shape[2])) / np.sqrt(effective)
    return np.fmax(0.45, (most * tail + 10.0 * 0.5) / (tail + 10.0))


def _upper_tail(draws: np.ndarray, relative: float) -> float:
    import arviz as az

    if hasattr(az, "psislw"):
        logs = np.log(np.maximum(draws - np.median(draws), np.finfo(float).tiny)).ravel()
        with np.errstate(over="ignore"):  # ArviZ's exponential of what one extreme draw weighs
            found = float(az.psislw(logs, relative)[1])
        return found if math.isfinite(found) else math.nan
    from arviz_stats.base import array_stats  # of ArviZ 1

    try:
        return float(array_stats.pareto_khat(draws, r_eff=relative, tail="right"))
    except ValueError:  # "All tail values are the same"
        return math.nan
