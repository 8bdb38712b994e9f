"""Which mode a point belongs to, and where it would be in another: the geometry that jumps stand on.

A *catalogue* has of every mode k a centre m_k and a lower Cholesky factor L_k of its covariance. A point belongs to the
mode under whose normal density it is highest, k(x) = argmin |L_k^-1 (x - m_k)|^2 / 2 + log |L_k|: a fixed function, so
that the regions A_k = {x : k(x) = k} divide the space. Between modes it is taken by its standardised coordinates,

    T_kj(x) = m_j + L_j L_k^-1 (x - m_k),        |det T_kj| = |L_j| / |L_k|,        T_jk(T_kj(x)) = x.

References
----------
E. Pompe, C. Holmes & K. Latuszynski (2020). A framework for adaptive MCMC targeting multimodal distributions. Annals of
Statistics 48: the auxiliary variable there is a function of the point here, and so needs no draws of its own.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.samplers.kamiltonian.values.state import State as OneMode
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import LONG


class Catalogue(NamedTuple):
    """The modes that are known."""

    centres: np.ndarray  # (k, d)
    factors: np.ndarray  # (k, d, d): lower Cholesky factors of the covariances
    inverses: np.ndarray  # (k, d, d): of the factors
    log_dets: np.ndarray  # (k,): of the factors


def make(centres, covariances) -> Catalogue:
    """From centres (k, d) and covariances (k, d, d); ``LinAlgError`` for one that is not positive definite."""
    factors = np.linalg.cholesky(np.asarray(covariances, dtype=float))
    log_dets = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return Catalogue(np.array(centres, dtype=float), factors, np.linalg.inv(factors), log_dets)


def distances(catalogue: Catalogue, x: np.ndarray) -> np.ndarray:
    """Of points (n, d) from every centre, in its own sds: shape (n, k)."""
    away = x[:, None, :] - catalogue.centres
    return np.sqrt(np.square(np.einsum("kij,nkj->nki", catalogue.inverses, away)).sum(axis=-1))


def assign(catalogue: Catalogue, x: np.ndarray) -> np.ndarray:
    """The modes to which points (n, d) belong: shape (n,)."""
    return np.argmin(0.5 * distances(catalogue, x) ** 2 + catalogue.log_dets, axis=1)


def mode_of(catalogue: Catalogue, x: np.ndarray) -> int:
    """The mode to which ``x`` (d,) belongs; the first of them where that is no number."""
    return int(assign(catalogue, x[None])[0])


def carried(catalogue: Catalogue, x: np.ndarray, here: int, there: int) -> tuple[np.ndarray, float]:
    """T(x) (d,) from mode ``here`` to mode ``there``, and the log of its Jacobian, on which exactness hangs."""
    z = catalogue.inverses[here] @ (x - catalogue.centres[here])
    jacobian = catalogue.log_dets[there] - catalogue.log_dets[here]
    return catalogue.centres[there] + catalogue.factors[there] @ z, float(jacobian)


def catalogue_of(rng: np.random.Generator, modes: tuple[OneMode, ...]) -> Catalogue:
    """Centres and covariances as the frozen surrogates say, which know more than the states that tuned them."""
    return make(*zip(*(_moments(rng, mode) for mode in modes), strict=True))


def _moments(rng, mode):
    """Mean (d,) and covariance (d, d), of five ends each of forty free chains."""
    dynamics, walk = mode.dynamics, mode.walk
    as_walked = walk.factor @ walk.factor.T
    if dynamics is None:  # tuning has ended before there was one
        return walk.mean, as_walked
    ends = []
    for z in dynamics.archive[rng.integers(len(dynamics.archive), size=40)]:
        for _ in range(5):
            z = surrogate_dynamics.run(rng, z, dynamics, LONG).z
            ends.append(surrogate_dynamics.to_x(dynamics, z))
    x = np.array(ends)
    covariance = np.cov(x.T).reshape(x.shape[1], -1)
    moved = cholesky(covariance)[1]
    return x.mean(axis=0), covariance if moved else as_walked
