"""Adaptive Metropolis: x* ~ N(x, s^2 L L^T), L L^T a covariance learned from the chain's own history.

Haario, Saksman & Tamminen (2001); Andrieu & Thoms (2008), algorithm 4, for the learned scale s; Roberts & Rosenthal
(2009), section 2, for the mixture with a small fixed proposal. The default is the *cold start* that every algorithm
built on this one shares: coordinate-wise moves find the units, the covariance is learned from a window that forgets
the transient, at geometrically growing intervals, and each update keeps the volume of the proposal. Along axes that
the chain has not explored yet the values of the log density say how long they are (``long_axes``).

Differs from the papers: they update the covariance recursively at every draw, from the identity, over the whole
history. That start costs two thirds of the effective draws on a range of targets; ``covariance="recursive"`` is it.
They adapt for ever, by steps that fall to zero; here everything is frozen when tuning ends.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.checks import inside, positive, shaped, share
from pymc_kameleon.numerics.covariance import cholesky, cholesky_update, multiply_lower
from pymc_kameleon.numerics.history import History
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE, robbins_monro
from pymc_kameleon.samplers import autoregressive, coordinate_moves, long_axes
from pymc_kameleon.samplers.seam import NOTHING, Proposal, Sampler
from pymc_kameleon.surrogates.values import regression as value_regression

RATE_EXPONENT = 0.6  # of every Robbins-Monro rate; any value in (1/2, 1] converges
FORGET = 0.33  # share of the history that is left out of the covariance

# Andrieu & Thoms (2008), algorithm 4, with the mixture of Roberts & Rosenthal (2009), section 2.
PAPER = {"covariance": "recursive", "exploration_share": 0.05}


class State(NamedTuple):
    """Everything that adapts."""

    mean: np.ndarray  # (d,): of the history
    factor: np.ndarray  # (d, d): L, lower triangular, L L^T its covariance; L^-1 (x - mean) are the learned coordinates
    log_scale: float  # log s
    next_update: int  # iteration of the next covariance update
    coordinate_log_scales: np.ndarray  # (d,): log proposal sd of the coordinate-wise phase
    reversals: np.ndarray  # (d,): how often its direction of change turned, signed
    history: History | None  # ``None`` once tuning has ended
    # the log densities seen; ``None`` if they are not to be used, and once tuning has ended
    values: long_axes.Values | None
    warmup: int  # length of the coordinate-wise phase
    iteration: int = 0  # draws seen while tuning
    moves: int = 0  # those among them made with L
    last_update: int = -1_000_000  # iteration of the last covariance update
    autoregression: autoregressive.Tuning = autoregressive.Tuning()
    # share of the moves towards the mean; whoever stands on this walk may raise it when there is a mean to move to
    autoregressive_share: float = 0.0
    growth: float = 1.2  # of the intervals between updates of the covariance
    # (d, d): the factor that an arrival brought; ``None`` without, and once tuning has ended
    base: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveMetropolis(Sampler):
    """Adaptive Metropolis, from the cold start that all others stand on.

    Parameters
    ----------
    target_accept : float
        Acceptance probability that the scale is tuned to, in (0, 1). Default 0.234 (Roberts, Gelman & Gilks, 1997).
    scaling : {"learned", "fixed"}
        Whether the overall scale is tuned to ``target_accept`` too (AM-LS, default), or stays ``scale`` (AM-FS).
    covariance : {"window", "recursive", "identity"}
        "window" (default): from the last two thirds of the history, after the coordinate-wise phase. "recursive":
        Andrieu & Thoms (2008), eq. 17, from the identity. "identity": not learned; with ``scaling="fixed"`` plain
        isotropic Metropolis.
    exploration_share : float
        Probability of a move N(x, (0.1^2 / d) I) instead (Roberts & Rosenthal, 2009, who take 0.05), in [0, 1).
        Default 0.
    scale : float, optional
        The overall scale, positive, or where its adaptation starts; with "window" and "learned" only after an arrival,
        since the coordinate-wise phase ends with d^-1/2. Default 2.38 / sqrt(d).
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise phase starts; it spans six orders of magnitude either way.
        Without effect after an arrival, which has found the units.
        With "identity" and "recursive" the initial covariance is its square where it is given as an array. Default 0.1.
    learn_from_values : bool
        With "window": extend the covariance along axes that the log density's values at all points proposed say to be
        much longer than where the chain has been. Default True.
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. Then the coordinate-wise phase, which finds the
        units, takes at most a fifth of it.
    """

    presets: ClassVar[dict] = {"paper": PAPER}

    target_accept: float = 0.234
    scaling: Literal["learned", "fixed"] = "learned"
    covariance: Literal["window", "recursive", "identity"] = "window"
    exploration_share: float = 0.0
    scale: float | None = None
    initial_scale: float | np.ndarray = 0.1
    learn_from_values: bool = True
    tune: int | None = None

    def __post_init__(self):
        super().__post_init__()
        inside(target_accept=(self.target_accept, 0, 1))
        share(exploration_share=self.exploration_share)
        positive(scale=self.scale, initial_scale=self.initial_scale)

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,).

        With "window" the factor that an arrival has brought takes the place of the coordinate-wise phase, and of the
        diagonal in the shrinkage of :meth:`update_covariance`.
        """
        d = len(x)
        scale = OPTIMAL_SCALE / math.sqrt(d) if self.scale is None else float(self.scale)
        shaped(d, initial_scale=self.initial_scale)
        initial = np.broadcast_to(np.asarray(self.initial_scale, dtype=float), (d,))
        windowed = self.covariance == "window"
        warmup = coordinate_moves.length(d, known.left(self.tune)) if windowed else 0
        base = np.array(known.factor, dtype=float) if known.factor is not None and windowed else None
        shape = np.diag(initial) if np.ndim(self.initial_scale) else np.eye(d)
        learns = windowed and self.learn_from_values and value_regression.affordable(d)
        return State(
            mean=np.array(x, dtype=float), factor=shape if base is None else base.copy(), log_scale=math.log(scale),
            next_update=warmup + 20, coordinate_log_scales=np.log(initial), reversals=np.zeros(d),
            history=history.empty(d) if windowed else None,
            values=long_axes.begin(evaluations.copy(d, known.evaluated)) if learns else None,
            warmup=warmup if base is None else 0, base=base,
        )  # fmt: skip

    def propose(self, rng, x, state) -> Proposal:
        """A coordinate-wise, a global, an exploration or an autoregressive move; all but the last are symmetric."""
        d, towards = len(x), state.autoregressive_share
        if state.iteration < state.warmup:
            i = state.iteration % d
            return coordinate_moves.propose(rng, x, i, state.coordinate_log_scales[i])
        if towards > 0.0 and rng.random() < towards:
            return autoregressive.propose(rng, x, state.mean, state.factor, state.autoregression)
        normals = rng.standard_normal(d)
        if self.exploration_share > 0.0 and rng.random() < self.exploration_share:
            return Proposal(x + (0.1 / math.sqrt(d)) * normals, 0.0, "exploration")
        return Proposal(x + math.exp(state.log_scale) * multiply_lower(state.factor, normals), 0.0, "global")

    def adapt(self, rng, state, outcome, rate=None) -> State:
        """Learn from one draw, whichever kernel made it; only a move of this sampler's own tunes a scale.

        ``rate``: of scale, mean and covariance (Andrieu & Thoms, 2008, algorithm 4), where it is not the usual one.
        """
        move = outcome.proposal.move
        log_scale, moves = state.log_scale, state.moves
        if move == "coordinate":
            i = state.iteration % len(state.mean)
            scales, reversals = coordinate_moves.adapt(state.coordinate_log_scales, state.reversals, i, outcome)
            state = state._replace(coordinate_log_scales=scales, reversals=reversals)
        elif move == "towards":
            state = state._replace(autoregression=autoregressive.adapt(state.autoregression, outcome))
        elif move == "global":
            moves += 1
            if self.scaling == "learned":
                own = _rate(state) if rate is None else rate
                log_scale = robbins_monro(log_scale, outcome.accept_prob, outcome.target(self.target_accept), own)
        iteration = state.iteration + 1
        past, values = state.history, state.values
        if past is not None:
            past = history.append(past, outcome.position)
        if values is not None:
            values = long_axes.record(values, outcome)
        state = state._replace(log_scale=log_scale, moves=moves, iteration=iteration, history=past, values=values)
        if iteration == state.warmup and iteration > 0:
            state = self._end_warmup(state)
        if self.covariance == "recursive":
            state = self._update_recursively(state, outcome.position, rate)
        elif past is not None and iteration >= state.next_update:
            state = self.update_covariance(rng, state)
        return state

    def freeze(self, state) -> State:
        """End of tuning: nothing adapts any more and the history is dropped."""
        if self.covariance == "window" and state.iteration < state.warmup:
            state = self._end_warmup(state)
        return state._replace(history=None, values=None, base=None, warmup=0)

    def stats(self, state, proposal=None) -> dict[str, float]:
        """``scaling``, the proposal's scale s."""
        return {"scaling": math.exp(state.log_scale)}

    def update_covariance(self, rng: np.random.Generator, state: State) -> State:
        """Relearn mean and factor from the window, keeping the volume of the proposal.

        Off-diagonal entries are shrunk by 1 - min(1, 2 d / m)^2, m the number of distinct states: with m <= 2 d
        nothing is learned yet. Where an arrival has brought a factor, the whole covariance is shrunk towards its.
        """
        assert state.history is not None
        d, t = len(state.mean), state.iteration
        state = state._replace(next_update=max(t + 20, int(state.growth * t)))
        states = history.window(state.history, FORGET)
        distinct = history.count_distinct(states)
        if distinct <= 2 * d:
            return state
        mean = states.mean(axis=0)
        centred = states - mean
        covariance = centred.T @ centred / len(states)
        shrink = 1.0 - min(1.0, 2.0 * d / distinct) ** 2
        if state.base is None:
            covariance = shrink * covariance + (1.0 - shrink) * np.diag(np.diag(covariance))
            factor, ok = cholesky(covariance)
        else:  # in its coordinates: condition numbers are then small
            z = np.linalg.solve(state.base, centred.T)
            factor, ok = cholesky(shrink * (z @ z.T) / len(states) + (1.0 - shrink) * np.eye(d))
            factor = state.base @ factor
        if not ok:
            return state
        if state.values is not None:
            factor = long_axes.extend(rng, state.values, states, factor)
        log_scale = state.log_scale
        if self.scaling == "learned":
            growth = np.log(np.diag(factor)).sum() - np.log(np.diag(state.factor)).sum()
            log_scale -= growth / d
            if growth > 0:
                log_scale = min(log_scale, math.log(OPTIMAL_SCALE / math.sqrt(d)) + 1.0)
        return state._replace(mean=mean, factor=factor, log_scale=log_scale, last_update=t)

    def _end_warmup(self, state: State) -> State:
        return state._replace(
            factor=np.diag(np.exp(state.coordinate_log_scales)),
            log_scale=-0.5 * math.log(len(state.mean)) if self.scaling == "learned" else state.log_scale,
            next_update=state.iteration + 20,
        )

    def _update_recursively(self, state: State, x: np.ndarray, rate: float | None) -> State:
        """Andrieu & Thoms (2008), eq. 17, usually with 1/t for the fixed scale (Haario et al.), else t^-0.6."""
        if rate is None:
            t = state.iteration + 1.0
            rate = 1.0 / t if self.scaling == "fixed" else t**-RATE_EXPONENT
        delta = x - state.mean
        factor = cholesky_update(math.sqrt(1.0 - rate) * state.factor, math.sqrt(rate) * delta)
        return state._replace(mean=state.mean + rate * delta, factor=factor)


def history_for_local_moves(d: int) -> int:
    """Draws of the walk in ``d`` dimensions after which others learn a local shape, where no ``tune`` is given.

    PyMC's default are 1000, which 200 d do not leave in five dimensions. There 400 had 1.7 to 3.3 times the effective
    draws (ten models, d of 3 to 10); with 5000 and d = 20 they had .4 to .6.
    """
    return min(200 * d, 400)


def _rate(state: State) -> float:
    """Robbins-Monro rate, with a boost in the 100 draws after a covariance update early on."""
    rate = 2.0 * (state.moves + 2.0) ** -RATE_EXPONENT
    since = state.iteration - state.last_update
    if since < 100 and state.iteration < 2000:
        rate += 0.3 * (1.0 + since) ** -RATE_EXPONENT
    return rate
