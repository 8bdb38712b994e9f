"""What to tell about a surrogate of the log density when tuning ends: what was measured, and what could help.

Nothing, as long as it is good enough. Under noise the retained values scatter about the surrogate by the noise alone:
the share of them that is more than 2.5 above it, and their spread, are judged beyond what the noise explains.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.samplers.kamiltonian.trust import TOO_LOW
from pymc_kameleon.steps.hierarchies.reparametrized_density import left_centred
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.sampler_warnings import WarningType
from pymc_kameleon.steps.told.watch import Watch
from pymc_kameleon.surrogates.values.regression import affordable

WORTH_SAYING = 0.05  # share of the chain's states that the surrogate does not cover
INACCURATE = 2.0  # out-of-sample sd of log p - f, from which on few long moves are accepted


class Report(NamedTuple):
    """What was measured."""

    family: str  # that was chosen
    error: float  # of the fit, held out, in units of the log density
    residual_sd: float  # out of sample, of log p - f along the chain
    uncovered: float  # share of its late states at which f is more than 2.5 too low; 1: not known
    share: float  # of the draws, at most, that the surrogate proposes
    noise_sd: float  # of the log density; 0 if it is exact

    @property
    def is_known(self) -> bool:
        """Whether the surrogate was judged since it was fitted."""
        return self.uncovered < 1.0


def beyond_noise(residual_sd: float, noise_sd: float) -> float:
    """The residual's variance that noise leaves; estimated from a sticky chain, that of noise is half again as much."""
    return residual_sd**2 - 1.5 * noise_sd**2


def describe(report: Report, wanted: int | None, centred: bool = True, beside: str = "") -> str | None:
    """The warning, or None if there is nothing to warn of.

    ``wanted`` is how many tuning draws the dimension asks for, if there were fewer; ``centred``: there may be a
    hierarchy that could be non-centred; ``beside`` names what other steps sample, of which the log density is, too.
    """
    explained = 0.5 * math.erfc(TOO_LOW / (math.sqrt(2.0) * report.noise_sd)) if report.noise_sd else 0.0
    # what noise explains is estimated from a sticky chain: twice the share, half again the variance
    if report.is_known and report.uncovered > WORTH_SAYING + 2.0 * explained:
        wrong = "does not cover the posterior"
    elif beyond_noise(report.residual_sd, report.noise_sd) > INACCURATE**2:
        wrong = "is inaccurate"
    elif not report.is_known:
        wrong = "was not judged: tuning ended too soon after it was fitted"
    else:
        return None
    return f"the surrogate {wrong} ({_measured(report)}). {_advice(report, wanted, centred, beside)}"


def _measured(report: Report) -> str:
    figures = [f"family {report.family}", f"held-out error {report.error:.2g}"]
    if report.is_known:
        noise = f", {report.noise_sd:.2g} of it noise" if report.noise_sd else ""
        figures.append(f"out-of-sample sd {report.residual_sd:.2g} in the log density{noise}")
        figures.append(f"{report.uncovered:.0%} of the chain's late states lie where it is too low")
    figures.append(f"at most {report.share:.0%} of the moves are its own")
    return ", ".join(figures)


def _advice(report: Report, wanted: int | None, centred: bool, beside: str) -> str:
    """What could help, the likeliest first."""
    longer = f"tune={wanted} or more" if wanted else "longer tuning"
    if not report.is_known:
        return f"What helps: {longer}."
    helps = [
        f"one step for all, for what was learned is of old values of {beside} (sum out what is discrete)"
        * bool(beside),
        # less of it is then what helps most
        "less noise (more work for the estimator)" if report.noise_sd > noise_probe.BEST_SD[1] else "",
        longer if wanted else "",
        f"another parametrisation ({'non-centred hierarchies, ' * centred}fewer unknowns, no wall or kink: the "
        "surrogate learns smooth shapes)",
        "GaussianMixtureStep or KameleonStep, which need no surrogate",
        "" if wanted else f"{longer}, least likely",
    ]
    return f"What could help, the likeliest first: {'; '.join(filter(None, helps))}."


def describe_factors(statistics: dict, quality, draws: int) -> str | None:
    """The warning about black boxes that were learned one by one, or None if there is nothing to warn of.

    From the sampler's statistics and its ``Quality`` after so many tuning draws.
    """
    if statistics["surrogate"] == "none":
        wrong = f"tuning ended before a surrogate was learned ({quality.evaluations} evaluations)"
    elif not quality.arrived:
        wrong = f"{draws} tuning draws did not reach the typical set"
    elif quality.uncovered > WORTH_SAYING:
        wrong = f"the surrogate is too low at {quality.uncovered:.0%} of the chain's late states"
    elif quality.residual_sd > INACCURATE:
        wrong = f"the surrogate is inaccurate (sd {quality.residual_sd:.2g} in the log density)"
    else:
        return None
    worst = statistics["worst_factor"] if statistics["factors"] > 1 else ""
    helps = f"; the black box that is hardest to learn is that of {worst}" if worst else ""
    return f"{wrong}{helps}. Tune longer; if that is in vain, try learn='all'."


class SurrogateWatch(Watch):
    """Looks at a step that learns one."""

    learns = "surrogate"

    def begins(self, x: np.ndarray, value: float) -> None:
        """As any step's; and whether there are too many dimensions."""
        if self._is_of_values and not affordable(len(x)):
            self.add("dimension", advice.TOO_MANY_DIMENSIONS.format(dim=len(x)), whole_run=True)
        super().begins(x, value)

    @property
    def _is_of_values(self):
        return self.step.variant == "values" and not self.step.by_factors

    def wanted_tuning(self) -> int | None:
        """None too where it is not the dimension that asks."""
        known = self.step.known_points is not None
        return None if self.step.by_factors or known else super().wanted_tuning()

    def measures(self) -> bool:
        """Where there is a surrogate of values."""
        return self._is_of_values and self.step.algorithm_state.fit is not None

    def _judge_what_was_learned(self):
        """First what cannot be evaluated, and is not learned either."""
        failures, before, _, last = self.failures
        tried = self.step.evaluations - before
        if last is not None and failures >= max(advice.FAILURES, advice.FAILING_TUNING * tried):
            self._say_failures(advice.FAILURES_WHILE_TUNING, self.step.others, tried)
        super()._judge_what_was_learned()

    def is_frozen(self) -> None:
        """What is wrong with the surrogate, after what is wrong with the noise."""
        super().is_frozen()
        step, state = self.step, self.step.algorithm_state
        if state is None:
            return
        if step.by_factors:
            message = describe_factors(step.sampler.stats(state), state.quality, step.tuning_draws)
            measured = state.quality._asdict()
        elif self._is_of_values and affordable(len(step.position)):
            if state.fit is None:
                told = advice.no_surrogate(step.evaluations, self.wanted_tuning())
                self.add("no surrogate", told, WarningType.CONVERGENCE, evaluations=step.evaluations)
                return
            report = Report(
                state.fit.family, float(state.fit.error), float(state.quality.residual_sd),
                float(state.quality.uncovered), 1.0 - float(state.mixture.floor), self.noise_sd(),
            )  # fmt: skip
            centred = left_centred(step.model, step.density)
            beside = ", ".join(step.others)
            message, measured = describe(report, self.wanted_tuning(), centred, beside), report._asdict()
        else:
            return
        if message is not None:
            self.add("surrogate", message, WarningType.CONVERGENCE, **measured)
