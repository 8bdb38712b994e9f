"""Which kernel pays: free chains against theory, shares against efficiencies; the states that a fit refers to."""

import math

import numpy as np
import pytest

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.kamiltonian.sampler import Carry
from pymc_kameleon.samplers.kamiltonian.values import refits, tuning
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.sampler import SAMPLER, ValueKamiltonian
from pymc_kameleon.samplers.seam import Outcome, Proposal
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS
from pymc_kameleon.surrogates.values import features as value_features
from tests.support.chains import held, run_chain


def normal_dynamics(d=3, step_size=0.15, size=500):
    """A standard normal surrogate and exact draws as its archive."""
    surrogate = value_features.blank(np.zeros(d), np.ones(d), np.eye(d))
    surrogate = surrogate._replace(quadratic=-np.eye(d))
    archive = np.random.default_rng(1).standard_normal((size, d))
    return surrogate_dynamics.make_dynamics(surrogate, np.eye(d), archive, step_size)


def test_free_chains_have_the_autocorrelation_time_of_theory():
    """One trajectory of time t has correlation cos t, its square cos^2 t; both chains are of first order."""
    arm = ARMS[1]
    t = np.linspace(1.0 - arm.spread, 1.0 + arm.spread, 10_001) * arm.time
    theory = [(1.0 + c) / (1.0 - c) for c in (np.cos(t).mean(), np.square(np.cos(t)).mean())]
    # integration times are whole numbers of steps of random size: on average half a step longer
    dynamics = normal_dynamics(step_size=0.02)
    runs = [kamiltonian_worth.try_arms(np.random.default_rng(seed), dynamics)[0][1] for seed in range(6)]
    standard_error = np.std(runs, ddof=1) / math.sqrt(len(runs))
    assert abs(np.mean(runs) - math.sqrt(theory[0] * theory[1])) < 4.5 * standard_error
    # control: the short arm is not taken for it
    short = kamiltonian_worth.try_arms(np.random.default_rng(0), dynamics)[0][0]
    assert short - np.mean(runs) > 10.0 * standard_error


def test_no_longer_arm_is_tried_than_is_needed(monkeypatch):
    monkeypatch.setattr(kamiltonian_worth, "ENOUGH", 3.0)
    times, gradients = kamiltonian_worth.try_arms(np.random.default_rng(0), normal_dynamics())
    assert np.isfinite(times[1])
    assert np.isinf(times[2:]).all()
    assert np.isinf(gradients[2:]).all()


def worth(**changes):
    known = kamiltonian_worth.empty(2)._replace(
        times=np.array([6.0, 1.5, 1.0, 1.0]), work=np.array([0.02, 0.03, 0.1, 0.5]), expected=0.9
    )
    return known._replace(**changes)


def test_of_equally_good_arms_the_cheaper_is_preferred():
    _, scores = kamiltonian_worth.scores(worth())
    assert scores[2] > scores[3] > scores[0]
    shares = kamiltonian_worth.shares(worth())
    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    assert shares[3] > shares[4]


def test_what_has_been_seen_outweighs_what_the_fit_promised():
    """A held-out error can be .01 where the surrogate is wrong by thousands: some dozens of trials say so."""
    seen = worth()
    assert kamiltonian_worth.shares(seen)[0] < 0.5
    for _ in range(40):
        seen = kamiltonian_worth.learn(seen, 2, np.zeros(2), 0.0)
        seen = kamiltonian_worth.learn(seen, 0, np.ones(2), 0.3)
    assert kamiltonian_worth.acceptance(seen)[1] < 0.1
    assert kamiltonian_worth.shares(seen)[0] > 0.5


def test_an_arm_that_was_not_tried_is_not_chosen():
    untried = worth(times=np.array([6.0, 1.1, np.inf, np.inf]))
    assert (kamiltonian_worth.shares(untried)[3:] == 0.0).all()


def test_arms_are_tried_again_when_the_evaluations_have_grown():
    """A surrogate can be right wherever the chain has been, and the chain find another mode later."""
    rng, dynamics = np.random.default_rng(0), normal_dynamics(d=2)
    seen = worth(expected=1.0, tried=200)
    for evaluations, again in ((250, False), (400, True)):
        after = kamiltonian_worth.after_refit(rng, seen, dynamics, 1e-3, np.ones(2), evaluations)
        assert (after.times is not seen.times) == again
        assert after.tried == (evaluations if again else 200)


@pytest.mark.parametrize(("most", "patience"), [(1e10, (3, 6)), (4.0, (3, 1)), (2.0, (2, 1)), (0.1, (1, 1))])
def test_a_patient_trial_is_as_long_as_is_affordable(monkeypatch, most, patience):
    """``most`` in trials without patience, which may take as long as they do."""
    seen, dynamics = [], normal_dynamics()

    def tried(*given):
        seen.append(given[-1])
        return np.ones(4), np.ones(4)

    monkeypatch.setattr(kamiltonian_worth, "try_arms", tried)
    once = value_features.work(dynamics.surrogate) * kamiltonian_worth._gradients(dynamics, kamiltonian_worth.CHEAP)
    choice = kamiltonian_worth.CHEAP._replace(most=most if most > 100.0 else (most + 0.5) * once)
    kamiltonian_worth.tried_anew(None, worth(), dynamics, 100, choice, (3, 6))
    assert seen == [patience]


