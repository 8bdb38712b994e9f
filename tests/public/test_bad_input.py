"""Every row of the table of bad input, and that docs/bad_input.md is made from it."""

import pytest

from tests.public.bad_input import PAGE, SECTIONS, page

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


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text("utf-8") == page()
    assert len(ROWS) >= 80
    assert len({row.given for row in ROWS}) == len(ROWS)
