"""Pools: chains that learn together in halves which share nothing, so that their disagreement is evidence.

Chains that share a surrogate share its blind spots: what none of them has seen is missing from all, and they agree. Two
pools have starts, climbs, random numbers, surrogates and walks of their own; neither is told a log density that the
other asked for. If they agree, two independent searches found the same.

:class:`Pools` asks and tells as :class:`~pymc_kameleon.samplers.pooled.chains.Chains` does. A pool that draws while
another still tunes waits, so that there is a row of draws for every chain; how long it waits changes no bit of what it
draws. Each may spend its share of the evaluations on tuning; what is left over they draw with, in lockstep.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from pymc_kameleon.samplers.pooled.chains import Chains, Run
from pymc_kameleon.samplers.pooled.checks import looks, probes
from pymc_kameleon.samplers.pooled.drawing import Request, Row
from pymc_kameleon.samplers.pooled.plan import Plan

SPAWN_KEY = 3  # of the pools' seeds; 0 is that of chains without pools, 1 and 2 are the noise's and the starts'


def divided(n: int, pools: int) -> list[slice]:
    """Which chains are whose: parts of ``n`` as even as can be."""
    edges = [k * n // pools for k in range(pools + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def share_of(plan: Plan, part: int, whole: int) -> Plan:
    """The plan of a pool that has ``part`` of ``whole`` chains."""
    shared = {
        name: None if (n := getattr(plan, name)) is None else n * part // whole
        for name in ("tune", "longest", "max_evaluations", "last", "earliest", "begun_with")
    }
    return plan._replace(**{**shared, "longest": max(shared["longest"], 2 * part)})


class Pools(Run):
    """Chains in pools that share nothing.

    Parameters
    ----------
    pools : int
        At least 2, with two chains each at least.
    seed : int
        Of the run: each pool has a sequence of its own.
    initial, starts, plan, options
        Of :class:`~pymc_kameleon.samplers.pooled.chains.Chains`, of all chains together.

    Attributes
    ----------
    pools : list of Chains
    pool : list of int
        Of every chain, the pool that it belongs to.
    """

    def __init__(self, pools: int, initial, starts, seed: int, plan: Plan, **options):
        super().__init__(initial, starts, plan)
        self.parts = divided(len(self.starts), pools)
        self.pools = [
            Chains(
                initial, self.starts[part], np.random.SeedSequence(seed, spawn_key=(SPAWN_KEY, k)),
                share_of(plan, part.stop - part.start, len(self.starts)), **options,
            )
            for k, part in enumerate(self.parts)
        ]  # fmt: skip
        self.pool = [k for k, part in enumerate(self.parts) for _ in range(part.start, part.stop)]
        self._asked: list[list[Request] | None] = []
        self._requests: list[Request] = []

    # -- the rounds -----------------------------------------------------------------------------------

    def ask(self) -> list[Request]:
        """The points of the next round, of all pools that do not wait."""
        together, drawn = self._drawing, self._drawn
        self._asked = [p.ask() if (together and len(p.rows) == drawn) or not p.draws else None for p in self.pools]
        self._requests = [
            r._replace(member=r.member + part.start if r.member >= 0 else -1)
            for part, asked in zip(self.parts, self._asked, strict=True)
            for r in asked or []
        ]
        return self._requests

    def ahead(self, is_over: Callable[[], bool]) -> None:
        """See :meth:`pymc_kameleon.samplers.pooled.chains.Chains.ahead`."""
        for pool, asked in zip(self.pools, self._asked, strict=True):
            if asked is not None:
                pool.ahead(is_over)

    def tell(self, values) -> None:
        """Give every pool the log densities of what it asked for, and of nothing else."""
        self.record(self._requests, values)
        told = iter(values)
        for pool, asked in zip(self.pools, self._asked, strict=True):
            if asked is not None:
                pool.tell([next(told) for _ in asked])
        self._keep_rows()
        if self._drawing and self.plan.max_evaluations is not None:
            self._share_the_rest()

    def _share_the_rest(self):
        """What one did not need for tuning is for all to draw with: a draw of every chain, and points beside them."""
        n = len(self.starts)
        for pool in self.pools:
            own = len(pool.starts)
            most = pool.evaluated.size + own + (int(self.left()) - n) * own // n
            pool.plan = pool.plan._replace(max_evaluations=most)

    def _keep_rows(self):
        """A row of all chains for this round; of those that wait, where they stand."""
        drawn = self._drawn
        if drawn > len(self.rows):
            self.rows.append(self._joined([p.rows[drawn - 1] for p in self.pools]))
        elif not drawn and all(p.warmup for p in self.pools):
            latest = [p.warmup[-1] for p in self.pools]
            self.warmup.append(
                self._joined(
                    row if asked is not None else row._replace(statistics=[{}] * len(row.statistics))
                    for row, asked in zip(latest, self._asked, strict=True)
                )
            )

    def _joined(self, rows):
        positions, log_densities, of_pools, _ = zip(*rows, strict=True)
        statistics = [{**found, "pool": k} for k, own in enumerate(of_pools) for found in own]
        return Row(np.concatenate(positions), np.concatenate(log_densities), statistics, self.evaluated.size)

    # -- what is known of it --------------------------------------------------------------------------

    @property
    def _drawn(self):
        """Rows of all pools: one that has more waits."""
        return min(len(p.rows) for p in self.pools)

    @property
    def _drawing(self):
        return all(p.draws for p in self.pools)

    @property
    def phase(self) -> str:
        """What is going on, in the pool that is least far."""
        order = ("start", "climb", "tune", "draw")
        return min((p.phase for p in self.pools), key=order.index)

    @property
    def done(self) -> bool:
        """Whether nothing is left to evaluate."""
        return bool(self.stopped) or any(p.done for p in self.pools if len(p.rows) == self._drawn)

    @property
    def nowhere(self) -> bool:
        """Whether a pool has no point to begin at."""
        return any(p.nowhere for p in self.pools)

    @property
    def hub(self) -> Any:
        """That of the pool whose surrogate is worst, or is not there yet."""
        hubs = [p.hub for p in self.pools]
        for hub in hubs:
            if hub is None or hub.fit is None:
                return hub
        return max(hubs, key=lambda hub: hub.quality.residual_sd)

    @property
    def groups(self) -> list[int]:
        """Of every chain: who began together."""
        found: list[int] = []
        for p in self.pools:
            first = 1 + max(found, default=-1)
            found += [first + g for g in p.groups]
        return found

    @property
    def modes(self) -> int:
        """How many are known to the pool that knows most."""
        return max(p.modes for p in self.pools)

    def probed(self) -> probes.Found:
        """What the probes beside the draws have found, in all pools."""
        return probes.together(p.probed() for p in self.pools)

    def sought(self) -> looks.Found:
        """Whether the draws of every pool reach where its climbs ended."""
        return probes.together(p.sought() for p in self.pools)
