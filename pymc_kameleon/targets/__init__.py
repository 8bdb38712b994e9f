"""Targets with a known truth.

Log density (NumPy, Numba and PyMC), exact draws, moments, regions of exact content.
"""

from pymc_kameleon.targets.base import GaussianImage, Rescaled, Target
from pymc_kameleon.targets.curved import Banana, Funnel, TwistedGaussian, odd_units_banana
from pymc_kameleon.targets.elliptical import Bimodal, CorrelatedGaussian, StudentT
from pymc_kameleon.targets.predator_prey import solve_lotka_volterra
from pymc_kameleon.targets.rings import Flower, Ring
from pymc_kameleon.targets.skew_normal_abc import ABCLikelihood, SkewNormalABC

__all__ = [
    "ABCLikelihood",
    "Banana",
    "Bimodal",
    "CorrelatedGaussian",
    "Flower",
    "Funnel",
    "GaussianImage",
    "Rescaled",
    "Ring",
    "SkewNormalABC",
    "StudentT",
    "Target",
    "TwistedGaussian",
    "odd_units_banana",
    "solve_lotka_volterra",
]
