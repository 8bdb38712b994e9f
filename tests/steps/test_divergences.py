"""``diverging`` says what it says for NUTS: the true energy error of a tested trajectory exceeds 1000."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers.life import Told
from tests.step_tester import NO_BLAS

pytestmark = NO_BLAS


@pytest.fixture(scope="module", params=[("values", "surrogate2"), ("finite", "hamiltonian")], ids=lambda p: p[0])
def proposed(request):
    """A step, and a proposal of its surrogate's."""
    surrogate, move = request.param
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    step = pk.KamiltonianStep(surrogate=surrogate, model=model)
    step.step(model.initial_point())
    proposal = step.sampler.propose(np.random.default_rng(0), np.zeros(2), step.algorithm_state)
    return step, proposal._replace(position=np.ones(2), log_q_ratio=0.3, move=move)


@pytest.mark.parametrize(("error", "diverging"), [(999.0, False), (1001.0, True), (math.inf, False), (-2000.0, False)])
def test_only_a_large_and_finite_energy_error_is_one(proposed, error, diverging):
    """Infinite errors are proposals without a finite log density, which ``nonfinite`` counts."""
    step, proposal = proposed

    def statistics(proposal):
        return step._draw_statistics(Told(proposal, 0.0, False, -error))

    found = statistics(proposal)
    assert found["diverging"] is diverging
    assert found["energy_error"] == error
    step.density.noisy = True  # an overestimate, which no other target_accept would mend
    assert not statistics(proposal)["diverging"]
    step.density.noisy = False
    assert not statistics(proposal._replace(move="global"))["diverging"]
    untested = statistics(proposal._replace(log_q_ratio=-math.inf))
    assert not untested["diverging"]
    assert math.isnan(untested["energy_error"])
