"""What a sampler that learns the black boxes of a log density knows: its state, while tuning and after."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.kamiltonian.factors.surface import Surface
from pymc_kameleon.samplers.kamiltonian.learner import Judgement, Quality, Schedule
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.surrogates.factors.regression import Fit


class Climb(NamedTuple):
    """A trust-region climb on the surrogate, from where the chain starts to the typical set.

    Attributes
    ----------
    half_width : float
        Of the box in u in which the next point is looked for.
    target : ndarray of shape (d,) or None
        That point, in v; None once it has been evaluated.
    promised : float
        By how much the surrogate says that it is higher.
    satellites : int
        Points around the current one still to be evaluated.
    calm : int
        How many times in a row nothing more was to be gained, twice that in a wide box.
    rounds : int
    """

    half_width: float = 0.5
    target: np.ndarray | None = None
    promised: float = 0.0
    satellites: int = 0
    calm: int = 0
    rounds: int = 0


class Learning(NamedTuple):
    """Everything that is needed while tuning only.

    Attributes
    ----------
    inputs, outputs, log_densities : History
        Of every evaluation: (n, n_w), (n, n_o), and the log density of v.
    chain, chain_log_densities : History
        The chain's states since it arrived, in v, repeated where it stood.
    climb : Climb or None
        None once the chain has arrived.
    arrived : bool
        Whether it has by itself, rather than for want of budget.
    accepted, trials : ndarray of shape (arms,)
        Sums of the acceptance probabilities of each arm's proposals, and their number; old ones fade at each refit.
    correlation : float
        Slowest lag-1 autocorrelation of one inner transition.
    judgement : Judgement
        Of the present surrogate.
    moves : int
        Accepted so far.
    schedule : Schedule
        Of the refits.
    free : ndarray of shape (m, n_w) or None
        Inputs along a free run on the last surrogate.
    careful : bool
        Whether a free run has been on a peak that is not there: splines wherever they are about as good.
    """

    inputs: History
    outputs: History
    log_densities: History
    chain: History
    chain_log_densities: History
    climb: Climb | None
    arrived: bool
    accepted: np.ndarray
    trials: np.ndarray
    correlation: float
    judgement: Judgement
    schedule: Schedule
    moves: int = 0
    free: np.ndarray | None = None
    careful: bool = False

    @property
    def size(self) -> int:
        """Number of evaluations."""
        return self.log_densities.size

    @property
    def heights(self) -> np.ndarray:
        """Every log density, (n,)."""
        return self.log_densities.buffer[: self.size, 0]


class State(NamedTuple):
    """The adaptive state.

    Attributes
    ----------
    tune : int or None
        Number of tuning draws, if known.
    current : Current
        What is retained at the chain's point: u, the log density of v, and g.
    share : float
        t at the chain's point; 1 while tuning.
    fit, surface : Fit, Surface or None
        None until there are enough evaluations.
    log_walk : float
        Log scale of the random walk, in units of the metric.
    archive : ndarray of shape (n, d)
        Past states, in u.
    arms : ndarray of shape (arms,)
        Probabilities of the arms; they add up to 1.
    mixture : Mixture or None
        Set when tuning ends.
    quality : Quality
    learning : Learning or None
        None once tuning has ended.
    """

    tune: int | None
    current: Current
    share: float
    fit: Fit | None
    surface: Surface | None
    log_walk: float
    archive: np.ndarray
    arms: np.ndarray
    mixture: Mixture | None
    quality: Quality
    learning: Learning | None
