"""What a sampler that learns the black boxes of a log density knows: its state, while tuning and after."""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.kamiltonian.factors.surface import Surface
from pymc_kameleon.samplers.kamiltonian.learner import Judgement, Quality, Schedule
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.surrogates.factors.regression import Fit


class Climb(NamedTuple):
    """A trust-region climb on the surrogate, from where the chain starts to the typical set."""

    half_width: float = 0.5  # of the box in u in which the next point is looked for
    target: np.ndarray | None = None  # (d,): that point, in v; None once it has been evaluated
    promised: float = 0.0  # by how much the surrogate says that it is higher
    satellites: int = 0  # points around the current one still to be evaluated
    # how many times in a row nothing more was to be gained, twice that in a wide box
    calm: int = 0
    rounds: int = 0
    # beside others: its number among them, points around in each round, evaluations at which it is over
    number: int = 0
    around: int = 3
    until: float = math.inf


class Learning(NamedTuple):
    """Everything that is needed while tuning only."""

    evaluated: Evaluations  # every point v, what the black boxes returned there, and the log density
    inputs: History  # what they were given, (n, n_w)
    chain: History  # the chain's states since it arrived, in v, repeated where it stood
    chain_log_densities: History
    climb: Climb | None  # None once the chain has arrived
    arrived: bool  # whether it has by itself, rather than for want of budget
    # (arms,): sums of the acceptance probabilities of each arm's proposals, and their number; old
    # ones fade at each refit
    accepted: np.ndarray
    trials: np.ndarray  # (arms,)
    correlation: float  # slowest lag-1 autocorrelation of one inner transition
    judgement: Judgement  # of the present surrogate
    schedule: Schedule
    moves: int = 0  # accepted so far
    free: np.ndarray | None = None  # (m, n_w): inputs along a free run on the last surrogate
    # whether a free run has been on a peak that is not there: splines wherever they are about as
    # good
    careful: bool = False
    # places in v of modes that climbs have found: yet to be evaluated, a climb's last first; and evaluated, with as
    # many of the mode that the chain was in at the first, so that jumps know the way there and back
    wanted: tuple[np.ndarray, ...] = ()
    elsewhere: tuple[np.ndarray, ...] = ()


class State(NamedTuple):
    """The adaptive state."""

    tune: int | None  # number of tuning draws, if known
    current: Current  # what is retained at the chain's point: u, the log density of v, and g
    share: float  # t at the chain's point; 1 while tuning
    fit: Fit | None  # None until there are enough evaluations
    surface: Surface | None
    log_walk: float  # log scale of the random walk, in units of the metric
    archive: np.ndarray  # (n, d): past states, in u
    middles: np.ndarray  # (n, d): of the neighbours of each, by whose differences free chains change modes
    arms: np.ndarray  # (arms,): probabilities of the arms; they add up to 1
    mixture: Mixture | None  # set when tuning ends
    quality: Quality
    learning: Learning | None  # None once tuning has ended
