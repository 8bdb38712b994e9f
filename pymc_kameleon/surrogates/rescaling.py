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
STRAIGHTENED = 0.1  # twice the change of a log width, per sd of s_j, that is worth it
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
    straight: int  # the block along which trajectories are straightened, the most bent of several; or -1
    origin: np.ndarray  # (d,): middle of the archive in straightened coordinates
    # Those, see :mod:`pymc_kameleon.surrogates.straightened`: of b scales
    bent_variables: np.ndarray  # (b,): j
    halves: np.ndarray  # (b,): -a / 2
    bends: np.ndarray  # (b, d): r_i
    bent_into: np.ndarray  # (d, d)
    bent_back: np.ndarray  # (d, d)
    bent_centre: np.ndarray  # (d,)
    bent_middles: np.ndarray  # (b,)


def nothing(d: int) -> Rescaling:
    """No move, in d dimensions."""
    none, cube = np.zeros(0), np.zeros((0, d, d))
    flat, square = np.zeros((0, d)), np.zeros((d, d))
    return Rescaling(
        none.astype(int), none, flat, cube, cube, flat, none, -1, np.zeros(d),
        none.astype(int), none, flat, square, square, np.zeros(d), none,
    )  # fmt: skip


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
    straight = int(np.argmax(bends)) if kept and max(bends) > STRAIGHTENED else -1

    def stacked(part, *shape):
        return np.array([move[part] for move in kept]).reshape(len(kept), *shape)

    middles = np.median(states, axis=0)[variables]
    moves = nothing(d)._replace(
        variables=variables, rates=rates, exponents=stacked(1, d), into=stacked(2, d, d), back=stacked(3, d, d),
        centres=stacked(4, d), middles=middles, straight=straight,
    )  # fmt: skip
    if straight < 0:
        return moves
    one = slice(straight, straight + 1)
    moves = moves._replace(
        bent_variables=variables[one], halves=-0.5 * rates[one], bends=moves.exponents[one], bent_middles=middles[one],
        bent_into=moves.into[straight], bent_back=moves.back[straight], bent_centre=moves.centres[straight],
    )  # fmt: skip
    most = {variables[i]: i for i in np.argsort(bends) if bends[i] > STRAIGHTENED}  # of a variable
    several = sorted(most.values())
    if surrogate.known and len(several) > 1:
        moves = _together(surrogate, metric, states, moves, several, chosen)
    return moves._replace(origin=np.median(straightened(moves, archive), axis=0))


def _together(surrogate, metric, states, moves: Rescaling, several: list[int], chosen) -> Rescaling:
    """The moves with coordinates in which all ``several`` scales are straight; as they are where that cannot be.

    What a scale bends most has coordinates that nothing else enters, in whose neck all else is large; the others are
    white beside them.
    """
    d, variables = len(metric), moves.variables[several]
    others = np.setdiff1d(np.arange(d), variables)
    middle = np.median(states, axis=0)
    bent, whole = _curvatures(surrogate, middle)
    bent = [-bent[chosen[i]][np.ix_(others, others)] for i in several]
    try:
        own = np.linalg.cholesky(np.atleast_2d(np.cov(states.T))[np.ix_(others, others)])
        total = own.T @ -whole[np.ix_(others, others)] @ own
        values, axes = np.linalg.eigh(0.5 * (total + total.T))
        white = own @ (axes / np.sqrt(np.maximum(values, FLAT)))  # the whole has curvature 1 along each
    except (np.linalg.LinAlgError, ValueError):
        return moves
    bent = [white.T @ (0.5 * (block + block.T)) @ white for block in bent]
    shares, vectors = zip(*(np.linalg.eigh(block) for block in bent), strict=True)
    order = np.argsort(-np.concatenate(shares), kind="stable")
    axes = _basis(np.concatenate([*vectors], axis=1)[:, order], np.concatenate(shares)[order])
    bends = np.clip([np.einsum("im,ij,jm->m", axes, block, axes) for block in bent], 0.0, 1.0)
    directions = white @ np.linalg.inv(axes.T)
    if not (np.isfinite(directions).all() and np.isfinite(bends).all()):
        return moves
    # about the top of them all, see ``_move``
    slope = white.T @ sum(_slope(surrogate, middle, chosen[i])[others] for i in several)
    values, along = np.linalg.eigh(sum(bent))
    step = white @ (along @ np.where(values > FLAT, along.T @ slope / np.maximum(values, FLAT), 0.0))
    frame, inverse, exponents = np.eye(d), np.eye(d), np.zeros((len(several), d))
    frame[np.ix_(others, others)] = directions
    inverse[np.ix_(others, others)] = np.linalg.inv(directions)
    exponents[:, others] = bends
    centre = middle.copy()
    centre[others] += step
    centre[variables] = 0.0
    return moves._replace(
        bent_variables=variables, halves=-0.5 * moves.rates[several], bends=exponents,
        bent_into=np.ascontiguousarray(inverse @ metric), bent_centre=inverse @ centre,
        bent_back=np.ascontiguousarray(np.linalg.inv(metric) @ frame), bent_middles=middle[variables],
    )  # fmt: skip


