"""The library of feature families that a surrogate is chosen from, and the problem that they are fitted to."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.surrogates.values import features
from pymc_kameleon.surrogates.values.features import FOURIER, GAUSSIAN, PAIRWISE, Surrogate

GOOD_ENOUGH = 0.003  # weighted held-out squared error at which the search stops


class Family(NamedTuple):
    """One entry of the library."""

    name: str
    monomials: bool = False
    kind: int = features.NONE  # of kernel, see :mod:`pymc_kameleon.surrogates.values.features`
    lengthscale: float = 1.0
    tail_scale: float = 0.0  # q of the rational tails; 0 for none
    price: float = 1.0  # the held-out squared error is multiplied by it: a richer family must earn its place
    # Blocks exp(a s_j) times a quadratic; :mod:`pymc_kameleon.surrogates.values.scale_basis` finds the variables and
    # the rates
    scales: bool = False


LIBRARY = (
    Family("quadratic"),
    Family("polynomial", True, price=1.02),
    Family("scales", price=1.5, scales=True),
    # at 1.6 noise is taken for monomials, at 4 a logistic hierarchy has none; without it: benchmarks/priors.py
    Family("scales+polynomial", True, price=2.0, scales=True),
    Family("polynomial+gaussian4", True, GAUSSIAN, 4.0, price=1.05),
    Family("pairwise1", False, PAIRWISE, 1.0, price=1.15),
    Family("tails4", False, tail_scale=4.0, price=1.02),
    Family("polynomial+gaussian2", True, GAUSSIAN, 2.0, price=1.05),
    Family("polynomial+gaussian8", True, GAUSSIAN, 8.0, price=1.05),
    Family("tails16+gaussian4", False, GAUSSIAN, 4.0, 16.0, price=1.05),
    Family("polynomial+fourier", True, FOURIER, price=1.05),
    Family("pairwise0.5", False, PAIRWISE, 0.5, price=1.15),
    Family("pairwise2", False, PAIRWISE, 2.0, price=1.15),
    Family("pairwise4", False, PAIRWISE, 4.0, price=1.15),
)

# What the statistic ``surrogate`` counts.
FAMILIES = ("none", *(family.name for family in LIBRARY), "factors")


def family_number(name: str) -> int:
    """Of ``FAMILIES``; -1 for a family of the user's own."""
    return FAMILIES.index(name) if name in FAMILIES else -1


class Data(NamedTuple):
    """The regression problem in standardised coordinates, the held-out points last."""

    s: np.ndarray  # (n, d)
    u: np.ndarray  # (n, d)
    z: np.ndarray  # (n, d)
    y: np.ndarray  # (n,), log density minus ``offset`` and minus what is known: what is fitted
    heights: np.ndarray  # (n,), log density minus ``offset``
    weights: np.ndarray  # (n,), at most 1
    held_out: np.ndarray  # (n,), bool
    offset: float
    reference: float  # y_ref minus ``offset``
    template: Surrogate
    whiten_factor: np.ndarray
    tails: tuple[float, float]  # R and k of the power tails


class Basis(NamedTuple):
    """Columns of one family, and how to turn their coefficients into a surrogate."""

    family: Family
    template: Surrogate
    base: int  # how many of the shared columns (quadratic, then monomials) it uses
    extra: np.ndarray  # (n, k) columns of its own
    extra_scale: np.ndarray  # (k,), what they were divided by
    projection: np.ndarray | None  # (centres, k'), Nystroem
    maps: np.ndarray | None = None  # (blocks, d - 1, d), of scales: their coordinates from z


def parts(data: Data) -> tuple[slice, slice]:
    """Training and held-out rows."""
    n_train = len(data.y) - int(np.count_nonzero(data.held_out))
    return slice(0, n_train), slice(n_train, len(data.y))
