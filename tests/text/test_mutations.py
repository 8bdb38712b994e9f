"""The mutations of :mod:`tests.mutations` can be made: their texts are there, once, and what they name exists."""

import ast
from pathlib import Path

import pytest

import pymc_kameleon
from tests import mutations

PACKAGE = Path(pymc_kameleon.__file__).parent


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda m: f"{m.module}: {m.reason}")
def test_its_text_is_found_once_and_what_comes_of_it_is_python(mutation):
    text = (PACKAGE / f"{mutation.module}.py").read_text("utf-8")
    ast.parse(mutations.mutated(text, mutation))
    for arguments in mutations.commands(mutation.tests):
        assert (mutations.ROOT / arguments[0]).exists()


def test_there_are_a_hundred_and_none_twice():
    changes = [(m.module, m.old, m.new) for m in mutations.MUTATIONS]
    assert len(set(changes)) == len(changes) >= 100


def test_a_text_that_is_gone_is_refused():
    mutation = mutations.MUTATIONS[0]
    with pytest.raises(ValueError, match="0 times, not once"):
        mutations.mutated("", mutation)
    with pytest.raises(ValueError, match="2 times, not once"):
        mutations.mutated(2 * mutation.old, mutation)
