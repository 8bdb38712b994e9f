"""What is fixed when tuning ends: surrogate, arms, region, and how far the surrogate is trusted.

After it nothing of the sampler changes but the chain's point.
"""

import math

import numpy as np

from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import ENOUGH, Quality, measure
from pymc_kameleon.samplers.kamiltonian.values import rays, refits
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, State
from pymc_kameleon.samplers.kamiltonian.values.state import share as trusted_share
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features as value_features


def freeze(state: State) -> State:
    """Fix everything, decide how far to trust the surrogate, and drop the evaluated points."""
    learning = state.learning
    if learning is None:
        return state
    rng = np.random.default_rng(learning.schedule.seed)
    if state.fit is not None and is_stale(state):
        here = Point(_position(state), state.current.log_density)
        state = refits.refit(rng, state, here, final=True)
    chain = refits.reference_states(state)[0]
    if state.fit is not None:
        state = _choose_arms_carefully(rng, state, chain)
    return fix(state, chain)


def _choose_arms_carefully(rng, state: State, chain) -> State:
    """Archive and arms as the whole chain suggests them: the last refit may have been long ago.

    The arms run with the step size that the draws will have, in more and longer chains than a refit can wait for; no
    farther out than the chain has been, or one that came upon mass of f that is not there would stay in it: a draw does
    not, the next one starts where the chain is.
    """
    learning, dynamics = state.learning, state.dynamics
    archive = chain[rng.integers(len(chain), size=min(refits.ARCHIVE, len(chain)))]
    z = np.ascontiguousarray(_in_dynamics(dynamics, archive))
    dynamics = dynamics._replace(archive=z)
    bounded = _bound(dynamics, chain, learning)
    trial = bounded._replace(
        radius=bounded.radius / surrogate_dynamics.REACH,
        ceiling=bounded.ceiling - 2.0 - 0.5 * math.sqrt(z.shape[1]),
        step_size=math.exp(learning.averaging.log_average),
    )
    worth = kamiltonian_worth.tried_anew(
        rng, learning.worth, trial, learning.size, state.options.choice, patience=(3, 6)
    )
    return state._replace(dynamics=dynamics, learning=learning._replace(worth=worth))


def fix(state: State, chain: np.ndarray, caution: float = 1.0) -> State:
    """Fix everything as it is; ``chain`` (m, d) are the states that D has to hold.

    ``caution`` is the largest share that the random walk gets because of what the surrogate does not cover.
    """
    learning = state.learning
    state = state._replace(walk=WALK.freeze(state.walk), learning=None)
    if state.dynamics is None:
        return state._replace(quality=Quality(math.inf, 1.0, learning.schedule.refits, learning.size))
    quality = measure(learning, state.fit.residual_sd)
    dynamics = state.dynamics._replace(step_size=math.exp(learning.averaging.log_average))
    dynamics = _bound(dynamics, chain, learning)
    arms = kamiltonian_worth.shares(learning.worth)
    floor = trust.choose_floor(quality.uncovered, quality.residual_sd)
    if learning.judgement.residuals.size < ENOUGH:  # no draw has judged the surrogate yet
        floor = max(floor, 0.15)
    floor = min(floor, caution)
    if arms[0] > 0.5:
        floor = max(floor, arms[0])  # the random walk may be the better kernel
    floor = min(floor, 0.9)
    arms = np.concatenate([[floor], arms[1:] * (1.0 - floor) / arms[1:].sum()])
    distances = surrogate_dynamics.reach(dynamics, _in_dynamics(dynamics, chain))
    slack = trust.slack(quality.residual_sd)
    mixture = trust.Mixture(floor, quality.typical, slack, rays.share(distances))
    return state._replace(
        dynamics=dynamics, mixture=mixture, arms=arms, quality=quality,
        share=trusted_share(mixture, dynamics, state.current),
    )  # fmt: skip


def is_stale(state: State) -> bool:
    """Whether the chain has learned much since the last refit and needs it, or stands where f is too low."""
    learning, last = state.learning, state.learning.schedule.last_refit
    quality = measure(learning, state.fit.residual_sd)
    if learning.size > last and _recent_share(state, quality) < 0.8:
        return True
    if quality.residual_sd > 0.2 or quality.uncovered > 0.01:  # not good
        return learning.size >= 1.03 * last
    return learning.size >= 1.1 * last and refits.has_spread(state)


def _recent_share(state: State, quality: Quality) -> float:
    """Mean share that the chain's last states would have: small where it has come to another place than it was."""
    learning, past = state.learning, state.walk.history
    last = slice(max(0, past.size - 100), past.size)
    values = value_features.values(state.fit.surrogate, np.ascontiguousarray(past.buffer[last]))
    residuals = learning.chain_log_densities.buffer[last, 0] - values
    excess = residuals - quality.typical - trust.slack(quality.residual_sd)
    return float(np.exp(-np.maximum(0.0, excess)).mean())


def _position(state: State) -> np.ndarray:
    """Where the chain is: its last state."""
    past = state.walk.history
    return past.buffer[past.size - 1].copy()


def _bound(dynamics, chain, learning):
    z = _in_dynamics(dynamics, chain)
    return surrogate_dynamics.bounded(dynamics, z, learning.evaluated.log_densities)


def _in_dynamics(dynamics, chain):
    return (chain - dynamics.surrogate.centre) @ dynamics.inverse.T
