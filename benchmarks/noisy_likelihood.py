"""What a noisy likelihood does to samplers that do not know of it, and to those that do.

1. The target is N(0, 1), of which a step sees only unbiased estimates: the density times exp(s n - s^2 / 2), with
   n ~ N(0, 1) anew at every evaluation. Posterior mean and standard deviation at s = 0.5, 1 and 1.5. Steps that keep
   the estimate at the current point are exact; PyMC's evaluate it anew and come out too wide.
2. The same, with steps that sample *another* variable, b ~ N(0, 1), which the noisy factor does not depend on: PyMC's
   as they are, and built by ``step_beside_noise``.
3. A real estimator: the stochastic-volatility model, its likelihood by a bootstrap particle filter. R-hat and
   effective draws per 1000 estimates, with fresh noise and with the noise of successive estimates correlated.

    python -m benchmarks.noisy_likelihood           # two to three minutes
"""

import math
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep
from pytensor.tensor.random.type import RandomType

from benchmarks import drive, provenance, report
from pymc_kameleon.particle_filter import StochasticVolatilityFilter, simulate_stochastic_volatility
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood, step_beside_noise
from pymc_kameleon.steps import AdaptiveMetropolisStep, FastKameleonStep, GaussianMixtureStep, KameleonStep
from pymc_kameleon.steps.pytensor_internals import cells

NOISE_SDS = (0.5, 1.0, 1.5)
OURS = (KameleonStep, FastKameleonStep, GaussianMixtureStep, AdaptiveMetropolisStep)
THEIRS = (pm.DEMetropolisZ, pm.Metropolis, pm.Slice)
VOLATILITY = (-1.0, 0.95, 0.3)


class Moments(NamedTuple):
    """Posterior mean and standard deviation with standard errors from between the chains."""

    mean: float
    mean_error: float
    sd: float
    sd_error: float

    def cells(self):
        """Mean, sd, and the z-score of the sd against 1."""
        z = (self.sd - 1.0) / self.sd_error
        return (f"{self.mean:+.3f} ± {self.mean_error:.3f}", f"{self.sd:.3f} ± {self.sd_error:.3f}", f"{z:+.1f}")


def moments(draws: np.ndarray) -> Moments:
    """Of a standard normal variable, from draws of shape (chains, n)."""
    means, squares = draws.mean(axis=1), np.square(draws).mean(axis=1)
    root = math.sqrt(len(draws))
    sd = math.sqrt(squares.mean() - means.mean() ** 2)
    return Moments(means.mean(), means.std(ddof=1) / root, sd, squares.std(ddof=1) / root / (2.0 * sd))


class Estimate:
    """Log of the noisy density; the noise has standard deviation ``sd``. Counts its evaluations."""

    def __init__(self, sd):
        self.sd, self.calls = sd, 0

    def __call__(self, rng, x):
        self.calls += 1
        return float(-0.5 * x * x + self.sd * rng.standard_normal() - 0.5 * self.sd**2)


def seed_noise(step, seed):
    """Seed the noise of a step of PyMC's, which ``random_seed`` does not reach."""
    function = getattr(step, "delta_logp", None) or getattr(step, "logp", None)
    if function is None:
        return
    for i, cell in enumerate(cells(function, lambda v: isinstance(v.type, RandomType))):
        cell.value = np.random.default_rng([seed, i])


def sample(step, model, settings, **kwargs):
    given = {"chains": settings.chains, "draws": settings.draws, "tune": settings.tune, **kwargs}
    return drive.sample(model=model, step=step, random_seed=settings.seed, **given)


def watched(name, step, seeded, model, estimate, settings):
    """What is shown of a variable's moments, and estimates a draw; ``seeded`` is the step whose noise has a seed."""
    seed_noise(seeded, settings.seed)
    before = estimate.calls
    found = moments(sample(step, model, settings)["posterior"][name].values).cells()
    calls = (estimate.calls - before) / (settings.chains * (settings.tune + settings.draws))
    return *found, f"{calls:.1f}"


