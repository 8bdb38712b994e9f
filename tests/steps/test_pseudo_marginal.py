"""Noisy log densities: exact posteriors, reproducible noise, one evaluation a draw, and the ways to get it wrong."""

import logging
import math
import pickle
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import CompoundStep
from pytensor.tensor.random.type import RandomType

import pymc_kameleon as pk
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood, step_beside_noise
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.steps.log_density import compile_log_density
from pymc_kameleon.steps.noise import noisy_likelihood
from pymc_kameleon.steps.noise.demands import renewal
from pymc_kameleon.steps.pytensor_internals import cells
from tests import step_tester as tester
from tests.step_tester import Estimate, assert_same_draws, begin, drive, moment_z, noisy_model, sample, values

OBJECT_MODE = pytest.mark.filterwarnings("ignore:.*object mode.*:UserWarning")
# PyTensor 3 announces these to whoever builds a random variable, ``pm.Simulator`` included.
RNG_OUTPUT = pytest.mark.filterwarnings("ignore:RandomVariable Ops will stop hiding the rng output:DeprecationWarning")
RNG_INPUT = pytest.mark.filterwarnings("ignore:Calling a RandomVariable without an explicit rng:DeprecationWarning")
pytestmark = [tester.NO_BLAS, OBJECT_MODE, RNG_OUTPUT, RNG_INPUT]
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


def slowly(values, *fast):
    """Parameters, of which all but the ``fast`` are for the slow suite."""
    return [pytest.param(v, marks=[] if v in fast else pytest.mark.slow) for v in values]


# --- NoisyLogLikelihood ----------------------------------------------------------------------


def test_constant_parameters_are_not_folded():
    estimate = Estimate(1.0)
    function = compile_log_density([], [NoisyLogLikelihood(estimate)(pt.constant(0.3))], None)
    assert len({float(function()) for _ in range(10)}) == 10
    assert estimate.calls >= 10
    # also with a constant generator, which makes every input constant
    rng = pt.random.type.RandomGeneratorType().make_constant(np.random.default_rng(1))
    node = NoisyLogLikelihood(estimate)(pt.constant(0.3), rng=rng).owner
    assert not node.op.do_constant_folding(None, node)


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "FAST_COMPILE"])
def test_one_evaluation_a_call_and_the_stream_is_advanced_in_place(mode, monkeypatch):
    copies, estimate = [], Estimate(1.0)
    original = noisy_likelihood.copy_generator
    monkeypatch.setattr(noisy_likelihood, "copy_generator", lambda r: copies.append(1) or original(r))
    node = NoisyLogLikelihood(estimate)(pt.dscalar()).owner
    with pm.Model() as model:
        pm.Potential("likelihood", node.op(pm.Flat("x", initval=0.0)))
    function = pk.AdaptiveMetropolisStep(model=model, compile_kwargs={"mode": mode}).density._function
    estimate.calls, zero = 0, np.zeros(1)
    assert len({float(function(zero)) for _ in range(20)}) == estimate.calls == 20
    if mode != "FAST_COMPILE":
        [op] = [n.op for n in function.maker.fgraph.apply_nodes if isinstance(n.op, NoisyLogLikelihood)]
        assert (op.inplace, op.destroy_map) == (True, {0: [0]})
        assert not copies
    # Control: the user's own graph copies, at every evaluation.
    assert (node.op.inplace, node.op.destroy_map) == (False, {})
    rng = np.random.default_rng(1)
    state = rng.bit_generator.state
    node.op.perform(node, [rng, np.array(0.0)], [[None], [None]])
    assert copies
    assert rng.bit_generator.state == state


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
    density = begin(pk.AdaptiveMetropolisStep(model=model)).density
    assert len(density.noise_cells()) == 2
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
    step = begin(pk.AdaptiveMetropolisStep(model=noisy_model(one)))
    points, _ = drive(step, {"x": np.array(0.0)}, 50)
    assert np.ptp(values(points, "x")) > 0
    step = pk.AdaptiveMetropolisStep(model=noisy_model(partial(_first, one), (2,)), correlation=0.5)
    drive(begin(step), {"x": np.array(0.0)}, 5)


def _first(estimate, u, x):
    return estimate(SimpleNamespace(standard_normal=lambda: u[0]), x)


# --- noise streams ---------------------------------------------------------------------------


def simulate(rng, x, size):
    return rng.normal(x, 1.0, size=size)


@cache
def model_with(kind):
    if kind == "NoisyLogLikelihood":
        return noisy_model(Estimate(1.0))
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
    return pk.AdaptiveMetropolisStep(model=model_with(kind), **QUICK)


