"""What a surrogate sampler that learns from values knows: its state, while tuning and after."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.samplers.kamiltonian.values.learning import (
    Companions,
    Judgement,
    Noise,
    Quality,
    Schedule,
)
from pymc_kameleon.samplers.kamiltonian.values.worth import CHEAP, Choice, Worth
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import DualAveraging, Dynamics
from pymc_kameleon.surrogates.values.library import Family
from pymc_kameleon.surrogates.values.regression import Fit

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
    before: int = 0  # points, enough for a surrogate, that it begins with; 0 for a cold start
    elsewhere: int = 0  # points that it begins with, an arrival's among them


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


class Learning(NamedTuple):
    """Everything that is needed while tuning only; how each part learns: :mod:`.learning` beside this file.

    Attributes
    ----------
    evaluated : Evaluations
        Every point evaluated, the start included, and its log density.
    chain_log_densities : History
        Beside the chain's states, which the random walk keeps.
    companions : Companions
    noise : Noise
    judgement : Judgement
        Of the present surrogate.
    worth : Worth
        Of the kernels.
    averaging : DualAveraging or None
        Of the inner step size; None without a surrogate.
    schedule : Schedule
        Of the refits.
    """

    evaluated: Evaluations
    chain_log_densities: History
    companions: Companions
    noise: Noise
    judgement: Judgement
    worth: Worth
    averaging: DualAveraging | None
    schedule: Schedule


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


def share(mixture: Mixture, dynamics: Dynamics, current: Current) -> float:
    """The share of the surrogate's kernel at a point, which D holds or not."""
    measured = current._replace(z=surrogate_dynamics.in_region(dynamics, current.z))
    return trust.share(mixture, dynamics.radius, dynamics.ceiling, measured)


def locate(dynamics: Dynamics | None, x: np.ndarray, log_density: float) -> Current:
    """What is retained at ``x``."""
    if dynamics is None:
        return Current(np.zeros(0), log_density, 0.0)
    z = surrogate_dynamics.to_z(dynamics, x)
    return Current(z, log_density, surrogate_dynamics.value(dynamics, z))
