"""Random numbers that PyTensor cannot see: found in the functions of a model, noticed by the second chain."""

import itertools
import logging
import math
import random
import re
from functools import partial
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
from numba import njit
from scipy import sparse
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood
from pymc_kameleon.sampling.arguments import checked_step
from pymc_kameleon.steps.noise.hidden_generators import hidden_generators
from tests import step_tester as tester
from tests.step_tester import Estimate, begin, minus_half_square, noisy_model, sample
from tests.steps.test_pseudo_marginal import OBJECT_MODE, QUICK
from tests.support.hierarchies import BlackBox

pytestmark = [tester.NO_BLAS, OBJECT_MODE]
GLOBAL_GENERATOR = np.random.default_rng(1)
rng = np.random.default_rng(2)  # never used by a likelihood here: only its name is


class Simulation:
    def __init__(self, generator):
        self.generator = generator

    def log_likelihood(self, x):
        return float(self.generator.normal(-0.5 * x**2))

    __call__ = log_likelihood


def uses_numpy(x):
    return float(np.random.normal(-0.5 * x**2))  # noqa: NPY002


@njit
def compiled_by_numba(x):
    return -0.5 * x**2 + np.random.normal(0.0, 1.0)  # noqa: NPY002


def closure():
    generator = np.random.default_rng(4)
    return lambda x: float(generator.normal(-0.5 * x**2))


class UsesRandomModule:
    __call__ = lambda self, x: -0.5 * x**2 + random.gauss(0.0, 1.0)  # noqa: E731


NORMAL = np.random.normal
HIDDEN = {
    "in an Op": Simulation(np.random.default_rng(5)),
    "legacy generator": Simulation(np.random.RandomState(5)),
    "method of its owner": Simulation(np.random.default_rng(5)).log_likelihood,
    "standard library": Simulation(random.Random(5)),
    "callable object": UsesRandomModule(),
    "closure": closure(),
    "global": lambda x: float(GLOBAL_GENERATOR.normal(-0.5 * x**2)),
    "np.random": uses_numpy,
    "np.random inside": lambda x: float(np.mean(list(np.random.normal(x) for _ in range(3)))),  # noqa: C400, NPY002
    "np.random by another name": lambda x: float(NORMAL(-0.5 * x**2)),
    "default argument": lambda x, rng=np.random.default_rng(3): float(rng.normal(x)),  # noqa: B008
    "unseeded": lambda x: float(np.random.default_rng().normal(-0.5 * x**2)),
    "through another function": lambda x: uses_numpy(x),
    "partial": partial(lambda generator, x: float(generator.normal(x)), np.random.default_rng(6)),
    "numba": compiled_by_numba,
}


@pytest.mark.parametrize("function", HIDDEN.values(), ids=HIDDEN)
def test_hidden_generators_are_found(function):
    assert hidden_generators([BlackBox(function)(pt.dscalar())])


def given_a_generator(rng, x):
    assert isinstance(rng, np.random.Generator)
    return rng.normal(-0.5 * x**2) + rng.random() + math.log(np.mean(rng.random(3)))


def name_only(x):
    holder = SimpleNamespace(rng=x, GLOBAL_GENERATOR=x)
    return float(-0.5 * holder.rng * holder.GLOBAL_GENERATOR)


INNOCENT = {
    "its own rng": NoisyLogLikelihood(given_a_generator),
    "bound method": NoisyLogLikelihood(Estimate(1.0).__call__),
    "seeded inside": BlackBox(lambda x: float(np.random.default_rng(7).normal(-0.5 * x**2))),  # common random numbers
    "scipy.stats": BlackBox(lambda x: float(norm.logpdf(x))),  # it holds NumPy's global generator, for other methods
    "attribute with a generator's name": BlackBox(name_only),
    "plain": BlackBox(minus_half_square),
}


@pytest.mark.parametrize("op", INNOCENT.values(), ids=INNOCENT)
def test_no_false_alarm(op):
    assert hidden_generators([op(pt.dscalar())]) == []


def black_box_model(function, path=None):
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("likelihood", BlackBox(function, path=path)(x))
    return model


