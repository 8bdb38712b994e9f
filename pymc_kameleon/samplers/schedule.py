"""A sampler that learns anew with a probability p_t which falls with t, in place of growing intervals.

Sejdinovic et al. (2014, section 4) draw a new subsample of the history with probability p_t -> 0 at draw t,
Strathmann et al. (2015, algorithm 1) fit a new surrogate with probability a_t; Andrieu & Thoms (2008) move mean,
covariance and scale by a step gamma_t -> 0. Falling to zero is what makes a chain that adapts for ever ergodic (Roberts
& Rosenthal, 2007).

Differs from the papers: when tuning ends everything is frozen, whatever p_t is then, so that exactness does not hang on
it. Between two refreshes the scales of the moves keep their own rates. The first refresh is the sampler's: to learn
from a history that says nothing is what breaks these methods.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pymc_kameleon.numerics.checks import called
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Sampler

ScheduleName = Literal["harmonic", "root"]
SCHEDULES: dict[str, Callable[[int], float]] = {
    "harmonic": lambda t: 1.0 / t,
    # of both groups' published code, for scales and for refits
    "root": lambda t: 1.0 / math.sqrt(t),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheduled(Sampler):
    """A sampler with a schedule.

    Parameters
    ----------
    inner : Sampler
        Adaptive Metropolis, one with a local covariance, or one with a surrogate from positions. Its state is this
        one's.
    schedule : {"harmonic", "root"} or callable
        p_t of the t-th tuning draw, in [0, 1]: 1 / t, t^-1/2, or a function of t. After the first
        refresh, the probability of learning anew after the draw; with ``covariance="recursive"`` of adaptive
        Metropolis, which learns from every draw, the step gamma_t of mean, covariance and, where it is learned, log
        scale.
    """

    inner: Sampler
    schedule: ScheduleName | Callable[[int], float]

    def __post_init__(self):
        super().__post_init__()
        for t in (1, 2, 1000, 1_000_000):
            probability(self.schedule, t)
        for name in ("statistics", "propose", "freeze", "place", "log_ratio", "observe", "stats", "draw_stats"):
            object.__setattr__(self, name, getattr(self.inner, name))  # the sampler's own

    def init(self, rng, x, known=NOTHING) -> Any:
        """Start at ``x``, shape (d,)."""
        state = self.inner.init(rng, x, known)
        try:
            clock(self.inner, state)
        except AttributeError:
            name = type(self.inner).__name__
            raise TypeError(f"{name} has no schedule to replace.") from None
        return state

    def adapt(self, rng, state, outcome) -> Any:
        """Learn from one draw, and anew with probability p_t."""
        inner = self.inner
        if isinstance(inner, AdaptiveMetropolis) and inner.covariance == "recursive":
            # t = 1 is where the chain starts, as in Haario et al. (2001): a first step of 1 would leave no covariance
            rate = probability(self.schedule, state.iteration + 2)
            if rate == 1.0:
                raise ValueError("schedule must be below 1 where a covariance is moved by it: a step of 1 leaves none.")
            return inner.adapt(rng, state, outcome, rate)
        field, t, begun = clock(inner, state)
        if begun:
            due = rng.random() < probability(self.schedule, t)
            state = state._replace(**{field: t if due else NEVER})
        return inner.adapt(rng, state, outcome)


def clock(inner: Sampler, state: Any) -> tuple[str, int, bool]:
    """The field that says when ``inner`` learns next, the number of this draw, and whether it has learned before."""
    if "next_update" in state._fields:
        return "next_update", state.iteration + 1, state.last_update > 0
    t = state.walk.iteration + 1
    if "next_refresh" in state._fields:
        return "next_refresh", t, state.model is not None
    # one surrogate from a given history is kept, and so is the last one before the end of tuning
    begun = state.refits > 0 and inner.history is None and t < state.last_fit  # type: ignore[attr-defined]
    return "next_fit", t, begun


def probability(schedule: str | Callable[[int], float], t: int) -> float:
    """p_t."""
    found = called(t, schedule=SCHEDULES[schedule] if isinstance(schedule, str) else schedule)
    if not 0.0 <= found <= 1.0:
        raise ValueError(f"schedule must be in [0, 1] at every t, got {found!r} at t = {t}.")
    return found
