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
from tests.support.chains import held, scored

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
    given = estimators.PAPERS[surrogate]
    options = scored(np.zeros(4), surrogate=surrogate, **given).sampler
    recipe = options.recipe
    assert recipe.surrogate == surrogate
    assert recipe.kernel.name == "gaussian"
    assert recipe.n_history == n_history
    assert surrogate == "lite" or recipe.n_features == 2000
    assert recipe.embedding == "cos"
    assert recipe.isotropic
    assert recipe.base_scale == math.inf  # no base density
    chosen = {"lite": (None, None), "finite": ("median", None)}  # by held-out score, A.1; figure 2
    assert (recipe.lengthscale, recipe.regularization) == chosen[surrogate]
    assert options.n_leapfrog == n_leapfrog
    assert options.step_size == (0.01, 0.1)
    assert not options.whiten
    assert options.random_walk_share == 0.0  # trajectories only
    assert not options.adapt_share
    assert options.mixture == "constant"


# --- Kamiltonian: the region, and trajectories only ------------------------------------------------


def normal_chain(mean, start, past=None, tune=30, draws=120, **options):
    with pm.Model() as model:
        x = pm.Flat("x", shape=2, initval=start)
        pm.Potential("target", -0.5 * ((x - mean) ** 2).sum())
        surrogate = LiteKamiltonian.paper(history=past, **options)
        step = KamiltonianStep(surrogate=surrogate, arrival=False)
    points, stats = drive(begin(step, 1), model.initial_point(), draws, tune)
    return values(points, "x"), stats, step


@pytest.mark.parametrize("mean", [0.0, 1000.0, 5000.0])
def test_a_history_far_from_zero_is_sampled(mean):
    rng = np.random.default_rng(1)
    past = mean + rng.standard_normal((200, 2))
    x, stats, _ = normal_chain(mean, past[0], past, draws=400)
    assert {s["move"] for s in stats} == {"hamiltonian"}
    assert not any(s["surrogate_diverging"] for s in stats)
    away = x - mean
    assert away.min() < -1.0 and away.max() > 1.0, (away.min(), away.max())  # noqa: PT018
    assert np.mean([s["accepted"] for s in stats]) > 0.5


def test_the_region_is_measured_in_the_history_s_units():
    """Control: in the target's own it is |x| < 1000, and nothing ever starts at 5000."""
    rng = np.random.default_rng(1)
    past = 5000.0 + rng.standard_normal((200, 2))
    options = estimators.PAPERS["lite"]
    state = scored(past[0], surrogate="lite", history=past, rng=rng, **options)
    np.testing.assert_allclose(state.fitted.region[0], past.mean(axis=0))
    np.testing.assert_allclose(state.fitted.region[1], past.std(axis=0))
    state = state.start(past[0], -1.0)
    assert state.propose(rng, past[0]).log_q_ratio > -math.inf
    own = state._replace(fitted=state.fitted._replace(region=None), walk_share=0.1)
    own = own.start(past[0], -1.0)._replace(walk_share=0.0)
    assert own.propose(rng, past[0]).log_q_ratio == -math.inf


def test_shares_are_measured_in_the_history_s_units_too():
    rng = np.random.default_rng(1)
    past = 5000.0 + rng.standard_normal((200, 2))
    state = scored(past[0], surrogate="lite", history=past, rng=rng, whiten=False)
    value = state.start(past[0], 0.0).current.value
    state = state._replace(mixture=residual_mixture.Mixture(0.2, 0.0, 1.0))
    assert state.start(past[0], value).share == 1.0
    far = past[0] + 2.0 * RADIUS  # no trajectory goes there
    assert state.start(far, value).share == 0.0


def test_a_chain_that_cannot_move_says_so():
    rng = np.random.default_rng(1)
    past = rng.standard_normal((200, 2))
    with pytest.raises(ValueError, match=r"cannot move: it is .* standard deviations away"):
        normal_chain(0.0, np.full(2, 3.0 * RADIUS), past)
    normal_chain(0.0, np.full(2, 3.0 * RADIUS), past, random_walk_share=0.1)  # this one can


