"""From a chain's history to a surrogate of the log density, and Hamiltonian dynamics on it.

The history is given in the coordinates z of the dynamics. Lengthscales, one for each coordinate, and regularisation
are those with the best held-out score objective (Strathmann et al., 2015, appendix A.1), unless they were given. The
scale of the Gaussian base density is not chosen like that: the score is a mean over the bulk and prefers the Gaussian
fit itself, whose tails are then too light to come back from.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from pymc_kameleon.kernels import Kernel, median_distance
from pymc_kameleon.numerics import history, random_features
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.step_size import robbins_monro
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.finite import FiniteSurrogate, finite_scores, fit_finite
from pymc_kameleon.surrogates.scores.lengthscales import search_lengthscales
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate, fit_lite, lite_scores
from pymc_kameleon.surrogates.scores.low_rank import fit_low_rank
from pymc_kameleon.surrogates.scores.objective import (
    Validation,
    block_folds,
    gaussian_base,
    lengthscale_grid,
    normalized_weights,
    validate,
)

REGULARIZATIONS = 10.0 ** np.arange(-1.0, -9.0, -1.0)
SEARCH_FEATURES = 200  # of finite, and of the search for lengthscales
RADIUS = 1e3  # of the history's own standard deviations: a trajectory that goes farther from its mean diverged


class Recipe(NamedTuple):
    """How to make a surrogate, see :class:`pymc_kameleon.samplers.kamiltonian.scores.sampler.ScoreKamiltonian`."""

    surrogate: str
    kernel: Kernel
    embedding: str
    n_history: int
    n_features: int
    lengthscale: float | np.ndarray | str | None  # "median": the median distance of the states
    regularization: float | None
    isotropic: bool
    base_scale: float
    solver: str = "dense"


class Fit(NamedTuple):
    """A surrogate and how it came about."""

    surrogate: LiteSurrogate | FiniteSurrogate
    states: np.ndarray  # (n, d): what it was fitted to
    lengthscale: float | np.ndarray
    regularization: float
    validation: Validation  # held-out scores
    # (2, d): mean and sds of ``states``, in which ``RADIUS`` is measured; ``None`` for zeros and ones
    region: np.ndarray | None = None


def fit(
    rng: np.random.Generator, recipe: Recipe, past: np.ndarray, previous: np.ndarray | float | None = None
) -> Fit | None:
    """Choose what was not given by validation, and fit to at most ``n_history`` states.

    ``past`` (n, d) are a chain's states with their repeats, or draws; ``previous`` lengthscales of an earlier fit,
    where the search may start. ``None`` if no pair on the grid gave a positive definite system.
    """
    states, weights = (history.thin(each, recipe.n_history) for each in score_matching.distinct_states(past))
    dim = states.shape[1]
    base = gaussian_base(dim, 0.0, recipe.base_scale)
    kernel, size = recipe.kernel, max(recipe.n_features, SEARCH_FEATURES)
    unit = random_features.draw_features(rng, kernel, dim, size, 1.0, recipe.embedding)
    validation = _validate(recipe, states, weights, base, unit, previous)
    lengthscale, regularization = validation.lengthscale, validation.regularization
    surrogate: LiteSurrogate | FiniteSurrogate | None
    if recipe.surrogate == "lite":
        data = (states, lengthscale, regularization, weights, base)
        surrogate = fit_lite(*data) if recipe.solver == "dense" else fit_low_rank(*data)[0]
    else:
        features = random_features.at_lengthscale(_first_features(unit, recipe.n_features), lengthscale)
        surrogate = fit_finite(states, features, regularization, weights, base)
    if surrogate is None or validation.gain == -math.inf:
        return None
    region = np.stack([states.mean(axis=0), np.maximum(states.std(axis=0), 1e-300)])
    return Fit(surrogate, states, lengthscale, regularization, validation, region)


def _validate(recipe, states, weights, base, unit, previous):
    """Lengthscale and regularisation, and how well they do where they were not fitted."""
    few, few_weights = history.thin(states, 1000), history.thin(weights, 1000)
    few_features, folds = _first_features(unit, SEARCH_FEATURES), block_folds(len(few))
    regularizations = REGULARIZATIONS if recipe.regularization is None else np.array([recipe.regularization])
    if isinstance(recipe.lengthscale, str):
        lengthscales = [median_distance(states)]
    elif recipe.lengthscale is not None:
        lengthscales = [recipe.lengthscale]
    elif recipe.isotropic:
        lengthscales = list(lengthscale_grid(states, 5))
    else:
        start = None if previous is None else np.full(states.shape[1], previous)
        lengthscales = [search_lengthscales(few, folds, few_features, regularizations, few_weights, base, start=start)]
    family: Callable[..., np.ndarray] = partial(finite_scores, few_features)
    if recipe.surrogate == "lite":
        few = history.thin(states, 300)
        family, folds = lite_scores, block_folds(len(few))
        few_weights = normalized_weights(history.thin(weights, 300), len(few))
    return validate(family, few, folds, lengthscales, regularizations, few_weights, base)


def _first_features(rf, n):
    """The map made of the first ``n`` features: lambda means the same for any number of them."""
    m = n // 2 if rf.sincos else n
    return rf._replace(frequencies=rf.frequencies[:m], offsets=rf.offsets[:m])


# --- dynamics -------------------------------------------------------------------------------------


@njit(cache=True)
def distance(z, region):
    """How far ``z`` (d,) is from the middle of ``region`` (2, d), in its units."""
    total = 0.0
    for i in range(z.size):
        offset = z[i] if region is None else (z[i] - region[0, i]) / region[1, i]
        total += offset * offset
    return math.sqrt(total)


@njit(cache=True)
def leapfrog(z, momentum, surrogate, step_size, n_steps, region=None):
    """``n_steps`` leapfrog steps from (z, momentum), each (d,), with potential energy -f; where they end, and whether
    the path was nearer than ``RADIUS`` to the middle of ``region``, see :class:`Fit`.

    The start counts as part of the path, so that a path is refused exactly when its reverse is.
    """
    z, momentum = z.copy(), momentum.copy()
    if not distance(z, region) < RADIUS:
        return z, momentum, False
    slope = score_matching.value_and_gradient(z, surrogate)[1]
    for _ in range(n_steps):
        momentum += 0.5 * step_size * slope
        z += step_size * momentum
        if not distance(z, region) < RADIUS:  # written so that a NaN fails it
            return z, momentum, False
        slope = score_matching.value_and_gradient(z, surrogate)[1]
        momentum += 0.5 * step_size * slope
    return z, momentum, True


def stable_step_size(rng: np.random.Generator, fitted: Fit, n_leapfrog: tuple[int, int]) -> float:
    """A step size at which trajectories on the surrogate keep the *surrogate's* energy.

    Robbins-Monro on trial trajectories from the history, which cost no evaluation of the target. What acceptance is
    then lost to the target is the surrogate's error, which a smaller step reduces only by moving less far.
    """
    log_step, total, trials = math.log(0.5), 0.0, 40
    surrogate, dim = fitted.surrogate, fitted.states.shape[1]
    for trial in range(trials):
        z = fitted.states[rng.integers(len(fitted.states))]
        momentum = rng.standard_normal(dim)
        n_steps = int(rng.integers(n_leapfrog[0], n_leapfrog[1] + 1))
        end, turned, inside = leapfrog(z, momentum, surrogate, math.exp(log_step), n_steps, fitted.region)
        accept_prob = 0.0
        if inside:
            gain = score_matching.value(end, surrogate) - score_matching.value(z, surrogate)
            gain += 0.5 * (momentum @ momentum - turned @ turned)
            accept_prob = math.exp(min(0.0, gain))
        log_step = robbins_monro(log_step, accept_prob, 0.9, 2.0 * (trial + 2.0) ** -0.6)
        log_step = min(log_step, math.log(1.5))
        if trial >= trials // 2:
            total += log_step / (trials - trials // 2)
    return math.exp(total)
