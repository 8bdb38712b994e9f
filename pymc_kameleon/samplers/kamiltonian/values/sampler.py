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
does not; the mixture.

The seam. Beside ``init, propose, adapt, freeze`` this module has

- ``start(state, x, log_density)``: the chain's point or its log density changed from outside;
- ``log_ratio(state, x, log_density, proposal, proposed_log_density)``: replaces
  ``proposal.log_q_ratio``, because the shares depend on the log density at both ends;
- ``keep(state, outcome)``: called after the test at every draw, before ``adapt``; moves what is
  retained;
- ``observe(state, x, log_density)``: an evaluation that was no proposal.

``propose`` takes the current log density from ``state.current``. While tuning, proposals of the
companion chains are evaluated with ``log_q_ratio = -inf``: the chain stays and ``adapt`` runs the
companion's test.

References
----------
H. Strathmann et al. (2015). Gradient-free Hamiltonian Monte Carlo with efficient kernel exponential
families. NIPS.
"""

import math
from typing import Any

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kamiltonian import trust as residual_mixture
from pymc_kameleon.samplers.kamiltonian.values import worth as kamiltonian_worth
from pymc_kameleon.samplers.kamiltonian.values.state import (
    Carry,
    Learning,
    Options,
    Quality,
    State,
    locate,
)
from pymc_kameleon.samplers.kamiltonian.values.tuning import adapt, freeze, record
from pymc_kameleon.samplers.seam import Outcome, Proposal
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS
from pymc_kameleon.surrogates.values.features import quadratic_size
from pymc_kameleon.surrogates.values.regression import LIBRARY, Family, affordable

__all__ = [
    "State", "adapt", "freeze", "init", "keep", "log_ratio", "observe", "propose", "start", "stats",
]  # fmt: skip

NEVER = 2**62  # evaluations: beyond some 80 dimensions this stays adaptive Metropolis
RENEW = 10  # rejections in a row
SWAP_SHARE = 0.15  # of the tuning draws; they cost no evaluation
STUCK = 3.5  # residual above the typical one at which tuning turns to the random walk


def init(
    x: np.ndarray,
    *,
    tune: int | None = None,
    library: tuple[Family, ...] = LIBRARY,
    growth: float = 1.35,
    companion_share: float = 0.25,
    initial_scale: float | np.ndarray = 0.1,
    factor: np.ndarray | None = None,
    evaluated: tuple[np.ndarray, np.ndarray] | None = None,
) -> State:
    """Start at ``x`` of shape (d,).

    Parameters
    ----------
    tune : int, optional
        Number of tuning draws, if known: the last refit, a search of the whole library, is then at
        85 % of it. Otherwise the surrogate is the one of the last of the geometrically spaced
        refits.
    library : tuple of Family
        Feature families to choose from by held-out error.
    growth : float
        Refit whenever the number of evaluations has grown by this factor. Default 1.35, above 1.
    companion_share : float
        Share of the tuning draws for two chains at inverse temperatures 0.5 and 1 + 0.8 / d, which
        show the surrogate tails and necks. Default 0.25, in [0, 1).
    initial_scale : float or ndarray of shape (d,)
        Of the coordinate-wise cold start, see :func:`pymc_kameleon.samplers.adaptive_metropolis.init`.
    factor
        From an arrival, see there.
    evaluated : (ndarray of shape (n, d), ndarray of shape (n,)), optional
        Points whose log density is known, without ``x``: the surrogate learns from them too.

    Raises
    ------
    ValueError
        For an option outside its domain, with the value.
    """
    if not growth > 1.0:
        raise ValueError(f"growth must be above 1, got {growth!r}.")
    if not 0.0 <= companion_share < 1.0:
        raise ValueError(f"companion_share must lie in [0, 1), got {companion_share!r}.")
    if not library:
        raise ValueError("library is empty: give at least one Family, such as Family('quadratic').")
    x = np.array(x, dtype=float)
    d = len(x)
    walk = adaptive_metropolis.init(
        x, initial_scale=initial_scale, learn_from_values=False, tune=tune, factor=factor
    )
    known, values = history.empty(d), history.empty(1)
    for position, value in zip(*evaluated, strict=True) if evaluated is not None else ():
        known, values = history.append(known, position), history.append(values, np.array([value]))
    first = max(100, int(1.5 * quadratic_size(d)), walk.options.warmup)
    if not affordable(d):
        first = NEVER
    cold = (0.5, 1.0 + 0.8 / d)
    return State(
        options=Options(tune, tuple(library), first, growth, cold, companion_share, SWAP_SHARE),
        walk=walk,
        current=locate(None, x, -math.inf),
        share=1.0,
        fit=None,
        dynamics=None,
        arms=np.array([0.4] + [0.6 / len(ARMS)] * len(ARMS)),
        mixture=None,
        quality=Quality(math.inf, 1.0, 0, 0),
        learning=Learning(
            positions=known,
            log_densities=values,
            chain_log_densities=history.empty(1),
            companions=np.tile(x, (len(cold), 1)),
            companion_log_densities=np.full(len(cold), -math.inf),
            companion_noise=(None,) * len(cold),
            draws=0,
            rejections=0,
            noise_sd=0.0,
            refits=0,
            last_refit=0,
            next_refit=max(first, known.size + max(20, 2 * d)),
            final=False,
            surprises=0,
            residuals=history.empty(1),
            typical=None,
            earlier=None,
            uncovered=0,
            judged=0,
            averaging=None,
            worth=kamiltonian_worth.empty(d),
            seed=0,
        ),
    )


def start(state: State, x: np.ndarray, log_density: float) -> State:
    """Retain ``x`` and its log density: at the chain's start, and when another step moved something.

    In a compound step the log density changes from draw to draw: what was evaluated under other
    values of the other variables is then only roughly right for the surrogate, which the mixture
    allows for, and not at all for the companions, which are given up.
    """
    learning = state.learning
    if learning is not None and learning.draws > 0:  # the companions' values are out of date
        options = state.options._replace(companion_share=0.0, swap_share=0.0)
        state = state._replace(options=options)
    elif learning is not None:
        learning = learning._replace(
            positions=history.append(learning.positions, x),
            log_densities=history.append(learning.log_densities, np.array([log_density])),
        )
    return _retain(state._replace(learning=learning), locate(state.dynamics, x, log_density))


def observe(state: State, x: np.ndarray, log_density: float) -> State:
    """Learn from a second evaluation at the chain's point, which the step made to measure the noise."""
    learning = state.learning
    if learning is None:
        return state
    return state._replace(learning=record(learning, x, log_density))


