"""PyMC's side: nothing below it imports PyMC or PyTensor."""

from pymc_kameleon.steps.base import KernelStep
from pymc_kameleon.steps.kamiltonian import KamiltonianStep
from pymc_kameleon.steps.methods import (
    AdaptiveMetropolisStep,
    CMAStep,
    FastKameleonStep,
    GaussianAdaptationStep,
    GaussianMixtureStep,
    KameleonStep,
    register,
    unregister,
)

__all__ = [
    "AdaptiveMetropolisStep",
    "CMAStep",
    "FastKameleonStep",
    "GaussianAdaptationStep",
    "GaussianMixtureStep",
    "KameleonStep",
    "KamiltonianStep",
    "KernelStep",
    "register",
    "unregister",
]
