"""Kernel Adaptive Metropolis-Hastings ("MCMC Kameleon"): x* ~ N(x, gamma^2 I + nu^2 M H M^T).

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (ICML 2014), section 4: the covariance of the proposal
follows the shape of the history *near the current point*, as a kernel sees it (see ``local_covariance``).

Differs from the paper, unless its settings are chosen (``PAPER``): the local moment is normalised by the kernel's
weights, coordinates are whitened by the running covariance, gamma is half the learned scale of the global kernel, and
half of the moves are the global kernel's: adaptive Metropolis and moves towards the history's mean. From a cold start
the paper's form does a fifth to a third as well as a good adaptive Metropolis; this one does better than it. Always:
everything is frozen when tuning ends, where the paper goes on with a probability p_t that falls to zero; no move is
local until ``local_start`` draws tell of the shape; nu is learned by steps of 2 m^-0.6, for which the paper has no
rate.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.kernels import Gaussian
from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.checks import count
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.normal_steps import log_step_density
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.local_covariance import gaussian_local, local_covariance
from pymc_kameleon.samplers.kameleon.local_moves import LocalMoves, step_from

# Sejdinovic et al. (2014), section 5; the adaptation waits until the history says something.
PAPER = {
    "gamma": 0.2, "lengthscale_factor": 1.0, "normalization": "none", "coordinates": "raw", "global_share": 0.0,
    "subsample": "random", "local_start": 500,
}  # fmt: skip


class Subsample(NamedTuple):
    """The subsample z of the history."""

    points: np.ndarray  # (d, n): in the kernel's coordinates, one column a state
    lengthscale: float  # in those coordinates


@dataclass(frozen=True, kw_only=True, eq=False)
class Kameleon(LocalMoves):
    """Kernel Adaptive Metropolis-Hastings.

    Parameters
    ----------
    n_history : int
        Largest size of the subsample of the history, 2 or more; the cost of a draw grows with it. Default 1000, the
        paper's (section 5).
    kernel : str or Kernel
        A name or an object of :mod:`pymc_kameleon.kernels`; ``normalization="local"`` takes nonnegative ones only.
        Default "gaussian".
    lengthscale_factor : float
        Positive. Default 0.5; the paper's median heuristic is 1.
    normalization : {"local", "none", "trace"}
        Of the local covariance, see :mod:`pymc_kameleon.samplers.kameleon.local_covariance`. Default "local"; with
        ``proposal="pca"`` "trace" or "none" (the g_j at a point scaled together so that sum_j omega_j |g_j|^2 = d, or
        as they are), default "trace". The paper's is "none".
    subsample : {"even", "random"}
        Evenly spaced over the last two thirds of the history (default), or drawn from all of it (the paper's).

    Raises
    ------
    ValueError, TypeError
        For an option outside its domain, with the value.
    """

    presets: ClassVar[dict] = {"paper": PAPER}
    statistics: ClassVar[dict] = {
        "scaling": float, "n_history": float, "lengthscale": float, "gamma": float,
    }  # fmt: skip

    n_history: int = 1000
    lengthscale_factor: float = 0.5
    normalization: Literal["local", "none", "trace"] = "local"
    subsample: Literal["even", "random"] = "even"

    def __post_init__(self):
        super().__post_init__()
        count(2, n_history=self.n_history)
        name = getattr(self.chosen, "name", "")
        if self.normalization == "local" and name in ("linear", "sinc"):
            raise ValueError(
                f"kernel {name!r} takes negative values: normalization='local' divides by their sum. "
                "Use normalization='none' or another kernel."
            )

    @property
    def forget(self) -> float:
        """Share of the history that the subsample leaves out."""
        return adaptive_metropolis.FORGET if self.subsample == "even" else 0.0

    def covariance(self, model, y) -> np.ndarray:
        """S at ``y``."""
        return local_covariance(y, model.points, self.chosen, model.lengthscale, self.normalization)

    def there_and_back(self, x, state, gamma, nu, normals):
        """As for every local covariance, the default one's in one compiled call: a twentieth of a draw."""
        own = type(self).covariance is Kameleon.covariance  # forwards it is this that counts
        if not own or self.normalization != "local" or type(self.chosen) is not Gaussian:
            return super().there_and_back(x, state, gamma, nu, normals)
        return _there_and_back(x, state.centre, state.factor, state.covariance, gamma, nu, normals, *state.model)

    def learn(self, rng, state, states) -> Subsample:
        """Draw a new subsample and choose the lengthscale."""
        if self.subsample == "even":
            chosen = history.thin(states, self.n_history)
        else:
            size = min(len(states), self.n_history)
            chosen = states[rng.choice(len(states), size, replace=False)]
        points = local_moves.whiten(state, chosen)
        return Subsample(points, self.lengthscale_of(points))

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling`` (nu), ``n_history``, ``lengthscale``, ``gamma``; the last three are 0 before the first local
        move.
        """
        model = state.model
        return {
            "scaling": self.scaling(state),
            "n_history": float(model.points.shape[1]) if model else 0.0,
            "lengthscale": model.lengthscale if model else 0.0,
            "gamma": self.local_gamma(state) if model else 0.0,
        }


@njit(cache=True)
def _there_and_back(x, centre, factor, covariance, gamma, nu, normals, points, lengthscale):
    delta, forward, x_new, y_new = step_from(x, centre, factor, covariance, gamma, nu, normals)
    there = gaussian_local(y_new, points, lengthscale)
    # Exactness hangs here, as in ``LocalMoves.there_and_back``: the reverse density takes the covariance *at x_new*.
    return x_new, log_step_density(delta, there, gamma, nu) - forward, there
