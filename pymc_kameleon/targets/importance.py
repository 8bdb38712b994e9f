"""Truth for posteriors that have none in closed form: a Student envelope about the mode.

With proposal t = location + factor s, s a multivariate t with ``df`` degrees of freedom, and w = p
/ q,

    E f = E_q[w f] / E_q[w],

over a Sobol sequence under independent random shifts: the spread between the shifts is the standard
error. The same envelope, when sup w is known, gives exact draws by rejection.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

LogDensity = Callable[[np.ndarray], float]


class Envelope(NamedTuple):
    """A multivariate t distribution: location (d,), lower factor (d, d), degrees of freedom."""

    location: np.ndarray
    factor: np.ndarray
    df: float

    def log_density(self, s: np.ndarray) -> np.ndarray:
        """Log density at location + factor s, without its constant; ``s`` of shape (..., d)."""
        d = len(self.location)
        return -0.5 * (self.df + d) * np.log1p(np.square(s).sum(axis=-1) / self.df)

    def log_weight(self, log_density: LogDensity, s: np.ndarray) -> np.ndarray:
        """Log p / q at location + factor s, without its constant; ``s`` of shape (n, d)."""
        points = self.location + s @ self.factor.T
        return np.array([log_density(point) for point in points]) - self.log_density(s)


class Moments(NamedTuple):
    """Mean (d,), covariance (d, d), standard error of the mean (d,), effective draws per point."""

    mean: np.ndarray
    cov: np.ndarray
    mean_error: np.ndarray
    efficiency: float


def laplace(
    log_density: LogDensity, start: np.ndarray, df: float = 10.0, inflation: float = 1.1
) -> Envelope:
    """Student envelope at the mode, with the inverse Hessian there times ``inflation`` squared."""
    d = len(start)

    def negative(x):
        return -log_density(x)

    mode = optimize.minimize(negative, start, method="BFGS", options={"gtol": 1e-3}).x
    step = 1e-3 * np.eye(d)  # the coordinates of both posteriors have scales of about 0.1
    hessian = np.empty((d, d))
    for i in range(d):
        for j in range(i + 1):
            a, b = step[i], step[j]
            corners = (
                negative(mode + a + b)
                - negative(mode + a - b)
                - negative(mode - a + b)
                + negative(mode - a - b)
            )
            hessian[i, j] = hessian[j, i] = corners / (4 * 1e-6)
    return Envelope(mode, inflation * np.linalg.cholesky(np.linalg.inv(hessian)), df)


def importance_moments(
    log_density: LogDensity,
    envelope: Envelope,
    log2_points: int = 12,
    shifts: int = 16,
    seed: int = 0,
) -> Moments:
    """Mean and covariance by randomised quasi-Monte Carlo importance sampling, self-normalised.

    Parameters
    ----------
    log_density : callable
        (d,) -> float.
    envelope : Envelope
    log2_points : int
        Points per shift, as a power of two.
    shifts : int
        Independent uniform shifts of the Sobol sequence (modulo 1).
    seed : int
        Of the shifts.
    """
    from scipy.stats import qmc  # slow to import

    d = len(envelope.location)
    rng = np.random.default_rng(seed)
    sobol = qmc.Sobol(d + 1, scramble=False).random_base2(log2_points)
    s = np.concatenate(
        [_student(np.mod(sobol + rng.random(d + 1), 1.0), envelope.df) for _ in range(shifts)]
    )
    log_weight = envelope.log_weight(log_density, s)
    weight = np.exp(log_weight - log_weight.max())
    x = envelope.location + s @ envelope.factor.T
    mean = weight @ x / weight.sum()
    centred = x - mean
    cov = (centred * weight[:, None]).T @ centred / weight.sum()
    per_shift = np.array(
        [
            w @ p / w.sum()
            for w, p in zip(np.split(weight, shifts), np.split(x, shifts), strict=True)
        ]
    )
    error = per_shift.std(axis=0, ddof=1) / math.sqrt(shifts)
    return Moments(mean, cov, error, weight.sum() ** 2 / np.square(weight).sum() / len(weight))


def posterior_moments(log_density: LogDensity, start: np.ndarray) -> Moments:
    """Moments in two stages: about the mode, then about the mean and covariance that this finds."""
    pilot = importance_moments(log_density, laplace(log_density, start), log2_points=9)
    return importance_moments(
        log_density, Envelope(pilot.mean, np.linalg.cholesky(pilot.cov), 10.0)
    )


def _student(u, df):
    """Map uniforms (n, d + 1) to a spherical multivariate t, (n, d)."""
    u = np.clip(u, 1e-12, 1 - 1e-12)
    return special.ndtri(u[:, :-1]) / np.sqrt(special.chdtri(df, u[:, -1:]) / df)


def weight_bound(log_density: LogDensity, envelope: Envelope, seed: int = 0) -> float:
    """Supremum of log p / q, plus a margin of 0.01.

    Found by local ascent from the twelve best of 4096 draws.
    """
    rng = np.random.default_rng(seed)
    d = len(envelope.location)
    s = _student(rng.random((4096, d + 1)), envelope.df)
    best = s[np.argsort(envelope.log_weight(log_density, s))[-12:]]

    def negative(point):
        return -envelope.log_weight(log_density, point[None, :])[0]

    return -min(optimize.minimize(negative, point, method="BFGS").fun for point in best) + 0.01


def rejection_sample(
    rng: np.random.Generator, n: int, log_density: LogDensity, envelope: Envelope, bound: float
) -> np.ndarray:
    """Draw ``n`` exact points, shape (n, d), by rejection from ``envelope``.

    Raises
    ------
    RuntimeError
        If a weight exceeds ``bound``: the draws would not be exact.
    """
    kept: list[np.ndarray] = []
    found = 0
    d = len(envelope.location)
    while found < n:
        s = _student(rng.random((4 * (n - found) + 100, d + 1)), envelope.df)
        log_weight = envelope.log_weight(log_density, s)
        if log_weight.max() > bound:
            raise RuntimeError(
                f"log weight {log_weight.max():.3f} above the bound {bound:.3f}: not an envelope."
            )
        s = s[np.log(rng.random(len(s))) < log_weight - bound]
        kept.append(envelope.location + s @ envelope.factor.T)
        found += len(s)
    return np.concatenate(kept)[:n]
