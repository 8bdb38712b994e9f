"""Arrival before the walk: identities of its quadratic, where it ends, and that a chain resumes in the middle."""

import math
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.arrival import model as arrival_model
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival.search import Doubt, look_every
from pymc_kameleon.samplers.arrival.state import LONG
from pymc_kameleon.steps import AdaptiveMetropolisStep, KameleonStep, KamiltonianStep
from pymc_kameleon.steps.told import watch
from tests.step_tester import CASES, NO_BLAS, begin, drive, make, sample

pytestmark = NO_BLAS


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def normal(d, condition, distance, seed):
    """(log density, start, covariance): rotated, ``distance`` sds away."""
    rng = np.random.default_rng([d, seed])
    sds = condition ** np.linspace(-0.25, 0.25, d)
    axes = rotation(rng, d) * sds
    inverse = np.linalg.inv(axes)
    away = rng.standard_normal(d)
    start = axes @ (distance * away / np.linalg.norm(away))
    return lambda x: -0.5 * float(np.square(inverse @ x).sum()), start, axes


def run(log_density, x, seed=0, **options):
    rng = np.random.default_rng(seed)
    state = arrival.init(x, log_density(x), **options)
    while not state.done:
        point = arrival.propose(rng, state)
        state = arrival.tell(rng, state, point, log_density(point))
    return state


