"""pocoMC: preconditioned Monte Carlo with a normalising flow, in the prior's cube; weighted particles."""

import math
import warnings

import numpy as np

from benchmarks.peers.adapters import CannotRunError, Draws, Task
from benchmarks.peers.counting import BudgetSpentError

FEWEST = 32


def pocomc(task: Task) -> Draws:
    """``Sampler``: one effective particle for each 80 evaluations, at most 512, its default; half of them active.

    Or half as many until a whole run fits into the budget; what the larger runs had evaluated is not counted.
    """
    import pocomc as package
    from scipy import stats

    problem, n = task.problem, min(512, task.budget // 80)
    log_likelihood = problem.log_likelihood(task.log_density)

    def at(u):
        value = log_likelihood(problem.from_cube(np.asarray(u, dtype=float)))
        return value if math.isfinite(value) else -1e300

    prior = package.Prior([stats.uniform(0.0, 1.0)] * problem.dim)
    while n >= FEWEST:
        task.log_density.evaluations = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sampler = package.Sampler(
                    prior, at, n_effective=n, n_active=n // 2, random_state=task.number
                )
                sampler.run(n_total=8 * n, n_evidence=0, progress=False)
        except BudgetSpentError:
            n //= 2
            continue
        cube, weights, _, _ = sampler.posterior()
        values = np.array([problem.from_cube(u) for u in cube])
        return Draws(values[None], np.asarray(weights), note=f"{n} effective particles")
    raise CannotRunError(
        f"no run of {FEWEST} effective particles fits into {task.budget} evaluations"
    )