def target_rows(settings):
    """Part 1."""
    rows = []
    for noise_sd in NOISE_SDS:
        estimate = Estimate(noise_sd)
        with pm.Model() as model:
            x = pm.Flat("x", initval=0.0)
            pm.Potential("likelihood", NoisyLogLikelihood(estimate)(x))
            steps = [kind() for kind in (*OURS, *THEIRS)]
        for step in steps:
            rows.append((noise_sd, type(step).__name__, *watched("x", step, step, model, estimate, settings)))
            print(rows[-1], flush=True)
    return rows


def compound_rows(settings):
    """Part 2."""
    rows = []
    for kind in (pm.Metropolis, pm.Slice):
        for careful in (False, True):
            estimate = Estimate(1.5)
            with pm.Model() as model:
                x, b = pm.Normal("x"), pm.Normal("b")
                pm.Potential("likelihood", NoisyLogLikelihood(estimate)(x))
                other = step_beside_noise(kind, [b]) if careful else kind([b])
                step = CompoundStep([AdaptiveMetropolisStep([x]), other])
            name = f"step_beside_noise(pm.{kind.__name__})" if careful else f"pm.{kind.__name__}"
            rows.append((name, *watched("b", step, other, model, estimate, settings)))
            print(rows[-1], flush=True)
    return rows


def volatility_model(y, n_particles, correlated):
    """Weak priors; the noise of the correlated filter is handed over, and its particles are sorted."""
    likelihood = StochasticVolatilityFilter(y, n_particles, sort=correlated)
    if correlated:
        op = NoisyLogLikelihood(likelihood.given, auxiliary_shape=likelihood.aux_shape)
    else:
        op = NoisyLogLikelihood(likelihood)
    with pm.Model() as model:
        mean = pm.Normal("mean", -1.0, 1.0)
        persistence = pm.Beta("persistence", 20.0, 1.5, initval=0.93)
        sd = pm.HalfNormal("sd", 0.5, initval=0.3)
        pm.Potential("likelihood", op(mean, persistence, sd))
    rng = np.random.default_rng(1)
    spread = np.std([likelihood(rng, *VOLATILITY) for _ in range(300)])
    return model, spread


def volatility_rows(settings):
    """Part 3."""
    y, _ = simulate_stochastic_volatility(np.random.default_rng(settings.seed), 200, *VOLATILITY)
    rows = []
    for n_particles, correlation in ((50, None), (50, 0.99), (20, 0.99)):
        model, spread = volatility_model(y, n_particles, correlation is not None)
        for kind in (KameleonStep, AdaptiveMetropolisStep):
            step = kind(model=model, correlation=correlation)
            idata = sample(step, model, settings, chains=4, tune=settings.pf_tune, draws=settings.pf_draws)
            names = ("mean", "persistence", "sd")
            posterior = {name: idata["posterior"][name].values for name in names}
            ess = [float(az.ess({name: v})[name]) for name, v in posterior.items()]
            rhat = [float(az.rhat({name: v})[name]) for name, v in posterior.items()]
            summary = [f"{v.mean():.3f} ± {v.std():.3f}" for v in posterior.values()]
            evaluations = 4 * (settings.pf_draws + settings.pf_tune + 1)
            accepted = idata["sample_stats"]["accepted"].values.mean()
            rows.append(
                (n_particles, f"{spread:.2f}", correlation or "fresh", kind.__name__, f"{accepted:.2f}",
                 f"{max(rhat):.3f}", f"{1000 * min(ess) / evaluations:.1f}", *summary)
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def page(settings):
    columns = ["mean", "sd", "z of the sd", "estimates a draw"]
    alone = report.table(["log-estimate noise sd", "step", *columns], target_rows(settings))
    beside = report.table(["step of b", *columns], compound_rows(settings))
    head = ["particles", "noise sd at the truth", "correlation", "step", "accepted", "R-hat",
            "effective draws per 1000 estimates", "mean", "persistence", "sd"]  # fmt: skip
    volatility = report.table(head, volatility_rows(settings))
    return report.page("noisy_likelihood", globals() | locals())


if __name__ == "__main__":
    provenance.command(
        "noisy_likelihood", __doc__, page, chains=16, draws=2500, tune=800, pf_draws=2500, pf_tune=1200, seed=20261120
    )
