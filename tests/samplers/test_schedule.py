"""``schedule=``: when a sampler learns anew while tuning, and that nothing does afterwards."""

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.schedule import Scheduled, probability
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.shape_learners.cma import CMA
from tests.step_tester import begin, drive, pair
from tests.support.chains import recursive_moments, tuned
from tests.support.targets import Banana

TARGET = Banana(2)
INNER = {
    "window": AdaptiveMetropolis(tune=400),
    "Kameleon": Kameleon(n_history=50, local_start=100),
    "fast Kameleon": FastKameleon(n_features=20, local_start=100),
    "lite": LiteKamiltonian(n_history=50, first_fit=100, lengthscale=1.0, regularization=1e-3, tune=2000),
}


def course(sampler, draws):
    """A chain that tunes on the banana."""
    return tuned(sampler, TARGET.log_density, [1.0, -0.5], draws)


def learnt(sampler, draws):
    """The tuning draws after which the sampler had learned anew; from the second on."""
    seen = [what_is_learned(held) for held in course(sampler, draws).hands]
    return np.array([t for t, (before, now) in enumerate(pairwise(seen), 2) if now is not before])


def what_is_learned(state):
    """What a refresh puts something new in place of."""
    if hasattr(state, "fitted"):
        return state.fitted
    return state.model if hasattr(state, "model") else state.factor


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_a_sampler_learns_as_often_as_the_schedule_says(inner):
    first = learnt(Scheduled(inner=inner, schedule=lambda t: 0.0), 600)
    begun = first[-1]
    assert begun < 300  # what comes first is the sampler's own
    rare = learnt(Scheduled(inner=inner, schedule=lambda t: 0.05), 600)
    rare = rare[rare > begun]
    n = 600 - begun
    assert abs(len(rare) - 0.05 * n) < 4.5 * math.sqrt(0.05 * 0.95 * n)
    assert len(rare) > len(first)
    every = learnt(Scheduled(inner=inner, schedule=lambda t: 1.0), begun + 40)
    np.testing.assert_array_equal(every[every >= begun], np.arange(begun, begun + 41))


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_it_is_frozen_as_without_a_schedule(inner):
    sampler = Scheduled(inner=inner, schedule="root")
    state = course(sampler, 300).held.state
    own = pickle.dumps(inner.freeze(state))
    assert pickle.dumps(sampler.freeze(state)) == own
    assert len(own) < len(pickle.dumps(state))  # the history is gone


def test_control_without_a_schedule_it_learns_at_growing_intervals():
    found = learnt(Kameleon(n_history=50, local_start=100), 600)
    np.testing.assert_array_equal(found[1:], (1.1 * found[:-1]).astype(int) + 1)


@pytest.mark.parametrize(("name", "power"), [("harmonic", 1.0), ("root", 0.5)])
def test_the_names(name, power):
    for t in (1, 2, 10, 12345):
        assert probability(name, t) == pytest.approx(t**-power, rel=1e-12)


def test_a_step_of_one_over_t_is_haario_s():
    fixed = AdaptiveMetropolis(covariance="recursive", scaling="fixed")
    own = course(fixed, 300).draws
    np.testing.assert_array_equal(own, course(Scheduled(inner=fixed, schedule="harmonic"), 300).draws)
    assert not np.array_equal(own, course(Scheduled(inner=fixed, schedule="root"), 300).draws)


def test_the_step_moves_mean_covariance_and_scale_by_andrieu_and_thoms():
    inner = AdaptiveMetropolis(covariance="recursive")
    chain = course(Scheduled(inner=inner, schedule=lambda t: 0.7 * t**-0.8), 200)
    x = np.array([1.0, -0.5])
    gamma = 0.7 * np.arange(2.0, 202.0) ** -0.8
    mean, cov = recursive_moments(x, chain.draws, gamma)
    log_scale = inner.init(None, x).log_scale + gamma @ (chain.accept_probs - 0.234)
    np.testing.assert_allclose(chain.held.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(chain.held.factor @ chain.held.factor.T, cov, rtol=1e-10)
    assert chain.held.log_scale == pytest.approx(log_scale, rel=1e-10)


def test_screened_moves_of_a_scheduled_sampler():
    inner = Scheduled(inner=Kameleon(n_history=50, local_start=100), schedule="root")
    assert np.isfinite(course(Screened(inner=inner, transitions=2), 400).draws).all()


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("fast", "schedule must be one of"),
        (lambda t: 2.0, r"schedule must be in \[0, 1\] at every t, got 2.0 at t = 1"),
        (lambda t: -1.0 / t, r"got -1.0 at t = 1"),
        (lambda t: math.nan, "got nan"),
        (lambda t: np.ones(2), "got array"),
    ],
)
def test_what_is_no_schedule_is_refused(schedule, says):
    with pytest.raises(ValueError, match=says):
        Scheduled(inner=Kameleon(), schedule=schedule)


def test_who_has_none_says_so():
    for inner in (CMA(), GaussianMixture(), ValueKamiltonian()):
        with pytest.raises(TypeError, match=f"{type(inner).__name__} has no schedule"):
            course(Scheduled(inner=inner, schedule="root"), 100)
    with pytest.raises(ValueError, match="below 1"):
        course(Scheduled(inner=AdaptiveMetropolis(covariance="recursive"), schedule=lambda t: 1.0), 100)


# --- the steps ---------------------------------------------------------------------------------------

QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "arrival": False}
STEPS = [
    (pk.AdaptiveMetropolisStep, {"preset": "paper"}),
    (pk.KameleonStep, {"preset": "paper", "local_start": 50}),
    (pk.KameleonStep, {"preset": "paper", "proposal": "pca", "local_start": 50, "n_history": 40}),
    (pk.FastKameleonStep, {"preset": "paper", "local_start": 50, "n_features": 20}),
    (pk.KamiltonianStep, {"surrogate": LiteKamiltonian.paper(first_fit=60, lengthscale=1.0, regularization=1e-3)}),
]


def decreasing(t):
    return 2.0 / (t + 20.0)


@pytest.mark.parametrize(("step", "options"), STEPS)
@pytest.mark.parametrize("schedule", [pytest.param("root", marks=pytest.mark.slow), decreasing])
def test_steps_take_it_and_refuse_another_ones_state(step, options, schedule):
    """That a chain resumes is of every sampler in test_life."""

    def made(**more):
        return step(model=pair(), **QUICK, **options, **more)

    chosen = made(schedule=schedule)
    assert isinstance(chosen.sampler, Scheduled)
    assert chosen.options["schedule"] == ("root" if schedule == "root" else "decreasing")
    plain = made()
    assert "schedule" not in plain.options
    begin(chosen, 1)
    drive(chosen, chosen.model.initial_point(), 1, 5)
    with pytest.raises(ValueError, match="schedule"):
        plain.sampling_state = chosen.sampling_state


@pytest.mark.parametrize("step", [s for n, s in vars(pk).items() if n.endswith("Step")])
def test_every_step_says_that_it_is_frozen_after_tuning(step):
    text = " ".join(step.__doc__.split())
    assert "all is frozen when tuning ends" in text
    assert "Differs from the" in text or step is pk.GaussianMixtureStep
