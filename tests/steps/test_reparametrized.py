"""Steps that need no gradient in the coordinates of a hierarchy: the density of u, whole chains, what is left alone."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.numerics.evaluations import table
from pymc_kameleon.plots.names import layout_of
from pymc_kameleon.samplers import centring
from pymc_kameleon.steps.hierarchies.reparametrized_density import reparametrized_density
from pymc_kameleon.steps.log_density import LogDensity
from tests import step_tester as tester
from tests.step_tester import drive
from tests.steps.test_coordinates import by_hand, correlated, families, slopes
from tests.support.hierarchies import BlackBox, log_density_of_schools, schools

QUICK = {"mode": "FAST_COMPILE"}
STEPS = [
    pk.AdaptiveMetropolisStep, pk.KameleonStep, pk.FastKameleonStep, pk.GaussianMixtureStep, pk.CMAStep,
    pk.GaussianAdaptationStep,
]  # fmt: skip


def density(model, variables=None):
    variables = model.continuous_value_vars if variables is None else variables
    return reparametrized_density(model, variables, model.initial_point(), QUICK)


@pytest.fixture(scope="module", params=[families, by_hand, correlated])
def model_and_density(request):
    model = request.param()
    return model, density(model), model.compile_logp(jacobian=True, **QUICK)


@pytest.mark.parametrize("share", ["random", *(pytest.param(s, marks=pytest.mark.slow) for s in (0.0, 0.5, 1.0))])
def test_the_density_of_u_is_that_of_x_times_the_jacobian(model_and_density, share):
    """The oracle: the model's own log density, and the Jacobian of the whole map by differences."""
    model, found, logp = model_and_density
    rng = np.random.default_rng(1)
    share = rng.uniform(size=found.dim) if share == "random" else share
    found.centring = np.where(found.movable, share, 1.0)
    for _ in range(3):
        u = 0.7 * rng.standard_normal(found.dim)
        point = found.update(model.initial_point(), u)
        jacobian = np.linalg.slogdet(slopes(found.leave, u))[1]
        np.testing.assert_allclose(found(u), logp(point) + jacobian, rtol=1e-6)
        np.testing.assert_allclose(found.model_log_density(u, found(u)), logp(point), rtol=1e-10)
        np.testing.assert_allclose(found.enter(found.leave(u)), u, rtol=1e-8, atol=1e-10)
        assert found.is_at(found.ravel(point), u)


def test_from_one_lambda_to_another(model_and_density):
    model, found, _ = model_and_density
    rng = np.random.default_rng(2)
    one, other = (np.where(found.movable, rng.uniform(size=found.dim), 1.0) for _ in range(2))
    found.centring = one
    u = 0.7 * rng.standard_normal(found.dim)
    here, point = found(u), found.update(model.initial_point(), u)
    moved, change = found.recast(u, other)
    np.testing.assert_allclose(found.recast(moved, one, other)[0], u, rtol=1e-9, atol=1e-10)
    found.centring = other
    np.testing.assert_allclose(found(moved), here + change, rtol=1e-10)
    np.testing.assert_allclose(found.ravel(found.update({}, moved)), found.ravel(point), rtol=1e-9)


@pytest.fixture(scope="module")
def small():
    return density(schools()[0])


@pytest.mark.parametrize("log_tau", [np.log(1e-5), np.log(1e-16), np.log(1e-20), -300.0])
def test_nothing_is_lost_where_a_scale_is_small(small, log_tau):
    """At sigma = 1e-20 mu + sigma z is mu, whatever z: the prior of z has to be there all the same."""
    z, mu = np.array([0.7, -1.3, 3.0]), 0.4
    small.centring = small.noncentred
    expected = log_density_of_schools(mu, log_tau, z)
    u = np.concatenate([[mu, log_tau], z])
    slack = 4.0 * np.exp(log_tau)  # of the likelihood, at mu + sigma z
    np.testing.assert_allclose(small(u), expected, rtol=1e-9, atol=slack)
    half = np.array([1.0, 1.0, 0.5, 0.5, 0.5])
    other, change = small.recast(u, half)
    small.centring = half
    digits = np.finfo(float).eps * mu / np.exp(0.5 * log_tau)  # of z, as u stores it
    if digits < 0.1:
        np.testing.assert_allclose(small(other), expected + change, rtol=1e-9, atol=slack + 20 * digits)
        np.testing.assert_allclose(change, -1.5 * log_tau)


