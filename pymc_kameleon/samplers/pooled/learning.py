"""The tuning phase of chains together: one :mod:`.tuning`, or one a mode where they find themselves in several modes.

All of them tune together until a second mode is confirmed (:mod:`pymc_kameleon.samplers.modes.detection`). From there
on the chains of each mode tune together and apart from the others, with what was evaluated there, and may part again.
When tuning ends, the modes' surrogates make one frozen kernel, with jumps
(:mod:`pymc_kameleon.samplers.modes.sampler`), by which all chains draw. A mode that no start has reached stays unknown.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.modes import detection, saddle
from pymc_kameleon.samplers.modes import sampler as across
from pymc_kameleon.samplers.modes.catalogue import catalogue_of
from pymc_kameleon.samplers.modes.detection import Cut
from pymc_kameleon.samplers.pooled import climbs as pooled_climbs
from pymc_kameleon.samplers.pooled.drawing import Drawing, Frozen, Request, Row, stacked
from pymc_kameleon.samplers.pooled.production import Production
from pymc_kameleon.samplers.pooled.tuning import Tuning
from pymc_kameleon.samplers.seam import Point, Sampler

ROUNDS = 8  # of tuning, before which the chains have not moved enough to be told apart
LATEST = 0.6  # of the evaluations for tuning: after it there are not enough left to learn a mode
SEEN = 2  # rounds in a row that a suspicion lasts, with the same chains on the same sides, before it is looked into


class Part(NamedTuple):
    """Chains that learn together."""

    tuning: Tuning
    chains: list[int]  # their numbers
    cuts: tuple[tuple[Cut, int], ...] = ()  # what parts them from all others, and on which side they are


class Learn:
    """Tune: all chains together, or mode by mode."""

    name = "tune"

    def __init__(self, chains: Any, parts: list[Part]):
        self.chains, self.parts = chains, parts
        chains.modes = len(parts)
        self._show()

    @property
    def done(self):
        """Whether every part has, or nothing is left."""
        tuning = [p for p in self.parts if not p.tuning.done]
        return not tuning or self.chains.left() < sum(len(p.chains) for p in tuning)

    def ask(self):
        """The next round of every part that still tunes."""
        self.waiting = [p.tuning.done for p in self.parts]
        self.asked = [[] if p.tuning.done else p.tuning.ask() for p in self.parts]
        return [
            request._replace(member=part.chains[request.member])
            for part, asked in zip(self.parts, self.asked, strict=True)
            for request in asked
        ]

    def tell(self, values):
        """Each part learns from its own."""
        outputs = self.chains.evaluated.outputs[self.chains.evaluated.size - len(values) :]
        told = zip(values, outputs, strict=True)
        for part, asked, waits in zip(self.parts, self.asked, self.waiting, strict=True):
            if not waits:
                part.tuning.tell([Point(r.position, v, None, o) for r, (v, o) in zip(asked, told, strict=False)])
        self._show()
        rows = [p.tuning.row(w) for p, w in zip(self.parts, self.waiting, strict=True)]
        columns = zip(*(row[:3] for row in rows), strict=True)
        x, y, statistics = (self._in_order(column) for column in columns)
        self.chains.warmup.append(Row(np.array(x), np.array(y), statistics))

    def _show(self):
        hubs = [p.tuning.hub for p in self.parts]
        self.chains.hub = max(hubs, key=lambda hub: np.inf if hub.fit is None else hub.fit.error)
        self.chains.members = self._in_order([p.tuning.members for p in self.parts])

    def _in_order(self, of_parts):
        """What belongs to the members of every part, in the order of the chains."""
        found: dict[int, Any] = {}
        for part, values in zip(self.parts, of_parts, strict=True):
            found.update(zip(part.chains, values, strict=True))
        return [found[k] for k in sorted(found)]

    def next(self) -> Production:
        """Freeze everything, and draw."""
        chains = self.chains
        hubs, parts = zip(*(p.tuning.freeze() for p in self.parts), strict=True)
        members = self._in_order(parts)
        sampler: Sampler = chains.learner.sampler
        chains.hub = max(hubs, key=lambda hub: hub.quality.residual_sd)
        if len(hubs) > 1:
            chains.plan = chains.plan._replace(audits=0)  # those are of one surrogate
            found, sampler = catalogue_of(chains.rng, hubs), across.SAMPLER
            members = [Frozen(m.rng, m.point, across.frozen(found, hubs, m.point)) for m in members]
        chains.members = members
        surrogates = tuple(chains.learner.surrogate(hub) for hub in hubs)
        return Production(chains, Drawing(sampler, members, surrogates, chains.apply))


def learned_together(chains, starts, factor, before: Evaluations | None = None) -> Learn:
    """All chains, from ``starts``, points; ``before`` is what an earlier run has evaluated."""
    plan, known, base = chains.plan, chains.evaluated, 0
    if before is not None:
        known, base = evaluations.merge([before, known]), before.size
    tuning = Tuning(
        chains.learner, chains.rng, chains.rngs, starts, known, factor, base=base, limit=base + plan.tune_until,
        latest=base + plan.learn_until, most=base + plan.at_most,
        earliest=plan.earliest if chains.learner.far_is_rare else 0, wait=plan.tune is not None,
        apply=chains.apply,
    )  # fmt: skip
    return Learn(chains, [Part(tuning, list(range(len(starts))))])


# --- whether they stand in two modes ---------------------------------------------------------------


class Suspicions:
    """When to look whether one of the parts should part; ``look`` after every round of tuning."""

    def __init__(self):
        self.refused = 0
        self._wait = ROUNDS  # rounds of tuning until the next look
        self._seen: dict[int, tuple[bytes, int]] = {}  # of every part: its sides, how often in a row
        self._compared: list[list[int]] = []  # the chains of parts whose ends were

    def settle(self, confirmed: bool) -> None:
        """One has been looked into."""
        self.refused += not confirmed
        self._wait = ROUNDS if confirmed else 4  # another cut may be right

    def look(self, chains: Any, phase: Any) -> Any:
        """The phase that follows a round of ``phase``: itself, or a check."""
        if not isinstance(phase, Learn) or self.refused >= 3 or not chains.learner.modes:
            return phase
        self._wait -= 1
        if chains.evaluated.size >= LATEST * chains.plan.tune_until:
            return phase
        for number, part in enumerate(phase.parts):
            cut = self._cut_of_ends(part, chains.climbs)
            if cut is None and self._wait < 0:
                cut = _suspicion(part)
                cut = cut if self._lasts(number, part, cut) else None
            if cut is not None:
                self._seen = {}
                return Check(phase, self, number, cut)
        return phase

    def _cut_of_ends(self, part, climbs):
        """Between the ends of climbs in ``part`` that are farthest apart: looked into once, and at once.

        Waiting for signs of trouble, the chains of one of two modes have left it before there are any.
        """
        if climbs is None or part.chains in self._compared:
            return None
        self._compared.append(part.chains)
        state = pooled_climbs.stop(climbs)
        ends, values = pooled_climbs.ends(state)
        inside = np.array([all(c.sides(x[None])[0] == s for c, s in part.cuts) for x in ends])
        cut = detection.cut_of_ends(ends[inside], values[inside], pooled_climbs.factor(state))
        if cut is None or len(part.chains) < 4 * detection.MEMBERS:
            return None
        both = np.bincount(cut.sides(_standing(part.tuning)[0]), minlength=2).min() > 0
        return cut if both else None

    def _lasts(self, number, part, cut):
        """Whether it is suspected so often in a row."""
        if cut is None:
            self._seen.pop(number, None)
            return False
        sides = cut.sides(_standing(part.tuning)[0])
        partition = (sides == sides[0]).tobytes()
        before, count = self._seen.get(number, (partition, 0))
        count = count + 1 if before == partition else 1
        self._seen[number] = partition, count
        return count >= SEEN


def _standing(tuning):
    """Where the members are, (n, d), and their log densities, (n,)."""
    return stacked([m.point for m in tuning.members])


def _suspicion(part):
    hub, past = part.tuning.hub, part.tuning.hub.walk.history
    if part.tuning.done or hub.fit is None or not hub.fit.error > detection.BAD:
        return None
    cut = detection.best_cut(past.buffer[past.size // 2 : past.size])
    return cut if detection.is_suspected(cut, hub.fit.error, _standing(part.tuning)[0]) else None


class Check:
    """A round of evaluations between two suspected modes, and a climb on the plane between them."""

    name = "tune"

    def __init__(self, before: Learn, suspicions: Suspicions, number: int, cut: Cut):
        self.before, self.suspicions, self.number, self.cut = before, suspicions, number, cut
        self.tuning = before.parts[number].tuning
        self.rng = before.chains.rng.spawn(1)[0]
        self.search: saddle.Search | None = None
        self.done = self.confirmed = False

    def ask(self):
        """Points on the line, then in the plane."""
        if self.search is None:
            known = self.tuning.hub.learning.evaluated
            self.points = detection.between(self.cut, known.positions, known.log_densities)
            return [Request(x, -1, "between") for x in self.points]
        self.points = saddle.propose(self.rng, self.search, (len(self.search.origin) + 1) // 2)
        where = saddle.positions(self.search, self.points)
        return [Request(x, -1, "between") for x in where]

    def tell(self, values):
        """They are paid for by the tuning that they interrupt."""
        tuning = self.tuning
        if tuning.ends_at == tuning.limit:
            tuning.ends_at -= len(values)
        tuning.limit -= len(values)
        known = tuning.hub.learning.evaluated
        if self.search is None:
            draw = detection.plausible(self.cut, known.positions, known.log_densities)
            self.confirmed = min(values) < draw - detection.DEEP
            finite = [(y, k) for k, y in enumerate(values) if y > -np.inf]
            if self.confirmed and finite:
                y, lowest = min(finite)
                self.search = saddle.begin(self.cut, self.points[lowest], y, draw - detection.CLEFT)
        else:
            self.search = saddle.tell(self.rng, self.search, self.points, values)
            self.confirmed = not self.search.connected
        self.done = self.search is None or self.search.done
        if self.done:
            self.suspicions.settle(self.confirmed)

    def next(self) -> Learn:
        """Go on as before, or in one part more."""
        if not self.confirmed:
            return self.before
        number, parts, chains = self.number, self.before.parts, self.before.chains
        halves = _parted(chains, parts[number], self.cut)
        return Learn(chains, [*parts[:number], *halves, *parts[number + 1 :]])


def _parted(chains, whole, cut):
    """Two parts of one: members, what is evaluated and what is left to evaluate."""
    tuning = whole.tuning
    known, left = tuning.hub.learning.evaluated, max(tuning.limit - tuning.evaluations, 0)
    positions, values = _standing(tuning)
    sides, of_points = cut.sides(positions), cut.sides(known.positions)
    columns = (known.positions, known.log_densities, known.chain, known.round, known.move)
    found = []
    for side, group in enumerate(_groups(sides)):
        own = np.flatnonzero(sides == side)
        stands = [k if sides[k] == side else own[k % len(own)] for k in group]
        there = of_points == side
        part = Tuning(
            chains.learner, chains.rng.spawn(1)[0], [tuning.members[k].rng for k in group],
            [Point(positions[k], float(values[k])) for k in stands],
            evaluations.table(*(column[there] for column in columns)), cut.factor,
            limit=int(there.sum()) + left * len(group) // len(sides), wait=tuning.wait,
            apply=chains.apply,
        )  # fmt: skip
        found.append(Part(part, [whole.chains[k] for k in group], (*whole.cuts, (cut, side))))
    return found


def _groups(sides):
    """Members of either side; as many of the larger go over as it takes for a quarter of all to be in both."""
    groups = [list(np.flatnonzero(sides == k)) for k in (0, 1)]
    few, many = sorted(groups, key=len)
    while len(few) < len(sides) // 4:
        few.append(many.pop())
    return [sorted(g) for g in groups]
