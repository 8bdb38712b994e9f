"""Metropolis-Hastings with local means: a small Gaussian mixture, fitted to the history, serves three exact moves.

Not from the Kameleon papers. Like them it learns local structure from the chain's past; unlike them it learns where
the mass near a point *is*, not only how it is spread. In the whitened coordinates z = L^-1 (x - m) of the last refresh
let pihat = sum_k w_k N(mu_k, C_k) be the mixture, frozen with all else when tuning ends. A draw is one of four moves:

"global"        z* ~ N(z, s^2 I): adaptive Metropolis.
"local"         z* ~ N(z, gamma^2 I + nu^2 S(z)), S(z) = sum_k r_k(z) [C_k + (z - mu_k)(z - mu_k)^T], r_k(z) the
                responsibilities: Kameleon's idea with the mixture in the kernel's place. Full ratio, S at z* on the way
                back.
"auxiliary"     u ~ N(z, h^2 I), z* ~ pihat(z*) N(u; z*, h^2 I) / p(u), itself a mixture, sampled exactly.
"independence"  z* ~ pihat.

The last two have the same ratio pi(z*) pihat(z) / (pi(z) pihat(z*)). For the auxiliary move: on the joint space of
(z, u), pi(z) N(u; z, h^2 I), u is first redrawn given z (a Gibbs step), then z* proposed given u, with ratio

    pi(z*) N(u; z*, h^2 I) pihat(z) N(u; z, h^2 I) / p(u)
    -----------------------------------------------------,
    pi(z) N(u; z, h^2 I) pihat(z*) N(u; z*, h^2 I) / p(u)

in which u and its normaliser p(u) cancel: an independence sampler's test although the jump is local.

What is analogous in the literature. Independence proposals from mixtures fitted to the history: Andrieu & Moulines
(2006), Holden, Hauge & Holden (2009), Giordani & Kohn (2010); here the fit is frozen after tuning, which is simpler
than their conditions for adapting forever. Auxiliary u ~ N(z, (delta/2) I) followed by a draw that combines u with a
tractable part of the target: Titsias & Papaspiliopoulos (2018), whose tractable part is a Gaussian *prior* and whose
likelihood enters through its gradient; here the tractable part is the fitted mixture and there is no gradient. The
combination, and its defaults, come from this project's own experiments; no claim of priority is made.

References
----------
Andrieu & Moulines (2006), On the ergodicity properties of some adaptive MCMC algorithms, Ann. Appl. Probab. 16.
Holden, Hauge & Holden (2009), Adaptive independent Metropolis-Hastings, Ann. Appl. Probab. 19.
Giordani & Kohn (2010), Adaptive independent Metropolis-Hastings by fast estimation of mixtures of normals,
J. Comput. Graph. Statist. 19.
Titsias & Papaspiliopoulos (2018), Auxiliary gradient-based sampling algorithms, J. R. Stat. Soc. B 80.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.checks import count, inside
from pymc_kameleon.samplers import adaptive_metropolis, autoregressive
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture import fit as mixture_fit
from pymc_kameleon.samplers.gaussian_mixture import moves as mixture_moves
from pymc_kameleon.samplers.gaussian_mixture.moves import Surrogate
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Proposal, Sampler

GROWTH = 1.1  # of the intervals between refreshes


class State(NamedTuple):
    """Everything that adapts. Nothing is cached at the current point: pihat there costs less than its bookkeeping."""

    # the global kernel; it also keeps the history and learns the coordinates
    walk: adaptive_metropolis.State
    centre: np.ndarray  # (d,): m, as of the last refresh
    factor: np.ndarray  # (d, d): L, as of the last refresh
    next_refresh: int  # iteration
    last_refresh: float  # iteration after which there is none
    surrogate: Surrogate | None = None  # ``None`` until the first refresh
    log_scale: float = 0.0  # log nu
    auxiliary_log_scale: float = 0.0  # log h
    moves: int = 0  # local moves since their gain was last reset
    auxiliary_moves: int = 0  # the same of auxiliary moves


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianMixture(Sampler):
    """Three moves by a Gaussian mixture fitted to the history, beside adaptive Metropolis.

    Parameters
    ----------
    n_history : int
        Largest size of the evenly thinned history that the mixture is fitted to, 20 or more. Default 1000.
    max_components : int
        Largest mixture that cross-validation may choose, positive. Default 16.
    shares : tuple of 4 floats
        Probabilities of the moves "global", "local", "auxiliary" and "independence". Default a quarter each: to reward
        the moves that jump farthest starves the two random walks, which alone extend the explored set.
    target_accept : float
        Of the global and the local move, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    local_start : int, optional
        Draws before the first fit, 0 or more. Default: 200 d, and at most 400; where ``tune`` is given, within 0.35 and
        0.5 of it.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The first fit is then between 0.35 and 0.5 of it.
    """

    statistics: ClassVar[dict] = {
        "scaling": float, "local_scale": float, "auxiliary_scale": float, "n_components": float,
    }  # fmt: skip

    n_history: int = 1000
    max_components: int = 16
    shares: tuple[float, float, float, float] = (0.25, 0.25, 0.25, 0.25)
    target_accept: float = 0.234
    local_start: int | None = None
    tune: int | None = None

    walk: AdaptiveMetropolis = field(init=False, repr=False)
    cumulative_shares: tuple = field(init=False, repr=False)

    def __post_init__(self):
        super().__post_init__()
        count(20, n_history=self.n_history)
        count(1, max_components=self.max_components)
        inside(target_accept=(self.target_accept, 0, 1))
        shares = self.shares
        if not (len(shares) == 4 and min(shares) >= 0 and math.isclose(sum(shares), 1.0)):
            raise ValueError(
                f"shares must be 4 probabilities (global, local, auxiliary, independence) with sum 1, got {shares!r}."
            )
        object.__setattr__(self, "walk", AdaptiveMetropolis(target_accept=self.target_accept, tune=self.tune))
        object.__setattr__(self, "cumulative_shares", tuple(map(float, np.cumsum(shares)[:3])))

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,)."""
        d, tune, local_start = len(x), known.left(self.tune), self.local_start
        walk = self.walk.init(rng, x, known)
        if local_start is None:
            local_start = adaptive_metropolis.history_for_local_moves(d)
            if tune is not None:
                local_start = int(max(0.35 * tune, min(200 * d, 0.5 * tune)))
        return State(
            walk, np.zeros(d), np.eye(d), next_refresh=max(walk.next_update, local_start),
            last_refresh=math.inf if tune is None else 0.95 * tune,  # then only scales adapt
        )  # fmt: skip

    def propose(self, rng, x, state) -> Proposal:
        """One of the four moves, chosen without looking at ``x``: each leaves the target invariant by itself."""
        if state.surrogate is None:
            return self.walk.propose(rng, x, state.walk)
        global_end, local_end, auxiliary_end = self.cumulative_shares
        choice, d = rng.random(), len(x)
        if choice < global_end:
            return self.walk.propose(rng, x, state.walk)
        where = x, state.centre, state.factor, state.surrogate
        if choice < local_end:
            move, gamma, nu = "local", 0.5 * math.exp(state.walk.log_scale), math.exp(state.log_scale)
            x_new, log_q_ratio = mixture_moves.local(*where, gamma, nu, rng.standard_normal(d))
        elif choice < auxiliary_end:
            move, h = "auxiliary", math.exp(state.auxiliary_log_scale)
            x_new, log_q_ratio = mixture_moves.auxiliary(*where, h, rng.standard_normal(2 * d), rng.random())
        else:
            move = "independence"
            x_new, log_q_ratio = mixture_moves.independence(*where, rng.standard_normal(d), rng.random())
        return Proposal(x_new, log_q_ratio, move)

    def adapt(self, rng, state, outcome) -> State:
        """Learn from one draw, whichever kernel made it."""
        move = outcome.proposal.move
        state = state._replace(walk=self.walk.adapt(rng, state.walk, outcome))
        if move == "local":
            moves = state.moves + 1
            log_scale = _tuned(state.log_scale, outcome, self.target_accept, moves)
            state = state._replace(moves=moves, log_scale=log_scale)
        elif move == "auxiliary":
            moves = state.auxiliary_moves + 1
            log_scale = _tuned(state.auxiliary_log_scale, outcome, autoregressive.TARGET_ACCEPT, moves)
            state = state._replace(auxiliary_moves=moves, auxiliary_log_scale=log_scale)
        walk = state.walk
        if walk.iteration >= state.next_refresh and walk.history is not None:
            state = self.relearn(rng, state)
        return state

    def freeze(self, state) -> State:
        """End of tuning: nothing adapts any more and the history is dropped; the mixture stays."""
        return state._replace(walk=self.walk.freeze(state.walk))

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling`` (s, of the global move), ``local_scale`` (nu), ``auxiliary_scale`` (h), ``n_components``.

        The last three are 0 before the first fit; the broad component is not counted.
        """
        fitted = state.surrogate is not None
        return {
            "scaling": math.exp(state.walk.log_scale),
            "local_scale": math.exp(state.log_scale) if fitted else 0.0,
            "auxiliary_scale": math.exp(state.auxiliary_log_scale) if fitted else 0.0,
            "n_components": len(state.surrogate.log_weights) - 1.0 if fitted else 0.0,
        }

    def relearn(self, rng, state) -> State:
        """Relearn the coordinates and the mixture; its size too."""
        d, t = len(state.centre), state.walk.iteration
        if t > state.last_refresh:
            return state._replace(next_refresh=NEVER)
        walk = state.walk
        if walk.last_update < t:
            walk = self.walk.update_covariance(rng, walk)
        states = history.window(walk.history, adaptive_metropolis.FORGET)
        distinct = history.count_distinct(states)
        if distinct <= 4 * d:
            return state._replace(walk=walk, next_refresh=max(t + 20, int(1.2 * t)))
        walk = walk._replace(growth=GROWTH)
        points = np.linalg.solve(walk.factor, (history.thin(states, self.n_history) - walk.mean).T).T
        n = len(points)
        # A chain's distinct states are not independent; half of them is a guess on the safe side.
        effective_size = min(n, distinct / 2)
        largest = min(self.max_components, min(distinct, 2 * n) // (4 * d))
        size = mixture_fit.choose_size(rng, points, largest, effective_size)
        fitted = mixture_fit.fit(rng, points, size, effective_size)
        return state._replace(
            walk=walk,
            centre=walk.mean,
            factor=walk.factor,
            surrogate=mixture_moves.build_surrogate(mixture_fit.widen(fitted)),
            log_scale=walk.log_scale if state.surrogate is None else state.log_scale,
            moves=max(int(0.3 * state.moves), 10),
            auxiliary_moves=max(int(0.3 * state.auxiliary_moves), 10),
            next_refresh=int(GROWTH * t) + 1,
        )


def _tuned(log_scale, outcome, target_accept, moves):
    return outcome.tuned(log_scale, target_accept, 2.0 * moves**-0.6, -8.0, 4.0)
