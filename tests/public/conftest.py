"""Steps that have sampled a normal density, for whatever is drawn of them."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_kameleon as pk

MEAN = np.array([1.0, -2.0, 30.0])
PRECISION = np.array([[2.0, -1.0, 0.0], [-1.0, 1.5, 0.05], [0.0, 0.05, 0.01]])
QUICK = {"mode": "FAST_COMPILE"}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


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
        idata = pm.sample(
            100, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return step, idata


@pytest.fixture(scope="session")
def tuning():
    """A step in mid-tuning, its points and its statistics."""
    step = pk.KamiltonianStep(model=gaussian(), compile_kwargs=QUICK)
    step.set_rng(np.random.default_rng(3))
    points, rows = [{"a": np.zeros(()), "b": np.zeros(2)}], []
    for _ in range(250):
        point, [row] = step.step(points[-1])
        points.append(point)
        rows.append(row)
    return step, points, rows