def _basis(vectors: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Unit vectors (m, m), of ``vectors`` (m, n) whose ``shares`` (n,) fall: above a half as they are."""
    m, basis, white = len(vectors), np.zeros((0, len(vectors))), np.zeros((0, len(vectors)))
    for vector, share in zip(vectors.T, shares, strict=True):
        rest = vector - white.T @ (white @ vector)
        rest -= white.T @ (white @ rest)  # twice is enough
        norm = np.linalg.norm(rest)
        if norm > 0.1 and len(basis) < m:
            white = np.concatenate([white, rest[None] / norm])
            basis = np.concatenate([basis, vector[None] if share > 0.5 else white[-1:]])
    missing = np.linalg.svd(white, full_matrices=True)[2][len(white) :]
    return np.concatenate([basis, missing]).T


def straightened(moves: Rescaling, z: np.ndarray) -> np.ndarray:
    """Where ``z`` (..., d) is from the archive's middle, in coordinates in which D is a ball: z itself without a scale.

    A ball in z ends where a funnel opens, and what is outside of D is left to the random walk.
    """
    if moves.straight < 0:
        return z
    q = z @ moves.bent_into.T - moves.bent_centre
    with np.errstate(over="ignore", invalid="ignore"):  # then it is outside of D
        exponent = 0.0
        for k, j in enumerate(moves.bent_variables):
            exponent = exponent + -moves.halves[k] * moves.bends[k] * (q[..., j, None] - moves.bent_middles[k])
        w = q * np.exp(exponent)
    return w - moves.origin


@njit(cache=True)
def linear(into, centre, z):
    """The coordinates q = ``into`` z - ``centre``, (d,)."""
    q = -centre
    for i in range(z.size):
        for m in range(z.size):
            q[i] += into[i, m] * z[m]
    return q


@njit(cache=True)
def exponents(moves, q, result):
    """Write into ``result`` (d,) by which power of e each of the coordinates ``q`` is narrower than in the middle."""
    for i in range(q.size):
        result[i] = 0.0
    for k in range(moves.halves.size):
        away = q[moves.bent_variables[k]] - moves.bent_middles[k]
        for i in range(q.size):
            result[i] += moves.halves[k] * moves.bends[k, i] * away


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
    if moves.straight < 0:
        return square(z)
    w = linear(moves.bent_into, moves.bent_centre, z)
    narrower = np.empty(z.size)
    exponents(moves, w, narrower)
    for i in range(z.size):
        w[i] = w[i] * math.exp(-narrower[i]) - moves.origin[i]
    return square(w)


def _curvatures(f, middle):
    """In s, at the ``middle`` of the archive: of each block, and of all of f."""
    whiten = f.whiten
    block = [
        growth(middle[None], m, a)[0] * (whiten.T @ q @ whiten)
        for m, a, q in zip(f.blocks.variables, f.blocks.rates, f.blocks.quadratic, strict=True)
    ]
    return block, f.frame.T @ f.quadratic @ f.frame + sum(block)


def _slope(f, middle, k):
    """In s, at the ``middle`` of the archive: of what block ``k`` multiplies."""
    slope = f.blocks.linear[k] + f.blocks.quadratic[k] @ (f.whiten @ middle)
    return growth(middle[None], int(f.blocks.variables[k]), f.blocks.rates[k])[0] * (f.whiten.T @ slope)


def _move(f, metric, states, k):
    """(exponents, into, back, centre) of block ``k``; None where it bends nothing."""
    d, j = len(metric), int(f.blocks.variables[k])
    if d == 1:
        return None
    others = np.delete(np.arange(d), j)
    middle = np.median(states, axis=0)
    block, whole = _curvatures(f, middle)
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
    slope = _slope(f, middle, k)[others]
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
    y = linear(rescaling.into[k], rescaling.centres[k], z)
    log_jacobian = 0.0
    for i in range(z.size):
        growth_of_width = half * rescaling.exponents[k, i]
        log_jacobian += growth_of_width  # exactness hangs on it
        y[i] = y[i] * math.exp(growth_of_width) + rescaling.centres[k, i]
    y[rescaling.variables[k]] += delta
    new[:] = multiply(rescaling.back[k], y)
    return log_jacobian
