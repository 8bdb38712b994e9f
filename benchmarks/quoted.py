"""What README, docs and notebooks quote of results, sentence by sentence, and where each figure stands in the store.

The pages are plain Markdown. A sentence there, with ``{}`` in place of its figures, is a row here. A test in
``tests/text`` holds the pages to the rows; the command writes the results' figures into the pages. A sentence that
somebody has changed is not found any more, and is named: change its row, too. Words that hang on figures ("none",
"eight") are figures. The papers' own page and the corrections have bold figures, which ``tests/bench`` holds.

    python -m benchmarks.quoted            # bring the pages up to date; ``make evidence`` ends with it
    python -m benchmarks.quoted --check    # say what differs, and exit status 1 if something does
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import quoted_figures as the

ROOT = Path(__file__).parents[1]
FIGURE = r"((?:[^|\n\"]|\n(?!\n))+?)"  # it may go over the end of a line


class Quote(NamedTuple):
    """``sentence`` of ``page``, with ``{}`` for each of the ``figures`` that a result has."""

    page: str
    sentence: str
    figures: Callable[[], Sequence[Any]]


STEPS = {
    "`KamiltonianStep`": "Kamiltonian", "`FastKameleonStep`": "FastKameleon", "`KameleonStep`": "Kameleon",
    "`FastKameleonStep(screen=0)`": "FastKameleon, screen=0", "`GaussianMixtureStep`": "GaussianMixture",
    "`AdaptiveMetropolisStep`": "AdaptiveMetropolis",
}  # fmt: skip
OWN_WORK = {
    "KamiltonianStep": "on what it learned | {}; some milliseconds",
    "KameleonStep": "near the current point | {}; grows",
    "FastKameleonStep": "for one evaluation | {} | Kotlicki",
    "GaussianMixtureStep": "serves three moves | {} | not from",
    "AdaptiveMetropolisStep": "for all, learned | {} | Haario",
}
MODELS = {
    "eight schools, `FastKameleonStep`, 3,000 evaluations a chain": ("FastKameleonStep", "eight schools", "3,000"),
    "varying-intercept logistic, the same": ("FastKameleonStep", "logistic", "3,000"),
    "eight groups that the data know well, the same": ("FastKameleonStep", "rich, normal", "3,000"),
    "eight schools, `AdaptiveMetropolisStep`, 10,000": ("AdaptiveMetropolisStep", "eight schools", "10,000"),
    "PK of 6 patients, the same": ("AdaptiveMetropolisStep", "PK, 6 patients", "10,000"),
}
PARTICLES = {
    "100": "fixed, 100", "300": "fixed, 300", "tuned from 10": "tuned from 10", "tuned from 100": "tuned from 100",
    "tuned from 2,000": "tuned from 2000",
}  # fmt: skip
SENTENCES: dict[str, dict[str, Callable[[], Sequence[Any]]]] = {  # of every page, and what makes their figures
    "README.md": {
        "`KamiltonianStep` has {} times the effective draws of PyMC's best gradient-free step on the {} targets":
            the.best,
        "On {} [textbook models](benchmarks/results/textbook.md), {} have at least 300 effective draws per 1000 "
        "evaluations and {} is silently wrong.": the.textbook,
        "(docs/choosing.md#what-each-does), {} µs an evaluation, its tuning counted, where "
        "`pm.DEMetropolisZ` takes {}.": partial(the.microseconds, "KamiltonianStep", "pm.DEMetropolisZ"),
        "[an sd of {}](benchmarks/results/noisy_likelihood.md)": the.too_wide,
        "A region with {} % of [one posterior](benchmarks/results/glass.md) came out as {} % and as {} % in short runs "
        "of two steps, with R-hat {} and {}.": the.rare_corner,
    },
    "docs/did_it_work.md": {
        "On UCI Glass a region with {} % of the mass came out as {} % and as {} % in short runs of two steps, with "
        "R-hat {} and {} ([table]": the.rare_corner,
        "In {} runs of known truth it was said of {} and true of {}; of {} good runs {} had it. Where intervals were "
        "said to hold, they held in {} of {} ([table]": the.verdicts,
    },
    "docs/choosing.md": {
        "evaluates twice in a draw, takes {} an evaluation.": partial(the.microseconds, "pm.DEMetropolisZ"),
        **{words: partial(the.microseconds, step) for step, words in OWN_WORK.items()},
        **{f"| {step} | {{}} | {{}} | {{}} | {{}} |": partial(the.ratios, name) for step, name in STEPS.items()},
        "`FastKameleonStep` {} times the best of PyMC's steps and on none below {}, `FastKameleonStep(screen=0)` {} "
        "and {}, `GaussianMixtureStep` {} and {}.": the.curved,
    },
    "docs/benchmarks.md": {"(R-hat below 1.05 in every seed) on {} of the twelve targets": the.converged},
    "docs/expensive.md": {
        "16 chains, {} seeds each: {} to {} effective draws and R-hat below 1.02 with every seed on {} of the {} "
        "targets of `cold_start`, with some seeds on {}; with none on {} ([table]": the.together,
        "chains of `pm.sample` have {} effective draws per 1000 evaluations for eight schools, {} for eight cultures "
        "behind an ODE, {} and {} for six and twelve patients with a solver each ([table]": the.short,
        "Sixteen workers are {} times as fast as one where an evaluation takes half a second, {} times (2,000 "
        "evaluations) or {} times (5,000) where it takes 50 milliseconds": the.workers,
        "of {} runs with one pool {} had that fifth wrong by a factor of two, of which {} were refused; of {} with two "
        "pools {}, of which {} were refused ([table]": the.pools,
        "from 2,000 evaluations {} by three seeds ({}), without {} ({}); from 4,000 {} ({}).": the.apart,
        "All of that, climbs included, costs {} to {} % of the evaluations": the.looking,
    },
    "docs/hierarchical.md": {
        "[{} and {} effective draws](../benchmarks/results/cold_start.md) per 1000 evaluations": the.scales,
        "where those are clearly better: {} effective draws per 1000 in the median of the seeds at 3,000 evaluations a "
        "chain, {} at 1,000 ([table](../benchmarks/results/hierarchical.md)). A latent Gaussian process of 20 sites "
        "has {} and {}. Neal's funnel as one bare Potential, where no graph says what it is, is learned whole: {} at "
        "1,000 and {} at 3,000 from `pm.sample`'s starts, and {} at 300.": the.series,
        **{f"| {model} | {{}} | {{}} |": partial(the.coordinates, *which) for model, which in MODELS.items()},
    },
    "docs/noisy.md": {
        **{f"| {sd} | {{}} | {{}} | 1 |": partial(the.noise, sd) for sd in ("0.5", "1.0", "1.5")},
        "such a step is biased too ({} instead of 1 in the same table)": the.beside,
        **{f"| {given} | {{}} | {{}} |": partial(the.tuned, name) for given, name in PARTICLES.items()},
        "has variances {}, {} and {} with 50, 200 and 800 particles": the.filters,
        "the log estimate has sd {} at correlation 0 and {} at 0.99 unsorted, {} at 0.99 sorted (same table)":
            the.changes,
        "20 correlated particles bring {} effective draws per 1000 estimates and 50 fresh ones {}, both with":
            the.volatility,
        "on UCI Glass it has {} effective draws per 1000 estimates, `KameleonStep()` {} and `pm.DEMetropolisZ`, which "
        "samples another posterior, {} ([table]": the.on_glass,
    },
    "notebooks/05_glass.ipynb": {
        "both long have {} % of the mass under the paper's prior, and short runs of two steps find {} % and {} %, with "
        "R-hat {} and {} (same table)": the.rare_corner,
    },
    "notebooks/07_how_kamiltonian_works.ipynb": {"\"{} per 1000 here ([the paper's figure 3]": the.hamiltonian},
}  # fmt: skip
QUOTES = [Quote(page, *pair) for page, sentences in SENTENCES.items() for pair in sentences.items()]


def pattern(sentence: str) -> re.Pattern[str]:
    """What finds a sentence, however its lines are broken."""
    parts = [re.sub(r"(?:\\ |\\\n|\s)+", r"\\s+", re.escape(part)) for part in sentence.split("{}")]
    return re.compile(FIGURE.join(parts) + r"(?!\d)")


def brought_up_to_date(text: str, quote: Quote) -> str:
    """The page with the results' figures in this sentence."""
    found = list(pattern(quote.sentence).finditer(text))
    if len(found) != 1:
        raise LookupError(f"{quote.page} has {len(found)} sentences '{quote.sentence}': follow it in {__name__}.QUOTES")
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
