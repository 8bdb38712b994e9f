"""Noisy log densities: exact posteriors, reproducible noise, one evaluation a draw, and the ways to get it wrong."""

import itertools
import logging
import math
import pickle
import random
import re
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
from numba import njit
from pymc.step_methods.compound import CompoundStep
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from scipy.stats import norm

from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood, step_beside_noise
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.sampling.arguments import checked_step
from pymc_kameleon.steps import (
    AdaptiveMetropolisStep,
    FastKameleonStep,
    GaussianMixtureStep,
    KameleonStep,
    KamiltonianStep,
)
from pymc_kameleon.steps.log_density import compile_log_density
from pymc_kameleon.steps.noise import noisy_likelihood
from pymc_kameleon.steps.noise.demands import renewal
from pymc_kameleon.steps.noise.hidden_generators import hidden_generators
from pymc_kameleon.steps.pytensor_internals import cells
from tests.step_tester import (
    NO_BLAS,
    BlackBox,
    Counter,
    assert_same_draws,
    begin,
    drive,
    minus_half_square,
    sample,
    values,
)

OBJECT_MODE = pytest.mark.filterwarnings("ignore:.*object mode.*:UserWarning")
# PyTensor 3 announces these to whoever builds a random variable, ``pm.Simulator`` included.
RNG_OUTPUT = pytest.mark.filterwarnings("ignore:RandomVariable Ops will stop hiding the rng output:DeprecationWarning")
RNG_INPUT = pytest.mark.filterwarnings("ignore:Calling a RandomVariable without an explicit rng:DeprecationWarning")
pytestmark = [NO_BLAS, OBJECT_MODE, RNG_OUTPUT, RNG_INPUT]
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


class Estimate:
    """log N(x; 0, 1), without its constant, plus log-normal noise of mean one; counts its calls."""

    def __init__(self, sd, path=None):
        self.sd, self.path, self.calls = sd, path, 0

    def __call__(self, rng, x):
        self.calls += 1
        if self.path is not None:
            with open(self.path, "ab") as file:
                file.write(b".")
        return float(-0.5 * x * x + self.sd * rng.standard_normal() - 0.5 * self.sd**2)


def model_of(estimate, auxiliary_shape=None):
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("likelihood", NoisyLogLikelihood(estimate, auxiliary_shape)(x))
    return model


# --- NoisyLogLikelihood ----------------------------------------------------------------------


def noisy_nodes(function):
    found = [n.op for n in function.maker.fgraph.apply_nodes]
    return [op for op in found if isinstance(op, NoisyLogLikelihood)]


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "FAST_COMPILE"])
def test_one_evaluation_a_call(mode):
    estimate = Estimate(1.0)
    x = pt.dscalar()
    function = compile_log_density([x], [NoisyLogLikelihood(estimate)(x)], {"mode": mode})
    function(0.0)
    before, seen = estimate.calls, {float(function(0.0)) for _ in range(20)}
    assert estimate.calls == before + 20
    assert len(seen) == 20


def test_constant_parameters_are_not_folded():
    estimate = Estimate(1.0)
    function = compile_log_density([], [NoisyLogLikelihood(estimate)(pt.constant(0.3))], None)
    assert len({float(function()) for _ in range(10)}) == 10
    assert estimate.calls >= 10
    # also with a constant generator, which makes every input constant
    rng = pt.random.type.RandomGeneratorType().make_constant(np.random.default_rng(1))
    node = NoisyLogLikelihood(estimate)(pt.constant(0.3), rng=rng).owner
    assert not node.op.do_constant_folding(None, node)


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_compiled_functions_advance_the_stream_in_place(mode, monkeypatch):
    copies = []
    original = noisy_likelihood.copy_generator
    monkeypatch.setattr(noisy_likelihood, "copy_generator", lambda r: copies.append(1) or original(r))
    model = model_of(Estimate(1.0))
    [user] = [v.owner.op for v in ancestors([model.logp()]) if _is_noisy(v)][:1]
    assert not user.inplace
    assert user.destroy_map == {}
    function = AdaptiveMetropolisStep(model=model, compile_kwargs={"mode": mode}).density._function
    [op] = noisy_nodes(function)
    assert op.inplace
    assert op.destroy_map == {0: [0]}
    for _ in range(5):
        function(np.zeros(1))
    assert not copies
    # Control: the user's own graph copies, at every evaluation.
    rng, x = np.random.default_rng(1), pt.dscalar()
    node = NoisyLogLikelihood(Estimate(1.0))(x).owner
    out = [[None], [None]]
    state = rng.bit_generator.state
    node.op.perform(node, [rng, np.array(0.0)], out)
    assert copies
    assert rng.bit_generator.state == state


