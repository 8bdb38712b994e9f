"""What a step warns of reaches the user: from every chain, with its number, in every run, wherever the chain runs."""

import logging
import multiprocessing

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_kameleon as pk
from pymc_kameleon.steps.told.sampler_warnings import SamplerWarning, SamplerWarnings, WarningType
from tests import step_tester as tester
from tests.support.hierarchies import BlackBox

pytestmark = tester.NO_BLAS


@pytest.fixture(scope="module")
def noisy():
    """With an sd of 6, which every chain has to warn of."""
    model = tester.noisy_model(tester.Estimate(6.0), shape=2)
    return model, pk.AdaptiveMetropolisStep(model=model)


def said_in(run, caplog):
    """What handlers of the ``pymc`` logger see of ours during ``run()``."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="pymc"):
        run()
    return [r.getMessage() for r in caplog.records if r.name.startswith("pymc") and "Step" in r.getMessage()]


def assert_complete(said, chains):
    """The short tuning once, the noise once a chain."""
    assert len(said) == chains + 1
    assert sum("200 tuning draws are few for 2 dimensions" in m for m in said) == 1
    for chain in range(chains):
        [message] = [m for m in said if m.startswith(f"AdaptiveMetropolisStep, chain {chain}: ")]
        assert "the noise of the log density" in message


CONTEXTS = [
    {"cores": 1},
    {"cores": 2, "mp_ctx": "fork"},
    pytest.param({"cores": 2, "mp_ctx": "spawn"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("where", CONTEXTS, ids=lambda w: w.get("mp_ctx", "one core"))
def test_every_chain_is_heard_once_in_every_run(noisy, caplog, where):
    model, step = noisy
    for _ in range(2):  # a step that is used again warns again
        said = said_in(lambda: tester.sample(step, model, chains=3, **where), caplog)
        assert_complete(said, 3)


@pytest.mark.parametrize(
    ("kind", "options", "learns"),
    [
        (pk.AdaptiveMetropolisStep, {}, "proposal"), (pk.KamiltonianStep, {}, "surrogate"),
        (pk.KamiltonianStep, {"surrogate": "lite"}, "surrogate"),
    ],
)  # fmt: skip
def test_tuning_is_short_below_half_of_400_draws_a_dimension(kind, options, learns):
    model = tester.gaussian()
    step = kind(model=model, **options)
    for draws, said in ((599, 1), (600, 0)):
        tester.begin(step)
        tester.drive(step, model.initial_point(), 5)
        step.life_state = step.life_state._replace(tuning_draws=draws)
        step.stop_tuning()
        found = [w.message for w in step.pending if w.extra["key"] == "short tuning"]
        assert len(found) == said
        wanted = "599 tuning draws are few for 3 dimensions; tune=1200 or more lets the"
        assert all(f"{wanted} {learns} learn" in message for message in found)


def test_a_step_that_was_told_another_length_of_tuning_says_so_once(caplog):
    model = tester.gaussian()
    step = pk.CMAStep(model=model, tune=30, compile_kwargs={"mode": "FAST_COMPILE"})
    said = said_in(lambda: tester.sample(step, model, tune=60, draws=5), caplog)
    assert sum("built with tune=30, and there were 60 tuning draws" in m for m in said) == 1
    said = said_in(lambda: tester.sample(step, model, tune=30, draws=5), caplog)
    assert not any("built with tune" in m for m in said)


def test_tuning_that_ends_before_a_surrogate_is_said(caplog):
    model = tester.gaussian()
    step = tester.compiled("kamiltonian", model, False, pytensor.config.mode)
    said = said_in(lambda: tester.sample(step, model, tune=40, draws=5), caplog)
    assert sum("surrogate was learned" in m for m in said) == 2
    said = said_in(lambda: tester.sample(step, model, tune=1500, draws=5, chains=1), caplog)
    assert said == []


def test_warnings_do_not_disturb_what_comes_out(noisy):
    model, step = noisy
    idata = tester.sample(step, model, discard_tuned_samples=False)
    for group in ("sample_stats", "warmup_sample_stats"):
        assert "warning" not in idata[group]
    kept = tester.sample(step, model, keep_warning_stat=True)["sample_stats"]["warning"].values
    found = [w for w in kept.ravel() if w is not None]
    assert {type(w) for w in found} == {SamplerWarning}
    keys = sorted((w.extra["key"], w.extra["chain"]) for w in found)
    assert keys == [("noise", 0), ("noise", 1), ("short tuning", 0)]


def test_statistics_beside_other_steps_have_names_of_their_own():
    """PyMC would put equal names into one statistic of shape (chain, draw, 2)."""
    model = tester.pair()
    for kind in (pk.KamiltonianStep, pk.AdaptiveMetropolisStep):
        whole, part = (kind(v, model=model, arrival=False) for v in (None, [model["b"]]))
        assert set(part.stats_dtypes_shapes) & set(pm.NUTS.stats_dtypes_shapes) == {"warning"}
        assert "model_logp" in whole.stats_dtypes_shapes
        point, [stats] = tester.begin(part).step(model.initial_point())
        assert set(stats) == set(part.stats_dtypes_shapes) == set(part.stats_dtypes[0])
        assert stats[f"{part.name}_lp"] == pytest.approx(float(model.compile_logp()(point)))


OBJECT_MODE = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")


def said_beside(step, *arguments, other=pm.Normal):
    """What our step says at its first draw beside ``step``, with a black box of the variables of that name."""
    with pm.Model() as model:
        x, z = pm.Normal("x"), other("z")
        if arguments:
            solver = BlackBox(lambda *x: -0.5 * float(np.sum(np.square(x))))
            pm.Potential("solver", solver(*[model[name] for name in arguments]))
        compound = CompoundStep([pk.AdaptiveMetropolisStep([x]), step([z])])
    _, stats = tester.begin(compound).step(model.initial_point())
    return "".join(w.message for w in tester.warnings_in(stats[:1]))


@OBJECT_MODE
@pytest.mark.parametrize(("step", "arguments"), [(pm.NUTS, "x"), (pm.Metropolis, "xz"), (pm.Slice, "x")])
def test_a_black_box_that_another_step_evaluates_too_is_said(step, arguments):
    said = said_beside(step, *arguments)
    assert "z is sampled by another step, which evaluates the black box of solver" in said
    assert "Give all continuous variables to one step" in said


@OBJECT_MODE
def test_beside_a_discrete_variable_nobody_is_told_of_nuts():
    said = said_beside(pm.Metropolis, *"xz", other=lambda name: pm.Poisson(name, 3.0))
    assert "when a discrete variable moves, what was learned is of its old value" in said.lower()
    assert "NUTS" not in said


@OBJECT_MODE
@pytest.mark.parametrize(
    ("step", "arguments"),
    [(pm.Metropolis, ""), (pm.Metropolis, "x"), (pk.AdaptiveMetropolisStep, "xz")],
    ids=["no black box", "PyTensor cancels it", "ours, which evaluates once a draw"],
)
def test_what_another_step_does_not_evaluate_is_not_said(step, arguments):
    assert "black box" not in said_beside(step, *arguments)


# --- one chain's warnings --------------------------------------------------------------------


def spawned(n, seed=0):
    return np.random.default_rng(seed).spawn(n)


def add(warnings, key="key", **options):
    warnings.add(key, "text", WarningType.BAD_PARAMS, **options)
    return warnings.take()


def test_once_a_key_and_one_a_draw():
    warnings = SamplerWarnings("Step")
    assert add(warnings, sd=2.0).extra == {"key": "key", "chain": 0, "sd": 2.0}
    assert add(warnings) is None
    warnings.add("a", "1", WarningType.BAD_PARAMS)
    warnings.add("b", "1", WarningType.BAD_PARAMS)  # the same words, another matter
    assert [warnings.take().extra["key"], warnings.take().extra["key"]] == ["a", "b"]
    assert warnings.take() is None
    warnings.reset()
    assert add(warnings).message == "Step, chain 0: text"


def test_chains_are_numbered_and_the_first_speaks_for_all():
    warnings = SamplerWarnings("Step")
    for _ in range(2):
        for chain, rng in enumerate(spawned(3)):
            warnings.begin_chain(rng)
            warnings.reset()
            assert warnings.chain == chain
            common = add(warnings, whole_run=True)
            assert (common is not None) == (chain == 0)
            assert common is None or common.message == "Step: text"
    for rng in (spawned(5, seed=1)[4], np.random.default_rng(3), np.random.Generator(np.random.MT19937())):
        warnings.begin_chain(rng)
        assert warnings.chain == 0


def test_a_worker_knows_its_number_by_name(monkeypatch):
    class Worker:
        name = "worker_chain_12"

    monkeypatch.setattr(multiprocessing, "current_process", Worker)
    warnings = SamplerWarnings("Step")
    warnings.begin_chain(spawned(1)[0])
    assert add(warnings).message == "Step, chain 12: text"


def test_what_has_not_left_is_part_of_the_sampling_state(noisy):
    model, step = noisy
    tester.begin(step)
    tester.drive(step, model.initial_point(), draws=0, tune=300)
    step.stop_tuning()
    state = step.sampling_state
    point = model.initial_point()
    first = [step.step(point)[1][0]["warning"] for _ in range(3)]
    assert [w is not None for w in first] == [True, True, False]
    step.sampling_state = state
    assert [step.step(point)[1][0]["warning"] for _ in range(3)] == first
    assert step.sampling_state.said == ["noise", "short tuning"]
