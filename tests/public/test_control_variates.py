"""``pk.expectations``: consistent whatever the surrogate, right errors, and a gate that refuses a bad one."""

import re
from functools import cache

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_kameleon as pk
from benchmarks.few_evaluations import plan
from benchmarks.targets import TARGETS, starts
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.checks import audits
from pymc_kameleon.samplers.pooled.plan import automatic
from pymc_kameleon.verdict import control_variates
from tests.support.pooled import finished

SHIFT, WIDTH = 0.1, 1.05  # of a surrogate N(SHIFT, WIDTH^2) of the posterior N(0, 1) ...
REACH = 2.5  # ... in a region |x| < REACH


def run_of(rng, shape=(8, 200), audited=120):
    """Independent draws of the posterior and of the surrogate: what a run would have."""
    x = rng.standard_normal(shape)
    free = SHIFT + WIDTH * rng.standard_normal((8, 1000))

    def log_ratio(x):
        f = -0.5 * ((x - SHIFT) / WIDTH) ** 2 - np.log(WIDTH)
        return np.where(np.abs(x) < REACH, f + 0.5 * x**2, -np.inf)

    inside = np.abs(free) < REACH
    return x, free, log_ratio(x), inside, log_ratio(free[inside][:audited])


def idata_of(x, free, ratio, inside, audited):
    dims = ["chain", "draw"]
    return {
        "posterior": xr.Dataset({"x": (dims, x)}),
        "surrogate_posterior": xr.Dataset({"x": (dims, free)}),
        "control_variates": xr.Dataset(
            {"log_ratio": (dims, ratio), "audit_log_ratio": ("audit", audited), "is_inside": (["a", "b"], inside)}
        ),
    }  # fmt: skip


def errors(function, n=150, **options):
    """z-scores of E[h] = 1 of h = x^2, of many runs, and how much smaller the standard error is."""
    z, gain = [], []
    for seed in range(n):
        x, free, ratio, inside, _ = run_of(np.random.default_rng([7, seed]), **options)
        found, error = function(x**2, np.exp(ratio), free**2, inside.astype(float))
        z.append((found - 1.0) / error)
        gain.append(error / control_variates._mcse(x**2))
    return np.array(z), float(np.mean(gain))


def test_unbiased_with_the_right_error():
    """Mean and size of the z-scores of 150 runs with a surrogate that is wrong everywhere."""
    z, gain = errors(control_variates.controlled)
    mean, size = z.mean() * np.sqrt(len(z)), (np.mean(z**2) - 1.0) * np.sqrt(len(z) / 2.0)
    assert abs(mean) < 4.5
    assert abs(size) < 4.5
    assert gain < 0.8


@pytest.mark.parametrize("wrong", ["no weights", "outside as well"])
def test_control_a_wrong_estimator_is_noticed(wrong):
    def without(h, weights, free, inside):
        if wrong == "no weights":
            return control_variates.controlled(h, (weights > 0.0).astype(float), free, inside)
        return control_variates.controlled(h, weights, free, np.ones_like(inside))

    z, _ = errors(without, 50)
    assert abs(z.mean() * np.sqrt(len(z))) > 10.0


def test_a_row_for_every_element_and_any_function_of_the_unknowns():
    made = idata_of(*run_of(np.random.default_rng(1)))
    table = pk.expectations(made)
    assert list(table.index) == ["x"]
    assert table.loc["x", "mean_draws"] == pytest.approx(float(made["posterior"]["x"].mean()))
    assert table.loc["x", "controlled"]
    assert abs(table.loc["x", "mean"]) < 4.5 * table.loc["x", "mcse_mean"]
    assert abs(table.loc["x", "sd"] - 1.0) < 4.5 * table.loc["x", "mcse_sd"]
    square = pk.expectations(made, lambda posterior: posterior["x"] ** 2)
    assert abs(square["mean"].iloc[0] - 1.0) < 4.5 * square["mcse_mean"].iloc[0]


def test_the_draws_stand_where_the_surrogate_does_not_help():
    """Of a quantity that few free draws know, such as a rare event beyond C."""
    made = idata_of(*run_of(np.random.default_rng(2)))
    table = pk.expectations(made, lambda posterior: (posterior["x"] > 2.6).astype(float))
    assert not table["controlled"].iloc[0]
    assert table["mean"].iloc[0] == table["mean_draws"].iloc[0]


