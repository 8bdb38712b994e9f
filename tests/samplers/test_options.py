"""Options out of their domain are refused when a sampler is made, or when it is told the dimension.

What users see through a step is in ``tests/public/bad_input.py``.
"""

import math

import numpy as np
import pytest

from pymc_kameleon.kernels import CustomKernel, Gaussian
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.support.chains import held

CUSTOM = CustomKernel(Gaussian().value, Gaussian().gradient, name="mine")
WRONG = [
    (AdaptiveMetropolis, {"covariance": "full"}, "covariance.*'full'"),
    (Kameleon, {"autoregressive_share": 1.0}, "autoregressive_share.*1.0"),
    (AdaptiveMetropolis, {"scale": 0.0}, "scale.*0.0"),
    (Kameleon, {"gamma": -0.1}, "gamma.*-0.1"),
    (Kameleon, {"kernel": "linear"}, "'linear' takes negative values"),
    (FastKameleon, {"n_features": 7}, "n_features.*7"),
    (LiteKamiltonian, {"lengthscale": -1.0}, "lengthscale"),
    (LiteKamiltonian, {"regularization": 0.0}, "regularization"),
    (LiteKamiltonian, {"base_scale": 0.0}, "base_scale"),
    (LiteKamiltonian, {"target_accept": 1.0}, "target_accept"),
    (LiteKamiltonian, {"random_walk_share": 1.0}, "random_walk_share"),
    (LiteKamiltonian, {"mixture": "share"}, "mixture"),
    (FiniteKamiltonian, {"n_features": 7}, "n_features"),
    (Kameleon, {"normalization": "both"}, "normalization.*'both'"),
    (Kameleon, {"coordinates": "polar"}, "coordinates.*'polar'"),
    (Kameleon, {"global_share": 1.0}, "global_share.*1.0"),
    (Kameleon, {"subsample": "all"}, "subsample.*'all'"),
    (PCAKameleon, {"n_directions": 0}, "n_directions.*0"),
    (PCAKameleon, {"n_directions": 2.5}, "n_directions.*2.5"),
    (PCAKameleon, {"n_directions": 11, "n_history": 10}, "n_history = 10, got 11"),
    (PCAKameleon, {"normalization": "local"}, r"normalization.*\('trace', 'none'\), got 'local'"),
    (FastKameleon, {"normalization": "local"}, "normalization.*'local'"),
    (FastKameleon, {"lengthscale": -1.0}, "lengthscale.*-1.0"),
    (FastKameleon, {"kernel": "linear"}, "'linear'"),
    (FastKameleon, {"kernel": CUSTOM}, "'mine' was given no spectral sampler"),
    (GaussianMixture, {"n_history": 5}, "n_history"),
    (GaussianMixture, {"target_accept": 1.0}, "target_accept"),
    (CMA, {"initial_sigma": 0.0}, "initial_sigma"),
    (Screened, {"inner": CMA(), "transitions": 0}, "transitions must be an integer of at least 1, got 0"),
    (GaussianAdaptation, {"initial_radius": 0.0}, "initial_radius"),
    (GaussianAdaptation, {"target_accept": 1.0}, "target_accept"),
    (GaussianAdaptation, {"initial_scale": [1.0, -1.0]}, "initial_scale"),
    (GaussianAdaptation, {"initial_scale": [1.0]}, "initial_scale"),
    (GaussianAdaptation, {"initial_scale": [1.0, math.inf]}, "initial_scale"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG)
def test_it_is_refused_by_name(kind, options, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        held(kind, np.zeros(2), **options)
