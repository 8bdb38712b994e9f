"""The seven steps: what each is called, which algorithm it runs, its options and its statistics."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from pymc_kameleon.kernels import Kernel
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.cma import CMA
from pymc_kameleon.samplers.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.scores.sampler import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.known_points import begin as check_known
from pymc_kameleon.samplers.known_points import check_finite
from pymc_kameleon.steps import advice, progress, structure, surrogate_report
from pymc_kameleon.steps.base import FLOAT, KernelStep
from pymc_kameleon.steps.factored_density import FactoredDensity
from pymc_kameleon.steps.known_points import known_points
from pymc_kameleon.steps.options import CommonOptions, described
from pymc_kameleon.steps.pytensor_internals import (
    STEP_METHODS,
)
from pymc_kameleon.steps.sampler_warnings import WarningType
from pymc_kameleon.steps.signatures import default, given
from pymc_kameleon.surrogates.values.library import LIBRARY, Family
from pymc_kameleon.surrogates.values.regression import affordable

DIVERGENCE = 1000.0  # energy error from which on NUTS calls a trajectory diverging (pymc's Emax)
STRUCTURE = (
    "learn",
    "coordinates",
    "expensive",
)  # options of KamiltonianStep that are none of a sampler's


class AdaptiveMetropolisStep(KernelStep):
    """Adaptive Metropolis (Haario et al., 2001; Andrieu & Thoms, 2008): a random walk with a learned covariance.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Then the coordinate-wise phase, which finds the
        units, takes at most a fifth of it.
    target_accept : float
        Acceptance probability that the scale is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
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
    schedule : {"harmonic", "root"} or callable, optional
        While tuning. With "recursive" the step gamma_t, below 1, by which the t-th draw moves mean, covariance and log
        scale (Andrieu & Thoms, 2008, algorithm 4): 1 / t, t^-1/2 or a function of t. Default: 1 / t with a fixed scale
        (Haario et al., 2001), else t^-0.6. With "window" the probability of learning the covariance anew; default: at
        growing intervals.
    scale : float, optional
        The overall scale, positive, or where its adaptation starts. Default 2.38 / sqrt(d).
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise phase starts; it spans six orders of magnitude either
        way. Default 0.1.

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
    schedules = ("",)
    variants: ClassVar[dict] = {"": AdaptiveMetropolis}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(0.234),
        parametrization: str = default("auto"),
        preset: str | None = None,
        scaling: str = default("learned"),
        covariance: str = default("window"),
        exploration_share: float = default(0.0),
        autoregressive_share: float = default(0.0),
        learn_from_values: bool = default(True),
        schedule: str | Callable[[int], float] | None = default(None),
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
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
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
    schedule : {"harmonic", "root"} or callable, optional
        While tuning, once there is a first local covariance: the probability p_t of learning it anew after the t-th
        draw, 1 / t, t^-1/2 or a function of t (the paper's algorithm 1). Default: at intervals that grow by a
        tenth, as often as p_t = 10 / t on average.
    screen : int
        k: most draws are the end of k transitions of this step's own kernel on a surrogate of the log density, learned
        from every value seen while tuning, tested with one evaluation (Christen & Fox, 2005; ``move`` "screened"); as
        exact, and several times the effective draws for each evaluation where a surrogate fits, at some 30 microseconds
        a transition. See :mod:`pymc_kameleon.samplers.screened`. 0, the default, for none.

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
        tune: int | None = default(None),
        n_history: int = default(1000),
        target_accept: float = default(0.234),
        parametrization: str = default("auto"),
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
        schedule: str | Callable[[int], float] | None = default(None),
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
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Local moves then begin after 0.3 of it.
    n_features : int
        Number D of random features, positive; the cost of a draw grows with it. Default 300; the dissertation finds 50
        to 350 best.
    target_accept : float
        Acceptance probability that the scale eta is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
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
    schedule : {"harmonic", "root"} or callable, optional
        While tuning, once there is a first local covariance: the probability p_t of learning it anew after the t-th
        draw, 1 / t, t^-1/2 or a function of t (the KAMH paper's; the dissertation learns from every draw).
        Default: at intervals that grow by a tenth, as often as p_t = 10 / t on average.
    screen : int
        k: most draws are the end of k transitions of this step's own kernel on a surrogate of the log density, learned
        from every value seen while tuning, tested with one evaluation (Christen & Fox, 2005; ``move`` "screened"); as
        exact, and several times the effective draws for each evaluation where a surrogate fits, at some 30 microseconds
        a transition. See :mod:`pymc_kameleon.samplers.screened`. Default 10; 0, and with the preset, none.

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
    screens = 10
    schedules = ("",)
    variants: ClassVar[dict] = {"": FastKameleon}
    stats_dtypes_shapes: ClassVar[dict] = {**KameleonStep.stats_dtypes_shapes, "rank": FLOAT}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        n_features: int = default(300),
        target_accept: float = default(0.234),
        parametrization: str = default("auto"),
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
        schedule: str | Callable[[int], float] | None = default(None),
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
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The first fit is then between 0.35 and 0.5 of it.
    max_components : int
        Largest mixture that cross-validation may choose, positive. Default 16.
    n_history : int
        Largest size of the evenly thinned history that the mixture is fitted to. Default 1000.
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.

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
    screen : int
        k: most draws are the end of k transitions of this step's own kernel on a surrogate of the log density, learned
        from every value seen while tuning, tested with one evaluation (Christen & Fox, 2005; ``move`` "screened"); as
        exact, and several times the effective draws for each evaluation where a surrogate fits, at some 30 microseconds
        a transition. See :mod:`pymc_kameleon.samplers.screened`. 0, the default, for none.
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
    screens = 0
    variants: ClassVar[dict] = {"": GaussianMixture}
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
        parametrization: str = default("auto"),
        inflation: float = default(1.4),
        broad_share: float = default(0.1),
        shares: tuple[float, float, float, float] = default((0.25, 0.25, 0.25, 0.25)),
        target_accept: float = default(0.234),
        auxiliary_target_accept: float = default(0.4),
        learn_from_values: bool = default(True),
        screen: int = default(0),
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
        from a cold start such a chain may stand still. Options given besides it win.

    For experiments
    ---------------
    coordinates : {"auto", "model"}
        With black boxes learned one by one. "auto" (default): location-scale priors with unknown parents are sampled in
        non-centred coordinates, as far as the data say; draws are of the model's own variables all the same. "model":
        as the model has them.
    expensive : list of str
        Names of variables, or of Ops' classes, to learn like black boxes although they have a gradient. Default none.
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise cold start begins; it spans six orders of magnitude either
        way. Default 0.1.
    library : tuple of Family
        "values" only: feature families to choose from by held-out error. Default
        ``pymc_kameleon.surrogates.values.library.LIBRARY``.
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
    solver : {"dense", "low-rank"}
        Of lite: a Cholesky factorisation (default), or incomplete Cholesky and conjugate gradients (the paper's
        appendix A.2), for thousands of states.
    online : bool
        Of finite: keep coordinates and features of the first fit and fold every later state in by d rank-one updates
        (A.3), so that cost does not depend on the length of the history. Default False.
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
    schedule : {"harmonic", "root"} or callable, optional
        While tuning, once there is a first surrogate: the probability a_t of fitting another after the t-th draw (the
        paper's algorithm 1), 1 / t, t^-1/2 or a function of t. Default: at intervals that grow by a half.
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
    Differs from the paper: it adapts for ever, with a probability a_t that falls to zero; here all is frozen when
    tuning ends. The default learns from values of the log density (the paper matches scores of positions), shares the
    draws with a random walk, and starts cold; the paper's figures were made with exact draws as history. Its U = f and
    exp(H(end) - H(start)) have the wrong sign: here U = -f and exp(H(start) - H(end)).

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

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=700, chains=1, step=pk.KamiltonianStep(), progressbar=False)
    """

    name = "kamiltonian"
    parametrizes = False  # its option ``coordinates``
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
        tune: int | None = default(None),
        surrogate: str = default("values"),
        evaluations: Any = None,
        learn: str = "auto",
        preset: str | None = None,
        coordinates: str = "auto",
        expensive: Sequence[str] = (),
        initial_scale: float | np.ndarray = default(0.1),
        library: tuple[Family, ...] = default(LIBRARY, "LIBRARY"),
        growth: float = default(1.35),
        companion_share: float = default(0.25),
        history: np.ndarray | None = default(None),
        n_history: int | None = default(None),
        n_features: int = default(300),
        kernel: str | Kernel = default("gaussian"),
        embedding: str = default("sincos"),
        solver: str = default("dense"),
        online: bool = default(False),
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
        schedule: str | Callable[[int], float] | None = default(None),
        mixture: str = default("residual"),
        first_fit: int | None = default(None),
        learn_from_values: bool = default(True),
        **common: Unpack[CommonOptions],
    ):
        options = given(locals())
        self._structure = {name: options.pop(name) for name in STRUCTURE}
        structure.check(**self._structure)
        self._known = options.pop("evaluations")
        super().__init__(vars, **options, **common)
        if self._known is not None:
            self._known = self._checked_points(self._known)

    def _checked_points(self, points) -> Evaluations:
        """What the user gives as ``evaluations``, as a record."""
        if self.variant != "values":
            raise ValueError(
                "evaluations are what surrogate='values' learns from; surrogate="
                f"{self.variant!r} learns from positions alone: give it history=."
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
        density, how = None, dict(self._structure)
        auto = how.pop("learn") == "auto" and self.variant == "values"
        auto = (
            auto and self._known is None
        )  # known are log densities, not what a black box returned
        if auto and not (owns_auxiliary or self._options.keys() - {"tune"}):
            density = structure.factored_density(model, self.vars, point, compile_kwargs, **how)
        if density is None:
            return super()._compile(model, point, compile_kwargs, owns_auxiliary)
        self.sampler = FactoredKamiltonian(source=density, tune=self._options.get("tune"))
        return density

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
        return {**super().options, **described(self._structure)}

    def _climbs(self):
        return (
            not self.by_factors and super()._climbs()
        )  # the factors' sampler has a climb of its own

    def _hands_on(self):
        return self._known is not None or super()._hands_on()

    def _set_out(self, x, value):
        if self._known is None:
            return super()._set_out(x, value)
        if not self.tune:
            self._say("evaluations", advice.UNUSED_EVALUATIONS, whole_run=True)
            return None
        return check_known(self.rng, self._known, x, value, comparable=not self._density.noisy)

    @property
    def _renews(self):
        return self.variant != "values" and super()._renews

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
        for name in ("n_features", "embedding"):
            if name in options and self.variant == "lite":
                raise ValueError(
                    f"{name} is an option of surrogate='finite'; 'lite' has no random features, "
                    f"got {name}={options[name]!r}."
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
        state = self._algorithm_state
        message = surrogate_report.describe_factors(
            self.sampler.stats(state), state.quality, self.tuning_draws
        )
        if message is not None:
            self._say("surrogate", message, WarningType.CONVERGENCE, **state.quality._asdict())

    def _warn_of_surrogate(self):
        state, wanted = self._algorithm_state, self._wanted_tuning()
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
            for name, (dtype, _) in self.stats_dtypes_shapes.items()
            if name not in KernelStep.stats_dtypes_shapes
        }
        if self.variant == "values":
            found = self.sampler.stats(self._algorithm_state, proposal)
        else:
            trajectory = (proposal.carry or {}).get("stats", {})  # a probe carries nothing
            found = {"n_steps": 0, "diverging": False, **self.sampler.stats(self._algorithm_state)}
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
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
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
    Differs from the paper: it adapts for ever at constant rates, which samples another distribution; here rates fall
    and all is frozen when tuning ends. The search for the units is this package's; ``preset="paper"`` is without it,
    and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (the radius), ``lp``, ``nonfinite``, ``move``.
    """

    name = "gaussian_adaptation"
    variants: ClassVar[dict] = {"": GaussianAdaptation}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(0.234),
        initial_scale: np.ndarray | None = default(None),
        parametrization: str = default("auto"),
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
    parametrization : {"auto", "model"}
        "auto" (default): location-scale priors with unknown parents are sampled in non-centred coordinates, as far as
        the data say, where this step samples the parents, too; draws are of the model's own variables all the same, see
        docs/hierarchical.md. "model", also with ``preset="paper"``: as the model has them.
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
    Differs from the papers: one is of an optimiser, the other adapts for ever at constant rates, which samples another
    distribution; here rates fall and all is frozen when tuning ends. The search for the units is this package's;
    ``preset="paper"`` is without it, and frozen too.

    Statistics of every draw: ``accept``, ``accepted``, ``scaling`` (sigma), ``lp``, ``nonfinite``, ``move``.
    """

    name = "cma"
    variants: ClassVar[dict] = {"": CMA}

    def __init__(
        self,
        vars=None,
        *,
        tune: int | None = default(None),
        target_accept: float = default(2 / 11),
        initial_scale: np.ndarray | None = default(None),
        parametrization: str = default("auto"),
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


def unregister(step: type = KameleonStep) -> None:
    """Undo :func:`register`."""
    if step in STEP_METHODS:
        STEP_METHODS.remove(step)
