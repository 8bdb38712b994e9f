"""The steps but KamiltonianStep: what each is called, its algorithm, its options and its statistics. And register()."""

from collections.abc import Callable
from typing import ClassVar, Literal, Unpack

import numpy as np

from pymc_kameleon.kernels import Kernel, KernelName
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.schedule import ScheduleName
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.steps.base import COUNT, FLOAT, SINGLE, KernelStep
from pymc_kameleon.steps.kamiltonian import KamiltonianStep
from pymc_kameleon.steps.options import CommonOptions
from pymc_kameleon.steps.pytensor_internals import STEP_METHODS
from pymc_kameleon.steps.signatures import default, given


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
        (Haario et al., 2001), else t^-0.6, the log scale by 2 (m + 2)^-0.6 after m moves. With "window" the probability
        of learning the covariance anew; default: at growing intervals.

    Notes
    -----
    Differs from the papers: they adapt for ever, by steps that fall to zero; here all is frozen when tuning ends. The
    cold start (coordinate-wise moves, a covariance from a window, long axes from values) is this package's;
    ``preset="paper"`` is without it.

    Statistics of every draw: ``accept`` (acceptance probability), ``accepted`` (whether it was), ``scaling``, ``lp``,
    ``nonfinite`` (running count of proposals without a finite log density), ``other_mode``, ``move``.

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
        self, vars=None, *, target_accept: float = default(0.234),
        scaling: Literal["learned", "fixed"] = default("learned"),
        covariance: Literal["window", "recursive", "identity"] = default("window"),
        exploration_share: float = default(0.0), learn_from_values: bool = default(True),
        schedule: ScheduleName | Callable[[int], float] | None = default(None), scale: float | None = default(None),
        initial_scale: float | np.ndarray = default(0.1), **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


