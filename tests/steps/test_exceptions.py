"""A model that raises ends the run with its own exception, which tells where it happened."""

import traceback

import numpy as np
import pymc as pm
import pytest
from pymc.sampling.parallel import ParallelSamplingError

import pymc_kameleon as pk
from tests import step_tester as tester

pytestmark = tester.NO_BLAS


class UnderflowError(ValueError):
    """A solver's own."""


def solve(x):
    if x[0] > 0.5:
        raise UnderflowError("step size 0")
    return -0.5 * float(np.sum(np.square(x)))


def solver_model(initval=None):
    with pm.Model() as model:
        x = pm.Normal("x", shape=2, initval=initval)
        pm.Potential("ode", tester.BlackBox(solve)(x))
        pm.Normal("y", x[0], 1.0, observed=0.3)
    return model


def test_the_point_and_the_factor_are_added():
    model = solver_model()
    with pytest.raises(UnderflowError, match="step size 0") as caught:
        tester.sample(pk.AdaptiveMetropolisStep(model=model), model)
    *_, note = caught.value.__notes__
    assert "AdaptiveMetropolisStep was evaluating the log density of 'ode', at {'x': [" in note
    first = float(note.split("{'x': [")[1].split(",")[0])
    assert first > 0.5
    assert "return NaN" in note


def test_at_the_first_point_too():
    model = solver_model(initval=np.array([2.0, 1.0]))
    with pytest.raises(UnderflowError) as caught:
        tester.sample(pk.AdaptiveMetropolisStep(model=model), model)
    assert "{'x': [2.0, 1.0]}" in caught.value.__notes__[-1]


def test_from_a_worker_too():
    model = solver_model()
    with pytest.raises(ParallelSamplingError) as caught:
        tester.sample(pk.AdaptiveMetropolisStep(model=model), model, cores=2, mp_ctx="fork")
    assert "of 'ode', at {'x': [" in "".join(traceback.format_exception(caught.value))


def failing_estimate(rng, x):
    raise UnderflowError("no particle left")


def test_an_estimator_is_named_beside_another_step():
    with pm.Model() as model:
        x, b = pm.Normal("x"), pm.Normal("b")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(failing_estimate)(x))
        step = pk.AdaptiveMetropolisStep([x])
    with pytest.raises(UnderflowError) as caught:
        tester.begin(step).step(model.initial_point())
    assert "of 'likelihood', at {'x': 0.0}" in caught.value.__notes__[-1]
    assert b is not None


def test_nan_rejects_instead():
    def solve_or_nan(x):
        return solve(x) if x[0] <= 0.5 else float("nan")

    with pm.Model() as model:
        pm.Potential("ode", tester.BlackBox(solve_or_nan)(pm.Flat("x", shape=2)))
    idata = tester.sample(pk.AdaptiveMetropolisStep(model=model), model)
    assert idata["posterior"]["x"].values[..., 0].max() <= 0.5
    assert (idata["sample_stats"]["nonfinite"].values[:, -1] > 0).all()
