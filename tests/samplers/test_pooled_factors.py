"""Chains that learn black boxes one by one together: each is exact when frozen, the same told gives the same."""

from copy import copy
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.by_factors import ByFactors
from pymc_kameleon.samplers.pooled.chains import Chains
from pymc_kameleon.samplers.pooled.tuning import Tuning
from pymc_kameleon.samplers.seam import Point
from tests.samplers.test_factored_kamiltonian import compiled_toy, frozen
from tests.support.pooled import finished, members_and_chains, plan_of

# --- the frozen kernel ----------------------------------------------------------------------------


def test_a_member_is_the_sampler_that_a_single_chain_runs():
    """Bit for bit; of which test_factored_kamiltonian.py says that it is exact, and what is not."""
    toy, rng = compiled_toy(), np.random.default_rng(6)
    sampler, starts = FactoredKamiltonian(known=toy), toy.draw(rng, 20)
    members, chains = members_and_chains(sampler, frozen(sampler, rng, 0.5), toy, starts)
    assert members == chains
    assert (np.array(members)[:, :4] != starts).any(axis=1).all()
    for *x, log_density, _ in members:  # what is retained is of where it is
        assert log_density == toy(np.array(x))


# --- learning -------------------------------------------------------------------------------------


def test_each_member_climbs_by_itself():
    """On what all have evaluated, and where its own climb is."""
    learner = ByFactors(compiled_toy())
    hub = learner.hub([Point(np.zeros(4), 0.0)], None, None, 50)
    climbs = [learner.own(hub, number, None) for number in (1, 2)]
    shown = [learner.view(hub, SimpleNamespace(current=None, own=climb)) for climb in climbs]
    assert [state.learning.climb.number for state in shown] == [1, 2]
    assert all(state.learning.evaluated is hub.learning.evaluated for state in shown)


def found_by(toy, x):
    return np.concatenate([[toy(x)], toy.outputs])


def run(seed=1, most=300, known=None, **plan):
    toy, starts = compiled_toy(), np.random.default_rng(seed).uniform(-2.0, 2.0, (6, 4))
    plan = plan_of(most)._replace(**plan)
    chains = Chains(np.zeros(4), starts, np.random.SeedSequence(seed), plan, learner=ByFactors(toy), known=known)
    return finished(chains, partial(found_by, toy))


@cache
def once():
    return run()


def test_few_evaluations_are_enough():
    chains = once()
    assert chains.evaluated.size <= 300
    assert chains.hub.quality.residual_sd <= 0.1
    draws = pooled_chains.posterior(chains)
    exact = compiled_toy().draw(np.random.default_rng(9), 4000)
    z = (draws.mean(axis=(0, 1)) - exact.mean(axis=0)) / (exact.std(axis=0) / np.sqrt(0.3 * draws[..., 0].size))
    assert np.abs(z).max() < 4.5
    moves = [s["move"] for row in chains.rows for s in row.statistics]
    assert np.mean([m.startswith("surrogate") for m in moves]) > 0.8


def test_tuning_takes_its_time_to_see_tails(whole_trials):
    """However good the surrogate is where the chains were."""
    made = run(most=1000, draws=10), run(most=1000, draws=10, earliest=450)
    good, patient = (chains.evaluated.size - len(chains.rows) * 6 for chains in made)
    assert good < 450 <= patient


def test_the_record_has_what_came_back():
    made, toy = once().evaluated, compiled_toy()
    assert made.outputs.shape == (made.size, 2)
    for row in range(0, made.size, 17):
        assert made.log_densities[row] == toy(made.positions[row])
        np.testing.assert_array_equal(made.outputs[row], toy.outputs)


def test_nothing_changes_while_drawing():
    chains = once()
    assert chains.hub.learning is None
    for member in chains.members:
        assert member.state.learning is None
        assert member.state.surface is chains.hub.surface
        assert member.state.mixture is chains.hub.mixture


def test_what_is_known_is_learned_from_at_once():
    known = once().evaluated
    chains = run(seed=3, known=known)
    assert not (chains.evaluated.move == "climb").any()
    tuned = [c.evaluated.size - len(c.rows) * len(c.starts) for c in (chains, once())]
    assert tuned[0] < tuned[1]
    assert (chains.hub.fit.errors < 0.05).all()


