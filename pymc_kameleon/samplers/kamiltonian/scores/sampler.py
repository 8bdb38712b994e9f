"""Kamiltonian Monte Carlo: leapfrog on a surrogate f of the log density, learned by score matching.

In learned coordinates z, x = centre + L z, with momentum p ~ N(0, I) and potential energy **-f**,

    p += (e/2) grad f(z);  z += e p;  p += (e/2) grad f(z)      for a random number of steps,

then accept with min(1, exp(H(start) - H(end))), H = |p|^2 / 2 - log density, the *true* one (Strathmann et al., 2015,
algorithm 1). Leapfrog on any smooth f is reversible and preserves volume, so this is exact whatever f is; f only
decides how far a proposal gets. Seen from the accept step, log_q_ratio is the change of kinetic energy. Only positions
are learned from, so that a noisy estimate of the log density does as well.

A trajectory from a point that f underrates leads away from it, and is refused for about exp(log p -
f) draws. When tuning has ended the two kernels therefore share the draws by how far f is too low
where the chain is (:mod:`pymc_kameleon.samplers.kamiltonian.trust`), and the ratio of either carries the
ratio of the probabilities with which it is chosen. The retained log density at the chain's point,
or its retained estimate, is all that this looks at; nothing is evaluated for it.

Differs from the paper:

- U = -f and exp(H(start) - H(end)); the text has both signs reversed.
- *Cold start*. The published adaptive version starts on a history that is not informative yet and
  collapses (step size to zero, chain stuck); the published experiments but Glass used exact draws. Here the
  chain starts as adaptive Metropolis and stays a mixture with it; :class:`ScoreKamiltonian` has the rule.
- Everything is frozen when tuning ends; the paper goes on with a probability a_t that falls to zero
  (:mod:`pymc_kameleon.samplers.schedule` while tuning).
- *The residual-dependent mixture* is not in the paper, whose chain is one kernel;
  ``mixture="constant"`` is without it, and ``PAPER`` without any random walk.
- The momentum lives in coordinates whitened by the history, not in the target's own, and every one
  of them has its own lengthscale.
- With ``PAPER`` too: adaptive Metropolis at first; fits to evenly spaced draws of the last two thirds of the history,
  where the paper takes a random subsample (lite) or all of it, as it comes (finite: ``online=True``).

References
----------
H. Strathmann, D. Sejdinovic, S. Livingstone, Z. Szabo, A. Gretton (2015). Gradient-free
Hamiltonian Monte Carlo with efficient kernel exponential families. NIPS.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from pymc_kameleon.kernels import get_kernel
from pymc_kameleon.numerics import covariance
from pymc_kameleon.numerics.checks import count, inside, positive, shaped, share
from pymc_kameleon.numerics.covariance import multiply_lower, solve_lower
from pymc_kameleon.numerics.history import History, append, count_distinct, empty, window
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.sampler import Carry, SurrogateSampler
from pymc_kameleon.samplers.kamiltonian.scores import handover
from pymc_kameleon.samplers.kamiltonian.scores.handover import Jumps, no_jumps
from pymc_kameleon.samplers.kamiltonian.trust import Current, Mixture
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Point, Proposal
from pymc_kameleon.surrogates.scores import choose
from pymc_kameleon.surrogates.scores import objective as score_matching
from pymc_kameleon.surrogates.scores.choose import RADIUS, Fit, Recipe
from pymc_kameleon.surrogates.scores.online import OnlineFinite

# Strathmann et al. (2015), sections 5, 6 and A; lengthscale and regularisation by held-out score (section 5; finite has
# its own). Trajectories only, as soon as there is a surrogate.
PAPER = {
    "embedding": "cos", "isotropic": True, "base_scale": math.inf, "whiten": False, "n_leapfrog": (1, 10),
    "step_size": (0.01, 0.1), "random_walk_share": 0.0, "mixture": "constant", "adapt_share": False,
}  # fmt: skip


class State(NamedTuple):
    """Everything that adapts."""

    walk: adaptive_metropolis.State  # the other kernel of the mixture; it keeps the history
    # (d,): the learned coordinates: x = centre + factor z, factor lower triangular
    centre: np.ndarray
    factor: np.ndarray  # (d, d)
    jumps: Jumps
    residuals: History  # log p - f at the chain's states since the last fit, out of sample; empty after tuning
    next_fit: int  # iteration of the next surrogate
    last_fit: float  # iteration from which on there is none
    fitted: Fit | None = None  # the surrogate in those coordinates
    walk_share: float = 1.0  # probability of a random-walk move; with ``mixture`` its least probability
    mixture: Mixture | None = None  # set when tuning ends, if the shares are to depend on the residual
    # what is retained at the chain's point: z, log density, f; ``None`` without a surrogate
    current: Current | None = None
    share: float = 1.0  # t at the chain's point: trajectories are chosen with probability (1 - walk_share) t
    # of the leapfrog's mean step size; its average over iterations; the largest stable one
    log_step: float = 0.0
    log_step_average: float = 0.0
    log_step_limit: float = 0.0
    refits: int = 0  # surrogates so far
    # running sums of the whole history, with ``online`` and while tuning
    online: OnlineFinite | None = None


class Path(NamedTuple):
    """What a trajectory did."""

    step_size: float
    n_steps: int
    diverging: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreKamiltonian(SurrogateSampler):
    """Kamiltonian Monte Carlo with a surrogate from positions; :class:`LiteKamiltonian` or :class:`FiniteKamiltonian`.

    The cold start, in four rules. (1) Adaptive Metropolis alone for ``first_fit`` draws. (2) Then surrogates, at
    geometrically growing intervals, each fitted to the last two thirds of the history. Its held-out score must be
    better than that of a Gaussian fit, otherwise adaptive Metropolis goes on alone. (3) A better one gets
    a tenth of the draws, and the step size is tuned on them. (4) After 20 of them, and again every 25 draws,
    the share of random-walk moves is set to 1 / r, between ``random_walk_share`` and .9, where r is
    the ratio of the two kernels' expected squared jumps in the learned coordinate in which it is smallest for each; the
    lower bound is raised, to 0.75 at most, by residuals that say that f is bad. Nothing of this goes on when tuning has
    ended: the mixture of the two kernels is then fixed, and exact.

    Parameters
    ----------
    history : ndarray of shape (n, d), optional
        Points that represent the target, the paper's setting. One surrogate is fitted to them and kept, and the share
        is ``random_walk_share`` from the start. Default: the chain's own history.
    n_history : int, optional
        States that a surrogate is fitted to, 2 or more. Default 500 for lite (cost n per leapfrog step), 1500 for
        finite.
    embedding : {"sincos", "cos"}
        Of the random features, finite's and those that lengthscales are searched with: a sine and a cosine for every
        frequency (default), or a cosine with a random phase (the paper's).
    lengthscale : float, ndarray of shape (d,) or "median", optional
        Positive, in learned coordinates; "median" is the median distance of the states fitted to. Default: one for each
        coordinate, by held-out score at every fit.
    regularization : float, optional
        lambda, beside a mean; positive. Default: by held-out score at every fit.
    isotropic : bool
        One lengthscale for all coordinates, as in the paper. Default False.
    base_scale : float
        Sd of the Gaussian base density in learned coordinates, positive; ``inf`` is none, as in the paper. Default 2:
        it confines the tails and leaves the bulk to the fit (1, the Gaussian fit itself, costs half of the effective
        draws on a logistic regression and a multivariate t).
    whiten : bool
        Learn coordinates; False, the paper's, are the parameters' own. Default True.
    n_leapfrog : int or (int, int)
        Number of leapfrog steps, positive, or the range from which it is drawn. Default (1, 20); the paper's (1, 10)
        for "lite" on Glass, ``preset="paper"`` of "finite" has (10, 100).
    step_size : float or (float, float), optional
        A fixed mean, positive, or a range to draw from (the paper's (0.01, 0.1)). Default: tuned.
    target_accept : float
        Acceptance probability that the step size is lowered to reach, in (0, 1). Default 0.4: less than HMC's 0.65
        because what is lost to the surrogate's error is lost at the end of long trajectories, and a step so short that
        they are accepted anyway leads nowhere. The step size never exceeds what keeps the surrogate's own energy, so
        that acceptance may stay above it.
    random_walk_share : float
        Least probability of a random-walk move, the safety net, in [0, 1). Default 0.2.
    adapt_share : bool, optional
        Whether the share of random-walk moves follows from the two kernels' expected squared jumps, between
        ``random_walk_share`` and 0.9. False: it is ``random_walk_share`` as soon as there is a surrogate, the paper's.
        Default: True unless ``history`` is given.
    mixture : {"residual", "constant"}
        How the two kernels share the draws after tuning. "residual" (default): trajectories are chosen less often where
        f is too low, by a factor exp(-excess), and the share that tuning ended with (``adapt_share``) is the random
        walk's least. "constant": by that share, to which residuals then do not matter; also what is left of "residual"
        where ``random_walk_share`` is 0.
    first_fit : int, optional
        Draws before the first fit, 0 or more. Default max(500, 50 d).
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise cold start begins, where no arrival has found the units;
        it spans six orders of magnitude either way. Default 0.1.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. No surrogate is fitted in its last 15 %.

    Raises
    ------
    ValueError
        For an option outside its domain, with the value, and for a history that does not fit ``x`` or spans no volume.
    """

    presets: ClassVar[dict] = {"paper": PAPER}
    statistics: ClassVar[dict] = {
        **dict.fromkeys(("step_size", "random_walk_share", "share", "surrogate_score", "gaussian_score",
                         "efficiency", "lengthscale", "regularization"), float),
        **dict.fromkeys(("n_history", "refits", "n_steps"), int),
        "diverging": bool,
    }  # fmt: skip
    family: ClassVar[str] = ""
    default_history: ClassVar[int] = 0
    n_features: ClassVar[int] = 300
    kernel: ClassVar[Any] = "gaussian"
    solver: ClassVar[str] = "dense"

    history: np.ndarray | None = None
    n_history: int | None = None
    embedding: Literal["sincos", "cos"] = "sincos"
    lengthscale: float | np.ndarray | Literal["median"] | None = None
    regularization: float | None = None
    isotropic: bool = False
    base_scale: float = 2.0
    whiten: bool = True
    n_leapfrog: int | tuple[int, int] = (1, 20)
    step_size: float | tuple[float, float] | None = None
    target_accept: float = 0.4
    random_walk_share: float = 0.2
    adapt_share: bool | None = None
    mixture: Literal["residual", "constant"] = "residual"
    first_fit: int | None = None
    initial_scale: float | np.ndarray = 0.1
    tune: int | None = None

    walk: AdaptiveMetropolis = field(init=False, repr=False)
    recipe: Recipe = field(init=False, repr=False)

    def __post_init__(self):
        super().__post_init__()
        n_history = self.default_history if self.n_history is None else self.n_history
        recipe = Recipe(
            self.family, get_kernel(self.kernel), self.embedding, n_history, self.n_features,
            self.lengthscale, self.regularization, self.isotropic, self.base_scale, self.solver,
        )  # fmt: skip
        walk = AdaptiveMetropolis(initial_scale=self.initial_scale, tune=self.tune)
        object.__setattr__(self, "recipe", recipe)
        object.__setattr__(self, "walk", walk)
        given = None if isinstance(self.lengthscale, str) else self.lengthscale
        positive(lengthscale=given, regularization=self.regularization)
        if not self.base_scale > 0:  # infinite is none
            raise ValueError(f"base_scale must be positive, got {self.base_scale!r}.")
        count(2, n_history=n_history)
        low, high = self.leapfrog_range
        if not (low == int(low) and high == int(high) and 1 <= low <= high):
            raise ValueError(f"n_leapfrog must be a range of positive integers, got {(low, high)!r}.")
        step = self.step_size
        ends = np.ravel(1.0 if step is None else step)
        if not (len(ends) in (1, 2) and 0 < ends[0] <= ends[-1] < math.inf):
            raise ValueError(f"step_size must be a positive number or a range, got {step!r}.")
        inside(target_accept=(self.target_accept, 0, 1))
        share(random_walk_share=self.random_walk_share)

    @classmethod
    def paper(cls, **options: Any) -> Self:
        """The algorithm as published, with other ``options``. ``preset="paper"`` is that and ``arrival=False``."""
        return cls(**{**cls.presets["paper"], **options})

    @property
    def leapfrog_range(self) -> tuple[int, int]:
        """Fewest and most leapfrog steps."""
        given = self.n_leapfrog
        return (given, given) if isinstance(given, (int, np.integer)) else given

    @property
    def follows(self) -> bool:
        """Whether the share of random-walk moves follows what the two kernels bring."""
        return self.history is None if self.adapt_share is None else bool(self.adapt_share)

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,)."""
        x = np.asarray(x, dtype=float)
        dim, tune = len(x), known.left(self.tune)
        shaped(dim, lengthscale=self.lengthscale)
        state = State(
            self.walk.init(rng, x, known), np.zeros(dim), np.eye(dim), no_jumps(dim), empty(1),
            next_fit=max(500, 50 * dim) if self.first_fit is None else self.first_fit,
            last_fit=math.inf if tune is None else trust.LAST_REFIT * tune,
        )  # fmt: skip
        if self.history is None:
            return state
        return self._start_from(rng, state, np.asarray(self.history, dtype=float))

    def _start_from(self, rng, state, history):
        """A fixed surrogate from a given history, which also shapes the random walk."""
        dim = len(state.centre)
        if rng is None:
            raise ValueError("history needs rng: the features are drawn at random.")
        if history.ndim != 2 or history.shape[1] != dim or not np.isfinite(history).all():
            raise ValueError(f"history must be finite and of shape (n, {dim}), got {history.shape}.")
        moments = covariance.summarise(history)
        factor, ok = covariance.cholesky(covariance.covariance(moments))
        if not ok or len(history) <= dim:
            raise ValueError(f"history spans no volume: {len(history)} points in {dim} dimensions.")
        walk = state.walk._replace(mean=moments.mean, factor=factor, next_update=NEVER, warmup=0)
        state = state._replace(walk=walk, walk_share=self.random_walk_share)
        state = self.refit(rng, state, history)._replace(next_fit=NEVER)
        if state.fitted is None:
            raise ValueError("No surrogate could be fitted to history: give a larger regularization.")
        return state

    # --- one draw ---------------------------------------------------------------------------------

    def locate(self, state, point) -> Current:
        """F at ``point``, in learned coordinates."""
        z = solve_lower(state.factor, point.position - state.centre)
        return Current(z, point.log_density, score_matching.value(z, state.fitted.surrogate))

    def trusted(self, state, current) -> float:
        """T at a point, in the region where trajectories go."""
        region = state.fitted.region
        if region is not None:
            current = current._replace(z=(current.z - region[0]) / region[1])
        return trust.share(state.mixture, RADIUS, math.inf, current)

    def place(self, state, point, proposal=None) -> State:
        """Retain the point and its log density, which is never evaluated again."""
        if state.fitted is None:
            return state
        if state.mixture is not None and proposal is not None:
            return super().place(state, point, proposal)
        state = super().place(state, point)
        away = choose.distance(state.current.z, state.fitted.region)
        if state.walk_share == 0.0 and not away < RADIUS:
            raise ValueError(
                f"The chain cannot move: it is {away:.3g} standard deviations away from the history's mean, farther "
                f"than any trajectory goes ({RADIUS:g}), and random_walk_share=0 leaves no other move. Start it "
                "nearer, give a history of this target, or random_walk_share above 0."
            )
        return state

    def propose(self, rng, x, state) -> Proposal:
        """A random-walk move with probability 1 - (1 - ``walk_share``) ``share``, otherwise a trajectory.

        Where ``share`` depends on the log density, :meth:`log_ratio` corrects for it; where it is 1 the
        choice does not depend on ``x`` and each of the two needs its own ratio only. A trajectory's
        number of steps and step size do not depend on ``x`` either, on which reversibility hangs.
        """
        nowhere, mixed = Current(x, math.nan, 0.0), state.mixture is not None
        if state.fitted is None or rng.random() < 1.0 - (1.0 - state.walk_share) * state.share:
            walk = self.walk.propose(rng, x, state.walk)
            there = self.locate(state, Point(walk.position, math.nan)) if mixed else nowhere
            carry = Carry(0, there.z, there.value, x, path=walk)
            return Proposal(walk.position, walk.log_q_ratio, "random_walk", carry)
        low, high = self.leapfrog_range
        n_steps = low + int((high - low + 1) * rng.random())
        step_size = self._draw_step_size(rng, state)
        z = solve_lower(state.factor, x - state.centre)
        momentum = rng.standard_normal(len(x))
        fitted = state.fitted
        end, turned, inside = choose.leapfrog(z, momentum, fitted.surrogate, step_size, n_steps, fitted.region)
        value = score_matching.value(end, fitted.surrogate) if mixed and inside else 0.0
        carry = Carry(1, end, value, z, path=Path(step_size, n_steps, not inside))
        if not inside:  # the current point itself: refused without an evaluation
            return Proposal(x, -math.inf, "hamiltonian", carry)
        # K(start) - K(end): with the true log densities in the accept step, H(start) - H(end)
        kinetic = 0.5 * float(turned @ turned)
        log_q_ratio = 0.5 * float(momentum @ momentum) - kinetic
        position = state.centre + multiply_lower(state.factor, end)
        return Proposal(position, log_q_ratio, "hamiltonian", carry)

    def _draw_step_size(self, rng, state):
        uniform = rng.random()
        if isinstance(self.step_size, tuple):
            low, high = self.step_size
            return low + (high - low) * uniform
        return math.exp(state.log_step) * (1.0 + 0.2 * (2.0 * uniform - 1.0))

    # --- tuning -----------------------------------------------------------------------------------

    def adapt(self, rng, state, outcome) -> State:
        """Learn from one draw: random walk, step size, the comparison of the two, and, when due, f."""
        carry, fitted = outcome.proposal.carry, state.fitted is not None
        own = outcome if carry.kernel else outcome._replace(proposal=carry.path)
        walk = self.walk.adapt(rng, state.walk, own)
        state = state._replace(walk=walk)
        if fitted:
            jump = carry.z - carry.origin
            if not carry.kernel:
                jump = solve_lower(state.factor, outcome.proposal.position - carry.origin)
            state = state._replace(jumps=handover.count(state.jumps, carry.kernel, outcome.accept_prob, jump))
        if carry.kernel and self.step_size is None:
            state = self._adapt_step_size(state, outcome)
        if state.current is not None:
            residual = outcome.log_density - state.current.value
            state = state._replace(residuals=append(state.residuals, np.array([residual])))
        iteration = walk.iteration
        if iteration >= state.next_fit and walk.history is not None:
            later = int(1.5 * iteration) + 1
            state = state._replace(next_fit=later if later < state.last_fit else NEVER)
            state = self.refit(rng, state, window(walk.history, adaptive_metropolis.FORGET))
            state = self.place(state, Point(outcome.position, outcome.log_density))
        if state.refits and iteration % 25 == 0:
            state = self.hand_over(state)
        return state

    def freeze(self, state) -> State:
        """End of tuning: the history is dropped, the step size is its average, nothing adapts any more."""
        state = self.hand_over(state)
        mixture = None
        if self.mixture == "residual" and self.random_walk_share > 0.0:
            mixture = handover.frozen_mixture(_quality(state), state.walk_share)
        return state._replace(
            walk=self.walk.freeze(state.walk), mixture=mixture, residuals=empty(1, 1), next_fit=NEVER,
            log_step=state.log_step_average, online=None,
        )  # fmt: skip

    def refit(self, rng, state, past) -> State:
        """A new surrogate from ``past`` (n, d) in new coordinates; the old one stays if none can be had."""
        walk, dim = state.walk, len(state.centre)
        if count_distinct(past) <= 2 * dim:  # as for a covariance: too little has moved
            return state
        centre = walk.mean if self.whiten else np.zeros(dim)
        factor = walk.factor if self.whiten else np.eye(dim)
        z = np.ascontiguousarray(np.linalg.solve(factor, (past - centre).T).T)
        previous = None if state.fitted is None else state.fitted.lengthscale
        fitted = choose.fit(rng, self.recipe_after(state.refits), z, previous)
        if fitted is None:
            return state
        return self.renewed(rng, state._replace(centre=centre, factor=factor), fitted)

    def recipe_after(self, refits: int) -> Recipe:
        """How to make the surrogate that follows ``refits`` others."""
        return self.recipe

    def renewed(self, rng, state, fitted) -> State:
        """The state with another surrogate, which has not been judged yet."""
        limit = math.log(choose.stable_step_size(rng, fitted, self.leapfrog_range))
        log_step = math.log(self.step_size) if isinstance(self.step_size, float | int) else limit
        return state._replace(
            fitted=fitted, log_step=log_step, log_step_average=log_step, log_step_limit=limit,
            jumps=no_jumps(len(state.centre)), residuals=empty(1), refits=state.refits + 1,
            walk_share=state.walk_share if self.follows else self.random_walk_share,
        )  # fmt: skip

    def hand_over(self, state) -> State:
        """Set the share of random-walk moves by the rule of :class:`ScoreKamiltonian`."""
        if state.fitted is None or not self.follows:
            return state
        least = self.random_walk_share
        if self.mixture == "residual" and least > 0.0:
            least = handover.least_share(_quality(state), least)
        gain = state.fitted.validation.gain
        return state._replace(walk_share=handover.random_walk_share(state.jumps, gain, state.walk_share, least))

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """Statistics of the state, NaN where there is no surrogate yet; the shortest lengthscale."""
        fitted = state.fitted
        found = {
            "random_walk_share": state.walk_share,
            "share": state.share if fitted else 0.0,
            "surrogate_score": fitted.validation.score if fitted else math.nan,
            "gaussian_score": fitted.validation.gaussian_score if fitted else math.nan,
            "efficiency": handover.efficiency(state.jumps),
            "n_history": len(fitted.states) if fitted else 0,
            "lengthscale": float(np.min(fitted.lengthscale)) if fitted else math.nan,
            "regularization": fitted.regularization if fitted else math.nan,
            "refits": state.refits,
            **_standing(state)._asdict(),
        }
        return found if proposal is None else found | self.draw_stats(state, proposal)

    def draw_stats(self, state, proposal) -> dict[str, Any]:
        """Those that are others after each draw, once frozen."""
        path = proposal.carry.path if proposal.carry else None
        path = path if isinstance(path, Path) else _standing(state)
        return {"share": state.share if state.fitted else 0.0, **path._asdict()}

    def _adapt_step_size(self, state, outcome):
        """Robbins-Monro towards the target acceptance, between 5 % of the surrogate's limit and it."""
        count = int(state.jumps.trials[1])
        rate = 2.0 * (count + 10.0) ** -adaptive_metropolis.RATE_EXPONENT
        limit = state.log_step_limit
        log_step = outcome.tuned(state.log_step, self.target_accept, rate, limit - math.log(20.0), limit)
        weight = (count + 5.0) ** -0.75  # the average of Hoffman & Gelman (2014), algorithm 5
        average = weight * log_step + (1.0 - weight) * state.log_step_average
        return state._replace(log_step=log_step, log_step_average=average)


def _quality(state):
    return handover.judge(state.residuals.buffer[: state.residuals.size, 0])


def _standing(state):
    """Of a draw without a trajectory."""
    return Path(math.nan if state.fitted is None else math.exp(state.log_step), 0, False)
