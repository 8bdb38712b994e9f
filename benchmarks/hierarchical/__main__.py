"""Hierarchical models behind black boxes: effective draws per evaluation, and whether means *and sds* are right.

Every model is written as one writes it, centred, with an Op without gradient for each group; budgets of 300 to 10,000
evaluations a chain, tuning included. ``KamiltonianStep()`` ("boxes") learns the black boxes one by one, ``pk.sample``
too ("together": sixteen chains with the evaluations of four); ``learn="all"`` ("whole") learns the whole log density,
as it does where there is no structure; PyMC's own learn nothing. A chain that never enters a hierarchy's neck has a
good R-hat, and the sd of the log scale wrong by a third.

    python -m benchmarks.hierarchical                     # 80 minutes; two seeds, the rivals at 3,000 evaluations
    python -m benchmarks.hierarchical --problems "PK, 40 patients" --budgets 10000 --samplers boxes

References that are not stored in results/hierarchical_reference.json are made when they are needed.
"""

from benchmarks.hierarchical.board import BENCHMARK, BUDGETS, LABELS, SHARED
from benchmarks.hierarchical.models import MODELS

RIVALRY = ("eight schools", "Poisson, 64", "PK, 6 patients")  # models that others are run on, at 3,000
COMPANY = (*RIVALRY, "PK, 12 patients", "ODE, 8 cultures", "GP, 20 sites")  # and chains that learn together


def wanted(cell):
    if cell.budget in SHARED:
        return cell.problem in COMPANY and cell.sampler in ("boxes", "together")
    return cell.sampler == "boxes" or (cell.budget == 3000 and cell.problem in RIVALRY and cell.sampler != "together")


if __name__ == "__main__":
    BENCHMARK.command(
        __doc__, list(LABELS), list(MODELS), BUDGETS[:5], 2,
        wanted,
    )  # fmt: skip
