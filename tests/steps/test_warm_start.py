"""``KamiltonianStep(evaluations=)``: what is known is learned from at once, what is of another posterior is refused."""

import pickle
import re

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers import known_points
from pymc_kameleon.surrogates.values.library import FAMILIES
from tests import step_tester as tester

TUNE, DRAWS = 60, 40
DATA = 1.0 + 0.7 * np.random.default_rng(1).standard_normal(30)


def make_model(data=DATA):
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 5.0)
        s = pm.HalfNormal("s", 2.0)
        pm.Normal("y", a, s, observed=data)
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def table(model):
    """Points around the posterior, far wider than it is, in (a, log s), and their log densities."""
    rng = np.random.default_rng(0)
    points = [1.0, np.log(0.7)] + 0.5 * rng.standard_normal((400, 2))
    logp = model.compile_logp()
    values = [float(logp({"a": a, "s_log__": np.array(s)})) for a, s in points]
    return points, np.array(values)


@pytest.fixture(scope="module")
def warm(model, table):
    """A step that knows the table; it begins anew for every test."""
    return pk.KamiltonianStep(model=model, evaluations=table)


def drive(step, tune, draws=0):
    """Points (n, 2) and statistics from the model's initial point."""
    points, stats = tester.drive(step, step.model.initial_point(), draws, tune)
    return np.column_stack([tester.values(points, name) for name in ("a", "s_log__")]), stats


def begin(model, seed=1, **options):
    return tester.begin(pk.KamiltonianStep(model=model, **options), seed)


def test_there_is_a_surrogate_as_soon_as_the_points_are_checked(warm, table):
    points, stats = drive(tester.begin(warm, 1), TUNE, DRAWS)
    moves = [s["move"] for s in stats]
    assert moves[:5] == ["arrival"] * 5
    assert "arrival" not in moves[5:]
    assert (points[:5, None] == table[0]).all(axis=2).any(axis=1).all()  # they are known ones
    assert [int(s["refits"]) for s in stats[5:7]] == [0, 1]
    last = stats[-1]
    assert last["residual_sd"] < 0.5
    assert last["uncovered"] == 0.0
    own = [s["accept"] for s in stats[TUNE:] if s["move"].startswith("surrogate")]
    assert len(own) > 0.7 * DRAWS  # .85 of them, as long as nothing has judged the surrogate
    assert np.mean(own) > 0.8


def test_a_known_point_far_away_does_not_excuse_another_posterior():
    """A climb's first points may have -1e80: what rounding explains is judged where it is compared."""
    x = np.random.default_rng(0).standard_normal((20, 2))
    logp = -0.5 * np.square(x).sum(axis=1)
    known = evaluations.table(np.vstack([x, [[1e40, 0.0]]]), np.append(logp, -1e80))
    rows = range(5)
    same = known_points.shifted(known, rows, logp[:5] + 7.0)
    np.testing.assert_allclose(same.log_densities[:20], logp + 7.0)
    with pytest.raises(ValueError, match="no constant; the worst is"):
        known_points.shifted(known, rows, 3.0 * logp[:5])


def test_control_without_them_there_is_none_in_so_few_draws(model):
    _, stats = drive(begin(model), TUNE, DRAWS)
    assert stats[-1]["refits"] == 0
    assert FAMILIES[stats[-1]["surrogate"]] == "none"


def test_a_constant_is_found_and_anything_else_refused_with_the_numbers(model, table):
    points, values = table
    chains = [drive(begin(model, evaluations=(points, values + c)), 30)[0] for c in (0.0, 1024.0)]
    np.testing.assert_array_equal(chains[0][:5], chains[1][:5])  # the same points are checked
    assert np.abs(chains[1][10:].mean(axis=0) - chains[0][10:].mean(axis=0)).max() < 0.5
    wrong = begin(model, evaluations=(points, 1.1 * values))
    with pytest.raises(ValueError, match=r"of their points it differs from them by \[.*worst is") as e:
        drive(wrong, 30)
    assert len(re.findall(r"-?\d+\.\d+", str(e.value).partition("by [")[2].partition("]")[0])) == 5
    of_other_data = begin(make_model(DATA[:20]), evaluations=table)
    with pytest.raises(ValueError, match="no constant"):
        drive(of_other_data, 30)