# --- the quadratic ----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_quadratic_is_recovered_from_as_many_points_as_it_has_coefficients(d):
    rng = np.random.default_rng(d)
    slope, root = rng.standard_normal(d), rng.standard_normal((d, d))
    hessian = root + root.T
    points = rng.standard_normal(((d + 1) * (d + 2) // 2 + 2, d))
    values = points @ slope + 0.5 * np.einsum("ij,jk,ik->i", points, hessian, points)
    model = arrival_model.fit(points, -values, [(math.inf, 0.0)])
    np.testing.assert_allclose(model.slope, slope, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.hessian, hessian, rtol=1e-5, atol=1e-5)
    fresh = rng.standard_normal(d)
    expected = fresh @ slope + 0.5 * fresh @ hessian @ fresh
    assert arrival_model.gain(model, fresh) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    # with fewer points it interpolates, and knows that it does not know the rest
    few = arrival_model.fit(points[: d + 1], -values[: d + 1], [(math.inf, 0.0)])
    at = [arrival_model.gain(few, p) for p in points[: d + 1]]
    np.testing.assert_allclose(at, values[: d + 1], rtol=1e-4, atol=1e-4)
    if d > 1:
        sd = [arrival_model.curvature_sd(m, np.eye(d)[:1])[0] for m in (few, model)]
        assert sd[0] > 100 * sd[1]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_highest_point_of_the_trust_region(d):
    rng = np.random.default_rng(10 + d)
    for shift in (-6.0, 0.0, 6.0):  # inside, on the sphere, convex
        root = rng.standard_normal((d, d))
        hessian, slope = root + root.T + shift * np.eye(d), rng.standard_normal(d)
        model = arrival_model.Model(None, slope, hessian, math.inf, 0.0, None, 1.0)
        best = arrival_model.highest(model)
        assert np.linalg.norm(best) <= 1 + 1e-6
        s = rng.standard_normal((20_000, d))
        s *= (rng.random(len(s)) ** (1 / d) / np.linalg.norm(s, axis=1))[:, None]
        values = s @ slope + 0.5 * np.einsum("ij,jk,ik->i", s, hessian, s)
        assert arrival_model.gain(model, best) >= values.max() - 1e-6


def test_transform_and_its_curvature():
    c, slope, hessian = 3.0, np.array([0.4, -1.0]), np.array([[-2.0, 0.3], [0.3, -1.0]])
    model = arrival_model.Model(None, slope, hessian, c, 0.0, None, 1.0)
    for change in (-50.0, -1.0, 0.0, 1.0):
        there = arrival_model.transformed(model, change)
        assert arrival_model.untransformed(model, there) == pytest.approx(change, rel=1e-10)
    e, h = np.eye(2), 1e-4

    def f(s):
        return arrival_model.untransformed(model, arrival_model.gain(model, s))

    numeric = [
        [(f(h * (a + b)) - f(h * (a - b)) - f(h * (b - a)) + f(-h * (a + b))) / (4 * h * h) for b in e]
        for a in e
    ]  # fmt: skip
    np.testing.assert_allclose(numeric, arrival_model.curvature(model), rtol=1e-5, atol=1e-5)


# --- where it ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("distance", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_rotated_normals(d, distance, condition):
    log_density, x, axes = normal(d, condition, distance, 0)
    state = run(log_density, x)
    assert state.arrived
    assert state.evaluations < 20 * d + 100
    # in the typical set: chi-square of d degrees of freedom
    assert 2 * -state.log_density < d + 4 * math.sqrt(2 * d) + 4
    # and the covariance is known
    ratio = np.linalg.svd(np.linalg.solve(axes, state.factor), compute_uv=False)
    assert 0.5 < ratio.min() <= ratio.max() < 2.0
    assert log_density(x) == state.log_densities[0]


def test_not_the_mode():
    """The handed point is a draw from the normal approximation: its distance from the mode is chi-square's."""
    n, d = 100, 3
    squares = []
    for seed in range(n):
        log_density, x, _ = normal(d, 100.0, 50.0, seed)
        squares.append(-2 * run(log_density, x, seed).log_density)
    z = (np.mean(squares) - d) / (np.std(squares, ddof=1) / math.sqrt(n))
    assert abs(z) < 4.5
    mode = (0.0 - d) / (np.std(squares, ddof=1) / math.sqrt(n))
    assert abs(mode) > 10


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units(unit):
    log_density, x, _ = normal(3, 100.0, 30.0, 0)
    units = np.array([unit, 1.0, 1 / unit])
    own = run(log_density, x, 5)
    other = run(lambda y: log_density(y / units), x * units, 5, scale=units)
    # the same until rounding, which the trust region amplifies, makes two arrivals of one
    np.testing.assert_allclose(other.positions[:4] / units, own.positions[:4], rtol=1e-5)
    assert other.arrived
    assert -other.log_density < 15
    unknown = run(lambda y: log_density(y / unit), x * unit, 5)  # the same, not told
    assert unknown.arrived
    assert -unknown.log_density < 15


def neck(x):
    """Ten normals of unknown scale exp(x[0]), given nothing else: unbounded where the scale goes to 0."""
    scale = math.exp(max(min(x[0], 300.0), -300.0))
    return -0.5 * (x[0] / 1.5) ** 2 - 9 * x[0] - 0.5 * float(np.square(x[1:] / scale).sum())


def cliffs(x):
    """Minus exponentials of all unknowns, as a survival model's cumulative hazard: the mode is near 0."""
    with np.errstate(over="ignore"):
        return float(-np.exp(3.0 * x[0] + x[1:].sum()) - np.exp(-x).sum() - 0.01 * x @ x)


def two_decays(x):
    """Least squares on the sum of two exponentials, their amplitudes and rates in logarithms: curved ridges."""
    times = np.linspace(0.2, 8.0, 15)

    def mean(z):
        return np.exp(z[0] - np.exp(z[1]) * times) + np.exp(z[2] - np.exp(z[3]) * times)

    misfit = mean(x) - mean(np.array([2.0, -1.5, 1.0, 0.5]))
    return float(-0.5 * np.square(misfit / 0.03).sum() - 0.5 * np.square(x / 3.0).sum())


def evaluations(log_density, d, low, high, seeds):
    """How many it takes on average to arrive from a box."""
    starts = {seed: np.random.default_rng(seed).uniform(low, high, d) for seed in seeds}
    ends = [run(log_density, x, seed, budget=1500) for seed, x in starts.items()]
    assert all(end.arrived for end in ends)
    return np.mean([end.evaluations for end in ends])


def test_down_from_exponentials(monkeypatch):
    climb = partial(evaluations, cliffs, 3, 4.0, 14.0, (1, 2, 3, 8))
    found = climb()
    monkeypatch.setattr(arrival_model, "FAR", math.inf)  # no scale of what is near
    assert climb() > 1.3 * found


def test_a_climb_goes_on_after_a_false_arrival(monkeypatch):
    monkeypatch.setattr(arrival, "_is_rising", lambda state: False)  # or false arrivals are few
    # from where it is 1.4 and 1.5 times as many, on two PyMCs; of thirty 1.05 and 1.12
    climb = partial(evaluations, two_decays, 4, -3.0, 4.0, (2, 7, 9, 17, 19, 22))
    found, leave = climb(), arrival.leave
    monkeypatch.setattr(arrival, "leave", lambda state: leave(state)._replace(climbing=False))
    assert climb() > 1.15 * found


def test_no_near_phase_while_the_climb_rises(monkeypatch):
    """On a ridge all that is left to gain nearby is small, piece by piece."""
    # where it tells; of 24 it is 1.11 times the evaluations
    climb = partial(evaluations, two_decays, 4, -3.0, 4.0, (1, 4, 7, 13, 14, 15, 21, 22))
    found = climb()
    monkeypatch.setattr(arrival, "_is_rising", lambda state: False)
    assert climb() > 1.2 * found


def skewed(x):
    """Logarithms of gamma variables: concave and no normal, so that what a quadratic predicts does not come true."""
    return float(2.0 * (x - np.exp(x)).sum())


def test_what_is_no_normal_is_not_checked_for_ever():
    """Six unknowns: the near phase ends where twice as many predictions were tested as have to come true in a row."""
    state = arrival.init(np.ones(6), skewed(np.ones(6)))
    rng, tested = np.random.default_rng(0), 0
    while not state.done:
        point = arrival.propose(rng, state)
        state = arrival.tell(rng, state, point, skewed(point))
        tested = max(tested, 0 if state.near is None else state.near.tried)
    assert state.arrived
    assert state.record is None  # it has not gone on from there
    assert tested <= 2 * arrival._checks(6)
    assert state.evaluations < 100


def near_climbs(x, log_density, seed, budget):
    """(gain over half of the prediction, whether the near phase goes on after it) of every climb in one; the state."""
    rng, found = np.random.default_rng(seed), []
    state = arrival.init(x, log_density(x), budget=budget)
    while not state.done:
        point, before = arrival.propose(rng, state), state
        state = arrival.tell(rng, state, point, log_density(point))
        if before.near is None or before.move != "climb" or before.fitted < before.evaluations:
            continue
        s = np.linalg.solve(before.basis, point - before.origin)
        gain = state.log_densities[-1] - before.log_densities[before.current]
        excess = gain - 0.5 * arrival_model.gain(before.model, s)
        found.append((excess > 0.0, state.near is not None))
    return found, state


def test_a_climb_that_comes_true_ends_the_near_phase(monkeypatch):
    """In 20 dimensions no step of a trust region gains what a posterior draw lacks: it would be proposed for ever."""
    monkeypatch.setattr(arrival, "RISING", math.inf)  # or it begins where there is nothing to climb
    log_density, x, _ = normal(20, 1e4, 1e2, 0)
    found, state = near_climbs(x, log_density, 0, 2000)
    true = [goes_on for came_true, goes_on in found if came_true]
    assert state.arrived
    assert len(true) >= 2
    assert not any(true)


def test_not_into_the_neck():
    for seed in range(2):
        state = run(neck, np.random.default_rng(seed).uniform(-1, 1, 10), seed)
        assert state.arrived
        assert state.position[0] > -4.0  # the prior's sd is 1.5: the mode, at -20, is there, and the climb would go


def test_walls_and_nothing():
    def box(x):
        return -0.5 * float(x @ x) if np.all(np.abs(x) < 4) else math.nan

    state = run(box, np.full(3, 3.9))
    assert state.arrived
    assert -state.log_density < 10
    assert np.isfinite(state.log_densities).sum() > 10
    flat = run(lambda x: 0.0, np.zeros(2))  # no typical set
    assert flat.done
    assert flat.evaluations <= arrival.default_budget(2) + 1


def test_a_start_of_its_own():
    far = np.array([30.0, -20.0])
    log_density, x, _ = normal(2, 1.0, 1.0, 0)
    state = run(log_density, x, start=far)
    np.testing.assert_array_equal(state.positions[1], far)
    assert state.arrived
    # where the density does not exist there it comes half way back, and says nothing
    wall = run(lambda y: log_density(y) if y[0] < 10 else math.inf, x, start=far)
    assert wall.arrived
    assert np.isneginf(wall.log_densities[1])


def test_a_spent_budget_says_so():
    log_density, x, _ = normal(6, 1e6, 1e4, 0)
    state = run(log_density, x, budget=20)
    assert state.done
    assert not state.arrived
    assert state.evaluations == 21
    assert state.log_density == state.log_densities.max()


@pytest.mark.parametrize(("distance", "rises"), [(1e4, True), (1.0, False)])
def test_a_climb_that_is_long_ends_as_soon_as_it_does_not_rise(distance, rises):
    log_density, x, _ = normal(6, 1e3, distance, 0)
    state = run(log_density, x, long=14)
    assert state.done
    assert not state.arrived
    assert (state.evaluations > 2 * 14) == rises
    assert state.log_density > -arrival.depth(6)
    assert run(log_density, x).arrived


def test_a_climb_from_elsewhere_ends_ten_scales_away():
    """Up a slope without an end, which the chain's own may follow: one point at the face of the box, none beyond."""
    start, scale = np.array([1.0, -2.0]), np.array([1.0, 3.0])

    def rising(x):
        return float(x[0] + 0.1 * x[1])

    free, state = (run(rising, np.zeros(2), scale=scale, start=start, budget=60, reach=r) for r in (math.inf, 10.0))
    away = np.abs(state.evaluated.buffer[1 : state.evaluations, :2] - start) / scale
    assert np.abs(free.evaluated.buffer[: free.evaluations, 0]).max() > 50.0
    assert (away.max(axis=1) >= 10.0 - 1e-9).sum() == 1
    assert away.max() == pytest.approx(10.0)
    assert state.done
    assert not state.arrived
    moved = arrival.moved(arrival.init(np.zeros(2), 0.0, start=start, reach=1.0), np.array([0.0, 7.0]))
    np.testing.assert_array_equal(moved.within, start + np.array([[-1.0, 6.0], [1.0, 8.0]]))


def test_flat_priors_bound_no_climb():
    """Their scale, 1, is none: along a banana over a flat plane looks ended before they had come anywhere."""
    with pm.Model():
        x, y = pm.Flat("x"), pm.Normal("y", 0.0, 3.0)
        pm.Potential("target", -0.5 * (x - y) ** 2)
        step = KamiltonianStep()
    point = np.zeros(2)
    state = step._starts.arrival(np.random.default_rng(0), point, step.density(point), step.life, None)
    assert state.reach.tolist() == [math.inf, 10.0]


def test_a_climb_is_long_where_a_surrogate_knows_the_scales():
    def long(learn):
        with pm.Model() as model:
            pm.Normal("theta", pm.Normal("mu"), pm.HalfNormal("tau"), shape=4)
            step = KamiltonianStep(learn=learn)
        begin(step)
        step.step(model.initial_point())
        return step.life.state.stage.climbs[0].long

    assert long("auto") == LONG * 8  # of 6 unknowns
    assert long("all") == math.inf


def test_options_outside_their_domain():
    with pytest.raises(ValueError, match="scale must be positive"):
        arrival.init(np.zeros(2), 0.0, scale=np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        arrival.init(np.zeros(2), 0.0, budget=0)


# --- in the steps -----------------------------------------------------------------------------


@cache
def straight_line():
    """A regression in raw units, from far away."""
    rng = np.random.default_rng(1)
    age = rng.uniform(20, 70, 60)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1e4), pm.Normal("b", 0, 1e3)
        s = pm.HalfNormal("s", 1e3)
        pm.Normal("y", a + b * age, s, observed=3000 + 40 * age + rng.normal(0, 400, 60))
    return model


@cache
def on_the_line(name):
    """A step of tests/step_tester.py, compiled once: a chain that begins knows nothing of those before it."""
    return make(CASES[name], straight_line())


# The arrival is the base step's; that every sampler goes on from where it ended, and resumes, is in test_life.py.
@pytest.mark.parametrize("name", ["kameleon", pytest.param("kamiltonian", marks=pytest.mark.slow)])
def test_evaluations_and_moves(name):
    model, step, case = straight_line(), on_the_line(name), CASES[name]
    idata = sample(step, model, draws=20, tune=900, chains=1, discard_tuned_samples=False)
    moves = idata["warmup_sample_stats"]["move"].values[0]
    arrivals = np.flatnonzero(moves == "arrival")
    first = int(np.argmin(moves == "arrival"))  # draws until the walk began
    assert 20 < first < 250
    later = arrivals[arrivals >= first]  # climbs from elsewhere, beside it
    assert 10 < len(later) < 250
    assert ((later + 1) % look_every(2) == 0).all()
    assert "arrival" not in idata["sample_stats"]["move"].values
    evaluations = step.evaluations
    assert evaluations <= 921
    assert case.skips or evaluations == 921
    # Power: without it the same draws have not arrived.
    lp = idata["warmup_sample_stats"]["lp"].values[0]
    assert lp[first - 1] > lp[0]
    assert lp[first - 1] > -480.0


def test_paper_presets_and_other_steps_go_without():
    model = straight_line()
    for step in (KameleonStep(model=model, preset="paper"), KameleonStep(model=model, arrival=False)):
        begin(step).step(model.initial_point())
        assert step.life.state.stage is None
    with model:
        alone = begin(AdaptiveMetropolisStep([model["a"]]))
    point, _ = alone.step(model.initial_point())
    assert alone.life.state.stage is None  # after the jump
    assert point["a"] != model.initial_point()["a"]


def warnings_of(draws, **options):
    """What an AdaptiveMetropolisStep says of ``draws`` tuning draws, when the first draw comes."""
    step = begin(AdaptiveMetropolisStep(model=straight_line(), **options))
    points, told = drive(step, straight_line().initial_point(), 0, draws)
    step.stop_tuning()
    assert step.life.state.doubt is None
    told += step.step(points[-1])[1]
    return [stats["warning"].message for stats in told if stats["warning"] is not None]


def test_it_says_that_it_has_not_arrived():
    assert any("did not reach the typical set" in w for w in warnings_of(60, tune=60))


def test_it_does_not_say_so_where_the_walk_has_arrived_since():
    """The climb has 24 evaluations as above, the walk 1000 draws."""
    assert not any("did not reach the typical set" in w for w in warnings_of(1000, tune=60))


@pytest.mark.parametrize(
    ("heights", "settled"),
    [
        (lambda steps, noise: noise, True),
        (lambda steps, noise: np.repeat(noise[::10], 10), True),
        (lambda steps, noise: noise - 0.02 * (1000 - steps), False),
        (lambda steps, noise: 0.2 * np.cumsum(np.random.default_rng(0).standard_normal(1000)), False),
        (lambda steps, noise: np.where(steps < 700, -30.0, -29.0), False),
        (lambda steps, noise: noise[:99], False),
    ],
    ids=["typical", "moves seldom", "climbs", "crawls", "stuck", "too few"],
)
def test_whether_the_walk_has_settled(heights, settled):
    doubt = Doubt(50, np.zeros(1), -100.0, history.empty(1))
    for height in heights(np.arange(1000), -0.5 * np.random.default_rng(0).chisquare(5, 1000)):
        doubt = doubt._replace(heights=history.append(doubt.heights, np.array([height])))
    assert watch.settled(doubt) is settled


def test_kamiltonian_keeps_every_point_evaluated():
    step = begin(KamiltonianStep(model=straight_line()))
    point, _ = step.step(straight_line().initial_point())
    while not step.life.state.stage.settled:
        point, _ = step.step(point)
    size = step.evaluations
    learned = step.algorithm_state.learning.evaluated
    assert learned.size == size == len(np.unique(learned.positions, axis=0))
    looks = 0
    while step.life.state.stage is not None:  # the climbs from elsewhere are not among them
        point, (stats,) = step.step(point)
        looks += stats["move"] == "arrival"
    assert step.algorithm_state.learning.evaluated.size == step.evaluations - looks
    assert looks > 10


@pytest.mark.parametrize("tune", [30, 66, 90, 130])
def test_tuning_that_ends_before_the_arrival_leaves_the_chain_where_it_is(tune):
    """No draw evaluates twice: the walk begins at the point that PyMC knows, not at one that the arrival prefers."""
    step = begin(on_the_line("adaptive_metropolis"))
    *_, point = drive(step, straight_line().initial_point(), tune)[0]
    assert step.life.state.stage is not None
    before, evaluations = step.position.copy(), step.evaluations
    step.stop_tuning()
    np.testing.assert_array_equal(step.position, before)
    step.step(point)
    assert step.evaluations == evaluations + 1


@pytest.mark.parametrize("tunes_on", [False, True])
def test_climbs_under_way_end_with_tuning(tunes_on):
    """Beside the walk, a climb from elsewhere has one of three tuning draws; and, in the control, goes on having it."""
    step, point = begin(on_the_line("adaptive_metropolis")), straight_line().initial_point()
    while step.life.state.stage is None or not step.life.state.stage.settled or step.tuning_draws % look_every(2):
        point, _ = step.step(point)
    assert step.life.state.stage is not None
    if not tunes_on:
        step.stop_tuning()
    moves = [stats["move"] for stats in drive(step, point, 30)[1]]
    assert ("arrival" in moves) == tunes_on
    assert tunes_on or step.life.state.stage is None
