"""Angles: one period of them is the target, around where a climb ended, and all of it is sampled."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.evaluations import table
from pymc_kameleon.samplers import known_points
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.arrival import circles, search
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.life import NOWHERE, Life
from pymc_kameleon.samplers.pooled.chains import Chains, posterior
from pymc_kameleon.samplers.pooled.drawing import Row
from pymc_kameleon.samplers.seam import Density, Point
from tests.support.chains import circular_z
from tests.support.pooled import finished, plan_of

WINDOW = circles.Window(np.array([0, 2]), np.array([3.0, -1.0]))
CENTRE, STRENGTH = 2.9, 0.8  # a chain crosses from period to period


def log_density(x):
    """A von Mises angle, and a normal whose mean goes with it."""
    return float(STRENGTH * math.cos(x[0] - CENTRE) - 0.5 * (x[1] - math.sin(x[0])) ** 2)


def expected():
    """Of cos and sin of the angle and of the normal, by quadrature."""
    angle = np.linspace(0.0, 2.0 * math.pi, 4001)[:-1]
    weights = np.exp(STRENGTH * np.cos(angle - CENTRE))
    return [weights @ f / weights.sum() for f in (np.cos(angle), np.sin(angle), np.sin(angle))]


def z_scores(draws):
    """Of chains (chains, n, 2) against what is expected."""
    return circular_z(*np.moveaxis(draws, 2, 0), expected())[0]


def test_points_are_brought_into_the_window():
    x = np.array([[3.0, 50.0, -1.0], [3.0 + 4 * math.pi, 50.0, -1.0 - 2 * math.pi], [-1.0, 0.0, 2.0]])
    found = WINDOW.wrapped(x)
    np.testing.assert_allclose(found, [[3.0, 50.0, -1.0], [3.0, 50.0, -1.0], [2 * math.pi - 1.0, 0.0, 2.0]])
    assert found[0].tobytes() == x[0].tobytes()  # what is in it is not touched
    assert all(WINDOW.contains(row) for row in found)
    assert not WINDOW.contains(x[1])
    known = WINDOW.evaluated(table(x, [1.0, 2.0, 3.0], move="arrival"))
    assert known.positions.tobytes() == found.tobytes()
    assert known.log_densities.tolist() == [1.0, 2.0, 3.0]
    assert circles.around(np.zeros(0, int), x[0]) is None


def chain(sampler, seed, *, has_angles=True, tune=1000, draws=3000):
    """A life from a start of its own, and where its draws are."""
    rng = np.random.default_rng(seed)
    density, start = Density(2), np.array([rng.uniform(-9.0, 9.0), 3.0])
    density.circles = np.array([0] if has_angles else [], dtype=int)
    life, asked = Life(sampler, density, rng), []

    def evaluate(proposal, here):
        if proposal.log_density is not None:
            return Point(proposal.position, proposal.log_density, here.noise)
        asked.append(proposal.position)
        return Point(proposal.position, log_density(proposal.position), here.noise)

    looks = rng.uniform(-math.pi, math.pi, (2, 2))
    first = Point(start, log_density(start), NOWHERE.noise)
    life.put(first, lambda: search.init(start, first.log_density, budget=60, looks=looks))
    while life.climbing:
        life.draw(evaluate)
    began = len(asked)
    for _ in range(tune):
        life.draw(evaluate)
    life.freeze()
    found = np.array([(life.draw(evaluate), life.here.position)[1] for _ in range(draws)])
    return found, life.state.window, np.array(asked[began:])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("sampler", "tune", "n"), [(AdaptiveMetropolis(), 1000, 3000), (ValueKamiltonian(tune=400), 400, 1000)]
)
def test_a_chain_stays_in_one_period_and_samples_all_of_it(sampler, tune, n):
    draws = []
    for seed in range(4):
        found, window, asked = chain(sampler, seed, tune=tune, draws=n)
        # nothing is evaluated where nothing can be accepted
        assert np.abs(asked[:, 0] - window.centre[0]).max() <= math.pi
        assert np.ptp(found[:, 0]) > 0.9 * 2.0 * math.pi
        draws.append(found)
    assert z_scores(np.array(draws)).max() < 4.5
    without, window, _ = chain(sampler, 0, has_angles=False, tune=tune, draws=n)
    assert window is None
    assert np.ptp(without[:, 0]) > 2.5 * math.pi


def test_what_was_learned_on_the_way_and_where_looks_begin_come_into_it():
    density = Density(2)
    density.circles = np.array([0])
    life = Life(AdaptiveMetropolis(), density, np.random.default_rng(0))
    x, far = np.array([20.0, 1.0]), np.array([[-30.0, 0.0], [50.0, 2.0]])
    stage = search.init(x, log_density(x), looks=far)
    life.put(Point(x, log_density(x), NOWHERE.noise), lambda: stage)
    stage, learned = life._enclose(stage)
    assert np.abs(life.state.stage.starts[:, 0] - 20.0).max() <= math.pi
    np.testing.assert_allclose(np.cos(life.state.stage.starts[:, 0]), np.cos(far[:, 0]))
    # of a table, in several periods: one point had no density, perhaps because it was outside of another window
    turns = 2.0 * math.pi * np.array([0.0, -5.0, 4.0, 7.0, 11.0])
    angles = 20.0 + np.array([0.1, -0.1, 0.1, -0.1, 0.0])
    known = table(np.column_stack([angles + turns, np.zeros(5)]), [-1.0, -2.0, -2.0, -1.0, -math.inf])
    checked = known_points.begin(life.rng, known, x, 0.0)._replace(found=(-1.0,) * known_points.CHECKED)
    _, learned = life._enclose(checked)
    np.testing.assert_allclose(learned["evaluated"].positions[:, 0], angles[:4])
    assert learned["factor"][0, 0] == pytest.approx(0.1)


def test_beside_a_step_that_walks_from_period_to_period():
    """From outside of the window a chain could come in, and not go back."""
    found = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        density, x = Density(2), np.array([3.0, 0.5])
        density.circles = np.array([0])
        life = Life(AdaptiveMetropolis(), density, rng)
        life.put(Point(x, log_density(x), NOWHERE.noise), lambda x=x: search.init(x, log_density(x), budget=60))

        def evaluate(proposal, here):
            value = log_density(proposal.position) if proposal.log_density is None else proposal.log_density
            return Point(proposal.position, value, here.noise)

        for draw in range(9000):
            if draw == 1000:
                life.freeze()
            life.draw(evaluate)
            x = life.here.position + np.array([2.0, 0.0]) * rng.standard_normal()
            if life.state.window is not None and -rng.exponential() < log_density(x) - life.here.log_density:
                life.put(Point(x, log_density(x), NOWHERE.noise))
                assert life.state.window.contains(life.here.position)
            found.append(life.here.position)
    assert z_scores(np.array(found).reshape(2, -1, 2)[:, 1000:]).max() < 4.5


def test_chains_on_the_whole_line_are_compared_in_one_period():
    """Where black boxes are learned one by one: else R-hat would never let target_ess= be reached."""
    rows = [Row(np.array([[0.1 * k, 1.0], [0.1 * k + 4.0 * np.pi, 1.0]]), np.zeros(2), []) for k in range(3)]
    run = SimpleNamespace(rows=rows, window=None, angles=np.array([0]), starts=np.zeros((2, 2)), initial=np.zeros(2))
    draws = posterior(run)
    np.testing.assert_allclose(draws[0], draws[1], atol=1e-12)
    run.angles = run.angles[:0]
    assert np.ptp(posterior(run)[:, 0, 0]) > 12.0


@pytest.mark.whole
def test_chains_together_are_in_one_period():
    """They begin in five of them; the control is without angles."""
    ends = {}
    for angles in ((0,), ()):
        starts = np.random.default_rng(2).uniform(-15.0, 15.0, (9, 2))
        chains = Chains(starts[0], starts[1:], np.random.SeedSequence(1), plan_of(1200), angles=angles)
        ends[angles] = finished(chains, lambda x: log_density(x)), posterior(chains)
    chains, draws = ends[0,]
    assert z_scores(draws).max() < 4.5
    low, high = chains.window.centre[0] - math.pi, chains.window.centre[0] + math.pi
    inside = chains.evaluated.positions[:, 0]
    assert low <= draws[:, :, 0].min() < low + 0.5
    assert high >= draws[:, :, 0].max() > high - 0.5
    assert all(chains.window.contains(c.positions[c.current]) for c in chains.climbs.climbs)
    # nothing is evaluated where nothing can be accepted, and what climbs evaluated there is the same here
    assert ((inside >= low) & (inside <= high)).all()
    assert np.isfinite(chains.evaluated.log_densities).all()
    assert np.isin(chains.evaluated.move, ("start", "arrival")).sum() > 9
    assert np.ptp(ends[()][1][:, :, 0]) > 4.0 * math.pi


def test_an_arrival_elsewhere_goes_on_as_it_would_have():
    state = arrival.init(np.array([2.0, 3.0]), log_density(np.array([2.0, 3.0])), start=np.array([1.0, 1.0]))
    by = np.array([2.0 * math.pi, 0.0])
    for draw in range(25):
        moved = arrival.moved(state, by)
        one, other = (arrival.propose(np.random.default_rng(draw), s) for s in (state, moved))
        np.testing.assert_allclose(other, one + by, atol=1e-9)
        np.testing.assert_allclose(moved.position, state.position + by)
        state = arrival.tell(np.random.default_rng(draw), state, one, log_density(one))
    assert state.near is not None


def test_an_arrival_elsewhere_knows_what_it_has_evaluated():
    """Rounding: what was near -2 pi, to so many digits, is near 0."""
    rows = np.random.default_rng(1).normal([-2.0 * math.pi, 3.0], 1e-3, (20, 2))
    state = arrival.init(rows[0], 0.0)
    for row in rows[1:]:
        state = state._replace(evaluated=history.append(state.evaluated, np.append(row, 0.0)))
    moved = arrival.moved(state, np.array([2.0 * math.pi, 0.0]))
    assert all(arrival._is_evaluated(moved, row + 1e-15) for row in moved.positions)
    assert not any(arrival._is_evaluated(moved, row + 1e-6) for row in moved.positions)
