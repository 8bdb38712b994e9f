"""Which code made a result. The last line of every page says version, code, commit, machine and date.

*Code* is a hash of the package without comments and docstrings, and without the modules that only speak of draws (but
for what is said, `verdicts`): a change of words makes no result stale. Three tiers:

headline
    What README and docs quote. Made anew, whole, for a release; stale if it is of other code than the present.
papers
    The papers' experiments, pinned to the commit that made them. Never called stale.
laboratory
    All others: ablations, costs, single mechanisms. Dated.

    python -m benchmarks.provenance            # what of the headline tier is stale, how to make it anew, the minutes
    python -m benchmarks.provenance --check    # the same, and exit status 1 if something is: before a release
    python -m benchmarks.provenance --make     # make it anew (``make evidence``); interrupted, it goes on
"""

import argparse
import datetime
import hashlib
import logging
import os
import platform
import re
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import version
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.basics import versions

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pymc_kameleon"
FOLDER = Path(__file__).parent / "results"
SEVERAL = "of several versions"
# They speak of draws, and draw none; and the result that is of what they say.
SPEAK = (
    "plots/", "steps/told/", "verdict/directions.py", "verdict/doubts.py", "verdict/of_steps.py", "verdict/report.py",
    "verdict/to_try.py",
)  # fmt: skip
SAID = ("verdicts",)


class Result(NamedTuple):
    """How a result is made: ``command`` follows ``python -m benchmarks.``; ``minutes`` of processor time, about."""

    tier: str
    minutes: int
    command: str


TIERS: dict[str, dict[str, int]] = {  # minutes
    "headline": {
        "cold_start": 50, "discovery": 12, "few_evaluations": 47, "hierarchical": 80, "noisy_likelihood": 3,
        "textbook": 30, "verdicts": 17,
    },
    "papers": {
        "corrections": 1, "glass": 9, "gp_estimator": 2, "hamiltonian_abc": 5, "history_length": 1, "paper_banana": 5,
        "paper_convergence": 8, "paper_features": 12, "paper_glass_curves": 10, "paper_kameleon_targets": 20,
        "paper_pictures": 3, "paper_trajectories": 10, "paper_twisted": 3,
    },
    "laboratory": {
        "break_even": 10, "calibration": 40, "control_variates": 30, "cost": 10, "priors": 15,
        "curved": 60, "kamiltonian_dimension": 20, "modes": 60, "parametrization": 60, "particle_filter": 1,
        "regions": 30, "tuned_work": 25,
    },
}  # fmt: skip
RESULTS = {
    name: Result(tier, minutes, name.replace("paper_", "papers."))
    for tier, of in TIERS.items()
    for name, minutes in of.items()
}


def _git(*arguments: str) -> str:
    """What git says, in the checkout; "" where there is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def without_words(text: str) -> str:
    """Lines of code: comments, docstrings and empty lines left out."""
    lines = text.splitlines()
    tokens = [t for t in tokenize.generate_tokens(StringIO(text).readline) if t.type != tokenize.NL]
    begins, words = True, []
    for token, then in pairwise(tokens):
        if token.type == tokenize.COMMENT or (
            begins and token.type == tokenize.STRING and then.type == tokenize.NEWLINE
        ):
            words.append(token)
        if token.type != tokenize.COMMENT:
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in reversed(words):
        (first, start), (last, end) = token.start, token.end
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


@cache
def code(name: str = "") -> str:
    """The present package's, as far as the result ``name`` hangs on it: names and contents of modules and data."""
    digest = hashlib.sha1()
    for path in sorted(p for p in PACKAGE.rglob("*.*") if p.suffix in (".py", ".csv")):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith(SPEAK) and name not in SAID:
            continue
        text = path.read_text("utf-8")
        text = without_words(text) if path.suffix == ".py" else text
        digest.update(f"{module}\n{text}\n".encode())
    return digest.hexdigest()[:12]


class Made(NamedTuple):
    """With which packages, on what, when."""

    versions: str
    machine: str
    date: str


def now() -> Made:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Made(versions(), machine, datetime.date.today().isoformat())


def stamp(name: str, codes: Iterable[str] = (), made: Made | None = None) -> str:
    """The last line of the result ``name``; ``codes``: those of its cells, by default the present one."""
    if name not in RESULTS:
        raise ValueError(f"there is no result {name!r} in {__name__}.RESULTS: add how it is made")
    made, found = made or now(), set(codes) or {code(name)}
    which = found.pop() if len(found) == 1 else SEVERAL
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    return (
        f"Made with pymc_kameleon {version('pymc-kameleon')} (code {which}; page of commit {commit}) by "
        f"`python -m benchmarks.{RESULTS[name].command}` on {made.date}; {made.machine}; {made.versions}."
    )


def write(name: str, text: str, codes: Iterable[str] = (), made: Made | None = None) -> None:
    FOLDER.mkdir(exist_ok=True)
    page = f"{text.rstrip()}\n\n{stamp(name, codes, made)}\n"
    (FOLDER / f"{name}.md").write_text(page, encoding="utf-8")


def command(name: str, doc: str | None, make: Callable[[argparse.Namespace], str], **options: int) -> None:
    """The command of a page that is made in one go: ``make`` it of the options, numbers; print and write it."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    for option, value in options.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=value, help=f"{value}")
    parser.add_argument("--fresh", action="store_true", help="it always is")
    given = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*object mode.*|.*could not link to a BLAS.*")
    text = make(given)
    print(text)
    write(name, text)


def code_of(name: str) -> str:
    """The code that made a page, as its last line says; "" if there is no page."""
    path = FOLDER / f"{name}.md"
    if not path.exists():
        return ""
    last = path.read_text("utf-8").rstrip().rsplit("\n", 1)[-1]
    found = re.match(r"Made with pymc_kameleon \S+ \(code (.+?); ", last)
    if found is None:
        raise ValueError(f"results/{name}.md has no stamp: let its benchmark write it with provenance.write")
    return found[1]


def stale() -> list[str]:
    """Headline results of other code than the present, or not there."""
    return [n for n, r in RESULTS.items() if r.tier == "headline" and code_of(n) != code(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit status 1 if something is stale")
    parser.add_argument("--make", action="store_true", help="make it anew")
    parser.add_argument("--processes", type=int, default=1, help="of a result that has cells; 1")
    options = parser.parse_args()
    for name in stale():
        command = [sys.executable, "-m", f"benchmarks.{RESULTS[name].command}", "--fresh"]
        if (FOLDER / f"{name}.json").exists():
            command += ["--processes", str(options.processes)]
        print(f"{name}: code {code_of(name) or 'none'}; python {' '.join(command[1:])}", flush=True)
        if options.make:
            before = os.times()
            subprocess.run(command, check=True)
            spent = os.times()
            worked = spent.children_user + spent.children_system - before.children_user - before.children_system
            print(f"{name}: {worked / 60:.0f} processor minutes, in {(spent.elapsed - before.elapsed) / 60:.0f}")
    code.cache_clear()
    left = stale()
    minutes = sum(RESULTS[name].minutes for name in left)
    print(f"headline: {len(left)} stale; about {minutes} minutes to make anew; code {code()}")
    sys.exit(bool(options.check and left))


if __name__ == "__main__":
    main()
