"""The search for the coordinates' units, and that scales survive noise: what any cold start here has to stand."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers import coordinate_moves, noise_probe
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.life import NOWHERE, Life
from pymc_kameleon.samplers.seam import Density, Outcome, Point, attainable
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.support.chains import held, run_chain

UNITS = 10.0 ** np.array([-12, -4, 0, 4, 12])


both = pytest.mark.parametrize("algorithm", [GaussianAdaptation, CMA])
all_three = pytest.mark.parametrize("algorithm", [GaussianAdaptation, CMA, AdaptiveMetropolis])


def outcome(x, proposal, probability, noise_sd=0.0):
    return Outcome(x, 0.0, proposal, 0.0, probability, False, noise_sd=noise_sd)


# --- units ---------------------------------------------------------------------------------------


def units_z(algorithm, **options):
    """z-scores of the variances of N(0, diag(UNITS^2)), over chains that start at two sd from the centre."""
    moments, x = [], 2 * UNITS
    log_density = lambda x: -0.5 * float(np.sum((x / UNITS) ** 2))  # noqa: E731
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tuned = run_chain(rng, held(algorithm, x, **options), log_density, x, 1500)
        frozen = run_chain(rng, tuned.held.freeze(), log_density, tuned.draws[-1], 1500, tuning=False)
        moments.append(np.mean((frozen.draws / UNITS) ** 2, axis=0) - 1.0)
    spread = np.std(moments, axis=0, ddof=1) / math.sqrt(len(moments))
    assert np.all(spread < 0.2)
    return np.mean(moments, axis=0) / np.maximum(spread, 1e-6)


@all_three
def test_units_from_1e_12_to_1e12_are_found(algorithm):
    assert np.abs(units_z(algorithm)).max() < 4.5


@both
def test_control_without_the_search_units_are_not_found(algorithm):
    assert np.abs(units_z(algorithm, sweeps=0)).max() > 10


@both
def test_the_search_starts_where_it_is_told_and_leaves_correlations_alone(algorithm):
    root = np.linalg.cholesky(np.array([[4.0, 1.0], [1.0, 9.0]])) / 35**0.25
    state, alone = (
        held(algorithm, np.zeros(2), initial_scale=np.array([2.0, 3.0]), sweeps=n)._replace(factor=root) for n in (3, 0)
    )
    np.testing.assert_allclose(np.exp(state.phase.start), 2.38 * np.array([2.0, 3.0]), rtol=1e-12)
    ended = state.freeze()  # nothing found yet: nothing changes
    np.testing.assert_allclose(ended.factor, alone.factor, rtol=1e-12)
    rng, x = np.random.default_rng(1), np.zeros(2)
    for i in range(6):
        assert state.phase.iteration == i
        proposal = state.propose(rng, x)
        assert proposal.move == "coordinate"
        assert np.flatnonzero(proposal.position).tolist() == [i % 2]
        state = state.adapt(rng, outcome(x, proposal, 1.0))
    assert state.phase is None
    assert state.propose(rng, x).move == ""
    np.testing.assert_allclose(np.diag(state.factor).prod(), 1.0, rtol=1e-12)
    found = state.factor @ state.factor.T
    assert found[0, 1] / math.sqrt(found[0, 0] * found[1, 1]) == pytest.approx(1 / 6)
    growth = 3 * coordinate_moves.GAIN * (1 - coordinate_moves.TARGET_ACCEPT)  # each coordinate: 3 acceptances
    scaling = state.stats()["scaling"] / alone.stats()["scaling"]
    assert math.log(scaling) == pytest.approx(growth, rel=1e-12)


def test_the_search_takes_at_most_a_fifth_of_tuning():
    assert coordinate_moves.length(3, None) == 60
    assert coordinate_moves.length(3, 1000) == 60
    assert coordinate_moves.length(3, 100) == 20
    assert held(GaussianAdaptation, np.zeros(3), tune=100).phase.length == 20
    assert held(CMA, np.zeros(3), tune=4).phase is None


def test_the_rate_falls_only_when_the_direction_turns():
    scales, turns, x = np.zeros(1), np.zeros(1), np.zeros(1)
    for probability, expected in ((1.0, 4 * 0.56), (1.0, 8 * 0.56), (0.0, 8 * 0.56 - 2 * 0.44)):
        scales, turns = coordinate_moves.adapt(scales, turns, 0, outcome(x, None, probability))
        assert scales[0] == pytest.approx(expected, rel=1e-12)
    assert turns[0] == -2


# --- noise ---------------------------------------------------------------------------------------


def frozen(algorithm):
    """(scale, sd of the chain) after tuning on N(0, 1) with noise of sd 1.8, of two chains."""
    found = []
    for rng in np.random.default_rng(1).spawn(2):
        own, density = rng.spawn(1)[0], Density(1)
        density.noisy = True
        life = Life(algorithm(), density, rng)

        def evaluate(proposal, here, own=own):
            x = proposal.position
            return Point(x, 1.8 * own.standard_normal() - 0.5 * float(x @ x), here.noise)

        life.put(Point(np.array([0.5]), 0.0, NOWHERE.noise))
        for _ in range(2500):
            life.draw(evaluate)
        life.freeze()
        draws = [(life.draw(evaluate), life.here.position[0])[1] for _ in range(1500)]
        found.append((life.sampler.stats(life.state.own)["scaling"], np.std(draws)))
    return np.array(found)


@all_three
def test_scales_do_not_collapse_under_noise(algorithm, monkeypatch):
    scales, sds = frozen(algorithm).T
    assert scales.min() > 0.5, scales  # best: about 2.4 times the target's sd
    assert sds.min() > 0.5, sds
    # The control: tuned to the absolute acceptance, on estimates that hold the chain as they do after tuning.
    monkeypatch.setattr(noise_probe, "is_held", lambda probe: False)
    monkeypatch.setattr(Outcome, "target", lambda self, target_accept: target_accept)
    assert frozen(algorithm)[:, 0].min() < 0.1


@both
def test_the_target_is_what_the_noise_leaves_attainable(algorithm):
    """With that for an acceptance probability the scale stays as it is; with more it grows."""
    rng, x = np.random.default_rng(1), np.zeros(2)
    options = {"target_accept": 0.25, "sweeps": 0, "diminishing": False}
    for noise_sd in (0.0, 1.8):
        state, scales = held(algorithm, x, **options), []
        for _ in range(400):
            proposal = state.propose(rng, x)
            told = outcome(x, proposal, attainable(0.25, noise_sd), noise_sd)
            state = state.adapt(rng, told)
            scales.append(state.stats()["scaling"])
        after = scales[-1]
        assert after == pytest.approx(scales[300], rel=1e-6)
        told = outcome(x, proposal, 1.2 * told.accept_prob, noise_sd)
        for _ in range(60):
            state = state.adapt(rng, told)
        assert state.stats()["scaling"] > after
