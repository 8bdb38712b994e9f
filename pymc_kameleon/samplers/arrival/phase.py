"""From anywhere to the typical set, before a chain begins: a climb on quadratics, in a metric learned on the way.

A random walk needs thousands of draws to come in from far away, in units that it does not know, along ridges. This
takes tens to hundreds of evaluations, and hands over a point *in* the typical set (not the mode), a Cholesky factor of
the covariance there, and every point evaluated. Not from the papers; the parts are old: interpolating quadratics in a
trust region (Powell, 2006), a metric that is changed until the quadratic is round, Laplace's approximation.

Two phases. **Far**: go where the quadratic (:mod:`pymc_kameleon.samplers.arrival.model`) is highest within the trust
region, which grows fourfold where it was right and shrinks where it was wrong; after a failure look where the model is
both high and uncertain. **Near**, as soon as what is to be gained along concave directions is what a draw from the
posterior lacks on average, d/2: the point stays, so that a funnel's neck or the mode does not draw it in, and the
points around it go into the metric. Then the quadratic is *checked*, by a point two sds along each of its axes and
draws from the normal approximation: only if they are where it says has the chain arrived, for on a ridge that is not
resolved all slopes are small. Along directions that are not concave the climb goes on, and comes back (``Record``)
where the log density has not gained more than the widths have lost: the neck of a hierarchy in centred coordinates.

The seam: ``init``, then ``propose`` and ``tell`` in turn until ``state.done``; the state is a ``NamedTuple`` of arrays
and numbers, so that a chain resumes in the middle of its arrival. Nothing here is part of the chain: it ends before
the first draw that a Metropolis test decides.

References
----------
M. J. D. Powell (2006). The NEWUOA software for unconstrained optimization without derivatives.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.history import History
from pymc_kameleon.samplers.arrival import model as arrival_model
from pymc_kameleon.samplers.arrival.model import Model

CONCAVE = (
    -0.05
)  # curvature in a metric in which it should be -1: above it, a direction is not concave
FIRST_RADIUS = (
    0.3  # in the scales given: less than the spread of the starts, to stay in the basin of one
)
FLAT = -0.3  # a slope with less curvature is not the end of a climb
ENOUGH = 2.0  # nats to be gained beyond d/2 that are not worth a climb
CHECKED = 1.5  # radius, in the metric, at which the neighbourhood is explored
AXIS_CHECK = 2.0  # sds
DRAWS = 4  # from the normal approximation, after the axes
MOSTLY = 0.8  # of the predictions
AT_THE_EDGE = 0.81  # squared length, in the trust region's radius
LONGEST, SHORTEST = 10.0, 1e-3  # changes of an axis at one change of the metric
LARGEST_FIT = 1200  # points: in more than 40 dimensions fewer than a quadratic has coefficients
HUGE = 1e50  # beyond it a log density counts by its logarithm, and no point by its distance
LARGEST, SMALLEST = 1e30, 1e-30  # sizes of a trust region


class Near(NamedTuple):
    """The near phase.

    Attributes
    ----------
    since, until : int
        Evaluations at which it began, and ends at the latest.
    centre, axes : ndarray of shape (d,), (d, d)
        Of the normal approximation that is being checked; the columns of ``axes`` are its axes, one sd long.
    signs : ndarray of shape (d,)
        On which side of each it rises.
    hits : int
        Predictions in a row that came true.
    tried, right : int
        Predictions tested, and those among them that came true.
    candidate : int
        Row of a draw that can be handed over, or -1.
    """

    since: int
    until: int
    centre: np.ndarray
    axes: np.ndarray
    signs: np.ndarray
    hits: int = 0
    tried: int = 0
    right: int = 0
    candidate: int = -1


class Record(NamedTuple):
    """Where a near phase ended on a slope without curvature, to come back to.

    Attributes
    ----------
    at : int
        Evaluations.
    log_density, mass : float
        Its log density, and that plus the log of its widths.
    current, handed : int
        Rows.
    factor : ndarray of shape (d, d)
    """

    at: int
    log_density: float
    mass: float
    current: int
    handed: int
    factor: np.ndarray


class State(NamedTuple):
    """Everything about one arrival.

    Attributes
    ----------
    evaluated : History
        Rows of d + 1: a point and its log density.
    budget : int
        Evaluations at most.
    start : ndarray of shape (d,) or None
        The chain's over-dispersed start, to be evaluated first.
    current : int
        Row of the present point.
    metric : ndarray of shape (d, d)
        Lower triangular. The trust region is the ellipsoid of ``radius`` times it.
    radius : float
    model : Model or None
    origin, basis : ndarray of shape (d,), (d, d)
        The model's coordinates: x = origin + basis s.
    move : str
        What is proposed next: "start", "climb", "explore" or "check".
    failed : bool
        Whether the last climb gained less than a tenth of what was predicted.
    climbing : bool
        Whether a near phase ended by rising: none begins before a climb has ended within the trust region, or failed.
    fitted, changed, next_choice : int
        Evaluations at the last fit, at the last change of the metric, and when to choose the model's options again.
    near : Near or None
        ``None`` while far.
    record : Record or None
    done, arrived : bool
    handed : int
        Row of the point with which the chain is to go on.
    own : int
        First row of the chain's own: the model's initial point, which all chains have, does not count.
    factor : ndarray of shape (d, d) or None
        Cholesky factor of the covariance there, as far as it is known.
    """

    evaluated: History
    budget: int
    start: np.ndarray | None
    current: int
    metric: np.ndarray
    radius: float
    model: Model | None
    origin: np.ndarray
    basis: np.ndarray
    move: str
    failed: bool = False
    climbing: bool = False
    fitted: int = 0
    changed: int = 0
    next_choice: int = 0
    near: Near | None = None
    record: Record | None = None
    done: bool = False
    arrived: bool = False
    handed: int = 0
    own: int = 0
    factor: np.ndarray | None = None

    @property
    def evaluations(self) -> int:
        """Points evaluated, the first one included."""
        return self.evaluated.size

    @property
    def positions(self) -> np.ndarray:
        """Every point evaluated, shape (n, d)."""
        return self.evaluated.buffer[: self.evaluated.size, :-1]

    @property
    def log_densities(self) -> np.ndarray:
        """Their log densities, ``-inf`` where not finite, shape (n,)."""
        return self.evaluated.buffer[: self.evaluated.size, -1]

    @property
    def position(self) -> np.ndarray:
        """Where the chain is to go on, shape (d,)."""
        return self.positions[self.handed]

    @property
    def log_density(self) -> float:
        """The log density there."""
        return float(self.log_densities[self.handed])


def default_budget(d: int) -> int:
    """Evaluations that are always enough where anything is: the metric, d (d + 1) / 2 numbers, may have to be learned
    more than once on the way.
    """
    return 60 * d + 300 + 2 * d * d


def init(
    x: np.ndarray,
    log_density: float,
    *,
    scale: float | np.ndarray = 1.0,
    budget: int | None = None,
    start: np.ndarray | None = None,
) -> State:
    """Start at ``x`` of shape (d,), whose log density is known.

    Parameters
    ----------
    scale : float or ndarray of shape (d,)
        Rough size of each coordinate; wrong by a factor of a million it costs some twenty evaluations.
    budget : int, optional
        Evaluations at most, the one at ``x`` not counted. Default 60 d + 300 + 2 d^2.
    start : ndarray of shape (d,), optional
        Where to begin instead, if the log density is finite there: how chains get starts of their own.

    Raises
    ------
    ValueError
        For a scale that is not positive, or a budget below 1.
    """
    x = np.array(x, dtype=float)
    d = len(x)
    scales = np.broadcast_to(np.asarray(scale, dtype=float), (d,))
    if not (np.isfinite(scales).all() and np.all(scales > 0.0)):
        raise ValueError(f"scale must be positive and finite, got {scale!r}.")
    budget = default_budget(d) if budget is None else budget
    if budget < 1:
        raise ValueError(f"budget must be at least 1, got {budget!r}.")
    evaluated = history.append(history.empty(d + 1), np.append(x, log_density))
    metric = np.diag(scales)
    return State(
        evaluated=evaluated,
        budget=budget + 1,
        start=None if start is None else np.array(start, dtype=float),
        current=0,
        metric=metric,
        radius=FIRST_RADIUS,
        model=None,
        origin=x,
        basis=FIRST_RADIUS * metric,
        move="explore" if start is None else "start",
    )


def stop(state: State) -> State:
    """End the arrival where it is, before it is done: tuning has ended."""
    return state if state.done else _give_up(state)


@np.errstate(all="ignore")  # what overflows is lower, or further away, than anything else
def propose(rng: np.random.Generator, state: State) -> np.ndarray:
    """The next point to evaluate, shape (d,)."""
    d = len(state.origin)
    if state.move == "start":
        return state.start.copy()
    if state.move == "check":
        return _check(rng, state.near, state)
    reach = 1.0 if state.near is None else CHECKED
    if state.model is None or state.fitted < state.evaluations:  # nothing new is known
        s = unit_vectors(rng, 1, d)[0] if state.model is not None else np.eye(d)[rng.integers(d)]
        return state.positions[state.current] + reach * state.radius * (state.metric @ s)
    if state.move == "climb":
        s = arrival_model.highest(state.model)
    else:
        s = reach * _uncertain(rng, state)
    point = state.origin + state.basis @ s
    if _is_evaluated(state, point):  # the fit had nearer ones and did not ask it
        point = state.origin + reach * (state.basis @ unit_vectors(rng, 1, d)[0])
    return point


def _check(rng, near, state):
    """The next prediction to test: along the axes, then draws."""
    d = len(near.centre)
    if near.hits < d:
        point = near.centre + AXIS_CHECK * near.signs[near.hits] * near.axes[:, near.hits]
        if not _is_evaluated(state, point):  # or it would count twice
            return point
    return near.centre + near.axes @ rng.standard_normal(d)


def _is_evaluated(state, point):
    return bool((state.positions == point).all(axis=1).any())


@np.errstate(all="ignore")
def tell(
    rng: np.random.Generator, state: State, point: np.ndarray, log_density: float, beside=()
) -> State:
    """The state after ``point``'s log density, which may be anything but is taken for ``-inf`` if not finite.

    ``beside``: pairs (point, log density) of what :mod:`pymc_kameleon.samplers.arrival.beside` proposed.
    """
    row, judged, state = state.evaluations, state, _append(state, point, log_density)
    log_density = float(state.log_densities[row])
    if state.move == "start":
        state = _begin(state, log_density)
        return _give_up(state) if state.evaluations >= state.budget else state
    gain = float(_height(log_density) - _height(state.log_densities[state.current]))
    state = _judge(state, judged, point, gain)
    for other, value in beside:
        state = _append(state, other, value)
    d, n = len(point), state.evaluations
    if state.near is None:
        best = row + int(np.argmax(state.log_densities[row:]))
        if state.log_densities[best] > state.log_densities[state.current]:
            state = state._replace(current=best)
    elif gain > _little(d) or (state.move == "climb" and not state.failed):
        state = leave(state)
    if n >= state.budget:
        return _give_up(state)
    if _stands_still(state):
        return _restore(state)
    state = _refit(state)
    if state.near is not None and (_is_checked(state) or n >= state.near.until):
        return _end_near(state)
    return _decide(state)


def _append(state, point, log_density):
    log_density = log_density if math.isfinite(log_density) else -math.inf
    return state._replace(evaluated=history.append(state.evaluated, np.append(point, log_density)))


def _height(log_density):
    """The log density, by its logarithm beyond ``HUGE``: squares of falls and of slopes are still numbers."""
    return np.clip(log_density, -HUGE, HUGE) * (
        1.0 + np.log(np.maximum(np.abs(log_density) / HUGE, 1.0))
    )


def _little(d):
    """What a draw from a normal posterior lacks from its mode, and a little more: nats."""
    return 0.5 * d + ENOUGH


def _begin(state, log_density):
    """The over-dispersed start: half way back where the model has no density."""
    if math.isfinite(log_density):
        return state._replace(start=None, move="explore", current=state.evaluations - 1, own=1)
    if state.evaluations >= min(6, state.budget):
        return state._replace(start=None, move="explore")
    return state._replace(start=0.5 * (state.start + state.positions[0]))


# --- far -------------------------------------------------------------------------------------------


def _judge(state, before, point, gain):
    """Compare with the prediction: the trust region, and the checks."""
    if before.model is None or (before.fitted < before.evaluations and state.move != "check"):
        return state
    s = np.linalg.solve(state.basis, point - state.origin)
    predicted = arrival_model.gain(state.model, s)
    if state.move == "check":
        change = gain - (predicted - _offset(state))
        return _count(state, abs(change) < 0.3 + 0.15 * abs(predicted), gain)
    if state.move == "explore" or state.near is not None:
        # In the near phase a climb is tried where there is much to gain: if it comes true, that is so.
        failed = state.move == "climb" and not gain > 0.5 * predicted
        return state._replace(failed=failed)
    ratio = arrival_model.transformed(state.model, gain) / max(predicted, 1e-300)
    factor, at_the_edge = 1.0, s @ s > AT_THE_EDGE
    if at_the_edge and ratio > 0.3:
        factor = 4.0 if ratio > 0.7 else 2.0
    elif ratio < 0.1:
        factor = 0.4 if ratio > -1.0 else 0.2
    expected = arrival_model.untransformed(state.model, predicted)
    failed = not gain > 0.1 * max(expected, 0.0)
    state = state._replace(failed=failed, climbing=state.climbing and factor > 1.0)
    return _resize(state, factor * state.radius, state.metric)


def _resize(state, radius, metric):
    """Another trust region, unless it would be too large or too small to be computed with."""
    sizes = radius * np.append(np.diag(metric), 1.0)
    if not (sizes.min() > SMALLEST and max(radius, radius * np.abs(metric).max()) < LARGEST):
        return state
    return state._replace(radius=radius, metric=metric)


def _offset(state):
    """Predicted gain of the present point over the model's origin: it may have moved since the fit."""
    s = np.linalg.solve(state.basis, state.positions[state.current] - state.origin)
    return arrival_model.gain(state.model, s)