def trace_of(kind, **kwargs):
    """(x, log density) of every chain and draw."""
    idata = sample(noisy_step(kind), model_with(kind), draws=30, tune=60, **kwargs)
    return np.stack([idata["posterior"]["x"], idata["sample_stats"]["lp"]])


@pytest.mark.parametrize("kind", slowly(KINDS, KINDS[0]))
def test_seed_reproduces_the_noise(kind):
    one = trace_of(kind)
    for where in ({}, {"cores": 2, "mp_ctx": "fork"}):
        np.testing.assert_array_equal(one, trace_of(kind, **where))
    _, lp = one
    assert not np.array_equal(lp[0], lp[1])  # chains have noise of their own
    assert not np.array_equal(trace_of(kind, random_seed=3)[1], lp)


def test_first_noise_of_the_chains_is_uncorrelated():
    """What a generator hidden in an Op gets wrong: every worker starts with the same numbers."""
    step, noise = noisy_step("NoisyLogLikelihood"), []
    for generator in np.random.default_rng(5).spawn(200):
        step.set_rng(generator)
        noise.append([step.density(np.zeros(1)) for _ in range(2)])
    noise = np.array(noise) + 0.5  # (chain, evaluation)
    assert len(np.unique(noise)) == 400
    neighbours = np.mean(noise[:-1, 0] * noise[1:, 0]) * math.sqrt(199)
    assert abs(neighbours) < 4.5
    assert abs(noise.mean() * 20.0) < 4.5


@every_kind
def test_steps_of_one_model_do_not_advance_each_others_noise(kind):
    model, one = model_with(kind), noisy_step(kind)
    other, point = begin(pk.AdaptiveMetropolisStep(model=model, **QUICK), 2), model.initial_point()
    alone, logp = drive(begin(one, 1), point, 30), model.compile_logp()
    begin(one, 1)
    together, p, q = ([], []), point, point
    for _ in range(30):
        q, _ = other.step(q)
        logp(point)  # nor do the model's own functions
        p, [stat] = one.step(p)
        together[0].append(p), together[1].append(stat)
    assert_same_draws(alone, together)


def test_noise_that_is_declared_is_not_warned_about():
    for kind in KINDS:
        assert noisy_step(kind).density.suspects == []


# --- exactness -------------------------------------------------------------------------------


def begin_pymcs(step, seed):
    """A step whose noise ``random_seed`` does not reach. One stream each for the two points that it compares: were
    they the same, additive noise would cancel."""
    begin(step, seed).reset_tuning()
    for i, cell in enumerate(cells(step.delta_logp, lambda v: isinstance(v.type, RandomType))):
        cell.value = np.random.default_rng([seed, i])
    return step


SDS = (0.5, 1.0, 1.5)
STEPS = (pk.AdaptiveMetropolisStep, pk.KameleonStep, pk.FastKameleonStep, pk.GaussianMixtureStep)


@pytest.mark.slow  # and for the fast suite, with its controls, under correlated noise below
@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("step_type", STEPS)
@pytest.mark.usefixtures("default_linker")
def test_posterior_is_exact(step_type, sd):
    model = noisy_model(Estimate(sd))
    z = moment_z(step_type(model=model), model)
    assert np.abs(z).max() < 4.5, z


@pytest.mark.slow
@pytest.mark.parametrize("sd", SDS)
@pytest.mark.usefixtures("default_linker")
def test_demetropolis_is_not_exact(sd):
    """The control: what ``pm.DEMetropolisZ`` makes of the same models."""
    model = noisy_model(Estimate(sd))
    draws = {0.5: 12_000, 1.0: 3000, 1.5: 1200}[sd]
    assert moment_z(pm.DEMetropolisZ(model=model, **QUICK), model, draws=draws, begin=begin_pymcs)[1] > 10


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
    return noisy_model(uneven_estimate, (N_AUXILIARY,))


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


@pytest.mark.parametrize("scheme", slowly(SCHEMES, "correlated", "blocks"))
@pytest.mark.usefixtures("default_linker")
def test_correlated_noise_is_exact(scheme):
    z = invariance_z(pk.AdaptiveMetropolisStep(model=uneven_model(), **SCHEMES[scheme]))
    assert np.abs(z).max() < 4.5, z


