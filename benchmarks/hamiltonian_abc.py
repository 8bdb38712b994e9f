"""Hamiltonian ABC beside pseudo-marginal steps: the 10-d skew normal of the KMC paper (Strathmann et al., 2015).

Hamiltonian ABC (`stochastic_gradients.py`) spends simulations on gradients, 2 S for every sign vector of every leapfrog
step, and has no accept step. The steps of this package spend S on one unbiased estimate a draw, keep it while the chain
stays, and are exact whatever their surrogate is; `pm.DEMetropolisZ` estimates anew at both ends. The exact ABC
posterior is known. Data sets have ten observations, as in the paper's public experiments, whose mean is nearly normal,
or one, which leaves the posterior skewed but takes hundreds of simulations an estimate. *along* is the direction
(1, ..., 1), the only one in which the simulator is skewed, *across* any other.

    python -m benchmarks.hamiltonian_abc         # five minutes
"""

import math
from typing import NamedTuple

import numpy as np
import pymc as pm

from benchmarks import drive, provenance, report
from benchmarks.basics import bulk_ess, estimate, generators, nested
from benchmarks.noisy_likelihood import seed_noise
from benchmarks.stochastic_gradients import SPASGradient, hamiltonian_abc, synthetic_log_likelihood
from pymc_kameleon.steps import AdaptiveMetropolisStep, KamiltonianStep
from pymc_kameleon.targets import SkewNormalABC

# target, data sets for an estimate of the pseudo-marginal steps
CASES = {
    "ten observations a data set": (SkewNormalABC(), 10),
    "one observation a data set": (SkewNormalABC(n_observations=1), 300),
}
SIMULATIONS = 10  # of Hamiltonian ABC for a likelihood, as in the public experiments
# Strathmann et al. (2015): 1000 points of history, 50 steps of U[0.01, 0.1], lengthscale 2.83, lambda 1 beside sums,
# which is 4 / (n sigma)^2 beside ours, sigma = 16
PAPER = {
    "surrogate": "lite", "n_history": 1000, "lengthscale": 2.83, "regularization": 4.0 / 16_000.0**2,
    "isotropic": True, "base_scale": math.inf, "whiten": False, "n_leapfrog": 50, "step_size": (0.01, 0.1),
    "random_walk_share": 0.0,
}  # fmt: skip
STEPS = {
    "KMC lite, history given, paper's settings": (KamiltonianStep, PAPER, True),
    "KMC lite, history given": (KamiltonianStep, {"surrogate": "lite"}, True),
    "KMC lite, cold": (KamiltonianStep, {"surrogate": "lite"}, False),
    "KMC finite, history given": (KamiltonianStep, {"surrogate": "finite"}, True),
    "KMC finite, cold": (KamiltonianStep, {"surrogate": "finite"}, False),
    "KMC finite, history given, correlated": (KamiltonianStep, {"surrogate": "finite", "correlation": 0.99}, True),
    "KMC values, cold": (KamiltonianStep, {"surrogate": "values"}, False),
    "AdaptiveMetropolisStep": (AdaptiveMetropolisStep, {}, False),
    "AdaptiveMetropolisStep, correlated": (AdaptiveMetropolisStep, {"correlation": 0.99}, False),
    "pm.DEMetropolisZ": (pm.DEMetropolisZ, {}, False),
}
# likelihood, seeds, friction, sign vectors; ten of them cost what finite differences in ten dimensions do
RIVALS = {
    "HABC, leapfrog, 1 sign vector": ("synthetic", "sticky", 0.0, 1),
    "HABC, leapfrog, 10 sign vectors": ("synthetic", "sticky", 0.0, 10),
    "HABC, friction, 1 sign vector": ("synthetic", "sticky", 1.0, 1),
    "HABC, friction, 10 sign vectors": ("synthetic", "sticky", 1.0, 10),
    "HABC, friction, 1, fresh seeds": ("synthetic", "fresh", 1.0, 1),
    "HABC, friction, 1, persistent seeds": ("synthetic", "persistent", 1.0, 1),
    "HABC, friction, 10, persistent, ABC kernel": ("kernel", "persistent", 1.0, 10),
}


class Run(NamedTuple):
    """Chains of one sampler, and the data sets simulated for a draw and before the first."""

    draws: np.ndarray  # (chains, n, d)
    simulations: float
    before: float


def run_step(kind, options, given, target, n_datasets, a):
    """One of :data:`STEPS` by ``pm.sample``; half of its evaluations are tuning."""
    likelihood = target.likelihood(n_datasets)
    model = target.noisy_pymc_model(likelihood, given="correlation" in options)
    if given:
        rng = np.random.default_rng([a.seed, 1])
        options = {**options, "history": target.sample(rng, 1000)}
    with model:
        step = kind(**nested(kind, options))
        seed_noise(step, a.seed)
        likelihood.simulations = 0
        idata = drive.sample(a.draws, step=step, chains=a.chains, tune=a.tune, random_seed=a.seed)
    draws = idata["posterior"]["x"].values
    each = likelihood.simulations / (a.chains * (a.tune + a.draws))
    return Run(draws, each, a.tune * each)


