"""Refits: what a surrogate is fitted to, in which coordinates its dynamics run, and how long their steps are."""

import math

import numpy as np
import scipy

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.centring import QUANTILE
from pymc_kameleon.samplers.kamiltonian.factors import climb as climbing
from pymc_kameleon.samplers.kamiltonian.factors.state import Learning, State
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, Known, Surface, enter, expense, leave, run, spot
from pymc_kameleon.samplers.kamiltonian.learner import measure, price, unjudged
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.surrogates import walls
from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.emulator import LOG, LOGIT
from pymc_kameleon.surrogates.factors.splines import FEWEST
from pymc_kameleon.surrogates.transitions import MARGIN, TARGET_ACCEPT

SHORTEST, LONGEST = 0.004, 1.3  # steps
ROWS = 24  # of a free run, at which the data's precision is looked at: so many that the quantile is not the least


def locate(known: Known, surface: Surface | None, v: np.ndarray, log_density: float) -> Current:
    """What is retained at ``v``."""
    if surface is None:
        return Current(v.copy(), log_density, 0.0)
    u = enter(known, v, surface.centring)
    return Current(u, log_density, value(known, surface, u))


def value(known: Known, surface: Surface, u: np.ndarray) -> float:
    """The surrogate as seen from v."""
    return spot(known, surface, u).value - leave(known, u, surface.centring)[1]


def refit(
    rng: np.random.Generator, known: Known, state: State, here: Point, *, final: bool = False
) -> State:  # fmt: skip
    """A new surrogate, its coordinates and its step size, for a chain ``here``; the old one where that fails."""
    learning, v = state.learning, here.position
    n, schedule = learning.evaluated.size, learning.schedule
    final = final or schedule.is_last(state.tune)
    schedule = schedule._replace(last_refit=n, next_refit=int(1.25 * n) + 4, final=schedule.final or final)
    learning = learning._replace(schedule=schedule)
    # inner transitions of the free run: the more, the later
    length = 400 if final else 60 if schedule.refits < 3 else 200
    state = state._replace(learning=learning)
    try:
        fit, surface, path, correlation = _explored(rng, known, state, v, length)
        if not learning.careful and is_lost(known, surface, path, learning):
            learning = learning._replace(careful=True)
            state = state._replace(learning=learning)
            fit, surface, path, correlation = _explored(rng, known, state, v, length)
    except np.linalg.LinAlgError:  # too few points, or too degenerate: wait for more
        return state
    free = learning.free
    if path is not None:
        free = np.array([known.places(u, surface.centring)[0] for u in path])
        chosen = choose_centring(known, surface, path)
        if schedule.refits >= 1 and np.abs(chosen - surface.centring).max(initial=0.0) > 0.05:
            moved = [enter(known, leave(known, u, surface.centring)[0], chosen) for u in path]
            surface = surface._replace(centring=chosen, metric=_metric(np.array(moved)))
            surface, path, correlation = free_run(rng, known, surface, v, length)
        surface = surface._replace(walled=_walled(known, surface, path, learning.evaluated))
    learning = learning._replace(
        correlation=correlation if correlation is not None else learning.correlation, free=free,
        judgement=unjudged(measure(learning, fit.residual_sd) if state.fit else learning.judgement.earlier),
        accepted=0.2 * learning.accepted, trials=0.2 * learning.trials, schedule=schedule.fitted(rng),
    )  # fmt: skip
    return state._replace(
        fit=fit, surface=surface, learning=learning,
        current=locate(known, surface, v, here.log_density), arms=arm_shares(learning, surface, 3.0),
    )  # fmt: skip


def _explored(rng, known: Known, state: State, v, length):
    """A fit, its surface after a free run with a metric and a step size, and what :func:`free_run` tells of it."""
    fit = _fit(rng, known, state.learning, v)
    if state.surface is not None:
        surface = state.surface._replace(emulator=fit.emulator, walled=walls.unbounded(len(v)))
    else:
        surface = _at_first(fit, v)
        u = enter(known, v, surface.centring)
        surface = surface._replace(metric=climbing.metric(known, surface, u))
    return fit, *free_run(rng, known, surface, v, length)


def _walled(known: Known, surface: Surface, path: np.ndarray | None, evaluated) -> walls.Walled:
    """Walls where black boxes have failed that f promises to be as good as where its free ``path`` (m, d) was."""
    none = walls.unbounded(len(surface.metric))
    if path is None:
        return none
    least = min(spot(known, surface, each).value for each in path[::5]) - MARGIN
    log_densities = evaluated.log_densities
    if surface.centring.any():  # f is of u
        u = (enter(known, v, surface.centring) for v in evaluated.positions)
        log_densities = log_densities + [leave(known, each, surface.centring)[1] for each in u]
    is_there = walls.is_there(log_densities, least)

    def promising(positions):
        u = [enter(known, v, surface.centring) for v in positions]
        return [each for each in u if spot(known, surface, each).value > least]

    beyond = promising(evaluated.positions[~is_there])
    if len(beyond) < walls.FEWEST:
        return none
    within = promising(evaluated.positions[is_there])
    middle, inverse = path.mean(axis=0), np.linalg.inv(surface.metric)
    z = (np.array(within + beyond) - middle) @ inverse.T
    return walls.Walled(walls.learn(z, np.arange(len(z)) < len(within)), middle, inverse)


