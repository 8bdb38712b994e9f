"""Down a funnel's neck in one move: a linear group that fits the scale blocks of a surrogate.

A block exp(a s_j) (c + b'z + z'Qz/2) says that, as s_j grows by delta, the widths of the others shrink by
exp(-a delta r_i / 2), r_i being the block's share of the curvature along direction i: 1 in Neal's funnel, less in a
hierarchy with data. The move

    s_j -> s_j + delta,    y_i -> y_i exp(-a delta r_i / 2),    y = V^(-1) (s - c)_(-j),

with delta symmetric about 0, is its own inverse with -delta, so that it is reversible with respect to exp(f) if it is
accepted with probability min(1, exp(f' - f) |J|), |J| = exp(-a delta sum_i r_i / 2) (Liu & Sabatti, 2000). That holds
whatever a, r, V and c are: they are functions of the surrogate and of the archive alone.

References
----------
J. S. Liu, C. Sabatti (2000). Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
Biometrika 87.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply
from pymc_kameleon.surrogates.values.scales import growth

if TYPE_CHECKING:
    from pymc_kameleon.surrogates.values.features import Surrogate

FLAT = 1e-3  # least curvature of a direction, in the chain's sds
LARGEST_MOVE = 4.0  # of the exponent: a scale that changes more than e^4-fold is not accepted


class Rescaling(NamedTuple):
    """The moves of k blocks, in coordinates z of the dynamics."""

    variables: np.ndarray  # (k,): j
    rates: np.ndarray  # (k,): a
    exponents: np.ndarray  # (k, d): r_i, and 0 for j itself
    into: np.ndarray  # (k, d, d): y = into z - centre, where y_j is s_j
    back: np.ndarray  # (k, d, d): z = back (y + centre)
    centres: np.ndarray  # (k, d)
    middles: np.ndarray  # (k,): of s_j, in the archive
    straight: int  # the block along which trajectories are straightened, or -1
    origin: np.ndarray  # (d,): middle of the archive in straightened coordinates


def nothing(d: int) -> Rescaling:
    """No move, in d dimensions."""
    none, cube = np.zeros(0), np.zeros((0, d, d))
    return Rescaling(none.astype(int), none, np.zeros((0, d)), cube, cube, np.zeros((0, d)), none, -1, np.zeros(d))


def make(surrogate: "Surrogate", metric: np.ndarray, archive: np.ndarray) -> Rescaling:
    """The moves for a surrogate, dynamics in z with s = ``metric`` z, and states ``archive`` (n, d), in z."""
    d, blocks = len(metric), surrogate.blocks
    states = archive @ metric.T  # in s
    kept = []
    for k in range(len(blocks.rates)):
        move = _move(surrogate, metric, states, k)
        if move is not None:
            kept.append((k, *move))
    chosen = np.array([k for k, *_ in kept], dtype=np.int64)
    variables, rates = blocks.variables[chosen], blocks.rates[chosen]
    bends = [abs(a) * move[1].max() for a, move in zip(rates, kept, strict=True)]
    # what is worth straightening: twice the change of a log width, per sd of s_j
    straight = int(np.argmax(bends)) if kept and max(bends) > 0.1 else -1

    def stacked(part, *shape):
        return np.array([move[part] for move in kept]).reshape(len(kept), *shape)

    moves = Rescaling(
        variables, rates, stacked(1, d), stacked(2, d, d), stacked(3, d, d), stacked(4, d),
        np.median(states, axis=0)[variables], straight, np.zeros(d),
    )  # fmt: skip
    if straight >= 0:
        moves = moves._replace(origin=np.median(straightened(moves, archive), axis=0))
    return moves


def straightened(moves: Rescaling, z: np.ndarray) -> np.ndarray:
    """Where ``z`` (..., d) is from the archive's middle, in coordinates in which D is a ball: z itself without a scale.

    A ball in z ends where a funnel opens, and what is outside of D is left to the random walk.
    """
    k = moves.straight
    if k < 0:
        return z
    q = z @ moves.into[k].T - moves.centres[k]
    away = q[..., moves.variables[k], None] - moves.middles[k]
    with np.errstate(over="ignore", invalid="ignore"):  # then it is outside of D
        w = q * np.exp(0.5 * moves.rates[k] * moves.exponents[k] * away)
    return w - moves.origin


@njit(cache=True)
def linear(moves, k, z):
    """The coordinates q (d,) of ``z`` (d,) in which block ``k`` moves."""
    q = -moves.centres[k]
    for i in range(z.size):
        for m in range(z.size):
            q[i] += moves.into[k, i, m] * z[m]
    return q


@njit(cache=True)
def square(z):
    """|z|^2."""
    total = 0.0
    for i in range(z.size):
        total += z[i] * z[i]
    return total


@njit(cache=True)
def square_norm(moves, z):
    """The square of :func:`straightened`'s norm."""
    k = moves.straight
    if k < 0:
        return square(z)
    j = moves.variables[k]
    away = -moves.centres[k, j] - moves.middles[k]
    for m in range(z.size):
        away += moves.into[k, j, m] * z[m]
    w = linear(moves, k, z)
    for i in range(z.size):
        w[i] = w[i] * math.exp(0.5 * moves.rates[k] * moves.exponents[k, i] * away) - moves.origin[i]
    return square(w)


