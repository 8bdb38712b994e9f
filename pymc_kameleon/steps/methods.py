"""The step methods: PyMC's side of every algorithm of this package.

:class:`KernelStep` holds what they share: the log density compiled once and its value at the current state retained,
the life cycle of a chain, the sampling state, the statistics and the progress bar. A subclass names an algorithm (a
core module with ``State, init, propose, adapt, freeze``) and its options.
"""

import difflib
import hashlib
import inspect
import math
import warnings
from contextlib import suppress
from dataclasses import field
from types import ModuleType
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import (
    get_random_generator,
    get_state_from_generator,
    get_value_vars_from_user_vars,
    random_generator_from_state,
)
from rich.progress import TextColumn
from rich.table import Column

from pymc_kameleon.kernels import Kernel
from pymc_kameleon.pseudo_marginal import black_boxes
from pymc_kameleon.samplers import adaptive_metropolis, cma, gaussian_adaptation, noise_probe
from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.arrival.phase import default_budget
from pymc_kameleon.samplers.gaussian_mixture import sampler as gaussian_mixture
from pymc_kameleon.samplers.kameleon import fast as fast_kameleon
from pymc_kameleon.samplers.kameleon import full as kameleon
from pymc_kameleon.samplers.kameleon import pca as pca_kameleon
from pymc_kameleon.samplers.kamiltonian.scores import sampler as kamiltonian
from pymc_kameleon.samplers.kamiltonian.values import sampler as value_kamiltonian
from pymc_kameleon.samplers.seam import Outcome, Proposal, accept, acceptance_probability
from pymc_kameleon.steps import surrogate_report
from pymc_kameleon.steps.log_density import LogDensity, names
from pymc_kameleon.steps.prior_scale import jitter, prior_scale
from pymc_kameleon.steps.pytensor_internals import (
    STEP_METHODS,
    NotScalar,
    draws_random_numbers,
    other_steps,
)
from pymc_kameleon.steps.sampler_warnings import SamplerWarning, SamplerWarnings, WarningType
from pymc_kameleon.steps.signatures import default, given, signature
from pymc_kameleon.surrogates.values.regression import LIBRARY, Family, affordable

FLOAT: tuple[Any, list] = (np.float64, [])
MOVE: tuple[Any, list] = (np.dtype("U16"), [])
DIVERGENCE = 1000.0  # energy error from which on NUTS calls a trajectory diverging (pymc's Emax)
TOO_NOISY = 2.0  # sd of the log estimate: at most 16 % of any moves are accepted
MEASURED = 10  # pairs of probes, or the noise is not known
COUNTS = {"tune", "local_start", "first_fit", "sweeps"}  # options that are numbers of draws
ARRIVAL_SHARE = 0.4  # of tuning, at most
LOOKS = (1.0, 2.0)  # how far from the initial point the second and third climb begin, in jitters
STATE_VERSION = 3  # of KernelStepState: raised whenever the meaning of a field changes
# Two evaluations at one point that differ by less than this are not called noisy: float32 rounds to 1e-7 of the value
# and of its terms, solvers with several threads sum in any order, and 0.01 changes no acceptance probability by more
# than 1 %.
SAME_VALUE = (0.01, 1e-6)  # absolute, and relative to the value
FAILING = 0.01  # share of the proposals after tuning without a usable log density that is worth a warning ...
FAILURES = 5  # ... and how many there have to be before that is said
NEVER = 2**62
HIDDEN_NOISE = (
    "The log density seems to draw random numbers that PyTensor cannot see ({}): parallel chains would share them, "
    "random_seed would not reproduce them, and compiled functions may freeze them. Put the estimator into "
    "pymc_kameleon.NoisyLogLikelihood(fn), whose fn(rng, *parameters) gets its generator from the step."
)
TUNE_PER_DIMENSION = (
    400  # draws; below, the covariance is not learned (see benchmarks/cold_start.py)
)


def algorithm_options(algorithm: ModuleType) -> dict[str, inspect.Parameter]:
    """The options of an algorithm: the keywords of its ``init``, less those that a step provides itself."""
    parameters = inspect.signature(algorithm.init).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if name not in ("x", "rng", "random_walk", "factor", "evaluated")
    }