# --- which priors are moved -----------------------------------------------------------------------


def test_nothing_is_moved_without_unknown_parents_of_this_step():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        x = pm.Normal("x", 0.0, sd, shape=2)
        pm.Normal("flat", 0.0, 1.0)
        n = pm.Poisson("n", 2.0)
        pm.Normal("by_counts", n, 1.0)
        pm.Potential("y", -pt.sqr(x).sum())
    named = {v.name: v for v in model.value_vars}
    assert density(model, [named["x"]]) is None  # sd is another step's
    assert density(model, [named["flat"]]) is None
    assert density(model, [named["by_counts"]]) is None  # n cannot be this step's
    both = density(model, [named["sd_log__"], named["x"], named["by_counts"]])
    assert both.movable.tolist() == [False, True, True, False]
    assert type(pk.CMAStep([sd], model=model, compile_kwargs=QUICK).density) is LogDensity


def test_a_variable_without_elements_is_not_moved():
    with pm.Model() as model:
        top = pm.Normal("top")
        pm.Normal("nothing", top, 1.0, shape=0)
        step = tester.begin(pk.AdaptiveMetropolisStep(compile_kwargs=QUICK))
    points, _ = drive(step, model.initial_point(), 20)
    assert points[-1]["nothing"].shape == (0,)
    assert len(np.unique(tester.values(points, "top"))) > 1


def test_a_black_box_is_not_asked_where_a_prior_is():
    box = BlackBox(lambda x: np.asarray(2.0 * x))
    with pm.Model() as model:
        top = pm.Normal("top")
        pm.Normal("x", box(top), 1.0)
        pm.Normal("y", top, 1.0)
    found = density(model)
    assert found.movable.tolist() == [False, False, True]
    before = box.calls
    found.leave(np.zeros(3))
    assert box.calls == before


@pytest.mark.parametrize("step", [STEPS[0], *(pytest.param(s, marks=pytest.mark.slow) for s in STEPS[1:])])
def test_the_option(step):
    model, _ = schools()
    how = {"model": model, "compile_kwargs": QUICK}
    assert step(**how).density.reparametrized
    assert not step(parametrization="model", **how).density.reparametrized
    if step is not pk.GaussianMixtureStep:
        assert not step(preset="paper", **how).density.reparametrized
        assert step(preset="paper", parametrization="auto", **how).density.reparametrized
    with pytest.raises(ValueError, match="parametrization must be one of"):
        step(parametrization="noncentred", **how)


# --- chains ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    model, box = schools()
    step = pk.AdaptiveMetropolisStep(model=model, compile_kwargs=QUICK)
    calls = box.calls
    points, rows = tester.run(step, 100, tune=400, seed=1)
    return model, step, points, rows, box.calls - calls


def test_draws_are_of_the_models_own_variables(run):
    model, step, points, rows, _ = run
    logp = model.compile_logp(jacobian=True, **QUICK)
    assert set(points[0]) == {"mu", "tau_log__", "theta"}
    for point, row in list(zip(points, rows, strict=True))[::50]:
        np.testing.assert_allclose(row["model_logp"], logp(point), rtol=1e-9)
    assert step.density.is_at(step.density.ravel(points[-1]), step.position)


def test_one_evaluation_a_draw_at_most(run):
    _, step, _, rows, calls = run
    assert step.evaluations <= len(rows) + 1
    assert calls == 3 * step.evaluations


def test_lambda_is_settled_and_stays(run):
    _, step, *_ = run
    assert step.life.state.centring.settled
    share = step.density.centring
    assert (share[:2] == 1.0).all()  # mu and tau have no unknown parents
    assert ((share[2:] >= 0.0) & (share[2:] < 0.9)).all()


def test_moving_over_to_another_lambda(monkeypatch):
    model, _ = schools()
    step = pk.AdaptiveMetropolisStep(model=model, compile_kwargs=QUICK)
    settle = centring.settle

    share = np.array([1.0, 1.0, 0.5, 0.6, 0.7])
    monkeypatch.setattr(centring, "settle", lambda *given: settle(*given)._replace(share=share))
    points, _ = tester.run(step, 1, seed=1)
    while not step.life.state.centring.settled:
        before = points[-1]
        points, _ = drive(step, before, 1)
    np.testing.assert_allclose(points[-1]["theta"], before["theta"], rtol=1e-12)
    np.testing.assert_allclose(step.log_density, step.density(step.position), rtol=1e-10)
    known = step.algorithm_state.values.proposed  # what the arrival evaluated, in the new coordinates
    rows = slice(0, known.size, 7)
    values = [step.density(position) for position in known.positions[rows]]
    np.testing.assert_allclose(values, known.log_densities[rows], rtol=1e-8)