def _is_noisy(variable):
    return variable.owner is not None and isinstance(variable.owner.op, NoisyLogLikelihood)


@pytest.mark.parametrize("module", [pickle, cloudpickle])
def test_pickled(module):
    op = NoisyLogLikelihood(Estimate(0.7), auxiliary_shape=(3,))
    twin = module.loads(module.dumps(op))
    assert twin.fn.sd == 0.7
    assert twin.auxiliary_shape == (3,)
    twin = cloudpickle.loads(cloudpickle.dumps(NoisyLogLikelihood(lambda rng, x: -x)))
    assert twin.fn(None, 2.0) == -2.0


def test_two_instances_are_independent():
    """Also with the same function at the same point: neither merged nor correlated."""
    estimate = Estimate(1.0)
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("one", NoisyLogLikelihood(estimate)(x))
        pm.Potential("two", NoisyLogLikelihood(estimate)(x))
    density = begin(AdaptiveMetropolisStep(model=model)).density
    first = density.noise_cells()
    assert len(first) == 2
    before, zero = estimate.calls, np.zeros(1)
    total = np.array([density(zero) for _ in range(4000)])
    assert estimate.calls == before + 8000
    # var = 2 if independent, 4 if the same; its standard error is 2 sqrt(2 / 4000)
    assert abs(total.var() - 2.0) / (2.0 * math.sqrt(2.0 / 4000)) < 4.5
    assert abs(2 * total.var() - 2.0) / (2.0 * math.sqrt(2.0 / 4000)) > 10


@dataclass
class Dataclass:
    """As users write estimators: not hashable, and == of the arrays is no bool."""

    y: np.ndarray

    def __call__(self, rng, x):
        return float(-0.5 * np.sum((self.y - x) ** 2) + rng.standard_normal() - 0.5)


def test_an_estimator_that_cannot_be_hashed():
    one, two = Dataclass(np.zeros(2)), Dataclass(np.zeros(2))
    assert NoisyLogLikelihood(one) == NoisyLogLikelihood(one)
    assert NoisyLogLikelihood(one) != NoisyLogLikelihood(two)
    step = begin(AdaptiveMetropolisStep(model=model_of(one)))
    points, _ = drive(step, {"x": np.array(0.0)}, 50)
    assert np.ptp(values(points, "x")) > 0
    step = AdaptiveMetropolisStep(model=model_of(partial(_first, one), (2,)), correlation=0.5)
    drive(begin(step), {"x": np.array(0.0)}, 5)


def _first(estimate, u, x):
    return estimate(SimpleNamespace(standard_normal=lambda: u[0]), x)


# --- noise streams ---------------------------------------------------------------------------


def simulate(rng, x, size):
    return rng.normal(x, 1.0, size=size)


@cache
def noisy_model(kind):
    if kind == "NoisyLogLikelihood":
        return model_of(Estimate(1.0))
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, initval=0.0)
        if kind == "pt.random":
            pm.Potential("noise", pt.random.normal(-0.5, 1.0))
        else:
            pm.Simulator("y", simulate, x, epsilon=1.0, observed=np.array([0.3, -0.2, 0.5]))
    return model


KINDS = ("NoisyLogLikelihood", "pt.random", "Simulator")
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def noisy_step(kind):
    return AdaptiveMetropolisStep(model=noisy_model(kind), **QUICK)


def trace_of(kind, **kwargs):
    """(x, log density) of every chain and draw."""
    idata = sample(noisy_step(kind), noisy_model(kind), draws=30, tune=60, **kwargs)
    return idata["posterior"]["x"].values, idata["sample_stats"]["lp"].values


