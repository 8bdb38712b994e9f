"""Reference posteriors of the textbook models: long NUTS runs.

NUTS runs in coordinates that are whitened by the last round's covariance, so that raw units and ridges cost nothing,
until R-hat and the effective draws suffice. The slopes of a black box are taken by differences, which are a function of
the position as any: what is sampled is the model all the same. (Three that are stored were made otherwise, by two
samplers that agreed.)

    python -m benchmarks.textbook.reference

makes what is missing in ``results/textbook_reference.json``; half an hour for all.
"""

import logging
import warnings

import arviz as az
import numpy as np
import pymc as pm
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.replace import graph_replace
from scipy import optimize

from benchmarks import cells, drive
from benchmarks.basics import bulk_ess, rhat
from benchmarks.rivals.pymc_steps import Value
from benchmarks.textbook import MODELS
from benchmarks.textbook.posterior import Posterior, model_digest, moments

CHAINS = 4
ROUNDS = ((500, 300), (700, 1800), (2000, 6000))  # tuning, draws
ENOUGH, CONVERGED = 4000.0, 1.005  # effective draws of the worst coordinate, R-hat
OPTIMISER_STARTS, METRIC_ROUNDS = 12, 4


def _unordered_mirror(x):
    """The other labelling of ``mixtures.unordered``: share, two means, two log sds."""
    return x[..., [0, 2, 1, 4, 3]] * np.array([-1.0, 1.0, 1.0, 1.0, 1.0])


# Posteriors that are exactly their own mirror image, and the coordinates whose order tells the halves apart: NUTS's
# draws are folded into one half, unfolded at the end.
MIRRORS = {"unordered": (_unordered_mirror, (1, 2))}


def _folded(name, draws):
    if name not in MIRRORS:
        return draws
    mirror, (low, high) = MIRRORS[name]
    return np.where((draws[..., low] < draws[..., high])[..., None], draws, mirror(draws))


def by_nuts(posterior: Posterior, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of shape (chains, n, d) and their log densities (chains, n)."""
    location, factor = _mode(posterior, seed)
    for i, (tune, n) in enumerate(ROUNDS):
        with _whitened(posterior, location, factor):
            trace = drive.sample(
                n, tune=tune, chains=CHAINS, random_seed=seed + i, target_accept=0.98 if i == 2 else 0.9,
                compile_kwargs={} if posterior.black_box else {"mode": "NUMBA"},
            )  # fmt: skip
        draws = _folded(posterior.name, location + trace.posterior["z"].values @ factor.T)
        if i > 0 and _suffices(draws):
            break
        flat = draws.reshape(-1, posterior.dim)
        location, factor = flat.mean(axis=0), _factor(flat)
    return draws, np.asarray(trace.sample_stats["lp"].values)


def _suffices(draws):
    return bulk_ess(draws).min() > ENOUGH and rhat(draws) < CONVERGED


def _factor(draws):
    """Lower triangular, of the covariance, in a way that survives a condition number of 1e20."""
    scale = draws.std(axis=0)
    standard = (draws - draws.mean(axis=0)) / scale / np.sqrt(len(draws))
    return scale[:, None] * np.linalg.qr(standard, mode="r").T


def _whitened(posterior, location, factor):
    """The same posterior in z, x = location + factor z."""
    with pm.Model() as model:
        z = pm.Flat("z", shape=posterior.dim)
        x = location + pm.math.dot(factor, z)
        if posterior.black_box:
            pm.Potential("log_density", Value(posterior.log_density)(x))
            return model
        [log_density], joined = join_nonshared_inputs(
            posterior.point, [posterior.model.logp()], posterior.variables, {}
        )
        pm.Potential("log_density", graph_replace(log_density, {joined: x}, strict=False))
    return model


def _mode(posterior, seed):
    """The best mode from several of the starts, and BFGS's inverse Hessian there as a first metric."""
    if posterior.black_box:

        def gradient(x):
            return optimize.approx_fprime(x, posterior.log_density)

    else:
        with posterior.model:
            compiled = posterior.model.compile_dlogp(mode="NUMBA")

        def gradient(x):
            return np.asarray(compiled(posterior.to_point(x)))

    def negative(x):
        value, slope = posterior.log_density(x), gradient(x)
        finite = np.isfinite(value) and np.isfinite(slope).all()
        return (-value, -slope) if finite else (1e300, np.zeros_like(x))

    factor = np.eye(posterior.dim)
    found = [_descend(negative, x, factor) for x in posterior.starts(seed, OPTIMISER_STARTS)]
    _, x, factor = min(found, key=lambda f: f[0])
    for _ in range(METRIC_ROUNDS):  # each in the metric that the last one found
        _, x, factor = _descend(negative, x, factor)
    return x, factor


def _descend(negative, x, factor):
    """BFGS in z, x + factor z: (value, point, factor of the inverse Hessian)."""

    def shifted(z):
        value, slope = negative(x + factor @ z)
        return value, factor.T @ slope

    found = optimize.minimize(shifted, np.zeros_like(x), jac=True, method="BFGS", options={"maxiter": 2000})
    eigenvalues, vectors = np.linalg.eigh(found.hess_inv)
    eigenvalues = np.clip(eigenvalues, 1e-10 * eigenvalues.max(), None)
    return found.fun, x + factor @ found.x, factor @ vectors * np.sqrt(eigenvalues)


def make(name: str, seed: int = 1) -> dict:
    posterior = Posterior(name)
    draws, log_density = by_nuts(posterior, seed)
    own, best = draws, float(np.max(log_density))
    if name in MIRRORS:
        draws = np.concatenate([draws, MIRRORS[name][0](draws)], axis=1)
    ess = np.asarray(az.ess({"x": own}, method="mean")["x"].values)
    return {
        "digest": model_digest(name), "method": "NUTS, differences" if posterior.black_box else "NUTS",
        **moments(draws.reshape(-1, posterior.dim), ess, rhat(own), best), "bulk_ess": float(bulk_ess(own).min()),
        "best": best,
    }  # fmt: skip


def main():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for name in MODELS:
        try:
            found = cells.truth("textbook", name, lambda name=name: make(name))
        except Exception as error:  # the others are still to be made
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{name}: R-hat {found['rhat']:.4f}, effective draws {found['bulk_ess']:.0f}", flush=True)


if __name__ == "__main__":
    main()
