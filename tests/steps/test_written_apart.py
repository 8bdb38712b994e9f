"""Hierarchies that somebody has non-centred by hand: what is found, what is not, and that it helps."""

import time
from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps.hierarchies.coordinates import find_priors, find_written_apart
from pymc_kameleon.steps.hierarchies.reparametrized_density import (
    AsIfCentred,
    ReparametrizedDensity,
    reparametrized_density,
)
from tests.steps.test_coordinates import slopes

GROUP = np.array([0, 1, 2, 2, 1])
QUICK = {"mode": "FAST_COMPILE"}
NAMES = "z w mu gamma sd rate bounded shifted x"


def variables():
    """A model's, by name: standard normals, a location, scales of several kinds."""
    z, w = (pm.Normal(name, 0.0, 1.0, shape=3) for name in "zw")
    mu, gamma = pm.Normal("mu"), pm.Normal("gamma")
    sd, rate = pm.HalfNormal("sd"), pm.Gamma("rate", 2.0, 1.0)
    return {
        "z": z, "w": w, "mu": mu, "gamma": gamma, "sd": sd, "rate": rate, "bounded": pm.Uniform("bounded", 0.0, 3.0),
        "shifted": pm.Uniform("shifted", -1.0, 3.0), "x": np.arange(3.0), "pm": pm, "pt": pt, "g": GROUP,
    }  # fmt: skip


def found(expression):
    """(location, scale) of z where the model has ``expression``, at mu = 2, gamma = .5, sd = 3, rate = 4, bounded =
    1.5 and w = (1, 2, 3); None where z is not moved.
    """
    with pm.Model() as model:
        given = variables()
        pm.Potential("seen", pt.sum(eval(expression, given)))
    priors = find_written_apart(model, find_priors(model))
    prior = priors.get(model.rvs_to_values[given["z"]])
    if prior is None:
        return None
    values = {
        "mu": 2.0, "gamma": 0.5, "sd_log__": np.log(3.0), "rate_log__": np.log(4.0), "w": np.array([1.0, 2.0, 3.0]),
        "bounded_interval__": 0.0, "z": np.zeros(3), "shifted_interval__": 0.0,
    }  # fmt: skip
    function = pytensor.function(model.value_vars, [prior.location, prior.scale], on_unused_input="ignore", **QUICK)
    return tuple(np.broadcast_to(np.squeeze(a), 3) for a in function(*(values[v.name] for v in model.value_vars)))


@pytest.mark.parametrize(
    ("expression", "location", "scale"),
    [
        ("mu + sd * z", 2.0, 3.0),
        ("pm.Deterministic('theta', mu + z * sd)[g]", 2.0, 3.0),
        ("mu + (z * sd)[g]", 2.0, 3.0),
        ("(sd * z)[g] + gamma * g + mu", 2.0, 3.0),  # what is of the data's shape is no group's
        ("mu + gamma * x + sd * z", 2.0 + 0.5 * np.arange(3), 3.0),
        ("mu + sd * z[g]", 2.0, 3.0),
        ("(mu + pt.stack([sd, rate, sd])) + (w * pt.exp(z[None, :])).sum() + sd * z", [5.0, 6.0, 5.0], 3.0),
        ("pt.stack([mu + sd * z[i] for i in range(3)])", 2.0, 3.0),
        ("mu + z / pt.sqrt(rate)", 2.0, 0.5),
        ("mu + bounded * z", 2.0, 1.5),
        ("mu + rate**-0.5 * z", 2.0, 0.5),
        ("gamma + z * sd * rate", 0.5, 12.0),
        ("mu + pt.exp(gamma) * z", 2.0, np.exp(0.5)),
        ("mu + sd * z + rate * w", 2.0 + 4.0 * np.arange(1.0, 4.0), 3.0),
        ("(mu + sd * z).sum() * (gamma + sd * z)", 0.0, 3.0),  # two locations: none
        ("mu + pt.maximum(gamma, 0.1) * z", 2.0, 0.5),
        ("mu + pt.clip(gamma, 0.1, 4.0) * z", 2.0, 0.5),
        ("mu + pt.exp(w)[[2, 0, 0]] * z", 2.0, np.exp([3.0, 1.0, 1.0])),
        ("mu + pt.stack([sd, rate, sd]) * z", 2.0, [3.0, 4.0, 3.0]),
        ("pt.stack([mu + sd * z[0], gamma + z[1] * rate])", [2.0, 0.5, 0.0], [3.0, 4.0, 1.0]),
        ("mu + sd * z[0] + rate * z[1]", [2.0, 2.0, 0.0], [3.0, 4.0, 1.0]),
        ("pt.stack([mu + sd * z[0], gamma + sd * z[0], mu + z[1] * rate])", [0.0, 2.0, 0.0], [3.0, 4.0, 1.0]),
    ],
)
def test_what_is_found(expression, location, scale):
    where = found(expression)
    np.testing.assert_allclose(where[0], np.broadcast_to(location, 3))
    np.testing.assert_allclose(where[1], np.broadcast_to(scale, 3))


