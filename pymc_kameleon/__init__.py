"""Gradient-free, kernel-adaptive step methods for PyMC.

>>> import pymc as pm
>>> import pymc_kameleon as pk
>>> with pm.Model():
...     x = pm.Normal("x", shape=2)
...     idata = pm.sample(step=pk.FastKameleonStep())  # doctest: +SKIP
"""

from importlib.metadata import PackageNotFoundError, version

from pymc_kameleon import plots
from pymc_kameleon.control_variates import expectations
from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood
from pymc_kameleon.sample_report import report
from pymc_kameleon.sampling import sample
from pymc_kameleon.steps import (
    AdaptiveMetropolisStep,
    CMAStep,
    FastKameleonStep,
    GaussianAdaptationStep,
    GaussianMixtureStep,
    KameleonStep,
    KamiltonianStep,
    register,
    unregister,
)
from pymc_kameleon.steps.batched import BatchedBlackBox
from pymc_kameleon.steps.saved_state import load_state, save_state

try:
    __version__ = version("pymc-kameleon")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "AdaptiveMetropolisStep",
    "BatchedBlackBox",
    "CMAStep",
    "FastKameleonStep",
    "GaussianAdaptationStep",
    "GaussianMixtureStep",
    "KameleonStep",
    "KamiltonianStep",
    "NoisyLogLikelihood",
    "expectations",
    "load_state",
    "plots",
    "register",
    "report",
    "sample",
    "save_state",
    "unregister",
]