def assert_equal(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])
def test_seed_reproduces_the_noise(kind):
    one = trace_of(kind)
    assert_equal(one, trace_of(kind))
    assert_equal(one, trace_of(kind, cores=2, mp_ctx="fork"))
    _, lp = one
    assert not np.array_equal(lp[0], lp[1])  # chains have noise of their own
    assert not np.array_equal(trace_of(kind, random_seed=3)[1], lp)


def test_first_noise_of_the_chains_is_uncorrelated():
    """What a generator hidden in an Op gets wrong: every worker starts with the same numbers."""
    step, model = noisy_step("NoisyLogLikelihood"), noisy_model("NoisyLogLikelihood")
    noise = []
    for generator in np.random.default_rng(5).spawn(200):
        step.set_rng(generator) if hasattr(step, "set_rng") else step.setup_chain(generator, 0, 0)
        noise.append([step.density(np.zeros(1)) for _ in range(2)])
    noise = np.array(noise) + 0.5  # (chain, evaluation)
    assert len(np.unique(noise)) == 400
    neighbours = np.mean(noise[:-1, 0] * noise[1:, 0]) * math.sqrt(199)
    assert abs(neighbours) < 4.5
    assert abs(noise.mean() * 20.0) < 4.5
    assert set(model.initial_point()) == {"x"}


@every_kind
def test_steps_of_one_model_do_not_advance_each_others_noise(kind):
    model, point = noisy_model(kind), noisy_model(kind).initial_point()
    one = noisy_step(kind)
    other = AdaptiveMetropolisStep(model=model, **QUICK)
    alone = drive(begin(one, 1), point, 30)
    begin(one, 1), begin(other, 2)
    together = ([], [])
    p, q = point, point
    for _ in range(30):
        q, _ = other.step(q)
        p, [stat] = one.step(p)
        together[0].append(p), together[1].append(stat)
    assert_same_draws(alone, together)
    # nor do the model's own functions
    logp = model.compile_logp()
    begin(one, 1)
    logp(point)
    assert_same_draws(alone, drive(one, point, 30))


# --- exactness -------------------------------------------------------------------------------


def seed_noise(function, seed):
    """Of a step of PyMC's, whose noise ``random_seed`` does not reach. One stream each for the two points that it
    compares: were they the same, additive noise would cancel."""
    noise = cells(function, lambda v: isinstance(v.type, RandomType))
    for i, cell in enumerate(noise):
        cell.value = np.random.default_rng([seed, i])


def moment_z(step, model, chains=16, tune=400, draws=1000):
    """z-scores of mean and variance against 0 and 1; standard errors from independent chains."""
    moments = []
    for seed in range(chains):
        begin(step, seed)
        if isinstance(step, pm.DEMetropolisZ):
            step.reset_tuning()
            seed_noise(step.delta_logp, seed)
        x = values(drive(step, model.initial_point(), draws, tune)[0], "x")[tune:]
        moments.append([x.mean(), np.mean(x**2) - 1.0])
    moments = np.array(moments)
    return moments.mean(axis=0) / (moments.std(axis=0, ddof=1) / math.sqrt(chains))


SDS = [pytest.param(sd, marks=[] if sd == 1.5 else pytest.mark.slow) for sd in (0.5, 1.0, 1.5)]


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize(  # the noise is the base step's
    "step_type",
    [
        AdaptiveMetropolisStep,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (KameleonStep, FastKameleonStep, GaussianMixtureStep)),
    ],
)
@pytest.mark.usefixtures("default_linker")
def test_posterior_is_exact(step_type, sd):
    model = model_of(Estimate(sd))
    z = moment_z(step_type(model=model), model)
    assert np.abs(z).max() < 4.5, z


@pytest.mark.slow
@pytest.mark.parametrize("sd", SDS)
@pytest.mark.usefixtures("default_linker")
def test_demetropolis_is_not_exact(sd):
    """The control: what ``pm.DEMetropolisZ`` makes of the same models."""
    model = model_of(Estimate(sd))
    draws = {0.5: 12_000, 1.0: 3000, 1.5: 1200}[sd]
    assert moment_z(pm.DEMetropolisZ(model=model, **QUICK), model, draws=draws)[1] > 10