def test_log_densities_alone_say_where_to_begin():
    known = once().evaluated
    alone = evaluations.table(known.positions, known.log_densities)
    chains = run(seed=3, known=alone)
    assert (chains.evaluated.move == "climb").any()
    assert chains.evaluated.outputs.shape[1] == 2
    starts = chains.evaluated.log_densities[chains.evaluated.move == "start"]
    assert starts.min() > known.log_densities.max() - 20.0


@cache
def tuned_with_one_far_away(where):
    """Seven members at draws, and one, ``where``, far below."""
    toy, rng = compiled_toy(), np.random.default_rng(5)
    v = toy.draw(rng, 60)
    rows = [found_by(toy, x) for x in v]
    y, outputs = evaluations.taken_apart(rows)
    known = evaluations.table(v, y, outputs=outputs)
    starts = [Point(x, value) for x, value in zip(v[:8], y[:8], strict=True)]
    far = np.array([0.0, 2.5, 25.0, -25.0])
    starts[where] = Point(far, toy(far))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.samplers.pooled.tuning.FORLORN", np.inf)
        patch.setattr(Tuning, "_is_slight", lambda *_: False)
        tuning = Tuning(ByFactors(toy), rng, rng.spawn(8), starts, known, np.eye(4), limit=140, wait=True, base=60)
        return finished(tuning, lambda x: Point(x, toy(x), None, toy.outputs))


@pytest.mark.parametrize(("where", "fetched"), [(2, True), (3, False)])
def test_a_lost_member_is_fetched_and_a_sentinel_is_not(where, fetched):
    tuning = tuned_with_one_far_away(where)
    moves = tuning.hub.learning.evaluated.move
    assert (moves == "search").any() == fetched
    others = max(m.point.log_density for m in tuning.members)
    assert (tuning.members[where].point.log_density > others - 18.0) or not fetched


@pytest.mark.parametrize(
    ("below", "wide", "distinct", "slight"),
    [
        (30.0, 0.3, 12, True),
        (30.0, 30.0, 12, False),
        (12.0, 0.3, 12, False),
        (30.0, 0.3, 5, False),
        (30.0, 0.3, 0, False),
    ],
)
def test_a_sentinel_stays_where_there_may_be_mass(below, wide, distinct, slight, monkeypatch):
    """Of a Kepler orbit some stayed where its eccentricity is 0, 28 nats below, and R-hat refused the run."""
    tuning, rng = copy(tuned_with_one_far_away(3)), np.random.default_rng(0)
    high = max(m.point.log_density for m in tuning.members)
    x, y = rng.standard_normal((40, 8, 4)), np.full((40, 8), high - 2.0)
    x[:, 3] = 10.0 + wide * rng.standard_normal((40, 4))
    y[:, 3] = high - 2.0 - below - 0.01 * (np.arange(40) % max(distinct, 1))
    tuning.members = [
        m._replace(point=Point(p, float(v))) for m, p, v in zip(tuning.members, x[-1], y[-1], strict=True)
    ]
    tuning.track = list(zip(x, y, strict=True)) if distinct else []
    assert tuning._is_slight(3) == slight
    monkeypatch.setattr("pymc_kameleon.samplers.pooled.tuning.FORLORN", np.inf)
    assert any(tuning._search(3) is not None for _ in range(20)) == slight


def test_the_best_of_the_members_is_what_a_surrogate_is_made_for():
    """States of those that are on their way set no coordinates."""
    hub, found = tuned_with_one_far_away(3).freeze()
    assert len(found) == 8
    assert hub.learning is None
    assert np.abs(hub.archive).max() < 15.0
    assert (np.array([m.state.share for m in found]) <= 1.0).all()


def test_probes_look_where_no_chain_goes():
    chains = once()
    drawn = np.array([row.positions for row in chains.rows]).reshape(-1, 4)
    probed = chains.evaluated.positions[chains.evaluated.move == "probe"]
    assert len(probed) >= 6
    assert np.square(probed).sum(axis=1).mean() > np.square(drawn).sum(axis=1).mean()
    assert chains.probed().missed == 0