@pytest.mark.whole
def test_points_in_the_models_own_space_and_an_earlier_run(model, table):
    points, values = table
    own = {"a": points[:, 0], "s": np.exp(points[:, 1])}, values - points[:, 1]  # less a Jacobian
    first, again = (drive(begin(model, evaluations=e), 5)[0] for e in (table, own))
    np.testing.assert_allclose(again, first, rtol=1e-12)
    run = pk.sample(model=model, chains=4, max_evaluations=200, random_seed=1, progressbar=False)
    for given in (run, run["evaluations"]):
        _, stats = drive(begin(model, evaluations=given), 10)
        assert stats[-1]["refits"] == 1


@pytest.mark.parametrize("tune", [1, 3])
def test_tuning_may_end_before_five_points_are_checked(warm, tune):
    """It ended in an IndexError."""
    points, _ = drive(tester.begin(warm, 1), tune, 20)
    assert np.isfinite(points).all()
    assert len(np.unique(points[tune:, 0])) > 1


def test_a_chain_goes_on_bit_for_bit_in_another_step(warm, model, table):
    """While its points are checked; at other moments it is test_saved_state's."""
    step, other = tester.begin(warm, 1), begin(model, 2, evaluations=table)
    points, _ = tester.drive(step, model.initial_point(), 2)
    other.sampling_state = pickle.loads(pickle.dumps(step.sampling_state))
    tester.assert_same_draws(*(tester.drive(s, points[-1], 30) for s in (step, other)))


def test_chains_do_not_learn_from_each_other(model, table):
    """The record that is handed in stays as it is."""
    known = evaluations.table(*table)
    step = begin(model, evaluations=known)
    first, _ = drive(step, 30)
    np.testing.assert_array_equal(drive(tester.begin(step, 1), 30)[0], first)
    assert known.positions.tobytes() == np.asarray(table[0]).tobytes()
    assert known.log_densities.tobytes() == table[1].tobytes()


def test_what_cannot_be_used_is_refused(model, table):
    with pytest.raises(ValueError, match="surrogate='lite' learns from positions"):
        pk.KamiltonianStep(model=model, surrogate="lite", evaluations=table)
    with pytest.raises(ValueError, match="3 coordinates, and the model has 2"):
        pk.KamiltonianStep(model=model, evaluations=(np.zeros((9, 3)), np.zeros(9)))
    with pytest.raises(ValueError, match="none of the 9 evaluations given has a finite"):
        pk.KamiltonianStep(model=model, evaluations=(np.zeros((9, 2)), np.full(9, -np.inf)))
    with pytest.raises(ValueError, match="one step for all variables; a is not all"):
        pk.KamiltonianStep([model["a"]], model=model, evaluations=table)
    step = pk.KamiltonianStep(model=model, evaluations=table)
    with pytest.raises(ValueError, match=r"Give evaluations= to pk\.sample"):
        pk.sample(model=model, step=step, max_evaluations=200)
    step.stop_tuning()
    said = tester.warnings_in(drive(step, 0, 3)[1])
    assert any("evaluations= was given and is not used" in w.message for w in said)


def test_under_noise_values_are_not_compared():
    rng, points = np.random.default_rng(0), np.random.default_rng(1).standard_normal((300, 1))

    model = tester.noisy_model(tester.Estimate(0.3))
    values = -0.5 * points[:, 0] ** 2 + 0.3 * rng.standard_normal(300)
    _, stats = tester.run(pk.KamiltonianStep(model=model, evaluations=(points, values)), 60, seed=1)
    assert max(s["refits"] for s in stats) >= 1


def test_points_that_stand_for_the_posterior_lie_as_deep_as_its_draws():
    """Of a wide cloud about a normal target; the control is the highest points."""
    rng = np.random.default_rng(0)
    x = 3.0 * rng.standard_normal((20_000, 4))
    known = evaluations.table(x, -0.5 * np.square(x).sum(axis=1))
    points, values = known_points.reference(known, 200)
    assert len(np.unique(points, axis=0)) == 200
    depth = values.max() - values.mean()  # d / 2 = 2
    spread = points.std()
    highest = np.sort(known.log_densities)[-200:]
    assert abs(depth - 2.0) < 0.15
    assert abs(spread - 1.0) < 0.15
    assert highest.max() - highest.mean() < 1.0