# --- correlated and block pseudo-marginal ----------------------------------------------------

N_AUXILIARY = 8


def sd_at(x):
    """Noise that depends on x, so that an error in the law of the noise is an error in the posterior."""
    return 0.5 + 1.0 / (1.0 + math.exp(-2.0 * x))


def uneven_estimate(u, x):
    sd = sd_at(float(x))
    return float(-0.5 * x * x + sd * u.sum() / math.sqrt(N_AUXILIARY) - 0.5 * sd**2)


@cache
def uneven_model():
    return model_of(uneven_estimate, (N_AUXILIARY,))


def exact_start(rng):
    """(x, u) from the joint density N(x; 0, 1) N(u; 0, I) exp(noise): the sum of u is tilted, nothing else."""
    x, u = rng.standard_normal(), rng.standard_normal(N_AUXILIARY)
    return x, u + sd_at(x) / math.sqrt(N_AUXILIARY)


def invariance_z(step, n=1500, draws=10):
    """z-scores of what ``draws`` tuned draws change in the moments of exact starts; of x, of u and of both."""
    drive(begin(step, 0), {"x": np.array(0.0)}, 0, 400)
    step.stop_tuning()
    rng, changes = np.random.default_rng(11), np.empty((n, 5))
    for i in range(n):
        x, u = exact_start(rng)
        step.life.put(Point(np.array([x]), uneven_estimate(u, x), (0.0, [u])))
        point = drive(step, {"x": np.array(x)}, draws)[0][-1]
        [end] = step.life.here.noise[1]
        changes[i] = functionals(float(point["x"]), end) - functionals(x, u)
    return changes.mean(axis=0) / (changes.std(axis=0, ddof=1) / math.sqrt(n))


def functionals(x, u):
    along = u.sum() / math.sqrt(N_AUXILIARY)
    return np.array([x, x * x, along, along**2, x * along])


SCHEMES = {
    "independent": {"correlation": 0.0}, "correlated": {"correlation": 0.9}, "very correlated": {"correlation": 0.99},
    "blocks": {"refresh_blocks": 4}, "correlated blocks": {"refresh_blocks": 3, "correlation": 0.9},
}  # fmt: skip


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(s, marks=[] if name in ("correlated", "blocks") else pytest.mark.slow, id=name)
        for name, s in SCHEMES.items()
    ],
)
@pytest.mark.usefixtures("default_linker")
def test_correlated_noise_is_exact(scheme):
    z = invariance_z(AdaptiveMetropolisStep(model=uneven_model(), **scheme))
    assert np.abs(z).max() < 4.5, z


@pytest.mark.usefixtures("default_linker")
def test_controls_of_correlated_noise(monkeypatch):
    """A refresh without sqrt(1 - rho^2), and u that moves on rejection too: both must be noticed."""
    step = AdaptiveMetropolisStep(model=uneven_model(), correlation=0.9)
    rng = np.random.default_rng(2)
    with monkeypatch.context() as patch:
        patch.setattr(step, "_renewal", lambda _, u: 0.9 * u + rng.standard_normal(u.shape))
        z = invariance_z(step)
        assert np.abs(z).max() > 10, z

    renewal, draw, proposed = step._renewal, step.step, []

    def recorded(rng, u):
        proposed[:] = [renewal(rng, u)]
        return proposed[0]

    def moved_at_once(point):
        found = draw(point)
        here = step.life.here
        here = here._replace(noise=(here.noise[0], list(proposed)))
        step.life_state = step.life_state._replace(here=here)
        return found

    monkeypatch.setattr(step, "_renewal", recorded)
    monkeypatch.setattr(step, "step", moved_at_once)
    z = invariance_z(step)
    assert np.abs(z).max() > 10, z