def test_what_an_arrival_has_learned_is_told_in_other_coordinates(small):
    rng, d = np.random.default_rng(4), 5
    here, root = (rng.standard_normal(d), 0.01 * np.tril(rng.standard_normal((d, d))) + 0.01 * np.eye(d))
    root *= np.sign(np.diag(root))
    small.centring = small.noncentred
    rows = rng.standard_normal((4, d))
    evaluated = table(rows, [small(row) for row in rows])
    same = centring.recast(small, small.noncentred, here, root, evaluated)
    np.testing.assert_array_equal(same["factor"], root)
    share = np.array([1.0, 1.0, 0.5, 1.0, 0.2])
    told = centring.recast(small, share, here, root, evaluated)
    cloud = here + rng.standard_normal((2000, d)) @ root.T
    sds = np.std([small.recast(row, share)[0] for row in cloud], axis=0)
    np.testing.assert_allclose(told["factor"], np.diag(sds), rtol=0.1)
    small.centring = share
    values = [small(u) for u in told["evaluated"].positions]
    np.testing.assert_allclose(values, told["evaluated"].log_densities, rtol=1e-10)


@pytest.mark.parametrize("rich", [False, True])
def test_lambda_is_what_the_data_know_better_than_the_prior(rich):
    """Normal groups of known noise s: sigma^2 / (sigma^2 + s^2), to the last digit."""
    s = 0.05 if rich else 20.0
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        theta = pm.Normal("theta", mu, tau, shape=3)
        pm.Normal("y", theta, s, observed=np.arange(3.0))
    found = density(model)
    choice, u = centring.begin(found), np.array([0.3, -0.7, 0.1, 0.2, 0.3])
    here = found(u)
    while not choice.complete:
        choice = choice.told(found(u + choice.displacement) - here)
    known = np.exp(-1.4) / s**2
    np.testing.assert_allclose(choice.curvatures(), 1.0 + known, rtol=1e-6)
    settled = centring.settle(np.random.default_rng(0), found, choice, u, None)
    assert settled.share.tolist() == [1.0] * 5 if rich else [1.0, 1.0, 0.0, 0.0, 0.0]
    for low in [-3.0, -3.5, -4.0]:  # where the chain has been before: the lowest counts
        choice = centring.seen(found, choice, np.array([0.3, low, 0.1, 0.2, 0.3]))
    known = np.exp(2.0 * (-3.925)) / s**2  # the quantile of four
    share = centring.settle(np.random.default_rng(0), found, choice, u, None).share[2:]
    np.testing.assert_allclose(share, known / (1.0 + known) if rich else 0.0, rtol=1e-4)


# --- exactness ------------------------------------------------------------------------------------

CHAINS = 2000


def neck():
    """Two groups and their scale, log sigma ~ N(-1, 1), and no data: the posterior is the prior, known exactly."""
    with pm.Model() as model:
        log_sigma = pm.Normal("log_sigma", -1.0, 1.0)
        pm.Normal("x", 0.5, pt.exp(log_sigma), shape=2)
    return model


def exact_draws(step, transitions=15):
    """z-scores of moments after some transitions of the frozen kernel from exact draws; one chain a draw."""
    rng = np.random.default_rng(3)
    log_sigma = rng.normal(-1.0, 1.0, CHAINS)
    x = 0.5 + np.exp(log_sigma)[:, None] * rng.standard_normal((len(log_sigma), 2))
    found = []
    for a, b in zip(log_sigma, x, strict=True):
        point = drive(step, {"log_sigma": np.array(a), "x": b}, transitions)[0][-1]
        found.append([point["log_sigma"], *((point["x"] - 0.5) * np.exp(-point["log_sigma"]))])
    y = np.array(found) - [-1.0, 0.0, 0.0]
    moments = np.concatenate([y, y**2 - 1.0], axis=1)
    return moments.mean(axis=0) / (moments.std(axis=0) / np.sqrt(len(moments)))


