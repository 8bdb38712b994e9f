"""PyVBMC: variational Bayesian Monte Carlo; draws of its approximation, which is no exact posterior."""

import numpy as np

from benchmarks.peers.adapters import CannotRunError, Draws, Task

DRAWS = 4000


def pyvbmc(task: Task) -> Draws:
    """``VBMC``: plausible bounds from a hundred of the starts, 50 (d + 2) evaluations or the budget if that is less."""
    from pyvbmc import VBMC

    if task.problem.noisy:
        raise CannotRunError("it asks for the noise of every estimate, which is not known")
    starts = task.starts(100)
    low, high = np.quantile(starts, [0.1, 0.9], axis=0)
    np.random.seed(task.number)  # noqa: NPY002  the package draws from the global generator
    most = min(50 * (task.problem.dim + 2), task.budget)
    options = {"max_fun_evals": most, "display": "off"}
    x = np.clip(starts[:1], low, high)
    vbmc = VBMC(
        lambda x: max(task.log_density(np.ravel(x)), -1e10), x,
        plausible_lower_bounds=low[None], plausible_upper_bounds=high[None], options=options,
    )  # fmt: skip
    posterior, _ = vbmc.optimize()
    draws, _ = posterior.sample(DRAWS)
    return Draws(np.asarray(draws)[None], kind="approximation", note=f"at most {most} evaluations")
