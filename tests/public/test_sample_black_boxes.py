"""``pk.sample`` on models with black boxes that are learned one by one: the same protocol, with what they returned."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon import checkpoint
from pymc_kameleon.samplers.pooled import production
from pymc_kameleon.samplers.pooled.checks import audits
from pymc_kameleon.samplers.pooled.plan import LOOKING
from pymc_kameleon.sampling import arguments, workers
from pymc_kameleon.steps.known_points import known_points
from tests import step_tester as tester
from tests.public.test_sample import evaluated_here, fork, sample
from tests.support.hierarchies import BlackBox, schools

pytestmark = pytest.mark.whole

GROUPS = 2


@pytest.fixture(scope="module")
def made():
    return schools(GROUPS)


@pytest.fixture(scope="module")
def model(made):
    return made[0]


@pytest.fixture(scope="module")
def step(model):
    return pk.KamiltonianStep(model=model)


def run(model, step, **options):
    return sample(model, step, **{"max_evaluations": 120, "chains": 4, **options})


@pytest.fixture(scope="module")
def idata(model, step):
    return run(model, step, discard_tuned_samples=False)


def bits(idata):
    return {name: idata["posterior"][name].values.tobytes() for name in ("mu", "tau", "theta")}


def test_it_learns_black_boxes_one_by_one_and_says_so(step, idata):
    assert step.by_factors
    attributes, stats = idata["posterior"].attrs, idata["sample_stats"]
    assert attributes["surrogate"] == "factors"
    assert attributes["factors"] == GROUPS
    assert attributes["evaluations"] <= 120
    assert (stats["factors"].values == GROUPS).all()
    assert np.char.startswith(stats["move"].values.astype(str), "surrogate").mean() > 0.8
    assert stats["accept"].values.mean() > 0.8  # each of them is a quadratic in one unknown
    text = pk.report(idata)
    assert f"of {GROUPS} parts of black boxes, one by one" in text
    assert "No climb has ended that could tell of other modes: the evaluations did not last" in text
    assert text.startswith("Not usable: the chains disagree")  # else it would be of the mode that they are in


def test_every_second_chain_begins_at_a_draw_of_the_prior(model, step):
    """Around one point all of them would be in one of two mirrored modes, and few evaluations have no look."""
    initial, starts, _, far, _ = arguments.starts_of(model, step, "jitter", 8, 1)
    assert all(any(np.array_equal(x, y) for y in far) for x in starts[::2])
    around = arguments.starts_of(model, step, {}, 8, 1)[1]  # where the user says
    assert (np.abs(np.concatenate([around, starts[1::2]]) - initial) <= 1.0).all()


def test_no_chain_begins_at_a_draw_that_overflows(model, step, monkeypatch):
    enter, calls = step.density.enter, []

    def overflows(x):
        calls.append(x)
        return enter(x) if len(calls) % 2 else np.full(len(x), np.inf)  # the first is the initial point

    monkeypatch.setattr(step.density, "enter", overflows)
    starts = arguments.starts_of(model, step, "jitter", 8, 1)[1]
    assert np.isfinite(starts).all()
    assert len(calls) > 4


def mirrored(box=lambda a: a**2 + np.zeros(2)):
    """An eighth of the mass is at -3; chains from draws of the prior come to +3 with the others, most of them."""
    with pm.Model() as model:
        pm.Normal("y", BlackBox(box, pt.dvector)(pm.Normal("a", 2.0, 2.0)), 0.5, observed=[9.0, 9.5])
    return model


@pytest.fixture
def around(monkeypatch):
    """All chains begin around the initial point."""
    original = arguments.starts_of

    def starts_of(model, step, initvals, *others):
        return *original(model, step, {}, *others)[:3], *original(model, step, initvals, *others)[3:]

    monkeypatch.setattr(arguments, "starts_of", starts_of)


def looked(model, **options):
    return sample(model, pk.KamiltonianStep(model=model), **{"max_evaluations": 1200, "chains": 4, **options})


@pytest.mark.usefixtures("around")
def test_a_mode_without_chains_is_looked_for():
    """Without a look this run is usable and an eighth of the mass nowhere: R-hat compares what all chains have."""
    idata = looked(mirrored())
    assert (idata["posterior"]["a"].values > 0.0).all()
    assert "a climb ended where no draws are, at a = -" in pk.report(idata).splitlines()[0]
    assert (idata["evaluations"]["_move"].values == "look").sum() <= LOOKING * 1200


@pytest.mark.usefixtures("around")
def test_looks_begin_where_there_is_a_density(monkeypatch):
    """A drift-diffusion likelihood is 0 where its delay is longer than a response: at the first chain's start, say."""
    original = arguments.starts_of

    def starts_of(*args):
        initial, starts, *others = original(*args)
        starts[0] = 9.0
        return initial, starts, *others

    monkeypatch.setattr(arguments, "starts_of", starts_of)
    idata = looked(mirrored(lambda a: (a**2 if a < 8.0 else np.nan) + np.zeros(2)))
    assert idata["evaluations"]["_log_density"].values[0] == -np.inf
    assert "a climb ended where no draws are" in pk.report(idata).splitlines()[0]