def test_the_gate_refuses():
    x, free, ratio, inside, audited = run_of(np.random.default_rng(3))
    assert control_variates.gate(ratio, audited).is_open

    def refused(said, ratio=ratio, audited=audited):
        found = control_variates.gate(ratio, audited)
        assert not found.is_open
        assert said in found.why
        with pytest.raises(ValueError, match="no control variate for this run"):
            pk.expectations(idata_of(x, free, ratio, inside, audited))

    refused("99 draws of the surrogate", audited=audited[:99])
    refused("of the surrogate 98%", audited=np.append(audited, [3.0, -3.0]))
    refused("1 of the evaluations in the region", audited=np.append(np.inf, audited))
    missing = ratio.copy()
    missing[0, : ratio.size // 50] = 30.0  # a surrogate far too high where draws are
    refused("draws 98%", ratio=missing)
    with pytest.raises(ValueError, match="its own chains do not agree on x"):
        pk.expectations(idata_of(x, free + np.arange(8)[:, None], ratio, inside, audited))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_function_that_is_nan_at_draws_of_the_surrogate_is_refused():
    with pytest.raises(ValueError, match="is NaN or infinite at draws of the surrogate"):
        pk.expectations(idata_of(*run_of(np.random.default_rng(3))), lambda draws: np.log(draws["x"]))


def test_a_run_that_was_cut_or_made_without_is_refused():
    made = idata_of(*run_of(np.random.default_rng(5)))
    with pytest.raises(ValueError, match=r"give idata as pk\.sample returned it"):
        pk.expectations(made | {"posterior": made["posterior"].isel(draw=slice(50))})
    with pytest.raises(ValueError, match=r"give idata as pk\.sample returned it"):  # of every group, as ArviZ does
        pk.expectations({n: d.isel(draw=slice(0, None, 2), missing_dims="ignore") for n, d in made.items()})
    bare = {"posterior": made["posterior"].copy()}
    with pytest.raises(ValueError, match=r"no group control_variates: pk\.sample did not make this dict\."):
        pk.expectations(bare)
    bare["posterior"].attrs = {"evaluations": 100, "surrogate": "quadratic", "modes": 1}
    for found, why in (
        ({"surrogate": "none"}, "tuning ended before a surrogate was learned"), ({"modes": 2}, "2 modes were found"),
        ({}, "it was made without. Sample again with control_variates=True"),
    ):  # fmt: skip
        told = {"posterior": bare["posterior"].assign_attrs(found)}
        with pytest.raises(ValueError, match=rf"no group control_variates: {re.escape(why)}[^;]*$"):
            pk.expectations(told)


# --- in a run ---------------------------------------------------------------------------------------


@cache
def chains_of(name, total, seed, audited):
    how, points = plan(name, 8, total)._replace(audits=audited), starts(name, seed, 9)
    chains = pooled_chains.Chains(points[-1], points[:-1], np.random.SeedSequence(seed), how)
    return finished(chains, TARGETS[name].numba_log_density)


@pytest.fixture
def few(monkeypatch):
    """Few draws of the surrogate, which take seconds."""
    monkeypatch.setattr(audits, "DRAWS", 60)


def test_audits_change_no_draw(few):
    with_, without = (chains_of("bimodal", 500, 1, n) for n in (audits.AUDITS, 0))
    assert (with_.evaluated.move == "audit").sum() > 20
    assert not (without.evaluated.move == "audit").any()
    n = len(with_.rows)
    assert 10 < n < len(without.rows)
    assert (pooled_chains.posterior(with_) == pooled_chains.posterior(without)[:, :n]).all()
    assert with_.evaluated.size <= 500


def test_audits_are_free_draws_inside_the_region(few):
    chains = chains_of("bimodal", 500, 1, audits.AUDITS)
    audited = chains.evaluated.positions[chains.evaluated.move == "audit"]
    flat = chains.free.positions[chains.free.inside]
    assert all((flat == x).all(axis=1).any() for x in audited)
    f_less_y = chains.free.log_ratios(audited, np.zeros(len(audited)))
    assert np.isfinite(f_less_y).all()
    outside = chains.free.positions[~chains.free.inside]
    assert (chains.free.log_ratios(outside, np.zeros(len(outside))) == -np.inf).all()


@pytest.mark.parametrize(("cut", "seed", "is_open"), [(2.4, 4, False), (np.inf, 0, True)])
def test_a_posterior_that_ends_in_the_bulk_of_the_surrogate_is_refused(few, cut, seed, is_open):
    """Of a normal .8 % is cut off: in half of such runs no audit is there, and E exp(x0) would be off by 2 to 5 errors.

    The control: with nothing cut off, none is refused.
    """

    def log_density(x):
        return -0.5 * float(x @ x) if x[0] < cut else -np.inf

    points = 1.5 * np.random.default_rng([5, seed]).standard_normal((17, 3))
    points[:, 0] = np.minimum(points[:, 0], 2.0)
    planned = automatic(3, 16, most=1600)._replace(audits=audits.AUDITS)
    chains = pooled_chains.Chains(points[-1], points[:-1], np.random.SeedSequence(seed), planned)
    ratios = finished(chains, log_density).log_ratios()
    assert control_variates.gate(ratios["draws"], ratios["audits"]).is_open == is_open


@pytest.fixture(scope="module")
def sampled():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 5.0)
        s = pm.HalfNormal("s", 2.0)
        pm.Deterministic("twice", 2.0 * a)
        pm.Normal("y", a, s, observed=1.0 + 0.7 * rng.standard_normal(30))
        options = {"tune": 20, "max_evaluations": 900, "chains": 8, "random_seed": 3, "progressbar": False}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audits, "DRAWS", 300)
            idata = pk.sample(control_variates=True, **options)
    return model, idata


def test_pk_sample_returns_what_is_needed(sampled):
    _, idata = sampled
    table = pk.expectations(idata)
    assert list(table.index) == ["a", "s"]
    assert table["controlled"].all()
    assert (table["mcse_mean"] < 0.7 * table["mcse_mean_draws"]).all()
    assert (abs(table["mean"] - table["mean_draws"]) < 4.5 * table["mcse_mean_draws"]).all()
    assert "twice" not in idata["surrogate_posterior"]
    assert "expectations" in pk.report(idata)


def test_what_it_cannot_be_had_with_is_refused():
    def estimate(rng, a):
        return -0.5 * float(a) ** 2 + rng.standard_normal()

    with pm.Model() as noisy:
        pm.Potential("p", pk.NoisyLogLikelihood(estimate)(pm.Normal("a")))
    with pytest.raises(ValueError, match="this model's are noisy estimates"):
        pk.sample(model=noisy, control_variates=True, progressbar=False)
