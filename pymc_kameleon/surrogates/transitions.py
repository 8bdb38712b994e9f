"""Transitions that are reversible with respect to exp(f), f a surrogate: they cost no evaluation of the log density.

Dynamics run in coordinates z with x = centre + scale * (B z); B comes from ``metric``. One
*inner transition* is

- leapfrog Hamiltonian Monte Carlo on f with a random integration time and a random step size, with
  its own accept/reject on f (Duane et al., 1987; Neal, 2011, section 5.3.2), or
- a random-walk or differential-evolution step (ter Braak & Vrugt, 2008) from an archive that does
  not change, or where f has scales a move along them (:mod:`pymc_kameleon.surrogates.rescaling`),

chosen at random, independently of where the chain is. f has walls where there was no density
(:mod:`pymc_kameleon.surrogates.walls`): tests count them, leapfrog steps do not. Each of the two is reversible with
respect to exp(f) restricted to

    D = {|z| < radius, f < ceiling}  (|w| < radius where f has a scale and w are straightened coordinates),

therefore so is their mixture P, and so is P^K, K transitions in a row. It follows that a
Metropolis-Hastings step with proposal P^K has the ratio exp{[log p(x') - f(x')] - [log p(x) -
f(x)]} (Christen & Fox, 2005, eq. 5, where K = 1).

References
----------
J. A. Christen, C. Fox (2005). Markov chain Monte Carlo using an approximation. JCGS 14.
C. J. F. ter Braak, J. A. Vrugt (2008). Differential evolution Markov chain with snooker updater and
fewer chains.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.step_size import varied
from pymc_kameleon.surrogates import rescaling, straightened, walls
from pymc_kameleon.surrogates.rescaling import Rescaling
from pymc_kameleon.surrogates.values import flattened
from pymc_kameleon.surrogates.values.features import Surrogate, compose
from pymc_kameleon.surrogates.values.flattened import Flat, at, flatten, moves_of, room, walls_of

# of D, in the largest distance that the chain has been at; of its ceiling above the highest value seen, and sqrt(d) / 2
# more, and of what is as good as the chain's states below the least of theirs
REACH, MARGIN = 2.0, 3.0
MAX_LEAPFROG = 120
TARGET_ACCEPT = 0.93  # of the leapfrog on the surrogate: where f bends more than on average the chain would stick
STEPS = (0.005, 1.2)  # smallest and largest, on average


class Arm(NamedTuple):
    """How many inner transitions, of what kind: one of the proposals that tuning chooses among."""

    transitions: int  # K
    time: float  # mean integration time of the leapfrog
    spread: float  # the time is drawn uniformly from (1 - spread, 1 + spread) times that
    jumps: float  # probability that an inner transition is a random-walk or differential-evolution step


# Cheapest first. The second is a quarter of a period of a normal target in its own metric, where one
# trajectory forgets both where it was and how high: for times U(1.25, 2.15) the correlation is -0.13
# of the coordinate and 0.09 of its square.
ARMS = (Arm(1, 0.4, 0.6, 0.0), Arm(1, 1.7, 0.27, 0.0), Arm(4, 2.0, 0.6, 0.0), Arm(10, 4.0, 0.6, 0.8))
LONG = Arm(40, 1.5, 0.6, 0.8)  # where gradients are nothing beside an evaluation


class Dynamics(NamedTuple):
    """A surrogate and everything its inner transitions depend on; constant between refits and once frozen."""

    surrogate: Surrogate
    metric: np.ndarray  # (d, d): B
    inverse: np.ndarray  # (d, d): takes x - centre to z
    # (n, d): past states of the chain, in z: the differences of differential evolution
    archive: np.ndarray
    step_size: float  # mean leapfrog step size, in z
    radius: float  # of the region D
    ceiling: float  # of the region D
    rescaling: Rescaling  # moves along the surrogate's scales
    flat: Flat  # f with its quadratic in z, and the moves: what compiled functions read


class Trajectory(NamedTuple):
    """What K inner transitions did."""

    z: np.ndarray  # (d,)
    start_value: float  # f at either end
    end_value: float
    moved: bool
    # Mean over the leapfrog transitions, NaN if there was none; of one that left D, as far as it was inside, for this
    # is what the step size is tuned by
    accept_prob: float
    gradients: int  # evaluations of f
    energy_error: float  # of the last leapfrog transition
    diverging: bool  # some leapfrog transition left D or lost more than 1000 in energy
    x: np.ndarray  # (d,): the end in the coordinates of the log density


def metric(whiten_factor: np.ndarray, curvature: np.ndarray, error: float = math.inf) -> np.ndarray:
    """B (d, d), the chain's factor L corrected where the quadratic is clearly curved.

    With H = d^2 f / dz^2 = V diag(-lambda) V' the ``curvature`` in coordinates whitened by L, B = L V diag(a) V' with
    a = lambda^(-1/2), at most 3, where lambda > 0.02, and 1 elsewhere. On a cold start the chain has seen a
    small part of the target and the quadratic already knows its long axes: this is what crosses the
    transient of an ill-conditioned normal target in a few refits.

    Where the quadratic predicts held-out values to ``error``, lambda counts from a tenth of that, and a may be up to
    error^(-1/3): what the log density has beside the quadratic is at most ``error`` as far as the points reach, and
    if it is cubic at most 1 so many times as far.
    """
    eigenvalues, vectors = np.linalg.eigh(-0.5 * (curvature + curvature.T))
    longest = max(max(error, 1e-15) ** (-1.0 / 3.0), 3.0)
    least = min(0.1 * max(error, 1e-15), 0.02)
    axes = np.where(eigenvalues > least, np.clip(np.maximum(eigenvalues, least) ** -0.5, 1e-8, longest), 1.0)
    return np.ascontiguousarray((whiten_factor @ (vectors * axes)) @ vectors.T)


def make_dynamics(
    surrogate: Surrogate, metric: np.ndarray, archive: np.ndarray, step_size: float, error: float = 0.0
) -> Dynamics:
    """Dynamics on all of R^d for states ``archive`` (n, d) in the coordinates of the log density.

    Trajectories are straightened along a scale only if ``error``, of held-out values, says that it is one: what merely
    looks like one opens where nothing is.
    """
    composed = compose(surrogate, metric)
    inverse = np.ascontiguousarray(composed.frame / surrogate.scale)
    z = np.ascontiguousarray((archive - surrogate.centre) @ inverse.T)
    moves = rescaling.make(surrogate, metric, z)
    if not error < 0.3:
        moves = moves._replace(straight=-1)
    flat = flatten(composed, metric, inverse, moves)
    return Dynamics(surrogate, metric, inverse, z, float(step_size), math.inf, math.inf, moves, flat)


def in_region(dynamics: Dynamics, z: np.ndarray) -> np.ndarray:
    """``z`` (..., d) in coordinates in which D is a ball."""
    return rescaling.straightened(dynamics.rescaling, z)


def reach(dynamics: Dynamics, z: np.ndarray) -> np.ndarray:
    """How far ``z`` (..., d) are out, as D's radius measures it: shape (...)."""
    return np.sqrt(np.square(in_region(dynamics, z)).sum(axis=-1))


