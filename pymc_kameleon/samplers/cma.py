"""The (1+1)-CMA sampler: the (1+1)-CMA evolution strategy with a Metropolis test for selection.

    x* = x + sigma A z,   z ~ N(0, I),   det A = 1.

The step size sigma learns from a smoothed acceptance rate, the shape C = A A^T from a path of
accepted steps (Igel, Suttorp & Hansen, 2006, "A computational efficient covariance matrix update
and a (1+1)-CMA for evolution strategies", GECCO; Khoury, 2018, as a sampler).

Differs from the papers, unless their settings are chosen (``PAPER``): coordinate-wise moves find the
units first, the rates diminish, and sigma learns from the acceptance probability instead of from
acceptances. Always: everything is frozen when tuning ends, the acceptance aimed at is the one that noise
leaves attainable, and C has determinant one, see ``adapted``.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply_lower, update_shape
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE
from pymc_kameleon.samplers import coordinate_moves
from pymc_kameleon.samplers.gaussian_adaptation import (
    begin,
    check_open,
    random_walk,
    rate_multiplier,
    rescaled,
    successes,
)
from pymc_kameleon.samplers.seam import NOTHING, Proposal, Sampler

# Igel, Suttorp & Hansen (2006): C = I, their rates throughout; sigma at the start is the user's.
PAPER = {
    "initial_sigma": 1.0, "target_accept": 2 / 11, "rate_factor": 1.0, "diminishing": False, "success": "indicator",
    "sweeps": 0,
}  # fmt: skip
SUCCESS_THRESHOLD = 0.44  # above it the path does not take the step (Igel et al., 2006)


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
    log_start, base : float, ndarray of shape (d, d)
        log sigma and A where their adaptation started; range and condition number are relative to them.
    condition : float
        An upper bound on the condition number of C.
    iteration : int
        Adaptations of sigma and A so far.
    phase : coordinate_moves.Phase or None
        The search for the coordinates' units; ``None`` when it is over.
    """

    log_sigma: float
    factor: np.ndarray
    path: np.ndarray
    success_rate: float
    log_start: float
    base: np.ndarray
    condition: float
    iteration: int
    phase: coordinate_moves.Phase | None


