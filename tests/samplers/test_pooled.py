"""Chains that learn together: the frozen kernel of each is exact, the budget holds, the same told gives the same."""

import math
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.discovery import regressions
from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers.arrival import beside as arrival_beside
from pymc_kameleon.samplers.arrival import circles
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.arrival.state import Near, Record
from pymc_kameleon.samplers.kamiltonian.values.sampler import SAMPLER
from pymc_kameleon.samplers.pooled import ahead as pooled_ahead
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled import climbs, elite, learning, production
from pymc_kameleon.samplers.pooled import plan as plan_of_chains
from pymc_kameleon.samplers.pooled.by_values import ByValues
from pymc_kameleon.samplers.pooled.chains import Chains, Plan
from pymc_kameleon.samplers.pooled.checks import probes
from pymc_kameleon.samplers.pooled.checks.looks import Draws, Looks, mass
from pymc_kameleon.samplers.pooled.drawing import Drawing, Frozen, Row
from pymc_kameleon.samplers.pooled.plan import automatic
from pymc_kameleon.samplers.pooled.tuning import Tuning
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler
from pymc_kameleon.targets import Banana, Flower
from pymc_kameleon.verdict import convergence
from tests.samplers.test_value_kamiltonian import EVERY_ARM, bad_surrogate, draw_skewed, frozen_state, skewed
from tests.support.pooled import TwoModes, begun, finished, members_and_chains

# --- the frozen kernel ----------------------------------------------------------------------------


def frozen_members(n):
    """Members at exact draws of the skewed target."""
    rng = np.random.default_rng(3)
    hub, starts = frozen_state(bad_surrogate(), EVERY_ARM).state, draw_skewed(rng, n)
    pairs = zip(rng.spawn(n), [Point(x, skewed(x)) for x in starts], strict=True)
    return hub, [Frozen(own, point, SAMPLER.place(hub, point)) for own, point in pairs], starts


def test_who_waits_for_a_place_makes_the_same_draws():
    """With as many places as there happen to be, rows are those of rounds in which everyone draws, bit for bit."""
    rng, rows = np.random.default_rng(4), []
    for some in (False, True):
        drawing = Drawing(SAMPLER, frozen_members(8)[1])
        while len(drawing.rows) < 15:
            asked = drawing.ask(rng.integers(9) if some else None)
            drawing.tell([skewed(r.position) for r in asked])
            assert max(map(len, drawing._made)) <= 1
        rows.append([(row.positions.tobytes(), row.log_densities.tobytes()) for row in drawing.rows])
    assert rows[0] == rows[1]


def test_a_member_is_the_sampler_that_a_single_chain_runs():
    """Bit for bit: the same generator, one chain by the plain loop, whose exactness is test_value_kamiltonian's."""
    hub, _, starts = frozen_members(8)
    members, chains = members_and_chains(SAMPLER, hub, skewed, starts)
    assert members == chains


# --- probes ---------------------------------------------------------------------------------------


def fresh(corner):
    """A frozen run on a standard normal, and from then on a log density with ``corner`` of its mass elsewhere."""

    def log_density(x):
        here = -0.5 * x @ x
        if not corner or chains.phase != "draw":
            return here
        there = -0.5 * np.square(x - [3.5, 0.0]).sum()
        return np.logaddexp(math.log(1.0 - corner) + here, math.log(corner) + there)

    starts = np.random.default_rng(0).uniform(-2, 2, (9, 2))
    chains = Chains(starts[0], starts[1:], np.random.SeedSequence(7), Plan(100, 300, 300, None))
    return finished(chains, log_density)


planted = cache(fresh)


@pytest.mark.usefixtures("whole_trials")
def test_probes_find_a_corner_that_tuning_has_not_seen():
    found = planted(0.1).probed()
    assert found.missed >= 1
    assert found.where[0] > 2.0


def test_where_nothing_is_missed_probes_find_nothing():
    chains = planted(0.0)
    found = chains.probed()
    assert found.missed == 0
    assert found.where is None
    made = [r for r in chains.evaluated.move if r == "probe"]
    assert len(made) == found.probes == 40  # a twentieth of 100 draws of 8 chains


