"""How noisy a log density is, measured while tuning, and what follows from it.

A probe estimates the log density at the chain's point again and takes nothing over. The value that the chain retains
cannot be compared with it: it was accepted, and overestimates are (at stationarity, of Gaussian noise with variance
s^2, by s^2 more than fresh ones). So probes come in pairs of successive draws at one point: both values are fresh, none
was selected, and half their squared difference is unbiased for s^2. Which draws are probes depends on their number
alone. What counts is the noise where the posterior is, and a chain may tune for long before it is there: the last third
of the pairs is remembered.

With s known, a step of length zero is accepted with probability 2 Phi(-s / sqrt 2) (Doucet et al., 2015, eq. 3.2), the
most that any step can reach. Scales are tuned to what the noise leaves attainable of their target, see
``seam.attainable``; by the target itself they would shrink to nothing. While an overestimate
holds the chain its rejections say nothing about a scale: how likely it is to leave a point at all, probes tell too
(``patience``).

What an overestimate teaches is nothing, and where the noise grows away from the truth, as that of simulations does, a
chain that tunes can spend all of its tuning on one. So while tuning, and only then, an estimate that has held the chain
for ``HELD`` draws, or for a fiftieth of the tuning draws so far, is made anew and taken over. After tuning that
would be what biases PyMC's own steps.

References
----------
A. Doucet, M. K. Pitt, G. Deligiannidis, R. Kohn (2015). Efficient implementation of Markov chain Monte Carlo when using
an unbiased likelihood estimator. Biometrika 102.
C. Sherlock, A. H. Thiery, G. O. Roberts, J. S. Rosenthal (2015). On the efficiency of pseudo-marginal random walk
Metropolis algorithms. Ann. Statist. 43.
"""

import math
from typing import Any, NamedTuple

EVERY = 20  # tuning draws; the last two of them are probes
EVERY_TUNED = 10  # the same, where the estimator's work is tuned by what they find
MEASURED = 10  # pairs, or the noise is not known
MEMORY = 50  # pairs, at most
HELD = 10  # tuning draws without a move, after which the estimate that holds the chain is made anew
FRESH = 2.5  # patience with a fresh estimate, at most
LARGEST = 50.0  # that one pair may contribute: where an estimate is zero the difference is infinite
# Doucet et al. (2015), section 3.4: for slow and for fast mixing chains, roughly
BEST_SD = (1.2, 1.5)
TOO_MUCH = 2.0  # at most 16 % of any moves are accepted


class NoiseProbe(NamedTuple):
    """What is known about the noise."""

    draws: int = 0  # tuning draws so far
    pairs: int = 0  # ... and pairs of probes among them
    squares: tuple[float, ...] = ()  # half the squared differences of the last pairs
    # (value, its noise as an ``Outcome`` tells it) of a pair that is half done
    first: tuple[float, Any] | None = None
    met: int = 0  # probes since the chain last moved
    chance: float = 0.0  # sum of the probabilities with which it would have moved to them
    still: int = 0  # tuning draws since it last moved
    # whether what the chain retains is an estimate made anew, and so was not selected
    fresh: bool = False

    @property
    def variance(self) -> float:
        """Of the noise, at the last pairs' points; 0 before the first."""
        return sum(self.squares) / max(1, len(self.squares))


def count(probe: NoiseProbe, every: int = EVERY) -> tuple[NoiseProbe, bool]:
    """Count a tuning draw; whether it is to be a probe, as the last two of ``every`` are."""
    draws = probe.draws + 1
    return probe._replace(draws=draws, still=probe.still + 1), draws % every in (every - 1, 0)


def record(probe: NoiseProbe, value: float, noise: Any) -> NoiseProbe:
    """Take the ``value`` that a probe found."""
    if probe.first is None:
        return probe._replace(first=(value, noise))
    square = half_square(probe, value)
    if math.isnan(square):
        return probe._replace(first=None)
    pairs = probe.pairs + 1
    # a third of the pairs is remembered: the first are of where the chain began
    late = min(max(pairs // 3, MEASURED), MEMORY)
    squares = (*probe.squares, square)[-late:]
    return probe._replace(pairs=pairs, squares=squares, first=None)


def half_square(probe: NoiseProbe, value: float) -> float:
    """Half the squared difference that the pair which ``value`` completes is; :data:`LARGEST` at most.

    NaN where one of the two is: it failed, which tells nothing of the noise.
    """
    if math.isnan(value) or math.isnan(probe.first[0]):  # type: ignore[index]
        return math.nan
    difference = value - probe.first[0]  # type: ignore[index]
    square = 0.5 * difference**2 if math.isfinite(difference) else LARGEST
    return min(square, LARGEST)


def rescale(probe: NoiseProbe, factor: float) -> NoiseProbe:
    """The estimates to come have ``factor`` times the work: their variance falls as 1 / work."""
    return probe._replace(squares=tuple(square / factor for square in probe.squares))


def meet(probe: NoiseProbe, accept_prob: float) -> NoiseProbe:
    """Take the probability with which the chain would have moved to a probe's value."""
    return probe._replace(met=probe.met + 1, chance=probe.chance + accept_prob)


def is_held(probe: NoiseProbe) -> bool:
    """Whether an estimate seems to hold a chain that tunes."""
    return probe.still > max(HELD, 0.02 * probe.draws) and probe.variance > 0.0


def leave(probe: NoiseProbe, *, fresh: bool = False) -> NoiseProbe:
    """The chain moved, or took a ``fresh`` estimate where it was."""
    return probe._replace(met=0, chance=0.0, still=0, fresh=fresh)


def patience(probe: NoiseProbe) -> float:
    """How likely a step of length zero is from where the chain is, relative to the mean.

    At most 1, and 1 before a probe, with the weight of one; from a fresh estimate, which is left sooner than one that
    was accepted, what that is likely to be (:data:`FRESH` at most: where the noise is far stronger than it will be, a
    chain has a way to go, and long moves help).
    """
    if probe.met == 0 and not probe.fresh:
        return 1.0
    still = max(standstill_acceptance(sd(probe)), 0.01)
    first = min(fresh_acceptance(sd(probe)) / still, FRESH) if probe.fresh else 1.0
    return min(first, (first + probe.chance / still) / (1 + probe.met))


def sd(probe: NoiseProbe) -> float:
    """Standard deviation of the noise; 0 before the first pair."""
    return math.sqrt(probe.variance)


def standstill_acceptance(noise_sd: float) -> float:
    """Acceptance probability of a step of length zero, 2 Phi(-s / sqrt 2)."""
    return math.erfc(0.5 * noise_sd)


def fresh_acceptance(noise_sd: float) -> float:
    """The same from an estimate that was not selected: E[min(1, exp(d))] with d ~ N(0, 2 s^2)."""
    if noise_sd > 20.0:
        return 0.5
    return 0.5 + 0.5 * math.exp(noise_sd**2) * math.erfc(noise_sd)


def work_factors(noise_sd: float) -> tuple[float, float]:
    """By what factors, from and to, an estimator's work has to grow: the variance of the noise falls as 1 / work."""
    return (noise_sd / BEST_SD[1]) ** 2, (noise_sd / BEST_SD[0]) ** 2
