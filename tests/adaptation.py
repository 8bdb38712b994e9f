"""Chains that go on adapting, or do not, from exact draws of a skewed target."""

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.modules import of
from pymc_kameleon.samplers.seam import Outcome, Point


class Banana:
    """x_1 ~ N(0, 4), x_2 | x_1 ~ N((x_1^2 - 4) / 2, 1), the others N(0, 1): skewed, known moments."""

    def __init__(self, dim):
        self.dim = dim
        self.mean = np.zeros(dim)
        self.cov = np.diag([4.0, 9.0] + [1.0] * (dim - 2))

    def log_density(self, x):
        bend = x[1] - 0.5 * (x[0] * x[0] - 4.0)
        return float(-0.125 * x[0] * x[0] - 0.5 * bend * bend - 0.5 * x[2:] @ x[2:])

    def draw(self, rng, size):
        x = rng.standard_normal((size, self.dim))
        x[:, 0] *= 2.0
        x[:, 1] += 0.5 * (x[:, 0] ** 2 - 4.0)
        return x


def run_chain(rng, algorithm, state, log_density, x, steps, adapt=True, visit=None):
    """One chain; returns the final state and the draws, shape (steps, d).

    ``visit(old_state, state, outcome)`` is called after every transition.
    """
    draws = np.empty((steps, len(x)))
    point = Point(x, log_density(x))
    found = chain.draws(rng, of(algorithm), log_density, point, state, steps, tuning=adapt)
    for t, draw in enumerate(found):
        state = draw.state
        if visit is not None:
            visit(draw.before, state, outcome_of(draw))
        draws[t] = draw.point.position
    return state, draws


def outcome_of(draw):
    """What the sampler was told of the draw."""
    return Outcome(
        draw.point.position, draw.point.log_density, draw.proposal, draw.there.log_density, draw.accept_prob,
        draw.accepted,
    )  # fmt: skip


def average_z_scores(rng, algorithm, state, target, chains, steps, adapt):
    """z-scores of moments averaged along chains that start from exact draws of ``target``.

    Every draw of such a chain has the target's distribution if the kernel leaves it invariant;
    standard errors come from the spread over the independent chains.
    """
    lower = np.tril_indices(target.dim)
    errors = []
    for x in target.draw(rng, chains):
        _, draws = run_chain(rng, algorithm, state, target.log_density, x, steps, adapt)
        moments = draws.T @ draws / steps - target.cov
        errors.append(np.concatenate([draws.mean(axis=0), moments[lower]]))
    errors = np.array(errors)
    return errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(chains))
