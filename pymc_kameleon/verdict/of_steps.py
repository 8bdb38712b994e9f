"""What the statistics that ``pm.sample`` keeps tell of the step that made the draws, and of what it learned."""

from typing import Any

import numpy as np

from pymc_kameleon.diagnostics import family

# by a statistic that no other step has, but for those above it
STEPS = {
    "residual_sd": "KamiltonianStep", "rank": "FastKameleonStep", "gamma": "KameleonStep",
    "n_components": "GaussianMixtureStep",
}  # fmt: skip


def known(idata: Any) -> dict[str, Any]:
    """``step``, its call without options; of the worst chain's surrogate what ``pk.sample`` stores of its own, but of
    all that were judged the largest ``uncovered``; ``looked``, whether a climb from elsewhere has ended; and
    ``other_mode``, where there is one: the mass of a mode that one found and the chain did not come near.

    The step is "..." where several have these statistics. Nothing, if it is none of ours.
    """
    statistics = idata["sample_stats"]
    if "move" not in statistics:
        return {}
    told: dict[str, Any] = {"step": next((f"pk.{name}()" for own, name in STEPS.items() if own in statistics), "...")}
    if "other_mode" in statistics:
        found = statistics["other_mode"].values[:, -1].reshape(statistics.sizes["chain"], -1)
        told["looked"] = bool(np.isfinite(found).any())
        masses = np.nan_to_num(found).max(axis=1)
        if masses.any():
            told |= {"other_mode": float(masses.max()), "other_mode_of": int(masses.argmax())}
    if "residual_sd" not in statistics or statistics["residual_sd"].ndim != 2:  # of several steps
        return told
    families = family(idata)[:, -1]
    error = np.where(families == "none", np.inf, statistics["residual_sd"].values[:, -1])
    worst = {"chain": int(np.argmax(error)), "draw": -1}
    of_it = {n: statistics[n][worst].item() for n in ("factors", "worst_factor") if n in statistics}
    # the step warns of every chain's, and that with the largest error may well cover; 1: none was judged
    judged = [share for share in statistics["uncovered"].values[:, -1] if share < 1.0]
    of_it["uncovered"] = float(max(judged, default=1.0))
    return told | {"surrogate": families[worst["chain"]], "residual_sd": error.max()} | of_it


def noise_sd(idata: Any) -> float:
    """Of the noisiest chain's log density, as tuning measured it; 0 where it is exact, or nothing is known."""
    statistics = idata["sample_stats"]
    return float(np.nan_to_num(statistics["noise_sd"].values).max()) if "noise_sd" in statistics else 0.0
