"""PyMC's gradient-free steps, its NUTS by finite differences, and its sequential Monte Carlo.

Every step's log density is swapped for the counted one, the calls stay PyMC's: ``pm.Metropolis`` and the differential
evolutions evaluate the current point again. Half of the evaluations are tuning.
"""

import logging
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.smc.kernels import IMH
from pytensor.graph import Apply, Op

from benchmarks import drive
from benchmarks.basics import StoppedError
from benchmarks.rivals import CannotRunError, Draws, Task


def step(task: Task, name: str) -> Draws:
    """A chain of "pm.DEMetropolisZ", "pm.Slice" or another."""
    parts = drive.pymc_step(None, name, task.start, task.rng, task.log_density)
    return Draws(drive.walk(*parts, task.log_density, task.budget // 2).draws[None])


# --- NUTS by differences ----------------------------------------------------------------------------


class Difference(Op):
    """Slopes by forward differences, one more evaluation for each unknown."""

    def __init__(self, value):
        self.value = value

    def make_node(self, x):
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
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(self.at(np.asarray(inputs[0], dtype=float)))

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] * Difference(self)(inputs[0])]

    def L_op(self, inputs, outputs, cotangents):  # PyTensor before 3
        return self.pullback(inputs, outputs, cotangents)

    def grad(self, inputs, cotangents):
        return [cotangents[0] * Difference(self)(inputs[0])]


def nuts(task: Task) -> Draws:
    """``pm.NUTS`` as it is, gradients by forward differences: d + 1 evaluations each."""
    value, x = Value(task.log_density), task.start
    with pm.Model() as model:
        flat = pm.Flat("x", shape=len(x), initval=x)
        pm.Potential("log_density", value(flat))
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value.log_density = lambda x: 0.0  # compiling may try it
        made = pm.NUTS(rng=task.rng)
        value.log_density, value.last = task.log_density, None
        chain = drive.walk(made, {"x": x}, lambda point: np.array(point["x"]), task.log_density, task.budget // 2)
    return Draws(chain.draws[None], seconds=chain.tuning_seconds + chain.seconds)


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

    What the larger ones had evaluated is not counted. Every unknown is drawn from the prior: where a variable has an
    ``initval``, PyMC would begin all particles there, a population without spread.
    """
    problem, log_density = task.problem, task.log_density
    model = problem.prior_model
    before = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(before))

    def values(z):
        return np.array(task.log_likelihood(problem.from_values(np.asarray(z))))

    logging.getLogger("pymc").setLevel(logging.ERROR)
    n = min(2000, task.budget // 4)
    try:
        while n >= 10 * problem.dim or n >= 50:
            log_density.evaluations = 0
            try:
                with model, warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trace = pm.sample_smc(
                        n, kernel=Kernel, chains=1, cores=1, random_seed=task.number, progressbar=False,
                        compute_convergence_checks=False, return_inferencedata=False, log_likelihood=values,
                    )  # fmt: skip
            except StoppedError:
                n //= 2
                continue
            draws = np.array([problem.of_trace(trace.point(k)) for k in range(len(trace))])
            return Draws(draws[None], kind="particles", note=f"{n} particles")
    finally:
        model.rvs_to_initial_values.update(before)
    raise CannotRunError(f"no population fits into {task.budget} evaluations")