@pytest.mark.parametrize(
    "expression",
    [
        "z + mu",  # with its own scale
        "mu + gamma * z",  # which may be negative, and then has no logarithm
        "mu + shifted * z",
        "mu + sd * z + rate * z",  # which of the two?
        "mu + z[:, None] * pt.exp(w)",  # three of each
        "mu + pt.maximum(gamma, 0.0) * z",
        "mu + pt.clip(gamma, -1.0, 4.0) * z",
        "pt.stack([mu + sd * z[0], mu + gamma * z[1]])",
        "sd * z[0] + rate * z[0]",
        "sd * z[0] + rate * z[-3]",  # the same one
        "sd * z[0] + (rate * z[:2]).sum()",
        "sd * z[0] + (rate * z).sum()",
        "sd * z[pt.cast(rate, 'int64')] + rate * z[0]",
    ],
)
def test_what_is_not(expression):
    assert found(expression) is None


@pytest.mark.parametrize(("expression", "first"), [("(L @ z).T", True), ("z @ L.T", False), ("(L @ z.T).T", False)])
def test_vectors_by_a_cholesky_factor(expression, first):
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("L", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2), compute_corr=True)
        given = {"L": chol, "z": pm.Normal("z", shape=(2, 3) if first else (3, 2)), "mu": pm.Normal("mu", shape=2)}
        sums = eval(expression, given)
        pm.Potential("seen", pt.sum(given["mu"] + (sums.T if sums.type.shape[-1] == 3 else sums)))
    prior = find_written_apart(model, find_priors(model))[model.rvs_to_values[given["z"]]]
    assert prior.first == first
    value = np.array([0.1, 0.2, 0.3])
    function = pytensor.function(
        model.value_vars, [prior.location, prior.factor, prior.scale], on_unused_input="ignore", **QUICK
    )
    location, factor, scale = function(value, np.zeros((2, 3) if first else (3, 2)), [4.0, 5.0])
    np.testing.assert_allclose(np.squeeze(location), [4.0, 5.0])
    np.testing.assert_allclose(factor, [[np.exp(0.1), 0.0], [0.2, np.exp(0.3)]])
    np.testing.assert_allclose(scale, np.exp([0.1, 0.3]))


def test_another_matrix_is_no_cholesky_factor():
    """Its diagonal may be negative."""
    with pm.Model() as model:
        z, mu = pm.Normal("z", shape=(3, 2)), pm.Normal("mu", shape=2)
        pm.Potential("seen", pt.sum(z @ pt.set_subtensor(pt.zeros((2, 2))[[0, 1], [0, 1]], mu).T))
    assert not find_written_apart(model, find_priors(model))


def test_no_variable_depends_on_itself():
    """z scaled by e^w and w by e^z: one of them."""
    with pm.Model() as model:
        z, w = pm.Normal("z"), pm.Normal("w")
        pm.Potential("seen", pt.exp(w) * z + pt.exp(z) * w)
    assert len(find_written_apart(model, {})) == 1


def test_nor_by_way_of_another_parameter():
    """The degrees of freedom of t are b's, and b is moved by t."""
    with pm.Model() as model:
        b, spread, sd = pm.Normal("b"), pm.HalfNormal("spread"), pm.HalfNormal("sd")
        t = pm.StudentT("t", nu=pm.math.exp(b) + 1.0, mu=0.0, sigma=1.0)
        pm.Normal("y", spread * b + sd * t, 1.0, observed=0.5)
    assert len(find_written_apart(model, {})) == 1
    assert reparametrized_density(model, model.value_vars, model.initial_point(), QUICK) is not None


