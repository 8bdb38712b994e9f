"""The mutations of :mod:`tests.mutations` can be made: their texts are there, once, and what they name exists."""

import ast
import re
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


def marks(text):
    """First and last line of what is said to be what exactness hangs on: the function or class, or the whole module."""
    tree, found = ast.parse(text), []
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"exactness (of .* )?hangs", line, re.IGNORECASE):
            around = [n for n in scopes if n.lineno <= number <= n.end_lineno]
            inner = max(around, key=lambda n: n.lineno) if around else None
            found.append((inner.lineno, inner.end_lineno) if inner else (1, len(text.splitlines())))
    return found


def test_whatever_exactness_hangs_on_is_changed_by_one():
    """The marks are the sources' own words: "exactness hangs"."""
    without, marked = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text, module = path.read_text("utf-8"), path.relative_to(PACKAGE).with_suffix("").as_posix()
        changed = [text[: text.index(m.old)].count("\n") + 1 for m in mutations.MUTATIONS if m.module == module]
        spans = marks(text)
        marked += len(spans)
        without += [f"{module}, line {a}" for a, b in spans if not any(a <= line <= b for line in changed)]
    assert marked > 25
    assert not without


def test_there_are_a_hundred_and_none_twice():
    changes = [(m.module, m.old, m.new) for m in mutations.MUTATIONS]
    assert len(set(changes)) == len(changes) >= 100


def test_a_text_that_is_gone_is_refused():
    mutation = mutations.MUTATIONS[0]
    with pytest.raises(ValueError, match="0 times, not once"):
        mutations.mutated("", mutation)
    with pytest.raises(ValueError, match="2 times, not once"):
        mutations.mutated(2 * mutation.old, mutation)
