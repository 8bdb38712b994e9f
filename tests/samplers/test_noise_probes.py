"""Tuning under noise: scales follow what noise leaves attainable, so that noise alone cannot shrink them."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import coordinate_moves, noise_probe
from pymc_kameleon.samplers import seam as metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.noise_probe import NoiseProbe
from tests import step_tester as tester
from tests.samplers.test_life import born, lived, noisy, tuning
from tests.samplers.test_seam import every_sampler

LOUD = NoiseProbe(pairs=10, squares=(1.0,))


def pair(probe, *values):
    """The probe after both halves of a pair, or of several."""
    for value in values:
        probe = noise_probe.record(probe, value, None)
    return probe


def begun(estimate, seed=0, *, starts=(0.0,), auxiliary_shape=None, **options):
    """An adaptive Metropolis step on a flat prior with this likelihood estimate, and where its chain starts."""
    with pm.Model() as model:
        inputs = [pm.Flat(f"x{i}", initval=start) for i, start in enumerate(starts)]
        pm.Potential("likelihood", pk.NoisyLogLikelihood(estimate, auxiliary_shape=auxiliary_shape)(*inputs))
    return tester.begin(pk.AdaptiveMetropolisStep(model=model, **options), seed), model.initial_point()


def test_what_failed_is_no_noise():
    """A NaN among the probes leaves its pair out: neither half is paired with another point's."""
    probe = pair(NoiseProbe(), 0.0, 1.0, math.nan, 5.0, 9.0, math.nan, 2.0, 4.0)
    assert probe.squares == (0.5, 2.0)
    assert probe.pairs == 2


def fill(pairs, sd, seed, retained=False):
    """The variance by ``pairs`` pairs under Gaussian noise; with ``retained`` the first value is a chain's own."""
    rng, probe, kept = np.random.default_rng(seed), NoiseProbe(), 0.0
    for _ in range(pairs):
        first, second = sd * rng.standard_normal(2)
        if retained:
            for proposed in sd * rng.standard_normal(20):
                if rng.random() < metropolis.acceptance_probability(kept, proposed, 0.0):
                    kept = proposed
            first = kept
        probe = pair(probe, first, second)
    return probe.variance


@pytest.mark.parametrize(
    ("sd", "n"),
    [(1.5, 400), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.5, 2000), (2.5, 400)))],
)
def test_variance_is_measured_without_bias(sd, n):
    # half a squared difference over the variance is chi-square(1), the mean of n of them has variance 2 / n
    error = math.sqrt(2.0 / noise_probe.MEASURED / n)
    fresh, kept = (
        (np.mean([fill(noise_probe.MEASURED, sd, seed, own) for seed in range(n)]) / sd**2 - 1.0) / error
        for own in (False, True)
    )
    assert abs(fresh) < 4.5
    assert kept > 10  # the control: the value that the chain retains was selected


def test_what_was_measured_at_the_start_is_forgotten():
    probe = pair(NoiseProbe(), *(30 * [0.0, 1e3]))  # two thirds of them far from the posterior
    assert probe.variance == noise_probe.LARGEST
    probe = pair(probe, *(15 * [0.0, 1.0]))
    assert probe.variance == 0.5
    probe = pair(probe, 0.0, -math.inf)
    assert probe.variance < 4.0  # an estimate of zero counts, up to a bound
    assert len(pair(probe, *(1000 * [0.0, 1.0])).squares) == noise_probe.MEMORY


@pytest.mark.parametrize(
    ("predicted", "selected"), [(noise_probe.standstill_acceptance, True), (noise_probe.fresh_acceptance, False)]
)
def test_acceptance_of_a_step_of_length_zero(predicted, selected):
    """From an estimate as it is at stationarity, and from one just made."""
    rng, sd = np.random.default_rng(3), 1.3
    retained, proposed = sd * rng.standard_normal((2, 200_000))
    accepted = np.exp(np.minimum(0.0, proposed - retained - selected * sd**2))
    error = accepted.std(ddof=1) / math.sqrt(accepted.size)
    assert abs(accepted.mean() - predicted(sd)) < 4.5 * error
    assert predicted(0.0) == 1.0
    if not selected:
        assert predicted(20.0) == pytest.approx(predicted(20.1), rel=0.03)


def test_a_sampler_finds_the_noise_of_its_log_density():
    life = born(AdaptiveMetropolis(), noisy=True, arrives=False)
    lived(life, noisy()[0], 1000)
    probe = life.state.probe
    assert probe.pairs == 50
    assert abs(probe.variance - 1.0) < 4.5 * math.sqrt(2.0 / len(probe.squares))


def test_a_pair_is_of_one_point():
    """Somebody moves the chain between the two evaluations: the difference would be the log density's."""
    step, start = begun(lambda rng, x: 100.0 * float(x) + rng.standard_normal())
    points, _ = tester.drive(step, start, draws=0, tune=noise_probe.EVERY - 1)
    assert step.life.state.probe.first is not None
    step.step({"x0": points[-1]["x0"] + 1.0})
    assert step.life.state.probe.pairs == 0


