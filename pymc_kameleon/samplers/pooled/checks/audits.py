"""What the frozen surrogate is worth as a density of its own: free draws of it, some of them audited by an evaluation.

Expectations under exp(f) cost no evaluation, and where f is good those under the posterior differ little from them: f
is a control variate. Whether it is good everywhere that exp(f) has mass the chains' draws cannot say, which never go
where exp(f) has mass and the posterior has none. So exp(f) is restricted to a region C where the chains have been when
tuning ended, and of its draws there some, chosen at random, are evaluated: the *audits*. They are no draws of the
posterior, and change none.
"""

import math
from typing import Any

import numpy as np

AUDITS = 120  # in a run: the last hundred of them judge
SHARE = 0.3  # of an evaluation for each draw, until there are so many: a hundred of a run of 1,000
CHAINS, DRAWS, BURN = 8, 1000, 10  # of the surrogate; a draw is many inner transitions


def due(round_: int, members: int, most: int) -> int:
    """How many audits go with this round: fixed by its number, so that no draw depends on what was found.

    As many as there are members, or none: see :func:`pymc_kameleon.samplers.pooled.checks.probes.due`.
    """

    def by(end):
        return min(most, members * math.floor(end * SHARE))

    return by(round_ + 1) - by(round_)


class Free:
    """Draws of exp(f) on C, fixed before the first draw of the posterior.

    Parameters
    ----------
    rng : numpy.random.Generator
    surrogate : Frozen
        Of :mod:`pymc_kameleon.samplers.pooled.by_values`, or another.

    Attributes
    ----------
    positions : ndarray of shape (CHAINS, DRAWS, d)
    inside : ndarray of bool, shape (CHAINS, DRAWS)
        Which of them are in C; the others keep their place, for the sake of autocorrelations.
    audits : ndarray of shape (n, d)
        In the order in which they are evaluated.
    """

    def __init__(self, rng: np.random.Generator, surrogate: Any):
        archive = surrogate.archive
        self.typical = surrogate.mixture.typical
        # C: not farther out, and f not lower, than 1 % of the states of tuning. What of the posterior lies beyond is
        # estimated by the draws alone.
        self.floor = float(np.quantile(surrogate.values(archive), 0.01))
        self.farthest = float(np.quantile(surrogate.distances(archive), 0.99))
        self.surrogate = surrogate.within(self.farthest)
        self.positions = self._run(rng)
        flat = self.positions.reshape(-1, archive.shape[1])
        self.inside = self._values(flat)[1].reshape(CHAINS, DRAWS)
        rows = np.flatnonzero(self.inside)
        self.audits = flat[rng.permutation(rows)[:AUDITS]]

    def _run(self, rng):
        archive = self.surrogate.archive
        within = self.surrogate.distances(archive) < self.farthest
        found = np.empty((CHAINS, DRAWS, archive.shape[1]))
        for chain in found:
            z = archive[rng.choice(np.flatnonzero(within) if within.any() else len(archive))]
            for k in range(-BURN, DRAWS):
                z, x = self.surrogate.run(rng, z)
                if k >= 0:
                    chain[k] = x
        return found

    def _values(self, positions):
        """F at points (n, d), and whether they are in C."""
        z, f, near = self.surrogate.located(positions)
        return f, near & (self.surrogate.distances(z) < self.farthest) & (f > self.floor)

    def log_ratios(self, positions: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        """F - log p of points (n, d), less its typical value, shape (n,); -inf outside C, where exp(f) counts as 0."""
        f, inside = self._values(positions)
        with np.errstate(invalid="ignore"):
            return np.where(inside, f - log_densities + self.typical, -math.inf)
