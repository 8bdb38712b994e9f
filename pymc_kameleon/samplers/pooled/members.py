"""What belongs to one of several chains that share a surrogate while they tune.

The *hub* is a state of the sampler that all members share: fit, walk, what was learned. A member has its point, its
retained log density and all that is cached there, its generator, and what its sampler keeps of a chain's own. A
*learner* (:mod:`.by_values`, :mod:`.by_factors`) puts the two together into a state as the sampler knows it, and
:func:`decide` takes them apart again, so that a draw of a member is the sampler's own draw.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.pooled.drawing import Draw, Frozen
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal


class Member(NamedTuple):
    """One chain."""

    rng: np.random.Generator
    # where it is; its log density is retained and never evaluated again, on which exactness hangs where it is an
    # estimate
    point: Point
    current: Current  # what the sampler's state retains there
    own: Any  # what else of that state is this chain's


def begin(learner: Any, hub: Any, number: int, rng: np.random.Generator, point: Point) -> Member:
    """The ``number``-th member, at ``point``."""
    return Member(rng, point, learner.sampler.locate(hub, point), learner.own(hub, number, point))


def frozen(learner: Any, hub: Any, member: Member) -> Frozen:
    """The member where it stands, under a hub that is frozen."""
    return Frozen(member.rng, member.point, learner.sampler.place(hub, member.point))


def move_to(learner: Any, hub: Any, member: Member, point: Point) -> Member:
    """The member at ``point``, under a hub whose surrogate may be new: for tuning only, it is not a draw."""
    return member._replace(point=point, current=learner.sampler.locate(hub, point))


def decide(learner: Any, hub: Any, member: Member, proposal: Proposal, there: Point) -> tuple[Any, Member, Draw]:
    """Accept or reject, and learn."""
    here, sampler = member.point, learner.sampler
    state = learner.view(hub, member)
    point, state, probability, accepted = chain.decide(member.rng, sampler, here, state, proposal, there)
    log_ratio = there.log_density - here.log_density + proposal.log_q_ratio
    outcome = Outcome(*point[:2], proposal, there.log_density, probability, accepted, outputs=there.outputs)
    state = learner.learn(member.rng, state, outcome)
    member = Member(member.rng, point, state.current, learner.parted(state))
    return state, member, Draw(proposal, log_ratio, probability, accepted)