def test_a_loop_over_time_takes_no_minutes():
    """Each step enters all that follow, by its value and twice by its scale."""
    with pm.Model() as model:
        z, sd = pm.Normal("z", shape=400), pm.HalfNormal("sd")
        x, scale = pm.Normal("start"), sd
        for t in range(400):
            scale = pt.sqrt(scale * scale + 0.1 * scale)
            x = x + scale * z[t]
        pm.Potential("seen", x + pt.exp(x))
    begin = time.process_time()
    assert not find_written_apart(model, find_priors(model))
    assert time.process_time() - begin < 5.0


@pytest.mark.parametrize(
    "expression", ["mu * q", "pt.exp(w) * q", "(mu + sd) * q.sum() + rate * q + sd * q", "sd * q[0] + rate * q[1]"]
)
def test_effects_that_sum_to_zero_have_one_scale(expression):
    """Their coordinates are others than their entries: as many as are free."""
    with pm.Model() as model:
        given = variables() | {"q": pm.ZeroSumNormal("q", shape=3)}
        pm.Potential("seen", pt.sum(eval(expression, given)))
    assert not find_written_apart(model, find_priors(model))


@pytest.mark.parametrize("options", [{}, {"default_transform": None}])
def test_what_is_scaled_but_not_of_a_location_scale_family(options):
    """A lognormal variable itself, rather than its logarithm."""
    with pm.Model() as model:
        pm.Potential("seen", pm.HalfNormal("sd") * pm.LogNormal("z", 0.0, 1.0, **options))
    assert not find_written_apart(model, find_priors(model))


def columns(z, s, group_mean):
    return group_mean + z[:, 0] * s[0], group_mean[0] + s[1] * z[:, 1]


def rows(z, s, group_mean):
    return group_mean[:2] + z[0] * s[:2], z[2] * s[2]


def sum_to_zero(z, s, group_mean):
    return (group_mean[0] + s[0] * pm.ZeroSumNormal("q", n_zerosum_axes=2, shape=(2, 3, 2)),)


def both_axes(z, s, group_mean):
    return z[0] * s[0], z[:, 1] * s[1]


def of_unknown_size(z, s, group_mean):
    z = pm.Normal("w", pt.zeros(pytensor.shared(3)), 1.0)
    return z[0] * s[0], z[1] * s[1]


@pytest.mark.parametrize(
    ("write", "moved", "kind"),
    [
        (columns, 6, AsIfCentred), (columns, 6, ReparametrizedDensity), (rows, 6, ReparametrizedDensity),
        (sum_to_zero, 4, ReparametrizedDensity), (both_axes, 0, ReparametrizedDensity),
        (of_unknown_size, 0, ReparametrizedDensity),
    ],
)  # fmt: skip
def test_the_density_of_parts_that_have_a_scale_each(write, moved, kind):
    """That of the model times the Jacobian, by differences; where no shape is known beforehand, as of dims."""
    with pm.Model(coords={"group": range(3), "column": range(2)}) as model:
        z, s = pm.Normal("z", dims=("group", "column")), pm.HalfNormal("s", shape=3)
        for i, part in enumerate(write(z, s, pm.Normal("mean", dims="group"))):
            pm.Potential(f"y{i}", pt.sum(pt.cos(part)))
    point, variables = model.initial_point(), model.value_vars
    density = reparametrized_density(model, variables, point, QUICK, kind=kind)
    if not moved:
        assert density is None
        return
    assert density.movable.sum() == moved
    rng = np.random.default_rng(2)
    density.centring = np.where(density.movable, rng.uniform(0.2, 1.0, density.dim), 1.0)
    u = 0.7 * rng.standard_normal(density.dim)
    x, jacobian = density.leave(u), slopes(density.leave, u)
    assert not np.array_equal(x, u)
    expected = model.compile_logp(**QUICK)(density.update(point, u)) + np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(density(u), expected, rtol=1e-7)
    np.testing.assert_allclose(density.enter(x), u, rtol=1e-10)


def groups(draws=20, n=6):
    """Groups that the data know well."""
    rng = np.random.default_rng(3)
    group, true = np.repeat(np.arange(n), draws), 1.0 + 0.6 * rng.standard_normal(n)
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", 0.0, 3.0), pm.HalfNormal("sd", 1.0)
        theta = pm.Deterministic("theta", mu + sd * pm.Normal("z", shape=n))
        pm.Poisson("seen", pt.exp(theta)[group], observed=rng.poisson(np.exp(true))[group])
    return model


