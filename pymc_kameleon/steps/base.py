"""PyMC's life cycle around one transition: what every step of this package shares.

:class:`KernelStep` holds the log density compiled once and its value at the current state retained, the life cycle of a
chain, the sampling state, the statistics and the progress bar. A subclass names a sampler
(:class:`pymc_kameleon.samplers.seam.Sampler`) and its options.
"""

import logging
import math
import sys
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep, Competence
from pymc.util import get_random_generator

from pymc_kameleon.numerics import compiled
from pymc_kameleon.numerics.checks import count
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.life import Life
from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.steps.hierarchies.reparametrized_density import left_centred, reparametrized_density
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.noise.demands import renewal, seed_streams
from pymc_kameleon.steps.noise.noisy_factors import all_factors
from pymc_kameleon.steps.options import CommonOptions, build, check_shapes, choose, continuous, described, full_point
from pymc_kameleon.steps.prior_scale import Starts, angles
from pymc_kameleon.steps.pytensor_internals import NotScalar
from pymc_kameleon.steps.sampling_state import VERSION, KernelStepState, check
from pymc_kameleon.steps.signatures import complete
from pymc_kameleon.steps.told import advice, progress
from pymc_kameleon.steps.told.sampler_warnings import SamplerWarning
from pymc_kameleon.steps.told.watch import Watch

FLOAT: tuple[Any, list] = (np.float64, [])
MOVE: tuple[Any, list] = (np.dtype("U12"), [])  # one for all: PyMC refuses steps side by side whose types differ
SINGLE: tuple[Any, list] = (np.float32, [])
COUNT: tuple[Any, list] = (np.int32, [])
# What NUTS has, too, and what PyMC shows two of these as. Beside other steps ours have the step's name in front: PyMC
# puts equal names into one statistic with an axis more (``lp`` with zeros in it), which ArviZ's plots do not expect.
NUTS_HAS = {
    "model_logp": "lp", "tree_size": "n_steps",
    **{name: name for name in ("step_size", "energy_error", "diverging", "accepted")},
}  # fmt: skip


@cache  # once
def say_compilation() -> None:
    """Why a first run takes longer than any other."""
    if compiled.is_cold():
        logging.getLogger("pymc.kameleon").info(advice.COMPILES)


