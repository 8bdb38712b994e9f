"""Chains that learn together, and what they do when they find themselves in several modes.

:class:`Chains` are those of :mod:`pymc_kameleon.samplers.pooled.chains`, to the bit, until a second mode is confirmed
(:mod:`pymc_kameleon.samplers.modes.detection`). From there on the chains of each mode tune together and apart from the
others, with what was evaluated there, and may part again. When tuning ends, the modes' surrogates make one frozen
kernel, with jumps (:mod:`pymc_kameleon.samplers.modes.sampler`), by which all chains draw.

A mode that no start has reached stays unknown.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers.modes import catalogue as geometry
from pymc_kameleon.samplers.modes import detection, saddle
from pymc_kameleon.samplers.modes import drawing as modal_drawing
from pymc_kameleon.samplers.modes.detection import Cut
from pymc_kameleon.samplers.modes.drawing import Drawing
from pymc_kameleon.samplers.modes.freezing import catalogue_of
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled import climbs as pooled_climbs
from pymc_kameleon.samplers.pooled import drawing as pooled_drawing
from pymc_kameleon.samplers.pooled import probes
from pymc_kameleon.samplers.pooled.drawing import Request, Row
from pymc_kameleon.samplers.pooled.tuning import Tuning

ROUNDS = 8  # of tuning, before which the chains have not moved enough to be told apart
LATEST = (
    0.6  # of the evaluations for tuning: after it there are not enough left to learn a mode with
)
SEEN = 2  # rounds in a row that a suspicion lasts, with the same chains on the same sides, before it is looked into
AGAIN = 4  # rounds after a suspicion that was wrong: another cut may be right
REFUSALS = 3  # of them, after which none is looked into


class Chains(pooled_chains.Chains):
    """Chains that share a surrogate, or one for each of the modes that they are in.

    See :class:`pymc_kameleon.samplers.pooled.chains.Chains` for the parameters.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.modes = 1  # that are known
        self.drawing: Any = None  # where there are several
        self.refused = 0
        self._wait = ROUNDS  # rounds of tuning until the next look
        self._seen: dict[
            int, tuple[bytes, int]
        ] = {}  # of every part: who was on which side, and how often in a row
        self._compared: list[list[int]] = []  # the chains of parts whose ends were

    @property
    def draws(self) -> bool:
        """Whether everything is frozen and the chains draw."""
        return self.phase == "draw"

    def tell(self, values) -> None:
        """Take the log densities of what ``ask`` returned."""
        super().tell(values)
        if self.phase == "tune" and self.plan.climb and self.refused < REFUSALS:
            self._wait -= 1
            if self.evaluated.size < LATEST * self.plan.tune_until:
                self._look()

    def settle(self, confirmed: bool) -> None:
        """A suspicion has been looked into."""
        self.refused += not confirmed
        self._wait = ROUNDS if confirmed else AGAIN

    def _look(self):
        """Whether one of those who learn together should part."""
        if isinstance(self._phase, _Check):
            return
        parts = self._phase.parts if isinstance(self._phase, _Apart) else [_whole(self)]
        for number, part in enumerate(parts):
            cut = self._cut_of_ends(part)
            if cut is None and self._wait < 0:
                cut = _suspicion(part)
                cut = cut if self._lasts(number, part, cut) else None
            if cut is not None:
                self._seen = {}
                self._phase = _Check(self, self._phase, parts, number, cut)
                return

    def _cut_of_ends(self, part):
        """Between the ends of climbs in ``part`` that are farthest apart: looked into once, and at once.

        Waiting for signs of trouble, the chains of one of two modes have left it before there are any.
        """
        if self.climbs is None or part.chains in self._compared:
            return None
        self._compared.append(part.chains)
        state = pooled_climbs.stop(self.climbs)
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