@pytest.mark.parametrize("part", ["location", "scale"])
def test_the_density_where_the_model_does_not_look_at_what_is_no_number(part):
    """Before its onset nothing grows, and the logarithm of a negative age is in an arm that is not taken."""
    age = np.arange(1.0, 5.0)
    with pm.Model() as model:
        start, sd = pm.Normal("start"), pm.HalfNormal("sd")
        z = pm.Normal("z", shape=4)
        grown = pt.log(age - start)
        mean = pt.switch(age > start, grown + sd * z if part == "location" else pt.exp(grown) * z, 0.0)
        pm.Normal("y", mean, 1.0, observed=np.zeros(4))
    point = model.initial_point() | {"start": np.array(2.5), "z": np.array([0.2, -0.5, 1.0, 0.3])}
    density, expected = reparametrized_density(model, model.value_vars, point, QUICK), model.compile_logp(mode=None)
    rng = np.random.default_rng(3)
    for onset, centred in product((0.3, 1.5, 2.5), (0.0, rng.uniform(0.2, 1.0, density.dim))):
        point["start"] = np.array(onset)
        density.centring = np.where(density.movable, centred, 1.0)
        u = density.enter(density.ravel(point))
        np.testing.assert_allclose(density.leave(u), density.ravel(point), rtol=1e-12)
        jacobian = np.linalg.slogdet(slopes(density.leave, u))[1]
        assert density(u) == pytest.approx(float(expected(point)) + jacobian, abs=1e-6)


def test_a_surrogate_of_the_log_density_has_them_centred():
    """The density of u = mu + sigma z; the draws, and a log density for many points at once, are of the model."""
    model = groups()
    with model:
        density = pk.KamiltonianStep(compile_kwargs=QUICK).density
        assert type(pk.KamiltonianStep(compile_kwargs=QUICK, parametrization="model").density) is not AsIfCentred
    rng = np.random.default_rng(1)
    u = 0.7 * rng.standard_normal(density.dim)
    x = density.leave(u)
    np.testing.assert_allclose(u[2:], x[0] + np.exp(x[1]) * x[2:], rtol=1e-12)
    point = density.update(model.initial_point(), u)
    jacobian = np.linalg.slogdet(slopes(density.leave, u))[1]
    np.testing.assert_allclose(density(u), model.compile_logp(**QUICK)(point) + jacobian, rtol=1e-6)
    source = density.source(model)
    there = {v.name: u[i] for v, i in zip(source.value_vars, (0, 1, slice(2, None)), strict=True)}
    np.testing.assert_allclose(source.compile_logp(**QUICK)(there), density(u), rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "moved"),
    [
        (lambda: pm.HalfFlat("sd"), True), (lambda: pm.HalfCauchy("sd", 5.0), True),
        (lambda: pm.LogNormal("sd", 0.0, 10.0), False), (lambda: pm.Gamma("sd", 0.001, 0.001), False),
    ],
)  # fmt: skip
def test_not_where_digits_would_be_lost(scale, moved):
    """At sigma = 1e-16 mu all z are one u, of infinite density; z itself has no such place."""
    with pm.Model() as model:
        pm.Normal("seen", pm.Flat("mu") + scale() * pm.Normal("z", shape=3), observed=np.zeros(3))
    found = reparametrized_density(model, model.value_vars, model.initial_point(), QUICK, kind=AsIfCentred)
    assert (found is not None) == moved


@pytest.mark.whole
@pytest.mark.parametrize("parametrization", ["auto", pytest.param("model", marks=pytest.mark.slow)])
def test_groups_that_the_data_know_well(parametrization):
    """1,200 evaluations: hundreds of effective draws, and a handful as the model is written."""
    with groups():
        step = pk.KamiltonianStep(parametrization=parametrization)
        run = pk.sample(step=step, max_evaluations=1200, random_seed=1, progressbar=False)
    ess = az.ess(run, var_names=["mu", "sd", "theta"])
    least = min(float(ess[name].min()) for name in ess)
    assert least > 150 if parametrization == "auto" else least < 100  # 293 to 435, and 42 to 72, of four seeds
