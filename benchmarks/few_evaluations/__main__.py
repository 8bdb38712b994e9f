"""Effective draws from 500 to 5,000 log density evaluations in all: chains that learn together, beside others.

    python -m benchmarks.few_evaluations                 # everything; --sampler, --target, --total, --chains, --seeds
    python -m benchmarks.few_evaluations --table         # the tables again, from results/few_evaluations.json
    python -m benchmarks.few_evaluations --verify        # do stale cells of ours come out the same?
    python -m benchmarks.few_evaluations --first         # are the first draws of 64 chains unbiased?
    python -m benchmarks.few_evaluations --workers       # wall time by workers; points in one call

Every cell is stored when it is done, with a digest of the code that made it, and not run again until that changes.
About 10 seconds of processor time a cell of ours. Rivals whose package (the extra ``bench``) is not installed are left
as they are stored.
"""

import argparse
import logging
import math

from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations import cells, first, tables, workers
from benchmarks.few_evaluations.samplers import ALONE, OURS, RUN, VARIATIONAL, Cell

SEEDS = 5


def wanted(samplers, targets, totals, chains, seeds) -> list[Cell]:
    """In the order in which they tell most."""
    found = []
    for sampler in samplers:
        if not cells.code(sampler):
            continue
        sizes = chains if sampler == "together" else (ALONE,)
        found += [
            Cell(sampler, target, total, size, seed)
            for size in sizes
            for total in ([VARIATIONAL] if sampler == "pyvbmc" else totals)
            for seed in range(seeds)
            for target in targets
            if sampler not in OURS or total >= 4 * size
        ]
    return sorted(found, key=lambda c: (c.seed, (c.total, c.chains) != tables.GOAL[:2]))


def main() -> None:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sampler", nargs="*", choices=list(RUN), default=list(RUN))
    parser.add_argument("--target", nargs="*", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--total", nargs="*", type=int, default=tables.TOTALS)
    parser.add_argument("--chains", nargs="*", type=int, default=tables.CHAINS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--table", action="store_true", help="only the tables")
    parser.add_argument("--verify", action="store_true", help="do stale cells come out the same?")
    parser.add_argument(
        "--workers", nargs="*", type=int, help="wall time by workers: so many, or all"
    )
    parser.add_argument("--first", action="store_true", help="the first draws of 64 chains")
    chosen = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if chosen.workers is not None:
        workers.measure(chosen.workers or None)
    elif chosen.first:
        first.measure(chosen.target)
    elif chosen.verify:
        cells.verify()
    elif not chosen.table:
        cells.run_all(
            wanted(chosen.sampler, chosen.target, chosen.total, chosen.chains, chosen.seeds),
            chosen.minutes,
        )
    tables.write()


if __name__ == "__main__":
    main()
