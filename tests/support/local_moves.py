"""Samplers with a local covariance, as if they had learned it, on a target whose shape is never the same twice."""

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from tests.support.chains import held, run_transitions, two_sample_z


def skewed_density(x):
    """Log density of a skewed funnel: e^y1 ~ Exp(1), y2 | y1 ~ N(0, e^(2 y1))."""
    return -np.exp(x[0]) - 0.5 * (x[1] * np.exp(-x[0])) ** 2


def skewed_draws(rng, n):
    y1 = np.log(rng.exponential(size=n))
    return np.column_stack([y1, np.exp(y1) * rng.standard_normal(n)])


def learned(kind, z, *, seed=0, freeze=True, **options):
    """A state as if the history had been ``z`` (n, d), with local moves only unless told otherwise."""
    options = {"global_share": 0.0, "local_start": 0, **options}
    walk = held(AdaptiveMetropolis, z[0], scale=0.5)
    past = history.empty(z.shape[1])
    for x in z:
        past = history.append(past, x)
    walk = walk.state._replace(history=past, iteration=len(z), warmup=0)
    state = held(kind, z[0], **options)._replace(walk=walk).relearn(np.random.default_rng(seed))
    assert state.model is not None
    return state.freeze() if freeze else state


def change(state, n, steps=4, control=None, seed=5):
    """z-scores of how exact draws have moved, by ``state`` or by what a ``control`` makes of it.

    ``state`` is made by a function of exact draws, and of the generator that goes on to the chains.
    """
    rng = np.random.default_rng(seed)
    state = state(skewed_draws(rng, 200), rng)
    starts = skewed_draws(rng, n)
    ends = run_transitions(rng, state.but(control), skewed_density, starts, steps)
    return np.abs(two_sample_z(ends, starts, skewed_density)).max()


class Dropped:
    """Negative control: the proposal taken for symmetric, as it is with the covariance at x on the way back, too."""

    @staticmethod
    def propose(rng, x, state):
        return state.propose(rng, x)._replace(log_q_ratio=0.0)


class Previous:
    """Negative control, as published: the reverse density with what belongs to the *previous* accepted point.

    ``log_density(state, covariance, delta)`` is that of a step.
    """

    def __init__(self, log_density):
        self.log_density = log_density

    def start(self, state, x, log_density):
        state = state.start(x, log_density)
        return state._replace(walk=state.covariance)  # a place to remember it in

    def propose(self, rng, x, state):
        proposal = state.propose(rng, x)
        delta = np.linalg.solve(state.factor, proposal.position - x)
        reverse, forward = (self.log_density(state, c, delta) for c in (state.walk, state.covariance))
        return proposal._replace(log_q_ratio=reverse - forward)

    def keep(self, state, outcome):
        return state.keep(outcome)._replace(walk=state.covariance)
