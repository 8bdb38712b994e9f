"""Where tails are heavy, half of the random walk's moves are along rays: beyond D, steps of its own size get nowhere.

The distance from a centre, of all coordinates or of one of them, is multiplied by exp(epsilon), epsilon from a law that
is symmetric about 0. The move is its own inverse with -epsilon, which is as likely, so that the ratio has its Jacobian
and nothing else: exp(k epsilon), k coordinates being moved (Liu & Sabatti, 2000). In the logarithm of the distance a
tail that falls like a power is as short as any.

References
----------
B. M. Hill (1975). A simple general approach to inference about the tail of a distribution. Annals of Statistics 3.
J. S. Liu, C. Sabatti (2000). Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
Biometrika 87.
"""

import math

import numpy as np

from pymc_kameleon.samplers.seam import Proposal
from pymc_kameleon.surrogates.rescaling import LARGEST_MOVE

SHARE = 0.5  # of the walk's moves
# Hill's estimate of 1 / nu, nu a t's degrees of freedom, from the farthest tenth of the states: .06 to .21 of normals
# in 20 to 1 dimensions, .42 of an exponential.
FARTHEST, HEAVY = 0.9, 1 / 3


def share(distances: np.ndarray) -> float:
    """What share of the walk's moves is along rays, from ``distances`` (n,) at which the chain has been."""
    far = np.quantile(distances, FARTHEST)
    beyond = distances[distances > far]
    return SHARE if beyond.size and np.log(beyond / far).mean() > HEAVY else 0.0


def propose(rng: np.random.Generator, x: np.ndarray, centre: np.ndarray) -> Proposal:
    """From ``x`` (d,) towards ``centre`` (d,), which is fixed when tuning ends, or away from it."""
    d = len(x)
    # of every size, as in ``rescaling``, but never where a simulator overflows for nothing
    epsilon = math.exp(2.5 * rng.random() - 1.5) * rng.standard_normal()
    epsilon = min(max(epsilon, -LARGEST_MOVE), LARGEST_MOVE)
    moved = np.arange(d) if rng.random() < 0.5 else rng.integers(d, size=1)
    position = x.copy()
    position[moved] = centre[moved] + math.exp(epsilon) * (x[moved] - centre[moved])
    return Proposal(position, len(moved) * epsilon, "ray")  # the Jacobian: exactness hangs on it
