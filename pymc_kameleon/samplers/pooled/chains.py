"""Chains that learn together, from their starts to their draws: ask for points, tell their log densities.

    chains = Chains(...)
    while not chains.done:
        chains.tell([log_density(request.position) for request in chains.ask()])

Whoever holds that loop decides how the points of a round are evaluated; nothing here knows. A run is a function of its
seed, its options and the log densities told: told the same again it does the same again, which is how an interrupted
run is resumed.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers import known_points
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.pooled import audits, drawing, looks, probes
from pymc_kameleon.samplers.pooled import climbs as pooled_climbs
from pymc_kameleon.samplers.pooled.climbs import Climbs
from pymc_kameleon.samplers.pooled.drawing import Drawing, Request, Row
from pymc_kameleon.samplers.pooled.looks import Looks
from pymc_kameleon.samplers.pooled.plan import CLIMBING, Plan
from pymc_kameleon.samplers.pooled.tuning import Tuning

GROUPS = 4  # of chains that began side by side, for R-hat
CLIMB_SHARE = 0.5  # of the evaluations for tuning, at most


class Chains:
    """Chains that share a surrogate.

    Parameters
    ----------
    initial : ndarray of shape (d,)
        The model's initial point. Where the log density is not finite there, that is looked for among ``starts``.
    starts : ndarray of shape (chains, d)
        Over-dispersed.
    seed : numpy.random.SeedSequence
    plan : Plan
    scale : float or ndarray of shape (d,)
        Rough size of each coordinate.
    known : Evaluations, optional
        Points whose log density is known up to a constant, from an earlier run: the chains begin at some of them,
        which are evaluated again, and nothing climbs. ``starts`` then only says how many chains there are.
    apply : callable
        ``map``, or one that computes the members' proposals side by side, in order, such as a thread pool's.
    options
        Of :class:`pymc_kameleon.samplers.kamiltonian.values.sampler.ValueKamiltonian`.
    """

    def __init__(
        self, initial, starts, seed, plan: Plan, *, scale=1.0, known=None, apply=map, **options
    ):
        children = seed.spawn(len(starts) + 1)
        self.rng, *self.rngs = [np.random.default_rng(child) for child in children]
        self.initial, self.starts = np.array(initial, dtype=float), np.array(starts, dtype=float)
        self.plan, self.scale, self.apply, self.options = plan, scale, apply, options
        self.evaluated = evaluations.empty(len(self.initial))
        self.rounds = 0
        self.warmup: list[Row] = []
        self.rows: list[Row] = []
        self.hub: Any = None
        self.members: list = []
        self.free: audits.Free | None = None  # draws of the surrogate, where audits are planned
        self.stopped = ""  # why there are fewer draws than planned
        self.nonfinite = 0
        self.failed = 0  # of those, NaN or +inf: no density of zero, which -inf is ...
        self.failed_at: tuple | None = None  # ... and the last of them: point, value
        self.climbs: Climbs | None = None  # where they ended ...
        self.leaders: list[int] = []  # ... and which chains made them
        self.looks = Looks([], [], 0)
        self.groups = list(range(len(self.starts)))  # of every chain: who begins side by side
        self._phase: Any = _Start(self) if known is None else _Warm(self, known)
        self._asked: list[Request] = []

    @property
    def phase(self) -> str:
        """What is going on."""
        return self._phase.name

    @property
    def done(self) -> bool:
        """Whether nothing is left to evaluate."""
        return self._phase.done

    @property
    def draws(self) -> bool:
        """Whether everything is frozen and the chains draw."""
        return isinstance(self._phase, _Draw)

    @property
    def nowhere(self) -> bool:
        """Whether the log density is finite at no point to begin at: nothing can follow."""
        return getattr(self._phase, "nowhere", False)

    def ask(self) -> list[Request]:
        """The points of the next round; none where every chain could make its draw without."""
        self._asked = self._phase.ask()
        return self._asked

    def ahead(self, is_over: Callable[[], bool]) -> None:
        """Compute what comes next while what ``ask`` returned is evaluated elsewhere, until that ``is_over``.

        Changes no bit of the run: tuning adapts to what is found, and only the frozen chains of one mode can guess.
        """
        compute = getattr(getattr(self._phase, "drawing", None), "ahead", None)
        if compute is not None:
            compute(is_over)

    def tell(self, values) -> None:
        """Take the log densities of what ``ask`` returned, in its order; anything that is not finite is -inf."""
        self._count_failures(values)
        values = [float(v) if math.isfinite(v) else -math.inf for v in values]
        self.nonfinite += values.count(-math.inf)
        self._record(values)
        phase = self._phase
        phase.tell(values)
        made = self.rows or self.warmup
        if made and not made[-1].evaluations:
            made[-1] = made[-1]._replace(evaluations=self.evaluated.size)
        while phase.done and phase.next is not None:
            phase = self._phase = phase.next()

    def _count_failures(self, values):
        failed = [k for k, v in enumerate(values) if not v < math.inf]  # NaN fails, too
        self.failed += len(failed)
        if failed:
            self.failed_at = self._asked[failed[-1]].position, float(values[failed[-1]])

    def _record(self, values):
        if not values:
            return
        made = evaluations.table(
            np.array([r.position for r in self._asked]),
            values,
            [r.member for r in self._asked],
            self.rounds,
            [r.move for r in self._asked],
        )
        self.evaluated = evaluations.merge([self.evaluated, made])
        self.rounds += 1

    def left(self) -> float:
        """Evaluations that may still be made."""
        most = self.plan.max_evaluations
        return math.inf if most is None else most - self.evaluated.size


class _Start:
    """Evaluate the initial point; without climbs, or if the log density is not finite there, the starts."""

    name = "start"

    def __init__(self, chains: Chains):
        self.chains, self.done, self.nowhere = chains, False, False
        self.points = [chains.initial] if chains.plan.climb else list(chains.starts)

    def ask(self):
        several = len(self.points) > 1
        return [Request(x, k if several else -1, "start") for k, x in enumerate(self.points)]

    def tell(self, values):
        self.values, self.done = values, max(values) > -math.inf
        if not self.done:
            self.nowhere = self.points[0] is not self.chains.initial
            self.points = list(self.chains.starts)

    def next(self):
        chains, best = self.chains, int(np.argmax(self.values))
        if chains.plan.climb:
            chains.initial = self.points[best]
            return _Climb(chains, self.values[best])
        chosen = [k if v > -math.inf else best for k, v in enumerate(self.values)]
        factor = np.diag(np.broadcast_to(0.1 * np.asarray(chains.scale), chains.initial.shape))
        return _Tune(chains, [(chains.starts[k], self.values[k]) for k in chosen], factor)


class _Warm:
    """Begin at points that are known, and see whether they are of this log density."""

    name = "start"

    def __init__(self, chains: Chains, known: Evaluations):
        self.chains, self.done = chains, False
        values = known.log_densities
        known_points.check_finite(known)
        n = max(len(chains.starts), known_points.CHECKED)
        self.rows = known_points.rows_like_draws(chains.rng, values, len(chains.initial), n)
        self.known = known

    def ask(self):
        n = len(self.chains.starts)
        return [
            Request(self.known.positions[row], k if k < n else -1, "start")
            for k, row in enumerate(self.rows)
        ]

    def tell(self, values):
        self.done = True
        self.values = np.array(values)
        if self.chains.plan.climb:  # values can be compared
            self.known = known_points.shifted(self.known, self.rows, self.values)

    def next(self):
        chains, finite = self.chains, np.flatnonzero(np.isfinite(self.values))
        if not len(finite):
            raise ValueError("no log density is finite at the evaluations given.")
        n = len(chains.starts)
        chosen = [k if k in finite else finite[k % len(finite)] for k in range(n)]
        starts = [(self.known.positions[self.rows[k]], float(self.values[k])) for k in chosen]
        spread = np.std(self.known.positions[self.rows], axis=0)
        factor = np.diag(np.where(spread > 0.0, spread, np.asarray(chains.scale)))
        return _Tune(chains, starts, factor, self.known)


class _Climb:
    """Come to the typical set, every chain by a climb of its own where that is affordable."""

    name = "climb"

    def __init__(self, chains: Chains, value: float):
        self.chains = chains
        n, share = len(chains.starts), int(CLIMBING * chains.plan.looking)
        each = 2 * len(chains.initial) + 4  # what a short one takes
        climbs = min(n, max(pooled_climbs.FEW, share // each))
        self.group = [k * climbs // n for k in range(n)]
        self.leaders = [self.group.index(g) for g in range(climbs)]
        self.rngs = [chains.rngs[k] for k in self.leaders]
        self.state = pooled_climbs.init(
            chains.initial,
            value,
            chains.starts[self.leaders],
            scale=chains.scale,
            budget=int(CLIMB_SHARE * chains.plan.tune_until),
            share=share,
            width=len(self.group) // len(self.leaders),
        )

    @property
    def done(self):
        return not self.state.active

    def ask(self):
        self.points = pooled_climbs.propose(self.rngs, self.state)
        leaders = [self.leaders[g] for g in self.state.active]
        return [
            Request(x, k, "arrival")  # those of a group stand side by side
            for points, leader in zip(self.points, leaders, strict=True)
            for k, x in enumerate(points, leader)
        ]

    def tell(self, values):
        self.state = pooled_climbs.tell(self.rngs, self.state, self.points, values)
        standing = [c.positions[c.current] for c in self.state.climbs]
        heights = [c.log_densities[c.current] for c in self.state.climbs]
        self.chains.warmup.append(
            Row(
                np.array(standing)[self.group],
                np.array(heights)[self.group],
                [{}] * len(self.group),
            )
        )

    def next(self):
        chains, state = self.chains, pooled_climbs.stop(self.state)
        groups = pooled_climbs.groups(state)
        chains.climbs, chains.leaders = self.state, self.leaders
        starts = []
        for rng, g in zip(chains.rngs, self.group, strict=True):
            row = int(rng.integers(len(groups[g].log_densities)))
            starts.append((groups[g].positions[row], float(groups[g].log_densities[row])))
        factor = pooled_climbs.factor(state)
        chains.groups = _side_by_side(np.array([x for x, _ in starts]), factor)
        return _Tune(chains, starts, factor)


def _side_by_side(positions, factor):
    """Quarters of the chains along the direction in which they stand farthest apart: modes are in different ones."""
    z = np.linalg.solve(factor, (positions - positions.mean(axis=0)).T).T
    order = np.argsort(z @ np.linalg.svd(z)[2][0], kind="stable")
    groups = np.empty(len(z), dtype=int)
    groups[order] = np.arange(len(z)) * min(GROUPS, len(z)) // len(z)
    return groups.tolist()


class _Tune:
    """Learn together."""

    name = "tune"

    def __init__(self, chains: Chains, starts, factor, before: Evaluations | None = None):
        self.chains = chains
        known, base = chains.evaluated, 0
        if before is not None:
            known, base = evaluations.merge([before, known]), before.size
        self.tuning = Tuning(
            chains.rng, chains.rngs, starts, known, factor, base=base,
            limit=base + chains.plan.tune_until, latest=base + chains.plan.learn_until,
            most=base + chains.plan.at_most, wait=chains.plan.tune is not None, apply=chains.apply,
            **chains.options,
        )  # fmt: skip

    @property
    def done(self):
        return self.tuning.done

    def ask(self):
        return self.tuning.ask()

    def tell(self, values):
        tuning, chains = self.tuning, self.chains
        tuning.tell(values)
        chains.hub, chains.members = tuning.hub, tuning.members
        chains.warmup.append(drawing.row(tuning.hub, tuning.members, tuning.last))

    def next(self):
        chains = self.chains
        chains.hub, chains.members = self.tuning.freeze()
        return _Draw(chains, Drawing(chains.hub, chains.members, chains.apply))


class _Draw:
    """Draw: nothing adapts. Every round is one draw of every chain; with some of them go probes and audits."""

    name = "draw"
    next = None

    def __init__(self, chains: Chains, drawing: Any):
        self.chains, self.drawing = chains, drawing
        self.probed = self.audited = 0
        # Generators that are spawned leave their parent's stream as it is.
        chains.looks = _looks(chains)
        wanted = chains.plan.audits and drawing.hubs[0].mixture is not None
        chains.free = audits.Free(chains.rng.spawn(1)[0], drawing.hubs[0]) if wanted else None

    @property
    def done(self):
        chains, drawing = self.chains, self.drawing
        if chains.stopped:
            return True
        if chains.plan.draws is not None and len(drawing.rows) >= chains.plan.draws:
            return True
        # All or none: did the last round depend on how many chains need an evaluation, it would be a choice.
        return chains.left() < len(drawing.members)

    def ask(self):
        beside = self._probes() + self._audits()
        left = self.chains.left() - len(self.drawing.members)
        beside = beside[: int(min(left, len(beside)))]
        looks = self.chains.looks.ask(self.drawing.rows, left - len(beside))
        self.beside, self.looks = len(beside), len(looks)
        return self.drawing.ask() + beside + [Request(x, -1, "look") for x in looks]

    def _probes(self):
        drawing, hubs = self.drawing, self.drawing.hubs
        if any(hub.mixture is None for hub in hubs):
            return []
        found = []
        for _ in range(probes.due(len(drawing.rows), len(drawing.members))):
            turn, which = divmod(self.probed, len(hubs))
            found.append(probes.propose(self.chains.rng, hubs[which], turn))
            self.probed += 1
        return [Request(p.position, -1, p.move) for p in found]

    def _audits(self):
        if self.chains.free is None:
            return []
        drawing, all_of_them = self.drawing, self.chains.free.audits
        n = audits.due(len(drawing.rows), len(drawing.members), len(all_of_them))
        first, self.audited = self.audited, self.audited + n
        return [Request(x, -1, "audit") for x in all_of_them[first : self.audited]]

    def tell(self, values):
        drawn = len(values) - self.looks
        self.drawing.tell(values[: drawn - self.beside])
        self.chains.looks.tell(values[drawn:])
        self.chains.members, self.chains.rows = self.drawing.members, self.drawing.rows


def _looks(chains):
    """At the ends of the climbs, and at starts of chains that made none."""
    made = chains.climbs
    if made is None:
        return chains.looks
    kinds = chains.evaluated.move
    spent = int(np.isin(kinds, ("arrival", "between")).sum())
    first = made.climbs[0]
    more = [
        arrival.init(first.positions[0], float(first.log_densities[0]), scale=chains.scale, start=x)
        for k, x in enumerate(chains.starts)
        if k not in chains.leaders
    ]
    everyone = [*made.climbs, *more]
    left = max(chains.plan.looking - spent, len(made.climbs))  # whether an end is met takes one
    return Looks(chains.rng.spawn(len(everyone)), everyone, left)


def probed(chains: Any) -> probes.Found:
    """What the probes beside the draws have found."""
    if not isinstance(chains, Chains):  # each pool's probes are of its own surrogate
        return chains.probed()
    rows, evaluated = chains.evaluated.move == "probe", chains.evaluated
    drawn = np.array([row.log_densities for row in chains.rows])
    return probes.judge(chains.hub, evaluated.positions[rows], evaluated.log_densities[rows], drawn)


def sought(chains: Any) -> looks.Found:
    """Whether the draws reach where the climbs ended."""
    return chains.looks.found(chains.rows) if isinstance(chains, Chains) else chains.sought()


def log_ratios(chains: Chains) -> dict[str, np.ndarray]:
    """How far the frozen surrogate lies above the log density, less its typical value, at the draws and the audits.

    Whatever was evaluated in C, by whom and when, and found outside the posterior's support stands among the audits, as
    ``inf``: of mass of exp(f) that the posterior has not, a hundred audits see 1 % in two runs of three.
    """
    free, evaluated = chains.free, chains.evaluated
    assert free is not None
    rows = (evaluated.move == "audit") | np.isneginf(evaluated.log_densities)
    drawn = [free.log_ratios(row.positions, row.log_densities) for row in chains.rows]
    found = free.log_ratios(evaluated.positions[rows], evaluated.log_densities[rows])
    return {"draws": np.array(drawn).T, "audits": found[found > -math.inf]}


def posterior(chains: Any) -> np.ndarray:
    """The draws after tuning, shape (chains, draws, d)."""
    if not chains.rows:
        return np.zeros((len(chains.starts), 0, len(chains.initial)))
    return np.stack([row.positions for row in chains.rows], axis=1)
