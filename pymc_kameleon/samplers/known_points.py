"""Points whose log density is known before a chain begins: an earlier run's, or a table.

The log density of a posterior is known up to a constant, which another version of a model may change; the shape is what
is learned from. So a few of the points are evaluated again, and the difference has to be one constant: otherwise they
are of another posterior, and what is learned from them would be, too (the draws would not: the true log density decides
acceptance).

The points that are evaluated again are where chains begin. They lie as far below the highest as draws from a normal
posterior do, namely by half a chi-square variable with d degrees of freedom; chains that begin there cannot tell by
R-hat whether the points missed a mode.
"""

from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.numerics.evaluations import Evaluations

CHECKED = 5  # points that are evaluated again, at least


def check_finite(known: Evaluations) -> None:
    """Refuse points none of which has a finite log density."""
    if not np.isfinite(known.log_densities).any():
        raise ValueError(f"none of the {known.size} evaluations given has a finite log density.")


def rows_like_draws(rng: np.random.Generator, values: np.ndarray, d: int, n: int) -> list[int]:
    """Rows of ``values`` as far below the highest as ``n`` draws from a normal posterior in ``d`` dimensions."""
    return _nearest(values, rng.gamma(0.5 * d, size=n))


def reference(known: Evaluations, n: int) -> tuple[np.ndarray, np.ndarray]:
    """``n`` points (n, d) at most that stand for the posterior, and their log densities (n,)."""
    d, n = known.positions.shape[1], min(n, int(np.isfinite(known.log_densities).sum()))
    rows = _nearest(known.log_densities, scipy.special.gammaincinv(0.5 * d, (np.arange(n) + 0.5) / n))
    return known.positions[rows], known.log_densities[rows]


def _nearest(values, falls):
    """A row of ``values`` for each of ``falls``, as nearly as can be so far below the highest."""
    below = np.where(np.isfinite(values), values.max() - values, np.inf)
    rows: list[int] = []
    for fall in falls:
        off = np.abs(below - fall)
        if len(rows) < len(values):
            off[rows] = np.inf  # each once, as long as there are others
        rows.append(int(np.argmin(off)))
    return rows


def shifted(known: Evaluations, rows, values) -> Evaluations:
    """``known`` with the constant that its log densities are off by; refused if it is not one.

    ``rows`` are of the points that were evaluated again, ``values`` what was found there.
    """
    change = np.asarray(values) - known.log_densities[rows]
    offset = float(np.median(change))
    absolute, relative = 0.01, 1e-6  # by how much a log density may be off: computers round
    # what rounding explains goes by these points: another, far away, may have -1e80, which would excuse anything
    heights = np.abs(known.log_densities[rows])
    height = heights.max(where=np.isfinite(heights), initial=0.0)
    rest = np.abs(change - offset)
    if not (rest <= absolute + relative * height).all():  # NaN fails, too
        worst = known.positions[rows[int(np.argmax(np.where(np.isnan(rest), np.inf, rest)))]]
        raise ValueError(
            f"the evaluations given are not of this log density: at {len(change)} of their points it differs from "
            f"them by {[float(f'{c:.6g}') for c in change]}, which is no constant; the worst is {worst.tolist()}. "
            "Another model, other data or another parametrisation made them."
        )
    return evaluations.shifted(known, offset)


class Check(NamedTuple):
    """A few known points evaluated again, one a draw, before a single chain's walk begins.

    What comes before a walk has ``propose``, ``tell``, ``learned`` and ``stop``, see
    :class:`pymc_kameleon.samplers.arrival.search.State`.
    """

    known: Evaluations
    comparable: bool  # whether log densities can be compared: not under noise
    rows: np.ndarray  # (k,): of the points to evaluate
    start: np.ndarray  # (d,): where the chain was before
    start_log_density: float
    warm: bool = True  # what it learns is enough for a surrogate at once
    arrived: bool = True  # as far as the known points are in a typical set
    found: tuple[float, ...] = ()  # what has been found so far

    @property
    def settled(self) -> bool:
        """Whether the walk can begin."""
        return len(self.found) == len(self.rows)

    @property
    def done(self) -> bool:
        """Whether nothing is left to evaluate."""
        return self.settled

    @property
    def evaluations(self) -> int:
        """Points evaluated, the first one included."""
        return 1 + len(self.found)

    @property
    def positions(self) -> np.ndarray:
        """Where, shape (n, d)."""
        return np.vstack([self.start, self.known.positions[self.rows[: len(self.found)]]])

    @property
    def log_densities(self) -> np.ndarray:
        """What was found there, shape (n,)."""
        return np.array([self.start_log_density, *self.found])

    @property
    def current(self) -> int:
        """Row of the point where the chain stands: the last at which the log density is finite."""
        return int(np.flatnonzero(np.isfinite(self.log_densities))[-1])

    @property
    def position(self) -> np.ndarray:
        """Where the chain is to go on, shape (d,)."""
        return self.positions[self.current]

    @property
    def log_density(self) -> float:
        """The log density there."""
        return float(self.log_densities[self.current])

    def propose(self, rng: np.random.Generator) -> np.ndarray:
        """The next point to evaluate, shape (d,)."""
        return self.known.positions[self.rows[len(self.found)]].copy()

    def tell(self, rng: np.random.Generator, point: np.ndarray, log_density: float) -> "Check":
        """After ``point``'s log density; the last one is compared with what was known, as all before it are."""
        check = self._replace(found=(*self.found, float(log_density)))
        if check.settled and check.comparable:
            return check._replace(known=shifted(check.known, check.rows, check.found))
        return check

    def learned(self) -> dict:
        """What :class:`pymc_kameleon.samplers.seam.Known` takes."""
        if len(self.found) < CHECKED:  # too few to say how wide it is
            return {"factor": None, "evaluated": self.known}
        d = self.known.positions.shape[1]
        spread = np.std(reference(self.known, 10 * d)[0], axis=0)
        factor = np.diag(np.where(spread > 0.0, spread, 1.0))
        return {"factor": factor, "evaluated": self.known, "warm": True}

    def stop(self) -> "Check":
        """Tuning ends before all points were evaluated again: what was not checked is not used."""
        again = evaluations.table(self.known.positions[self.rows[: len(self.found)]], np.array(self.found))
        return self._replace(known=again, rows=np.arange(len(self.found)))


def begin(rng: np.random.Generator, known: Evaluations, x, log_density, comparable=True) -> Check:
    """Check ``known``, of a chain that is at ``x`` (d,)."""
    check_finite(known)
    rows = rows_like_draws(rng, known.log_densities, known.positions.shape[1], CHECKED)
    return Check(known, comparable, np.array(rows), np.array(x, dtype=float), float(log_density))
