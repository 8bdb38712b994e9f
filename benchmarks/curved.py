"""Curved and ill-conditioned posteriors, and how the steps do on them from where ``pm.sample`` starts.

Chains, measures and tables are those of the textbook models. No prior tells a step what the posterior is: most are
flat. The truth is exact draws (``DRAWS``), or NUTS's where there are data.

    python -m benchmarks.curved                                     # all models, the default steps, one seed; an hour
    python -m benchmarks.curved --problems shell --samplers FastKameleonStep:screen=0 pm.Slice --seeds 3
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm
from pytensor import tensor as pt

from benchmarks import cells
from benchmarks.basics import bulk_ess, rhat
from benchmarks.cells import Benchmark, Cell
from benchmarks.textbook import board
from benchmarks.textbook.posterior import Posterior, Reference, moments

Draw = Callable[[np.random.Generator, int], np.ndarray]


def _flat(d: int, log_density, initval=None) -> pm.Model:
    with pm.Model() as model:
        x = pm.Flat("x", shape=d, initval=np.zeros(d) if initval is None else initval)
        pm.Potential("log_density", log_density(x))
    return model


class Triangular:
    """x_i ~ N(m_i(x_j, j < i), s_i): ``means`` are functions of (x, numpy or pytensor), None for 0."""

    def __init__(self, means, sds):
        self.means, self.sds = means, np.array(sds, dtype=float)

    def __call__(self) -> pm.Model:
        def log_density(x):
            rest = [x[i] - (0.0 if m is None else m(x, pt)) for i, m in enumerate(self.means)]
            return -0.5 * pt.sum((pt.stack(rest) / self.sds) ** 2)

        return _flat(len(self.sds), log_density)

    def draw(self, rng, n):
        """Exact draws, (n, d)."""
        x = (self.sds * rng.standard_normal((n, len(self.sds)))).T
        for i, mean in enumerate(self.means):
            if mean is not None:
                x[i] += mean(x, np)
        return x.T


two_bends = Triangular(  # a parabola on a parabola
    [None, lambda x, _: x[0] ** 2 - 1, lambda x, _: 0.4 * (x[1] ** 2 - 2), None, None], [1, 0.3, 0.4, 1, 1]
)
cubic = Triangular([None, lambda x, _: x[0] - 0.2 * x[0] ** 3, None, None, None, None], [2, 0.6, 1, 3, 0.1, 10])
waves = Triangular([None, lambda x, m: 2 * m.sin(x[0]), *[None] * 6], [3, 0.3, *[1] * 6])


def _rotation(d, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


ROTATED = 3.0, _rotation(12, 1) * np.logspace(-1.5, 1.5, 12)  # mean; factor, axes of 1 : 1000
RIDGE = -2.0, _rotation(6, 2) * np.logspace(-0.5, 1.2, 6)  # axes of 1 : 50
TAILS = 4.0  # degrees of freedom
RADIUS, THICKNESS = 5.0, 0.3
SHAPE, SCALES = 1.5, np.array([0.5, 5.0, 50.0, 500.0, 5000.0])


def _square(x, mean, factor):
    """Of the distance from the mean, where the covariance is factor factor^T."""
    return pt.sum(pt.dot(np.linalg.inv(factor), x - mean) ** 2)


def rotated() -> pm.Model:
    """A normal, 12-d, axes of 1 : 1000, rotated."""
    return _flat(12, lambda x: -0.5 * _square(x, *ROTATED))


def student_ridge() -> pm.Model:
    """A t distribution with four degrees of freedom, 6-d, axes of 1 : 50, rotated."""
    return _flat(6, lambda x: -0.5 * (TAILS + 6) * pt.log1p(_square(x, *RIDGE) / TAILS))


def shell() -> pm.Model:
    """A sphere's surface in three dimensions, with a thickness."""
    return _flat(3, lambda x: -0.5 * ((pt.sqrt(pt.sum(x**2)) - RADIUS) / THICKNESS) ** 2, initval=np.full(3, 0.5))


def gammas() -> pm.Model:
    """Five independent gammas in raw units from 0.5 to 5000, each beside a wall."""

    def log_density(x):
        return pt.sum(pt.switch(x > 0, (SHAPE - 1) * pt.log(pt.abs(x) + 1e-300) - x / SCALES, -np.inf))

    return _flat(5, log_density, initval=2 * SCALES)


def hyperbola() -> pm.Model:
    """A regression whose slope is a product: a b is known to a few per cent, a and b are not."""
    rng = np.random.default_rng(11)
    x = rng.uniform(0, 2, 40)
    y = 0.7 + 4.0 * x + rng.normal(0, 0.4, 40)
    with pm.Model() as model:
        a, b, c = pm.Normal("a", 2.0, 1.0), pm.Normal("b", 2.0, 1.0), pm.Normal("c", 0.0, 5.0)
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Normal("y", c + a * b * x, sigma, observed=y)
    return model


