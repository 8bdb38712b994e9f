"""Moves with a local covariance, x* ~ N(x, gamma^2 I + nu^2 S(x)), beside a global kernel.

What KAMH and its random-feature version share: a global kernel (adaptive Metropolis, moves that contract towards the
history's mean and, where asked for, moves in coordinates in which the history is straight, ``shear``) that also learns
the coordinates, the local proposal with its Metropolis-Hastings ratio, the tuning of nu, and the schedule on which S is
learned anew. A sampler brings S itself, as two methods:

``learn(rng, state, states) -> model``     from past states in the kernel's coordinates, shape (n, d)
``covariance(model, y) -> S``              at the point y in those coordinates, shape (d, d)

The two kinds of moves are two transition kernels, chosen without looking at the state, each with its own
Metropolis-Hastings ratio: each leaves the target invariant, so nothing else enters the ratio.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.kernels import Kernel, KernelName, get_kernel, median_distance
from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.checks import at_least, called, positive, share
from pymc_kameleon.numerics.compiled import njit
from pymc_kameleon.numerics.covariance import multiply_lower, solve_lower
from pymc_kameleon.numerics.normal_steps import draw_step, log_step_density
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon import shear
from pymc_kameleon.samplers.kameleon.shear import Shear
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Outcome, Point, Proposal, Sampler

TRIAL = 1000  # local moves of a trial run: 500 to 3000 do as well (B(0.03, 100) and B(0.1, 100), 10 chains each)


class State(NamedTuple):
    """Everything that adapts."""

    # the global kernel; it also keeps the history and learns the coordinates
    walk: adaptive_metropolis.State
    # (d,): the local kernel's coordinates, y = factor^-1 (x - centre), as of the last refresh
    centre: np.ndarray
    factor: np.ndarray  # (d, d)
    model: Any  # what S(y) is computed from; ``None`` until the first refresh
    log_scale: float | None  # log nu; ``None`` until it starts from the global kernel's scale
    moves: int  # local moves since the gain was last raised, for the Robbins-Monro rate
    next_refresh: int  # iteration
    # (d, d): S at the chain's current point, before nu and gamma enter: cached, so that a draw needs one and not two.
    # (PCA-Kameleon keeps its principal directions there, shape (m, d).)
    covariance: np.ndarray | None
    # coordinates in which the history is straight; ``None`` where it is as straight as it can be without
    shear: Shear | None = None
    # iteration: before the first local move it is learned on a schedule of its own
    next_shear: int = 0
    learned: int = 0  # how often S was learned anew


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalMoves(Sampler):
    """What a sampler with a local covariance shares with others: it brings ``learn`` and ``covariance``.

    Parameters
    ----------
    lengthscale : float, optional
        Positive, in the kernel's coordinates. Default: ``lengthscale_factor`` times the median distance.
    gamma : float or callable, optional
        Sd of the isotropic part, positive, in the kernel's coordinates; or a function of k, the number of times that
        the local covariance has been learned, such as ``lambda k: 1 / k`` (the paper, section 4.2, would have it fall
        with each adaptation). Default: half of the global kernel's learned scale. The paper's is 0.2, the
        dissertation's 0.5.
    coordinates : {"whitened", "scaled", "raw"}
        The kernel's: by the running covariance (default), by the running standard deviations, or the parameters' own
        (the paper's).
    global_share : float
        Share of moves that are not local, in [0, 1). Default 0.5; the papers have none.
    autoregressive_share : float
        Share of those that contract towards the history's mean (:mod:`pymc_kameleon.samplers.autoregressive`) instead
        of walking at random, in [0, 1). Default 0.5: it doubles the effective draws where the posterior is close to
        normal.
    learn_from_values : bool
        Of the global kernel: extend its covariance along axes that the log density's values say to be longer than where
        the chain has been. Default True.
    target_accept : float
        Acceptance probability that the scale of local moves is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman &
        Gilks, 1997), also the papers'.
    scale : float, optional
        Where the adaptation of the scale of local moves starts, positive. Default: the global kernel's learned scale.
    rate : {"renewed", "harmonic", "trial"} or callable
        Of the Robbins-Monro steps of the log of that scale, nu or eta, at the m-th local move: 2 m^-0.6 with m counted
        anew in part at each refresh (default); 1 / m, which does not come far from where it starts; a trial run of 1000
        moves at the first rate, then 1 / m (the dissertation's, which begins at a scale from trial runs); or a function
        of m, not negative.
    local_start : int, optional
        Draws before the first local move, 0 or more. Default: 0.3 ``tune`` where that is given, else 200 d and
        at most 400, of PyMC's 1000 tuning draws: to begin before the history is informative is what breaks the method
        from a cold start.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Local moves then begin after 0.3 of it.
    """

    kernel: KernelName | Kernel = "gaussian"
    lengthscale: float | None = None
    lengthscale_factor: float = 1.0
    gamma: float | Callable[[int], float] | None = None
    coordinates: Literal["whitened", "scaled", "raw"] = "whitened"
    global_share: float = 0.5
    autoregressive_share: float = 0.5
    learn_from_values: bool = True
    target_accept: float = 0.234
    scale: float | None = None
    rate: Literal["renewed", "harmonic", "trial"] | Callable[[int], float] = "renewed"
    local_start: int | None = None
    tune: int | None = None

    chosen: Kernel = field(init=False, repr=False)
    walk: AdaptiveMetropolis = field(init=False, repr=False)
    sheared_share: ClassVar[float] = 0.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "chosen", get_kernel(self.kernel))
        positive(scale=self.scale, lengthscale=self.lengthscale, lengthscale_factor=self.lengthscale_factor)
        for k in (1, 2, 1000, 1_000_000):
            positive(gamma=self.gamma_after(k))
            self.rate_at(k)
        share(global_share=self.global_share, sheared_share=self.sheared_share)
        share(autoregressive_share=self.autoregressive_share)
        walk = AdaptiveMetropolis(
            target_accept=self.target_accept, learn_from_values=self.learn_from_values, tune=self.tune
        )
        if self._as_published:
            # Without a history the proposal is N(x, gamma^2 I), in place of the cold start.
            walk = AdaptiveMetropolis(covariance="identity", scaling="fixed", scale=self.gamma_after(1))
        object.__setattr__(self, "walk", walk)

    @property
    def _as_published(self) -> bool:
        return self.coordinates == "raw" and self.global_share == 0 and self.gamma is not None

    @property
    def forget(self) -> float:
        """Share of the history that the local kernel does not learn from."""
        return adaptive_metropolis.FORGET

    def learn(self, rng: np.random.Generator, state: State, states: np.ndarray) -> Any:
        """A model from past states in the kernel's coordinates, shape (n, d)."""
        raise NotImplementedError

    def covariance(self, model: Any, y: np.ndarray) -> np.ndarray:
        """S at the point y in those coordinates, shape (d, d)."""
        raise NotImplementedError

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,)."""
        d = len(x)
        walk, scale, local_start = self.walk.init(rng, x, known), self.scale, self.local_start
        due = walk.next_update
        if self._as_published:  # a history to learn from locally; the walk stays N(x, gamma^2 I)
            walk = walk._replace(history=history.empty(d), next_update=NEVER)
            scale = adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(d) if scale is None else scale
        if local_start is None:
            tune = known.left(self.tune)
            local_start = adaptive_metropolis.history_for_local_moves(d) if tune is None else int(0.3 * tune)
        return State(
            walk=walk,
            centre=np.zeros(d),
            factor=np.eye(d),
            model=None,
            log_scale=None if scale is None else math.log(scale),
            moves=0,
            next_refresh=max(due, local_start),
            next_shear=max(due, int(0.3 * local_start)),
            covariance=None,
        )

    def propose(self, rng, x, state) -> Proposal:
        """A local move with the covariance at ``x``, or a global one; decided without looking at where the chain is."""
        share = self.global_share
        if state.model is not None and not (share > 0.0 and rng.random() < share):
            return self.local_move(rng, x, state)
        # chosen by nothing that changes after tuning
        if state.shear is not None and rng.random() < self.sheared_share:
            return shear.propose(rng, x, state.shear)
        return self.walk.propose(rng, x, state.walk)

    def local_move(self, rng, x, state) -> Proposal:
        """A step with the covariance at ``x``."""
        gamma, nu = self.local_gamma(state), math.exp(state.log_scale)
        x_new, log_ratio, there = self.there_and_back(x, state, gamma, nu, rng.standard_normal(len(x)))
        return Proposal(x_new, log_ratio, "local", there)

    def there_and_back(self, x, state: State, gamma: float, nu: float, normals) -> tuple[np.ndarray, float, np.ndarray]:
        """Where a step from ``x`` leads (d,), the log density of the way back minus the step's, S there (d, d)."""
        delta, forward, x_new, y_new = step_from(x, state.centre, state.factor, state.covariance, gamma, nu, normals)
        there = self.covariance(state.model, y_new)
        # Exactness hangs here: the reverse density takes the covariance *at x_new*, with the same model, nu and gamma
        # as the forward density (Sejdinovic et al., 2014, proposition 2 and the algorithm's step 3).
        reverse = log_step_density(delta, there, gamma, nu)
        return x_new, reverse - forward, there

    def place(self, state, point, proposal=None) -> State:
        """Cache the local covariance of the chain's new point; a local proposal brings it along."""
        if state.model is None:
            return state
        if proposal is not None and proposal.move == "local":
            return state._replace(covariance=self.carried(proposal))
        y = solve_lower(state.factor, point.position - state.centre)
        return state._replace(covariance=self.covariance(state.model, y))

    def carried(self, proposal: Proposal) -> np.ndarray:
        """The covariance that a local proposal has computed."""
        return proposal.carry

    def adapt(self, rng, state, outcome) -> State:
        """Learn from one draw, whichever kernel made it."""
        walk = self.walk.adapt(rng, state.walk, outcome)
        state = state._replace(walk=walk)
        if outcome.proposal.move == "local":
            state = self.tune_scale(state, outcome)
        elif outcome.proposal.move in shear.MOVES:
            state = state._replace(shear=shear.adapt(state.shear, outcome, self.target_accept))
        if walk.iteration < state.next_refresh or walk.history is None:
            return self._straighten_early(state)
        # Recomputed after every refresh, whether the draw was accepted or not.
        return self.place(self.relearn(rng, state), Point(outcome.position, outcome.log_density))

    def tune_scale(self, state: State, outcome: Outcome) -> State:
        """Tune nu after a local move."""
        moves = state.moves + 1
        return state._replace(log_scale=self.tuned(state.log_scale, moves, outcome), moves=moves)

    def tuned(self, log_scale: float, moves: int, outcome: Outcome) -> float:
        """A local move's log scale after one Robbins-Monro step, the ``moves``-th."""
        # bounds against overflow only: a covariance in raw units may ask for any scale
        return outcome.tuned(log_scale, self.target_accept, self.rate_at(moves), -30.0, 30.0)

    def rate_at(self, moves: int) -> float:
        """Of the Robbins-Monro step after the ``moves``-th local move."""
        if callable(self.rate):
            rate = called(moves, rate=self.rate)
            at_least(0.0, rate=rate)
            return rate
        trial = TRIAL if self.rate == "trial" else 0
        if self.rate == "renewed" or moves <= trial:
            return 2.0 * moves**-adaptive_metropolis.RATE_EXPONENT
        return 1.0 / (moves - trial)

    def _straighten_early(self, state):
        walk = state.walk
        t, due = walk.iteration, state.next_shear
        if self.sheared_share == 0.0 or state.model is not None or t < due or walk.history is None:
            return state
        states = history.window(walk.history, self.forget)
        return state._replace(shear=shear.learn(states, state.shear), next_shear=int(1.2 * t) + 1)

    def relearn(self, rng: np.random.Generator, state: State) -> State:
        """Relearn the coordinates and the model from the history, if there is enough of it."""
        walk, windowed = state.walk, self.walk.covariance == "window"
        if windowed and walk.last_update < walk.iteration:
            walk = self.walk.update_covariance(rng, walk)
        t, d = walk.iteration, len(state.centre)
        states = history.window(walk.history, self.forget)
        if history.count_distinct(states) <= 4 * d:
            return state._replace(walk=walk, next_refresh=max(t + 20, int(1.2 * t)))
        centre, factor = _learned_coordinates(self.coordinates, walk, states)
        walk = walk._replace(growth=1.1)
        if windowed:  # there is a mean worth moving to
            walk = walk._replace(autoregressive_share=self.autoregressive_share)
        renewed = self.rate == "renewed"
        state = state._replace(
            walk=walk,
            centre=centre,
            factor=factor,
            log_scale=walk.log_scale if state.log_scale is None else state.log_scale,
            moves=max(int(0.3 * state.moves), 10) if renewed else state.moves,
            next_refresh=int(1.1 * t) + 1,
            learned=state.learned + 1,
        )
        positive(gamma=self.gamma_after(state.learned))
        if self.sheared_share > 0.0:
            state = state._replace(shear=shear.learn(states, state.shear))
        return state._replace(model=self.learn(rng, state, states))

    def freeze(self, state) -> State:
        """End of tuning: nothing adapts any more and the history is dropped; the model stays."""
        return state._replace(walk=self.walk.freeze(state.walk))

    def scaling(self, state: State) -> float:
        """The statistic ``scaling``: nu, or the global kernel's scale before the first local move."""
        return math.exp(state.walk.log_scale if state.model is None else state.log_scale)

    def local_gamma(self, state: State) -> float:
        """Sd of the isotropic part: given, or half of the global kernel's scale."""
        given = self.gamma_after(state.learned)
        return 0.5 * math.exp(state.walk.log_scale) if given is None else given

    def lengthscale_of(self, points: np.ndarray) -> float:
        """As given, or by the median distance of ``points`` (d, n) in the kernel's coordinates."""
        return self.lengthscale_factor * median_distance(points.T) if self.lengthscale is None else self.lengthscale

    def gamma_after(self, learned: int) -> float | None:
        """Gamma as given, when the covariance has been learned ``learned`` times."""
        return called(learned, gamma=self.gamma) if callable(self.gamma) else self.gamma


def whiten(state: State, states: np.ndarray) -> np.ndarray:
    """``states`` (n, d) in the local kernel's coordinates, one *column* a state, shape (d, n)."""
    return np.ascontiguousarray(np.linalg.solve(state.factor, (states - state.centre).T))


def _learned_coordinates(kind, walk, states):
    if kind == "whitened":
        return walk.mean, walk.factor
    if kind == "scaled":
        return states.mean(axis=0), np.diag(np.maximum(states.std(axis=0), 1e-300))
    d = states.shape[1]
    return np.zeros(d), np.eye(d)


@njit(cache=True)
def displace(x, centre, factor, delta):
    """The point a step ``delta`` away from ``x`` in the kernel's coordinates: (x*, y*), shape (d,) each."""
    x_new = x + multiply_lower(factor, delta)
    return x_new, solve_lower(factor, x_new - centre)


@njit(cache=True)
def step_from(x, centre, factor, covariance, gamma, nu, normals):
    """A step from ``x`` (d,), its log density, and where it leads, in ``x`` and in the kernel's coordinates."""
    delta, forward = draw_step(covariance, gamma, nu, normals)
    return delta, forward, *displace(x, centre, factor, delta)
