"""What a noisy log density asks of a step: random streams, and normals that it owns and renews, whole or by blocks."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics.checks import share
from pymc_kameleon.steps.noise.noisy_factors import of_host
from pymc_kameleon.steps.pytensor_internals import operations, other_steps


class Renewal(NamedTuple):
    """How the standard normals u of an estimate are proposed: reversible with respect to N(0, I)."""

    correlation: float = 0.0  # with the present ones (Deligiannidis, Doucet & Pitt, 2018)
    blocks: int = 1  # that u is cut into, one of which a draw is proposed anew (Tran et al., 2016)

    def __call__(self, rng: np.random.Generator, u: np.ndarray) -> np.ndarray:
        """Proposed normals from those at hand, of the same shape."""
        new = u.copy()
        flat = block = new.reshape(-1)
        if self.blocks > 1:
            edges = np.linspace(0, flat.size, self.blocks + 1).astype(int)
            chosen = rng.integers(self.blocks)
            block = flat[edges[chosen] : edges[chosen + 1]]
        rho = self.correlation
        block[:] = rho * block + math.sqrt(1.0 - rho * rho) * rng.standard_normal(block.size)
        return new


def renewal(correlation: float | None, refresh_blocks: int | None) -> Renewal:
    """The options ``correlation`` and ``refresh_blocks``, checked."""
    if correlation is not None:
        share(correlation=correlation)
    if refresh_blocks is not None and not (isinstance(refresh_blocks, (int, np.integer)) and refresh_blocks >= 1):
        raise ValueError(f"refresh_blocks must be a positive integer, got {refresh_blocks!r}.")
    return Renewal(float(correlation or 0.0), int(refresh_blocks or 1))


def seed_streams(cells: Sequence, rng: np.random.Generator) -> None:
    """Give the log density streams of its own, spawned by ``rng``, so that ``random_seed`` reproduces the noise too."""
    if cells:
        for cell, generator in zip(cells, rng.spawn(len(cells)), strict=True):
            cell.value = generator


def differ(first: float, value: float) -> bool:
    """Whether two values at one point are further apart than rounding explains.

    float32 rounds to 1e-7 of the value and of its terms, solvers with several threads sum in any order, and 0.01
    changes no acceptance probability by more than 1 %.
    """
    return abs(first - value) > 0.01 + 1e-6 * abs(first)


def sampled_beside(step, which: Callable[[Any], bool] = lambda other: True) -> list[str]:
    """The variables of the other steps of the same run, of ``which`` of them."""
    return sorted({v.name for other in other_steps(step) if which(other) for v in other.vars})


def solves(step) -> bool:
    """Whether a step is not of this package and evaluates the model's black boxes, too."""
    return not (getattr(step, "keeps_estimates", False) or all(map(of_host, operations(step))))
