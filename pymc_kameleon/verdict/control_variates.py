"""``pk.expectations``: more than independent draws, where the surrogate is good enough to be a control variate.

With draws x_t of the posterior p, C the region where the chains were when tuning ended, v_t = exp(f(x_t) - log p(x_t))
in C and 0 outside, and E_f the expectation under exp(f) on C, which costs no evaluation,

    E_p[h]  =  E_p[h] - (E_p[v h] / E_p[v] - E_f[h])

is consistent for any fixed f and C, and its variance is about s^2 times that of the mean of the draws, s the sd of
log v. That says nothing of a run of a thousand draws if exp(f) has mass that none of them has met: then E_f[h] is off
by posterior sds, and v_t at the draws does not show it. Hence the gate: draws of exp(f) on C that were evaluated, the
audits. And C has to lie in the posterior's support: what exp(f) has beyond it is in E_f[h] and in no v_t however many
the draws, a bias beside which the standard error is small.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_kameleon.steps.pooled_trace import group, plain
from pymc_kameleon.verdict import convergence

AUDITS, WITHIN, SHARE = (100, 1.0, 0.99)  # of so many audits and of the draws such a share has |log v| < 1


class Gate(NamedTuple):
    """Whether the surrogate may be used as a control variate."""

    is_open: bool
    why: str  # a sentence


def gate(log_ratios: np.ndarray, audits: np.ndarray) -> Gate:
    """Judge ``log_ratios`` f - log p, less their typical value, of the draws and of the ``audits``, in their order.

    Draws outside C, where it is ``-inf``, are estimated by themselves alone and say nothing. Where it is ``inf``,
    exp(f) has mass and the posterior none.
    """
    if outside := int(np.isposinf(audits).sum()):
        return Gate(
            False,
            f"{outside} of the evaluations in the region where it would be used found a log density of minus infinity: "
            "the posterior ends there, and the surrogate does not. The draws are exact all the same: use them.",
        )
    if audits.size < AUDITS:
        return Gate(
            False,
            f"{audits.size} draws of the surrogate were evaluated, and {AUDITS} are needed: give more evaluations.",
        )
    inside = log_ratios[log_ratios > -math.inf]
    shares = [float(np.mean(np.abs(x) < WITHIN)) if x.size else 0.0 for x in (audits[-AUDITS:], inside)]
    told = (
        f"of the last {AUDITS} evaluated draws of the surrogate {shares[0]:.0%} and of the chains' draws "
        f"{shares[1]:.0%} have a surrogate that is off by less than {WITHIN:g}"
    )
    if min(shares) < SHARE:
        return Gate(False, f"{told}; {SHARE:.0%} are needed. The draws are exact all the same: use them.")
    return Gate(True, f"{told}.")


def gate_of(idata: Any) -> Gate | None:
    """That of a run; None where it was made without control variates."""
    found = group(idata, "control_variates")
    return None if found is None else gate(found["log_ratio"].values, found["audit_log_ratio"].values)


def expectations(idata: Any, function: Callable[[Any], Any] | None = None) -> pd.DataFrame:
    """Posterior expectations with the surrogate as a control variate, beside those of the draws alone.

    Parameters
    ----------
    idata : InferenceData or DataTree
        Of :func:`pymc_kameleon.sample` with ``control_variates=True``, with all of its draws.
    function : callable, optional
        From a dataset like ``posterior`` to a dataset or DataArray with its dimensions ``chain`` and ``draw``: the
        quantity. It is called with the model's unknowns alone, no deterministics: those might ask the simulator.
        Default: every unknown.

    Returns
    -------
    pandas.DataFrame
        A row an element. ``mean`` and ``sd`` with their Monte Carlo standard errors ``mcse_mean`` and ``mcse_sd``;
        ``mean_draws``, ``mcse_mean_draws`` and ``sd_draws`` of the draws alone; ``controlled``, whether the control
        variate was used for the mean: where its standard error is not smaller, the draws' mean stands there. So with
        the sd.

    Raises
    ------
    ValueError
        Where the gate is closed: fewer than 100 audits (draws of exp(f) that were evaluated); of the last hundred or
        of the posterior's draws fewer than 99 % at which the surrogate is off by less than 1; minus infinity where it
        has mass. It says the figures. And for a run without control variates, and where the surrogate's own
        chains do not agree (R-hat of 1.01 or more).

    Notes
    -----
    The standard errors are ArviZ's, of the linearised estimator and of E_f, which comes from 8,000 free draws. Every
    posterior quantity that is no expectation, such as a quantile, is the draws'.
    """
    found = gate_of(idata)
    if found is None:
        raise ValueError(
            "expectations takes what pk.sample(..., control_variates=True) returned, and this has no group "
            f"control_variates: {_why_none(idata)}."
        )
    if not found.is_open:
        raise ValueError(f"The surrogate is no control variate for this run: {found.why}")
    ratios = idata["control_variates"]
    weights, inside = np.exp(ratios["log_ratio"].values), ratios["is_inside"].values.astype(float)
    unknowns = list(idata["surrogate_posterior"].data_vars)
    drawn, free = (_elements(idata[name], unknowns, function) for name in ("posterior", "surrogate_posterior"))
    rows = {}
    for name, x in drawn.items():
        for got, evaluated in ((x, weights), (free[name], inside)):  # selected or thinned, these are apart
            if got.shape != evaluated.shape:
                raise ValueError(
                    f"{name} has {got.shape[0]} chains of {got.shape[1]} draws, and the surrogate was evaluated at "
                    f"{evaluated.shape[0]} of {evaluated.shape[1]}: give idata as pk.sample returned it."
                )
        _check_agreement(name, free[name])
        rows[name] = _row(x, weights, free[name], inside)
    return pd.DataFrame.from_dict(rows, orient="index")


def _why_none(idata: Any) -> str:
    attributes = getattr(group(idata, "posterior"), "attrs", {})
    if "evaluations" not in attributes:
        return f"pk.sample did not make this {type(idata).__name__}"
    if attributes["surrogate"] == "none":
        return "tuning ended before a surrogate was learned. Give more evaluations"
    if int(attributes.get("modes", 1)) > 1:
        return f"{int(attributes['modes'])} modes were found, which have a surrogate each. Use the draws"
    return "it was made without. Sample again with control_variates=True"


def _elements(drawn: Any, unknowns: list, function: Callable[[Any], Any] | None) -> dict[str, np.ndarray]:
    """Arrays (chains, draws) by name and index."""
    dataset = plain(drawn)[unknowns]
    if function is not None:
        dataset = function(dataset)
        if not hasattr(dataset, "data_vars"):  # a DataArray
            dataset = dataset.to_dataset(name=dataset.name or "value")
    return convergence.elements(dataset)


def _check_agreement(name: str, free: np.ndarray) -> None:
    if np.ptp(free) == 0.0:
        return
    if not np.isfinite(free).all():
        raise ValueError(f"{name} is NaN or infinite at draws of the surrogate: give a function that is finite there.")
    apart = float(convergence.of_each("rhat", free[..., None])[0])
    if not apart < convergence.STRICTLY:
        raise ValueError(
            f"The surrogate is no control variate for this run: its own chains do not agree on {name} (R-hat "
            f"{apart:.3f}). The draws are exact all the same: use them."
        )


def _row(x, weights, free, inside) -> dict[str, float | bool]:
    mean, error = controlled(x, weights, free, inside)
    plain, plain_error = float(x.mean()), _mcse(x)
    is_better = error < plain_error
    if not is_better:
        mean, error = plain, plain_error
    squares = (x - mean) ** 2
    square, square_error = controlled(squares, weights, (free - mean) ** 2, inside)
    if not (square > 0.0 and square_error < _mcse(squares)):
        square, square_error = float(squares.mean()), _mcse(squares)
    sd = math.sqrt(square)
    return {
        "mean": mean, "mcse_mean": error, "sd": sd, "mcse_sd": square_error / (2.0 * sd) if sd else 0.0,
        "mean_draws": plain, "mcse_mean_draws": plain_error, "sd_draws": float(x.std()), "controlled": is_better,
    }  # fmt: skip


def controlled(h: np.ndarray, weights: np.ndarray, free: np.ndarray, inside: np.ndarray) -> tuple[float, float]:
    """E_p[h] and its standard error.

    ``h`` and ``weights``, v, are at draws of the posterior, (chains, draws); ``free`` is the quantity at draws of
    exp(f), and ``inside`` whether they are in C.
    """
    weights, inside = weights / weights.mean(), inside / inside.mean()
    weighted, expected = float((weights * h).mean()), float((inside * free).mean())
    # what each draw moves the estimate by: that of a ratio is its numerator's less the ratio times the denominator's
    influence = h - weights * (h - weighted)
    error = math.hypot(_mcse(influence), _mcse(inside * (free - expected)))
    return float(h.mean()) - weighted + expected, error


def _mcse(x: np.ndarray) -> float:
    if np.ptp(x) <= 1e-14 * np.abs(x).max():
        return 0.0
    # centred: ArviZ's variance, of squares less a square, is below zero where x hardly varies
    return float(convergence.of_each("mcse", (x - x.mean())[..., None], method="mean")[0])
