"""Which priors a model's graph says, so that they are not learned: their densities, and what is none of them."""

import logging

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.transforms import LogTransform
from pytensor.graph.op import Op

import pymc_kameleon as pk
from pymc_kameleon.samplers.pooled.by_values import ByValues
from pymc_kameleon.steps.hierarchies import scales_in_graph
from pymc_kameleon.steps.hierarchies.reparametrized_density import left_centred
from tests.step_tester import sample
from tests.support.known_scales import plain


def centred():
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    pm.Normal("theta", mu, tau, shape=4)


def by_hand():
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    z = pm.Normal("z", shape=4)
    pm.Normal("y", mu + tau * z, 1.0, observed=np.arange(4.0))


def precision():
    tau = pm.Gamma("tau", 2.0, 1.0)
    pm.Normal("theta", 0.5, tau=tau, shape=3)


def log_scale():
    log_tau = pm.Normal("log_tau")
    slope = pm.Normal("slope")
    pm.Normal("theta", 2.0 * slope - 1.0, 3.0 * pm.math.exp(0.5 * log_tau), shape=3)


def three_levels():
    top, low = pm.HalfNormal("top"), pm.Exponential("low", 1.0)
    region = pm.Normal("region", pm.Normal("mu"), top, shape=2)
    pm.Normal("school", region[np.array([0, 0, 1, 1])], low, shape=4)


def lognormal():
    tau = pm.HalfNormal("tau")
    pm.LogNormal("rate", pm.Normal("mu"), tau, shape=3)


def walk():
    start = pm.Normal.dist(0.0, 3.0)
    pm.GaussianRandomWalk("level", pm.Normal("drift"), pm.HalfNormal("step"), init_dist=start, shape=4)


def walks_beside():
    tau = pm.HalfNormal("tau")
    pm.GaussianRandomWalk("levels", sigma=tau, init_dist=pm.Normal.dist(), shape=(2, 3))
    pm.Normal("theta", pm.Normal("mu"), pm.HalfNormal("spread"), shape=2)
    pm.Normal("phi", 0.0, tau, shape=2)


def regression():
    x = np.linspace(-1.0, 2.0, 12)
    a, b, sigma = pm.Normal("a", 1.0, 5.0), pm.Normal("b", shape=2), pm.HalfNormal("sigma")
    pm.Normal("y", a + b[0] * x + b[1] * x**2, sigma, observed=np.sin(x))


def unlike_data():
    """Of two scales, one of them in a precision and unlike by datum; a location without unknowns; a column."""
    tau, phi, known = pm.Gamma("tau", 2.0, 1.0), pm.Normal("phi"), np.array([1.0, 2.0, 0.5])
    pm.Normal("y", pm.Normal("mu"), tau=tau * known, observed=[0.3, 1.0, 2.0])
    pm.Normal("z", 1.5, pm.math.exp(0.3 + 2.0 * phi), observed=np.ones((4, 1)))


def lognormal_data():
    pm.LogNormal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=[0.3, 1.0, 2.0])


def hierarchy_and_data():
    theta = pm.Normal("theta", pm.Normal("mu"), pm.HalfNormal("tau"), shape=3)
    pm.Normal("y", theta[np.arange(6) % 3], pm.HalfNormal("sigma"), observed=np.arange(6.0))


def by_hand_of_another_family():
    z = pm.Laplace("z", 0.0, 1.0, shape=4)
    pm.Normal("y", pm.Normal("mu") + 2.0 * z, pm.HalfNormal("sigma"), observed=np.arange(4.0))


def by_hand_beside_four_levels():
    """Those are not looked at together: a fourth level is not moved, and what is by hand on it is."""
    low = pm.Normal("c", pm.Normal("b", pm.Normal("a"), 1.0), 1.0)
    z = pm.Normal("z", shape=4)
    pm.Normal("y", pm.Normal("e", low, 1.0) + 2.0 * z, pm.HalfNormal("sigma"), observed=np.arange(4.0))


