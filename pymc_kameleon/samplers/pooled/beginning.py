"""How chains that learn together begin: at points that are finite, at points that are known, or by climbs.

A phase of :class:`~pymc_kameleon.samplers.pooled.chains.Chains` has ``ask`` and ``tell``; it is over when it is
``done``, and ``next`` is what follows.
"""

from typing import Any

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers import known_points
from pymc_kameleon.samplers.pooled import climbs as pooled_climbs
from pymc_kameleon.samplers.pooled.drawing import Request, Row, stacked
from pymc_kameleon.samplers.pooled.learning import Learn, learned_together
from pymc_kameleon.samplers.seam import Point


class Start:
    """Evaluate the initial point, and where the log density is not finite there, the starts; without climbs together
    the starts first. Where it is finite nowhere there, six rounds of points elsewhere, which take the starts' place.
    """

    name = "start"

    def __init__(self, chains: Any):
        self.chains, self.done, self.nowhere = chains, False, False
        self.climbs = chains.plan.climb and not chains.learner.sampler.climbs_by_itself
        places = [[chains.initial], list(chains.starts)]
        self.points, *self.places = places if self.climbs else places[::-1]
        self.tried = False

    def ask(self):
        """Every point of those."""
        several = len(self.points) > 1
        return [Request(x, k if several else -1, "start") for k, x in enumerate(self.points)]

    def tell(self, values):
        """It is over when one of them is finite."""
        self.values, self.done = values, max(values) > -np.inf
        if not self.done:
            if not (self.places or self.tried):
                self.places, self.tried = self._elsewhere(), True
            self.nowhere = not (self.places and self._fits(len(self.places[0])))
            self.points = [] if self.nowhere else self.places.pop(0)

    def _fits(self, n):
        """Whether tuning can follow. Whole rounds: a run that goes on with more evaluations has the same bits."""
        chains = self.chains
        follows = chains.plan.tune_until + 2 * len(chains.starts) if self.tried else 0
        return n + follows <= chains.left()

    def _elsewhere(self):
        n, rows = len(self.chains.starts), self.chains.rng.permutation(self.chains.elsewhere)
        return [list(rows[k : k + n]) for k in range(0, min(6 * n, len(rows) - n + 1), n)]

    def next(self):
        """A climb, or learning at once."""
        chains, best, n = self.chains, int(np.argmax(self.values)), len(self.chains.starts)
        if self.points[0] is not chains.initial:
            chains.starts = np.array(self.points)
        elif not self.climbs:
            chains.starts, self.values = np.tile(chains.initial, (n, 1)), [self.values[0]] * n
        if self.climbs:
            chains.initial = self.points[best]
            return Climb(chains, self.values[best])
        chosen = [k if v > -np.inf else best for k, v in enumerate(self.values)]
        factor = np.diag(np.broadcast_to(0.1 * np.asarray(chains.scale), chains.initial.shape))
        return learned_together(chains, [Point(chains.starts[k], self.values[k]) for k in chosen], factor)


class Warm:
    """Begin at points that are known, and see whether they are of this log density."""

    name = "start"

    def __init__(self, chains: Any, known: Evaluations):
        self.chains, self.known, self.done = chains, known, False
        known_points.check_finite(known)
        n = max(len(chains.starts), known_points.CHECKED)
        d = len(chains.initial)
        self.rows = known_points.rows_like_draws(chains.rng, known.log_densities, d, n)

    def ask(self):
        """Some of them."""
        n = len(self.chains.starts)
        return [Request(self.known.positions[row], k if k < n else -1, "start") for k, row in enumerate(self.rows)]

    def tell(self, values):
        """Bring what is known to this log density's constant."""
        self.done = True
        self.values = np.array(values)
        if self.chains.plan.climb:  # values can be compared
            self.known = known_points.shifted(self.known, self.rows, self.values)

    def next(self):
        """Learn, from what is known too."""
        chains, finite = self.chains, np.flatnonzero(np.isfinite(self.values))
        if not len(finite):
            raise ValueError("no log density is finite at the evaluations given.")
        n = len(chains.starts)
        chosen = [k if k in finite else finite[k % len(finite)] for k in range(n)]
        begun = [Point(self.known.positions[row], float(y)) for row, y in zip(self.rows, self.values, strict=True)]
        begun = chains.enclose(begun)
        starts, spread = [begun[k] for k in chosen], np.std([p.position for p in begun], axis=0)
        if chains.window is not None:
            self.known = chains.window.evaluated(self.known)
        factor = np.diag(np.where(spread > 0.0, spread, np.asarray(chains.scale)))
        # where outputs are learned from, log densities alone say where to begin and no more
        learns = self.known.outputs.shape == (self.known.size, chains.evaluated.outputs.shape[1])
        return learned_together(chains, starts, factor, self.known if learns else None)


class Climb:
    """Come to the typical set, every chain by a climb of its own where that is affordable."""

    name = "climb"

    def __init__(self, chains: Any, value: float):
        self.chains = chains
        n, share = len(chains.starts), int(0.8 * chains.plan.looking)  # before only a few go on
        each = 2 * len(chains.initial) + 4  # what a short one takes
        climbs = min(n, max(pooled_climbs.FEW, share // each))
        self.group = [k * climbs // n for k in range(n)]
        self.leaders = [self.group.index(g) for g in range(climbs)]
        self.rngs = [chains.rngs[k] for k in self.leaders]
        self.state = pooled_climbs.init(
            chains.initial, value, chains.starts[self.leaders], scale=chains.scale,
            budget=int(0.5 * chains.plan.tune_until), share=share,
            width=len(self.group) // len(self.leaders),
        )  # fmt: skip

    @property
    def done(self):
        """Whether none goes on."""
        return not self.state.active

    def ask(self):
        """The next points of all climbs."""
        self.points = pooled_climbs.propose(self.rngs, self.state)
        leaders = [self.leaders[g] for g in self.state.active]
        return [
            Request(x, k, "arrival")  # those of a group stand side by side
            for points, leader in zip(self.points, leaders, strict=True)
            for k, x in enumerate(points, leader)
        ]

    def tell(self, values):
        """The climbs go on; a chain stands where the one of its group is."""
        self.state = pooled_climbs.tell(self.rngs, self.state, self.points, values)
        climbs = [self.state.climbs[g] for g in self.group]
        standing = [Point(c.positions[c.current], c.log_densities[c.current]) for c in climbs]
        self.chains.warmup.append(Row(*stacked(standing), [{}] * len(standing)))

    def next(self) -> Learn:
        """Learn, every chain from a point of the climb of its group."""
        chains, state = self.chains, pooled_climbs.stop(self.state)
        groups = pooled_climbs.groups(state)
        chains.climbs, chains.leaders = self.state, self.leaders
        starts = []
        for rng, g in zip(chains.rngs, self.group, strict=True):
            positions, values = groups[g]
            k = int(rng.integers(len(values)))
            starts.append(Point(positions[k], float(values[k])))
        factor, starts = pooled_climbs.factor(state), chains.enclose(starts)
        chains.groups = _side_by_side(np.array([p.position for p in starts]), factor)
        return learned_together(chains, starts, factor)


def _side_by_side(positions, factor):
    """Quarters of the chains along the direction in which they stand farthest apart: modes are in different ones."""
    z = np.linalg.solve(factor, (positions - positions.mean(axis=0)).T).T
    order = np.argsort(z @ np.linalg.svd(z)[2][0], kind="stable")
    groups = np.empty(len(z), dtype=int)
    groups[order] = np.arange(len(z)) * min(4, len(z)) // len(z)
    return groups.tolist()
