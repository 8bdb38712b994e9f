"""A proposal covariance from the log density's values: what the cold start knows before the chain has been anywhere.

The covariance of a chain's states says how far the chain *has been*; while it is still on its way that is far too small
along the long axes, by a factor of hundreds on a normal target of condition number 1e4, and a random walk with such a
proposal takes as long to find out. The log density has been evaluated at every point proposed, accepted or not, and a
quadratic regressed on those values knows all axes as soon as there are more points than coefficients. It is used where
it predicts the values that it was not fitted to, that is where the posterior is close to normal as far as it has been
seen, and only where it says that an axis is at least twice as long as the chain's states; elsewhere the history's
covariance stays.

Not from the papers. The regression is that of :mod:`pymc_kameleon.surrogates.values.regression`, with its weights.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.seam import Outcome
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.library import LIBRARY
from pymc_kameleon.surrogates.values.regression import Fit

FEWEST = 60  # points to regress on
FALL = 2.0  # nats along a slope


class Values(NamedTuple):
    """Log densities seen while tuning."""

    proposed: Evaluations
    chain: History  # rows of 1: the log density of each of the chain's states


def begin(known: Evaluations) -> Values:
    """No values yet but those that are known."""
    return Values(known, history.empty(1))


def record(values: Values, outcome: Outcome) -> Values:
    """Add one draw's."""
    proposed, proposal = values.proposed, outcome.proposal
    if proposal.log_q_ratio > -math.inf:  # otherwise it was refused without an evaluation
        proposed = evaluations.append(proposed, proposal.position, outcome.proposed_log_density, proposal.move)
    return Values(proposed, history.append(values.chain, np.array([outcome.log_density])))


def extend(rng: np.random.Generator, values: Values, states: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """``factor``, longer along the axes where the values say so; itself where they do not (yet).

    It is the Cholesky factor of the covariance of ``states`` (m, d), the chain's last m, at most ``values.chain.size``.
    """
    n, d = values.proposed.size, states.shape[1]
    size = quadratic_size(d)
    if n < max(1.5 * size, FEWEST):
        return factor
    latest = slice(-max(4 * size, 4 * FEWEST), None)
    points, heights = values.proposed.positions, values.proposed.log_densities
    chain = values.chain.buffer[values.chain.size - len(states) : values.chain.size, 0]
    centre = np.median(states, axis=0)
    try:
        fit = value_regression.fit(rng, points[latest], heights[latest], states, chain, full=False, library=LIBRARY[:1])
        axes = _axes(fit, factor, centre)
    except np.linalg.LinAlgError:
        return factor
    if axes is None:
        return factor
    longer, ok = cholesky(axes @ axes.T)
    return longer if ok and not _has_cliffs(longer, values.proposed, centre, float(np.median(chain))) else factor


def _axes(fit: Fit, factor: np.ndarray, centre: np.ndarray) -> np.ndarray | None:
    """L V diag(a), with L' (-H) L = V diag(lambda) V', H the quadratic's curvature, and a = lambda^(-1/2).

    In these coordinates the chain's states have unit variance and a says how much longer the target is. None where no
    axis is clearly longer. Along an axis that is not concave, or on a slope, the log density says nothing of the kind:
    a is 1, or at most what it takes to fall by ``FALL``.
    """
    if not fit.error < 1.0:  # in units of the log density
        return None
    f = fit.surrogate  # the plain quadratic
    to_u = f.frame @ (factor / f.scale[:, None])  # never in the log density's own units: digits
    eigenvalues, vectors = np.linalg.eigh(-to_u.T @ f.quadratic @ to_u)
    u = f.frame @ ((centre - f.centre) / f.scale - f.origin)
    slopes = np.abs(vectors.T @ (to_u.T @ (f.linear + f.quadratic @ u)))
    least = max(0.1 * fit.error, 1e-7)  # less the regression cannot tell from none
    lengths = np.maximum(eigenvalues, least) ** -0.5
    lengths = np.minimum(lengths, FALL / np.maximum(slopes, 1e-7))
    longer = (eigenvalues > -least) & (lengths > 2.0)  # a smaller difference is left to the chain
    if not longer.any():
        return None
    return factor @ (vectors * np.where(longer, lengths, 1.0))


def _has_cliffs(factor: np.ndarray, proposed: Evaluations, centre, typical: float) -> bool:
    """Whether points in the inner half of the ellipsoid have a log density far below, or none.

    A quadratic fitted beside a wall does not see the wall.
    """
    d = len(centre)
    low = ~(proposed.log_densities > typical - 10.0 - 2.0 * d)
    if not low.any():
        return False
    z = np.linalg.solve(factor, (proposed.positions[low] - centre).T)
    return bool(np.square(z).sum(axis=0).min() < 0.25 * d)
