"""What a surrogate sampler that learns from values knows: its state, while tuning and after."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.learner import Judgement, Quality, Schedule
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.samplers.kamiltonian.values.worth import CHEAP, Choice, Worth
from pymc_kameleon.surrogates.transitions import DualAveraging, Dynamics
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from pymc_kameleon.surrogates.values.library import Family
from pymc_kameleon.surrogates.values.regression import Fit

# Symmetric: it has no autoregressive moves. Its state differs from chain to chain.
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
    scales: tuple[KnownScale, ...] = ()  # what of the log density is not learned


class Companions(NamedTuple):
    """Where the tempered chains beside the chain are."""

    positions: np.ndarray  # (c, d)
    log_densities: np.ndarray  # (c,)
    # what belongs to their log densities, see :class:`pymc_kameleon.samplers.seam.Outcome`
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
    """What a noisy log density does to the chain."""

    sd: float = 0.0  # of the noise, as the step has measured it; 0 without
    rejections: int = 0  # in a row


class Learning(NamedTuple):
    """Everything that is needed while tuning only."""

    evaluated: Evaluations  # every point evaluated, the start included, and its log density
    chain_log_densities: History  # beside the chain's states, which the random walk keeps
    companions: Companions
    noise: Noise
    judgement: Judgement  # of the present surrogate
    worth: Worth  # of the kernels
    averaging: DualAveraging | None  # of the inner step size; None without a surrogate
    schedule: Schedule


class State(NamedTuple):
    """The adaptive state."""

    options: Options
    walk: adaptive_metropolis.State
    current: Current  # what is retained at the chain's point
    share: float  # t at the chain's point; 1 while tuning
    fit: Fit | None  # None until there are enough evaluations for a quadratic
    dynamics: Dynamics | None
    arms: np.ndarray  # (1 + arms,): probabilities of the random walk and of the arms
    mixture: Mixture | None  # set when tuning ends
    # of the frozen surrogate; while tuning and without one: that nothing is known
    quality: Quality
    learning: Learning | None  # None once tuning has ended
