"""Other people's samplers and ours in one run: effective draws per evaluation, R-hat, errors of means and sds.

The twelve targets of ``cold_start`` and six models as users write them; every sampler with its defaults, from the
same starts or priors (``targets.py``), evaluations counted in the log density and refused beyond the budget
(``counting.py``). A cell is four independent runs of a chain or of a set of walkers, particles or live points, each
with the budget.

    python -m benchmarks.peers                   # what is not stored; --sampler, --target, --budget, --seeds, --minutes
    python -m benchmarks.peers --table           # tables and figure again, from results/peers.json
    python -m benchmarks.peers.reference         # references of the six models, in results/peers_reference.json

Needs what the extra ``bench`` of pyproject.toml names; whose package is not installed is left as it is stored, and
the table says so. Every cell is stored when it is done, with a digest of the code that made it, and not run again until
that changes. No run of a cell is begun after 30 s of processor time, and after 90 s they end; so two hours for
everything at 10,000 evaluations with one seed.
"""

import argparse
import logging
import math

from benchmarks.peers import cells, samplers, tables
from benchmarks.peers.cells import Cell
from benchmarks.peers.targets import TARGETS

BUDGETS, SEEDS = (10_000, 1_000, 30_000), 1


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sampler", nargs="+", choices=samplers.SAMPLERS, default=list(samplers.SAMPLERS)
    )
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--budget", nargs="+", type=int, default=BUDGETS[:2])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="0, ..., seeds - 1 are run")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no cell after that")
    parser.add_argument(
        "--seconds", type=float, default=cells.SECONDS,
        help="of processor time after which no run of a cell is begun; three times as long, and all have ended",
    )  # fmt: skip
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="only tables and figure")
    return parser.parse_args(arguments)


def main():
    options = parse()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if not options.table:
        order = [
            Cell(sampler, target, budget, seed)
            for seed in range(options.seeds)
            for budget in options.budget
            for target in options.target
            for sampler in options.sampler
        ]
        cells.run_all(order, options.minutes, options.again, options.seconds)
    tables.write(cells.load())


if __name__ == "__main__":
    main()
