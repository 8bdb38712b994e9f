"""The frozen kernel where several modes are known: a surrogate for each, and jumps between them.

Let k(x) be the mode to which a point belongs (:mod:`pymc_kameleon.samplers.modes.catalogue`), f_k that mode's surrogate
and P_k its frozen kernel (:class:`pymc_kameleon.samplers.kamiltonian.values.sampler.ValueKamiltonian`). A draw is

- with a fixed probability ``ACROSS`` the end of a free chain on F(x) = f_k(x)(x), which changes modes by itself;
- otherwise one of P_k(x), refused where it would leave the mode.

The free chain is W J W ... J W. W are inner transitions on f_k, refused if they end in another mode. J takes the point
to another mode by T_kj, which is refused unless T_kj(x) belongs to j, and tested by exp{F(T(x)) - F(x)} |det T|. Both
are reversible with respect to exp(F), and so is their palindrome. So one evaluation tests the whole of it by

    exp{log p(x') - log p(x) + F(x) - F(x')},

and how well T fits the modes' shapes costs no evaluation. Where F is good nearly every such draw is accepted, and a
chain is in every mode as often as F says and p confirms: a few draws apart, not a few thousand evaluations.

On what exactness hangs: catalogue, surrogates and ``ACROSS`` are fixed when tuning ends; the Jacobian of T; a kernel of
one mode ends in that mode; F is -inf outside the modes' regions D, from which a free chain does not set out either.

Differs from the paper (Pompe et al., 2020): the mode is a function of the point; jumps are tested on a surrogate.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.sampler import Carry
from pymc_kameleon.samplers.kamiltonian.values import sampler as value_kamiltonian
from pymc_kameleon.samplers.kamiltonian.values.state import State as OneMode
from pymc_kameleon.samplers.modes import catalogue as geometry
from pymc_kameleon.samplers.modes.catalogue import Catalogue
from pymc_kameleon.samplers.seam import NOTHING, Point, Proposal, Sampler
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import Arm

ACROSS = 0.7  # of the draws: at 0.3 a third as many effective draws of the weights
# inner transitions between two jumps, on the present mode's surrogate
WITHIN = Arm(3, 1.7, 0.27, 0.2)


class State(NamedTuple):
    """The state of a frozen chain."""

    catalogue: Catalogue
    modes: tuple[OneMode, ...]  # every mode's frozen sampler, as all chains share it
    mode: int  # to which the chain's point belongs
    own: OneMode  # that mode's, with what is retained at the chain's point


class Landing(NamedTuple):
    """Where a free chain has ended."""

    mode: int
    z: np.ndarray  # (d,): in the coordinates of that mode's dynamics
    value: float  # F there
    gradients: int  # evaluations of F on the way
    evaluated: bool  # whether it has moved


@dataclass(frozen=True, kw_only=True, eq=False)
class AcrossModes(Sampler):
    """The kernel of this module, for chains that are frozen already."""

    statistics: ClassVar[dict] = {**value_kamiltonian.ValueKamiltonian.statistics, "mode": int}

    def init(self, rng, x, known=NOTHING) -> State:
        """There is no chain of this kind before tuning has ended: see :func:`frozen`."""
        raise TypeError("AcrossModes draws only; pk.sample tunes its modes one by one.")

    def propose(self, rng, x, state) -> Proposal:
        """One proposal, whose test costs at most one evaluation."""
        if rng.random() < ACROSS:
            return _free_chain(rng, x, state)
        proposal = value_kamiltonian.SAMPLER.propose(rng, x, state.own)
        if proposal.position is x or arrives(state.catalogue, proposal.position, state.mode):
            return proposal
        # what would leave the mode is refused without being evaluated
        current = state.own.current
        carry = Carry(0, current.z, current.value, x, evaluated=False)
        return Proposal(x, -math.inf, proposal.move, carry, current.log_density)

    def place(self, state, point, proposal=None) -> State:
        """Retain the chain's point, in the mode to which it belongs."""
        mode = state.mode
        if proposal is None:
            mode = geometry.mode_of(state.catalogue, point.position)
        elif isinstance(proposal.carry, Landing):
            mode = proposal.carry.mode
        own = value_kamiltonian.SAMPLER.place(state.modes[mode], point, proposal)
        return state._replace(mode=mode, own=own)

    def log_ratio(self, state, point, proposal, there) -> float:
        """Everything but the target."""
        if isinstance(proposal.carry, Landing):
            return proposal.log_q_ratio
        return value_kamiltonian.SAMPLER.log_ratio(state.own, point, proposal, there)

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """Those of the mode's own sampler, and which mode it is."""
        carry = None if proposal is None else proposal.carry
        if not isinstance(carry, Landing):
            return {**value_kamiltonian.SAMPLER.stats(state.own, proposal), "mode": state.mode}
        return {
            **value_kamiltonian.SAMPLER.stats(state.own), "move": proposal.move, "n_steps": carry.gradients,
            "energy_error": math.nan, "diverging": False, "mode": state.mode,
        }  # fmt: skip


