"""What is fixed when tuning ends, of several modes: the catalogue, beside every mode's own frozen sampler."""

import numpy as np

from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers.kamiltonian.values.state import State as OneMode
from pymc_kameleon.samplers.modes import catalogue as geometry
from pymc_kameleon.samplers.modes.catalogue import Catalogue
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS

CHAINS, LENGTH = 40, 5  # free chains on every surrogate, and the ends that each gives
ARM = ARMS[-1]


def catalogue_of(rng: np.random.Generator, modes: tuple[OneMode, ...]) -> Catalogue:
    """Centre and covariance of every mode as its surrogate says, which knows more than the states that tuned it."""
    moments = [_moments(rng, mode) for mode in modes]
    return geometry.make([m for m, _ in moments], [c for _, c in moments])


def _moments(rng, mode):
    """Mean (d,) and covariance (d, d)."""
    dynamics, walk = mode.dynamics, mode.walk
    if dynamics is None:
        states = walk.history.buffer[walk.history.size // 2 : walk.history.size]
        return states.mean(axis=0), walk.factor @ walk.factor.T
    ends = []
    for z in dynamics.archive[rng.integers(len(dynamics.archive), size=CHAINS)]:
        for _ in range(LENGTH):
            z = surrogate_dynamics.run(rng, z, dynamics, ARM).z
            ends.append(surrogate_dynamics.to_x(dynamics, z))
    x = np.array(ends)
    covariance = np.cov(x.T).reshape(x.shape[1], -1)
    if not cholesky(covariance)[1]:  # nothing has moved
        covariance = walk.factor @ walk.factor.T
    return x.mean(axis=0), covariance