def power_law() -> pm.Model:
    """A power law a x^b + c on a short range of x: three parameters for little more than a line."""
    rng = np.random.default_rng(12)
    x = np.linspace(0.5, 3.0, 25)
    y = 2.0 * x**1.4 + 1.0 + rng.normal(0, 0.3, 25)
    with pm.Model() as model:
        a, b, c = pm.HalfNormal("a", 10.0), pm.Normal("b", 1.0, 1.0), pm.Normal("c", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Normal("y", a * x**b + c, sigma, observed=y)
    return model


def clinic() -> pm.Model:
    """Logistic regression on correlated covariates in raw units: age, its square, weight, blood pressure, a dummy."""
    rng = np.random.default_rng(13)
    age = rng.integers(20, 80, 150).astype(float)
    weight = 55 + 0.3 * age + rng.normal(0, 9, 150)
    pressure = 90 + 0.5 * age + 0.3 * weight + rng.normal(0, 8, 150)
    smokes = (rng.random(150) < 0.4).astype(float)
    eta = -9 + 0.05 * age + 0.05 * pressure + 0.9 * smokes - 0.01 * weight
    ill = (rng.random(150) < 1 / (1 + np.exp(-eta))).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 10.0, shape=6)
        score = b[0] + b[1] * age + b[2] * age**2 + b[3] * weight + b[4] * pressure + b[5] * smokes
        pm.Bernoulli("ill", logit_p=score, observed=ill)
    return model


def _draw_student_ridge(rng, n):
    t = rng.standard_normal((n, 6)) / np.sqrt(rng.chisquare(TAILS, (n, 1)) / TAILS)
    return RIDGE[0] + t @ RIDGE[1].T


def _draw_shell(rng, n):
    r = RADIUS + THICKNESS * rng.standard_normal(2 * n)
    r = r[rng.random(2 * n) < (r / (RADIUS + 5 * THICKNESS)) ** 2]  # the surface grows with r^2
    direction = rng.standard_normal((len(r), 3))
    return r[:, None] * direction / np.linalg.norm(direction, axis=1, keepdims=True)


DRAWS: dict[str, Draw] = {
    "rotated": lambda rng, n: ROTATED[0] + rng.standard_normal((n, 12)) @ ROTATED[1].T,
    "student ridge": _draw_student_ridge, "two bends": two_bends.draw, "cubic": cubic.draw, "waves": waves.draw,
    "shell": _draw_shell, "gammas": lambda rng, n: SCALES * rng.gamma(SHAPE, size=(n, 5)),
}  # fmt: skip
MODELS: dict[str, Callable[[], pm.Model]] = {
    "rotated": rotated, "student ridge": student_ridge, "two bends": two_bends, "cubic": cubic, "waves": waves,
    "shell": shell, "gammas": gammas, "hyperbola": hyperbola, "power law": power_law, "clinic": clinic,
}  # fmt: skip
STEPS = [
    "FastKameleonStep", "KameleonStep", "GaussianMixtureStep", "AdaptiveMetropolisStep", "KamiltonianStep",
    "pm.DEMetropolisZ", "pm.Slice", "pm.Metropolis",
]  # fmt: skip
EXACT = 200_000


@cache
def posterior(name: str) -> Posterior:
    return Posterior(name, MODELS[name]())


def truth(name: str) -> Reference:
    """Moments of exact draws; of NUTS's, which are kept in a file, where there are none."""
    if name in DRAWS:
        draws = DRAWS[name](np.random.default_rng(20_261_122), EXACT)
        best = max(map(posterior(name).log_density, draws[:5000]))
        return Reference.of(moments(draws, np.full(draws.shape[1], float(EXACT)), 1.0, best))
    return Reference.of(cells.truth("curved", name, lambda: by_nuts(name)))


def by_nuts(name: str) -> dict:
    """Long chains, as those of the textbook models' references."""
    from benchmarks.textbook import reference

    draws, log_densities = reference.by_nuts(posterior(name), 1)
    flat = draws.reshape(-1, draws.shape[-1])
    return moments(flat, bulk_ess(draws), rhat(draws), float(log_densities.max()))


def measure(cell: Cell) -> dict:
    return board.measured(cell, posterior(cell.problem), truth(cell.problem))


def page(found: dict[Cell, dict]) -> str:
    named = {cell.problem for cell in found}
    dimensions = {name: posterior(name).dim for name in MODELS if name in named}
    title = "# Curved and ill-conditioned posteriors, from where pm.sample starts"
    return f"{title}\n\n`python -m benchmarks.curved`.\n\n{board.tables(found, dimensions)}"


if __name__ == "__main__":
    BENCHMARK = Benchmark("curved", measure, page, board.PACKAGES)
    BENCHMARK.command(__doc__, STEPS, list(MODELS), (10_000,))
