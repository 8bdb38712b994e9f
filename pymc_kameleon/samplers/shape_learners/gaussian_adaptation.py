"""Metropolis Gaussian Adaptation (M-GaA): a random walk whose radius and shape learn separately.

    x* = x + r L z,   z ~ N(0, I),   det L = 1,

the radius r learns from acceptance and rejection, the shape C = L L^T from the accepted steps
(Mueller & Sbalzarini, 2010, "Gaussian adaptation as a unifying framework for continuous black-box
optimization and adaptive Monte Carlo sampling", IEEE CEC).

Differs from the paper, unless its settings are chosen (``PAPER``): coordinate-wise moves find the units first, rates
diminish, the radius learns from the acceptance probability instead of from acceptances, and aims at what is best for
sampling. Always: everything is frozen when tuning ends, the acceptance aimed at is the one that noise leaves
attainable, radius and shape have bounds, and a factor is updated in O(d^2) instead of a matrix square root in O(d^3).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from pymc_kameleon.numerics.checks import inside
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply_lower, update_shape
from pymc_kameleon.samplers.shape_learners import base
from pymc_kameleon.samplers.shape_learners.base import ShapeLearner, State

# Mueller & Sbalzarini (2010): Q = I, r = 1, P = 1/e, beta = lambda = ln(d + 1) / (d + 1)^2 throughout.
PAPER = {
    "initial_radius": 1.0, "target_accept": math.exp(-1.0), "diminishing": False, "success": "indicator", "sweeps": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianAdaptation(ShapeLearner):
    """Metropolis Gaussian Adaptation.

    Parameters
    ----------
    initial_radius : float, optional
        r at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d); the paper starts from 1.
    target_accept : float
        Acceptance probability that the radius is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997);
        the paper's 1/e is the optimiser's.
    rate : float, optional
        beta = lambda, in (0, 1). Default ln(d + 1) / (d + 1)^2, as published.
    """

    presets: ClassVar[dict] = {"paper": PAPER}
    size: ClassVar[str] = "radius"

    initial_radius: float | None = None
    rate: float | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.rate is not None:
            inside(rate=(self.rate, 0.0, 1.0))

    def learn(self, state, outcome) -> State:
        """See :func:`adapted`."""
        log_radius, factor, condition = adapted(
            state.log_size, state.factor, state.base, state.condition, base.CONDITION_LIMIT,
            self.rate_at(state.iteration, len(state.factor)), outcome.target(float(self.target_accept)),
            self.succeeded(outcome), outcome.accepted, outcome.proposal.carry,
        )  # fmt: skip
        return state._replace(log_size=log_radius, factor=factor, condition=condition)

    def rate_at(self, iteration: int, dim: int) -> float:
        """Beta = lambda of the ``iteration``-th adaptation."""
        rate = math.log(dim + 1) / (dim + 1) ** 2 if self.rate is None else float(self.rate)
        return rate * self.multiplier(iteration)


@njit(cache=True)
def adapted(log_radius, factor, base, condition, condition_limit, rate, target_accept, success, accepted, z):
    """One adaptation (Mueller & Sbalzarini, 2010).

    r <- r (1 + beta (1 - P)) on acceptance, r (1 - beta P) on rejection, where C moves too:
    C <- (1 - lambda) C + lambda L z z^T L^T, scaled to determinant one. As in the paper the
    determinant is *dropped*: in the radius it would lift the acceptance rate from P = 0.234 to 0.33
    in d = 2 and 0.25 in d = 11, because accepted steps are shorter than proposed ones.

    ``success`` is the acceptance probability, or in the paper 1.0 or 0.0 with ``accepted``: the same mean,
    so the same fixed point, but another bias while the rate is constant.
    """
    log_radius += math.log1p(rate * (success - target_accept))
    if accepted:
        step = multiply_lower(factor, z)
        factor, _, condition = update_shape(factor, base, condition, condition_limit, step, 1.0 - rate, rate)
    return log_radius, factor, condition