def test_how_much_of_u_is_proposed_anew():
    u, rng = np.zeros(N_AUXILIARY), np.random.default_rng(0)
    seen = [tuple(np.flatnonzero(renewal(None, 4)(rng, u))) for _ in range(200)]
    assert set(seen) == {(0, 1), (2, 3), (4, 5), (6, 7)}
    new = np.array([renewal(0.6, None)(rng, np.ones(N_AUXILIARY)) for _ in range(4000)])
    assert abs((new.mean() - 0.6) / 0.8 * math.sqrt(new.size)) < 4.5
    assert abs(new.var() / 0.64 - 1.0) / math.sqrt(2.0 / new.size) < 4.5


@pytest.mark.parametrize(("options", "share"), [((0.0, None), 1.0), ((0.99, None), 0.01), ((None, 4), 0.25)], ids=str)
def test_noise_of_successive_estimates_differs_by_less(options, share):
    """What it is for: the difference of two log estimates has the share 1 - rho of its variance, or one block's."""
    rng, differences, renew = np.random.default_rng(6), np.empty(4000), renewal(*options)
    for i in range(len(differences)):
        u = rng.standard_normal(N_AUXILIARY)
        differences[i] = uneven_estimate(renew(rng, u), 0.3) - uneven_estimate(u, 0.3)
    ratio = np.square(differences).mean() / (2.0 * share * sd_at(0.3) ** 2)
    assert abs(ratio - 1.0) / math.sqrt(2.0 / len(differences)) < 4.5


def test_estimator_may_reorder_its_normals():
    """u is part of the state: what ``fn`` does to the array that it gets stays there."""

    def estimate(u, x):
        u.sort()
        return uneven_estimate(u, x)

    one = drive(
        begin(AdaptiveMetropolisStep(model=uneven_model(), correlation=0.9)),
        {"x": np.array(0.0)}, 50,
    )  # fmt: skip
    model = model_of(estimate, (N_AUXILIARY,))
    two = drive(begin(AdaptiveMetropolisStep(model=model, correlation=0.9)), {"x": np.array(0.0)}, 50)
    np.testing.assert_allclose(values(one[0], "x"), values(two[0], "x"), rtol=1e-9)


def split_model(auxiliary_shape):
    """x has the noisy factor; b only a deterministic one."""
    estimate = uneven_estimate if auxiliary_shape else Estimate(1.0)
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        pm.Normal("b", x)
        pm.Potential("likelihood", NoisyLogLikelihood(estimate, auxiliary_shape)(x))
    return model


SWAPS = {
    "correlated": (uneven_model, {"correlation": 0.9}),
    "split": (lambda: split_model(None), {}),
    "both": (lambda: split_model((N_AUXILIARY,)), {"correlation": 0.9}),
}


@pytest.mark.parametrize(("model", "options"), SWAPS.values(), ids=SWAPS)
def test_a_swap_takes_over_the_noise_with_the_estimate(model, options):
    """While tuning, KamiltonianStep exchanges its point with companion chains: whole points, noise included."""
    model = model()
    step = begin(KamiltonianStep(vars=[model["x"]], model=model, **options), 3)
    point, swaps, noise_of_companions = model.initial_point(), 0, 0

    def assert_consistent(x, log_density, noise):
        noisy, auxiliary = noise
        if auxiliary:
            estimate = uneven_estimate(auxiliary[0], float(x[0]))
            assert (noisy if step.density.split else log_density) == pytest.approx(estimate)
        if step.density.split:
            deterministic = step.density.deterministic_part(x)
            assert log_density == pytest.approx(deterministic + noisy, rel=1e-12)

    for _ in range(900):
        point, [stat] = step.step(point)
        swaps += stat["move"] == "swap" and bool(stat["accepted"])
        assert_consistent(step.position, step.log_density, (step.life.here.noise[0], step.life.here.noise[1]))
        companions = step.algorithm_state.learning.companions
        for x, y, noise in zip(*companions, strict=True):
            if noise is not None:
                assert_consistent(x, y, noise)
                noise_of_companions += 1
    assert swaps > 40
    assert noise_of_companions > 500


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
def test_auxiliary_of_any_shape(shape):
    def estimate(u, x):
        assert u.shape == shape
        return float(-0.5 * x * x + 0.1 * u.sum() - 0.005 * u.size)

    model = model_of(estimate, shape)
    for options in ({"correlation": 0.5, "refresh_blocks": 2}, {})[: 1 + len(shape)]:
        step = begin(AdaptiveMetropolisStep(model=model, **options))
        assert drive(step, {"x": np.array(0.0)}, 20)[1][-1]["nonfinite"] == 0


