"""The paper's two estimators: a Gaussian kernel at every state, or random Fourier features."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pymc_kameleon.kernels import Kernel, KernelName
from pymc_kameleon.numerics import random_features
from pymc_kameleon.numerics.checks import count
from pymc_kameleon.numerics.covariance import solve_lower
from pymc_kameleon.samplers.kamiltonian.scores.sampler import PAPER, ScoreKamiltonian, State
from pymc_kameleon.samplers.seam import NOTHING
from pymc_kameleon.surrogates.scores import online as online_finite
from pymc_kameleon.surrogates.scores.choose import Recipe
from pymc_kameleon.surrogates.scores.objective import gaussian_base

# The same with what differs between their experiments: lite on the Glass data, finite on the bananas and on normals in
# up to 100 dimensions (figure 2), which a lengthscale by the held-out score of 200 features does not reproduce.
PAPERS = {
    "lite": {**PAPER, "n_history": 1000},
    "finite": {**PAPER, "n_history": 2000, "n_features": 2000, "n_leapfrog": (10, 100), "lengthscale": "median"},
}


@dataclass(frozen=True, kw_only=True, eq=False)
class LiteKamiltonian(ScoreKamiltonian):
    """The paper's KMC lite: a Gaussian kernel at every state of the history. ``pk.Lite``.

    Parameters
    ----------
    solver : {"dense", "low-rank"}
        "dense" (default): a Cholesky factorisation of the normal equations, O(n^3) a fit. "low-rank": incomplete
        Cholesky of the kernel matrix and conjugate gradients (appendix A.2), O(n r^2) with r its numerical rank: for
        a long ``n_history``.
    """

    presets: ClassVar[dict] = {"paper": PAPERS["lite"]}
    family: ClassVar[str] = "lite"
    default_history: ClassVar[int] = 500

    solver: Literal["dense", "low-rank"] = "dense"  # type: ignore[misc]


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteKamiltonian(ScoreKamiltonian):
    """The paper's KMC finite: random Fourier features. ``pk.Finite``.

    Parameters
    ----------
    n_features : int
        Random features D, positive and even. Default 300.
    kernel : str or Kernel
        Any with a spectral sampler, see :mod:`pymc_kameleon.kernels`. Default "gaussian".
    online : bool
        Fold every state into running sums and a Cholesky factor, updated by d rank-one updates (appendix A.3):
        coordinates, features and lengthscales are those of the first fit, the surrogate is that of the whole history
        since, and what a draw costs does not depend on its length. Default False: a fit anew to at most ``n_history``
        states, in coordinates learned anew.
    lite_fits : int
        How many surrogates are *lite* before the first *finite* one, where no ``history`` is given: lite's gradients
        vanish away from its states, finite's oscillate, for which the paper (section 5) advises lite during burn-in. On
        B(0.1, 100) in the plane it makes little difference (median effective draws of six chains 60, 75 and 85 per
        1000 with 0, 1 and 3). Default 0.
    """

    presets: ClassVar[dict] = {"paper": PAPERS["finite"]}
    family: ClassVar[str] = "finite"
    default_history: ClassVar[int] = 1500

    n_features: int = 300  # type: ignore[misc]
    kernel: KernelName | Kernel = "gaussian"  # type: ignore[misc]
    online: bool = False
    lite_fits: int = 0

    def __post_init__(self):
        super().__post_init__()
        count(1, n_features=self.n_features)
        count(0, lite_fits=self.lite_fits)

    def recipe_after(self, refits) -> Recipe:
        """Of *lite* first, if that is asked for."""
        if self.history is not None or refits >= self.lite_fits:
            return self.recipe
        n_history = min(self.recipe.n_history, LiteKamiltonian.default_history)
        return self.recipe._replace(surrogate="lite", n_history=n_history)

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,); refuses kernels and numbers of features that do not fit."""
        recipe = self.recipe
        random_features.draw_features(
            np.random.default_rng(0), recipe.kernel, len(x), recipe.n_features, 1.0, recipe.embedding
        )  # fmt: skip
        return super().init(rng, x, known)

    def adapt(self, rng, state, outcome) -> State:
        """Learn from one draw; with ``online`` the surrogate's sums do at once."""
        if state.online is not None:
            z = solve_lower(state.factor, outcome.position - state.centre)
            state = state._replace(online=online_finite.push(state.online, z))
        return super().adapt(rng, state, outcome)

    def refit(self, rng, state, past) -> State:
        """A surrogate from the running sums, if there are some; otherwise a new one, which may begin them."""
        if state.online is not None:
            surrogate = online_finite.surrogate(state.online)
            return self.renewed(rng, state, state.fitted._replace(surrogate=surrogate))
        before, state = state, super().refit(rng, state, past)
        begins = self.online and self.history is None and state.refits > self.lite_fits
        if not begins or state.fitted is before.fitted:
            return state
        z = np.ascontiguousarray(np.linalg.solve(state.factor, (past - state.centre).T).T)
        fitted = state.fitted
        base = gaussian_base(len(state.centre), 0.0, self.base_scale)
        begun = online_finite.start(z, fitted.surrogate.features, fitted.regularization, base)
        return state._replace(online=begun)
