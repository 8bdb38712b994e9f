"""Score matching: fit a log density f, up to its constant, to draws x_i of the density itself.

The objective needs the gradient of neither the target nor its value (Hyvarinen, 2005):

    J(f) = sum_i w_i sum_l [ d_l^2 f(x_i) + (d_l f(x_i))^2 / 2 ],     sum_i w_i = 1,

and is, up to a constant, half the expected squared distance between grad f and the gradient of the
log density of the draws. Two families are fitted elsewhere (Strathmann et al., 2015): *lite*, a sum
of Gaussian kernels over the points (:mod:`pymc_kameleon.surrogates.scores.lite`), and *finite*, random
features (:mod:`pymc_kameleon.surrogates.scores.finite`). Both may sit on a Gaussian base density, f =
log q0 + (the fitted part), which confines the tails where there are no points.

Conventions, the same in both: the lengthscale l is that of exp(-r^2 / (2 l^2)), so the text's sigma
is 2 l^2; the draws' weights sum to one; and the regularisation lambda stands beside the *mean*, as
J + (lambda / 2) |f|^2 with |f|^2 a sum of squares that does not depend on the number of points.

References
----------
A. Hyvarinen (2005). Estimation of non-normalized statistical models by score matching. JMLR 6.
H. Strathmann, D. Sejdinovic, S. Livingstone, Z. Szabo, A. Gretton (2015). Gradient-free
Hamiltonian Monte Carlo with efficient kernel exponential families. NIPS.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numba import types
from numba.extending import overload

from pymc_kameleon.kernels import median_distance
from pymc_kameleon.numerics.compiled import njit


class GaussianBase(NamedTuple):
    """The base density log q0(x) = -1/2 sum_l precision_l (x_l - mean_l)^2; flat where precision is 0."""

    mean: np.ndarray  # (d,)
    precision: np.ndarray  # (d,)

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Gradients of log q0 at the rows of ``x`` (n, d), shape (n, d)."""
        return -self.precision * (x - self.mean)


def gaussian_base(dim: int, mean=0.0, scale=np.inf) -> GaussianBase:
    """A base density with the given mean and standard deviations, scalars or of shape (d,).

    The default scale, infinity, is no base density at all: f is then the fitted part alone.
    """
    scale = np.broadcast_to(np.asarray(scale, dtype=float), (dim,))
    if not np.all(scale > 0):
        raise ValueError(f"The base density's scale must be positive (or inf for none), got {scale!r}.")
    return GaussianBase(np.broadcast_to(np.asarray(mean, dtype=float), (dim,)).copy(), scale**-2.0)


# --- a fitted surrogate, whatever its family ------------------------------------------------------


def value_and_gradient(x, surrogate):
    """(f, its gradient (d,)) at one point ``x`` of shape (d,); compiled, and callable from compiled code."""
    return _value_and_gradient(x, surrogate)


@njit(cache=True)
def _value_and_gradient(x, surrogate):
    return value_and_gradient(x, surrogate)


def implement(family: type, own: Callable) -> None:
    """Say what :func:`value_and_gradient` is of a ``family``: one leapfrog serves them all."""

    @overload(value_and_gradient)
    def chosen(x, surrogate):
        if isinstance(surrogate, types.NamedTuple) and surrogate.instance_class is family:
            return lambda x, surrogate: own(x, surrogate)
        return None


def value(x: np.ndarray, surrogate) -> float:
    """f(x) at one point ``x`` of shape (d,)."""
    return value_and_gradient(x, surrogate)[0]


def gradient(x: np.ndarray, surrogate) -> np.ndarray:
    """Gradient of f at one point ``x`` of shape (d,), shape (d,)."""
    return value_and_gradient(x, surrogate)[1]


def score_objective(surrogate, x: np.ndarray, weights: np.ndarray | None = None) -> float:
    """J(f) at the rows of ``x`` (n, d), without any regularisation: smaller is better.

    The same on fresh draws is the held-out score with which lengthscale and regularisation are
    chosen (Strathmann et al., 2015, section 5; J is equation 9 of appendix A.1).
    """
    pointwise = surrogate.laplacians(x) + 0.5 * np.square(surrogate.gradients(x)).sum(axis=1)
    return float(normalized_weights(weights, len(x)) @ pointwise)


def gaussian_objective(train: np.ndarray, test: np.ndarray, train_weights=None, test_weights=None):
    """J on ``test`` of the Gaussian with the weighted mean and covariance of ``train``.

    What a surrogate has to beat: for log q = -1/2 (x - m)' P (x - m), J = mean [|P (x - m)|^2 / 2 - tr P].
    """
    w = normalized_weights(train_weights, len(train))
    mean = w @ train
    centred = train - mean
    precision = np.linalg.pinv((w[:, None] * centred).T @ centred, hermitian=True)
    pull = (test - mean) @ precision
    w = normalized_weights(test_weights, len(test))
    return float(0.5 * w @ np.square(pull).sum(axis=1) - np.trace(precision))


