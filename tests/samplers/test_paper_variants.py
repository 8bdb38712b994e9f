"""What the texts propose, as options: gamma that falls, a rate of one's own, lite before finite, long histories."""

import math
from functools import cache

import numpy as np
import pytest

from pymc_kameleon.kernels import median_distance
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_moves import TRIAL
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.surrogates.scores.finite import FiniteSurrogate, fit_finite
from pymc_kameleon.surrogates.scores.lite import LiteSurrogate
from pymc_kameleon.surrogates.scores.objective import gaussian_base, gradient
from pymc_kameleon.surrogates.scores.online import surrogate
from tests.support.chains import Dropped, Held, change, held, tuned
from tests.support.local_moves import learned
from tests.support.targets import Banana, Skewed

TARGET = Banana(2)


def falling(k):
    return 1.0 / k


def bent(kind, draws, **options):
    """A chain that tunes on the banana."""
    return tuned(kind(**options), TARGET.log_density, [1.0, -0.5], draws)


# --- gamma (Sejdinovic et al., 2014, section 4.2) ----------------------------------------------------


@pytest.mark.parametrize("kind", [Kameleon, PCAKameleon, FastKameleon])
def test_gamma_falls_with_each_adaptation_and_not_after_tuning(kind):
    options = {"n_features": 20} if kind is FastKameleon else {"n_history": 50}
    states = bent(kind, 400, gamma=falling, local_start=100, **options).hands
    seen = [(s.model, s.stats()["gamma"]) for s in states if s.model is not None]
    gammas = [gamma for (model, gamma), (before, _) in zip(seen[1:], seen, strict=False) if model is not before]
    if kind is not PCAKameleon:  # whose model holds the scales, too, and is another one after every move
        np.testing.assert_allclose(gammas, 1.0 / np.arange(2, len(gammas) + 2))
    assert states[-1].learned > 5
    assert states[-1].freeze().stats()["gamma"] == pytest.approx(1.0 / states[-1].learned)


class Follows:
    """Negative control: gamma goes on following the chain, each draw's ratio right by itself."""

    @staticmethod
    def propose(rng, x, state):
        return state._replace(learned=1 if x[0] > -0.5 else 8).propose(rng, x)


@pytest.mark.parametrize("control", [None, Follows])
def test_a_gamma_that_fell_is_exact(control):
    """Frozen after the second adaptation."""
    options = {"normalization": "none", "coordinates": "raw", "scale": 0.02, "lengthscale": 1.0, "n_history": 200}
    rng = np.random.default_rng(5)
    once = learned(Kameleon, Skewed.draw(rng, 200), gamma=falling, freeze=False, **options)
    z = change(once.relearn(rng).freeze(), Skewed, 4000, control=control)
    assert z > 10 if control else z < 4.5


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_what_gamma_and_rate_must_be(kind):
    with pytest.raises(ValueError, match="gamma must be positive and finite, got -1"):
        kind(gamma=lambda k: 1.0 if k < 1000 else -1.0)
    with pytest.raises(ValueError, match=r"rate must be at least 0, got -0\.5"):
        kind(rate=lambda m: -0.5)
    with pytest.raises(ValueError, match="gamma must be positive and finite, got 0"):
        bent(kind, 300, local_start=100, gamma=lambda k: 1.0 if k in (1, 2, 1000, 1_000_000) else 0.0)


# --- the rate of nu and eta (Kotlicki, 2015, equations 3.7 and 4.6) -----------------------------------


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon])
def test_a_rate_of_ones_own_moves_the_log_scale_by_it(kind):
    chain = bent(kind, 400, local_start=100, rate=lambda m: 0.7 * m**-0.8, global_share=0.3, scale=0.5)
    log_scale, m = math.log(0.5), chain.hands[0].moves
    for state, outcome in zip(chain.hands, chain.outcomes, strict=True):
        if outcome.proposal.move == "local":
            m += 1
            log_scale += 0.7 * m**-0.8 * (outcome.accept_prob - 0.234)
        assert state.log_scale == pytest.approx(log_scale, rel=1e-12)
    assert m > 100


def test_a_trial_run_ends():
    sampler = Kameleon(rate="trial")
    assert sampler.rate_at(TRIAL) == Kameleon().rate_at(TRIAL) == pytest.approx(2.0 * TRIAL**-0.6)
    for m in (1, 2, 50):
        assert sampler.rate_at(TRIAL + m) == Kameleon(rate="harmonic").rate_at(m)


