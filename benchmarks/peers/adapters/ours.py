"""The package itself: the steps with their defaults, as ``pm.sample`` runs them, and ``pk.sample``.

Half of the budget is tuning; an arrival is part of it.
"""

from functools import lru_cache

import numpy as np

import pymc_kameleon as pk
from benchmarks.peers.adapters import CannotRunError, Draws, Task, walk
from benchmarks.peers.counting import StoppedError
from benchmarks.textbook.drive import _own_step
from pymc_kameleon import sampling
from pymc_kameleon.samplers.pooled import chains as pooled
from pymc_kameleon.samplers.pooled.plan import automatic
from pymc_kameleon.steps.prior_scale import prior_scale
from pymc_kameleon.surrogates.values.regression import affordable


@lru_cache(maxsize=8)
def _driver(problem, step):
    """A step compiled once for the runs of a cell."""
    return _own_step(problem.posterior, step)


def _step(task: Task, name: str) -> Draws:
    x = task.starts(1)[0]
    tune = task.budget // 2
    driver = _driver(task.problem, name)(x, task.rng, task.log_density, task.budget, tune)
    return Draws(walk(task.log_density, *driver)[None])


def kamiltonian(task: Task) -> Draws:
    """``pk.KamiltonianStep``, on the model's black boxes one by one where there are several."""
    return _boxes(task) if task.problem.boxes > 1 else _step(task, "KamiltonianStep")


def kameleon(task: Task) -> Draws:
    """``pk.KameleonStep``."""
    return _step(task, "KameleonStep")


def fast_kameleon(task: Task) -> Draws:
    """``pk.FastKameleonStep``."""
    return _step(task, "FastKameleonStep")


def gaussian_mixture(task: Task) -> Draws:
    """``pk.GaussianMixtureStep``."""
    return _step(task, "GaussianMixtureStep")


def adaptive_metropolis(task: Task) -> Draws:
    """``pk.AdaptiveMetropolisStep``."""
    return _step(task, "AdaptiveMetropolisStep")


def _boxes(task: Task) -> Draws:
    """The step sees the model's structure, so its calls are counted in the black boxes, a round of them one evaluation.

    What it calls to look at the model is counted too. A draw is at most one round; some are none.
    """
    problem, log_density = task.problem, task.log_density
    model, kit = problem.real.counted_model()
    kit.calls = 0
    with model:
        step = pk.KamiltonianStep()
    step.setup_chain(task.rng, task.budget // 2, task.budget - task.budget // 2)
    point = problem.posterior.to_point(task.starts(1)[0])
    draws, tuning, most = [], True, (task.budget - 1) * problem.boxes
    for _ in range(2 * task.budget):
        if tuning and 2 * kit.calls >= most:
            step.stop_tuning()
            tuning = False
        point, _ = step.step(point)
        log_density.evaluations = -(-kit.calls // problem.boxes)
        if not tuning:
            draws.append(problem.posterior.ravel(point))
        log_density.check_time()
        if kit.calls > most:
            break
    return Draws(np.array(draws)[None])


def pooled_sample(task: Task) -> Draws:
    """``pk.sample(max_evaluations=budget)``: 16 chains that learn together."""
    problem = task.problem
    if not affordable(problem.dim):
        raise CannotRunError(f"pk.sample refuses {problem.dim} unknowns")
    points = task.starts(sampling.CHAINS + 1)
    scale = 1.0
    if problem.real is not None:
        model = problem.posterior.model
        scale = prior_scale(model, model.continuous_value_vars, model.initial_point())
    plan = automatic(problem.dim, sampling.CHAINS, most=task.budget, climb=not problem.noisy)
    chains = pooled.Chains(
        points[-1], points[:-1], np.random.SeedSequence([task.seed, task.run, task.budget]), plan, scale=scale,
    )  # fmt: skip
    try:
        while not chains.done:
            chains.tell([task.log_density(request.position) for request in chains.ask()])
    except StoppedError:
        pass
    return Draws(pooled.posterior(chains))
