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
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler


class Guess(NamedTuple):
    """A proposal, and what has to be the case for it to be the next."""

    accepted: bool
    share: float  # of the walk, after the test
    rng: np.random.Generator  # after the proposal
    proposal: Proposal


def guess(sampler: Sampler, rng: np.random.Generator, point: Point, state, proposal: Proposal) -> Guess:
    """What a frozen chain will propose after ``proposal``: accepted if a free chain made it, else rejected."""
    rng, carry, x = copy.deepcopy(rng), proposal.carry, point.position
    rng.random()  # the test's
    accepted = carry.kernel > 0
    if accepted:
        x, here = proposal.position, Current(carry.z, math.nan, carry.value)
        state = state._replace(current=here, share=1.0)
    return Guess(accepted, state.share, rng, sampler.propose(rng, x, state))


def come_true(found: Guess | None, rng: np.random.Generator, point: Point, state, accepted: bool) -> Proposal | None:
    """The next proposal of a chain, whose ``rng`` goes on after it; None where the guess was wrong."""
    if found is None or accepted != found.accepted or state.share != found.share:
        return None
    rng.bit_generator.state = found.rng.bit_generator.state
    stays = found.proposal.log_density is not None  # a free chain that went nowhere
    return found.proposal._replace(log_density=point.log_density if stays else None)
