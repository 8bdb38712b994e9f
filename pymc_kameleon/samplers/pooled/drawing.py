"""Draws of frozen members: independent chains of one kernel, in rounds of one draw each."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.values import sampler as value_kamiltonian
from pymc_kameleon.samplers.kamiltonian.values.state import State
from pymc_kameleon.samplers.pooled import ahead as pooled_ahead
from pymc_kameleon.samplers.pooled import members as pooled_members
from pymc_kameleon.samplers.pooled.ahead import Guess
from pymc_kameleon.samplers.pooled.members import Draw, Member
from pymc_kameleon.samplers.seam import Proposal


class Request(NamedTuple):
    """A point to evaluate, for which member (-1: for none), and by which kernel."""

    position: np.ndarray
    member: int
    move: str


class Row(NamedTuple):
    """One draw of every chain.

    Attributes
    ----------
    positions : ndarray of shape (chains, d)
    log_densities : ndarray of shape (chains,)
    statistics : list of dict
        One a chain; empty while climbing, and where a chain has not drawn yet.
    evaluations : int
        Of all chains, so far.
    """

    positions: np.ndarray
    log_densities: np.ndarray
    statistics: list[dict[str, Any]]
    evaluations: int = 0


class Drawing:
    """Frozen members; ``ask`` and ``tell`` make one draw of each.

    Parameters
    ----------
    hub : State
        Frozen. It is never replaced, on which exactness hangs.
    members : list of Member
    apply : callable
        ``map``, or one that computes side by side.
    """

    def __init__(self, hub: State, members: list[Member], apply: Callable = map):
        self.hub, self.members, self.apply = hub, list(members), apply
        self.rows: list[Row] = []
        self._proposals: list[Proposal] = []
        self._known: list[float | None] = []
        self._guesses: dict[int, Guess | None] = {}
        self._next: list[Proposal | None] = [None] * len(self.members)

    @property
    def hubs(self) -> tuple[State, ...]:
        """Whose surrogates are probed, by turns."""
        return (self.hub,)

    def ask(self) -> list[Request]:
        """What has to be evaluated for the next draw of every member."""
        self._proposals = list(self.apply(self._propose, range(len(self.members))))
        pairs = list(zip(self.members, self._proposals, strict=True))
        self._known = [pooled_members.known(m, p) for m, p in pairs]
        return [
            Request(p.position, k, p.move)
            for k, (p, value) in enumerate(zip(self._proposals, self._known, strict=True))
            if value is None
        ]

    def _propose(self, k):
        if self._next[k] is not None:
            return self._next[k]
        member = self.members[k]
        state = pooled_members.view(self.hub, member)
        return value_kamiltonian.propose(member.rng, member.position, state)

    def ahead(self, is_over: Callable[[], bool]) -> None:
        """Compute what comes next while the points that ``ask`` returned are evaluated, until that ``is_over``."""
        waiting = [k for k, known in enumerate(self._known) if known is None]
        if not self._guesses and self.hub.mixture is not None:
            made = self.apply(lambda k: None if is_over() else self._guess(k), waiting)
            self._guesses = dict(zip(waiting, made, strict=True))

    def _guess(self, k):
        return pooled_ahead.guess(self.hub, self.members[k], self._proposals[k])

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        told, draws = iter(values), []
        for k, (proposal, known) in enumerate(zip(self._proposals, self._known, strict=True)):
            value = next(told) if known is None else known
            _, self.members[k], draw = pooled_members.decide(
                self.hub, self.members[k], proposal, value
            )
            draws.append(draw)
            found = self._guesses.get(k)
            self._next[k] = pooled_ahead.come_true(found, self.members[k], draw.accepted)
        self._guesses = {}
        self.rows.append(row(self.hub, self.members, draws))


def row(hub: State, members: list[Member], draws: list[Draw | None]) -> Row:
    """Where all members stand, and the statistics of what brought them there."""
    return Row(
        np.array([m.position for m in members]),
        np.array([m.log_density for m in members]),
        [
            {} if draw is None else pooled_members.statistics(hub, member, draw)
            for member, draw in zip(members, draws, strict=True)
        ],
    )
