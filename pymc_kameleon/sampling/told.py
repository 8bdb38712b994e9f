"""What ``pk.sample`` says of a run: attributes of what it returns, for ``pk.report`` and the next run, and its log."""

import logging
import math
from typing import Any

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError

from pymc_kameleon.samplers.kamiltonian.factors.learning import worst_factor
from pymc_kameleon.samplers.pooled.chains import Chains, posterior
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.hierarchies.reparametrized_density import left_centred
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.noise.noisy_factors import noisy_names
from pymc_kameleon.steps.prior_scale import bounded_names, finite_ends
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.places import place
from pymc_kameleon.verdict import convergence
from pymc_kameleon.verdict.report import report

_log = logging.getLogger("pymc.kameleon")


def nowhere(model: pm.Model, density: LogDensity, x: np.ndarray, tried: int) -> SamplingError:
    """The error of a run whose starts have no density, with the factors that are not finite at ``x``."""
    point = density.update({}, x)
    factors = density.offending_factors(model, point)
    found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or "their sum"
    return SamplingError(
        f"pk.sample cannot start: the log density is finite at none of {tried} points, the initial one and the chains' "
        "starts among them. "
        f"Not finite at the initial point: {found}. The point (unconstrained): "
        f"{ {k: np.asarray(v).tolist() for k, v in point.items()} }. Give others with pk.sample(initvals=...), or "
        "look at the factors named."
    )


def attributes_of(run: Chains, model: pm.Model, density: LogDensity, seconds: float) -> dict[str, Any]:
    """What the run was."""
    hub, evaluated = run.hub, run.evaluated
    probed, sought = run.probed(), run.sought()
    found = {
        "sampler": "pymc_kameleon.sample",
        "evaluations": evaluated.size,
        "evaluations_tuning": run.warmup[-1].evaluations if run.warmup else 0,
        "rounds": run.rounds,
        "seconds": seconds,
        "nonfinite": run.nonfinite,
        "failed": run.failed,  # NaN or +inf
        "climbs": sought.climbs,
        "climbs_met": sought.met,
        "surrogate": hub.fit.family if hub.fit is not None else "none",
        "surrogate_error": float(hub.fit.error) if hub.fit is not None else math.nan,
        "residual_sd": float(hub.quality.residual_sd),
        "uncovered": float(hub.quality.uncovered),
        "walk_share": float(hub.mixture.floor) if hub.mixture is not None else 1.0,
        "groups": list(run.groups),
        "modes": run.modes,
        "ends": finite_ends(model),
        "bounded": ", ".join(bounded_names(model)),
        "derived": ", ".join(v.name for v in model.deterministics),
        "centred": int(left_centred(model, density)),
        "stopped": run.stopped or "done",
    }
    if density.noisy:
        found["noisy"] = noisy_names(model)
    if density.suspects:
        found["hidden_noise"] = ", ".join(density.suspects)
    if not sought.climbs:
        found["no_climb"] = _why_no_climb(run, density)
    if isinstance(density, FactoredDensity):
        found |= {"factors": density.parts_known.layout.size, "worst_factor": worst_factor(density.parts_known, hub)}
    if run.failed >= max(advice.FAILURES, advice.FAILING * evaluated.size):
        found["failed_where"] = _where_it_failed(run, model, density)
    if probed.probes:  # draws from the flattened surrogate
        found |= {"probes": probed.probes, "probes_missed": probed.missed}
        if probed.where is not None:
            found["missed_where"] = place(model, density.update({}, probed.where))
    if sought.where is not None:
        found["ends_elsewhere"] = place(model, density.update({}, sought.where))
    return found


def _why_no_climb(run: Chains, density: LogDensity) -> str:
    if not run.plan.climb:
        return "none begins under noise"
    if isinstance(density, FactoredDensity):
        if not len(run.far):
            return "where black boxes are learned one by one none begins without draws of the prior, or from initvals="
    elif "arrival" not in run.evaluated.move:
        return "none begins from known points"
    return "the evaluations did not last to see where one ends"


def _where_it_failed(run: Chains, model: pm.Model, density: LogDensity) -> str:
    x, value = run.failed_at
    point = density.update({}, x)
    try:
        factors = density.offending_factors(model, point)
    except Exception:  # a model may raise only sometimes; what is known is said all the same
        factors = {}
    return advice.where_it_failed(factors, value, point, noisy_names(model) if density.noisy else "")


def advise(run: Chains, attributes: dict[str, Any], idata: Any) -> None:
    """Log what was done, and what there is to doubt."""
    judged = convergence.judge(posterior(run), run.groups)
    _log.info(
        "%d evaluations (%d for tuning) in %d rounds: %d draws of %s, %s.",
        attributes["evaluations"], attributes["evaluations_tuning"], attributes["rounds"], len(run.rows),
        "one chain" if len(run.starts) == 1 else f"each of {len(run.starts)} chains", convergence.describe(judged),
    )  # fmt: skip
    if "failed_where" in attributes:
        _log.warning(
            "%d of %d evaluations were NaN or +inf, %s", attributes["failed"], attributes["evaluations"],
            attributes["failed_where"],
        )  # fmt: skip
    if "missed_where" in attributes:
        _log.warning("%s See pk.report(idata).", advice.missed(attributes))
    if "ends_elsewhere" in attributes:
        _log.warning(
            "There may be another mode, from which no chain draws, at %s. See pk.report(idata).",
            attributes["ends_elsewhere"],
        )
    if attributes["surrogate"] == "none":
        _log.warning(
            "Tuning ended before a surrogate was learned: random-walk moves did all of the work. Give more evaluations."
        )
    elif math.isnan(judged.rhat):
        _log.warning(
            "%d draws of %s are too few to judge (%d of two chains at least): give more %s.",
            len(run.rows), "one chain" if len(run.starts) == 1 else f"each of {len(run.starts)} chains",
            convergence.LEAST_DRAWS, "chains" if len(run.starts) < 2 else "evaluations, or fewer chains",
        )  # fmt: skip
    else:
        verdict = report(idata).split("\n")[0]
        if not verdict.startswith(convergence.USABLE):
            _log.warning("%s See pk.report(idata).", verdict)
