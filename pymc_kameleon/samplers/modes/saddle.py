"""Whether the log density rises on the plane between two suspected modes as high as in them.

The straight line between the two ends of a banana is as deep below them as that between two modes. But a mode that is
bent crosses the plane between its ends somewhere, and two modes do not: so the highest point of that plane is looked
for, by an arrival (:mod:`pymc_kameleon.samplers.arrival.phase`) in one dimension less.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.arrival import beside as arrival_beside
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.modes.detection import Cut


class Search(NamedTuple):
    """A climb in the plane."""

    origin: np.ndarray  # (d,): the plane's points are origin + basis s
    basis: np.ndarray  # (d, d - 1)
    climb: arrival.State  # in s
    enough: float  # A log density that says that there is one mode

    @property
    def highest(self) -> float:
        """Log density that has been found in the plane."""
        return float(self.climb.log_densities.max())

    @property
    def connected(self) -> bool:
        """Whether one mode crosses the plane."""
        return self.highest >= self.enough

    @property
    def done(self) -> bool:
        """Whether it is known: a climb that has come near the plane's own top, and found nothing higher around."""
        near, d = self.climb.near, len(self.climb.origin)
        explored = near is not None and self.climb.evaluations - near.since > d
        return self.connected or self.climb.done or explored


def budget(d: int) -> int:
    """Evaluations at most: a slope and a curvature for each direction, twice, and some steps."""
    return 6 * d + 20


def begin(cut: Cut, origin: np.ndarray, log_density: float, enough: float) -> Search | None:
    """Search the plane through ``origin`` (d,), whose log density is known; None in one dimension, which has none."""
    d = len(origin)
    if d == 1:
        return None
    white = cut.factor.T @ cut.normal
    basis = cut.factor @ np.linalg.qr(np.column_stack([white, np.eye(d)]))[0][:, 1:d]
    climb = arrival.init(np.zeros(d - 1), log_density, budget=budget(d))
    return Search(origin, basis, climb, enough)


def propose(rng: np.random.Generator, search: Search, width: int) -> list[np.ndarray]:
    """At most ``width`` points (d - 1,) of the plane; see :func:`positions`."""
    point = arrival.propose(rng, search.climb)
    others = min(width - 1, search.climb.budget - search.climb.evaluations - 1)
    return [point, *arrival_beside.propose(rng, search.climb, point, others)]


def positions(search: Search, points: list[np.ndarray]) -> list[np.ndarray]:
    """Where points of the plane are, (d,)."""
    return [search.origin + search.basis @ s for s in points]


def tell(rng: np.random.Generator, search: Search, points, values) -> Search:
    """The search after the log densities of what was proposed."""
    beside = list(zip(points[1:], values[1:], strict=True))
    return search._replace(climb=arrival.tell(rng, search.climb, points[0], values[0], beside))
