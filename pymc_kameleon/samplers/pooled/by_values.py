"""Chains that learn the log density as a whole together, from its values."""

import math

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kamiltonian.values import refits, tuning, worth
from pymc_kameleon.samplers.kamiltonian.values.sampler import SAMPLER, ValueKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.state import Noise, State, gathered
from pymc_kameleon.samplers.pooled import elite as pooled_elite
from pymc_kameleon.samplers.pooled.members import Learner, best
from pymc_kameleon.samplers.seam import NEVER, Known
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS
from pymc_kameleon.surrogates.values.features import quadratic_size

# Of the frozen walk, where f is too low somewhere. One member that sticks there for two rounds is 3 % of all states
# that a pool judges, and the walk takes over where it stands anyway.
CAUTION = 0.25
ARM = -2  # of the dear choice, by which probes and audits are made: the last but one is long enough


class ByValues(Learner):
    """Of the log density as a whole; :class:`pymc_kameleon.samplers.pooled.by_factors.ByFactors` is another.

    ``options`` are those of :class:`pymc_kameleon.samplers.kamiltonian.values.sampler.ValueKamiltonian`; ``scales``
    are what of the log density is known.
    """

    sampler = SAMPLER
    learn = staticmethod(tuning.learn)

    def __init__(self, scales=(), **options):
        self.options = {"growth": 1.15, **options}  # an evaluation is worth more than a fit
        self.scales = scales

    def hub(self, starts, known, factor, until, warm=False) -> State:
        """The shared state: every point ``known``, and where the members start. Climbs are over at ``until`` points."""
        hub = ValueKamiltonian(**self.options).init(
            None, np.array(starts[0].position), Known(factor=factor, evaluated=known, scales=self.scales)
        )
        arms = len(worth.DEAR.arms)
        hub = hub._replace(
            # Growth brings new fits often enough, also after a long climb: ``elsewhere`` is for chains that learn alone
            options=hub.options._replace(choice=worth.DEAR, elsewhere=0),
            arms=np.array([0.4] + [0.6 / arms] * arms),
        )
        walk = hub.walk
        learning = hub.learning._replace(worth=worth.empty(len(factor), worth.DEAR))
        for x, y, *_ in starts:
            past = history.append(learning.chain_log_densities, np.array([y]))
            learning = learning._replace(chain_log_densities=past)
            walk = walk._replace(history=history.append(walk.history, x))
        walk = walk._replace(next_update=NEVER)  # its factor comes with the fits
        first = int(1.5 * quadratic_size(len(factor)))
        # ``draws=1``: the start has been recorded
        schedule = learning.schedule._replace(next_refit=first, draws=1)
        return hub._replace(walk=walk, learning=learning._replace(schedule=schedule))

    def own(self, hub, number, point):
        """Its companions, and its rejections in a row."""
        companions = gathered(point.position, point.log_density, len(hub.options.temperatures))
        return {"companions": companions, "noise": Noise()}

    def record(self, hub, point, move) -> State:
        """Keep what was found at a point that was no draw."""
        return self.sampler.observe(hub, point, move)

    def heights(self, hub, x, log_densities):
        """In coordinates in which a funnel is straight."""
        return pooled_elite.heights(hub.dynamics, x, log_densities)

    def fewest(self, hub):
        """Evaluations that a last fit waits for."""
        return 1.2 * quadratic_size(hub.walk.factor.shape[0])

    def due(self, hub, members):
        """Whether to fit a new surrogate now."""
        return tuning.due(hub)

    def refit(self, rng, hub, members, final):
        """A new surrogate for all members; the old one where that fails."""
        highest, reference = best(members), pooled_elite.elite(hub)
        found = refits.refit(rng, self.view(hub, highest), highest.point, reference, final)
        if found.dynamics is hub.dynamics:
            return found, members
        everyone, moved = hub.fit is None, []
        for m in members:
            companions = refits.recalled(m.own["companions"], found.dynamics, m.point, everyone)
            m = self.move_to(found, m, m.point)
            moved.append(m._replace(own={**m.own, "companions": companions}))
        return found._replace(walk=_walk_as_the_elite(found, reference[0])), moved

    def search(self, rng, hub, members):
        """Where a free chain from one of the others ends, for a member that is lost."""
        dynamics = hub.dynamics
        path = surrogate_dynamics.run(rng, dynamics.archive[rng.integers(len(dynamics.archive))], dynamics, ARMS[2])
        return path.x if path.moved else None

    def has_spread(self, hub, since, members):
        """By their states since then, against the archive."""
        past, dynamics = hub.walk.history, hub.dynamics
        recent = past.buffer[since : past.size]
        if dynamics is None or len(recent) < 2 * members:
            return False
        z = (recent - dynamics.surrogate.centre) @ dynamics.inverse.T
        now, then = (np.quantile(np.square(a).sum(axis=1), 0.9) for a in (z, dynamics.archive))
        return bool(now > 1.3**2 * then)

    def arms(self, hub):
        """How many proposals of the surrogate were accepted, by arms, and of how many."""
        return hub.learning.worth.accepted[1:], hub.learning.worth.trials[1:]

    def is_stale(self, hub):
        """As of one chain, if there is a surrogate."""
        return tuning.is_stale(hub)

    def freeze(self, hub, members) -> State:
        """The hub with everything fixed."""
        return tuning.fix(hub, pooled_elite.elite(hub)[0], CAUTION)

    def surrogate(self, hub):
        """That of a frozen hub, for probes and audits."""
        return Frozen(hub.dynamics, hub.mixture, hub.options.choice.arms[ARM])