def _at_first(fit, v):
    return Surface(fit.emulator, np.zeros(len(v)), np.eye(len(v)), 0.3, walls.unbounded(len(v)))


def is_lost(known: Known, surface: Surface, path: np.ndarray | None, learning: Learning) -> bool:
    """Whether a free run is on a peak that is not there: far higher than anything evaluated.

    Polynomials have such peaks where they have no points. From there metric and step size would be those of the peak.
    """
    heights = learning.evaluated.log_densities
    if path is None or len(heights) < FEWEST or not surface.emulator.sign.any():
        return False
    highest = heights[np.isfinite(heights)].max(initial=-np.inf)
    found = max(value(known, surface, u) for u in path[::5])
    return bool(found > highest + 10.0 + 0.5 * path.shape[1])  # a draw is d / 2 below the mode


def fit_nearby(rng, known: Known, learning: Learning, v) -> Surface:
    """A surrogate of the neighbourhood of ``v``, for the climb."""
    return _at_first(_fit(rng, known, learning, v, nearest=True), v)


def _fit(rng, known, learning, v, nearest=False):
    n = learning.evaluated.size
    evaluated = learning.evaluated
    sample = regression.Sample(learning.inputs.buffer[:n], evaluated.outputs, evaluated.log_densities)
    reference = None if nearest else _reference(known, learning)
    here = known.places(v, np.zeros(len(v)))[0]
    precision, slopes = output_prices(known, v, learning)
    return regression.fit(
        rng, known.layout, sample, reference, here, precision,
        slopes=slopes, bounds=None if nearest else output_bounds(known, v, learning), nearest=nearest,
        careful=learning.careful,
    )  # fmt: skip


