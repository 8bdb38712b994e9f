"""What there is of one arrival (:mod:`pymc_kameleon.samplers.arrival.phase`), and heights by which it goes."""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.arrival.model import Model

HUGE = 1e50  # beyond it a log density counts by its logarithm, and no point by its distance


class Near(NamedTuple):
    """The near phase.

    Attributes
    ----------
    since, until : int
        Evaluations at which it began, and ends at the latest.
    centre, axes : ndarray of shape (d,), (d, d)
        Of the normal approximation that is being checked; the columns of ``axes`` are its axes, one sd long.
    signs : ndarray of shape (d,)
        On which side of each it rises.
    hits : int
        Predictions in a row that came true.
    tried, right : int
        Predictions tested, and those among them that came true.
    candidate : int
        Row of a draw that can be handed over, or -1.
    """

    since: int
    until: int
    centre: np.ndarray
    axes: np.ndarray
    signs: np.ndarray
    hits: int = 0
    tried: int = 0
    right: int = 0
    candidate: int = -1


class Record(NamedTuple):
    """Where a near phase ended on a slope without curvature, to come back to.

    Attributes
    ----------
    at : int
        Evaluations.
    log_density, mass : float
        Its log density, and that plus the log of its widths.
    current, handed : int
        Rows.
    factor : ndarray of shape (d, d)
    """

    at: int
    log_density: float
    mass: float
    current: int
    handed: int
    factor: np.ndarray


class State(NamedTuple):
    """Everything about one arrival.

    Attributes
    ----------
    evaluated : History
        Rows of d + 1: a point and its log density.
    budget : int
        Evaluations at most.
    start : ndarray of shape (d,) or None
        The chain's over-dispersed start, to be evaluated first.
    current : int
        Row of the present point.
    metric : ndarray of shape (d, d)
        Lower triangular. The trust region is the ellipsoid of ``radius`` times it.
    radius : float
    model : Model or None
    origin, basis : ndarray of shape (d,), (d, d)
        The model's coordinates: x = origin + basis s.
    move : str
        What is proposed next: "start", "climb", "explore" or "check".
    failed : bool
        Whether the last climb gained less than a tenth of what was predicted.
    climbing : bool
        Whether a near phase ended by rising: none begins before a climb has ended within the trust region, or failed.
    fitted, changed, next_choice : int
        Evaluations at the last fit, at the last change of the metric, and when to choose the model's options again.
    near : Near or None
        ``None`` while far.
    record : Record or None
    done, arrived : bool
    handed : int
        Row of the point with which the chain is to go on.
    own : int
        First row of the chain's own: the model's initial point, which all chains have, does not count.
    factor : ndarray of shape (d, d) or None
        Cholesky factor of the covariance there, as far as it is known.
    """

    evaluated: History
    budget: int
    start: np.ndarray | None
    current: int
    metric: np.ndarray
    radius: float
    model: Model | None
    origin: np.ndarray
    basis: np.ndarray
    move: str
    failed: bool = False
    climbing: bool = False
    fitted: int = 0
    changed: int = 0
    next_choice: int = 0
    near: Near | None = None
    record: Record | None = None
    done: bool = False
    arrived: bool = False
    handed: int = 0
    own: int = 0
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
    return np.clip(log_density, -HUGE, HUGE) * (
        1.0 + np.log(np.maximum(np.abs(log_density) / HUGE, 1.0))
    )
