"""The surrogate of a log density whose black boxes are emulated, and transitions reversible with respect to it.

    f(u) = L(T(u), g_1(w_1), ..., g_K(w_K)) + log|dT/du| - penalty(w) - height(u),    w = w(T(u)),

with L and T known (:class:`Known`), g_k emulators, a penalty far from what they were fitted to
(:mod:`pymc_kameleon.surrogates.factors.emulator`), and the height of walls where black boxes fail
(:mod:`pymc_kameleon.surrogates.walls`). Whatever the emulators are, f is a fixed function of the point between refits,
and that is all that exactness asks of it.

A chain's position is v, the non-centred coordinates; u are partially non-centred ones, in which the dynamics run.
Seen from v the surrogate is  g(v) = f(u) - log|dv/du|.

What is evaluated tens of times a draw is written once, and runs compiled where the known part can be called from
compiled code (:class:`Compiled`), else as Python.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba.extending import register_jitable

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.step_size import varied
from pymc_kameleon.surrogates.factors.emulator import Emulator, emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.walls import Walled, height_at


class Compiled(NamedTuple):
    """:class:`Known` for compiled code: first-class functions of Numba's, or anything that is called alike.

    Each takes one tuple, and returns one.
    """

    places: Any  # (u, centring, *more[0]) -> (w, ...)
    known: Any  # (u, centring, w, outputs, jacobian, slope, *more[1]) -> (value of shape (), by u, by o)
    more: tuple[tuple, tuple] = ((), ())


class Known(Protocol):
    """What is known of a log density, with its gradients; see :class:`pymc_kameleon.steps.factors.split.Split`."""

    layout: Layout
    movable: np.ndarray
    units: np.ndarray
    factors: list[str]

    def places(self, u: np.ndarray, centring: np.ndarray) -> tuple[np.ndarray, ...]:
        """(w, x, v, mu, log sigma)."""

    def known(self, u, centring, w, outputs, jacobian, slope) -> tuple[float, np.ndarray, np.ndarray]:
        """(value, derivative by u, derivative by o)."""

    def compiled(self) -> tuple | None:
        """The two as a :class:`Compiled`, with the same bits; None where they cannot be called from compiled code."""


class Surface(NamedTuple):
    """A fixed surrogate and everything its transitions depend on."""

    emulator: Emulator
    centring: np.ndarray  # (d,): lambda
    metric: np.ndarray  # (d, d): B: momenta are standard normal, and u moves along B p
    step_size: float
    walled: Walled  # where black boxes fail


class Spot(NamedTuple):
    """A point of the surface: u, f and its gradient."""

    u: np.ndarray
    value: float
    gradient: np.ndarray


class Arm(NamedTuple):
    """How many inner transitions of what mean integration time: one of the proposals that tuning chooses among."""

    transitions: int
    time: float


# Along a thin ridge that bends a step is a hundredth, and 60 of them leave a walk: a gravitational lens of six
# unknowns, two seeds, had 2 and 55 effective draws per 1000 evaluations, with 200 and steps from .004 on 225 and 213,
# at 2.3 times the work; with steps from .01 on 46 and 192.
MAX_LEAPFROG = 200
ARMS = (Arm(1, 0.5), Arm(1, 1.6), Arm(3, 2.5), Arm(8, 2.5), Arm(20, 1.6))


def expense(surface: Surface) -> tuple[np.ndarray, float]:
    """About how many gradients a proposal of each arm takes, (arms,), and how many multiply-adds each of them."""
    gradients = [a.transitions * min(1.0 + a.time / surface.step_size, MAX_LEAPFROG) for a in ARMS]
    return np.array(gradients), 500.0 + 2.0 * surface.metric.size + 3.0 * surface.emulator.coefficients.size


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
    value, gradient = _called(known, _spot, _compiled_spot, surface.emulator, surface.centring, u, temperature)
    return Spot(u, value - temperature * height_at(surface.walled, u), gradient)


def run(
    rng: np.random.Generator, known: Known, surface: Surface, start: Spot, arm: Arm,
    temperature: float = 1.0, middles: np.ndarray | None = None,
) -> Path:  # fmt: skip
    """``arm.transitions`` Hamiltonian transitions from ``start``, reversible with respect to exp(temperature f).

    Step size and integration time are random, drawn independently of the point. With ``middles`` (m, d) a jump J by the
    difference of two of them, drawn at random, is tried between any two transitions H, which takes it to another mode.
    """
    n, d = arm.transitions, len(start.u)
    normals, uniforms, jumps = rng.standard_normal((n, d)), rng.random((n, 4)), np.zeros((n - 1, d))
    if middles is not None:
        # Exactness hangs on this: either order is as likely, J symmetric, and H J H ... J H a palindrome
        first, second = rng.integers(len(middles), size=(2, n - 1))
        jumps = middles[first] - middles[second]
    if start.value == -math.inf:
        return Path(start, False, 0.0, 0, math.nan, False)
    u, value, gradient, *path = _called(
        known, _transitions, _compiled_transitions, surface.emulator, surface.centring, surface.walled, surface.metric,
        surface.step_size, start.u, start.value, start.gradient, float(arm.time), temperature, normals, uniforms, jumps,
    )  # fmt: skip
    return Path(Spot(u, value, gradient) if path[0] else start, *path)


def _called(known, in_python, in_machine_code, *given):
    """The result of a function of ``known``, compiled where that is possible."""
    found = known.compiled()
    if found is not None:
        try:
            return in_machine_code(*found, *given)
        except RuntimeError:  # the known part has raised something: Python says what
            pass

    def known_part(given):
        value, by_u, by_o = known.known(*given)
        return np.array(value), by_u, by_o

    with np.errstate(all="ignore"):  # what overflows has no value
        return in_python(*Compiled(lambda given: known.places(*given), known_part), *given)


@register_jitable
def _spot(places, known, more, emulator, centring, u, temperature):
    """(``temperature`` times f, its gradient) at ``u``."""
    w = np.ascontiguousarray(places((u, centring) + more[0])[0])  # what is no number makes the penalty none
    if w.size != emulator.centre.size:  # an exception on the other side of a function pointer is an empty result
        raise RuntimeError
    outputs, jacobian, penalty, slope = emulate(emulator, w)
    found, gradient, _ = known((u, centring, w, outputs, jacobian, slope) + more[1])
    if gradient.size != u.size:
        raise RuntimeError
    value = found[()] - penalty
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        return -math.inf, np.zeros(u.size)
    return temperature * value, temperature * gradient


def _transitions(
    places, known, more, emulator, centring, walled, metric, step_size, u, value, gradient, time, temperature,
    normals, uniforms, jumps,
):  # fmt: skip
    """What :func:`run` returns of its path, from a point at which f has a value."""
    n, height = len(normals), temperature * height_at(walled, u)
    value += height  # what is smooth
    moved, diverging, total, gradients, error = False, False, 0.0, 0, math.nan
    for k in range(n):
        step = varied(step_size, uniforms[k, 0])
        steps = min(int(time * (0.4 + 1.2 * uniforms[k, 1]) / step) + 1, MAX_LEAPFROG)
        momentum, there, new, new_gradient = normals[k], u, value, gradient
        energy = value - 0.5 * (momentum @ momentum)
        kick = 0.5 * step * (metric.T @ gradient)
        for _ in range(steps):
            momentum = momentum + kick
            there = there + step * (metric @ momentum)
            new, new_gradient = _spot(places, known, more, emulator, centring, there, temperature)
            gradients += 1
            if new == -math.inf:  # no end if f has no value somewhere on the way: nor has the way back
                break
            kick = 0.5 * step * (metric.T @ new_gradient)
            momentum = momentum + kick
        log_ratio = -math.inf
        if new > -math.inf:
            log_ratio = new - 0.5 * (momentum @ momentum) - energy
        error = -log_ratio
        diverging = diverging or not log_ratio > -1000.0
        probability = math.exp(min(0.0, log_ratio)) if not math.isnan(log_ratio) else 0.0
        total += probability
        new_height = temperature * height_at(walled, there) if new > -math.inf else 0.0
        if height != new_height and probability > 0.0:  # beside what step sizes are tuned by: none could mend it
            probability = math.exp(min(0.0, log_ratio + height - new_height))
        if uniforms[k, 2] < probability:  # on which reversibility hangs
            u, value, gradient, moved, height = there, new, new_gradient, True, new_height
        if k < n - 1 and jumps[k].any():
            there = u + jumps[k]
            new, new_gradient = _spot(places, known, more, emulator, centring, there, temperature)
            gradients += 1
            new_height = temperature * height_at(walled, there) if new > -math.inf else 0.0
            if uniforms[k, 3] < math.exp(min(0.0, new - new_height - value + height)):
                u, value, gradient, moved, height = there, new, new_gradient, True, new_height
    return u, value - height, gradient, moved, total / n, gradients, error, diverging


_compiled_spot, _compiled_transitions = njit(cache=True)(_spot), njit(cache=True)(_transitions)
