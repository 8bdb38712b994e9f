"""A surrogate's kernel beside a random walk: what is the same whatever the surrogate was learned from.

A learner is a subclass that says what f is at a point (:meth:`SurrogateSampler.locate`), in which region it is trusted
(:meth:`SurrogateSampler.trusted`), how it proposes, and what its draws teach. The shares of the two kernels, what is
retained, the ratio, and what follows on what while tuning stand here.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler
from pymc_kameleon.surrogates import transitions


class Carry(NamedTuple):
    """What ``propose`` computed at the proposed point."""

    # 0 for the random walk, 1, 2, ... for the arms; -1 for points that are evaluated to learn from
    # them.
    kernel: int
    # (d,): the proposed point in the coordinates of the dynamics, and f there; empty and 0 without
    # a surrogate
    z: np.ndarray
    value: float
    origin: np.ndarray | None = None  # (d,): where the chain was when it proposed
    origin_log_density: float = 0.0
    evaluated: bool = True  # whether the log density is evaluated for this draw
    # of which companion chain this is a proposal or with which it is a swap; -1 for none
    companion: int = -1
    # the part of the companion's Metropolis-Hastings ratio that is known before the evaluation
    companion_log_ratio: float = 0.0
    # what the transitions on the surrogate did: ``gradients``, ``accept_prob``, ``energy_error``,
    # ``diverging``
    path: Any = None


class SurrogateSampler(Sampler):
    """A mixture of a surrogate's kernel and a random walk.

    Its state has ``mixture``, ``current``, ``share``, ``fit``, ``quality`` and ``learning`` (None once frozen), and
    ``dynamics`` where :meth:`locate` and :meth:`trusted` are those of a surrogate from values; ``step_size`` and
    ``surrogate`` of the statistics are the subclass's to add.
    """

    learn: Callable[..., Any]  # (rng, state, outcome): what one draw teaches, but for a new surrogate
    due: Callable[..., tuple[Any, bool]]  # (state): a state, and whether to fit a new surrogate now
    refit: Callable[..., Any]  # (rng, state, here, final=False), ``here`` the chain's point; the old one if that fails
    is_stale: Callable[..., bool]  # (state): whether there is a last fit when tuning ends
    position: Callable[..., np.ndarray]  # (state): where the chain is then
    fix: Callable[..., Any]  # (rng, state): everything; how far the surrogate is trusted

    statistics: ClassVar[dict] = {
        **dict.fromkeys(("step_size", "surrogate_error", "residual_sd", "uncovered", "share"), float),
        "surrogate": str, "refits": int, "n_steps": int, "energy_error": float, "diverging": bool, "move": str,
    }  # fmt: skip

    def locate(self, state: Any, point: Point) -> Current:
        """What is retained at ``point``: f there."""
        if state.dynamics is None:
            return Current(np.zeros(0), point.log_density, 0.0)
        z, value = transitions.located(state.dynamics, point.position)
        return Current(z, point.log_density, value)

    def trusted(self, state: Any, current: Current) -> float:
        """The share of the surrogate's kernel at a point, which D holds or not."""
        dynamics = state.dynamics
        z = transitions.in_region(dynamics, current.z)
        inside = current if z is current.z else current._replace(z=z)
        return trust.share(state.mixture, dynamics.radius, dynamics.ceiling, inside)

    def end(self, state: Any, proposal: Proposal, there: Point) -> Current:
        """The proposed point, where ``there`` was found."""
        return Current(proposal.carry.z, there.log_density, proposal.carry.value)

    def place(self, state, point, proposal=None) -> Any:
        """Retain the chain's point and its log density, which is never evaluated again."""
        if proposal is None:
            return self.retain(state, self.locate(state, point))
        return self.retain(state, self.end(state, proposal, point))

    def retain(self, state: Any, current: Current) -> Any:
        """The chain is there: with the share that the surrogate has there."""
        share = 1.0 if state.mixture is None else self.trusted(state, current)
        return state._replace(current=current, share=share)

    def log_ratio(self, state, point, proposal, there) -> float:
        """Everything in the Metropolis-Hastings ratio but log p(x') - log p(x): the kernel's, and the shares'.

        Exactness hangs on the shares: see :mod:`pymc_kameleon.samplers.kamiltonian.trust`.
        """
        return self.with_shares(state, proposal.log_q_ratio, proposal.carry.kernel > 0, proposal, there)

    def with_shares(self, state, ratio, by_surrogate, proposal, there) -> float:
        """``ratio`` and that of the shares at both ends, the new one with the new log density."""
        if state.mixture is None or not (ratio > -math.inf and there.log_density > -math.inf):
            return ratio
        share = self.trusted(state, self.end(state, proposal, there))
        return ratio + trust.log_ratio(state.mixture, by_surrogate, state.share, share)

    def adapt(self, rng, state, outcome) -> Any:
        """Learn from one tuning draw, and fit a new surrogate where one is due."""
        if state.learning is None:
            return state
        state, due = self.due(self.learn(rng, state, outcome))
        noise = outcome.noise if outcome.accepted else outcome.former_noise
        here = Point(outcome.position, outcome.log_density, noise)
        return self.refit(rng, state, here) if due else state

    def freeze(self, state) -> Any:
        """Fix everything, decide how far to trust the surrogate, and drop what was evaluated."""
        if state.learning is None:
            return state
        rng = np.random.default_rng(state.learning.schedule.seed)
        if self.is_stale(state):
            here = Point(self.position(state), state.current.log_density)
            state = self.refit(rng, state, here, final=True)
        return self.fix(rng, state)

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """Statistics of the state, and of the last proposal if it is given.

        ``surrogate_error`` is the held-out error of the fit and ``residual_sd`` the out-of-sample sd of log p - f since
        the last refit, both in units of the log density; ``share`` is t at the chain's point.
        """
        fit, quality = state.fit, state.quality
        frozen = state.mixture is not None
        found = {
            "surrogate_error": fit.error if fit else math.nan,
            "residual_sd": quality.residual_sd if frozen else math.nan,
            "uncovered": quality.uncovered if frozen else math.nan,
            "share": state.share if fit else 0.0,
            "refits": quality.refits if state.learning is None else state.learning.schedule.refits,
        }
        return found if proposal is None else found | self.draw_stats(state, proposal)

    def draw_stats(self, state: Any, proposal: Proposal) -> dict[str, Any]:
        """Those that are others after each draw, once frozen."""
        path = proposal.carry.path if proposal.carry else None  # a step's own carries nothing
        return {
            "share": state.share if state.fit else 0.0,
            "move": proposal.move,
            "n_steps": path.gradients if path else 0,
            "energy_error": path.energy_error if path else math.nan,
            "diverging": path.diverging if path else False,
        }