def test_hidden_generator_is_warned_about(caplog):
    """By the logger that the FAQ names; not while the step is built."""
    hybrid = noisy_model(lambda rng, x: rng.normal(x) + GLOBAL_GENERATOR.random())
    for model in (black_box_model(uses_numpy), hybrid):
        caplog.clear()
        step = pk.AdaptiveMetropolisStep(model=model)
        with caplog.at_level(logging.WARNING, logger="pymc"):
            sample(step, model, draws=2, tune=2, chains=2)
        [said] = [m for m in caplog.messages if "random numbers that PyTensor cannot see" in m]
        assert said.startswith("AdaptiveMetropolisStep: the log density seems to draw")
        assert "pymc_kameleon.NoisyLogLikelihood" in said
    step = pk.KamiltonianStep(model=model, learn="all")
    checked_step(step, model)
    assert caplog.messages[-1].startswith("pk.sample: the log density seems to draw")


@pytest.fixture
def counter(tmp_path):
    return tester.Counter(tmp_path / "evaluations")


def test_generator_behind_compiled_code_is_noticed_by_the_second_chain(counter, caplog):
    """An iterator is as opaque as a C library; the chains start at one point and find two values there."""
    draw = itertools.cycle([0.3, -0.2, 0.1, 0.7, -0.5]).__next__
    model = black_box_model(lambda x: -0.5 * float(x) ** 2 + draw(), counter.path)
    step = pk.AdaptiveMetropolisStep(model=model)  # nothing to be seen yet
    counter.take()
    with caplog.at_level(logging.WARNING, logger="pymc"):
        sample(step, model, draws=6, tune=5, chains=3)
    found = r"chain [12]: .*values .* and .* at one point.*NoisyLogLikelihood"
    assert len([m for m in caplog.messages if re.search(found, m)]) == 2
    assert counter.take() == 3 * 12  # and no evaluation for finding out


@pytest.mark.parametrize("size", [0.0, 1e-8, 0.009, 0.03, 1.0])
@pytest.mark.parametrize("value", [0.0, 1e6])
def test_how_far_two_values_may_be_apart(size, value):
    """float32 and solvers with several threads do not repeat their last digits: that is not noise."""
    step = pk.AdaptiveMetropolisStep(model=black_box_model(minus_half_square), **QUICK)
    allowed = size < 0.01 + 1e-6 * value
    step.watch.compare(np.zeros(1), value)
    step.watch.compare(np.zeros(1), value + size)
    said = step.watch.take()
    assert (said is None) == allowed
    assert allowed or f"{size:.2g} apart" in said.message


def test_data_is_remembered_by_its_digest(counter):
    """Data exchanged three times: the step that goes to the workers holds them once."""
    data = np.random.default_rng(1).standard_normal(16_384)
    with pm.Model() as model:
        held = pm.Data("data", data)
        x = pm.Normal("x", initval=0.0)
        pm.Potential("likelihood", -0.5 * ((x - held) ** 2).mean())
    step = pk.AdaptiveMetropolisStep(model=model, **QUICK)
    before = len(cloudpickle.dumps(step))
    for i in range(3):
        pm.set_data({"data": data + i}, model=model)
        begin(step).step(model.initial_point())
    assert len(step.watch.first_values) == 3
    assert len(cloudpickle.dumps(step)) < before + 20_000
    # what is told apart: a value, the same numbers in another shape, another point
    density, zero = step.density, np.zeros(1)
    first = density.digest(zero)
    assert first == density.digest(zero)
    pm.set_data({"data": data + 7}, model=model)
    assert first != density.digest(zero) != density.digest(np.ones(1))


def test_digest_of_what_is_no_plain_array():
    matrix = pytensor.shared(sparse.csr_matrix(np.eye(2)), name="matrix")
    with pm.Model() as model:
        x = pm.Normal("x", shape=(2, 1))
        pm.Potential("p", pytensor.sparse.structured_dot(matrix, x).sum())
    density = pk.AdaptiveMetropolisStep(model=model, **QUICK).density
    first = density.digest(np.zeros(2))
    assert density.digest(np.zeros(2)) == first
    matrix.set_value(sparse.csr_matrix(2.0 * np.eye(2)))
    assert density.digest(np.zeros(2)) != first


def test_deterministic_chains_are_not_warned_about(counter, caplog):
    """Also when the data or the other variables change between runs of one step."""
    with pm.Model() as model:
        data = pm.Data("data", np.array([0.5, 1.0]))
        x = pm.Normal("x", initval=0.0)
        pm.Potential("likelihood", BlackBox(minus_half_square, path=counter.path)(x - data))
    step = pk.AdaptiveMetropolisStep(model=model)
    counter.take()
    for value in (0.5, 3.0):
        pm.set_data({"data": np.array([value, 1.0])}, model=model)
        sample(step, model, draws=5, tune=5, chains=2)
    assert "cannot see" not in caplog.text
    assert counter.take() == 2 * 2 * 11
