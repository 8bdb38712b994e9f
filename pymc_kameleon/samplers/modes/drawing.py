"""Draws of chains that know several modes: as :mod:`pymc_kameleon.samplers.pooled.drawing`, by the kernel of all."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian.values.state import State as OneMode
from pymc_kameleon.samplers.modes.catalogue import Catalogue
from pymc_kameleon.samplers.modes.sampler import SAMPLER, State, frozen
from pymc_kameleon.samplers.pooled.drawing import Request, Row
from pymc_kameleon.samplers.seam import Point, Proposal


class Member(NamedTuple):
    """One chain: its generator, its point with the retained log density, and its state."""

    rng: np.random.Generator
    point: Point
    state: State

    @property
    def position(self) -> np.ndarray:
        """Where it is, (d,)."""
        return self.point.position

    @property
    def log_density(self) -> float:
        """Retained."""
        return self.point.log_density


def begin(catalogue: Catalogue, hubs: tuple[OneMode, ...], rng, x, log_density: float) -> Member:
    """A member at ``x`` (d,)."""
    return Member(rng, Point(x, log_density), frozen(catalogue, hubs, x, log_density))


class Drawing:
    """Frozen members; ``ask`` and ``tell`` make one draw of each.

    Parameters
    ----------
    hubs : tuple of OneMode
        Every mode's sampler. Neither they nor the catalogue are ever replaced, on which exactness hangs.
    members : list of Member
    apply : callable
        ``map``, or one that computes side by side.
    """

    def __init__(self, hubs: tuple[OneMode, ...], members: list[Member], apply: Callable = map):
        self.hubs, self.members, self.apply = tuple(hubs), list(members), apply
        self.rows: list[Row] = []
        self._proposals: list[Proposal] = []
        self._known: list[Point | None] = []

    @property
    def catalogue(self) -> Catalogue:
        """Of the modes."""
        return self.members[0].state.catalogue

    def ask(self) -> list[Request]:
        """What has to be evaluated for the next draw of every member."""
        self._proposals = list(self.apply(_propose, self.members))
        self._known = [_known(m, p) for m, p in zip(self.members, self._proposals, strict=True)]
        return [
            Request(p.position, k, p.move)
            for k, (p, known) in enumerate(zip(self._proposals, self._known, strict=True))
            if known is None
        ]

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        told, statistics = iter(values), []
        for k, (proposal, known) in enumerate(zip(self._proposals, self._known, strict=True)):
            there = Point(proposal.position, next(told)) if known is None else known
            self.members[k], found = _decided(self.members[k], proposal, there)
            statistics.append(found)
        self.rows.append(
            Row(
                np.array([m.position for m in self.members]),
                np.array([m.log_density for m in self.members]),
                statistics,
            )
        )


def _propose(member):
    return SAMPLER.propose(member.rng, member.position, member.state)


def _known(member, proposal):
    if proposal.log_density is not None:
        return Point(proposal.position, proposal.log_density)
    return member.point if proposal.position is member.position else None


def _decided(member, proposal, there):
    """The member after the test, and what is told of its draw."""
    here = member.point
    point, state, probability, accepted = chain.decide(
        member.rng, SAMPLER, here, member.state, proposal, there
    )
    found = SAMPLER.stats(state, proposal)
    tested = proposal.move.startswith("surrogate") and proposal.log_q_ratio > -math.inf
    log_ratio = there.log_density - here.log_density + proposal.log_q_ratio
    found["energy_error"] = -log_ratio if tested else math.nan
    found["surrogate_diverging"] = found.pop("diverging", False)
    found["move"], found["lp"] = proposal.move, point.log_density
    found["accept"], found["accepted"] = probability, float(accepted)
    return member._replace(point=point, state=state), found
