"""What a chain will propose next, computed while its present proposal is evaluated.

A free chain of the frozen surrogate costs the driver milliseconds, for which it has time where others evaluate. Whether
the proposal will be accepted is not known, but mostly it is: so the chain goes on from there, with a copy of its
generator. The test takes one uniform whatever its outcome, and of the log density the next proposal depends on nothing
but the share of the walk. Where outcome and share are as guessed, this *is* the next proposal, bit for bit; otherwise
it is thrown away, and nothing of it has been seen.
"""

import copy
import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.kamiltonian.values import sampler as value_kamiltonian
from pymc_kameleon.samplers.kamiltonian.values.state import State
from pymc_kameleon.samplers.pooled import members as pooled_members
from pymc_kameleon.samplers.pooled.members import Member
from pymc_kameleon.samplers.seam import Proposal


class Guess(NamedTuple):
    """A proposal, and what has to be the case for it to be the next.

    Attributes
    ----------
    accepted : bool
    share : float
        Of the walk, after the test.
    rng : numpy.random.Generator
        After the proposal.
    proposal : Proposal
    """

    accepted: bool
    share: float
    rng: np.random.Generator
    proposal: Proposal


def guess(hub: State, member: Member, proposal: Proposal) -> Guess:
    """What a frozen member will propose after ``proposal``: accepted if a free chain made it, else rejected."""
    rng, carry = copy.deepcopy(member.rng), proposal.carry
    rng.random()  # the test's
    accepted, position, share = carry.kernel > 0, member.position, member.share
    if accepted:
        position, share = proposal.position, 1.0
        member = member._replace(current=Current(carry.z, math.nan, carry.value), share=share)
    state = pooled_members.view(hub, member)
    return Guess(accepted, share, rng, value_kamiltonian.propose(rng, position, state))


def come_true(found: Guess | None, member: Member, accepted: bool) -> Proposal | None:
    """The next proposal of ``member``, whose generator goes on after it; None where the guess was wrong."""
    if found is None or accepted != found.accepted or member.share != found.share:
        return None
    member.rng.bit_generator.state = found.rng.bit_generator.state
    return value_kamiltonian.from_retained(found.proposal, member.log_density)