def forty_sums():
    b, x = pm.Normal("b", shape=40), np.random.default_rng(0).standard_normal((40, 50))
    pm.Normal("y", sum(b[i] * x[i] for i in range(40)), pm.HalfNormal("sigma"), observed=x[0])


# how many: of most scales two, what they are the scale of and their own prior; of a Gamma precision both are one
DATA = {
    by_hand_of_another_family: 2,
    by_hand_beside_four_levels: 2,
    regression: 2,
    lognormal_data: 2,
    unlike_data: 2,
    hierarchy_and_data: 4,
}
FOUND = {walk: 2, walks_beside: 4, centred: 2, by_hand: 2, precision: 1, log_scale: 1, three_levels: 4, lognormal: 2}


def of_other_kinds():
    """Another family, a product and a sum of scales, a bent location, one by the scale, and a constant scale."""
    scale, other = (pm.HalfNormal(name) for name in ("scale", "other"))
    pm.StudentT("student", nu=4.0, sigma=pm.HalfNormal("of_student"), shape=3)
    pm.Normal("two_in_one", 0.0, scale * other, shape=3)
    pm.Normal("sum_of_scales", 0.0, pm.HalfNormal("summand") + 0.1, shape=3)
    pm.Normal("bent_location", pm.math.exp(pm.Normal("log_location")), pm.HalfNormal("beside"), shape=3)
    log_scale = pm.Normal("log_scale")
    pm.Normal("location_by_the_scale", pm.math.sqr(log_scale), pm.math.exp(log_scale), shape=3)
    pm.Normal("constant_scale", pm.Normal("location"), 2.0, shape=3)


def bent_location_beside():
    pm.Normal("bent", pm.math.exp(pm.Normal("nu")), pm.HalfNormal("ups"), shape=3)


def walks_of_other_steps():
    start, tau = pm.Normal.dist(), pm.HalfNormal("tau", shape=2)
    pm.RandomWalk("t", init_dist=start, innovation_dist=pm.Laplace.dist(0.0, tau[0]), shape=3)
    pm.GaussianRandomWalk("each", sigma=tau, init_dist=start, shape=(2, 3))
    pm.GaussianRandomWalk("known", sigma=0.5, init_dist=start, shape=3)


def bent_data():
    pm.Normal("y", pm.math.exp(pm.Normal("mu")), pm.HalfNormal("sigma"), observed=np.ones(3))


def data_of_known_scale():
    pm.Normal("y", pm.Normal("mu"), 0.5, observed=np.ones(3))


def data_about_a_loop():
    def halve(x):
        return 0.5 * x

    steps = pytensor.scan(halve, outputs_info=[pm.Normal("start")], n_steps=3, return_updates=False)
    pm.Normal("y", steps, pm.HalfNormal("sigma"), observed=np.ones(3))


def data_in_farads():
    sigma = 1e-13 * pm.math.exp(pm.Normal("log_sigma"))
    pm.Normal("y", 1e-12 * pm.math.exp(pm.Normal("mu")), sigma, observed=1e-12 * np.array([0.5, 1.0, 2.0]))


def small_beside_an_offset():
    location = 1e7 + pm.Normal("mu") + 1e-3 * pm.Normal("nu") ** 2
    pm.Normal("y", location, 1e-4 * pm.math.exp(pm.Normal("log_sigma")), observed=1e7 + np.arange(3.0))


def no_lognormal_data():
    pm.LogNormal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=[0.0, 1.0])


def a_step_of_the_priors_units():
    location = pm.math.switch(pm.Normal("change", 500.0, 20.0) > 505.0, pm.Normal("before"), pm.Normal("after"))
    pm.Normal("y", location, pm.HalfNormal("sigma"), observed=np.ones(3))


OF_UNITS = [data_in_farads, small_beside_an_offset, no_lognormal_data, a_step_of_the_priors_units]
NONE_OF_DATA = [*OF_UNITS, bent_data, data_of_known_scale, data_about_a_loop]
NONE = [*NONE_OF_DATA, walks_of_other_steps, of_other_kinds]


def step_of(build, **options):
    with pm.Model() as model:
        build()
        return model, pk.KamiltonianStep(**options)


