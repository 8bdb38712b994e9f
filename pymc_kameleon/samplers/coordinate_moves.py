"""One coordinate at a time: how a chain finds the units of its parameters, whatever they are.

The first draws of a cold start move the coordinates in turn, x_i* = x_i + s_i N(0, 1), and tune every s_i to the
acceptance that is optimal in one dimension. By Kesten's (1958) rule the rate falls only when the direction of change
turns, so that scales that are wrong by dozens of orders of magnitude are found within the phase.

References
----------
H. Kesten (1958). Accelerated stochastic approximation. Annals of Mathematical Statistics 29.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.seam import Outcome, Proposal

SWEEPS = 20  # over all coordinates
TARGET_ACCEPT = 0.44  # optimal in one dimension, Roberts & Rosenthal (2001)
GAIN = 4.0  # 20 acceptances in a row are a factor of exp(45), 20 rejections one of exp(-35)
# there 20 rejections in a row are those of an overestimate, and say nothing of a scale
NOISY_GAIN = 1.0


def length(dim: int, tune: int | None, sweeps: int = SWEEPS) -> int:
    """Draws of the phase: ``sweeps`` over the coordinates, at most a fifth of tuning where its length is known."""
    return sweeps * dim if tune is None else min(sweeps * dim, tune // 5)


def propose(rng: np.random.Generator, x: np.ndarray, i: int, log_scale: float) -> Proposal:
    """Propose to move the ``i``-th coordinate of ``x``, shape (d,). Symmetric."""
    x_new = x.copy()
    x_new[i] += math.exp(log_scale) * rng.standard_normal()
    return Proposal(x_new, 0.0, "coordinate")


def adapt(log_scales: np.ndarray, reversals: np.ndarray, i: int, outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """``log_scales`` and ``reversals``, shape (d,) each, after a move of the ``i``-th coordinate.

    ``reversals`` counts how often the direction of change turned, with the sign of the last change; zero before it.
    """
    error = outcome.accept_prob - outcome.target(TARGET_ACCEPT)
    log_scales, reversals = log_scales.copy(), reversals.copy()
    count = reversals[i]
    if count == 0.0 or (count > 0) != (error > 0):
        reversals[i] = count = math.copysign(abs(count) + 1.0, error)
    gain = NOISY_GAIN if outcome.noise_sd > 0.0 else GAIN
    log_scales[i] += gain / abs(count) * error
    return log_scales, reversals


class Phase(NamedTuple):
    """The phase, for an algorithm that keeps it apart from what it learns afterwards."""

    length: int  # draws of the phase
    iteration: int  # those that have been
    start: np.ndarray  # (d,): log scales at the start
    log_scales: np.ndarray  # (d,): ... and now
    reversals: np.ndarray  # (d,): see :func:`adapt`


def begin(scales: np.ndarray, sweeps: int, tune: int | None) -> Phase | None:
    """A phase that starts from the proposal sd ``scales``, shape (d,); ``None`` if it has no draws."""
    if not sweeps >= 0:
        raise ValueError(f"sweeps must not be negative, got {sweeps!r}.")
    draws, start = length(len(scales), tune, sweeps), np.log(scales)
    return Phase(draws, 0, start, start, np.zeros(len(scales))) if draws else None


def turn(rng: np.random.Generator, x: np.ndarray, phase: Phase) -> Proposal:
    """The phase's next proposal."""
    i = phase.iteration % len(x)
    return propose(rng, x, i, phase.log_scales[i])


def learn(phase: Phase, outcome: Outcome) -> Phase:
    """After one of its moves."""
    i = phase.iteration % len(phase.start)
    log_scales, reversals = adapt(phase.log_scales, phase.reversals, i, outcome)
    return phase._replace(iteration=phase.iteration + 1, log_scales=log_scales, reversals=reversals)
