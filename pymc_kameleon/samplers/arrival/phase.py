"""From anywhere to the typical set, before a chain begins: a climb on quadratics, in a metric learned on the way.

A random walk needs thousands of draws to come in from far away, in units that it does not know, along ridges. This
takes tens to hundreds of evaluations, and hands over a point *in* the typical set (not the mode), a Cholesky factor of
the covariance there, and every point evaluated. Not from the papers; the parts are old: interpolating quadratics in a
trust region (Powell, 2006), a metric that is changed until the quadratic is round, Laplace's approximation.

Two phases. **Far**: go where the quadratic (:mod:`pymc_kameleon.samplers.arrival.model`) is highest within the trust
region, which grows fourfold where it was right and shrinks where it was wrong; after a failure look where the model is
both high and uncertain. **Near**, as soon as what is to be gained along concave directions is what a draw from the
posterior lacks on average, d/2, and the climb brings no more than that: the point stays, so that a funnel's neck or the
mode does not draw it in, and the points around it go into the metric. Then the quadratic is *checked*, by a point two
sds along each of its axes and draws from the normal approximation, for on a ridge that is not resolved all slopes are
small. The chain has arrived if they are where it says; or when twice as many have been tested, if none is much higher
than where it stands: the posterior is not normal then, and what it is the walk will learn. Along directions that are
not concave the climb goes on, and comes back (``Record``) where the log density has not gained more than the widths
have lost: the neck of a hierarchy in centred coordinates. A climb that is ``long`` is handed over as soon as it does
not rise, to a walk whose surrogate knows more of the shape.

The seam: ``init``, then ``propose`` and ``tell`` in turn until ``state.done``; the state is a ``NamedTuple`` of arrays
and numbers, so that a chain resumes in the middle of its arrival. Nothing here is part of the chain: it ends before
the first draw that a Metropolis test decides.

References
----------
M. J. D. Powell (2006). The NEWUOA software for unconstrained optimization without derivatives.
"""

import math

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.checks import at_least, positive
from pymc_kameleon.samplers.arrival import model as arrival_model
from pymc_kameleon.samplers.arrival import quadratic
from pymc_kameleon.samplers.arrival.state import Near, Record, State, default_budget, depth, height, little

# in the scales given: less than the spread of the starts, to stay in the basin of one
# ... and, where a climb from elsewhere ends: 7 sds of a normal prior from where it began
FIRST_RADIUS, REACH = 0.3, 10.0
FLAT = -0.3  # a slope with less curvature is not the end of a climb
MOSTLY = 0.8  # of the predictions
RISING = 0.3  # of what a draw lacks on average: .5 over d evaluations saves 3 % instead of 10
AT_THE_EDGE = 0.81  # squared length, in the trust region's radius


def init(
    x: np.ndarray,
    log_density: float,
    *,
    scale: float | np.ndarray = 1.0,
    budget: int | None = None,
    start: np.ndarray | None = None,
    long: float = math.inf,
    reach: float | np.ndarray = math.inf,
) -> State:
    """Start at ``x`` of shape (d,), whose log density is known.

    ``scale``, a number or (d,), is the rough size of each coordinate; wrong by a factor of a million it costs some
    twenty evaluations. ``budget`` are the evaluations at most, the one at ``x`` not counted. With ``start`` (d,) it
    begins there instead, if the log density is finite there: how chains get starts of their own. After ``long``
    evaluations it ends as soon as it does not rise, and at any rate ``reach`` scales from ``start``.
    """
    x = np.array(x, dtype=float)
    d = len(x)
    positive(scale=scale)
    budget = default_budget(d) if budget is None else budget
    at_least(1, budget=budget)
    metric = np.diag(np.broadcast_to(np.asarray(scale, dtype=float), (d,)))
    return State(
        evaluated=history.append(history.empty(d + 1), np.append(x, log_density)), budget=budget + 1,
        start=None if start is None else np.array(start, dtype=float), move="explore" if start is None else "start",
        metric=metric, origin=x, basis=FIRST_RADIUS * metric, radius=FIRST_RADIUS, long=long,
        within=None if np.isinf(reach).all() else tuple(start + side * reach * np.diag(metric) for side in (-1, 1)),
    )  # fmt: skip


def moved(state: State, by: np.ndarray) -> State:
    """The arrival moved ``by`` (d,), along which the log density repeats itself."""
    rows, near = state.evaluated.buffer.copy(), state.near
    rows[:, :-1] += by
    return state._replace(
        evaluated=state.evaluated._replace(buffer=rows), origin=state.origin + by,
        start=None if state.start is None else state.start + by,
        within=None if state.within is None else (state.within[0] + by, state.within[1] + by),
        near=None if near is None else near._replace(centre=near.centre + by),
    )  # fmt: skip


