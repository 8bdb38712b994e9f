"""The tuning phase of chains together: one :mod:`.tuning`, or one a mode where they find themselves in several modes.

All of them tune together until a second mode is confirmed (:mod:`pymc_kameleon.samplers.modes.detection`). From there
on the chains of each mode tune together and apart from the others, with what was evaluated there, and may part again.
When tuning ends, the modes' surrogates make one frozen kernel, with jumps
(:mod:`pymc_kameleon.samplers.modes.sampler`), by which all chains draw. A mode that no start has reached stays unknown.
"""

from typing import Any

import numpy as np

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.modes import detection, saddle
from pymc_kameleon.samplers.modes import sampler as across
from pymc_kameleon.samplers.modes.catalogue import catalogue_of
from pymc_kameleon.samplers.modes.detection import Cut
from pymc_kameleon.samplers.pooled import climbs as pooled_climbs
from pymc_kameleon.samplers.pooled.drawing import Drawing, Frozen, Request, Row
from pymc_kameleon.samplers.pooled.production import Production
from pymc_kameleon.samplers.pooled.tuning import Tuning
from pymc_kameleon.samplers.seam import Point, Sampler

ROUNDS = 8  # of tuning, before which the chains have not moved enough to be told apart
LATEST = 0.6  # of the evaluations for tuning: after it there are not enough left to learn a mode
SEEN = 2  # rounds in a row that a suspicion lasts, with the same chains on the same sides, before it is looked into


class Learn:
    """Tune: all chains together, or mode by mode; between two rounds, look whether those of one part are in two."""

    name = "tune"

    def __init__(self, chains: Any, together: Tuning):
        self.chains = chains
        self.check: Check | None = None  # that is under way
        self._wait = ROUNDS  # rounds of tuning until the next look
        self._seen: dict[int, tuple[bytes, int]] = {}  # of every part: its sides, how often in a row
        self._compared: list[Tuning] = []  # parts whose ends were
        self._divide([together])
        self._look()

    def _divide(self, parts):
        self.parts: list[Tuning] = parts
        self.chains.modes = len(parts)
        self._show()

    @property
    def done(self):
        """Whether every part has, or nothing is left."""
        tuning = [p for p in self.parts if not p.done]
        return self.check is None and (not tuning or self.chains.left() < sum(len(p.members) for p in tuning))

    def ask(self):
        """The next round of every part that still tunes; or the check's."""
        if self.check is not None:
            return self.check.ask()
        self.asked = [None if p.done else p.ask() for p in self.parts]
        return [request for asked in self.asked for request in asked or []]

    def tell(self, values):
        """Each part learns from its own."""
        if self.check is not None:
            self.check.tell(values)
            if not self.check.done:
                return
            self._settle(self.check)
        else:
            self._learn(values)
        self._look()

    def _learn(self, values):
        outputs = self.chains.evaluated.outputs[self.chains.evaluated.size - len(values) :]
        told = zip(values, outputs, strict=True)
        for part, asked in zip(self.parts, self.asked, strict=True):
            if asked is not None:
                part.tell([Point(r.position, v, None, o) for r, (v, o) in zip(asked, told, strict=False)])
        self._show()
        rows = [p.row(waits=asked is None) for p, asked in zip(self.parts, self.asked, strict=True)]
        columns = zip(*(row[:3] for row in rows), strict=True)
        x, y, statistics = (self._in_order(column) for column in columns)
        self.chains.warmup.append(Row(np.array(x), np.array(y), statistics))

    def _show(self):
        self.chains.hub = max((p.hub for p in self.parts), key=lambda hub: np.inf if hub.fit is None else hub.fit.error)
        self.chains.members = self._in_order([p.members for p in self.parts])

    def _in_order(self, of_parts):
        """What belongs to the members of every part, in the order of the chains."""
        found: dict[int, Any] = {}
        for part, values in zip(self.parts, of_parts, strict=True):
            found.update(zip(part.numbers, values, strict=True))
        return [found[k] for k in sorted(found)]

    def next(self) -> Production:
        """Freeze everything, and draw."""
        chains = self.chains
        hubs, parts = zip(*(p.freeze() for p in self.parts), strict=True)
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

    # --- whether they stand in two modes -----------------------------------------------------------

    def _look(self):
        """Whether one of the parts may have to part."""
        chains = self.chains
        if self.done or not chains.plan.climb or chains.refused >= 3 or not chains.learner.modes:
            return
        self._wait -= 1
        if chains.evaluated.size >= LATEST * chains.plan.tune_until:
            return
        for number, part in enumerate(self.parts):
            cut = self._cut_of_ends(part)
            if cut is None and self._wait < 0:
                cut = _suspicion(part)
                cut = cut if self._lasts(number, part, cut) else None
            if cut is not None:
                self._seen = {}
                self.check = Check(part, cut, chains.rng.spawn(1)[0])
                return

    def _cut_of_ends(self, part):
        """Between the ends of climbs in ``part`` that are farthest apart: looked into once, and at once.

        Waiting for signs of trouble, the chains of one of two modes have left it before there are any.
        """
        climbs = self.chains.climbs
        if climbs is None or part in self._compared:
            return None
        self._compared.append(part)
        state = pooled_climbs.stop(climbs)
        ends, values = pooled_climbs.ends(state)
        inside = np.array([all(c.sides(x[None])[0] == s for c, s in part.cuts) for x in ends])
        cut = detection.cut_of_ends(ends[inside], values[inside], pooled_climbs.factor(state))
        if cut is None or len(part.members) < 4 * detection.MEMBERS:
            return None
        both = np.bincount(cut.sides(part.standing[0]), minlength=2).min() > 0
        return cut if both else None

    def _lasts(self, number, part, cut):
        """Whether it is suspected so often in a row."""
        if cut is None:
            self._seen.pop(number, None)
            return False
        sides = cut.sides(part.standing[0])
        partition = (sides == sides[0]).tobytes()
        before, count = self._seen.get(number, (partition, 0))
        count = count + 1 if before == partition else 1
        self._seen[number] = partition, count
        return count >= SEEN

    def _settle(self, check):
        """Go on as before, or in one part more."""
        self.check = None
        self.chains.refused += not check.confirmed
        self._wait = ROUNDS if check.confirmed else 4  # another cut may be right
        if check.confirmed:
            k = self.parts.index(check.part)
            self._divide([*self.parts[:k], *_halves(check.part, check.cut, self.chains.rng), *self.parts[k + 1 :]])


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
    return Learn(chains, tuning)


