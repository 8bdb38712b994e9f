"""A quadratic through weighted values, by least squares that lose nothing to units, rotations and ill-conditioning.

A rotated quadratic whose axes have lengths in the ratio 1e6 has second derivatives that cancel to twelve digits in any
coordinates that are standardised one by one, and normal equations square the condition number again. Here the points
are whitened by their own weighted covariance first, computed from the points without forming it, and the
coefficients come from a QR factorisation: with exact values the fit is exact to some 1e-10 for draws from the target,
to 1e-6 where the points have seen 30 times the shortest axis and the longest is a million times as long.

Everything stays in whitened coordinates u, with x = centre + factor u. :func:`hessian` in the coordinates of x is for
looking at: what is computed from it has lost those digits again. Newton's step, for instance, is :func:`newton`.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from pymc_kameleon.surrogates.values.features import (
    quadratic_features,
    quadratic_size,
    unpack_quadratic,
)

NARROWEST = 1e-11  # of a coordinate's sd: the shortest axis that whitening resolves
RANK = 1e-11  # smallest diagonal element of R, of columns of unit length, of an independent column


class Quadratic(NamedTuple):
    """f(x) = constant + linear'u + u' curvature u / 2 with x = centre + factor u.

    Attributes
    ----------
    centre : ndarray of shape (d,)
        Weighted mean of the points.
    factor : ndarray of shape (d, d)
        Lower triangular; factor factor' is the points' weighted covariance.
    constant : float
    linear : ndarray of shape (d,)
        Gradient with respect to u at the centre.
    curvature : ndarray of shape (d, d)
        Hessian with respect to u, symmetric.
    residuals : ndarray of shape (n,)
        Value minus f at the points.
    left_out : ndarray of shape (n,)
        The same where the point has no say in f: residual / (1 - leverage); infinite where f hangs on that point.
    """

    centre: np.ndarray
    factor: np.ndarray
    constant: float
    linear: np.ndarray
    curvature: np.ndarray
    residuals: np.ndarray
    left_out: np.ndarray


def fit(points: np.ndarray, values: np.ndarray, weights: np.ndarray | None = None) -> Quadratic:
    """The quadratic of least weighted squares.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        n at least (d + 1)(d + 2) / 2.
    values : ndarray of shape (n,)
        Finite.
    weights : ndarray of shape (n,), optional
        Not negative; default 1.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the points do not determine a quadratic.
    """
    n, d = points.shape
    size = quadratic_size(d)
    if n < size:
        raise np.linalg.LinAlgError(f"{n} points do not determine the {size} coefficients")
    weights = np.ones(n) if weights is None else weights
    centre, factor = whiten(points, weights)
    if (np.diag(factor) < 5.0 * NARROWEST * np.linalg.norm(factor, axis=1)).any():
        raise np.linalg.LinAlgError("the points lie in a subspace and do not determine a quadratic")
    columns = quadratic_features(to_u(points - centre, factor))
    root = np.sqrt(weights / weights.sum())
    system = columns * root[:, None]
    scale = np.sqrt(np.square(system).sum(axis=0)) + 1e-300
    q, r = linalg.qr(system / scale, mode="economic", check_finite=False)
    if np.abs(np.diag(r)).min() < RANK:
        raise np.linalg.LinAlgError(f"the {n} points do not determine a quadratic")
    offset = float(values[np.argmax(weights)])  # so that large values do not cost digits
    found = linalg.solve_triangular(r, q.T @ (root * (values - offset))) / scale
    residuals = values - offset - columns @ found
    spare = 1.0 - np.square(q).sum(axis=1)
    left_out = np.where(spare > 1e-9, residuals / np.maximum(spare, 1e-9), np.inf)
    constant, linear, curvature = unpack_quadratic(found, d)
    return Quadratic(centre, factor, constant + offset, linear, curvature, residuals, left_out)


def whiten(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean (d,) and lower triangular factor (d, d) of the weighted covariance of ``points`` (n, d).

    By QR of the points: a covariance matrix would already have lost the axes that are 1e-8 of the longest.
    Coordinates that do not vary get ``NARROWEST``.
    """
    weights = weights / weights.sum()
    centre = weights @ points
    centred = points - centre
    centre = centre + weights @ centred
    centred = points - centre
    scale = np.sqrt(weights @ np.square(centred)) + 1e-15 * np.abs(centre) + 1e-300
    return centre, scale[:, None] * root(np.sqrt(weights)[:, None] * (centred / scale))


def root(rows: np.ndarray) -> np.ndarray:
    """Lower triangular L with L L' = ``rows``' ``rows`` of shape (d, d), the columns of unit length or so."""
    d = rows.shape[1]
    augmented = np.concatenate([rows, NARROWEST * np.eye(d)])
    r = linalg.qr(augmented, mode="r", check_finite=False)[0][:d]
    return np.ascontiguousarray((r * np.where(np.diag(r) < 0.0, -1.0, 1.0)[:, None]).T)


def to_u(centred: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """factor^(-1) of every row of ``centred`` (n, d), shape (n, d)."""
    return linalg.solve_triangular(factor, centred.T, lower=True, check_finite=False).T


def value(quadratic: Quadratic, x: np.ndarray) -> np.ndarray:
    """F at every row of ``x`` (n, d), shape (n,)."""
    u = to_u(x - quadratic.centre, quadratic.factor)
    return quadratic.constant + u @ quadratic.linear + 0.5 * ((u @ quadratic.curvature) * u).sum(1)


def gradient(quadratic: Quadratic, x: np.ndarray) -> np.ndarray:
    """Df/dx at ``x`` (d,), shape (d,)."""
    by_u = quadratic.linear + quadratic.curvature @ to_u(
        (x - quadratic.centre)[None], quadratic.factor
    ).reshape(-1)
    return linalg.solve_triangular(quadratic.factor, by_u, lower=True, trans="T")


def hessian(quadratic: Quadratic) -> np.ndarray:
    """d^2 f / dx^2, shape (d, d)."""
    inverse = linalg.solve_triangular(quadratic.factor, np.eye(len(quadratic.centre)), lower=True)
    return inverse.T @ quadratic.curvature @ inverse


def axes(quadratic: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (d,) of -curvature, ascending, and the axes in x that belong to them, the columns of (d, d).

    In units of the points' own extent: a positive eigenvalue e says that the normal density exp(f) is e^(-1/2) times
    as long along that axis as the points.
    """
    eigenvalues, vectors = np.linalg.eigh(-quadratic.curvature)
    return eigenvalues, quadratic.factor @ vectors


def newton(quadratic: Quadratic, least: float = 1e-12) -> np.ndarray:
    """Where f is highest, shape (d,), along the axes whose eigenvalue is above ``least``; the centre along others."""
    eigenvalues, vectors = np.linalg.eigh(-quadratic.curvature)
    slopes = vectors.T @ quadratic.linear
    steps = np.where(eigenvalues > least, slopes / np.maximum(eigenvalues, least), 0.0)
    return quadratic.centre + quadratic.factor @ (vectors @ steps)
