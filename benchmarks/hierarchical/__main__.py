"""Hierarchical models behind black boxes: effective draws per evaluation, and whether means *and sds* are right.

Every model is written as one writes it, centred, with an Op without gradient for each group; budgets of 300 to 10,000
evaluations a chain, tuning included. ``KamiltonianStep()`` ("boxes") learns the black boxes one by one; ``learn="all"``
("whole") learns the whole log density, as it does where there is no structure; PyMC's own learn nothing. References are
long runs of NUTS on the same models in plain PyTensor, mostly non-centred by hand: a chain that never enters a
hierarchy's neck has a good R-hat, and the sd of the log scale wrong by a third.

    python -m benchmarks.hierarchical                     # whatever is not stored yet; --models, --budgets, --seeds
    python -m benchmarks.hierarchical --stale             # and what other code made
    python -m benchmarks.hierarchical --verify            # does the present code still draw the same?
    python -m benchmarks.hierarchical --reference NAME    # make a reference anew
    python -m benchmarks.hierarchical --table             # the report alone

Cells are stored in ``results/hierarchical.json`` as they are done. Use one BLAS thread.
"""

import argparse
import logging
import time
import warnings
from pathlib import Path

from benchmarks import provenance
from benchmarks.hierarchical import cells, reference
from benchmarks.hierarchical.figure import draw
from benchmarks.hierarchical.models import MODELS
from benchmarks.hierarchical.tables import BUDGETS, report

RESULTS = Path(__file__).parents[1] / "results"
FIRST = ("eight schools", "funnel", "Poisson, 20", "Poisson, 64", "PK, 6 patients")


def run(options) -> None:
    """Run and store the cells that are wanted, until the time is up."""
    deadline = time.monotonic() + 60.0 * options.minutes
    jobs = [
        (name, sampler, budget, seed)
        for budget in options.budgets for seed in range(options.seeds) for name in options.models
        for sampler in options.samplers
    ]  # fmt: skip
    for job in jobs:
        stored = {cells.key(c): c["code"] for c in cells.load()}
        stale = job in stored and stored[job] != cells.code(job[1])
        if job in stored and not options.again and not (options.stale and stale):
            continue
        if time.monotonic() > deadline:
            print("stopped at the time limit; the same command goes on", flush=True)
            return
        if reference.truth(job[0]) is None:
            reference.make(job[0])
        cell = cells.sample(*job)
        cells.save(cell)
        print(time.strftime("%H:%M:%S"), {k: v for k, v in cell.items() if k != "code"}, flush=True)


def verify() -> None:
    """Stale cells of ours: the cheapest of each model is made anew, and speaks for the others if it is the same.

    A change that these models do not run makes the same draws, so the same figures in every digit; where one differs
    the other cells stay stale.
    """
    groups: dict[tuple, list[dict]] = {}
    for cell in cells.load():
        if cell["sampler"] in cells.MODULES and cell["code"] != cells.code(cell["sampler"]):
            groups.setdefault((cell["model"], cell["sampler"], cell["code"]), []).append(cell)
    for (name, sampler, _), group in groups.items():
        cheapest = min(group, key=lambda c: (c["budget"], c["seed"]))
        made = cells.sample(name, sampler, cheapest["budget"], cheapest["seed"])
        same = cells.same_draws(cheapest, made)
        cells.save(made)
        for cell in group if same else []:
            if cell is not cheapest:
                cells.save({**cell, "code": made["code"]})
        print(
            f"{name}, {sampler}: {'the same' if same else 'other draws'}, {len(group)} cells",
            flush=True,
        )


def write() -> None:
    """Table and figure."""
    stored = cells.load()
    stale = provenance.stale_cells(
        (f"{c['sampler']} at {c['budget']:,}", c["code"], cells.code(c["sampler"])) for c in stored
    )
    draw(stored, RESULTS / "hierarchical.png")
    provenance.write(RESULTS / "hierarchical.md", report(stored), stale_cells=stale)


def main():
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=FIRST, choices=MODELS)
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS)
    parser.add_argument("--samplers", nargs="+", default=cells.SAMPLERS, choices=cells.SAMPLERS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--reference", nargs="+", default=(), choices=MODELS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--stale", action="store_true", help="anew what other code made")
    parser.add_argument("--verify", action="store_true", help="do stale cells come out the same?")
    parser.add_argument("--again", action="store_true", help="all anew")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so many")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for name in options.reference:
        reference.make(name)
    if options.verify:
        verify()
    elif not options.table and not options.reference:
        run(options)
    write()


if __name__ == "__main__":
    main()
