"""The textbook benchmark: its chains are pm.sample's, its counts and flags mean what they say, its references fit."""

import copy

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from benchmarks import drive
from benchmarks.basics import Counted
from benchmarks.cells import Cell
from benchmarks.textbook import MODELS, board
from benchmarks.textbook.posterior import Posterior, Reference, reference

EVALUATIONS, TUNE = 200, 66


@pytest.fixture(scope="module")
def trend():
    return Posterior("trend")


class Recorder(pk.AdaptiveMetropolisStep):
    """Keeps the generator that pm.sample hands to the chain."""

    def set_rng(self, rng):
        self.given = copy.deepcopy(rng)
        super().set_rng(rng)


@pytest.mark.slow
def test_the_driver_makes_the_draws_of_pm_sample(trend):
    x = trend.starts(0, 1)[0]
    with trend.model:
        step = Recorder(compile_kwargs={"mode": "FAST_COMPILE"})
        names = {v.name: rv for rv, v in trend.model.rvs_to_values.items()}
        point = trend.to_point(x)
        starts = {
            rv.name: np.exp(point[n]) if n.endswith("log__") else point[n] for n, rv in names.items() if n in point
        }
        trace = pm.sample(
            EVALUATIONS - TUNE, tune=TUNE, chains=1, cores=1, step=step, initvals=starts, random_seed=2,
            progressbar=False, compute_convergence_checks=False, quiet=True,
        )  # fmt: skip
    # the step's own compiled function: two linkers round differently, and what an arrival learns amplifies it
    counted = Counted(step.density._evaluate, EVALUATIONS + 1)
    made = drive.compiled(trend, "AdaptiveMetropolisStep")
    parts = drive.own_step(trend, made, x, step.given, counted, EVALUATIONS, TUNE)
    chain = drive.walk(*parts, counted, TUNE)
    chain = chain._replace(draws=chain.draws[: EVALUATIONS - TUNE])
    intercept, slope, sigma = (trace.posterior[name].values[0] for name in ("intercept", "slope", "sigma"))
    expected = np.column_stack([intercept, slope, np.log(sigma)])
    assert chain.evaluations == EVALUATIONS + 1
    assert len(np.unique(expected[:, 0])) >= 3  # it moved
    np.testing.assert_allclose(chain.draws, expected, rtol=1e-8)


THEIRS = [pytest.param(step, marks=pytest.mark.slow) for step in ("pm.DEMetropolisZ", "pm.Slice")]


@pytest.mark.parametrize("step", ["AdaptiveMetropolisStep:target_accept=0.3", *THEIRS])
def test_every_evaluation_is_counted_and_a_third_is_tuning(trend, step):
    chains = drive.chains(trend, step, 3, evaluations=EVALUATIONS, tune=TUNE, level=-np.inf, n_chains=2)
    other, _ = drive.chains(trend, step, 4, evaluations=EVALUATIONS, tune=TUNE, level=np.inf, n_chains=2)
    for chain in chains:
        assert chain.evaluations == EVALUATIONS + 1
        assert chain.arrived == 1
        assert np.isfinite(chain.draws).all()
    assert other.arrived is None
    assert len(chains[0].draws) == EVALUATIONS - TUNE or step.startswith("pm.")
    assert not np.array_equal(chains[0].draws[-1], chains[1].draws[-1])
    assert not np.array_equal(chains[0].draws[-1], other.draws[-1])


def judged(shift):
    """Draws of a standard normal, and what they are shifted by, against the normal."""
    one, draws = np.ones(2), shift + np.random.default_rng(1).standard_normal((4, 1000, 2))
    truth = Reference(0.0 * one, one, -1.64 * one, 1.64 * one, 4e4 * one, 1.0, -4.0)
    return board.judged([drive.Chain(d, 1500, 10, 0.0, 0.0, 1.0) for d in draws], truth)


def test_a_flag_where_chains_agree_on_a_wrong_mean():
    right, wrong, apart = map(judged, (0.0, np.array([0.0, 0.2]), np.arange(4.0)[:, None, None]))
    assert not right["silently_wrong"]
    assert right["mean_z"] < 4.5
    assert right["log_sd"] < 0.1
    assert 500 < right["ess"] < 1000  # of 1000 draws in 1500 evaluations
    assert wrong["silently_wrong"]
    assert not apart["silently_wrong"]  # R-hat says it
    assert apart["rhat"] > 1.2


@pytest.mark.parametrize("name", MODELS)
def test_reference_is_of_the_present_model(name):
    stored = reference(name)  # refuses another model's
    assert stored.rhat < 1.01
    assert stored.ess.min() > 1000
    assert (stored.q05 < stored.mean).all()
    assert (stored.mean < stored.q95).all()


def test_a_step_is_named_with_its_options():
    assert drive.parse("KameleonStep:n_history=20,coordinates=raw") == (
        "KameleonStep", {"n_history": 20, "coordinates": "raw"},
    )  # fmt: skip
    with pytest.raises(ValueError, match="no step 'Kamilton'"):
        drive.step_class("Kamilton")


def test_table_has_a_row_a_model_and_marks_what_is_silently_wrong():
    found = {
        "ess": 123.4, "rhat": 1.002, "mean_z": 7.0, "mean_sd": 0.2, "log_sd": 0.1, "arrived": [12, None],
        "below": [-1.0, 5.5], "silently_wrong": True, "evaluations": 40_004, "seconds": 2.0,
    }  # fmt: skip
    text = board.page({Cell("pm.Slice", "trend", 10_000, 0): found})
    assert "| trend (3) | 123 **!** |" in text
    assert "12, no (5.5)" in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link to a BLAS installation")  # what the linkers say of the machine
@pytest.mark.filterwarnings("ignore:Cannot cache compiled function")
@pytest.mark.parametrize("name", MODELS)
def test_model_compiles_and_its_reference_beats_its_starts(name):
    posterior, known = Posterior(name), reference(name)
    starts = posterior.starts(0, 8)
    values = np.array([posterior.log_density(x) for x in starts])
    assert len(known.mean) == posterior.dim
    assert np.isfinite(values).all()
    assert posterior.log_density(known.mean) > np.median(values)
    assert values.max() < known.level + posterior.dim / 2 + 8.0  # no start is above what long runs saw
