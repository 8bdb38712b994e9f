"""PCA-Kameleon: x* ~ sum_j omega_j N(x, gamma^2 I + nu_j^2 g_j g_j^T), along one kernel principal direction g_j.

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (ICML 2014), appendix C: g_j = M H alpha_j, where M holds
twice the kernel's gradients at the current point, alpha_j are the m leading unit eigenvectors of H K H, K the
history's kernel matrix, and omega_j is proportional to their eigenvalues. Over all of them sum_j g_j g_j^T is KAMH's
M H M^T. Every direction has a scale nu_j of its own. With the linear kernel these are random walks along the
principal axes of the history (Andrieu & Thoms, 2008, algorithm 8).

The density of the proposal is that of the *mixture*, at either end: which direction was drawn is summed out. A
component's covariance is a rank-one update of gamma^2 I, hence its density costs O(d). (Since the omega_j do not
depend on the point, the ratio of the component drawn, at both ends, would be exact too; it accepts less often.)

It mixes worse than the whole covariance: on the 8-d banana B(0.03, 100) with the defaults, 10,000 draws after 10,000
of tuning, 24 chains, 2.9 (standard error 0.3) effective draws per 1000 in the worst coordinate beside 7.3 (0.9) of
``kameleon`` and 3.8 (0.5) of adaptive Metropolis alone.

Differs from the paper, unless its settings are chosen (``PAPER``): coordinates, gamma and the share of adaptive
Metropolis moves are as in ``kameleon``, and the directions at a point are scaled together to a mean square of d.
Always: everything is frozen when tuning ends, where the paper goes on with a probability p_t that falls to zero.
Unscaled they vanish in the tails: on an 8-d Student t with 5 degrees of freedom, local moves alone, 8 chains, that is
7.2 (1.5) effective draws per 1000 in place of 12.4 (2.0); on the banana it makes no difference.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy

from pymc_kameleon.kernels import Gaussian, Kernel
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.full import PAPER as FULL
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_covariance import differences
from pymc_kameleon.samplers.seam import Proposal

PAPER = FULL  # the appendix reports no experiment of its own

FIRST_MOVES = 10  # where the count of a direction's Robbins-Monro steps starts, as in KAMH


class Directions(NamedTuple):
    """The principal directions, and how far to go along each."""

    # (d, n): subsample of the history, in the kernel's coordinates, one column a state
    points: np.ndarray
    lengthscale: float  # in those coordinates
    coefficients: np.ndarray  # (m, n): one row a direction, (H alpha_j)^T
    weights: np.ndarray  # (m,): omega_j; they sum to 1
    log_scales: np.ndarray  # (m,): log nu_j
    moves: np.ndarray  # (m,): on how many it has been tuned since the gain was last raised


class Carry(NamedTuple):
    """What a proposal brings along: g_j at the proposed point, shape (m, d), and the j that it was made with."""

    directions: np.ndarray
    drawn: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PCAKameleon(Kameleon):
    """KAMH along one kernel principal direction at a time.

    Parameters
    ----------
    n_directions : int
        With ``proposal="pca"`` only: how many directions at most, positive; fewer where the kernel matrix has a lower
        rank. Default 20.

    Raises
    ------
    ValueError, TypeError
        For an option outside its domain, with the value.
    """

    normalization: Literal["trace", "none"] = "trace"
    n_directions: int = 20

    def __post_init__(self):
        super().__post_init__()
        whole = isinstance(self.n_directions, (int, np.integer))
        if not (whole and 1 <= self.n_directions <= self.n_history):
            raise ValueError(
                f"n_directions must be an integer from 1 to n_history = {self.n_history}, got {self.n_directions!r}."
            )

    def local_move(self, rng, x, state) -> Proposal:
        """A move along one principal direction at ``x``."""
        model, gamma = state.model, self.local_gamma(state)
        x_new, y_new, delta, drawn = _draw(
            x, state.centre, state.factor, state.covariance, model.weights, model.log_scales, gamma,
            rng.random(), rng.standard_normal(len(x) + 1),
        )  # fmt: skip
        there = self.covariance(model, y_new)
        # Exactness hangs here: both densities are the mixture's (one of the two and the component drawn in the other
        # is wrong), and the reverse one takes the directions *at x_new*, with the same weights, nu_j and gamma.
        forward = log_mixture_density(delta, state.covariance, model.weights, model.log_scales, gamma)
        reverse = log_mixture_density(delta, there, model.weights, model.log_scales, gamma)
        return Proposal(x_new, reverse - forward, "local", Carry(there, drawn))

    def carried(self, proposal) -> np.ndarray:
        """The directions at the proposed point."""
        return proposal.carry.directions

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling`` (nu_j, root mean square under the weights), ``n_history``, ``lengthscale``, ``gamma``; the last
        three are 0 before the first local move.
        """
        model, own = state.model, super().stats(state)
        if model is not None:
            own["scaling"] = math.sqrt(model.weights @ np.exp(2.0 * model.log_scales))
        return own

    def tune_scale(self, state, outcome):
        """Tune the scale of the direction drawn, and no other."""
        model, drawn = state.model, outcome.proposal.carry.drawn
        log_scales, moves = model.log_scales.copy(), model.moves.copy()
        moves[drawn] += 1
        log_scales[drawn] = self.tuned(log_scales[drawn], moves[drawn], outcome)
        return state._replace(model=model._replace(log_scales=log_scales, moves=moves))

    def learn(self, rng, state, states) -> Directions:  # type: ignore[override]
        """Draw a new subsample and find its principal directions; the scales stay with their rank."""
        points, lengthscale = super().learn(rng, state, states)
        coefficients, weights = principal_coefficients(points.T / lengthscale, self.chosen, self.n_directions)
        m, before = len(weights), state.model
        log_scales, moves = np.full(m, float(state.log_scale)), np.full(m, FIRST_MOVES)
        if before is not None:
            known = min(m, len(before.weights))
            log_scales[:known] = before.log_scales[:known]
            moves[:known] = np.maximum((0.3 * before.moves[:known]).astype(int), FIRST_MOVES)
        return Directions(points, lengthscale, coefficients, weights, log_scales, moves)

    def covariance(self, model, y) -> np.ndarray:
        """g_j at ``y``, one a row, shape (m, d)."""
        kernel, lengthscale, trace = self.chosen, model.lengthscale, self.normalization == "trace"
        if type(kernel) is Gaussian:
            return gaussian_directions(y, model.points, lengthscale, model.coefficients, model.weights, trace)
        gradients = (2.0 / lengthscale) * kernel.gradient(y / lengthscale, model.points.T / lengthscale)
        directions = model.coefficients @ gradients
        if trace:
            size = model.weights @ np.square(directions).sum(axis=1)
            directions *= math.sqrt(len(y) / max(size, 1e-300))
        return directions


