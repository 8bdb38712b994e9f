"""``preset="paper"``: each publication's settings, one by one, and that a chain with them can move or says so."""

import math

import numpy as np
import pymc as pm
import pytest

from pymc_kameleon import FastKameleonStep, KameleonStep, KamiltonianStep
from pymc_kameleon.kernels import median_distance
from pymc_kameleon.numerics.random_features import at_lengthscale
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon import fast as fast_kameleon
from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian import trust as residual_mixture
from pymc_kameleon.samplers.kamiltonian.scores import estimators
from pymc_kameleon.samplers.kamiltonian.scores.estimators import LiteKamiltonian
from pymc_kameleon.samplers.seam import Outcome
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from pymc_kameleon.surrogates.scores.choose import RADIUS
from tests.step_tester import begin, drive, values
from tests.support.chains import held, scored, tuned

# --- one by one ----------------------------------------------------------------------------------


PUBLISHED = {
    AdaptiveMetropolis: {  # Andrieu & Thoms (2008), eq. 17 at every draw; Roberts & Rosenthal (2009)
        "covariance": "recursive", "scaling": "learned", "target_accept": 0.234, "exploration_share": 0.05,
    },
    Kameleon: {  # Sejdinovic et al. (2014): nu^2 M H M^T, the median heuristic itself
        "n_history": 1000, "lengthscale": None, "lengthscale_factor": 1.0, "normalization": "none", "gamma": 0.2,
        "target_accept": 0.234, "coordinates": "raw", "global_share": 0.0,
    },
    FastKameleon: {  # Kotlicki (2015): eta^2 J^T C J
        "lengthscale": None, "lengthscale_factor": 1.0, "normalization": "none", "mean_shift": False,
        "variance_share": 1.0, "whole_history": True, "gamma": 0.5, "coordinates": "raw", "global_share": 0.0,
        "local_start": 1000, "forget": 0.0, "target_accept": 0.234,
    },
    GaussianAdaptation: {  # Mueller & Sbalzarini (2010): P
        "target_accept": math.exp(-1.0), "diminishing": False, "success": "indicator",
    },
    CMA: {  # Igel, Suttorp & Hansen (2006), table 1, with one offspring
        "target_accept": 2 / 11, "rate_factor": 1.0, "diminishing": False, "success": "indicator",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_options_are_the_publication_s(kind):
    options = held(kind, np.zeros(4), **kind.presets["paper"]).sampler
    assert {name: getattr(options, name) for name in PUBLISHED[kind]} == PUBLISHED[kind]


@pytest.mark.parametrize(("kind", "scale"), [(AdaptiveMetropolis, 1.19), (GaussianAdaptation, 1.0), (CMA, 1.0)])
def test_a_walk_begins_with_the_identity(kind, scale):
    state = held(kind, np.zeros(4), **kind.presets["paper"])
    np.testing.assert_array_equal(state.factor, np.eye(4))
    assert state.stats()["scaling"] == pytest.approx(scale)
    assert state.propose(np.random.default_rng(0), np.zeros(4)).move != "coordinate"


def test_rates_are_the_publication_s():
    options = held(GaussianAdaptation, np.zeros(5), **GaussianAdaptation.presets["paper"]).sampler
    assert options.rate_at(1, 5) == pytest.approx(math.log(6) / 36)  # beta = lambda
    state = held(CMA, np.zeros(5), **CMA.presets["paper"])
    assert state.success_rate == pytest.approx(2 / 11)
    np.testing.assert_array_equal(state.path, 0.0)
    options = held(FastKameleon, np.zeros(4), **FastKameleon.presets["paper"]).sampler
    assert 10 <= options.n_features <= 600
    outcome = Outcome(None, 0.0, None, 0.0, 0.734, True)
    for m in (1, 7, 1000):  # 1 / (t - 1000), and a trial run before
        assert options.tuned(0.0, local_moves.TRIAL + m, outcome) == pytest.approx(0.5 / m)
        assert options.tuned(0.0, m, outcome) == pytest.approx(m**-0.6)
    with pytest.raises(ValueError, match="rate must be one of"):
        held(FastKameleon, np.zeros(4), rate="fast")


@pytest.mark.parametrize(
    ("surrogate", "n_history", "n_leapfrog"), [("lite", 1000, (1, 10)), ("finite", 2000, (10, 100))]
)
def test_kamiltonian_is_strathmann_et_al(surrogate, n_history, n_leapfrog):
    options = scored(np.zeros(4), surrogate=surrogate, **estimators.PAPERS[surrogate]).sampler
    assert options.recipe.kernel.name == "gaussian"
    assert surrogate == "lite" or options.recipe.n_features == 2000
    expected = {
        "surrogate": surrogate, "n_history": n_history, "embedding": "cos", "isotropic": True,
        "base_scale": math.inf,  # no base density
        "lengthscale": {"lite": None, "finite": "median"}[surrogate],  # figure 2; by held-out score, A.1
        "regularization": None,
    }  # fmt: skip
    assert {name: getattr(options.recipe, name) for name in expected} == expected
    expected = {
        "n_leapfrog": n_leapfrog, "step_size": (0.01, 0.1), "whiten": False, "adapt_share": False,
        "random_walk_share": 0.0,  # trajectories only
        "mixture": "constant",
    }  # fmt: skip
    assert {name: getattr(options, name) for name in expected} == expected


# --- Kamiltonian: the region, and trajectories only ------------------------------------------------


def normal_chain(mean, start, past=None, tune=30, draws=120, **options):
    with pm.Model() as model:
        x = pm.Flat("x", shape=2, initval=start)
        pm.Potential("target", -0.5 * ((x - mean) ** 2).sum())
        surrogate = LiteKamiltonian.paper(history=past, **options)
        step = KamiltonianStep(surrogate=surrogate, arrival=False)
    points, stats = drive(begin(step, 1), model.initial_point(), draws, tune)
    return values(points, "x"), stats, step


def history(mean):
    return mean + np.random.default_rng(1).standard_normal((200, 2))


@pytest.mark.parametrize("mean", [0.0, 1000.0, 5000.0])
def test_a_history_far_from_zero_is_sampled(mean):
    past = history(mean)
    x, stats, _ = normal_chain(mean, past[0], past, draws=400)
    assert {s["move"] for s in stats} == {"hamiltonian"}
    assert not any(s["surrogate_diverging"] for s in stats)
    away = x - mean
    assert away.min() < -1.0 and away.max() > 1.0, (away.min(), away.max())  # noqa: PT018
    assert np.mean([s["accepted"] for s in stats]) > 0.5


def far_away(**options):
    """What is learned from a history at 5000, and a point of it."""
    past, rng = history(5000.0), np.random.default_rng(2)
    return scored(past[0], surrogate="lite", history=past, rng=rng, **options), past, rng


def test_the_region_is_measured_in_the_history_s_units():
    """Control: in the target's own it is |x| < 1000, and nothing ever starts at 5000."""
    state, past, rng = far_away(**estimators.PAPERS["lite"])
    np.testing.assert_allclose(state.fitted.region[0], past.mean(axis=0))
    np.testing.assert_allclose(state.fitted.region[1], past.std(axis=0))
    state = state.start(past[0], -1.0)
    assert state.propose(rng, past[0]).log_q_ratio > -math.inf
    own = state._replace(fitted=state.fitted._replace(region=None), walk_share=0.1)
    own = own.start(past[0], -1.0)._replace(walk_share=0.0)
    assert own.propose(rng, past[0]).log_q_ratio == -math.inf


def test_shares_are_measured_in_the_history_s_units_too():
    state, past, _ = far_away(whiten=False)
    value = state.start(past[0], 0.0).current.value
    state = state._replace(mixture=residual_mixture.Mixture(0.2, 0.0, 1.0))
    assert state.start(past[0], value).share == 1.0
    assert state.start(past[0] + 2.0 * RADIUS, value).share == 0.0  # no trajectory goes there


def test_a_chain_that_cannot_move_says_so():
    away = np.full(2, 3.0 * RADIUS)
    with pytest.raises(ValueError, match=r"cannot move: it is .* standard deviations away"):
        normal_chain(0.0, away, history(0.0))
    normal_chain(0.0, away, history(0.0), random_walk_share=0.1)  # this one can


def test_from_a_cold_start_there_are_trajectories_only_once_there_is_a_surrogate():
    _, stats, step = normal_chain(0.0, np.ones(2), tune=260, draws=100, first_fit=150)
    moves = [s["move"] for s in stats]
    assert set(moves[:150]) == {"random_walk"}
    assert set(moves[150:]) == {"hamiltonian"}
    assert step.algorithm_state.walk_share == 0.0


# --- Kameleon: the walk before a subsample, eta and the lengthscale -----------------------------------


def elongated(kind, draws, **options):
    """A chain that tunes with the paper's settings where one axis is ten times as long as the others."""
    precision, sampler = np.array([0.01, 1.0, 1.0, 1.0]), kind(**{**kind.presets["paper"], **options})
    return tuned(sampler, lambda x: -0.5 * float(precision @ x**2), np.zeros(4), draws)


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_without_a_local_covariance_the_walk_is_isotropic_with_sd_gamma(kind):
    """Whatever the history says meanwhile: the paper's R is gamma^2 I before there is a subsample."""
    chain = elongated(kind, 450)
    proposed = np.array([outcome.proposal.position for outcome in chain.outcomes])
    steps = (proposed - [np.zeros(4), *chain.draws[:-1]]) / chain.held.sampler.gamma
    np.testing.assert_array_equal(chain.held.walk.factor, np.eye(4))
    z = (np.square(steps).mean(axis=0) - 1.0) / np.sqrt(2.0 / len(steps))
    assert np.abs(z).max() < 4.5
    # a learned covariance is 100 times as large along the first axis
    assert np.linalg.norm(np.cov(steps.T) - np.eye(4)) < 0.5


def test_fast_kameleon_reaches_its_acceptance_target_whatever_eta_that_takes():
    chain = elongated(FastKameleon, 5000, n_features=50, rate="renewed")
    assert math.exp(chain.held.log_scale) > math.exp(4.0)  # where it used to stop
    assert abs(chain.accept_probs[-2000:].mean() - 0.234) < 0.06
    # The lengthscale is the history's median distance, not that of the first thousand draws.
    lengthscale = chain.held.model.lengthscale
    assert abs(math.log(lengthscale / median_distance(chain.draws[::5]))) < math.log(1.15)
    assert abs(math.log(lengthscale / median_distance(chain.draws[:1000]))) > math.log(1.15)


def test_moments_are_those_of_the_whole_history_at_its_lengthscale():
    chain = elongated(FastKameleon, 2500, n_features=50)
    model = chain.held.model
    seen = chain.draws[: model.seen]
    whole = fast_kameleon._fold(None, at_lengthscale(model.unit, model.lengthscale), chain.held, seen)
    assert local_moves.whiten(chain.held, seen).shape == (4, model.seen)
    np.testing.assert_allclose(whole.mean, model.moments.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(whole.scatter, model.moments.scatter, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("step", [KameleonStep, FastKameleonStep])
def test_the_steps_take_their_papers_settings(step):
    with pm.Model() as model:
        pm.Normal("x")
    assert step(model=model, preset="paper")._options == next(iter(step.variants.values())).presets["paper"]
