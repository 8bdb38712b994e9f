"""What every step has to pass: the steps, models with known answers, and a driver that does what PyMC's drivers do.

The protocols are those of PyMC's own ``tests/helpers.py`` (``StepMethodTester``, ``RVsAssignmentStepsTester``), which
is not shipped with PyMC, re-implemented.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.step_methods.compound import BlockedStep

import pymc_kameleon as pk

# PyTensor from a wheel says this once per process, at whichever graph comes first; it is not about this package.
NO_BLAS = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# --- the steps -------------------------------------------------------------------------------


class Case(NamedTuple):
    """A step and options with which it goes through all its phases within some 200 draws of tuning."""

    step: type
    options: dict
    moves: tuple  # what it calls its moves after tuning
    rare: tuple = ()  # and those of them that a hundred draws may lack
    skips: bool = False  # some draws need no evaluation; its statistic ``evaluations`` counts


KAMELEON_MOVES = ("local", "global", "towards")

# A new step is one line here, and a stream (tests/streams/make.py).
CASES = {
    "kameleon": Case(pk.KameleonStep, {"n_history": 40, "local_start": 60}, KAMELEON_MOVES),
    "adaptive_metropolis": Case(pk.AdaptiveMetropolisStep, {}, ("global",)),
    "pca_kameleon": Case(
        pk.KameleonStep, {"proposal": "pca", "n_history": 40, "n_directions": 5, "local_start": 60}, KAMELEON_MOVES
    ),
    "fast_kameleon": Case(pk.FastKameleonStep, {"n_features": 20, "local_start": 60, "screen": 0}, KAMELEON_MOVES),
    "gaussian_mixture": Case(
        pk.GaussianMixtureStep,
        {"max_components": 2, "local_start": 60},
        ("local", "auxiliary", "independence", "global"),
    ),
    "kamiltonian_finite": Case(
        pk.KamiltonianStep,
        {"surrogate": pk.Finite(first_fit=80, n_history=100, n_features=30, n_leapfrog=(1, 5))},
        ("random_walk", "hamiltonian"),
    ),
    "kamiltonian": Case(
        pk.KamiltonianStep,
        {},
        ("global", "differential"),
        ("short", "long", "surrogate1", "surrogate2", "surrogate3", "surrogate4"),
        skips=True,
    ),
    "gaussian_adaptation": Case(pk.GaussianAdaptationStep, {}, ("",)),
    "cma": Case(pk.CMAStep, {}, ("",)),
}


# The base step is the same for all: one of them goes through everything in the fast suite, the others in the slow one.
def step_params(names, fast=("kameleon",)):
    return [pytest.param(CASES[name], id=name, marks=[] if name in fast else pytest.mark.slow) for name in names]


every_step = pytest.mark.parametrize("case", step_params(CASES))


def make(case, model, vars=None, **kwargs):
    if vars is not None:  # PyMC's __new__ takes an explicit None for one variable
        kwargs["vars"] = vars
    return case.step(model=model, **case.options, **kwargs)


# --- the driver ------------------------------------------------------------------------------


def begin(step, seed=0):
    """Begin a chain as the installed PyMC begins one."""
    if hasattr(BlockedStep, "setup_chain"):
        step.setup_chain(np.random.default_rng(seed), 0, 0)
    else:
        step.set_rng(np.random.default_rng(seed))
    return step


def drive(step, point, draws, tune=0):
    """``tune`` and ``draws`` steps from ``point``; return the points and statistics of them all."""
    points, stats = [], []
    for i in range(tune + draws):
        if i == tune and tune:
            step.stop_tuning()
        point, [stat] = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def run(step, draws, tune=0, seed=0):
    """A chain of its own from the model's initial point."""
    return drive(begin(step, seed), step.model.initial_point(), draws, tune)


def values(points, name):
    return np.array([p[name] for p in points])


def warnings_in(stats):
    return [s["warning"] for s in stats if s["warning"] is not None]


def assert_same_draws(first, second, rounding=0.0):
    """Equal to the last bit, or but for ``rounding``: points and statistics as ``drive`` returns them."""
    for a, b in zip([*first[0], *first[1]], [*second[0], *second[1]], strict=True):
        assert list(a) == list(b)
        for name in a:
            if rounding and np.asarray(a[name]).dtype.kind == "f":
                np.testing.assert_allclose(a[name], b[name], rtol=rounding, atol=rounding)
            else:  # NaN equals NaN here
                np.testing.assert_equal(a[name], b[name], err_msg=name)