def stop(state: State) -> State:
    """End the arrival where it is, before it is done: tuning has ended."""
    return state if state.done else _give_up(state)


def propose(rng: np.random.Generator, state: State) -> np.ndarray:
    """The next point to evaluate, shape (d,)."""
    point = _anywhere(rng, state)
    return point if state.within is None else np.clip(point, *state.within)


@np.errstate(all="ignore")  # what overflows is lower, or further away, than anything else
def _anywhere(rng, state):
    d = len(state.origin)
    if state.move == "start":
        return state.start.copy()
    if state.move == "check":
        return _check(rng, state.near, state)
    reach = 1.0 if state.near is None else 1.5
    if state.model is None or state.fitted < state.evaluations:  # nothing new is known
        s = unit_vectors(rng, 1, d)[0] if state.model is not None else np.eye(d)[rng.integers(d)]
        return state.positions[state.current] + reach * state.radius * (state.metric @ s)
    s = arrival_model.highest(state.model) if state.move == "climb" else reach * by_promise(rng, state)[0]
    point = state.origin + state.basis @ s
    if _is_evaluated(state, point):  # the fit had nearer ones and did not ask it
        point = state.origin + reach * (state.basis @ unit_vectors(rng, 1, d)[0])
    return point


def _is_far(state, point):
    """Whether it is where a climb from elsewhere ends: with e^21 infections a day a solver takes an hour."""
    return state.within is not None and bool(np.any((point <= state.within[0]) | (point >= state.within[1])))


def _check(rng, near, state):
    """The next prediction to test: along the axes, then draws."""
    d, k = len(near.centre), near.hits
    if k < d:
        point = near.centre + 2.0 * near.signs[k] * near.axes[:, k]
        if not _is_evaluated(state, point):  # or it would count twice
            return point
    return near.centre + near.axes @ rng.standard_normal(d)


def _is_evaluated(state, point):
    near = 1e-9 * np.abs(state.basis).sum(axis=1)  # rounding, of an arrival that was moved
    return bool((np.abs(state.positions - point) <= near).all(axis=1).any())


@np.errstate(all="ignore")
def tell(rng: np.random.Generator, state: State, point: np.ndarray, log_density: float, beside=()) -> State:
    """The state after ``point``'s log density, which may be anything but is taken for ``-inf`` if not finite.

    ``beside``: pairs (point, log density) of what :mod:`pymc_kameleon.samplers.arrival.beside` proposed.
    """
    row, judged, state = state.evaluations, state, _append(state, point, log_density)
    log_density = float(state.log_densities[row])
    if state.move == "start":
        state = _begin(state, log_density)
        return _give_up(state) if state.evaluations >= state.budget else state
    gain = float(height(log_density) - height(state.log_densities[state.current]))
    state = _judge(state, judged, point, gain)
    for other, value in beside:
        state = _append(state, other, value)
    d, n = len(point), state.evaluations
    if state.near is None:
        best = row + int(np.argmax(state.log_densities[row:]))
        if state.log_densities[best] > state.log_densities[state.current]:
            state = state._replace(current=best)
    elif gain > little(d) or (state.move == "climb" and not state.failed):
        state = leave(state)
    if n >= state.budget or (n > state.long and not _is_rising(state)) or _is_far(state, point):
        return _give_up(state)
    if _stands_still(state):
        return _restore(state)
    state = quadratic.refit(state)
    if state.near is not None and (_is_checked(state) or n >= state.near.until):
        return _end_near(state)
    return _decide(state)


def _append(state, point, log_density):
    log_density = log_density if math.isfinite(log_density) else -math.inf
    return state._replace(evaluated=history.append(state.evaluated, np.append(point, log_density)))


def _begin(state, log_density):
    """The over-dispersed start: half way back where the model has no density."""
    if math.isfinite(log_density):
        return state._replace(start=None, move="explore", current=state.evaluations - 1, own=1)
    if state.evaluations >= min(6, state.budget):
        return state._replace(start=None, move="explore")
    return state._replace(start=0.5 * (state.start + state.positions[0]))


