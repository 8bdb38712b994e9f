"""What belongs to one of several chains that share a surrogate, and how its draws are made.

The *hub* is a state of :mod:`pymc_kameleon.samplers.kamiltonian.values` that all members share: walk, fit, dynamics,
what was learned. A member has its point, its retained log density and all that is cached there, its companions and its
generator. :func:`view` puts the two together into a state as the sampler knows it, and :func:`decide` takes them apart
again, so that a draw of a member is the sampler's own draw.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.kamiltonian.values import sampler as value_kamiltonian
from pymc_kameleon.samplers.kamiltonian.values import tuning as kamiltonian_tuning
from pymc_kameleon.samplers.kamiltonian.values.state import Companions, State, gathered, locate
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal


class Member(NamedTuple):
    """One chain.

    Attributes
    ----------
    rng : numpy.random.Generator
    position : ndarray of shape (d,)
    log_density : float
        Retained: it is never evaluated again, on which exactness hangs where it is an estimate.
    current, share
        What :class:`pymc_kameleon.samplers.kamiltonian.values.state.State` retains there.
    companions : Companions
    rejections : int
        See :class:`pymc_kameleon.samplers.kamiltonian.values.state.Noise`.
    """

    rng: np.random.Generator
    position: np.ndarray
    log_density: float
    current: Current
    share: float
    companions: Companions
    rejections: int = 0


SAMPLER = value_kamiltonian.SAMPLER  # its options are in the hub


class Draw(NamedTuple):
    """What became of a member's proposal."""

    proposal: Proposal
    log_ratio: float  # without the shares
    accept_prob: float
    accepted: bool


def begin(hub: State, rng: np.random.Generator, position, log_density: float) -> Member:
    """A member at ``position`` (d,)."""
    position = np.array(position, dtype=float)
    return Member(
        rng,
        position,
        float(log_density),
        locate(hub.dynamics, position, float(log_density)),
        1.0,
        gathered(position, float(log_density), len(hub.options.temperatures)),
    )


def view(hub: State, member: Member) -> State:
    """The state of the sampler at this member."""
    learning = hub.learning
    if learning is not None:
        learning = learning._replace(
            companions=member.companions,
            noise=learning.noise._replace(rejections=member.rejections),
        )
    return hub._replace(current=member.current, share=member.share, learning=learning)


def take(member: Member, state: State) -> Member:
    """The member after its own part of ``state`` has changed."""
    member = member._replace(current=state.current, share=state.share)
    if state.learning is None:
        return member
    return member._replace(
        companions=state.learning.companions,
        rejections=state.learning.noise.rejections,
    )


def settle(hub: State, member: Member) -> Member:
    """The member where it stands, under a hub whose surrogate is new or frozen."""
    state = view(hub, member)._replace(current=locate(hub.dynamics, *_here(member)))
    if hub.learning is None:
        state = SAMPLER.place(state, Point(*_here(member)))
    return take(member, state)


def _here(member):
    return member.position, member.log_density


def known(member: Member, proposal: Proposal) -> float | None:
    """The log density at the proposal where it needs no evaluation."""
    if proposal.log_density is not None:
        return proposal.log_density
    return member.log_density if proposal.position is member.position else None


def decide(
    hub: State, member: Member, proposal: Proposal, log_density: float, noise_sd: float = 0.0
) -> tuple[State, Member, Draw]:
    """Accept or reject; while tuning, learn."""
    state = view(hub, member)
    here, there = Point(*_here(member)), Point(proposal.position, log_density)
    after, state, probability, accepted = chain.decide(
        member.rng, SAMPLER, here, state, proposal, there
    )
    log_ratio = log_density - here.log_density + proposal.log_q_ratio
    draw = Draw(proposal, log_ratio, probability, accepted)
    member = member._replace(position=after.position, log_density=after.log_density)
    if hub.learning is not None:
        outcome = Outcome(
            *after[:2], proposal, log_density, probability, accepted, noise_sd=noise_sd
        )
        state = kamiltonian_tuning.learn(member.rng, state, outcome)
    return state, take(member, state), draw


def move_to(hub: State, member: Member, position, log_density: float) -> Member:
    """Put a member elsewhere, which is for tuning only: it is not a draw."""
    member = member._replace(position=position, log_density=log_density)
    return settle(hub, member)


def statistics(hub: State, member: Member, draw: Draw) -> dict[str, Any]:
    """What is told of a draw, by the names that :class:`pymc_kameleon.KamiltonianStep` has."""
    found = SAMPLER.stats(view(hub, member), draw.proposal)
    found["n_steps"] = found.get("n_steps", 0)
    tested = draw.proposal.move.startswith("surrogate") and draw.proposal.log_q_ratio > -math.inf
    found["energy_error"] = -draw.log_ratio if tested else math.nan
    found["surrogate_diverging"] = found.pop("diverging", False)
    return {
        **found,
        "accept": draw.accept_prob,
        "accepted": float(draw.accepted),
        "lp": member.log_density,
        "move": draw.proposal.move,
    }
