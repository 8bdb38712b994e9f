"""Hierarchical models with black boxes, for the tests: as arrays with everything by hand, and in PyMC."""

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats

from pymc_kameleon.steps.pytensor_internals import FirstClass
from pymc_kameleon.surrogates.factors.layout import Layout


class BlackBox(Op):
    """A function without a gradient that counts its calls; each adds a byte to ``path``, in whichever process it is."""

    def __init__(self, function, kind=pt.dscalar, *, path=None):
        self.function, self.kind, self.path, self.calls = function, kind, path, 0

    def make_node(self, *inputs):
        return Apply(self, [pt.as_tensor(i) for i in inputs], [self.kind()])

    def perform(self, node, inputs, outputs):
        self.calls += 1
        if self.path is not None:
            with open(self.path, "ab") as file:
                file.write(b".")
        outputs[0][0] = np.asarray(self.function(*inputs), dtype=node.outputs[0].type.dtype)


@register_jitable
def places_of_toy(u, centring):
    """What :meth:`Toy.places` returns."""
    share, mu, log = centring[2:], u[0], u[1]
    z = (u[2:] - share * mu) * np.exp(-share * log)
    x = mu + np.exp(log) * z
    flat = np.zeros(2)
    return (
        x,
        np.concatenate((u[:2], x)),
        np.concatenate((u[:2], z)),
        np.concatenate((flat, np.full(2, mu))),
        np.concatenate((flat, np.full(2, log))),
    )


@register_jitable
def known_of_toy(u, centring, w, outputs, jacobian, slope, slope_error):
    """What :meth:`Toy.known` returns, the value as an array."""
    share, mu, log = centring[2:], u[0], u[1]
    z = (u[2:] - share * mu) * np.exp(-share * log)
    prior = -0.5 * (mu**2 + (log + 1.0) ** 2 + (z * z).sum()) - log * share.sum()
    by_x = jacobian[:, 0] - slope
    scale = np.exp(log)
    by_z = -z + by_x * scale
    by_u = np.empty(4)
    by_u[0] = -mu + by_x.sum() - (by_z * share * np.exp(-share * log)).sum()
    by_u[1] = -(log + 1.0) - share.sum() + (by_x * scale * z).sum() - (by_z * share * z).sum()
    by_u[2:] = by_z * np.exp(-share * log)
    return np.array(prior + outputs.sum()), slope_error * by_u, np.ones(2)


class Toy:
    """Mu ~ N(0, 1), l ~ N(-1, 1), x_j ~ N(mu, exp(l)), and a black box -(x_j - a_j)^2 / 2 s^2 for each of two groups.

    Coordinates u = (mu, l, u_1, u_2); what :class:`pymc_kameleon.steps.factors.split.Split` is for a PyMC model.
    """

    data, noise = np.array([1.0, -0.5]), 0.8
    factors = ("y0", "y1")
    slope_error = 1.0  # what the known part's gradient is multiplied with

    def __init__(self):
        self.layout = Layout(np.arange(3), np.arange(3), np.array([True, True]))
        self.movable, self.units = np.array([False, False, True, True]), np.ones(4)
        self.parts_known = self
        self.outputs = np.zeros(2)

    def boxes(self, x):
        return -0.5 * np.square((x - self.data) / self.noise)

    def __call__(self, v):
        """Log density of v, up to a constant."""
        with np.errstate(all="ignore"):
            self.outputs = self.boxes(v[0] + np.exp(v[1]) * v[2:])
            prior = -0.5 * (v[0] ** 2 + (v[1] + 1.0) ** 2 + v[2:] @ v[2:])
            return float(prior + self.outputs.sum())

    def places(self, u, centring):
        with np.errstate(all="ignore"):
            return places_of_toy(u, centring)

    def known(self, *given):
        with np.errstate(all="ignore"):
            value, by_u, by_o = known_of_toy(*given, self.slope_error)
        return float(value), by_u, by_o

    def compiled(self):
        return None

    def draw(self, rng, size):
        """Exact draws of v: from the prior, accepted with the likelihood, which is at most 1."""
        found = []
        while len(found) < size:
            v = rng.standard_normal(4)
            v[1] -= 1.0
            x = v[0] + np.exp(v[1]) * v[2:]
            if np.log(rng.random()) < self.boxes(x).sum():
                found.append(v)
        return np.array(found)


class CompiledToy(Toy):
    """With functions that compiled code can call, as those of a PyMC model are."""

    def __init__(self, places=places_of_toy, known=known_of_toy):
        super().__init__()
        self._functions = (
            first_class(places, 2 * [np.zeros(4)]),
            first_class(
                known, [np.zeros(4), np.zeros(4), np.zeros(2), np.zeros(2), np.zeros((2, 1)), np.zeros(2), 1.0]
            ),
        )

    def compiled(self):
        return *self._functions, ((), (self.slope_error,))


def first_class(function, given):
    """A function of Numba's as ``pytensor_internals.callable_from_numba`` makes it."""
    jitted, kinds = numba.njit(function), numba.types.Tuple([numba.typeof(a) for a in given])
    of_tuple = numba.njit(lambda arguments: jitted(*arguments))
    of_tuple.compile((kinds,))
    return FirstClass(of_tuple.overloads[(kinds,)], kinds)


def schools(groups=3):
    """Groups with a log likelihood each, centred as one writes it."""
    box = BlackBox(lambda x, y: -0.5 * (x - y) ** 2)
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 2.0)
        tau = pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", mu, tau, shape=groups)
        for j in range(groups):
            pm.Potential(f"y{j}", box(theta[j], float(j)))
    return model, box


def log_density_of_schools(mu, log_tau, z):
    """Of three ``schools()`` in non-centred coordinates, with theta = mu: where tau is next to nothing."""
    priors = stats.norm.logpdf(mu, 1.0, 2.0) + stats.norm.logpdf(z).sum() + stats.halfnorm.logpdf(np.exp(log_tau))
    return priors + log_tau - 0.5 * np.sum((mu - np.arange(3)) ** 2)


def curves(groups=2, shape=None):
    """A black box a group that returns predictions, inside a normal likelihood."""
    kind = pt.dvector if shape is None else (lambda: pt.TensorType("float64", shape)())
    box = BlackBox(lambda rate, size: size * np.exp(-rate * np.arange(3.0)), kind)
    with pm.Model() as model:
        centre = pm.Normal("centre", 0.0, 1.0, shape=2)
        spread = pm.HalfNormal("spread", 0.5)
        theta = pm.Normal("theta", centre, spread, shape=(groups, 2))
        sigma = pm.HalfNormal("sigma", 0.5)
        for j in range(groups):
            prediction = box(pt.exp(theta[j, 0]), pt.exp(theta[j, 1]))
            pm.Normal(f"y{j}", prediction, sigma, observed=np.array([1.0, 0.5, 0.2]) + 0.1 * j)
    return model, box