def _judge(state, before, point, gain):
    """Compare with the prediction: the trust region, and the checks."""
    if before.model is None or (before.fitted < before.evaluations and state.move != "check"):
        return state
    s = np.linalg.solve(state.basis, point - state.origin)
    predicted = arrival_model.gain(state.model, s)
    if state.move == "check":
        # of the present point over the model's origin: it may have moved since the fit
        moved = np.linalg.solve(state.basis, state.positions[state.current] - state.origin)
        change = gain - (predicted - arrival_model.gain(state.model, moved))
        return _count(state, abs(change) < 0.3 + 0.15 * abs(predicted), gain)
    if state.move == "explore" or state.near is not None:
        # In the near phase a climb is tried where there is much to gain: if it comes true, that is so.
        return state._replace(failed=state.move == "climb" and not gain > 0.5 * predicted)
    ratio = arrival_model.transformed(state.model, gain) / max(predicted, 1e-300)
    factor, at_the_edge = 1.0, s @ s > AT_THE_EDGE
    if at_the_edge and ratio > 0.3:
        factor = 4.0 if ratio > 0.7 else 2.0
    elif ratio < 0.1:
        factor = 0.4 if ratio > -1.0 else 0.2
    failed = not gain > 0.1 * max(arrival_model.untransformed(state.model, predicted), 0.0)
    state = state._replace(failed=failed, climbing=state.climbing and factor > 1.0)
    return quadratic.resize(state, factor * state.radius, state.metric)


@np.errstate(all="ignore")
def by_promise(rng: np.random.Generator, state: State) -> np.ndarray:
    """Unit vectors, shape (m, d): first where the model is high or uncertain; in the near phase, uncertain."""
    model, d = state.model, len(state.origin)
    axes = np.linalg.eigh(model.hessian)[1].T
    s = np.concatenate([np.eye(d), -np.eye(d), unit_vectors(rng, 2 * d + 10, d), axes, -axes])
    score = np.sqrt(arrival_model.variance(model, s))
    if state.near is None:
        score = s @ model.slope + 0.5 * np.einsum("ij,jk,ik->i", s, model.hessian, s) + 2.0 * score
    score = score + 1e-6 * np.abs(score) * rng.standard_normal(len(s))
    return s[np.argsort(-score, kind="stable")]


