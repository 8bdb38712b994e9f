"""``schedule=``: when a sampler learns anew while tuning, and that nothing does afterwards."""

import math
import pickle

import numpy as np
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.schedule import Scheduled, probability
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.samplers.shape_learners.cma import CMA
from tests.step_tester import begin, drive, pair
from tests.support.targets import Banana

TARGET = Banana(2)
INNER = {
    "window": AdaptiveMetropolis(tune=400),
    "Kameleon": Kameleon(n_history=50, local_start=100),
    "fast Kameleon": FastKameleon(n_features=20, local_start=100),
    "lite": LiteKamiltonian(n_history=50, first_fit=100, lengthscale=1.0, regularization=1e-3, tune=2000),
}


def learnt(sampler, tune, seed=1):
    """The tuning draws after which the sampler had learned anew, and the draws before the first of them."""
    rng, x = np.random.default_rng(seed), np.array([1.0, -0.5])
    point = Point(x, TARGET.log_density(x))
    state = sampler.place(sampler.init(rng, x), point)
    found, before = [], what_is_learned(state)
    steps = chain.draws(rng, sampler, TARGET.log_density, point, state, tune, tuning=True)
    for t, draw in enumerate(steps, 1):
        now = what_is_learned(draw.state)
        if now is not before and now is not None:
            found.append(t)
        before = now
    return np.array(found), draw


def what_is_learned(state):
    """What a refresh puts something new in place of."""
    if hasattr(state, "fitted"):
        return state.fitted
    return state.model if hasattr(state, "model") else state.factor


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_a_sampler_learns_as_often_as_the_schedule_says(inner):
    first = learnt(Scheduled(inner=inner, schedule=lambda t: 0.0), 600)[0]
    begun = first[-1]
    assert begun < 300  # what comes first is the sampler's own
    rare = learnt(Scheduled(inner=inner, schedule=lambda t: 0.05), 600)[0]
    rare = rare[rare > begun]
    n = 600 - begun
    assert abs(len(rare) - 0.05 * n) < 4.5 * math.sqrt(0.05 * 0.95 * n)
    assert len(rare) > len(first)
    every = learnt(Scheduled(inner=inner, schedule=lambda t: 1.0), begun + 40)[0]
    np.testing.assert_array_equal(every[every >= begun], np.arange(begun, begun + 41))


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_it_is_frozen_as_without_a_schedule(inner):
    sampler = Scheduled(inner=inner, schedule="root")
    state = learnt(sampler, 300)[1].state
    own = pickle.dumps(inner.freeze(state))
    assert pickle.dumps(sampler.freeze(state)) == own
    assert len(own) < len(pickle.dumps(state))  # the history is gone


def test_control_without_a_schedule_it_learns_at_growing_intervals():
    found = learnt(Kameleon(n_history=50, local_start=100), 600)[0]
    np.testing.assert_array_equal(found[1:], (1.1 * found[:-1]).astype(int) + 1)


@pytest.mark.parametrize(("name", "power"), [("harmonic", 1.0), ("root", 0.5)])
def test_the_names(name, power):
    for t in (1, 2, 10, 12345):
        assert probability(name, t) == pytest.approx(t**-power, rel=1e-12)


def chains_of(sampler, tune=300):
    return chain.run(np.random.default_rng(3), sampler, TARGET.log_density, [1.0, 0.0], tune=tune, n=20)


def test_a_step_of_one_over_t_is_haario_s():
    fixed = {"covariance": "recursive", "scaling": "fixed"}
    own = chains_of(AdaptiveMetropolis(**fixed))
    ours = chains_of(Scheduled(inner=AdaptiveMetropolis(**fixed), schedule="harmonic"))
    np.testing.assert_array_equal(own.draws, ours.draws)
    other = chains_of(Scheduled(inner=AdaptiveMetropolis(**fixed), schedule="root"))
    assert not np.array_equal(own.draws, other.draws)


