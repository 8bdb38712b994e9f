"""Options out of their domain are refused when a sampler is made, or when it is told the dimension.

What users see through a step is in ``tests/public/bad_input.py``.
"""

import math

import numpy as np
import pytest

from pymc_kameleon.kernels import CustomKernel, Gaussian, Sinc
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon
from pymc_kameleon.samplers.shape_learners.cma import CMA
from pymc_kameleon.samplers.shape_learners.gaussian_adaptation import GaussianAdaptation
from tests.support.chains import held

GAA = GaussianAdaptation
CUSTOM = CustomKernel(Gaussian().value, Gaussian().gradient, name="mine")
WRONG = [
    (AdaptiveMetropolis, {"target_accept": 1.5}, "target_accept.*1.5"),
    (AdaptiveMetropolis, {"scaling": "none"}, "scaling.*'none'"),
    (AdaptiveMetropolis, {"covariance": "full"}, "covariance.*'full'"),
    (AdaptiveMetropolis, {"exploration_share": -0.1}, "exploration_share.*-0.1"),
    (Kameleon, {"autoregressive_share": 1.0}, "autoregressive_share.*1.0"),
    (AdaptiveMetropolis, {"scale": 0.0}, "scale.*0.0"),
    (AdaptiveMetropolis, {"initial_scale": np.array([1.0, -1.0])}, "initial_scale"),
    (Kameleon, {"n_history": 1}, "n_history.*1"),
    (Kameleon, {"n_history": 2.5}, "n_history.*2.5"),
    (Kameleon, {"gamma": -0.1}, "gamma.*-0.1"),
    (Kameleon, {"lengthscale": np.nan}, "lengthscale.*nan"),
    (Kameleon, {"normalization": "both"}, "normalization.*'both'"),
    (Kameleon, {"coordinates": "polar"}, "coordinates.*'polar'"),
    (Kameleon, {"global_share": 1.0}, "global_share.*1.0"),
    (Kameleon, {"subsample": "all"}, "subsample.*'all'"),
    (Kameleon, {"kernel": "gausian"}, "kernel must be one of .*'gausian'"),
    (Kameleon, {"kernel": "linear"}, "'linear' takes negative values"),
    (Kameleon, {"kernel": Sinc()}, "'sinc' takes negative values"),
    (Kameleon, {"kernel": object()}, "kernel must be .* or a Kernel, got <object"),
    (PCAKameleon, {"n_directions": 0}, "n_directions.*0"),
    (PCAKameleon, {"n_directions": 2.5}, "n_directions.*2.5"),
    (PCAKameleon, {"n_directions": 11, "n_history": 10}, "n_history = 10, got 11"),
    (PCAKameleon, {"normalization": "local"}, r"normalization.*\('trace', 'none'\), got 'local'"),
    (FastKameleon, {"n_features": 7}, "n_features.*7"),
    (FastKameleon, {"embedding": "sin"}, "'sin'"),
    (FastKameleon, {"normalization": "local"}, "normalization.*'local'"),
    (FastKameleon, {"variance_share": 0.0}, "variance_share.*0.0"),
    (FastKameleon, {"lengthscale": -1.0}, "lengthscale.*-1.0"),
    (FastKameleon, {"kernel": "linear"}, "'linear'"),
    (FastKameleon, {"kernel": CUSTOM}, "'mine' was given no spectral sampler"),
    (GaussianMixture, {"n_history": 5}, "n_history"),
    (GaussianMixture, {"max_components": 0}, "max_components"),
    (GaussianMixture, {"shares": (0.5, 0.5, 0.5, 0.5)}, "shares"),
    (GaussianMixture, {"shares": (0.5, 0.5)}, "shares"),
    (GaussianMixture, {"target_accept": 1.0}, "target_accept"),
    (CMA, {"initial_sigma": 0.0}, "initial_sigma"),
    (CMA, {"rate_factor": 5.0}, "rate_factor"),
    (CMA, {"rate_factor": math.nan}, "rate_factor"),
    (GAA, {"initial_radius": 0.0}, "initial_radius"),
    (GAA, {"target_accept": 1.0}, "target_accept"),
    (GAA, {"rate": 1.0}, "rate"),
    (GAA, {"rate": math.nan}, "rate"),
    (GAA, {"initial_scale": [1.0, -1.0]}, "initial_scale"),
    (GAA, {"initial_scale": [1.0]}, "initial_scale"),
    (GAA, {"initial_scale": [1.0, math.inf]}, "initial_scale"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG)
def test_it_is_refused_by_name(kind, options, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        held(kind, np.zeros(2), **options)