def test_the_gradients_of_a_trial_are_about_as_many_as_expected(monkeypatch):
    monkeypatch.setattr(kamiltonian_worth, "ENOUGH", 0.0)  # all arms are tried
    dynamics = normal_dynamics()
    found = (
        kamiltonian_worth.try_arms(np.random.default_rng(0), dynamics)[1]
        @ kamiltonian_worth.CHEAP.lengths
        * kamiltonian_worth.CHEAP.chains
    )
    assert kamiltonian_worth._gradients(dynamics, kamiltonian_worth.CHEAP) == pytest.approx(found, rel=0.3)


@pytest.mark.parametrize(("choice", "tried"), [(kamiltonian_worth.DEAR, False), (kamiltonian_worth.CHEAP, True)])
def test_of_given_times_no_free_chain_is_run_and_the_longest_arm_begins_as_the_best(monkeypatch, choice, tried):
    runs, nothing = [], kamiltonian_worth.empty(3, choice)
    monkeypatch.setattr(kamiltonian_worth, "free_chains", lambda *_: runs.append(1) or (np.ones((6, 2, 3)), 1.0))
    known = kamiltonian_worth.after_refit(
        np.random.default_rng(0), nothing, normal_dynamics(), 0.1, np.ones(3), 100, choice
    )
    assert bool(runs) == tried
    if not tried:
        np.testing.assert_array_equal(known.times, choice.times)
        assert kamiltonian_worth.shares(known).argmax() == len(choice.arms)


def test_a_region_that_trajectories_leave_does_not_shrink_the_step():
    """However small the steps, the path leaves D: its stability until there is what the step size is tuned by."""
    dynamics = normal_dynamics(step_size=0.3)
    free = surrogate_dynamics.find_step_size(np.random.default_rng(0), dynamics, 300)[0]
    tight = dynamics._replace(radius=2.0, archive=0.5 * dynamics.archive)
    bounded = surrogate_dynamics.find_step_size(np.random.default_rng(0), tight, 300)[0]
    assert bounded.step_size > 0.5 * free.step_size
    # and a path that leaves because its steps are too long does
    wild = tight._replace(step_size=11.0, radius=30.0)
    arm = ARMS[1]._replace(time=100.0)
    path = surrogate_dynamics.run(np.random.default_rng(0), np.ones(3), wild, arm)
    assert not path.moved
    assert path.accept_prob < 0.01


# --- the states that a fit refers to --------------------------------------------------------------


def after_a_transient(length, d=2):
    """A state whose chain climbed from -1000 for 60 draws and then stood in the typical set."""
    rng = np.random.default_rng(2)
    start = np.full(d, 60.0)
    state = held(ValueKamiltonian, start, rng=rng).start(start, -1000.0)
    for n in range(length):
        x = np.full(d, 60.0 - n) if n < 60 else rng.standard_normal(d)
        y = -1000.0 + n * 16.0 if n < 60 else -0.5 * float(x @ x)
        proposal = Proposal(x, 0.0, "global", Carry(0, np.zeros(0), 0.0, x))
        state = state.adapt(rng, Outcome(x, y, proposal, y, 1.0, True))
    return state


def test_the_transient_is_no_reference():
    states, values = refits.reference_states(after_a_transient(300))
    assert values.min() > -20.0
    assert np.abs(states).max() < 6.0
    assert len(states) == len(values) > 200  # and nothing but the transient is left out


def test_a_chain_that_has_hardly_moved_refers_to_the_best_points():
    state = after_a_transient(7)
    states, values = refits.reference_states(state)
    assert values[0] == values.max() == pytest.approx(-904.0, rel=1e-12)
    assert len(states) == len(values)


# --- what the last refit has not seen -------------------------------------------------------------


@pytest.fixture(scope="module")
def tuned():
    """A state of 600 tuning draws on a standard normal."""
    state, x = held(ValueKamiltonian, np.zeros(2)).start(np.zeros(2), 0.0), np.zeros(2)
    return run_chain(np.random.default_rng(5), state, lambda x: -0.5 * float(x @ x), x, 600).held.state


def elsewhere(state, shift):
    """The same after as many draws at a mode ``shift`` away, which the surrogate is right about, too."""
    walk, learning = state.walk, state.learning
    past, values = walk.history, learning.chain_log_densities
    before = past.buffer[: past.size].copy(), values.buffer[: values.size].copy()
    for x, value in zip(*before, strict=True):
        past, values = history.append(past, x + shift), history.append(values, value)
    return state._replace(walk=walk._replace(history=past), learning=learning._replace(chain_log_densities=values))


def fitted_at(state, size):
    """The same, with its last refit at ``size`` evaluations."""
    schedule = state.learning.schedule._replace(last_refit=size)
    return state._replace(learning=state.learning._replace(schedule=schedule))


def test_a_chain_that_has_been_elsewhere_needs_a_refit(tuned):
    size = tuned.learning.evaluated.size
    sooner = fitted_at(tuned, int(size / 1.2))
    assert not tuning.is_stale(sooner)  # twenty per cent more of the same
    assert tuning.is_stale(elsewhere(sooner, np.array([5.0, 0.0])))


def test_the_frozen_archive_is_of_the_whole_chain(tuned):
    shift = np.array([40.0, 0.0])
    far = elsewhere(tuned, shift)
    far = fitted_at(far, far.learning.evaluated.size)
    frozen = SAMPLER.freeze(far).dynamics
    states = frozen.archive @ np.linalg.inv(frozen.inverse).T + frozen.surrogate.centre
    assert 0.2 < np.mean(states[:, 0] > 20.0) < 0.8
    assert (np.square(frozen.archive).sum(axis=1) < frozen.radius**2).all()
