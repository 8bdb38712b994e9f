"""A direction whose period's ends lie in the posterior: PyMC's value variable is on the whole line."""

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_kameleon as pk
from pymc_kameleon.verdict import convergence
from tests.step_tester import NO_BLAS

pytestmark = NO_BLAS
OBSERVED = np.random.default_rng(9).vonmises(3.1, 1.0, 12)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as made:
        direction = pm.VonMises("direction", 0.0, 0.1)
        strength = pm.Exponential("strength", 0.5)
        pm.VonMises("y", direction, strength, observed=OBSERVED)
    return made


def expected():
    """Of cos and sin of the direction, and of the strength, by quadrature."""
    direction = np.linspace(-np.pi, np.pi, 361)[:-1, None]
    strength = np.exp(np.linspace(-8.0, 4.0, 1500))
    along = sum(np.cos(y - direction) for y in OBSERVED)
    normalising = np.log(special.ive(0, strength)) + strength
    log_p = stats.vonmises.logpdf(direction, 0.1) - 0.5 * strength + np.log(strength)
    log_p = log_p + strength * along - len(OBSERVED) * normalising
    weights = np.exp(log_p - log_p.max())
    return [(weights * f).sum() / weights.sum() for f in (np.cos(direction), np.sin(direction), strength)]


@pytest.mark.parametrize(
    ("sample", "least"),
    [
        (lambda: pk.sample(max_evaluations=1500, chains=8, random_seed=1, progressbar=False), 250),
        (lambda: pm.sample(500, tune=800, chains=2, cores=1, step=pk.KamiltonianStep(), **QUIET), 250),
    ],
    ids=["pk.sample", "KamiltonianStep"],
)
def test_draws_are_right_and_as_many_as_of_any_other(model, sample, least):
    with model:
        posterior = sample()["posterior"]
    direction, strength = posterior["direction"].values, posterior["strength"].values
    found = np.stack([np.cos(direction), np.sin(direction), strength], axis=2)
    ess = convergence.of_each("ess", found, method="mean")
    assert np.min(ess) > least
    z = (found.mean(axis=(0, 1)) - expected()) / (found.std(axis=(0, 1)) / np.sqrt(ess))
    assert np.abs(z).max() < 4.5


QUIET = {"random_seed": 1, "progressbar": False, "compute_convergence_checks": False}


def test_the_value_variable_stays_in_one_period(model):
    with model:
        idata = pk.sample(max_evaluations=600, chains=8, random_seed=2, progressbar=False)
    evaluated = idata["evaluations"]
    assert np.ptp(evaluated["direction_circular__"].values[np.isfinite(evaluated["_log_density"].values)]) <= 2 * np.pi
