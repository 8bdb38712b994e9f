"""Tuning under noise: scales follow what noise leaves attainable, so that noise alone cannot shrink them."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import coordinate_moves, noise_probe
from pymc_kameleon.samplers import seam as metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from tests import step_tester as tester
from tests.samplers.test_life import born, lived, noisy, on_a_line
from tests.samplers.test_seam import every_sampler


def test_what_failed_is_no_noise():
    """A NaN among the probes leaves its pair out: neither half is paired with another point's."""
    values, probe = [0.0, 1.0, math.nan, 5.0, 9.0, math.nan, 2.0, 4.0], noise_probe.NoiseProbe()
    for value in values:
        probe = noise_probe.record(probe, value, None)
    assert probe.squares == (0.5, 2.0)
    assert probe.pairs == 2


class Estimate:
    """N(0, 1) with log-estimate noise of sd 2: a step of length zero is accepted with probability 0.16."""

    def __call__(self, rng, x):
        return -0.5 * float(x) ** 2 + 2.0 * rng.standard_normal() - 2.0


def variances():
    """Of six chains after tuning."""
    found = []
    for rng in np.random.default_rng(1).spawn(6):
        life, evaluate = on_a_line(AdaptiveMetropolis(tune=1500), Estimate(), rng)
        lived(life, evaluate, 1500)
        life.freeze()
        draws = [(life.draw(evaluate), life.here.position[0])[1] for _ in range(3000)]
        found.append(np.var(draws))
    return found


def test_strong_noise_does_not_stop_the_chain():
    assert np.median(variances()) > 0.5


def test_with_absolute_acceptance_it_does(monkeypatch):
    monkeypatch.setattr(metropolis.Outcome, "target", lambda self, target_accept: target_accept)
    monkeypatch.setattr(noise_probe, "HELD", math.inf)  # which helps, too
    assert np.median(variances()) < 0.1


@pytest.mark.parametrize("noisy", [True, False])
def test_one_evaluation_a_draw_and_probes_only_where_there_is_noise(noisy):
    with pm.Model() as model:
        x = pm.Normal("x")
        if noisy:
            pm.Potential("likelihood", pk.NoisyLogLikelihood(Estimate())(x))
        step = pk.AdaptiveMetropolisStep()
        step.set_rng(np.random.default_rng(0))
        point, moves = model.initial_point(), []
        for _ in range(200):
            retained = step.log_density
            point, [statistics] = step.step(point)
            moves.append(statistics["move"])
            if moves[-1] == "refresh":  # measured, never taken over
                assert step.log_density == retained
    assert moves.count("refresh") == (20 if noisy else 0)
    assert step.evaluations == 201


def test_a_chain_measures_its_own_noise():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(Estimate())(x))
        step = pk.AdaptiveMetropolisStep()
    alone = tester.drive(tester.begin(step, seed=2), model.initial_point(), 20, 300)
    assert step.life.state.probe.pairs > 5
    tester.begin(step, seed=1)
    assert step.life.state.probe == noise_probe.NoiseProbe()
    tester.drive(step, model.initial_point(), 20, 300)
    after = tester.drive(tester.begin(step, seed=2), model.initial_point(), 20, 300)
    tester.assert_same_draws(alone, after)


# --- what is measured ------------------------------------------------------------------------


def fill(pairs, sd, seed, retained=False):
    """The probe after ``pairs`` pairs under Gaussian noise; with ``retained`` the first value is a chain's own."""
    rng, probe, kept = np.random.default_rng(seed), noise_probe.NoiseProbe(), 0.0
    for _ in range(pairs):
        first, second = sd * rng.standard_normal(2)
        if retained:
            for proposed in sd * rng.standard_normal(20):
                if rng.random() < metropolis.acceptance_probability(kept, proposed, 0.0):
                    kept = proposed
            first = kept
        probe = noise_probe.record(noise_probe.record(probe, first, None), second, None)
    return probe


@pytest.mark.parametrize("sd", [1.5, *(pytest.param(sd, marks=pytest.mark.slow) for sd in (0.5, 2.5))])
def test_variance_is_measured_without_bias(sd):
    # half a squared difference over the variance is chi-square(1), the mean of n of them has variance 2 / n
    n = 400
    found = np.array([fill(noise_probe.MEASURED, sd, seed).variance for seed in range(n)]) / sd**2
    z = (found.mean() - 1.0) / math.sqrt(2.0 / noise_probe.MEASURED / n)
    assert abs(z) < 4.5
    # Control: the value that the chain retains was selected.
    found = [fill(noise_probe.MEASURED, sd, seed, retained=True).variance for seed in range(n)]
    z = (np.mean(found) / sd**2 - 1.0) / math.sqrt(2.0 / noise_probe.MEASURED / n)
    assert z > 10