def principal_coefficients(points: np.ndarray, kernel: Kernel, n_directions: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading unit eigenvectors of H K H, one a row, and their eigenvalues scaled to sum 1: shapes (m, n), (m,).

    ``points`` (n, d), in units of the lengthscale.
    """
    n = len(points)
    gram = np.array([kernel.value(z, points) for z in points])
    mean = gram.mean(axis=0)
    gram += mean.mean() - mean - mean[:, None]  # H K H
    leading = min(n_directions, n)
    eigenvalues, vectors = scipy.linalg.eigh(gram, subset_by_index=(n - leading, n - 1), check_finite=False)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]  # descending
    rank = max(int((eigenvalues > 1e-10 * eigenvalues[0]).sum()), 1)  # less is rounding
    coefficients = vectors[:, :rank].T
    coefficients = coefficients - coefficients.mean(axis=1, keepdims=True)
    weights = np.maximum(eigenvalues[:rank], 1e-300)
    return coefficients, weights / weights.sum()


@njit(cache=True)
def gaussian_directions(y, points, lengthscale, coefficients, weights, trace):
    """The g_j for the Gaussian kernel, whose gradients are k(y, z) (z - y) / l^2, in O(n m d).

    With ``trace`` exponents are shifted by the nearest point's: the common factor drops out, and nothing underflows.
    """
    d, n = points.shape
    gradients, exponents = differences(y, points)
    precision = 1.0 / (lengthscale * lengthscale)
    shift = exponents.min() if trace else 0.0
    for a in range(n):
        exponents[a] = 2.0 * precision * math.exp(0.5 * precision * (shift - exponents[a]))
    gradients *= exponents
    directions = np.dot(coefficients, gradients.T)
    if trace:
        size = 1e-300
        for j in range(len(weights)):
            for i in range(d):
                size += weights[j] * directions[j, i] * directions[j, i]
        directions *= math.sqrt(d / size)
    return directions


@njit(cache=True)
def _draw(x, centre, factor, directions, weights, log_scales, gamma, uniform, normals):
    """Choose a direction and draw the step in the kernel's coordinates: (x*, y*, y* - y, direction)."""
    m, d = directions.shape
    drawn, total = 0, weights[0]
    while total < uniform and drawn < m - 1:
        drawn += 1
        total += weights[drawn]
    along = math.exp(log_scales[drawn]) * normals[d]
    delta = np.empty(d)
    for i in range(d):
        delta[i] = gamma * normals[i] + along * directions[drawn, i]
    x_new, y_new = local_moves.displace(x, centre, factor, delta)
    return x_new, y_new, delta, drawn


@njit(cache=True)
def log_mixture_density(delta, directions, weights, log_scales, gamma):
    """Log sum_j omega_j N(delta; 0, gamma^2 I + nu_j^2 g_j g_j^T), up to what does not depend on the g_j.

    Left out is log N(delta; 0, gamma^2 I), which both directions share. A component's ratio to it is, with
    s = nu_j^2 |g_j|^2 / gamma^2 and c = (g_j . delta) nu_j / gamma^2,  (1 + s)^(-1/2) exp(c^2 / (2 (1 + s)))
    (determinant lemma, Sherman-Morrison).
    """
    m, d = directions.shape
    terms = np.empty(m)
    for j in range(m):
        length, along = 0.0, 0.0
        for i in range(d):
            length += directions[j, i] * directions[j, i]
            along += directions[j, i] * delta[i]
        ratio = math.exp(log_scales[j]) / gamma
        stretch = 1.0 + ratio * ratio * length
        along *= ratio / gamma
        terms[j] = 0.5 * (math.log(weights[j] * weights[j] / stretch) + along * along / stretch)
    largest = terms.max()
    total = 0.0
    for j in range(m):
        total += math.exp(terms[j] - largest)
    return largest + math.log(total)
