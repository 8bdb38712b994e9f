"""What an unbiased GP classification likelihood costs, and how noisy it is.

On UCI Glass (214 rows, whitened), at points of the posterior that a short chain visits: processor time of an estimate
(the lower quartile, because other programs only ever add) and the Cholesky factors in it (of K, of B for every Newton
step, of C); the variance of the log estimate and the Pareto k of the weights (Vehtari et al., 2024: below 0.7 they
behave as if their variance were finite); the same when the signal variance grows, which is why EP is the default then.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.gp_estimator           # one to two minutes
"""

import itertools

import numpy as np
from scipy import stats

from benchmarks import provenance, report
from benchmarks.basics import timed
from pymc_kameleon.datasets import load_glass
from pymc_kameleon.gp.estimator import GPClassificationEstimator

PRIOR_MEAN, PRIOR_VARIANCE = -np.log(2.0), 20.0


def whitened_glass():
    data = load_glass()
    factor = np.linalg.cholesky(np.cov(data.X.T))
    return np.linalg.solve(factor, (data.X - data.X.mean(axis=0)).T).T, data.y


def posterior_points(X, y, rng, n_points=6, spacing=400):
    """Where a random-walk pseudo-marginal chain is every ``spacing`` evaluations."""
    estimator = GPClassificationEstimator(X, y)

    def log_density(theta):
        return estimator(rng, theta) - np.square(theta - PRIOR_MEAN).sum() / (2 * PRIOR_VARIANCE)

    theta, points = np.full(X.shape[1], 2.0), []
    value = log_density(theta)
    for step in range((n_points + 2) * spacing):
        proposal = theta + 1.5 * rng.standard_normal(len(theta))
        proposed = log_density(proposal)
        if np.log(rng.random()) < proposed - value:
            theta, value = proposal, proposed
        if step >= 2 * spacing and step % spacing == 0:
            points.append(theta)
    return np.array(points)


def timing_table(X, y, points, rng):
    settings = {
        "Laplace, 16 draws": {}, "Laplace, 100 draws": {"n_importance": 100},
        "Laplace, 16 draws, cold start": {"start": "zeros"}, "Laplace, 16 draws, probit": {"link": "probit"},
        "EP, 16 draws": {"approximation": "ep"},
    }  # fmt: skip
    rows = [(name, *time_estimate(X, y, points, rng, **kw)) for name, kw in settings.items()]
    return ("estimate", "Choleskys", "estimate, ms"), rows


def time_estimate(X, y, points, rng, **settings):
    """(factorisations made, milliseconds of the estimate)."""
    estimator = GPClassificationEstimator(X, y, **settings)
    u, turns = rng.standard_normal(estimator.aux_shape), itertools.cycle(points)
    factorizations = np.mean([estimator._fit(theta).factorizations for theta in points])
    times = [timed(lambda: estimator.log_estimate(next(turns), u))[0] for _ in range(300)]
    return factorizations, f"{1e3 * np.quantile(times, 0.25):.3f}"


def pareto_k(log_weights):
    """Shape of a generalised Pareto distribution fitted to the largest 3 sqrt(N) weights."""
    w = np.sort(np.exp(log_weights - log_weights.max()))
    tail = int(3 * np.sqrt(len(w)))
    k, _, _ = stats.genpareto.fit(w[-tail:] - w[-tail - 1], floc=0.0)
    return k


def noise(X, y, theta, n_importance, rng, repeats=200, **arguments):
    """(variance of the log estimate, Pareto k of the weights)."""
    estimator = GPClassificationEstimator(X, y, n_importance, **arguments)
    logs = [estimator(rng, theta) for _ in range(repeats)]
    many = GPClassificationEstimator(X, y, 20_000, **arguments)
    u = rng.standard_normal(many.aux_shape)
    # one of every antithetic pair: independent weights
    return np.var(logs, ddof=1), pareto_k(many.log_weights(theta, u)[::2])


def ranges(results):
    low, high = np.min(results, axis=0), np.max(results, axis=0)
    return f"{low[0]:.2g} - {high[0]:.2g}", f"{low[1]:.2f} - {high[1]:.2f}"


def variance_table(X, y, points, rng):
    places = {"posterior": points[:3], "prior": rng.normal(PRIOR_MEAN, np.sqrt(PRIOR_VARIANCE), (3, 9))}
    rows = []
    for place, thetas in places.items():
        for approximation in ("laplace", "ep"):
            for n_importance in (1, 16, 100):
                results = [noise(X, y, theta, n_importance, rng, approximation=approximation) for theta in thetas]
                rows.append((place, approximation, n_importance, *ranges(results)))
    return ("theta from the", "approximation", "draws", "var log estimate", "Pareto k"), rows


def amplitude_table(X, y, points, rng):
    rows = []
    for variance in (1, 10, 30, 100):
        for approximation in ("laplace", "ep"):
            how = {"repeats": 100, "signal_variance": "free", "approximation": approximation}
            results = [noise(X, y, np.append(theta, np.log(variance)), 50, rng, **how) for theta in points[:3]]
            rows.append((variance, approximation, *ranges(results)))
    return ("s^2", "approximation", "var log estimate, 50 draws", "Pareto k"), rows


def page(options):
    rng = np.random.default_rng(options.seed)
    X, y = whitened_glass()
    points = posterior_points(X, y, rng)
    parts = (
        ("Cost, n = 214, one BLAS thread", timing_table),
        ("Noise, signal variance 1", variance_table),
        ("Noise, free signal variance, posterior points", amplitude_table),
    )
    return report.sections("The Gaussian-process classification estimator on UCI Glass", parts, X, y, points, rng)


if __name__ == "__main__":
    provenance.command("gp_estimator", __doc__, page, seed=1)
