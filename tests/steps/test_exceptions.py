"""A model that raises ends the run with its own exception, which tells where it happened."""

import traceback

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.parallel import ParallelSamplingError
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.steps.factors import returned
from pymc_kameleon.steps.noise.noisy_factors import black_boxes
from tests import step_tester as tester
from tests.support.hierarchies import BlackBox

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
        pm.Potential("ode", BlackBox(solve)(x))
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


def test_from_a_worker_too():
    model = solver_model()
    with pytest.raises(ParallelSamplingError) as caught:
        tester.sample(pk.AdaptiveMetropolisStep(model=model), model, cores=2, mp_ctx="fork")
    assert "of 'ode', at {'x': [" in "".join(traceback.format_exception(caught.value))


def failing_estimate(rng, x):
    raise UnderflowError("no particle left")


def test_an_estimator_is_named_beside_another_step():
    with pm.Model() as model:
        x, _ = pm.Normal("x"), pm.Normal("b")
        pm.Potential("likelihood", pk.NoisyLogLikelihood(failing_estimate)(x))
        step = pk.AdaptiveMetropolisStep([x])
    with pytest.raises(UnderflowError) as caught:
        tester.begin(step).step(model.initial_point())
    assert "of 'likelihood', at {'x': 0.0}" in caught.value.__notes__[-1]


# --- what PyTensor's errors do not tell ---------------------------------------------------------


def wrapped(function, kind=pt.dvector):
    """The README's way, in a model of five observed values; and a step that has not been called."""

    def infected(beta):
        infected.calls += 1
        return function(float(beta))

    infected.calls = 0
    with pm.Model() as model:
        predicted = wrap_py(itypes=[pt.dscalar], otypes=[kind])(infected)(pm.Normal("beta"))
        if kind is pt.dscalar:
            pm.Potential("y", predicted)
        else:
            pm.Normal("y", predicted, 1.0, observed=np.arange(5.0))
        return pk.AdaptiveMetropolisStep(compile_kwargs={"mode": "CVM"}), model, infected


VECTOR = "a float64 array of 1 dimension, as np.asarray(values, dtype='float64')."
NUMBER = "a float64 number, as np.asarray(value, dtype='float64') of shape ()."


@pytest.mark.parametrize(
    ("function", "kind", "found", "has_to"),
    [
        (lambda b: [b] * 5, pt.dvector, "a list of 5", VECTOR),
        (lambda b: np.full(3, b), pt.dvector, "a float64 array of shape (3,)",
         "what fits the observed values, of shape (5,)."),
        (lambda b: b, pt.dscalar, "a float", NUMBER),
    ],
    ids=["list", "short", "float"],  # others are rows of bad_input
)  # fmt: skip
def test_what_a_wrapped_function_returned_and_has_to_return(function, kind, found, has_to):
    step, model, _ = wrapped(function, kind)
    with pytest.raises(Exception) as caught:  # noqa: PT011  PyTensor's: of several types
        tester.begin(step).step(model.initial_point())
    said = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"infected, the black box of 'y', returned {found}; it has to return {has_to}" in said
    assert "AdaptiveMetropolisStep was evaluating the log density of 'y', at {'beta': 0.0}" in said


def test_what_a_wrapped_function_raises_is_not_asked_again():
    step, model, infected = wrapped(lambda b: 1.0 / b)
    before = infected.calls
    with pytest.raises(ZeroDivisionError) as caught:
        tester.begin(step).step(model.initial_point())
    assert infected.calls == before + 1
    assert "of 'y', at {'beta': 0.0}" in caught.value.__notes__[-1]
    assert black_boxes(model) == ["y"]


def test_nothing_is_said_of_what_is_as_declared():
    step, model, _ = wrapped(lambda b: [np.full(5, b)])  # a list of outputs
    tester.begin(step).step(model.initial_point())
    assert returned.misreturned(model, model.initial_point()) == ""
