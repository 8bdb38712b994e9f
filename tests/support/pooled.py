"""Chains that learn together, for the tests: where they begin, and their rounds until they are done."""

import numpy as np

from pymc_kameleon.samplers.pooled.chains import Chains
from pymc_kameleon.samplers.pooled.drawing import Drawing, Frozen
from pymc_kameleon.samplers.pooled.plan import Plan
from pymc_kameleon.samplers.seam import Point
from tests.support import runs


class TwoModes:
    """Normal about 0 and, with the same weight, about ``there``: no chain crosses. ``spread``: the starts' variance."""

    def __init__(self, *there, spread=50.0):
        self.there, self.dim = np.array(there), len(there)
        self.mean, self.cov = 0.5 * self.there, spread * np.eye(self.dim)

    def numba_log_density(self, x):
        """As the targets of the package have it."""
        return float(np.logaddexp(-0.5 * x @ x, -0.5 * (x - self.there) @ (x - self.there)))


def plan_of(most=None, **plan):
    """Half of ``most`` evaluations for tuning, unless told otherwise."""
    chosen = {"draws": None, "tune": None, "longest": most and most // 2, "max_evaluations": most}
    return Plan(**chosen | plan)


def begun(target, n, most, seed=1, **plan):
    """``n`` chains at points within two standard deviations of a target's mean."""
    rng = np.random.default_rng(seed)
    starts = target.mean + np.sqrt(np.diag(target.cov)) * rng.uniform(-2, 2, (n + 1, target.dim))
    return Chains(starts[0], starts[1:], np.random.SeedSequence(seed), plan_of(most, **plan))


def finished(asking, evaluate):
    """All its rounds: of chains, which are told log densities, or of their tuning alone, which is told points."""
    while not asking.done:
        asking.tell([evaluate(request.position) for request in asking.ask()])
    return asking


def members_and_chains(sampler, hub, log_density, starts, rounds=20):
    """Where frozen members end, with the share of their state, and where chains alone do, of the same generators."""

    def began():
        points = [Point(x, log_density(x)) for x in starts]
        pairs = zip(np.random.default_rng(3).spawn(len(starts)), points, strict=True)
        return [Frozen(rng, point, sampler.place(hub, point)) for rng, point in pairs]

    drawing = Drawing(sampler, began())
    for _ in range(rounds):
        drawing.tell([log_density(request.position) for request in drawing.ask()])
    alone = [list(runs.draws(m.rng, sampler, log_density, m.point, m.state, rounds))[-1] for m in began()]
    return [[(*m.point.position, m.point.log_density, m.state.share) for m in of] for of in (drawing.members, alone)]
