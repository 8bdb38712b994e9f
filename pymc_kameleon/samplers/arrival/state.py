"""What there is of one arrival (:mod:`pymc_kameleon.samplers.arrival.phase`), and heights by which it goes."""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.arrival.model import Model

HUGE = 1e50  # beyond it a log density counts by its logarithm, and no point by its distance


class Near(NamedTuple):
    """The near phase."""

    since: int  # evaluations at which it began
    until: int  # ... and ends at the latest
    centre: np.ndarray  # (d,): of the normal approximation that is being checked
    axes: np.ndarray  # (d, d): its axes, one sd long, are the columns
    signs: np.ndarray  # (d,): on which side of each it rises
    hits: int = 0  # predictions in a row that came true
    tried: int = 0  # predictions tested
    right: int = 0  # ... and those among them that came true
    candidate: int = -1  # row of a draw that can be handed over, or -1


class Record(NamedTuple):
    """Where a near phase ended on a slope without curvature, to come back to."""

    at: int  # evaluations
    log_density: float
    mass: float  # that plus the log of its widths
    current: int  # row of the present point
    handed: int  # row of the point with which the chain would go on
    factor: np.ndarray  # (d, d)


class State(NamedTuple):
    """Everything about one arrival."""

    evaluated: History  # rows of d + 1: a point and its log density
    budget: int  # evaluations at most
    start: np.ndarray | None  # (d,): the chain's over-dispersed start, to be evaluated first
    # (d, d): lower triangular. The trust region is the ellipsoid of ``radius`` times it.
    metric: np.ndarray
    radius: float
    origin: np.ndarray  # (d,): of the model's coordinates s, x = origin + basis s
    basis: np.ndarray  # (d, d)
    move: str  # what is proposed next: "start", "climb", "explore" or "check"
    model: Model | None = None
    current: int = 0  # row of the present point
    failed: bool = False  # whether the last climb gained less than a tenth of what was predicted
    # whether a near phase ended by rising: none begins before a climb has ended within the trust region, or failed
    climbing: bool = False
    waits: bool = True  # with a near phase while it rises
    # evaluations after which it ends as soon as it does not rise: most of tuning is to be the walk's
    long: float = math.inf
    within: tuple[np.ndarray, np.ndarray] | None = None  # (d,) each: a box at whose faces it ends
    fitted: int = 0  # evaluations at the last fit
    changed: int = 0  # ... at the last change of the metric
    next_choice: int = 0  # ... and when to choose the model's options again
    near: Near | None = None  # ``None`` while far
    record: Record | None = None
    done: bool = False
    arrived: bool = False
    handed: int = 0  # row of the point with which the chain is to go on
    own: int = 0  # first row of the chain's own: the model's initial point, which all chains have, does not count
    # (d, d): Cholesky factor of the covariance there, as far as it is known
    factor: np.ndarray | None = None

    @property
    def evaluations(self) -> int:
        """Points evaluated, the first one included."""
        return self.evaluated.size

    @property
    def positions(self) -> np.ndarray:
        """Every point evaluated, shape (n, d)."""
        return self.evaluated.buffer[: self.evaluated.size, :-1]

    @property
    def log_densities(self) -> np.ndarray:
        """Their log densities, ``-inf`` where not finite, shape (n,)."""
        return self.evaluated.buffer[: self.evaluated.size, -1]

    @property
    def position(self) -> np.ndarray:
        """Where the chain is to go on, shape (d,)."""
        return self.positions[self.handed]

    @property
    def log_density(self) -> float:
        """The log density there."""
        return float(self.log_densities[self.handed])


# Evaluations of a long climb, an unknown. Where a surrogate knows scales none goes on for longer (but of fewer than 8
# unknowns for those of 8): of a hierarchy no quadratic comes true, climbs took up to all of 1000 tuning draws of 10 to
# 17 unknowns, and one chain of four spoilt the run; 6 and 25 are no better.
LONG = 12


def default_budget(d: int) -> int:
    """Evaluations that are always enough where anything is: the metric, d (d + 1) / 2 numbers, may have to be learned
    more than once on the way.
    """
    return 60 * d + 300 + 2 * d * d


def little(d: int) -> float:
    """What a draw from a normal posterior lacks from its mode, and what is not worth a climb: nats."""
    return 0.5 * d + 2.0


def depth(d: int) -> float:
    """How far below the mode a draw from a posterior in ``d`` dimensions may plausibly lie."""
    return 0.5 * d + 3.0 * math.sqrt(0.5 * d) + 2.0


def height(log_density: float | np.ndarray) -> np.ndarray:
    """The log density, by its logarithm beyond ``HUGE``: squares of falls and of slopes are still numbers."""
    return np.clip(log_density, -HUGE, HUGE) * (1.0 + np.log(np.maximum(np.abs(log_density) / HUGE, 1.0)))
