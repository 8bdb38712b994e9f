"""The paper's appendices A.2 and A.3 as options: what they compute is what the direct way computes."""

import numpy as np
import pytest

from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.surrogates.scores.finite import fit_finite
from pymc_kameleon.surrogates.scores.objective import gaussian_base, gradient
from tests.support.chains import held, run_transitions, two_sample_z
from tests.support.local_moves import skewed_density, skewed_draws


def test_low_rank_is_the_dense_surrogate_as_far_as_it_is_solved():
    past = skewed_draws(np.random.default_rng(1), 250)
    options = {"history": past, "n_history": 250, "lengthscale": 1.5, "regularization": 1e-3}
    dense, low = (
        held(LiteKamiltonian, past[0], rng=np.random.default_rng(2), solver=solver, **options).fitted
        for solver in ("dense", "low-rank")
    )
    for z in dense.states[:20]:
        exact = gradient(z, dense.surrogate)
        np.testing.assert_allclose(gradient(z, low.surrogate), exact, rtol=0.02, atol=0.02)
    assert not np.array_equal(dense.surrogate.coefficients, low.surrogate.coefficients)


def tuned_online(draws):
    """What is held after tuning with running sums, and every state the chain has had."""
    rng, x = np.random.default_rng(3), np.array([0.0, 0.0])
    options = {"first_fit": 200, "n_features": 40, "adapt_share": True, "whiten": True}
    now = held(FiniteKamiltonian, x, rng=rng, online=True, **options).start(x, skewed_density(x))
    states = []
    for _, outcome, now in now.draws(rng, skewed_density, x, draws, tuning=True):  # noqa: B007, B020
        states.append(outcome.position)
    return now, np.array(states)


def test_online_is_the_batch_fit_to_the_whole_history_since_the_first():
    now, states = tuned_online(500)
    online, begun = now.online, int(0.33 * 200)
    z = np.linalg.solve(now.factor, (states[begun:] - now.centre).T).T
    assert online.sums.weight == len(z)
    assert now.refits >= 2
    base = gaussian_base(2, 0.0, now.sampler.base_scale)
    used = online.ridge / online.sums.weight  # what the regularisation stands for by now
    batch = fit_finite(np.ascontiguousarray(z), online.features, used, None, base)
    from pymc_kameleon.surrogates.scores.online import surrogate

    np.testing.assert_allclose(surrogate(online).coefficients, batch.coefficients, rtol=1e-6)
    assert now.freeze().online is None


@pytest.mark.parametrize("kind", ["low-rank", "online"])
def test_frozen_they_leave_a_skewed_target_invariant(kind):
    if kind == "online":
        now = tuned_online(450)[0].freeze()
    else:
        past = skewed_draws(np.random.default_rng(1), 100)
        rng = np.random.default_rng(2)
        now = held(LiteKamiltonian, past[0], rng=rng, history=past, solver="low-rank").freeze()
    rng = np.random.default_rng(4)
    starts = skewed_draws(rng, 2500)
    ends = run_transitions(rng, now, skewed_density, starts, 4)
    assert np.mean((starts != ends).any(axis=1)) > 0.5
    assert np.abs(two_sample_z(ends, starts, skewed_density)).max() < 4.5
