"""Which states stand for the posterior while several chains learn: those near the top.

One chain leaves its transient behind, and what comes after it are its reference states
(``reference_states`` in :mod:`pymc_kameleon.samplers.kamiltonian.values.refits`). Of several chains some may still be
on their way. A depth that is taken from them would spread the weights of a fit over a hundred nats, and coordinates
that hold them would be far too wide. So only states count that are as high as a draw plausibly is; while there are too
few of those, the best of all evaluated points stand in.
"""

import numpy as np

from pymc_kameleon.samplers.kamiltonian.values.state import State
from pymc_kameleon.surrogates.transitions import Dynamics
from pymc_kameleon.surrogates.values.features import quadratic_size


def depth(d: int) -> float:
    """How far below the highest log density known a state still counts as having arrived, in ``d`` dimensions.

    A draw lacks d/2 on average; of a long tail it may lack a few times that.
    """
    return 2.0 * d + 10.0


def heights(dynamics: Dynamics | None, x: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
    """Log densities (n,) at ``x`` (n, d) by which to compare states: in coordinates in which a funnel is straight.

    In its neck a density has no bound, and the neck is not where the posterior is.
    """
    if dynamics is None or dynamics.rescaling.straight < 0:
        return log_densities
    moves, f = dynamics.rescaling, dynamics.surrogate
    for j, half, bends, middle in zip(
        moves.bent_variables, moves.halves, moves.bends, moves.bent_middles, strict=True
    ):  # fmt: skip
        away = (x[:, j] - f.centre[j]) / f.scale[j] - middle
        log_densities = log_densities + half * bends.sum() * away
    return log_densities


def elite(hub: State) -> tuple[np.ndarray, np.ndarray]:
    """States (m, d) and log densities (m,) to fit with, as ``refit`` takes them."""
    learning, past = hub.learning, hub.walk.history
    x, y = learning.evaluated.positions, learning.evaluated.log_densities
    d = x.shape[1]
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    recent = slice(past.size // 2 if past.size > 4 * d else 0, past.size)
    states, values = past.buffer[recent], learning.chain_log_densities.buffer[recent, 0]
    level = heights(hub.dynamics, x, y)
    good = heights(hub.dynamics, states, values) >= level.max() - depth(d)
    states, values = states[good], values[good]
    few = max(3 * d, 20)
    if len(np.unique(values)) < few:
        best = np.argsort(-level, kind="stable")[:few]
        states, values = x[best], y[best]
    # Enough points have to weigh: the depth is not above that of as many as a quadratic needs.
    enough = min(int(1.3 * quadratic_size(d)), len(y)) - 1
    reached, low = np.sort(y)[::-1][enough], np.quantile(values, 0.3)
    return states, values - max(0.0, low - reached)
