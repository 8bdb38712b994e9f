"""What a model says of tails that its chains have not been in: ``pk.report(idata, model)``."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.distributions.transforms import Interval

import pymc_kameleon as pk
from pymc_kameleon.verdict import endless


def drawn(model, **draws):
    """A run whose draws are given, and of the model's other unknowns standard normals (chains 4, draws 200)."""
    rng = np.random.default_rng(0)
    found = {}
    for rv in model.free_RVs:
        shape = tuple(model.eval_rv_shapes()[rv.name])
        x = draws.get(rv.name, rng.standard_normal((4, 200, *shape)))
        found[rv.name] = ("chain", "draw", *(f"{rv.name}_{k}" for k in range(len(shape)))), x
    return xr.Dataset(found, coords={"chain": range(4), "draw": range(200)}).assign_coords(
        {f"{n}_{k}": range(x[1].shape[2 + k]) for n, x in found.items() for k in range(len(x[0]) - 2)}
    )


def separated(prior):
    """The first of two coefficients is of a covariate that separates the outcomes."""
    with pm.Model() as model:
        b = prior("b")
        eta = pm.math.stack([b[0] + b[1], b[0] - b[1], -b[1], b[1]])
        pm.Bernoulli("y", logit_p=eta, observed=[1, 1, 0, 1])
    return model


ALONG = np.random.default_rng(1).standard_normal((4, 200, 2)) * [5.0, 1.0] + [20.0, 0.0]
HEAVY = {
    "cauchy": (lambda n: pm.Cauchy(n, 0.0, 2.5, shape=2), 1.0), "t, 1": (lambda n: pm.StudentT(n, 1.0, shape=2), 1.0),
    "t, 2": (lambda n: pm.StudentT(n, 2.0, shape=2), 0.5), "flat": (lambda n: pm.Flat(n, shape=2), np.inf),
}  # fmt: skip
LIGHT = {
    "normal": lambda n: pm.Normal(n, 0.0, 100.0, shape=2), "t, 3": lambda n: pm.StudentT(n, 3.0, shape=2),
    "t, 7": lambda n: pm.StudentT(n, 7.0, shape=2),
}  # fmt: skip


@pytest.mark.parametrize("name", HEAVY)
def test_a_prior_without_an_sd_that_is_all_that_ends_the_posterior_is_found(name):
    """The draws' own tails are a normal's; along the other coefficient the data end the posterior."""
    prior, k = HEAVY[name]
    model = separated(prior)
    found = endless.tails(model, drawn(model, b=ALONG))
    assert [(n, t) for n, t, _ in found] == [("b[0]", "upper")]
    assert found[0][2] == pytest.approx(k, rel=0.05)


@pytest.mark.parametrize("name", LIGHT)
def test_a_prior_with_an_sd_is_not(name):
    model = separated(LIGHT[name])
    assert endless.tails(model, drawn(model, b=ALONG)) == []


def test_a_scale_that_the_data_end_is_not():
    with pm.Model() as model:
        s = pm.HalfCauchy("s", 5.0)
        x = pm.Normal("x", 0.0, s, shape=5)
        pm.Normal("y", x, 1.0, observed=np.arange(5.0))
    assert endless.tails(model, drawn(model, s=np.exp(np.random.default_rng(0).standard_normal((4, 200))))) == []


def test_a_tail_beyond_a_cliff_is_not():
    """A decay rate with a half-Cauchy prior: far out the data are missed by 40 nats, and by no more farther out."""
    t = np.linspace(0.0, 10.0, 12)
    y = 2.0 * np.exp(-1.3 * t) + 0.05 * np.random.default_rng(0).normal(size=12)
    with pm.Model() as model:
        amplitude, k = pm.HalfNormal("A", 5.0), pm.HalfCauchy("k", 1.0)
        pm.Normal("y", amplitude * pm.math.exp(-k * t), 0.05, observed=y)
    z = 0.05 * np.random.default_rng(1).standard_normal((4, 200))
    draws = drawn(model, A=2.0 + 0.5 * z, k=1.2 + np.abs(z))
    assert endless.tails(model, draws) == []


