"""What the statistics that ``pm.sample`` keeps tell of the step that made the draws, and of what it learned."""

from collections.abc import Iterator
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
            of = statistics["chain"].values[masses.argmax()]
            told |= {"other_mode": float(masses.max()), "other_mode_of": int(of)}
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


def groups(posterior: Any, stored: Any) -> list[int] | None:
    """Who began together, of the chains that are left; None of several runs' chains, and where nobody says."""
    at, began = posterior["chain"].values, np.ravel([] if stored is None else stored)
    known = at.dtype.kind in "iu" and len(np.unique(at)) == len(at) and at.min() >= 0 and at.max() < len(began)
    return [int(g) for g in began[at]] if known else None


def spacing(draw: np.ndarray) -> int:
    """Every which draw is left of a run that was thinned."""
    return max(1, int(np.median(np.diff(draw)))) if draw.dtype.kind in "iu" and len(draw) > 1 else 1


def _ours(found: Any) -> list[str]:
    """The statistics of this package's divergences."""
    beside = [n for n in found if str(n).endswith("_diverging") and n != "surrogate_diverging"]
    return beside or ["diverging"] * ("diverging" in found and "refits" in found)


def diverged(idata: Any) -> float:
    """The share of NUTS' draws whose trajectory diverged."""
    found = idata["sample_stats"]
    return float(found["diverging"].mean()) if "diverging" in {*found} - {*_ours(found)} else 0.0


def divergences(idata: Any) -> Iterator[str]:
    """Of this package's steps and of NUTS, which mean other things."""
    found = idata["sample_stats"]
    if diverging := sum(int(found[n].sum()) for n in _ours(found)):
        missed = " that the surrogate misses" if "surrogate" in found else ""
        trajectories = "trajectory" if diverging == 1 else "trajectories"
        yield f"{diverging} {trajectories} ended where the log density falls off a cliff{missed}."
    if share := diverged(idata):
        theirs = round(share * found["diverging"].size)
        yield (
            f"NUTS had {theirs} divergence{'s' * (theirs > 1)}: where the posterior is narrow draws may be missing, "
            "and neither R-hat nor effective draws see that. Give it a greater target_accept, or other parameters."
        )


def not_finite(idata: Any, attributes: dict[str, Any]) -> tuple[int, int]:
    """How many of how many log densities: of ``pk.sample``'s run, or of the draws; none where no step counted."""
    if "evaluations" in attributes:
        return int(attributes.get("nonfinite", 0)), int(attributes["evaluations"])
    if "nonfinite" not in idata["sample_stats"]:
        return 0, 0
    running = idata["sample_stats"]["nonfinite"].values
    # of two runs one after the other it begins anew
    count = int(np.maximum(np.diff(running, axis=1), 0).sum())
    return count, running.size * spacing(idata["sample_stats"]["draw"].values)
