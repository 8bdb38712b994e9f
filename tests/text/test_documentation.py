"""The pages say what the code says: links, warnings, statistics, options, and the README's example."""

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path

import arviz as az
import numpy as np
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers.kameleon import shear
from pymc_kameleon.steps.base import MOVE
from pymc_kameleon.steps.told import advice, surrogate_report

ROOT = Path(pk.__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WINGS = ("sampling", "verdict", "steps")
MODULES = [
    *(ROOT / "pymc_kameleon").glob("*.py"),
    *(path for wing in WINGS for path in (ROOT / "pymc_kameleon" / wing).rglob("*.py")),
]
README = PAGES[0].read_text("utf-8")


def strings(tree: ast.AST) -> list[str]:
    """String constants of a tree, but for docstrings, with {} for the values of f-strings."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(re.sub(r"%\.?\d*[sdf]", "{}", node.value))
    return found


def says(heading: str, sentences: list[str]) -> bool:
    """Whether one of the sentences has the heading's words in their order."""
    return any(has_in_order(sentence, filter(None, map(str.strip, heading.split("…")))) for sentence in sentences)


def has_in_order(sentence: str, parts: Iterable[str]) -> bool:
    for part in parts:
        _, found, sentence = sentence.partition(part)
        if not found:
            return False
    return True


def headings(page: str) -> list[str]:
    return re.findall(r"^### (.+)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)


def test_every_heading_of_the_faq_is_said_by_the_code():
    sentences = [s for path in MODULES for s in strings(ast.parse(path.read_text("utf-8"))) if len(s) > 30]
    missing = [h for h in headings("faq.md") if not says(h, sentences)]
    assert len(headings("faq.md")) > 25
    assert not missing
    assert not says("the surrogate … has gone for a walk", sentences)  # the control


@pytest.mark.parametrize("module", [advice, surrogate_report])
def test_every_sentence_of_the_steps_is_in_the_faq(module):
    """Sentences of these modules, and functions that return one; the FAQ has a heading for each."""
    for node in ast.parse(Path(module.__file__).read_text("utf-8")).body:
        sentence = isinstance(node, ast.FunctionDef) and "str" in ast.unparse(node.returns)
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            sentence, said = name != "UNITS", [s for s in strings(node) if s.count(" ") > 3]
        elif sentence and not node.name.startswith("_"):
            name = node.name
            said = [module.HIDDEN_NOISE] if "hidden" in name else strings(node)
        if sentence and said:
            assert any(says(h, said) for h in headings("faq.md")), f"docs/faq.md lacks {name}: {said}"


LINKING = [
    *PAGES, *sorted((ROOT / "notebooks").glob("*.ipynb")), *sorted((ROOT / "benchmarks").rglob("*.md")),
    ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md",
]  # fmt: skip


def prose(page: Path) -> str:
    """A page without its code; of a notebook, what is written between its cells."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a code host, and MyST, make of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path, text: str) -> list[str]:
    """Links of ``text`` to files or headings that do not exist; the rest of the web is ``make linkcheck``'s."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = page if not path else page.parent / path
        if not target.startswith("http") and not (file.exists() and (not anchor or anchor in anchors(file))):
            found.append(target)
    return found


@pytest.mark.parametrize("page", LINKING, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    assert broken(page, prose(page)) == []


def test_a_broken_link_would_be_seen():
    page = ROOT / "docs" / "wrap.md"
    text = "[a](nowhere.md), [b](statistics.md#nothing), [c](statistics.md#moves), [d](../README.md), [e](#rules)"
    assert broken(page, text) == ["nowhere.md", "statistics.md#nothing"]


def test_what_docstrings_refer_to_exists():
    """With Sphinx every reference is checked, but the fast tests are run more often."""
    named = set()
    for path in (ROOT / "pymc_kameleon").rglob("*.py"):
        named |= set(re.findall(r":\w+:`~?(pymc_kameleon[\w.]*)`", path.read_text("utf-8")))
    assert len(named) > 25
    assert [name for name in sorted(named) if not exists(name)] == []
    assert not exists("pymc_kameleon.plots.nothing")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(name)
    except ImportError:
        where, _, last = name.rpartition(".")
        return exists(where) and hasattr(pkgutil.resolve_name(where), last)
    return True


def test_every_statistic_has_a_row():
    page = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    steps = [s for s in vars(pk).values() if hasattr(s, "stats_dtypes_shapes")]
    assert len(steps) >= 7
    for name in {name for step in steps for name in step.stats_dtypes_shapes}:
        assert f"`{name}`" in page


def moves() -> set[str]:
    """What samplers and steps call their moves: constants in ``Proposal(...)``, and those that ``move`` is set to."""
    found = set(shear.MOVES)
    for path in [*(ROOT / "pymc_kameleon/samplers").rglob("*.py"), ROOT / "pymc_kameleon/steps/base.py"]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("move", "MOVE")
            made = isinstance(node, ast.Call) and ast.unparse(node.func) == "Proposal"
            within = node.args if made else [node.value] if named else []
            constants = (c for part in within for c in ast.walk(part) if isinstance(c, ast.Constant))
            found |= {c.value for c in constants if isinstance(c.value, str)}
    return found


def test_every_move_has_a_row_and_room():
    page = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    assert {"random_walk", "bent_towards", "global", "arrival", "jump"} <= moves()
    of_no_draw = {"", "probe"}
    assert [m for m in sorted(moves() - of_no_draw) if f'"{m}"' not in page] == []
    assert max(map(len, moves())) <= np.dtype(MOVE[0]).itemsize // 4


def reference() -> str:
    """The pages of the reference, one after another; all are in its table of contents."""
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    index = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert sorted(re.findall(r"^api/(\w+)$", index, re.MULTILINE)) == [page.stem for page in pages]
    assert all(f"(api/{page.name})" in index for page in pages)
    return "".join(page.read_text("utf-8") for page in pages)


def test_every_public_name_is_in_the_reference_once():
    names = re.findall(r"auto\w+:: (?:pymc_kameleon\.)?([\w.]+)", reference())
    assert set(pk.__all__) <= {name.split(".")[0] for name in names}
    assert len(names) == len(set(names)) > 10


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_of_the_pages_names_what_exists(page):
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pk":
                assert hasattr(pk, node.attr), node.attr


PROGRAMS = [
    pytest.param(code, printed, id=f"{page.stem} {k}")
    for page in PAGES
    for k, (code, printed) in enumerate(
        re.findall(r"```python\n(import(?:(?!```).)*)```\n\n```\n( +mean .*?)```", page.read_text("utf-8"), re.DOTALL)
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "printed"), PROGRAMS)
def test_a_program_prints_what_its_page_says(code, printed):
    rows = {r.split()[0]: [float(v) for v in r.split()[1:]] for r in printed.splitlines()[1:]}
    space = {}
    exec(compile(code, "page", "exec"), space)
    found = az.summary(space["idata"], round_to=4)
    assert len(rows) >= 2
    for name, (mean, sd, ess, _) in rows.items():
        assert found.r_hat[name] < 1.02
        assert abs(found["mean"][name] - mean) < 4.5 * sd * np.sqrt(1 / ess + 1 / found.ess_bulk[name])


def test_the_pages_ask_solvers_whether_they_succeeded():
    examples = [b for page in PAGES for b in blocks(page) if "solve_ivp(" in b]
    assert len(examples) > 1
    assert all(".success else" in b for b in examples)


@pytest.mark.slow
def test_the_readmes_noisy_example_runs():
    space = {"np": np, "pk": pk, "pm": __import__("pymc")}
    exec(compile(blocks(PAGES[0])[1], "README.md", "exec"), space)
    assert abs(float(space["idata"]["posterior"]["mu"].mean()) - 1.3) < 0.3


def test_modules_that_the_reference_names_have_their_place_in_it():
    """What a docstring on the site calls a module is a link to the page of the algorithms, or to the reference."""
    pages = (ROOT / "docs" / "algorithms.md").read_text("utf-8") + reference()
    shown = re.findall(r"automodule:: (\S+)", pages)
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in shown]
    files += [ROOT / "pymc_kameleon" / "steps" / name for name in ("methods.py", "base.py")]
    named = set()
    for path in files:
        if path.exists():
            named |= set(re.findall(r":mod:`(pymc_kameleon[\w.]*)`", path.read_text("utf-8")))
    assert len(named) > 8
    assert named - {"pymc_kameleon.steps"} <= set(shown)


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_stored_with_their_outputs(path):
    """What a code host shows: what the reader will be able to do, what came out, and when not to use it."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert "You will be able to" in "".join(cells[0]["source"])
    assert "When not to use" in "".join(cells[-1]["source"])
    code = [c for c in cells if c["cell_type"] == "code"]
    ran = [c["execution_count"] for c in code]
    assert ran == sorted(n for n in ran if n)  # from top to bottom
    outputs = [output for c in code for output in c["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert path.stat().st_size < 700_000


def test_there_is_a_notebook_for_each_problem():
    assert len(NOTEBOOKS) == 11
    page = (ROOT / "docs" / "tutorials.md").read_text("utf-8")
    assert [path.name for path in NOTEBOOKS if path.name not in page] == []


def missing_tests(text: str) -> list[str]:
    """Of the tests that a page names as ``folder/test_x.py::test_y``, those that there are not."""
    found = []
    for path, name in re.findall(r"`(\w+/test_\w+\.py)::(\w+)`", text):
        file = ROOT / "tests" / path
        tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            found.append(f"{path}::{name}")
    return found


def test_ways_to_run_are_held_by_tests_that_there_are():
    text = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    table = text[text.index("`pm.sample` or `pk.sample`?") :]
    rows = re.findall(r"^\| .*? \| .*? \| .*? \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) > 15
    assert all("::test_" in row for row in rows[1:])
    assert missing_tests(text) == []
    assert missing_tests("`public/test_sample.py::test_gone`, `public/test_gone.py::test_x`") != []  # the control
