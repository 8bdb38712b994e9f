"""Reference posteriors of the textbook models: long NUTS runs, or long runs of two samplers that agree.

Where there is a gradient, NUTS runs in coordinates that are whitened by the last round's covariance, so that raw units
and ridges cost nothing, until R-hat and the effective draws suffice. A black box is sampled by
``GaussianMixtureStep`` and ``pm.DEMetropolisZ`` from over-dispersed points about the best mode of many starts, and is
stored only if their means agree.

    python -m benchmarks.textbook.reference [--models NAME ...] [--again]

makes ``results/textbook_reference.json``; half an hour for all.
"""

import argparse
import fcntl
import json
import logging
import os
import warnings

import arviz as az
import numpy as np
import pymc as pm
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.replace import graph_replace
from scipy import optimize

from benchmarks import basics
from benchmarks.textbook import MODELS
from benchmarks.textbook.drive import Counting, _chain, _own_step, _pymc_step
from benchmarks.textbook.posterior import REFERENCE, Posterior, key, model_digest, references

COMMAND = "python -m benchmarks.textbook.reference"
CHAINS = 4
ROUNDS = ((500, 300), (700, 1800), (2000, 6000))  # tuning, draws
ENOUGH, CONVERGED = 4000.0, 1.005  # effective draws of the worst coordinate, R-hat
BLACK_BOX_EVALUATIONS = 40_000
OPTIMISER_STARTS, METRIC_ROUNDS = 12, 4
AGREE = 4.5  # standard errors between two samplers


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
            trace = pm.sample(
                n, tune=tune, chains=CHAINS, cores=1, random_seed=seed + i, progressbar=False, quiet=True,
                compute_convergence_checks=False, compile_kwargs={"mode": "NUMBA"},
                target_accept=0.98 if i == 2 else 0.9,
            )  # fmt: skip
        draws = _folded(posterior.name, location + trace.posterior["z"].values @ factor.T)
        if i > 0 and _suffices(draws):
            break
        flat = draws.reshape(-1, posterior.dim)
        location, factor = flat.mean(axis=0), _factor(flat)
    return draws, np.asarray(trace.sample_stats["lp"].values)


def _suffices(draws):
    return basics.bulk_ess(draws).min() > ENOUGH and _rhat(draws) < CONVERGED


def _rhat(draws):
    return float(np.max(az.rhat({"x": draws})["x"].values))


def _factor(draws):
    """Lower triangular, of the covariance, in a way that survives a condition number of 1e20."""
    scale = draws.std(axis=0)
    standard = (draws - draws.mean(axis=0)) / scale / np.sqrt(len(draws))
    return scale[:, None] * np.linalg.qr(standard, mode="r").T


def _whitened(posterior, location, factor):
    """The same posterior in z, x = location + factor z."""
    [log_density], joined = join_nonshared_inputs(
        posterior.point, [posterior.model.logp()], posterior.variables, {}
    )
    with pm.Model() as model:
        z = pm.Flat("z", shape=posterior.dim)
        x = location + pm.math.dot(factor, z)
        pm.Potential("log_density", graph_replace(log_density, {joined: x}, strict=False))
    return model


def _mode(posterior, seed):
    """The best mode from several of the starts, and BFGS's inverse Hessian there as a first metric."""
    with posterior.model:
        gradient = posterior.model.compile_dlogp(mode="NUMBA")

    def negative(x):
        value = posterior.log_density(x)
        slope = np.asarray(gradient(posterior.to_point(x)))
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

    found = optimize.minimize(
        shifted, np.zeros_like(x), jac=True, method="BFGS", options={"maxiter": 2000}
    )
    eigenvalues, vectors = np.linalg.eigh(found.hess_inv)
    eigenvalues = np.clip(eigenvalues, 1e-10 * eigenvalues.max(), None)
    return found.fun, x + factor @ found.x, factor @ vectors * np.sqrt(eigenvalues)


