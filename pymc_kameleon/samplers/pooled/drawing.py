"""Draws of frozen members: independent chains of one kernel, in rounds of one draw each.

What is evaluated beside them takes the places of some, who make their draws in the next round: a worker for each member
is never too few. Nobody is more than a draw ahead.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.pooled import ahead as pooled_ahead
from pymc_kameleon.samplers.pooled.ahead import Guess
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler


class Request(NamedTuple):
    """A point to evaluate, for which member (-1: for none), and by which kernel."""

    position: np.ndarray
    member: int
    move: str


class Row(NamedTuple):
    """One draw of every chain."""

    positions: np.ndarray  # (chains, d)
    log_densities: np.ndarray  # (chains,)
    statistics: list[dict[str, Any]]  # one a chain; empty while climbing, and where a chain has not drawn yet
    evaluations: int = 0  # of all chains, so far


class Frozen(NamedTuple):
    """One chain: its generator, its point with the retained log density, and its sampler's state."""

    rng: np.random.Generator
    point: Point
    state: Any


class Draw(NamedTuple):
    """What became of a member's proposal."""

    proposal: Proposal
    log_ratio: float  # without the shares
    accept_prob: float
    accepted: bool


def decided(
    rng: np.random.Generator, sampler: Sampler, here: Point, state: Any, proposal: Proposal, there: Point
) -> tuple[Point, Any, Draw]:
    """Where a member is after its test, its sampler's state, and what became of the proposal."""
    point, state, probability, accepted = chain.decide(rng, sampler, here, state, proposal, there)
    log_ratio = there.log_density - here.log_density + proposal.log_q_ratio
    return point, state, Draw(proposal, log_ratio, probability, accepted)


class Drawing:
    """Frozen members; ``ask`` and ``tell`` make one draw of each, or of some.

    Parameters
    ----------
    sampler : Sampler
    members : list of Frozen
        What is fixed in their states is never replaced, on which exactness hangs.
    hubs : tuple
        The frozen states of which they are: of every mode that is known. These surrogates are probed, by turns.
    apply : callable
        ``map``, or one that computes side by side.
    """

    def __init__(self, sampler: Sampler, members, hubs: tuple = (), apply: Callable = map):
        self.sampler, self.members, self.hubs = sampler, list(members), tuple(hubs)
        self.apply = apply
        self.rows: list[Row] = []
        self._made: list[list[tuple[Point, dict[str, Any]]]] = [[] for _ in self.members]  # draws of no row yet
        self._proposals: dict[int, Proposal] = {}
        self._known: dict[int, float | None] = {}
        self._guesses: dict[int, Guess | None] = {}
        self._next: list[Proposal | None] = [None] * len(self.members)

    @property
    def lacking(self) -> int:
        """How many members' draws the next row waits for."""
        return sum(not made for made in self._made)

    def ask(self, places: int | None = None) -> list[Request]:
        """What has to be evaluated for the next draw of ``places`` members, by default of all."""
        behind = sorted(range(len(self.members)), key=lambda k: len(self._made[k]))
        turn = sorted(behind[:places])
        self._proposals = dict(zip(turn, self.apply(self._propose, turn), strict=True))
        self._known = {k: known(self.members[k], p) for k, p in self._proposals.items()}
        return [Request(p.position, k, p.move) for k, p in self._proposals.items() if self._known[k] is None]

    def _propose(self, k):
        if self._next[k] is not None:
            return self._next[k]
        member = self.members[k]
        return self.sampler.propose(member.rng, member.point.position, member.state)

    def ahead(self, is_over: Callable[[], bool]) -> None:
        """Compute what comes next while the points that ``ask`` returned are evaluated, until that ``is_over``."""
        waiting = [k for k, value in self._known.items() if value is None]
        # The kernel across modes is not guessed, nor that of a surrogate that is not there.
        if not self._guesses and len(self.hubs) == 1 and self.hubs[0].mixture is not None:
            made = self.apply(lambda k: None if is_over() else self._guess(k), waiting)
            self._guesses = dict(zip(waiting, made, strict=True))

    def _guess(self, k):
        rng, point, state = self.members[k]
        return pooled_ahead.guess(self.sampler, rng, point, state, self._proposals[k])

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        told = iter(values)
        for k, proposal in self._proposals.items():
            value = self._known[k]
            rng, here, state = self.members[k]
            there = Point(proposal.position, next(told) if value is None else value)
            point, state, draw = decided(rng, self.sampler, here, state, proposal, there)
            self._made[k].append((point, described(self.sampler, state, draw, point.log_density)))
            self.members[k] = Frozen(rng, point, state)
            self._next[k] = pooled_ahead.come_true(self._guesses.get(k), rng, point, state, draw.accepted)
        self._guesses = {}
        if not self.lacking:
            points, statistics = zip(*(made.pop(0) for made in self._made), strict=True)
            self.rows.append(Row(*stacked(points), list(statistics)))


def known(member: Any, proposal: Proposal) -> float | None:
    """The log density at the proposal where it needs no evaluation."""
    if proposal.log_density is not None:
        return proposal.log_density
    return member.point.log_density if proposal.position is member.point.position else None


def stacked(points) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n, d) and log densities (n,) of ``points``."""
    return np.array([p.position for p in points]), np.array([p.log_density for p in points])


def described(sampler: Sampler, state: Any, draw: Draw, log_density: float) -> dict[str, Any]:
    """A sampler's statistics of a draw, by the names that :class:`pymc_kameleon.KamiltonianStep` has."""
    found, move = sampler.stats(state, draw.proposal), draw.proposal.move
    tested = move.startswith("surrogate") and draw.proposal.log_q_ratio > -math.inf
    return {
        **{name: value for name, value in found.items() if name != "diverging"},
        "n_steps": found.get("n_steps", 0),
        "energy_error": -draw.log_ratio if tested else math.nan,
        "surrogate_diverging": found.get("diverging", False),
        "accept": draw.accept_prob,
        "accepted": float(draw.accepted),
        "lp": log_density,
        "move": move,
    }
