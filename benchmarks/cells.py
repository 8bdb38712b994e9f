"""A cell is a sampler on a problem, at a budget, with a seed. Here cells are run, stored and shown for all.

A benchmark is a name, ``measure(cell) -> measures`` and ``page(cells) -> Markdown``. Each cell is stored in
results/NAME.json when it is done, one a line, with the code that made it (:mod:`benchmarks.provenance`), and is not run
again unless that is asked for: what is interrupted goes on, and several processes may work side by side.
"""

import argparse
import fcntl
import json
import logging
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

from benchmarks import provenance
from benchmarks.basics import installed
from benchmarks.report import RESULTS


class Cell(NamedTuple):
    """One entry of a store."""

    sampler: str
    problem: str
    budget: int
    seed: int

    @property
    def key(self) -> str:
        return " | ".join(map(str, self))

    @classmethod
    def of(cls, key: str) -> "Cell":
        sampler, problem, budget, seed = key.split(" | ")
        return cls(sampler, problem, int(budget), int(seed))


Measures = dict[str, Any]
Cells = dict[Cell, Measures]


def rounded(value: Any) -> Any:
    """Floats with five significant digits, None where they are not finite, through dictionaries and lists."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None


def read(name: str) -> dict:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {"cells": {}}


def load(name: str) -> Cells:
    return {Cell.of(key): found for key, found in read(name)["cells"].items()}


def save(name: str, cell: Cell, found: Measures) -> None:
    """Add a cell to what is in the store by now."""
    with _locked(name):
        _write(name, read(name)["cells"] | {cell.key: rounded(found)})


@contextmanager
def _locked(name):
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(name, cells):
    about = ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in provenance.now()._asdict().items())
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(cells.items()))
    temporary = RESULTS / f"{name}.{os.getpid()}.tmp"
    temporary.write_text(f'{{{about},\n"cells": {{\n{lines}\n}}}}\n', "utf-8")
    temporary.replace(RESULTS / f"{name}.json")


def made(name: str) -> provenance.Made:
    """With which packages, on what and when the newest cell of a store was made."""
    store = read(name)
    return provenance.Made(*(store[field] for field in provenance.Made._fields))


def truth(name: str, problem: str, make: Callable[[], Measures] | None = None) -> Measures:
    """What is known to be true of a problem, from results/NAME_reference.json; made once, by ``make``."""
    name = f"{name}_reference"
    stored = read(name)["cells"]
    if problem not in stored:
        if make is None:
            raise ValueError(f"results/{name}.json has nothing on {problem!r}: make it first")
        found = make()
        with _locked(name):
            _write(name, read(name)["cells"] | {problem: found})
        return found
    return stored[problem]


class Benchmark(NamedTuple):
    """See the module.

    ``packages``: of samplers that are not ours, by the package whose version makes their cells.
    """

    name: str
    measure: Callable[[Cell], Measures]
    page: Callable[[Cells], str]
    packages: dict[str, str] = {}  # noqa: RUF012

    def code(self, sampler: str) -> str | None:
        """What would make a sampler's cells now; None if its package is not installed."""
        package = self.packages.get(sampler)
        return installed(package) if package else provenance.code(self.name)

    def command(
        self, doc: str | None, samplers: Sequence[str], problems: Sequence[str], budgets: Sequence[int], seeds: int = 1,
        wanted: Callable[[Cell], bool] = lambda cell: True, arguments: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Run what is missing of ``samplers`` by ``problems`` by ``budgets`` by ``seeds``.

        Unless some are chosen on the command line only those that are ``wanted``. Then write the page: of all that is
        stored, or with ``--fresh`` of these cells and what other packages made.
        """
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--samplers", nargs="+", default=samplers, metavar="SAMPLER", help=", ".join(samplers))
        parser.add_argument("--problems", nargs="+", default=problems, metavar="PROBLEM", help=", ".join(problems))
        parser.add_argument("--budgets", nargs="+", type=int, default=budgets, help=", ".join(map(str, budgets)))
        parser.add_argument("--seeds", type=int, default=seeds, help=f"0, ..., seeds - 1; {seeds}")
        parser.add_argument("--processes", type=int, default=1)
        parser.add_argument("--again", action="store_true", help="also what is stored")
        parser.add_argument("--fresh", action="store_true", help="also what other code made; no other in the page")
        parser.add_argument("--table", action="store_true", help="run nothing, only write the page")
        given = parser.parse_args(arguments)
        logging.getLogger("pymc").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")  # that a short chain has not converged is what is measured
        order = product(range(given.seeds), given.budgets, given.problems, given.samplers)
        usual = (given.samplers, given.problems, given.budgets) == (samplers, problems, budgets)
        cells = [Cell(a, p, b, s) for s, b, p, a in order if self.code(a)]
        cells = [cell for cell in cells if not usual or wanted(cell)]
        if not given.table:
            self.run(self._todo(cells, given), given.processes)
        kept = load(self.name)
        if given.fresh:  # of others what there is: their packages need not be installed
            kept = {c: m for c, m in kept.items() if c in cells or c.sampler in self.packages}
        self.write(kept)

    def _todo(self, cells, given) -> list[Cell]:
        todo, stored = cells, load(self.name)
        if not given.again:
            todo = [c for c in cells if c not in stored or (given.fresh and stored[c]["code"] != self.code(c.sampler))]
        print(f"{len(todo)} of {len(cells)} cells to run", flush=True)
        return todo

    def run(self, todo: Iterable[Cell], processes: int = 1) -> None:
        """Run and store cells."""
        jobs = [(self.measure, cell) for cell in todo]
        if processes == 1:
            self._collect(map(_job, jobs))
        else:
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                self._collect(pool.imap_unordered(_job, jobs))

    def _collect(self, finished) -> None:
        for cell, found in finished:
            save(self.name, cell, found | {"code": self.code(cell.sampler)})
            short = {k: v for k, v in rounded(found).items() if len(str(v)) < 60}
            print(time.strftime("%H:%M:%S"), cell.key, short, flush=True)

    def write(self, cells: Cells) -> None:
        if not cells:
            print(f"nothing is stored in results/{self.name}.json")
            return
        codes = [m["code"] for c, m in cells.items() if c.sampler not in self.packages]
        codes = codes or ["not used"]
        provenance.write(self.name, self.page(cells), codes, made(self.name))
        print(f"results/{self.name}.md")


def _job(job):
    measure, cell = job
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("pymc").setLevel(logging.ERROR)
        found = measure(cell)
    return cell, {"seconds": time.process_time() - begin, **found}