class CommonOptions(TypedDict, total=False):
    """What every step takes, see :class:`KernelStep`; for editors, which complete these names."""

    model: pm.Model | None
    rng: Any
    initial_point: dict[str, np.ndarray] | None
    compile_kwargs: dict[str, Any] | None
    blocked: bool
    correlation: float | None
    refresh_blocks: int | None
    arrival: bool | None


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
        After tuning: proposals whose log density was NaN or +inf; log density evaluations when tuning ended; how many
        proposals of the kind call for a look at the factors.
    probe : NoiseProbe
        What is known about the noise of the log density.
    said, pending : list
        Keys of the warnings given, and those that have not left with a draw yet.
    arrival_state : tuple or None
        Of the arrival before the walk, while it lasts.
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
    probe: Any
    said: list
    pending: list
    arrival_state: Any
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
    algorithm: ModuleType  # has State, init, propose, adapt, freeze, stats and maybe start, keep, log_ratio, draw_stats
    presets: ClassVar[dict[str, dict]] = {}
    chooses: ClassVar[str] = ""  # a keyword that chooses between algorithms ...
    variants: ClassVar[dict[str, ModuleType]] = {}  # ... these; the first is the default

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
        correlation=None, refresh_blocks=None, arrival=None, preset=None, **options,
    ):  # fmt: skip
        if self.chooses:
            self.variant = options.pop(self.chooses, next(iter(self.variants)))
            if self.variant not in self.variants:
                raise ValueError(
                    f"{self.chooses} must be one of {tuple(self.variants)}, got {self.variant!r}."
                )
            self.algorithm = self.variants[self.variant]
        model = pm.modelcontext(model)
        if vars is None:
            vars = model.continuous_value_vars
        else:
            vars = get_value_vars_from_user_vars(vars, model)
        if not vars:
            raise ValueError(f"{type(self).__name__} found no continuous variable to sample.")
        discrete = [v for v in vars if v.dtype not in pm.vartypes.continuous_types]
        if discrete:
            raise ValueError(
                f"{type(self).__name__} samples continuous variables only; {names(discrete)} is discrete. Leave it "
                "out of vars and pm.sample gives it a step of its own."
            )
        self.vars, self.blocked, self.rng = list(vars), blocked, get_random_generator(rng)
        point = model.initial_point() if initial_point is None else initial_point
        self._model, self._warnings = model, SamplerWarnings(type(self).__name__)
        self._correlation, self._blocks = _checked_auxiliary(correlation, refresh_blocks)
        self._options = self._checked(preset, options)
        self._arrives = preset != "paper" if arrival is None else bool(arrival)
        self._scale: np.ndarray | None = None  # of the prior, once it is needed
        self._initial = {v.name: np.asarray(point[v.name]) for v in self.vars}
        self.shapes = {v.name: np.shape(point[v.name]) for v in self.vars}
        dim = sum(value.size for value in self._initial.values())
        if dim == 0:
            raise ValueError(
                f"{type(self).__name__} found nothing to sample: "
                f"{', '.join(f'{name} has shape {shape}' for name, shape in self.shapes.items())}."
            )
        # Options are wrong now or never, and a large model takes long to compile.
        self._init_algorithm(np.zeros(dim), np.random.default_rng(0))
        owns_auxiliary = correlation is not None or refresh_blocks is not None
        self._density = LogDensity(model, self.vars, point, compile_kwargs, owns_auxiliary)
        with suppress(TypeError):  # a generator that cannot spawn; a chain brings one that can
            self._seed_noise()
        self._first_values: dict = {}
        if self._density.suspects:
            warnings.warn(HIDDEN_NOISE.format(", ".join(self._density.suspects)), stacklevel=2)
        self._reset(tune=True)

    # -- life cycle ---------------------------------------------------------------------------

    def set_rng(self, rng):
        """Begin a chain (PyMC < 6.3)."""
        self._begin_chain(rng)

    def setup_chain(self, rng, tune, draws):
        """Begin a chain (PyMC >= 6.3). ``tune`` and ``draws`` are not used: older versions do not tell them, and the
        same seed is to give the same draws everywhere.
        """
        self._begin_chain(rng)

    def _begin_chain(self, rng):
        self.rng = get_random_generator(rng, copy=False)
        self._warnings.begin_chain(self.rng)
        self._seed_noise()
        self._reset(tune=True)

    def _seed_noise(self):
        cells = self._density.noise_cells()
        if cells:  # streams of this chain's own, so that random_seed reproduces the noise too
            for cell, generator in zip(cells, self.rng.spawn(len(cells)), strict=True):
                cell.value = generator

    def _reset(self, tune):
        self.tune = tune
        self.position, self.log_density, self.noisy_log_density = None, -np.inf, 0.0
        self.nonfinite, self.evaluations, self.tuning_draws = 0, 0, 0
        self.auxiliary, self._proposed_auxiliary = [], []
        self.probe = noise_probe.NoiseProbe()
        self.failures = [0, 0, NEVER]
        self._warnings.reset()
        self.arrival_state = self.algorithm_state = self._frozen_stats = None

    def reset_tuning(self):
        """Forget everything that was learned (called between sequential chains); uses no random numbers."""
        self._reset(tune=True)

    def stop_tuning(self):
        """Freeze everything that adapts."""
        if self.arrival_state is not None:
            self._arrive(arrival_search.stop(self.arrival_state))
        if self.tune and self.algorithm_state is not None:
            self._warn_if_too_noisy()  # first: under noise the rest looks worse than it is
            self._warn_if_short()
            self.algorithm_state = self.algorithm.freeze(self.algorithm_state)
            self._start_algorithm()
        if self.tune:
            self.failures = [0, self.evaluations, FAILURES]
        self.tune = False

    @property
    def method(self) -> str:
        """Name of the step, and of the algorithm that it was told to use."""
        return f"{self.name}, {self.chooses}={self.variant!r}" if self.chooses else self.name

    @property
    def options(self) -> dict:
        """The options, defaults included, described so that they can be compared and stored."""
        defaults = {name: p.default for name, p in algorithm_options(self.algorithm).items()}
        noise = {"correlation": self._correlation, "refresh_blocks": self._blocks}
        return _described({**defaults, **self._options, **noise})

    @property
    def sampling_state(self):
        """Everything mutable, as a :class:`KernelStepState`; setting it resumes the chain that it is from."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state):
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
            raise ValueError(
                f"{type(self).__name__} cannot go on from this sampling state: its {name} is {given}, and the step's "
                f"is {mine}. Give it to a step of the same kind, variables and options as the one that it is from, in "
                "the same version of pymc_kameleon."
            )

    @property
    def others(self):
        """Values of the variables of other steps that the retained log density belongs to."""
        return self._density.others

    @others.setter
    def others(self, values):
        self._density.follow(values)

    @property
    def noise(self):
        """States of the log density's generators."""
        return [get_state_from_generator(c.value) for c in self._density.noise_cells()]

    @noise.setter
    def noise(self, states):
        for cell, state in zip(self._density.noise_cells(), states, strict=True):
            cell.value = random_generator_from_state(state)

    @property
    def said(self):
        """Keys of the warnings that this chain has given."""
        return self._warnings.said

    @said.setter
    def said(self, keys):
        self._warnings.said = keys

    @property
    def pending(self):
        """Warnings that leave with the next draws."""
        return self._warnings.pending

    @pending.setter
    def pending(self, warnings):
        self._warnings.pending = warnings

    @property
    def algorithm_state(self):
        """The algorithm's own state."""
        return self._algorithm_state

    @algorithm_state.setter
    def algorithm_state(self, state):
        self._algorithm_state = state
        self._frozen_stats = None

    # -- one draw -----------------------------------------------------------------------------

    def step(self, point):
        """One draw: at most one evaluation of the log density."""
        self.tuning_draws += self.tune
        moved = self._density.has_others and self._density.follow(point)
        x = self._density.ravel(point)
        if self.position is None or moved or not self._density.is_at(x, self.position):
            self._restart(point, x)
        if self.arrival_state is not None:
            return self._step_of_arrival(point)
        if self._is_probe():
            return point, [self._probe()]
        algorithm, position = self.algorithm, self.position
        proposal = algorithm.propose(self.rng, position, self._algorithm_state)
        before = self.noisy_log_density, self.auxiliary
        proposed, noisy = self._evaluate(proposal, point)
        # The value at the current state is the retained one, never a fresh one: what makes a noisy, unbiased
        # likelihood estimate exact (Andrieu & Roberts, 2009).
        log_q_ratio = self._log_q_ratio(proposal, proposed)
        self._log_ratio = proposed - self.log_density + proposal.log_q_ratio  # without the shares
        probability, accepted = accept(self.rng, self.log_density, proposed, log_q_ratio)
        if accepted:
            self.position, self.log_density, self.noisy_log_density = (
                proposal.position, proposed, noisy,
            )  # fmt: skip
            self.auxiliary = self._proposed_auxiliary  # accepted jointly with the position
            self.probe = noise_probe.leave(self.probe)
        if accepted or self.tune:
            outcome = Outcome(
                self.position, self.log_density, proposal, proposed, probability, accepted,
                (noisy, self._proposed_auxiliary), before,
            )  # fmt: skip
            if accepted and self._keeps:
                self._algorithm_state = algorithm.keep(self._algorithm_state, outcome)
            if self.tune:
                outcome = outcome._replace(
                    noise_sd=noise_probe.sd(self.probe), patience=noise_probe.patience(self.probe)
                )
                self._algorithm_state = algorithm.adapt(self.rng, self._algorithm_state, outcome)
        if self.position is not position:
            point = self._density.update(point, self.position)
        return point, [self._statistics(proposal, probability, accepted)]

    def _step_of_arrival(self, point):
        """One evaluation on the way to where the chain begins: no Metropolis test, because nothing is drawn yet."""
        self.probe, _ = noise_probe.count(
            self.probe
        )  # which draws are probes depends on their number
        state = self.arrival_state
        proposal = Proposal(arrival_search.propose(self.rng, state), -math.inf, "arrival")
        value, noisy = self._evaluate(proposal, point)
        state = arrival_search.tell(self.rng, state, proposal.position, value)
        if state.current == state.evaluations - 1:  # the estimate's noise goes with the point
            self.noisy_log_density, self.auxiliary = noisy, self._proposed_auxiliary
        if state.done:
            self._arrive(state)
        else:
            self.arrival_state, row = state, state.current
            self.position = state.positions[row].copy()
            self.log_density = float(state.log_densities[row])
        moved = not self._density.is_at(self._density.ravel(point), self.position)
        if moved:
            point = self._density.update(point, self.position)
        return point, [self._statistics(proposal, float(moved), moved)]

    def _arrive(self, state):
        """The walk begins where the arrival has ended, with what was learned on the way."""
        self.arrival_state = None
        self.position, self.log_density = state.position.copy(), state.log_density
        learned = {}
        if self._climbs():
            learned = arrival_search.learned(state)
            if not state.arrived:
                self._say(
                    "arrival",
                    f"{state.evaluations} evaluations did not reach the typical set (the log density is "
                    f"{state.log_density:.4g} "
                    "and may rise): the random walk goes on from there. Tune longer, give pm.sample(initvals=...) "
                    "nearer to the posterior, or priors on the parameters' own scale.",
                )
        self.algorithm_state = self._init_algorithm(
            self.position, self.rng, self.tuning_draws, **learned
        )
        self._start_algorithm()

    def _climbs(self):
        """Whether values can be compared: not under noise, nor while other steps change the log density."""
        return not (self._density.noisy or self._density.has_others)

    def _set_out(self, x, value):
        """The arrival's state at a chain's first point; None where there is nothing to do."""
        at_initial = self._density.is_at(self._density.ravel(self._initial), x)
        if not (self._arrives and self.tune and (at_initial or self._climbs())):
            return None
        if self._scale is None:
            self._scale = prior_scale(self._model, self.vars, self._initial)
        start, budget = None, default_budget(len(x))
        if at_initial:
            start = x + jitter(self._scale) * self.rng.uniform(-1.0, 1.0, len(x))
        if not self._climbs():
            budget = 1
        elif self._options.get("tune") is not None:
            budget = max(1, min(budget, int(ARRIVAL_SHARE * self._options["tune"])))
        looks = None
        if self._climbs():  # around the model's initial point, as chains start, and twice as far
            spread = np.outer(LOOKS, jitter(self._scale))
            looks = self._density.ravel(self._initial) + spread * self.rng.uniform(
                -1.0, 1.0, spread.shape
            )
        return arrival_search.init(
            x, value, scale=self._scale, budget=budget, start=start, looks=looks
        )

    def _is_probe(self):
        """Whether this tuning draw measures the noise."""
        if not (self.tune and self._density.noisy):
            return False
        self.probe, due = noise_probe.count(self.probe)
        return due

    def _probe(self):
        """Spend a tuning draw on estimating the log density of the current point again; the chain stays.

        The second of a pair starts from the first's noise, where successive estimates are correlated.
        """
        noise = None if self.probe.first is None else self.probe.first[1]
        proposal = Proposal(self.position.copy(), -math.inf, "refresh", noise=noise)
        value, noisy = self._evaluate(proposal, None)
        # other steps may move what the other factors depend on, between the two
        measured = noisy if self._density.split and value > -math.inf else value
        self.probe = noise_probe.record(self.probe, measured, (noisy, self._proposed_auxiliary))
        chance = acceptance_probability(self.log_density, value, 0.0)
        self.probe = noise_probe.meet(self.probe, chance)
        if hasattr(self.algorithm, "observe"):
            self._algorithm_state = self.algorithm.observe(
                self._algorithm_state, proposal.position, value
            )
        return self._statistics(proposal, 0.0, False)

    def _evaluate(self, proposal, point):
        """(log density, its noisy part) at the proposal from ``point``; -inf and a count where it is not finite."""
        noisy, self._proposed_auxiliary = self.noisy_log_density, self.auxiliary
        if proposal.noise is not None:  # it comes from where another chain of the algorithm is
            noisy, self._proposed_auxiliary = proposal.noise
        if proposal.log_density is not None:
            return proposal.log_density, noisy
        if proposal.position is self.position:
            return self.log_density, self.noisy_log_density
        self.evaluations += 1
        if self.auxiliary:
            self._proposed_auxiliary = [self._refreshed(u) for u in self._proposed_auxiliary]
            self._density.auxiliary = self._proposed_auxiliary
        value, noisy = self._log_density_at(proposal.position)
        if not -math.inf < value < math.inf:  # NaN fails both
            self.nonfinite += 1
            if not self.tune and value != -math.inf:
                self._count_failure(point, proposal.position, value)
            return -math.inf, 0.0
        return value, noisy

    def _log_density_at(self, x):
        """(log density, its noisy part where the two are kept apart); an exception of the model's tells the point."""
        try:
            if self._density.split:
                deterministic, noisy = self._density.parts(x)
                return deterministic + noisy, noisy
            return self._density(x), 0.0
        except Exception as error:
            self._add_point(error, x)
            raise

    def _add_point(self, error, x):
        at = {name: value.tolist() for name, value in self._density.update({}, x).items()}
        factors = black_boxes(self._model)
        where = f" of {' or '.join(map(repr, factors))}," if factors else ""
        error.add_note(
            f"{type(self).__name__} was evaluating the log density{where} at {at} (unconstrained values). Where a "
            "model cannot be evaluated it can return NaN instead of raising: the proposal is then rejected, and "
            "counted in the statistic 'nonfinite'."
        )

    def _count_failure(self, point, x, value):
        """NaN is no density of zero, which -inf is: where it is frequent the posterior lacks what lies there."""
        self.failures[0] += 1
        failures, before, enough = self.failures
        tried = self.evaluations - before
        if failures < max(enough, FAILING * tried):
            return
        # Finding the factor takes a compilation and an evaluation: rarely.
        factors = self._density.offending_factors(self._model, self._density.update(point, x))
        if -math.inf in factors.values():  # outside another factor's support nothing is missing
            self.failures[2] = 2 * failures
            return
        self.failures[2] = NEVER
        found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or f"the sum, {value}"
        self._say(
            "failures",
            f"{failures} of {tried} proposals after tuning have a log density of NaN or +inf. They are rejected, so "
            "that the posterior lacks whatever lies there. Last seen: "
            f"{found} at {', '.join(f'{n} = {v.tolist()}' for n, v in self._density.update({}, x).items())} "
            "(unconstrained). Repair the factor named, or let it return -inf where the density is zero.",
            failures=failures,
            tried=tried,
        )

    def _log_q_ratio(self, proposal, proposed):
        if not self._corrects:
            return proposal.log_q_ratio
        return self.algorithm.log_ratio(
            self._algorithm_state, self.position, self.log_density, proposal, proposed
        )

    def _restart(self, point, x):
        """The chain starts, or another step moved a variable: evaluate the log density at the current point."""
        x = x.copy()  # the driver's memory may be overwritten after the draw
        unmoved = self.position is not None and self._density.is_at(x, self.position)
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
            self.evaluations += 1
        if not math.isfinite(value) and (self.position is None or value != -math.inf):
            self._refuse(point, value)
        if self.position is None and not self._density.noisy:
            self._compare_with_other_chains(x, value)
        elif self.position is None:
            self._warn_of_steps_beside_noise()
        begins = self.position is None
        self.position, self.log_density = x, value
        if self.arrival_state is not None:  # somebody moved the chain on its way
            self.arrival_state = self.algorithm_state = None
        if self._algorithm_state is None:
            self.algorithm_state = self._init_algorithm(x, self.rng)
            if begins:
                self.arrival_state = self._set_out(x, value)
            if not self.tune:
                self._algorithm_state = self.algorithm.freeze(self._algorithm_state)
        self._start_algorithm()

    def _refreshed(self, u):
        """Proposed standard normals: reversible with respect to N(0, I), one block of them if there are blocks."""
        new = u.copy()
        flat = new.reshape(-1)
        block = flat
        if self._blocks > 1:
            edges = np.linspace(0, flat.size, self._blocks + 1).astype(int)
            chosen = self.rng.integers(self._blocks)
            block = flat[edges[chosen] : edges[chosen + 1]]
        rho = self._correlation
        block[:] = rho * block + math.sqrt(1.0 - rho * rho) * self.rng.standard_normal(block.size)
        return new

    def _compare_with_other_chains(self, x, value):
        """Chains that start at the same point must find the same log density there, unless noise is hidden."""
        first = self._first_values.setdefault(self._density.digest(x), value)
        absolute, relative = SAME_VALUE
        if abs(first - value) > absolute + relative * abs(first):
            found = f"values {first} and {value} at one point, {abs(first - value):.2g} apart"
            warnings.warn(HIDDEN_NOISE.format(found), stacklevel=2)

    def _warn_of_steps_beside_noise(self):
        """The noisy factors do not depend on the other steps' variables, and bias those steps all the same."""
        noisy = [s for s in other_steps(self) if draws_random_numbers(s)]
        others = sorted({v.name for s in noisy for v in s.vars} & set(self._density.others))
        if others:
            self._say(
                "other steps beside noise",
                f"the log density is noisy, and the step that samples {', '.join(others)} evaluates it anew at every "
                "draw, which biases it although no noisy factor depends on its variables. Build that step with "
                "pymc_kameleon.pseudo_marginal.step_beside_noise.",
                whole_run=True,
            )

    def _start_algorithm(self):
        if self._starts and self.position is not None:
            self._algorithm_state = self.algorithm.start(
                self._algorithm_state, self.position, self.log_density
            )

    def _init_algorithm(self, x, rng, spent=0, **learned):
        """``spent`` of the tuning draws are over; ``learned`` in them."""
        provided = {"rng": rng, self.chooses: getattr(self, "variant", None), **learned}
        options = dict(self._options)
        if options.get("tune") is not None:
            options["tune"] = max(1, options["tune"] - spent)
        taken = inspect.signature(self.algorithm.init).parameters
        return self.algorithm.init(
            x, **options, **{name: v for name, v in provided.items() if name in taken}
        )

    def __getstate__(self):
        """Everything but a chosen module, which cannot be copied."""
        return {name: value for name, value in self.__dict__.items() if name != "algorithm"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.chooses:
            self.algorithm = self.variants[self.variant]

    def _checked(self, preset, options):
        """The preset's options with the given ones on top; refuses names that the algorithm does not know."""
        if preset is not None and preset not in self.presets:
            raise ValueError(
                f"preset must be None{''.join(f' or {p!r}' for p in self.presets)}, got {preset!r}."
            )
        known = algorithm_options(self.algorithm)
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                chosen = f" with {self.chooses}={self.variant!r}" if self.chooses else ""
                others = [v for v, m in self.variants.items() if name in algorithm_options(m)]
                if others:
                    raise TypeError(
                        f"{name} is an option of {self.chooses}={' or '.join(map(repr, others))}; "
                        f"{type(self).__name__}{chosen} has {', '.join(sorted(known))}."
                    )
                raise TypeError(
                    f"{type(self).__name__}{chosen} has no option {name!r}"
                    f"{f' (did you mean {close[0]!r}?)' if close else ''}; it has {', '.join(sorted(known))}."
                )
        for name in COUNTS & set(options):
            count = options[name]
            if count is not None and not (
                isinstance(count, (int, np.integer))
                and not isinstance(count, bool)
                and count >= (name == "tune")
            ):
                least = "a positive integer" if name == "tune" else "an integer of 0 or more"
                raise ValueError(f"{name} must be {least} or None, got {count!r}.")
        return {**self.presets.get(preset, {}), **options}

    def __init_subclass__(cls, **kwargs):
        """Show what every step takes in the subclass's signature, and its meaning below the subclass's own options."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__signature__ = signature(cls.__init__, KernelStep.__init__)
        if cls.__doc__ and KernelStep.__doc__ and "Parameters" in cls.__doc__:
            # Python 3.13 takes the indentation out by itself
            common = inspect.cleandoc(KernelStep.__doc__).partition("Parameters\n----------\n")[2]
            common = common.partition("\npreset : ")[0].rstrip()
            own = inspect.cleandoc(cls.__doc__)
            cls.__doc__ = f"{own}\n\nOf every step\n-------------\n{common}\n"

    @property
    def _keeps(self):
        return hasattr(self.algorithm, "keep")

    @property
    def _starts(self):
        return hasattr(self.algorithm, "start")

    @property
    def _corrects(self):
        return hasattr(self.algorithm, "log_ratio")

    def _refuse(self, point, value):
        factors = self._density.offending_factors(self._model, point)
        found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or f"their sum, {value}"
        if self.position is None:
            where = f"cannot start: the log density is {value} at the chain's first point"
        else:
            where = f"cannot go on: the log density became {value} when another step moved its variables"
        raise SamplingError(
            f"{type(self).__name__} {where}. Not finite there: {found}. The point (unconstrained): "
            f"{ {k: np.asarray(v).tolist() for k, v in point.items()} }. Give another start with "
            "pm.sample(initvals=...), or look at the factors named."
        )

    def _refuse_shape(self, point, error):
        try:
            factors = self._density.misshapen_factors(self._model, point)
        except Exception:  # what is said below is worth more than why it cannot be said better
            factors = {}
        found = ", ".join(f"that of {name} has shape {shape}" for name, shape in factors.items())
        raise SamplingError(
            f"{type(self).__name__} cannot start: {error}{': ' if found else ''}{found}. A black-box Op has to return "
            "what its make_node declares: a number, as np.asarray(value) of shape ()."
        ) from error

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
            "model_logp": self.log_density,
            "nonfinite": float(self.nonfinite),
            "move": proposal.move,
            "warning": self._warnings.take(),
            **own,
        }

    _learns: ClassVar[str] = "proposal"  # what does, in messages
    _draws_differ: ClassVar[bool] = (
        False  # whether the algorithm's own statistics change after tuning
    )

    def _own_statistics(self, proposal):
        return self.algorithm.stats(self._algorithm_state)

    def _wanted_tuning(self):
        """How many tuning draws the dimension asks for, if there were fewer; else None."""
        wanted = TUNE_PER_DIMENSION * self._density.dim
        return wanted if self.tuning_draws < wanted else None

    def _warn_if_short(self):
        wanted = self._wanted_tuning()
        if wanted:
            self._say(
                "short tuning",
                f"{self.tuning_draws} tuning draws are few for {self._density.dim} dimensions; tune={wanted} or more "
                f"lets the {self._learns} learn the posterior's shape.",
                whole_run=True,
                tuning_draws=self.tuning_draws,
                wanted=wanted,
            )

    def _warn_if_too_noisy(self):
        sd = self._noise_sd()
        if sd > TOO_NOISY:
            low, high = noise_probe.work_factors(sd)
            self._say(
                "noise",
                f"the noise of the log density has a standard deviation of {sd:.1f}, which lets at most "
                f"{noise_probe.standstill_acceptance(sd):.0%} of any moves through. {noise_probe.BEST_SD[0]} to "
                f"{noise_probe.BEST_SD[1]} is best (Doucet et al., 2015): give the estimator {low:.0f} to {high:.0f} "
                "times the work (particles, importance samples, simulations)"
                f"{'' if self.auxiliary else ', or correlate the noise of successive estimates (correlation=)'}.",
                WarningType.BAD_ACCEPTANCE,
                noise_sd=sd,
            )

    def _noise_sd(self):
        """Measured sd of the log density's noise; 0 where there is none or too little was measured."""
        return noise_probe.sd(self.probe) if self.probe.pairs >= MEASURED else 0.0

    def _say(self, key, message, kind=WarningType.BAD_PARAMS, *, whole_run=False, **measured):
        """Warn, with the next draw and once a chain; see :meth:`SamplerWarnings.add`."""
        self._warnings.add(key, message, kind, whole_run=whole_run, **measured)

    @staticmethod
    def competence(var, has_grad):
        """NUTS where there is a gradient; preferred where there is none. See ``register``."""
        if var.dtype not in pm.vartypes.continuous_types or 0 in var.type.shape:
            return Competence.INCOMPATIBLE
        return Competence.COMPATIBLE if has_grad else Competence.PREFERRED

    @staticmethod
    def _progressbar_config(n_chains=1):
        columns = [
            TextColumn(
                "{task.fields[accept]:.2f}",
                table_column=Column("Acceptance", ratio=1, no_wrap=True),
            ),
            TextColumn(
                "{task.fields[scaling]:.2g}", table_column=Column("Scaling", ratio=1, no_wrap=True)
            ),
        ]
        return columns, {"accept": [0.0] * n_chains, "scaling": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions():
        def update_stats(step_stats):
            return {key: step_stats[key] for key in ("accept", "scaling")}

        return (update_stats,)


class AdaptiveMetropolisStep(KernelStep):
    """Adaptive Metropolis (Haario et al., 2001; Andrieu & Thoms, 2008): a random walk with a learned covariance.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Then the coordinate-wise phase, which finds the
        units, takes at most a fifth of it.
    target_accept : float
        Acceptance probability that the scale is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    preset : {None, "paper"}
        "paper": Andrieu & Thoms (2008), algorithm 4, from the identity, with Roberts & Rosenthal's (2009) share of
        0.05 fixed small moves. Options given besides it win.

    For experiments
    ---------------
    scaling : {"learned", "fixed"}
        Whether the overall scale is tuned to ``target_accept`` too (AM-LS, default), or stays ``scale`` (AM-FS).
    covariance : {"window", "recursive", "identity"}
        "window" (default): from the last two thirds of the history, after the coordinate-wise phase. "recursive":
        Andrieu & Thoms (2008), eq. 17, from the identity. "identity": not learned; with ``scaling="fixed"`` plain
        isotropic Metropolis.
    exploration_share : float
        Probability of a move N(x, (0.1^2 / d) I) instead (Roberts & Rosenthal, 2009, who take 0.05), in [0, 1).
        Default 0.
    autoregressive_share : float
        Share of moves towards the history's mean, see :mod:`pymc_kameleon.samplers.autoregressive`, in [0, 1). Default
        0: with them this is no longer what the literature calls adaptive Metropolis.
    learn_from_values : bool
        With "window": extend the covariance along axes that the log density's values at all points proposed say to be
        much longer than where the chain has been. Default True.
    scale : float, optional
        The overall scale, positive, or where its adaptation starts. Default 2.38 / sqrt(d).
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise phase starts; it spans six orders of magnitude either
        way. Default 0.1.

    Notes
    -----
    Statistics of every draw: ``accept`` (acceptance probability), ``accepted`` (0 or 1), ``scaling``, ``lp``,
    ``nonfinite`` (running count of proposals without a finite log density), ``move``.
    """

    name = "adaptive_metropolis"
    algorithm = adaptive_metropolis
    presets: ClassVar[dict] = {"paper": adaptive_metropolis.PAPER}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(0.234),
        preset: str | None = None,
        scaling: str = default("learned"),
        covariance: str = default("window"),
        exploration_share: float = default(0.0),
        autoregressive_share: float = default(0.0),
        learn_from_values: bool = default(True),
        scale: float | None = default(None),
        initial_scale: float | np.ndarray = default(0.1),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class KameleonStep(KernelStep):
    """Kernel Adaptive Metropolis-Hastings, "MCMC Kameleon" (Sejdinovic et al., 2014).

    Proposals whose covariance follows the shape of the history near the current point.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Local moves then begin after 0.3 of it.
    n_history : int
        Largest size of the subsample of the history, 2 or more; the cost of a draw grows with it. Default 1000, the
        paper's (section 5).
    target_accept : float
        Acceptance probability that the scale nu is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997),
        also the paper's.
    preset : {None, "paper"}
        "paper": the covariance gamma^2 I + nu^2 M H M^T in the parameters' own units with gamma = 0.2, the median
        heuristic, a random subsample, and no other moves. Options given besides it win.

    For experiments
    ---------------
    proposal : {"full", "pca"}
        "full" (default): the whole local covariance. "pca": along one kernel principal direction at a time (appendix
        C), which mixes worse; see :mod:`pymc_kameleon.samplers.kameleon.pca`.
    n_directions : int
        With ``proposal="pca"`` only: how many directions at most, positive; fewer where the kernel matrix has a lower
        rank. Default 20.
    kernel : str or Kernel
        A name or an object of :mod:`pymc_kameleon.kernels`; ``normalization="local"`` takes nonnegative ones only.
        Default "gaussian".
    lengthscale : float, optional
        Positive, in the kernel's coordinates. Default: ``lengthscale_factor`` times the median distance.
    lengthscale_factor : float
        Positive. Default 0.5; the paper's median heuristic is 1.
    gamma : float, optional
        Sd of the isotropic part, positive, in the kernel's coordinates. Default: half of the global kernel's learned
        scale. The paper's is 0.2.
    normalization : {"local", "none", "trace"}
        Of the local covariance, see :mod:`pymc_kameleon.samplers.kameleon.local_covariance`. Default "local"; with
        "pca" "trace" or "none", default "trace". The paper's is "none".
    coordinates : {"whitened", "scaled", "raw"}
        The kernel's: by the running covariance (default), by the running standard deviations, or the parameters' own
        (the paper's).
    global_share : float
        Share of moves that are not local, in [0, 1). Default 0.5; the paper has none.
    autoregressive_share : float
        Share of those that contract towards the history's mean (:mod:`pymc_kameleon.samplers.autoregressive`) instead
        of walking at random, in [0, 1). Default 0.5: it doubles the effective draws where the posterior is close to
        normal.
    learn_from_values : bool
        Of the global kernel: extend its covariance along axes that the log density's values say to be longer than where
        the chain has been. Default True.
    scale : float, optional
        Where the adaptation of nu starts, positive. Default: the global kernel's learned scale.
    subsample : {"even", "random"}
        Evenly spaced over the last two thirds of the history (default), or drawn from all of it (the paper's).
    local_start : int, optional
        Draws before the first local move, 0 or more. Default: 0.3 ``tune`` where that is given, else 200 d.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (nu), ``lp``, ``nonfinite``, ``move`` ("local",
    "global", "autoregressive" or "coordinate"), ``n_history``, ``lengthscale``, ``gamma`` (zero before the first local
    move).
    """

    name = "kameleon"
    algorithm = kameleon
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes, "n_history": FLOAT, "lengthscale": FLOAT, "gamma": FLOAT,
    }  # fmt: skip
    presets: ClassVar[dict] = {"paper": kameleon.PAPER}
    chooses = "proposal"
    variants: ClassVar[dict[str, ModuleType]] = {"full": kameleon, "pca": pca_kameleon}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        n_history: int = default(1000),
        target_accept: float = default(0.234),
        preset: str | None = None,
        proposal: str = default("full"),
        n_directions: int = default(20),
        kernel: str | Kernel = default("gaussian"),
        lengthscale: float | None = default(None),
        lengthscale_factor: float = default(0.5),
        gamma: float | None = default(None),
        normalization: str = default("local"),
        coordinates: str = default("whitened"),
        global_share: float = default(0.5),
        autoregressive_share: float = default(0.5),
        learn_from_values: bool = default(True),
        scale: float | None = default(None),
        subsample: str = default("even"),
        local_start: int | None = default(None),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class FastKameleonStep(KernelStep):
    """Fast KAMH (Kotlicki, 2015): Kameleon proposals from random Fourier features of the history.

    The cost of a draw does not depend on how long the history is.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Local moves then begin after 0.3 of it.
    n_features : int
        Number D of random features, positive; the cost of a draw grows with it. Default 300; the dissertation finds 50
        to 350 best.
    target_accept : float
        Acceptance probability that the scale eta is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    preset : {None, "paper"}
        "paper": the dissertation's covariance gamma^2 I + eta^2 J^T C J in the parameters' own units with
        gamma = 0.5, the median heuristic, the whole history, and no other moves. Options given besides it win.

    For experiments
    ---------------
    kernel : str or Kernel
        Any shift-invariant kernel with a spectral sampler: "gaussian" (default), "laplacian", "matern32", "matern52",
        "inverse_multiquadric", "sinc", "sinc_squared", ``Matern(nu)``, ``CustomKernel(..., frequencies=...)``.
    embedding : {"sincos", "cos"}
        A sine and a cosine for every frequency (default), or a cosine with a random phase.
    orthogonal : bool
        Orthogonal random features, for radial kernels. Default False.
    lengthscale : float, optional
        Positive, in the kernel's coordinates. Default: ``lengthscale_factor`` times the median distance.
    lengthscale_factor : float
        Positive. Default 1: the mean shift needs a kernel mean that stands out from the noise of the features.
    gamma : float, optional
        Sd of the isotropic part, positive, in the kernel's coordinates. Default: half of the global kernel's learned
        scale.
    normalization : {"trace", "none"}
        J^T C J scaled to trace d (default), or as it is (the dissertation's).
    coordinates : {"whitened", "scaled", "raw"}
        The kernel's: by the running covariance (default), by the running standard deviations, or the parameters' own.
    global_share : float
        Share of moves that are not local, in [0, 1). Default 0.5; the dissertation has none.
    autoregressive_share : float
        Share of those that contract towards the history's mean instead of walking at random, in [0, 1). Default 0.5.
    sheared_share : float
        Share of the moves that are not local in coordinates in which the history is straight, in [0, 1), where it says
        that a coordinate is a curved function of others (``move`` "sheared", "sheared_autoregressive"). Default 0.75.
    learn_from_values : bool
        Of the global kernel: extend its covariance along axes that the log density's values say to be longer than where
        the chain has been. Default True.
    scale : float, optional
        Where the adaptation of eta starts, positive. Default: the global kernel's learned scale.
    mean_shift : bool
        Add the outer product of the way to the mean of the history near a point to the covariance (Comaniciu & Meer,
        2002), so that a proposal can contract towards the mass while it moves sideways. Default True; the dissertation
        has none.
    variance_share : float
        Share of the trace of C that the truncated factor carries, in (0, 1]. Default 0.75.
    whole_history : bool
        Keep the coordinates from the first refresh on and fold in every later state (the dissertation's). Default
        False: recompute them from the last two thirds of the history.
    rate : {"renewed", "harmonic"}
        Of the tuning of eta at the m-th local move: 2 m^-0.6 with m counted anew in part at each refresh (default), or
        1 / m (the dissertation's).
    local_start : int, optional
        Draws before the first local move, 0 or more. Default: 0.3 ``tune`` where that is given, else 200 d.

    Notes
    -----
    Statistics of every draw: those of :class:`KameleonStep` (``scaling`` is eta), and ``rank``, of the factor of the
    feature covariance.
    """

    name = "fast_kameleon"
    algorithm = fast_kameleon
    stats_dtypes_shapes: ClassVar[dict] = {**KameleonStep.stats_dtypes_shapes, "rank": FLOAT}
    presets: ClassVar[dict] = {"paper": fast_kameleon.PAPER}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        n_features: int = default(300),
        target_accept: float = default(0.234),
        preset: str | None = None,
        kernel: str | Kernel = default("gaussian"),
        embedding: str = default("sincos"),
        orthogonal: bool = default(False),
        lengthscale: float | None = default(None),
        lengthscale_factor: float = default(1.0),
        gamma: float | None = default(None),
        normalization: str = default("trace"),
        coordinates: str = default("whitened"),
        global_share: float = default(0.5),
        autoregressive_share: float = default(0.5),
        sheared_share: float = default(0.75),
        learn_from_values: bool = default(True),
        scale: float | None = default(None),
        mean_shift: bool = default(True),
        variance_share: float = default(0.75),
        whole_history: bool = default(False),
        rate: str = default("renewed"),
        local_start: int | None = default(None),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class GaussianMixtureStep(KernelStep):
    """Local covariances *and* local means: a Gaussian mixture fitted to the history serves three exact moves.

    A local random walk, a localised independence move through an auxiliary point, and plain independence, beside
    adaptive Metropolis. Not from the Kameleon papers; see :mod:`pymc_kameleon.samplers.gaussian_mixture.sampler` for
    what it is like.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The first fit is then between 0.35 and 0.5 of it.
    max_components : int
        Largest mixture that cross-validation may choose, positive. Default 16.
    n_history : int
        Largest size of the evenly thinned history that the mixture is fitted to. Default 1000.

    For experiments
    ---------------
    inflation : float
        Factor of the components' covariances, at least 1. Default 1.4: an independence proposal must be wider than the
        target, and what has not been seen lies outside of what has.
    broad_share : float
        Weight of the component N(0, 4 I), in (0, 1). Default 0.1.
    shares : tuple of 4 floats
        Probabilities of the moves "global", "local", "auxiliary" and "independence". Default a quarter each.
    target_accept : float
        Of the global and the local move, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    auxiliary_target_accept : float
        Of the auxiliary move, in (0, 1). Default 0.4.
    learn_from_values : bool
        Of the global move: extend its covariance along axes that the log density's values say to be longer than where
        the chain has been. Default True.
    local_start : int, optional
        Draws before the first fit, 0 or more. Default: 200 d, within 0.35 and 0.5 of ``tune`` where that is given.
    preset : None
        There is no paper.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (of the global move), ``local_scale``,
    ``auxiliary_scale``, ``n_components``, ``lp``, ``nonfinite``, ``move`` ("global", "local", "auxiliary",
    "independence" or "coordinate").
    """

    name = "gaussian_mixture"
    algorithm = gaussian_mixture
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes, "local_scale": FLOAT, "auxiliary_scale": FLOAT, "n_components": FLOAT,
    }  # fmt: skip

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        max_components: int = default(16),
        n_history: int = default(1000),
        inflation: float = default(1.4),
        broad_share: float = default(0.1),
        shares: tuple[float, float, float, float] = default((0.25, 0.25, 0.25, 0.25)),
        target_accept: float = default(0.234),
        auxiliary_target_accept: float = default(0.4),
        learn_from_values: bool = default(True),
        local_start: int | None = default(None),
        preset: str | None = None,
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class KamiltonianStep(KernelStep):
    """Kamiltonian Monte Carlo (Strathmann et al., 2015): Hamiltonian moves on a learned surrogate of the log density.

    Leapfrog needs a gradient; the surrogate has one. The true log density, or its retained noisy estimate, decides
    acceptance, so a bad surrogate costs time and never exactness.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The last fit is then at 85 % of it, with "values" a
        search of the whole library; the rest judges the surrogate.
    surrogate : {"values", "lite", "finite"}
        "values" (default): a regression on the log density at every point evaluated while tuning, accepted or rejected,
        see :mod:`pymc_kameleon.samplers.kamiltonian.values.sampler`. "lite" and "finite": the paper's kernel
        exponential families, fitted to the chain's history by score matching, see
        :mod:`pymc_kameleon.samplers.kamiltonian.scores.sampler`.
    preset : {None, "paper"}
        "paper", with "lite" and "finite": one lengthscale, no base density, the parameters' own units, leapfrog steps
        of U[0.01, 0.1] (1 to 10 of them and 1000 points with "lite", 10 to 100, 2000 points and 2000 features with
        "finite"), and trajectories only as soon as there is a surrogate. The paper gave exact draws as ``history``;
        from a cold start such a chain may stand still. Options given besides it win.

    For experiments
    ---------------
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise cold start begins; it spans six orders of magnitude either
        way. Default 0.1.
    library : tuple of Family
        "values" only: feature families to choose from by held-out error. Default
        ``pymc_kameleon.surrogates.values.regression.LIBRARY``.
    growth : float
        "values" only: refit whenever the number of evaluations has grown by this factor, above 1. Default 1.35.
    companion_share : float
        "values" only: share of the tuning draws for two chains at other temperatures, which show the surrogate tails
        and necks, in [0, 1). Default 0.25.
    history : ndarray of shape (n, d), optional
        "lite" and "finite", as all that follow: points that represent the target, the paper's setting. One surrogate is
        fitted to them and kept. Default: the chain's own history.
    n_history : int, optional
        States that a surrogate is fitted to. Default 500 for lite (cost n per leapfrog step), 1500 for finite.
    n_features : int
        Random features of finite, positive. Default 300.
    kernel : str or Kernel
        Of finite; lite's is Gaussian. Default "gaussian".
    embedding : {"sincos", "cos"}
        Of finite. Default "sincos".
    lengthscale : float or ndarray of shape (d,), optional
        Positive, in learned coordinates. Default: one for each of them, by held-out score at every fit.
    regularization : float, optional
        Positive. Default: by held-out score at every fit.
    isotropic : bool
        One lengthscale for all coordinates, as in the paper. Default False.
    base_scale : float
        Sd of the Gaussian base density in learned coordinates, positive; ``inf`` is none, as in the paper. Default 2:
        it confines the tails and leaves the bulk to the fit.
    whiten : bool
        Learn coordinates; False, the paper's, are the parameters' own. Default True.
    n_leapfrog : int or (int, int)
        Number of leapfrog steps, positive, or the range from which it is drawn. Default (1, 20); the paper's (1, 10).
    step_size : float or (float, float), optional
        A fixed mean, positive, or a range to draw from (the paper's (0.01, 0.1)). Default: tuned.
    target_accept : float
        Acceptance probability that the step size is lowered to reach, in (0, 1). Default 0.4, less than HMC's: what is
        lost to the surrogate's error is lost at the end of long trajectories.
    random_walk_share : float
        Least probability of a random-walk move, the safety net, in [0, 1). Default 0.2.
    trial_share : float
        Largest share of a surrogate that has not proved itself, in (0, 1 - ``random_walk_share``]. Default 0.1.
    adapt_share : bool, optional
        Whether the share of random-walk moves follows what the two kernels bring. False: it is ``random_walk_share`` as
        soon as there is a surrogate, the paper's. Default: True unless ``history`` is given.
    mixture : {"residual", "constant"}
        How the two kernels share the draws after tuning: "residual" (default) chooses trajectories less often where the
        surrogate is too low; "constant" does not look.
    first_fit : int, optional
        Draws before the first fit, 0 or more. Default max(500, 50 d).
    learn_from_values : bool
        Of the random walk: extend its covariance along axes that the log density's values say to be longer than where
        the chain has been. Default True.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` and ``step_size`` (of the leapfrog), ``lp``,
    ``nonfinite``, ``move`` (which kernel made the draw), ``evaluations`` (of the log density, so far), ``n_steps``
    (surrogate gradients; in the step itself under NUTS' name, ``tree_size``), ``energy_error`` (of a tested trajectory,
    with the true log density), ``diverging`` (that error is finite and above 1000, as for NUTS),
    ``surrogate_diverging`` (a trajectory left the region where the surrogate is used, or diverged on it: refused by
    design, at no cost), ``refits``; with "values" ``surrogate`` (the family chosen), ``surrogate_error`` (held out),
    ``residual_sd`` (out of sample), ``uncovered``, ``share``; otherwise ``surrogate_score``, ``gaussian_score``,
    ``random_walk_share`` (the least), ``share`` (of the rest, where the chain is, for the surrogate), ``efficiency``
    (of a trajectory, in random-walk moves), ``n_history``, ``lengthscale``, ``regularization``.
    What does not apply is NaN, zero or empty.
    """

    name = "kamiltonian"
    presets: ClassVar[dict] = {"paper": kamiltonian.PAPER}
    chooses = "surrogate"
    variants: ClassVar[dict[str, ModuleType]] = {
        "values": value_kamiltonian, "lite": kamiltonian, "finite": kamiltonian,
    }  # fmt: skip
    algorithm = value_kamiltonian
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes,
        **dict.fromkeys(
            ("step_size", "energy_error", "surrogate_error", "residual_sd", "uncovered", "share", "surrogate_score",
             "gaussian_score", "random_walk_share", "efficiency", "n_history", "lengthscale", "regularization"),
            FLOAT,
        ),
        "tree_size": FLOAT,  # NUTS' name and type; PyMC's converter calls it n_steps
        **dict.fromkeys(("refits", "evaluations"), (np.int64, [])),
        # NUTS's type, or the two cannot sample together
        **dict.fromkeys(("diverging", "surrogate_diverging"), (bool, [])),
        "surrogate": (np.dtype("U24"), []),
    }  # fmt: skip
    _learns = "surrogate"
    _draws_differ = True
    _MISSING: ClassVar[dict] = {"f": math.nan, "i": 0, "b": False, "U": ""}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        surrogate: str = default("values"),
        preset: str | None = None,
        initial_scale: float | np.ndarray = default(0.1),
        library: tuple[Family, ...] = default(LIBRARY, "LIBRARY"),
        growth: float = default(1.35),
        companion_share: float = default(0.25),
        history: np.ndarray | None = default(None),
        n_history: int | None = default(None),
        n_features: int = default(300),
        kernel: str | Kernel = default("gaussian"),
        embedding: str = default("sincos"),
        lengthscale: float | np.ndarray | None = default(None),
        regularization: float | None = default(None),
        isotropic: bool = default(False),
        base_scale: float = default(2.0),
        whiten: bool = default(True),
        n_leapfrog: int | tuple[int, int] = default((1, 20)),
        step_size: float | tuple[float, float] | None = default(None),
        target_accept: float = default(0.4),
        random_walk_share: float = default(0.2),
        trial_share: float = default(0.1),
        adapt_share: bool | None = default(None),
        mixture: str = default("residual"),
        first_fit: int | None = default(None),
        learn_from_values: bool = default(True),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)

    def _checked(self, preset, options):
        if preset == "paper" and self.variant == "values":
            raise ValueError(
                "preset='paper' is for the paper's estimators, and surrogate='values' is not one of them: give "
                "surrogate='lite' or surrogate='finite' too."
            )
        checked = super()._checked(preset, options)
        return {**kamiltonian.PAPERS[self.variant], **options} if preset == "paper" else checked

    def _restart(self, point, x):
        if self.position is None and self.variant == "values" and not affordable(len(x)):
            self._say(
                "dimension",
                f"{len(x)} dimensions are more than a surrogate of the log density can be fitted in; sampling by "
                "adaptive Metropolis instead. FastKameleonStep or a model with fewer unknowns may do better.",
                whole_run=True,
            )
        super()._restart(point, x)

    def stop_tuning(self):
        """Freeze everything that adapts; say what is wrong with the surrogate, after what is wrong with the noise."""
        tuned = self.tune and self.algorithm_state is not None
        super().stop_tuning()
        if tuned and self.variant == "values" and affordable(len(self.position)):
            self._warn_of_surrogate()

    def _warn_of_surrogate(self):
        state, wanted = self._algorithm_state, self._wanted_tuning()
        if state.fit is None:
            self._say(
                "no surrogate",
                f"tuning ended before a surrogate was learned ({self.evaluations} evaluations): random-walk moves do "
                f"all of the work. Tune longer{f', {wanted} draws or more' if wanted else ''}.",
                WarningType.CONVERGENCE,
                evaluations=self.evaluations,
            )
            return
        report = surrogate_report.Report(
            state.fit.family, float(state.fit.error), float(state.quality.residual_sd),
            float(state.quality.uncovered), 1.0 - float(state.mixture.floor), self._noise_sd(),
        )  # fmt: skip
        message = surrogate_report.describe(report, wanted)
        if message is not None:
            self._say("surrogate", message, WarningType.CONVERGENCE, **report._asdict())

    def _own_statistics(self, proposal):
        values = {
            name: self._MISSING[np.dtype(dtype).kind]
            for name, (dtype, _) in self.stats_dtypes_shapes.items()
            if name not in KernelStep.stats_dtypes_shapes
        }
        if self.variant == "values":
            found = value_kamiltonian.stats(self._algorithm_state, proposal)
        else:
            trajectory = (proposal.carry or {}).get("stats", {})  # a probe carries nothing
            found = {"n_steps": 0, "diverging": False, **kamiltonian.stats(self._algorithm_state)}
            found |= {n: trajectory[n] for n in ("step_size", "n_steps", "diverging") if trajectory}
        # What the surrogate's own dynamics call diverging is a trajectory that was refused by design and at no cost. To
        # PyMC and ArviZ ``diverging`` says that the sampler cannot follow the log density: only the true one can tell.
        values["surrogate_diverging"] = found.pop("diverging", False)
        if (
            proposal.move.startswith(("surrogate", "hamiltonian"))
            and proposal.log_q_ratio > -math.inf
        ):
            found["energy_error"] = error = -self._log_ratio
            values["diverging"] = DIVERGENCE < error < math.inf  # infinite: in ``nonfinite``
        else:
            found["energy_error"] = math.nan
        values.update(found)
        values["tree_size"] = float(values.pop("n_steps", 0))
        values["evaluations"] = self.evaluations
        values["scaling"] = values["step_size"]
        return values


