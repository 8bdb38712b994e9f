"""Each figure of the papers has its row, and each row says what is in the stored result, made by code that there is.

Bold figures, and those of the corrections' page, are in the results that their rows link to.
"""

import json
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from benchmarks import provenance
from benchmarks.cells import Cell

ROOT = Path(__file__).parents[1].parent
PAGE, CORRECTIONS = ((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("papers", "corrections"))
VERDICTS = ("reproduced", "in part", "not reproduced", "not comparable")
FIGURES = {
    "KAMH": "1 2 3 4 5 6 7",
    "F-KAMH": "2.1 5.1 5.2 5.3 5.4 5.5 5.6 5.7 A.1 A.2 A.3 A.4 A.5",
    "KMC": "1 2 3 4",
    "The thesis": "2.1 2.2 2.3 2.4 2.5 2.6 3.1 3.2 3.3 3.4 3.5 4.1 5.1 6.1 6.2 6.3 6.4 "
    "table-2.1 table-2.2 table-5.1 table-6.1",
}


def rows(section):
    """Its rows: figure, script, runs, verdict, what came out."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [[figure, script, runs, verdict, out] for figure, verdict, out, runs, script in found[2:]]


ROWS = [pytest.param(row, id=f"{section} {row[0][:40]}") for section in FIGURES for row in rows(section)]


def results(row):
    return re.findall(r"\]\(\.\./benchmarks/results/(\w+)\.md\)", row[-1])


def page(result):
    return (provenance.FOLDER / f"{result}.md").read_text("utf-8")


@cache
def store(result):
    """Its cells; empty where the page is all that is stored."""
    path = provenance.FOLDER / f"{result}.json"
    return json.loads(path.read_text("utf-8"))["cells"] if path.exists() else {}


@pytest.mark.parametrize(("text", "least"), [(CORRECTIONS, 30), (PAGE, 20)], ids=["corrections", "papers"])
def test_every_bold_figure_is_in_its_result(text, least):
    found = 0
    for row in (line for line in text.splitlines() if line.startswith("|")):
        linked = "\n".join(map(page, re.findall(r"\]\(\.\./benchmarks/results/(\w+)\.md\)", row)))
        cells, figures = set(re.findall(r"[-+]?\d+(?:\.\d+)?(?:e-?\d+)?", linked)), re.findall(r"\*\*([^*]+)\*\*", row)
        assert [figure for figure in figures if figure not in cells] == [], row[:80]
        found += len(figures)
        if row.strip("|").split("|")[-1].strip().startswith("not measured"):
            assert not figures
    assert found > least


@pytest.mark.parametrize("section", FIGURES)
def test_every_figure_and_table_has_its_row(section):
    named = set()
    for figure, *_ in rows(section):
        for label in figure.split(":")[0].split(", "):
            named.add(label.replace("table ", "table-" if section == "The thesis" else ""))
    assert [f for f in FIGURES[section].split() if f not in named] == []


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_script_runs_a_verdict_and_what_came_out(row):
    figure, script, runs, verdict, out = row
    assert verdict in VERDICTS
    for name in re.findall(r"`([a-z_.0-9]+)`", script):
        assert (ROOT / "benchmarks" / f"{name.replace('.', '/')}.py").exists()
    assert runs
    assert (script == "–") == (not results(row))
    assert set(results(row)) <= set(provenance.TIERS["papers"])
    assert ("**" in out) == bool(results(row))
    assert out.endswith((".", ")"))
    assert ":" in figure
    assert is_smaller(runs) == ("Below its size" in out)


def ours(runs):
    """The numbers of what was run; in brackets stand the paper's."""
    return [int(n.replace(",", "")) for n in re.findall(r"(?<![\w.])\d[\d,]*", runs.split("(")[0])]


def not_in_the_store(runs, figure, cells):
    """Numbers of ``runs`` that are neither how many chains nor how many draws the cells of this figure have."""
    keys = [Cell.of(key) for key in cells]
    problems = [p for p in {k.problem for k in keys} if p in figure]
    keys = [k for k in keys if k.problem in problems or not problems]
    chains = Counter((k.sampler, k.problem) for k in keys)
    return [n for n in ours(runs) if n not in {*chains.values(), *(k.budget for k in keys)}]


def not_on_the_page(runs, text):
    """Numbers of ``runs`` that a result has not, and of chains, draws, trials, fits those that it has of else."""
    text, made = " ".join(text.split()), runs.split("(")[0]
    said = set(re.findall(r"(?<![\w.])\d+", text.replace(",", "")))
    counts = re.findall(r"(?<![\w.])\d[\d,]* (?:exact )?(?:chains|draws|trials|fits)", made)
    return [n for n in ours(runs) if str(n) not in said] + [c for c in counts if not re.search(rf"(?<![\d,]){c}", text)]


@pytest.mark.parametrize("row", ROWS)
def test_runs_are_those_of_the_stored_result(row):
    figure, _, runs, _, _ = row
    for result in results(row):
        cells = store(result)
        held = cells and "draws," not in runs
        assert (not_in_the_store(runs, figure, cells) if held else not_on_the_page(runs, page(result))) == []


def test_runs_that_were_not_made_would_be_seen():
    cells = {Cell("a", "p", 100, seed).key: {} for seed in range(3)} | {Cell("a", "q", 200, 0).key: {}}
    assert not_in_the_store("3 chains of 100 (30)", "5: p", cells) == []
    assert not_in_the_store("4 chains of 100 (30)", "5: p", cells) == [4]
    assert not_in_the_store("3 chains of 200 (30)", "5: p", cells) == [200]
    text = "An 8-dimensional target, 15\nchains of 2,000 draws"
    assert not_on_the_page("15 chains of 2,000 (30)", text) == []
    assert not_on_the_page("8 chains of 2,000 (30)", text) == ["8 chains"]
    assert not_on_the_page("5 chains of 300 (30)", text) == [5, 300, "5 chains"]


def is_smaller(runs):
    """Whether fewer chains, trials or fits were run than the text has, in brackets."""
    made, texts = re.findall(r"(\d+) (?:chains|trials|fits)", runs.split("(")[0]), re.findall(r"\((\d+)", runs)
    return bool(made and texts) and min(map(int, made)) < int(texts[0])


def test_what_is_smaller_would_be_seen():
    assert is_smaller("3 chains of 6,200 (30 of 100,000)")
    assert is_smaller("100 trials over 10 fits (100)")
    assert not any(map(is_smaller, ("20 chains of 40,000 (20)", "10 chains of 60,000 (one)", "4 chains (–)", "–")))


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def history():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no checkout with its history")


@pytest.mark.parametrize("result", sorted({result for row in ROWS for result in results(row.values[0])}))
def test_the_code_of_a_result_exists(result, history):
    """Commit of the page, code of every cell; a plus would be code that is in no commit."""
    commit = re.search(r"page of commit (\w+)\)", page(result))[1]
    codes = {cell["code"] for cell in store(result).values()} or {provenance.code_of(result)}
    assert [c for c in (commit, *codes) if git("cat-file", "-e", c).returncode] == []
    assert git("cat-file", "-e", "0123456789ab").returncode  # the control
