"""A mode that a look has found, and in which the chain is not, is told when tuning ends; nothing else is."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.kamiltonian.factors import climb
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.life import Life
from pymc_kameleon.steps import AdaptiveMetropolisStep, KamiltonianStep
from tests.step_tester import NO_BLAS, begin, drive, values, warnings_in

pytestmark = [NO_BLAS, pytest.mark.whole]


def two(x):
    """Standard normals at 8 and -8."""
    return pt.logaddexp(-0.5 * ((x - 8.0) ** 2).sum(), -0.5 * ((x + 8.0) ** 2).sum())


SHAPES = {
    "normal": lambda x: -0.5 * (x**2).sum(),
    "banana": lambda x: -0.5 * (x[0] ** 2 / 4.0 + (x[1] - 0.5 * x[0] ** 2) ** 2),
    "funnel": lambda x: -0.5 * x[0] ** 2 - 0.5 * x[1] ** 2 * pt.exp(-x[0]) - 0.5 * x[0],
    "much less": lambda x: pt.logaddexp(-0.5 * ((x - 8.0) ** 2).sum(), -0.5 * ((x + 8.0) ** 2).sum() - 7.0),
}


def told(log_density, seed, start=8.0):
    """(what was said of another mode, the points)."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 20.0, shape=2)
        pm.Potential("p", log_density(x))
        step = begin(AdaptiveMetropolisStep(compile_kwargs={"mode": "FAST_COMPILE"}), seed)
    at = {**model.initial_point(), "x": np.full(2, start)}
    points, stats = drive(step, at, 5, tune=700)
    said = [w for w in warnings_in(stats) if w.extra["key"] == "another mode"]
    # the statistic says the same, from the end of tuning on, as long as no draw comes near
    assert float(stats[-1]["other_mode"]) == pytest.approx(np.exp(said[0].extra["log_mass"]) if said else 0.0)
    return said, points


def test_it_is_said_once_with_where_and_how_much():
    [[warning], points] = told(two, 0)
    assert (points[-1]["x"] > 0.0).all()
    assert "near x = [-" in warning.message
    assert abs(warning.extra["log_mass"]) < 1.0
    assert "GaussianMixtureStep" in warning.message


@pytest.mark.parametrize(("parametrization", "may_be"), [("model", True), ("auto", False)])
def test_of_a_hierarchy_left_as_it_is_it_may_be_the_neck_of_a_funnel(parametrization, may_be):
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.HalfNormal("sigma"), shape=2)
        options = {"parametrization": parametrization, "compile_kwargs": {"mode": "FAST_COMPILE"}}
        step, point = begin(AdaptiveMetropolisStep(arrival=False, **options), 0), model.initial_point()
    for _ in range(5):
        point, _ = step.step(point)
    rival = arrival_search.Rival(step.position + 100.0, np.eye(3), 0.0, 0.0)
    step.life.state = step.life.state._replace(elsewhere=(rival,))
    step.stop_tuning()
    _, stats = step.step(point)
    [warning] = warnings_in(stats)
    assert ("neck of a hierarchy's funnel" in warning.message) == may_be


def test_after_tuning_the_statistic_goes_when_the_chain_comes_near():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        step = begin(AdaptiveMetropolisStep(arrival=False, compile_kwargs={"mode": "FAST_COMPILE"}), 0)
    points, _ = drive(step, model.initial_point(), 5, tune=50)
    far, here = (arrival_search.Rival(step.position + by, np.eye(2), 0.0, 0.0) for by in (100.0, 0.0))
    # a climb ended in a flat part, compared with another place there; the walk has found a spike
    flat, not_so_flat = (far._replace(top=by) for by in (-30.0, -10.0))
    for rivals, left in (((far,), 1.0), ((here,), 0.0), ((far, here), 1.0), ((flat,), 0.0), ((not_so_flat,), 1.0)):
        step.life.state = step.life.state._replace(elsewhere=rivals, looked=1)
        _, [stats] = step.step(points[-1])
        points.append(step.density.update(points[-1], step.position))
        assert float(stats["other_mode"]) == left
        assert len(step.life.state.elsewhere) == left