@pytest.mark.parametrize("build", FOUND, ids=lambda build: build.__name__)
def test_what_is_known_is_the_priors_log_density(build):
    """But for a constant: what is left of the log density has no effect's prior in it."""
    density = step_of(build)[1].density
    assert len(density.scales) == FOUND[build]
    rng, effects = np.random.default_rng(1), {int(i) for s in density.scales for i in _effects(s)}

    def likelihood(u):
        return -0.5 * np.square(np.arange(4.0) - u[2:]).sum() if build is by_hand else 0.0

    for _ in range(4):
        here = 0.5 * rng.standard_normal(density.dim)
        rest = []
        for _ in range(3):
            for i in effects:
                here[i] += rng.standard_normal()
            rest.append(density(here) - plain(density.scales, here) - likelihood(here))
        np.testing.assert_allclose(rest, rest[0], atol=1e-8)


@pytest.mark.parametrize("build", DATA, ids=lambda build: build.__name__)
def test_of_normal_data_nothing_but_priors_is_left(build):
    model, step = step_of(build)
    density = step.density
    assert len(density.scales) == DATA[build]
    assert all(len(scale.matrix) <= density.dim + 1 for scale in density.scales)
    known = ("theta", "tau", "sigma")
    others = model.compile_logp(vars=[rv for rv in model.free_RVs if rv.name not in known])
    left = lambda here: density(here) - others(density.update({}, here))  # noqa: E731
    np.testing.assert_allclose(list(second_differences(density, left)), 0.0, atol=1e-8)


def second_differences(density, value):
    """Of what is left of ``value`` beside what is known, along six lines: 0 of what is linear."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        here, step = rng.standard_normal((2, density.dim))
        before, at, after = (value(x) - plain(density.scales, x) for x in (here - step, here, here + step))
        yield before - 2.0 * at + after


class Halved(LogTransform):
    """Half the logarithm: the scale's own is linear in it."""

    name = "halved"

    def backward(self, value, *inputs):
        return pt.exp(2.0 * value)

    def forward(self, value, *inputs):
        return 0.5 * pt.log(value)

    def log_jac_det(self, value, *inputs):
        return 2.0 * value


PRIORS = {
    "HalfNormal": lambda: pm.HalfNormal("tau", 0.7),
    "Exponential": lambda: pm.Exponential("tau", 3.0),
    "Gamma": lambda: pm.Gamma("tau", 2.5, 3.0),
    "InverseGamma": lambda: pm.InverseGamma("tau", 2.5, 3.0),
    "of data": lambda: pm.HalfNormal("tau", pm.Data("size", 0.7)),
}
LEARNED = {
    "HalfCauchy": lambda: pm.HalfCauchy("tau", 0.7),
    "TruncatedNormal": lambda: pm.TruncatedNormal("tau", 1.0, 0.7, lower=0.0),
    "with a parent": lambda: pm.HalfNormal("tau", pm.LogNormal("size")),
    "in other coordinates": lambda: pm.HalfNormal("tau", 0.7, default_transform=Halved()),
}


@pytest.mark.parametrize("prior", PRIORS)
def test_the_priors_of_scales_are_known_too(prior):
    """Learned they were columns among hundreds, and of forty groups 7 effective draws in 1000 evaluations."""

    def build():
        pm.Normal("theta", 0.0, PRIORS[prior](), shape=2)
        pm.HalfNormal("beside", 0.7)  # is nobody's scale, and costs a gradient nothing

    model, step = step_of(build)
    beside = model.compile_logp(vars=model["beside"])
    left = lambda here: step.density(here) - beside(step.density.update({}, here))  # noqa: E731
    np.testing.assert_allclose(list(second_differences(step.density, left)), 0.0, atol=1e-6)


@pytest.mark.parametrize("prior", LEARNED)
def test_other_priors_of_scales_are_learned(prior):

    def build():
        pm.Normal("theta", 0.0, LEARNED[prior](), shape=2)
        pm.Normal("phi", 0.0, pm.HalfNormal("omega"), shape=2)  # whose is known all the same

    scales = step_of(build)[1].density.scales
    assert sorted(bool(known.matrix.any()) for known in scales) == [False, True, True]