def test_correlated_noise_is_measured_as_moves_see_it():
    """What a move has to overcome is how far successive estimates differ: sd 3 sqrt(1 - 0.99)."""

    def correlated(u, x):
        return -0.5 * float(x) ** 2 + 3.0 * float(u[0]) - 4.5

    step, start = begun(correlated, auxiliary_shape=(1,), correlation=0.99)
    tester.drive(step, start, draws=0, tune=1000)
    probe, expected = step.life.state.probe, 9.0 * (1.0 - 0.99)
    assert abs(probe.variance / expected - 1.0) < 4.5 * math.sqrt(2.0 / len(probe.squares))


# --- what follows for scales -----------------------------------------------------------------


def test_a_point_that_holds_the_chain_says_little_about_scales():
    assert noise_probe.patience(LOUD) == 1.0
    still, held = noise_probe.standstill_acceptance(1.0), LOUD
    for n in range(1, 100):
        held = noise_probe.meet(held, 0.0)
        assert noise_probe.patience(held) == pytest.approx(1.0 / (1 + n))
    assert noise_probe.patience(noise_probe.meet(LOUD, still)) == pytest.approx(1.0)
    assert noise_probe.patience(noise_probe.meet(LOUD, 1.0)) == 1.0
    assert noise_probe.patience(noise_probe.leave(held)) == 1.0
    outcome = metropolis.Outcome(None, 0.0, None, 0.0, 0.0, False, noise_sd=1.0, patience=0.25)
    assert outcome.target(0.3) == 0.25 * metropolis.attainable(0.3, 1.0)


def test_a_scale_is_not_misled_by_fresh_estimates():
    """They are left sooner than what was accepted: so much more acceptance is asked for."""
    fresh = noise_probe.leave(LOUD, fresh=True)
    ratio = noise_probe.fresh_acceptance(1.0) / noise_probe.standstill_acceptance(1.0)
    assert noise_probe.patience(fresh) == pytest.approx(ratio)
    assert noise_probe.patience(noise_probe.meet(fresh, 0.0)) == pytest.approx(0.5 * ratio)
    assert noise_probe.patience(noise_probe.meet(fresh, 1.0)) == pytest.approx(ratio)
    assert noise_probe.patience(noise_probe.leave(fresh)) == 1.0
    assert noise_probe.patience(fresh._replace(squares=(100.0,))) == noise_probe.FRESH


def least_scale_after_the_start():
    """Noise that grows away from the truth: of sd 15 at the start, where moves are refused for nothing."""

    def far_away(rng, x, y):
        sd = 0.3 + 1.5 * math.hypot(float(x), float(y))
        return -0.5 * float(x**2 + y**2) + sd * rng.standard_normal() - 0.5 * sd**2

    step, start = begun(far_away, starts=(7.0, 7.0), arrival=False)
    found = []
    for seed in range(5):
        tester.drive(tester.begin(step, seed), start, draws=0, tune=40)
        found.append(step.algorithm_state.coordinate_log_scales.min())
    return min(found)


def test_strong_noise_at_the_start_does_not_shrink_a_coordinates_scale_to_nothing(monkeypatch):
    assert least_scale_after_the_start() > math.log(1e-4)
    monkeypatch.setattr(coordinate_moves, "NOISY_GAIN", coordinate_moves.GAIN)
    assert least_scale_after_the_start() < math.log(1e-6)


# --- an estimate that holds the chain --------------------------------------------------------

TOO_MUCH = 40.0  # the target's own is below zero


def overestimated(sampler):
    """A life in the middle of tuning, and an estimate that its chain will not leave by itself."""
    life = tuning(sampler, 80, noisy=True)
    life.state = life.state._replace(here=life.here._replace(log_density=TOO_MUCH))
    return life, noisy(seed=4)[0]


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


def test_an_estimate_of_zero_is_not_taken():
    """The chain would move to wherever it looks next."""
    made = []

    def sometimes(rng, x):
        if len(made) > 60:
            return -math.inf
        made.append(-0.5 * float(x) ** 2 + rng.standard_normal())
        return made[-1]

    step, start = begun(sometimes, starts=(0.3,))
    made.clear()
    _, stats = tester.drive(step, start, draws=0, tune=150)
    assert "renewal" in [s["move"] for s in stats[70:]]
    assert step.log_density in made


def test_late_in_a_long_tuning_it_may_hold_for_longer():
    """Scales are tuned to chains that keep their estimates: what comes late is to be as it will be."""
    for draws, least in ((0, 10), (500, 10), (2000, 40)):
        assert not noise_probe.is_held(LOUD._replace(draws=draws, still=least))
        assert noise_probe.is_held(LOUD._replace(draws=draws, still=least + 1))
    assert not noise_probe.is_held(NoiseProbe(draws=100, still=100))  # no noise