@pytest.mark.parametrize(("own", "left"), [(-20.0, 0), (0.0, 1)])
def test_at_the_end_of_tuning_another_mode_is_weighed_beside_what_the_chain_has_found_since(own, left):
    """A chain whose climb ended on a bump ``own`` deep; and, in the control, where its mode has its top."""
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        step = begin(AdaptiveMetropolisStep(arrival=False, compile_kwargs={"mode": "FAST_COMPILE"}), 0)
    points, _ = drive(step, model.initial_point(), 5, tune=300)
    step.tune = True
    rival = arrival_search.Rival(step.position + 100.0, np.eye(2), 0.0, 0.0, own=own)
    step.life.state = step.life.state._replace(elsewhere=(rival,), looked=1, tune=True)
    points, _ = drive(step, points[-1], 2, tune=200)
    assert len(step.life.state.elsewhere) == left


def test_a_mode_is_weighed_by_heights_and_not_by_how_far_a_chain_goes():
    """Draws of a heavy tail are wider than a climb has seen: an equal mode stays one; and it is weighed once."""
    rng = np.random.default_rng(0)
    rivals = (arrival_search.Rival(np.full(10, 100.0), np.eye(10), 0.0, 0.0, own=0.0),)
    for x in rng.standard_t(3, (300, 10)):
        rivals = arrival_search.not_met(rivals, True, x, -2.0 * np.log1p(x**2 / 3.0).sum())
    [found] = arrival_search.weighed(rivals)
    assert found.gain == 0.0
    [lower] = arrival_search.weighed(arrival_search.not_met((found,), True, np.zeros(10), 3.0))
    assert lower.gain == -3.0
    assert arrival_search.weighed((lower,))[0].gain == -3.0


# sums over 300 draws of sds 1e4, 1, 1e-4, which are 50 sds of the last one away
TWO_SCALES = 300.0 * (np.outer(*2 * [[1.0, 0.0, 0.0, 5e-3]]) + np.diag([0.0, 1e8, 1.0, 1e-8]))

ON_A_LINE = 300.0 * (
    np.outer(*2 * [[1.0, 3.0, -3.0, 0.0]])
    + np.diag([0.0, 1.0, 1.0, 1.0]) @ np.ones((4, 4)) @ np.diag([0.0, 1.0, 1.0, 1.0])
)


@pytest.mark.parametrize(
    ("away", "changed", "left"),
    [
        (1.0, {}, 0), (8.0, {}, 1), (1.0, {"top": 3.0}, 1), (1.0, {"angles": np.array([0])}, 1),
        pytest.param(1.0, {"products": np.eye(4)}, 1, id="one draw"),
        pytest.param(1.0, {"products": 300.0 * np.ones((4, 4))}, 1, id="all draws are one"),
        pytest.param(1.0, {"products": ON_A_LINE}, 1, id="all draws are on a line"),
        pytest.param(1.0, {"products": TWO_SCALES}, 1, id="50 sds along a short one"),
    ],
)  # fmt: skip
def test_an_end_at_an_edge_amid_the_draws_is_no_other_mode(away, changed, left):
    """However narrow the chain's own was; a narrow mode that is as heavy as what is around it is higher."""
    rng = np.random.default_rng(0)
    rivals = (arrival_search.Rival(np.full(3, away), 0.01 * np.eye(3), 3.0, 0.0, own=0.0)._replace(**changed),)
    for x in () if "products" in changed else rng.standard_normal((300, 3)):
        rivals = tuple(arrival_search.not_met(rivals, True, x, -0.5 * x @ x))
        assert len(rivals) == 1
    found = arrival_search.weighed(rivals)
    assert len(found) == left
    assert all(np.ndim(rival.products) == 0 for rival in found)


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        pytest.param(shape, seed, marks=[] if seed == 0 and shape in ("banana", "much less") else pytest.mark.slow)
        for shape in SHAPES for seed in (0, 1, 2)
    ],
)  # fmt: skip
def test_one_mode_is_no_news(shape, seed):
    assert told(SHAPES[shape], seed, start=8.0 if shape == "much less" else 1.0)[0] == []