def test_correlation_needs_auxiliary_noise():
    plain = model_of(Estimate(1.0))
    with pm.Model() as mixed:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("u", NoisyLogLikelihood(uneven_estimate, (N_AUXILIARY,))(x))
        pm.Potential("n", pt.random.normal(0.0, 1.0))
    with pm.Model() as quiet:
        pm.Normal("x")
    for model, kind in ((plain, "there is none"), (quiet, "there is none"), (mixed, "another kind")):
        for options in ({"correlation": 0.9}, {"refresh_blocks": 2}):
            with pytest.raises(ValueError, match=f"auxiliary_shape.*{kind}"):
                AdaptiveMetropolisStep(model=model, **options)
    AdaptiveMetropolisStep(model=mixed)  # fresh noise needs nothing


# --- beside other steps ----------------------------------------------------------------------


def compound_model(estimate):
    """x has the noisy factor; k and b only deterministic ones, and k depends on x."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, initval=0.0)
        k = pm.Poisson("k", 2.0)
        pm.Normal("b", 0.5 * x + k, 1.0)
        pm.Potential("likelihood", NoisyLogLikelihood(estimate)(x))
    return model


def test_variable_of_another_step_is_named():
    with pm.Model() as model:
        x, b = pm.Normal("x"), pm.Normal("b")
        pm.Gamma("scale", 1.0, 1.0)
        pm.Potential("estimated likelihood", NoisyLogLikelihood(lambda rng, *p: rng.random())(x, b, model["scale"]))
    with pytest.raises(ValueError, match=r"'estimated likelihood'.*also depends on b, scale_log__"):
        KameleonStep([x], model=model)
    with pytest.raises(ValueError, match=r"'estimated likelihood'.*also depends on"):
        KameleonStep(model=model, blocked=False)
    with pytest.raises(ValueError, match=r"'estimated likelihood'.*depends on b:"):
        step_beside_noise(pm.Metropolis, [b], model=model)
    assert "logp" not in vars(model)


class Moments:
    """Of ``compound_model`` with an estimate of N(x; 0, 1): x ~ N(0, 1/2), k ~ Poisson(2), b | x, k."""

    x2, k, k2, b = 0.5, 2.0, 6.0, 2.0


def compound_z(model, other, chains=8, draws=1200, tune=400):
    with model:
        ours = AdaptiveMetropolisStep([model["x"]])
        step = CompoundStep([ours, *other()])
        idata = sample(step, model, draws=draws, tune=tune, chains=chains)
    p = {name: idata["posterior"][name].values for name in "xkb"}
    found = np.array([p["x"], p["x"] ** 2 - Moments.x2, p["k"] - Moments.k, p["k"] ** 2 - Moments.k2,
                      p["b"] - Moments.b]).mean(axis=2)  # fmt: skip
    return found.mean(axis=1) / (found.std(axis=1, ddof=1) / math.sqrt(chains))


@pytest.mark.usefixtures("default_linker")
def test_steps_beside_a_noisy_factor(caplog):
    """Other steps move k and b: the estimate stays frozen, no one else asks for one, and the posterior is right."""
    estimate = Estimate(1.0)
    model = compound_model(estimate)

    def other():
        return [
            step_beside_noise(s, [model[v]], compile_kwargs={"mode": "CVM"})
            for s, v in ((pm.Metropolis, "k"), (pm.Slice, "b"))
        ]

    chains, draws, tune = 8, 300, 200
    before = estimate.calls
    with caplog.at_level(logging.WARNING, logger="pymc"):
        z = compound_z(model, other, chains, draws, tune)
    assert estimate.calls - before == chains * (tune + draws + 1)
    assert np.abs(z).max() < 4.5, z
    assert "noisy" not in caplog.text


OTHERS = (pm.Metropolis, pm.Slice, pm.DEMetropolisZ)
ANEW = "evaluates the noisy log likelihood Estimate anew at every draw"


@pytest.mark.parametrize(
    ("kind", "mode"), [*((kind, "FAST_COMPILE") for kind in OTHERS), (pm.Metropolis, "CVM"), (pm.Metropolis, "NUMBA")]
)
def test_pymcs_own_steps_on_a_noisy_likelihood_are_warned_about(kind, mode, caplog):
    """They look better and are wrong; said where the step is built, in the main process, once a step."""
    model = model_of(Estimate(1.5))
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        kind(model=model, compile_kwargs={"mode": mode})
    assert [r.getMessage().split(" and so ")[0] for r in caplog.records] == [f"{kind.__name__} {ANEW}"]
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        kind(model=model, compile_kwargs={"mode": "FAST_COMPILE"})  # another step is told again
    assert caplog.text.count(ANEW) == 2


def test_steps_that_pm_sample_chooses_are_warned_about(caplog):
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        sample(None, model_of(Estimate(1.5)), draws=2, tune=2, chains=1)
    assert caplog.text.count(ANEW) == 1


@pytest.mark.filterwarnings("ignore:The effect of Potentials:UserWarning")
def test_nothing_else_that_evaluates_the_model_is_warned_about(caplog):
    with pm.Model() as model:
        x, k = pm.Normal("x"), pm.Poisson("k", 2.0)
        pm.Normal("b", 0.5 * x + k, 1.0)
        pm.Normal("y", x, 1.0, observed=0.3)
        pm.CustomDist("c", x, logp=lambda v, x: NoisyLogLikelihood(Estimate(1.0))(x), observed=0.5)
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"), model:
        AdaptiveMetropolisStep([model["x"]], compile_kwargs={"mode": "FAST_COMPILE"})
        model.point_logps()
        model.compile_logp()(model.initial_point())
        steps = [AdaptiveMetropolisStep([model["x"]]), step_beside_noise(pm.Metropolis, [model["k"]], **QUICK),
                 step_beside_noise(pm.Slice, [model["b"]], **QUICK)]  # fmt: skip
        prior = pm.sample_prior_predictive(3, random_seed=1, var_names=["x", "k"])
        idata = sample(CompoundStep(steps), model, draws=3, tune=3)
        pm.sample_posterior_predictive(idata, var_names=["b"], progressbar=False)
        pm.compute_log_likelihood(idata, progressbar=False)
    assert prior is not None
    text = [r.getMessage() for r in caplog.records if "noisy" in r.getMessage()]
    assert not text


def test_steps_that_keep_estimates_say_so(caplog):
    class Careful(pm.Metropolis):
        keeps_estimates = True

    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        Careful(model=model_of(Estimate(1.0)), **QUICK)
    assert not caplog.records


@pytest.mark.parametrize("careful", [False, True])
def test_steps_beside_noise_of_any_kind(careful, caplog):
    """``pt.random`` and ``pm.Simulator`` too: what tells is whether the other step's function draws."""
    with pm.Model() as model:
        x, k = pm.Normal("x"), pm.Poisson("k", 2.0)
        pm.Simulator("y", simulate, x, epsilon=1.0, observed=np.array([0.3, -0.2, 0.5]))
        pm.Potential("noise", pt.random.normal(-0.5, 1.0))
        ours = AdaptiveMetropolisStep([x])
        other = (step_beside_noise if careful else lambda kind, v, **kw: kind(v, **kw))(pm.Metropolis, [k], **QUICK)
    with caplog.at_level(logging.WARNING):
        sample(CompoundStep([ours, other]), model, draws=5, tune=5, chains=2)
    assert ("samples k evaluates it anew" in caplog.text) == (not careful)


