"""The calibration's own parts: models simulate what they say, ranks are judged rightly, and what is wrong fails."""

import numpy as np
import pytest

from benchmarks.calibration import ranks
from benchmarks.calibration.drive import LARGEST, RATIO_DROPPED, STEPS, Driver
from benchmarks.calibration.models import MODELS, NOISE_UNDERSTATED, compiled, problem
from tests.step_tester import NO_BLAS
from tests.support.differences import slopes

pytestmark = NO_BLAS
STEP = 1e-4
QUICK = ("black box",)  # to compile


def bartlett(name, n=400):
    """Largest |z| of E g_i = 0, E x_i g_i = -1 and E (g_i^2 + h_ii) = 0 over simulated pairs of parameters and data.

    With gradient g and curvature h of the log joint density in the parameters: true if the pairs are drawn from it.
    """
    found, rng, sums = problem(name), np.random.default_rng(1), []
    for _ in range(n):
        values, data = found.simulate(rng)
        found.set_data(data)
        x, cuts = np.concatenate([*map(np.ravel, values.values())]), np.cumsum([v.size for v in values.values()])[:-1]

        def log_joint(x, values=values, cuts=cuts):
            parts = zip(values.items(), np.split(x, cuts), strict=True)
            return found.log_joint({name: part.reshape(value.shape) for (name, value), part in parts})

        g, steps = slopes(log_joint, x, STEP), STEP * np.eye(len(x))
        h = np.array([log_joint(x + e) - 2.0 * log_joint(x) + log_joint(x - e) for e in steps]) / STEP**2
        sums.append(np.concatenate([g, x * g + 1.0, g**2 + h]))
    return float(np.abs(np.mean(sums, axis=0) / np.std(sums, axis=0)).max() * np.sqrt(n))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in MODELS])
def test_parameters_and_data_are_drawn_from_the_joint_density(name):
    assert bartlett(name) < 4.5


@pytest.mark.slow
def test_data_of_another_noise_are_not():
    assert bartlett(NOISE_UNDERSTATED, n=3000) > 10.0


def test_the_noisy_likelihood_is_an_estimate_of_the_exact_one():
    """Their ratio has the same mean everywhere."""
    found, rng = problem("noisy"), np.random.default_rng(2)
    found.set_data(found.simulate(rng)[1])
    noisy = compiled(found.model)
    means, errors = [], []
    for _ in range(4):
        values = found.simulate(rng)[0]
        with np.errstate(all="raise"):
            ratio = np.exp([noisy(values) - found.log_joint(values) for _ in range(1500)])
        means.append(ratio.mean())
        errors.append(ratio.std() / np.sqrt(len(ratio)))
    z = (np.array(means) - means[0])[1:] / np.hypot(errors[1:], errors[0])
    assert np.abs(z).max() < 4.5


def test_uniform_ranks_are_called_so_and_others_are_not():
    rng = np.random.default_rng(0)
    p = [ranks.p_value(rng.integers(LARGEST + 1, size=100), LARGEST) for _ in range(400)]
    assert abs(np.mean(np.array(p) < 0.1) - 0.1) < 4.5 * np.sqrt(0.09 / 400)
    narrow = np.clip(rng.normal(LARGEST / 2, 3.0, 300), 0, LARGEST).astype(int)
    shifted = (rng.beta(1.5, 1.0, 300) * (LARGEST + 1)).astype(int)
    assert max(ranks.p_value(r, LARGEST) for r in (narrow, shifted)) < 1e-3


@pytest.mark.slow
def test_a_replication_depends_on_its_seed_alone():
    driver = Driver(problem("bounded"), "CMAStep")
    first, second, again = (driver.replicate(seed) for seed in (1, 2, 1))
    np.testing.assert_array_equal(first[:2], again[:2])
    assert not np.array_equal(first[1], second[1])
    assert 0 <= first[0].min() <= first[0].max() <= LARGEST


@pytest.mark.slow
@pytest.mark.parametrize(("model", "step"), [("bounded", RATIO_DROPPED), (NOISE_UNDERSTATED, "AdaptiveMetropolisStep")])
def test_what_is_wrong_fails(model, step):
    driver, n = Driver(problem(model), step), 150
    found = np.array([driver.replicate(seed)[0] for seed in range(n)])
    assert min(ranks.p_value(found[:, k], LARGEST) for k in range(found.shape[1])) < 1e-3


def test_every_step_is_in_it():
    import pymc_kameleon as pk
    from pymc_kameleon.steps.base import KernelStep

    steps = {s for s in vars(pk).values() if isinstance(s, type) and issubclass(s, KernelStep)}
    assert {entry.step for entry in STEPS.values()} == steps
