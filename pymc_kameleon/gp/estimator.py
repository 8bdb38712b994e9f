"""Unbiased estimates of a Gaussian-process classifier's marginal likelihood.

    p(y | theta) = integral of prod_j sigma(y_j f_j) N(f | 0, K_theta) df ~= (1/N) sum_i w_i,
    f_i ~ q,  q(f) = N(f | 0, K) exp(nu' f - f' T f / 2) / Z_q,  T = diag(tau) >= 0,
    log w_i = log Z_q + sum_j [log sigma(y_j f_ij) - nu_j f_ij + tau_j f_ij^2 / 2].

This is the estimator of Filippone & Girolami (2014). Prior and proposal cancel in the weight up to the sites (tau, nu),
so neither K^-1 nor log det K is needed and a weight costs O(n). The estimate is unbiased for *any* sites that do not
depend on the draws; Laplace's or EP's make its variance small.

References
----------
Filippone, M. & Girolami, M. (2014). Pseudo-marginal Bayesian inference for Gaussian processes. IEEE Transactions on
Pattern Analysis and Machine Intelligence 36(11), 2214-2226.
"""

import copy
import math
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg import blas, lapack

from pymc_kameleon.gp.covariance import SquaredExponential
from pymc_kameleon.gp.data import check_covariates, check_data, one_of
from pymc_kameleon.gp.sites import LINKS, ep_sites, fill_log_weights, laplace_sites
from pymc_kameleon.numerics.checks import at_least, count

_BLOCK = 64  # rows of draws made at a time: larger temporaries cost page faults
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Gaussian(NamedTuple):
    """The importance distribution q: its sites, its mean, shape (n,), and log Z_q.

    Its covariance is L C^-1 L', with L = chol K in the covariance's ``factor`` and chol C in the estimator's
    ``_workspace``.
    """

    tau: np.ndarray
    nu: np.ndarray
    mean: np.ndarray
    log_normalizer: float
    factorizations: int


