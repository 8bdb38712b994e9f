"""Which scales a log density has, and their fit: columns beside the quadratic and monomials, made concave.

See :mod:`pymc_kameleon.surrogates.values.scales` for what they are.
"""

import itertools

import numpy as np

from pymc_kameleon.surrogates.values import features, known_scales, scales
from pymc_kameleon.surrogates.values.features import Surrogate
from pymc_kameleon.surrogates.values.least_squares import Problem, column_size, solve
from pymc_kameleon.surrogates.values.library import Basis, Data, Family, parts

# of log sigma, of a log variance, of a log precision, of its square root's
RATES = (-2.0, -1.0, 1.0, 2.0)
SCREENED = 4000  # points among which blocks are looked for, or ten times the quadratic's columns
CROWDED = 0.9  # columns a point at most
MAX_WORK = 1e10  # multiply-adds of the candidates with mixed terms, of which four are looked at in any case
WORTH = 0.5  # of the residual sum of squares, that a further block may leave


def screen(s, factor, y, weights, scale, quadratic) -> list[list[tuple[int, float]]]:
    """Lists of (variable, rate), each one block longer: greedily what explains most of the residual.

    ``s`` are standardised points (n, d), ``factor`` (d, d) is L, of the chain's covariance in s, ``scale`` (d,) that of
    the coordinates, in which ``RATES`` are, ``quadratic`` (n, p) the columns that are there anyway. All candidates are
    compared without mixed terms, which in well whitened coordinates are few, and as many of the best with them as
    ``MAX_WORK`` allows.
    """
    root = np.sqrt(weights)[:, None]
    basis = np.linalg.qr(root * quadratic)[0]
    left = root[:, 0] * y
    left = left - basis @ (basis.T @ left)
    others = [s @ to_others(factor, j).T for j in range(s.shape[1])]
    found: list[tuple[int, float]] = []
    lists = []
    while len(found) < 3:
        explained = _best(s, others, root, scale, found, basis, left)
        if explained is None:
            break
        block, frame = explained
        rest = left - frame @ (frame.T @ left)
        if not rest @ rest < WORTH * (left @ left):
            break
        found = [*found, block]
        lists.append(found)
        basis, left = np.concatenate([basis, frame], axis=1), rest
    return lists


def _best(s, others, root, scale, found, basis, left):
    """((variable, rate), directions) of the block that explains most of ``left``; None if there are too few points."""
    candidates = list(_candidates(scale, found))
    best = None
    for diagonal in (True, False):
        inner = {j: scales.inner_features(others[j], diagonal) for j, _ in candidates}
        mixed = scales.inner_features(others[0][:1], diagonal).shape[1]
        if basis.shape[1] + mixed > CROWDED * len(s):
            break
        scores = []
        for j, a in candidates:
            block = root * (scales.growth(s, j, a)[:, None] * inner[j])
            frame = _orthonormal(block - basis @ (basis.T @ block))
            explained = np.square(frame.T @ left).sum()
            scores.append(explained)
            if best is None or explained > best[0]:
                best = (explained, (j, a), frame)
            if not diagonal and explained > 0.999 * (left @ left):  # no need to look further
                break
        mixed = features.quadratic_size(s.shape[1] - 1)
        most = int(MAX_WORK / (2.0 * len(s) * mixed * (basis.shape[1] + mixed)))
        candidates = [candidates[i] for i in np.argsort(scores)[::-1][: max(most, 4)]]
    return None if best is None else best[1:]


def to_others(factor: np.ndarray, j: int) -> np.ndarray:
    """T (d - 1, d): coordinates t = T s of all but s_j, white where s has the covariance L L'."""
    d = len(factor)
    others = np.delete(np.arange(d), j)
    own = np.linalg.cholesky((factor @ factor.T)[np.ix_(others, others)])
    matrix = np.zeros((d - 1, d))
    matrix[:, others] = np.linalg.inv(own)
    return matrix


