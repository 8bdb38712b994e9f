"""The surrogate of a log density whose black boxes are emulated, and transitions reversible with respect to it.

    f(u) = L(T(u), g_1(w_1), ..., g_K(w_K)) + log|dT/du| - soft walls,    w = w(T(u)),

with L and T known (:class:`Known`) and g_k emulators (:mod:`pymc_kameleon.surrogates.factors.emulator`). Whatever the
emulators are, f is a fixed function of the point between refits, and that is all that exactness asks of it.

A chain's position is v, the non-centred coordinates; u are partially non-centred ones, in which the dynamics run.
Seen from v the surrogate is  g(v) = f(u) - log|dv/du|.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from pymc_kameleon.surrogates.factors.emulator import Emulator, emulate
from pymc_kameleon.surrogates.factors.layout import Layout


class Known(Protocol):
    """What is known of a log density, with its gradients; see :class:`pymc_kameleon.steps.factors.split.Split`."""

    layout: Layout
    movable: np.ndarray
    factors: list[str]

    def places(self, u: np.ndarray, centring: np.ndarray) -> tuple[np.ndarray, ...]:
        """(w, x, v, mu, log sigma)."""

    def known(self, u, centring, w, outputs, jacobian, slope) -> tuple[float, np.ndarray, np.ndarray]:
        """(value, derivative by u, derivative by o)."""


class Surface(NamedTuple):
    """A fixed surrogate and everything its transitions depend on."""

    emulator: Emulator
    centring: np.ndarray  # (d,): lambda
    metric: np.ndarray  # (d, d): B: momenta are standard normal, and u moves along B p
    step_size: float


class Spot(NamedTuple):
    """A point of the surface: u, f and its gradient."""

    u: np.ndarray
    value: float
    gradient: np.ndarray


class Arm(NamedTuple):
    """How many inner transitions of what mean integration time: one of the proposals that tuning chooses among."""

    transitions: int
    time: float


ARMS = (Arm(1, 0.5), Arm(1, 1.6), Arm(3, 1.6), Arm(8, 1.6), Arm(20, 1.6))


class Path(NamedTuple):
    """What some inner transitions did."""

    end: Spot
    moved: bool
    accept_prob: float  # mean of the inner tests
    gradients: int
    energy_error: float  # of the last trajectory
    diverging: bool


def enter(known: Known, v: np.ndarray, centring: np.ndarray) -> np.ndarray:
    """U at ``v``."""
    *_, location, log_scale = known.places(v, np.zeros(len(v)))
    with np.errstate(all="ignore"):
        return centring * location + np.exp(centring * log_scale) * v


def leave(known: Known, u: np.ndarray, centring: np.ndarray) -> tuple[np.ndarray, float]:
    """(v, log|dv/du|) at ``u``."""
    _, _, v, _, log_scale = known.places(u, centring)
    return v, -float(centring @ log_scale)


def spot(known: Known, surface: Surface, u: np.ndarray, temperature: float = 1.0) -> Spot:
    """``temperature`` times f at ``u``; -inf where it is no number."""
    w, *_ = known.places(u, surface.centring)  # what is no number makes the penalty none
    outputs, jacobian, penalty, slope = emulate(surface.emulator, w)
    value, gradient, _ = known.known(u, surface.centring, w, outputs, jacobian, slope)
    value -= penalty
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        return Spot(u, -math.inf, np.zeros(len(u)))
    if temperature != 1.0:
        return Spot(u, temperature * value, temperature * gradient)
    return Spot(u, value, gradient)


@np.errstate(all="ignore")  # what overflows has no value
def run(
    rng: np.random.Generator, known: Known, surface: Surface, start: Spot, arm: Arm,
    temperature: float = 1.0,
) -> Path:  # fmt: skip
    """``arm.transitions`` Hamiltonian transitions from ``start``, reversible with respect to exp(temperature f).

    Step size and integration time are random, drawn independently of the point.
    """
    n = arm.transitions
    normals, uniforms = rng.standard_normal((n, len(start.u))), rng.random((n, 3))
    here, moved, diverging = start, False, False
    total, gradients, error = 0.0, 0, math.nan
    if start.value == -math.inf:
        return Path(start, False, 0.0, 0, error, False)
    for momentum, u in zip(normals, uniforms, strict=True):
        step = surface.step_size * (0.8 + 0.4 * u[0])
        steps = min(int(arm.time * (0.4 + 1.2 * u[1]) / step) + 1, 60)
        energy = here.value - 0.5 * float(momentum @ momentum)
        there, momentum, done = _leapfrog(known, surface, here, momentum, step, steps, temperature)
        gradients += done
        log_ratio = -math.inf
        if there is not None:
            log_ratio = there.value - 0.5 * float(momentum @ momentum) - energy
        error = -log_ratio
        diverging = diverging or not log_ratio > -1000.0
        probability = math.exp(min(0.0, log_ratio)) if not math.isnan(log_ratio) else 0.0
        total += probability
        if u[2] < probability and there is not None:  # on which reversibility hangs
            here, moved = there, True
    return Path(here, moved, total / n, gradients, error, diverging)


def _leapfrog(known, surface, here, momentum, step, steps, temperature):
    """(end, momentum, gradients); no end if f has no value somewhere on the way: nor has the way back."""
    b = surface.metric
    kick = 0.5 * step * (b.T @ here.gradient)
    for i in range(steps):
        momentum = momentum + kick
        here = spot(known, surface, here.u + step * (b @ momentum), temperature)
        if here.value == -math.inf:
            return None, momentum, i + 1
        kick = 0.5 * step * (b.T @ here.gradient)
        momentum = momentum + kick
    return here, momentum, steps
