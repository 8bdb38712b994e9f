"""The figures that README, docs and notebooks quote are those of benchmarks/results."""

import pytest

from benchmarks import quoted, quoted_figures


@pytest.mark.parametrize("page", sorted({quote.page for quote in quoted.QUOTES}))
def test_a_page_quotes_what_the_results_say(page):
    text = (quoted.ROOT / page).read_text("utf-8")
    for quote in quoted.QUOTES:
        if quote.page == page:
            assert quoted.brought_up_to_date(text, quote) == text, "python -m benchmarks.quoted mends it"


def test_a_wrong_figure_would_be_seen_and_mended():
    quote = quoted.Quote("a page", "an sd of {} for {} seeds, and {}.", lambda: ["1.34", "five", "0.02"])
    right = "It has an sd of 1.34\nfor five seeds, and 0.02. More: 3.\n"
    assert quoted.brought_up_to_date(right, quote) == right
    assert quoted.brought_up_to_date(right.replace("1.34", "1.4").replace("0.02", "1"), quote) == right


@pytest.mark.parametrize("text", ["an sd of 1.34 from five seeds", "an sd of 1.34 for, an sd of 1.3 for"])
def test_a_sentence_that_is_not_there_once_is_named(text):
    quote = quoted.Quote("a page", "an sd of {} for", lambda: ["1.34"])
    with pytest.raises(LookupError, match=r"a page has \d sentences 'an sd of \{\} for'"):
        quoted.brought_up_to_date(text, quote)


@pytest.mark.parametrize("quote", quoted.QUOTES, ids=lambda quote: quote.sentence[:30])
def test_no_sentence_begins_with_a_figure(quote):
    """It would take all that is before it."""
    assert not quote.sentence.startswith("{}")


def test_a_result_that_lacks_a_row_is_named():
    with pytest.raises(LookupError, match=r"results/verdicts.md has no row some"):
        quoted_figures.row("verdicts", "some")


def test_the_textbook_models_have_no_silently_wrong_run():
    """The README says "and none": should that change, more than a word has to."""
    assert quoted_figures.textbook()[2] == "none"