@pytest.fixture(scope="module")
def frozen():
    step = pk.AdaptiveMetropolisStep(model=neck(), compile_kwargs=QUICK)
    tester.run(step, 300, seed=1)
    step.stop_tuning()
    settled = step.life.state.centring._replace(share=np.array([1.0, 0.5, 0.2]))
    step.life_state = step.life_state._replace(centring=settled)
    return step


@pytest.mark.slow
def test_the_posterior_is_invariant(frozen):
    assert np.abs(exact_draws(frozen)).max() < 4.5


@pytest.mark.slow
def test_without_the_jacobian_it_is_not(frozen, monkeypatch):
    """The control: the density of x at u."""
    density, whole = frozen.density, type(frozen.density).__call__
    monkeypatch.setattr(type(density), "__call__", lambda self, u: self.model_log_density(u, whole(self, u)))
    assert np.abs(exact_draws(frozen)).max() > 10.0


def test_beside_a_step_of_discrete_variables_nothing_is_lost():
    """A count moves at every draw; where sigma is 1e-20, what u is cannot be read off x, and is kept."""
    with pm.Model() as model:
        log_sigma = pm.Normal("log_sigma", 0.0, 100.0)
        x = pm.Normal("x", 1.0, pt.exp(log_sigma))
        n = pm.Poisson("n", 3.0)
        pm.Potential("y", -0.1 * pt.sqr(x) * n)
    named = {v.name: v for v in model.value_vars}
    step = pk.AdaptiveMetropolisStep([named["log_sigma"], named["x"]], model=model, compile_kwargs=QUICK, arrival=False)
    step.setup_chain(np.random.default_rng(0), 0, 20)
    step.stop_tuning()
    point = {"log_sigma": np.array(-46.0), "x": np.array(1.0), "n": np.array(3)}
    point, _ = step.step(point)
    here = step.life.here._replace(position=np.array([-46.0, 0.7]))
    step.life_state = step.life_state._replace(here=here)
    point = step.density.update(point, step.position)
    step._evaluate = lambda proposal, here: here._replace(log_density=-np.inf)
    for n in range(5):
        before = step.log_density
        point, _ = step.step({**point, "n": np.array(n)})
        assert step.log_density != before  # of another count
        assert step.position.tolist() == [-46.0, 0.7]


def test_a_noisy_estimate_is_kept():
    """After tuning an estimate is made where a move is proposed and nowhere else, also at the chain's first draw."""
    calls = []

    def estimate(rng, x):
        calls.append(x)
        return float(rng.normal(-0.5 * np.sum(np.square(x)), 0.5))

    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        x = pm.Normal("x", 1.0, sd, shape=2)
        pm.Potential("y", pk.NoisyLogLikelihood(estimate)(x))
    step = pk.AdaptiveMetropolisStep(model=model, compile_kwargs=QUICK)
    assert step.density.reparametrized
    untouched = step.sampling_state
    calls.clear()
    _, rows = tester.run(step, 50, tune=150, seed=1)
    assert step.life.state.centring.settled
    assert len(calls) == step.evaluations <= len(rows) + 1
    starts = np.random.default_rng(0).standard_normal((10, 3))
    step.sampling_state = untouched
    step.stop_tuning()
    step._evaluate = lambda proposal, here: here._replace(log_density=-np.inf)
    for row in starts:
        calls.clear()
        drive(step, {"sd_log__": row[0], "x": row[1:]}, 3)
        assert len(calls) == 1


def test_plots_say_which_coordinates_they_would_need(run):
    _, step, *_ = run
    with pytest.raises(ValueError, match="parametrization='model'"):
        pk.plots.proposals(step)
    places = layout_of(step, 5, None)
    assert {name: p.ravel().tolist() for name, p in places.items()} == {
        "mu": [0], "tau_log__": [1], "theta": [2, 3, 4],
    }  # fmt: skip


def test_series_and_loops_of_scalars_are_not_compiled_for_minutes():
    """A walk is cut at every fourth level; very many variables are left as they are."""
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        x = [pm.Normal("x0", 0.0, sd)]
        for t in range(1, 6):
            x.append(pm.Normal(f"x{t}", x[-1], 1.0))
    movable = density(model).movable
    assert movable.tolist() == [False, True, True, True, False, True, True]
    with model:
        for i in range(20):
            pm.Normal(f"y{i}", x[0], 1.0)
    assert density(model) is None