# --- Kamiltonian: lite first (Strathmann et al., 2015, section 5), the median ------------------------


def test_lite_comes_first_and_then_finite():
    chain = bent(FiniteKamiltonian, 700, lite_fits=2, n_features=50, first_fit=100, online=True)
    learned = [held for held in chain.hands if held.fitted is not None]
    kinds = {held.refits: (type(held.fitted.surrogate), held.online is not None) for held in learned}
    lite, finite = (LiteSurrogate, False), (FiniteSurrogate, True)
    assert [kinds[k] for k in sorted(kinds)] == [lite, lite, *(len(kinds) - 2) * [finite]]
    assert len(kinds) > 3


@pytest.mark.parametrize("control", [None, Dropped])
def test_frozen_while_lite_it_is_exact(control):
    """60 draws of the target, bad enough to need its ratio."""
    rng = np.random.default_rng([0, 2])
    past = TARGET.draw(rng, 60)
    options = {"step_size": 0.2, "n_leapfrog": (1, 10), "random_walk_share": 0.05, "adapt_share": False}
    sampler = FiniteKamiltonian(lite_fits=1, n_features=60, **options)
    state = sampler.refit(rng, sampler.init(rng, past[0]), past)
    assert isinstance(state.fitted.surrogate, LiteSurrogate)
    z = change(Held(sampler, state).freeze(), TARGET, 1500, control=control)
    assert z > 10 if control else z < 4.5


def test_given_draws_are_learned_from_by_finite_at_once():
    past = TARGET.draw(np.random.default_rng(1), 60)
    options = {"lengthscale": "median", "whiten": False, "lite_fits": 3, "n_features": 50}
    state = held(FiniteKamiltonian, past[0], rng=np.random.default_rng(2), history=past, **options)
    assert isinstance(state.fitted.surrogate, FiniteSurrogate)
    assert state.fitted.lengthscale == pytest.approx(median_distance(past))


# --- Kamiltonian: long histories (appendices A.2 and A.3) ---------------------------------------------


def test_low_rank_is_the_dense_surrogate_as_far_as_it_is_solved():
    past = Skewed.draw(np.random.default_rng(1), 250)
    options = {"history": past, "n_history": 250, "lengthscale": 1.5, "regularization": 1e-3}
    dense, low = (
        held(LiteKamiltonian, past[0], rng=np.random.default_rng(2), solver=solver, **options).fitted
        for solver in ("dense", "low-rank")
    )
    for z in dense.states[:20]:
        exact = gradient(z, dense.surrogate)
        np.testing.assert_allclose(gradient(z, low.surrogate), exact, rtol=0.02, atol=0.02)
    assert not np.array_equal(dense.surrogate.coefficients, low.surrogate.coefficients)


@cache
def online():
    """A chain that has tuned with running sums."""
    sampler = FiniteKamiltonian(online=True, first_fit=200, n_features=40, adapt_share=True, whiten=True)
    return tuned(sampler, Skewed.log_density, np.zeros(2), 500, seed=3)


def test_online_is_the_batch_fit_to_the_whole_history_since_the_first():
    now, begun = online().held, int(0.33 * 200)
    z = np.linalg.solve(now.factor, (online().draws[begun:] - now.centre).T).T
    assert now.online.sums.weight == len(z)
    assert now.refits >= 2
    base = gaussian_base(2, 0.0, now.sampler.base_scale)
    used = now.online.ridge / len(z)  # what the regularisation stands for by now
    batch = fit_finite(np.ascontiguousarray(z), now.online.features, used, None, base)
    np.testing.assert_allclose(surrogate(now.online).coefficients, batch.coefficients, rtol=1e-6)
    assert now.freeze().online is None


@pytest.mark.parametrize("kind", ["low-rank", "online"])
def test_frozen_they_leave_a_skewed_target_invariant(kind):
    past, rng = Skewed.draw(np.random.default_rng(1), 100), np.random.default_rng(2)
    now = online().held if kind == "online" else held(LiteKamiltonian, past[0], rng=rng, history=past, solver=kind)
    assert change(now.freeze(), Skewed, 2500, moved=0.5) < 4.5