def test_what_was_measured_at_the_start_is_forgotten():
    probe = noise_probe.NoiseProbe()
    for _ in range(30):  # two thirds of them far from the posterior
        probe = noise_probe.record(noise_probe.record(probe, 0.0, None), 1e3, None)
    assert probe.variance == noise_probe.LARGEST
    for _ in range(15):
        probe = noise_probe.record(noise_probe.record(probe, 0.0, None), 1.0, None)
    assert probe.variance == 0.5
    probe = noise_probe.record(noise_probe.record(probe, 0.0, None), -math.inf, None)
    assert probe.variance < 4.0  # an estimate of zero counts, up to a bound
    for _ in range(1000):
        probe = noise_probe.record(noise_probe.record(probe, 0.0, None), 1.0, None)
    assert len(probe.squares) == noise_probe.MEMORY


def test_standstill_acceptance_is_that_of_a_step_of_length_zero():
    rng, sd = np.random.default_rng(3), 1.3
    retained = sd * rng.standard_normal(200_000) + sd**2  # as selected at stationarity
    accepted = np.exp(np.minimum(0.0, sd * rng.standard_normal(200_000) - retained))
    error = accepted.std(ddof=1) / math.sqrt(accepted.size)
    assert abs(accepted.mean() - noise_probe.standstill_acceptance(sd)) < 4.5 * error
    assert noise_probe.standstill_acceptance(0.0) == 1.0


@pytest.mark.parametrize("sampler", [AdaptiveMetropolis(), ValueKamiltonian()])
def test_a_sampler_finds_the_noise_of_its_log_density(sampler):
    life = born(sampler, noisy=True, arrives=False)
    lived(life, noisy()[0], 1000)
    probe = life.state.probe
    assert probe.pairs == 50
    assert abs(probe.variance - 1.0) < 4.5 * math.sqrt(2.0 / len(probe.squares))


def test_a_pair_is_of_one_point():
    """Somebody moves the chain between the two evaluations: the difference would be the log density's."""
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(steep)(x))
    step = tester.begin(pk.AdaptiveMetropolisStep(model=model))
    points, _ = tester.drive(step, model.initial_point(), draws=0, tune=noise_probe.EVERY - 1)
    assert step.life.state.probe.first is not None
    step.step({"x": points[-1]["x"] + 1.0})
    assert step.life.state.probe.pairs == 0


def steep(rng, x):
    return 100.0 * float(x) + rng.standard_normal()


def correlated(u, x):
    return -0.5 * float(x) ** 2 + 3.0 * float(u[0]) - 4.5


def test_correlated_noise_is_measured_as_moves_see_it():
    """What a move has to overcome is how far successive estimates differ: sd 3 sqrt(1 - 0.99)."""
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(correlated, auxiliary_shape=(1,))(x))
    step = tester.begin(pk.AdaptiveMetropolisStep(model=model, correlation=0.99))
    tester.drive(step, model.initial_point(), draws=0, tune=1000)
    expected = 9.0 * (1.0 - 0.99)
    assert abs(step.life.state.probe.variance / expected - 1.0) < 4.5 * math.sqrt(
        2.0 / len(step.life.state.probe.squares)
    )


def test_a_point_that_holds_the_chain_says_little_about_scales():
    probe = noise_probe.NoiseProbe(pairs=10, squares=(1.0,))
    assert noise_probe.patience(probe) == 1.0
    still, held = noise_probe.standstill_acceptance(1.0), probe
    for n in range(1, 100):
        held = noise_probe.meet(held, 0.0)
        assert noise_probe.patience(held) == pytest.approx(1.0 / (1 + n))
    assert noise_probe.patience(noise_probe.meet(probe, still)) == pytest.approx(1.0)
    assert noise_probe.patience(noise_probe.meet(probe, 1.0)) == 1.0
    assert noise_probe.patience(noise_probe.leave(held)) == 1.0
    outcome = metropolis.Outcome(None, 0.0, None, 0.0, 0.0, False, noise_sd=1.0, patience=0.25)
    assert outcome.target(0.3) == 0.25 * metropolis.attainable(0.3, 1.0)


# --- an estimate that holds the chain --------------------------------------------------------


def overestimated(sampler, tune=80):
    """A life in the middle of tuning, and an estimate that its chain will not leave by itself."""
    life, (evaluate, _) = born(sampler, noisy=True, arrives=False), noisy()
    lived(life, evaluate, tune)
    life.state = life.state._replace(here=life.here._replace(log_density=TOO_MUCH))
    return life, evaluate


TOO_MUCH = 40.0  # the target's own is below zero


@every_sampler
def test_an_overestimate_does_not_hold_a_chain_that_tunes(sampler):
    life, evaluate = overestimated(sampler)
    assert "renewal" in lived(life, evaluate, 40)
    assert life.here.log_density < 20.0
    # and none is made anew that holds nothing
    assert lived(life, evaluate, 40).count("renewal") < 4


