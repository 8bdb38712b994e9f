"""Which scales a log density has, and their fit: columns beside the quadratic, made concave.

See :mod:`pymc_kameleon.surrogates.values.scales` for what they are.
"""

import numpy as np

from pymc_kameleon.surrogates.values import features, scales
from pymc_kameleon.surrogates.values.least_squares import Problem, column_size, solve
from pymc_kameleon.surrogates.values.library import Basis, Data, Family, parts

RATES = (
    -2.0,
    -1.0,
    1.0,
    2.0,
)  # of log sigma, of a log variance, of a log precision, of its square root's
SMALLEST, LARGEST = 0.02, 8.0  # |rate| times the coordinate's sd: hardly bent, or one point is all
MOST = 3  # blocks
CROWDED = 0.9  # columns a point at most
ALL_OF_IT = 0.999  # of the residual sum of squares: no need to look further
MAX_WORK = 1e10  # multiply-adds of the candidates with mixed terms ...
FEWEST = 4  # ... of which so many are looked at in any case
NULLS = (1e-3, 1e-6, 1e-9)  # relative curvatures of a block that may be none
WORTH = 0.5  # of the residual sum of squares, that a further block may leave


def screen(s, z, y, weights, scale, quadratic) -> list[list[tuple[int, float]]]:
    """Lists of (variable, rate), each one block longer: greedily what explains most of the residual.

    Parameters
    ----------
    s, z : ndarray of shape (n, d)
        The same points, standardised and whitened.
    y, weights : ndarray of shape (n,)
    scale : ndarray of shape (d,)
        Of the coordinates, in which ``RATES`` are.
    quadratic : ndarray of shape (n, p)
        The columns that are there anyway.

    Notes
    -----
    All candidates are compared without mixed terms, which in well whitened coordinates are few, and as many of the
    best with them as ``MAX_WORK`` allows.
    """
    root = np.sqrt(weights)[:, None]
    basis = np.linalg.qr(root * quadratic)[0]
    left = root[:, 0] * y
    left = left - basis @ (basis.T @ left)
    found: list[tuple[int, float]] = []
    lists = []
    while len(found) < MOST:
        explained = _best(s, z, root, scale, found, basis, left)
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


def _best(s, z, root, scale, found, basis, left):
    """((variable, rate), directions) of the block that explains most of ``left``; None if there are too few points."""
    candidates = list(_candidates(scale, found))
    best = None
    for diagonal in (True, False):
        inner = scales.inner_features(z, diagonal)
        if basis.shape[1] + inner.shape[1] > CROWDED * len(s):
            break
        scores = []
        for j, a in candidates:
            block = root * (scales.growth(s, j, a)[:, None] * inner)
            frame = _orthonormal(block - basis @ (basis.T @ block))
            explained = np.square(frame.T @ left).sum()
            scores.append(explained)
            if best is None or explained > best[0]:
                best = (explained, (j, a), frame)
            if not diagonal and explained > ALL_OF_IT * (left @ left):
                break
        mixed = features.quadratic_size(z.shape[1])
        most = int(MAX_WORK / (2.0 * len(s) * mixed * (basis.shape[1] + mixed)))
        order = np.argsort(scores)[::-1][: max(most, FEWEST)]
        candidates = [candidates[i] for i in order]
    return None if best is None else best[1:]


def _candidates(scale, found):
    for j, unit in enumerate(scale):
        for rate in RATES:
            a = rate * unit
            if SMALLEST < abs(a) < LARGEST and (j, a) not in found:
                yield j, a


def _orthonormal(block):
    """Directions that the block has beside rounding's."""
    norms = np.linalg.norm(block, axis=0)
    q, r = np.linalg.qr(block[:, norms > 0.0] / norms[norms > 0.0])
    return q[:, np.abs(np.diag(r)) > 1e-9]


def build(data: Data, columns: np.ndarray, family: Family) -> list[Basis]:
    """Columns to try beside the quadratic's, the first of ``columns`` (n, p): one, two, three blocks, bare and with
    mixed terms.
    """
    train, _ = parts(data)
    quadratic = columns[train, : features.quadratic_size(data.s.shape[1])]
    found = screen(
        data.s[train], data.z[train], data.y[train], data.weights[train],
        data.template.scale, quadratic,
    )  # fmt: skip
    return [
        _with_scales(data, family, blocks, diagonal)
        for blocks in found
        for diagonal in (True, False)
        if _are_enough(data, blocks, diagonal)
    ]


def _are_enough(data: Data, blocks, diagonal: bool) -> bool:
    """Whether there are points for so many columns: a noiseless target needs hardly more than those."""
    d = data.s.shape[1]
    columns = scales.size(d, [j for j, _ in blocks], diagonal)
    return features.quadratic_size(d) + columns < CROWDED * parts(data)[0].stop


def _with_scales(data: Data, family: Family, blocks, diagonal: bool) -> Basis:
    """Columns of the quadratic and of scales."""
    d = data.s.shape[1]
    variables, rates = zip(*blocks, strict=True)
    inner = scales.inner_features(data.z, diagonal)
    extra = scales.columns(data.s, inner, variables, rates)
    unit = column_size(extra, data.weights)
    blank = np.zeros(extra.shape[1])
    template = data.template._replace(blocks=scales.unpack(blank, variables, rates, d, diagonal))
    return Basis(family, template, features.quadratic_size(d), extra / unit, unit, None)


def made_concave(problem: Problem, basis: Basis, coefficients: np.ndarray) -> np.ndarray:
    """The coefficients with scales that are concave, and the quadratic fitted anew beside them."""
    free, d = problem.free, len(basis.template.centre)
    own, rates = coefficients[free:] / basis.extra_scale, basis.template.blocks.rates
    variables = basis.template.blocks.variables
    diagonal = len(own) == scales.size(d, variables.tolist(), True)
    blocks = scales.unpack(own, variables, rates, d, diagonal)
    columns, found = problem.columns[:, :free], []
    for null in NULLS:
        own = scales.coefficients(scales.concave(blocks, null), diagonal)
        own *= basis.extra_scale
        rest = problem.y - problem.columns[:, free:] @ own
        alone = Problem(columns, rest, problem.weights, free, problem.gram[:free, :free])
        beside = solve(alone, 0.0)
        square = problem.weights @ np.square(rest - columns @ beside)
        found.append((square, np.concatenate([beside, own])))
    return min(found, key=lambda pair: pair[0])[1]
