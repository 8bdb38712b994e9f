"""Angles: coordinates on the whole line, along which a log density repeats itself every 2 pi.

There it cannot be normalised, chains that begin apart come to copies of one mode, and what is learned from all of them
fits none. From the end of a climb on, the target is one period around where that ended: every angle has one point in
it, so that the angle's distribution is what it was. Where nothing climbs (under noise, where black boxes are learned
one by one) it stays the whole line: the ends of a period around a start may cut the mode in two.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations

PERIOD = 2.0 * math.pi


class Window(NamedTuple):
    """One period of every angle; outside of it there is no density."""

    where: np.ndarray  # (k,): which coordinates are angles
    centre: np.ndarray  # (k,)

    def contains(self, x: np.ndarray) -> np.ndarray:
        """Whether points (..., d) are in it. Exactness hangs on it being one period, and fixed when tuning ends."""
        return (np.abs(x[..., self.where] - self.centre) <= 0.5 * PERIOD).all(axis=-1)

    def wrapped(self, x: np.ndarray) -> np.ndarray:
        """Points (..., d) with their angles in it; those that are in it are not touched."""
        x = x.copy()
        turns = np.rint((x[..., self.where] - self.centre) / PERIOD)
        x[..., self.where] -= PERIOD * turns
        return x

    def evaluated(self, known: Evaluations) -> Evaluations:
        """A record of the same log densities at points that are in it; what had none because it was outside is not."""
        kept = self.contains(known.positions) | np.isfinite(known.log_densities)
        positions, *others = (column[: known.size][kept] for column in known.columns)
        return Evaluations((self.wrapped(positions), *others), int(kept.sum()))


def around(where: np.ndarray, x: np.ndarray) -> Window | None:
    """The period around ``x`` (d,) of the angles ``where`` (k,); None where there are none."""
    return Window(where, x[where].copy()) if len(where) else None
