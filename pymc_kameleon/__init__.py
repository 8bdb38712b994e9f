"""Gradient-free, kernel-adaptive step methods for PyMC.

>>> import pymc as pm
>>> import pymc_kameleon as pk
>>> with pm.Model():
...     x = pm.Normal("x", shape=2)
...     idata = pm.sample(step=pk.FastKameleonStep())  # doctest: +SKIP
"""

from importlib import import_module as _import_module

from pymc_kameleon.pseudo_marginal import NoisyLogLikelihood
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian as Finite
from pymc_kameleon.samplers.kamiltonian.scores.estimators import LiteKamiltonian as Lite
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian as Values
from pymc_kameleon.sampling.run import sample
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
from pymc_kameleon.steps.saved_state import package_version as _version
from pymc_kameleon.verdict.control_variates import expectations
from pymc_kameleon.verdict.report import report

__version__ = _version()

__all__ = [
    "AdaptiveMetropolisStep",
    "BatchedBlackBox",
    "CMAStep",
    "FastKameleonStep",
    "Finite",
    "GaussianAdaptationStep",
    "GaussianMixtureStep",
    "KameleonStep",
    "KamiltonianStep",
    "Lite",
    "NoisyLogLikelihood",
    "Values",
    "expectations",
    "load_state",
    "plots",
    "register",
    "report",
    "sample",
    "save_state",
    "unregister",
]


_MODULES = (
    "checkpoint", "datasets", "diagnostics", "gp_classification", "kernels", "particle_filter", "plots",
    "pseudo_marginal", "targets",
)  # fmt: skip


def __getattr__(name: str):
    """Modules that few runs need, imported when they are named."""
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