class KameleonStep(KernelStep):
    """Kernel Adaptive Metropolis-Hastings, "MCMC Kameleon" (Sejdinovic et al., 2014).

    Proposals whose covariance follows the shape of the history near the current point.

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": the covariance gamma^2 I + nu^2 M H M^T in the parameters' own units with gamma = 0.2, the median
        heuristic, a random subsample, and no other moves. The first 500 draws are N(x, gamma^2 I); nu starts at
        2.38 / sqrt(d). Options given besides it win.
    proposal : {"full", "pca"}
        "full" (default): the whole local covariance. "pca": along one kernel principal direction at a time (appendix
        C), which mixes worse; see :mod:`pymc_kameleon.samplers.kameleon.pca`.

    Notes
    -----
    Differs from the paper: it adapts for ever, with a probability p_t that falls to zero (its experiments stop with
    burn-in); here all is frozen when tuning ends. The normalised covariance, the whitened coordinates and the other
    moves are this package's; ``preset="paper"`` is without them.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (nu), ``lp``, ``nonfinite``, ``other_mode``,
    ``move`` ("local", "global" and others: docs/statistics.md), ``n_history``, ``lengthscale``, ``gamma`` (zero before
    the first local move).

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
        **KernelStep.stats_dtypes_shapes, "n_history": COUNT, "lengthscale": SINGLE, "gamma": SINGLE,
    }  # fmt: skip
    chooses = "proposal"
    variants: ClassVar[dict] = {"full": Kameleon, "pca": PCAKameleon}

    def __init__(
        self, vars=None, *, n_history: int = default(1000), target_accept: float = default(0.234),
        proposal: Literal["full", "pca"] = default("full"), n_directions: int = default(20),
        kernel: KernelName | Kernel = default("gaussian"), lengthscale: float | None = default(None),
        lengthscale_factor: float = default(0.5), gamma: float | Callable[[int], float] | None = default(None),
        normalization: Literal["local", "none", "trace"] = default("local"),
        coordinates: Literal["whitened", "scaled", "raw"] = default("whitened"), global_share: float = default(0.5),
        autoregressive_share: float = default(0.5), learn_from_values: bool = default(True),
        scale: float | None = default(None),
        rate: Literal["renewed", "harmonic", "trial"] | Callable[[int], float] = default("renewed"),
        subsample: Literal["even", "random"] = default("even"),
        schedule: ScheduleName | Callable[[int], float] | None = default(None), screen: int = default(0),
        local_start: int | None = default(None), **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


class FastKameleonStep(KernelStep):
    """Screened moves around Fast KAMH (Kotlicki, 2015): Kameleon proposals from random features of the history.

    The cost of a local covariance does not depend on how long the history is. Most moves are ``screen`` of them on a
    surrogate of the log density, accepted or not as one (Christen & Fox, 2005); ``screen=0``: every one by itself.

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": the dissertation's covariance gamma^2 I + eta^2 J^T C J in the parameters' own units with
        gamma = 0.5, the median heuristic, the whole history, eta from a trial run of 1000 local moves, and no other
        moves. The first 1000 draws are N(x, gamma^2 I): with ``tune=1000`` eta stays at 2.38 / sqrt(d), the trial run
        is over with 2000. Options given besides it win.

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
    stats_dtypes_shapes: ClassVar[dict] = {**KameleonStep.stats_dtypes_shapes, "rank": COUNT}

    def __init__(
        self, vars=None, *, n_features: int = default(300), target_accept: float = default(0.234),
        kernel: KernelName | Kernel = default("gaussian"), embedding: Literal["sincos", "cos"] = default("sincos"),
        orthogonal: bool = default(False), lengthscale: float | None = default(None),
        lengthscale_factor: float = default(1.0), gamma: float | Callable[[int], float] | None = default(None),
        normalization: Literal["trace", "none"] = default("trace"),
        coordinates: Literal["whitened", "scaled", "raw"] = default("whitened"), global_share: float = default(0.5),
        autoregressive_share: float = default(0.5), sheared_share: float = default(0.75),
        learn_from_values: bool = default(True), scale: float | None = default(None),
        mean_shift: bool = default(True), variance_share: float = default(0.75), whole_history: bool = default(False),
        rate: Literal["renewed", "harmonic", "trial"] | Callable[[int], float] = default("renewed"),
        schedule: ScheduleName | Callable[[int], float] | None = default(None), screen: int = default(10),
        local_start: int | None = default(None), **common: Unpack[CommonOptions],
    ):  # fmt: skip
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
    ``auxiliary_scale``, ``n_components``, ``lp``, ``nonfinite``, ``other_mode``, ``move`` ("global", "local",
    "auxiliary", "independence" and others: docs/statistics.md).

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
        **KernelStep.stats_dtypes_shapes, "local_scale": FLOAT, "auxiliary_scale": FLOAT, "n_components": COUNT,
    }  # fmt: skip

    def __init__(
        self, vars=None, *, max_components: int = default(16), n_history: int = default(1000),
        shares: tuple[float, float, float, float] = default((0.25, 0.25, 0.25, 0.25)),
        target_accept: float = default(0.234), screen: int = default(0), local_start: int | None = default(None),
        **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


class GaussianAdaptationStep(KernelStep):
    """Metropolis Gaussian Adaptation (Mueller & Sbalzarini, 2010): radius and shape adapted at every draw.

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": from the identity and radius 1, at constant rates, by acceptances, towards an acceptance rate of 1/e,
        without a search for the units, as in Khoury (2018). Options given besides it win.

    Notes
    -----
    Differs from the paper: it adapts for ever at constant rates, which samples another distribution; here rates fall
    and all is frozen when tuning ends. The search for the units is this package's; ``preset="paper"`` is without it,
    and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (the radius), ``lp``, ``nonfinite``, ``other_mode``,
    ``move``.
    """

    name = "gaussian_adaptation"
    leading = ("tune", "target_accept", "initial_scale", "parametrization", "preset")
    variants: ClassVar[dict] = {"": GaussianAdaptation}

    def __init__(
        self, vars=None, *, target_accept: float = default(0.234), initial_scale: np.ndarray | None = default(None),
        initial_radius: float | None = default(None), rate: float | None = default(None),
        diminishing: bool = default(True), success: Literal["probability", "indicator"] = default("probability"),
        sweeps: int = default(20), **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


class CMAStep(KernelStep):
    """The (1+1)-CMA evolution strategy as a sampler (Igel, Suttorp & Hansen, 2006; Khoury, 2018).

    Parameters
    ----------
    preset : {None, "paper"}
        "paper": from the identity and sigma 1, at constant rates, by acceptances, without a search for the units, as
        Khoury (2018) has it: constants of table 5.1, sigma of the code. Options given besides it win.

    Notes
    -----
    Differs from the papers: one is of an optimiser, the other adapts for ever at constant rates, which samples another
    distribution; here rates fall and all is frozen when tuning ends. The search for the units is this package's;
    ``preset="paper"`` is without it, and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (sigma), ``lp``, ``nonfinite``, ``other_mode``,
    ``move``.
    """

    name = "cma"
    leading = ("tune", "target_accept", "initial_scale", "parametrization", "preset")
    variants: ClassVar[dict] = {"": CMA}

    def __init__(
        self, vars=None, *, target_accept: float = default(2 / 11), initial_scale: np.ndarray | None = default(None),
        initial_sigma: float | None = default(None), rate_factor: float = default(1.0),
        diminishing: bool = default(True), success: Literal["probability", "indicator"] = default("probability"),
        sweeps: int = default(20), **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


def register(step: type = KamiltonianStep) -> None:
    """Let ``pm.sample`` choose ``step`` by itself for variables without a gradient (PyMC's default: Slice, Metropolis).

    Explicit ``pm.sample(step=...)`` needs no registration and is the better way when a noisy or joint black-box
    likelihood must stay in one step.

    Parameters
    ----------
    step : type
        One of this package's steps: the class, neither its name nor an instance. Default: ``KamiltonianStep``.

    Raises
    ------
    TypeError
        For anything else, which would break every later ``pm.sample``.
    """
    if not (isinstance(step, type) and issubclass(step, KernelStep) and step.name):
        raise TypeError(f"register() takes a step's class, such as pymc_kameleon.KamiltonianStep, got {step!r}.")
    if step not in STEP_METHODS:
        STEP_METHODS.insert(0, step)


def unregister(step: type | None = None) -> None:
    """Undo :func:`register`: for one step, or (default) for all of this package's."""
    for known in [*STEP_METHODS]:
        if known is step or (step is None and issubclass(known, KernelStep)):
            STEP_METHODS.remove(known)
