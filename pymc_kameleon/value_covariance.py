"""A proposal covariance from the log density's values: what the cold start knows before the chain has been anywhere.

The covariance of a chain's states says how far the chain *has been*; while it is still on its way that is far too small
along the long axes, by a factor of hundreds on a normal target of condition number 1e4, and a random walk with such a
proposal takes as long to find out. The log density has been evaluated at every point proposed, accepted or not, and a
quadratic regressed on those values knows all axes as soon as there are more points than coefficients. It is used where
it predicts the values that it was not fitted to, that is where the posterior is close to normal as far as it has been
seen, and only where it says that an axis is at least twice as long as the chain's states; elsewhere the history's
covariance stays.

Not from the papers. The regression is that of :mod:`pymc_kameleon.value_regression`, with its weights.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon import history, value_regression
from pymc_kameleon.covariance import cholesky
from pymc_kameleon.history import History
from pymc_kameleon.metropolis import Outcome
from pymc_kameleon.value_features import quadratic_size
from pymc_kameleon.value_regression import LIBRARY, Fit

GOOD_ENOUGH = 1.0  # held-out error of the quadratic, in units of the log density
POINTS = (1.5, 4)  # for each coefficient: before the first regression, and at most (the latest)
FEWEST = 60
LEAST_CURVATURE = 0.1  # times the held-out error: what the regression cannot tell from none
LONGER = 2.0  # than the chain's own extent: a smaller difference is left to the chain


class Values(NamedTuple):
    """Log densities seen while tuning.

    Attributes
    ----------
    proposed : History
        Rows of d + 1: a point evaluated and its log density.
    chain : History
        Rows of 1: the log density of each of the chain's states.
    """

    proposed: History
    chain: History


def empty(d: int) -> Values:
    """No values yet."""
    return Values(history.empty(d + 1), history.empty(1))


def record(values: Values, outcome: Outcome) -> Values:
    """Add one draw's."""
    d = len(outcome.position)
    row = np.empty(d + 1)
    row[:d] = outcome.proposal.position
    row[d] = outcome.proposed_log_density
    return Values(
        history.append(values.proposed, row),
        history.append(values.chain, np.array([outcome.log_density])),
    )


def factor(rng: np.random.Generator, values: Values, states: np.ndarray) -> np.ndarray | None:
    """Cholesky factor (d, d) of the covariance, or None where the values do not (yet) say what it is.

    Parameters
    ----------
    states : ndarray of shape (m, d)
        The chain's last m states, m at most ``values.chain.size``.
    """
    n, d = values.proposed.size, states.shape[1]
    size = quadratic_size(d)
    if n < max(POINTS[0] * size, FEWEST) or not value_regression.affordable(d):
        return None
    rows = values.proposed.buffer[max(0, n - max(POINTS[1] * size, 4 * FEWEST)) : n]
    chain = values.chain.buffer[values.chain.size - len(states) : values.chain.size, 0]
    try:
        fit = value_regression.fit(
            rng, rows[:, :d], rows[:, d], states, chain, full=False, library=LIBRARY[:1]
        )
    except np.linalg.LinAlgError:
        return None
    if not fit.error < GOOD_ENOUGH:
        return None
    axes = fit.surrogate.scale[:, None] * _axes(fit)
    root, ok = cholesky(axes @ axes.T)
    return root if ok else None


def _axes(fit: Fit) -> np.ndarray:
    """L V diag(a), with L the chain's Cholesky factor, L' (-H) L = V diag(lambda) V' and a = lambda^(-1/2).

    In these coordinates the chain's states have unit variance and a says how much longer the target is. Only what is
    clearly longer is taken over, and nothing along axes where the log density is convex.
    """
    bent = -fit.whiten_factor.T @ fit.curvature @ fit.whiten_factor
    eigenvalues, vectors = np.linalg.eigh(0.5 * (bent + bent.T))
    least = max(LEAST_CURVATURE * fit.error, 1e-7)
    lengths = np.maximum(eigenvalues, least) ** -0.5
    longer = (eigenvalues > -least) & (lengths > LONGER)
    return fit.whiten_factor @ (vectors * np.where(longer, lengths, 1.0))
