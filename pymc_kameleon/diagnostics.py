"""What draws cost in log-density evaluations. R-hat, autocorrelation, intervals and effective draws are ArviZ's."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.surrogates.values.library import FAMILIES
from pymc_kameleon.verdict.convergence import of_each


class Efficiency(NamedTuple):
    """Bulk effective draws per 1000 evaluations: the worst and the median coordinate."""

    minimum: float
    median: float


def efficiency(draws: Any, evaluations: int, var_names: Sequence[str] | None = None) -> Efficiency:
    """Bulk effective sample size (ArviZ's) per 1000 log-density evaluations.

    Parameters
    ----------
    draws : ndarray of shape (chains, draws, d), InferenceData or DataTree
        Retained draws; of the last two the ``posterior`` group.
    evaluations : int
        Of all chains together, tuning and starts included.
    var_names : sequence of str, optional
        Which variables of the posterior; all by default, Deterministics as well.

    Notes
    -----
    A coordinate that never moved counts as 0 effective draws, where ArviZ returns their number.
    """
    if hasattr(draws, "posterior"):
        posterior = draws.posterior
        names = list(posterior.data_vars) if var_names is None else list(var_names)
        arrays = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    else:
        arrays = [np.asarray(draws, dtype=float)]
    x = np.concatenate([a.reshape(*a.shape[:2], -1) for a in arrays], axis=2)
    ess = np.where(np.ptp(x, axis=(0, 1)) == 0, 0.0, of_each("ess", x, method="bulk"))
    per_thousand = 1000.0 * ess / evaluations
    return Efficiency(float(per_thousand.min()), float(np.median(per_thousand)))


def family(idata: Any) -> np.ndarray:
    """The family of the surrogate behind every draw of ``KamiltonianStep``, in words.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pk.sample`` returned.

    Returns
    -------
    ndarray of str, shape (chains, draws)
        Of the statistic ``surrogate``: "none" before the first fit, "factors" where black boxes are learned one by one,
        "own" for a family that is not of the default library (after ``pk.sample`` its name).

    Raises
    ------
    KeyError
        Where the draws have no such statistic.
    """
    numbers = idata["sample_stats"]["surrogate"].values
    return numbers if numbers.dtype.kind == "U" else np.array([*FAMILIES, "own"])[numbers]