def run_rival(likelihood_name, seeds, friction, repeats, target, a):
    """One of :data:`RIVALS`; None where a chain diverges."""
    likelihood, start = target.likelihood(SIMULATIONS), target.initial_point
    observed, epsilon = target.observed, target.epsilon

    def synthetic(u, theta):
        return synthetic_log_likelihood(likelihood.simulate(u, theta), observed, epsilon)

    log_likelihood = {"synthetic": synthetic, "kernel": likelihood.given}[likelihood_name]

    def log_prior_gradient(theta):
        return -theta / target.prior_sd**2

    n = a.rival_draws if repeats == 1 else a.rival_draws // 3
    chains, warmup = [], n // 10
    for rng in generators(a.seed, a.chains):
        gradient = SPASGradient(
            rng, log_likelihood, likelihood.auxiliary_shape, log_prior_gradient, seeds=seeds, repeats=repeats
        )
        try:
            chains.append(hamiltonian_abc(rng, gradient, start, warmup=warmup, draws=n, friction=friction))
        except FloatingPointError:
            return None
    each = likelihood.simulations / (a.chains * (warmup + n))
    return Run(np.array(chains), each, warmup * each)


def run_all(target, n_datasets, a):
    runs = {}
    for name in (*RIVALS, *STEPS):
        is_rival = name in RIVALS
        runs[name] = run_rival(*RIVALS[name], target, a) if is_rival else run_step(*STEPS[name], target, n_datasets, a)
        print(name, row(runs[name], target), flush=True)
    return runs


def frame(target):
    """Orthogonal matrix whose first column is the skewed direction."""
    basis = np.eye(target.dim)
    basis[:, 0] = 1.0
    q, r = np.linalg.qr(basis)
    return q * np.sign(np.diag(r))


def measures(run, target):
    """Bias of the mean and ratio of the sd, along and across; each but the mean's across with its standard error."""
    turned = (run.draws - target.mean) @ frame(target)  # (chains, n, d)
    sd = np.sqrt(np.diag(frame(target).T @ target.cov @ frame(target)))
    z = turned / sd
    pooled = z.mean(axis=(0, 1))
    spread = ((z - pooled) ** 2).mean(axis=1)  # (chains, d)
    across = np.sqrt(spread[:, 1:].mean(axis=1))
    return {
        "mean along": estimate(z[..., 0].mean(axis=1)), "mean across": math.sqrt(np.mean(pooled[1:] ** 2)),
        "sd along": estimate(np.sqrt(spread[:, 0])), "sd across": estimate(across),
    }  # fmt: skip


HEADER = [
    "error of the mean along, in sd", "RMS error of the mean across, in sd", "sd along / true", "sd across / true",
    "simulations a draw", "ESS per 1000 draws", "ESS per 1000 simulations",
]  # fmt: skip


def row(run, target):
    if run is None:
        return ["diverged", *["–"] * (len(HEADER) - 1)]
    found = measures(run, target)
    ess = bulk_ess(run.draws).min() / run.draws[..., 0].size
    along = found["mean along"]
    return [
        f"{along[0]:+.3f} ± {along[1]:.3f}", f"{found['mean across']:.3f}",
        *(f"{found[name][0]:.3f} ± {found[name][1]:.3f}" for name in ("sd along", "sd across")),
        f"{run.simulations:.0f}", f"{1000 * ess:.3g}", f"{1000 * ess / run.simulations:.3g}",
    ]  # fmt: skip


def synthetic_limit(target):
    """Error of the mean along and ratio of the sd if the synthetic likelihood had infinitely many simulations."""
    n, delta = target.n_observations, target.delta
    shift, variance = delta * math.sqrt(2.0 / math.pi), (1.0 - delta**2 * 2.0 / math.pi) / n
    variance += target.epsilon**2
    posterior = 1.0 / (1.0 / variance + 1.0 / target.prior_sd**2)
    observed = (target.observed @ frame(target))[0]
    mean, sd = (target.mean @ frame(target))[0], math.sqrt(np.sum(target.cov) / target.dim)
    return ((observed - shift) * posterior / variance - mean) / sd, math.sqrt(posterior) / sd


def page(a):
    parts = []
    for title, (target, n_datasets) in CASES.items():
        runs = run_all(target, n_datasets, a)
        shift, ratio = synthetic_limit(target)
        parts.append(
            f"## {title.capitalize()}\n\n{n_datasets} simulations for an estimate of the steps. A Gaussian "
            f"synthetic likelihood with infinitely many simulations would be wrong by {shift:+.3f} sd in the mean "
            f"along, with {ratio:.3f} of the sd.\n\n"
            + report.table(["sampler", *HEADER], [[name, *row(run, target)] for name, run in runs.items()])
        )
    tables = "\n\n".join(parts)
    return report.page("hamiltonian_abc", globals() | locals())


if __name__ == "__main__":
    provenance.command(
        "hamiltonian_abc", __doc__, page, chains=4, tune=3000, draws=6000, rival_draws=1000, seed=20260304
    )
