"""What belongs to one of several chains that share a surrogate while they tune, and what every way to learn has.

The *hub* is a state of the sampler that all members share: fit, walk, what was learned. A member has its point, its
retained log density and all that is cached there, its generator, and what its sampler keeps of a chain's own. A
:class:`Learner` (:mod:`.by_values`, :mod:`.by_factors`) puts the two together into a state as the sampler knows it, and
takes them apart again, so that a draw of a member is the sampler's own draw.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.pooled.drawing import Draw, decided
from pymc_kameleon.samplers.pooled.elite import depth
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal


class Member(NamedTuple):
    """One chain."""

    rng: np.random.Generator
    point: Point  # where it is; its log density, which may be an estimate, is retained and never evaluated again
    current: Current  # what the sampler's state retains there
    own: dict[str, Any]  # what else is this chain's: fields of that state's ``learning``


def best(members: list[Member]) -> Member:
    """The one with the highest log density."""
    return max(members, key=lambda m: m.point.log_density)


class Learner:
    """How chains that learn together learn: what of the shared state is whose, what is fitted when, and how it froze.

    What a subclass has beside this: :class:`pymc_kameleon.samplers.pooled.by_values.ByValues`.

    Attributes
    ----------
    sampler : SurrogateSampler
    own : callable
        ``own(hub, number, point)`` is what the ``number``-th member has of its own where it begins.
    fetched : dict
        What it has instead after it was lost, and went to where it is higher.
    modes : bool
        Whether the chains of different modes can learn apart.
    side_by_side : bool
        Whether proposals may be computed in several threads.
    far_is_rare : bool
        Whether tuning has to take its time to see tails, however good the surrogate is where the chains were.
    """

    sampler: Any
    own: Callable[..., dict[str, Any]]
    fetched: ClassVar[dict[str, Any]] = {}
    modes = side_by_side = True
    far_is_rare = False

    def begin(self, hub: Any, number: int, rng: np.random.Generator, point: Point) -> Member:
        """The ``number``-th member, at ``point``."""
        return Member(rng, point, self.sampler.locate(hub, point), self.own(hub, number, point))

    def view(self, hub: Any, member: Member) -> Any:
        """The state of the sampler at a member."""
        return hub._replace(current=member.current, learning=hub.learning._replace(**member.own))

    def move_to(self, hub: Any, member: Member, point: Point) -> Member:
        """The member at ``point``, under a hub whose surrogate may be new: for tuning only, it is not a draw."""
        return member._replace(point=point, current=self.sampler.locate(hub, point))

    def decide(self, hub: Any, member: Member, proposal: Proposal, there: Point) -> tuple[Any, Member, Draw]:
        """Accept or reject, and learn."""
        point, state, draw = decided(member.rng, self.sampler, member.point, self.view(hub, member), proposal, there)
        probability, accepted = draw.accept_prob, draw.accepted
        outcome = Outcome(*point[:2], proposal, there.log_density, probability, accepted, outputs=there.outputs)
        state = self.learn(member.rng, state, outcome)
        own = {name: getattr(state.learning, name) for name in member.own}
        return state, Member(member.rng, point, state.current, own), draw

    def learn(self, rng: np.random.Generator, state: Any, outcome: Outcome) -> Any:
        """From one tuning draw all but a new surrogate."""
        return self.sampler.learn(rng, state, outcome)

    def heights(self, hub: Any, x: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        """Log densities (n,) at ``x`` (n, d) by which to compare states: as they are where no funnel is."""
        return log_densities

    def is_lost(self, hub: Any, point: Point, depths: float = 1.0) -> bool:
        """Whether a member at ``point`` is far below the highest log density evaluated, by more than so many depths."""
        evaluated = hub.learning.evaluated
        values = self.heights(hub, evaluated.positions, evaluated.log_densities)
        own = self.heights(hub, point.position[None], np.array([point.log_density]))[0]
        highest = np.max(values, initial=-math.inf, where=np.isfinite(values))
        return bool(own < highest - depths * depth(len(point.position)))

    def has_spread(self, hub: Any, since: int, members: int) -> bool:
        """Whether the members are much farther out than at the last fit, ``since`` their states then.

        Never where what is far is as known as what is near.
        """
        return False

    def is_stale(self, hub: Any) -> bool:
        """Whether the surrogate has to be made anew although there is nothing left to judge it by."""
        return self.sampler.is_stale(hub)