def test_where_the_walk_comes_by_itself_nothing_is_said(monkeypatch):
    """As if it had: near is what ``contains`` says, here only of what has been found to be another mode."""
    near = arrival_search.contains
    monkeypatch.setattr(arrival_search, "contains", lambda m, *x: isinstance(m, arrival_search.Rival) or near(m, *x))
    assert told(two, 0)[0] == []


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def squares(x):
    return np.square(x)


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def missed_on_one_side(x):
    return np.array([6.0 - 0.5 * (x[0] - 3.0) ** 2 if x[0] > 0.0 else x[0] ** 2, 6.0 + x[1]])


START = np.array([3.0, 3.0])


def boxed(prior, tune=200, box=squares, seed=0, **options):
    """(the last draw's statistics, its point, what was said): data about 9 of the square of an unknown, by a box."""
    with pm.Model() as model:
        x = prior("x")
        pm.Normal("y", box(x), 0.5, observed=np.array([9.0, 8.0]))
        step = begin(KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"}, **options), seed)
    assert step.by_factors
    points, stats = drive(step, model.initial_point(), 5, tune=tune)
    said = [w for w in warnings_in(stats) if w.extra["key"] == "another mode"]
    return stats[-1], points[-1], said


def test_where_black_boxes_are_learned_climbs_from_elsewhere_follow(monkeypatch):
    """The chain begins at 3, -3: of the other three modes one is found at least, before 300 draws are over.

    Its sampler is not told, else it goes there, and a mode in which the chain has been is no other mode.
    """
    monkeypatch.setattr(Life, "_show", lambda self, climb: None)
    stats, point, [warning] = boxed(
        lambda name: pm.Normal(name, np.array([3.0, -3.0]), 4.0, shape=2, initval=[3.0, -3.0]), tune=300, seed=5
    )
    assert point["x"][0] > 0.0 > point["x"][1]
    assert float(stats["other_mode"]) == pytest.approx(np.exp(warning.extra["log_mass"]), rel=1e-5)
    assert float(stats["other_mode"]) > 0.02


@pytest.mark.parametrize("told", [True, False])
def test_where_black_boxes_are_learned_a_chain_goes_to_the_mode_that_a_climb_has_found(monkeypatch, told):
    """Two modes, of either sign, a hundred sds apart; the control is a chain whose sampler is not told of the other."""
    if not told:
        monkeypatch.setattr(Life, "_show", lambda self, climb: None)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 4.0, shape=1, initval=[3.0])
        pm.Normal("y", squares(x), 0.2, observed=[9.0])
        step = begin(KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"}), 3)
    points, stats = drive(step, model.initial_point(), 200, tune=300)
    there = values(points[300:], "x")[:, 0] < 0.0
    assert (off_in_errors(there) < 5.0) if told else there.mean() in (0.0, 1.0)
    assert ("elsewhere" in {s["move"] for s in stats[:300]}) == told
    assert "elsewhere" not in {s["move"] for s in stats[300:]}


def off_in_errors(there):
    """How far the share of one of two modes alike is from a half, in standard errors; infinite in one mode alone."""
    effective = float(az.ess(there[None].astype(float))) if 0.0 < there.mean() < 1.0 else 0.0
    return abs(there.mean() - 0.5) / (0.5 / np.sqrt(effective)) if effective > 0.0 else np.inf


TIMES = np.linspace(0.0, 1.0, 15)
ALIKE = {  # what is seen of (x, something else) is the same of -x, and of an angle half a turn on
    "source": (lambda x, a: a / (0.05 + (TIMES - 0.4) ** 2 + x**2), (0.3, 1.0)),
    "square": (lambda x, a: x**2 * np.exp(-a * TIMES), (2.0, 1.2)),
    "wave": (lambda x, a: x * np.sin(9.0 * TIMES + a), (1.5, 0.7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ALIKE)
def test_either_of_two_modes_alike_has_half_of_the_draws(name, seed):
    """The models of docs/expensive.md, one chain each."""
    function, truth = ALIKE[name]
    data = function(*truth) + 0.1 * np.random.default_rng(1).standard_normal(15)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0)
        other = pm.Uniform("a", -np.pi, np.pi) if name == "wave" else pm.HalfNormal("a", 2.0)
        box = wrap_py(itypes=[pt.dscalar] * 2, otypes=[pt.dvector])(function)
        pm.Normal("y", box(x, other), 0.1, observed=data)
        step = begin(KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"}), seed)
    points, _ = drive(step, model.initial_point(), 1000, tune=1000)
    assert off_in_errors(values(points[1000:], "x") < 0.0) < 5.0


@pytest.mark.parametrize(("rounds", "sure"), [(climb.ROUNDS, True), (1, False)])
def test_from_a_mode_without_mass_a_chain_leaves(monkeypatch, rounds, sure):
    """At 3 one of the data is missed by six standard deviations; the other side has it.

    A climb that ends after one round is not sure where it is: its chain looks elsewhere, too.
    """
    monkeypatch.setattr(climb, "ROUNDS", rounds)
    start, standing, seen = START if sure else START + 2.0, FactoredKamiltonian.standing, set()

    def watched(self, state):
        seen.add(state.learning.arrived)
        return standing(self, state)

    monkeypatch.setattr(FactoredKamiltonian, "standing", watched)
    stats, point, said = boxed(lambda name: pm.Normal(name, 0.0, 4.0, shape=2, initval=start), box=missed_on_one_side)
    assert seen == ({False, True} if sure else {False})
    assert np.allclose(point["x"], [-3.0, 2.0], atol=2.0)
    assert said == []
    assert float(stats["other_mode"]) == 0.0


def test_of_one_mode_of_black_boxes_none_is_found():
    stats, _, said = boxed(lambda name: pm.HalfNormal(name, 5.0, shape=2))
    assert said == []
    assert float(stats["other_mode"]) == 0.0


@pytest.mark.parametrize("why", ["short", "arrival"])
def test_that_nobody_has_looked_is_not_that_there_is_nothing(why):
    tune, options = (30, {}) if why == "short" else (100, {"arrival": False})
    stats, _, said = boxed(lambda name: pm.HalfNormal(name, 5.0, shape=2), tune, **options)
    assert said == []
    assert np.isnan(float(stats["other_mode"]))


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def fragile(x):
    if np.abs(x - 8.0).max() > 12.0:
        raise RuntimeError("the solver failed")
    return np.array(x)


def test_a_box_that_raises_far_away_ends_no_run_by_a_look():
    """Half of the prior's draws are there; what the chain itself asks for raises as before."""
    _, point, said = boxed(lambda name: pm.Normal(name, 0.0, 10.0, shape=2, initval=[8.0, 8.0]), box=fragile)
    assert np.allclose(point["x"], [9.0, 8.0], atol=2.5)
    assert said == []


@wrap_py(itypes=[pt.dscalar], otypes=[pt.dvector])
def on_a_circle(angle):
    return np.array([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_an_angles_next_period_is_no_other_mode(seed):
    """Where black boxes are learned one by one it is sampled on the whole line: looks stay in the chain's period."""
    with pm.Model() as model:
        angle = pm.VonMises("angle", 0.0, 0.1)
        pm.Normal("y", on_a_circle(angle), 0.2, observed=[np.cos(3.0), np.sin(3.0)])
        step = begin(KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"}), seed)
    assert step.by_factors
    _, stats = drive(step, model.initial_point(), 5, tune=200)
    assert float(stats[-1]["other_mode"]) == 0.0
    assert not [w for w in warnings_in(stats) if w.extra["key"] == "another mode"]


def test_an_angles_other_mode_is_one_whatever_the_period(monkeypatch):
    """The axis of a line has two ends; a chain that has been there by another period knows of it."""
    monkeypatch.setattr(Life, "_show", lambda self, climb: None)  # or the chain goes there
    with pm.Model() as model:
        angle = pm.VonMises("angle", 0.0, 0.1)
        pm.Normal("y", on_a_circle(2.0 * angle), 0.1, observed=[np.cos(2.0), np.sin(2.0)])
        step = begin(KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"}), 1)
    _, stats = drive(step, model.initial_point(), 5, tune=200)
    assert 0.3 < float(stats[-1]["other_mode"]) < 3.0
    (rival,) = step.life.state.elsewhere
    apart = (rival.position - step.position) / np.pi
    assert round(float(apart[0])) in (-1, 1)
    for turns in (0.0, 2.0, -4.0):
        assert arrival_search.is_settled(rival, rival.position + turns * np.pi, rival.top - 1.0)
        assert not arrival_search.is_settled(rival, step.position + turns * np.pi, rival.top - 1.0)
