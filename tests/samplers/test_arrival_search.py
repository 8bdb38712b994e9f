"""A second look: a chain leaves a mode that is far below another, and no other; nothing is lost on the way."""

import numpy as np
import pytest

from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.life import NOWHERE, Life
from pymc_kameleon.samplers.seam import Density, Point
from tests.samplers.test_arrival import run

HERE = np.array([0.5, -0.5])


def two_modes(difference, distance=12.0):
    """Standard normals at 0 and at ``distance``, the second one ``difference`` nats higher; log densities far down are
    those of the nearer one, so that each has a basin."""

    def log_density(x):
        here = -0.5 * float(x @ x)
        there = -0.5 * float((x - distance) @ (x - distance)) + difference
        return max(here, there)

    return log_density


def arrive(log_density, looks=None, budget=None):
    rng = np.random.default_rng(0)
    state = arrival_search.init(HERE, log_density(HERE), looks=looks, budget=budget)
    while not state.done:
        point = state.propose(rng)
        state = state.tell(rng, point, log_density(point))
    return state


@pytest.mark.parametrize(("difference", "where"), [(40.0, 12.0), (5.0, 0.0), (-40.0, 0.0)])
def test_a_chain_leaves_only_for_a_mode_that_is_far_higher(difference, where):
    state = arrive(two_modes(difference), [[12.5, 11.0]])
    assert state.arrived
    assert len(state.climbs) == 2
    assert np.abs(state.position - where).max() < 5.0
    np.testing.assert_allclose(state.factor @ state.factor.T, np.eye(2), atol=0.3)


@pytest.mark.parametrize("difference", [40.0, 5.0, -2.0, -40.0])
def test_another_mode_is_told_beside_the_chains_own_climb_however_much_heavier_it_is(difference):
    """Where tuning ends before the climbs are over a chain is not led to one that is chosen."""
    state = arrive(two_modes(difference), [[12.5, 11.0]])
    found = arrival_search.rivals(state, state.climbs)
    assert len(found) == (difference > arrival_search.SLIGHT)
    for rival in found:
        assert rival.gain == pytest.approx(difference, abs=1.0)
        assert np.abs(rival.position - 12.0).max() < 5.0
    assert not arrival_search.rivals(state.led(), state.climbs) or difference < 10.0  # begun anew there


@pytest.mark.parametrize("higher", [-40.0, -5.0, 5.0, 40.0])
def test_beside_a_climb_that_ran_out_of_budget_only_what_is_far_higher_is_another_mode(higher):
    """Its width is not known: a chain led to such an end, which was far higher, would have ended in a LinAlgError."""
    state = arrive(two_modes(40.0), [[12.5, 11.0]])
    arrived = state.climbs[1]
    out = arrival.stop(arrival.init(HERE, arrived.log_densities.max() - higher))
    found = arrival_search.rivals(state._replace(climbs=(out, arrived)), (out, arrived))
    assert len(found) == (higher > arrival_search.far_in_height(2))
    assert all(0.0 < rival.gain < higher for rival in found)


def test_a_chain_that_was_led_to_a_climb_that_ran_out_of_budget_stays_led():
    """Its walk was begun anew at every look, in the mode that it had left, and frozen there 300 nats too low."""
    state = arrive(two_modes(40.0), [[12.5, 11.0]])
    first, other = state.climbs
    out = arrival.stop(arrival.init(np.full(2, 50.0), other.log_densities.max() + 300.0))
    led = state._replace(climbs=(first, other, out)).led()
    assert led.climbs[0] is out
    assert led.chosen is out


def walked(difference, tune):
    """A life with five looks: (where it is in the other mode, of so many tuning draws, whether in the end, how often a
    look has moved it, the life).
    """
    log_density, rng = two_modes(difference, 30.0), np.random.default_rng(0)
    life = Life(AdaptiveMetropolis(), Density(2), rng)
    looks = rng.normal(30.0, 20.0, (5, 2))
    first = Point(HERE, log_density(HERE), NOWHERE.noise)
    life.put(first, lambda: arrival_search.init(HERE, first.log_density, looks=looks))
    there, moved = [], 0
    for _ in range(tune):
        climbing = life.climbing
        told = life.draw(lambda proposal, _: Point(proposal.position, log_density(proposal.position), NOWHERE.noise))
        moved += not climbing and told.proposal.move == "arrival" and told.accepted
        there.append(np.abs(life.here.position - 30.0).max() < 10.0)
    life.freeze()
    return np.array(there), np.abs(life.here.position - 30.0).max() < 10.0, moved, life


def test_a_chain_does_not_walk_on_where_a_climb_has_come_far_above_it():
    """With one of three tuning draws throughout that climb ends after 89."""
    there, at_last, moved, life = walked(200.0, 400)
    assert there[-1]
    assert at_last
    assert moved == 1
    assert np.argmax(there) < 60
    assert life.state.elsewhere == ()
    there, at_last, moved, _ = walked(5.0, 400)
    assert not there.any()
    assert not at_last
    assert moved == 0


def test_the_more_unknowns_the_fewer_draws_are_for_climbs_from_elsewhere():
    """A thousand tuning draws of 15 unknowns are too few for one of these, and none too many for the walk."""
    assert [arrival_search.look_every(d) for d in (1, 9, 15, 30)] == [3, 3, 5, 10]


