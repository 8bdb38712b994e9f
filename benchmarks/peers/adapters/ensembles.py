"""emcee and zeus: sets of walkers, max(32, 2 d) of them, with the packages' defaults; half is thrown away."""

import logging
import random
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np

from benchmarks.peers.adapters import CannotRunError, Draws, Task
from benchmarks.peers.counting import StoppedError


def walkers(task: Task) -> int:
    """As many as the packages' documentation asks for at least, or 32."""
    return max(32, 2 * task.problem.dim)


def _emcee(task: Task, moves=None) -> Draws:
    import emcee

    n = walkers(task)
    steps = task.budget // n - 1  # where the walkers begin is evaluated, too
    if steps < 8:
        raise CannotRunError(f"{task.budget} evaluations are {steps} steps of {n} walkers")
    sampler = emcee.EnsembleSampler(n, task.problem.dim, task.log_density, moves=moves)
    state = np.random.RandomState(task.number).get_state()
    sampler.run_mcmc(
        emcee.State(task.starts(n), random_state=state), steps, skip_initial_state_check=True
    )
    made = sampler.get_chain()
    return Draws(made[len(made) // 2 :].swapaxes(0, 1), note=f"{n} walkers")


def emcee_stretch(task: Task) -> Draws:
    """Emcee's default, the stretch move."""
    return _emcee(task)


def emcee_de(task: Task) -> Draws:
    """Emcee's differential evolution, 0.8, and snooker, 0.2, as its documentation mixes them."""
    from emcee import moves

    return _emcee(task, [(moves.DEMove(), 0.8), (moves.DESnookerMove(), 0.2)])


def zeus(task: Task) -> Draws:
    """Zeus' ensemble slice sampler, tuning itself; it evaluates as often as it needs."""
    import zeus as package

    n, log_density = walkers(task), task.log_density
    np.random.seed(task.number)  # noqa: NPY002  the package draws from the global generator
    random.seed(task.number)
    sampler = package.EnsembleSampler(n, task.problem.dim, log_density, verbose=False)
    logging.getLogger().setLevel(logging.WARNING)
    rounds = []
    try:
        with (
            redirect_stdout(StringIO()),
            redirect_stderr(StringIO()),
        ):  # it tells of every exception
            for state in sampler.sample(task.starts(n), iterations=task.budget, progress=False):
                if log_density.half_spent:
                    rounds.append(np.array(state[0]))
    except StoppedError:
        pass
    if len(rounds) < 4:
        raise CannotRunError(
            f"{len(rounds)} rounds of {n} walkers after half of {task.budget} evaluations"
        )
    return Draws(np.array(rounds).swapaxes(0, 1), note=f"{n} walkers")
