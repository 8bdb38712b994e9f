"""How pooled chains come to the typical set: climbs side by side, one a chain where that is affordable.

Every climb is an arrival (:mod:`pymc_kameleon.samplers.arrival.phase`) from an over-dispersed start of its own. In a
round it makes its proposal and, where there are more chains than climbs, evaluates others beside it: as many workers as
chains would wait. It ends where its near phase would begin: what an arrival finds out there by itself, the
chains' surrogate learns sooner from all climbs' points together. A group stands where its climb ended, so that a second
mode keeps its chains and R-hat sees it. Heights at that stage have not converged: only an end that is *far* below the
best whatever it may still rise is given up, as a chain by itself would.

A quadratic of 2 d + 2 points is flat on many a slope. So the highest end climbs on until it rises no more, and with it
every one that it leaves far below. Without that climbs of two mixed regressions ended ten to eighty nats below either
mode ("two regressions" in benchmarks/results/discovery.md), and all chains were in that of the best of them.

Of four climbs none ended in one of two equal modes in three runs of seven. So there are more, to see what modes there
are; but where the way is long, no more than ``FEW`` go on once ``share`` is spent.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.arrival import beside as arrival_beside
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival import search as arrival_search

FEW = 4  # climbs that have to end, however long that takes


class Climbs(NamedTuple):
    """Climbs under way."""

    climbs: tuple[arrival.State, ...]
    left: int  # evaluations that may still be spent
    width: int = 1  # points of every climb in a round, at most
    reserve: int = 0  # so many of them are for the first ``FEW`` that end

    @property
    def active(self) -> list[int]:
        """Numbers of the climbs that go on, as many as there are evaluations left."""
        going = [g for g, c in enumerate(self.climbs) if not c.done and c.near is None]
        if self.left <= self.reserve:  # an end that a draw could not be, another being one, may be a slope's
            ends = [_height(c) for c in self.climbs if c.done or c.near is not None]
            high = max(ends, default=0.0) - arrival.depth(len(self.climbs[0].origin))
            going = going[: max(FEW - sum(y >= high for y in ends), 0)]
        return going[: max(self.left, 0)]


def init(
    x: np.ndarray, log_density: float, starts: np.ndarray, *, scale, budget: int, share: int | None = None,
    width: int = 1,
) -> Climbs:  # fmt: skip
    """Climb from each row of ``starts`` (g, d); ``x`` (d,) and its ``log_density`` are known to all.

    Parameters
    ----------
    scale : float or ndarray of shape (d,)
        Rough size of each coordinate.
    budget : int
        Evaluations at most, of all climbs together.
    share : int, optional
        What all of them may spend before only ``FEW`` go on. Default ``budget``.
    width : int
        Points of every climb in a round, at most; more than half of the dimension are of no use.
    """
    each = min(arrival.default_budget(len(x)), max(budget, 1))
    climbs = tuple(
        arrival.init(x, log_density, scale=scale, budget=each, start=s)._replace(waits=False) for s in starts
    )
    reserve = 0 if share is None else max(budget - share, 0)
    return Climbs(climbs, budget, max(1, min(width, (len(x) + 1) // 2)), reserve)


def propose(rngs: list[np.random.Generator], state: Climbs) -> list[list[np.ndarray]]:
    """The next points of every active climb: its own proposal, and what is evaluated beside it."""
    found = []
    beside = state.left - len(state.active)
    for g in state.active:
        point = arrival.propose(rngs[g], state.climbs[g])
        n = min(state.width - 1, beside)
        others = arrival_beside.propose(rngs[g], state.climbs[g], point, n)
        beside -= len(others)
        found.append([_outward(state.climbs[g], x) for x in (point, *others)])
    return found


def _outward(climb, point):
    """A first step, along an axis, is made away from the point that all climbs have in common: not all the same way."""
    here = climb.positions[climb.current]
    back = climb.model is None and (point - here) @ (here - climb.positions[0]) < 0.0
    return 2.0 * here - point if back and climb.start is None else point


def tell(rngs: list[np.random.Generator], state: Climbs, points, values) -> Climbs:
    """The state after the log densities, in a list, of all that ``propose`` returned."""
    climbs, told = list(state.climbs), iter(values)
    for g, (point, *others) in zip(state.active, points, strict=True):
        value = next(told)
        beside = [(other, next(told)) for other in others]
        climbs[g] = arrival.tell(rngs[g], climbs[g], point, value, beside)
    return state._replace(climbs=_gone_on(climbs), left=state.left - len(values))


def _gone_on(climbs):
    """The highest that ended climbs on, and those far below it, each once."""
    top = max((c for c in climbs if c.near is not None), key=_height, default=None)
    return tuple(
        arrival.leave(c)._replace(waits=True)
        if c.near is not None and not c.waits and (c is top or not _holds_its_own(c, top)) else c
        for c in climbs
    )  # fmt: skip


def stop(state: Climbs) -> Climbs:
    """End every climb where it is."""
    ended = tuple(arrival.stop(c) for c in state.climbs)
    return state._replace(climbs=ended, left=0)


def best(state: Climbs) -> arrival.State:
    """The climb with most mass; where none has arrived, the highest."""
    arrived = [c for c in state.climbs if c.arrived]
    if arrived:
        return max(arrived, key=arrival_search.mass)
    return max(state.climbs, key=_height)


def _height(climb):
    return climb.log_densities[climb.own :].max(initial=-math.inf)


def groups(state: Climbs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Where the chains of every climb can begin: points (n, d), log densities (n,)."""
    top = best(state)
    return [typical_points(c if _holds_its_own(c, top) else top) for c in state.climbs]


def ends(state: Climbs) -> tuple[np.ndarray, np.ndarray]:
    """Where those climbs ended that are not given up, (n, d), and their log densities, (n,)."""
    top = best(state)
    kept = [c for c in state.climbs if _holds_its_own(c, top)]
    rows = [c.own + int(np.argmax(c.log_densities[c.own :])) for c in kept]
    pairs = list(zip(kept, rows, strict=True))
    return np.array([c.positions[k] for c, k in pairs]), np.array([c.log_densities[k] for c, k in pairs])


def _holds_its_own(climb, top):
    if climb is top:
        return True
    if climb.arrived and top.arrived:
        return arrival_search.mass(climb) > arrival_search.mass(top) - arrival_search.BETTER
    d = len(climb.origin)
    # It may still rise, by what a near phase leaves or more, and weigh more than its height says.
    unknown = arrival.little(d) + arrival_search.BETTER
    return climb.log_densities.max() > top.log_densities.max() - arrival.depth(d) - unknown


def typical_points(climb: arrival.State) -> tuple[np.ndarray, np.ndarray]:
    """The evaluated points of a climb that a draw could be, one at least: (n, d), (n,)."""
    values = climb.log_densities
    rows = np.flatnonzero(values >= values.max() - arrival.depth(len(climb.origin)))
    return climb.positions[rows].copy(), values[rows].copy()


def factor(state: Climbs) -> np.ndarray:
    """Lower Cholesky factor of the covariance where the chains begin; the last trust region if none is known."""
    top = best(state)
    if top.factor is not None:
        return top.factor
    return top.metric if top.near is not None else top.radius * top.metric
