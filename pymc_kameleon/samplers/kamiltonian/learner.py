"""What every learner of a surrogate keeps while a chain tunes: how the surrogate was judged, when it is fitted anew.

What is specific to one of them stands with it: what a surrogate is fitted to, its region, its arms.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.kamiltonian import trust

ENOUGH = 10  # residuals to judge by


class Quality(NamedTuple):
    """How good a surrogate is, out of sample."""

    # robust sd of log p - f under the chain, since the last refit; what the fit says of itself
    # where there are too few draws to tell
    residual_sd: float
    uncovered: float  # share of the chain's states at which f is more than 2.5 too low
    refits: int = 0  # while tuning
    evaluations: int = 0
    typical: float = 0.0  # median of log p - f
    # whether the chain is where posterior draws are, as far as the sampler looks itself
    arrived: bool = True


UNKNOWN = Quality(math.inf, 1.0)


class Judgement(NamedTuple):
    """What has been seen of the surrogate since the last refit."""

    residuals: History  # log p - f along the surrogate's moves: out of sample
    typical: float | None = None  # their recent median, None until there are enough
    surprises: int = 0  # plausible points that the surrogate had wrong
    uncovered: int = 0  # draws that stood where f is more than 2.5 too low, and draws judged
    judged: int = 0
    # measured before the last refit: what is known until the new surrogate has been judged
    earlier: Quality = UNKNOWN

    def standing(self, residual: float) -> "Judgement":
        """After a draw at whose end log p - f is ``residual``: whether f covers that point."""
        if self.typical is None:
            return self
        too_low = trust.is_too_low(residual, self.typical)
        return self._replace(judged=self.judged + 1, uncovered=self.uncovered + int(too_low))

    def moved(self, residual: float, every: int = 10) -> "Judgement":
        """After a move of the surrogate's, at whose end log p - f is ``residual``."""
        residuals = history.append(self.residuals, np.array([residual]))
        typical, size = self.typical, residuals.size
        if size >= ENOUGH and size % every == 0:
            typical = float(np.median(residuals.buffer[max(0, size - 100) : size]))
        return self._replace(residuals=residuals, typical=typical)

    def proposed(self, residual: float, plausible: bool, too_high: float = math.inf) -> "Judgement":
        """After a proposal at which log p - f is ``residual``: whether it is a surprise.

        Where f is more than ``too_high`` too high it is one however implausible.
        """
        if self.typical is None:
            return self
        wrong = residual - self.typical
        surprise = wrong < -too_high or (plausible and abs(wrong) > 2.0)
        return self._replace(surprises=self.surprises + int(surprise))


def unjudged(earlier: Quality = UNKNOWN) -> Judgement:
    """Of a new surrogate."""
    return Judgement(history.empty(1), earlier=earlier)


def measure(learning: Any, held_out: float) -> Quality:
    """How good the surrogate has been since the last refit.

    Where there is too little to judge by, ``held_out`` is what its fit says of the residual sd, and the coverage is
    what was known of the surrogate before.
    """
    judgement: Judgement = learning.judgement
    residuals = judgement.residuals.buffer[: judgement.residuals.size]
    residual_sd = trust.spread(residuals) if len(residuals) >= ENOUGH else held_out
    uncovered = judgement.uncovered / judgement.judged if judgement.judged > ENOUGH else judgement.earlier.uncovered
    typical = float(np.median(residuals)) if len(residuals) > ENOUGH else 0.0
    return Quality(residual_sd, uncovered, learning.schedule.refits, learning.evaluated.size, typical)


class Schedule(NamedTuple):
    """When a new surrogate is fitted."""

    next_refit: int  # at which number of evaluations
    draws: int = 0  # tuning draws seen
    refits: int = 0  # how many there were, and at how many evaluations the last was
    last_refit: int = 0
    final: bool = False  # whether the last refit has been
    seed: int = 0  # of the refit at the end of tuning, if there is one; drawn with the last refit

    def is_last(self, tune: int | None) -> bool:
        """Whether so much of ``tune`` draws is over that one more fit is the last; the rest judges it out of sample."""
        return tune is not None and self.draws >= trust.LAST_REFIT * tune

    def fitted(self, rng: np.random.Generator) -> "Schedule":
        """After a refit that came about."""
        return self._replace(refits=self.refits + 1, seed=int(rng.integers(2**63)))


def price(gradients: Any, each: float) -> Any:
    """What ``gradients`` of ``each`` multiply-adds cost, in evaluations of the log density: fixed, as no clock is."""
    return gradients * 3e-7 * each


def since_arrival(states: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chain's states (m, d) since it was first as high as the lowest twentieth of its last sixth, and how high.

    Parameters
    ----------
    states, heights : ndarray of shape (n, d), (n,)
        All of them, and their log densities; a third is kept at least.
    """
    n = len(heights)
    low = np.quantile(heights[-max(n // 6, 1) :], 0.05)
    first = min(int(np.argmax(heights >= low)), 2 * n // 3)
    return states[first:], heights[first:]