def below(dynamics: Dynamics, ceiling: float) -> Dynamics:
    """With a ceiling to D, if there is to be one: in a funnel's neck the density has none."""
    return dynamics._replace(ceiling=math.inf if dynamics.rescaling.straight >= 0 else ceiling)


def bounded(dynamics: Dynamics, z: np.ndarray, log_densities: np.ndarray, times: float = REACH) -> Dynamics:
    """With D: ``times`` as far out as the chain has been, at ``z`` (m, d), and not where f promises much more than the
    highest of ``log_densities`` (n,).
    """
    radius = times * float(reach(dynamics, z).max())
    highest = float(log_densities[np.isfinite(log_densities)].max())
    return below(dynamics._replace(radius=radius), highest + MARGIN + 0.5 * math.sqrt(z.shape[1]))


def farthest(error: float) -> float:
    """How many times as far as the chain has been D may go: farther where f is all but exact, by its held-out error."""
    return 10.0 if error < 1e-3 else REACH


def walled(dynamics: Dynamics, evaluated: Evaluations, states: np.ndarray) -> Dynamics:
    """With walls to f, where points that f promises to be as good as the chain's ``states`` (m, d) had no density."""
    least = flattened.values(dynamics.surrogate, states.copy()).min() - MARGIN
    is_there = walls.is_there(evaluated.log_densities, least)
    if (~is_there).sum() < walls.FEWEST:
        return dynamics
    z = (evaluated.positions - dynamics.surrogate.centre) @ dynamics.inverse.T
    promising = flattened.values(dynamics.surrogate, evaluated.positions.copy()) > least
    promising &= reach(dynamics, z) < dynamics.radius
    found = walls.learn(z[promising], is_there[promising])
    return dynamics._replace(flat=flattened.walled(dynamics.flat, found))


def to_z(dynamics: Dynamics, x: np.ndarray) -> np.ndarray:
    """Coordinates of the dynamics, shape (d,)."""
    return dynamics.inverse @ (x - dynamics.surrogate.centre)


def to_x(dynamics: Dynamics, z: np.ndarray) -> np.ndarray:
    """Coordinates of the log density, shape (d,)."""
    return dynamics.surrogate.centre + dynamics.surrogate.scale * (dynamics.metric @ z)


def value(dynamics: Dynamics, z: np.ndarray) -> float:
    """F at ``z``."""
    return _value(*dynamics.flat, z)