class GaussianAdaptationStep(KernelStep):
    """Metropolis Gaussian Adaptation (Mueller & Sbalzarini, 2010): radius and shape adapted at every draw.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The sweeps take at most a fifth of it.
    target_accept : float
        Acceptance probability that the radius is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997);
        the paper's 1/e is the optimiser's.
    initial_scale : ndarray of shape (d,), optional
        Scales of the coordinates at the start, positive, to within a dozen orders of magnitude where ``sweeps`` are
        made. Default: ones.
    preset : {None, "paper"}
        "paper": from the identity and radius 1, at constant rates, by acceptances, towards an acceptance rate of 1/e,
        without a search for the units. Options given besides it win.

    For experiments
    ---------------
    initial_radius : float, optional
        r at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d); the paper starts from 1.
    initial_covariance : ndarray of shape (d, d), optional
        Instead of ``initial_scale``, a whole covariance.
    rate : float, optional
        beta = lambda, in (0, 1). Default ln(d + 1) / (d + 1)^2, as published.
    diminishing : bool
        Let the rate diminish. Default True; False is the published algorithm, which does not have the right stationary
        distribution unless it is frozen.
    success : {"probability", "indicator"}
        What the radius learns from: the acceptance probability (default), or whether the proposal was accepted (the
        paper's).
    sweeps : int
        Moves of every coordinate by itself in the beginning, which find the units, 0 or more. Default 20; the paper has
        none.
    radius_range : float
        The radius stays within this factor of its start, either way. Default 1e12.
    condition_limit : float
        The condition number of the shape relative to its start stays below. Default 1e12.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (the radius), ``lp``, ``nonfinite``, ``move``.
    """

    name = "gaussian_adaptation"
    algorithm = gaussian_adaptation
    presets: ClassVar[dict] = {"paper": gaussian_adaptation.PAPER}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(0.234),
        initial_scale: np.ndarray | None = default(None),
        preset: str | None = None,
        initial_radius: float | None = default(None),
        initial_covariance: np.ndarray | None = default(None),
        rate: float | None = default(None),
        diminishing: bool = default(True),
        success: str = default("probability"),
        sweeps: int = default(20),
        radius_range: float = default(1e12),
        condition_limit: float = default(1e12),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class CMAStep(KernelStep):
    """The (1+1)-CMA evolution strategy as a sampler (Igel, Suttorp & Hansen, 2006; Khoury, 2018).

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The sweeps take at most a fifth of it.
    target_accept : float
        Acceptance probability that sigma is tuned to, in (0, 1). Default 2/11 (Igel et al., 2006).
    initial_scale : ndarray of shape (d,), optional
        Scales of the coordinates at the start, positive, to within a dozen orders of magnitude where ``sweeps`` are
        made. Default: ones.
    preset : {None, "paper"}
        "paper": from the identity and sigma 1, at constant rates, by acceptances, without a search for the units.
        Options given besides it win.

    For experiments
    ---------------
    initial_sigma : float, optional
        sigma at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d).
    initial_covariance : ndarray of shape (d, d), optional
        Instead of ``initial_scale``, a whole covariance.
    rate_factor : float
        Multiplies the published rates 1 / (1 + d/2) of log sigma and 2 / (d^2 + 6) of C, positive. Default 1.
    diminishing : bool
        Let the rates diminish. Default True; False is the published algorithm, which does not have the right stationary
        distribution unless it is frozen.
    success : {"probability", "indicator"}
        What sigma learns from: the acceptance probability (default), or whether the proposal was accepted (the
        paper's).
    sweeps : int
        Moves of every coordinate by itself in the beginning, which find the units, 0 or more. Default 20; the paper has
        none.
    sigma_range : float
        sigma stays within this factor of its start, either way. Default 1e12.
    condition_limit : float
        The condition number of C relative to its start stays below. Default 1e12.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (sigma), ``lp``, ``nonfinite``, ``move``.
    """

    name = "cma"
    algorithm = cma
    presets: ClassVar[dict] = {"paper": cma.PAPER}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(2 / 11),
        initial_scale: np.ndarray | None = default(None),
        preset: str | None = None,
        initial_sigma: float | None = default(None),
        initial_covariance: np.ndarray | None = default(None),
        rate_factor: float = default(1.0),
        diminishing: bool = default(True),
        success: str = default("probability"),
        sweeps: int = default(20),
        sigma_range: float = default(1e12),
        condition_limit: float = default(1e12),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


