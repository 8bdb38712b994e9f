"""PyMC's life cycle around one transition: what every step of this package shares.

:class:`KernelStep` holds the log density compiled once and its value at the current state retained, the life cycle of a
chain, the sampling state, the statistics and the progress bar. A subclass names a sampler
(:class:`pymc_kameleon.samplers.seam.Sampler`) and its options.
"""

import math
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import (
    get_random_generator,
    get_state_from_generator,
    random_generator_from_state,
)

from pymc_kameleon.numerics.checks import count
from pymc_kameleon.samplers import noise_probe, tuned_work
from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.arrival.phase import default_budget
from pymc_kameleon.samplers.chain import freeze, transition
from pymc_kameleon.samplers.schedule import Scheduled
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.seam import Known, Point, Proposal, acceptance_probability
from pymc_kameleon.steps import advice, arrival_doubt, centring, progress
from pymc_kameleon.steps.centring import Choice
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.noise import (
    differ,
    renewal,
    seed_streams,
    variables_beside,
    variables_shared,
)
from pymc_kameleon.steps.noisy_factors import black_boxes
from pymc_kameleon.steps.option_types import check_types
from pymc_kameleon.steps.options import (
    CommonOptions,
    check_counts,
    check_preset,
    continuous,
    described,
    factor_names,
    full_point,
    unknown_option,
)
from pymc_kameleon.steps.prior_scale import Prior, jitter, look_at_prior
from pymc_kameleon.steps.pytensor_internals import NotScalar
from pymc_kameleon.steps.reparametrized_density import (
    PARAMETRIZATIONS,
    ReparametrizedDensity,
    reparametrized_density,
)
from pymc_kameleon.steps.sampler_warnings import SamplerWarning, SamplerWarnings, WarningType
from pymc_kameleon.steps.signatures import with_common

FLOAT: tuple[Any, list] = (np.float64, [])
MOVE: tuple[Any, list] = (np.dtype("U16"), [])
# where the model has estimators that are told how much work to do
WORK_STATISTICS = {"work": FLOAT, "work_spent": FLOAT}
SOME_NOISE = 1e-6  # sd that is told of noise that has not been measured yet
MEASURED = 10  # pairs of probes, or the noise is not known
ARRIVAL_SHARE = 0.4  # of tuning, at most
LOOKS = 6  # climbs after a chain's own, from draws of the prior; two of them where they find nothing else
LOOK_EVERY = 3  # tuning draws: one of so many is theirs
STATE_VERSION = 10  # of KernelStepState: raised whenever the meaning of a field changes
NEVER = 2**62
MODELLED = (
    "surrogate",
    "screened",
    "hamiltonian",
)  # moves that may all be accepted: on a model of the log density
NO_PROPOSALS = (
    "arrival",
    "refresh",
    "renewal",
)  # moves that are evaluated to learn, and cannot be accepted
NOT_TUNING = (False, 0.0, 1.0)
NOWHERE = Point(None, -math.inf, (0.0, []))  # type: ignore[arg-type]


@dataclass_state
class KernelStepState(StepMethodState):
    """Everything mutable in a step: with it, a chain resumes bit for bit.

    Attributes
    ----------
    state_version : int
        The states of other versions of this package are refused.
    method : str
        Which algorithm: the state of another one is refused.
    shapes, options : dict
        The variables' shapes and the step's options, described: the state of a step with others is refused.
    tune : bool
    position : ndarray of shape (d,) or None
        The current point as this step left it; ``None`` before a chain's first draw.
    log_density, noisy_log_density : float
        Retained values at ``position``: the whole, and the part from noisy factors where the two are kept apart.
    nonfinite, evaluations : int
        How many proposals had no finite log density; log density evaluations so far in this chain.
    others : dict of name to ndarray
        The other steps' variables, where ``log_density`` was evaluated.
    noise : list
        States of the generators that the log density draws from.
    auxiliary : list of ndarray
        The standard normals that the retained estimate is a function of, where the step owns them.
    tuning_draws : int
        Tuning draws so far in this chain.
    failures : list
        Since tuning began or ended: proposals whose log density was NaN or +inf; log density evaluations when it did;
        how many proposals of the kind call for a look at the factors; where the last was and what it was, or None.
    streak : int
        Since tuning ended: proposals accepted in a row, or, negative, rejected in a row.
    probe : NoiseProbe
        What is known about the noise of the log density.
    work : Work
        How many particles, simulations ... the estimators use; of those that are told.
    said, pending : list
        Keys of the warnings given, and those that have not left with a draw yet.
    arrival_state : tuple or None
        Of the arrival before the walk, while it lasts.
    doubt : Doubt or None
        While tuning, where the arrival ended before it was there.
    centring : Choice or None
        Of the coordinates, where they are not the model's own.
    algorithm_state : tuple or None
        The algorithm's own ``State``.
    """

    state_version: int = field(default=0, metadata={"frozen": True})  # 0: from before there was one
    method: str = field(metadata={"frozen": True})
    shapes: dict = field(metadata={"frozen": True})
    options: dict = field(metadata={"frozen": True})
    tune: bool
    position: Any
    log_density: float
    noisy_log_density: float
    nonfinite: int
    evaluations: int
    others: dict
    noise: list
    auxiliary: list
    tuning_draws: int
    failures: list
    streak: int
    probe: Any
    work: Any
    said: list
    pending: list
    arrival_state: Any
    doubt: Any
    centring: Any
    algorithm_state: Any


