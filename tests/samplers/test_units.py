"""Metres or millimetres: the same model in other units mixes equally."""

import arviz as az
import numpy as np
import pytest

from benchmarks.core import run_chain
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.targets import Banana, Rescaled


def acceptance_and_ess(algorithm, unit, seed, **options):
    units = np.array([unit, 1.0, 1.0 / unit, unit])
    target = Rescaled(Banana(b=0.03, v=10.0, dim=4), units)
    start = np.array([1.0, -1.0, 0.5, -0.5]) * units
    rng = np.random.default_rng(seed)
    chain = run_chain(algorithm, target.numba_log_density, start, rng, tune=4000, draws=6000, **options)
    ess = min(float(az.ess(np.ascontiguousarray(chain.draws[None, :, i]))) for i in range(4))
    return chain.acceptance, np.log(ess)


def largest_z(algorithm, unit, n, **options):
    """Of the change between chains with units of one and of ``unit``."""
    own, other = (
        np.array([acceptance_and_ess(algorithm, u, first + s, **options) for s in range(n)])
        for u, first in ((1.0, 0), (unit, 100))
    )
    error = np.sqrt((own.var(axis=0, ddof=1) + other.var(axis=0, ddof=1)) / n)
    return np.abs((own.mean(axis=0) - other.mean(axis=0)) / error).max()


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("algorithm", [AdaptiveMetropolis, Kameleon, FastKameleon, GaussianMixture])
def test_units_change_nothing_beyond_noise(algorithm, unit):
    assert largest_z(algorithm, unit, 10) < 4.5


@pytest.mark.slow
def test_raw_coordinates_do_depend_on_units():
    """The control: the paper's settings, in the parameters' own units."""
    assert largest_z(Kameleon, 1e6, 6, **Kameleon.presets["paper"]) > 6.5
