"""The steps on textbook models, from where ``pm.sample`` starts: effective draws, errors, and what is silently wrong.

Four chains a seed from the model's initial point + U(-1, 1) in unconstrained coordinates; a third of the evaluations
are tuning. Evaluations are counted in the log density.

    python -m benchmarks.textbook                                    # all models, the default steps, one seed
    python -m benchmarks.textbook --models linear hmm --steps KamiltonianStep pm.Slice --seeds 3
    python -m benchmarks.textbook --steps KamiltonianStep:surrogate=lite
    python -m benchmarks.textbook --table [--out NAME]               # only re-make results/NAME.md

Every (model, step, seed, evaluations, code) is stored when it is done, in results/textbook.json, and not run again;
tables show what the present code made.
"""

import argparse
import multiprocessing
import time

from benchmarks.textbook import MODELS, store, tables
from benchmarks.textbook.cells import job
from benchmarks.textbook.posterior import references

STEPS = (
    "KamiltonianStep", "GaussianMixtureStep", "KameleonStep", "FastKameleonStep", "AdaptiveMetropolisStep",
    "pm.DEMetropolisZ", "pm.Slice",
)  # fmt: skip


def run(cells: list[store.Cell], jobs: int, again: bool) -> None:
    """Run and store those that are not stored yet."""
    stored, known = store.load(), references()
    todo = [c for c in cells if again or c.key not in stored]
    for model in sorted({c.model for c in todo} - set(known)):
        print(f"{model} is left out: run python -m benchmarks.textbook.reference --models {model}")
    todo = [c for c in todo if c.model in known]
    print(f"{len(todo)} of {len(cells)} cells to run", flush=True)
    if jobs == 1:
        finished = map(job, todo)
    else:
        finished = multiprocessing.get_context("spawn").Pool(jobs).imap_unordered(job, todo)
    for cell, found in finished:
        store.save(cell, found)
        wrong = "  SILENTLY WRONG" if found["silently_wrong"] else ""
        print(
            f"{time.strftime('%H:%M:%S')} {cell.model}, {cell.step}, seed {cell.seed}: {found['ess']:.3g} effective "
            f"draws per 1000, R-hat {found['rhat'] or float('nan'):.3f}, arrived {found['arrived']}, mean off by "
            f"{found['mean_z']:.1f} s.e. = {found['mean_sd']:.2g} sd, {found['seconds']:.1f} s{wrong}",
            flush=True,
        )


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL",
                        help=", ".join(MODELS))  # fmt: skip
    parser.add_argument(
        "--steps", nargs="+", default=list(STEPS), help="classes, with :option=value,..."
    )
    parser.add_argument("--seeds", type=int, default=1, help="0, ..., seeds - 1 are run")
    parser.add_argument("--evaluations", type=int, default=10_000, help="per chain, a third tuning")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--out", default="textbook", help="name of the table in results/")
    return parser.parse_args(arguments)


def main():
    arguments = parse()

    def cells(models):
        return [
            store.cell(model, step, seed, arguments.evaluations)
            for model in models
            for step in arguments.steps
            for seed in range(arguments.seeds)
        ]

    if not arguments.table:
        run(cells(arguments.models), arguments.jobs, arguments.again)
    text = tables.write(cells(MODELS), store.load(), arguments.out)
    print(text)


if __name__ == "__main__":
    main()
