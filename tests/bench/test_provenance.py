"""Cells are run once and go on; every page says which code made it."""

import importlib
import inspect
import json
import re
from string import Formatter

import pytest

from benchmarks import cells, provenance, report
from benchmarks.cells import Benchmark, Cell

KNOWN = {path.stem for path in provenance.FOLDER.glob("*.md")}


def test_every_result_is_known_and_says_what_made_it():
    assert set(provenance.RESULTS) >= KNOWN
    assert len(KNOWN) > 15
    for name in KNOWN:
        assert provenance.code_of(name)


def test_every_result_has_a_tier_and_a_command_that_the_readme_lists():
    readme = (provenance.FOLDER.parent / "README.md").read_text("utf-8")
    for name, result in provenance.RESULTS.items():
        assert result.tier in provenance.TIERS
        assert f"`{result.command}`" in readme, name


@pytest.mark.parametrize("path", sorted(provenance.FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_stores_are_whole(path):
    stored = json.loads(path.read_text("utf-8"))
    assert set(provenance.Made._fields) <= set(stored)
    if not path.stem.endswith("_reference"):
        assert all(made["code"] for made in cells.load(path.stem).values())


PAGES = provenance.FOLDER.parent / "pages"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.txt")), ids=lambda path: path.stem)
def test_every_place_of_a_page_is_filled(page):
    """One that is made in one go would fail after minutes of measuring."""
    made = f'report.page("{page.stem}", '
    [path] = [p for p in PAGES.parent.rglob("*.py") if made in p.read_text("utf-8")]
    module = vars(importlib.import_module(".".join(path.relative_to(provenance.ROOT).with_suffix("").parts)))
    [function] = [f for f in module.values() if inspect.isfunction(f) and made in inspect.getsource(f)]
    names = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    names |= module.keys() if f"{made}globals()" in inspect.getsource(function) else set()
    places = [re.split(r"[.\[]", place)[0] for _, place, *_ in Formatter().parse(page.read_text("utf-8")) if place]
    assert [place for place in places if place not in names] == []


COMMENTED = '''"""Words."""

def f(x):  # words
    """Words,

    more of them.
    """
    # words
    y = "no # words"
    """Words of y."""
    return f"{x} # none" + y
'''


def test_words_are_no_code():
    bare = """def f(x):\n    y = "no # words"\n    return f"{x} # none" + y"""
    assert provenance.without_words(COMMENTED) == provenance.without_words(bare) == bare


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Hashes of a package of these modules."""
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)

    def of(*names, **modules):
        for module, text in modules.items():
            path = tmp_path / f"{module.replace('_', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        provenance.code.cache_clear()
        return [provenance.code(name) for name in names]

    yield of
    provenance.code.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [("more", "other", True), ("  # words\n    y", "\n    y", True), ("no #", "a #", False), ("x} # ", "x} ", False)],
    ids=["a docstring", "a comment", "a string", "an f-string"],
)
def test_a_change_of_words_is_the_same_code(old, new, same, code):
    changed = COMMENTED.replace(old, new)
    assert changed != COMMENTED
    assert (code("", module=COMMENTED) == code("", module=changed)) == same


def test_what_only_speaks_makes_no_result_stale_but_that_of_what_is_said(code):
    assert all((provenance.ROOT / "pymc_kameleon" / path).exists() for path in provenance.SPEAK)
    (before, said), (after, other), (judged, both) = (
        code("textbook", "verdicts", verdict_report=f"x = {say!r}", verdict_convergence=f"x = {judge!r}")
        for say, judge in ("aa", "ba", "bb")
    )
    assert before == after != judged
    assert len({said, other, both}) == 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Results elsewhere, and code that is "one"."""
    for module in (cells, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(provenance, "FOLDER", tmp_path)
    monkeypatch.setattr(provenance, "code", lambda name: "one")
    return tmp_path


def a_benchmark():
    """Which cells it has measured."""
    calls = []

    def measure(cell):
        calls.append(cell)
        return {"value": float(len(calls)) + 1e-9, "nothing": float("nan")}

    found = Benchmark("textbook", measure, lambda c: f"# Page\n\n{sorted(c)}", {"rival": "numpy", "absent": "no-such"})
    return found, calls


def command(benchmark, *arguments):
    benchmark.command("Words.", ["ours", "rival", "absent"], ["a", "b"], (10,), 2, arguments=arguments)


def test_cells_are_run_once_and_go_on(folder):
    benchmark, calls = a_benchmark()
    with pytest.raises(IndexError):  # after the first
        command(benchmark._replace(measure=lambda cell: benchmark.measure(cell) if not calls else calls[9]))
    assert len(calls) == 1
    assert not (folder / "textbook.md").exists()  # not yet whole
    command(benchmark)
    assert len(calls) == 8  # absent is not installed
    command(benchmark)
    assert len(calls) == 8
    assert cells.load("textbook")[Cell("ours", "a", 10, 0)] == {
        "seconds": pytest.approx(0.0, abs=0.1), "value": 1.0, "nothing": None, "code": "one"
    }  # fmt: skip


def test_fresh_makes_anew_what_other_code_made_and_nothing_else(folder, monkeypatch):
    benchmark, calls = a_benchmark()
    command(benchmark)
    assert provenance.code_of("textbook") == "one"
    command(benchmark, "--fresh")
    assert len(calls) == 8
    monkeypatch.setattr(provenance, "code", lambda name: "two")
    assert "textbook" in provenance.stale()
    command(benchmark, "--samplers", "ours", "--problems", "a")
    assert len(calls) == 8  # what is stored stands
    command(benchmark, "--samplers", "ours", "--problems", "a", "--again")
    assert len(calls) == 10
    assert provenance.code_of("textbook") == provenance.SEVERAL
    command(benchmark, "--fresh")
    assert len(calls) == 12  # two of ours were of the first code; the rival's package is the same
    assert provenance.code_of("textbook") == "two"
    assert "textbook" not in provenance.stale()


def test_a_truth_is_made_once(folder):
    made = [cells.truth("x", "problem", lambda: {"mean": 1 / 3}) for _ in range(2)]
    assert made[0] == made[1] == {"mean": 1 / 3}
    with pytest.raises(ValueError, match="nothing on 'other'"):
        cells.truth("x", "other")
