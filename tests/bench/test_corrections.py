"""The figures on the pages of corrections and of the papers' experiments are in the results that their rows link to."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1].parent
PAGES = {"corrections": 30, "papers": 20}  # and least numbers of bold figures


def rows(page):
    lines = (ROOT / "docs" / f"{page}.md").read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith("|")]


def quoted(row):
    """Bold figures of a row, and the text of the results that it links to."""
    links = re.findall(r"\]\(\.\./(benchmarks/results/\w+\.md)\)", row)
    return re.findall(r"\*\*([^*]+)\*\*", row), "\n".join((ROOT / link).read_text("utf-8") for link in links)


@pytest.mark.parametrize("page", PAGES)
def test_every_bold_figure_is_in_its_result(page):
    found = 0
    for row in rows(page):
        figures, text = quoted(row)
        cells = set(re.findall(r"[-+]?\d+(?:\.\d+)?(?:e-?\d+)?", text))
        for figure in figures:
            assert figure in cells, (figure, row[:80])
            found += 1
    assert found > PAGES[page]


def test_what_has_no_figure_says_so():
    for row in rows("corrections"):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if cells[-1].startswith("not measured"):
            assert "**" not in cells[-1]
