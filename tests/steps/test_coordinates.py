"""The coordinates of a hierarchy: their density, and that nothing is lost where a scale is small."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.factors.split import Cut
from pymc_kameleon.surrogates.factors.emulator import Emulator, emulate
from pymc_kameleon.surrogates.factors.splines import assemble
from tests.support import differences
from tests.support.hierarchies import BlackBox, Toy, curves, log_density_of_schools, schools

CENTRINGS = (0.0, 0.5, 1.0)
QUICK = {"mode": "FAST_COMPILE"}
slopes = partial(differences.slopes, h=1e-6)


def density(model, **options):
    point = model.initial_point()
    cut = Cut(model, model.continuous_value_vars, point, **options)
    return FactoredDensity(cut, model, point, QUICK)


def no_slope(parts, outputs, w):
    """Known part at fixed outputs."""
    return outputs, np.zeros((len(outputs), parts.layout.widest)), np.zeros(len(w))


def families():
    """Every family with unknown parents, and a level above."""
    box = BlackBox(lambda x: -0.5 * np.sum(np.square(x)), pt.dscalar)
    with pm.Model() as model:
        top = pm.Normal("top", 0.3, 1.0)
        mu = pm.Normal("mu", top, 1.0)
        sd = pm.HalfNormal("sd", 1.0)
        x = [
            pm.Normal("normal", mu, sd, shape=2), pm.StudentT("student", 4.0, mu=mu, sigma=sd),
            pm.Cauchy("cauchy", mu, sd), pm.Laplace("laplace", mu, sd), pm.Logistic("logistic", mu, sd),
            pm.LogNormal("lognormal", mu, sd),
        ]  # fmt: skip
        for i, part in enumerate(x):
            pm.Potential(f"y{i}", box(part))
    return model


def correlated():
    """Correlated effects, by a Cholesky factor or a covariance of unknowns, and effects that sum to zero."""
    box = BlackBox(lambda x: -0.5 * np.sum(np.square(x)), pt.dscalar)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.3, 1.0, shape=2)
        sd = pm.HalfNormal("sd", 1.0, shape=2)
        r = pm.Uniform("r", -0.4, 0.9)
        correlation = (1.0 - r) * np.eye(2) + r
        covariance = correlation * pt.outer(sd, sd)
        chol = sd[:, None] * np.array([[1.0, 0.0], [0.6, 0.8]])
        x = [
            pm.MvNormal("x", mu, covariance, shape=(2, 2)), pm.MvNormal("by_factor", np.zeros(2), chol=chol),
            pm.ZeroSumNormal("sums", sigma=sd[0], shape=4),
            pm.ZeroSumNormal("both", sigma=sd[1], n_zerosum_axes=2, shape=(3, 2)),
        ]  # fmt: skip
        for i, part in enumerate(x):
            pm.Potential(f"y{i}", box(part))
    return model


def by_hand():
    """Hierarchies that are non-centred by hand, one before what it depends on, and one that is not."""
    box = BlackBox(lambda x: -0.5 * np.sum(np.square(x)), pt.dscalar)
    with pm.Model() as model:
        z, w = pm.Normal("z", 0.0, 1.0, shape=2), pm.StudentT("w", 4.0, mu=0.0, sigma=1.0, shape=(3, 2))
        mu = pm.Normal("mu", 0.3, 1.0)
        sd = pm.HalfNormal("sd", 1.0, shape=2)
        effect = mu + sd * z
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2), compute_corr=True)
        rows, columns = pm.Normal("rows", shape=(2, 2)), pm.Normal("columns", shape=(2, 3))
        pairs = pm.Normal("pairs", shape=(3, 2))
        x = [
            effect, *(effect + w[i] / pt.sqrt(sd[0]) for i in range(3)), pm.Laplace("laplace", mu, sd),
            rows @ chol.T, pm.Deterministic("by_chol", pt.dot(chol, columns).T) + effect,
            mu + pairs[:, 0] * sd[0], sd[1] * pairs[:, 1], sd[1] * pm.ZeroSumNormal("zero_sum", shape=3),
        ]  # fmt: skip
        for i, part in enumerate(x):
            pm.Potential(f"y{i}", box(part))
    return model


# What is moved is the same in test_reparametrized, of all three.
MOVED = {by_hand: 28, families: 8, correlated: 11}


@pytest.fixture(
    scope="module", params=[by_hand, *(pytest.param(m, marks=pytest.mark.slow) for m in (families, correlated))]
)
def moved(request):
    model = request.param()
    found = density(model)
    assert found.parts_known.movable.sum() == MOVED[request.param]  # mu's parent is unknown too
    return model, found, model.compile_logp(jacobian=True, **QUICK)


@pytest.mark.parametrize("centring", CENTRINGS)
def test_the_density_of_u_is_that_of_x_times_the_jacobian(moved, centring):
    model, found, logp = moved
    parts, rng = found.parts_known, np.random.default_rng(6)
    share = centring * rng.uniform(0.5, 1.0, found.dim) * parts.movable
    u = 0.7 * rng.standard_normal(found.dim)
    w, x, v, _, log_scale = parts.places(u, share)
    point = found.update(model.initial_point(), v)
    np.testing.assert_allclose(found.ravel(point), x, rtol=1e-12)
    np.testing.assert_allclose(found.enter(x), v, rtol=1e-8, atol=1e-9)
    assert found.is_at(found.ravel(point), v)
    assert not found.is_at(np.nextafter(found.ravel(point), 10.0), v)
    here = found(v)  # the density of v, which the chain's test evaluates
    np.testing.assert_allclose(here, logp(point) + found.parts_known.cut.coordinates.own @ log_scale, rtol=1e-10)
    np.testing.assert_allclose(found.model_log_density(v, here), logp(point), rtol=1e-10)
    fixed = no_slope(parts, found.outputs.copy(), w)
    value, gradient, by_outputs = parts.known(u, share, w, *fixed)
    np.testing.assert_allclose(value, here - share @ log_scale, rtol=1e-10)
    np.testing.assert_allclose(by_outputs, 1.0)
    ways = rng.standard_normal((4, found.dim))
    along = slopes(lambda t: parts.known(u + t @ ways, share, w, *fixed)[0], np.zeros(4))
    np.testing.assert_allclose(ways @ gradient, along, rtol=1e-6, atol=1e-6 * np.abs(ways).sum())
    # the Jacobian is that of the map, whose matrix is triangular
    of_map = slopes(lambda u: parts.places(u, share)[2], u)
    np.testing.assert_allclose(np.linalg.slogdet(of_map)[1], -share @ log_scale, atol=1e-5)


@pytest.fixture(scope="module")
def small():
    return density(schools()[0])


@pytest.mark.parametrize("log_tau", [np.log(1e-5), np.log(1e-16), np.log(1e-20), -300.0])
@pytest.mark.parametrize("centring", [0.0, 0.5])
def test_nothing_is_lost_where_a_scale_is_small(small, log_tau, centring):
    """At sigma = 1e-20 mu + sigma z is mu, whatever z: the prior of z has to be there all the same."""
    found, parts = small, small.parts_known
    share = centring * parts.movable
    z, mu = np.array([0.7, -1.3, 3.0]), 0.4
    v = np.concatenate([[mu, log_tau], z])
    expected = log_density_of_schools(mu, log_tau, z)
    slack = 4.0 * np.exp(log_tau)  # of the likelihood, at mu + sigma z
    np.testing.assert_allclose(found(v), expected, rtol=1e-9, atol=slack)
    u = share * mu + (np.exp(log_tau) ** share) * v  # share is 0 for the parents
    w, *_ = parts.places(u, share)
    value, *_ = parts.known(u, share, w, *no_slope(parts, -0.5 * (w - np.arange(3)) ** 2, w))
    digits = np.finfo(float).eps * mu / np.exp(centring * log_tau)  # of z, as u stores it
    if digits < 0.1:
        jacobian = -3.0 * centring * log_tau  # log|dv/du|
        np.testing.assert_allclose(value, expected + jacobian, rtol=1e-9, atol=slack + 20 * digits)


def test_what_is_cut_out_can_be_put_back():
    """With the true outputs in the place of the emulators' the known part is the log density, and so is its slope."""
    model, box = curves()
    found = density(model)
    parts, rng = found.parts_known, np.random.default_rng(4)
    assert box.calls == 2  # to learn the outputs' shape
    assert list(parts.layout.added) == [False, False]
    centring = 0.6 * parts.movable
    u = 0.5 * rng.standard_normal(found.dim)
    w, *_ = parts.places(u, centring)

    def outputs(w):
        rows = np.split(w, parts.layout.inputs[1:-1])
        return np.concatenate([np.exp(b) * np.exp(-np.exp(a) * np.arange(3.0)) for a, b in rows])

    by_inputs = slopes(outputs, w).T  # (outputs, inputs), of which a black box has three and two
    jacobian = np.concatenate([by_inputs[:3, :2], by_inputs[3:, 2:]])

    def whole(u):
        _, _, v, _, log_scale = parts.places(u, centring)
        return found(v) - centring @ log_scale

    value, slope, _ = parts.known(u, centring, w, outputs(w), jacobian, np.zeros(4))
    np.testing.assert_allclose(value, whole(u), rtol=1e-12)
    np.testing.assert_allclose(found.outputs, outputs(w), rtol=1e-12)
    np.testing.assert_allclose(slope, slopes(whole, u), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("centring", CENTRINGS)
def test_the_toy_by_hand_has_the_right_slope(centring):
    toy, rng = Toy(), np.random.default_rng(5)
    share = centring * toy.movable
    emulator = Emulator(
        toy.layout.inputs, toy.layout.outputs, np.zeros(2), np.ones(2), np.array([[-0.5, np.inf], [-np.inf, 0.5]]),
        np.ones((2, 1, 1)), np.full(2, 1.5), np.ones(2, dtype=bool), np.array([0, 3, 6]),
        np.zeros((6, 3), dtype=np.int64),
        np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0]] * 2), rng.standard_normal(6), np.array([0, 3, 6]),
        assemble([None, None], 1), np.array([True, False]), True,
    )  # fmt: skip

    def at(u):
        w, *_ = toy.places(u, share)
        outputs, jacobian, penalty, slope = emulate(emulator, w)
        value, by_u, _ = toy.known(u, share, w, outputs, jacobian, slope)
        return value - penalty, by_u

    for _ in range(5):
        u = 1.5 * rng.standard_normal(4)
        np.testing.assert_allclose(at(u)[1], slopes(lambda u: at(u)[0], u), rtol=1e-5, atol=1e-5)