@pytest.mark.parametrize(
    ("options", "said", "usable"),
    [
        ({"initvals": {"a": 2.0}}, "none begins without draws of the prior, or from initvals=", True),
        ({"initvals": [{"a": 2.0}] * 4}, "none begins without draws of the prior, or from initvals=", True),
        ({"max_evaluations": 200, "draws": 10}, "the evaluations did not last", False),
    ],
)
def test_where_nothing_looks_the_verdict_is_of_one_mode(options, said, usable):
    idata = looked(mirrored(), **options)
    assert "look" not in idata["evaluations"]["_move"].values
    text = pk.report(idata)
    assert said in text
    assert text.startswith("Usable") == usable
    assert ("of the mode that these chains are in" in text) == usable


@pytest.mark.usefixtures("around")
def test_a_box_that_raises_in_a_look_ends_no_run():
    def box(a):
        if a < 0.0:
            raise ZeroDivisionError
        return a**2 + np.zeros(2)

    idata = looked(mirrored(box))
    looks = idata["evaluations"].isel(evaluation=idata["evaluations"]["_move"].values == "look")
    raised = looks["a"].values < 0.0
    assert raised.any()
    assert np.isneginf(looks["_log_density"].values[raised]).all()
    assert np.isnan(looks["_outputs"].values[raised]).all()
    assert np.isfinite(looks["_log_density"].values[~raised]).all()
    assert idata["posterior"].attrs["failed"] == 0  # of what matters


@pytest.mark.usefixtures("around")
def test_looks_beside_black_boxes_change_no_draw(monkeypatch):
    idata = looked(mirrored())
    monkeypatch.setattr(production, "_looks", lambda chains, _members: chains.looks)
    without = looked(mirrored())
    assert "look" not in without["evaluations"]["_move"].values
    draws, longer = (found["posterior"]["a"].values for found in (idata, without))
    n = draws.shape[1]
    assert n < longer.shape[1]  # they cost draws
    assert draws.tobytes() == np.ascontiguousarray(longer[:, :n]).tobytes()


@pytest.mark.usefixtures("around")
def test_a_run_whose_looks_raised_is_resumed_with_the_same_bits(tmp_path):
    def box(a):
        if a < 0.0:
            raise ZeroDivisionError
        return a**2 + np.zeros(2)

    bits = []
    for cut in (None, 0.9, 0.5):
        if cut is not None:
            (found,) = (p for p in (tmp_path / "run").iterdir() if p.suffix != ".json")
            found.write_bytes(found.read_bytes()[: int(cut * found.stat().st_size)])
        idata = looked(mirrored(box), checkpoint=tmp_path / "run", random_seed=1)
        looks = idata["evaluations"]["_move"].values == "look"
        assert np.isneginf(idata["evaluations"]["_log_density"].values[looks]).any()
        bits.append(idata["posterior"]["a"].values.tobytes())
    assert bits[0] == bits[1] == bits[2]


@pytest.mark.usefixtures("around")
def test_a_box_that_raises_at_a_draw_ends_the_run():
    calls: list = []

    def box(a):
        calls.append(a)
        if len(calls) > 800:  # of 1,200
            raise ZeroDivisionError
        return a**2 + np.zeros(2)

    with pytest.raises(ZeroDivisionError):
        looked(mirrored(box))


def test_without_a_prior_to_draw_from_all_begin_around_one_point():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Normal("y", BlackBox(lambda x: np.exp(x[:1] - x[1]), pt.dvector)(x), 0.5, observed=[1.0])
    step = pk.KamiltonianStep(model=model)
    assert step.by_factors
    initial, starts, _, draws, _ = arguments.starts_of(model, step, "jitter", 8, 1)
    assert len(draws) == 0
    assert (np.abs(starts - initial) <= 1.0).all()


@pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")  # PyMC 6's default
def test_every_evaluation_is_there_with_what_came_back(model, step, idata):
    """In the model's own coordinates, with its own log density."""
    evaluated, density = idata["evaluations"], step.density
    assert evaluated["_outputs"].shape == (idata["posterior"].attrs["evaluations"], GROUPS)
    logp = model.compile_logp()
    for row in (0, 60, -1):
        point = {name: evaluated[name].values[row] for name in ("mu", "tau_log__", "theta")}
        assert float(logp(point)) == pytest.approx(float(evaluated["_log_density"].values[row]))
        returned = norm.logpdf(point["theta"], np.arange(GROUPS)) + 0.5 * np.log(2.0 * np.pi)
        np.testing.assert_allclose(evaluated["_outputs"].values[row], returned, atol=1e-12)
    x = density.ravel({name: idata["posterior"][name].values[0, -1] for name in ("mu", "theta")} | {
        "tau_log__": np.log(idata["posterior"]["tau"].values[0, -1])
    })  # fmt: skip
    point = density.update({}, density.enter(x))
    assert float(logp(point)) == pytest.approx(float(idata["sample_stats"]["lp"].values[0, -1]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_who_evaluates_does_not_matter(model, step, idata):
    with fork() as executor:
        found = run(model, step, executor=executor)
    assert bits(found) == bits(idata)


def test_a_worker_gets_no_more_than_it_needs(model, step, monkeypatch):
    """Neither the model nor what is known of it with its gradients, which take long to compile anew."""
    sent = []
    monkeypatch.setattr(workers.cloudpickle, "dumps", lambda what: sent.append(what) or b"")
    with ThreadPoolExecutor(1) as executor:
        arguments.evaluator(executor, model, step, 0, None)
    assert vars(sent[0]).keys() == {"function", "order", "outputs", "tried"}


def cut(model, step, folder, rounds):
    """A run that dies after so many rounds."""
    with evaluated_here(rounds) as evaluated, pytest.raises(OSError, match="goes down"):
        run(model, step, checkpoint=folder)
    return sum(evaluated)


@pytest.mark.parametrize("rounds", [4, 20])  # while they climb, while they draw
def test_a_run_with_a_checkpoint_goes_on(model, step, idata, tmp_path, rounds):
    before = cut(model, step, tmp_path, rounds)
    kept = checkpoint.load(tmp_path)
    assert kept.size == before
    assert kept.outputs.shape == (before, GROUPS)
    found = run(model, step, checkpoint=tmp_path)
    assert bits(found) == bits(idata)
    for name in ("_outputs", "_log_density", "mu"):
        assert found["evaluations"][name].values.tobytes() == idata["evaluations"][name].values.tobytes()


# --- warm starts ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(model):
    return pk.KamiltonianStep(model=model, learn="all")


@pytest.fixture(scope="module")
def died(model, step, tmp_path_factory):
    """What is known of a run that died early."""
    folder = tmp_path_factory.mktemp("died")
    cut(model, step, folder, 8)
    return checkpoint.load(folder)


def moves(found):
    return found["evaluations"]["_move"].values.astype(str)


def test_what_was_returned_is_learned_from_at_once(model, step, idata, died):
    warm = run(model, step, evaluations=idata, random_seed=3)
    assert not (moves(warm) == "climb").any()
    assert np.char.startswith(moves(warm)[5:20], "surrogate").any()
    assert warm["posterior"].attrs["evaluations_tuning"] < idata["posterior"].attrs["evaluations_tuning"]
    assert warm["sample_stats"]["accept"].values.mean() > 0.8
    assert not (moves(run(model, step, evaluations=died, random_seed=3)) == "climb").any()


def without_outputs(idata):
    return idata["evaluations"].to_dataset() if hasattr(idata["evaluations"], "to_dataset") else idata["evaluations"]


def test_log_densities_alone_say_where_to_begin(model, step, idata, caplog):
    alone = without_outputs(idata).drop_vars("_outputs")
    with caplog.at_level("INFO", "pymc.kameleon"):
        found = run(model, step, evaluations=alone, random_seed=3)
    assert "learn the black boxes anew" in caplog.text
    assert (moves(found) == "climb").any()
    start = found["evaluations"]["_log_density"].values[moves(found) == "start"]
    draws = idata["sample_stats"]["lp"].values
    assert (start > draws.min() - 5.0).all()  # and not where it began the first time


def test_of_other_black_boxes_it_is_refused(model, step, idata):
    other = without_outputs(idata).copy(deep=True)
    other["_outputs"] = 2.0 * other["_outputs"]
    with pytest.raises(ValueError, match="given does not give their log densities in this model, which is off"):
        run(model, step, evaluations=other)
    with pytest.raises(ValueError, match=f"is of length 1, and what this model's return of length {GROUPS}"):
        run(model, step, evaluations=other.isel(output=[0]))


def test_the_whole_is_learned_from_log_densities_but_of_a_checkpoint_of_black_boxes(model, whole, idata, died):
    with pytest.raises(ValueError, match="in coordinates of their own"):
        known_points(died, model, whole.density)
    known = known_points(idata, model, whole.density)
    assert known.outputs.shape[1] == 0
    assert known.log_densities[-1] == pytest.approx(whole.density(known.positions[-1]))


def test_pm_sample_begins_with_it_too(model, idata):
    step = pk.KamiltonianStep(model=model, evaluations=idata)
    assert step.by_factors
    step.setup_chain(np.random.default_rng(1), 40, 10)
    point, found = model.initial_point(), []
    for n in range(50):
        if n == 40:
            step.stop_tuning()
        point, [stats] = step.step(point)
        found.append(stats["move"])
    assert found[:5] == ["arrival"] * 5  # points that are evaluated again
    assert "climb" not in found
    assert any(move.startswith("surrogate") for move in found[5:12])


# --- executors that take many ---------------------------------------------------------------------


def test_vectorized_gives_what_each_returns():
    def likelihood(theta, y):
        return -0.5 * np.square(theta - y)

    box = pk.BatchedBlackBox(likelihood, "(),()->()")
    with pm.Model():
        mu, tau = pm.Normal("mu", 1.0, 2.0), pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", mu, tau, shape=2)
        for j in range(2):
            pm.Potential(f"y{j}", box(theta[j], float(j)))
        step = pk.KamiltonianStep()
        assert step.by_factors
        options = {"max_evaluations": 40, "chains": 4, "random_seed": 1, "progressbar": False}
        together = pk.sample(step=step, executor="vectorized", **options)
        alone = pk.sample(step=step, **options)
    for name in ("_outputs", "_log_density"):
        np.testing.assert_allclose(*(f["evaluations"][name].values[:8] for f in (together, alone)), rtol=1e-6)


def true_mean_of_mu():
    """Given tau all is normal; tau by a grid."""
    y, tau = np.arange(GROUPS), np.linspace(1e-3, 6.0, 3000)[:, None]
    variance = 4.0 * GROUPS + tau**2 + 1.0  # along the mean of the groups; across it, tau^2 + 1
    apart, along = np.square(y - y.mean()).sum(), GROUPS * (y.mean() - 1.0)
    log_weight = -0.5 * (tau**2 + np.log(variance) + (GROUPS - 1) * np.log(tau**2 + 1.0))
    log_weight = log_weight - 0.5 * (apart / (tau**2 + 1.0) + along**2 / (GROUPS * variance))
    weight = np.exp(log_weight - log_weight.max())
    return float(np.sum(weight * (1.0 + 4.0 * along / variance)) / weight.sum())


def test_control_variates(model, step, monkeypatch):
    """As of the log density learned whole; the surrogate is exact here, and what it says of mu is known."""
    monkeypatch.setattr(audits, "DRAWS", 300)  # enough for an error of half of the draws'
    found = run(model, step, tune=30, draws=90, max_evaluations=None, control_variates=True)
    row = pk.expectations(found).loc["mu"]
    assert row["controlled"]
    assert row["mcse_mean"] < 0.7 * row["mcse_mean_draws"]
    assert abs(row["mean"] - true_mean_of_mu()) < 4.5 * row["mcse_mean"]


@wrap_py(itypes=[pt.dscalar, pt.dscalar], otypes=[pt.dvector])
def line_of(height, slope):
    return height + slope * np.arange(3.0)


def test_an_initial_point_that_is_no_number_hides_no_input():
    """The mean of pm.Uniform(50, 100) is one of small integers, and overflows: PyMC's initial point is NaN."""
    with pm.Model() as model:
        height, slope = pm.Uniform("height", 50, 100), pm.Uniform("slope", 0, 1)
        pm.Normal("y", line_of(height, slope), 0.5, observed=[70.0, 70.5, 71.1])
    assert math.isnan(model.initial_point()["height_interval__"])
    step = pk.KamiltonianStep(model=model)
    assert step.sampler.known.layout.inputs.tolist() == [0, 2]
    with model:
        alone = tester.sample(step, model, draws=200, tune=300, chains=1, random_seed=1)
        together = pk.sample(max_evaluations=600, random_seed=1, progressbar=False)
    for found in (alone, together):
        assert float(found["posterior"]["height"].mean()) == pytest.approx(70.1, abs=0.5)
    assert not np.isnan(alone["sample_stats"]["other_mode"]).all()  # climbs from elsewhere have ended


def test_a_box_of_a_part_of_a_vector():
    """Compiled, a slice is no contiguous array; pk.sample ended with Numba's TypeError."""
    black_box = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(lambda x: np.cumsum(x))
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        pm.Normal("y", black_box(pt.cumsum(x)[1:4]), 0.5, observed=np.ones(3))
        found = sample(model, pk.KamiltonianStep(), max_evaluations=300, chains=4)
    assert np.isfinite(found["posterior"]["x"].values).all()
