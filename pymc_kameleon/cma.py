"""The (1+1)-CMA sampler: the (1+1)-CMA evolution strategy with a Metropolis test for selection.

    x* = x + sigma A z,   z ~ N(0, I),   det A = 1.

The step size sigma learns from a smoothed acceptance rate, the shape C = A A^T from a path of
accepted steps (Igel, Suttorp & Hansen, 2006, "A computational efficient covariance matrix update
and a (1+1)-CMA for evolution strategies", GECCO; Khoury, 2018, as a sampler).
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pymc_kameleon.covariance import multiply_lower, update_shape
from pymc_kameleon.gaussian_adaptation import (
    check_open,
    initial_shape,
    random_walk,
    rate_multiplier,
)
from pymc_kameleon.metropolis import Outcome, Proposal

SUCCESS_THRESHOLD = 0.44  # above it the path does not take the step (Igel et al., 2006)


class Options(NamedTuple):
    """What stays fixed; see :func:`init` for meanings and defaults. Bounds are on log sigma."""

    target_accept: float
    rate_factor: float
    diminishing: bool
    log_sigma_min: float
    log_sigma_max: float
    condition_limit: float


class State(NamedTuple):
    """Everything that adapts.

    Attributes
    ----------
    log_sigma : float
        log sigma, in units of the geometric mean of the coordinates' units.
    factor : ndarray of shape (d, d)
        A, lower triangular, determinant one.
    path : ndarray of shape (d,)
        p_c, the smoothed accepted steps A z.
    success_rate : float
        p, the smoothed rate of acceptance.
    base : ndarray of shape (d, d)
        A at the start; the condition number of C is measured relative to it.
    condition : float
        An upper bound on that condition number.
    iteration : int
        Adaptations so far.
    """

    options: Options
    log_sigma: float
    factor: np.ndarray
    path: np.ndarray
    success_rate: float
    base: np.ndarray
    condition: float
    iteration: int


def init(
    x: np.ndarray,
    *,
    initial_sigma: float | None = None,
    initial_scale: np.ndarray | None = None,
    initial_covariance: np.ndarray | None = None,
    target_accept: float = 2 / 11,
    rate_factor: float = 1.0,
    diminishing: bool = True,
    sigma_range: float = 1e12,
    condition_limit: float = 1e12,
) -> State:
    """Start at ``x`` of shape (d,).

    Parameters
    ----------
    initial_sigma : float
        sigma at the start, in units of the initial scales. Default 2.38 / sqrt(d): optimal when
        those are the target's (Roberts, Gelman & Gilks, 1997). The paper leaves it to the user.
    initial_scale : array of shape (d,)
        Scales of the coordinates at the start. Default ones, as published: isotropic, which in odd
        units has to be unlearned first.
    initial_covariance : array of shape (d, d)
        Instead of ``initial_scale``, a whole covariance.
    target_accept : float
        p_t. Default 2/11 (Igel et al., 2006).
    rate_factor : float
        Multiplies the published rates 1 / (1 + d/2) of log sigma and 2 / (d^2 + 6) of C. Default 1.
    diminishing : bool
        Multiply those rates by :func:`~pymc_kameleon.gaussian_adaptation.rate_multiplier` too.
        ``False`` is the published algorithm, which does not have the right stationary distribution
        unless it is frozen.
    sigma_range, condition_limit : float
        The step size stays within this factor of its start, either way, and the condition number
        of C relative to its start stays below the limit.

    Raises
    ------
    ValueError
        For an argument out of its domain.
    """
    dim = len(x)
    base, log_scale = initial_shape(dim, initial_scale, initial_covariance)
    sigma = 2.38 / math.sqrt(dim) if initial_sigma is None else initial_sigma
    check_open("initial_sigma", sigma, 0.0, math.inf)
    check_open("target_accept", target_accept, 0.0, 1.0)
    check_open("rate_factor", rate_factor, 0.0, (dim * dim + 6) / 2)  # c_cov < 1
    check_open("sigma_range", sigma_range, 1.0, math.inf)
    check_open("condition_limit", condition_limit, 1.0, math.inf)
    log_sigma = math.log(sigma) + log_scale
    log_range = math.log(sigma_range)
    options = Options(
        target_accept=float(target_accept),
        rate_factor=float(rate_factor),
        diminishing=bool(diminishing),
        log_sigma_min=log_sigma - log_range,
        log_sigma_max=log_sigma + log_range,
        condition_limit=float(condition_limit),
    )
    start = float(target_accept)  # neither grows nor shrinks
    return State(options, log_sigma, base, np.zeros(dim), start, base, 1.0, 0)


def propose(rng: np.random.Generator, x: np.ndarray, state: State) -> Proposal:
    """Propose x + sigma A z. Symmetric, so the ratio is one; z is carried to ``adapt``."""
    z = rng.standard_normal(len(x))
    return Proposal(random_walk(x, state.log_sigma, state.factor, z), 0.0, "", z)


def adapt(rng: np.random.Generator, state: State, outcome: Outcome) -> State:
    """Move step size and shape after one transition; see :func:`adapted`. Uses no randomness."""
    options, iteration = state.options, state.iteration + 1
    multiplier = options.rate_factor
    if options.diminishing:
        multiplier *= rate_multiplier(iteration)
    log_sigma, factor, path, success_rate, condition = adapted(
        state.log_sigma,
        state.factor,
        state.path,
        state.success_rate,
        state.base,
        state.condition,
        options.condition_limit,
        multiplier,
        options.target_accept,
        float(outcome.accepted),
        outcome.accepted,
        outcome.proposal.carry,
    )
    log_sigma = min(max(log_sigma, options.log_sigma_min), options.log_sigma_max)
    return State(options, log_sigma, factor, path, success_rate, state.base, condition, iteration)


def freeze(state: State) -> State:
    """Nothing to finish or to drop: step size and shape stay where they are."""
    return state


def stats(state: State) -> dict[str, float]:
    """Statistics of the state: ``scaling``, the step size sigma."""
    return {"scaling": math.exp(state.log_sigma)}


@njit(cache=True)
def adapted(
    log_sigma,
    factor,
    path,
    success_rate,
    base,
    condition,
    condition_limit,
    multiplier,
    target_accept,
    success,
    accepted,
    z,
):
    """One adaptation (Igel, Suttorp & Hansen, 2006, updateStepSize, updateCovariance).

    Differs from the papers: ``multiplier`` makes the rates of log sigma and of C diminish (those of
    the two averages p and p_c stay: an average that slows down with what it drives only lags), and
    C keeps determinant one. What is divided out goes into sigma and p_c, which changes no proposal;
    without that the determinant underflows. Because accepted steps are shorter than proposed ones
    it pulls sigma down a little, as published: acceptance settles above p_t, at 0.21 in d = 2.

    ``success`` is 1.0 or 0.0 with ``accepted``. The acceptance probability in its place has the
    same mean, so nearly the same fixed point, but another bias while the rates are constant.
    """
    d = z.shape[0]
    damping = 1.0 + 0.5 * d
    rate_success, rate_path, rate_shape = 1.0 / 12.0, 2.0 / (d + 2.0), 2.0 / (d * d + 6.0)
    rate_shape *= multiplier
    success_rate += rate_success * (success - success_rate)
    log_sigma += multiplier * (success_rate - target_accept) / ((1.0 - target_accept) * damping)
    if accepted:
        variance = rate_path * (2.0 - rate_path)
        path = (1.0 - rate_path) * path
        keep = 1.0 - rate_shape
        if success_rate < SUCCESS_THRESHOLD:
            path += math.sqrt(variance) * multiply_lower(factor, z)
        else:
            keep += rate_shape * variance  # for the step the path did not take
        factor, log_scale, condition = update_shape(
            factor, base, condition, condition_limit, path, keep, rate_shape
        )
        log_sigma += log_scale
        path *= math.exp(-log_scale)
    return log_sigma, factor, path, success_rate, condition