def unit_vectors(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Directions, shape (n, d)."""
    s = rng.standard_normal((n, d))
    return s / np.sqrt(np.square(s).sum(axis=1))[:, None]


def _decide(state):
    """What to propose next."""
    d, n = len(state.origin), state.evaluations
    if state.model is None:
        return state._replace(move="explore")
    if state.near is not None:
        return _decide_near(state)
    if state.fitted < n:
        return state._replace(move="explore")
    values, slopes, _ = quadratic.principal(state)
    left = quadratic.to_gain(values, slopes)
    left += max(0.0, np.abs(slopes[values >= quadratic.CONCAVE]).sum() - d)  # a neck's slope is at most that
    record = state.record
    higher = record is None or state.log_densities[state.current] > record.log_density + little(d)
    promising = arrival_model.gain(state.model, arrival_model.highest(state.model)) > 1e-3
    climbing = state.climbing and promising
    if left < little(d) and n >= 2 * d + 2 and higher and not climbing and not _is_rising(state):
        return _come_near(state)
    explore = (state.move == "climb" and state.failed) or not promising or (n <= d and n % 2)
    return state._replace(move="explore" if explore else "climb")


def _is_rising(state):
    """Whether the last 2 d evaluations gained more than is left near the end: on a piece of a ridge all else is small.

    Without it, 10 % more evaluations over 46 models with four starts each, and three arrivals of 184 fewer. Climbs with
    several points a round (:mod:`pymc_kameleon.samplers.pooled.climbs`) gain nothing, and fewer of them end.
    """
    d, y = len(state.origin), state.log_densities[state.own :]
    return bool(state.waits and len(y) > 2 * d and y.max() - y[: -2 * d].max() >= RISING * little(d))


def _come_near(state):
    """Stay, and take the points around into the metric."""
    d, n = len(state.origin), state.evaluations
    size = min((d + 1) * (d + 2) // 2, 12 * d)
    near = Near(n, n + int(1.3 * size) + 3 * d + 20, state.origin, state.metric, np.ones(d))
    state = quadratic.change_metric(state._replace(near=near))
    return quadratic.fit(state._replace(radius=1.0, model=None, move="explore"))


def leave(state: State) -> State:
    """End a near phase by climbing on, from the highest point that is known."""
    current = state.own + int(np.argmax(state.log_densities[state.own :]))
    return state._replace(near=None, current=current, move="climb", failed=False, climbing=True)


def _decide_near(state):
    """Explore until the metric is determined, then check it."""
    near = state.near
    if state.move == "check" and near.hits > 0:
        return state
    if state.fitted < state.evaluations:
        return state._replace(move="explore")
    values, slopes, vectors = quadratic.principal(state)
    if quadratic.to_gain(values, slopes) > len(slopes) + 6.0 and not (state.move == "climb" and state.failed):
        return state._replace(move="climb")  # if it is true, that leaves the near phase
    sd = arrival_model.curvature_sd(state.model, vectors.T) / state.radius**2
    sloping = np.abs(slopes) > 1.0
    known = (sd < 0.3 * np.abs(values)) | ((sd < 0.3) & sloping)
    known &= (np.abs(values) < 20.0) & ((np.abs(values) > -quadratic.CONCAVE) | sloping)
    if not known.all():
        return state._replace(move="explore")
    centre, axes = quadratic.normal_approximation(state)
    signs = np.where(slopes >= 0.0, 1.0, -1.0)
    return state._replace(move="check", near=near._replace(centre=centre, axes=axes, signs=signs, hits=0))


def _count(state, right, gain):
    near, d = state.near, len(state.origin)
    hits = near.hits + 1 if right else 0
    plausible = hits > d and gain > -depth(d)  # a draw
    near = near._replace(hits=hits, tried=near.tried + 1, right=near.right + int(right))
    return state._replace(near=near._replace(candidate=state.evaluations - 1) if plausible else near)


def _checks(d):
    """Predictions that have to come true in a row: the axes, and draws."""
    return d + max(4, 12 - d)


def _is_checked(state):
    """Whether predictions came true in a row, or twice as many were tested.

    To test on until most of them come true takes half of a thousand tuning draws of hierarchies of 14 to 17 unknowns.
    """
    near, enough = state.near, _checks(len(state.origin))
    return near.hits >= enough or near.tried >= 2 * enough


def _end_near(state):
    """Arrived, if the normal approximation was checked and has no slope without curvature; else go on from here."""
    near, d = state.near, len(state.origin)
    values, slopes, _ = quadratic.principal(state)
    flat = (values > FLAT) & (values < -FLAT) & (np.abs(slopes) <= 0.5)
    if flat.any() and state.evaluations < near.until:  # the prediction was right, of a piece of a ridge
        state = state._replace(near=near._replace(hits=0, candidate=-1))
        return _decide(quadratic.fit(quadratic.change_metric(state), anew=False))
    handed = near.candidate if near.candidate >= 0 else state.current
    log_density = float(state.log_densities[state.current])
    factor = quadratic.triangular(quadratic.normal_approximation(state)[1])
    mass = log_density + np.log(np.diag(factor)).sum()
    record = state.record
    if record is not None and mass < record.mass + 1.0:
        return _restore(state)
    unresolved = (values > FLAT) & ((np.abs(slopes) > 0.5) | (values > -FLAT))
    resolved = not (unresolved | flat).any() and quadratic.to_gain(values, slopes) < little(d)
    rise = state.log_densities[near.since :].max() - log_density
    holds = near.hits >= _checks(d) or near.right >= MOSTLY * near.tried or rise < RISING * little(d)
    if near.tried >= _checks(d) and holds and resolved:
        return _arrive(state, handed, factor)
    record = Record(state.evaluations, log_density, mass, state.current, handed, factor)
    return quadratic.fit(leave(state._replace(record=record)))


def _stands_still(state):
    """Whether the climb from the record has led nowhere."""
    record, d = state.record, len(state.origin)
    if record is None or state.near is not None or state.evaluations - record.at <= 4 * d + 20:
        return False
    return bool(state.log_densities[state.own :].max() < record.log_density + little(d))


def _restore(state):
    record = state.record
    state = state._replace(current=record.current)
    return _arrive(state, record.handed, record.factor)


def _arrive(state, handed, factor):
    return state._replace(done=True, arrived=True, handed=handed, factor=factor)


def _give_up(state):
    """The budget is spent, or it is long: where it has ended near some point, that is something."""
    factor = None
    if state.near is not None and state.model is not None:
        factor = quadratic.triangular(quadratic.normal_approximation(state)[1])
        if state.near.candidate >= 0:
            return _arrive(state, state.near.candidate, factor)
    record, height_here = state.record, state.log_densities[state.current]
    if record is not None and height_here < record.log_density + little(len(state.origin)):
        return _restore(state)
    return state._replace(done=True, handed=state.current, factor=factor)
