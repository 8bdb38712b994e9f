"""What a particle-filter likelihood costs, how noisy it is, and what correlation buys.

1. Linear Gaussian model, where the Kalman filter gives the truth: mean of the ratio of estimate and likelihood, in
   standard errors from 1, and the bias of the log estimate beside minus half its variance, which it should be.
2. Stochastic volatility, 200 simulated returns: cost and variance of the log estimate by particles and resampling.
3. The same: how much the log estimate changes when the noise moves by a correlation rho, with sorted particles and
   without. The correlated pseudo-marginal method needs it small.

    python -m benchmarks.particle_filter           # under a minute
"""

import math
from functools import partial

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import timed
from pymc_kameleon.particle_filter import (
    LinearGaussianFilter,
    StochasticVolatilityFilter,
    simulate_linear_gaussian,
    simulate_stochastic_volatility,
)

GAUSSIAN = (0.0, 0.9, 0.5, 1.0)
VOLATILITY = (-1.0, 0.95, 0.3)


def kalman(y, mean, persistence, sd, observation_sd):
    """Exact log likelihood of the linear Gaussian model."""
    m, v, total = mean, sd**2 / (1 - persistence**2), 0.0
    for value in y:
        s = v + observation_sd**2
        total -= 0.5 * (math.log(2 * math.pi * s) + (value - m) ** 2 / s)
        m, v = m + v / s * (value - m), v * observation_sd**2 / s
        m, v = mean + persistence * (m - mean), persistence**2 * v + sd**2
    return total


def kalman_table(rng):
    y, _ = simulate_linear_gaussian(rng, 50, *GAUSSIAN)
    exact = kalman(y, *GAUSSIAN)
    rows = []
    for n_particles in (25, 100, 400):
        estimator = LinearGaussianFilter(y, n_particles)
        logs = np.array([estimator(rng, *GAUSSIAN) for _ in range(10_000)]) - exact
        ratio = np.exp(logs)
        z = (ratio.mean() - 1.0) / (ratio.std(ddof=1) / 100.0)
        rows.append((n_particles, f"{z:+.2f}", f"{logs.mean():+.4f}", f"{-0.5 * logs.var():+.4f}"))
    return ("particles", "z of the mean ratio", "mean log error", "minus half its variance"), rows


def cost_table(rng):
    y, _ = simulate_stochastic_volatility(rng, 200, *VOLATILITY)
    rows = []
    for resampling in ("systematic", "multinomial"):
        for n_particles in (50, 200, 800):
            estimator = StochasticVolatilityFilter(y, n_particles, resampling=resampling)
            times, logs = np.transpose([timed(partial(estimator, rng, *VOLATILITY)) for _ in range(300)])
            milliseconds = 1e3 * np.quantile(times, 0.25)
            rows.append((resampling, n_particles, f"{milliseconds:.2f}", f"{np.var(logs, ddof=1):.3f}"))
    return ("resampling", "particles", "ms per estimate", "var log estimate"), rows


def correlation_table(rng):
    y, _ = simulate_stochastic_volatility(rng, 200, *VOLATILITY)
    rows = []
    for sort in (False, True):
        estimator = StochasticVolatilityFilter(y, 200, sort=sort)
        for rho in (0.0, 0.9, 0.99, 0.999):
            changes = []
            for _ in range(200):
                u, fresh = rng.standard_normal((2, *estimator.aux_shape))
                near = rho * u + math.sqrt(1.0 - rho**2) * fresh
                pair = [estimator.log_estimate(VOLATILITY, noise) for noise in (u, near)]
                changes.append(pair[1] - pair[0])
            rows.append(("yes" if sort else "no", rho, f"{np.std(changes):.3f}"))
    return ("sorted", "rho", "sd of the change of the log estimate"), rows


def page(options):
    rng = np.random.default_rng(options.seed)
    parts = (
        ("Against the Kalman filter, 50 observations", kalman_table),
        ("Stochastic volatility, 200 observations", cost_table),
        ("Correlated noise, stochastic volatility, 200 particles", correlation_table),
    )
    return report.sections("Particle-filter likelihoods", parts, rng)


if __name__ == "__main__":
    provenance.command("particle_filter", __doc__, page, seed=1)
