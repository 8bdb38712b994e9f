"""Twelve targets with over-dispersed starts, and what is true of them."""

from functools import cached_property

import numpy as np

from benchmarks import cells
from benchmarks.basics import generators, number
from benchmarks.measures import MarginalTruth
from benchmarks.posteriors import EightSchools, Envelope, LogisticRegression, LotkaVolterra, laplace
from pymc_kameleon.targets import Banana, Bimodal, CorrelatedGaussian, Flower, Funnel, Ring, StudentT, odd_units_banana

CHAINS = 4
EXACT = 400_000  # draws, of which the quantiles are
BOX = 10.0  # standard deviations, of a prior for those who need one
TARGETS = {
    "banana .03": Banana(0.03, 100.0, 8), "banana .1": Banana(0.1, 100.0, 8), "flower": Flower(10.0, 6.0, 6, 1.0, 8),
    "ring": Ring(10.0, 1.0, 8), "funnel": Funnel(3.0, 5), "gauss20": CorrelatedGaussian(1e4, 20),
    "t5": StudentT(5.0, 10), "bimodal": Bimodal(4.0, 2), "logistic": LogisticRegression(),
    "lotka-volterra": LotkaVolterra(), "eight schools": EightSchools(), "odd units": odd_units_banana(),
}  # fmt: skip
# KamiltonianStep's surrogates can represent these log densities exactly: polynomials of the degree that they have,
# and a scale. Eight schools is a scale and polynomials, too, but for the prior of tau.
SPAN = ("banana .03", "banana .1", "funnel", "gauss20", "odd units")


def start(name: str, rng: np.random.Generator) -> np.ndarray:
    """One over-dispersed point, shape (d,): each coordinate uniform within two standard deviations of its mean.

    Four targets differ, as in the study that these benchmarks follow. Logistic: within 2 of zero, twenty posterior
    standard deviations wide. Funnel: within 6 in every coordinate (the neck's and the mouth's scales differ by
    thousands). Eight schools: mu within 10 of 0, log tau in (-1, 2.5), the effects within 10 of 4. Lotka-Volterra:
    within 0.2 of a point among the cycles, in the logarithms, since chains that start farther off may stay in the flat
    line, which is another mode.
    """
    target = TARGETS[name]
    u = rng.uniform(-2.0, 2.0, target.dim)
    if name == "logistic":
        return u
    if name == "funnel":
        return 3.0 * u
    if name == "eight schools":
        return np.concatenate([5.0 * u[:1], rng.uniform(-1.0, 2.5, 1), 4.0 + 5.0 * u[2:]])
    if name == "lotka-volterra":
        return target.initial_point + 0.1 * u
    return target.mean + np.sqrt(np.diag(target.cov)) * u


def starts(name: str, seed: int, n: int = CHAINS) -> np.ndarray:
    """Starting points, the same for every sampler, shape (n, d)."""
    return np.array([start(name, rng) for rng in generators([number(name), seed], n)])


def exact(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Draws (n, d) and weights: exact draws, or importance sampling about the mode where there are none."""
    target, rng = TARGETS[name], np.random.default_rng(20_251_120)
    if not isinstance(target, (LogisticRegression, LotkaVolterra)):
        return target.sample(rng, EXACT), np.ones(EXACT)
    df = laplace(target.log_density, target.initial_point).df
    envelope = Envelope(target.mean, np.linalg.cholesky(target.cov), df)
    normal = rng.standard_normal((EXACT, target.dim))
    s = normal / np.sqrt(rng.chisquare(df, (EXACT, 1)) / df)
    log_weight = envelope.log_weight(target.numba_log_density, s)
    return envelope.location + s @ envelope.factor.T, np.exp(log_weight - log_weight.max())


def quantiles(name: str, at) -> np.ndarray:
    """Of every coordinate, shape (len(at), d)."""
    draws, weights = exact(name)
    found = []
    for values in draws.T:
        order = np.argsort(values)
        content = np.cumsum(weights[order])
        found.append(np.interp(at, content / content[-1], values[order]))
    return np.transpose(found)


def truth(name: str) -> MarginalTruth:
    """Moments in closed form (or by quadrature), quantiles from exact draws; those are kept in a file."""
    target, at = TARGETS[name], (0.1, 0.25, 0.75, 0.9)
    stored = cells.truth("cold_start", name, lambda: {"quantiles": quantiles(name, at).tolist()})
    return MarginalTruth(target.mean, np.diag(target.cov), np.array(stored["quantiles"]))


class Boxed:
    """A target as the rivals take it.

    It has no prior. Who samples from one gets a uniform box, ten true standard deviations on both sides of the true
    mean: wide enough to cut nothing off (the funnel's tails a little), and they are told where the posterior is.
    """

    def __init__(self, name: str):
        self.name, target = name, TARGETS[name]
        self.dim, sd = target.dim, np.sqrt(np.diag(target.cov))
        self.low, self.high = target.mean - BOX * sd, target.mean + BOX * sd

    def start(self, seed: int, run: int) -> np.ndarray:
        """Where a chain begins, as all samplers' do."""
        return starts(self.name, seed, run + 1)[run]

    def log_prior(self, x: np.ndarray) -> float:
        """But for a constant."""
        return 0.0

    @cached_property
    def prior_model(self):
        """The prior alone, for ``pm.sample_smc``."""
        import pymc as pm

        with pm.Model() as model:
            pm.Uniform("x", self.low, self.high, shape=self.dim)
        return model

    def from_values(self, z: np.ndarray) -> np.ndarray:
        """The point of a vector of ``prior_model``'s value variables."""
        from scipy.special import expit

        return self.low + (self.high - self.low) * expit(z)

    def of_trace(self, point: dict) -> np.ndarray:
        """The vector of a draw of ``prior_model``."""
        return point["x"]
