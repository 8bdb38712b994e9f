"""How long chains that learn together tune and draw."""

import math
from typing import NamedTuple

TUNE_SHARE = 0.5  # of the evaluations allowed, at most
# Of all evaluations, and evaluations a dimension: where what is far from the middle is seldom seen, before so many of
# them a good surrogate is luck
LEAST_TUNING, SEEN = 0.25, 30
LOOKING = 0.11  # of all evaluations, to see whether there are other modes; the few climbs that have to end take more


class Plan(NamedTuple):
    """How long to tune and to draw."""

    draws: int | None  # of every chain; None for as many as ``max_evaluations`` allows
    # evaluations in all at which tuning ends; None for when the surrogate is good, and ``longest`` at the latest
    tune: int | None
    longest: int
    max_evaluations: int | None  # never exceeded
    climb: bool = True  # whether values can be compared: not under noise
    # draws of the frozen surrogate that are evaluated beside the chains' own, at most
    audits: int = 0
    stretch: float = 1.0  # times ``longest``: where the surrogate is not usable by then
    # evaluations in all at which tuning has to have ended; by default ``max_evaluations``
    last: int | None = None
    earliest: int = 0  # evaluations in all before which black boxes that seem to be known are not taken for it
    begun_with: int | None = None  # the ``max_evaluations`` of a run that was made longer since

    @property
    def tune_until(self) -> int:
        """Evaluations in all at which tuning ends at the latest, if the surrogate is usable."""
        until = self.longest if self.tune is None else self.tune
        return until if self.max_evaluations is None else min(until, self.max_evaluations)

    @property
    def looking(self) -> int:
        """Evaluations for climbs, the check between modes and looks; more only for the few climbs that have to end."""
        most = self.max_evaluations if self.begun_with is None else self.begun_with
        return int(LOOKING * (self.tune_until / TUNE_SHARE if most is None else most))

    @property
    def learn_until(self) -> int:
        """The same if it is not."""
        return self.tune_until if self.tune is not None else int(self.stretch * self.tune_until)

    @property
    def at_most(self) -> float:
        """Evaluations in all at which tuning has to have ended."""
        last = self.max_evaluations if self.last is None else self.last
        return math.inf if last is None else last


def automatic(
    d: int, chains: int, *, draws: int | None = None, tune: int | None = None, most: int | None = None,
    climb: bool = True,
) -> Plan:  # fmt: skip
    """What ``pk.sample`` does in ``d`` dimensions with ``most`` evaluations in all; ``tune``, in all, fixes its end."""
    longest = 400 * d
    if most is not None:
        longest = min(longest, int(TUNE_SHARE * most))
    longest, stretch, last = max(longest, 2 * chains), 1.0, None
    earliest = LEAST_TUNING * most if most is not None else LEAST_TUNING / (1.0 - LEAST_TUNING) * chains * (draws or 0)
    if most is not None:  # not at the expense of the draws, of which 25 are kept
        last = max(longest, most - chains * (25 if draws is None else draws))
        stretch = min(1.5, last / longest)
    return Plan(
        draws, tune, longest, most, climb=climb, stretch=stretch, last=last, earliest=int(min(earliest, SEEN * d)),
        begun_with=most,
    )  # fmt: skip
