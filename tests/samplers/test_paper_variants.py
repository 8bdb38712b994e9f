"""What the texts only propose, as options: gamma that falls, a rate of one's own, lite before finite, the median."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.kernels import median_distance
from pymc_kameleon.numerics.random_features import draw_features, features
from pymc_kameleon.samplers.kameleon.fast import FastKameleon, _roots
from pymc_kameleon.samplers.kameleon.feature_covariance import feature_covariance
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_moves import TRIAL
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian
from pymc_kameleon.surrogates.scores.finite import FiniteSurrogate
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate
from tests.samplers.test_kamiltonian import draw, invariance
from tests.support.chains import Held, held
from tests.support.local_moves import change, learned
from tests.support.targets import Banana

TARGET = Banana(2)


def falling(k):
    return 1.0 / k


def tuned(kind, n, **options):
    """States of ``n`` tuning draws on the banana, and the outcomes that led to them."""
    x = np.array([1.0, -0.5])
    state = held(kind, x, local_start=100, **options).start(x, TARGET.log_density(x))
    found = [(after, o) for _, o, after in state.draws(np.random.default_rng(1), TARGET.log_density, x, n, tuning=True)]
    return [after for after, _ in found], [outcome for _, outcome in found]


# --- gamma (Sejdinovic et al., 2014, section 4.2) ----------------------------------------------------


KINDS = {"KAMH": Kameleon, "PCA": PCAKameleon, "F-KAMH": FastKameleon}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_gamma_falls_with_each_adaptation_and_not_after_tuning(kind):
    options = {"n_features": 20} if kind is FastKameleon else {"n_history": 50}
    states, _ = tuned(kind, 400, gamma=falling, **options)
    seen = [(s.model, s.stats()["gamma"]) for s in states if s.model is not None]
    gammas = [gamma for (model, gamma), (before, _) in zip(seen[1:], seen, strict=False) if model is not before]
    if kind is not PCAKameleon:  # whose model holds the scales, too, and is another one after every move
        np.testing.assert_allclose(gammas, 1.0 / np.arange(2, len(gammas) + 2))
    assert states[-1].learned > 5
    assert states[-1].freeze().stats()["gamma"] == pytest.approx(1.0 / states[-1].learned)


def twice(z, rng):
    """Frozen after the second adaptation."""
    options = {"normalization": "none", "coordinates": "raw", "scale": 0.02, "lengthscale": 1.0, "n_history": 200}
    return learned(Kameleon, z, gamma=falling, freeze=False, **options).relearn(rng).freeze()


class Follows:
    """Negative control: gamma goes on following the chain, each draw's ratio right by itself."""

    @staticmethod
    def propose(rng, x, state):
        return state._replace(learned=1 if x[0] > -0.5 else 8).propose(rng, x)


def test_a_gamma_that_fell_is_exact():
    assert change(twice, 6000) < 4.5


def test_a_gamma_that_is_not_frozen_is_noticed():
    assert change(twice, 6000, control=Follows) > 10


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_what_gamma_and_rate_must_be(kind):
    with pytest.raises(ValueError, match="gamma must be positive and finite, got -1"):
        kind(gamma=lambda k: 1.0 if k < 1000 else -1.0)
    with pytest.raises(ValueError, match=r"rate must be at least 0, got -0\.5"):
        kind(rate=lambda m: -0.5)
    with pytest.raises(ValueError, match="gamma must be positive and finite, got 0"):
        tuned(kind, 300, gamma=lambda k: 1.0 if k in (1, 2, 1000, 1_000_000) else 0.0)


# --- the rate of nu and eta (Kotlicki, 2015, equations 3.7 and 4.6) -----------------------------------


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_a_rate_of_ones_own_moves_the_log_scale_by_it(kind):
    states, outcomes = tuned(kind, 400, rate=lambda m: 0.7 * m**-0.8, global_share=0.3, scale=0.5)
    log_scale, m = math.log(0.5), states[0].moves
    for state, outcome in zip(states, outcomes, strict=True):
        if outcome.proposal.move == "local":
            m += 1
            log_scale += 0.7 * m**-0.8 * (outcome.accept_prob - 0.234)
        assert state.log_scale == pytest.approx(log_scale, rel=1e-12)
    assert m > 100


