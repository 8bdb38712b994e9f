"""Kamiltonian Monte Carlo that learns from every evaluation: KamiltonianStep(surrogate="values").

While tuning, a surrogate f of the log density is fitted to the value at every point ever evaluated,
accepted or rejected (:mod:`pymc_kameleon.surrogates.values.regression`). A proposal is the end of a long, free
Markov chain on f (:mod:`pymc_kameleon.surrogates.transitions`), tested with one evaluation. When tuning
ends everything is fixed, and the surrogate shares the draws with a random walk according to how
wrong it is where the chain is (:mod:`pymc_kameleon.samplers.kamiltonian.trust`), which is what keeps the
chain exact *and* moving if f is bad.

Strathmann et al. (2015) fit f to the chain's states by score matching and leapfrog once per
evaluation. Differs from the paper: values instead of score matching, which works from a cold start;
many inner transitions instead of one trajectory, so that the error of f matters and its gradient's
does not; the mixture; and everything is frozen when tuning ends.

While tuning, proposals of the companion chains are evaluated with ``log_q_ratio = -inf``: the chain stays and
``adapt`` runs the companion's test.

References
----------
H. Strathmann et al. (2015). Gradient-free Hamiltonian Monte Carlo with efficient kernel exponential
families. NIPS.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.checks import positive, share
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import UNKNOWN, Schedule, unjudged
from pymc_kameleon.samplers.kamiltonian.sampler import Carry, SurrogateSampler
from pymc_kameleon.samplers.kamiltonian.trust import Current
from pymc_kameleon.samplers.kamiltonian.values import rays, refits, tuning, worth
from pymc_kameleon.samplers.kamiltonian.values.state import WALK, Learning, Noise, Options, State, gathered
from pymc_kameleon.samplers.seam import NEVER, NOTHING, Point, Proposal
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.library import LIBRARY, Family
from pymc_kameleon.surrogates.values.regression import affordable

SWAP_SHARE = 0.15  # of the tuning draws; they cost no evaluation


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueKamiltonian(SurrogateSampler):
    """Kamiltonian Monte Carlo with a surrogate from evaluated log densities. ``pk.Values``.

    What is planned from the options when a chain begins stands in its state, so that chains that learn together can
    share it: the functions of this module need no more.

    Parameters
    ----------
    tune : int, optional
        Length of tuning, if known: give it what ``pm.sample`` gets. The last refit, a search of the whole library, is
        then at 85 % of it; the rest judges the surrogate. Otherwise refits come as the
        evaluations grow by ``growth``, after surprises, and when tuning ends if much was learned since the last.
    library : tuple of Family
        Feature families to choose from by held-out error, beside the quadratic, which is always one of them, and the
        only one where it is good enough. Default ``pymc_kameleon.surrogates.values.library.LIBRARY``.
    growth : float
        Refit whenever the number of evaluations has grown by this factor, above 1. Default 1.35; ``pk.sample`` takes
        1.15 for it.
    companion_share : float
        Share of the tuning draws for two chains at inverse temperatures 0.5 and 1 + 0.8 / d, which show the surrogate
        tails and necks, in [0, 1). Default 0.25.
    initial_scale : float or ndarray of shape (d,)
        Proposal sd, positive, with which the coordinate-wise cold start begins, where no arrival has found the units;
        it spans six orders of magnitude either way. Default 0.1.

    Raises
    ------
    ValueError
        For an option outside its domain, with the value.
    """

    renews_by_itself: ClassVar[bool] = True
    learn, due = staticmethod(tuning.learn), staticmethod(tuning.due)
    refit, is_stale, fix = staticmethod(refits.refit), staticmethod(tuning.is_stale), staticmethod(tuning.end)

    tune: int | None = None
    library: tuple[Family, ...] = LIBRARY
    growth: float = 1.35
    companion_share: float = 0.25
    initial_scale: float | np.ndarray = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not 1.0 < self.growth < math.inf:
            raise ValueError(f"growth must be above 1 and finite, got {self.growth!r}.")
        share(companion_share=self.companion_share)
        positive(initial_scale=self.initial_scale)
        if not self.library:
            raise ValueError("library is empty: give at least one Family, such as Family('quadratic').")

    def init(self, rng, x, known=NOTHING) -> State:
        """Start at ``x``, shape (d,); the surrogate learns from what is known too.

        With points enough from an earlier run there is a surrogate at the second draw, and no companions: the tails are
        known.
        """
        x = np.array(x, dtype=float)
        d = len(x)
        walk = AdaptiveMetropolis(initial_scale=self.initial_scale, learn_from_values=False, tune=self.tune).init(
            rng, x, known._replace(evaluated=None)
        )
        evaluated = evaluations.copy(d, known.evaluated)
        first = max(100, int(1.5 * quadratic_size(d)), walk.warmup)
        next_refit = max(first, evaluated.size + max(20, 2 * d))
        if not affordable(d):
            first = next_refit = NEVER
        warm = known.warm and int(np.isfinite(evaluated.log_densities).sum()) >= first
        if warm:
            next_refit = 0
        options = Options(
            known.left(self.tune), tuple(self.library), first, self.growth, (0.5, 1.0 + 0.8 / d),
            0.0 if warm else self.companion_share, 0.0 if warm else SWAP_SHARE,
            before=evaluated.size if warm else 0, elsewhere=evaluated.size,
            scales=known.scales,
        )  # fmt: skip
        learning = Learning(
            evaluated=evaluated, chain_log_densities=history.empty(1),
            companions=gathered(x, -math.inf, len(options.temperatures)), noise=Noise(),
            judgement=unjudged(), worth=worth.empty(d), averaging=None, schedule=Schedule(next_refit),
        )  # fmt: skip
        return State(
            options=options, walk=walk, current=Current(np.zeros(0), -math.inf, 0.0), share=1.0,
            fit=None, dynamics=None,
            arms=np.array([0.4] + [0.6 / len(ARMS)] * len(ARMS)), mixture=None, quality=UNKNOWN,
            learning=learning,
        )  # fmt: skip

    def place(self, state, point, proposal=None) -> State:
        """Retain the chain's point and its log density, which is never evaluated again.

        Where the chain was put there from outside: in a compound step the log density changes from draw to draw. What
        was evaluated under other values of the other variables is then only roughly right for the surrogate, which the
        mixture allows for, and not at all for the companions, which are given up.
        """
        learning = state.learning
        if proposal is None and learning is not None:
            if learning.schedule.draws > 0:  # the companions' values are out of date
                options = state.options._replace(companion_share=0.0, swap_share=0.0)
                state = state._replace(options=options)
            elif not learning.evaluated.is_latest(point.position, point.log_density):
                state = self.observe(state, point, "start")
        return super().place(state, point, proposal)

    def propose(self, rng, x, state) -> Proposal:
        """One proposal, whose test costs at most one evaluation."""
        learning = state.learning
        # With a noisy log density an overestimate holds the chain for a long time. That must be so after tuning (a
        # fresh value would bias the draws); while tuning the chain is to learn, not to stick.
        if learning is not None and learning.noise.sd > 0.0 and learning.noise.rejections >= 10:
            return _carrying(Proposal(x.copy(), math.inf, "renewal"), x, state)
        if state.dynamics is None:
            return _carrying(WALK.propose(rng, x, state.walk), x, state)
        u = rng.random()
        # The companions cost draws, and show tails to a surrogate that is good: not before it pays.
        if learning is not None and state.arms[0] < 0.5:
            if u < state.options.swap_share:
                return _propose_swap(rng, x, state)
            u = (u - state.options.swap_share) / (1.0 - state.options.swap_share)
            if u < state.options.companion_share:  # evaluated, this chain stays
                return _propose_for_companion(rng, x, state)
        kernel = _choose_kernel(rng, state)
        return _walk(rng, x, state) if kernel == 0 else _free_chain(rng, x, state, kernel)

    def position(self, state) -> np.ndarray:
        """Where the chain is: its last state."""
        past = state.walk.history
        return past.buffer[past.size - 1].copy()

    def observe(self, state, point, move="refresh") -> State:
        """Learn from an evaluation that was no proposal."""
        if state.learning is None:
            return state
        learning = tuning.record(state.learning, point.position, point.log_density, move)
        return state._replace(learning=learning)

    def stats(self, state, proposal=None) -> dict[str, Any]:
        """What all surrogates have, and the family of this one."""
        return {
            "step_size": state.dynamics.step_size if state.dynamics else math.nan,
            "surrogate": state.fit.family if state.fit else "none",
            **super().stats(state, proposal),
        }


SAMPLER = ValueKamiltonian()  # for chains whose options are in their state


def _choose_kernel(rng, state):
    """0 for the random walk, else an arm of the surrogate; each arm has the same ratio, so one test serves all."""
    u, arm = rng.random(2)
    if state.mixture is not None:
        walk = 1.0 - (1.0 - state.mixture.floor) * state.share  # the mixture's weights
    else:
        walk = state.arms[0]
        if trust.is_stuck(state.current, state.learning.judgement.typical):
            walk = 0.7 + 0.3 * walk
    return 0 if u < walk else _choose_arm(arm, state)


def _choose_arm(u, state):
    cumulative = list(accumulate(state.arms[1:].tolist()))
    return 1 + min(bisect_left(cumulative, u * cumulative[-1]), len(cumulative) - 1)


def _free_chain(rng, x, state, kernel):
    """The end of K inner transitions from x; x itself, not evaluated, if none of them moved."""
    current, dynamics = state.current, state.dynamics
    arm = state.options.choice.arms[kernel - 1]
    path = surrogate_dynamics.run(rng, current.z, dynamics, arm)
    carry = Carry(kernel, path.z, path.end_value, x, evaluated=path.moved, path=path)
    move = f"surrogate{kernel}"
    if not path.moved:
        return Proposal(x, -math.inf, move, carry, current.log_density)
    ratio = path.start_value - path.end_value  # P^K is reversible with respect to exp(f) on D
    return Proposal(path.x, ratio, move, carry)


def _walk(rng, x, state):
    """A symmetric step: differential evolution from the archive or adaptive Metropolis, half and half.

    Or, where tails are heavy, along a ray.
    """
    dynamics, d = state.dynamics, len(x)
    if state.mixture is not None and state.mixture.rays and rng.random() < state.mixture.rays:
        return _carrying(rays.propose(rng, x, dynamics.surrogate.centre), x, state)
    u, scale = rng.random(2)
    # symmetric, on which exactness hangs: ``state.walk`` has no autoregressive moves
    proposal = WALK.propose(rng, x, state.walk)
    step = proposal.position - x
    if u < 0.5:
        a, b = rng.integers(len(dynamics.archive), size=2)
        whole, size = rng.random(2)
        gamma = 1.0 if whole < 0.1 else 2.38 / math.sqrt(2.0 * d) * (0.4 + 0.8 * size)
        difference = gamma * (dynamics.archive[a] - dynamics.archive[b])
        move = "differential"
        step = 0.02 * step + dynamics.surrogate.scale * (dynamics.metric @ difference)
    elif scale < 0.8:
        move = proposal.move
    else:
        move = "short" if scale < 0.9 else "long"
        step = step * (0.25 if scale < 0.9 else 3.0)
    return _carrying(Proposal(x + step, 0.0, move), x, state)


def _carrying(proposal, x, state, **more):
    point = SAMPLER.locate(state, Point(proposal.position, math.nan))
    return proposal._replace(carry=Carry(0, point.z, point.value, x, **more))


def _propose_swap(rng, x, state):
    """Exchange states with a companion at inverse temperature b: accept with exp{(1 - b)(y_c - y)}."""
    companions = state.learning.companions
    c = int(rng.integers(len(state.options.temperatures)))
    y, own = float(companions.log_densities[c]), state.current.log_density
    ratio = -state.options.temperatures[c] * (y - own)
    noise = companions.noise[c]  # an estimate goes with the noise that it is a function of
    proposal = Proposal(companions.positions[c].copy(), ratio, "swap", None, y, noise)
    return _carrying(proposal, x, state, origin_log_density=own, evaluated=False, companion=c)


def _propose_for_companion(rng, x, state):
    """A proposal of a companion chain, evaluated and never moved to by this one."""
    companions, dynamics = state.learning.companions, state.dynamics
    c = int(rng.integers(len(state.options.temperatures)))
    temperature, own = state.options.temperatures[c], companions.positions[c]
    path = None
    if rng.random() >= 0.35:
        arm = state.options.choice.arms[_choose_arm(rng.random(), state) - 1]
        z = surrogate_dynamics.to_z(dynamics, own)
        path = surrogate_dynamics.run(rng, z, dynamics, arm, temperature)
    if path is not None and path.moved:
        position, ratio = path.x, path.start_value - path.end_value
    else:
        step = WALK.propose(rng, own, state.walk).position - own
        position, ratio = own + (1.3 if temperature < 1.0 else 0.5) * step, 0.0
    proposal = Proposal(position, -math.inf, "companion", noise=companions.noise[c])
    return _carrying(proposal, x, state, companion=c, companion_log_ratio=ratio)
