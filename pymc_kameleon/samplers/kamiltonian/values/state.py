"""What a surrogate sampler that learns from values knows: its state, while tuning and after."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import Judgement, Quality, Schedule
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
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


class Companions(NamedTuple):
    """Where the tempered chains beside the chain are.

    Attributes
    ----------
    positions, log_densities : ndarray of shape (c, d), (c,)
    noise : tuple of length c
        What belongs to their log densities, see :class:`pymc_kameleon.samplers.seam.Outcome`.
    """

    positions: np.ndarray
    log_densities: np.ndarray
    noise: tuple

    def placed(self, c: int, position, log_density: float, noise) -> "Companions":
        """With the ``c``-th at ``position`` (d,)."""
        positions, log_densities = self.positions.copy(), self.log_densities.copy()
        positions[c], log_densities[c] = position, log_density
        return Companions(positions, log_densities, (*self.noise[:c], noise, *self.noise[c + 1 :]))


def gathered(x: np.ndarray, log_density: float, count: int) -> Companions:
    """``count`` companions at ``x`` (d,)."""
    return Companions(np.tile(x, (count, 1)), np.full(count, log_density), (None,) * count)


class Noise(NamedTuple):
    """What a noisy log density does to the chain.

    Attributes
    ----------
    sd : float
        Of the noise, as the step has measured it; 0 without.
    rejections : int
        In a row.
    """

    sd: float = 0.0
    rejections: int = 0


class Learning(NamedTuple):
    """Everything that is needed while tuning only.

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

    @property
    def size(self) -> int:
        """Number of evaluations."""
        return self.evaluated.size


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