@pytest.mark.usefixtures("default_linker")
def test_controls_of_correlated_noise(monkeypatch):
    """A refresh without sqrt(1 - rho^2), and u that moves on rejection too: both must be noticed."""
    step = pk.AdaptiveMetropolisStep(model=uneven_model(), correlation=0.9)
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
    for rho in (0.0, 0.6, 0.99):
        new = np.array([renewal(rho, None)(rng, np.ones(N_AUXILIARY)) for _ in range(4000)])
        variance = 1.0 - rho**2
        assert abs((new.mean() - rho) * math.sqrt(new.size / variance)) < 4.5
        assert abs(new.var() / variance - 1.0) / math.sqrt(2.0 / new.size) < 4.5


def test_estimator_may_reorder_its_normals():
    """u is part of the state: what ``fn`` does to the array that it gets stays there."""

    def estimate(u, x):
        u.sort()
        return uneven_estimate(u, x)

    models = uneven_model(), noisy_model(estimate, (N_AUXILIARY,))
    steps = [begin(pk.AdaptiveMetropolisStep(model=m, correlation=0.9)) for m in models]
    np.testing.assert_allclose(*(values(drive(s, {"x": np.array(0.0)}, 50)[0], "x") for s in steps), rtol=1e-9)


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


@pytest.mark.parametrize("swap", slowly(SWAPS, "both"))
def test_a_swap_takes_over_the_noise_with_the_estimate(swap):
    """While tuning, pk.KamiltonianStep exchanges its point with companion chains: whole points, noise included."""
    model, options = SWAPS[swap][0](), SWAPS[swap][1]
    step = begin(pk.KamiltonianStep(vars=[model["x"]], model=model, **options), 3)
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
        swaps += stat["move"] == "swap" and bool(stat.get("accepted", stat.get("kamiltonian_accepted")))
        assert_consistent(step.position, step.log_density, step.life.here.noise)
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

    model = noisy_model(estimate, shape)
    for options in ({"correlation": 0.5, "refresh_blocks": 2}, {})[: 1 + len(shape)]:
        step = begin(pk.AdaptiveMetropolisStep(model=model, **options))
        assert drive(step, {"x": np.array(0.0)}, 20)[1][-1]["nonfinite"] == 0


def test_correlation_needs_auxiliary_noise():
    plain = noisy_model(Estimate(1.0))
    with pm.Model() as mixed:
        x = pm.Flat("x", initval=0.0)
        pm.Potential("u", NoisyLogLikelihood(uneven_estimate, (N_AUXILIARY,))(x))
        pm.Potential("n", pt.random.normal(0.0, 1.0))
    with pm.Model() as quiet:
        pm.Normal("x")
    for model, kind in ((plain, "there is none"), (quiet, "there is none"), (mixed, "another kind")):
        for options in ({"correlation": 0.9}, {"refresh_blocks": 2}):
            with pytest.raises(ValueError, match=f"auxiliary_shape.*{kind}"):
                pk.AdaptiveMetropolisStep(model=model, **options)
    pk.AdaptiveMetropolisStep(model=mixed)  # fresh noise needs nothing


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
        pk.KameleonStep([x], model=model)
    with pytest.raises(ValueError, match=r"'estimated likelihood'.*also depends on"):
        pk.KameleonStep(model=model, blocked=False)
    with pytest.raises(ValueError, match=r"'estimated likelihood'.*depends on b:"):
        step_beside_noise(pm.Metropolis, [b], model=model)
    assert "logp" not in vars(model)


@pytest.mark.usefixtures("default_linker")
@pytest.mark.parametrize("written", ["observed", "a Potential"])
def test_a_random_part_of_the_data_is_no_unbiased_likelihood(written):
    """Only its logarithm is: exp of it is too large on average, and most where the data say most."""
    with pm.Model() as model:
        mu, part = pm.Normal("mu"), pm.Minibatch(np.arange(100.0), batch_size=10)
        if written == "a Potential":
            pm.Potential("y", 10.0 * pm.logp(pm.Normal.dist(mu), part).sum())
        else:
            pm.Normal("y", mu, observed=part, total_size=100)
    with pytest.raises(ValueError, match=r"'y' is of a random part of the data .*Give the model all of its data"):
        pk.AdaptiveMetropolisStep(model=model)


def test_data_that_are_scaled_and_stay_the_same_are_no_noise():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=np.arange(10.0), total_size=100)
    assert not pk.AdaptiveMetropolisStep(model=model, **QUICK).density.noisy


def test_steps_beside_a_noisy_factor(caplog):
    """Other steps move k and b: the estimate stays frozen, and no one else asks for one."""
    estimate, (chains, draws, tune) = Estimate(1.0), (2, 60, 60)
    model = compound_model(estimate)
    before = estimate.calls
    with caplog.at_level(logging.WARNING, logger="pymc"), model:
        beside = ((pm.Metropolis, "k"), (pm.Slice, "b"))
        others = [step_beside_noise(s, [model[v]], **QUICK) for s, v in beside]
        step = CompoundStep([pk.AdaptiveMetropolisStep([model["x"]]), *others])
        sample(step, model, draws=draws, tune=tune, chains=chains)
    assert estimate.calls - before == chains * (tune + draws + 1)
    assert "noisy" not in caplog.text


