"""Tuning under noise: scales follow the acceptance relative to standstill, so that noise alone cannot shrink them."""

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon import adaptive_metropolis
from tests import step_tester as tester


class Estimate:
    """N(0, 1) with log-estimate noise of sd 2: a step of length zero is accepted with probability 0.16."""

    def __call__(self, rng, x):
        return -0.5 * float(x) ** 2 + 2.0 * rng.standard_normal() - 2.0


def variances():
    with pm.Model():
        x = pm.Flat("x")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(Estimate())(x))
        idata = pm.sample(
            3000, tune=1500, chains=6, cores=1, step=pk.AdaptiveMetropolisStep(), random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    return idata["posterior"]["x"].values.var(axis=1)


def test_strong_noise_does_not_stop_the_chain():
    assert np.median(variances()) > 0.5


def test_without_probes_it_does(monkeypatch):
    monkeypatch.setattr(adaptive_metropolis, "MEASURES_NOISE", True, raising=False)
    assert np.median(variances()) < 0.1


@pytest.mark.parametrize("noisy", [True, False])
def test_one_evaluation_a_draw_and_probes_only_where_there_is_noise(noisy):
    with pm.Model() as model:
        x = pm.Normal("x")
        if noisy:
            pm.Potential("likelihood", pk.NoisyLogLikelihood(Estimate())(x))
        step = pk.AdaptiveMetropolisStep()
        step.set_rng(np.random.default_rng(0))
        point, moves = model.initial_point(), []
        for _ in range(200):
            retained = step.log_density
            point, [statistics] = step.step(point)
            moves.append(statistics["move"])
            if moves[-1] == "refresh":  # measured, never taken over
                assert step.log_density == retained
    assert moves.count("refresh") == (20 if noisy else 0)
    assert step.evaluations == 201


@tester.every_step_fast
def test_every_step_goes_through_its_phases_beside_noise(case):
    """A probe is not one of the algorithm's own proposals: its statistics have to be there all the same."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("likelihood", pk.NoisyLogLikelihood(Estimate())(x[0]))
    step = tester.begin(tester.make(case, model))
    _, stats = tester.drive(step, model.initial_point(), draws=50, tune=200)
    moves = [s["move"] for s in stats]
    assert "refresh" in moves[:200]
    assert "refresh" not in moves[200:]
    assert np.isfinite([s["model_logp"] for s in stats]).all()
