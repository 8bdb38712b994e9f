"""A quadratic through values of the log density, from as few points as there are, for
:mod:`pymc_kameleon.samplers.arrival.phase`.

Powell's idea (2006) in its dual form: of all quadratics through the values take the one whose Hessian is smallest,
here as a Gaussian process with the quadratic kernel

    k(s, t) = G s't + (s't)^2 / 2 + T |s|^2 |t|^2 / 4 + D sum_j s_j^2 t_j^2 / 4,

in coordinates s in which the present point is 0 and the trust region the unit ball. It interpolates the value at 0.
Slopes cost next to nothing (G), then curvature that is the same in all directions (T) or along the axes (D), then the
rest. With as many points as coefficients it is *the* quadratic. It costs m^3 for m points, whatever the dimension,
and says how uncertain it is, which tells where to look next.

Far from the mode a log density may span a hundred orders of magnitude (minus an exponential of what is unknown). Then
t = -c log(1 + fall / c) is modelled instead of the fall itself; c (infinity: no transform), and how much points beyond
the trust region may deviate, are chosen by marginal likelihood.

References
----------
M. J. D. Powell (2006). The NEWUOA software for unconstrained optimization without derivatives.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

SLOPE, SAME, AXIS = 1e3, 3.0, 3.0  # G, T and D; prior variances in units of any other curvature's
# relative, at the trust region's edge; grows with the distance cubed, between 0.3 and 30 of its radii
DEVIATIONS = (1e-6, 1e-4, 1e-2, 1e-1)
FAR = 1e4  # nats


class Model(NamedTuple):
    """A fitted quadratic."""

    points: np.ndarray  # (m, d): what it was fitted to, in the coordinates s
    slope: np.ndarray  # (d,): at 0, of the transformed log density
    hessian: np.ndarray  # (d, d): of the same
    transform: float  # c that was chosen
    deviation: float  # the relative one that was chosen
    cholesky: np.ndarray  # (m, m)
    amplitude: float  # variance of the process


def kernel(s: np.ndarray, t: np.ndarray, slope: float = SLOPE) -> np.ndarray:
    """Covariance k of the rows of ``s`` (m, d) and ``t`` (n, d), shape (m, n); with ``slope=0`` its quadratic part."""
    product, s2, t2 = s @ t.T, s * s, t * t
    same = np.outer(s2.sum(axis=1), t2.sum(axis=1))
    return slope * product + 0.5 * product**2 + 0.25 * SAME * same + 0.25 * AXIS * s2 @ t2.T


def fit(points: np.ndarray, fall: np.ndarray, choices: list[tuple[float, float]]) -> Model | None:
    """Fit to how far the log density has fallen, (m,), from the present point to ``points`` (m, d).

    With one of the ``choices`` (transform, deviation); None if nothing could be factorised.
    """
    m, gram, squares = len(points), kernel(points, points), np.square(points)
    growth = np.clip(np.sqrt(squares.sum(axis=1)), 0.3, 30.0) ** 3
    nugget = 1e-10 + 1e-13 * np.trace(gram) / m
    best, best_evidence = None, -math.inf
    for transform, deviation in choices:
        values, log_jacobian = -fall, 0.0
        if math.isfinite(transform):
            stretched = np.log1p(fall / transform)
            values, log_jacobian = -transform * stretched, -stretched.sum()
        try:
            factor = np.linalg.cholesky(gram + np.diag((deviation * growth) ** 2 + nugget))
        except np.linalg.LinAlgError:
            continue
        half = scipy.linalg.solve_triangular(factor, values, lower=True, check_finite=False)
        amplitude = max(half @ half / m, 1e-300)
        evidence = -0.5 * m * math.log(amplitude) - np.log(np.diag(factor)).sum() + log_jacobian
        if evidence > best_evidence:
            best, best_evidence = (transform, deviation, factor, half, amplitude), evidence
    if best is None:
        return None
    transform, deviation, factor, half, amplitude = best
    weights = scipy.linalg.solve_triangular(factor, half, lower=True, trans=1, check_finite=False)
    hessian = (points.T * weights) @ points + np.diag(0.5 * AXIS * (weights @ squares))
    hessian += 0.5 * SAME * (weights @ squares.sum(axis=1)) * np.eye(points.shape[1])
    return Model(points, SLOPE * (weights @ points), hessian, transform, deviation, factor, amplitude)


def transforms(fall: np.ndarray) -> list[float]:
    """Values of c that are worth trying: none, the scale of the largest fall and of the middle one.

    Orders of magnitude away that of the smallest one, too: minus an exponential is what the present value's own size
    straightens, and the points behind have fallen by many times that. Nearer, it is one choice too many for the points
    that there are: a log density of a few hundred nats is rather a quadratic.
    """
    smallest = float(np.min(fall, where=fall > 0.0, initial=math.inf))
    further = [smallest] if FAR < smallest < math.inf else []
    return [math.inf, max(float(fall.max()), 1.0), max(float(np.median(fall)), 1.0), *further]


def gain(model: Model, s: np.ndarray) -> float:
    """Predicted gain at ``s`` (d,), transformed."""
    return float(model.slope @ s + 0.5 * s @ model.hessian @ s)


def transformed(model: Model, change: float) -> float:
    """A change of the log density in the units of :func:`gain`."""
    c = model.transform
    return change if math.isinf(c) else -c * math.log1p(max(-change / c, -0.999))


def untransformed(model: Model, change: float) -> float:
    """The inverse of :func:`transformed`."""
    c = model.transform
    return change if math.isinf(c) else -c * math.expm1(min(-change / c, 700.0))


def curvature(model: Model) -> np.ndarray:
    """Hessian of the log density itself at 0, shape (d, d)."""
    if math.isinf(model.transform):
        return model.hessian
    return model.hessian - np.outer(model.slope, model.slope) / model.transform


def variance(model: Model, s: np.ndarray) -> np.ndarray:
    """Of the prediction at the rows of ``s`` (n, d), shape (n,)."""
    own = np.square(s).sum(axis=1)
    prior = SLOPE * own + (0.5 + 0.25 * SAME) * own**2 + 0.25 * AXIS * (s**4).sum(axis=1)
    return _remaining(model, prior, kernel(s, model.points))


def curvature_sd(model: Model, directions: np.ndarray) -> np.ndarray:
    """Uncertainty of e'He for the rows e, unit vectors, of ``directions`` (n, d), shape (n,)."""
    prior = (0.5 + 0.25 * SAME) + 0.25 * AXIS * (directions**4).sum(axis=1)
    return 2.0 * np.sqrt(_remaining(model, prior, kernel(directions, model.points, slope=0.0)))