def _move(f, metric, states, k):
    """(exponents, into, back, centre) of block ``k``; None where it bends nothing."""
    d, j = len(metric), int(f.blocks.variables[k])
    if d == 1:
        return None
    others = np.delete(np.arange(d), j)
    middle = np.median(states, axis=0)
    # curvatures in s, at the middle of the archive, of the block and of all of f
    whiten = f.whiten
    block = [
        growth(middle[None], m, a)[0] * (whiten.T @ q @ whiten)
        for m, a, q in zip(f.blocks.variables, f.blocks.rates, f.blocks.quadratic, strict=True)
    ]
    whole = f.frame.T @ f.quadratic @ f.frame + sum(block)
    spread = np.cov(states.T)[np.ix_(others, others)]
    try:
        own = np.linalg.cholesky(spread)
        bent = own.T @ -block[k][np.ix_(others, others)] @ own
        total = own.T @ -whole[np.ix_(others, others)] @ own
        values, axes = np.linalg.eigh(0.5 * (total + total.T))
        total = (axes * np.maximum(values, FLAT)) @ axes.T
        shares, vectors = scipy.linalg.eigh(0.5 * (bent + bent.T), total)
        directions = own @ vectors
    except (np.linalg.LinAlgError, ValueError):
        return None
    shares = np.clip(shares, 0.0, 1.0)
    if not (shares.sum() > 0.01 and np.isfinite(directions).all()):
        return None
    # The block's own top, which is where the others are drawn to in the neck: about any other centre they would be
    # farther away in w the deeper it gets. Along what the block does not bend, any centre is right.
    slope = f.blocks.linear[k] + f.blocks.quadratic[k] @ (whiten @ middle)
    slope = growth(middle[None], j, f.blocks.rates[k])[0] * (whiten.T @ slope)[others]
    step = directions @ np.where(shares > FLAT, directions.T @ slope / np.maximum(shares, FLAT), 0.0)
    inverse = np.eye(d)
    inverse[np.ix_(others, others)] = np.linalg.inv(directions)
    frame = np.eye(d)
    frame[np.ix_(others, others)] = directions
    centre = middle.copy()
    centre[others] += step
    centre[j] = 0.0
    exponents = np.zeros(d)
    exponents[others] = shares
    into = np.ascontiguousarray(inverse @ metric)
    back = np.ascontiguousarray(np.linalg.inv(metric) @ frame)
    return exponents, into, back, inverse @ centre


@njit(cache=True)
def move(rescaling, z, which, size, normal, new):
    """Write the moved ``z`` (d,) into ``new`` and return log |J|; ``which`` and ``size`` are uniform on (0, 1)."""
    k = min(int(which * rescaling.rates.size), rescaling.rates.size - 1)
    delta = math.exp(2.5 * size - 1.5) * normal
    half = -0.5 * rescaling.rates[k] * delta
    if abs(half) > LARGEST_MOVE:  # of -delta, too
        half = 0.0
        delta = 0.0
    y = linear(rescaling, k, z)
    log_jacobian = 0.0
    for i in range(z.size):
        growth_of_width = half * rescaling.exponents[k, i]
        log_jacobian += growth_of_width  # exactness hangs on it
        y[i] = y[i] * math.exp(growth_of_width) + rescaling.centres[k, i]
    y[rescaling.variables[k]] += delta
    new[:] = multiply(rescaling.back[k], y)
    return log_jacobian
