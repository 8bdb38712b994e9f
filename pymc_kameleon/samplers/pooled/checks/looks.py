"""Are there modes that the chains do not draw from? Looks at where climbs ended and no draws are, beside the draws.

Draws of the posterior are as dense as it is: the log density less the log of the draws' own density, by nearest
neighbours, is one constant but for the estimate's error. Where a climb ended and it is larger than at hardly any draw,
draws are missing: there is a mode of its own. No shape is assumed, so that a bend or a tail is none; half way to the
nearest draw, the log density falls little where modes are some eight sds apart. What such a mode weighs is Laplace's
approximation against the draws' normalising constant (Kozachenko & Leonenko, 1987). Climbs that were cut short or
stopped on a slope, and starts of chains that made none, climb until they come among the draws, or near a top. The two
ends that weigh most climb on until they have arrived: heights have not converged before. Looks are no draws, and change
none.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers.arrival import circles, search
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival.quadratic import rise
from pymc_kameleon.samplers.arrival.state import little
from pymc_kameleon.samplers.pooled.drawing import Row

NEIGHBOUR = 3  # which, of a draw, for the normalising constant
FEW = 2  # climbs side by side: of four none ended in 37 evaluations of two unknowns
# nats more than at 99 of 100 draws: at ends in modes without draws 5.2 to 8, elsewhere 1.6 at most (16 targets)
MISSING = 3.0


class Draws:
    """Draws so far, by what is near them.

    Parameters
    ----------
    rows : list of Row
        Of chains that draw.
    window : Window, optional
        Into which angles are brought, of draws and of what is compared with them.
    """

    def __init__(self, rows: list[Row], window: circles.Window | None = None):
        x = np.concatenate([row.positions for row in rows])
        self.window = window
        x = x if window is None else window.wrapped(x)
        y = np.concatenate([row.log_densities for row in rows])
        self.x, first = np.unique(x, axis=0, return_index=True)
        self.y, d = y[first], x.shape[1]
        self.few = len(self.x) <= d + NEIGHBOUR  # to say anything
        if self.few:
            return
        covariance = np.cov(self.x.T).reshape(d, d)
        factor, ok = cholesky(covariance + 1e-12 * np.diag(self.x.var(axis=0)))
        self.factor = factor if ok else np.eye(d)
        self.tree = scipy.spatial.KDTree(self._white(self.x))
        away = self.tree.query(self.tree.data, NEIGHBOUR + 1)[0]
        # no draw is near where it is farther than hardly any is from the next
        self.reach = 1.5 * float(np.quantile(away[:, 1], 0.99))
        unit = 0.5 * d * math.log(math.pi) - scipy.special.gammaln(0.5 * d + 1.0) + np.log(np.diag(self.factor)).sum()
        self.unit = unit + scipy.special.digamma(len(self.x)) - scipy.special.digamma(NEIGHBOUR)
        self.lowest = float(self.y.min()) - little(d)
        constants = self._constant(self.y, away[:, NEIGHBOUR])
        self.log_constant, self.most = float(constants.mean()), float(np.quantile(constants, 0.99))

    def _constant(self, y, away):
        """The log normalising constant by log densities and the distances to the neighbours."""
        with np.errstate(divide="ignore"):
            return y + self.unit + len(self.factor) * np.log(away)

    def missing(self, x: np.ndarray, y: float) -> bool:
        """Whether there are fewer draws near ``x`` (d,) than the log density ``y`` there says."""
        away = self.tree.query(self._white(self._copies(x)), NEIGHBOUR)[0][:, -1].min()
        return bool(self._constant(y, away) > self.most + MISSING)

    def _white(self, x):
        return np.linalg.solve(self.factor, x.T).T

    def near(self, x: np.ndarray) -> bool:
        """Whether some are near ``x`` (d,)."""
        return bool(self.tree.query(self._white(self._copies(x)))[0].min() < self.reach)

    def _copies(self, x):
        """``x`` (d,) and, where there are angles, what is a period beside it: the window may have cut a mode in two."""
        if self.window is None:
            return x[None]
        beside = circles.PERIOD * np.eye(len(x))[self.window.where]
        return self.window.wrapped(x) + np.concatenate([np.zeros((1, len(x))), beside, -beside])


class Found(NamedTuple):
    """What is known of where the climbs ended."""

    climbs: int  # how many have ended
    met: int  # at how many of their ends no draws are missing
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
    few : int
        Climbs side by side.
    window : Window, optional
        One period of every angle, where neither climbs nor chains stay in one.
    """

    def __init__(
        self, rngs: list[np.random.Generator], climbs: list[arrival.State], left: int, few: int = FEW,
        window: circles.Window | None = None,
    ):  # fmt: skip
        self.rngs, self.climbs, self.left, self.few, self.window = rngs, list(climbs), left, few, window
        self.draws: Draws | None = None
        self.wanted: list[int] = []
        self.finished: list[int] = []  # of those, the ones that ended where draws are missing, and climb on
        self._asked: list[int] = []
        self._points: list[np.ndarray] = []

    def ask(self, rows: list[Row], most: float) -> list[np.ndarray]:
        """The next points (d,), ``most`` of them at most."""
        if self.draws is None and len(rows) >= 5 and self.climbs:
            self._begin(rows)
        self._asked = self._next()[: int(min(most, self.left))] if self.draws else []
        self._points = [arrival.propose(self.rngs[k], self.climbs[k]) for k in self._asked]
        return self._points

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        for k, x, value in zip(self._asked, self._points, values, strict=True):
            self.climbs[k] = arrival.tell(self.rngs[k], self.climbs[k], x, value)
        self.left -= len(values)

    def _begin(self, rows):
        """Which ends and starts are worth a look: where draws are missing, and what others can be climbed from."""
        draws = Draws(rows, self.window)
        if draws.few:
            return
        self.draws = draws
        off = [k for k in range(len(self.climbs)) if not self._is_met(k)]
        ended = [k for k in off if self.climbs[k].near is not None]
        others = sorted(set(off) - set(ended), key=lambda k: self.climbs[k].start is not None)
        each = 2 * len(self.draws.factor) + 2
        self.wanted = ended + others[: max(self.left // each, 0)]

    def _next(self):
        """Whose turn it is: the heaviest of those that ended where draws are missing, then other climbs."""
        going = [k for k in self.wanted if not (self.climbs[k].done or self._is_met(k))]
        ended = [k for k in going if self.climbs[k].near is not None and k not in self.finished]
        free = 2 - sum(not self._is_met(k) for k in self.finished)
        for k in sorted(ended, key=lambda k: -mass(self.climbs[k]))[:free]:
            self.climbs[k] = arrival.leave(self.climbs[k])  # near a top, not there yet
            self.finished.append(k)
        return [k for k in self.finished if k in going] or [k for k in going if k not in ended][: self.few]

    def _is_met(self, k):
        """Whether draws are near, or too low a log density says that none have to be."""
        climb, end = self.climbs[k], _end(self.climbs[k])
        if self.draws.near(end):
            return True
        return self._has_ended(k) and not self.draws.missing(end, climb.log_densities[climb.current])

    def _has_ended(self, k):
        """One that stops on a slope, lower than any draw by more than a climb leaves, has ended nowhere yet."""
        climb = self.climbs[k]
        return climb.done or (climb.near is not None and climb.log_densities[climb.current] >= self.draws.lowest)

    def _is_there(self, k):
        """Whether one that was cut short is as high as the draws where draws are missing, and has been near a top."""
        climb, end = self.climbs[k], _end(self.climbs[k])
        value = climb.log_densities[climb.current]
        high = climb.start is None and value >= self.draws.lowest and self.draws.missing(end, value)
        return high and mass(climb) > -math.inf

    def found(self, rows: list[Row]) -> Found:
        """What is known when all ``rows`` are drawn."""
        if self.draws is None:
            return Found(0, 0, None)
        self.draws = Draws(rows, self.window)
        met = [k for k, c in enumerate(self.climbs) if c.start is None and self._is_met(k)]
        ended = [
            k for k, c in enumerate(self.climbs) if (c.near is not None and self._has_ended(k)) or self._is_there(k)
        ]
        off = [k for k in ended if k not in met]
        weights = {k: mass(self.climbs[k]) for k in off}
        least = self.draws.log_constant + search.SLIGHT
        heavy = [k for k in off if weights[k] > least]
        where = _end(self.climbs[max(heavy, key=weights.__getitem__)]) if heavy else None
        return Found(len(met) + len(off), len(met), where)


def mass(climb: arrival.State) -> float:
    """Log of Laplace's approximation of the integral around where ``climb`` ended; -inf far from a top."""
    ended, d = arrival.stop(climb), len(climb.origin)
    risen = 0.0 if ended.arrived else rise(climb)
    return search.mass(ended) + risen + 0.5 * d * math.log(2.0 * math.pi)


def _end(climb):
    return climb.positions[climb.current] if climb.start is None else climb.start