def _remaining(model, prior, cross):
    explained = scipy.linalg.solve_triangular(model.cholesky, cross.T, lower=True, check_finite=False)
    return np.maximum(prior - np.square(explained).sum(axis=0), 0.0) * model.amplitude


def highest(model: Model) -> np.ndarray:
    """Where in the unit ball the model is highest (More & Sorensen, 1983), shape (d,)."""
    values, vectors = np.linalg.eigh(model.hessian)
    slope = vectors.T @ model.slope
    with np.errstate(divide="ignore", over="ignore"):
        if values[-1] < 0.0 and np.linalg.norm(slope / values) <= 1.0:
            return vectors @ (-slope / values)
    low = max(values[-1], 0.0)
    high = low + np.linalg.norm(slope) + 1e-300
    for _ in range(60):  # |s| = 1 for one multiplier, above the largest eigenvalue
        middle = 0.5 * (low + high)
        inside = np.linalg.norm(slope / np.maximum(middle - values, 1e-300)) <= 1.0
        low, high = (low, middle) if inside else (middle, high)
    s = slope / np.maximum(high - values, 1e-300)
    length = np.linalg.norm(s)
    if length < 0.999:  # the hard case: the rest along the most convex direction
        s[-1] += math.copysign(math.sqrt(1.0 - length**2), slope[-1])
    return vectors @ s