def _uncertain(rng, state):
    """The direction, of some, in which the model is high or uncertain; in the near phase, uncertain."""
    return by_promise(rng, state)[0]


@np.errstate(all="ignore")
def by_promise(rng: np.random.Generator, state: State) -> np.ndarray:
    """Unit vectors, shape (m, d), the most promising or uncertain first."""
    model, d = state.model, len(state.origin)
    axes = np.linalg.eigh(model.hessian)[1].T
    s = np.concatenate([np.eye(d), -np.eye(d), unit_vectors(rng, 2 * d + 10, d), axes, -axes])
    sd = np.sqrt(arrival_model.variance(model, s))
    score = sd
    if state.near is None:
        score = s @ model.slope + 0.5 * np.einsum("ij,jk,ik->i", s, model.hessian, s) + 2.0 * sd
    score = score + 1e-6 * np.abs(score) * rng.standard_normal(len(s))
    return s[np.argsort(-score, kind="stable")]


def unit_vectors(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Directions, shape (n, d)."""
    s = rng.standard_normal((n, d))
    return s / np.sqrt(np.square(s).sum(axis=1))[:, None]


def _refit(state):
    """A new model, unless the last is new enough for what a fit costs; now and then a new metric."""
    n, d = state.evaluations, len(state.origin)
    points = 0 if state.model is None else len(state.model.points)
    if n - state.fitted <= (points // 200) ** 2:
        return state
    state = _fit(state)
    checking = state.near is not None and state.near.hits > 0
    if state.model is None or checking or n < 2 * d or n - state.changed < d // 2 + 2:
        return state
    return _fit(_change_metric(state), anew=False)


def _fit(state, anew=True):
    n, d = state.evaluations, len(state.origin)
    origin = state.positions[state.current].copy()
    basis = state.radius * state.metric
    points = np.linalg.solve(basis, (state.positions - origin).T).T
    heights = _height(state.log_densities)
    fall = heights[state.current] - heights
    finite = np.isfinite(fall)
    # A wall is not infinitely low: that would leave no quadratic.
    fall = np.where(finite, fall, max(10.0 * fall[finite].max(), 100.0))
    distance = np.sqrt(np.square(points).sum(axis=1))
    distance[state.current] = math.inf
    if state.near is None:  # a chain that was sent elsewhere goes its own way
        distance[fall < 0.0] = math.inf
    size = (d + 1) * (d + 2) // 2
    most = min(int(1.3 * size) + 10, LARGEST_FIT)
    most = min(most, int((distance < HUGE).sum()))
    if most == 0:
        return state._replace(model=None, fitted=n)
    chosen = np.argsort(distance, kind="stable")[:most]
    chosen = chosen[(distance[chosen] < 1e4) | (np.arange(most) < 2 * d)]
    choices, next_choice = _choices(state, fall[chosen], anew)
    model = arrival_model.fit(points[chosen], fall[chosen], choices)
    return state._replace(
        model=model, origin=origin, basis=basis, fitted=n, next_choice=next_choice
    )


def _choices(state, fall, anew):
    """(transform, deviation) to choose from: all of them from time to time."""
    n, model = state.evaluations, state.model
    near = state.near is not None
    untransformed = model is not None and math.isinf(model.transform)
    keeps = not anew or (n < state.next_choice and n >= 3 * len(state.origin))
    if model is not None and (untransformed or not near) and keeps:
        return [(model.transform, model.deviation)], state.next_choice
    transforms = [math.inf] if near else arrival_model.transforms(fall)
    choices = [(c, e) for c in transforms for e in arrival_model.DEVIATIONS]
    return choices, n + 1 + n // 20


def _change_metric(state):
    """Make the quadratic round: L |H|^(-1/2); far away the trust region keeps its volume."""
    values, slopes, vectors = _principal(state)
    lengths = np.clip(np.maximum(np.abs(values), 1e-300) ** -0.5, SHORTEST, LONGEST)
    radius = state.radius
    if state.near is None:
        radius /= math.exp(np.log(lengths).mean())
    else:
        falls = np.maximum(2.0 / np.maximum(np.abs(slopes), 1e-9), 0.3)
        lengths = np.minimum(np.where(values > CONCAVE, np.minimum(lengths, falls), lengths), 3.0)
    metric = _triangular(state.metric @ (vectors * lengths))
    return _resize(state, radius, metric)._replace(changed=state.evaluations)


def _triangular(root):
    """The lower triangular factor of root root^T."""
    upper = np.linalg.qr(root.T, mode="r")
    return upper.T * np.where(np.diag(upper) < 0.0, -1.0, 1.0)


def _principal(state):
    """(curvatures, slopes, vectors) of the log density at the origin, in units of the metric."""
    hessian = arrival_model.curvature(state.model) / state.radius**2
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    return values, vectors.T @ state.model.slope / state.radius, vectors


def _left(values, slopes):
    """What is to be gained along concave directions: nats."""
    concave = values < CONCAVE
    return 0.5 * (slopes[concave] ** 2 / -values[concave]).sum()


def rise(state: State) -> float:
    """What is still to be gained near by, as the quadratic says, and no more than a near phase begins with: nats."""
    if state.near is None or state.model is None:
        return 0.0
    return min(_left(*_principal(state)[:2]), _little(len(state.origin)))


def _decide(state):
    """What to propose next."""
    d, n = len(state.origin), state.evaluations
    if state.model is None:
        return state._replace(move="explore")
    if state.near is not None:
        return _decide_near(state)
    if state.fitted < n:
        return state._replace(move="explore")
    values, slopes, _ = _principal(state)
    left = _left(values, slopes)
    left += max(0.0, np.abs(slopes[values >= CONCAVE]).sum() - d)  # a neck's slope is at most that
    record = state.record
    higher = record is None or state.log_densities[state.current] > record.log_density + _little(d)
    promising = arrival_model.gain(state.model, arrival_model.highest(state.model)) > 1e-3
    climbing = state.climbing and promising
    if left < _little(d) and n >= 2 * d + 2 and higher and not climbing:
        return _come_near(state)
    explore = (state.move == "climb" and state.failed) or not promising or (n <= d and n % 2)
    return state._replace(move="explore" if explore else "climb")


# --- near ------------------------------------------------------------------------------------------


def _come_near(state):
    d, n = len(state.origin), state.evaluations
    size = min((d + 1) * (d + 2) // 2, 12 * d)
    near = Near(n, n + int(1.3 * size) + 3 * d + 20, state.origin, state.metric, np.ones(d))
    state = _change_metric(state._replace(near=near))
    return _fit(state._replace(radius=1.0, model=None, move="explore"))


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
    values, slopes, vectors = _principal(state)
    left = _left(values, slopes)
    if left > len(slopes) + 6.0 and not (state.move == "climb" and state.failed):
        return state._replace(move="climb")  # if it is true, that leaves the near phase
    sd = arrival_model.curvature_sd(state.model, vectors.T) / state.radius**2
    sloping = np.abs(slopes) > 1.0
    known = (sd < 0.3 * np.abs(values)) | ((sd < 0.3) & sloping)
    known &= (np.abs(values) < 20.0) & ((np.abs(values) > -CONCAVE) | sloping)
    if not known.all():
        return state._replace(move="explore")
    centre, axes = _normal_approximation(state)
    signs = np.where(slopes >= 0.0, 1.0, -1.0)
    return state._replace(
        move="check", near=near._replace(centre=centre, axes=axes, signs=signs, hits=0)
    )


def _normal_approximation(state):
    """(centre, axes): Laplace's where the model is concave, a fall of two nats where it is not."""
    values, slopes, vectors = _principal(state)
    concave = values < CONCAVE
    bend = np.maximum(-values, 1e-12)
    falls = np.minimum(1.0, 2.0 / np.maximum(np.abs(slopes), 1e-12))
    lengths = np.where(concave, np.clip(bend**-0.5, SHORTEST, 3.0), falls)
    shift = np.where(concave, slopes / bend, 0.0)
    return state.origin + state.metric @ (vectors @ shift), state.metric @ (vectors * lengths)


def _count(state, right, gain):
    near, d = state.near, len(state.origin)
    hits = near.hits + 1 if right else 0
    candidate = near.candidate
    if hits > d and gain > -(0.5 * d + 3.0 * math.sqrt(0.5 * d) + 2.0):  # a draw that is plausible
        candidate = state.evaluations - 1
    near = near._replace(
        hits=hits, tried=near.tried + 1, right=near.right + int(right), candidate=candidate
    )
    return state._replace(near=near)


def _checks(d):
    """Predictions that have to come true in a row: the axes, and draws."""
    return d + max(DRAWS, 12 - d)


def _is_checked(state):
    """Whether predictions came true in a row or, where the posterior is not quite normal, most of twice as many."""
    near, enough = state.near, _checks(len(state.origin))
    return near.hits >= enough or (near.tried >= 2 * enough and near.right >= MOSTLY * near.tried)


def _end_near(state):
    """Arrived, if the normal approximation holds and there is no slope without curvature; else go on from here."""
    near, d = state.near, len(state.origin)
    values, slopes, _ = _principal(state)
    flat = (values > FLAT) & (values < -FLAT) & (np.abs(slopes) <= 0.5)
    if (
        flat.any() and state.evaluations < near.until
    ):  # the prediction was right, of a piece of a ridge
        state = state._replace(near=near._replace(hits=0, candidate=-1))
        return _decide(_fit(_change_metric(state), anew=False))
    handed = near.candidate if near.candidate >= 0 else state.current
    log_density = float(state.log_densities[state.current])
    factor = _triangular(_normal_approximation(state)[1])
    mass = log_density + np.log(np.diag(factor)).sum()
    record = state.record
    if record is not None and mass < record.mass + 1.0:
        return _restore(state)
    unresolved = (values > FLAT) & ((np.abs(slopes) > 0.5) | (values > -FLAT))
    mostly = near.tried >= _checks(d) and near.right >= MOSTLY * near.tried
    resolved = not (unresolved | flat).any() and _left(values, slopes) < _little(d)
    if (_is_checked(state) or mostly) and resolved:
        return _arrive(state, handed, factor)
    record = Record(state.evaluations, log_density, mass, state.current, handed, factor)
    return _fit(leave(state._replace(record=record)))


def _stands_still(state):
    """Whether the climb from the record has led nowhere."""
    record, d = state.record, len(state.origin)
    if record is None or state.near is not None or state.evaluations - record.at <= 4 * d + 20:
        return False
    return bool(state.log_densities[state.own :].max() < record.log_density + _little(d))


def _restore(state):
    record = state.record
    return _arrive(state._replace(current=record.current), record.handed, record.factor)


def _arrive(state, handed, factor):
    return state._replace(done=True, arrived=True, handed=handed, factor=factor)


def _give_up(state):
    """The budget is spent: where it has ended near some point, that is something."""
    if state.near is not None and state.near.candidate >= 0 and state.model is not None:
        factor = _triangular(_normal_approximation(state)[1])
        return _arrive(state, state.near.candidate, factor)
    record = state.record
    if record is not None and state.log_densities[state.current] < record.log_density + _little(
        len(state.origin)
    ):
        return _restore(state)
    state = state._replace(done=True, handed=state.current)
    if state.near is None or state.model is None:
        return state
    return state._replace(factor=_triangular(_normal_approximation(state)[1]))
