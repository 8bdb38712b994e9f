"""The rule that tunes an estimator's work: its root, its way there, and what it stays within."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from pymc_kameleon.samplers import noise_probe, tuned_work

RIGHT = 300  # the work with which the noise's variance is what is best


def gaussian(rng, n):
    """Of an sd that falls as 1 / sqrt(work), the same everywhere."""
    return math.sqrt(tuned_work.TARGET * RIGHT / n) * rng.standard_normal(2)


def growing(rng, n):
    """Two means of n log-normal weights of mean one at a draw of N(0.6, 0.6^2): of log sd 1 + 1.2 |draw|."""
    sd = 1.0 + 1.2 * abs(rng.normal(0.6, 0.6))
    return np.log(np.exp(sd * rng.standard_normal((2, n)) - 0.5 * sd**2).mean(axis=1))


def tuned(given, seed, pairs=100, noise=gaussian):
    """The work after ``pairs`` pairs of probes, as a step makes them."""
    rng, work = np.random.default_rng(seed), tuned_work.begin((given,))
    probe = noise_probe.NoiseProbe()
    for _ in range(pairs):
        before = work
        work = tuned_work.due(work, max(probe.squares, default=math.inf))
        probe = noise_probe.rescale(probe, tuned_work.change(before, work))
        first, second = noise(rng, work.now[0])
        probe = noise_probe.record(probe, first, None)
        work = tuned_work.learn(work, noise_probe.half_square(probe, second))
        probe = noise_probe.record(probe, second, None)
    return tuned_work.due(work, max(probe.squares))


def test_the_target_is_what_the_literature_calls_best():
    assert noise_probe.BEST_SD[0] <= math.sqrt(tuned_work.TARGET) <= noise_probe.BEST_SD[1]


def test_the_rules_root():
    """What the capped ratio is compared with is its mean where the variance is right: by quadrature, and by draws."""
    x = chi2.ppf((np.arange(200_000) + 0.5) / 200_000, 1)
    assert np.minimum(x, tuned_work.CAP).mean() == pytest.approx(tuned_work.MEAN, rel=1e-4)


def found(given, seeds=100, **options):
    """The work by ``seeds`` chains."""
    return np.array([tuned(given, seed, **options).now[0] for seed in range(seeds)])


@pytest.mark.parametrize("given", [RIGHT // 50, RIGHT // 5])
def test_it_finds_the_right_work_from_too_few(given):
    shares = found(given) / RIGHT
    sds = np.sqrt(tuned_work.TARGET / shares)  # of the noise with what was found
    assert 1 / 2 < shares.min() < shares.max() < 2
    assert np.mean((sds > 1.05) & (sds < 1.5)) > 0.8
    assert 1.2 < np.median(sds) < 1.32


def test_too_much_work_is_lowered_as_far_as_the_worst_pair_allows():
    """Of 33 pairs that is a square of 5 times their variance, 2.5 to 11 in 98 of 100."""
    shares = found(50 * RIGHT) / RIGHT
    assert 2.0 < shares.min() < shares.max() < 15.0
    assert 3.5 < np.median(shares) < 6.5


def test_work_is_not_lowered_where_noise_grows_towards_the_tails():
    """On average 4 weights have the right noise; with so few a chain does not come back from the tails."""
    kept = found(20, 50, noise=growing)
    assert np.mean(kept >= 18) > 0.8
    assert kept.min() >= 10
    lowered = found(1000, 20, noise=growing)
    assert 10 < lowered.min() < lowered.max() < 600


def test_a_wrong_root_is_noticed(monkeypatch):
    """The control: without the cap's own mean the median is elsewhere."""
    monkeypatch.setattr(tuned_work, "MEAN", 1.0)
    assert not 1.2 < np.median(np.sqrt(tuned_work.TARGET * RIGHT / found(RIGHT // 5))) < 1.32


def test_more_pairs_bring_it_nearer():
    few, many = (np.std(np.log(found(RIGHT // 5, pairs=pairs))) for pairs in (25, 200))
    assert many < 0.7 * few


def test_estimates_of_zero_and_absurd_ones_count_as_noise():
    work = tuned_work.begin((100,))
    probe = noise_probe.record(noise_probe.NoiseProbe(), 0.0, None)
    for value in (-math.inf, 1e6):
        square = noise_probe.half_square(probe, value)
        assert tuned_work.learn(work, square).log_factor == tuned_work.CAP - tuned_work.MEAN
    assert math.isnan(noise_probe.half_square(probe, math.nan))  # it failed: no pair


@pytest.mark.parametrize("square", [0.0, noise_probe.LARGEST])
def test_it_stays_within_a_hundred_times_what_was_given(square):
    """Where the noise does not depend on the work there is no right one."""
    work = tuned_work.begin((7, 700))
    for _ in range(300):
        work = tuned_work.due(tuned_work.learn(work, square), square)
    assert work.now == ((1, 7) if square == 0.0 else (700, 70_000))


def test_estimators_share_one_factor_and_small_changes_are_not_made():
    work = tuned_work.begin((100, 400))
    lower, higher, raised = (tuned_work.due(work._replace(log_factor=math.log(f)), 0.0) for f in (0.91, 1.09, 1.5))
    assert lower.now == higher.now == (100, 400)
    assert raised.now == (150, 600)
    assert tuned_work.change(work, raised) == 1.5
    assert tuned_work.spend(tuned_work.spend(raised)).spent == 1500


def test_a_pair_is_judged_by_the_work_it_was_made_with():
    """Small changes are not made, and N is whole: what a pair says is of the N there was."""
    work = tuned_work.begin((10,))._replace(log_factor=math.log(1.05))
    at_root = work._replace(log_factor=0.0)
    same = tuned_work.TARGET * 0.5
    step = tuned_work.learn(at_root, same).log_factor
    assert tuned_work.learn(work, same * 1.05).log_factor == pytest.approx(math.log(1.05) + step)


def test_without_estimators_that_are_told_nothing_is_learned():
    work = tuned_work.begin(())
    assert tuned_work.learn(work, 3.0) is work
    assert tuned_work.spend(work).spent == 0
