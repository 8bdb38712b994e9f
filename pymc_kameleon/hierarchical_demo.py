"""The demonstration's second model: patients behind one solver that nobody can differentiate.

A drug that is taken by mouth and eliminated by an enzyme that saturates (Michaelis and Menten): no closed form. Each
patient has a capacity of elimination and a volume of his own; how patients differ is what one wants to know. All are
solved in one call, as one writes it: (patients, 2) parameters in, (patients, times) log concentrations out.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Apply, Op

TIMES = np.array([0.5, 1.0, 2.0, 4.0, 6.0, 9.0, 12.0, 18.0, 24.0])  # hours
DOSE, ABSORPTION = 300.0, 1.2  # mg, per hour


def concentrations(own: np.ndarray, half: float) -> np.ndarray:
    """Concentrations of all patients in mg/l at ``TIMES``, shape (patients, times).

    ``own`` (patients, 2) has the logs of the largest rate of elimination, in mg per hour, and of the volume, in l;
    ``half`` is the concentration at which half of that rate is reached.
    """
    rate, volume = np.exp(own).T
    h = 0.25  # hours, of the Runge-Kutta method
    ends = np.round(TIMES / h).astype(int)
    inflow = ABSORPTION * DOSE * np.exp(-ABSORPTION * 0.5 * h * np.arange(2 * ends[-1] + 1))
    c, found = np.zeros(len(own)), []
    for i in range(ends[-1]):
        now, middle, then = inflow[2 * i : 2 * i + 3]
        k1 = (now - rate * c / (half + c)) / volume
        b = c + 0.5 * h * k1
        k2 = (middle - rate * b / (half + b)) / volume
        b = c + 0.5 * h * k2
        k3 = (middle - rate * b / (half + b)) / volume
        b = c + h * k3
        k4 = (then - rate * b / (half + b)) / volume
        c = c + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        if i + 1 in ends:
            found.append(c)
    return np.array(found).T


class BlackBox(Op):
    """A function of arrays without a gradient, a matrix out: PyTensor sees numbers go in and numbers come out.

    ``calls`` counts them. What the function makes of a solution that leaves all bounds is NaN.
    """

    def __init__(self, function: Callable[..., np.ndarray]):
        self.function, self.calls = function, 0

    def make_node(self, *inputs):
        """Arrays in, one matrix out."""
        return Apply(self, [pt.as_tensor(i) for i in inputs], [pt.dmatrix()])

    def perform(self, node, inputs, outputs):
        """Call the function."""
        self.calls += 1
        with np.errstate(all="ignore"):
            outputs[0][0] = self.function(*inputs)


class Solver(BlackBox):
    """Log concentrations of all patients, given (own, half): see :func:`concentrations`."""

    def __init__(self):
        super().__init__(lambda own, half: np.log(concentrations(own, half)))


def patients_model(solver: Solver | None = None, patients: int = 6) -> pm.Model:
    """Simulated patients; centred, as one writes a hierarchy."""
    solver = Solver() if solver is None else solver
    rng = np.random.default_rng(1913)
    true = np.log([25.0, 30.0]) + np.array([0.35, 0.2]) * rng.standard_normal((patients, 2))
    noise = 0.12 * rng.standard_normal((patients, len(TIMES)))
    observed = concentrations(true, 4.0) * np.exp(noise)
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log([15.0, 20.0]), 0.7, shape=2)
        spread = pm.HalfNormal("spread", 0.5, shape=2)
        half = pm.LogNormal("half", np.log(5.0), 0.7)
        sigma = pm.HalfNormal("sigma", 0.3)
        own = pm.Normal("own", mean, spread, shape=(patients, 2))
        pm.LogNormal("measured", solver(own, half), sigma, observed=observed)
    return model
