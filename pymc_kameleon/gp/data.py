"""Covariates and labels of a classifier: checked, and whitened with the training rows' statistics."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular


def one_of(name, value, allowed):
    """``value``, which has to be among those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def check_covariates(name, X, n_columns=None):
    """``X`` as a finite float array of shape (m, n_columns)."""
    X = np.array(X, dtype=float, order="C")
    if X.ndim != 2 or (n_columns is not None and X.shape[1] != n_columns):
        wanted = "rows and columns" if n_columns is None else f"{n_columns} columns"
        raise ValueError(f"{name} must be two-dimensional with {wanted}; got shape {X.shape}")
    if not np.isfinite(X).all():
        rows = np.flatnonzero(~np.isfinite(X).all(axis=1))
        raise ValueError(f"{name} has NaN or infinite values in rows {rows[:10].tolist()}")
    return X


def check_data(X, y):
    """``X`` as a finite float array without constant columns, and ``y`` as floats in {-1, 1}."""
    X = check_covariates("X", X)
    if len(X) < 2 or X.shape[1] < 1:
        raise ValueError(f"X must have two rows and one column at least; got shape {X.shape}")
    constant = np.flatnonzero(np.ptp(X, axis=0) == 0.0)
    if len(constant):
        raise ValueError(f"columns {constant.tolist()} of X are constant: drop them")
    y = np.array(y, dtype=float)
    if y.shape != (len(X),):
        raise ValueError(f"y must have shape ({len(X)},), a label for each row of X; got {y.shape}")
    labels = np.unique(y)
    if not (np.isin(labels, (-1.0, 1.0)).all() or np.isin(labels, (0.0, 1.0)).all()):
        raise ValueError(f"labels must be in {{-1, 1}} or {{0, 1}}; got {labels[:10].tolist()}")
    if len(labels) < 2:
        raise ValueError(f"y has one class only ({labels.tolist()}): there is nothing to classify")
    return X, np.where(y > 0.0, 1.0, -1.0)


class Whitening(NamedTuple):
    """x -> L^-1 (x - mean), with L L' the covariance of the training rows: column k given those before."""

    mean: np.ndarray
    factor: np.ndarray

    @classmethod
    def fit(cls, X):
        """From the training rows alone, shape (n, d)."""
        try:
            factor = np.linalg.cholesky(np.atleast_2d(np.cov(X.T)))
        except np.linalg.LinAlgError:
            raise ValueError(
                "the columns of X are collinear, so they cannot be whitened: drop those that others determine, "
                "or pass whiten=False"
            ) from None
        return cls(X.mean(axis=0), factor)

    def apply(self, X):
        """Whitened rows, shape (m, d)."""
        return np.ascontiguousarray(solve_triangular(self.factor, (X - self.mean).T, lower=True).T)
