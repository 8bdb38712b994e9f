"""What M-GaA and the (1+1)-CMA sampler share: x* = x + s A z,  z ~ N(0, I),  det A = 1; s and A learn separately."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.numerics.checks import inside, positive
from pymc_kameleon.numerics.covariance import log_determinant, multiply_lower
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE
from pymc_kameleon.samplers import coordinate_moves
from pymc_kameleon.samplers.seam import NOTHING, Proposal, Sampler

NARROWEST = 1e-120  # ratio of two initial scales: the square of a smaller one is zero
REACH = 1e12  # the size stays within this factor of its start, either way
CONDITION_LIMIT = 1e12  # the condition number of the shape relative to its start stays below


class State(NamedTuple):
    """Everything that adapts."""

    log_size: float  # log s, in units of the geometric mean of the coordinates' units
    factor: np.ndarray  # (d, d): A, lower triangular, determinant one
    log_start: float  # log s where its adaptation started, to which its range is relative
    base: np.ndarray  # (d, d): A where its adaptation started, to which its condition number is relative
    # the search for the coordinates' units; ``None`` when it is over
    phase: coordinate_moves.Phase | None
    condition: float = 1.0  # an upper bound on the condition number of A A^T
    iteration: int = 0  # adaptations of s and A so far
    # (d,): p_c, the smoothed accepted steps A z; ``None`` for those that have none
    path: np.ndarray | None = None
    success_rate: float = 0.0  # p, the smoothed rate of acceptance of those that have a path


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeLearner(Sampler):
    """A random walk that learns its size and its shape; a subclass says how, in ``learn``.

    Parameters
    ----------
    initial_scale : ndarray of shape (d,), optional
        Scales of the coordinates at the start, positive, to within a dozen orders of magnitude where ``sweeps`` are
        made. Default: what the arrival found; ones where there is none.
    diminishing : bool
        Let the rates diminish. Default True; False is the published algorithm, which does not have the right stationary
        distribution unless it is frozen.
    success : {"probability", "indicator"}
        What the size learns from: the acceptance probability (default), or whether the proposal was accepted (the
        paper's).
    sweeps : int
        Moves of every coordinate by itself in the beginning, which find the units, 0 or more; none after an arrival,
        unless ``initial_scale`` is given. Default 20; the paper has none.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The sweeps take at most a fifth of it.
    """

    size: ClassVar[str]  # the algorithm's word for s, in the option initial_<size>

    initial_scale: np.ndarray | None = None
    target_accept: float = 0.234
    diminishing: bool = True
    success: Literal["probability", "indicator"] = "probability"
    sweeps: int = coordinate_moves.SWEEPS
    tune: int | None = None

    def __post_init__(self):
        super().__post_init__()
        positive(**{f"initial_{self.size}": getattr(self, f"initial_{self.size}")})
        inside(target_accept=(self.target_accept, 0.0, 1.0))

    def learn(self, state: State, outcome) -> State:
        """Size and shape after one transition; ``state.iteration`` is that of this adaptation."""
        raise NotImplementedError

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,); no sweeps are needed where an arrival has brought a factor."""
        factor, log_scale = initial_shape(len(x), self.initial_scale, known.factor)
        # of a coordinate that moves alone
        sds = OPTIMAL_SCALE * math.exp(log_scale) * np.sqrt(np.square(factor).sum(axis=1))
        arrived = known.factor is not None and self.initial_scale is None
        size = getattr(self, f"initial_{self.size}")
        log_size = math.log(OPTIMAL_SCALE / math.sqrt(len(x)) if size is None else size) + log_scale
        phase = coordinate_moves.begin(sds, 0 if arrived else self.sweeps, known.left(self.tune))
        return State(log_size, factor, log_size, factor, phase)

    def propose(self, rng, x, state) -> Proposal:
        """Propose x + s A z, or, first, a move of one coordinate. Symmetric, so the ratio is one; z is carried to
        ``adapt``.
        """
        if state.phase is not None:
            return coordinate_moves.turn(rng, x, state.phase)
        z = rng.standard_normal(len(x))
        return Proposal(x + math.exp(state.log_size) * multiply_lower(state.factor, z), 0.0, "", z)

    def adapt(self, rng, state, outcome) -> State:
        """Move size and shape after one transition. Uses no randomness."""
        if state.phase is not None:
            phase = coordinate_moves.learn(state.phase, outcome)
            state = state._replace(phase=phase)
            return state if phase.iteration < phase.length else _end_phase(state)
        state = self.learn(state._replace(iteration=state.iteration + 1), outcome)
        low, high = state.log_start - math.log(REACH), state.log_start + math.log(REACH)
        return state._replace(log_size=min(max(state.log_size, low), high))

    def multiplier(self, iteration: int) -> float:
        """Of the rates at the ``iteration``-th adaptation: min(1, (t / 200)^-0.6), constant for a start, then falling.

        Exactness of a chain that never stops adapting hangs on this going to zero (Roberts & Rosenthal, 2007); any
        exponent in (0.5, 1] would do.
        """
        return min(1.0, (iteration / 200.0) ** -0.6) if self.diminishing else 1.0

    def succeeded(self, outcome) -> float:
        """What counts as a success, in [0, 1]."""
        return float(outcome.accepted if self.success == "indicator" else outcome.accept_prob)

    def freeze(self, state) -> State:
        """Size and shape stay where they are; the coordinate-wise moves end, if they have not."""
        return state if state.phase is None else _end_phase(state)

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling``, the size s."""
        return {"scaling": math.exp(state.log_size)}


def _end_phase(state):
    """Start size and shape, of determinant one, from the scales that the coordinate-wise moves have found."""
    found = state.phase.log_scales - state.phase.start
    change = float(found.mean())
    base, log_size = np.exp(found - change)[:, None] * state.factor, state.log_size + change
    return state._replace(log_size=log_size, factor=base, log_start=log_size, base=base, phase=None)


def initial_shape(dim: int, initial_scale: np.ndarray | None, arrival_factor: np.ndarray | None):
    """Lower factor of the initial covariance scaled to determinant one, and log of the scale."""
    if initial_scale is None and arrival_factor is not None:
        factor = np.array(arrival_factor, dtype=float, order="C")
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
