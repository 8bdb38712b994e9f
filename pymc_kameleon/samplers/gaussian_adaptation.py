"""Metropolis Gaussian Adaptation (M-GaA): a random walk whose radius and shape learn separately.

    x* = x + r L z,   z ~ N(0, I),   det L = 1,

the radius r learns from acceptance and rejection, the shape C = L L^T from the accepted steps
(Mueller & Sbalzarini, 2010, "Gaussian adaptation as a unifying framework for continuous black-box
optimization and adaptive Monte Carlo sampling", IEEE CEC).

Differs from the paper, unless its settings are chosen (``PAPER``): coordinate-wise moves find the units
first, rates diminish, the radius learns from the acceptance probability instead of from acceptances, and
aims at what is best for sampling. Always: everything is frozen when tuning ends, the acceptance aimed at is the
one that noise leaves attainable, radius and shape have bounds, and a factor is updated in O(d^2) instead of a matrix
square root in O(d^3).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import (
    cholesky,
    log_determinant,
    multiply_lower,
    update_shape,
)
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE
from pymc_kameleon.samplers import coordinate_moves
from pymc_kameleon.samplers.seam import NOTHING, Known, Outcome, Proposal, Sampler

# Mueller & Sbalzarini (2010): Q = I, r = 1, P = 1/e, beta = lambda = ln(d + 1) / (d + 1)^2 throughout.
PAPER = {
    "initial_radius": 1.0, "target_accept": math.exp(-1.0), "diminishing": False, "success": "indicator", "sweeps": 0,
}  # fmt: skip
NARROWEST = 1e-120  # ratio of two initial scales: the square of a smaller one is zero


class State(NamedTuple):
    """Everything that adapts.

    Attributes
    ----------
    log_radius : float
        log r, in units of the geometric mean of the coordinates' units.
    factor : ndarray of shape (d, d)
        L, lower triangular, determinant one.
    log_start, base : float, ndarray of shape (d, d)
        log r and L where their adaptation started; range and condition number are relative to them.
    condition : float
        An upper bound on the condition number of C.
    iteration : int
        Adaptations of r and L so far.
    phase : coordinate_moves.Phase or None
        The search for the coordinates' units; ``None`` when it is over.
    """

    log_radius: float
    factor: np.ndarray
    log_start: float
    base: np.ndarray
    condition: float
    iteration: int
    phase: coordinate_moves.Phase | None


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianAdaptation(Sampler):
    """Metropolis Gaussian Adaptation.

    Parameters
    ----------
    initial_radius : float, optional
        r at the start, positive, in units of the initial scales. Default 2.38 / sqrt(d); the paper starts from 1.
    initial_scale : ndarray of shape (d,), optional
        Scales of the coordinates at the start, positive, to within a dozen orders of magnitude where ``sweeps`` are
        made. Default: ones.
    initial_covariance : ndarray of shape (d, d), optional
        Instead of ``initial_scale``, a whole covariance; the sweeps change its scales and not its correlations.
    target_accept : float
        Acceptance probability that the radius is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997);
        the paper's 1/e is the optimiser's.
    rate : float, optional
        beta = lambda, in (0, 1). Default ln(d + 1) / (d + 1)^2, as published.
    diminishing : bool
        Let the rate diminish. Default True; False is the published algorithm, which does not have the right stationary
        distribution unless it is frozen.
    success : {"probability", "indicator"}
        What the radius learns from: the acceptance probability (default), or whether the proposal was accepted (the
        paper's).
    sweeps : int
        Moves of every coordinate by itself in the beginning, which find the units, 0 or more. Default 20; the paper has
        none.
    radius_range : float
        The radius stays within this factor of its start, either way. Default 1e12.
    condition_limit : float
        The condition number of the shape relative to its start stays below. Default 1e12.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The sweeps take at most a fifth of it.

    Raises
    ------
    ValueError
        For an option out of its domain.
    """

    presets: ClassVar[dict] = {"paper": PAPER}

    initial_radius: float | None = None
    initial_scale: np.ndarray | None = None
    initial_covariance: np.ndarray | None = None
    target_accept: float = 0.234
    rate: float | None = None
    diminishing: bool = True
    success: Literal["probability", "indicator"] = "probability"
    sweeps: int = coordinate_moves.SWEEPS
    radius_range: float = 1e12
    condition_limit: float = 1e12
    tune: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.initial_radius is not None:
            check_open("initial_radius", self.initial_radius, 0.0, math.inf)
        if self.rate is not None:
            check_open("rate", self.rate, 0.0, 1.0)
        check_open("target_accept", self.target_accept, 0.0, 1.0)
        check_open("radius_range", self.radius_range, 1.0, math.inf)
        check_open("condition_limit", self.condition_limit, 1.0, math.inf)

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,); no sweeps are needed where an arrival has brought a factor."""
        dim = len(x)
        base, log_scale, phase = begin(self, dim, known)
        radius = self.initial_radius
        radius = OPTIMAL_SCALE / math.sqrt(dim) if radius is None else radius
        log_radius = math.log(radius) + log_scale
        return State(log_radius, base, log_radius, base, 1.0, 0, phase)

    def propose(self, rng, x, state) -> Proposal:
        """Propose x + r L z, or, first, a move of one coordinate. Symmetric, so the ratio is one; z is carried
        to ``adapt``.
        """
        if state.phase is not None:
            return coordinate_moves.turn(rng, x, state.phase)
        z = rng.standard_normal(len(x))
        return Proposal(random_walk(x, state.log_radius, state.factor, z), 0.0, "", z)

    def adapt(self, rng, state, outcome) -> State:
        """Move radius and shape after one transition; see :func:`adapted`. Uses no randomness."""
        if state.phase is not None:
            phase = coordinate_moves.learn(state.phase, outcome)
            state = state._replace(phase=phase)
            return state if phase.iteration < phase.length else end_phase(state)
        iteration = state.iteration + 1
        log_radius, factor, condition = adapted(
            state.log_radius,
            state.factor,
            state.base,
            state.condition,
            float(self.condition_limit),
            self.rate_at(iteration, len(state.factor)),
            outcome.target(float(self.target_accept)),
            successes(self.success, outcome),
            outcome.accepted,
            outcome.proposal.carry,
        )
        log_range = math.log(self.radius_range)
        log_radius = min(max(log_radius, state.log_start - log_range), state.log_start + log_range)
        return state._replace(
            log_radius=log_radius, factor=factor, condition=condition, iteration=iteration
        )

    def rate_at(self, iteration: int, dim: int) -> float:
        """Beta = lambda of the ``iteration``-th adaptation."""
        rate = math.log(dim + 1) / (dim + 1) ** 2 if self.rate is None else float(self.rate)
        return rate * rate_multiplier(iteration) if self.diminishing else rate

    def freeze(self, state) -> State:
        """Radius and shape stay where they are; the coordinate-wise moves end, if they have not."""
        return state if state.phase is None else end_phase(state)

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling``, the radius r."""
        return {"scaling": math.exp(state.log_radius)}


def end_phase(state: State) -> State:
    """Start radius and shape from the scales that the coordinate-wise moves have found."""
    base, change = rescaled(state.factor, state.phase)
    log_radius = state.log_radius + change
    return state._replace(
        log_radius=log_radius, factor=base, log_start=log_radius, base=base, phase=None
    )


@njit(cache=True)
def random_walk(x, log_radius, factor, z):
    """The point x + exp(log_radius) L z, shape (d,)."""
    return x + math.exp(log_radius) * multiply_lower(factor, z)


@njit(cache=True)
def adapted(
    log_radius,
    factor,
    base,
    condition,
    condition_limit,
    rate,
    target_accept,
    success,
    accepted,
    z,
):
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
        factor, _, condition = update_shape(
            factor, base, condition, condition_limit, step, 1.0 - rate, rate
        )
    return log_radius, factor, condition


@njit(cache=True)
def rate_multiplier(iteration):
    """min(1, (t / 200)^-0.6): constant rates for a start, then diminishing adaptation.

    Exactness of a chain that never stops adapting hangs on this going to zero (Roberts &
    Rosenthal, 2007); any exponent in (0.5, 1] would do.
    """
    return min(1.0, (iteration / 200.0) ** -0.6)


def initial_shape(
    dim: int,
    initial_scale: np.ndarray | None,
    initial_covariance: np.ndarray | None,
    arrival_factor: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Lower factor of the initial covariance scaled to determinant one, and log of the scale.

    Raises
    ------
    ValueError
        If both are given, or the shape is wrong, or there is no factor.
    """
    if initial_covariance is not None:
        if initial_scale is not None:
            raise ValueError("Give initial_scale or initial_covariance, not both.")
        initial_covariance = np.array(initial_covariance, dtype=float)
        if initial_covariance.shape != (dim, dim):
            raise ValueError(
                f"initial_covariance must have shape {(dim, dim)}, got {initial_covariance.shape}."
            )
        factor, ok = cholesky(initial_covariance)
        if not (ok and np.allclose(initial_covariance, initial_covariance.T, rtol=1e-6, atol=0)):
            raise ValueError("initial_covariance must be symmetric and positive definite.")
    elif initial_scale is None and arrival_factor is not None:
        factor = np.array(arrival_factor, dtype=float)
    else:
        scale = np.ones(dim) if initial_scale is None else np.asarray(initial_scale, dtype=float)
        if scale.shape != (dim,) or not np.all((scale > 0) & np.isfinite(scale)):
            raise ValueError(f"initial_scale must be {dim} positive numbers, got {initial_scale}.")
        if scale.min() / scale.max() < NARROWEST:
            raise ValueError(
                f"initial_scale must be {dim} numbers within {1 / NARROWEST:.0e} of each other, got {initial_scale}."
            )
        factor = np.diag(scale)
    log_scale = log_determinant(factor) / dim
    return factor * math.exp(-log_scale), log_scale


def begin(
    sampler, dim: int, known: Known
) -> tuple[np.ndarray, float, coordinate_moves.Phase | None]:
    """Where shape and scale start, as :func:`initial_shape` has them, and the search for the coordinates' units.

    No search where the factor is what an arrival has brought.
    """
    given = sampler.initial_scale, sampler.initial_covariance
    factor, log_scale = initial_shape(dim, *given, known.factor)
    arrived = known.factor is not None and all(option is None for option in given)
    scales = coordinate_scales(factor, log_scale)
    sweeps = 0 if arrived else sampler.sweeps
    return factor, log_scale, coordinate_moves.begin(scales, sweeps, known.left(sampler.tune))


def coordinate_scales(factor: np.ndarray, log_scale: float) -> np.ndarray:
    """Proposal sd of a coordinate that moves alone, shape (d,), from exp(``log_scale``) L with ``factor`` L."""
    return OPTIMAL_SCALE * math.exp(log_scale) * np.sqrt(np.square(factor).sum(axis=1))


def rescaled(factor: np.ndarray, phase: coordinate_moves.Phase) -> tuple[np.ndarray, float]:
    """L of determinant one in the units that ``phase`` has found, and by how much the log scale changes."""
    found = phase.log_scales - phase.start
    change = float(found.mean())
    return np.exp(found - change)[:, None] * factor, change


def successes(success: str, outcome: Outcome) -> float:
    """What counts as a success, in [0, 1]."""
    return float(outcome.accepted) if success == "indicator" else float(outcome.accept_prob)


def check_open(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless low < value < high."""
    if not low < value < high:
        raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {value!r}.")
