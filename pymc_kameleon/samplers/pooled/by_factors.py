"""Chains that learn a model's black boxes one by one together: as ``by_values``, another learner.

Every chain climbs by itself from where it starts, on surrogates of its own neighbourhood, but all of them are fitted
to what all have evaluated: one round is a design for every black box.
"""

from typing import Any, ClassVar

import numpy as np

from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.kamiltonian.factors import learning as factors
from pymc_kameleon.samplers.kamiltonian.factors.climb import design_size
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.factors.state import Climb, State
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, Known, enter, leave, run, spot
from pymc_kameleon.samplers.pooled import elite as pooled_elite
from pymc_kameleon.samplers.pooled.by_values import CAUTION
from pymc_kameleon.samplers.pooled.members import Learner, best
from pymc_kameleon.samplers.seam import Known as KnownBefore

AROUND = 1  # points beside each target of a climb: those of the others are data, too


class ByFactors(Learner):
    """Of a log density of which so much is ``known``."""

    fetched: ClassVar[dict[str, Any]] = {"climb": None}
    far_is_rare = True  # no family of functions says what a box does where nobody was
    modes = side_by_side = False  # compiled functions of PyTensor's are one thread's

    def __init__(self, known: Known):
        self.sampler = FactoredKamiltonian(known=known)

    def hub(self, starts, known, factor, until, warm=False) -> State:
        """See :class:`.by_values.ByValues`, as for all that follows."""
        hub = self.sampler.init(None, starts[0].position, KnownBefore(evaluated=known, warm=warm))
        learning = hub.learning
        if learning.climb is not None or not warm:
            learning = learning._replace(climb=Climb(around=AROUND, until=until))
        return hub._replace(learning=learning)

    def own(self, hub, number, point):
        """A climb; None where there is none, or when it is over."""
        return {"climb": hub.learning.climb and hub.learning.climb._replace(number=number)}

    def record(self, hub, point, move) -> State:
        """That, and the log density."""
        learning = self.sampler.record(hub.learning, point.position, point.log_density, move, point.outputs)
        return hub._replace(learning=learning)

    def fewest(self, hub):
        """As many as before a first surrogate."""
        return design_size(self.sampler.known.layout)

    def due(self, hub, members):
        """As of one chain; not while all of them climb."""
        climbed = any(m.own["climb"] is None for m in members)
        return hub, climbed and (hub.surface is None or self.sampler.refit_is_due(hub))

    def refit(self, rng, hub, members, final):
        """For the best of the members, about where those have been that are not on their way."""
        highest = best(members)
        state = _of_the_elite(self.view(hub, highest))
        found = self.sampler.refit(rng, state, highest.point, final=final)
        if found.surface is not hub.surface:
            members = [self.move_to(found, m, m.point) for m in members]
        return found, members

    def search(self, rng, hub, members):
        """From one of the others that are not lost."""
        others = [m for m in members if not self.is_lost(hub, m.point)]
        if not others:
            return None
        known, surface = self.sampler.known, hub.surface
        start = spot(known, surface, others[rng.integers(len(others))].current.z)
        path = run(rng, known, surface, start, ARMS[2])
        return leave(known, path.end.u, surface.centring)[0] if path.moved else None

    def arms(self, hub):
        """Of all members."""
        return hub.learning.accepted, hub.learning.trials

    def freeze(self, hub, members) -> State:
        """As of one chain, at the best of the members."""
        rng = np.random.default_rng(hub.learning.schedule.seed)
        return self.sampler.fix(rng, _of_the_elite(self.view(hub, best(members))), CAUTION)

    def surrogate(self, hub):
        """Of the frozen hub."""
        return Frozen(self.sampler.known, hub)


def _of_the_elite(state):
    """Without the states of members that were on their way."""
    learning, found = state.learning, state.learning.evaluated.log_densities
    chain, values = (part.buffer[: part.size] for part in (learning.chain, learning.chain_log_densities))
    level = np.max(found, initial=-np.inf, where=np.isfinite(found))
    good = values[:, 0] >= level - pooled_elite.depth(chain.shape[1])
    kept = [
        History(np.concatenate([part[good], np.zeros((256, part.shape[1]))]), good.sum()) for part in (chain, values)
    ]
    return state._replace(learning=learning._replace(chain=kept[0], chain_log_densities=kept[1]))


class Frozen:
    """See :class:`.by_values.Frozen`; z are the partially non-centred coordinates."""

    def __init__(self, known: Known, state: State):
        self.known, self.surface, self.mixture, self.archive = known, state.surface, state.mixture, state.archive

    def run(self, rng, z, exponent=1.0):
        """By Hamiltonian transitions."""
        start = spot(self.known, self.surface, z, exponent)
        end = run(rng, self.known, self.surface, start, ARMS[3], exponent).end.u
        return end, leave(self.known, end, self.surface.centring)[0]

    def located(self, x):
        """Free chains may be everywhere: the emulators' walls are soft."""
        z = np.array([enter(self.known, v, self.surface.centring) for v in x])
        return z, self.values(z), np.ones(len(z), dtype=bool)

    def values(self, z):
        """As seen from v."""
        return np.array([factors.value(self.known, self.surface, u) for u in z])

    def distances(self, z):
        """In the metric, from the middle of the archive."""
        white = np.linalg.solve(self.surface.metric, (z - self.archive.mean(axis=0)).T)
        return np.sqrt(np.square(white).sum(axis=0))

    def within(self, distance):
        """Itself."""
        return self
