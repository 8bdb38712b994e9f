"""The draws: nothing adapts. A round is one point a chain: its next draw's, or a probe, an audit or a look instead."""

from typing import Any

import numpy as np

from pymc_kameleon.samplers.arrival import circles
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival.state import LONG
from pymc_kameleon.samplers.pooled import climbs
from pymc_kameleon.samplers.pooled.checks import audits, looks, probes
from pymc_kameleon.samplers.pooled.drawing import Drawing, Request


class Production:
    """The last phase of :class:`~pymc_kameleon.samplers.pooled.chains.Chains`."""

    name = "draw"
    next = None

    def __init__(self, chains: Any, drawing: Drawing):
        self.chains, self.drawing = chains, drawing
        self.probed = self.audited = 0
        self.begun = -1  # rows of draws whose probes and audits are due, or were asked
        self.due: list[Request] = []
        # Evaluations that may be made at least: what was left before the first draw of a row that is begun, less a
        # whole round for each since. Did the last row hang on how many of its draws needed none, it would be a choice.
        self.sure = self.before = chains.left()
        # Generators that are spawned leave their parent's stream as it is.
        chains.looks = _looks(chains, drawing.members)
        wanted = chains.plan.audits and drawing.hubs[0].mixture is not None
        chains.free = audits.Free(chains.rng.spawn(1)[0], drawing.hubs[0]) if wanted else None

    @property
    def done(self):
        """Whether all draws are made, or nothing is left for one more of every chain."""
        chains, drawing = self.chains, self.drawing
        if chains.stopped:
            return True
        if chains.plan.draws is not None and len(drawing.rows) >= chains.plan.draws:
            return True
        begun = drawing.lacking < len(drawing.members)
        return (self.sure if begun else chains.left()) < len(drawing.members)

    def ask(self):
        """What the draws need, in the places that what goes beside them leaves."""
        chains, drawing = self.chains, self.drawing
        n, self.before = len(drawing.members), chains.left()
        if drawing.lacking == n:
            self.sure = self.before
        if self.begun < len(drawing.rows):
            self.begun = len(drawing.rows)
            self.due += self._probes() + self._audits()
        # always n places, whatever is left: a run that is made longer goes on from the same points
        beside, self.due = self.due[:n], self.due[n:]
        places = chains.looks.ask(drawing.rows, n - len(beside))
        beside += [Request(x, -1, "look") for x in places]
        asked = drawing.ask(n - len(beside))
        self.needed, self.looked = len(asked), len(asked) + len(beside) - len(places)
        return asked + beside

    def _probes(self):
        drawing, hubs = self.drawing, self.drawing.hubs
        if any(hub.mixture is None for hub in hubs):
            return []
        n, first = len(hubs), self.probed
        self.probed += probes.due(len(drawing.rows), len(drawing.members))
        made = (probes.propose(self.chains.rng, hubs[k % n], k // n) for k in range(first, self.probed))
        return [Request(x, -1, "probe") for x in made]

    def _audits(self):
        if self.chains.free is None:
            return []
        drawing, all_of_them = self.drawing, self.chains.free.audits
        first = self.audited
        self.audited += audits.due(len(drawing.rows), len(drawing.members), len(all_of_them))
        return [Request(x, -1, "audit") for x in all_of_them[first : self.audited]]

    def tell(self, values):
        """Probes and audits are read off the record when all is over."""
        rows = len(self.drawing.rows)
        self.drawing.tell(values[: self.needed])
        began = len(self.drawing.rows) > rows  # the next row, if at all, with this round
        self.sure = (self.before if began else self.sure) - len(self.drawing.members)
        self.chains.looks.tell(values[self.looked :])
        self.chains.members, self.chains.rows = self.drawing.members, self.drawing.rows


def _looks(chains, members):
    """At the ends of the climbs, and at starts: far ones, and of chains that made none."""
    plan, evaluated = chains.plan, chains.evaluated
    made = () if chains.climbs is None else chains.climbs.climbs
    starts = np.array([*chains.far, *(x for k, x in enumerate(chains.starts) if k not in chains.leaders)])
    first = int(np.argmax(np.isfinite(evaluated.log_densities)))
    point, value = evaluated.positions[first], float(evaluated.log_densities[first])
    few, window = looks.FEW, None
    if not made:
        few = min(climbs.FEW, plan.looking // (LONG * len(point)))
        by_themselves = chains.learner.sampler.climbs_by_itself and plan.climb and len(chains.far)
        if few < looks.FEW or not by_themselves:
            return chains.looks
        # one that climbs by itself stays on the whole line, where an angle's next period would be another mode
        window = circles.around(chains.angles, max(members, key=lambda m: m.point.log_density).point.position)
    reach = arrival.REACH if len(chains.far) else np.inf  # there are no draws of flat priors, whose scale is none
    more = [arrival.init(point, value, scale=chains.scale, start=x, reach=reach) for x in starts]
    everyone = [*made, *more]
    spent = int(np.isin(evaluated.move, ("arrival", "between")).sum())
    left = max(plan.looking - spent, len(made))  # whether an end is met takes one
    return looks.Looks(chains.rng.spawn(len(everyone)), everyone, left, few, window)