def located(dynamics: Dynamics, x: np.ndarray) -> tuple[np.ndarray, float]:
    """(z, f) at ``x``."""
    return _located(*dynamics.flat, x)


def value_inside(dynamics: Dynamics, x: np.ndarray) -> float:
    """F at ``x``, ``-inf`` outside D."""
    return value_at(*dynamics.flat, x, dynamics.radius, dynamics.ceiling)


def run(rng: np.random.Generator, z: np.ndarray, dynamics: Dynamics, arm: Arm, temperature: float = 1.0) -> Trajectory:
    """``arm.transitions`` inner transitions from ``z``, reversible with respect to exp(``temperature`` * f) on D.

    All randomness is drawn here, in arrays whose size depends on the arm alone.
    """
    normals = rng.standard_normal((arm.transitions, len(z)))
    uniforms = rng.random((arm.transitions, 7))
    return Trajectory(
        *_transitions(
            *dynamics.flat, dynamics.archive, z, dynamics.step_size, arm.time, arm.spread, arm.jumps,
            temperature, dynamics.radius, dynamics.ceiling, normals, uniforms,
        )
    )  # fmt: skip


@njit(cache=True)
def _value(numbers, integers, z):
    size = room(z.size, integers)
    value = at(numbers, integers, 1.0, z, np.empty(z.size), np.empty(size), np.empty(size))
    return value - walls.height(walls_of(numbers, integers), z)


@njit(cache=True)
def _located(numbers, integers, x):
    d, centre, inverse = x.size, integers[4 * 1], integers[4 * 9]  # see ``at``
    z = np.zeros(d)
    for i in range(d):
        for j in range(d):
            z[i] += numbers[inverse + i * d + j] * (x[j] - numbers[centre + j])
    return z, _value(numbers, integers, z)


@njit(cache=True)
def value_at(numbers, integers, x, radius, ceiling):
    """What :func:`value_inside` is, of ``dynamics.flat``, for compiled functions."""
    z, value = _located(numbers, integers, x)
    inside = rescaling.square_norm(moves_of(numbers, integers), z) < radius * radius
    return value if inside and value < ceiling else -np.inf


# What the columns of the uniforms are for. A transition is a trajectory or a jump, which have two of them in common.
KIND, STEP, TIME, FIRST, SECOND, WHOLE, ACCEPT = range(7)
WALKS, SIZE = STEP, TIME


# One loop with buffers: in parts, with records, it costs 2 microseconds a call and 2 to 4 % of a trajectory more.
@njit(cache=True, nogil=True)  # chains that share a surrogate compute side by side
def _transitions(
    numbers, integers, archive, start, step_size, time, spread, jumps, temperature, radius, ceiling,
    normals, uniforms,
):  # fmt: skip
    moves = moves_of(numbers, integers)
    d = start.size
    z = start.copy()
    new = np.empty(d)
    gradient = np.empty(d)
    new_gradient = np.empty(d)
    momentum = np.empty(d)
    s = np.empty(room(d, integers))
    by_s = np.empty(room(d, integers))
    square_radius = radius * radius
    ceiling = temperature * ceiling
    value = at(numbers, integers, temperature, z, gradient, s, by_s)
    walled = walls_of(numbers, integers)
    height = temperature * walls.height(walled, z)
    start_value = value - height
    moved = False
    gradients = 1
    accept_sum = 0.0
    trajectories = 0
    energy_error = 0.0
    diverging = False
    for k in range(normals.shape[0]):
        u = uniforms[k]
        inside = True
        if u[KIND] < jumps:
            log_jacobian = 0.0
            if moves.rates.size > 0 and u[WALKS] > 0.6:  # along a scale, where f has one
                log_jacobian = rescaling.move(moves, z, u[FIRST], u[SIZE], normals[k, 0], new)
            else:
                _jump(z, archive, normals[k], u, new)
            inside = rescaling.square_norm(moves, new) < square_radius
            log_ratio = -np.inf
            if inside:
                new_value = at(numbers, integers, temperature, new, new_gradient, s, by_s)
                gradients += 1
                log_ratio = new_value - value + log_jacobian  # the other jumps are symmetric
        else:
            trajectories += 1
            step = varied(step_size, u[STEP])
            span = time * (1.0 - spread + 2.0 * spread * u[TIME])
            steps = min(int(span / step) + 1, MAX_LEAPFROG)
            if moves.straight >= 0:
                new_value, log_ratio, stability, inside, steps = straightened.leapfrog(
                    numbers, integers, moves, temperature, z, value, gradient, normals[k], step, steps, square_radius,
                    new, new_gradient,
                )  # fmt: skip
                gradients += steps
            else:
                energy = value
                for i in range(d):
                    momentum[i] = normals[k, i]
                    energy -= 0.5 * momentum[i] * momentum[i]
                    new[i] = z[i]
                    new_gradient[i] = gradient[i]
                new_value = value
                for n in range(steps):
                    for i in range(d):
                        momentum[i] += 0.5 * step * new_gradient[i]
                        new[i] += step * momentum[i]
                    # the whole path must lie in the ball: the reversed path is then rejected exactly
                    # when this one is
                    inside = rescaling.square(new) < square_radius
                    if not inside:
                        # How stable the path was until here: a step however small would leave D, too. One that
                        # leaves it at once is too long.
                        for i in range(d):
                            momentum[i] -= 0.5 * step * new_gradient[i]
                        if n == 0:
                            new_value = -np.inf
                        break
                    new_value = at(numbers, integers, temperature, new, new_gradient, s, by_s)
                    gradients += 1
                    for i in range(d):
                        momentum[i] += 0.5 * step * new_gradient[i]
                stability = new_value - energy
                for i in range(d):
                    stability -= 0.5 * momentum[i] * momentum[i]
                log_ratio = stability if inside else -np.inf
            energy_error = -log_ratio
            if not log_ratio > -1000.0:
                diverging = True
            if stability > -1000.0:  # false if it is not a number
                accept_sum += math.exp(min(0.0, stability))
        new_height = temperature * walls.height(walled, new)  # beside the stability, which no step size could mend
        log_ratio += height - new_height
        accept_prob = 0.0  # outside D, and where f overflowed, as the density exp(f) is
        if inside and new_value - new_height < ceiling and math.isfinite(new_value):
            accept_prob = math.exp(min(0.0, log_ratio))
        if u[ACCEPT] < accept_prob:  # the inner accept/reject, on which reversibility hangs
            moved = True
            value, height = new_value, new_height
            for i in range(d):
                z[i] = new[i]
                gradient[i] = new_gradient[i]
    accept_prob = accept_sum / trajectories if trajectories > 0 else np.nan
    x = flattened.to_x(numbers, integers, z)
    return z, start_value, value - height, moved, accept_prob, gradients, energy_error, diverging, x