def probed(run: Any) -> probes.Found:
    """What the probes beside the draws have found: each is judged by the surrogate of the mode in which it is."""
    if not isinstance(run, Chains) or run.modes == 1:
        return pooled_chains.probed(run)
    rows, drawn = run.evaluated.move == "probe", np.array([row.log_densities for row in run.rows])
    x, y = run.evaluated.positions[rows], run.evaluated.log_densities[rows]
    modes, labels = run.drawing.hubs, geometry.assign(run.drawing.catalogue, x)
    found = [probes.judge(m, x[labels == k], y[labels == k], drawn) for k, m in enumerate(modes)]
    where = next((f.where for f in found if f.where is not None), None)
    return probes.Found(sum(f.probes for f in found), sum(f.missed for f in found), where)


class Part(NamedTuple):
    """Chains that learn together.

    Attributes
    ----------
    tuning : Tuning
    chains : list of int
        Their numbers.
    cuts : tuple of (Cut, int)
        What parts them from all others, and on which side they are.
    """

    tuning: Tuning
    chains: list[int]
    cuts: tuple[tuple[Cut, int], ...] = ()


def _whole(chains):
    return Part(chains._phase.tuning, list(range(len(chains.starts))))


def _standing(tuning):
    """Where the members are, (n, d), and their log densities, (n,)."""
    members = tuning.members
    return np.array([m.position for m in members]), np.array([m.log_density for m in members])