def test_step_beside_noise_leaves_the_model_alone():
    model = compound_model(Estimate(1.0))
    before, function = dict(vars(model)), type(model).logp
    with model:
        steps = [AdaptiveMetropolisStep([model["x"]])]
        steps.append(step_beside_noise(pm.Metropolis, [model["k"]], **QUICK))
    assert vars(model) == before
    assert type(model).logp is function
    point = CompoundStep(steps).step(model.initial_point())[0]
    twin = cloudpickle.loads(cloudpickle.dumps(CompoundStep(steps)))
    assert list(twin.step(point)[0]) == list(point)


def test_no_estimate_is_made_when_others_move():
    estimate = Estimate(1.0)
    model = compound_model(estimate)
    step = begin(AdaptiveMetropolisStep([model["x"]], model=model))
    point, rng = model.initial_point(), np.random.default_rng(3)
    before = estimate.calls
    for i in range(100):
        point = {**point, "k": np.array(rng.poisson(2.0)), "b": np.array(rng.standard_normal())}
        kept = step.life.here.noise[0]
        point, [stat] = step.step(point)
        if i and not stat["accepted"] and stat["move"] != "renewal":
            assert step.life.here.noise[0] == kept
    assert estimate.calls - before == step.evaluations == 101


# --- hidden generators -----------------------------------------------------------------------

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
    x = pt.dscalar()
    assert hidden_generators([BlackBox(function)(x)])


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
        pm.Potential("likelihood", BlackBox(function, path)(x))
    return model