def test_probes_change_no_draw(monkeypatch):
    """The frozen chains' generators are their own: without probes the draws are the same."""
    draws = pooled_chains.posterior(planted(0.0))
    monkeypatch.setattr(probes, "SHARE", 0.0)
    assert pooled_chains.posterior(fresh(0.0)).tobytes() == draws.tobytes()


# --- from the start to the draws ------------------------------------------------------------------

BANANA = Banana(0.03, 100.0, 4)


APART = TwoModes(20.0, 20.0, 20.0)
FAR_APART = TwoModes(30.0, 0.0, spread=100.0)  # so far that climbs end in both: looks take the places of draws


def run(n=8, most=500, seed=1, target=BANANA, log_density=None, **plan):
    return finished(begun(target, n, most, seed, **plan), log_density or target.numba_log_density)


@pytest.fixture(scope="module")
def banana():
    return run()


def test_few_evaluations_are_enough(banana):
    draws = pooled_chains.posterior(banana)
    judged = convergence.judge(draws)
    assert judged.ess > 60
    assert judged.rhat < 1.1
    error = (draws.mean(axis=(0, 1)) - BANANA.mean) / np.sqrt(np.diag(BANANA.cov))
    assert np.abs(error).max() < 4.5 / math.sqrt(judged.ess)


@pytest.mark.parametrize(("n", "most"), [(1, 97), (3, 60), (8, 131), (16, 64)])
def test_the_budget_is_never_exceeded(n, most):
    asked = []

    def counted(x):
        asked.append(x)
        assert len(asked) <= most
        return BANANA.numba_log_density(x)

    chains = run(n, most, log_density=counted)
    # what is left is less than a draw of every chain, and what the last row might have needed
    assert chains.evaluated.size <= most < chains.evaluated.size + 2 * n
    assert len(chains.rows) > 0


@cache
def looked_for(what, length):
    """A run with looks in the places of draws, of so many draws or evaluations."""
    found = run(target=FAR_APART, **{"longest": 250, "begun_with": 700, "max_evaluations": None, what: length})
    assert (found.evaluated.move == "look").sum() >= 2
    return found


@pytest.mark.parametrize(("what", "first", "longer"), [("draws", 15, 30), ("max_evaluations", 500, 620)])
def test_a_run_that_is_made_longer_goes_on_from_the_same_points(what, first, longer):
    short, long = (looked_for(what, length).evaluated.positions for length in (first, longer))
    assert len(long) > len(short) + 50
    assert long[: len(short)].tobytes() == short.tobytes()


class Stub(Sampler):
    """Draws of nothing, always accepted, of which three in ten need no evaluation."""

    def propose(self, rng, x, state):
        stays = rng.random() < 0.3
        return Proposal(x if stays else rng.random(1), 0.0, "stays" if stays else "moves")

    def stats(self, state, proposal=None):
        return {}


class TwoLooks(Looks):
    """Two places of one round, after two rows."""

    def ask(self, rows, most):
        self._points = [np.zeros(1)] * 2 if len(rows) == 2 and not self.finished else []
        self.finished += self._points
        return self._points

    def tell(self, values):
        """Nothing is learned."""


def test_which_rows_are_kept_does_not_hang_on_their_draws(monkeypatch):
    """Where a budget ends a run: a row whose draws happen to need few evaluations is no likelier to be kept."""
    monkeypatch.setattr(production, "_looks", lambda chains, _members: TwoLooks([], [], 2))
    stays = []
    for seed in range(3000):
        members = [Frozen(rng, Point(np.zeros(1), 0.0), None) for rng in np.random.default_rng(seed).spawn(4)]
        chains = SimpleNamespace(plan=Plan(None, None, 0, None), stopped="", used=0, rng=None)
        chains.left = lambda chains=chains: 20 - chains.used
        drawing = Drawing(Stub(), members, (SimpleNamespace(mixture=None),))
        phase = production.Production(chains, drawing)
        while not phase.done:
            asked = phase.ask()
            chains.used += len(asked)
            phase.tell([0.0] * len(asked))
        assert chains.used <= 20
        stays += [[s["move"] == "stays" for s in row.statistics] for row in drawing.rows[4:]]
    share = np.mean(stays)
    assert len(stays) > 1000
    assert abs(share - 0.3) < 4.0 * np.sqrt(0.21 / np.size(stays))