def _suspicion(part):
    hub, past = part.tuning.hub, part.tuning.hub.walk.history
    if part.tuning.done or hub.fit is None or not hub.fit.error > detection.BAD:
        return None
    cut = detection.best_cut(past.buffer[past.size // 2 : past.size])
    return cut if detection.is_suspected(cut, hub.fit.error, _standing(part.tuning)[0]) else None


class _Check:
    """A round of evaluations between two suspected modes, and a climb on the plane between them."""

    name = "tune"

    def __init__(self, chains: Chains, before: Any, parts: list[Part], number: int, cut: Cut):
        self.chains, self.before, self.parts = chains, before, parts
        self.number, self.cut = number, cut
        self.rng = chains.rng.spawn(1)[0]
        self.search: saddle.Search | None = None
        self.done = self.confirmed = False

    def ask(self):
        if self.search is None:
            known = self.parts[self.number].tuning.hub.learning.evaluated
            self.points = detection.between(self.cut, known.positions, known.log_densities)
            return [Request(x, -1, "between") for x in self.points]
        self.points = saddle.propose(self.rng, self.search, (len(self.search.origin) + 1) // 2)
        where = saddle.positions(self.search, self.points)
        return [Request(x, -1, "between") for x in where]

    def tell(self, values):
        tuning = self.parts[self.number].tuning
        if tuning.ends_at == tuning.limit:  # it is paid for by the tuning that it interrupts
            tuning.ends_at -= len(values)
        tuning.limit -= len(values)
        known = tuning.hub.learning.evaluated
        if self.search is None:
            draw = detection.plausible(self.cut, known.positions, known.log_densities)
            self.confirmed = min(values) < draw - detection.DEEP
            finite = [(y, k) for k, y in enumerate(values) if y > -math.inf]
            if self.confirmed and finite:
                y, lowest = min(finite)
                self.search = saddle.begin(self.cut, self.points[lowest], y, draw - detection.CLEFT)
        else:
            self.search = saddle.tell(self.rng, self.search, self.points, values)
            self.confirmed = not self.search.connected
        self.done = self.search is None or self.search.done
        if self.done:
            self.chains.settle(self.confirmed)

    def next(self):
        if not self.confirmed:
            return self.before
        number, parts = self.number, self.parts
        halves = _parted(self.chains, parts[number], self.cut)
        return _Apart(self.chains, [*parts[:number], *halves, *parts[number + 1 :]])


def _parted(chains, whole, cut):
    """Two parts of one: members, what is evaluated and what is left to evaluate."""
    tuning = whole.tuning
    known, left = tuning.hub.learning.evaluated, max(tuning.limit - tuning.evaluations, 0)
    positions, values = _standing(tuning)
    sides, of_points = cut.sides(positions), cut.sides(known.positions)
    found = []
    for side, group in enumerate(_groups(sides)):
        own = np.flatnonzero(sides == side)
        stands = [k if sides[k] == side else own[k % len(own)] for k in group]
        rows = np.flatnonzero(of_points == side)
        part = Tuning(
            chains.rng.spawn(1)[0], [tuning.members[k].rng for k in group],
            [(positions[k], float(values[k])) for k in stands], _rows(known, rows), cut.factor,
            limit=len(rows) + left * len(group) // len(sides), wait=tuning.wait, apply=chains.apply,
            **chains.options,
        )  # fmt: skip
        cuts = (*whole.cuts, (cut, side))
        found.append(Part(part, [whole.chains[k] for k in group], cuts))
    return found


def _rows(known, rows):
    columns = (known.positions, known.log_densities, known.chain, known.round, known.move)
    return evaluations.table(*(column[rows] for column in columns))


def _groups(sides):
    """Members of either side; as many of the larger go over as it takes for a quarter of all to be in both."""
    groups = [list(np.flatnonzero(sides == k)) for k in (0, 1)]
    few, many = sorted(groups, key=len)
    while len(few) < len(sides) // 4:
        few.append(many.pop())
    return [sorted(g) for g in groups]


class _Apart:
    """Learn, mode by mode."""

    name = "tune"

    def __init__(self, chains: Chains, parts: list[Part]):
        self.chains, self.parts = chains, parts
        chains.modes = len(parts)
        self._show()

    @property
    def done(self):
        return all(p.tuning.done for p in self.parts) or self.chains.left() < self._round

    @property
    def _round(self):
        return sum(len(p.chains) for p in self.parts if not p.tuning.done)

    def ask(self):
        self.asked = [[] if p.tuning.done else p.tuning.ask() for p in self.parts]
        self.waiting = [p.tuning.done for p in self.parts]
        return [
            request._replace(member=part.chains[request.member])
            for part, asked in zip(self.parts, self.asked, strict=True)
            for request in asked
        ]

    def tell(self, values):
        told = iter(values)
        for part, asked, waits in zip(self.parts, self.asked, self.waiting, strict=True):
            if not waits:
                part.tuning.tell([next(told) for _ in asked])
        self._show()
        rows = [
            pooled_drawing.row(p.tuning.hub, p.tuning.members, [None] * len(p.chains) if waits else p.tuning.last)
            for p, waits in zip(self.parts, self.waiting, strict=True)
        ]  # fmt: skip
        self.chains.warmup.append(_joined(self.parts, rows))

    def _show(self):
        hubs = [p.tuning.hub for p in self.parts]
        self.chains.hub = max(hubs, key=lambda hub: np.inf if hub.fit is None else hub.fit.error)
        self.chains.members = _in_order(self.parts, [p.tuning.members for p in self.parts])

    def next(self):
        chains = self.chains
        hubs, members = zip(*(p.tuning.freeze() for p in self.parts), strict=True)
        chains.hub = max(hubs, key=lambda hub: hub.quality.residual_sd)
        found = catalogue_of(chains.rng, hubs)
        members = [
            modal_drawing.begin(found, hubs, m.rng, m.position, m.log_density)
            for m in _in_order(self.parts, members)
        ]
        chains.drawing = Drawing(hubs, members, chains.apply)
        chains.plan = chains.plan._replace(audits=0)  # those are of one surrogate
        return pooled_chains._Draw(chains, chains.drawing)


def _in_order(parts, of_parts):
    """What belongs to the members of every part, in the order of the chains."""
    found: dict[int, Any] = {}
    for part, values in zip(parts, of_parts, strict=True):
        found.update(zip(part.chains, values, strict=True))
    return [found[k] for k in sorted(found)]


def _joined(parts, rows):
    return Row(
        np.array(_in_order(parts, [r.positions for r in rows])),
        np.array(_in_order(parts, [r.log_densities for r in rows])),
        _in_order(parts, [r.statistics for r in rows]),
    )