def test_of_forty_sums_as_well():
    """Rewritten they are one sum of forty arguments, and NumPy takes 32."""
    known, _ = step_of(forty_sums)[1].density.scales
    assert known.normals == 50


@pytest.mark.parametrize("module", ["somebody.solver", "pytensor.link.jax.ops"])
def test_what_somebody_has_written_is_not_asked(module):
    """It has a gradient, so that it is no black box, and may take as long as an evaluation."""
    asked: list = []

    class Solve(Op):
        __module__ = module
        itypes, otypes = [pt.dscalar], [pt.dscalar]

        def perform(self, node, inputs, outputs):
            asked.append(inputs)
            outputs[0][0] = np.asarray(2.0 * inputs[0])

        def grad(self, inputs, gradients):
            return [2.0 * gradients[0]]

        pullback = lambda self, inputs, outputs, cotangents: self.grad(inputs, cotangents)  # noqa: E731

    def build():
        pm.Normal("y", Solve()(pm.Normal("mu")), pm.HalfNormal("sigma"), observed=[1.0, 2.0])

    assert step_of(build)[1].density.scales == ()
    assert not asked


def test_what_cannot_be_looked_at_is_learned(monkeypatch, caplog):
    def fails(*args, **kwargs):
        raise NotImplementedError("no such Op")

    monkeypatch.setattr(scales_in_graph, "_locations_and_scales", fails)
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        assert step_of(regression)[1].density.scales == ()
    assert "could not be looked at (NotImplementedError: no such Op)" in caplog.text


def test_a_hierarchy_that_is_not_known_is_left_centred_beside_data_that_are():
    def build():
        theta = pm.StudentT("theta", nu=4.0, sigma=pm.HalfNormal("tau"), shape=3)
        pm.Normal("y", theta, pm.HalfNormal("sigma"), observed=np.arange(3.0))

    model, step = step_of(build, parametrization="model")
    assert step.density.scales
    assert left_centred(model, step.density)
    model, step = step_of(hierarchy_and_data, parametrization="model")
    assert not left_centred(model, step.density)


def _effects(scale):
    """The coordinates that a known scale is the prior of: the one positive entry of each row."""
    return scale.matrix[scale.matrix.any(axis=1)].argmax(axis=1)  # but of its own


@pytest.mark.parametrize("build", NONE, ids=lambda build: build.__name__)
def test_other_priors_are_learned(build):
    assert step_of(build)[1].density.scales == ()


def test_and_not_because_there_are_so_many():
    assert len(step_of(lambda: (centred(), of_other_kinds()))[1].density.scales) == FOUND[centred]


def test_options_that_leave_all_to_be_learned():
    assert step_of(centred, learn="all")[1].density.scales == ()
    assert step_of(centred, surrogate="lite")[1].density.scales == ()
    assert step_of(centred, parametrization="model")[1].density.scales  # in whatever coordinates
    assert step_of(by_hand, parametrization="model")[1].density.scales == ()  # z has no scale in those


def test_it_is_said(caplog):
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        step_of(three_levels)
    assert "Taken from the model, not learned: the densities of low, region, school, top." in caplog.text
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        step_of(lambda: (centred(), bent_location_beside()))  # of what is not taken nothing is said
    assert caplog.text.rstrip().endswith("the densities of tau, theta.")


@pytest.mark.whole
def test_the_surrogates_of_both_ways_to_run_have_them(monkeypatch):
    model, step = step_of(centred)
    sample(step, model, draws=5, tune=500, chains=1, random_seed=1)
    assert step.algorithm_state.options.scales
    assert step.algorithm_state.fit.surrogate.known == 2
    hubs, hub = [], ByValues.hub
    monkeypatch.setattr(ByValues, "hub", lambda self, *args, **more: hubs.append(hub(self, *args, **more)) or hubs[-1])
    with pm.Model():
        centred()
        pk.sample(max_evaluations=400, chains=4, random_seed=1, progressbar=False)
    assert hubs[0].options.scales