@pytest.mark.parametrize(("difference", "leaves"), [(200.0, True), (5.0, False)])
def test_nor_when_tuning_ends_before_that_climb(difference, leaves):
    there, at_last, *_ = walked(difference, 35)
    assert not there.any()
    assert at_last == leaves


@pytest.mark.parametrize(("narrower", "leaves"), [(1.0, True), (1e-6, False)])
def test_nor_for_a_spike_that_is_far_higher_and_has_less_mass(narrower, leaves):
    """While the next climb is under way: two unknowns, 30 nats higher, 0 or 28 nats narrower."""
    own = arrive(two_modes(0.0)).climbs[0]
    spike = arrival.moved(own, np.full(2, 12.0))
    spike = spike._replace(factor=narrower * own.factor)
    spike.evaluated.buffer[:, -1] += 30.0
    under_way = arrival.init(HERE, own.log_density, start=np.zeros(2))
    looks = np.zeros((3, 2))
    stage = arrive(two_modes(0.0))._replace(climbs=(own, spike, under_way), starts=looks, budget=100, others=1)
    assert not stage.done
    assert stage.is_far_above(own.log_density) == leaves
    assert not stage.is_far_above(own.log_density + 30.0)
    life = Life(AdaptiveMetropolis(), Density(2), np.random.default_rng(0))
    walked_to = own.position + 0.1
    life.put(Point(walked_to, own.log_density, NOWHERE.noise), lambda: stage)
    life.freeze()
    assert np.array_equal(life.here.position, spike.position if leaves else walked_to)


@pytest.mark.parametrize(
    ("there", "arrived", "begins_anew"), [(0.5, True, False), (-9.0, True, True), (0.5, False, True)]
)
def test_a_chain_that_came_there_by_itself_need_not_begin_anew(there, arrived, begins_anew):
    """Its own climb ended at an edge, of no width, and another has far more mass where the chain is."""
    own = arrive(two_modes(-40.0)).climbs[0]
    stuck = own._replace(factor=1e-6 * own.factor)
    other = arrival.moved(own, np.full(2, 3.0))._replace(arrived=arrived)
    other.evaluated.buffer[:, -1] += 20.0
    stage = arrive(two_modes(0.0))._replace(climbs=(stuck, other))
    assert stage.chosen is other
    met = stage.met(other.position + there)
    assert (met.climbs[0] is stuck) == begins_anew
    assert set(map(id, met.climbs)) == {id(stuck), id(other)}


def test_without_looks_it_is_the_arrival():
    log_density = two_modes(40.0)
    searched, state = arrive(log_density), run(log_density, HERE)
    np.testing.assert_array_equal(searched.positions, state.positions)
    np.testing.assert_array_equal(searched.position, state.position)


def test_a_climb_that_comes_to_a_known_place_ends():
    """It has found nothing new: far fewer evaluations than an arrival, and they are kept."""
    alone = arrive(two_modes(-1e4))
    twice = arrive(two_modes(-1e4), [[0.3, 3.0]])
    assert alone.evaluations < twice.evaluations < alone.evaluations + 15
    evaluated = twice.learned()["evaluated"]
    assert evaluated.size == twice.evaluations - 1
    assert set(evaluated.move) == {"arrival"}


@pytest.mark.parametrize(("higher", "leaves"), [(30.0, True), (8.0, False)])
def test_a_climb_that_ran_out_of_budget_counts_by_its_height(higher, leaves):
    state = arrive(two_modes(40.0))
    own = state.climbs[0]
    there = np.array([12.5, 12.0])
    other = arrival.stop(arrival.init(there, own.log_densities.max() + higher))
    state = state._replace(climbs=(own, other))
    assert own.arrived
    assert not other.arrived
    assert (state.position == there).all() == leaves
    assert state.arrived == (not leaves)


def test_looks_have_a_budget():
    state = arrive(two_modes(40.0), 12.0 + np.ones((20, 2)), budget=60)
    assert state.evaluations <= 61 + 30 + 1


def test_positions_are_those_that_were_evaluated():
    seen = []
    log_density = two_modes(40.0)

    def recording(x):
        seen.append(np.array(x))
        return log_density(x)

    state = arrive(recording, [[12.5, 11.0], [-3.0, 4.0]])
    np.testing.assert_array_equal(state.positions, seen)
    np.testing.assert_array_equal(state.log_densities, [log_density(x) for x in seen])


def looks_taken(log_density, looks):
    return len(arrive(log_density, looks).climbs) - 1


def test_more_looks_only_where_something_else_was_found():
    """Four that come to where the chain is are enough; where one ended elsewhere, the others are taken, too."""
    near, there = np.array([[0.3, 3.0]]), np.array([[12.5, 11.0]])
    one_mode, two = two_modes(-1e4), two_modes(-5.0)
    assert looks_taken(one_mode, np.repeat(near, 6, axis=0)) == 4
    assert looks_taken(two, np.concatenate([near, there, near, near, near])) == 5
    assert looks_taken(two, np.concatenate([near, near, near, near, there])) == 4


def test_a_long_climb_leaves_no_looks():
    """A chain has to tune, too."""
    d = 2
    long = arrival.init(np.zeros(d), 0.0)
    for k in range(arrival.default_budget(d)):
        long = long._replace(evaluated=arrival.history.append(long.evaluated, np.full(d + 1, k)))
    state = arrival_search.init(np.zeros(d), 0.0, looks=np.ones((3, d)))
    assert arrival_search._left(state) == 60 * d + 300
    assert arrival_search._left(state._replace(climbs=(long,))) == 0