def test_a_trial_run_ends():
    sampler = Kameleon(rate="trial")
    assert sampler.rate_at(TRIAL) == Kameleon().rate_at(TRIAL) == pytest.approx(2.0 * TRIAL**-0.6)
    assert [sampler.rate_at(TRIAL + m) for m in (1, 2, 50)] == [
        Kameleon(rate="harmonic").rate_at(m) for m in (1, 2, 50)
    ]


# --- the root of the features' covariance -------------------------------------------------------------


def test_any_root_of_the_features_covariance_is_the_same_proposal():
    """Eigenvectors, a Cholesky factor and singular vectors: nobody can tell them apart, so there is no option."""
    rng = np.random.default_rng(2)
    unit = draw_features(rng, Kameleon().chosen, 3, 40, 1.0, "sincos")
    phi = features(rng.standard_normal((500, 3)), unit)
    centred = (phi - phi.mean(axis=0)) / math.sqrt(len(phi))
    cov, m = centred.T @ centred, len(unit.offsets)
    frequencies, y = np.ascontiguousarray(unit.frequencies.T), rng.standard_normal(3)
    eigen = feature_covariance(y, frequencies, unit.offsets, _roots(cov, unit, 1.0), True)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    for root in (np.linalg.cholesky(cov).T, values[:, None] * vectors):
        rows = root * math.sqrt(2.0 / unit.n_features)
        other = np.ascontiguousarray(np.stack([rows[:, :m], rows[:, m:]]))
        np.testing.assert_allclose(
            feature_covariance(y, frequencies, unit.offsets, other, True), eigen, rtol=1e-10, atol=1e-14
        )


# --- Kamiltonian: lite first (Strathmann et al., 2015, section 5), the median ------------------------


def test_lite_comes_first_and_then_finite():
    rng, x = np.random.default_rng(0), np.array([2.5, -1.0])
    state = held(FiniteKamiltonian, x, lite_fits=2, n_features=50, first_fit=100, online=True)
    kinds = {}
    for _, _, after in state.draws(rng, TARGET.log_density, x, 700, tuning=True):
        if after.fitted is not None:
            kinds[after.refits] = type(after.fitted.surrogate), after.online is not None
    assert [kinds[k] for k in (1, 2)] == [(LiteSurrogate, False)] * 2
    assert {kinds[k] for k in range(3, 1 + max(kinds))} == {(FiniteSurrogate, True)}
    assert max(kinds) > 3


def still_lite():
    """Frozen while its surrogate is lite: 60 draws of the target, bad enough to need its ratio."""
    rng = np.random.default_rng([0, 2])
    past = draw(rng, 60)
    options = {"step_size": 0.2, "n_leapfrog": (1, 10), "random_walk_share": 0.05, "adapt_share": False}
    sampler = FiniteKamiltonian(lite_fits=1, n_features=60, **options)
    state = sampler.refit(rng, sampler.init(rng, past[0]), past)
    assert isinstance(state.fitted.surrogate, LiteSurrogate)
    return Held(sampler, state).freeze()


def test_frozen_while_lite_it_is_exact():
    z, moved = invariance(still_lite())
    assert z < 4.5
    assert moved > 0.2


def test_frozen_while_lite_with_a_wrong_ratio_it_fails():
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        return proposal if proposal.log_q_ratio == -math.inf else proposal._replace(log_q_ratio=0.0)

    assert invariance(still_lite().but(SimpleNamespace(propose=propose)))[0] > 10


def test_given_draws_are_learned_from_by_finite_at_once():
    past = draw(np.random.default_rng(1), 60)
    options = {"lengthscale": "median", "whiten": False, "lite_fits": 3, "n_features": 50}
    state = held(FiniteKamiltonian, past[0], rng=np.random.default_rng(2), history=past, **options)
    assert isinstance(state.fitted.surrogate, FiniteSurrogate)
    assert state.fitted.lengthscale == pytest.approx(median_distance(past))
