"""What README, docs and notebooks quote of results, sentence by sentence, and where each figure stands in the store.

The pages are plain Markdown. A sentence there, with ``{}`` in place of its figures, is a row of ``quoted.toml``. A test
in ``tests/text`` holds the pages to the rows; the command writes the results' figures into the pages. A sentence that
somebody has changed is not found any more, and is named: change its row, too. Words that hang on figures ("none",
"eight") are figures. The papers' own page and the corrections have bold figures, which ``tests/bench`` holds.

    python -m benchmarks.quoted            # bring the pages up to date; ``make evidence`` ends with it
    python -m benchmarks.quoted --check    # say what differs, and exit status 1 if something does
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import quoted_figures

ROOT = Path(__file__).parents[1]
FIGURE = r"((?:[^|\n\"]|\n(?!\n))+?)"  # it may go over the end of a line


class Quote(NamedTuple):
    """``sentence`` of ``page``, with ``{}`` for each of the ``figures`` that a result has."""

    page: str
    sentence: str
    figures: Callable[[], Sequence[Any]]


STORED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
QUOTES = [
    Quote(page, row["sentence"], partial(getattr(quoted_figures, row["figures"][0]), *row["figures"][1:]))
    for page, rows in STORED.items()
    for row in rows
]


def pattern(sentence: str) -> re.Pattern[str]:
    """What finds a sentence, however its lines are broken."""
    parts = [re.sub(r"(?:\\ |\\\n|\s)+", r"\\s+", re.escape(part)) for part in sentence.split("{}")]
    return re.compile(FIGURE.join(parts) + r"(?!\d)")


def brought_up_to_date(text: str, quote: Quote) -> str:
    """The page with the results' figures in this sentence."""
    found = list(pattern(quote.sentence).finditer(text))
    if len(found) != 1:
        raise LookupError(f"{quote.page} has {len(found)} sentences '{quote.sentence}': follow it in quoted.toml")
    figures = [str(figure) for figure in quote.figures()]
    for k in reversed(range(len(figures))):
        start, end = found[0].span(k + 1)
        if text[start:end].split() != figures[k].split():
            text = text[:start] + figures[k] + text[end:]
    return text


def pages() -> dict[str, tuple[str, str]]:
    """Every page that quotes: as it is, and as it should be."""
    found: dict[str, tuple[str, str]] = {}
    for quote in QUOTES:
        old, new = found.get(quote.page) or ((ROOT / quote.page).read_text("utf-8"),) * 2
        found[quote.page] = old, brought_up_to_date(new, quote)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit status 1 if a page differs; nothing is written")
    check = parser.parse_args().check
    differ = {name: new for name, (old, new) in pages().items() if old != new}
    for name, new in differ.items():
        print(f"{name}: {'differs from the results' if check else 'brought up to date'}")
        if not check:
            (ROOT / name).write_text(new, "utf-8")
    sys.exit(bool(check and differ))


if __name__ == "__main__":
    main()
