"""Moves in straightened coordinates: x_i is replaced by x_i minus what the others say about it.

Along a curved ridge a random walk has to be as short as the ridge is narrow. In coordinates r in which the ridge is
straight it does not, and where r is close to normal a proposal may even be independent of the current point. With
w = (x - centre) / scale,

    r_i = w_i - g_i(w_j, j of those that do not depend on i)

for the *sinks*, those coordinates of which g_i, an additive cubic spline regressed on the chain's history, explains
more than a straight line does; r_i = w_i for the others. The order is greedy: the sink of which the splines explain
most, with all others to explain it; then the next without it.

x -> r is one to one with a constant Jacobian (triangular, with ones on the diagonal, times the standardisation), so
that a move which is symmetric in r is symmetric in x, and a density ratio in r is the density ratio in x. Two moves:

"sheared"       r* ~ N(r, s^2 F F^T)
"bent_towards"  r* = m + sqrt(1 - b^2) (r - m) + b F N(0, I), reversible with respect to N(m, F F^T)

m and F F^T are mean and covariance of r over the history. Everything is fixed when tuning ends.

Triangular maps to straighten a posterior are those of Parno & Marzouk (2018), who fit monotone polynomials to the
samples by maximum likelihood. Differs from the paper: shears only, for which that is least squares.

References
----------
M. D. Parno, Y. M. Marzouk (2018). Transport map accelerated Markov chain Monte Carlo. SIAM/ASA J. Uncertain.
Quantif. 6.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE
from pymc_kameleon.samplers import autoregressive
from pymc_kameleon.samplers.seam import Outcome, Proposal

MOVES = ("sheared", "bent_towards")
KNOTS = np.array([0.03, 0.15, 0.35, 0.5, 0.65, 0.85, 0.97])  # quantiles


class Shear(NamedTuple):
    """The map x -> r, and what the moves need."""

    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,): w = (x - centre) / scale
    knots: np.ndarray  # (d, k)
    # (m,): coordinates that are straightened, the last first: a sink does not depend on the sinks before it in this
    # list
    sinks: np.ndarray
    # (m, d, 3 + k): of w_j, w_j^2, w_j^3 and max(w_j - knot, 0)^3 in g; zero where g does not depend on j
    coefficients: np.ndarray
    mean: np.ndarray  # (d,): of r
    factor: np.ndarray  # (d, d): of its covariance
    log_scale: float
    moves: int
    autoregression: autoregressive.Tuning


# in the place of no shear, for compiled functions
STRAIGHT = Shear(
    np.empty(0), np.empty(0), np.empty((0, 0)), np.empty(0, np.int64), np.empty((0, 0, 0)), np.empty(0),
    np.empty((0, 0)), 0.0, 0, autoregressive.Tuning(),
)  # fmt: skip


def learn(states: np.ndarray, before: Shear | None) -> Shear | None:
    """The shear of a chain's ``states`` (n, d), or ``None`` where no coordinate is a curved function of the others.

    ``before`` is the last one, whose scales go on.
    """
    d, distinct = states.shape[1], history.count_distinct(states)
    if not 2 <= d <= 30:  # regressions of every coordinate on all others are not free
        return None
    states = history.thin(states, 2000)
    centre, scale = states.mean(axis=0), np.maximum(states.std(axis=0), 1e-300)
    w = (states - centre) / scale
    knots = np.ascontiguousarray(np.quantile(w, KNOTS, axis=0).T)
    # A chain's distinct states are not independent; half of them is a guess on the safe side.
    sinks, coefficients = _fit(_basis(w, knots), 0.5 * min(len(states), distinct))
    if not sinks:
        return None
    shear = Shear(
        centre, scale, knots, np.array(sinks), np.array(coefficients),
        mean=np.zeros(d),
        factor=np.eye(d),
        log_scale=math.log(OPTIMAL_SCALE / math.sqrt(d)) if before is None else before.log_scale,
        moves=10 if before is None else max(int(0.3 * before.moves), 10),
        autoregression=autoregressive.Tuning() if before is None else before.autoregression,
    )  # fmt: skip
    r = np.array([straighten(x, *shear[:5]) for x in states])
    factor, ok = cholesky(np.atleast_2d(np.cov(r.T, bias=True)))
    return shear._replace(mean=r.mean(axis=0), factor=factor) if ok else None


def propose(rng: np.random.Generator, x: np.ndarray, shear: Shear) -> Proposal:
    """One of the two moves from ``x``, shape (d,)."""
    r = straighten(x, *shear[:5])
    # Exactness hangs on the Jacobian of x -> r being constant: what is symmetric in r is symmetric in x.
    if rng.random() < 0.5:
        step = math.exp(shear.log_scale) * (shear.factor @ rng.standard_normal(len(x)))
        return Proposal(bend(r + step, *shear[:5]), 0.0, "sheared")
    proposal = autoregressive.propose(rng, r, shear.mean, shear.factor, shear.autoregression)
    return proposal._replace(position=bend(proposal.position, *shear[:5]), move="bent_towards")


def adapt(shear: Shear, outcome: Outcome, target_accept: float) -> Shear:
    """Tune the step of the move that was made."""
    if outcome.proposal.move == "bent_towards":
        return shear._replace(autoregression=autoregressive.adapt(shear.autoregression, outcome))
    moves = shear.moves + 1
    log_scale = outcome.tuned(shear.log_scale, target_accept, 2.0 * moves**-0.6, -8.0, 2.0)
    return shear._replace(log_scale=log_scale, moves=moves)


def _basis(w, knots):
    """Terms of every coordinate, shape (d, 3 + k, n)."""
    return np.stack(
        [
            np.stack([v, v**2, v**3, *(np.maximum(v - k, 0.0) ** 3 for k in at)])
            for v, at in zip(w.T, knots, strict=True)
        ]
    )


def _fit(basis, effective_size):
    """(sinks, coefficients) of the terms ``basis`` (d, 3 + k, n), whose first is the coordinate itself."""
    d, terms, n = basis.shape
    flat = basis.reshape(d * terms, n)
    spread = np.maximum(flat.std(axis=1), 1e-12)
    flat = (flat - flat.mean(axis=1)[:, None]) / spread[:, None]
    gram = flat @ flat.T / n
    left, sinks, coefficients = list(range(d)), [], []
    while len(left) > 1:
        gains, fits = zip(*(_best(gram, i, left, terms, effective_size) for i in left), strict=True)
        best = int(np.argmax(gains))
        if gains[best] <= 0.1:  # nats beyond a straight line, for each draw
            break
        i, (columns, beta) = left.pop(best), fits[best]
        found = np.zeros(d * terms)
        found[columns] = beta * spread[i * terms] / spread[columns]
        sinks.append(i)
        coefficients.append(found.reshape(d, terms))
    return sinks, coefficients


def _best(gram, i, left, terms, effective_size):
    """(gain, (columns, coefficients)) of cubics or splines in the others that are ``left``, for coordinate i."""
    others = [j for j in left if j != i]
    straight = _score(gram, [j * terms for j in others], i * terms, effective_size)[0]
    gain, fit = 0.0, None
    for k in (3, terms):
        columns = [j * terms + a for j in others for a in range(k)]
        if len(columns) > 0.3 * effective_size:
            break
        score, beta = _score(gram, columns, i * terms, effective_size)
        if straight - score > gain:
            gain, fit = straight - score, (columns, beta)
    return gain, fit


def _score(gram, columns, target, effective_size):
    """Akaike's criterion for each draw, halved: (nats, coefficients)."""
    inner = gram[np.ix_(columns, columns)]
    right = gram[columns, target]
    beta = np.linalg.solve(inner + 1e-7 * np.eye(len(columns)), right)
    left = max(1.0 - 2.0 * beta @ right + beta @ inner @ beta, 1e-12)
    return 0.5 * math.log(left) + len(columns) / effective_size, beta


@njit(cache=True)
def straighten(x, centre, scale, knots, sinks, coefficients):
    """The straight coordinates r of ``x``, shape (d,); the arguments are the shear's."""
    w = (x - centre) / scale
    r = w.copy()
    for s in range(sinks.size):
        r[sinks[s]] -= _curve(w, knots, coefficients[s])
    return r


@njit(cache=True)
def bend(r, centre, scale, knots, sinks, coefficients):
    """The inverse: x from ``r``, shape (d,)."""
    w = r.copy()
    for s in range(sinks.size - 1, -1, -1):
        w[sinks[s]] += _curve(w, knots, coefficients[s])
    return centre + scale * w


@njit(cache=True)
def _curve(w, knots, coefficients):
    total = 0.0
    for j in range(w.size):
        c = coefficients[j]
        v = w[j]
        total += v * (c[0] + v * (c[1] + v * c[2]))
        for k in range(knots.shape[1]):
            if v > knots[j, k]:
                total += c[3 + k] * (v - knots[j, k]) ** 3
    return total