class GPClassificationEstimator:
    """Unbiased estimate of p(y | theta) of a Gaussian-process classifier, deterministic given u.

    The latent function has the covariance

        s^2 [exp(-sum_k (x_k - x'_k)^2 / (2 l_k^2)) + nugget 1{x is x'}]

    with one lengthscale a covariate. ``theta`` is log l_k^2 for every k, followed by log s^2 if the signal variance is
    free (otherwise s = 1). The nugget is part of the model.

    All randomness is in ``u``, standard normals of shape ``aux_shape``: the same (theta, u) gives the same estimate,
    bit for bit. ``estimator(rng, theta)`` draws u and is what :class:`pymc_kameleon.NoisyLogLikelihood` takes.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Covariates, as the kernel sees them. Finite, no constant column.
    y : array_like of shape (n,)
        Labels in {-1, 1} or {0, 1}, both present.
    n_importance : int, default 16
        Importance draws, in antithetic pairs, which at the posterior of UCI Glass halve the variance at the same cost.
        16 give the log estimate a variance of about 0.01 there; more do not raise the acceptance rate.
    nugget : float, default 1e-3
        As in Sejdinovic et al. (2014). Zero makes the covariance of duplicated rows singular.
    approximation : {"laplace", "ep"}, optional
        What chooses q. Laplace by default: at unit signal variance more draws are cheaper than EP's ten times smaller
        variance. With a free signal variance EP is the default, because Laplace's Gaussian degrades as the latent
        values grow: on Glass at s^2 = 10, 30 and 100 the variance of the log estimate from 50 draws was 0.5, 1.6 and 8,
        EP's 0.04, 0.2 and 0.5.
    link : {"logit", "probit"}, default "logit"
    signal_variance : {"fixed", "free"}, default "fixed"

    Attributes
    ----------
    dim : int
        Length of theta: d, or d + 1 with a free signal variance.
    aux_shape : tuple
        Shape of u: ((n_importance + 1) // 2, n), a row for an antithetic pair.
    failures : int
        Estimates that were -inf because theta was not finite, a factorisation failed or the weights were not finite.

    Raises
    ------
    ValueError
        For bad data or settings; the message says what to change.

    Notes
    -----
    An instance has buffers: one instance per thread. Pickling drops them.

    Newton's method starts at the mode at one theta, l_k^2 = d var(x_k) and s^2 = 1, found once: about two steps fewer
    than from zeros. It is *frozen*: to start from the mode at the chain's current state would make the estimate a
    function of more than (theta, u), and the pseudo-marginal argument fails.

    Keep BLAS to one thread (OPENBLAS_NUM_THREADS=1, or threadpoolctl): matrices of this size gain nothing from more,
    and on a busy machine lose a factor of ten or more waiting for them. ``gp_classification_model`` sees to it by
    itself.

    E_q[w^2] is formally infinite where the largest eigenvalue of T^1/2 K T^1/2 exceeds 1, because the likelihood
    flattens and q is narrower than the prior in that direction. It does not show in practice at moderate signal
    variances; the Pareto k of ``log_weights`` (Vehtari et al., 2024) tells, as in ``benchmarks/gp_estimator.py``.

    Differs from the paper: antithetic pairs, draws from L C^-T/2 instead of a factor of q's covariance, and the weights
    in site form.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_kameleon.gp_classification import GPClassificationEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 2))
    >>> estimator = GPClassificationEstimator(X, X[:, 0] > 0.0)
    >>> theta, u = np.zeros(2), rng.standard_normal(estimator.aux_shape)
    >>> estimator.log_estimate(theta, u) == estimator.log_estimate(theta, u)
    True
    >>> estimator(rng, theta) == estimator(rng, theta)  # fresh noise
    False
    """

    # Newton stops when log p(f, y) changed by less, or after so many steps: it converges quadratically and q takes one
    # step more, so the variance is that of the exact mode; the estimate is unbiased however few. EP stops when tilted
    # and marginal moments agree to this fraction, or after so many sweeps.
    tolerance, max_newton = 0.3, 30
    ep_tolerance, max_sweeps = 0.01, 30

    def __init__(
        self, X, y, n_importance=16, *, nugget=1e-3, approximation=None, link="logit", signal_variance="fixed"
    ):
        self.X, self.y = check_data(X, y)
        free = one_of("signal_variance", signal_variance, ("fixed", "free")) == "free"
        approximation = ("ep" if free else "laplace") if approximation is None else approximation
        self.approximation = one_of("approximation", approximation, ("laplace", "ep"))
        self.link = one_of("link", link, tuple(LINKS))
        self.signal_variance = signal_variance
        count(1, n_importance=n_importance)
        at_least(0.0, nugget=nugget)
        self.n_importance, self.nugget = n_importance, nugget
        self._covariance = SquaredExponential(self.X, self.nugget, free)
        self.dim = self._covariance.dim
        self.aux_shape = ((self.n_importance + 1) // 2, len(self.y))
        self.failures = 0
        self._allocate()
        self._start = np.zeros(len(self.y))  # where Newton's method starts, shape (n,)
        q = self._fit(self._covariance.default_theta())
        if q is None or not np.isfinite(q.mean).all():
            raise ValueError(
                f"the covariance matrix cannot be factorised with nugget={self.nugget}: duplicated rows need a nugget "
                "> 0 (default 1e-3)"
            )
        self._start = q.mean

    def _allocate(self):
        n, rows = len(self.y), min(_BLOCK, self.aux_shape[0])
        self._workspace = np.zeros((n, n), order="F")
        self._draws = np.empty((n, rows), order="F")

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in ("_workspace", "_draws")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._allocate()

    def __call__(self, rng, theta):
        """Log of an unbiased estimate of p(y | theta), with its noise from ``rng``."""
        return self.log_estimate(theta, rng.standard_normal(self.aux_shape))

    def with_importance(self, n_importance):
        """A copy of the estimator that makes ``n_importance`` draws, with buffers of its own."""
        twin = copy.deepcopy(self)
        count(1, n_importance=n_importance)
        twin.n_importance = n_importance
        twin.aux_shape = ((twin.n_importance + 1) // 2, len(self.y))
        twin.failures = 0
        twin._allocate()
        return twin

    def log_estimate(self, theta, u):
        """Log of the estimate of p(y | theta): deterministic, never NaN; -inf, and counted, where it fails.

        ``theta`` is of shape (dim,), ``u``, standard normals, of shape ``aux_shape``; zeros give Laplace's
        approximation of log p(y | theta), or nearly.
        """
        weights = self.log_weights(theta, u)
        largest = weights.max()
        if not -math.inf < largest < math.inf:  # NaN included
            self.failures += 1
            return -math.inf
        return float(largest + math.log(np.exp(weights - largest).mean()))

    def log_weights(self, theta, u):
        """Log importance weights, shape (n_importance,); all -inf if theta or a Cholesky fails."""
        return self._weigh(*self._checked(theta, u))[1]

    def latent(self, theta, u, rng):
        """One latent vector f, shape (n,), picked among the draws of ``u`` in proportion to its weight.

        If (theta, u) is the state of a pseudo-marginal chain, (theta, f) is an exact draw of the joint posterior
        (Andrieu, Doucet & Holenstein, 2010, theorem 4's argument for one time step).
        """
        theta, u, q, log_weights = self._weighed(theta, u, "latent values")
        index = rng.choice(self.n_importance, p=special.softmax(log_weights))
        deviation = self._deviations(u[index // 2 : index // 2 + 1])[0]
        return q.mean + (deviation if index % 2 == 0 else -deviation)

    def predict(self, theta, u, X_new):
        """Probability of label 1 at new points given theta, by the weighted draws of ``u``.

        For every draw f the latent value at a new point is Gaussian, and its link is averaged over it (24-node
        Gauss-Hermite, exact for probit). Self-normalised weights: a bias of order 1 / n_importance. Of ``X_new`` (m, d)
        the probabilities have shape (m,).
        """
        X_new = check_covariates("X_new", X_new, self.X.shape[1])
        theta, u, q, log_weights = self._weighed(theta, u, "prediction")
        factor = self._covariance.factor
        cross, variance = self._covariance.cross(theta, X_new)
        cross = blas.dtrsm(1.0, factor, cross, lower=1)  # L^-1 K_*, (n, m)
        spread = np.sqrt(np.maximum(variance - np.square(cross).sum(axis=0), 0.0))
        weights = special.softmax(log_weights)
        deviations = np.empty_like(u)
        for row in range(0, len(u), _BLOCK):
            deviations[row : row + _BLOCK] = self._deviations(u[row : row + _BLOCK])
        latents = np.stack([q.mean + deviations, q.mean - deviations], axis=1)
        latents = latents.reshape(-1, len(self.y))[: self.n_importance]
        means = cross.T @ blas.dtrsm(1.0, factor, latents.T, lower=1)  # (m, n_importance)
        if self.link == "probit":
            return special.ndtr(means / np.sqrt(1.0 + spread**2)[:, None]) @ weights
        nodes = zip(_NODES, _WEIGHTS, strict=True)
        return sum(w * (special.expit(means + (x * spread)[:, None]) @ weights) for x, w in nodes)

    def _fit(self, theta):
        """The Gaussian q at theta, or None; leaves chol K and chol C in their buffers."""
        if not np.isfinite(theta).all():
            return None
        with np.errstate(all="ignore"):  # what overflows is caught by its result
            if not self._covariance.update(theta):
                return None
            problem = (self._covariance.matrix, self.y, LINKS[self.link])
            sites = laplace_sites(*problem, self._start, self._workspace, self.tolerance, self.max_newton)
            if sites is not None and self.approximation == "ep":
                sites = ep_sites(*problem, sites, self._workspace, self.ep_tolerance, self.max_sweeps)
            return None if sites is None else self._gaussian(sites)

    def _gaussian(self, sites):
        """The sites' q, by C = I + L' T L: det C = det B, covariance S = L C^-1 L', mean S nu."""
        factor, c = self._covariance.factor, self._workspace
        np.multiply(np.sqrt(sites.tau)[:, None], factor, out=c)
        lapack.dlauum(c, lower=1, overwrite_c=1)  # (T^1/2 L)' (T^1/2 L), n^3 / 3 operations
        np.einsum("ii->i", c)[...] += 1.0
        _, info = lapack.dpotrf(c, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        mean = blas.dtrmv(factor, sites.nu, lower=1, trans=1)
        mean = blas.dtrsv(c, mean, lower=1, overwrite_x=1)
        mean = blas.dtrsv(c, mean, lower=1, trans=1, overwrite_x=1)
        mean = blas.dtrmv(factor, mean, lower=1, overwrite_x=1)
        # Exactness hangs on this being the normaliser of the very q that is drawn from.
        log_normalizer = 0.5 * float(sites.nu @ mean) - float(np.log(np.diagonal(c)).sum())
        return Gaussian(sites.tau, sites.nu, mean, log_normalizer, sites.factorizations + 2)

    def _deviations(self, u):
        """L C^-T/2 u': draws from q minus its mean, shape (rows of u, n). A view of a buffer."""
        draws = self._draws[:, : len(u)]
        draws[...] = u.T
        blas.dtrsm(1.0, self._workspace, draws, lower=1, trans_a=1, overwrite_b=1)
        blas.dtrmm(1.0, self._covariance.factor, draws, lower=1, overwrite_b=1)
        return draws.T

    def _weigh(self, theta, u):
        """(q or None, log weights)."""
        log_weights = np.full(self.n_importance, -math.inf)
        q = self._fit(theta)
        if q is not None:
            for row in range(0, len(u), _BLOCK):
                deviations = self._deviations(u[row : row + _BLOCK])
                fill_log_weights(deviations, *q[:4], self.y, LINKS[self.link], 2 * row, log_weights)
        return q, log_weights

    def _weighed(self, theta, u, wanted):
        """(theta, u, q, log weights); refused where the estimate is -inf."""
        theta, u = self._checked(theta, u)
        q, log_weights = self._weigh(theta, u)
        if q is None or not np.isfinite(log_weights.max()):
            raise ValueError(f"no {wanted} at theta={theta}: the estimate there is -inf")
        return theta, u, q, log_weights

    def _checked(self, theta, u):
        theta = np.asarray(theta, dtype=float)
        if theta.shape != (self.dim,):
            raise ValueError(f"theta must have shape ({self.dim},); got {theta.shape}")
        if np.shape(u) != self.aux_shape:
            raise ValueError(f"u must have shape {self.aux_shape}; got {np.shape(u)}")
        return theta, np.asarray(u, dtype=float)