def test_what_the_user_has_put_an_end_to_is_not():
    with pm.Model() as model:
        pm.Flat("x", transform=Interval(0.0, 1.0))
        pm.Cauchy("b", 0.0, 1.0, initval=2.0)
        pm.InverseGamma("v", 0.001, 0.001, initval=3.0)
    unit, far = np.random.default_rng(0).random((4, 200)), np.exp(np.random.default_rng(1).standard_normal((4, 200)))
    found = endless.tails(model, drawn(model, x=unit, v=far))
    assert sorted(name for name, *_ in found) == ["b", "v"]  # a start of the user's is none of that
    assert all(np.isfinite(k) for *_, k in found)
    assert model.rvs_to_initial_values[model["b"]] is not None


def test_what_has_a_lowest_end_is_asked():
    with pm.Model() as model:
        pm.Pareto("s", 1.5, 1.0)
    ((name, side, k),) = endless.tails(model, drawn(model, s=1.0 + np.random.default_rng(0).pareto(1.5, (4, 200))))
    assert (name, side) == ("s", "upper")
    assert k == pytest.approx(1.0 / 1.5, rel=0.05)


def test_what_nothing_depends_on_is_improper():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=2.0)
        pm.HalfFlat("c")
    far = np.exp(np.random.default_rng(0).standard_normal((4, 200)))
    assert endless.tails(model, drawn(model, c=far)) == [("c", "upper", np.inf)]


def test_what_a_flat_prior_leaves_to_the_data_is_no_more_improper_than_they_are():
    """Three observations of a scale end it as s^-3: a mean, and no sd."""
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.HalfFlat("s"), observed=[1.0, -1.0, 0.5])
    far = np.exp(np.random.default_rng(0).standard_normal((4, 200)))
    ((name, side, k),) = endless.tails(model, drawn(model, s=far))
    assert (name, side) == ("s", "upper")
    assert k == pytest.approx(0.5, rel=0.05)


def test_a_model_that_cannot_be_asked_is_not():
    with pm.Model() as model:
        b = pm.Cauchy("b", 0.0, 1.0)
        pm.Potential("raises", pm.math.log(b))
    assert endless.tails(model, drawn(model)) == []  # nowhere of its lower tail is the potential a number
    assert endless.tails(model, drawn(model).drop_vars("b")) == []


@pytest.mark.whole
@pytest.mark.parametrize("step", [pytest.param(pk.KamiltonianStep, marks=pytest.mark.slow), pk.FastKameleonStep])
def test_a_run_of_it_is_not_usable_with_the_model(step):
    model = separated(HEAVY["cauchy"][0])
    with model:
        idata = pm.sample(300, tune=500, chains=2, cores=1, step=step(), progressbar=False, random_seed=1)
    text = pk.report(idata, model)
    assert text.startswith("Not usable: ")
    assert "b[0] has no mean, its prior's tail is all that ends it" in text
    assert "the log density hardly falls along b[0] (upper tail, Pareto k 1.00)" in text
    with separated(HEAVY["flat"][0]) as model:
        idata = pm.sample(300, tune=500, chains=2, cores=1, step=step(), progressbar=False, random_seed=1)
    assert "the posterior is improper, nothing bounds b[0]" in pk.report(idata, model)


@pytest.mark.whole
def test_a_ratio_is_not_the_priors_fault():
    """LD50 = -a / b where b may be 0: the unknowns are usable, and the ratio's median."""
    dose = np.array([-0.9, -0.3, -0.05, 0.7])
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 10.0), pm.Normal("b", 0.0, 10.0)
        pm.Binomial("y", 5, logit_p=a + b * dose, observed=[1, 2, 3, 3])
        pm.Deterministic("LD50", -a / b)
        idata = pm.sample(500, tune=300, chains=2, cores=1, step=pk.KamiltonianStep(), progressbar=False, random_seed=1)
        together = pk.sample(max_evaluations=1500, random_seed=1, progressbar=False)
    for text in (pk.report(idata, model), pk.report(together)):
        assert text.startswith("Usable: ")
        assert "but for LD50." in text.split("\n")[0]
        assert "its median and intervals are usable" in text
    assert pk.report(idata).startswith("Not usable: the tails of LD50 are heavy")  # nobody says that it is derived
