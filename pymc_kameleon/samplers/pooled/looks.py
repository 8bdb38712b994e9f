"""Are there modes that the chains do not draw from? Looks at where climbs ended and no draws are, beside the draws.

An end is *met* where draws are near it, or where the log density does not fall on the way to the nearest of them as
it does between modes. Elsewhere it is a mode of its own, and what that weighs is Laplace's approximation against the
draws' own normalising constant, by nearest neighbours (Kozachenko & Leonenko, 1987). Climbs that were cut short, and
starts of chains that made none, climb until they come among the draws, or near a top. What evaluations there are go
first to the two ends that weigh most, which climb on until they have arrived: heights have not converged before. Looks
are no draws, and change none.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree
from scipy.special import digamma, gammaln

from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.arrival.quadratic import rise
from pymc_kameleon.samplers.pooled.drawing import Row

NEIGHBOUR = 3  # which, of a draw, for the normalising constant
FEW = 4  # climbs side by side: of more none might end


class Draws:
    """Draws so far, by what is near them.

    Parameters
    ----------
    rows : list of Row
        Of chains that draw.
    """

    def __init__(self, rows: list[Row]):
        x = np.concatenate([row.positions for row in rows])
        y = np.concatenate([row.log_densities for row in rows])
        self.x, first = np.unique(x, axis=0, return_index=True)
        self.y, d = y[first], x.shape[1]
        self.few = len(self.x) <= d + NEIGHBOUR  # to say anything
        if self.few:
            return
        covariance = np.cov(self.x.T).reshape(d, d)
        factor, ok = cholesky(covariance + 1e-12 * np.diag(self.x.var(axis=0)))
        self.factor = factor if ok else np.eye(d)
        self.tree = KDTree(self._white(self.x))
        away = self.tree.query(self.tree.data, NEIGHBOUR + 1)[0]
        # no draw is near where it is farther than hardly any is from the next
        self.reach = 1.5 * float(np.quantile(away[:, 1], 0.99))
        n, unit = len(self.x), 0.5 * d * math.log(math.pi) - gammaln(0.5 * d + 1.0)
        with np.errstate(divide="ignore"):
            entropy = d * np.log(away[:, NEIGHBOUR]).mean() + unit + digamma(n) - digamma(NEIGHBOUR)
        self.log_constant = float(self.y.mean() + entropy + np.log(np.diag(self.factor)).sum())

    def _white(self, x):
        return np.linalg.solve(self.factor, x.T).T

    def away(self, x: np.ndarray) -> float:
        """How far the nearest is from ``x`` (d,), in sds of the draws."""
        return float(self.tree.query(self._white(x))[0])

    def distance(self, x: np.ndarray, y: np.ndarray) -> float:
        """Between ``x`` (d,) and ``y`` (d,), the same."""
        return float(np.linalg.norm(self._white(x - y)))

    def near(self, x: np.ndarray) -> bool:
        """Whether some are near ``x`` (d,)."""
        return self.away(x) < self.reach

    def nearest(self, x: np.ndarray) -> int:
        """The row of the one that is nearest."""
        return int(self.tree.query(self._white(x))[1])


class Found(NamedTuple):
    """What is known of where the climbs ended."""

    climbs: int  # how many have ended
    met: int  # how many of their ends the draws reach
    # (d,): the heaviest mode that the draws do not reach, if its mass is not negligible
    where: np.ndarray | None


class Looks:
    """Looks; ``ask`` and ``tell`` with every round of draws.

    Parameters
    ----------
    rngs : list of numpy.random.Generator
        One a climb.
    climbs : list of arrival.State
        As they ended, or before they begin.
    left : int
        Evaluations at most.
    """

    def __init__(self, rngs: list[np.random.Generator], climbs: list[arrival.State], left: int):
        self.rngs, self.climbs, self.left = rngs, list(climbs), left
        self.draws: Draws | None = None
        self.wanted: list[int] = []
        self.alone: dict[int, bool] = {}  # of an end: whether it is in a mode without draws ...
        self.tested: dict[int, int] = {}  # ... as it was with the climb at that row,
        self.between: dict[int, np.ndarray] = {}  # by the log density there
        self.finished: list[int] = []  # of those, the ones that climb on
        self._asked: list[int] = []
        self._points: list[np.ndarray] = []

    def ask(self, rows: list[Row], most: float) -> list[np.ndarray]:
        """The next points (d,), ``most`` of them at most."""
        if self.draws is None and len(rows) >= 5 and self.climbs:
            self._begin(rows)
        self._asked = self._next()[: int(min(most, self.left))] if self.draws else []
        self._points = [self._point(k) for k in self._asked]
        return self._points

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        for k, x, value in zip(self._asked, self._points, values, strict=True):
            if self._is_tested(k):
                self.climbs[k] = arrival.tell(self.rngs[k], self.climbs[k], x, value)
            else:
                self._judge(k, x, value)
        self.left -= len(values)

    def _begin(self, rows):
        """Which ends and starts are worth a look: all that were come to, and as many others as can be climbed from."""
        self.draws = Draws(rows)
        if self.draws.few:
            self.draws = None
            return
        near = [k for k, c in enumerate(self.climbs) if self.draws.near(_end(c))]
        self.alone = dict.fromkeys(near, False)
        off = [k for k in range(len(self.climbs)) if k not in near]
        ended = [k for k in off if self.climbs[k].near is not None]
        others = sorted(set(off) - set(ended), key=lambda k: self.climbs[k].start is not None)
        each = 2 * len(self.draws.factor) + 2
        self.wanted = ended + others[: max(self.left - len(ended), 0) // each]

    def _next(self):
        """Whose turn it is: ends that are not tested, then the heaviest of those alone, then other climbs."""
        going = [k for k in self.wanted if not (self.climbs[k].done or self._is_met(k))]
        untested = [k for k in going if not self._is_tested(k)]
        if untested:
            return untested
        alone = [k for k in going if k in self.alone and k not in self.finished]
        free = 2 - sum(not self._is_met(k) for k in self.finished)
        for k in sorted(alone, key=lambda k: -mass(self.climbs[k]))[:free]:
            self.climbs[k] = arrival.leave(self.climbs[k])  # near a top, not there yet
            self.finished.append(k)
        return [k for k in self.finished if k in going] or [k for k in going if k not in self.alone][:FEW]

    def _is_met(self, k):
        end = _end(self.climbs[k])
        return self.alone.get(k) is False or self.draws.near(end) or self._is_passed(k, end)

    def _is_passed(self, k, end):
        """Whether draws have come nearer to an end than where the log density falls: a bend, and no gap."""
        if self.tested.get(k) != self.climbs[k].current:
            return False
        return self.draws.away(end) < self.draws.distance(end, self.between[k])

    def _is_tested(self, k):
        climb = self.climbs[k]
        return climb.near is None or self.tested.get(k) == climb.current

    def _point(self, k):
        if self._is_tested(k):
            return arrival.propose(self.rngs[k], self.climbs[k])
        x = _end(self.climbs[k])
        return 0.5 * (x + self.draws.x[self.draws.nearest(x)])

    def _judge(self, k, x, value):
        """Whether the log density falls between an end and the draws, at ``x``."""
        climb = self.climbs[k]
        end = climb.log_densities[climb.current]
        draw = self.draws.y[self.draws.nearest(_end(climb))]
        self.alone[k], self.tested[k] = bool(value < min(end, draw) - 3.0), climb.current
        self.between[k] = x

    def found(self, rows: list[Row]) -> Found:
        """What is known when all ``rows`` are drawn."""
        if self.draws is None:
            return Found(0, 0, None)
        self.draws = Draws(rows)
        met = [k for k, c in enumerate(self.climbs) if c.start is None and self._is_met(k)]
        off = [k for k, c in enumerate(self.climbs) if c.near is not None and k not in met]
        weights = {k: mass(self.climbs[k]) for k in off}
        least = self.draws.log_constant - 4.0  # 2 % of the mass
        heavy = [k for k in off if k in self.alone and weights[k] > least]
        where = _end(self.climbs[max(heavy, key=weights.__getitem__)]) if heavy else None
        return Found(len(met) + len(off), len(met), where)


def mass(climb: arrival.State) -> float:
    """Log of Laplace's approximation of the integral around where ``climb`` ended; -inf far from a top."""
    ended, d = arrival.stop(climb), len(climb.origin)
    risen = 0.0 if ended.arrived else rise(climb)
    return search.mass(ended) + risen + 0.5 * d * math.log(2.0 * math.pi)


def _end(climb):
    return climb.positions[climb.current] if climb.start is None else climb.start
