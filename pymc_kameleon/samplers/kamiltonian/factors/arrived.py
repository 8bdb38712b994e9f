"""Whether a chain is in the typical set when tuning ends.

A climb that comes to an end by itself says so. One that ends for want of rounds, because the box had become small in a
narrow valley, does not know: most of the time the draws that followed have gone where it could not. Then the chain's
log densities are compared with what the posterior's would be, if the surrogate is right: those along a free run on it.
A draw has 0.5 chi^2_d below the mode, whatever the scales, so that this needs no history to settle in, and a chain that
is on its way stands many of these standard deviations too low.
"""

import numpy as np

from pymc_kameleon.samplers.kamiltonian.factors.learning import free_run, value
from pymc_kameleon.samplers.kamiltonian.factors.surface import Known, Surface

RUN = 200  # inner transitions
RECENT = 10  # states of the chain, at least, or the last third
TOO_LOW = 1.5  # standard deviations of a draw's log density


def is_high_enough(log_densities: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a chain is where posterior draws are.

    Parameters
    ----------
    log_densities : ndarray of shape (m,)
        Of the chain's states, in order; at least one.
    expected : ndarray of shape (n,)
        What the surrogate says of posterior draws.
    """
    recent = log_densities[-max(RECENT, len(log_densities) // 3) :]
    return bool(np.median(recent) > np.median(expected) - TOO_LOW * expected.std())


def expected_log_densities(
    rng: np.random.Generator, known: Known, surface: Surface, v: np.ndarray, typical: float
) -> np.ndarray | None:
    """Log densities of draws from the surrogate, from ``v``; None where it has no value.

    ``typical`` is by how much the surrogate is too low.
    """
    surface, path, _ = free_run(rng, known, surface, v, RUN)
    if path is None:
        return None
    return typical + np.array([value(known, surface, u) for u in path])
