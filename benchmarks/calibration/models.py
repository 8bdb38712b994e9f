"""The six models of the calibration: each simulates parameters from its prior and data given them.

The data are shared variables, so that a step is compiled once and sees every new data set.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.ops import wrap_py

from pymc_kameleon.steps.log_density import compile_log_density
from pymc_kameleon.steps.noise.noisy_likelihood import NoisyLogLikelihood

Values = dict[str, np.ndarray]


class Problem(NamedTuple):
    """A model, and how its joint distribution is drawn from."""

    model: pm.Model
    # (values, data): a draw of the prior, by the names of the value variables and unconstrained, and data drawn given
    # it, by the names of the model's data containers
    simulate: Callable[[np.random.Generator], tuple[Values, Values]]
    log_joint: Callable[[Values], float]  # log density of values given the data that are set
    ours: tuple[str, ...] = ()  # the variables that the step under test samples, NUTS the others; all, if empty
    noisy: bool = False  # the likelihood is an estimate

    @property
    def quantities(self) -> list[str]:
        """What is ranked: every unconstrained coordinate, and the log joint density (Modrák et al., 2023)."""
        point = self.model.initial_point()
        names = [n if v.size == 1 else f"{n}[{i}]" for n, v in point.items() for i in range(v.size)]
        return [*names, "log density"]

    def measured(self, values: Values) -> np.ndarray:
        return np.concatenate([np.concatenate([np.ravel(v) for v in values.values()]), [self.log_joint(values)]])

    def set_data(self, data: Values) -> None:
        for name, value in data.items():
            self.model[name].set_value(value)


def compiled(model: pm.Model) -> Callable[[Values], float]:
    """The model's log density, by the linker that runs its black boxes fastest."""
    function = compile_log_density(model.value_vars, [model.logp()], None)
    names = [v.name for v in model.value_vars]
    return lambda values: float(function(*(np.asarray(values[n], dtype=float) for n in names)))


def _logit(x, low=0.0, high=1.0):
    return np.log(x - low) - np.log(high - x)


def black_box(drawn_sd: float = 0.2) -> Problem:
    """An exponential decay behind an Op without a gradient; data of another sd than the model's are a control."""
    times, sd = np.linspace(0.2, 3.0, 6), 0.2

    def predicted(amplitude, rate):
        return amplitude * np.exp(-rate * times)

    solver = wrap_py(itypes=[pt.dscalar, pt.dscalar], otypes=[pt.dvector])(predicted)
    with pm.Model() as model:
        y = pm.Data("y", np.ones(6))
        amplitude, rate = pm.LogNormal("amplitude", 0.0, 0.5), pm.LogNormal("rate", 0.0, 0.5)
        pm.Normal("decay", solver(amplitude, rate), sd, observed=y)

    def simulate(rng):
        log_amplitude, log_rate = 0.5 * rng.standard_normal(2)
        y = predicted(np.exp(log_amplitude), np.exp(log_rate)) + drawn_sd * rng.standard_normal(6)
        return {"amplitude_log__": np.array(log_amplitude), "rate_log__": np.array(log_rate)}, {"y": y}

    return Problem(model, simulate, compiled(model))


def noisy() -> Problem:
    """Latent normals that are integrated out by 40 simulations: an unbiased estimate of the likelihood."""
    sd = 0.5

    def estimate(rng, mu, log_tau, y):
        latent = mu + np.exp(log_tau) * rng.standard_normal((40, len(y)))
        log_weights = -0.5 * np.square((y - latent) / sd)
        return float(np.log(np.mean(np.exp(log_weights), axis=0) + 1e-300).sum())

    with pm.Model() as model:
        y = pm.Data("y", np.zeros(4))
        mu, log_tau = pm.Normal("mu"), pm.Normal("log_tau", -0.5, 0.5)
        pm.Potential("likelihood", NoisyLogLikelihood(estimate)(mu, log_tau, y))

    def simulate(rng):
        mu, log_tau = rng.standard_normal(), -0.5 + 0.5 * rng.standard_normal()
        y = rng.normal(mu, np.hypot(np.exp(log_tau), sd), 4)
        return {"mu": np.array(mu), "log_tau": np.array(log_tau)}, {"y": y}

    def exact(values):
        mu, log_tau = float(values["mu"]), float(values["log_tau"])
        variance, y = np.exp(2.0 * log_tau) + sd**2, model["y"].get_value()
        prior = -0.5 * (mu**2 + ((log_tau + 0.5) / 0.5) ** 2)
        return prior - 0.5 * float((np.square(y - mu) / variance + np.log(variance)).sum())

    return Problem(model, simulate, exact, noisy=True)