def keep(state: State, outcome: Outcome) -> State:
    """Retain the accepted point: its log density is never evaluated again."""
    if not outcome.accepted:
        return state
    carry = outcome.proposal.carry
    return _retain(state, residual_mixture.Current(carry.z, outcome.log_density, carry.value))


def _retain(state, current):
    share = 1.0
    if state.mixture is not None:
        share = residual_mixture.share(
            state.mixture, state.dynamics.radius, state.dynamics.ceiling, current
        )
    return state._replace(current=current, share=share)


def propose(rng: np.random.Generator, x: np.ndarray, state: State) -> Proposal:
    """One proposal, whose test costs at most one evaluation."""
    if state.learning is not None and _renewal_is_due(state.learning):
        proposal = Proposal(x.copy(), math.inf, "renewal")
        return _carrying(proposal, x, state)
    if state.dynamics is None:
        return _plain_walk(rng, x, state)
    learning, u = state.learning, rng.random()
    # The companions cost draws, and show tails to a surrogate that is good: not before it pays.
    if learning is not None and state.arms[0] < 0.5:
        if u < state.options.swap_share:
            return _propose_swap(rng, x, state)
        u = (u - state.options.swap_share) / (1.0 - state.options.swap_share)
        if u < state.options.companion_share:  # evaluated, this chain stays
            return _propose_for_companion(rng, x, state)
    kernel = _choose_kernel(rng, state)
    return _walk(rng, x, state) if kernel == 0 else _free_chain(rng, x, state, kernel)


def _renewal_is_due(learning):
    """Evaluate the chain's point again and take the value over, while tuning, where there is noise.

    With a noisy log density an overestimate holds the chain for a long time. That must be so after
    tuning (a fresh value would bias the draws); while tuning the chain is to learn, not to stick.
    """
    return learning.noise_sd > 0.0 and learning.rejections >= RENEW


def _choose_kernel(rng, state):
    """0 for the random walk, else an arm of the surrogate; each arm has the same ratio, so one test serves all."""
    u, arm = rng.random(2)
    if state.mixture is not None:
        walk = 1.0 - (1.0 - state.mixture.floor) * state.share  # the mixture's weights
    else:
        walk = state.arms[0]
        residual, typical = state.current.log_density - state.current.value, state.learning.typical
        if typical is not None and residual - typical > STUCK:
            walk = 0.7 + 0.3 * walk
    return 0 if u < walk else _choose_arm(arm, state)


def _choose_arm(u, state):
    cumulative = np.cumsum(state.arms[1:])
    return 1 + min(int(np.searchsorted(cumulative, u * cumulative[-1])), len(cumulative) - 1)


def _free_chain(rng, x, state, kernel):
    """The end of K inner transitions from x; x itself, not evaluated, if none of them moved."""
    current, dynamics = state.current, state.dynamics
    arm = state.options.choice.arms[kernel - 1]
    path = surrogate_dynamics.run(rng, current.z, dynamics, arm)
    carry = Carry(
        kernel,
        path.z,
        path.end_value,
        x,
        current.log_density,
        path.moved,
        gradients=path.gradients,
        accept_prob=path.accept_prob,
        energy_error=path.energy_error,
        diverging=path.diverging,
    )
    move = f"surrogate{kernel}"
    if not path.moved:
        return Proposal(x, -math.inf, move, carry, current.log_density)
    ratio = path.start_value - path.end_value  # P^K is reversible with respect to exp(f) on D
    return Proposal(surrogate_dynamics.to_x(dynamics, path.z), ratio, move, carry)


