"""Steps that have sampled a normal density, for whatever is drawn of them; and steps that are not compiled."""

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps.base import KernelStep
from tests.step_tester import drive, sample

MEAN = np.array([1.0, -2.0, 30.0])
PRECISION = np.array([[2.0, -1.0, 0.0], [-1.0, 1.5, 0.05], [0.0, 0.05, 0.01]])
QUICK = {"mode": "FAST_COMPILE"}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@cache
def gaussian():
    with pm.Model() as model:
        a = pm.Flat("a", initval=0.0)
        b = pm.Flat("b", shape=2, initval=np.zeros(2))
        x = pm.math.stack([a, b[0], b[1]]) - MEAN
        pm.Potential("log_density", -0.5 * pm.math.dot(x, pm.math.dot(PRECISION, x)))
    return model


@pytest.fixture(scope="session")
def sampled():
    """A step after pm.sample in this process, and what it sampled."""
    with pytensor.config.change_flags(**QUICK), gaussian():
        step = pk.KamiltonianStep(compile_kwargs=QUICK)
        idata = sample(step, None, draws=100, tune=500, random_seed=1)
    return step, idata


@pytest.fixture(scope="session")
def tuning():
    """A step in mid-tuning, its points and its statistics."""
    step = pk.KamiltonianStep(model=gaussian(), compile_kwargs=QUICK)
    step.set_rng(np.random.default_rng(3))
    start = {"a": np.zeros(()), "b": np.zeros(2)}
    points, rows = drive(step, start, 250)
    return step, [start, *points], rows


class Accepted(Exception):
    """The step would compile now."""


@pytest.fixture
def accepting(monkeypatch):
    def accepted(*_):
        raise Accepted

    for step in (KernelStep, pk.KamiltonianStep):
        monkeypatch.setattr(step, "_compile", accepted)
