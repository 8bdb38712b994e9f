"""How far each coordinate of a hierarchy is centred: measured once, after the arrival, before the walk begins.

lambda_i = 1 - (prior precision of z_i) / (its precision given all else), from second differences of the log density
along z_i: 0 where the data say nothing of a group, 1 where they say everything. Two evaluations a coordinate, or a
block of them with random signs: groups are independent given what they share, and a block gives their mean curvature.

Under noise it takes three, for the retained estimate is no fair one, and all groups of a variable have one lambda, from
the mean less its standard error.

The curvature of the data grows as sigma^2. A low quantile of sigma counts, for a variable that is centred where sigma
is large cannot follow into the neck.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations, table

STEP = 0.5  # in z, whose prior's sd is 1
BLOCKS = 32  # at most
SMALL = 1e-5  # of a sd, for differences
WALKED = 20  # tuning draws a coordinate, before it where there is no climb
LEAST, MOST = 0.1, 0.98  # lambda below and above is 0 and 1
DRAWS, QUANTILE = 64, 0.05  # of sigma


class Choice(NamedTuple):
    """What is known of lambda."""

    share: np.ndarray  # (d,): lambda now
    # (n_blocks, d), of -1, 0 and 1: along which the log density is to be looked at, in the non-centred coordinates
    directions: np.ndarray
    # of the log density, up and down the directions so far; under noise in the middle, too
    changes: tuple[float, ...] = ()
    settled: bool = False  # ``share`` stays
    noisy: bool = False  # the log density is
    scales: tuple[np.ndarray, ...] = ()  # (d,) each: log sigma where the chain has been, where there was no climb

    @property
    def displacement(self) -> np.ndarray:
        """From the chain's point to the next evaluation, shape (d,)."""
        row, k = divmod(len(self.changes), 2 + self.noisy)
        return (STEP, -STEP, 0.0)[k] * (1.0 + self.noisy) * self.directions[row]

    @property
    def complete(self) -> bool:
        """Whether all evaluations have been made."""
        return len(self.changes) == (2 + self.noisy) * len(self.directions)

    def curvatures(self) -> np.ndarray:
        """Of minus the log density along the directions, for each coordinate in them; infinite where there is none."""
        changes = np.reshape(self.changes, (len(self.directions), -1))
        second = changes[:, 0] + changes[:, 1]
        if self.noisy:
            second = second - 2.0 * changes[:, 2]
        squares = np.square(self.directions).sum(axis=1) * (STEP * (1.0 + self.noisy)) ** 2
        return -second / squares

    def told(self, change: float) -> "Choice":
        """With the change of the log density at the next evaluation."""
        return self._replace(changes=(*self.changes, float(change)))


def begin(density: Any) -> Choice:
    """Nothing is known yet: all non-centred."""
    rng = np.random.default_rng(0)  # signs, the same for all chains
    blocks = _blocks(density)
    directions = np.zeros((len(blocks), density.dim))
    for row, block in zip(directions, blocks, strict=True):
        row[block] = rng.choice([-1.0, 1.0], len(block))
    return Choice(density.noncentred, directions, noisy=density.noisy)


def seen(density: Any, choice: Choice, u: np.ndarray) -> Choice:
    """The chain has been at ``u``, and walks on before lambda is chosen."""
    return choice._replace(scales=(*choice.scales, density.log_scale(u)))


def _blocks(density):
    """Coordinates to look along at once: one, or those of a variable's column, in as many parts as there may be."""
    movable = np.flatnonzero(density.movable)
    if len(movable) <= BLOCKS:
        return [np.array([i]) for i in movable]
    columns = [c for c in density.columns() if density.movable[c[0]]]
    most = max(1, BLOCKS // len(columns))
    return [part for c in columns for part in np.array_split(c, min(most, len(c)))]


def settle(rng: np.random.Generator, density: Any, choice: Choice, u: np.ndarray, factor) -> Choice:
    """The choice, once it is complete, at ``u``, non-centred, near which the Cholesky factor of the covariance is
    ``factor``, or None where that is not known.
    """
    here, scales = density.log_scale(u), choice.scales
    if factor is not None:
        near = u + rng.standard_normal((DRAWS, len(u))) @ factor.T
        scales = tuple(density.log_scale(row) for row in near)
    known_scales = np.nan_to_num(np.array([here, *scales]), nan=np.inf)
    low = np.minimum(here, np.quantile(known_scales, QUANTILE, axis=0))
    known = np.zeros(density.dim)  # precision of the data, in the prior's
    for row, curvature in zip(choice.directions, choice.curvatures(), strict=True):
        known[row != 0.0] = curvature - 1.0
    if choice.noisy:
        known = _pooled(density, known)
    with np.errstate(all="ignore"):
        known = np.maximum(known, 0.0) * np.exp(2.0 * (low - here))
        share = np.nan_to_num(1.0 - 1.0 / (1.0 + known), nan=0.0)
    share = np.where(share < LEAST, 0.0, np.where(share > MOST, 1.0, share))
    share = np.where(density.movable, share, 1.0)
    return Choice(share, choice.directions[:0], settled=True, noisy=choice.noisy)


def _pooled(density, known):
    """One value for all groups of a variable."""
    found = known.copy()
    for column in density.columns():
        of = known[column]
        error = of.std() / max(len(of) - 1, 1) ** 0.5
        found[column] = of.mean() - error if np.isfinite(of).all() else np.inf
    return found


def recast(density: Any, share: np.ndarray, here: np.ndarray, factor, evaluated: Evaluations) -> dict[str, Any]:
    """What an arrival has learned in the non-centred coordinates in those of lambda = ``share``.

    It ended at ``here`` (d,), where the Cholesky factor of the covariance is ``factor``, if that is known.
    """
    origin = density.noncentred
    found = [density.recast(row, share, origin) for row in evaluated.positions]
    positions = np.array([u for u, _ in found]).reshape(-1, density.dim)
    values = evaluated.log_densities + np.array([change for _, change in found])
    good = np.isfinite(positions).all(axis=1)
    factor = None if factor is None else _recast_factor(density, share, here, factor)
    return {"factor": factor, "evaluated": table(positions[good], values[good], move="arrival")}


def _recast_factor(density, share, here, factor):
    """The Cholesky factor of a covariance at ``here`` in other coordinates; of its diagonal alone.

    From one point's derivatives: how sds change is told by those, but correlations are worse than none
    (as measured: a third fewer effective draws in rich groups of counts).
    """
    origin = density.noncentred
    if np.array_equal(share, origin):
        return factor
    up, down = (
        np.array([density.recast(here + h, share, origin)[0] for h in sign * SMALL * factor.T]) for sign in (1.0, -1.0)
    )
    sds = np.sqrt(np.square((up - down) / (2.0 * SMALL)).sum(axis=0))
    return np.diag(sds) if np.isfinite(sds).all() and (sds > 0.0).all() else None