SAMPLER = AcrossModes()


def frozen(catalogue: Catalogue, modes: tuple[OneMode, ...], point: Point) -> State:
    """The state of a chain at ``point``."""
    return SAMPLER.place(State(catalogue, modes, 0, modes[0]), point)


def arrives(catalogue: Catalogue, x: np.ndarray, mode: int) -> bool:
    """Whether ``x`` (d,) belongs to the mode for which a move was meant, on which exactness hangs."""
    return geometry.mode_of(catalogue, x) == mode


# --- the free chain -------------------------------------------------------------------------------


def _free_chain(rng, x, state):
    """W J W ... J W with four J from ``x``; x itself, not evaluated, if nothing moved."""
    here, gradients, moved = (state.mode, state.own.current.z, state.own.current.value), 0, False
    start = here[2]
    if _is_inside(state.modes[state.mode], *here[1:]):
        for turn in range(9):
            if turn % 2:
                found, more = _jump(rng, state, here), 1
            else:
                found, more = _within(rng, state, here)
            gradients += more
            if found is not None:
                here, moved = found, True
    mode, z, value = here
    move = "surrogate" if mode == state.mode else "jump"
    carry = Landing(mode, z, value, gradients, moved)
    if not moved:
        return Proposal(x, -math.inf, move, carry, state.own.current.log_density)
    position = surrogate_dynamics.to_x(state.modes[mode].dynamics, z)
    return Proposal(position, start - value, move, carry)


def _is_inside(mode, z, value):
    """Whether D, where F is finite, holds a point at which f is ``value``; a mode without a surrogate has none."""
    dynamics = mode.dynamics
    if dynamics is None:
        return False
    return bool(value < dynamics.ceiling and surrogate_dynamics.reach(dynamics, z) < dynamics.radius)


def _within(rng, state, here):
    mode, z, _ = here
    path = surrogate_dynamics.run(rng, z, state.modes[mode].dynamics, WITHIN)
    # no inner transition leaves the mode, on which exactness hangs: f is another's there
    if not path.moved or not arrives(state.catalogue, path.x, mode):
        return None, path.gradients
    return (mode, path.z, path.end_value), path.gradients


def _jump(rng, state, here):
    """The point in another mode, or None."""
    mode, z, value = here
    other, u = rng.integers(len(state.modes) - 1), rng.random()
    there = int(other + (other >= mode))
    x = surrogate_dynamics.to_x(state.modes[mode].dynamics, z)
    x, log_jacobian = geometry.carried(state.catalogue, x, mode, there)
    # the reverse jump sets out from ``there``, on which exactness hangs
    dynamics = state.modes[there].dynamics
    if dynamics is None or not arrives(state.catalogue, x, there):
        return None
    z = surrogate_dynamics.to_z(dynamics, x)
    new_value = surrogate_dynamics.value(dynamics, z)
    if not _is_inside(state.modes[there], z, new_value):
        return None
    if not u < math.exp(min(0.0, new_value - value + log_jacobian)):
        return None
    return there, z, new_value
