"""M-GaA against its dense definition, its stationary distribution, its bounds."""

import math

import numpy as np
import pytest

from pymc_kameleon.numerics.covariance import multiply_lower, update_shape
from pymc_kameleon.samplers.shape_learners import gaussian_adaptation as gaa
from pymc_kameleon.samplers.shape_learners.base import rate_multiplier
from tests.support.chains import held, run_chain


def start(x, **options):
    """As published: no search for the units, and a 0/1 success."""
    return held(gaa.GaussianAdaptation, x, **{"sweeps": 0, "success": "indicator", **options})


def standard_normal(x):
    return -0.5 * float(x @ x)


def dense(radius, shape, rate, target_accept, step, accepted):
    """The paper's two recursions, with the steps as they are seen from outside."""
    new_radius = radius * (1 + rate * (1 - target_accept) if accepted else 1 - rate * target_accept)
    if accepted:
        shape = (1 - rate) * shape + rate * np.outer(step, step) / radius**2
        shape = shape / np.linalg.det(shape) ** (1 / len(step))
    return new_radius, shape


@pytest.mark.parametrize("diminishing", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_adaptation_is_the_paper_s_recursion(d, diminishing):
    state = start(np.zeros(d), diminishing=diminishing)
    radius, shape = math.exp(state.log_size), np.eye(d)
    rate = math.log(d + 1) / (d + 1) ** 2
    previous, iteration = np.zeros(d), 0

    def compare(_, state, outcome):
        nonlocal radius, shape, previous, iteration
        iteration += 1
        scale = min(1, (iteration / 200) ** -0.6) if diminishing else 1
        step = outcome.position - previous
        radius, shape = dense(radius, shape, scale * rate, 0.234, step, outcome.accepted)
        previous = outcome.position
        assert state.log_size == pytest.approx(math.log(radius), rel=1e-10, abs=1e-10)
        learned = state.factor @ state.factor.T
        np.testing.assert_allclose(learned, shape, rtol=1e-10, atol=1e-10 * shape.max())

    rng = np.random.default_rng(1)
    run_chain(rng, state, standard_normal, np.zeros(d), 500, visit=compare)
    assert iteration == 500


class DeterminantInTheRadius:
    """Negative control."""

    @staticmethod
    def adapt(rng, state, outcome):
        moved = state.adapt(rng, outcome)
        if not outcome.accepted:
            return moved
        rate = state.sampler.rate_at(state.iteration + 1, 2)
        step = multiply_lower(state.factor, outcome.proposal.carry)
        _, log_scale, _ = update_shape(state.factor, state.base, 1.0, 1e12, step, 1.0 - rate, rate)
        return moved._replace(log_size=moved.log_size + log_scale)


@pytest.mark.parametrize("determinant", ["dropped", "kept"])
def test_acceptance_settles_at_its_target_and_control_with_the_determinant(determinant):
    control = None if determinant == "dropped" else DeterminantInTheRadius
    rng, x, rates = np.random.default_rng(5), np.zeros(2), []
    for _ in range(12):
        state, _ = run_chain(rng, start(x).but(control), standard_normal, x, 2000)
        _, draws = run_chain(rng, state, standard_normal, x, 2000, adapt=False)
        rates.append(np.any(np.diff(draws, axis=0) != 0, axis=1).mean())
    z = (np.mean(rates) - 0.234) / (np.std(rates, ddof=1) / math.sqrt(len(rates)))
    assert abs(z) < 4.5 if determinant == "dropped" else z > 10


def test_rates_are_constant_then_diminish():
    assert rate_multiplier(1) == rate_multiplier(200) == 1.0
    assert rate_multiplier(200 * 1024) == pytest.approx(1 / 64, rel=1e-10)
