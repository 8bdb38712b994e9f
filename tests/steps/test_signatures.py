"""What ``help`` and an editor show of a step: its options by name, the defaults that hold, each with its meaning."""

import dataclasses
import inspect
import typing

import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import docstrings
from pymc_kameleon.steps import KernelStep, signatures
from pymc_kameleon.steps.options import CommonOptions
from tests import step_tester as tester

STEPS = [step for name, step in vars(pk).items() if name.endswith("Step")]
every_class = pytest.mark.parametrize("step", STEPS)
SHARED = [n for n in inspect.signature(KernelStep.__init__).parameters if n not in ("self", "options")]
OF_STEPS = {"schedule", "screen", "proposal", "surrogate"}  # fields of no sampler
OF_THE_MODEL = {"evaluations", "learn", "expensive"}  # how KamiltonianStep looks at it


@every_class
def test_every_option_is_described_once_and_nothing_else_is(step):
    bodies = docstrings.split(step.__doc__)[1]
    assert list(bodies)[:3] == ["Parameters", "For experiments", "Of every step"]
    shown = [list(docstrings.entries(body)) for body in list(bodies.values())[:3]]
    assert shown[0] == list(step.leading)
    assert 3 <= len(shown[0]) <= 5
    parameters = list(inspect.signature(step).parameters)
    assert sorted(n for names in shown for n in names) == sorted(parameters)
    assert parameters[: 1 + len(step.leading)] == ["vars", *step.leading]
    assert "See :func:" not in step.__doc__.partition("Notes\n")[0]  # meanings, not links


@every_class
def test_options_are_real_keywords_with_the_types_and_defaults_of_the_algorithm(step):
    own = inspect.signature(step.__init__).parameters  # what an editor reads
    fields = {f.name: f for kind in reversed(step.variants.values()) for f in dataclasses.fields(kind)}
    hints = {n: h for kind in reversed(step.variants.values()) for n, h in typing.get_type_hints(kind).items()}
    if step is pk.KamiltonianStep:
        assert set(own) == {"self", "vars", "common", "surrogate", "schedule", *OF_THE_MODEL}
        return
    options = {n: f for n, f in fields.items() if f.init and n != "tune"}
    assert set(own) - OF_STEPS == {"self", "vars", "common", *options}
    for name, field in options.items():
        assert own[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert own[name].default.value == field.default, name
        assert own[name].annotation == hints[name], name
        assert repr(inspect.signature(step).parameters[name].default) == repr(field.default), name
    assert len(str(inspect.signature(step))) < 1900


@pytest.mark.parametrize("kind", [pk.Values, pk.Lite, pk.Finite])
def test_the_surrogates_describe_their_options_inherited_ones_too(kind):
    assert set(docstrings.parameters(kind)) == set(kind.defaults())
    assert all(text.count("\n") for text in docstrings.parameters(kind).values())


def test_the_control_finds_what_is_missing():
    class Forgetful(pk.CMAStep):
        __doc__ = pk.CMAStep.__doc__

        def __init__(self, vars=None, *, swoops=signatures.default(20), **common):
            super().__init__(vars, **signatures.given(locals()), **common)

    with pytest.raises(AssertionError):
        test_every_option_is_described_once_and_nothing_else_is(Forgetful)
    with pytest.raises(AssertionError):
        test_options_are_real_keywords_with_the_types_and_defaults_of_the_algorithm(Forgetful)


def test_editors_complete_what_every_step_takes():
    assert set(typing.get_type_hints(CommonOptions)) == set(SHARED) - {"vars"}
    assert set(SHARED) <= set(inspect.signature(pk.KameleonStep).parameters)


def fast(step, **options):
    return step(model=tester.pair(), compile_kwargs={"mode": "FAST_COMPILE"}, **options)


def test_a_default_that_is_given_wins_over_a_preset():
    assert fast(pk.KameleonStep, preset="paper")._options["normalization"] == "none"
    given = fast(pk.KameleonStep, preset="paper", normalization="local")
    assert given._options["normalization"] == "local"
    assert fast(pk.KameleonStep)._options == {}


def test_an_option_of_another_variant_says_whose_it_is():
    with pytest.raises(TypeError, match=r"target_accept is an option of surrogate=pk\.Lite\(target_accept=\.\.\.\) or"):
        fast(pk.KamiltonianStep, target_accept=0.9)
    with pytest.raises(TypeError, match="n_directions is an option of proposal='pca'"):
        fast(pk.KameleonStep, n_directions=3)
    assert fast(pk.KameleonStep, n_directions=20)._options == {}  # at its default it is none
    with pytest.raises(TypeError, match="did you mean 'n_history'"):
        fast(pk.KameleonStep, n_histry=3)
    with pytest.raises(TypeError, match=r"or pk\.Finite\(\.\.\.\), got <class"):
        fast(pk.KamiltonianStep, surrogate=pk.Lite)


def test_a_surrogate_is_its_class_and_what_differs_from_the_defaults():
    for word, kind in pk.KamiltonianStep.variants.items():
        step = fast(pk.KamiltonianStep, surrogate=kind(initial_scale=0.1))
        assert (step.variant, step._options) == (word, {})
        step = fast(pk.KamiltonianStep, surrogate=kind(initial_scale=0.2), tune=50)
        assert step._options == {"initial_scale": 0.2, "tune": 50}
        assert step.sampler.tune == 50
    assert fast(pk.KamiltonianStep, surrogate=pk.Values(tune=50)).sampler.tune == 50
    with pytest.raises(ValueError, match=r"tune=60, but the surrogate's is 50"):
        fast(pk.KamiltonianStep, surrogate=pk.Values(tune=50), tune=60)