def test_hidden_generator_is_warned_about(caplog):
    """By the logger that the FAQ names; not while the step is built."""
    hybrid = model_of(lambda rng, x: rng.normal(x) + GLOBAL_GENERATOR.random())
    for model in (black_box_model(uses_numpy), hybrid):
        caplog.clear()
        step = AdaptiveMetropolisStep(model=model)
        with caplog.at_level(logging.WARNING, logger="pymc"):
            sample(step, model, draws=2, tune=2, chains=2)
        [said] = [m for m in caplog.messages if "random numbers that PyTensor cannot see" in m]
        assert said.startswith("AdaptiveMetropolisStep: the log density seems to draw")
        assert "pymc_kameleon.NoisyLogLikelihood" in said
    step = KamiltonianStep(model=model, learn="all")
    checked_step(step, model)
    assert caplog.messages[-1].startswith("pk.sample: the log density seems to draw")


@pytest.fixture
def counter(tmp_path):
    return Counter(tmp_path / "evaluations")


def test_generator_behind_compiled_code_is_noticed_by_the_second_chain(counter, caplog):
    """An iterator is as opaque as a C library; the chains start at one point and find two values there."""
    draw = itertools.cycle([0.3, -0.2, 0.1, 0.7, -0.5]).__next__
    model = black_box_model(lambda x: -0.5 * float(x) ** 2 + draw(), counter.path)
    step = AdaptiveMetropolisStep(model=model)  # nothing to be seen yet
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
    step = AdaptiveMetropolisStep(model=black_box_model(minus_half_square), **QUICK)
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
    step = AdaptiveMetropolisStep(model=model, **QUICK)
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
    from scipy import sparse

    matrix = pytensor.shared(sparse.csr_matrix(np.eye(2)), name="matrix")
    with pm.Model() as model:
        x = pm.Normal("x", shape=(2, 1))
        pm.Potential("p", pytensor.sparse.structured_dot(matrix, x).sum())
    density = AdaptiveMetropolisStep(model=model, **QUICK).density
    first = density.digest(np.zeros(2))
    assert density.digest(np.zeros(2)) == first
    matrix.set_value(sparse.csr_matrix(2.0 * np.eye(2)))
    assert density.digest(np.zeros(2)) != first


def test_deterministic_chains_are_not_warned_about(counter, caplog):
    """Also when the data or the other variables change between runs of one step."""
    with pm.Model() as model:
        data = pm.Data("data", np.array([0.5, 1.0]))
        x = pm.Normal("x", initval=0.0)
        pm.Potential("likelihood", BlackBox(minus_half_square, counter.path)(x - data))
    step = AdaptiveMetropolisStep(model=model)
    counter.take()
    for value in (0.5, 3.0):
        pm.set_data({"data": np.array([value, 1.0])}, model=model)
        sample(step, model, draws=5, tune=5, chains=2)
    assert "cannot see" not in caplog.text
    assert counter.take() == 2 * 2 * 11


def test_noise_that_is_declared_is_not_warned_about():
    for kind in KINDS:
        assert noisy_step(kind).density.suspects == []
