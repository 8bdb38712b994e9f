"""What a surrogate sampler that learns from values knows: its state, while tuning and after."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.samplers.kamiltonian.values.worth import CHEAP, Choice, Worth
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import DualAveraging, Dynamics
from pymc_kameleon.surrogates.values.regression import Family, Fit

# Symmetric, on which exactness hangs: it has no autoregressive moves. Its state differs from chain to chain.
WALK = AdaptiveMetropolis(learn_from_values=False)


class Options(NamedTuple):
    """What is planned when a chain begins, from the sampler's options, the dimension and what is known."""

    tune: int | None
    library: tuple[Family, ...]
    first_fit: int
    growth: float
    temperatures: tuple[float, ...]
    companion_share: float
    swap_share: float
    choice: Choice = CHEAP


class Carry(NamedTuple):
    """What ``propose`` computed at the proposed point.

    Attributes
    ----------
    kernel : int
        0 for the random walk, 1, 2, ... for the arms.
    z, value : ndarray of shape (d,), float
        The proposed point in the coordinates of the dynamics, and f there; empty and 0 without a
        surrogate.
    evaluated : bool
        Whether the log density is evaluated for this draw.
    companion : int
        Of which companion chain this is a proposal or with which it is a swap; -1 for none.
    companion_log_ratio : float
        The part of the companion's Metropolis-Hastings ratio that is known before the evaluation.
    origin, origin_log_density : ndarray of shape (d,), float
        Where the chain was when it proposed.
    gradients, accept_prob, energy_error, diverging :
        See :class:`pymc_kameleon.surrogates.transitions.Trajectory`.
    """

    kernel: int
    z: np.ndarray
    value: float
    origin: np.ndarray
    origin_log_density: float
    evaluated: bool = True
    companion: int = -1
    companion_log_ratio: float = 0.0
    gradients: int = 0
    accept_prob: float = float("nan")
    energy_error: float = 0.0
    diverging: bool = False


class Quality(NamedTuple):
    """How good the surrogate is, out of sample.

    Attributes
    ----------
    residual_sd : float
        Robust sd of log p - f under the chain, since the last refit; the fit's held-out one where there are
        too few draws to tell.
    uncovered : float
        Share of the chain's states at which f is more than 2.5 too low.
    refits, evaluations : int
        While tuning.
    """

    residual_sd: float
    uncovered: float
    refits: int
    evaluations: int


class Learning(NamedTuple):
    """Everything that is needed while tuning only.

    Attributes
    ----------
    positions, log_densities : History
        Every point evaluated, the start included, and its log density.
    chain_log_densities : History
        Beside the chain's states, which the random walk keeps.
    companions, companion_log_densities : ndarray of shape (c, d), (c,)
        Where the companion chains are.
    companion_noise : tuple of length c
        What belongs to their log densities, see :class:`pymc_kameleon.samplers.seam.Outcome`.
    draws, rejections : int
        Draws seen; rejections in a row.
    noise_sd : float
        Of the noise in the log density, as the step has measured it.
    refits, last_refit, next_refit : int
        How many, and at which numbers of evaluations.
    final : bool
        Whether the last refit has been.
    surprises : int
        Plausible points since the last refit that the surrogate had wrong.
    residuals : History
        log p - f along the surrogate's moves since the last refit: out of sample.
    typical : float or None
        Their recent median, None until there are enough.
    earlier : Quality or None
        Measured before the last refit: what is known until the new surrogate has been judged.
    uncovered, judged : int
        Draws since the last refit that stood where f is more than 2.5 too low, and draws judged.
    averaging : DualAveraging or None
    worth : Worth
        Of the kernels.
    seed : int
        Of the refit at the end of tuning, if there is one; drawn with the last refit.
    """

    positions: History
    log_densities: History
    chain_log_densities: History
    companions: np.ndarray
    companion_log_densities: np.ndarray
    companion_noise: tuple
    draws: int
    rejections: int
    noise_sd: float
    refits: int
    last_refit: int
    next_refit: int
    final: bool
    surprises: int
    residuals: History
    typical: float | None
    earlier: Quality | None
    uncovered: int
    judged: int
    averaging: DualAveraging | None
    worth: Worth
    seed: int


class State(NamedTuple):
    """The adaptive state.

    Attributes
    ----------
    walk : adaptive_metropolis.State
    current : Current
        What is retained at the chain's point.
    share : float
        t at the chain's point; 1 while tuning.
    fit, dynamics : Fit, Dynamics or None
        None until there are enough evaluations for a quadratic.
    arms : ndarray of shape (1 + arms,)
        Probabilities of the random walk and of the arms.
    mixture : Mixture or None
        Set when tuning ends.
    quality : Quality
        Of the frozen surrogate; while tuning and without one: that nothing is known.
    learning : Learning or None
        None once tuning has ended.
    """

    options: Options
    walk: adaptive_metropolis.State
    current: Current
    share: float
    fit: Fit | None
    dynamics: Dynamics | None
    arms: np.ndarray
    mixture: Mixture | None
    quality: Quality
    learning: Learning | None


def locate(dynamics: Dynamics | None, x: np.ndarray, log_density: float) -> Current:
    """What is retained at ``x``."""
    if dynamics is None:
        return Current(np.zeros(0), log_density, 0.0)
    z = surrogate_dynamics.to_z(dynamics, x)
    return Current(z, log_density, surrogate_dynamics.value(dynamics, z))
