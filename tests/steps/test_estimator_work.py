"""NoisyLogLikelihood(fn, work=N): tuned by every step, fixed after tuning, and exact with what was chosen."""

import logging
import math

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_kameleon as pk
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood, step_beside_noise
from pymc_kameleon.samplers import tuned_work
from pymc_kameleon.samplers.noise_probe import NoiseProbe
from pymc_kameleon.steps import AdaptiveMetropolisStep, KameleonStep, KamiltonianStep
from tests import step_tester as tester
from tests.step_tester import begin, drive, make, moment_z, noisy_model, run, sample

OBJECT_MODE = pytest.mark.filterwarnings("ignore:.*object mode.*:UserWarning")
pytestmark = [tester.NO_BLAS, OBJECT_MODE]
RIGHT = 200


class Estimate:
    """N(0, 1) with log-normal noise of mean one, whose variance falls as 1 / work; remembers the work of each value."""

    def __init__(self):
        self.made = {}

    def __call__(self, rng, x, work):
        variance = tuned_work.TARGET * RIGHT / work
        value = float(-0.5 * x * x + math.sqrt(variance) * rng.standard_normal() - 0.5 * variance)
        self.made[value] = work
        return value


# --- what is chosen --------------------------------------------------------------------------


@tester.every_step
@pytest.mark.parametrize("given", [RIGHT // 50, 50 * RIGHT])
def test_every_step_finds_the_right_work(case, given):
    step = make(case, noisy_model(Estimate(), work=given))
    _, stats = run(step, 20, tune=1000)
    chosen = stats[-1]["work"]
    # much is lowered with care: until the worst of the last 33 pairs is what is best
    low, high = (1 / 2.5, 2.5) if given < RIGHT else (2.0, 15.0)
    assert low < chosen / RIGHT < high
    error = math.sqrt(2.0 / len(step.life.state.probe.squares))
    assert abs(step.life.state.probe.variance * chosen / RIGHT / tuned_work.TARGET - 1.0) < 4.5 * error


# fast: a chain of one's own, and one with companions that it changes places with
@pytest.mark.parametrize("case", tester.step_params(tester.CASES, fast=("kameleon", "kamiltonian")))
def test_the_retained_estimate_is_made_with_the_work_there_is(case):
    """At every draw, while tuning too, swaps with companions included; and after tuning the work is one number."""
    estimate = Estimate()
    model = noisy_model(estimate, work=RIGHT // 20)
    step = begin(make(case, model))
    point, seen, kept = model.initial_point(), set(), []
    for i in range(460):
        if i == 400:
            step.stop_tuning()
            estimate.made.clear()
            estimate.made[step.log_density] = step.life.state.work.now[0]
        point, [stat] = step.step(point)
        kept.append(estimate.made[step.log_density] == step.life.state.work.now[0] == stat["work"])
        seen.add(stat["work"])
    assert all(kept)
    assert len(seen) > 5
    assert set(estimate.made.values()) == {stat["work"]}


@pytest.mark.parametrize("failure", [math.nan, -math.inf], ids=["a failure", "an estimate of zero, the control"])
def test_an_estimator_that_fails_now_and_then_is_not_noisier_for_it(failure):
    """One of twenty is NaN: neither the noise measured nor the work is what it would be if that were a zero."""
    estimate = Estimate()

    def fails(rng, x, work):
        return failure if rng.random() < 0.05 else estimate(rng, x, work)

    step = make(tester.CASES["kameleon"], noisy_model(fails, work=RIGHT))
    run(step, 20, tune=1500)
    probe, work = step.life.state.probe, sum(step.life.state.work.now)
    # the squares' own sd is sqrt(2) times their mean
    z = (probe.variance * work / RIGHT / tuned_work.TARGET - 1.0) / math.sqrt(2.0 / len(probe.squares))
    assert (abs(z) < 4.5) == math.isnan(failure), z
    assert (z > 10.0) != math.isnan(failure), z


def test_work_is_counted_and_told(caplog):
    estimate = Estimate()
    spent = []

    def counted(rng, x, work):
        spent.append(work)
        return estimate(rng, x, work)

    model = noisy_model(counted, work=20)
    step = KameleonStep(model=model)
    spent.clear()
    with caplog.at_level(logging.INFO):
        idata = sample(step, model, tune=300, chains=2)
    stats = idata["sample_stats"]
    assert stats["work_spent"].values[:, -1].sum() == sum(spent)
    chosen = stats["work"].values
    assert (chosen == chosen[:, :1]).all()
    noise = stats["noise_sd"].values
    assert (noise == noise[:, :1]).all()
    assert noise[1, -1] == step.watch.noise_sd() > 0.5
    assert chosen[0, 0] != chosen[1, 0]  # each chain's own
    told = [r for r in caplog.records if "the estimator gets work=" in r.getMessage()]
    assert [r.levelname for r in told] == ["INFO", "INFO"]
    for chain, record in enumerate(told):
        said = f"chain {chain}: the estimator gets work={chosen[chain, 0]:.0f} from now on (20 given)"
        assert said in record.getMessage()
    assert step.density.work == (chosen[1, 0],)
    begin(step)  # a new chain begins with what was given
    assert step.density.work == (20,)


def test_of_work_that_leaves_too_much_noise_one_thing_is_said():
    """Not that it was chosen, and then to give more."""
    step = begin(KameleonStep(model=noisy_model(Estimate(), work=20)))
    for sd, said in ((1.3, "gets work=5 from now on (20 given)"), (2.5, "with work=5, which tuning has come to (20")):
        life = step.life
        life.state = life.state._replace(
            probe=NoiseProbe(pairs=50, squares=(sd**2,) * 50), work=tuned_work.Work((20,), (5,), pairs=50)
        )
        step.watch.take()
        step.watch._look_at_noise()
        told = step.watch.take()
        assert said in str(told), told
        assert ("from now on" in str(told)) != ("that work" in str(told))


def test_without_tuning_the_work_is_as_given(caplog):
    model = noisy_model(Estimate(), work=20)
    step = KameleonStep(model=model)
    idata = sample(step, model, tune=0)
    assert (idata["sample_stats"]["work"].values == 20).all()
    with caplog.at_level(logging.INFO):
        sample(step, model, tune=5, draws=5)
    assert "work=20 as given: tuning was too short" in caplog.text


def test_a_change_to_an_estimate_of_zero_is_not_made():
    """The chain keeps its estimate and the work that it was made with."""

    def estimate(rng, x, work):
        return -math.inf if work < 100 else float(-0.5 * x * x + 1e-3 * rng.standard_normal())

    step = KameleonStep(model=noisy_model(estimate, work=120))
    _, stats = run(step, 20, tune=400)
    assert np.isfinite([s["model_logp"] for s in stats]).all()
    assert min(s["work"] for s in stats) >= 100
    assert step.life.state.work.log_factor < 0.0  # it would have lowered it


# --- where else the model is evaluated -------------------------------------------------------


def test_others_take_the_work_as_given():
    """The model's own functions and PyMC's steps; two steps of one model do not change each other's."""
    estimate = Estimate()
    model = noisy_model(estimate, work=10)
    one, two = (begin(KameleonStep(model=model), seed) for seed in (0, 1))
    logp = model.compile_logp()
    drive(one, model.initial_point(), 10, 300)
    assert one.life.state.work.now != (10,)
    assert two.density.work == (10,)
    estimate.made.clear()
    logp(model.initial_point())
    two.step(model.initial_point())
    assert set(estimate.made.values()) == {10}


def test_two_estimators_and_a_step_beside_them():
    """Raised by one factor; where another step moves a deterministic factor's variable the noisy part is renewed."""
    one, two = Estimate(), Estimate()
    with pm.Model() as model:
        x, b = pm.Flat("x", initval=0.0), pm.Normal("b")
        pm.Potential("one", NoisyLogLikelihood(one, work=10)(x))
        pm.Potential("two", NoisyLogLikelihood(two, work=40)(x))
        step = AdaptiveMetropolisStep([x])
        compound = CompoundStep([step, step_beside_noise(pm.Metropolis, [b])])
    idata = sample(compound, model, tune=400, chains=1)
    chosen = idata["sample_stats"]["work"].values[0, -1]
    given = step.life.state.work
    assert sorted(given.given) == [10, 40]
    few, many = sorted(given.now)
    assert many == pytest.approx(4 * few, rel=0.2)
    assert chosen == few + many > 100
    # the noisy part alone was made with that work; x is Flat, and both potentials are noisy
    sums = {a + c for a, n in one.made.items() if n == few for c, m in two.made.items() if m == many}
    assert min(abs(step.life.here.noise[0] - s) for s in sums) < 1e-9


def test_the_state_of_a_chain_with_other_work_is_refused(tmp_path):
    step, other = (KameleonStep(model=noisy_model(Estimate(), work=work)) for work in (20, 21))
    run(step, 10)
    pk.save_state(step, tmp_path / "state")
    with pytest.raises(ValueError, match=r"options.*'work': \(20,\).*'work': \(21,\)"):
        pk.load_state(other, tmp_path / "state")


# --- exactness -------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("step_type", [AdaptiveMetropolisStep, pytest.param(KamiltonianStep, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("default_linker")
def test_the_posterior_is_exact_with_what_was_chosen(step_type):
    model = noisy_model(Estimate(), work=10)
    z = moment_z(step_type(model=model), model)
    assert np.abs(z).max() < 4.5, z


@pytest.mark.slow
@pytest.mark.usefixtures("default_linker")
def test_work_that_depends_on_where_the_chain_is_is_biased(monkeypatch):
    """The control: much work near the middle, little far away, and the retained estimate is what it was."""
    model = noisy_model(Estimate(), work=10)
    step = AdaptiveMetropolisStep(model=model)
    draw = step.step

    def depends(point):
        if not step.tune:
            work = step.life.state.work._replace(now=(20 * RIGHT if abs(point["x"]) < 1.4 else RIGHT // 4,))
            step.life_state = step.life_state._replace(work=work)
        return draw(point)

    monkeypatch.setattr(step, "step", depends)
    z = moment_z(step, model, chains=32, draws=2500)
    assert np.abs(z).max() > 10, z