OTHERS = (pm.Metropolis, pm.Slice, pm.DEMetropolisZ)
ANEW = "evaluates the noisy log likelihood Estimate anew at every draw"


@pytest.mark.parametrize(
    ("kind", "mode"), [*((kind, "FAST_COMPILE") for kind in OTHERS), (pm.Metropolis, "CVM"), (pm.Metropolis, "NUMBA")]
)
def test_pymcs_own_steps_on_a_noisy_likelihood_are_warned_about(kind, mode, caplog):
    """They look better and are wrong; said where the step is built, in the main process."""
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        kind(model=noisy_model(Estimate(1.5)), compile_kwargs={"mode": mode})
    assert [m.split(" and so ")[0] for m in caplog.messages] == [f"{kind.__name__} {ANEW}"]


def test_steps_that_pm_sample_chooses_are_warned_about(caplog):
    model = noisy_model(Estimate(1.5))
    for told in (1, 2):  # another step is told again
        with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
            sample(None, model, draws=2, tune=2, chains=1)
        assert caplog.text.count(ANEW) == told


@pytest.mark.filterwarnings("ignore:The effect of Potentials:UserWarning")
def test_nothing_else_that_evaluates_the_model_is_warned_about(caplog):
    with pm.Model() as model:
        x, k = pm.Normal("x"), pm.Poisson("k", 2.0)
        pm.Normal("b", 0.5 * x + k, 1.0)
        pm.Normal("y", x, 1.0, observed=0.3)
        pm.CustomDist("c", x, logp=lambda v, x: NoisyLogLikelihood(Estimate(1.0))(x), observed=0.5)
    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"), model:
        pk.AdaptiveMetropolisStep([model["x"]], compile_kwargs={"mode": "FAST_COMPILE"})
        model.point_logps()
        model.compile_logp()(model.initial_point())
        steps = [pk.AdaptiveMetropolisStep([model["x"]]), step_beside_noise(pm.Metropolis, [model["k"]], **QUICK),
                 step_beside_noise(pm.Slice, [model["b"]], **QUICK)]  # fmt: skip
        pm.sample_prior_predictive(3, random_seed=1, var_names=["x", "k"])
        idata = sample(CompoundStep(steps), model, draws=3, tune=3)
        pm.sample_posterior_predictive(idata, var_names=["b"], progressbar=False)
        pm.compute_log_likelihood(idata, progressbar=False)
    assert "noisy" not in caplog.text


def test_steps_that_keep_estimates_say_so(caplog):
    class Careful(pm.Metropolis):
        keeps_estimates = True

    with caplog.at_level(logging.WARNING, logger="pymc.kameleon"):
        Careful(model=noisy_model(Estimate(1.0)), **QUICK)
    assert not caplog.records


@pytest.mark.parametrize("careful", [False, True])
def test_steps_beside_noise_of_any_kind(careful, caplog):
    """``pt.random`` and ``pm.Simulator`` too: what tells is whether the other step's function draws."""
    with pm.Model() as model:
        x, k = pm.Normal("x"), pm.Poisson("k", 2.0)
        pm.Simulator("y", simulate, x, epsilon=1.0, observed=np.array([0.3, -0.2, 0.5]))
        pm.Potential("noise", pt.random.normal(-0.5, 1.0))
        ours = pk.AdaptiveMetropolisStep([x])
        other = (step_beside_noise if careful else lambda kind, v, **kw: kind(v, **kw))(pm.Metropolis, [k], **QUICK)
    with caplog.at_level(logging.WARNING):
        sample(CompoundStep([ours, other]), model, draws=5, tune=5, chains=2)
    assert ("samples k evaluates it anew" in caplog.text) == (not careful)


def test_step_beside_noise_leaves_the_model_alone():
    model = compound_model(Estimate(1.0))
    before, function = dict(vars(model)), type(model).logp
    with model:
        steps = [pk.AdaptiveMetropolisStep([model["x"]])]
        steps.append(step_beside_noise(pm.Metropolis, [model["k"]], **QUICK))
    assert vars(model) == before
    assert type(model).logp is function
    point = CompoundStep(steps).step(model.initial_point())[0]
    twin = cloudpickle.loads(cloudpickle.dumps(CompoundStep(steps)))
    assert list(twin.step(point)[0]) == list(point)