class Frozen:
    """A frozen surrogate f, and free chains on it, in coordinates z of its own; ``archive`` are past states, (n, d)."""

    def __init__(self, dynamics, mixture, arm):
        self.dynamics, self.mixture, self.arm = dynamics, mixture, arm
        self.archive = dynamics and dynamics.archive

    def run(self, rng: np.random.Generator, z: np.ndarray, exponent: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(z, x) after many transitions from ``z``, reversible with respect to exp(exponent f)."""
        path = surrogate_dynamics.run(rng, z, self.dynamics, self.arm, exponent)
        return path.z, path.x

    def located(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, f, whether a free chain may be there) of points (n, d)."""
        dynamics = self.dynamics
        z = np.array([surrogate_dynamics.to_z(dynamics, point) for point in x])
        f = self.values(z)
        return z, f, (self.distances(z) < dynamics.radius) & (f < dynamics.ceiling)

    def values(self, z: np.ndarray) -> np.ndarray:
        """F at (n, d), the log density of x."""
        return np.array([surrogate_dynamics.value(self.dynamics, at) for at in z])

    def distances(self, z: np.ndarray) -> np.ndarray:
        """How far out (n, d) are, (n,)."""
        return surrogate_dynamics.reach(self.dynamics, z)

    def within(self, distance: float) -> "Frozen":
        """The same, on no more than ``distance``."""
        radius = min(self.dynamics.radius, distance)
        return Frozen(self.dynamics._replace(radius=radius), self.mixture, self.arm)


def _walk_as_the_elite(hub, states):
    """The random walk with the elite's covariance, shrunk towards the surrogate's while those are few."""
    walk, d = hub.walk, states.shape[1]
    surrogate = hub.dynamics.surrogate.scale[:, None] * hub.dynamics.metric
    few = min(1.0, 2.0 * d / len(np.unique(states, axis=0))) ** 2
    covariance = (1.0 - few) * np.cov(states.T).reshape(d, d) + few * surrogate @ surrogate.T
    factor, ok = cholesky(covariance)
    if not ok:
        return walk
    growth = np.log(np.diag(factor)).sum() - np.log(np.diag(walk.factor)).sum()
    largest = math.log(adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(d))
    log_scale = min(walk.log_scale - growth / d, largest + 1.0)
    return walk._replace(factor=factor, log_scale=log_scale)
