"""``pm.sample_smc`` with every unknown drawn from the prior.

Where a variable has an ``initval``, PyMC begins all particles there: a population without spread, of which nothing
comes.
"""

from contextlib import contextmanager

from benchmarks.peers.adapters import Draws, Task, pymc_steps


@contextmanager
def without_initial_values(model):
    """The model as if nobody had given any."""
    before = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(before))
    try:
        yield
    finally:
        model.rvs_to_initial_values.update(before)


def smc(task: Task) -> Draws:
    """As :func:`benchmarks.peers.adapters.pymc_steps.smc`."""
    with without_initial_values(task.problem.prior_model):
        return pymc_steps.smc(task)