def _reference(known: Known, learning: Learning) -> np.ndarray | None:
    """Inputs where the surrogate is wanted: where the chain has been, or would go, and where climbs have found modes.

    Without these no chain of four models with two modes each came to the other: 0 of 32, with them 30.
    """
    heights, m = learning.evaluated.log_densities, learning.chain.size
    if m > 40 and learning.moves > 25:
        own, zero = learning.chain.buffer[m // 2 : m], np.zeros(learning.chain.buffer.shape[1])
        states = [*history.thin(own, 400), *_beyond(learning, own), *learning.elsewhere]
        return np.array([known.places(v, zero)[0] for v in states])
    if learning.free is not None:
        finite = np.isfinite(heights)
        high = finite & (heights >= np.quantile(heights[finite], 0.7))
        return np.concatenate([learning.free, learning.inputs.buffer[: learning.evaluated.size][high]])
    return None


def _beyond(learning: Learning, own: np.ndarray) -> np.ndarray:
    """Evaluated points that are as high as the chain's ``own`` states (n, d), and outside of their range.

    Along a ridge a polynomial that does without them is thousands of nats too low, and chains seldom go there: of a
    dose response with four unknowns (``tests/steps/test_ridge.py``), sixteen runs, sds were .79 to 1.09 of the right
    ones, but for one with an R-hat of 1.1; with these .90 to 1.03, but for one of 1.06. Hierarchies, 46 runs: 1.02
    times the effective draws, none below .7.
    """
    evaluated, m = learning.evaluated, learning.chain.size
    least = np.quantile(learning.chain_log_densities.buffer[m - len(own) : m, 0], 0.02)
    x = evaluated.positions[evaluated.log_densities >= least]
    outside = ((x < own.min(axis=0)) | (x > own.max(axis=0))).any(axis=1)
    return history.thin(x[outside], 400)


def _highest(known: Known, v: np.ndarray, learning: Learning):
    """The outputs, (n_o,), of the highest point so far, and what is known of the log density at ``v`` by outputs."""
    zero = np.zeros(len(v))
    outputs = learning.evaluated.outputs[int(np.argmax(learning.evaluated.log_densities))].copy()
    w, *_ = known.places(v, zero)
    flat, still = np.zeros((len(outputs), known.layout.widest)), np.zeros(len(w))
    return outputs, lambda outputs: known.known(v, zero, w, outputs, flat, still)


def output_bounds(known: Known, v: np.ndarray, learning: Learning) -> np.ndarray:
    """The link, (n_o,), of outputs that have no log density below 0 (LOG), those of counts and lognormals; nor above 1
    (LOGIT), probabilities: asked one by one.
    """
    outputs, known_of = _highest(known, v, learning)

    def has_a_value(outputs):
        try:
            return math.isfinite(known_of(outputs)[0])
        except Exception:  # a user's check of what is positive
            return False

    found = np.zeros(len(outputs), np.int64)
    for j in np.flatnonzero(~known.layout.is_added & (outputs > 0.0)) if has_a_value(outputs) else ():
        below, near, above = outputs.copy(), outputs.copy(), outputs.copy()
        below[j] *= -1.0
        near[j] *= 0.99  # what has to add up to 1 polynomials keep, and logarithms do not
        above[j] += 1.0
        if not has_a_value(below) and has_a_value(near):
            found[j] = LOGIT if outputs[j] <= 1.0 and not has_a_value(above) else LOG
    return found


def output_prices(known: Known, v: np.ndarray, learning: Learning) -> tuple[np.ndarray, np.ndarray]:
    """(what a squared error of an output costs in squared log density, dL / do where L is linear in it), both (n_o,).

    The price is -d^2 L / do^2 at the outputs of the highest point so far, by differences, and the square of the slope
    where L is linear: where outputs are added (1), a sum of squares is multiplied by the data's unknown precision, or a
    Poisson count is 0.
    """
    layout = known.layout
    result, linear = np.ones(int(layout.outputs[-1])), layout.is_added.astype(float)
    if layout.added.all():
        return result, linear
    outputs, known_of = _highest(known, v, learning)

    def slope(outputs):
        return known_of(outputs)[2]

    # one output of every factor at a time: the factors' outputs hardly interact
    rank = np.arange(len(outputs)) - layout.outputs[layout.owner]
    before, size = slope(outputs).copy(), np.zeros(layout.size)
    np.maximum.at(size, layout.owner, np.abs(outputs))
    unit = np.where((size > 0.0) & (size < 1e-3), size, 1.0)[layout.owner]  # theirs, where they are small
    for j in range(int(rank.max()) + 1):
        mine = (rank == j) & ~layout.is_added
        step = np.where(mine, 1e-3 * (unit + np.abs(outputs)), 0.0)
        change = before - slope(outputs + step)
        result[mine] = change[mine] / step[mine]
        same = mine & (np.abs(change) <= 1e-9 * np.abs(before)) & np.isfinite(before)
        linear[same], result[same] = before[same], np.square(before[same])
    least = 1e-6 / np.square(np.maximum(unit, np.abs(outputs)))
    return np.where(np.isfinite(result) & (result > least), result, least), linear


def free_run(rng, known: Known, surface: Surface, v, length: int):
    """(surface with a new metric and step size, states or None, lag-1 autocorrelation or None): costs no evaluation."""
    here = spot(known, surface, enter(known, v, surface.centring))
    if here.value == -math.inf:
        return surface, None, None
    states = np.empty((length, len(v)))
    log_step = math.log(max(surface.step_size, 0.1))
    looks = {length // 4, length // 2, length - 1}
    for i in range(length):
        surface = surface._replace(step_size=math.exp(log_step))
        path = run(rng, known, surface, here, ARMS[1])
        here = path.end
        states[i] = here.u
        log_step += 2.0 * (path.accept_prob - TARGET_ACCEPT) / (1.0 + i) ** 0.6
        log_step = min(max(log_step, math.log(SHORTEST)), math.log(LONGEST))
        if i in looks and i > 8:
            surface = surface._replace(metric=_metric(states[i // 2 : i + 1]))
    surface = surface._replace(step_size=math.exp(log_step))
    part = states[length // 2 :]
    return surface, part, _slowest(part) if len(part) > 60 else None


def _metric(states):
    """Cholesky factor of the states' covariance, shrunk towards its diagonal."""
    n, d = states.shape
    covariance = np.cov(states.T).reshape(d, d)
    variances = np.diag(np.maximum(np.diag(covariance), 1e-12))
    share = n / (n + 2.0 * d)
    return np.linalg.cholesky(share * covariance + (1.0 - share + 1e-9) * variances)


def middles(surface: Surface, states: np.ndarray, elsewhere: np.ndarray) -> np.ndarray:
    """Means of the neighbours of each of the ``states`` (n, d), as many as the root of n; and ``elsewhere`` (k, d).

    From mode to mode they differ by what the modes are apart, and by little of what states differ within one: of a sum
    of two exponentials, whichever is which, 314 and 121 effective draws of 3000 in place of 55 and 89 by the states
    themselves, and 26 and 27 without jumps.
    """
    z = np.linalg.solve(surface.metric, states.T).T
    k = math.isqrt(len(z))
    nearest = np.argsort(scipy.spatial.distance.cdist(z, z), axis=1, kind="stable")[:, :k]
    others = np.resize(elsewhere, (max(len(elsewhere), len(z) // 2), z.shape[1])) if len(elsewhere) else elsewhere
    return np.concatenate([states[nearest].mean(axis=1), others])


def _slowest(states):
    """The largest lag-1 autocorrelation of a coordinate or its square, less what is noise."""
    z = (states - states.mean(axis=0)) / (states.std(axis=0) + 1e-300)
    squares = np.square(z) - 1.0
    squares /= np.sqrt(np.square(squares).mean(axis=0) + 1e-300)
    lags = [(a[1:] * a[:-1]).mean(axis=0).max() for a in (z, squares)]
    return float(np.clip(max(lags) - 1.5 / math.sqrt(len(states)), 0.0, 0.97))


def choose_centring(known: Known, surface: Surface, path: np.ndarray) -> np.ndarray:
    """Lambda: how far the data know a variable better than its prior does, 1 - prior precision / precision.

    The precision is the surrogate's curvature along u_i, the prior's is sigma^(-2 lambda). Their ratio grows with
    sigma: a low quantile over the free run counts, because a variable that is centred where sigma is large cannot
    follow into the neck. By the lower quartile small sds were cut off, half normal ones that the data let be 0.
    """
    if not known.movable.any():
        return surface.centring
    indices = np.flatnonzero(known.movable)
    rows = path[np.linspace(0, len(path) - 1, ROWS).astype(int)]
    found = np.empty((len(rows), len(indices)))
    for r, u in enumerate(rows):
        log_scale = known.places(u, surface.centring)[4]
        for c, i in enumerate(indices):
            h = np.zeros(len(u))
            h[i] = 0.1 * math.exp(surface.centring[i] * log_scale[i])
            up, down = spot(known, surface, u + h), spot(known, surface, u - h)
            curvature = (down.gradient[i] - up.gradient[i]) / (2.0 * h[i])
            found[r, c] = curvature * math.exp(2.0 * surface.centring[i] * log_scale[i]) - 1.0
    known_better = np.maximum(np.quantile(np.nan_to_num(found, nan=0.0), QUANTILE, axis=0), 0.0)
    share = np.minimum(known_better / (1.0 + known_better), 0.95)
    centring = np.zeros(path.shape[1])
    centring[indices] = np.where(share < 0.1, 0.0, share)
    return centring


def worst_factor(known: Known, state: State) -> str:
    """Name of the black box that is known least."""
    return known.factors[int(np.argmax(state.fit.errors))] if state.fit else ""


def has_arrived(rng, known: Known, surface: Surface, v: np.ndarray, values: np.ndarray, typical: float) -> bool:
    """Whether a chain with the log densities ``values`` (m,) is in the typical set when tuning ends.

    A climb that comes to an end by itself says so. One that ends for want of rounds, because the box had become small
    in a narrow valley, does not know: most of the time the draws that followed have gone where it could not. Then the
    chain's log densities are compared with those along a free run on the surrogate from ``v``, which is too low by
    ``typical``. A draw has 0.5 chi^2_d below the mode, whatever the scales, so that this needs no history to settle
    in, and a chain that is on its way stands many of these standard deviations too low.
    """
    surface, path, _ = free_run(rng, known, surface, v, 200)
    if path is None:
        return False
    return is_high_enough(values, typical + np.array([value(known, surface, u) for u in path]))


def is_high_enough(log_densities: np.ndarray, expected: np.ndarray) -> bool:
    """Whether log densities (m,) of a chain, oldest first, are where ``expected`` ones (n,) of posterior draws are."""
    recent = log_densities[-max(10, len(log_densities) // 3) :]
    return bool(np.median(recent) > np.median(expected) - 1.5 * expected.std())


def arm_shares(learning: Learning, surface: Surface, power: float, least: float = 0.05) -> np.ndarray:
    """Probabilities of the arms by acceptance times what K transitions leave of the inner chain's autocorrelation.

    That by what an evaluation of all black boxes costs with its gradients. In evaluations of one box these cost chains
    of pk.sample a fifth of their effective draws (six patients with a solver each, six seeds: 412 for 516 per 1000).
    """
    length = np.array([arm.transitions * (0.4 if arm.time < 1.0 else 1.0) for arm in ARMS])
    left = learning.correlation**length
    efficiency = learning.accepted / learning.trials * (1.0 - left) / (1.0 + left)
    gradients = price(*expense(surface)) / len(surface.emulator.radius)  # in evaluations, which are of all boxes
    efficiency = (efficiency / (1.0 + gradients)) ** power
    shares = least + efficiency / efficiency.sum()
    return shares / shares.sum()
