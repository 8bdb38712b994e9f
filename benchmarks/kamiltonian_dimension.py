"""What the surrogate of KamiltonianStep("values") costs and brings as the dimension grows.

The surrogate begins with a quadratic, (d + 1)(d + 2) / 2 coefficients, and cannot be fitted to fewer evaluations than
that; richer families have to be found among what is left of the budget. Beside adaptive Metropolis, on a correlated
normal distribution, all that a quadratic can do; a banana, non-Gaussian in two coordinates that the sampler has to find
among d; and a multivariate t with 5 degrees of freedom, non-Gaussian in all coordinates together.

    python -m benchmarks.kamiltonian_dimension            # twenty minutes of one core
"""

import math
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.basics import bulk_ess, generators, rhat
from benchmarks.cells import Benchmark, Cell
from benchmarks.core import run_chain
from benchmarks.measures import MarginalTruth, error_efficiency
from benchmarks.report import digits, table
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.surrogates.values import regression as value_regression
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.targets import Banana, CorrelatedGaussian, StudentT

CHAINS = 4
DIMENSIONS = (2, 5, 10, 20, 50, 78, 100)
FAMILIES = {
    "normal": lambda d: CorrelatedGaussian(100.0, d), "banana": lambda d: Banana(0.03, 100.0, d),
    "t5": lambda d: StudentT(5.0, d),
}  # fmt: skip
SAMPLERS = {"AM": AdaptiveMetropolis, "Kamiltonian": ValueKamiltonian}
TRUTH_DRAWS = 200_000


def measure(cell: Cell) -> dict[str, Any]:
    """Four chains from over-dispersed points."""
    family, d = cell.problem.split(", ")
    target, d, tune = FAMILIES[family](int(d)), int(d), cell.budget // 2
    sd, chains = np.sqrt(np.diag(target.cov)), []
    for rng in generators([d, list(FAMILIES).index(family)], CHAINS):
        x = target.mean + sd * rng.uniform(-2.0, 2.0, d)
        how = {"tune": tune, "draws": cell.budget - tune}
        chains.append(run_chain(SAMPLERS[cell.sampler], target.numba_log_density, x, rng, **how))
    draws, evaluations = np.array([c.draws for c in chains]), sum(c.evaluations for c in chains)
    efficiency = error_efficiency(draws, truth(target), evaluations / CHAINS)
    states = [c.state for c in chains]
    return {
        "ess": 1000.0 * bulk_ess(draws).min() / evaluations, "rhat": rhat(draws),
        "by_error": float(1.0 / np.mean(1.0 / efficiency)),
        "mean_error": float(np.abs((draws.mean((0, 1)) - target.mean) / sd).max()),
        "sd_error": float(np.abs(draws.std((0, 1)) / sd - 1.0).max()),
        "families": [s.fit.family if getattr(s, "fit", None) is not None else "none" for s in states],
        "residual_sd": max((float(s.quality.residual_sd) for s in states if hasattr(s, "quality")), default=math.nan),
        "acceptance": float(np.mean([c.acceptance for c in chains])), "evaluations": evaluations / CHAINS,
        "seconds": float(np.mean([c.tuning_seconds + c.seconds for c in chains])),
    }  # fmt: skip


def truth(target) -> MarginalTruth:
    exact = target.sample(np.random.default_rng(1), TRUTH_DRAWS)
    quantiles = np.quantile(exact, [0.1, 0.25, 0.75, 0.9], axis=0)
    return MarginalTruth(target.mean, np.diag(target.cov), quantiles)


def dimension_table(cells, family):
    head = [
        "d", "AM: ESS", "R-hat", "by error", "Kamiltonian: ESS", "R-hat", "by error", "mean error", "sd error",
        "acceptance", "residual sd", "family", "s a chain",
    ]  # fmt: skip
    rows = []
    for d in DIMENSIONS:
        am, own = (cells.get((s, f"{family}, {d}")) for s in SAMPLERS)
        if am is None or own is None:
            continue
        both = [e for m in (am, own) for e in (digits(m["ess"]), f"{m['rhat']:.2f}", digits(m["by_error"]))]
        rows.append([
            d, *both, digits(own["mean_error"]), digits(own["sd_error"]), f"{own['acceptance']:.2f}",
            digits(own["residual_sd"]), counted(own["families"]), digits(own["seconds"]),
        ])  # fmt: skip
    return table(head, rows)


def counted(families):
    """As "polynomial" or "polynomial 3, quadratic"."""
    counts = {f: families.count(f) for f in sorted(set(families), key=families.count, reverse=True)}
    if len(counts) == 1:
        return families[0]
    return ", ".join(f"{f} {n}" if n > 1 else f for f, n in counts.items())


def page(found: dict[Cell, dict]) -> str:
    cells = {c[:2]: m for c, m in found.items()}
    limit = max(d for d in range(1, 300) if value_regression.affordable(d))  # where a surrogate is fitted at all
    default = max(d for d in range(1, limit + 1) if first_fit(d) < 1000)
    size, first = quadratic_size(limit), first_fit(limit)
    tables = "\n\n".join(f"## {family}\n\n{dimension_table(cells, family)}" for family in FAMILIES)
    return report.page("kamiltonian_dimension", globals() | locals())


def first_fit(d: int) -> int:
    return ValueKamiltonian().init(None, np.zeros(d)).learning.schedule.next_refit


if __name__ == "__main__":
    problems = [f"{family}, {d}" for d in DIMENSIONS for family in FAMILIES]
    Benchmark("kamiltonian_dimension", measure, page).command(__doc__, list(SAMPLERS), problems, (10_000,))