# --- draws ----------------------------------------------------------------------------------------


def normalized_weights(weights: np.ndarray | None, n: int) -> np.ndarray:
    """Weights that sum to one, shape (n,); equal ones for ``None``."""
    if weights is None:
        return np.full(n, 1.0 / n)
    return weights / weights.sum()


def distinct_states(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of ``points`` in the order of their first appearance, and how often each occurs.

    A chain repeats its state at every rejection. Fitting to distinct states with multiplicities as
    weights is the same objective at a smaller size, and no state sits in two folds.
    """
    _, first, counts = np.unique(points, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return np.ascontiguousarray(points[first[order]]), counts[order].astype(float)


def block_folds(n: int, n_folds: int = 4, blocks_per_fold: int = 3) -> list[np.ndarray]:
    """Indices of held-out folds, each made of contiguous blocks spread over the chain.

    Neighbours in a chain are correlated: single states dealt at random would leak from the training
    set into the held-out fold, and the smallest lengthscale would always win.
    """
    blocks = np.array_split(np.arange(n), n_folds * blocks_per_fold)
    return [np.concatenate(blocks[fold::n_folds]) for fold in range(n_folds)]


def lengthscale_grid(points: np.ndarray, n: int = 9) -> np.ndarray:
    """Candidate lengthscales: the median distance of ``points`` (n, d) times 2^-2 ... 2^2.

    Not below a quarter of it: a kernel narrower than the distance of nearest neighbours scores by
    the luck of a few close pairs, in the held-out set too.
    """
    return median_distance(points) * 2.0 ** np.linspace(-2.0, 2.0, n)


class Validation(NamedTuple):
    """Held-out scores over a grid, the best of them, and what a Gaussian fit scores."""

    lengthscale: float | np.ndarray
    regularization: float  # the pair with the smallest mean held-out score
    score: float  # mean held-out J of that pair, and of a Gaussian fitted to the same training sets
    gaussian_score: float
    gain: float  # ``gaussian_score - score``: positive when the surrogate is the better of the two
    gain_error: float  # standard error of ``gain`` over the folds
    scores: np.ndarray  # (n_lengthscales, n_regularizations)


def validate(
    family: Callable[..., np.ndarray],
    points: np.ndarray,
    folds: list[np.ndarray],
    lengthscales: Sequence[float | np.ndarray],
    regularizations: Sequence[float],
    weights: np.ndarray,
    base: GaussianBase,
) -> Validation:
    """Held-out score objective over a grid, without regularisation in the score (appendix A.1).

    ``family`` takes all of these, of one lengthscale, and gives the scores of every fold and regularisation.
    """
    scores = np.stack([family(points, folds, l, regularizations, weights, base) for l in lengthscales], axis=1)
    gaussian = []
    for fold in folds:
        train = np.delete(np.arange(len(points)), fold)
        gaussian.append(gaussian_objective(points[train], points[fold], weights[train], weights[fold]))
    return select(scores, gaussian, lengthscales, regularizations)


def select(fold_scores, gaussian_scores, lengthscales, regularizations) -> Validation:
    """The best pair by mean held-out score; ``fold_scores`` is (n_folds, n_l, n_lambda).

    A pair that failed in some fold (not finite) is never chosen, unless all failed: then the gain is -inf.
    """
    scores = np.where(np.isfinite(fold_scores), fold_scores, np.inf).mean(axis=0)
    i, j = np.unravel_index(np.argmin(scores), scores.shape)
    gains = np.asarray(gaussian_scores) - fold_scores[:, i, j]
    finite = bool(np.isfinite(gains).all())
    gain, error = (gains.mean(), gains.std(ddof=1) / np.sqrt(len(gains))) if finite else (-np.inf, np.inf)
    means = float(scores[i, j]), float(np.mean(gaussian_scores))
    return Validation(lengthscales[i], float(regularizations[j]), *means, float(gain), float(error), scores)


def by_one_triangle(rows: np.ndarray) -> np.ndarray:
    """``rows``' ``rows`` (p, p) of (n, p), exactly symmetric, by half of a product's operations."""
    half = scipy.linalg.blas.dsyrk(1.0, rows.T)  # the upper triangle
    upper = np.triu(half, 1)
    return upper + upper.T + np.diag(np.diagonal(half))


def solve_regularized(matrix: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray | None:
    """(matrix + ridge I)^-1 right by Cholesky, ``None`` if that is not positive definite.

    ``matrix`` of shape (n, n), symmetric, is overwritten.
    """
    if not len(matrix):
        return None
    matrix.flat[:: len(matrix) + 1] += ridge
    # a symmetric C-ordered matrix is its own transpose: Fortran order without a copy
    _, solution, info = scipy.linalg.lapack.dposv(matrix.T, right, lower=1, overwrite_a=1)
    return solution if info == 0 and np.isfinite(solution).all() else None
