"""Every row of the table of bad input, and that docs/bad_input.md is made from it."""

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import seam
from pymc_kameleon.sampling import arguments
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.steps.base import KernelStep
from tests.public.bad_input import PAGE, SECTIONS, model, model_of, page, poisson
from tests.public.conftest import Accepted

POINT = {"x": np.zeros(2), "y": np.zeros(())}
STEPS = [s for s in vars(pk).values() if isinstance(s, type) and issubclass(s, KernelStep)]

ROWS = [row for rows in SECTIONS.values() for row in rows]


def has(text, says):
    """Whether the parts of ``says`` are in the text, in their order."""
    at = 0
    for part in says.split("…"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.given[:60])
def test_it_is_said(row):
    if row.error is None:
        assert has(str(row.call()), row.says)
        return
    with pytest.raises(row.error) as raised:
        row.call()
    said = "".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert has(said, row.says), said
    assert ("instead of raising" in said) == (
        "instead of raising" in row.says
    )  # no help where the model is to be mended


@pytest.mark.parametrize(
    "given",
    [
        {"draws": 0}, {"chains": 0}, {"tune": 0}, {"max_evaluations": 5}, {"random_seed": -1}, {"initvals": "mode"},
        {"initvals": [{}]}, {"target_ess": -5},
    ],
    ids=str,
)  # fmt: skip
def test_no_black_box_is_called_for_it(given, monkeypatch):
    """Nor is a step built, which compiles the model."""
    monkeypatch.setattr(arguments, "checked_step", lambda *_: pytest.fail("too late"))
    with pytest.raises(ValueError, match=next(iter(given))):
        pk.sample(model=model(), **given)


def test_a_discrete_unknown_is_refused_before_a_step_is_built(monkeypatch):
    monkeypatch.setattr(arguments, "KamiltonianStep", lambda **_: pytest.fail("too late"))
    with pytest.raises(ValueError, match=r"they have to be continuous; k is not among the step's"):
        pk.sample(model=model_of(lambda: pm.Normal("x"), poisson), max_evaluations=100)


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text("utf-8") == page()
    assert len(ROWS) >= 80
    assert len({row.given for row in ROWS}) == len(ROWS)


def build(step, chosen, given):
    """The step with an option, which KamiltonianStep has from its surrogate's class."""
    kind = step.variants[chosen.get(step.chooses, next(iter(step.variants)))]
    if step is KamiltonianStep and given.keys() <= kind.defaults().keys():
        given = {"surrogate": kind(**given)}
    return step(model=model(), initial_point=POINT, **chosen | given)


def every_option():
    for step in STEPS:
        for variant in step.variants:
            chosen = {step.chooses: variant} if step.chooses else {}
            options = [
                *step.variants[variant].defaults(), "correlation", "refresh_blocks", "arrival", "learning_draws",
                "parametrization", "preset",
            ]  # fmt: skip
            for name in options:
                yield pytest.param(step, chosen, name, id="-".join(filter(None, [step.name, variant, name])))


every = pytest.mark.parametrize(("step", "chosen", "name"), list(every_option()))


@every
def test_no_option_takes_what_makes_no_sense(step, chosen, name, accepting):
    """Text, NaN, bytes, a complex number, arrays: refused by name, before anything is compiled."""
    for value in ("?", float("nan"), b"?", 1j, np.full(7, np.nan), np.ones((7, 7, 7)), [[1], [1, 2]]):
        with pytest.raises((ValueError, TypeError)) as refused:
            build(step, chosen, {name: value})
        assert name in str(refused.value), (value, str(refused.value))


def test_the_test_above_would_notice(accepting, monkeypatch):
    monkeypatch.setattr(seam, "check_types", lambda *_: None)
    with pytest.raises(Accepted):
        test_no_option_takes_what_makes_no_sense(STEPS[0], {}, "learn_from_values", accepting)