def _checked_auxiliary(correlation, refresh_blocks):
    if correlation is not None and not 0 <= correlation < 1:
        raise ValueError(f"correlation must lie in [0, 1), got {correlation!r}.")
    if refresh_blocks is not None and not (
        isinstance(refresh_blocks, (int, np.integer)) and refresh_blocks >= 1
    ):
        raise ValueError(f"refresh_blocks must be a positive integer, got {refresh_blocks!r}.")
    return float(correlation or 0.0), int(refresh_blocks or 1)


def _described(value):
    """An option's value as numbers, text and tuples, equal for equal options in every process."""
    if isinstance(value, np.ndarray) and value.ndim:
        digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8).hexdigest()
        return f"array {value.dtype} {value.shape} {digest}"
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # which is equal to itself
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(name): _described(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_described(part) for part in value)
    if inspect.isroutine(value) or isinstance(value, (type, ModuleType)):
        return getattr(value, "__qualname__", value.__name__)
    return type(value).__qualname__, _described(getattr(value, "__dict__", {}))


def register(step=KameleonStep) -> None:
    """Let ``pm.sample`` choose ``step`` by itself for variables without a gradient (PyMC's default: Slice, Metropolis).

    Explicit ``pm.sample(step=...)`` needs no registration and is the better way when a noisy or joint black-box
    likelihood must stay in one step.

    Parameters
    ----------
    step : type
        One of this package's steps: the class, neither its name nor an instance.

    Raises
    ------
    TypeError
        For anything else, which would break every later ``pm.sample``.
    """
    if not (isinstance(step, type) and issubclass(step, KernelStep) and step.name):
        raise TypeError(
            f"register() takes a step's class, such as pymc_kameleon.KameleonStep, got {step!r}."
        )
    if step not in STEP_METHODS:
        STEP_METHODS.insert(0, step)


def unregister(step=KameleonStep) -> None:
    """Undo :func:`register`."""
    if step in STEP_METHODS:
        STEP_METHODS.remove(step)
