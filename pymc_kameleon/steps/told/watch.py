"""What a step looks out for while its chain runs, and when it says so; the sentences stand in :mod:`.advice`."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from pymc.exceptions import SamplingError
from pymc.vartypes import discrete_types

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.samplers.arrival.search import Doubt
from pymc_kameleon.samplers.life import Told
from pymc_kameleon.samplers.seam import NEVER
from pymc_kameleon.steps.factors.returned import misreturned, raised_by_the_model
from pymc_kameleon.steps.log_density import ModelError
from pymc_kameleon.steps.noise.demands import differ, sampled_beside, solves
from pymc_kameleon.steps.noise.noisy_factors import are_ours, black_boxes, noisy_names
from pymc_kameleon.steps.pytensor_internals import draws_random_numbers
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.places import place
from pymc_kameleon.steps.told.progress import NO_PROPOSALS
from pymc_kameleon.steps.told.sampler_warnings import SamplerWarnings, WarningType

# moves that may all be accepted: on a model of the log density
MODELLED = ("surrogate", "screened", "hamiltonian")


class Watch(SamplerWarnings):
    """Looks at one step, a :class:`~pymc_kameleon.steps.base.KernelStep`."""

    learns = "proposal"  # what does, in messages

    def __init__(self, step: Any):
        super().__init__(type(step).__name__)
        self.step = step
        # what the first chain found where it started, by :meth:`LogDensity.digest`
        self.first_values: dict[bytes, float] = {}

    def reset(self) -> None:
        """A chain begins: nothing has been seen or said."""
        super().reset()
        # Since tuning began or ended: proposals whose log density was NaN or +inf; log density evaluations when it did;
        # how many proposals of the kind call for a look at the factors; where the last was and what it was, or None.
        self.failures: list[Any] = [0, 0, NEVER, None]
        self.streak = 0  # since tuning ended: proposals accepted in a row, or, negative, rejected in a row

    # -- when a chain begins --------------------------------------------------------------------------

    def begins(self, x: np.ndarray, value: float) -> None:
        """What can be seen at a chain's first point ``x``, and would mislead."""
        step, density = self.step, self.step.density
        step.check_model()
        own = {v.name for v in step.vars}
        if shared := [name for name in sampled_beside(step) if name in own]:
            self.add("shared variables", advice.SAMPLED_TWICE.format(variables=", ".join(shared)), whole_run=True)
        if not density.noisy and (solved := sampled_beside(step, solves)):
            discrete = any(v.name in solved and v.dtype in discrete_types for v in step.model.value_vars)
            told = advice.solved_beside(solved, ", ".join(black_boxes(step.model)), discrete=discrete)
            self.add("black boxes beside", told, whole_run=True)
        if density.suspects:
            told = advice.HIDDEN_NOISE.format(", ".join(density.suspects))
            self.add("hidden generator", told, whole_run=True)
        if not density.noisy:
            self.compare(x, value)
        elif beside := [n for n in sampled_beside(step, draws_random_numbers) if n in density.others]:
            told = advice.STEPS_BESIDE_NOISE.format(variables=", ".join(beside))
            self.add("other steps beside noise", told, whole_run=True)
        if not step.tune:
            self.add("no tuning", advice.NO_TUNING.format(step=self.speaker), whole_run=True)

    def compare(self, x: np.ndarray, value: float) -> None:
        """Chains that start at the same point must find the same log density there, unless noise is hidden."""
        density = self.step.density
        first = self.first_values.setdefault(density.digest(x), value)
        if differ(first, value) and not density.suspects:  # which have been named
            apart = f"values {first} and {value} at one point, {abs(first - value):.2g} apart"
            self.add("hidden noise", advice.HIDDEN_NOISE.format(apart))

    # -- at every draw --------------------------------------------------------------------------------

    def drew(self, told: Told) -> None:
        """A random walk that is always or never accepted has not found the posterior's scale."""
        step, move = self.step, told.proposal.move
        if move.startswith(MODELLED) or step.density.noisy or move in NO_PROPOSALS or step.tune:
            return
        same = told.accepted == (self.streak > 0)
        self.streak = (self.streak if same else 0) + (1 if told.accepted else -1)
        if abs(self.streak) == advice.STREAK:
            said = advice.ALWAYS_ACCEPTED if told.accepted else advice.NEVER_ACCEPTED
            self.add("streak", said, WarningType.BAD_ACCEPTANCE)

    def failed(self, others: Mapping[str, Any], x: np.ndarray, value: float) -> None:
        """NaN is no density of zero, which -inf is: where it is frequent the posterior lacks what lies there."""
        self.failures[0] += 1
        self.failures[3] = x.copy(), value
        failures, before, enough, _ = self.failures
        tried = self.step.evaluations - before
        if failures < max(enough, advice.FAILING * tried):
            return
        # Finding the factor takes a compilation and an evaluation: rarely.
        said = self._say_failures(advice.FAILURES_AFTER_TUNING, others, tried)
        # outside another factor's support nothing is missing
        self.failures[2] = NEVER if said else 2 * failures

    def _say_failures(self, sentence, others, tried):
        """Name the factor; nothing is said where another one's density is zero."""
        density, failures, (x, value) = self.step.density, self.failures[0], self.failures[3]
        point = density.update(dict(others), x)
        factors = density.offending_factors(self.step.model, point)
        if -math.inf in factors.values():
            return False
        noisy = noisy_names(self.step.model) if density.noisy else ""
        where = advice.where_it_failed(factors, value, density.update({}, x), noisy)
        self.add("failures", sentence.format(failed=failures, tried=tried, where=where), failures=failures, tried=tried)
        return True

    # -- when tuning ends -----------------------------------------------------------------------------

    def tuning_ends(self) -> None:
        """Before anything is frozen."""
        step, density, state = self.step, self.step.density, self.step.life.state
        doubt, rivals = state.doubt, state.elsewhere
        if doubt is not None and not settled(doubt):
            height = density.model_log_density(doubt.position, doubt.log_density)
            self.add("arrival", advice.DID_NOT_ARRIVE.format(evaluations=doubt.evaluations, log_density=height))
        if rivals:
            largest = max(rivals, key=lambda r: r.gain)
            at = place(step.model, density.update({}, step.life.from_arrival(largest.position)[0]))
            told = advice.another_mode(at, largest.gain, step.leaves_hierarchies)
            self.add("another mode", told, WarningType.CONVERGENCE, log_mass=largest.gain)
        if state.tune and state.own is not None:
            self._judge_what_was_learned()

    def is_frozen(self) -> None:
        """After it: what failed from now on is counted anew."""
        self.failures = [0, self.step.evaluations, advice.FAILURES, None]

    def _judge_what_was_learned(self):
        self._look_at_noise()  # first: under noise the rest looks worse than it is
        step, draws = self.step, self.step.tuning_draws
        # half of it has two thirds of the effective draws (KameleonStep; other steps more), and pk.report counts them
        if (wanted := self.wanted_tuning()) and 2 * draws < wanted and not self.measures():
            told = advice.SHORT_TUNING.format(draws=draws, dim=step.density.dim, wanted=wanted, learns=self.learns)
            self.add("short tuning", told, whole_run=True, tuning_draws=draws, wanted=wanted)
        tune = step.declared_tune
        if tune not in (None, draws):
            told = advice.other_tuning(self.speaker, tune, draws)
            self.add("tune", told, whole_run=True, tune=tune, tuning_draws=draws)

    def _look_at_noise(self):
        """Too much of it; and which work was chosen for the estimators, or that none could be."""
        life, sd, kind = self.step.life, self.noise_sd(), WarningType.BAD_ACCEPTANCE
        work, probe = life.state.work, life.state.probe
        if sd > noise_probe.TOO_MUCH:
            ours = are_ours(self.step.model)
            told = advice.too_noisy(sd, work, correlated=bool(life.here.noise[1]), ours=ours)
            self.add("noise", told, kind, noise_sd=sd)
        elif work.now:
            told, sd = advice.work_chosen(work, probe), noise_probe.sd(probe)
            self.add("work", told, kind, level="info", work=sum(work.now), noise_sd=sd)

    def wanted_tuning(self) -> int | None:
        """How many tuning draws the dimension asks for, if there were fewer; else None."""
        wanted = advice.TUNING * self.step.density.dim
        return wanted if self.step.tuning_draws < wanted else None

    def measures(self) -> bool:
        """Whether what was learned is measured: it is then said what is wrong with it, and how long to tune."""
        return False

    def noise_sd(self) -> float:
        """Measured sd of the log density's noise; 0 where there is none or too little was measured."""
        probe = self.step.life.state.probe
        return noise_probe.sd(probe) if probe.pairs >= noise_probe.MEASURED else 0.0

    # -- what ends a run ------------------------------------------------------------------------------

    def refuse(self, point: dict[str, np.ndarray], value: float) -> None:
        """The chain starts where the log density is not finite, or another step brought it there."""
        factors = self.step.density.offending_factors(self.step.model, point)
        raise SamplingError(advice.not_finite(self.speaker, value, factors, point, starts=self.step.position is None))

    def moved(self, point: dict[str, np.ndarray], value: float) -> None:
        """A chain begins elsewhere, because there is no density at ``point``."""
        if self.chain:  # to name the factors takes a compilation, and only the first chain speaks
            return
        factors = self.step.density.offending_factors(self.step.model, point)
        told = advice.begins_elsewhere(value, factors)
        self.add("start", told, level="info", whole_run=True)

    def add_point(self, error: Exception, x: np.ndarray) -> None:
        """Note in an exception of the model's at which point it was raised."""
        step = self.step
        here = step.density.update({}, x)
        said = ""
        if not raised_by_the_model(error):
            with suppress(Exception):  # what is said below is worth more than why there is no more
                point = {**step.model.initial_point(), **step.others, **here}
                if said := misreturned(step.model, point):
                    error.add_note(said)
        at = {name: value.tolist() for name, value in here.items()}
        may_fail = not (said or isinstance(error, TypeError | NameError | AttributeError | ModelError))
        error.add_note(advice.where_it_was_evaluated(self.speaker, at, black_boxes(step.model), may_fail=may_fail))


def settled(doubt: Doubt) -> bool:
    """Whether the walk after an arrival that ran out of evaluations has come to the typical set on its own.

    The climb says that it is there only where its quadratic says so too; where that one is never good (a ridge, a kink)
    it hands the chain over, most often in the typical set or near. So the walk's log densities decide: one that climbs
    has unlike halves, and so few effective draws, one that is stuck has few or none.
    """
    heights = history.window(doubt.heights, 0.5)[:, 0]
    half = len(heights) // 2
    if half < 50 or not np.ptp(heights) > 0.0:
        return False
    import arviz as az  # slow to import

    return bool(az.ess(heights[-2 * half :].reshape(2, half)) > 20.0)  # R-hat of its quarters is then below 1.1
