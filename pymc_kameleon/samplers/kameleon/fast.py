"""Fast KAMH: the kernel's history summarised in random Fourier features, R(y) = gamma^2 I + eta^2 J^T C J.

Kotlicki (MSc dissertation, Oxford 2015): with a feature map phi of D random features (``random_features``), the local
covariance of KAMH becomes J^T C J, J = d phi / d x at y (D, d), C the covariance of the features over the history. It
costs the same however long the history is. As D grows it converges to KAMH's with nu = eta / (2 sqrt(n)).

C is used through a factor C = U U^T truncated to the leading eigenvectors that carry a stated share of its trace. The
forward and the reverse density use the same U, so truncation changes the proposal and never the target.

Differs from the dissertation, unless its settings are chosen (``PAPER``): coordinates are whitened, J^T C J is scaled
to trace d (unscaled it collapses in the tails, and the way back is refused), a rank-one term points to the mass nearby
(``mean_shift``), half of the moves are the global kernel's (where the history is curved, most of those are made in
coordinates in which it is straight: ``shear``), and the feature moments are recomputed when the coordinates are. Its
code takes the density under the *previous* state's covariance for the reverse one, which does not leave the target
invariant; here the reverse density is the one at the proposed point. It adapts for ever; here everything is frozen when
tuning ends. With ``PAPER`` too: eta is learned from the acceptance probability, where equation 4.6 has whether the draw
was accepted, and the median lengthscale is of the chain's own draws.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import Moments, covariance, merge, summarise
from pymc_kameleon.numerics.random_features import RandomFeatures, at_lengthscale, draw_features, features
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.feature_covariance import covariance_at
from pymc_kameleon.samplers.kameleon.local_moves import LocalMoves, State
from pymc_kameleon.samplers.kameleon.several import UNIFORMS, transitions
from pymc_kameleon.samplers.kameleon.shear import STRAIGHT
from pymc_kameleon.samplers.seam import NOTHING, Point

# Kotlicki (2015), chapter 5; eta starts where a trial run ends.
PAPER = {
    "gamma": 0.5, "lengthscale_factor": 1.0, "normalization": "none", "coordinates": "raw", "global_share": 0.0,
    "sheared_share": 0.0, "mean_shift": False, "local_start": 1000, "variance_share": 1.0,
    "whole_history": True, "rate": "trial",
}  # fmt: skip

MAX_STATES = 2000  # of the window, evenly spaced, when the moments are recomputed


class FeatureModel(NamedTuple):
    """The history, in features."""

    unit: RandomFeatures  # the feature map at lengthscale 1: drawn once
    lengthscale: float  # in the kernel's coordinates
    moments: Moments  # count, mean and scatter of the features over the history
    seen: int  # states folded in so far, of a history that is kept whole
    frequencies: np.ndarray  # (d, m): at ``lengthscale``, one column a frequency
    roots: np.ndarray  # (2, r, m): U^T, r the rank: weights of the sines and of the cosines
    density: np.ndarray  # (2, m): the same in the kernel mean m(y) over the history


@dataclass(frozen=True, kw_only=True, eq=False)
class FastKameleon(LocalMoves):
    """KAMH from random Fourier features of the history.

    Parameters
    ----------
    n_features : int
        Number D of random features, positive, and even with "sincos"; the cost of a draw grows with it. Default 300;
        the dissertation finds 50 to 350 best.
    kernel : str or Kernel
        Any shift-invariant kernel with a spectral sampler: "gaussian" (default), "laplacian", "matern32", "matern52",
        "inverse_multiquadric", "sinc", "sinc_squared", ``Matern(nu)``, ``CustomKernel(..., frequencies=...)``.
    embedding : {"sincos", "cos"}
        A sine and a cosine for every frequency (default), or a cosine with a random phase.
    orthogonal : bool
        Orthogonal random features, for radial kernels. Default False.
    lengthscale_factor : float
        Positive. Default 1, the median heuristic: the mean shift needs a kernel mean that stands out from the noise of
        the features.
    normalization : {"trace", "none"}
        J^T C J scaled to trace d (default), or as it is (the dissertation's).
    sheared_share : float
        Share of the moves that are not local in coordinates in which the history is straight
        (:mod:`pymc_kameleon.samplers.kameleon.shear`), in [0, 1), where it says that a coordinate is a curved function
        of others (``move`` "sheared", "bent_towards"). Default 0.75.
    mean_shift : bool
        Add g g^T to the covariance, g(y) = l^2 grad log m(y) with m the kernel mean over the history: for a Gaussian
        kernel, the way from y to the mean of the history near it (Comaniciu & Meer, 2002). It lets a proposal contract
        towards the mass while it moves sideways, as KameleonStep's second moment about y does. Default True; the
        dissertation has none.
    variance_share : float
        Share of the trace of C that the truncated factor carries, in (0, 1]. Default 0.75.
    whole_history : bool
        Keep the coordinates from the first refresh on and fold every later state into the running moments, block by
        block (the dissertation takes in every state at once, which brings nothing: docs/papers.md); they are computed
        anew when the median distance has changed by a tenth. Default False: recompute them from the last two thirds of
        the history at each refresh.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        For an option outside its domain, with the value; for a kernel without a spectral sampler.
    """

    presets: ClassVar[dict] = {"paper": PAPER}
    statistics: ClassVar[dict] = {
        "scaling": float, "n_history": float, "lengthscale": float, "gamma": float, "rank": float,
    }  # fmt: skip

    n_features: int = 300
    embedding: Literal["sincos", "cos"] = "sincos"
    orthogonal: bool = False
    normalization: Literal["trace", "none"] = "trace"
    sheared_share: float = 0.75  # type: ignore[misc]
    mean_shift: bool = True
    variance_share: float = 0.75
    whole_history: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.variance_share <= 1:
            raise ValueError(f"variance_share must lie in (0, 1], got {self.variance_share!r}.")

    @property
    def forget(self) -> float:
        """Share of the history that the moments leave out."""
        return 0.0 if self.whole_history else adaptive_metropolis.FORGET

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,)."""
        # Refuses what does not fit, by the same words that a user of the features sees.
        self._draw_features(np.random.default_rng(0), len(x))
        return super().init(rng, x, known)

    def _draw_features(self, rng, dim):
        return draw_features(rng, self.chosen, dim, self.n_features, 1.0, self.embedding, self.orthogonal)

    def freeze(self, state) -> State:
        """End of tuning: only the truncated factor is kept."""
        if state.model is not None:
            d, empty = len(state.centre), np.empty((0, 0))
            unit = state.model.unit._replace(frequencies=np.empty((0, d)))
            moments = Moments(state.model.moments.count, np.empty(0), empty)
            state = state._replace(model=state.model._replace(unit=unit, moments=moments))
        return super().freeze(state)

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling`` (eta), ``n_history`` (states in the moments), ``lengthscale``, ``gamma``, ``rank``; the last four
        are 0 before the first local move.
        """
        model = state.model
        return {
            "scaling": self.scaling(state),
            "n_history": float(model.moments.count) if model else 0.0,
            "lengthscale": model.lengthscale if model else 0.0,
            "gamma": self.local_gamma(state) if model else 0.0,
            "rank": float(model.roots.shape[1]) if model else 0.0,
        }

    def covariance(self, model, y) -> np.ndarray:
        """S at ``y``."""
        return covariance_at(y, *self._features(model))

    def _features(self, model):
        """What S is computed from."""
        return (
            model.frequencies, model.unit.offsets, model.roots, model.density, self.normalization == "trace",
            model.lengthscale if self.mean_shift else 0.0, 1.0 / math.sqrt(self.n_features),
        )  # fmt: skip

    def several(self, rng, point, state, surface, n):
        """``n`` transitions on a surrogate, compiled; not before the global kernel has its scales."""
        walk, straight = state.walk, state.shear is None
        if state.model is None or walk.iteration < walk.warmup or self.walk.exploration_share > 0.0:
            return None
        bent, scales = STRAIGHT if straight else state.shear, (self.local_gamma(state), math.exp(state.log_scale))
        normals, uniforms = rng.standard_normal((n, len(point.position))), rng.random((n, UNIFORMS))
        x, value, covariance, moved = transitions(
            normals, uniforms, point.position, point.log_density, state.covariance,
            *surface.flat, surface.radius, surface.ceiling,
            state.centre, state.factor, *scales, *self._features(state.model),
            self.global_share, self.sheared_share, walk.autoregressive_share, walk.mean, walk.factor,
            math.exp(walk.log_scale), math.exp(walk.autoregression.log_step),
            straight, *bent[:7], math.exp(bent.log_scale), math.exp(bent.autoregression.log_step),
        )  # fmt: skip
        return (Point(x, value), state._replace(covariance=covariance)) if moved else (point, state)

    def learn(self, rng, state, states) -> FeatureModel:
        """Bring the feature moments up to date and factor their covariance."""
        model = state.model
        chosen = states if self.whole_history else history.thin(states, MAX_STATES)
        lengthscale = self.lengthscale_of(local_moves.whiten(state, history.thin(chosen, MAX_STATES)))
        unit = self._draw_features(rng, len(state.centre)) if model is None else model.unit
        moments = None
        near = model and abs(math.log(lengthscale / model.lengthscale)) < math.log(1.1)
        if near and self.whole_history:
            moments, lengthscale, chosen = model.moments, model.lengthscale, states[model.seen :]
        moments = _fold(moments, at_lengthscale(unit, lengthscale), state, chosen)
        roots = _roots(covariance(moments), unit, self.variance_share)
        frequencies = np.ascontiguousarray(unit.frequencies.T / lengthscale)
        density = _by_waves(math.sqrt(2.0 / unit.n_features) * moments.mean, unit)
        return FeatureModel(unit, lengthscale, moments, len(states), frequencies, roots, density)


def _fold(moments, random_features, state, states) -> Moments:
    """Welford by blocks: algebraically the recursion over single states (Chan, Golub & LeVeque, 1983)."""
    for first in range(0, len(states), 1000):
        points = np.ascontiguousarray(local_moves.whiten(state, states[first : first + 1000]).T)
        summary = summarise(features(points, random_features))
        moments = summary if moments is None else merge(moments, summary)
    return moments


def _roots(cov: np.ndarray, unit: RandomFeatures, variance_share: float) -> np.ndarray:
    """Rows of U^T, laid out for :func:`covariance_at`; the smallest rank that carries ``variance_share``."""
    trace, size = max(np.trace(cov), 1e-300), len(cov)
    # of the spectrum, its top: usually enough, and several times cheaper
    leading = min(size, max(100, size // 5))
    while True:
        eigenvalues, vectors = scipy.linalg.eigh(cov, subset_by_index=(size - leading, size - 1), check_finite=False)
        cumulative = np.cumsum(np.maximum(eigenvalues[::-1], 0.0)) / trace
        if cumulative[-1] >= variance_share or leading == size:
            break
        leading = size
    eigenvalues = eigenvalues[::-1]  # descending
    rank = min(int(np.searchsorted(cumulative, variance_share)) + 1, len(eigenvalues))
    # Directions that are zero to rounding cost time and carry nothing.
    rank = max(min(rank, int((eigenvalues > 1e-14 * eigenvalues[0]).sum())), 1)
    roots = (vectors[:, ::-1][:, :rank] * np.sqrt(eigenvalues[:rank])).T  # (r, D)
    return _by_waves(roots * math.sqrt(2.0 / unit.n_features), unit)


def _by_waves(weights: np.ndarray, unit: RandomFeatures) -> np.ndarray:
    """Weights of features (..., D) as those of the sines and of the cosines, (2, ..., m)."""
    if not unit.sincos:  # cosines alone
        weights = np.concatenate([np.zeros_like(weights), weights], axis=-1)
    return np.ascontiguousarray(np.split(weights, 2, axis=-1))