@njit(cache=True)
def _jump(z, archive, normals, u, new):
    """A symmetric jump: a random walk of random scale (3 in 10) or a difference of two archived states."""
    d = z.size
    if u[WALKS] < 0.3:
        scale = 2.38 / math.sqrt(d) * math.exp(1.5 * u[SIZE] - 1.0)
        for i in range(d):
            new[i] = z[i] + scale * normals[i]
    else:
        a = min(int(u[FIRST] * archive.shape[0]), archive.shape[0] - 1)
        b = min(int(u[SECOND] * archive.shape[0]), archive.shape[0] - 1)
        gamma = 1.0 if u[WHOLE] < 0.5 else 2.38 / math.sqrt(2.0 * d)
        for i in range(d):
            new[i] = z[i] + gamma * (archive[a, i] - archive[b, i]) + 0.05 * normals[i]


# --- step size: dual averaging on the surrogate ---------------------------------------------------


class DualAveraging(NamedTuple):
    """Nesterov's dual averaging of the log step size (Hoffman & Gelman, 2014, section 3.2, with gamma = 0.1)."""

    log_step: float
    log_average: float
    shrink_towards: float
    error: float
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


def update_dual_averaging(averaging: DualAveraging, accept_prob: float) -> DualAveraging:
    """One update; an acceptance probability that is not a number counts as 0."""
    accept_prob = accept_prob if accept_prob >= 0.0 else 0.0
    count = averaging.count + 1
    error = averaging.error + (TARGET_ACCEPT - accept_prob - averaging.error) / (count + 10.0)
    log_step = averaging.shrink_towards - math.sqrt(count) / 0.1 * error
    log_step = min(max(log_step, math.log(STEPS[0])), math.log(STEPS[1]))
    weight = count**-0.75
    log_average = weight * log_step + (1.0 - weight) * averaging.log_average
    return DualAveraging(log_step, log_average, averaging.shrink_towards, error, count)


def find_step_size(rng: np.random.Generator, dynamics: Dynamics, trials: int = 60) -> tuple[Dynamics, DualAveraging]:
    """A step size for a new surrogate by ``trials`` trajectories, each from another archived state.

    From one state it would be the step size that suits that state.
    """
    log_step = math.log(min(max(dynamics.step_size, 0.02), STEPS[1]))
    averaging = DualAveraging(log_step, log_step, log_step + math.log(5.0), 0.0, 0)
    for z in dynamics.archive[rng.integers(len(dynamics.archive), size=trials)]:
        dynamics = dynamics._replace(step_size=math.exp(averaging.log_step))
        averaging = update_dual_averaging(averaging, run(rng, z, dynamics, Arm(1, 1.0, 0.6, 0.0)).accept_prob)
    return dynamics._replace(step_size=math.exp(averaging.log_average)), averaging