def sample(step, model, **kwargs):
    """``pm.sample`` without bar and checks, on one core."""
    given = {
        "draws": 50, "tune": 200, "chains": 2, "cores": 1, "random_seed": 20261120, "progressbar": False,
        "compute_convergence_checks": False,
    }  # fmt: skip
    return pm.sample(model=model, step=step, **{**given, **kwargs})


def moment_z(step, model, chains=16, tune=400, draws=1000, begin=begin):
    """z-scores of mean and variance of x against 0 and 1; standard errors from independent chains."""
    moments = []
    for seed in range(chains):
        x = values(drive(begin(step, seed), model.initial_point(), draws, tune)[0], "x")[tune:]
        moments.append([x.mean(), np.mean(x**2) - 1.0])
    return np.mean(moments, axis=0) / (np.std(moments, axis=0, ddof=1) / np.sqrt(chains))


# --- black boxes -----------------------------------------------------------------------------


class Counter:
    """Evaluations of a ``BlackBox`` since the last look."""

    def __init__(self, path):
        self.path = path
        path.touch()
        self._seen = 0

    def take(self):
        total = self.path.stat().st_size
        new, self._seen = total - self._seen, total
        return new


def minus_half_square(x):
    return -0.5 * np.sum(np.square(x))


# --- noise -----------------------------------------------------------------------------------


class Estimate:
    """log N(x; 0, I), without its constant, plus log-normal noise of mean one; counts its calls."""

    def __init__(self, sd):
        self.sd, self.calls = sd, 0

    def __call__(self, rng, x):
        self.calls += 1
        return float(minus_half_square(x) + self.sd * rng.standard_normal() - 0.5 * self.sd**2)


def noisy_model(fn, auxiliary_shape=None, *, work=None, shape=()):
    with pm.Model() as model:
        x = pm.Flat("x", shape=shape)
        pm.Potential("likelihood", pk.NoisyLogLikelihood(fn, auxiliary_shape, work=work)(x))
    return model


# --- models ----------------------------------------------------------------------------------

MEAN = np.array([-0.1, 0.5, 1.1])
_P = np.array([[2.0, 0.25, 0.0], [0.05, 0.1, 0.0], [1.0, -0.05, 5.5]])
PRECISION = _P @ _P.T


@cache
def gaussian():
    """Three dimensions, known moments."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=3, initval=np.array([0.1, 1.0, 0.8]))
        delta = x - MEAN  # elementwise: PyTensor from a wheel has no BLAS and says so
        pm.Potential("target", -0.5 * (PRECISION * delta[:, None] * delta[None, :]).sum())
    return model


@cache
def shapes():
    """A scalar, a matrix and intervals, all but the matrix transformed; a data container."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        matrix = pm.Normal("matrix", 0.0, scale, shape=(2, 2))
        unit = pm.Uniform("unit", 0.0, 1.0, shape=2)
        data = pm.Data("data", np.array([0.3, -0.2]))
        pm.Normal("y", matrix.sum() + unit.sum(), 1.0, observed=data)
    return model


@cache
def simplex():
    """A variable with fewer coordinates than it has values, and one of every sign beside it."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        pm.Normal("level", weights[0], 1.0, shape=(2, 2))
        pm.HalfNormal("scale", 1.0)
    return model


@cache
def switch():
    """A binary k and x | k ~ N(3 k, (1 + k)^2): what one step does has to follow the other."""
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.4)
        pm.Normal("x", 3.0 * k, 1.0 + k)
    return model


@cache
def pair():
    """Two continuous variables that depend on each other."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0)
        pm.Normal("b", a, 0.5, shape=2)
    return model


@cache
def compiled(name, model, twin, mode):
    """One step of each kind for each model: ``begin`` resets it, and compiling costs more than a test."""
    return make(CASES[name], model)


def compiled_step(case, model, seed=0, twin=False):
    [name] = [n for n, c in CASES.items() if c is case]
    return begin(compiled(name, model, twin, pytensor.config.mode), seed)
