"""No result is older than its code without saying so; nothing here depends on what lies outside the checkout."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import provenance

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", provenance.made())
def test_a_result_is_of_the_present_code_or_says_that_it_is_not(name):
    found = provenance.status(name)
    assert found.says_so or not found.changed, (
        f"stale, and does not say so:\n{provenance.describe(name, found)}\n"
        "Make it anew, or let it say so: python -m benchmarks.provenance --mark"
    )


def test_every_result_is_known():
    assert {path.stem for path in provenance.FOLDER.glob("*.md")} == set(provenance.made())
    assert len(provenance.made()) > 15


def test_every_result_has_one_command_that_the_readme_lists():
    readme = (provenance.FOLDER.parent / "README.md").read_text("utf-8")
    for result in provenance.RESULTS.values():
        module = result.command.split()[0]
        assert f"`python -m benchmarks.{module}`" in readme
        source = provenance._source(f"benchmarks.{module}", provenance.read)
        assert "provenance.write(" in source or module in (
            "textbook",
            "hierarchical",
            "curved",
            "calibration",
            "peers",
            "few_evaluations",
        )  # packages


def digest_of(source):
    return provenance.normalised(ast.parse(source))


def test_a_digest_is_of_the_program_not_of_its_text():
    source = 'def f(x):\n    """Twice."""\n    return 2 * x  # two\n'
    assert digest_of(source) == digest_of("def f(x):\n    return (2\n      * x)\n")
    assert digest_of(source) != digest_of("def f(x):\n    return 3 * x\n")
    assert digest_of("f'{a} b'") != digest_of("f'{a} c'")


def test_digests_follow_imports():
    """A change three imports away, a lazy import of a benchmark's, but not a package function's own."""
    files = {
        "benchmarks/b.py": "def main():\n    from pymc_kameleon import one\n",
        "pymc_kameleon/one.py": "from pymc_kameleon.two import f\ndef g():\n    import pymc_kameleon.four\n",
        "pymc_kameleon/two.py": "import numpy\nfrom pymc_kameleon import three as t\ndef f(): return t.x\n",
        "pymc_kameleon/three.py": "x = 1\n",
        "pymc_kameleon/four.py": "x = 1\n",
    }
    before = provenance.digests(["benchmarks.b"], dict(files).get)
    assert list(before) == [
        "benchmarks.b",
        *(f"pymc_kameleon.{n}" for n in ("one", "three", "two")),
    ]
    files["pymc_kameleon/three.py"] = "x = 2\n"
    after = provenance.digests(["benchmarks.b"], dict(files).get)
    assert [m for m in before if before[m] != after[m]] == ["pymc_kameleon.three"]


def test_a_result_becomes_stale_and_says_so(tmp_path):
    path = tmp_path / "glass.md"
    provenance.write(path, "# Glass\n\nA table.\n")
    text = path.read_text()
    fresh = provenance.status("glass", text)
    assert fresh.changed == ()
    assert not fresh.says_so
    assert fresh.commit != "unknown"
    other = re.sub(
        r"pymc_kameleon\.samplers\.seam=\w{8}", "pymc_kameleon.samplers.seam=00000000", text
    )
    stale = provenance.status("glass", other)
    assert stale.changed == ("pymc_kameleon.samplers.seam",)
    assert "python -m benchmarks.glass" in provenance.describe("glass", stale)
    sentence = provenance.MARK.format(commit=stale.commit)
    assert provenance.status("glass", provenance.marked(other, sentence)).says_so
    provenance.write(path, "# Glass\n\nA table.\n", stale_cells="3 of 4 cells (Kameleon) were")
    assert "3 of 4 cells (Kameleon) were made before" in path.read_text().split("\n")[2]
    assert provenance.stale_cells([("a", "1", "1")]) == ""
    assert (
        provenance.stale_cells([("a", "1", "2"), ("b", None, "2"), ("c", "3", "3")])
        == "2 of 3 cells (a, b) were"
    )


def test_one_way_to_import_and_to_run_benchmarks():
    siblings = {path.stem for path in provenance.FOLDER.parent.glob("*.py")}
    for path in provenance.FOLDER.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong = {n.split(".")[0] for n in names} & siblings
            assert not wrong, f"{path.name}: import {wrong} from benchmarks"
        assert "python benchmarks/" not in path.read_text("utf-8")


# --- a clone anywhere ------------------------------------------------------------------------------

OUTSIDE = re.compile(
    r"(?<![\w.:/])/(?:work|home|root|Users|mnt|opt)/\w"  # a path of one machine
    r"|parents\[[2-9]\]|\.parent\.parent\.parent|\.\./\.\./\.\."  # above the checkout
)


def tracked():
    """The checkout's text files, as git has them."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in names.split("\0"):
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".toml", ".ipynb", ".csv", ".json", ".cff", ".yaml"}
            or path.name == "Makefile"
        ):
            yield name, path.read_text("utf-8")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_nothing_points_outside_the_checkout():
    this = Path(__file__).name
    wrong = [
        f"{name}: {match[0]}"
        for name, text in tracked()
        for match in OUTSIDE.finditer(text)
        if not name.endswith(this)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    ["Path(__file__).parents[2] / 'x'", "open('/home/me/data')", "see ../../../data", '"/work/x"'],
)
def test_the_rule_would_notice(text):
    assert OUTSIDE.search(text)
    assert not OUTSIDE.search(
        "https://a.org/home/me, Path(__file__).parents[1], ../x, benchmarks/work/x"
    )