def _candidates(scale, found):
    for j, unit in enumerate(scale):
        for rate in RATES:
            a = rate * unit
            # hardly bent, or one point is all of it
            if 0.02 < abs(a) < 8.0 and (j, a) not in found:
                yield j, a


def _orthonormal(block):
    """Directions that the block has beside rounding's."""
    norms = np.linalg.norm(block, axis=0)
    q, r = np.linalg.qr(block[:, norms > 0.0] / norms[norms > 0.0])
    return q[:, np.abs(np.diag(r)) > 1e-9]


def find(data: Data, columns: np.ndarray) -> list[list[tuple[int, float]]]:
    """One, two, three blocks to try beside the quadratic's columns, the first of ``columns`` (n, p)."""
    train, _ = parts(data)
    free = features.quadratic_size(data.s.shape[1])
    # a block is something or nothing: of tens of thousands of points a part of them tells
    few = slice(0, train.stop, max(1, train.stop // max(SCREENED, 10 * free)))
    return screen(
        data.s[few], data.whiten_factor, data.y[few], data.weights[few], data.template.scale,
        columns[few, :free],
    )  # fmt: skip


def build(data: Data, family: Family, template: Surrogate, base: int, found) -> list[Basis]:
    """Columns to try beside the ``base`` first of those that families share: what :func:`find` found, bare and with
    mixed terms.
    """
    train, _ = parts(data)
    d = data.s.shape[1]
    return [
        _with_scales(data, family, template, base, blocks, diagonal)
        for blocks in found
        for diagonal in (True, False)
        # a noiseless target needs hardly more points
        if base + scales.size(d, [j for j, _ in blocks], diagonal) < CROWDED * train.stop
    ]


def _with_scales(data: Data, family: Family, template: Surrogate, base: int, blocks, diagonal: bool) -> Basis:
    """Columns of scales beside those."""
    d = data.s.shape[1]
    variables, rates = zip(*blocks, strict=True)
    to_t = [to_others(data.whiten_factor, j) for j in variables]
    inner = [scales.inner_features(data.s @ own.T, diagonal) for own in to_t]
    maps = np.array([own @ data.whiten_factor for own in to_t]).reshape(len(to_t), d - 1, d)
    extra = scales.columns(data.s, inner, variables, rates)
    unit = column_size(extra, data.weights)
    blank = scales.unpack(np.zeros(extra.shape[1]), variables, rates, d)
    template = template._replace(blocks=known_scales.beside(template, scales.in_z(blank, maps)))
    return Basis(family, template, base, extra / unit, unit, None, maps)


def made_concave(problem: Problem, basis: Basis, coefficients: np.ndarray, ridge: float) -> np.ndarray:
    """The coefficients with scales that are concave, and what is beside them fitted anew, with ``ridge``."""
    base, d = basis.base, len(basis.template.centre)
    variables, rates = (own[basis.template.known :] for own in basis.template.blocks[:2])
    blocks = scales.unpack(coefficients[base:] / basis.extra_scale, variables, rates, d)
    # simplest first: the relative curvature of a block that may be none, and whether it is pinned
    tried = itertools.product((True, False), (1e-3, 1e-6, 1e-9))
    made = [scales.coefficients(scales.concave(blocks, null, pinned), len(basis.extra_scale)) for pinned, null in tried]
    own, columns = np.array(made).T * basis.extra_scale[:, None], problem.columns[:, :base]
    rest = problem.y[:, None] - problem.columns[:, base:] @ own
    beside = solve(problem._replace(columns=columns, y=rest, gram=problem.gram[:base, :base]), ridge)
    squares = problem.weights @ np.square(rest - columns @ beside) / problem.weights.sum()
    # hardly worse than the best; errors of .003 are next to nothing where the points are, and a lot in a neck
    good = squares <= max(1.2 * squares.min(), 1e-5)
    return np.concatenate([beside, own])[:, int(np.argmax(good))]