def test_without_renewals_it_does(monkeypatch):
    monkeypatch.setattr(noise_probe, "HELD", math.inf)
    life, evaluate = overestimated(AdaptiveMetropolis())
    lived(life, evaluate, 200)
    assert life.here.log_density == TOO_MUCH


@every_sampler
def test_after_tuning_it_is_kept(sampler):
    """A fresh value would bias the draws: the chain stays where it is, and nothing is evaluated for another."""
    life, evaluate = overestimated(sampler)
    life.freeze()
    moves = [(life.draw(evaluate).proposal.move, life.here.log_density) for _ in range(150)]
    assert {height for _, height in moves} == {TOO_MUCH}
    assert not {"renewal", "refresh"} & {move for move, _ in moves}


def test_an_estimate_of_zero_is_not_taken():
    """The chain would move to wherever it looks next."""

    def sometimes(rng, x):
        if len(made) > 60:
            return -math.inf
        made.append(-0.5 * float(x) ** 2 + rng.standard_normal())
        return made[-1]

    made = []
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.3)
        pm.Potential("likelihood", pk.NoisyLogLikelihood(sometimes)(x))
    step = tester.begin(pk.AdaptiveMetropolisStep(model=model))
    made.clear()
    _, stats = tester.drive(step, model.initial_point(), draws=0, tune=150)
    assert "renewal" in [s["move"] for s in stats[70:]]
    assert step.log_density in made


def test_late_in_a_long_tuning_it_may_hold_for_longer():
    """Scales are tuned to chains that keep their estimates: what comes late is to be as it will be."""
    loud = noise_probe.NoiseProbe(pairs=10, squares=(1.0,))
    for draws, least in ((0, 10), (500, 10), (2000, 40)):
        assert not noise_probe.is_held(loud._replace(draws=draws, still=least))
        assert noise_probe.is_held(loud._replace(draws=draws, still=least + 1))
    assert not noise_probe.is_held(noise_probe.NoiseProbe(draws=100, still=100))  # no noise


def test_how_soon_a_fresh_estimate_is_left():
    rng, sd = np.random.default_rng(4), 1.5
    retained, proposed = sd * rng.standard_normal((2, 200_000))
    accepted = np.exp(np.minimum(0.0, proposed - retained))
    error = accepted.std(ddof=1) / math.sqrt(accepted.size)
    assert abs(accepted.mean() - noise_probe.fresh_acceptance(sd)) < 4.5 * error
    assert noise_probe.fresh_acceptance(0.0) == 1.0
    near = [noise_probe.fresh_acceptance(s) for s in (20.0, 20.1)]
    assert near[0] == pytest.approx(near[1], rel=0.03)


def test_a_scale_is_not_misled_by_fresh_estimates():
    """They are left sooner than what was accepted: so much more acceptance is asked for."""
    fresh = noise_probe.leave(noise_probe.NoiseProbe(pairs=10, squares=(1.0,)), fresh=True)
    ratio = noise_probe.fresh_acceptance(1.0) / noise_probe.standstill_acceptance(1.0)
    assert noise_probe.patience(fresh) == pytest.approx(ratio)
    assert noise_probe.patience(noise_probe.meet(fresh, 0.0)) == pytest.approx(0.5 * ratio)
    assert noise_probe.patience(noise_probe.meet(fresh, 1.0)) == pytest.approx(ratio)
    assert noise_probe.patience(noise_probe.leave(fresh)) == 1.0
    assert noise_probe.patience(fresh._replace(squares=(100.0,))) == noise_probe.FRESH


def far_away(rng, x, y):
    """Noise that grows away from the truth: of sd 15 at the start, where moves are refused for nothing."""
    sd = 0.3 + 1.5 * math.hypot(float(x), float(y))
    return -0.5 * float(x**2 + y**2) + sd * rng.standard_normal() - 0.5 * sd**2


def scales_after_the_start(seed):
    with pm.Model() as model:
        x, y = pm.Flat("x", initval=7.0), pm.Flat("y", initval=7.0)
        pm.Potential("likelihood", pk.NoisyLogLikelihood(far_away)(x, y))
    step = tester.begin(pk.AdaptiveMetropolisStep(model=model, arrival=False), seed)
    tester.drive(step, model.initial_point(), draws=0, tune=40)
    return step.algorithm_state.coordinate_log_scales


def test_strong_noise_at_the_start_does_not_shrink_a_coordinates_scale_to_nothing(monkeypatch):
    found = [scales_after_the_start(seed).min() for seed in range(5)]
    assert min(found) > math.log(1e-4)
    monkeypatch.setattr(coordinate_moves, "NOISY_GAIN", coordinate_moves.GAIN)
    found = [scales_after_the_start(seed).min() for seed in range(5)]
    assert min(found) < math.log(1e-6)
