"""One cell of the board, in a module that a process that is spawned can import."""

import warnings

from benchmarks.textbook import store
from benchmarks.textbook.drive import chains
from benchmarks.textbook.measures import measure
from benchmarks.textbook.posterior import posterior, reference


def job(cell: store.Cell) -> tuple[store.Cell, dict]:
    """Run one cell."""
    warnings.simplefilter("ignore")  # that a short chain has not converged is what is measured
    truth = reference(cell.model)
    found = chains(
        posterior(cell.model), cell.step, cell.seed,
        evaluations=cell.evaluations, tune=cell.evaluations // 3, level=truth.level,
    )  # fmt: skip
    return cell, measure(found, truth)