def hierarchical() -> Problem:
    """Four groups with a black box each."""
    sd, groups = 0.5, 4
    box = wrap_py(itypes=[pt.dscalar, pt.dscalar], otypes=[pt.dscalar])(
        lambda x, y: np.asarray(-0.5 * ((x - y) / sd) ** 2)
    )
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(groups))
        mu, tau = pm.Normal("mu"), pm.LogNormal("tau", -0.5, 0.5)
        theta = pm.Normal("theta", mu, tau, shape=groups)
        for j in range(groups):
            pm.Potential(f"group{j}", box(theta[j], y[j]))

    def simulate(rng):
        mu, log_tau = rng.standard_normal(), -0.5 + 0.5 * rng.standard_normal()
        theta = rng.normal(mu, np.exp(log_tau), groups)
        values = {"mu": np.array(mu), "tau_log__": np.array(log_tau), "theta": theta}
        return values, {"y": rng.normal(theta, sd)}

    return Problem(model, simulate, compiled(model))


def bounded() -> Problem:
    """A straight line whose parameters have bounds that the data do not keep them from."""
    t = np.linspace(-1.0, 1.0, 8)
    bounds = {"level": (0.0, 1.0), "slope": (-1.0, 1.0), "sd": (0.1, 1.0)}
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(8))
        level, slope, sd = (pm.Uniform(name, *b) for name, b in bounds.items())
        pm.Normal("line", level + slope * t, sd, observed=y)

    def simulate(rng):
        drawn = {name: rng.uniform(*b) for name, b in bounds.items()}
        y = rng.normal(drawn["level"] + drawn["slope"] * t, drawn["sd"])
        values = {f"{n}_interval__": np.array(_logit(drawn[n], *bounds[n])) for n in bounds}
        return values, {"y": y}

    return Problem(model, simulate, compiled(model))


def simplex() -> Problem:
    """Four probabilities and ten counts."""
    with pm.Model() as model:
        counts = pm.Data("counts", np.array([10, 0, 0, 0], dtype=np.int32))
        p = pm.Dirichlet("p", np.ones(4))
        pm.Multinomial("drawn", 10, p, observed=counts)

    def simulate(rng):
        p = rng.dirichlet(np.ones(4))
        logs = np.log(p)
        return {"p_simplex__": logs[:-1] - logs.mean()}, {"counts": rng.multinomial(10, p).astype(np.int32)}

    return Problem(model, simulate, compiled(model))


def beside_nuts() -> Problem:
    """Two variables behind a black box, and two that depend on them, which NUTS samples."""
    sd = 0.5
    box = wrap_py(itypes=[pt.dvector, pt.dscalar], otypes=[pt.dscalar])(
        lambda x, y: np.asarray(-0.5 * ((x[0] + x[1] ** 2 - y) / sd) ** 2)
    )
    with pm.Model() as model:
        y, w = pm.Data("y", np.array(0.0)), pm.Data("w", np.zeros(2))
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        z = pm.Normal("z", x, 0.7, shape=2)
        pm.Potential("box", box(x, y))
        pm.Normal("seen", z, sd, observed=w)

    def simulate(rng):
        x = rng.standard_normal(2)
        z = rng.normal(x, 0.7)
        y = np.array(rng.normal(x[0] + x[1] ** 2, sd))
        return {"x": x, "z": z}, {"y": y, "w": rng.normal(z, sd)}

    return Problem(model, simulate, compiled(model), ours=("x",))


MODELS: dict[str, Callable[[], Problem]] = {
    "black box": black_box, "noisy": noisy, "hierarchical": hierarchical, "bounded": bounded, "simplex": simplex,
    "beside NUTS": beside_nuts,
}  # fmt: skip
NOISE_UNDERSTATED = "black box, its noise understated"


@cache
def problem(name: str) -> Problem:
    return black_box(drawn_sd=0.3) if name == NOISE_UNDERSTATED else MODELS[name]()
