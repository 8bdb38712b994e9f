"""dynesty and nautilus: nested sampling of the prior's cube, weighted draws."""

import math
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np

from benchmarks.peers.adapters import CannotRunError, Draws, Task
from benchmarks.peers.counting import BudgetSpentError

FEWEST = 25  # live points


def _in_the_cube(task):
    """Log likelihood of a point of the unit cube, finite: both packages refuse -inf in places."""
    problem = task.problem
    log_likelihood = problem.log_likelihood(task.log_density)

    def at(u):
        value = log_likelihood(problem.from_cube(np.asarray(u, dtype=float)))
        return value if math.isfinite(value) else -1e300

    return at


def _points(task, cube):
    return np.array([task.problem.from_cube(u) for u in cube])


def dynesty(task: Task) -> Draws:
    """``NestedSampler``: 500 live points, or half as many again and again until a whole run fits into the budget.

    What the larger runs had evaluated is not counted.
    """
    from dynesty import NestedSampler

    n, dim = 500, task.problem.dim
    while n >= max(FEWEST, dim + 1):
        task.log_density.evaluations = 0
        sampler = NestedSampler(
            _in_the_cube(task), lambda u: u, dim, nlive=n, rstate=np.random.default_rng(task.number)
        )
        try:
            with (
                redirect_stdout(StringIO()),
                redirect_stderr(StringIO()),
            ):  # it tells of every exception
                sampler.run_nested(print_progress=False)
        except BudgetSpentError:
            n //= 2
            continue
        found = sampler.results
        weights = found.importance_weights()
        return Draws(_points(task, found.samples)[None], weights, note=f"{n} live points")
    raise CannotRunError(f"no run of {FEWEST} live points fits into {task.budget} evaluations")


def nautilus(task: Task) -> Draws:
    """``Sampler``: a live point for each 40 evaluations, or half as many until its exploration ends within the budget.

    What the larger runs had evaluated is not counted. After exploration it goes on until the budget is spent.
    """
    from nautilus import Prior, Sampler

    dim, budget = task.problem.dim, task.budget
    n = min(2000, budget // 40)
    log_likelihood = _in_the_cube(task)
    while n >= 2 * FEWEST:
        task.log_density.evaluations = 0
        prior = Prior()
        for k in range(dim):
            prior.add_parameter(f"x{k}", dist=(0.0, 1.0))
        sampler = Sampler(
            prior, lambda u: log_likelihood([u[f"x{k}"] for k in range(dim)]), n_live=n, seed=task.number
        )  # fmt: skip
        # in batches of 100: the last may not exceed the budget
        sampler.run(n_like_max=budget - sampler.n_batch + 1, n_eff=math.inf, verbose=False)
        if sampler.explored:
            cube, log_weights, _ = sampler.posterior()
            return Draws(_points(task, cube)[None], np.exp(log_weights), note=f"{n} live points")
        n //= 2
    raise CannotRunError(
        f"exploration with {2 * FEWEST} live points does not end within {budget} evaluations"
    )
