"""How pooled chains come to the typical set: a few climbs side by side, each for a group of chains.

Every climb is an arrival (:mod:`pymc_kameleon.samplers.arrival.phase`) from an over-dispersed start of its own. In a
round it makes its proposal and, where there are more chains than climbs, evaluates others beside it: as many workers as
chains would wait. It ends where its near phase would begin: what an arrival finds out there by itself, the
chains' surrogate learns sooner from all climbs' points together. A group stands where its climb ended, so that a second
mode keeps its chains and R-hat sees it; only one that ended *far* below the best is given up, as a chain by itself
would.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.arrival import beside as arrival_beside
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival import search as arrival_search


class Climbs(NamedTuple):
    """Climbs under way.

    Attributes
    ----------
    climbs : tuple of arrival.State
    left : int
        Evaluations that may still be spent.
    width : int
        Points of every climb in a round, at most.
    """

    climbs: tuple[arrival.State, ...]
    left: int
    width: int = 1

    @property
    def active(self) -> list[int]:
        """Numbers of the climbs that go on, as many as there are evaluations left."""
        going = [g for g, c in enumerate(self.climbs) if not c.done and c.near is None]
        return going[: max(self.left, 0)]


class Group(NamedTuple):
    """Where a group of chains can begin.

    Attributes
    ----------
    positions, log_densities : ndarray of shape (n, d), (n,)
        Evaluated points of the typical set, one at least.
    """

    positions: np.ndarray
    log_densities: np.ndarray


def init(
    x: np.ndarray, log_density: float, starts: np.ndarray, *, scale, budget: int, width: int = 1
) -> Climbs:
    """Climb from each row of ``starts`` (g, d); ``x`` (d,) and its ``log_density`` are known to all.

    Parameters
    ----------
    scale : float or ndarray of shape (d,)
        Rough size of each coordinate.
    budget : int
        Evaluations at most, of all climbs together.
    width : int
        Points of every climb in a round, at most; more than half of the dimension are of no use.
    """
    each = min(arrival.default_budget(len(x)), max(budget, 1))
    climbs = tuple(arrival.init(x, log_density, scale=scale, budget=each, start=s) for s in starts)
    return Climbs(climbs, budget, max(1, min(width, (len(x) + 1) // 2)))


def propose(rngs: list[np.random.Generator], state: Climbs) -> list[list[np.ndarray]]:
    """The next points of every active climb: its own proposal, and what is evaluated beside it."""
    found = []
    beside = state.left - len(state.active)
    for g in state.active:
        point = arrival.propose(rngs[g], state.climbs[g])
        n = min(state.width - 1, beside)
        others = arrival_beside.propose(rngs[g], state.climbs[g], point, n)
        beside -= len(others)
        found.append([point, *others])
    return found


def tell(rngs: list[np.random.Generator], state: Climbs, points, values) -> Climbs:
    """The state after the log densities, in a list, of all that ``propose`` returned."""
    climbs, told = list(state.climbs), iter(values)
    for g, (point, *others) in zip(state.active, points, strict=True):
        value = next(told)
        beside = [(other, next(told)) for other in others]
        climbs[g] = arrival.tell(rngs[g], climbs[g], point, value, beside)
    return state._replace(climbs=tuple(climbs), left=state.left - len(values))


def stop(state: Climbs) -> Climbs:
    """End every climb where it is."""
    ended = tuple(arrival.stop(c) for c in state.climbs)
    return state._replace(climbs=ended, left=0)


def best(state: Climbs) -> arrival.State:
    """The climb with most mass; where none has arrived, the highest."""
    arrived = [c for c in state.climbs if c.arrived]
    if arrived:
        return max(arrived, key=arrival_search.mass)
    return max(state.climbs, key=lambda c: c.log_densities[c.own :].max(initial=-math.inf))


def groups(state: Climbs) -> list[Group]:
    """Where the chains of every climb can begin."""
    top = best(state)
    found = []
    for climb in state.climbs:
        found.append(typical_points(climb if _holds_its_own(climb, top) else top))
    return found


def _holds_its_own(climb, top):
    if climb is top:
        return True
    if climb.arrived and top.arrived:
        return arrival_search.mass(climb) > arrival_search.mass(top) - arrival_search.BETTER
    return not top.arrived and climb.log_densities.max() > top.log_densities.max() - depth(
        len(climb.origin)
    )


def depth(d: int) -> float:
    """How far below the mode a draw from a posterior in ``d`` dimensions may plausibly lie."""
    return 0.5 * d + 3.0 * math.sqrt(0.5 * d) + 2.0


def typical_points(climb: arrival.State) -> Group:
    """The evaluated points of a climb that a draw could be."""
    values = climb.log_densities
    rows = np.flatnonzero(values >= values.max() - depth(len(climb.origin)))
    return Group(climb.positions[rows].copy(), values[rows].copy())


def factor(state: Climbs) -> np.ndarray:
    """Lower Cholesky factor of the covariance where the chains begin; the last trust region if none is known."""
    top = best(state)
    if top.factor is not None:
        return top.factor
    return top.metric if top.near is not None else top.radius * top.metric