@dataclass(frozen=True, kw_only=True, eq=False)
class CMA(Sampler):
    """The (1+1)-CMA evolution strategy with a Metropolis test.

    Parameters
    ----------
    initial_sigma : float, optional
        sigma at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d).
    initial_scale : ndarray of shape (d,), optional
        Scales of the coordinates at the start, positive, to within a dozen orders of magnitude where ``sweeps`` are
        made. Default: ones.
    initial_covariance : ndarray of shape (d, d), optional
        Instead of ``initial_scale``, a whole covariance; the sweeps change its scales and not its correlations.
    target_accept : float
        Acceptance probability that sigma is tuned to, in (0, 1). Default 2/11 (Igel et al., 2006).
    rate_factor : float
        Multiplies the published rates 1 / (1 + d/2) of log sigma and 2 / (d^2 + 6) of C, positive. Default 1.
    diminishing : bool
        Let the rates diminish. Default True; False is the published algorithm, which does not have the right stationary
        distribution unless it is frozen.
    success : {"probability", "indicator"}
        What sigma learns from: the acceptance probability (default), or whether the proposal was accepted (the
        paper's).
    sweeps : int
        Moves of every coordinate by itself in the beginning, which find the units, 0 or more. Default 20; the paper has
        none.
    sigma_range : float
        sigma stays within this factor of its start, either way. Default 1e12.
    condition_limit : float
        The condition number of C relative to its start stays below. Default 1e12.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The sweeps take at most a fifth of it.

    Raises
    ------
    ValueError
        For an option out of its domain.
    """

    presets: ClassVar[dict] = {"paper": PAPER}

    initial_sigma: float | None = None
    initial_scale: np.ndarray | None = None
    initial_covariance: np.ndarray | None = None
    target_accept: float = 2 / 11
    rate_factor: float = 1.0
    diminishing: bool = True
    success: Literal["probability", "indicator"] = "probability"
    sweeps: int = coordinate_moves.SWEEPS
    sigma_range: float = 1e12
    condition_limit: float = 1e12
    tune: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.initial_sigma is not None:
            check_open("initial_sigma", self.initial_sigma, 0.0, math.inf)
        check_open("target_accept", self.target_accept, 0.0, 1.0)
        check_open("sigma_range", self.sigma_range, 1.0, math.inf)
        check_open("condition_limit", self.condition_limit, 1.0, math.inf)

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,); no sweeps are needed where an arrival has brought a factor."""
        dim = len(x)
        check_open("rate_factor", self.rate_factor, 0.0, (dim * dim + 6) / 2)  # c_cov < 1
        base, log_scale, phase = begin(self, dim, known)
        sigma = OPTIMAL_SCALE / math.sqrt(dim) if self.initial_sigma is None else self.initial_sigma
        log_sigma = math.log(sigma) + log_scale
        start = float(self.target_accept)  # neither grows nor shrinks
        return State(log_sigma, base, np.zeros(dim), start, log_sigma, base, 1.0, 0, phase)

    def propose(self, rng, x, state) -> Proposal:
        """Propose x + sigma A z, or, first, a move of one coordinate. Symmetric, so the ratio is one; z is
        carried to ``adapt``.
        """
        if state.phase is not None:
            return coordinate_moves.turn(rng, x, state.phase)
        z = rng.standard_normal(len(x))
        return Proposal(random_walk(x, state.log_sigma, state.factor, z), 0.0, "", z)

    def adapt(self, rng, state, outcome) -> State:
        """Move step size and shape after one transition; see :func:`adapted`. Uses no randomness."""
        if state.phase is not None:
            phase = coordinate_moves.learn(state.phase, outcome)
            state = state._replace(phase=phase)
            return state if phase.iteration < phase.length else end_phase(state)
        iteration, multiplier = state.iteration + 1, float(self.rate_factor)
        if self.diminishing:
            multiplier *= rate_multiplier(iteration)
        log_sigma, factor, path, success_rate, condition = adapted(
            state.log_sigma,
            state.factor,
            state.path,
            state.success_rate,
            state.base,
            state.condition,
            float(self.condition_limit),
            multiplier,
            outcome.target(float(self.target_accept)),
            outcome.target(SUCCESS_THRESHOLD),
            successes(self.success, outcome),
            outcome.accepted,
            outcome.proposal.carry,
        )
        log_range = math.log(self.sigma_range)
        log_sigma = min(max(log_sigma, state.log_start - log_range), state.log_start + log_range)
        return state._replace(
            log_sigma=log_sigma,
            factor=factor,
            path=path,
            success_rate=success_rate,
            condition=condition,
            iteration=iteration,
        )

    def freeze(self, state) -> State:
        """Step size and shape stay where they are; the coordinate-wise moves end, if they have not."""
        return state if state.phase is None else end_phase(state)

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling``, the step size sigma."""
        return {"scaling": math.exp(state.log_sigma)}


def end_phase(state: State) -> State:
    """Start step size and shape from the scales that the coordinate-wise moves have found."""
    base, change = rescaled(state.factor, state.phase)
    log_sigma = state.log_sigma + change
    return state._replace(
        log_sigma=log_sigma, factor=base, log_start=log_sigma, base=base, phase=None
    )


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
    threshold,
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

    ``success`` is the acceptance probability, or in the papers 1.0 or 0.0 with ``accepted``: the same mean,
    so nearly the same fixed point, but another bias while the rates are constant. Above ``threshold`` the
    path does not take the step.
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
        if success_rate < threshold:
            path += math.sqrt(variance) * multiply_lower(factor, z)
        else:
            keep += rate_shape * variance  # for the step the path did not take
        factor, log_scale, condition = update_shape(
            factor, base, condition, condition_limit, path, keep, rate_shape
        )
        log_sigma += log_scale
        path *= math.exp(-log_scale)
    return log_sigma, factor, path, success_rate, condition
