"""Fit a small Gaussian mixture to a chain's past: sum_k w_k N(mu_k, C_k), its size chosen by block cross-validation.

Expectation-maximisation (Dempster, Laird & Rubin, 1977) from k-means++ seeds (Arthur & Vassilvitskii, 2007), a fixed
number of iterations, every covariance shrunk towards the pooled within-component one:

    C_k = (S_k + kappa P) / (N_k + kappa),   P = sum_k S_k / n + 1e-6 I,   kappa = (d + 1) n / n_eff,

S_k the scatter about mu_k under the responsibilities and N_k their sum. n_eff says that a chain's states are not
independent: with few of them every component has nearly the pooled shape. Points are expected in whitened
coordinates, which is what makes the constants here free of units and the sums over features stable.
"""

from typing import NamedTuple

import numpy as np
import scipy

WEIGHT_PRIOR = 1e-3  # pseudo-count of every component
# An independence proposal must be wider than the target, and what has not been seen lies outside of what has.
INFLATION, BROAD = 1.4, 0.1


class Mixture(NamedTuple):
    """sum_k w_k N(mu_k, C_k)."""

    weights: np.ndarray  # (K,)
    means: np.ndarray  # (K, d)
    covariances: np.ndarray  # (K, d, d)


def fit(
    rng: np.random.Generator, points: np.ndarray, size: int, effective_size: float, iterations: int = 15
) -> Mixture:
    """The mixture of ``size`` components after ``iterations`` of EM, of ``points`` (n, d).

    ``effective_size`` is n_eff, at most n: how many independent points they are worth.
    """
    features = _features(points)
    if size == 1:
        return _maximise(np.ones((len(points), 1)), features, points.shape[1], effective_size)
    seeds = _seeds(rng, points, size)
    nearest = ((seeds**2).sum(axis=1) - 2.0 * points @ seeds.T).argmin(axis=1)
    mixture = _maximise(np.eye(size)[nearest], features, points.shape[1], effective_size)
    for _ in range(iterations - 1):
        responsibilities = scipy.special.softmax(_log_terms(mixture, features), axis=1)
        mixture = _maximise(responsibilities, features, points.shape[1], effective_size)
    return mixture


def widen(mixture: Mixture) -> Mixture:
    """Covariances times ``INFLATION``, and a component N(0, 4 I) of weight ``BROAD``."""
    weights, means, covariances = mixture
    d = means.shape[1]
    return Mixture(
        np.append((1.0 - BROAD) * weights, BROAD), np.vstack([means, np.zeros(d)]),
        np.concatenate([INFLATION * covariances, 4.0 * np.eye(d)[None]]),
    )  # fmt: skip


def choose_size(rng: np.random.Generator, points: np.ndarray, largest: int, effective_size: float) -> int:
    """Number of components among 1, 2, 4, ... <= ``largest`` that predicts held-out points best, once widened.

    ``points`` (n, d) are in the order of time. Neighbours in time are alike, so whole blocks of them are held out: ten
    blocks, fitted to the even and scored on the odd ones and the other way round. A size is not tried after two that
    did not improve on a smaller one.

    Scored is what proposes, the widened mixture: for a mixture that is not widened a few held-out points in a gap
    decide, larger ones are refused, and on cold-started chains two fifths of the effective draws are lost.
    """
    block = np.arange(len(points)) * 10 // len(points)
    halves = points[block % 2 == 0], points[block % 2 == 1]
    best, best_score, size = 1, -np.inf, 1
    while size <= min(largest, 4 * best):
        score = 0
        for train, test in (halves, halves[::-1]):
            scores = log_density(widen(fit(rng, train, size, effective_size / 2, iterations=10)), test)
            # one wild point must not decide, so each counts at least as -60 - 3 d
            score += np.maximum(scores, -60.0 - 3.0 * points.shape[1]).mean()
        if score > best_score:
            best, best_score = size, score
        size *= 2
    return best


def log_density(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """Log density at ``points`` (n, d), without the constant -(d/2) log(2 pi); shape (n,)."""
    logs = _log_terms(mixture, _features(points))
    peak = logs.max(axis=1)
    return peak + np.log(np.exp(logs - peak[:, None]).sum(axis=1))


def _features(points):
    """[1, z, all z_i z_j], shape (n, 1 + d + d^2): both steps of EM are one matrix product with it."""
    n, d = points.shape
    squares = points[:, :, None] * points[:, None, :]
    return np.hstack([np.ones((n, 1)), points, squares.reshape(n, d * d)])


def _log_terms(mixture, features):
    """Terms log w_k + log N(z_a; mu_k, C_k) without -(d/2) log(2 pi), shape (n, K)."""
    weights, means, covariances = mixture
    size, d = means.shape
    precisions = np.linalg.inv(covariances)
    linear = np.einsum("kij,kj->ki", precisions, means)
    constant = np.log(weights) - 0.5 * np.linalg.slogdet(covariances)[1]
    constant -= 0.5 * np.einsum("ki,ki->k", linear, means)
    coefficients = np.hstack([constant[:, None], linear, -0.5 * precisions.reshape(size, d * d)])
    return features @ coefficients.T


def _maximise(responsibilities, features, d, effective_size):
    """The mixture given ``responsibilities`` (n, K): weighted moments, shrunk."""
    n, size = responsibilities.shape
    sums = responsibilities.T @ features
    counts = np.maximum(sums[:, 0], 1e-10)
    means = sums[:, 1 : d + 1] / counts[:, None]
    scatters = sums[:, d + 1 :].reshape(size, d, d)
    scatters = scatters - counts[:, None, None] * means[:, :, None] * means[:, None, :]
    pooled = scatters.sum(axis=0) / n + 1e-6 * np.eye(d)
    shrinkage = (d + 1.0) * n / effective_size
    covariances = (scatters + shrinkage * pooled) / (counts + shrinkage)[:, None, None]
    weights = (counts + WEIGHT_PRIOR) / (counts.sum() + size * WEIGHT_PRIOR)
    return Mixture(weights, means, covariances)


def _seeds(rng, points, size):
    """``size`` of the points, each drawn in proportion to its squared distance from those drawn before."""
    uniforms = rng.random(size)
    seeds = [points[int(uniforms[0] * len(points))]]
    squares = np.full(len(points), np.inf)
    for u in uniforms[1:]:
        squares = np.minimum(squares, ((points - seeds[-1]) ** 2).sum(axis=1))
        cumulative = np.cumsum(squares)
        chosen = np.searchsorted(cumulative, u * cumulative[-1], side="right")
        seeds.append(points[min(chosen, len(points) - 1)])
    return np.array(seeds)
