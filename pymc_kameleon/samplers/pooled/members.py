"""What belongs to one of several chains that share a surrogate while they tune.

The *hub* is a state of :mod:`pymc_kameleon.samplers.kamiltonian.values` that all members share: walk, fit, dynamics,
what was learned. A member has its point, its retained log density and all that is cached there, its companions and its
generator. :func:`view` puts the two together into a state as the sampler knows it, and :func:`decide` takes them apart
again, so that a draw of a member is the sampler's own draw.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.kamiltonian.values import tuning as kamiltonian_tuning
from pymc_kameleon.samplers.kamiltonian.values.sampler import SAMPLER
from pymc_kameleon.samplers.kamiltonian.values.state import Companions, State, gathered, locate
from pymc_kameleon.samplers.pooled.drawing import Draw, Frozen
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal


class Member(NamedTuple):
    """One chain."""

    rng: np.random.Generator
    # where it is; its log density is retained and never evaluated again, on which exactness hangs where it is an
    # estimate
    point: Point
    current: Current  # what :class:`pymc_kameleon.samplers.kamiltonian.values.state.State` retains there.
    companions: Companions
    rejections: int = 0  # see :class:`pymc_kameleon.samplers.kamiltonian.values.state.Noise`.


def begin(hub: State, rng: np.random.Generator, position, log_density: float) -> Member:
    """A member at ``position`` (d,)."""
    point = Point(np.array(position, dtype=float), float(log_density))
    own = gathered(*point[:2], len(hub.options.temperatures))
    return Member(rng, point, locate(hub.dynamics, *point[:2]), own)


def view(hub: State, member: Member) -> State:
    """The state of the sampler at this member."""
    learning = hub.learning
    noise = learning.noise._replace(rejections=member.rejections)
    learning = learning._replace(companions=member.companions, noise=noise)
    return hub._replace(current=member.current, learning=learning)


def frozen(hub: State, member: Member) -> Frozen:
    """The member where it stands, under a hub that is frozen."""
    return Frozen(member.rng, member.point, SAMPLER.place(hub, member.point))


def move_to(hub: State, member: Member, point: Point) -> Member:
    """The member at ``point``, under a hub whose surrogate may be new: for tuning only, it is not a draw."""
    return member._replace(point=point, current=locate(hub.dynamics, *point[:2]))


def decide(hub: State, member: Member, proposal: Proposal, log_density: float) -> tuple[State, Member, Draw]:
    """Accept or reject, and learn."""
    here, there = member.point, Point(proposal.position, log_density)
    point, state, probability, accepted = chain.decide(member.rng, SAMPLER, here, view(hub, member), proposal, there)
    log_ratio = log_density - here.log_density + proposal.log_q_ratio
    outcome = Outcome(*point[:2], proposal, log_density, probability, accepted)
    state = kamiltonian_tuning.learn(member.rng, state, outcome)
    own = state.learning
    member = Member(member.rng, point, state.current, own.companions, own.noise.rejections)
    return state, member, Draw(proposal, log_ratio, probability, accepted)