def test_from_a_cold_start_there_are_trajectories_only_once_there_is_a_surrogate():
    _, stats, step = normal_chain(0.0, np.ones(2), tune=260, draws=100, first_fit=150)
    moves = [s["move"] for s in stats]
    assert set(moves[:150]) == {"random_walk"}
    assert set(moves[150:]) == {"hamiltonian"}
    assert step.algorithm_state.walk_share == 0.0


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_without_a_local_covariance_the_walk_is_isotropic_with_sd_gamma(kind):
    """Whatever the history says meanwhile: the paper's R is gamma^2 I before there is a subsample."""
    state = held(kind, np.zeros(4), **kind.presets["paper"])
    gamma, rng, x, steps = state.sampler.gamma, np.random.default_rng(1), np.zeros(4), []
    sd = np.array([10.0, 1.0, 1.0, 1.0])
    draws = state.draws(rng, lambda x: -0.5 * float(np.sum((x / sd) ** 2)), x, 450, tuning=True)
    for _, outcome, after in draws:
        steps.append(outcome.proposal.position - x)
        x, state = outcome.position, after
    np.testing.assert_array_equal(state.walk.factor, np.eye(4))
    squares = np.square(np.array(steps) / gamma)
    z = (squares.mean(axis=0) - 1.0) / np.sqrt(2.0 / len(squares))
    assert np.abs(z).max() < 4.5
    moved = np.linalg.norm(np.cov(np.array(steps).T) / gamma**2 - np.eye(4))
    assert moved < 0.5  # a learned covariance is 100 times as large along the first axis


# --- FastKameleon: eta and the lengthscale ---------------------------------------------------------


def run_fast(draws, **options):
    sd = np.array([10.0, 1.0, 1.0, 1.0])
    rng, x = np.random.default_rng(1), np.zeros(4)
    state = held(FastKameleon, x, n_features=50, **{**FastKameleon.presets["paper"], **options})
    outcomes = []
    for _, outcome, after in state.draws(rng, lambda x: -0.5 * float(np.sum((x / sd) ** 2)), x, draws, tuning=True):
        outcomes.append(outcome)
        state = after
    chain = np.array([o.position for o in outcomes])
    return state, chain, np.array([o.accept_prob for o in outcomes])


def test_fast_kameleon_reaches_its_acceptance_target_whatever_eta_that_takes():
    state, chain, probabilities = run_fast(5000, rate="renewed")
    assert math.exp(state.log_scale) > math.exp(4.0)  # where it used to stop
    assert abs(probabilities[-2000:].mean() - 0.234) < 0.06
    # The lengthscale is the history's median distance, not that of the first thousand draws.
    lengthscale = state.model.lengthscale
    own = median_distance(chain[:: len(chain) // 1000])
    assert abs(math.log(lengthscale / own)) < math.log(1.15)
    first = median_distance(chain[:1000])
    assert abs(math.log(lengthscale / first)) > math.log(1.15)


def test_moments_are_those_of_the_whole_history_at_its_lengthscale():
    state, chain, _ = run_fast(2500)
    model = state.model
    seen = chain[: model.seen]
    points = local_moves.whiten(state, seen)
    whole = fast_kameleon._fold(None, at_lengthscale(model.unit, model.lengthscale), state, seen)
    assert points.shape == (4, model.seen)
    np.testing.assert_allclose(whole.mean, model.moments.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(whole.scatter, model.moments.scatter, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("step", [KameleonStep, FastKameleonStep])
def test_the_steps_take_their_papers_settings(step):
    with pm.Model() as model:
        pm.Normal("x")
    assert step(model=model, preset="paper")._options == next(iter(step.variants.values())).presets["paper"]
