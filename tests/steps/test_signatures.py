"""What ``help`` and an editor show of a step: its options by name, the defaults that hold, each with its meaning."""

import inspect
import typing

import pytest

import pymc_kameleon as pk
from pymc_kameleon.steps import KernelStep, signatures
from pymc_kameleon.steps.methods import STRUCTURE
from pymc_kameleon.steps.options import CommonOptions
from tests import step_tester as tester

STEPS = [step for name, step in vars(pk).items() if name.endswith("Step")]
every_class = pytest.mark.parametrize("step", STEPS)
SHARED = [
    n for n in inspect.signature(KernelStep.__init__).parameters if n not in ("self", "options")
]


@every_class
def test_every_option_is_documented_in_the_class_and_nothing_else_is(step):
    sections = signatures.sections(step.__doc__)
    shown = [
        n for h in ("Parameters", "For experiments", "Of every step") for n in sections.get(h, [])
    ]
    assert sorted(shown) == sorted(inspect.signature(step).parameters)
    assert "See :func:" not in step.__doc__.partition("Notes\n")[0]  # meanings, not links


@every_class
def test_a_few_options_stand_on_top(step):
    sections = signatures.sections(step.__doc__)
    assert 3 <= len(sections["Parameters"]) <= 5
    assert sections["Parameters"][0] == "tune"
    assert list(sections)[:2] == ["Parameters", "For experiments"]
    names = [n for n in inspect.signature(step).parameters if n != "vars"]
    assert names[: len(sections["Parameters"])] == sections["Parameters"]


@every_class
def test_options_are_real_keywords_with_the_defaults_of_the_algorithm(step):
    own = inspect.signature(step.__init__).parameters  # what an editor reads
    shown = inspect.signature(step).parameters
    variants = step.variants.values()
    options = {}
    for algorithm in reversed([*variants]):
        options |= algorithm.defaults()
    options.pop(step.chooses, None)
    if step.screens is not None:  # an option of the step's, not of its algorithm
        options["screen"] = step.screens
    if step.parametrizes:
        options["parametrization"] = "auto"
    if step.schedules:
        options["schedule"] = None
    of_the_model = (
        {*STRUCTURE, "evaluations"} if step is pk.KamiltonianStep else set()
    )  # how it is looked at
    assert set(options) | {step.chooses} - {""} | {"preset"} | of_the_model == set(own) - {
        "self",
        "vars",
        "common",
    }
    for name, option in options.items():
        assert own[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert own[name].default.value == option, name
        assert repr(shown[name].default) == (own[name].default.text or repr(option)), name
    assert "Family(" not in str(inspect.signature(step))
    assert len(str(inspect.signature(step))) < 1600


def test_the_control_finds_what_is_missing():
    class Forgetful(pk.CMAStep):
        __doc__ = pk.CMAStep.__doc__.replace("sweeps : int\n", "swoops : int\n")

        def __init__(self, vars=None, *, sweeps=signatures.default(20), **common):
            super().__init__(vars, **signatures.given(locals()), **common)

    with pytest.raises(AssertionError):
        test_every_option_is_documented_in_the_class_and_nothing_else_is(Forgetful)
    with pytest.raises(AssertionError):
        test_options_are_real_keywords_with_the_defaults_of_the_algorithm(Forgetful)


def test_editors_complete_what_every_step_takes():
    assert set(typing.get_type_hints(CommonOptions)) == set(SHARED) - {"vars", "preset"}
    assert set(SHARED) <= set(inspect.signature(pk.KameleonStep).parameters)


def fast(step, **options):
    return step(model=tester.pair(), compile_kwargs={"mode": "FAST_COMPILE"}, **options)


def test_a_default_that_is_given_wins_over_a_preset():
    assert fast(pk.KameleonStep, preset="paper")._options["normalization"] == "none"
    given = fast(pk.KameleonStep, preset="paper", normalization="local")
    assert given._options["normalization"] == "local"
    assert fast(pk.KameleonStep)._options == {}


def test_an_option_of_another_variant_says_whose_it_is():
    with pytest.raises(
        TypeError, match=r"target_accept is an option of surrogate='lite' or 'finite'"
    ):
        fast(pk.KamiltonianStep, target_accept=0.9)
    with pytest.raises(TypeError, match="n_directions is an option of proposal='pca'"):
        fast(pk.KameleonStep, n_directions=3)
    with pytest.raises(TypeError, match="did you mean 'n_history'"):
        fast(pk.KameleonStep, n_histry=3)