def _plain_walk(rng, x, state):
    proposal = adaptive_metropolis.propose(rng, x, state.walk)
    return proposal._replace(carry=Carry(0, np.zeros(0), 0.0, x, state.current.log_density))


def _walk(rng, x, state):
    """A symmetric step: differential evolution from the archive or adaptive Metropolis, half and half."""
    dynamics, d = state.dynamics, len(x)
    u, scale = rng.random(2)
    # symmetric, on which exactness hangs: ``state.walk`` has no autoregressive moves
    proposal = adaptive_metropolis.propose(rng, x, state.walk)
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
    point = locate(state.dynamics, proposal.position, math.nan)
    carry = Carry(0, point.z, point.value, x, state.current.log_density, **more)
    return proposal._replace(carry=carry)


def _propose_swap(rng, x, state):
    """Exchange states with a companion at inverse temperature b: accept with exp{(1 - b)(y_c - y)}."""
    learning = state.learning
    c = int(rng.integers(len(state.options.temperatures)))
    y = float(learning.companion_log_densities[c])
    ratio = -state.options.temperatures[c] * (y - state.current.log_density)
    noise = learning.companion_noise[c]  # an estimate goes with the noise that it is a function of
    proposal = Proposal(learning.companions[c].copy(), ratio, "swap", None, y, noise)
    return _carrying(proposal, x, state, evaluated=False, companion=c)


def _propose_for_companion(rng, x, state):
    """A proposal of a companion chain, evaluated and never moved to by this one."""
    learning, dynamics = state.learning, state.dynamics
    c = int(rng.integers(len(state.options.temperatures)))
    temperature, own = state.options.temperatures[c], learning.companions[c]
    path = None
    if rng.random() >= 0.35:
        arm = state.options.choice.arms[_choose_arm(rng.random(), state) - 1]
        z = surrogate_dynamics.to_z(dynamics, own)
        path = surrogate_dynamics.run(rng, z, dynamics, arm, temperature)
    if path is not None and path.moved:
        position = surrogate_dynamics.to_x(dynamics, path.z)
        ratio = path.start_value - path.end_value
    else:
        step = adaptive_metropolis.propose(rng, own, state.walk).position - own
        position, ratio = own + (1.3 if temperature < 1.0 else 0.5) * step, 0.0
    proposal = Proposal(position, -math.inf, "companion", noise=learning.companion_noise[c])
    return _carrying(proposal, x, state, companion=c, companion_log_ratio=ratio)


def log_ratio(
    state: State,
    x: np.ndarray,
    log_density: float,
    proposal: Proposal,
    proposed_log_density: float,
) -> float:
    """Everything in the Metropolis-Hastings ratio but log p(x') - log p(x): the kernel's, and the
    shares'.

    Exactness hangs on the shares: see :mod:`pymc_kameleon.samplers.kamiltonian.trust`.
    """
    carry, mixture = proposal.carry, state.mixture
    moved = carry.evaluated and proposed_log_density > -math.inf
    if mixture is None or not moved:
        return proposal.log_q_ratio
    there = residual_mixture.Current(carry.z, proposed_log_density, carry.value)
    dynamics = state.dynamics
    new_share = residual_mixture.share(mixture, dynamics.radius, dynamics.ceiling, there)
    return proposal.log_q_ratio + residual_mixture.log_ratio(
        mixture, carry.kernel > 0, state.share, new_share
    )


def stats(state: State, proposal: Proposal | None = None) -> dict[str, Any]:
    """Statistics of the state, and of the last proposal if it is given.

    ``surrogate_error`` is the held-out error of the fit and ``residual_sd`` the out-of-sample sd of
    log p - f since the last refit, both in units of the log density; ``share`` is t at the chain's
    point.
    """
    fit, quality = state.fit, state.quality
    result = {
        "step_size": state.dynamics.step_size if state.dynamics is not None else math.nan,
        "surrogate": fit.family if fit is not None else "none",
        "surrogate_error": fit.error if fit is not None else math.nan,
        "residual_sd": quality.residual_sd if state.mixture is not None else math.nan,
        "uncovered": quality.uncovered if state.mixture is not None else math.nan,
        "share": state.share if fit is not None else 0.0,
        "refits": quality.refits if state.learning is None else state.learning.refits,
    }
    if proposal is not None and proposal.carry is not None:  # a step's own carries nothing
        carry = proposal.carry
        result["move"] = proposal.move
        result["n_steps"] = carry.gradients
        result["energy_error"] = carry.energy_error
        result["diverging"] = carry.diverging
    elif proposal is not None:
        result.update(n_steps=0, energy_error=math.nan, diverging=False)
    return result
