"""The seven steps: what each is called, which algorithm it runs, its options and its statistics."""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from pymc_kameleon.kernels import Kernel, KernelName
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.scores.sampler import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.known_points import begin as check_known
from pymc_kameleon.samplers.known_points import check_finite
from pymc_kameleon.samplers.schedule import ScheduleName
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.steps.base import FLOAT, KernelStep
from pymc_kameleon.steps.factors import structure
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.known_points import known_points
from pymc_kameleon.steps.options import CommonOptions, described, unknown_option
from pymc_kameleon.steps.pytensor_internals import STEP_METHODS
from pymc_kameleon.steps.signatures import default, given
from pymc_kameleon.steps.told import advice, progress, surrogate_report
from pymc_kameleon.steps.told.sampler_warnings import WarningType
from pymc_kameleon.surrogates.values.regression import affordable


class AdaptiveMetropolisStep(KernelStep):
    """Adaptive Metropolis (Haario et al., 2001; Andrieu & Thoms, 2008): a random walk with a learned covariance.

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": Andrieu & Thoms (2008), algorithm 4, from the identity, with Roberts & Rosenthal's (2009) share of
        0.05 fixed small moves. Options given besides it win.
    schedule : {"harmonic", "root"} or callable, optional
        While tuning. With "recursive" the step gamma_t, below 1, by which the t-th draw moves mean, covariance and log
        scale (Andrieu & Thoms, 2008, algorithm 4): 1 / t, t^-1/2 or a function of t. Default: 1 / t with a fixed scale
        (Haario et al., 2001), else t^-0.6. With "window" the probability of learning the covariance anew; default: at
        growing intervals.

    Notes
    -----
    Differs from the papers: they adapt for ever, by steps that fall to zero; here all is frozen when tuning ends. The
    cold start (coordinate-wise moves, a covariance from a window, long axes from values) is this package's;
    ``preset="paper"`` is without it.

    Statistics of every draw: ``accept`` (acceptance probability), ``accepted`` (0 or 1), ``scaling``, ``lp``,
    ``nonfinite`` (running count of proposals without a finite log density), ``move``.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=200, chains=1, step=pk.AdaptiveMetropolisStep(), progressbar=False)
    """

    name = "adaptive_metropolis"
    leading = ("tune", "target_accept", "parametrization", "preset")
    schedules = ("",)
    variants: ClassVar[dict] = {"": AdaptiveMetropolis}

    def __init__(
        self,
        vars=None,
        *,
        target_accept: float = default(0.234),
        scaling: Literal["learned", "fixed"] = default("learned"),
        covariance: Literal["window", "recursive", "identity"] = default("window"),
        exploration_share: float = default(0.0),
        autoregressive_share: float = default(0.0),
        learn_from_values: bool = default(True),
        schedule: ScheduleName | Callable[[int], float] | None = default(None),
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
    preset : {None, "paper"}
        "paper": the covariance gamma^2 I + nu^2 M H M^T in the parameters' own units with gamma = 0.2, the median
        heuristic, a random subsample, and no other moves. Options given besides it win.
    proposal : {"full", "pca"}
        "full" (default): the whole local covariance. "pca": along one kernel principal direction at a time (appendix
        C), which mixes worse; see :mod:`pymc_kameleon.samplers.kameleon.pca`.

    Notes
    -----
    Differs from the paper: it adapts for ever, with a probability p_t that falls to zero (its experiments stop with
    burn-in); here all is frozen when tuning ends. The normalised covariance, the whitened coordinates and the other
    moves are this package's; ``preset="paper"`` is without them.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (nu), ``lp``, ``nonfinite``, ``move`` ("local",
    "global", "autoregressive", "screened" or "coordinate"), ``n_history``, ``lengthscale``, ``gamma`` (zero before the
    first local move).

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=200, chains=1, step=pk.KameleonStep(), progressbar=False)
    """

    name = "kameleon"
    leading = ("tune", "n_history", "target_accept", "parametrization", "preset")
    screens = 0
    schedules = ("full", "pca")
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes, "n_history": FLOAT, "lengthscale": FLOAT, "gamma": FLOAT,
    }  # fmt: skip
    chooses = "proposal"
    variants: ClassVar[dict] = {"full": Kameleon, "pca": PCAKameleon}

    def __init__(
        self,
        vars=None,
        *,
        n_history: int = default(1000),
        target_accept: float = default(0.234),
        proposal: Literal["full", "pca"] = default("full"),
        n_directions: int = default(20),
        kernel: KernelName | Kernel = default("gaussian"),
        lengthscale: float | None = default(None),
        lengthscale_factor: float = default(0.5),
        gamma: float | None = default(None),
        normalization: Literal["local", "none", "trace"] = default("local"),
        coordinates: Literal["whitened", "scaled", "raw"] = default("whitened"),
        global_share: float = default(0.5),
        autoregressive_share: float = default(0.5),
        learn_from_values: bool = default(True),
        scale: float | None = default(None),
        subsample: Literal["even", "random"] = default("even"),
        schedule: ScheduleName | Callable[[int], float] | None = default(None),
        screen: int = default(0),
        local_start: int | None = default(None),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class FastKameleonStep(KernelStep):
    """Fast KAMH (Kotlicki, 2015): Kameleon proposals from random Fourier features of the history.

    The cost of a draw does not depend on how long the history is.

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": the dissertation's covariance gamma^2 I + eta^2 J^T C J in the parameters' own units with
        gamma = 0.5, the median heuristic, the whole history, and no other moves. Options given besides it win.

    Notes
    -----
    Differs from the dissertation: it adapts for ever; here all is frozen when tuning ends. The reverse density is that
    of the covariance at the proposed point, not of the state accepted before, which its code takes. Scaled covariance,
    whitened and straightened coordinates, mean shift and screened moves are this package's; ``preset="paper"`` is
    without them.

    Statistics of every draw: those of :class:`KameleonStep` (``scaling`` is eta), and ``rank``, of the factor of the
    feature covariance. A draw is at most one evaluation of the log density.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=200, chains=1, step=pk.FastKameleonStep(), progressbar=False)
    """

    name = "fast_kameleon"
    leading = ("tune", "n_features", "target_accept", "parametrization", "preset")
    screens = 10
    schedules = ("",)
    variants: ClassVar[dict] = {"": FastKameleon}
    stats_dtypes_shapes: ClassVar[dict] = {**KameleonStep.stats_dtypes_shapes, "rank": FLOAT}

    def __init__(
        self,
        vars=None,
        *,
        n_features: int = default(300),
        target_accept: float = default(0.234),
        kernel: KernelName | Kernel = default("gaussian"),
        embedding: Literal["sincos", "cos"] = default("sincos"),
        orthogonal: bool = default(False),
        lengthscale: float | None = default(None),
        lengthscale_factor: float = default(1.0),
        gamma: float | None = default(None),
        normalization: Literal["trace", "none"] = default("trace"),
        coordinates: Literal["whitened", "scaled", "raw"] = default("whitened"),
        global_share: float = default(0.5),
        autoregressive_share: float = default(0.5),
        sheared_share: float = default(0.75),
        learn_from_values: bool = default(True),
        scale: float | None = default(None),
        mean_shift: bool = default(True),
        variance_share: float = default(0.75),
        whole_history: bool = default(False),
        rate: Literal["renewed", "harmonic"] = default("renewed"),
        schedule: ScheduleName | Callable[[int], float] | None = default(None),
        screen: int = default(10),
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
    preset : None
        There is no paper.

    Notes
    -----
    There is no paper to differ from; all is frozen when tuning ends.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (of the global move), ``local_scale``,
    ``auxiliary_scale``, ``n_components``, ``lp``, ``nonfinite``, ``move`` ("global", "local", "auxiliary",
    "independence" or "coordinate").

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=200, chains=1, step=pk.GaussianMixtureStep(), progressbar=False)
    """

    name = "gaussian_mixture"
    leading = ("tune", "max_components", "n_history", "parametrization")
    screens = 0
    variants: ClassVar[dict] = {"": GaussianMixture}
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes, "local_scale": FLOAT, "auxiliary_scale": FLOAT, "n_components": FLOAT,
    }  # fmt: skip

    def __init__(
        self,
        vars=None,
        *,
        max_components: int = default(16),
        n_history: int = default(1000),
        inflation: float = default(1.4),
        broad_share: float = default(0.1),
        shares: tuple[float, float, float, float] = default((0.25, 0.25, 0.25, 0.25)),
        target_accept: float = default(0.234),
        auxiliary_target_accept: float = default(0.4),
        learn_from_values: bool = default(True),
        screen: int = default(0),
        local_start: int | None = default(None),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


class KamiltonianStep(KernelStep):
    """Kamiltonian Monte Carlo (Strathmann et al., 2015): Hamiltonian moves on a learned surrogate of the log density.

    Leapfrog needs a gradient; the surrogate has one. The true log density, or its retained noisy estimate, decides
    acceptance, so a bad surrogate costs time and never exactness.

    Parameters
    ----------
    surrogate : {"values", "lite", "finite"}, or pk.Values, pk.Lite or pk.Finite
        A word, or an object with options: ``surrogate=pk.Values(growth=1.5)``. "values" (default): a regression on the
        log density at every point evaluated while tuning, accepted or rejected, see
        :mod:`pymc_kameleon.samplers.kamiltonian.values.sampler`. "lite" and "finite": the paper's kernel exponential
        families, fitted to the chain's history by score matching, see
        :mod:`pymc_kameleon.samplers.kamiltonian.scores.sampler`.
    evaluations : optional
        "values" only: points whose log density is known up to a constant, all of which the surrogate learns from at
        once. What :func:`pymc_kameleon.sample` returned, or its group ``evaluations``; or a table, (points (n, d),
        log densities (n,)), whose points may be a dict by the names of the model's variables or, unconstrained, of the
        value variables. The first tuning draws evaluate five of them again and are refused with a ``ValueError`` if the
        difference is not a constant (not under noise); the chain goes on from one of them. Tuning of some 100 draws is
        then enough to judge the surrogate. Default: none.
    learn : {"auto", "all"}
        "values" only. "auto" (default): where the model has black boxes that each depend on a few of the unknowns,
        learn those, one by one, and take the rest from the model's graph; see docs/hierarchical.md. "all": the log
        density as a whole, as where there is no such structure.
    preset : {None, "paper"}
        "paper", with "lite" and "finite": one lengthscale, no base density, the parameters' own units, leapfrog steps
        of U[0.01, 0.1] (1 to 10 of them and 1000 points with "lite", 10 to 100, 2000 points and 2000 features with
        "finite"), and trajectories only as soon as there is a surrogate. The paper gave exact draws as ``history``;
        from a cold start such a chain may stand still. With other options: ``surrogate=pk.Lite.paper(...)``.
    expensive : list of str
        Names of variables, or of Ops' classes, to learn like black boxes although they have a gradient. Default none.
    schedule : {"harmonic", "root"} or callable, optional
        While tuning, once there is a first surrogate: the probability a_t of fitting another after the t-th draw (the
        paper's algorithm 1), 1 / t, t^-1/2 or a function of t. Default: at intervals that grow by a half.
    parametrization : {"auto", "model"}, optional
        With black boxes learned one by one. "auto" (default): location-scale priors with unknown parents are sampled in
        non-centred coordinates, as far as the data say; draws are of the model's own variables all the same. "model":
        as the model has them.

    Notes
    -----
    Differs from the paper: it adapts for ever, with a probability a_t that falls to zero; here all is frozen when
    tuning ends. The default learns from values of the log density (the paper matches scores of positions), shares the
    draws with a random walk, and starts cold; the paper's figures were made with exact draws as history. Its U = f and
    exp(H(end) - H(start)) have the wrong sign: here U = -f and exp(H(start) - H(end)).

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` and ``step_size`` (of the leapfrog), ``lp``,
    ``nonfinite``, ``move`` (which kernel made the draw), ``evaluations`` (of the log density, so far), ``n_steps``
    (surrogate gradients; in the step itself under NUTS' name, ``tree_size``), ``energy_error`` (of a tested trajectory,
    with the true log density), ``diverging`` (that error is finite and above 1000, as for NUTS; never under noise),
    ``surrogate_diverging`` (a trajectory left the region where the surrogate is used, or diverged on it: refused by
    design, at no cost), ``refits``; with "values" ``surrogate`` (the family chosen), ``surrogate_error`` (held out),
    ``residual_sd`` (out of sample), ``uncovered``, ``share``; otherwise ``surrogate_score``, ``gaussian_score``,
    ``random_walk_share`` (the least), ``share`` (of the rest, where the chain is, for the surrogate), ``efficiency``
    (of a trajectory, in random-walk moves), ``n_history``, ``lengthscale``, ``regularization``.
    What does not apply is NaN, zero or empty.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=700, chains=1, step=pk.KamiltonianStep(), progressbar=False)
    """

    name = "kamiltonian"
    parametrizes = False  # but where black boxes are learned one by one
    leading = ("tune", "surrogate", "evaluations", "learn", "preset")
    chooses = "surrogate"
    schedules = ("lite", "finite")
    variants: ClassVar[dict] = {
        "values": ValueKamiltonian, "lite": LiteKamiltonian, "finite": FiniteKamiltonian,
    }  # fmt: skip
    stats_dtypes_shapes: ClassVar[dict] = {
        **KernelStep.stats_dtypes_shapes,
        **dict.fromkeys(
            ("step_size", "energy_error", "surrogate_error", "residual_sd", "uncovered", "share", "surrogate_score",
             "gaussian_score", "random_walk_share", "efficiency", "n_history", "lengthscale", "regularization"),
            FLOAT,
        ),
        "tree_size": FLOAT,  # NUTS' name and type; PyMC's converter calls it n_steps
        **dict.fromkeys(("refits", "evaluations", "factors", "noncentred"), (np.int64, [])),
        # NUTS's type, or the two cannot sample together
        **dict.fromkeys(("diverging", "surrogate_diverging"), (bool, [])),
        "surrogate": (np.dtype("U24"), []),
        "worst_factor": (np.dtype("U32"), []),
    }  # fmt: skip
    _learns = "surrogate"
    _bar_shows = progress.SURROGATE
    _draws_differ = True
    _MISSING: ClassVar[dict] = {"f": math.nan, "i": 0, "b": False, "U": ""}

    def __init__(
        self,
        vars=None,
        *,
        surrogate: Literal["values", "lite", "finite"]
        | ValueKamiltonian
        | LiteKamiltonian
        | FiniteKamiltonian = default("values"),
        evaluations: Any = None,
        learn: Literal["auto", "all"] = "auto",
        expensive: Sequence[str] = (),
        schedule: ScheduleName | Callable[[int], float] | None = default(None),
        **common: Unpack[CommonOptions],
    ):
        structure.check(learn, expensive)
        self._learn, self._expensive, self._known = learn, expensive, evaluations
        options = given({"surrogate": surrogate, "schedule": schedule})
        super().__init__(vars, **self._taken_apart(**options, **common))
        if self._known is not None:
            self._known = self._checked_points(self._known)

    def _taken_apart(self, surrogate="values", tune=None, preset=None, **others):
        """The options, with a word and what differs from its defaults for a surrogate that is an object."""
        for name in others.keys() - CommonOptions.__annotations__.keys() - {"schedule"}:
            kinds = [
                word.title() for word, kind in self.variants.items() if name in kind.defaults()
            ]
            elsewhere = " or ".join(f"surrogate=pk.{kind}({name}=...)" for kind in kinds)
            raise unknown_option(
                name, type(self).__name__, signature(type(self)).parameters, elsewhere
            )
        options = {"surrogate": surrogate, "tune": tune, "preset": preset, **others}
        word = {kind: word for word, kind in self.variants.items()}.get(type(surrogate))
        if isinstance(surrogate, str):
            return options
        if word is None:
            raise TypeError(
                f"surrogate must be one of {tuple(self.variants)}, or pk.Values(...), pk.Lite(...) or pk.Finite(...), "
                f"got {surrogate!r}."
            )
        if preset is not None:
            raise ValueError(
                f"preset={preset!r} is for surrogate={word!r}, the word. With other options it is surrogate="
                f"pk.{word.title()}.paper(...), arrival=False."
            )
        chosen = {
            name: getattr(surrogate, name)
            for name, value in surrogate.defaults().items()
            if described(getattr(surrogate, name)) != described(value)
        }
        if tune is not None and chosen.setdefault("tune", tune) != tune:
            raise ValueError(f"tune={tune!r}, but the surrogate's is {chosen['tune']!r}: give one.")
        return {**options, **chosen, "surrogate": word}

    def _checked_points(self, points) -> Evaluations:
        """What the user gives as ``evaluations``, as a record."""
        if self.variant != "values":
            raise ValueError(
                "evaluations are what surrogate='values' learns from; surrogate="
                f"{self.variant!r} learns from positions alone: give it a history."
            )
        if self._density.has_others:
            raise ValueError(
                f"evaluations= needs one step for all variables; {', '.join(v.name for v in self.vars)} is not all of "
                "the model, and the log density of the step changes with the other variables."
            )
        made = known_points(points, self._model, self._density)
        check_finite(made)
        return made

    def _compile(self, model, point, compile_kwargs, owns_auxiliary):
        """The log density; cut at its black boxes, where that pays and no option is for learning the whole."""
        density = None
        if self.variant == "values" and self._learn == "auto":
            reason = self._why_whole(owns_auxiliary)
            if reason and self._expensive:
                raise ValueError(f"expensive names black boxes to learn one by one, and {reason}.")
            if reason:
                structure.say_whole(model, reason)
            else:
                density = structure.factored_density(
                    model, self.vars, point, compile_kwargs, expensive=self._expensive,
                    noncentred=self._parametrization == "auto",
                )  # fmt: skip
        if density is None:
            return super()._compile(model, point, compile_kwargs, owns_auxiliary)
        self.sampler = FactoredKamiltonian(source=density, tune=self._options.get("tune"))
        return density

    def _why_whole(self, owns_auxiliary):
        """Which option is for learning the log density as a whole; empty if none is."""
        if self._known is not None:
            return "evaluations= are log densities, and not what a black box returned"
        if owns_auxiliary:
            return "correlation= and refresh_blocks= are for their noise"
        given = ", ".join(sorted(self._options.keys() - {"tune"}))
        return f"surrogate=pk.Values(...) with {given} is for the whole" if given else ""

    @property
    def has_known_points(self) -> bool:
        """Whether the chains begin with ``evaluations``."""
        return self._known is not None

    @property
    def by_factors(self) -> bool:
        """Whether black boxes are learned one by one."""
        return isinstance(self._density, FactoredDensity)

    @property
    def options(self) -> dict:
        """The options, defaults included, described so that they can be compared and stored."""
        how = {"learn": self._learn, "expensive": self._expensive}
        return {**super().options, **described({**how, "parametrization": self._parametrization})}

    def _set_out(self, x, value):
        if self._known is None:
            return super()._set_out(x, value)
        if not self.tune:
            self._say("evaluations", advice.UNUSED_EVALUATIONS, whole_run=True)
            return None
        return check_known(self.rng, self._known, x, value, comparable=not self._density.noisy)

    def _wanted_tuning(self):
        if self.by_factors or self._known is not None:
            return None
        return super()._wanted_tuning()

    def _checked(self, preset, options):
        if preset == "paper" and self.variant == "values":
            raise ValueError(
                "preset='paper' is for the paper's estimators, and surrogate='values' is not one of them: give "
                "surrogate='lite' or surrogate='finite' too."
            )
        return super()._checked(preset, options)

    def _restart(self, point, x):
        whole = self.variant == "values" and not self.by_factors
        if self.position is None and whole and not affordable(len(x)):
            self._say("dimension", advice.too_many_dimensions(len(x)), whole_run=True)
        super()._restart(point, x)

    def stop_tuning(self) -> None:
        """Freeze everything that adapts; say what is wrong with the surrogate, after what is wrong with the noise."""
        tuned = self.tune and self.algorithm_state is not None
        super().stop_tuning()
        if tuned and self.by_factors:
            self._warn_of_factors()
        elif tuned and self.variant == "values" and affordable(len(self.position)):
            self._warn_of_surrogate()

    def _warn_of_what_misleads(self):
        self._warn_of_failures()  # what cannot be evaluated is not learned either

    def _warn_of_factors(self):
        state = self.algorithm_state
        message = surrogate_report.describe_factors(
            self.sampler.stats(state), state.quality, self.tuning_draws
        )
        if message is not None:
            self._say("surrogate", message, WarningType.CONVERGENCE, **state.quality._asdict())

    def _warn_of_surrogate(self):
        state, wanted = self.algorithm_state, self._wanted_tuning()
        if state.fit is None:
            self._say(
                "no surrogate",
                advice.no_surrogate(self.evaluations, wanted),
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
            for name, (dtype, _) in type(self).stats_dtypes_shapes.items()
            if name not in KernelStep.stats_dtypes_shapes
        }
        found = self.sampler.stats(self.algorithm_state, proposal)
        # What the surrogate's own dynamics call diverging is a trajectory that was refused by design and at no cost. To
        # PyMC and ArviZ ``diverging`` says that the sampler cannot follow the log density: only the true one can tell.
        values["surrogate_diverging"] = found.pop("diverging", False)
        if (
            proposal.move.startswith(("surrogate", "hamiltonian"))
            and proposal.log_q_ratio > -math.inf
        ):
            found["energy_error"] = error = -self._log_ratio
            values["diverging"] = self._density.diverges(error)
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
    preset : {None, "paper"}
        "paper": from the identity and radius 1, at constant rates, by acceptances, towards an acceptance rate of 1/e,
        without a search for the units. Options given besides it win.

    Notes
    -----
    Differs from the paper: it adapts for ever at constant rates, which samples another distribution; here rates fall
    and all is frozen when tuning ends. The search for the units is this package's; ``preset="paper"`` is without it,
    and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (the radius), ``lp``, ``nonfinite``, ``move``.
    """

    name = "gaussian_adaptation"
    leading = ("tune", "target_accept", "initial_scale", "parametrization", "preset")
    variants: ClassVar[dict] = {"": GaussianAdaptation}

    def __init__(
        self,
        vars=None,
        *,
        target_accept: float = default(0.234),
        initial_scale: np.ndarray | None = default(None),
        initial_radius: float | None = default(None),
        initial_covariance: np.ndarray | None = default(None),
        rate: float | None = default(None),
        diminishing: bool = default(True),
        success: Literal["probability", "indicator"] = default("probability"),
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
    preset : {None, "paper"}
        "paper": from the identity and sigma 1, at constant rates, by acceptances, without a search for the units.
        Options given besides it win.

    Notes
    -----
    Differs from the papers: one is of an optimiser, the other adapts for ever at constant rates, which samples another
    distribution; here rates fall and all is frozen when tuning ends. The search for the units is this package's;
    ``preset="paper"`` is without it, and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (sigma), ``lp``, ``nonfinite``, ``move``.
    """

    name = "cma"
    leading = ("tune", "target_accept", "initial_scale", "parametrization", "preset")
    variants: ClassVar[dict] = {"": CMA}

    def __init__(
        self,
        vars=None,
        *,
        target_accept: float = default(2 / 11),
        initial_scale: np.ndarray | None = default(None),
        initial_sigma: float | None = default(None),
        initial_covariance: np.ndarray | None = default(None),
        rate_factor: float = default(1.0),
        diminishing: bool = default(True),
        success: Literal["probability", "indicator"] = default("probability"),
        sweeps: int = default(20),
        sigma_range: float = default(1e12),
        condition_limit: float = default(1e12),
        **common: Unpack[CommonOptions],
    ):
        super().__init__(vars, **given(locals()), **common)


def register(step: type = KameleonStep) -> None:
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


def unregister(step: type | None = None) -> None:
    """Undo :func:`register`: for one step, or (default) for all of this package's."""
    for known in [*STEP_METHODS]:
        if known is step or (step is None and issubclass(known, KernelStep)):
            STEP_METHODS.remove(known)
