"""What a surrogate sampler learns from its tuning draws, in small records: what changes together stands together.

None of them knows the sampler's state or each other; :mod:`pymc_kameleon.samplers.kamiltonian.values.tuning` hands each
what it learns from.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.kamiltonian import trust

ENOUGH = 10  # residuals to judge by
RECENT = 100  # residuals whose median is the typical one
SURPRISE = 2.0
ARRIVED_QUANTILE = 0.05


def since_arrival(states: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chain's states (m, d) since it was first as high as the lowest twentieth of its last sixth, and how high.

    Parameters
    ----------
    states, heights : ndarray of shape (n, d), (n,)
        All of them, and their log densities; a third is kept at least.
    """
    n = len(heights)
    low = np.quantile(heights[-max(n // 6, 1) :], ARRIVED_QUANTILE)
    first = min(int(np.argmax(heights >= low)), 2 * n // 3)
    return states[first:], heights[first:]


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


class Quality(NamedTuple):
    """How good the surrogate is, out of sample.

    Attributes
    ----------
    residual_sd : float
        Robust sd of log p - f under the chain, since the last refit; the fit's held-out one where there are
        too few draws to tell.
    uncovered : float
        Share of the chain's states at which f is more than 2.5 too low.
    refits, evaluations : int
        While tuning.
    """

    residual_sd: float
    uncovered: float
    refits: int
    evaluations: int


class Judgement(NamedTuple):
    """What has been seen of the surrogate since the last refit.

    Attributes
    ----------
    residuals : History
        log p - f along the surrogate's moves: out of sample.
    typical : float or None
        Their recent median, None until there are enough.
    surprises : int
        Plausible points that the surrogate had wrong.
    uncovered, judged : int
        Draws that stood where f is more than 2.5 too low, and draws judged.
    earlier : Quality or None
        Measured before the last refit: what is known until the new surrogate has been judged.
    """

    residuals: History
    typical: float | None = None
    surprises: int = 0
    uncovered: int = 0
    judged: int = 0
    earlier: Quality | None = None

    def standing(self, residual: float) -> "Judgement":
        """After a draw at whose end log p - f is ``residual``: whether f covers that point."""
        if self.typical is None:
            return self
        too_low = trust.is_too_low(residual, self.typical)
        return self._replace(judged=self.judged + 1, uncovered=self.uncovered + int(too_low))

    def moved(self, residual: float) -> "Judgement":
        """After a move of the surrogate's, at whose end log p - f is ``residual``."""
        residuals = history.append(self.residuals, np.array([residual]))
        typical, size = self.typical, residuals.size
        if size >= ENOUGH and size % 10 == 0:
            typical = float(np.median(residuals.buffer[max(0, size - RECENT) : size]))
        return self._replace(residuals=residuals, typical=typical)

    def proposed(self, residual: float) -> "Judgement":
        """After a plausible proposal at which log p - f is ``residual``: whether it is a surprise."""
        if self.typical is None:
            return self
        surprise = abs(residual - self.typical) > SURPRISE
        return self._replace(surprises=self.surprises + int(surprise))

    @property
    def median(self) -> float:
        """Of all residuals; 0 where there are too few."""
        size = self.residuals.size
        return float(np.median(self.residuals.buffer[:size])) if size > 10 else 0.0

    def measured(self, held_out: float) -> tuple[float, float]:
        """Residual sd, and share of the states that f does not cover.

        Where there is too little to judge by, what the fit's held-out residual sd says, and of the coverage
        what was known of the surrogate before. Without that either, nothing is taken for granted.
        """
        size, residual_sd, uncovered = self.residuals.size, held_out, 1.0
        if self.earlier is not None:
            uncovered = self.earlier.uncovered
        if size >= ENOUGH:
            residual_sd = trust.spread(self.residuals.buffer[:size])
        if self.judged > ENOUGH:
            uncovered = self.uncovered / self.judged
        return residual_sd, uncovered


def unjudged(earlier: Quality | None = None) -> Judgement:
    """Of a new surrogate."""
    return Judgement(history.empty(1), earlier=earlier)


class Schedule(NamedTuple):
    """When a new surrogate is fitted.

    Attributes
    ----------
    draws : int
        Tuning draws seen.
    refits, last_refit, next_refit : int
        How many, and at which numbers of evaluations.
    final : bool
        Whether the last refit has been.
    seed : int
        Of the refit at the end of tuning, if there is one; drawn with the last refit.
    """

    next_refit: int
    draws: int = 0
    refits: int = 0
    last_refit: int = 0
    final: bool = False
    seed: int = 0
