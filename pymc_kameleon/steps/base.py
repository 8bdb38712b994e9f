"""PyMC's life cycle around one transition: what every step of this package shares.

:class:`KernelStep` holds the log density compiled once and its value at the current state retained, the life cycle of a
chain, the sampling state, the statistics and the progress bar. A subclass names a sampler
(:class:`pymc_kameleon.samplers.seam.Sampler`) and its options.
"""

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_type_hints

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
from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.arrival.state import default_budget
from pymc_kameleon.samplers.life import LOOKS, Life, State
from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.samplers.schedule import Scheduled, ScheduleName
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.seam import NEVER, Point
from pymc_kameleon.steps.factors.returned import misreturned, raised_by_the_model
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.noise.demands import (
    differ,
    renewal,
    seed_streams,
    solved_beside,
    variables_beside,
    variables_shared,
)
from pymc_kameleon.steps.noise.noisy_factors import black_boxes
from pymc_kameleon.steps.options import (
    CommonOptions,
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
    reparametrized_density,
)
from pymc_kameleon.steps.signatures import complete
from pymc_kameleon.steps.told import advice, arrival_doubt, progress
from pymc_kameleon.steps.told.sampler_warnings import SamplerWarning, SamplerWarnings, WarningType

FLOAT: tuple[Any, list] = (np.float64, [])
MOVE: tuple[Any, list] = (np.dtype("U24"), [])
# What NUTS has, too, and what PyMC shows two of these as. Beside other steps ours have the step's name in front: PyMC
# puts equal names into one statistic with an axis more (``lp`` with zeros in it), which ArviZ's plots do not expect.
NUTS_HAS = {
    "model_logp": "lp", "tree_size": "n_steps",
    **{name: name for name in ("step_size", "energy_error", "diverging")},
}  # fmt: skip
# where the model has estimators that are told how much work to do
WORK_STATISTICS = {"work": FLOAT, "work_spent": FLOAT}
ARRIVAL_SHARE = 0.4  # of tuning, at most
STATE_VERSION = 12  # of KernelStepState: raised whenever the meaning of a field changes
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
    life_state : pymc_kameleon.samplers.life.State
        Where the chain is, what was learned, and how far it has come.
    nonfinite, evaluations : int
        How many proposals had no finite log density; log density evaluations so far in this chain.
    others : dict of name to ndarray
        The other steps' variables, where ``log_density`` was evaluated.
    noise : list
        States of the generators that the log density draws from.
    failures : list
        Since tuning began or ended: proposals whose log density was NaN or +inf; log density evaluations when it did;
        how many proposals of the kind call for a look at the factors; where the last was and what it was, or None.
    streak : int
        Since tuning ended: proposals accepted in a row, or, negative, rejected in a row.
    said, pending : list
        Keys of the warnings given, and those that have not left with a draw yet.
    """

    state_version: int = field(default=0, metadata={"frozen": True})  # 0: from before there was one
    method: str = field(metadata={"frozen": True})
    shapes: dict = field(metadata={"frozen": True})
    options: dict = field(metadata={"frozen": True})
    life_state: Any
    nonfinite: int
    evaluations: int
    others: dict
    noise: list
    failures: list
    streak: int
    said: list
    pending: list

    @property
    def position(self) -> np.ndarray | None:
        """As :attr:`KernelStep.position`."""
        return self.life_state.here.position

    @property
    def algorithm_state(self) -> Any:
        """As :attr:`KernelStep.algorithm_state`."""
        return self.life_state.own


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
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets.
    parametrization : {"auto", "model"}, optional
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
    preset : {None, "paper"}
        "paper": the algorithm as it was published; the options given besides it win.
    schedule : {"harmonic", "root"} or callable, optional
        While tuning, once there is something learned: the probability p_t of learning it anew after the t-th draw (the
        papers' algorithms 1), 1 / t, t^-1/2 or a function of t. Default: at growing intervals, as often as
        p_t = 10 / t on average.
    screen : int
        k: most draws are the end of k transitions of this step's own kernel on a surrogate of the log density, learned
        from every value seen while tuning, tested with one evaluation (Christen & Fox, 2005; ``move`` "screened"); as
        exact, and several times the effective draws for each evaluation where a surrogate fits, at some 30 microseconds
        a transition. See :mod:`pymc_kameleon.samplers.screened`. 0, the default but of FastKameleonStep (10), and with
        the preset, for none.
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
    # whether the log density as a whole is put into other coordinates
    parametrizes: ClassVar[bool] = True
    leading: ClassVar[tuple[str, ...]] = ("tune", "parametrization", "preset")  # shown first

    stats_dtypes_shapes: ClassVar[dict] = {
        "accept": FLOAT,
        "accepted": FLOAT,
        "scaling": FLOAT,
        "model_logp": FLOAT,
        "nonfinite": FLOAT,
        "move": MOVE,
        "warning": (SamplerWarning, None),  # as NUTS has it
    }

    if TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            """PyMC's may return a CompoundStep (blocked=False): checkers then look at no argument."""

    def __init__(
        self, vars=None, *, model=None, rng=None, initial_point=None, compile_kwargs=None, blocked=True,
        correlation=None, refresh_blocks=None, arrival=None, learning_draws=None, tune=None, parametrization=None,
        preset=None, **options,
    ):  # fmt: skip
        if not getattr(sys, "_is_gil_enabled", lambda: True)():  # Python 3.13 and later have it
            raise RuntimeError(advice.no_lock(type(self).__name__))
        self.variant = next(iter(self.variants), "")
        if self.chooses:
            self.variant = options.pop(self.chooses, self.variant)
            words: Any = Literal[tuple(self.variants)]
            check_types({self.chooses: self.variant}, {self.chooses: words})
        common = {
            "model": model, "initial_point": initial_point, "compile_kwargs": compile_kwargs, "blocked": blocked,
            "correlation": correlation, "refresh_blocks": refresh_blocks, "arrival": arrival,
            "learning_draws": learning_draws, "tune": tune, "parametrization": parametrization, "preset": preset,
        }  # fmt: skip
        check_types(common, {**get_type_hints(CommonOptions), "preset": str | None})
        if learning_draws is not None:
            count(1, learning_draws=learning_draws)
        self.learning_draws = learning_draws
        if tune is not None:
            options["tune"] = tune
        self._parametrization = parametrization or ("model" if preset == "paper" else "auto")
        self._screen = self._screened(preset, options)
        self._schedule = self._scheduled(options)
        model = pm.modelcontext(model)
        self.vars = continuous(type(self).__name__, vars, model)
        self.blocked, rng = blocked, get_random_generator(rng)
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
        beside = self._density.has_others
        self._names = {n: f"{self.name}_{shown}" for n, shown in NUTS_HAS.items() if beside}
        declared = self.stats_dtypes_shapes | (WORK_STATISTICS if self._density.given_work else {})
        # as PyMC itself does, for every step
        self.stats_dtypes_shapes = {self._names.get(n, n): kind for n, kind in declared.items()}  # type: ignore[misc]
        self.stats_dtypes = [{n: dtype for n, (dtype, _) in self.stats_dtypes_shapes.items()}]
        with suppress(TypeError):  # a generator that cannot spawn; a chain brings one that can
            seed_streams(self._density.noise_cells(), rng)
        self._first_values: dict = {}
        self._idle = [None]  # empty while a draw is made
        self.life = Life(self.sampler, self._density, rng)
        self._reset()

    def _compile(self, model, point, compile_kwargs, owns_auxiliary):
        """The log density that this step samples."""
        if self.parametrizes and self._parametrization == "auto":
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
        self._reset()

    def _reset(self):
        self.life.reset()
        self.nonfinite, self.evaluations = 0, 0
        self.failures: list[Any] = [0, 0, NEVER, None]
        self.streak = 0
        self._window = progress.Window()
        self._warnings.reset()
        self._frozen_stats = None

    def reset_tuning(self) -> None:
        """Forget everything that was learned (called between sequential chains); uses no random numbers."""
        self._reset()

    def stop_tuning(self) -> None:
        """Freeze everything that adapts."""
        life = self.life
        life.stop_climbing()
        doubt, tuned = life.state.doubt, self.tune
        if doubt is not None and not arrival_doubt.settled(doubt):
            height = self._density.model_log_density(doubt.position, doubt.log_density)
            self._say("arrival", advice.did_not_arrive(doubt.evaluations, height))
        self._warn_of_another_mode()
        if tuned and self.algorithm_state is not None:
            self._warn_of_what_misleads()
            self._warn_if_too_noisy()  # first: under noise the rest looks worse than it is
            self._tell_work()
            self._warn_if_short()
            self._warn_of_other_tuning()
        life.freeze()
        if tuned:
            self.failures = [0, self.evaluations, advice.FAILURES, None]
        self._frozen_stats = None

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
        common: dict[str, Any] = {"correlation": self._renewal.correlation}
        common["refresh_blocks"] = self._renewal.blocks
        if self.screens is not None:
            common["screen"] = self._screen
        if self.learning_draws is not None:
            common["learning_draws"] = self.learning_draws
        if self._schedule is not None:  # without one as before there was the option
            common["schedule"] = self._schedule
        if self._density.reparametrized:  # likewise
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
    def rng(self) -> np.random.Generator:
        """The chain's generator."""
        return self.life.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self.life.rng = rng

    @property
    def life_state(self) -> State:
        """Everything that changes in the chain's :class:`~pymc_kameleon.samplers.life.Life`."""
        return self.life.state

    @life_state.setter
    def life_state(self, state: State) -> None:
        self.life.state = state
        self._frozen_stats = None

    @property
    def tune(self) -> bool:
        """Whether the step learns."""
        return self.life.state.tune

    @tune.setter
    def tune(self, tune: bool) -> None:
        self.life.state = self.life.state._replace(tune=tune)

    @property
    def tuning_draws(self) -> int:
        """Tuning draws so far in this chain."""
        return self.life.state.tuning_draws

    @property
    def position(self) -> np.ndarray | None:
        """The current point as this step left it; None before a chain's first draw."""
        return self.life.here.position

    @property
    def log_density(self) -> float:
        """Retained value at :attr:`position`."""
        return self.life.here.log_density

    @property
    def noisy_log_density(self) -> float:
        """The part of it from noisy factors, where the two are kept apart."""
        return self.life.here.noise[0]

    @property
    def auxiliary(self) -> list[np.ndarray]:
        """The standard normals that the retained estimate is a function of."""
        return self.life.here.noise[1]

    @property
    def algorithm_state(self) -> Any:
        """The algorithm's own state."""
        return self.life.state.own

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
        life, density = self.life, self._density
        if self.tune and self.tuning_draws == self.learning_draws:
            self.stop_tuning()
        moved = density.has_others and density.follow(point)
        x = density.ravel(point)
        if self.position is None or moved or not density.is_at(x, self.position):
            self._restart(point, x)
            if self._density.reparametrized:  # what comes back from u differs in the last digits
                point = density.update(point, self.position)
        before, self._point = life.here, point
        proposal = life.ask()
        told = life.tell(self._evaluate(proposal, before))
        self._log_ratio = told.log_ratio
        walks = not (self.tune or density.noisy or proposal.move.startswith(MODELLED))
        if walks and proposal.move not in NO_PROPOSALS:
            self._count_streak(told.accepted)
        if life.here.position is not before.position:
            point = density.update(point, life.here.position)
        if self.tune:
            self._frozen_stats = None
        return point, [self._statistics(*told[:3])]

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

    def _set_out(self, x, value):
        """The arrival's state at a chain's first point; None where there is nothing to do."""
        at_initial = self._density.is_at(self._density.ravel(self._initial), x)
        if self._density.reparametrized:
            at_initial = np.array_equal(self._density.enter(self._density.ravel(self._initial)), x)
        if not (self._arrives and self.tune and (at_initial or self.life.climbs)):
            return None
        if self._prior is None:
            self._prior = look_at_prior(self._model, self.vars, self._initial)
        scale = self._density.spread(self._prior.scale)
        start, budget = None, default_budget(len(x))
        if at_initial:
            start = x + jitter(scale) * self.rng.uniform(-1.0, 1.0, len(x))
        if not self.life.climbs:
            budget = 1
        elif self._options.get("tune") is not None:
            budget = max(1, min(budget, int(ARRIVAL_SHARE * self._options["tune"])))
        looks = self._looks(scale) if self.life.climbs else None
        return arrival_search.init(x, value, scale=scale, budget=budget, start=start, looks=looks)

    def _looks(self, scale):
        """Where the second look begins: draws of the prior; around the initial point where it cannot be drawn from.

        Single draws, not the best of many: in a model of dynamics those are the ones that fit a flat line best.
        """
        draws = self.rng.choice(self._prior.draws, LOOKS, replace=False)
        box = 2.0 * jitter(scale) * self.rng.uniform(-1.0, 1.0, draws.shape)
        around = self._density.ravel(self._initial) + box
        looks = np.where(np.isfinite(draws), draws, around)
        if not self._density.reparametrized:
            return looks
        entered = np.array([self._density.enter(x) for x in looks])
        return np.where(np.isfinite(entered), entered, box)

    def _evaluate(self, proposal, here):
        """What is at the proposal, from where the chain is; -inf and a count where the log density is not finite."""
        # a proposal with noise of its own comes from where another chain of the sampler is
        noisy, auxiliary = here.noise if proposal.noise is None else proposal.noise
        if proposal.log_density is not None:
            return Point(proposal.position, proposal.log_density, (noisy, auxiliary))
        if proposal.position is here.position:
            return Point(here.position, here.log_density, (here.noise[0], auxiliary))
        self.evaluations += 1
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
        here = self._density.update({}, x)
        if not raised_by_the_model(error):
            with suppress(Exception):  # what is said below is worth more than why there is no more
                point = {**self._model.initial_point(), **self.others, **here}
                if said := misreturned(self._model, point):
                    error.add_note(said)
        at = {name: value.tolist() for name, value in here.items()}
        factors = black_boxes(self._model)
        error.add_note(advice.where_it_was_evaluated(type(self).__name__, at, factors))

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

    def _warn_of_another_mode(self):
        rivals = self.life.state.elsewhere
        if rivals:
            largest = max(rivals, key=lambda r: r.gain)
            at = self._density.update({}, self.life.from_arrival(largest.position)[0])
            told = advice.another_mode(at, largest.gain)
            self._say("another mode", told, WarningType.CONVERGENCE, log_mass=largest.gain)

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
        begins, density = self.position is None, self._density
        unmoved = not begins and density.is_at(x, self.position)
        if unmoved and density.reparametrized:  # where a scale is small, x does not say what u is
            x = self.position.copy()
        else:  # a copy: the driver's memory may be overwritten after the draw
            x = density.enter(x)
        there = self._evaluate_again(point, x, unmoved)
        value = there.log_density
        if not math.isfinite(value) and (begins or value != -math.inf):
            self._refuse(point, value)
        if begins:
            self._look_at_the_run(x, value)
        self.life.put(there, stage=lambda: self._set_out(x, value))

    def _evaluate_again(self, point, x, unmoved):
        """The log density of ``x``, where no proposal led."""
        density, (noisy, normals) = self._density, self.life.here.noise
        if self.position is None:
            normals = [self.rng.standard_normal(u.shape) for u in density.auxiliary]
        if normals:  # kept, the estimate is a function of the point: it may be evaluated again
            density.auxiliary = normals
        if density.split and unmoved:
            # Only variables of the deterministic factors moved: the noisy estimate stays what it is.
            return Point(x, density.deterministic_part(x) + noisy, (noisy, normals))
        try:
            value, noisy = self._log_density_at(x)
        except NotScalar as error:
            raise SamplingError(advice.not_a_number(type(self).__name__, error)) from error
        self.evaluations += 1
        self.life.spend()
        return Point(x, value, (noisy, normals))

    def _look_at_the_run(self, x, value):
        """What can be seen when a chain begins, and would mislead."""
        self.check_model()
        self._warn_of_other_steps()
        if self._density.suspects:
            told = advice.hidden_noise(self._density.suspects)
            self._say("hidden generator", told, whole_run=True)
        if self._density.noisy:
            self._warn_of_steps_beside_noise()
        else:
            self._compare_with_other_chains(x, value)
        if not self.tune:
            self._say("no tuning", advice.no_tuning(type(self).__name__), whole_run=True)

    def check_model(self) -> None:
        """Refuse to sample if the model has other factors than when the step was built."""
        now = factor_names(self._model)
        if now != self._factors:
            raise SamplingError(advice.model_has_changed(type(self).__name__, self._factors, now))

    def _warn_of_other_steps(self):
        shared = variables_shared(self)
        if shared:
            self._say("shared variables", advice.sampled_twice(shared), whole_run=True)
        solved = [] if self._density.noisy else solved_beside(self)
        if solved:
            told = advice.solved_beside(solved, black_boxes(self._model))
            self._say("black boxes beside", told, whole_run=True)

    def _compare_with_other_chains(self, x, value):
        """Chains that start at the same point must find the same log density there, unless noise is hidden."""
        first = self._first_values.setdefault(self._density.digest(x), value)
        if differ(first, value) and not self._density.suspects:  # which have been named
            self._say("hidden noise", advice.hidden_noise_seen(first, value))

    def _warn_of_steps_beside_noise(self):
        beside = variables_beside(self, self._density.others)
        if beside:
            self._say("other steps beside noise", advice.steps_beside_noise(beside), whole_run=True)

    def _checked(self, preset, options):
        """The preset's options with the given ones on top; refuses names that the algorithm does not know."""
        presets = self.algorithm.presets
        check_preset(preset, presets)
        known = self.algorithm.defaults()
        idle = {
            n: d for m in self.variants.values() for n, d in m.defaults().items() if n not in known
        }
        # at its default an option of another algorithm asks for nothing
        options = {
            n: v for n, v in options.items() if n not in idle or described(v) != described(idle[n])
        }
        for name in options:
            if name not in known:
                chosen = f" with {self.chooses}={self.variant!r}" if self.chooses else ""
                others = [v for v, m in self.variants.items() if name in m.defaults()]
                elsewhere = f"{self.chooses}={' or '.join(map(repr, others))}" if others else ""
                raise unknown_option(name, f"{type(self).__name__}{chosen}", known, elsewhere)
        return {**presets.get(preset, {}), **options}

    def _screened(self, preset, options):
        """How many transitions on a surrogate a draw makes: the option ``screen``, taken out of ``options``."""
        if self.screens is None:
            return 0
        screen = options.pop("screen", 0 if preset == "paper" else self.screens)
        check_types({"screen": screen}, {"screen": int})
        count(0, screen=screen)
        return screen

    def _scheduled(self, options):
        """When to learn anew: the option ``schedule``, taken out of ``options``."""
        schedule = options.pop("schedule", None) if self.schedules else None
        if schedule is not None and self.variant not in self.schedules:
            there = f"{self.chooses}={' or '.join(map(repr, self.schedules))}"
            raise unknown_option(
                "schedule", f"{type(self).__name__} with {self.chooses}={self.variant!r}",
                self.algorithm.defaults(), there,
            )  # fmt: skip
        check_types({"schedule": schedule}, {"schedule": ScheduleName | Callable | None})
        return schedule

    def __init_subclass__(cls, **kwargs):
        """Show what every step takes in the subclass's signature, and its meaning below the subclass's own options."""
        super().__init_subclass__(**kwargs)
        complete(cls, KernelStep)

    def _refuse(self, point, value):
        factors = self._density.offending_factors(self._model, point)
        raise SamplingError(
            advice.not_finite(
                type(self).__name__, value, factors, point, starts=self.position is None
            )
        )

    # -- statistics and progress --------------------------------------------------------------

    def _statistics(self, proposal, probability, accepted):
        own = self._frozen_stats
        if own is None:
            own = self._own_statistics(proposal)
            if not (self.tune or self._draws_differ):
                self._frozen_stats = own
        found = {
            "accept": probability,
            "accepted": float(accepted),
            "model_logp": self._density.model_log_density(self.position, self.log_density),
            "nonfinite": float(self.nonfinite),
            "move": proposal.move,
            "warning": self._warnings.take(),
            **own,
            **self._work_statistics(),
        }
        return {self._names.get(n, n): v for n, v in found.items()} if self._names else found

    def _work_statistics(self):
        work = self.life.state.work
        if not work.now:
            return {}
        return {"work": float(sum(work.now)), "work_spent": float(work.spent)}

    _learns: ClassVar[str] = "proposal"  # what does, in messages
    _draws_differ: ClassVar[bool] = (
        False  # whether the algorithm's own statistics change after tuning
    )

    def _own_statistics(self, proposal):
        return self.sampler.stats(self.algorithm_state)

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

    def _warn_of_other_tuning(self):
        tune = self._options.get("tune")
        if tune not in (None, self.tuning_draws):
            told = advice.other_tuning(type(self).__name__, tune, self.tuning_draws)
            self._say("tune", told, whole_run=True, tune=tune, tuning_draws=self.tuning_draws)

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
        work = self.life.state.work
        if not work.now:
            return
        probe = self.life.state.probe
        message, sd = advice.work_chosen(work, probe), noise_probe.sd(probe)
        self._say(
            "work", message, WarningType.BAD_ACCEPTANCE, level="info", work=sum(work.now), noise_sd=sd
        )  # fmt: skip

    def _noise_sd(self):
        """Measured sd of the log density's noise; 0 where there is none or too little was measured."""
        probe = self.life.state.probe
        return noise_probe.sd(probe) if probe.pairs >= noise_probe.MEASURED else 0.0

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
        phase = progress.TUNING if self.tune else progress.DRAWING
        phase = progress.CLIMBING if self.life.climbing else phase
        row.told = progress.Told(phase, self._window.mean, self.evaluations)
        return point, [row]

    @classmethod
    def _progressbar_config(cls, n_chains=1):
        return progress.columns(cls._bar_shows, n_chains)

    @classmethod
    def _make_progressbar_update_functions(cls):
        return (progress.update(cls._bar_shows),)
