"""Angles whose draws lie at both ends of (-pi, pi]: judged around their direction, across the ends.

As numbers such draws are two far clusters: their mean is of neither, and their tails end where they are densest.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

BESIDE = 0.2  # radians at either end: an angle that lies across them has draws there, and as many as this of all
LEAST = 0.01
NEAR_END = 0.01  # radians: how near to either end the outermost draw is, of a parameter that has its ends there


def direction(x: np.ndarray) -> float:
    """Where an angle's draws point: the angle of the mean of their unit vectors."""
    return math.atan2(np.sin(x).mean(), np.cos(x).mean())


def lies_across(x: np.ndarray) -> bool:
    """Whether draws of a parameter are those of an angle that lies across the ends of (-pi, pi]: none beyond them."""
    if np.abs(x).max() > 1.000001 * math.pi or (x == np.round(x)).all():  # of a float32, too; and no counts
        return False
    if min(math.pi + x.min(), math.pi - x.max()) > NEAR_END:
        return False
    beside = (np.mean(x < BESIDE - math.pi), np.mean(x > math.pi - BESIDE))
    return min(beside) > 0.0 and sum(beside) >= LEAST


def unrolled(x: np.ndarray) -> np.ndarray:
    """The same angles, within pi of their direction: numbers whose mean and tails say something."""
    centre = direction(x)
    return centre + (x - centre + math.pi) % (2.0 * math.pi) - math.pi


def listed(each: Sequence[str]) -> str:
    """The first of them, in a sentence."""
    return ", ".join(each[:5]) + (", ..." if len(each) > 5 else "")


def tell(angles: Iterable[tuple[str, np.ndarray]]) -> str:
    """Which parameters are judged so, and where they point."""
    found = listed([f"{name} (direction {direction(x):.3g})" for name, x in angles])
    if not found:
        return ""
    return (
        f"Across -pi and pi, judged as angles: {found}. Their arithmetic means say nothing. Where the prior is "
        "pm.Uniform, its ends part what is one: pm.VonMises(name, 0.0, 1e-3) does not."
    )
