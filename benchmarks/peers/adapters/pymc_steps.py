"""PyMC's gradient-free steps, its NUTS by finite differences, and its sequential Monte Carlo.

Every step's log density is swapped for the counted one, the calls stay PyMC's: ``pm.Metropolis`` and the differential
evolutions evaluate the current point again. Half of the evaluations are tuning.
"""

import copy
import logging
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.smc.kernels import IMH
from pytensor.graph import Apply, Op

from benchmarks.peers.adapters import CannotRunError, Draws, Task, walk
from benchmarks.peers.counting import BudgetSpentError, StoppedError
from benchmarks.textbook.drive import _pymc_step, stand_in


def _step(task: Task, name: str) -> Draws:
    step, point, ravel = _pymc_step(task.problem.posterior, name)(
        task.starts(1)[0], task.rng, task.log_density, task.budget, task.budget // 2
    )
    return Draws(walk(task.log_density, step, point, ravel)[None])


def demetropolisz(task: Task) -> Draws:
    """``pm.DEMetropolisZ``."""
    return _step(task, "pm.DEMetropolisZ")


def slice_step(task: Task) -> Draws:
    """``pm.Slice``."""
    return _step(task, "pm.Slice")


def metropolis(task: Task) -> Draws:
    """``pm.Metropolis``."""
    return _step(task, "pm.Metropolis")


def demetropolis(task: Task) -> Draws:
    """``pm.DEMetropolis``: a population of twice as many chains as unknowns, at least 8; stepped in turns."""
    n, log_density = max(8, 2 * task.problem.dim), task.log_density
    with stand_in(task.problem.dim):
        step = pm.DEMetropolis(rng=task.rng)
    step.delta_logp = lambda q, q0: log_density(q) - log_density(q0)
    population = [{"x": x} for x in task.starts(n)]
    steps = [copy.copy(step) for _ in range(n)]
    for k, (one, rng) in enumerate(zip(steps, task.rng.spawn(n), strict=True)):
        one.link_population(population, k)
        one.rng = rng
    rounds, tuning = [], True
    with np.errstate(all="ignore"):
        try:
            while True:
                if tuning and log_density.half_spent:
                    for one in steps:
                        one.stop_tuning()
                    tuning = False
                made = [one.step(point)[0] for one, point in zip(steps, population, strict=True)]
                population[:] = made
                if not tuning:
                    rounds.append([point["x"] for point in made])
        except StoppedError:
            pass
    if not rounds:
        raise CannotRunError(f"no round of {n} chains after half of {task.budget} evaluations")
    return Draws(np.array(rounds).swapaxes(0, 1), note="2 d chains, at least 8")


# --- NUTS by differences ----------------------------------------------------------------------------


class Difference(Op):
    """Slopes by forward differences, one more evaluation for each unknown."""

    def __init__(self, value):
        self.value = value

    def make_node(self, x):
        """A vector in, a vector out."""
        return Apply(self, [x], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        """Steps of the square root of the machine's precision, in units of the coordinate or of 1."""
        x = np.asarray(inputs[0], dtype=float)
        here, slope = self.value.at(x), np.empty(len(x))
        for k in range(len(x)):
            h = np.sqrt(np.finfo(float).eps) * max(1.0, abs(x[k]))
            moved = x.copy()
            moved[k] += h
            slope[k] = (self.value.log_density(moved) - here) / h
        outputs[0][0] = slope


class Value(Op):
    """The counted log density; the value at the last point is kept for the differences there."""

    def __init__(self, log_density):
        self.log_density, self.last = log_density, None

    def at(self, x):
        """The value, evaluated unless this was the last point."""
        if self.last is None or not np.array_equal(self.last[0], x):
            self.last = x.copy(), self.log_density(x)
        return self.last[1]

    def make_node(self, x):
        """A vector in, a number out."""
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Evaluate."""
        outputs[0][0] = np.asarray(self.at(np.asarray(inputs[0], dtype=float)))

    def pullback(self, inputs, outputs, cotangents):
        """By differences."""
        return [cotangents[0] * Difference(self)(inputs[0])]

    def L_op(self, inputs, outputs, cotangents):  # PyTensor before 3
        """By differences."""
        return self.pullback(inputs, outputs, cotangents)

    def grad(self, inputs, cotangents):
        """By differences."""
        return [cotangents[0] * Difference(self)(inputs[0])]


def nuts(task: Task) -> Draws:
    """``pm.NUTS`` as it is, gradients by forward differences: d + 1 evaluations each."""
    if task.problem.noisy:
        raise CannotRunError("differences of a noisy log density are noise")
    value = Value(task.log_density)
    x = task.starts(1)[0]
    with pm.Model() as model:
        flat = pm.Flat("x", shape=len(x), initval=x)
        pm.Potential("log_density", value(flat))
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log_density, value.log_density = value.log_density, lambda x: 0.0  # compiling may try it
        step = pm.NUTS(rng=task.rng)
        value.log_density, value.last = log_density, None
        draws = walk(value.log_density, step, {"x": x}, lambda point: np.array(point["x"]))
    return Draws(draws[None])


# --- sequential Monte Carlo -------------------------------------------------------------------------


class Kernel(IMH):
    """PyMC's default kernel, the likelihood ours to count."""

    def __init__(self, *args, log_likelihood, **kwargs):
        super().__init__(*args, **kwargs)
        self.log_likelihood = log_likelihood

    def set_rng(self, rng):
        """As the parent's, which would copy its own likelihood."""
        self.rng = rng
        self.likelihood_logp_func = self.log_likelihood


def smc(task: Task) -> Draws:
    """``pm.sample_smc``: the largest population, of 2000 halved again and again, whose run fits into the budget.

    What the larger ones had evaluated is not counted.
    """
    problem, log_density = task.problem, task.log_density
    log_likelihood = problem.log_likelihood(log_density)

    def values(z):
        value = log_likelihood(problem.from_values(np.asarray(z)))
        return np.array(value if np.isfinite(value) else -1e300)

    logging.getLogger("pymc").setLevel(logging.ERROR)
    n = min(2000, task.budget // 4)
    while n >= 10 * problem.dim or n >= 50:
        log_density.evaluations = 0
        try:
            with problem.prior_model, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trace = pm.sample_smc(
                    n, kernel=Kernel, chains=1, cores=1, random_seed=task.number, progressbar=False,
                    compute_convergence_checks=False, return_inferencedata=False, log_likelihood=values,
                )  # fmt: skip
        except BudgetSpentError:
            n //= 2
            continue
        points = [trace.point(k) for k in range(len(trace))]
        if problem.real is None:
            draws = np.array([point["x"] for point in points])
        else:
            names = [variable.name for variable in problem.posterior.variables]
            draws = np.array([np.concatenate([np.ravel(p[v]) for v in names]) for p in points])
        return Draws(draws[None], kind="particles", note=f"{n} particles")
    raise CannotRunError(f"no population fits into {task.budget} evaluations")