def _passed_on(path: str, doc: str | None = None) -> Any:
    """An attribute that stands elsewhere, to be read and set."""
    where, _, name = path.rpartition(".")
    owner = attrgetter(where)
    return property(attrgetter(path), lambda self, value: setattr(owner(self), name, value), doc=doc)


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
        Gives the variables' shapes; chains that begin there jump to starts of their own. Default: the model's.
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
        :mod:`pymc_kameleon.samplers.arrival.phase`; at most 60 d + 300 + 2 d^2, and 0.4 ``tune`` where that is given;
        one tuning draw of max(3, d // 3) then climbs from draws of the prior, to look for other modes. A chain that is
        at ``initial_point`` first jumps to an over-dispersed start of its own, so that R-hat can tell whether chains
        from different starts agree. Default True, False with ``preset="paper"``. Only the jump where the log density is
        noisy or other steps move variables. Of black boxes learned one by one the sampler climbs; looks follow.
    learning_draws : int, optional
        Learn from so many tuning draws, at least 1, and be frozen from then on, which bounds what the step keeps, some
        8 d + 250 bytes a draw; ``tune=`` should get the same number. Default: learn from all tuning draws.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets.
    parametrization : {"auto", "model"}, optional
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"`` where a step has that: as the model has them.
    preset : {None, "paper"}
        "paper": the algorithm as it was published; the options given besides it win.
    schedule : {"harmonic", "root"} or callable, optional
        Of the adaptive walk, Kameleon, FastKameleon, "lite" and "finite" only. While tuning, once there is something
        learned: the probability p_t of learning it anew after the t-th draw (the papers' algorithms 1), 1 / t, t^-1/2
        or a function of t. Default: growing intervals, some 10 / t (both Kameleons), 5 / t (walk), 2 / t ("lite" ...).
    screen : int
        Of Kameleon, FastKameleon and the mixture only. k: most draws are the end of k transitions of this step's own
        kernel on a surrogate of the log density, learned from every value seen while tuning, tested with one evaluation
        (Christen & Fox, 2005; ``move`` "screened"); as exact, and several times the effective draws for each evaluation
        where a surrogate fits, at some 30 microseconds a transition. See :mod:`pymc_kameleon.samplers.screened`. 0, the
        default but of FastKameleonStep (10), and with the preset, for none.
    options
        The algorithm's own, see the page of each step.

    Raises
    ------
    ValueError
        For discrete variables, for variables without a single element, and for options outside their domain.
    TypeError
        For an option that the algorithm does not have, and for values of the wrong type (ValueError for some).
    RuntimeError
        On a free-threaded Python that runs without its global interpreter lock.
    pymc.exceptions.SamplingError
        At a chain's first draw, if the log density is not finite there, nor at points beside the model's initial point
        and draws of the prior, which a chain from that point tries; the message names the factors.
    Exception
        What the model raises while it is evaluated, with the point and the black-box factors added as a note. Return
        NaN to reject a point instead.
    """

    name: ClassVar[str] = ""
    keeps_estimates = True  # a step that does may have a noisy log likelihood: see pseudo_marginal
    default_blocked = True
    state_version: ClassVar[int] = VERSION
    _state_class = KernelStepState
    chooses: ClassVar[str] = ""  # the keyword that chooses between samplers, if there is one ...
    variants: ClassVar[dict[str, Any]] = {}  # ... of these; the first is the default
    screens: ClassVar[int | None] = None  # default of the option ``screen``, where the step has it
    schedules: ClassVar[tuple[str, ...]] = ()  # the variants with the option ``schedule``
    # whether the log density as a whole is put into other coordinates
    parametrizes: ClassVar[bool] = True
    leading: ClassVar[tuple[str, ...]] = ("tune", "parametrization", "preset")  # shown first
    watches: ClassVar[type[Watch]] = Watch
    _bar_shows: ClassVar[str] = progress.SCALE  # below acceptance and evaluations

    stats_dtypes_shapes: ClassVar[dict] = {
        **dict.fromkeys(("accept", "scaling", "model_logp"), FLOAT),
        "nonfinite": COUNT,
        "other_mode": SINGLE,
        "move": MOVE,
        "warning": (SamplerWarning, None), "accepted": (bool, []),  # as NUTS and DEMetropolisZ have them
    }  # fmt: skip

    if TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            """PyMC's may return a CompoundStep (blocked=False): checkers then look at no argument."""

    def __init_subclass__(cls, **kwargs):
        """Show what every step takes in the subclass's signature, and its meaning below the subclass's own options."""
        super().__init_subclass__(**kwargs)
        complete(cls, KernelStep)

    def __init__(
        self, vars=None, *, model=None, rng=None, initial_point=None, compile_kwargs=None, blocked=True,
        correlation=None, refresh_blocks=None, arrival=None, learning_draws=None, tune=None, parametrization=None,
        preset=None, **options,
    ):  # fmt: skip
        common = {n: v for n, v in locals().items() if n in CommonOptions.__annotations__}
        if not getattr(sys, "_is_gil_enabled", lambda: True)():  # Python 3.13 and later have it
            raise RuntimeError(advice.NO_LOCK.format(step=type(self).__name__))
        check_types(common, {**get_type_hints(CommonOptions), "preset": str | None})
        if learning_draws is not None:
            count(1, learning_draws=learning_draws)
        self.learning_draws, self.declared_tune = learning_draws, tune
        self._parametrization = parametrization or ("model" if preset == "paper" else "auto")
        self.arrives = preset != "paper" if arrival is None else bool(arrival)
        if tune is not None:
            options["tune"] = tune
        self.variant, self._options, self._screen, self._schedule = choose(type(self), preset, options)
        self.model = model = pm.modelcontext(model)
        self.vars = continuous(type(self).__name__, vars, model)
        self.blocked, rng = blocked, get_random_generator(rng)
        point = full_point(model, initial_point)
        self._factors = [f.name for f in all_factors(model)]
        self._renewal = renewal(correlation, refresh_blocks)
        self.shapes = {v.name: np.shape(point[v.name]) for v in self.vars}
        dim = sum(math.prod(shape) for shape in self.shapes.values())
        if dim == 0:
            raise ValueError(advice.nothing_to_sample(type(self).__name__, self.shapes))
        # Options are wrong now or never, and a large model takes long to compile.
        sampler = build(self.algorithm, self._options, self._screen, self._schedule)
        say_compilation()
        sampler.init(np.random.default_rng(0), np.zeros(dim))
        owns_auxiliary = correlation is not None or refresh_blocks is not None
        self.density: LogDensity = self._compile(model, point, compile_kwargs, owns_auxiliary)
        self.density.circles = angles(model, self.vars, self.shapes)
        self.life = Life(self._sampler_of(self.density, sampler), self.density, rng)
        self._starts = Starts(model, self.vars, point, self.density)
        self._names = {n: f"{self.name}_{shown}" for n, shown in NUTS_HAS.items() if self.density.has_others}
        declared = self._declared() | ({"noise_sd": SINGLE} if self.density.noisy else {})
        declared |= {"work": SINGLE, "work_spent": FLOAT} if self.density.given_work else {}
        # as PyMC itself does, for every step
        self.stats_dtypes_shapes = {self._names.get(n, n): kind for n, kind in declared.items()}  # type: ignore[misc]
        self.stats_dtypes = [{n: dtype for n, (dtype, _) in self.stats_dtypes_shapes.items()}]
        with suppress(TypeError):  # a generator that cannot spawn; a chain brings one that can
            seed_streams(self.density.noise_cells(), rng)
        self._idle = [None]  # empty while a draw is made
        self.watch = self.watches(self)
        self.reset_tuning()

    def _compile(self, model, point, compile_kwargs, owns_auxiliary):
        """The log density that this step samples."""
        if self.parametrizes and self._parametrization == "auto":
            moved = reparametrized_density(model, self.vars, point, compile_kwargs, owns_auxiliary)
            if moved is not None:
                return moved
        return LogDensity(model, self.vars, point, compile_kwargs, owns_auxiliary)

    def _sampler_of(self, density, sampler):
        """The algorithm as ``density`` needs it."""
        return sampler

    def check_model(self) -> None:
        """Refuse to sample if the model has other factors than when the step was built."""
        now = [f.name for f in all_factors(self.model)]
        if now != self._factors:
            raise SamplingError(advice.model_has_changed(type(self).__name__, self._factors, now))

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """NUTS where there is a gradient; preferred where there is none. See ``register``."""
        if var.dtype not in pm.vartypes.continuous_types or 0 in var.type.shape:
            return Competence.INCOMPATIBLE
        return Competence.COMPATIBLE if has_grad else Competence.PREFERRED

    # -- what is asked of a step --------------------------------------------------------------

    @property
    def learning_options(self) -> dict[str, Any]:
        """The options given, less the length of tuning: for who runs the algorithm without the step."""
        return {name: value for name, value in self._options.items() if name != "tune"}

    @property
    def method(self) -> str:
        """Name of the step, and of the algorithm that it was told to use."""
        return f"{self.name}, {self.chooses}={self.variant!r}" if self.chooses else self.name

    @property
    def algorithm(self) -> Any:
        """Of what the step makes its sampler."""
        return self.variants[self.variant]

    @property
    def leaves_hierarchies(self) -> bool:
        """Whether ``parametrization="auto"`` would move a scale's prior that "model" has left as it is."""
        return self.parametrizes and self._parametrization == "model" and left_centred(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """The options, defaults included, described so that they can be compared and stored."""
        common = {
            "correlation": self._renewal.correlation, "refresh_blocks": self._renewal.blocks,
            "screen": None if self.screens is None else self._screen,
            "learning_draws": self.learning_draws, "schedule": self._schedule,
            "parametrization": self._parametrization if self.density.reparametrized else None,
            "work": self.density.given_work or None,
        }  # fmt: skip
        common = {name: value for name, value in common.items() if value is not None}
        return described({**self.algorithm.defaults(), **self._options, **common})

    rng = _passed_on("life.rng", "The chain's generator.")
    sampler = _passed_on("life.sampler", "The algorithm, with its options.")
    tuning_draws = property(attrgetter("life.state.tuning_draws"), doc="So far in this chain.")
    algorithm_state = property(attrgetter("life.state.own"), doc="The algorithm's own state.")
    position = property(
        attrgetter("life.here.position"),
        doc="The current point as this step left it; None before a chain's first draw.",
    )
    log_density = property(attrgetter("life.here.log_density"), doc="Retained value there.")

    @property
    def tune(self) -> bool:
        """Whether the step learns."""
        return self.life.state.tune

    @tune.setter
    def tune(self, tune: bool) -> None:  # by PyMC's driver, before a chain
        self.life.state = self.life.state._replace(tune=tune)

    # -- the sampling state -------------------------------------------------------------------

    @property
    def sampling_state(self) -> Any:
        """Everything mutable, as a :class:`KernelStepState`; setting it resumes the chain that it is from."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state: Any) -> None:
        check(self, state)  # all of it before anything is changed
        BlockedStep.sampling_state.fset(self, state)
        self._frozen_stats = None

    __copy__ = deepcopy  # PyMC's population sampler copies a step for every chain
    life_state = _passed_on("life.state", "Everything that changes in the chain's life.")
    others = _passed_on("density.others", "The other steps' variables, as the log density has them.")
    data = _passed_on("density.data")
    noise = _passed_on("density.noise", "States of the log density's generators.")
    failures = _passed_on("watch.failures")
    streak = _passed_on("watch.streak")
    said = _passed_on("watch.said", "Keys of the warnings that this chain has given.")
    pending = _passed_on("watch.pending", "Warnings that leave with the next draws.")

    # -- a chain ------------------------------------------------------------------------------

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain (PyMC >= 6.3); a seed gives the same draws as in older versions, which tell no ``tune``."""
        self.set_rng(rng)

    def set_rng(self, rng: Any) -> None:
        """Begin a chain (PyMC < 6.3)."""
        self.rng = get_random_generator(rng, copy=False)
        self.watch.begin_chain(self.rng)
        seed_streams(self.density.noise_cells(), self.rng)
        self.reset_tuning()

    def reset_tuning(self) -> None:
        """Forget everything that was learned (called between sequential chains); uses no random numbers."""
        self.life.reset()
        self.watch.reset()
        self.nonfinite, self.evaluations = 0, 0
        self._window = progress.Window(maxlen=progress.WINDOW)
        self._frozen_stats = None

    def stop_tuning(self) -> None:
        """Freeze everything that adapts."""
        life, tuned = self.life, self.tune
        life.stop_climbing()
        self.watch.tuning_ends()
        life.freeze()
        if tuned:
            self.watch.is_frozen()
        self._frozen_stats = None

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list]:
        """One draw: at most one evaluation of the log density."""
        try:
            self._idle.pop()  # one operation, which no other thread can come between
        except IndexError:
            raise RuntimeError(advice.TWO_THREADS.format(step=type(self).__name__)) from None
        try:
            return self._draw(point)
        finally:
            self._idle.append(None)

    def _draw(self, point):
        life, density = self.life, self.density
        if life.state.tuning_draws == self.learning_draws and life.state.tune:
            self.stop_tuning()
        moved, before = density.changed(point, self.position is None), life.here
        x = density.ravel(point)
        if moved or not density.is_at(x, before.position):
            begins_elsewhere = self._restart(point, x)
            before = life.here
            # what comes back from u differs in the last digits, and an angle may be in another period
            if begins_elsewhere or density.entered or len(density.circles):
                point = density.update(point, before.position)
        self._point = point
        told = life.tell(self._evaluate(life.ask(), before))
        self.watch.drew(told)
        if life.here.position is not before.position:
            point = density.update(point, life.here.position)
        return point, [self._row(told, life.state)]

    # -- the log density ----------------------------------------------------------------------

    def _restart(self, point, x):
        """The chain starts (True if elsewhere), or another step moved a variable: evaluate the log density there."""
        begins, density = self.position is None, self.density
        if begins:
            check_shapes(self, point)
        unmoved = not begins and density.is_at(x, self.position)
        if unmoved and density.entered:  # where a scale is small, x does not say what u is
            x = self.position.copy()
        else:  # a copy: the driver's memory may be overwritten after the draw
            x = density.enter(x)
        there = self._evaluate_again(x, unmoved)
        value, elsewhere = there.log_density, None
        if not math.isfinite(value) and (begins or value != -math.inf):
            elsewhere = self._starts.elsewhere(self.rng, x, self._evaluate_again) if begins and self.arrives else None
            if elsewhere is None:
                self.watch.refuse(point, value)
            self.watch.moved(point, value)
            there = elsewhere
        if begins:
            self.watch.begins(there.position, there.log_density)
        self.life.put(there, stage=lambda: self._set_out(there.position, there.log_density, elsewhere is not None))
        return elsewhere is not None

    def _set_out(self, x, value, ours):
        """What comes before the walk, from a chain's first point, found by us or not; None where nothing does."""
        here = (self.rng, x, value, self.life, self.declared_tune, ours)
        return self._starts.arrival(*here) if self.arrives and self.tune else None

    def _evaluate_again(self, x, unmoved):
        """The log density of ``x``, where no proposal led."""
        density, (noisy, normals) = self.density, self.life.here.noise
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
        return Point(x, value, (noisy, normals), density.outputs)

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
            self.density.auxiliary = auxiliary = [self._renewal(self.rng, u) for u in auxiliary]
        value, noisy = self._log_density_at(proposal.position)
        if not -math.inf < value < math.inf:  # NaN fails both
            self.nonfinite += 1
            if value != -math.inf and proposal.move != "arrival":  # which looks far from the posterior
                self.watch.failed(self._point, proposal.position, value)
            value, noisy = -math.inf, 0.0 if value == -math.inf else math.nan  # a failure is no estimate of zero
        return Point(proposal.position, value, (noisy, auxiliary), self.density.outputs)

    def _log_density_at(self, x):
        """(log density, its noisy part where the two are kept apart); an exception of the model's tells the point."""
        try:
            return self.density.parts(x)
        except Exception as error:
            if self.life.kind == "look" and self.life.sampler.climbs_by_itself:  # by the way: no run has to end of it
                return -math.inf, 0.0
            self.watch.add_point(error, x)
            raise

    # -- statistics and progress --------------------------------------------------------------

    def _row(self, told, state):
        """A draw's statistics, with what the progress bar shows of it."""
        own = self._frozen_stats or self._own_statistics()
        self._frozen_stats = None if state.tune else own
        here, work = state.here, state.work
        row = progress.Row(own, **self._draw_statistics(told))
        row |= {
            "accept": told.accept_prob, "accepted": told.accepted,
            "model_logp": self.density.model_log_density(here.position, here.log_density),
            "nonfinite": self.nonfinite, "other_mode": search.largest(state.elsewhere, state.looked),
            "move": told.proposal.move, "warning": self.watch.take(),
        }  # fmt: skip
        if self.density.noisy:
            row["noise_sd"] = self.watch.noise_sd() or math.nan
        if work.now:
            row |= {"work": float(sum(work.now)), "work_spent": float(work.spent)}
        for name, shown in self._names.items():
            if name in row:
                row[shown] = row.pop(name)
        row.told = self._window.told(self.life, told, self.evaluations)
        return row

    def _declared(self):
        """Statistics, their types and shapes; a step may have fewer than its class."""
        return self.stats_dtypes_shapes

    def _own_statistics(self):
        return self.sampler.stats(self.algorithm_state)

    def _draw_statistics(self, told):
        return {}  # beside those, which are fixed once tuning ends

    @classmethod
    def _progressbar_config(cls, n_chains=1):
        return progress.columns(cls._bar_shows, n_chains)

    @classmethod
    def _make_progressbar_update_functions(cls):
        return (partial(progress.fields, cls._bar_shows),)
