"""Every row of the table of faults, and that docs/faults.md is made from it."""

import pytest

from tests.public.faults import PAGE, ROWS, page

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.whole
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] if row.slow else [], id=row.fault) for row in ROWS]
)
def test_what_is_seen(row, tmp_path):
    row.check(tmp_path)


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text("utf-8") == page()