def _suspicion(part):
    past, fit = part.hub.walk.history, part.hub.fit
    if part.done or fit is None or not fit.error > detection.BAD:
        return None
    cut = detection.best_cut(past.buffer[past.size // 2 : past.size])
    return cut if detection.is_suspected(cut, fit.error, part.standing[0]) else None


class Check:
    """A round of evaluations between two suspected modes of a part, and a climb on the plane between them."""

    def __init__(self, part: Tuning, cut: Cut, rng: np.random.Generator):
        self.part, self.cut, self.rng = part, cut, rng
        known = part.hub.learning.evaluated
        self.points = list(detection.between(cut, known.positions, known.log_densities))
        self.draw = detection.plausible(cut, known.positions, known.log_densities)
        self.search: saddle.Search | None = None
        self.done = self.confirmed = False

    def ask(self):
        """Points on the line, then in the plane."""
        where = self.points
        if self.search is not None:
            self.points = saddle.propose(self.rng, self.search, (len(self.search.origin) + 1) // 2)
            where = saddle.positions(self.search, self.points)
        return [Request(x, -1, "between") for x in where]

    def tell(self, values):
        """They are paid for by the tuning that they interrupt."""
        part = self.part
        if part.ends_at == part.limit:
            part.ends_at -= len(values)
        part.limit -= len(values)
        if self.search is None:
            self.confirmed = min(values) < self.draw - detection.DEEP
            finite = [(y, k) for k, y in enumerate(values) if y > -np.inf]
            if self.confirmed and finite:
                y, lowest = min(finite)
                self.search = saddle.begin(self.cut, self.points[lowest], y, self.draw - detection.CLEFT)
        else:
            self.search = saddle.tell(self.rng, self.search, self.points, values)
            self.confirmed = not self.search.connected
        self.done = self.search is None or self.search.done


def _halves(whole, cut, rng):
    """Two parts of one: members, what is evaluated and what is left to evaluate."""
    known, left = whole.hub.learning.evaluated, max(whole.limit - whole.evaluations, 0)
    positions, values = whole.standing
    sides, of_points = cut.sides(positions), cut.sides(known.positions)
    columns = (known.positions, known.log_densities, known.chain, known.round, known.move)
    found = []
    for side, group in enumerate(_groups(sides)):
        own = np.flatnonzero(sides == side)
        stands = [k if sides[k] == side else own[k % len(own)] for k in group]
        there = of_points == side
        found.append(Tuning(
            whole.learner, rng.spawn(1)[0], [whole.members[k].rng for k in group],
            [Point(positions[k], float(values[k])) for k in stands],
            evaluations.table(*(column[there] for column in columns)), cut.factor,
            limit=int(there.sum()) + left * len(group) // len(sides), wait=whole.wait, apply=whole.apply,
            numbers=[whole.numbers[k] for k in group], cuts=(*whole.cuts, (cut, side)),
        ))  # fmt: skip
    return found


def _groups(sides):
    """Members of either side; as many of the larger go over as it takes for a quarter of all to be in both."""
    groups = [list(np.flatnonzero(sides == k)) for k in (0, 1)]
    few, many = sorted(groups, key=len)
    while len(few) < len(sides) // 4:
        few.append(many.pop())
    return [sorted(g) for g in groups]
