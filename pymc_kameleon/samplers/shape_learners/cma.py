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
from typing import ClassVar

import numpy as np

from pymc_kameleon.numerics.checks import inside
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply_lower, update_shape
from pymc_kameleon.samplers.seam import NOTHING
from pymc_kameleon.samplers.shape_learners import base
from pymc_kameleon.samplers.shape_learners.base import ShapeLearner, State

# Igel, Suttorp & Hansen (2006): C = I, their rates throughout; sigma at the start is the user's.
PAPER = {
    "initial_sigma": 1.0, "target_accept": 2 / 11, "rate_factor": 1.0, "diminishing": False, "success": "indicator",
    "sweeps": 0,
}  # fmt: skip
SUCCESS_THRESHOLD = 0.44  # above it the path does not take the step (Igel et al., 2006)


@dataclass(frozen=True, kw_only=True, eq=False)
class CMA(ShapeLearner):
    """The (1+1)-CMA evolution strategy with a Metropolis test.

    Parameters
    ----------
    initial_sigma : float, optional
        sigma at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d).
    target_accept : float
        Acceptance probability that sigma is tuned to, in (0, 1). Default 2/11 (Igel et al., 2006).
    rate_factor : float
        Multiplies the published rates 1 / (1 + d/2) of log sigma and 2 / (d^2 + 6) of C, positive and below
        (d^2 + 6) / 2. Default 1.
    """

    presets: ClassVar[dict] = {"paper": PAPER}
    size: ClassVar[str] = "sigma"

    initial_sigma: float | None = None
    target_accept: float = 2 / 11
    rate_factor: float = 1.0

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,), with a rate of success at which sigma neither grows nor shrinks."""
        dim = len(x)
        inside(rate_factor=(self.rate_factor, 0.0, (dim * dim + 6) / 2))  # c_cov < 1
        state = super().init(rng, x, known)
        return state._replace(path=np.zeros(dim), success_rate=float(self.target_accept))

    def learn(self, state, outcome) -> State:
        """See :func:`adapted`."""
        log_sigma, factor, path, success_rate, condition = adapted(
            state.log_size, state.factor, state.path, state.success_rate, state.base, state.condition,
            base.CONDITION_LIMIT, float(self.rate_factor) * self.multiplier(state.iteration),
            outcome.target(float(self.target_accept)), outcome.target(SUCCESS_THRESHOLD),
            self.succeeded(outcome), outcome.accepted, outcome.proposal.carry,
        )  # fmt: skip
        return state._replace(
            log_size=log_sigma, factor=factor, path=path, success_rate=success_rate, condition=condition
        )


@njit(cache=True)
def adapted(
    log_sigma, factor, path, success_rate, base, condition, condition_limit, multiplier, target_accept, threshold,
    success, accepted, z,
):  # fmt: skip
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
        factor, log_scale, condition = update_shape(factor, base, condition, condition_limit, path, keep, rate_shape)
        log_sigma += log_scale
        path *= math.exp(-log_scale)
    return log_sigma, factor, path, success_rate, condition
