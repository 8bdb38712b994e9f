"""The known part of a model with black boxes, called from compiled code: it is what Python is."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, run, spot
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.factors.split import Cut
from tests.step_tester import NO_BLAS
from tests.support import runs

pytestmark = [NO_BLAS, pytest.mark.slow]  # a minute of compiling


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def curve(p):
    return np.exp(p[0] - np.exp(p[1]) * np.arange(4.0))


class Slow(Op):
    """The identity, which Numba does not have."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0].copy()

    def pullback(self, inputs, outputs, cotangents):
        return cotangents

    def L_op(self, inputs, outputs, output_gradients):
        return output_gradients  # for PyTensor 2


def curves(known=lambda x: x):
    with pm.Model() as model:
        scale = pm.Data("scale", np.array([1.0, 2.0]))
        centre, spread = pm.Normal("centre", 0.0, 1.0, shape=2), pm.HalfNormal("spread", 0.5)
        theta, sigma = pm.Normal("theta", known(centre) * scale, spread, shape=(3, 2)), pm.HalfNormal("sigma", 0.5)
        for j in range(3):
            pm.Normal(f"y{j}", curve(theta[j]), sigma, observed=np.exp(-0.5 * np.arange(4.0)) + 0.1 * j)
    return model


def density(model, **compile_kwargs):
    point = model.initial_point()
    return FactoredDensity(Cut(model, model.continuous_value_vars, point), model, point, compile_kwargs)


@pytest.fixture(scope="module")
def learned():
    """A model's density for compiled code, and a surface of it."""
    model = curves()
    with pytensor.config.change_flags(mode="Mode"):
        source = density(model)
    sampler = FactoredKamiltonian(known=source.parts_known)
    found = runs.run(np.random.default_rng(1), sampler, source, np.zeros(source.dim), tune=120, n=1)
    assert found.state.surface is not None
    return model, source, found.state.surface


class InPython:
    """The same functions, not for compiled code."""

    def __init__(self, known):
        self.layout, self.places, self.known = known.layout, known.places, known.known

    def compiled(self):
        return None


def differences(one, other, surface):
    """Largest difference of f, of its gradient and of where transitions end, in units of what they are."""
    worst, moved = np.zeros(3), 0
    for seed in range(20):
        u = 0.3 * np.random.default_rng(seed).standard_normal(len(surface.centring))
        a, b = (spot(known, surface, u) for known in (one, other))
        p, q = (
            run(np.random.default_rng(seed), known, surface, start, ARMS[1])
            for known, start in ((one, a), (other, b))
        )  # fmt: skip
        pairs = [(a.value, b.value), (a.gradient, b.gradient), (p.end.u, q.end.u)]
        assert p.gradients == q.gradients
        moved += p.moved
        worst = np.maximum(worst, [np.abs(np.subtract(v, w)).max() / np.abs(v).max() for v, w in pairs])
    assert moved > 5
    return worst


def test_compiled_is_what_python_is(learned):
    model, source, surface = learned
    known = source.parts_known
    assert known.compiled() is not None
    in_python = InPython(known)
    assert differences(known, in_python, surface).max() < 1e-8
    before = spot(known, surface, np.full(source.dim, 0.1)).value
    with model:
        pm.set_data({"scale": np.array([3.0, 0.5])})
    try:
        assert abs(spot(known, surface, np.full(source.dim, 0.1)).value - before) > 1e-3
        assert differences(known, in_python, surface).max() < 1e-8
    finally:
        with model:
            pm.set_data({"scale": np.array([1.0, 2.0])})


def test_it_is_what_other_linkers_say(learned):
    model, source, surface = learned
    other = density(model, mode="FAST_COMPILE").parts_known
    assert other.compiled() is None
    assert differences(source.parts_known, other, surface).max() < 1e-8


def test_another_process_finds_it_anew(learned):
    """As PyMC sends a step to its workers."""
    _, source, surface = learned
    known = source.parts_known
    again = cloudpickle.loads(cloudpickle.dumps(known))
    assert again.compiled() is not None
    assert again.compiled()[0] is not known.compiled()[0]
    assert differences(known, again, surface).max() == 0.0


def test_what_numba_has_not_stays_with_python():
    with pytensor.config.change_flags(mode="Mode"):
        known = density(curves(Slow())).parts_known
    assert known.compiled() is None
    w, *_ = known.places(np.zeros(10), np.zeros(10))
    assert np.isfinite(w).all()