class KernelStep(BlockedStep):
    """Base of the package's steps; not to be instantiated itself.

    Parameters
    ----------
    vars : list of variables, optional
        Default: all continuous variables of the model.
    model : pymc.Model, optional
        Default: the model on the context stack.
    rng : numpy.random.Generator or seed, optional
        ``pm.sample`` replaces it, chain by chain, from ``random_seed``.
    initial_point : dict, optional
        Gives the variables' shapes. Default: ``model.initial_point()``.
    compile_kwargs : dict, optional
        For ``pymc.pytensorf.compile``, e.g. ``{"mode": "NUMBA"}``. Default: the fastest that works.
    blocked : bool
        One step for all variables (default), or one a variable.
    correlation : float, optional
        In [0, 1): correlated pseudo-marginal (Deligiannidis, Doucet & Pitt, 2018). The standard normals u of the
        model's ``NoisyLogLikelihood(fn, auxiliary_shape=...)`` become part of the state and are proposed as
        correlation u + sqrt(1 - correlation^2) times fresh ones. Default: fresh noise for every estimate.
    refresh_blocks : int, optional
        Block pseudo-marginal (Tran et al., 2016): cut u into this many blocks and propose anew only one of them, chosen
        at random, in each draw.
    arrival : bool
        Whether the first tuning draws (move "arrival") bring the chain from where it starts to the typical set, see
        :mod:`pymc_kameleon.samplers.arrival.phase`; at most 60 d + 300 of them, and 0.4 ``tune`` where that is given. A
        chain that is at the model's initial point first jumps to an over-dispersed start of its own, so that R-hat can
        tell whether chains from different starts agree. Default True, False with ``preset="paper"``. Only the jump
        where the log density is noisy or other steps move variables of the model.
    learning_draws : int, optional
        Learn from so many tuning draws, at least 1, and be frozen from then on, however long tuning goes on: what the
        step keeps of them, some 8 d + 250 bytes a draw, is bounded, and given back then. A step that takes ``tune=``
        should get the same number there. Default: learn from all tuning draws.
    preset : str, optional
        A named set of options; the options given besides it win.
    options
        The algorithm's: the keywords of its ``init``, with the same defaults.

    Raises
    ------
    ValueError
        For discrete variables, for variables without a single element, and for options outside their domain.
    TypeError
        For an option that the algorithm does not have.
    RuntimeError
        On a free-threaded Python that runs without its global interpreter lock.
    pymc.exceptions.SamplingError
        At a chain's first draw, if the log density there is not finite; the message names the factors.
    Exception
        What the model raises while it is evaluated, with the point and the black-box factors added as a note. Return
        NaN to reject a point instead.
    """

    name: ClassVar[str] = ""
    keeps_estimates = True  # a step that does may have a noisy log likelihood: see pseudo_marginal
    default_blocked = True
    state_version: ClassVar[int] = STATE_VERSION
    _state_class = KernelStepState
    chooses: ClassVar[str] = ""  # the keyword that chooses between samplers, if there is one ...
    variants: ClassVar[dict[str, Any]] = {}  # ... of these; the first is the default
    screens: ClassVar[int | None] = None  # default of the option ``screen``, where the step has it
    schedules: ClassVar[tuple[str, ...]] = ()  # the variants with the option ``schedule``
    parametrizes: ClassVar[bool] = True  # whether the step has the option ``parametrization``

    stats_dtypes_shapes: ClassVar[dict] = {
        "accept": FLOAT,
        "accepted": FLOAT,
        "scaling": FLOAT,
        "model_logp": FLOAT,
        "nonfinite": FLOAT,
        "move": MOVE,
        "warning": (SamplerWarning, None),  # as NUTS has it
    }

    def __init__(
        self, vars=None, *, model=None, rng=None, initial_point=None, compile_kwargs=None, blocked=True,
        correlation=None, refresh_blocks=None, arrival=None, learning_draws=None, preset=None, **options,
    ):  # fmt: skip
        if not getattr(sys, "_is_gil_enabled", lambda: True)():  # Python 3.13 and later have it
            raise RuntimeError(advice.no_lock(type(self).__name__))
        self.variant = next(iter(self.variants), "")
        if self.chooses:
            self.variant = options.pop(self.chooses, self.variant)
            if self.variant not in self.variants:
                raise ValueError(
                    f"{self.chooses} must be one of {tuple(self.variants)}, got {self.variant!r}."
                )
        common = {
            "model": model, "initial_point": initial_point, "compile_kwargs": compile_kwargs, "blocked": blocked,
            "correlation": correlation, "refresh_blocks": refresh_blocks, "arrival": arrival,
            "learning_draws": learning_draws, "preset": preset,
        }  # fmt: skip
        check_types(common, {**get_type_hints(CommonOptions), "preset": str | None})
        if learning_draws is not None:
            count(1, learning_draws=learning_draws)
        self.learning_draws = learning_draws
        self._screen = self._screened(preset, options)
        self._schedule = self._scheduled(options)
        self._parametrization = self._parametrized(preset, options)
        model = pm.modelcontext(model)
        self.vars = continuous(type(self).__name__, vars, model)
        self.blocked, self.rng = blocked, get_random_generator(rng)
        point = full_point(model, initial_point)
        self._factors = factor_names(model)
        self._model, self._warnings = model, SamplerWarnings(type(self).__name__)
        self._renewal = renewal(correlation, refresh_blocks)
        self._options = self._checked(preset, options)
        self._arrives = preset != "paper" if arrival is None else bool(arrival)
        self._prior: Prior | None = None  # what its draws say, once it is needed
        self._initial = {v.name: np.asarray(point[v.name]) for v in self.vars}
        self.shapes = {v.name: np.shape(point[v.name]) for v in self.vars}
        dim = sum(value.size for value in self._initial.values())
        if dim == 0:
            raise ValueError(advice.nothing_to_sample(type(self).__name__, self.shapes))
        # Options are wrong now or never, and a large model takes long to compile.
        self.sampler = self.algorithm(**self._options)
        if self._schedule is not None:
            self.sampler = Scheduled(inner=self.sampler, schedule=self._schedule)
        if self._screen:
            self.sampler = Screened(inner=self.sampler, transitions=self._screen)
        self.sampler.init(np.random.default_rng(0), np.zeros(dim))
        owns_auxiliary = correlation is not None or refresh_blocks is not None
        self._density = self._compile(model, point, compile_kwargs, owns_auxiliary)
        if self._density.given_work:
            # as PyMC itself does, for every step
            self.stats_dtypes_shapes = {**self.stats_dtypes_shapes, **WORK_STATISTICS}  # type: ignore[misc]
            self.stats_dtypes = [{n: dtype for n, (dtype, _) in self.stats_dtypes_shapes.items()}]
        with suppress(TypeError):  # a generator that cannot spawn; a chain brings one that can
            seed_streams(self._density.noise_cells(), self.rng)
        self._first_values: dict = {}
        self._idle = [None]  # empty while a draw is made
        if self._density.suspects:
            warnings.warn(advice.hidden_noise(self._density.suspects), stacklevel=2)
        self._reset(tune=True)

    def _compile(self, model, point, compile_kwargs, owns_auxiliary):
        """The log density that this step samples."""
        if self._parametrization == "auto":
            moved = reparametrized_density(model, self.vars, point, compile_kwargs, owns_auxiliary)
            if moved is not None:
                return moved
        return LogDensity(model, self.vars, point, compile_kwargs, owns_auxiliary)

    # -- life cycle ---------------------------------------------------------------------------

    @property
    def model(self) -> pm.Model:
        """The model that the step was built for."""
        return self._model

    @property
    def density(self) -> LogDensity:
        """The compiled log density."""
        return self._density

    @property
    def reparametrized(self) -> bool:
        """Whether the chain moves in other coordinates than the model's."""
        return isinstance(self._density, ReparametrizedDensity)

    @property
    def has_auxiliary(self) -> bool:
        """Whether the step owns the standard normals of the model's estimators."""
        return bool(self._density.auxiliary)

    @property
    def learning_options(self) -> dict[str, Any]:
        """The options given, less the length of tuning: for who runs the algorithm without the step."""
        return {name: value for name, value in self._options.items() if name != "tune"}

    def set_rng(self, rng: Any) -> None:
        """Begin a chain (PyMC < 6.3)."""
        self._begin_chain(rng)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain (PyMC >= 6.3). ``tune`` and ``draws`` are not used: older versions do not tell them, and the
        same seed is to give the same draws everywhere.
        """
        self._begin_chain(rng)

    def _begin_chain(self, rng):
        self.rng = get_random_generator(rng, copy=False)
        self._warnings.begin_chain(self.rng)
        seed_streams(self._density.noise_cells(), self.rng)
        self._reset(tune=True)

    def _reset(self, tune):
        self.tune = tune
        self.here = NOWHERE
        self.nonfinite, self.evaluations, self.tuning_draws = 0, 0, 0
        self.probe = noise_probe.NoiseProbe()
        self.work = tuned_work.begin(self._density.given_work)
        self.failures: list[Any] = [0, 0, NEVER, None]
        self.streak = 0
        self._window = progress.Window()
        self._warnings.reset()
        self.centring = centring.begin(self._density) if self.reparametrized else None
        self.arrival_state = self.algorithm_state = self._frozen_stats = self.doubt = None

    def reset_tuning(self) -> None:
        """Forget everything that was learned (called between sequential chains); uses no random numbers."""
        self._reset(tune=True)

    def stop_tuning(self) -> None:
        """Freeze everything that adapts."""
        arrived = self.arrival_state is not None and self.arrival_state.settled
        if arrived and self._is_to_be_centred():
            self._begin_walk(self.arrival_state)  # as it is
        if self.arrival_state is not None and not self.arrival_state.settled:
            self._begin_walk(self.arrival_state.stop())
        self.arrival_state = None
        if self.doubt is not None and not arrival_doubt.settled(self.doubt):
            told = advice.did_not_arrive(self.doubt.evaluations, self.doubt.log_density)
            self._say("arrival", told)
        self.doubt = None
        if self.tune and self.algorithm_state is not None:
            self._warn_of_what_misleads()
            self._warn_if_too_noisy()  # first: under noise the rest looks worse than it is
            self._tell_work()
            self._warn_if_short()
            self.algorithm_state = freeze(self.sampler, self.here, self.algorithm_state)
        if self.tune:
            self.failures = [0, self.evaluations, advice.FAILURES, None]
        self.tune = False

    @property
    def method(self) -> str:
        """Name of the step, and of the algorithm that it was told to use."""
        return f"{self.name}, {self.chooses}={self.variant!r}" if self.chooses else self.name

    @property
    def algorithm(self) -> Any:
        """Of what the step makes its sampler."""
        return self.variants[self.variant]

    @property
    def options(self) -> dict[str, Any]:
        """The options, defaults included, described so that they can be compared and stored."""
        defaults = self.algorithm.defaults()
        common = {"correlation": self._renewal.correlation, "refresh_blocks": self._renewal.blocks}
        if self.screens is not None:
            common["screen"] = self._screen
        if self.learning_draws is not None:
            common["learning_draws"] = self.learning_draws
        if self._schedule is not None:  # without one as before there was the option
            common["schedule"] = self._schedule
        if self.reparametrized:  # likewise
            common["parametrization"] = self._parametrization
        if self._density.given_work:
            common["work"] = self._density.given_work
        return described({**defaults, **self._options, **common})

    @property
    def sampling_state(self) -> Any:
        """Everything mutable, as a :class:`KernelStepState`; setting it resumes the chain that it is from."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state: Any) -> None:
        self._check_state(state)  # all of it before anything is changed
        BlockedStep.sampling_state.fset(self, state)

    def _check_state(self, state):
        ours: dict[str, Any] = {
            "state_version": self.state_version, "var_names": [v.name for v in self.vars],
            "method": self.method, "shapes": self.shapes, "options": self.options,
        }  # fmt: skip
        for name, mine in ours.items():
            given = getattr(state, name, None)
            if given == mine:
                continue
            if name == "options":
                differ = sorted(n for n in {*given, *mine} if given.get(n) != mine.get(n))
                given, mine = ({n: d.get(n) for n in differ} for d in (given, mine))
            raise ValueError(advice.other_state(type(self).__name__, name, given, mine))

    @property
    def position(self) -> np.ndarray | None:
        """The current point as this step left it; None before a chain's first draw."""
        return self.here.position

    @position.setter
    def position(self, x: np.ndarray | None) -> None:
        self.here = self.here._replace(position=x)

    @property
    def log_density(self) -> float:
        """Retained value at :attr:`position`."""
        return self.here.log_density

    @log_density.setter
    def log_density(self, value: float) -> None:
        self.here = self.here._replace(log_density=value)

    @property
    def noisy_log_density(self) -> float:
        """The part of it from noisy factors, where the two are kept apart."""
        return self.here.noise[0]

    @noisy_log_density.setter
    def noisy_log_density(self, value: float) -> None:
        self.here = self.here._replace(noise=(value, self.auxiliary))

    @property
    def auxiliary(self) -> list[np.ndarray]:
        """The standard normals that the retained estimate is a function of."""
        return self.here.noise[1]

    @auxiliary.setter
    def auxiliary(self, normals: list[np.ndarray]) -> None:
        self.here = self.here._replace(noise=(self.noisy_log_density, normals))

    @property
    def others(self) -> dict[str, np.ndarray]:
        """Values of the variables of other steps that the retained log density belongs to."""
        return self._density.others

    @others.setter
    def others(self, values: dict[str, np.ndarray]) -> None:
        self._density.follow(values)

    @property
    def noise(self) -> list[Any]:
        """States of the log density's generators."""
        return [get_state_from_generator(c.value) for c in self._density.noise_cells()]

    @noise.setter
    def noise(self, states: list[Any]) -> None:
        for cell, state in zip(self._density.noise_cells(), states, strict=True):
            cell.value = random_generator_from_state(state)

    @property
    def work(self) -> tuned_work.Work:
        """The work of the log density's estimators."""
        return self._work

    @work.setter
    def work(self, value: tuned_work.Work) -> None:
        self._work = value
        self._density.work = value.now

    @property
    def said(self) -> list[str]:
        """Keys of the warnings that this chain has given."""
        return self._warnings.said

    @said.setter
    def said(self, keys: list[str]) -> None:
        self._warnings.said = keys

    @property
    def pending(self) -> list[Any]:
        """Warnings that leave with the next draws."""
        return self._warnings.pending

    @pending.setter
    def pending(self, warnings: list[Any]) -> None:
        self._warnings.pending = warnings

    @property
    def centring(self) -> Choice | None:
        """How far the coordinates are centred, where they are not the model's own."""
        return self._centring

    @centring.setter
    def centring(self, choice: Choice | None) -> None:
        self._centring = choice
        if choice is not None:
            self._density.centring = choice.share

    @property
    def algorithm_state(self) -> Any:
        """The algorithm's own state."""
        return self._algorithm_state

    @algorithm_state.setter
    def algorithm_state(self, state: Any) -> None:
        self._algorithm_state = state
        self._frozen_stats = None

    # -- one draw -----------------------------------------------------------------------------

    def step(
        self, point: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[progress.Row]]:
        """One draw: at most one evaluation of the log density."""
        try:
            self._idle.pop()  # one operation, which no other thread can come between
        except IndexError:
            raise RuntimeError(advice.two_threads(type(self).__name__)) from None
        try:
            return self._told(*self._draw(point))
        finally:
            self._idle.append(None)

    def _draw(self, point):
        if self.tune and self.tuning_draws == self.learning_draws:
            self.stop_tuning()
        self.tuning_draws += self.tune
        moved = self._density.has_others and self._density.follow(point)
        x, here = self._density.ravel(point), self.here
        if here.position is None or moved or not self._density.is_at(x, here.position):
            self._restart(point, x)
            if self.reparametrized:  # what comes back from u differs in the last digits
                point = self._density.update(point, self.position)
        if self.arrival_state is not None and not self.arrival_state.settled:
            return self._step_of_arrival(point)
        if self._is_to_be_centred():
            return self._measure_centring(point)
        if self._waits_for_centring() and self.tuning_draws % len(x) == 0:
            self.centring = centring.seen(self._density, self.centring, self.position)
        if self.arrival_state is not None and self.tuning_draws % LOOK_EVERY == 0:
            return self._look(point)
        if self.tune and self._is_probe():
            return point, [self._probe()]
        if self.tune and self._renews and noise_probe.is_held(self.probe):
            return point, [self._estimate_anew()]
        before, self._point = self.here, point
        tuning = self._measured() if self.tune else NOT_TUNING
        self.here, self._algorithm_state, proposal, there, probability, accepted = transition(
            self.rng, self.sampler, before, self._algorithm_state, self._evaluate, *tuning
        )
        # without the shares
        self._log_ratio = there.log_density - before.log_density + proposal.log_q_ratio
        if accepted:
            self.probe = noise_probe.leave(self.probe)
        if self.doubt is not None:
            self.doubt = arrival_doubt.one_more(self.doubt, self.here.log_density)
        if not (self.tune or self._density.noisy or proposal.move.startswith(MODELLED)):
            self._count_streak(accepted)
        if self.here.position is not before.position:
            point = self._density.update(point, self.here.position)
        return point, [self._statistics(proposal, probability, accepted)]

    def _count_streak(self, accepted):
        """A random walk that is always or never accepted has not found the posterior's scale."""
        same = accepted == (self.streak > 0)
        self.streak = (self.streak if same else 0) + (1 if accepted else -1)
        if abs(self.streak) == advice.STREAK:
            self._say(
                "streak",
                advice.always_accepted() if accepted else advice.never_accepted(),
                WarningType.BAD_ACCEPTANCE,
            )

    def _measured(self):
        """That the sampler learns, and what is known of the noise."""
        sd = noise_probe.sd(self.probe)
        if self._density.noisy:  # before the first pair of probes, too
            sd = max(sd, SOME_NOISE)
        return True, sd, noise_probe.patience(self.probe)

    def _step_of_arrival(self, point):
        """One evaluation on the way to where the chain begins: no Metropolis test, because nothing is drawn yet."""
        self.probe, _ = noise_probe.count(
            self.probe
        )  # which draws are probes depends on their number
        state = self.arrival_state
        proposal = Proposal(state.propose(self.rng), -math.inf, "arrival")
        self._point = point
        there = self._evaluate(proposal, self.here)
        state = state.tell(self.rng, proposal.position, there.log_density)
        if state.current == state.evaluations - 1:  # the estimate's noise goes with the point
            self.here = self.here._replace(noise=there.noise)
        self.arrival_state, row = state, state.current
        self.here = self.here._replace(
            position=state.positions[row].copy(), log_density=float(state.log_densities[row])
        )
        if state.settled and not self._is_to_be_centred():
            self._begin_walk(state)
        return self._moved_to_here(point, proposal)

    def _is_to_be_centred(self):
        """Whether it is time to find out how far: at the end of a climb, or of a first part of the walk."""
        if not self._waits_for_centring():
            return False
        climbed = self._climbs() and self.arrival_state is not None
        return climbed or self.tuning_draws > centring.WALKED * self._density.dim

    def _waits_for_centring(self):
        return self.tune and self.centring is not None and not self.centring.settled

    def _measure_centring(self, point):
        """One evaluation beside the chain's point. After the last the chain goes on in the coordinates chosen."""
        proposal = Proposal(self.position + self.centring.displacement, -math.inf, "arrival")
        self._point = point
        there = self._evaluate(proposal, self.here)
        choice = self.centring.told(there.log_density - self.log_density)
        self.centring = choice
        if choice.complete:
            factor = None if self.arrival_state is None else self.arrival_state.factor
            choice = centring.settle(self.rng, self._density, choice, self.position, factor)
            here, change = self._density.recast(self.position, choice.share)
            # Exactness hangs on the Jacobian, and on this being for tuning draws only
            self.here = self.here._replace(position=here, log_density=self.log_density + change)
            self.centring = choice
            self._begin_walk(self.arrival_state)
            point = self._density.update(point, self.position)
        return point, [self._statistics(proposal, 0.0, False)]

    def _from_arrival(self, v):
        """The chain's coordinates of a point of the arrival's, non-centred, and what that adds to its log density."""
        if not self.reparametrized:
            return v, 0.0
        return self._density.recast(v, self.centring.share, self._density.noncentred)

    def _look(self, point):
        """One evaluation for a climb from elsewhere, between the draws of the walk; see ``arrival.search``."""
        state = self.arrival_state
        asked = state.propose(self.rng)
        position, change = self._from_arrival(asked)
        proposal = Proposal(position, -math.inf, "arrival")
        self._point = point
        there = self._evaluate(proposal, self.here)
        state = state.tell(self.rng, asked, there.log_density - change)
        self.arrival_state = None if state.done else state
        if state.done and state.chosen is not state.climbs[0]:  # far more mass: begin there, anew
            position, change = self._from_arrival(state.position.copy())
            self.here = self.here._replace(
                position=position, log_density=state.log_density + change
            )
            self._begin_walk(state)
        return self._moved_to_here(point, proposal)

    def _moved_to_here(self, point, proposal):
        moved = not self._density.is_at(self._density.ravel(point), self.position)
        if moved:
            point = self._density.update(point, self.position)
        return point, [self._statistics(proposal, float(moved), moved)]

    def _begin_walk(self, state):
        """The walk begins where the chain is, with what was learned on the way."""
        if state is None or state.done:
            self.arrival_state = None
        known = Known(spent=self.tuning_draws)
        if state is not None and self._hands_on():
            known = Known(self.tuning_draws, **self._learned(state))
            self.doubt = None
            if not state.arrived:  # said when tuning ends, unless the walk has arrived by itself
                value = self._density.model_log_density(self.position, state.log_density)
                self.doubt = arrival_doubt.begin(state.evaluations, value)
        self.algorithm_state = self.sampler.init(self.rng, self.position, known)
        self._start_algorithm()

    def _learned(self, state):
        """What the arrival tells the walk, in the walk's coordinates."""
        learned = state.learned()
        if not self.reparametrized:
            return learned
        return centring.recast(self._density, self.centring.share, state.position, **learned)

    def _hands_on(self):
        """Whether the walk learns from what was evaluated before it."""
        return self._climbs()

    def _climbs(self):
        """Whether values can be compared: not under noise, nor while other steps change the log density."""
        return not (self._density.noisy or self._density.has_others)

    def _set_out(self, x, value):
        """The arrival's state at a chain's first point; None where there is nothing to do."""
        at_initial = self._density.is_at(self._density.ravel(self._initial), x)
        if self.reparametrized:
            at_initial = np.array_equal(self._density.enter(self._density.ravel(self._initial)), x)
        if not (self._arrives and self.tune and (at_initial or self._climbs())):
            return None
        if self._prior is None:
            self._prior = look_at_prior(self._model, self.vars, self._initial)
        scale = self._density.spread(self._prior.scale)
        start, budget = None, default_budget(len(x))
        if at_initial:
            start = x + jitter(scale) * self.rng.uniform(-1.0, 1.0, len(x))
        if not self._climbs():
            budget = 1
        elif self._options.get("tune") is not None:
            budget = max(1, min(budget, int(ARRIVAL_SHARE * self._options["tune"])))
        looks = self._looks(scale) if self._climbs() else None
        return arrival_search.init(x, value, scale=scale, budget=budget, start=start, looks=looks)

    def _looks(self, scale):
        """Where the second look begins: draws of the prior; around the initial point where it cannot be drawn from.

        Single draws, not the best of many: in a model of dynamics those are the ones that fit a flat line best.
        """
        draws = self.rng.choice(self._prior.draws, LOOKS, replace=False)
        box = 2.0 * jitter(scale) * self.rng.uniform(-1.0, 1.0, draws.shape)
        around = self._density.ravel(self._initial) + box
        looks = np.where(np.isfinite(draws), draws, around)
        if not self.reparametrized:
            return looks
        entered = np.array([self._density.enter(x) for x in looks])
        return np.where(np.isfinite(entered), entered, box)

    def _is_probe(self):
        """Whether this tuning draw measures the noise."""
        if not self._density.noisy:
            return False
        every = noise_probe.EVERY_TUNED if self.work.now else noise_probe.EVERY
        self.probe, due = noise_probe.count(self.probe, every)
        return due

    def _probe(self):
        """Spend a tuning draw on estimating the log density of the current point again; the chain stays.

        The second of a pair starts from the first's noise, where successive estimates are correlated. The first takes
        other work where that is due, and then the chain takes its estimate: from after tuning on what it retains has to
        be an estimate made with the work that it has, and so it is at every draw.
        """
        first, before = self.probe.first, self.work
        if first is None and before.now:
            self.work = tuned_work.due(before)
        changed = self.work.now != before.now
        start = None if first is None else first[1]
        proposal = Proposal(self.position.copy(), -math.inf, "refresh", noise=start)
        there = self._evaluate(proposal, self.here)
        value, noisy = there.log_density, there.noise[0]
        # other steps may move what the other factors depend on, between the two
        measured = noisy if self._density.split and value > -math.inf else value
        if first is not None:
            square = noise_probe.half_square(self.probe, measured)
            self.work = tuned_work.learn(self.work, square)
        self.probe = noise_probe.record(self.probe, measured, there.noise)
        chance = acceptance_probability(self.log_density, value, 0.0)
        self.probe = noise_probe.meet(self.probe, chance)
        self._algorithm_state = self.sampler.observe(self._algorithm_state, there)
        if changed:
            self._renew(there, before)
        return self._statistics(proposal, 0.0, False)

    def _renew(self, there, before):
        """Take over an estimate made with other work than ``before``; if it is zero, stay with what was."""
        if there.log_density == -math.inf:
            self.work = self.work._replace(now=before.now)
            return
        self.probe = noise_probe.rescale(self.probe, tuned_work.change(before, self.work))
        self._take(there)

    def _estimate_anew(self):
        """Spend a tuning draw on an estimate in the place of the one that holds the chain; if it is zero, keep that."""
        proposal = Proposal(self.position.copy(), -math.inf, "renewal")
        there = self._evaluate(proposal, self.here)
        self._algorithm_state = self.sampler.observe(self._algorithm_state, there)
        if there.log_density > -math.inf:
            self._take(there)
        return self._statistics(proposal, 0.0, False)

    def _take(self, there):
        """Retain another estimate at the chain's point. Exactness hangs on this being for tuning draws only."""
        self.probe = noise_probe.leave(self.probe, fresh=True)
        self.here = there
        self._start_algorithm()

    def _evaluate(self, proposal, here):
        """What is at the proposal, from where the chain is; -inf and a count where the log density is not finite."""
        # a proposal with noise of its own comes from where another chain of the sampler is
        noisy, auxiliary = here.noise if proposal.noise is None else proposal.noise
        if proposal.log_density is not None:
            return Point(proposal.position, proposal.log_density, (noisy, auxiliary))
        if proposal.position is here.position:
            return Point(here.position, here.log_density, (here.noise[0], auxiliary))
        self._count_evaluation()
        if auxiliary:
            auxiliary = [self._renewal(self.rng, u) for u in auxiliary]
            self._density.auxiliary = auxiliary
        value, noisy = self._log_density_at(proposal.position)
        if not -math.inf < value < math.inf:  # NaN fails both
            self.nonfinite += 1
            if (
                value != -math.inf and proposal.move != "arrival"
            ):  # which looks far from the posterior
                self._count_failure(self._point, proposal.position, value)
            value, noisy = -math.inf, 0.0
        return Point(proposal.position, value, (noisy, auxiliary))

    def _count_evaluation(self):
        self.evaluations += 1
        self._work = tuned_work.spend(self._work)

    def _log_density_at(self, x):
        """(log density, its noisy part where the two are kept apart); an exception of the model's tells the point."""
        try:
            if self._density.split:
                deterministic, noisy = self._density.parts(x)
                return deterministic + noisy, noisy
            return self._density(x), 0.0
        except Exception as error:
            self.add_point(error, x)
            raise

    def add_point(self, error: Exception, x: np.ndarray) -> None:
        """Note in an exception of the model's at which point it was raised."""
        at = {name: value.tolist() for name, value in self._density.update({}, x).items()}
        factors = black_boxes(self._model)
        error.add_note(advice.where_it_was_evaluated(type(self).__name__, at, factors))
        no_array = isinstance(error, (TypeError, AttributeError)) or "expected an nd" in str(error)
        if factors and no_array:
            error.add_note(advice.NO_ARRAY)

    def _count_failure(self, point, x, value):
        """NaN is no density of zero, which -inf is: where it is frequent the posterior lacks what lies there."""
        self.failures[0] += 1
        self.failures[3] = x.copy(), value
        failures, before, enough, _ = self.failures
        tried = self.evaluations - before
        if failures < max(enough, advice.FAILING * tried):
            return
        # Finding the factor takes a compilation and an evaluation: rarely.
        factors = self._density.offending_factors(self._model, self._density.update(point, x))
        if -math.inf in factors.values():  # outside another factor's support nothing is missing
            self.failures[2] = 2 * failures
            return
        self.failures[2] = NEVER
        where = advice.where_it_failed(factors, value, self._density.update({}, x))
        self._say(
            "failures", advice.failures(failures, tried, where), failures=failures, tried=tried
        )

    def _warn_of_what_misleads(self):
        """Before all else, where what else there is to say would point the wrong way."""

    def _warn_of_failures(self):
        """Of the log density's while tuning."""
        failures, before, _, last = self.failures
        tried = self.evaluations - before
        if last is None or failures < max(advice.FAILURES, advice.FAILING_TUNING * tried):
            return
        x, value = last
        point = self._density.update(dict(self.others), x)
        factors = self._density.offending_factors(self._model, point)
        if -math.inf in factors.values():
            return
        where = advice.where_it_failed(factors, value, self._density.update({}, x))
        self._say(
            "failures", advice.failures_while_tuning(failures, tried, where), failures=failures, tried=tried
        )  # fmt: skip

    def _restart(self, point, x):
        """The chain starts, or another step moved a variable: evaluate the log density at the current point."""
        unmoved = self.position is not None and self._density.is_at(x, self.position)
        if unmoved and self.reparametrized:  # where a scale is small, x does not say what u is
            x = self.position.copy()
        else:
            x = self._density.enter(
                x
            )  # a copy: the driver's memory may be overwritten after the draw
        if not unmoved:
            self.probe = self.probe._replace(first=None)  # of another point
        if self.position is None:
            self.auxiliary = [self.rng.standard_normal(u.shape) for u in self._density.auxiliary]
        if (
            self.auxiliary
        ):  # with u kept, the estimate is a function of the point: it may be evaluated again
            self._density.auxiliary = self.auxiliary
        if self._density.split and unmoved:
            # Only variables of the deterministic factors moved: the noisy estimate stays what it is.
            value = self._density.deterministic_part(x) + self.noisy_log_density
        else:
            try:
                value, self.noisy_log_density = self._log_density_at(x)
            except NotScalar as error:
                self._refuse_shape(point, error)
            self._count_evaluation()
        if not math.isfinite(value) and (self.position is None or value != -math.inf):
            self._refuse(point, value)
        if self.position is None:
            self.check_model()
            self._warn_of_shared_variables()
        if self.position is None and not self._density.noisy:
            self._compare_with_other_chains(x, value)
        elif self.position is None:
            self._warn_of_steps_beside_noise()
        begins = self.position is None
        if begins and not self.tune:
            self._say("no tuning", advice.no_tuning(type(self).__name__), whole_run=True)
        self.here = self.here._replace(position=x, log_density=value)
        if self.arrival_state is not None:  # somebody moved the chain on its way
            self.arrival_state = self.algorithm_state = self.doubt = None
        if self._algorithm_state is None:
            self.algorithm_state = self.sampler.init(self.rng, x)
            if begins:
                self.arrival_state = self._set_out(x, value)
            if not self.tune:
                self._algorithm_state = self.sampler.freeze(self._algorithm_state)
        self._start_algorithm()

    def check_model(self) -> None:
        """Refuse to sample if the model has other factors than when the step was built."""
        now = factor_names(self._model)
        if now != self._factors:
            raise SamplingError(advice.model_has_changed(type(self).__name__, self._factors, now))

    def _warn_of_shared_variables(self):
        shared = variables_shared(self)
        if shared:
            self._say("shared variables", advice.sampled_twice(shared), whole_run=True)

    def _compare_with_other_chains(self, x, value):
        """Chains that start at the same point must find the same log density there, unless noise is hidden."""
        first = self._first_values.setdefault(self._density.digest(x), value)
        if differ(first, value):
            warnings.warn(advice.hidden_noise_seen(first, value), stacklevel=2)

    def _warn_of_steps_beside_noise(self):
        beside = variables_beside(self, self._density.others)
        if beside:
            self._say("other steps beside noise", advice.steps_beside_noise(beside), whole_run=True)

    def _start_algorithm(self):
        if self.position is not None:
            self._algorithm_state = self.sampler.place(self._algorithm_state, self.here)

    def _checked(self, preset, options):
        """The preset's options with the given ones on top; refuses names that the algorithm does not know."""
        presets = self.algorithm.presets
        check_preset(preset, presets)
        known = self.algorithm.defaults()
        for name in options:
            if name not in known:
                chosen = f" with {self.chooses}={self.variant!r}" if self.chooses else ""
                others = [v for v, m in self.variants.items() if name in m.defaults()]
                elsewhere = f"{self.chooses}={' or '.join(map(repr, others))}" if others else ""
                raise unknown_option(name, f"{type(self).__name__}{chosen}", known, elsewhere)
        check_counts(options)
        check_types(options, get_type_hints(self.algorithm))
        return {**presets.get(preset, {}), **options}

    def _screened(self, preset, options):
        """How many transitions on a surrogate a draw makes: the option ``screen``, taken out of ``options``."""
        if self.screens is None:
            return 0
        screen = options.pop("screen", 0 if preset == "paper" else self.screens)
        check_types({"screen": screen}, {"screen": int})
        count(0, screen=screen)
        return screen

    def _parametrized(self, preset, options):
        """In which coordinates the chain moves: the option ``parametrization``, taken out of ``options``."""
        if not self.parametrizes:
            return "model"
        chosen = options.pop("parametrization", "model" if preset == "paper" else "auto")
        check_types({"parametrization": chosen}, {"parametrization": str})
        if chosen not in PARAMETRIZATIONS:
            raise ValueError(f"parametrization must be one of {PARAMETRIZATIONS}, got {chosen!r}.")
        return chosen

    def _scheduled(self, options):
        """When to learn anew: the option ``schedule``, taken out of ``options``."""
        schedule = options.pop("schedule", None) if self.schedules else None
        if schedule is not None and self.variant not in self.schedules:
            there = f"{self.chooses}={' or '.join(map(repr, self.schedules))}"
            raise unknown_option(
                "schedule", f"{type(self).__name__} with {self.chooses}={self.variant!r}",
                self.algorithm.defaults(), there,
            )  # fmt: skip
        check_types({"schedule": schedule}, {"schedule": str | Callable | None})
        return schedule

    def __init_subclass__(cls, **kwargs):
        """Show what every step takes in the subclass's signature, and its meaning below the subclass's own options."""
        super().__init_subclass__(**kwargs)
        with_common(cls, KernelStep)

    def _refuse(self, point, value):
        factors = self._density.offending_factors(self._model, point)
        raise SamplingError(
            advice.not_finite(
                type(self).__name__, value, factors, point, starts=self.position is None
            )
        )

    def _refuse_shape(self, point, error):
        try:
            shapes = self._density.misshapen_factors(self._model, point)
        except Exception:  # what is said below is worth more than why it cannot be said better
            shapes = {}
        raise SamplingError(advice.not_a_number(type(self).__name__, error, shapes)) from error

    # -- statistics and progress --------------------------------------------------------------

    def _statistics(self, proposal, probability, accepted):
        own = self._frozen_stats
        if own is None:
            own = self._own_statistics(proposal)
            if not (self.tune or self._draws_differ):
                self._frozen_stats = own
        return {
            "accept": probability,
            "accepted": float(accepted),
            "model_logp": self._density.model_log_density(self.position, self.log_density),
            "nonfinite": float(self.nonfinite),
            "move": proposal.move,
            "warning": self._warnings.take(),
            **own,
            **self._work_statistics(),
        }

    def _work_statistics(self):
        if not self.work.now:
            return {}
        return {"work": float(sum(self.work.now)), "work_spent": float(self.work.spent)}

    @property
    def _renews(self):
        """Whether an estimate that holds the chain is made anew here, while tuning; the algorithm may do it itself."""
        return self._density.noisy

    _learns: ClassVar[str] = "proposal"  # what does, in messages
    _draws_differ: ClassVar[bool] = (
        False  # whether the algorithm's own statistics change after tuning
    )

    def _own_statistics(self, proposal):
        return self.sampler.stats(self._algorithm_state)

    def _wanted_tuning(self):
        """How many tuning draws the dimension asks for, if there were fewer; else None."""
        wanted = advice.TUNE_PER_DIMENSION * self._density.dim
        return wanted if self.tuning_draws < wanted else None

    def _warn_if_short(self):
        wanted = self._wanted_tuning()
        if wanted:
            self._say(
                "short tuning",
                advice.short_tuning(self.tuning_draws, self._density.dim, wanted, self._learns),
                whole_run=True,
                tuning_draws=self.tuning_draws,
                wanted=wanted,
            )

    def _warn_if_too_noisy(self):
        sd = self._noise_sd()
        if sd > advice.TOO_NOISY:
            self._say(
                "noise",
                advice.too_noisy(sd, correlated=bool(self.auxiliary)),
                WarningType.BAD_ACCEPTANCE,
                noise_sd=sd,
            )

    def _tell_work(self):
        """What was chosen, or that nothing could be."""
        if not self.work.now:
            return
        sd = noise_probe.sd(self.probe)
        message = advice.work_chosen(self.work, sd)
        self._say(
            "work", message, WarningType.BAD_ACCEPTANCE, level="info", work=sum(self.work.now), noise_sd=sd
        )  # fmt: skip

    def _noise_sd(self):
        """Measured sd of the log density's noise; 0 where there is none or too little was measured."""
        return noise_probe.sd(self.probe) if self.probe.pairs >= MEASURED else 0.0

    def _say(
        self,
        key,
        message,
        kind=WarningType.BAD_PARAMS,
        *,
        whole_run=False,
        level="warn",
        **measured,
    ):
        """Warn, with the next draw and once a chain; see :meth:`SamplerWarnings.add`."""
        self._warnings.add(key, message, kind, whole_run=whole_run, level=level, **measured)

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """NUTS where there is a gradient; preferred where there is none. See ``register``."""
        if var.dtype not in pm.vartypes.continuous_types or 0 in var.type.shape:
            return Competence.INCOMPATIBLE
        return Competence.COMPATIBLE if has_grad else Competence.PREFERRED

    _bar_shows: ClassVar[str] = progress.SCALE  # below acceptance and evaluations

    def _told(self, point, statistics):
        """A draw, with what the progress bar shows of it."""
        row = progress.Row(statistics[0])
        if row["move"] not in NO_PROPOSALS:
            self._window.add(row["accept"])
        climbing = self.arrival_state is not None and not self.arrival_state.settled
        phase = progress.TUNING if self.tune else progress.DRAWING
        phase = progress.CLIMBING if climbing else phase
        row.told = progress.Told(phase, self._window.mean, self.evaluations)
        return point, [row]

    @classmethod
    def _progressbar_config(cls, n_chains=1):
        return progress.columns(cls._bar_shows, n_chains)

    @classmethod
    def _make_progressbar_update_functions(cls):
        return (progress.update(cls._bar_shows),)