def test_the_step_moves_mean_covariance_and_scale_by_andrieu_and_thoms():
    sampler = Scheduled(inner=AdaptiveMetropolis(covariance="recursive"), schedule=lambda t: 0.7 * t**-0.8)
    rng, x = np.random.default_rng(1), np.array([1.0, -0.5])
    point = Point(x, TARGET.log_density(x))
    state = sampler.place(sampler.init(rng, x), point)
    mean, cov, log_scale = x.copy(), np.eye(2), state.log_scale
    steps = chain.draws(rng, sampler, TARGET.log_density, point, state, 200, tuning=True)
    for t, draw in enumerate(steps, 2):
        gamma, delta = 0.7 * t**-0.8, draw.point.position - mean
        mean = mean + gamma * delta
        cov = cov + gamma * (np.outer(delta, delta) - cov)
        log_scale += gamma * (draw.accept_prob - 0.234)
    np.testing.assert_allclose(draw.state.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(draw.state.factor @ draw.state.factor.T, cov, rtol=1e-10)
    assert draw.state.log_scale == pytest.approx(log_scale, rel=1e-10)


def test_nothing_is_learned_after_tuning_whatever_the_schedule_says():
    sampler = Scheduled(inner=INNER["Kameleon"], schedule=lambda t: 1.0)
    _, last = learnt(sampler, 150)
    state = chain.freeze(sampler, last.point, last.state)
    points = state.model.points
    rng = np.random.default_rng(2)
    for draw in chain.draws(rng, sampler, TARGET.log_density, last.point, state, 50):
        assert draw.state.model.points is points


def test_screened_moves_of_a_scheduled_sampler():
    inner = Scheduled(inner=Kameleon(n_history=50, local_start=100), schedule="root")
    sampler = Screened(inner=inner, transitions=2)
    assert np.isfinite(chains_of(sampler, tune=400).draws).all()


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
            chains_of(Scheduled(inner=inner, schedule="root"))
    with pytest.raises(ValueError, match="below 1"):
        chains_of(Scheduled(inner=AdaptiveMetropolis(covariance="recursive"), schedule=lambda t: 1.0))


# --- the steps ---------------------------------------------------------------------------------------

QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "arrival": False}
STEPS = [
    (pk.AdaptiveMetropolisStep, {"preset": "paper"}),
    (pk.KameleonStep, {"preset": "paper", "local_start": 50}),
    (pk.KameleonStep, {"preset": "paper", "proposal": "pca", "local_start": 50, "n_history": 40}),
    (pk.FastKameleonStep, {"preset": "paper", "local_start": 50, "n_features": 20}),
    (
        pk.KamiltonianStep,
        {"surrogate": LiteKamiltonian.paper(first_fit=60, lengthscale=1.0, regularization=1e-3)},
    ),
]  # fmt: skip


def decreasing(t):
    return 2.0 / (t + 20.0)


@pytest.mark.parametrize(("step", "options"), STEPS)
@pytest.mark.parametrize("schedule", [pytest.param("root", marks=pytest.mark.slow), decreasing])
def test_steps_take_it_and_a_resumed_chain_goes_on(step, options, schedule):
    def made(**more):
        return step(model=pair(), **QUICK, **options, **more)

    chosen = made(schedule=schedule)
    assert isinstance(chosen.sampler, Scheduled)
    assert chosen.options["schedule"] == ("root" if schedule == "root" else "decreasing")
    assert "schedule" not in made().options
    begin(chosen, 1)
    points, _ = drive(chosen, chosen.model.initial_point(), 20, 150)
    state = pickle.loads(pickle.dumps(chosen.sampling_state))
    rest = drive(chosen, points[-1], 10)[0]
    other = made(schedule=schedule)
    other.sampling_state = state
    again = drive(other, points[-1], 10)[0]
    for name in rest[-1]:
        np.testing.assert_array_equal(rest[-1][name], again[-1][name])
    with pytest.raises(ValueError, match="schedule"):
        made().sampling_state = state


@pytest.mark.parametrize("step", [s for n, s in vars(pk).items() if n.endswith("Step")])
def test_every_step_says_that_it_is_frozen_after_tuning(step):
    text = " ".join(step.__doc__.split())
    assert "all is frozen when tuning ends" in text
    assert "Differs from the" in text or step is pk.GaussianMixtureStep