def by_two_samplers(posterior: Posterior, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of GaussianMixtureStep and pm.DEMetropolisZ, if they agree, and their log densities."""
    located = _locate(posterior, seed)
    found = []
    for text, make in (("GaussianMixtureStep", _own_step), ("pm.DEMetropolisZ", _pymc_step)):
        driver = make(posterior, text)
        draws = []
        for x, rng in zip(located, basics.generators([key(text), seed], CHAINS), strict=True):
            n = BLACK_BOX_EVALUATIONS
            log_density = Counting(posterior.log_density, limit=n + 1)
            draws.append(
                _chain(*driver(x, rng, log_density, n, n // 4), log_density, n, n // 4).draws
            )
        found.append(np.array([d[-min(map(len, draws)) :] for d in draws]))
    error = _difference(*found)
    print(f"{posterior.name}: the two differ by {error:.1f} standard errors at most; effective draws "
          f"{[round(basics.bulk_ess(d).min()) for d in found]}")  # fmt: skip
    if error > AGREE:
        raise RuntimeError(f"{posterior.name}: two samplers differ by {error:.1f} standard errors.")
    draws = max(found, key=lambda d: basics.bulk_ess(d).min())
    log_densities = [[posterior.log_density(x) for x in chain[::10]] for chain in draws]
    return draws, np.array(log_densities)


def _locate(posterior, seed):
    """Over-dispersed points within the posterior: a population from many starts, then a short chain from its best."""
    x = max(posterior.starts(seed, 200), key=posterior.log_density)
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(2):
        log_density = Counting(posterior.log_density)
        driver = _own_step(posterior, "GaussianMixtureStep")
        chain = _chain(*driver(x, rng, log_density, 20_000, 10_000), log_density, 20_000, 10_000)
        draws, x = chain.draws, max(chain.draws[::20], key=posterior.log_density)
    centre = draws.mean(axis=0)
    chosen = draws[rng.choice(len(draws), CHAINS, replace=False)]
    return centre + 1.5 * (chosen - centre)


def _difference(first, second):
    mean, variance = [], []
    for draws in (first, second):
        ess = np.asarray(az.ess({"x": draws}, method="mean")["x"].values)
        mean.append(draws.mean((0, 1)))
        variance.append(draws.var((0, 1)) / ess)
    return float(np.max(np.abs(mean[0] - mean[1]) / np.sqrt(variance[0] + variance[1])))


def make(name: str, seed: int = 1) -> dict:
    """What is stored of a model."""
    posterior = Posterior(name)
    draws, log_density = (by_two_samplers if posterior.black_box else by_nuts)(posterior, seed)
    best = float(np.max(log_density))
    own = draws
    if name in MIRRORS:
        draws = np.concatenate([draws, MIRRORS[name][0](draws)], axis=1)
    return {
        "digest": model_digest(name),
        "method": "GaussianMixtureStep and pm.DEMetropolisZ" if posterior.black_box else "NUTS",
        "coordinates": posterior.coordinates(),
        "mean": draws.mean((0, 1)).tolist(),
        "sd": draws.std((0, 1)).tolist(),
        "q05": np.quantile(draws, 0.05, axis=(0, 1)).tolist(),
        "q95": np.quantile(draws, 0.95, axis=(0, 1)).tolist(),
        "ess": np.asarray(az.ess({"x": own}, method="mean")["x"].values).tolist(),
        "bulk_ess": float(basics.bulk_ess(own).min()),
        "rhat": _rhat(own),
        "best": best,
        "level": best - posterior.dim / 2 - 3.0,
    }


def save(name: str, found: dict) -> None:
    """One model a line."""
    with open(REFERENCE.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        models = references() | {name: found}
        lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(models[n])}" for n in sorted(models))
        temporary = REFERENCE.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(
            f'{{"command": "{COMMAND}", "versions": "{basics.versions()}", "models": {{\n{lines}\n}}}}\n'
        )
        temporary.replace(REFERENCE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--again", action="store_true", help="also what is stored")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for name in arguments.models:
        stored = references().get(name, {})
        if stored.get("digest") == model_digest(name) and not arguments.again:
            continue
        try:
            found = make(name)
        except Exception as error:  # the others are still to be made
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        save(name, found)
        print(
            f"{name}: R-hat {found['rhat']:.4f}, effective draws {found['bulk_ess']:.0f}, level {found['level']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