def test_tuning_goes_on_where_the_surrogate_is_not_usable(banana, monkeypatch):
    """A flower is not learned from 150 points; a banana is."""
    monkeypatch.setattr(learning, "LATEST", 0.0)  # its petals are no modes here
    plan = automatic(4, 4, most=300)
    assert (plan.longest, plan.learn_until) == (150, 200)  # 25 draws of every chain are kept
    flower = Flower(10.0, 6.0, 6, dim=4)
    for stretch in (1.0, plan.stretch):
        chains = run(4, 300, target=flower, longest=150, stretch=stretch)
        tuned = chains.warmup[-1].evaluations
        # a last refit is judged by three rounds more
        assert int(150 * stretch) - 4 < tuned <= int(150 * stretch) + 12
    monkeypatch.undo()
    assert run(stretch=1.5, draws=1).rows[0].positions.tobytes() == banana.rows[0].positions.tobytes()


@pytest.mark.parametrize(
    ("given", "longest", "latest"),
    [
        ({}, 1600, 1600),  # 400 a dimension, and no more
        ({"most": 2000}, 1000, 1500),
        ({"most": 1000}, 500, 600),  # 25 draws of every chain
        ({"most": 1000, "draws": 20}, 500, 680),
        ({"most": 200}, 100, 100),
        ({"most": 64}, 32, 32),
        ({"most": 2000, "tune": 300}, 1000, 300),
    ],
)
def test_how_long_it_tunes(given, longest, latest):
    plan = automatic(4, 16, **given)
    assert (plan.longest, plan.learn_until) == (longest, latest)
    assert plan.earliest == min(given.get("most", 0) // 4, 120)


def test_of_draws_that_are_asked_for_tuning_is_a_quarter_at_least():
    plan = automatic(40, 16, draws=75)
    assert plan.earliest == 400 == (16 * 75 + plan.earliest) / 4


def test_known_points_are_brought_to_this_log_density_s_constant(banana):
    known = evaluations.shifted(banana.evaluated, 100.0)
    starts, plan = np.zeros((8, 4)), Plan(None, None, 200, 300)
    chains = Chains(BANANA.mean, starts, np.random.SeedSequence(3), plan, known=known)
    for _ in range(2):
        chains.tell([BANANA.numba_log_density(request.position) for request in chains.ask()])
    learned = chains.hub.learning.evaluated
    assert learned.size > known.size
    values = [BANANA.numba_log_density(x) for x in learned.positions]
    np.testing.assert_allclose(learned.log_densities, values, rtol=0, atol=1e-9)


def test_the_record_is_what_was_asked_for(banana):
    made = banana.evaluated
    assert (np.diff(made.round) >= 0).all()
    assert made.round[-1] == banana.rounds - 1
    values = np.array([BANANA.numba_log_density(x) for x in made.positions])
    assert made.log_densities.tobytes() == values.tobytes()
    for number in np.unique(made.round):  # one point a member and round, and probes beside
        asked = made.chain[(made.round == number) & (made.chain >= 0)]
        assert len(np.unique(asked)) == len(asked)


def test_the_hub_does_not_change_while_drawing(banana):
    drawing, hub = Drawing(SAMPLER, banana.members), banana.hub
    before = repr(hub)
    assert hub.learning is None
    for _ in range(5):
        drawing.tell([BANANA.numba_log_density(r.position) for r in drawing.ask()])
    assert repr(hub) == before
    for member, began in zip(drawing.members, banana.members, strict=True):
        assert member.state.dynamics is began.state.dynamics is hub.dynamics


# --- what chains share, and its guards -----------------------------------------------------------


@pytest.mark.usefixtures("whole_trials")
def test_a_second_mode_is_sampled_with_its_weight():
    """Climbs from starts of their own find both; the surrogate that has seen both takes chains across."""
    draws = pooled_chains.posterior(run(12, 720, target=APART))
    weights = (draws[:, :, 0] > 10.0).mean(axis=1)  # independent chains
    z = (weights.mean() - 0.5) / (weights.std(ddof=1) / math.sqrt(12.0))
    assert abs(z) < 4.5
    assert weights.std() < 0.25


def test_with_one_climb_it_is_missed(monkeypatch):
    """The control: were all chains started by one climb, they would agree on half of the mass."""
    monkeypatch.setattr(climbs, "FEW", 1)
    monkeypatch.setattr(plan_of_chains, "LOOKING", 0.0)
    draws = pooled_chains.posterior(run(16, 800, target=APART))
    assert convergence.judge(draws).rhat < 1.1
    assert np.ptp(draws[:, :, 0]) < 15.0


def tuning_with_one_far_away(where, known):
    """Seven members in the typical set, and one, ``where``, a thousand sds away."""
    rng = np.random.default_rng(5)
    best = np.argsort(-known.log_densities)[:8]
    starts = [Point(known.positions[k], float(known.log_densities[k])) for k in best]
    far = BANANA.mean + 100.0 * np.sqrt(np.diag(BANANA.cov))
    starts[where] = Point(far, BANANA.numba_log_density(far))
    factor = np.diag(np.sqrt(np.diag(BANANA.cov)))
    tuning = Tuning(ByValues(), rng, rng.spawn(8), starts, known, factor, limit=known.size + 300, wait=True)
    return finished(tuning, lambda x: Point(x, BANANA.numba_log_density(x)))


@pytest.fixture(scope="module")
def with_a_sentinel_far_away(banana):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.samplers.pooled.tuning.FORLORN", np.inf)
        patch.setattr(Tuning, "_is_slight", lambda *_: False)
        return tuning_with_one_far_away(3, banana.evaluated)


def behind(tuning, which):
    below = tuning.hub.learning.evaluated.log_densities.max() - tuning.members[which].point.log_density
    return below / elite.depth(4)


def test_a_lost_member_is_fetched_and_a_sentinel_is_not(banana, with_a_sentinel_far_away):
    assert behind(tuning_with_one_far_away(2, banana.evaluated), 2) < 1.0
    assert behind(with_a_sentinel_far_away, 3) > 10.0


def test_a_sentinel_that_is_forlorn_is_fetched(banana):
    """It would be the whole run's R-hat, for a place that cannot have the mass."""
    assert behind(tuning_with_one_far_away(3, banana.evaluated), 3) < 1.0


@pytest.mark.parametrize(("depths", "goes"), [(0.8, ""), (1.6, "a lost member"), (2.4, "both")])
def test_how_far_below_a_member_is_lost_and_a_sentinel_forlorn(banana, depths, goes, monkeypatch):
    monkeypatch.setattr(Tuning, "_is_slight", lambda *_: False)
    tuning = tuning_with_one_far_away(2, banana.evaluated)
    level = tuning.hub.learning.evaluated.log_densities.max() - depths * elite.depth(4)
    found = []
    for which in (2, 3):
        member = tuning.members[which]
        tuning.members[which] = member._replace(point=Point(member.point.position, level))
        found.append(any(tuning._search(which) is not None for _ in range(20)))
    assert found == [goes != "", goes == "both"]


def test_frozen_members_have_the_shares_of_where_they_are(with_a_sentinel_far_away):
    """While tuning a share is one; the first draw after that has both ends of the ratio from what is fixed."""
    hub, found = with_a_sentinel_far_away.freeze()
    assert hub.learning is None
    for member in found:
        x, y = member.point.position, BANANA.numba_log_density(member.point.position)
        fresh = SAMPLER.place(hub, Point(x, y))
        assert member.state.share == fresh.share
        assert member.state.current.log_density == fresh.current.log_density == y
    assert found[3].state.share < 0.5 < found[0].state.share


def test_points_beside_a_proposal_are_in_other_directions_and_the_best_is_where_it_goes_on():
    rng = np.random.default_rng(3)
    state = arrival.init(np.zeros(6), -600.0, scale=1.0)
    for _ in range(6):
        point = arrival.propose(rng, state)
        beside = arrival_beside.propose(rng, state, point, 3)
        steps = np.array([point, *beside]) - state.positions[state.current]
        assert len(steps) == 4
        directions = steps / np.sqrt(np.square(steps).sum(axis=1))[:, None]
        cosines = np.abs(directions @ directions.T)[np.triu_indices(4, 1)]
        assert (cosines > 0.75).sum() <= 1  # a longer step the same way
        values = [-0.5 * float(np.square(x - 14.0).sum()) for x in (point, *beside)]
        told = list(zip(beside, values[1:], strict=True))
        state = arrival.tell(rng, state, point, values[0], told)
        assert state.log_densities[state.current] == state.log_densities[state.own :].max()
    assert state.evaluations == 25
    assert arrival_beside.propose(rng, state, point, 0) == []
    assert arrival_beside.propose(rng, state._replace(move="start"), point, 3) == []


# --- whether there are modes without draws ------------------------------------------------------


def climbed(target, starts, x, scale=5.0, budget=2000, width=1, share=None):
    """Climbs from ``starts``, with ``share`` evaluations before only a few go on."""
    rngs = np.random.default_rng(2).spawn(len(starts))
    state = climbs.init(x, target(x), starts, scale=scale, budget=budget, share=share, width=width)
    while state.active:
        points = climbs.propose(rngs, state)
        assert max(map(len, points)) <= width
        state = climbs.tell(rngs, state, points, [target(x) for of_one in points for x in of_one])
    return state


@pytest.mark.parametrize("width", [1, 2])
def test_climbs_end_in_the_typical_set_within_the_budget(width):
    def log_density(x):
        return -0.5 * float(np.square(x - 10.0).sum())

    climb = partial(climbed, log_density, x=np.zeros(4), scale=1.0, width=width)
    starts = np.random.default_rng(0).uniform(-3, 3, (4, 4))
    state = climb(starts, budget=1000)
    assert 1000 - state.left < 200
    for _, values in climbs.groups(climbs.stop(state)):  # sixty below to begin with, and 2 d + 10 is plausible
        assert values.min() > -25.0
    assert climb(starts, budget=31).left == 0


def test_where_the_way_is_long_only_a_few_climbs_go_on():
    starts = np.random.default_rng(0).uniform(-60, -50, (12, 3))
    for share, least, most in ((2000, 12, 12), (60, 4, 6)):
        state = climbed(APART.numba_log_density, starts, np.full(3, 10.0), share=share)
        assert least <= sum(c.near is not None for c in state.climbs) <= most


@pytest.mark.parametrize("seed", [0, 13])
def test_what_ended_on_a_slope_climbs_on(seed):
    """Of two mixed regressions: some fifty nats below either mode, all at one height (13) or not."""
    case = regressions()
    starts = np.random.default_rng(seed).uniform(-1, 1, (16, 6))
    state = climbed(case.log_density, starts, case.initial, scale=case.scale, budget=1200, share=400)
    x, values = climbs.ends(climbs.stop(state))
    assert values.max() > -113.0  # -107; without, -134 to -168, and of 13 -156 if the highest stays
    assert set(case.modes(x)) == {False, True}


def three(x):
    """Equal modes 15 sds from each other, in two dimensions about 0."""
    angles = np.radians([90.0, 210.0, 330.0])
    means = 15.0 / math.sqrt(3.0) * np.column_stack([np.cos(angles), np.sin(angles)])
    return float(np.logaddexp.reduce(-0.5 * np.square(x - means).sum(axis=1)))


def test_the_first_step_is_away_from_the_initial_point():
    """Climbs that all make it the same way, to the upper right, miss the mode to the lower left."""
    starts = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    state = climbed(three, starts, np.zeros(2))
    ends = np.array([c.positions[c.current] for c in state.climbs])
    to_the_left = (ends[:, 0] < -3.0) & (ends[:, 1] < 0.0)
    assert to_the_left.mean() > 0.2  # of a third, sd .06


def test_an_end_that_has_not_converged_is_not_given_up():
    """Twenty nats below another end it may still be a mode of equal mass; a hundred, it is not."""

    def lower(by):
        return lambda x: float(np.logaddexp(-0.5 * x @ x, -by - 0.5 * np.square(x - 20.0).sum()))

    starts = 10.0 + np.array([[-3.0] * 3, [3.0] * 3])
    for by, kept in ((14.0, 2), (100.0, 1)):
        state = climbs.stop(climbed(lower(by), starts, np.full(3, 10.0)))
        assert len(np.unique(climbs.ends(state)[0] > 10.0)) == kept
        places = {bool(x[0, 0] > 10.0) for x, _ in climbs.groups(state)}
        assert len(places) == kept


def rows_of(x, log_density):
    """Draws (n, d) of sixteen chains."""
    return [Row(part, np.array([log_density(p) for p in part]), []) for part in np.split(x, len(x) // 16)]


@cache
def looked(*drawn_at, left=100):
    """Looks at where climbs ended, four in each of the two modes, and draws of those that are ``drawn_at``."""
    target, rng = APART.numba_log_density, np.random.default_rng(4)
    starts = np.repeat([0.0, 20.0], 4)[:, None] + rng.uniform(-6, 6, (8, 3))
    state = climbed(target, starts, np.full(3, 10.0))
    rows = rows_of(20.0 * rng.choice(drawn_at, (320, 1)) + rng.standard_normal((320, 3)), target)
    found = Looks(rng.spawn(len(starts)), list(state.climbs), left)
    while points := found.ask(rows, math.inf):
        found.tell([target(x) for x in points])
    return found, rows


@pytest.mark.parametrize("one", [0, 1])
def test_a_mode_without_draws_is_told(one):
    found, rows = looked(one)
    told = found.found(rows)
    assert np.abs(told.where - 20.0 * (1 - one)).max() < 3.0
    assert (told.climbs, told.met) == (8, 4)
    assert 0 < 100 - found.left <= 100
    assert looked(one, left=7)[0].left == 0  # and no more than are allowed


def test_a_climb_that_stopped_on_a_slope_climbs_on():
    """It had ended, it seemed, where no draws have to be."""
    target, rng = APART.numba_log_density, np.random.default_rng(4)
    x = np.full(3, 17.0)
    climb = arrival.init(x, target(x), budget=200)._replace(near=Near(1, 60, x, np.eye(3), np.ones(3)))
    found, rows = Looks([rng], [climb], 100), rows_of(rng.standard_normal((320, 3)), target)
    assert climb.log_densities[0] < min(row.log_densities.min() for row in rows)
    while points := found.ask(rows, math.inf):
        found.tell([target(x) for x in points])
    assert np.abs(found.found(rows).where - 20.0).max() < 3.0
    assert Looks([rng], [climb], 0).found(rows).where is None


def test_a_climb_that_was_cut_short_where_draws_are_missing_is_told():
    """Where it is as high as they are, and has been near a top."""
    target, rng = APART.numba_log_density, np.random.default_rng(4)
    rows = rows_of(rng.standard_normal((320, 3)), target)

    def told(at, record):
        x = np.full(3, at)
        past = Record(1, target(x), target(x), 0, 0, np.eye(3)) if record else None
        found = Looks([rng], [arrival.init(x, target(x))._replace(record=past)], 0)
        assert found.ask(rows, math.inf) == []  # nothing is left
        return found.found(rows)

    assert told(20.0, True).where.tolist() == [20.0] * 3
    assert told(20.0, False) == told(16.0, True) == (0, 0, None)


def test_where_draws_are_at_all_ends_nothing_is_told():
    found, rows = looked(0, 1)
    assert found.found(rows) == (8, 8, None)
    assert found.left == 100


def test_draws_are_missing_in_a_mode_eight_sds_away_and_nowhere_on_a_bend():
    """Half way from such a mode to the nearest draw the log density is hardly lower; where a thin bend goes on, draws
    are few, but as many as have to be.
    """
    rng = np.random.default_rng(7)
    there = np.array([8.0, 0.0, 0.0])

    def two(x, second=-1.4):
        return float(np.logaddexp(-0.5 * x @ x, second - 0.5 * (x - there) @ (x - there)))

    draws = Draws(rows_of(rng.standard_normal((1600, 3)), two))
    assert not draws.near(there)
    assert draws.missing(there, two(there))
    low = partial(two, second=-9.0)  # the control: a mode that may well have no draw in 1600
    assert not Draws(rows_of(draws.x, low)).missing(there, low(there))

    def bend(x):
        return float(-0.5 * (((x[1] - x[0] ** 2) / 0.02) ** 2 + (x[0] / 2.0) ** 2))

    def along(a):
        return np.column_stack([a, a**2 + 0.02 * rng.standard_normal(len(a))])

    draws = Draws(rows_of(along(2.0 * rng.standard_normal(320)), bend))
    fresh = along(np.linspace(-8.0, 8.0, 200))
    assert not any(draws.missing(x, bend(x)) for x in fresh)
    assert not all(draws.near(x) for x in fresh)


def test_what_a_mode_without_draws_weighs():
    """Both have the same mass, by Laplace and by neighbours."""
    found, rows = looked(0)
    best = max(mass(found.climbs[k]) for k in found.finished)
    assert abs(best - Draws(rows).log_constant) < 1.0


@pytest.mark.parametrize("far", [True, False])
def test_a_mode_that_no_start_is_near_is_found_from_draws_of_the_prior(far):
    """The control: without them it is missed."""
    rng = np.random.default_rng(3)
    near, draws = rng.uniform(-3.0, 3.0, (9, 3)), rng.normal(10.0, 20.0, (20, 3))
    plan = Plan(draws=None, tune=None, longest=500, max_evaluations=2000)
    chains = Chains(
        near[0], near[1:], np.random.SeedSequence(0), plan, far=draws if far else (), scale=np.full(3, 13.0)
    )
    finished(chains, APART.numba_log_density)
    assert pooled_chains.posterior(chains).max() < 10.0
    where = chains.sought().where
    assert (where is not None and np.abs(where - 20.0).max() < 3.0) == far


def test_a_run_that_is_made_longer_climbs_and_looks_as_it_was_begun():
    """Or its first rounds would be other ones; the control: one that is begun with more."""
    longer = automatic(2, 8, most=700)._replace(max_evaluations=1000)
    assert longer.looking == automatic(2, 8, most=700).looking < automatic(2, 8, most=1000).looking


def test_draws_in_an_angles_other_periods_are_near():
    rng = np.random.default_rng(0)
    found = 0.3 * rng.standard_normal((7, 4, 2))
    found[:, :, 0] += 2.0 * np.pi * np.arange(-3.0, 4.0)[:, None] + 1.0
    rows = [Row(x, np.zeros(4), []) for x in found]
    window = circles.around(np.array([0]), np.array([0.5, 0.0]))
    draws = Draws(rows, window)
    for turns in (0, 1, -5):
        assert draws.near(np.array([1.0 + 2.0 * np.pi * turns, 0.0]))
        assert not draws.near(np.array([1.0 + np.pi + 2.0 * np.pi * turns, 0.0]))
    assert np.abs(draws.x[:, 0] - 0.5).max() <= np.pi
    assert np.abs(Draws(rows).x[:, 0]).max() > 15.0
    farthest = draws.x[np.argmax(draws.x[:, 0])]
    cut = Draws(rows, circles.around(np.array([0]), np.array([farthest[0] + 0.01 - np.pi, 0.0])))
    assert cut.near(farthest + np.array([0.02, 0.0]))
    cut = Draws(rows, circles.around(np.array([0]), np.array([1.0 + np.pi - 0.01, 0.0])))  # through the middle
    assert cut.near(np.array([1.0, 0.0]))
    assert not cut.missing(np.array([1.02, 0.0]), 0.0)


def test_looks_change_no_draw(monkeypatch):
    looked = looked_for("draws", 15)
    monkeypatch.setattr(production, "_looks", lambda chains, _members: chains.looks)
    without = run(target=FAR_APART, longest=250, begun_with=700, max_evaluations=None, draws=15)
    assert not (without.evaluated.move == "look").any()
    assert pooled_chains.posterior(without).tobytes() == pooled_chains.posterior(looked).tobytes()


# --- R-hat of groups ------------------------------------------------------------------------------


GROUPS = [k // 4 for k in range(16)]


def test_nested_rhat_is_one_for_independent_draws_and_sees_groups_that_disagree():
    draws = np.random.default_rng(0).standard_normal((16, 30, 3))
    agreed = convergence.nested_rhat(draws, GROUPS)
    assert (agreed < 1.02).all()
    draws[:4, :, 1] += 1.0
    apart = convergence.nested_rhat(draws, GROUPS)
    assert apart[1] > 1.1
    assert apart[0] == agreed[0]


def test_nested_rhat_is_arviz():
    stats = pytest.importorskip("arviz_stats")
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((16, 30)) + np.repeat(rng.standard_normal(4), 4)[:, None]
    theirs = stats.base.array_stats.rhat_nested(draws, superchain_ids=np.array(GROUPS), method="z_scale")
    np.testing.assert_allclose(convergence.nested_rhat(draws[..., None], GROUPS)[0], theirs, rtol=0.02)


def test_chains_that_stand_apart_do_not_make_their_groups_disagree():
    """Means of groups of four differ by a quarter of the variance between chains: sqrt(1 + 1 / 4) on average."""
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((32, 1, 5)) + 1e-3 * rng.standard_normal((32, 30, 5))
    found = convergence.nested_rhat(draws, [k // 4 for k in range(32)])
    assert abs(found.mean() - math.sqrt(1.25)) < 0.1


# --- computed while evaluations are made elsewhere --------------------------------------------------


def ahead(is_over, target=BANANA, most=500):
    """A run that guesses while its points are evaluated: it, and how many guesses there were and came true."""
    chains = begun(target, 8, most)
    true = guessed = 0
    while not chains.done:
        points = [request.position for request in chains.ask()]
        chains.ahead(is_over)
        drawing = getattr(chains._phase, "drawing", None)
        guessed += sum(g is not None for g in drawing._guesses.values()) if drawing else 0
        chains.tell([target.numba_log_density(x) for x in points])
        true += sum(found is not None for found in drawing._next) if drawing else 0
    return chains, guessed, true


def test_guesses_change_no_bit(monkeypatch, whole_trials):
    """On a flower, whose surrogate is not trusted everywhere, so that guesses fail in every way."""
    monkeypatch.setattr(learning, "LATEST", 0.0)  # one surrogate for all petals
    target = Flower(10.0, 6.0, 6, dim=2)
    alone = run(target=target)
    with_, guessed, true = ahead(lambda: False, target)
    assert guessed > 100
    assert 20 < true < guessed - 20
    for name in ("positions", "log_densities"):
        got, wanted = (getattr(c.evaluated, name).tobytes() for c in (with_, alone))
        assert got == wanted
    for got, wanted in zip(with_.rows, alone.rows, strict=True):
        assert got.positions.tobytes() == wanted.positions.tobytes()
        assert repr(got.statistics) == repr(wanted.statistics)
    shares = np.array([s["share"] for row in with_.rows for s in row.statistics])
    assert (shares < 1.0).any()


def test_guesses_are_thrown_away_where_outcome_or_share_are_others():
    _, [(rng, point, state)], _ = frozen_members(1)
    proposal = SAMPLER.propose(rng, point.position, state)
    found = pooled_ahead.guess(SAMPLER, rng, point, state, proposal)
    right, wrong = state._replace(share=found.share), state._replace(share=0.5 * found.share)
    assert pooled_ahead.come_true(found, rng, point, wrong, found.accepted) is None
    assert pooled_ahead.come_true(found, rng, point, right, not found.accepted) is None
    assert pooled_ahead.come_true(found, rng, point, right, found.accepted) is not None


def test_nothing_is_guessed_when_evaluations_are_over():
    assert ahead(lambda: True, most=200)[1:] == (0, 0)
