"""Kamiltonian Monte Carlo that learns only what is unknown: the black boxes of a model, one by one.

What :mod:`pymc_kameleon.samplers.kamiltonian.values.sampler` does with one regression of the whole log density, this
does with one small regression for each black box, put into the known rest of the model (``surface``). A hierarchy of 64
unknowns over 30 black boxes in two inputs each is then 30 problems in two dimensions. Proposals are the ends of a few
Hamiltonian transitions on the surrogate, with jumps between modes between them (``surface``), tested with one
evaluation; beside them a random walk, and the weights of the two are those of
:mod:`pymc_kameleon.samplers.kamiltonian.trust`.

The position of the chain is v, the non-centred coordinates. All kernels work in u, partially non-centred
(``steps.hierarchies.coordinates``); with J = log|dv/du| their ratios in v are

    surrogate      g(v) - g(v'),   g = f - J,
    random walk    J(u') - J(u),

the first because exp(f) is what the transitions in u are reversible with respect to, the second because the walk is
symmetric in u. Emulators, lambda, metric, step size, archive and shares are fixed when tuning ends.

References
----------
J. A. Christen, C. Fox (2005). Markov chain Monte Carlo using an approximation. JCGS 14.
P. R. Conrad, Y. M. Marzouk, N. S. Pillai, A. Smith (2016). Accelerating asymptotically exact MCMC for computationally
intensive models via local approximations. JASA 111.
E. Cleary et al. (2021). Calibrate, emulate, sample. J. Comput. Phys. 424. (Emulation of outputs; not corrected.)
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.numerics.step_size import OPTIMAL_SCALE
from pymc_kameleon.samplers import seam
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.factors import climb as climbing
from pymc_kameleon.samplers.kamiltonian.factors import learning as learn
from pymc_kameleon.samplers.kamiltonian.factors.state import Climb, Learning, State
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, Arm, Known, leave, run, spot
from pymc_kameleon.samplers.kamiltonian.learner import UNKNOWN, Schedule, measure, unjudged
from pymc_kameleon.samplers.kamiltonian.sampler import Carry, SurrogateSampler
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal


@dataclass(frozen=True, kw_only=True, eq=False)
class FactoredKamiltonian(SurrogateSampler):
    """The sampler for one model; it holds what is compiled, and the state everything else.

    Parameters
    ----------
    known : Known
        What is known of the log density, with gradients.
    tune : int, optional
        Number of tuning draws, if known: the last refit is then at 85 % of it.
    """

    climbs_by_itself: ClassVar[bool] = True
    renews_by_itself: ClassVar[bool] = True
    statistics: ClassVar[dict] = {
        **SurrogateSampler.statistics, "factors": int, "noncentred": int, "worst_factor": str
    }  # fmt: skip

    known: Known
    tune: int | None = None

    # --- the seam -----------------------------------------------------------------------------

    def init(self, rng, x: np.ndarray, known: seam.Known = seam.NOTHING) -> State:
        """Start at ``x`` = v of shape (d,); with points enough of which the outputs are known there is no climb."""
        x = np.array(x, dtype=float)
        d, layout = len(x), self.known.layout
        evaluated, inputs = evaluations.empty(d, int(layout.outputs[-1])), history.empty(int(layout.inputs[-1]))
        if known.evaluated is not None and known.evaluated.outputs.shape[1]:
            evaluated = evaluations.copy(d, known.evaluated)
            for v in evaluated.positions:
                inputs = history.append(inputs, self.known.places(v, np.zeros(d))[0])
        warm = int(np.isfinite(evaluated.log_densities).sum()) >= climbing.design_size(layout)
        learning = Learning(
            evaluated=evaluated, inputs=inputs, chain=history.empty(d),
            chain_log_densities=history.empty(1), climb=None if known.warm and warm else Climb(),
            arrived=known.warm and warm,
            accepted=2.0 * np.linspace(0.9, 0.5, len(ARMS)), trials=np.full(len(ARMS), 2.0),
            correlation=0.7, judgement=unjudged(UNKNOWN._replace(uncovered=0.0)), schedule=Schedule(0),
        )  # fmt: skip
        return State(
            tune=known.left(self.tune), current=trust.Current(x, -math.inf, 0.0), share=1.0, fit=None, surface=None,
            log_walk=math.log(OPTIMAL_SCALE / math.sqrt(d)), archive=np.zeros((0, d)), middles=np.zeros((0, d)),
            arms=np.full(len(ARMS), 1.0 / len(ARMS)), mixture=None,
            quality=UNKNOWN._replace(arrived=False), learning=learning,
        )  # fmt: skip

    def locate(self, state, point) -> trust.Current:
        """See :func:`pymc_kameleon.samplers.kamiltonian.factors.learning.locate`."""
        return learn.locate(self.known, state.surface, point.position, point.log_density)

    def trusted(self, state, current) -> float:
        """The share of the surrogate's kernel at a point: its soft walls are all that bounds it."""
        return trust.share(state.mixture, math.inf, math.inf, current)

    def place(self, state, point, proposal=None) -> State:
        """Retain the chain's point; record it, where it was put there from outside."""
        if proposal is None and state.learning is not None:
            learning = self.record(state.learning, point.position, point.log_density, "start", point.outputs)
            state = state._replace(learning=learning)
        return super().place(state, point, proposal)

    def propose(self, rng: np.random.Generator, x: np.ndarray, state: State) -> Proposal:
        """One proposal, whose test costs at most one evaluation."""
        learning = state.learning
        if learning is not None and learning.climb is not None:
            return self._climb(rng, x, state, learning.climb)
        if state.surface is None:
            return self._nearby(rng, x, 10.0 ** rng.uniform(-3.0, 0.0), "walk", 0)
        if learning is None:
            # the mixture's weights
            walk = rng.random() >= (1.0 - state.mixture.floor) * state.share
            return self._walk(rng, x, state) if walk else self._surrogate(rng, x, state)
        u = rng.random()
        if u < 0.15 or state.current.value == -math.inf:
            return self._walk(rng, x, state)
        if learning.wanted and u < 0.5:  # a point of another mode, evaluated and not moved to; a climb's last first
            place = learning.wanted[-1].copy()
            return Proposal(place, -math.inf, "elsewhere", Carry(-1, place, 0.0))
        if u < 0.15 + 0.20:
            return self._design(rng, x, state)
        return self._surrogate(rng, x, state)

    def log_ratio(self, state, point, proposal, there) -> float:
        """Everything in the ratio but the target; a climb only goes higher."""
        if state.learning is not None and state.learning.climb is not None:
            higher = there.log_density > point.log_density
            return math.inf if higher else -math.inf  # nothing is drawn yet
        return super().log_ratio(state, point, proposal, there)

    def learn(self, rng: np.random.Generator, state: State, outcome: Outcome) -> State:
        """Learn from one tuning draw all but a new surrogate."""
        learning, carry = state.learning, outcome.proposal.carry
        schedule = learning.schedule._replace(draws=learning.schedule.draws + 1)
        learning = learning._replace(schedule=schedule)
        if carry.evaluated:
            there = outcome.proposal
            learning = self.record(
                learning, there.position, outcome.proposed_log_density, there.move, outcome.outputs
            )  # fmt: skip
        if outcome.proposal.move == "elsewhere":
            is_there = outcome.outputs is not None and math.isfinite(outcome.proposed_log_density)
            learning = _seen_elsewhere(learning, is_there)
        state = state._replace(learning=learning)
        if learning.climb is not None:
            return self._climbed(rng, state, outcome)
        return self._judge(state, outcome) if carry.kernel >= 0 else state

    def due(self, state: State) -> tuple[State, bool]:
        """Whether to fit a new surrogate now: the first as soon as the climb is over."""
        return state, state.learning.climb is None and self.refit_is_due(state)

    def refit(self, rng: np.random.Generator, state: State, here: Point, final: bool = False) -> State:
        """See :func:`pymc_kameleon.samplers.kamiltonian.factors.learning.refit`."""
        found = learn.refit(rng, self.known, state, here, final=final)
        if found.surface is state.surface:
            return found
        return found._replace(middles=self._middles(found, self._archive(found)[0]))

    def fix(self, rng: np.random.Generator, state: State, caution: float = 1.0) -> State:
        """Fix everything as it is.

        ``caution`` is the largest share that the random walk gets because of what the surrogate does not cover.
        """
        learning = state.learning
        quality = measure(learning, state.fit.residual_sd if state.fit else math.inf)
        quality = quality._replace(arrived=learning.arrived)
        if state.surface is None:
            return state._replace(learning=None, quality=quality)
        states, values = self._archive(state)
        residuals = values - np.array([learn.value(self.known, state.surface, u) for u in states])
        residuals = residuals[np.isfinite(residuals)]
        typical = float(np.median(residuals)) if len(residuals) else 0.0
        quality = quality._replace(typical=typical)
        if not learning.arrived:  # its climb ended for want of rounds, or of draws
            position = self.position(state)
            arrived = learn.has_arrived(rng, self.known, state.surface, position, values, typical)
            quality = quality._replace(arrived=arrived)
        floor = trust.choose_floor(quality.uncovered, quality.residual_sd)
        floor = min(floor, caution) if quality.arrived else 0.5
        mixture = trust.Mixture(floor, typical, trust.slack(quality.residual_sd))
        arms, middles = learn.arm_shares(learning, state.surface, 6.0, 0.01), self._middles(state, states)
        return state._replace(
            learning=None, quality=quality, mixture=mixture, archive=states, middles=middles, arms=arms
        )

    def observe(self, state: State, point: Point, move: str = "refresh") -> State:
        """A point of a climb that has ended in another mode: what black boxes return there is yet to be asked."""
        learning = state.learning
        if move != "arrival" or learning is None:
            return state
        wanted = (*learning.wanted, point.position)[-climbing.design_size(self.known.layout) :]
        return state._replace(learning=learning._replace(wanted=wanted))

    def stats(self, state: State, proposal: Proposal | None = None) -> dict[str, Any]:
        """Statistics of the state, and of the last proposal if it is given."""
        surface = state.surface
        return {
            "factors": self.known.layout.size,
            "worst_factor": learn.worst_factor(self.known, state),
            "noncentred": int((surface.centring[self.known.movable] < 1.0).sum()) if surface else 0,
            "step_size": surface.step_size if surface else math.nan,
            "surrogate": "factors" if surface else "none",
            **super().stats(state, proposal),
        }

    # --- kernels ------------------------------------------------------------------------------

    def _surrogate(self, rng, x, state):
        """The end of some inner transitions; x itself, not evaluated, if none of them moved."""
        surface = state.surface
        arm = 1 + min(int(np.searchsorted(np.cumsum(state.arms), rng.random())), len(ARMS) - 1)
        start = spot(self.known, surface, state.current.z)
        path = run(rng, self.known, surface, start, ARMS[arm - 1], middles=state.middles)
        move = f"surrogate{arm}"
        if not path.moved:
            carry = Carry(arm, path.end.u, state.current.value, evaluated=False, path=path)
            return Proposal(x, -math.inf, move, carry, state.current.log_density)
        position, jacobian = leave(self.known, path.end.u, surface.centring)
        carry = Carry(arm, path.end.u, path.end.value - jacobian, path=path)
        return Proposal(position, state.current.value - carry.value, move, carry)

    def _walk(self, rng, x, state):
        """A symmetric step in u: differential evolution from the archive, or a normal one."""
        surface, d, here = state.surface, len(x), state.current.z
        kind, size = rng.random(2)
        step = surface.metric @ rng.standard_normal(d)
        move = "walk"
        if len(state.archive) > 1 and kind < 0.5:
            a, b = rng.integers(len(state.archive), size=2)
            gamma = OPTIMAL_SCALE / math.sqrt(2.0 * d) * (0.4 + 0.8 * size)
            step = gamma * (state.archive[a] - state.archive[b]) + 0.01 * step
            move = "differential"
        else:
            step = math.exp(state.log_walk) * (0.2 if size < 0.3 else 1.0) * step
        position, jacobian = leave(self.known, here + step, surface.centring)
        there = spot(self.known, surface, here + step)
        ratio = jacobian - leave(self.known, here, surface.centring)[1]
        carry = Carry(0, there.u, there.value - jacobian)
        return Proposal(position, ratio, move, carry)

    def _design(self, rng, x, state):
        """A point of a flatter surrogate, evaluated and never moved to: tails."""
        surface, temperature = state.surface, (0.5, 0.15)[int(rng.integers(2))]
        start = spot(self.known, surface, state.current.z, temperature)
        path = run(rng, self.known, surface, start, Arm(3, 1.6), temperature)
        if not path.moved:
            return self._walk(rng, x, state)
        position, _ = leave(self.known, path.end.u, surface.centring)
        return Proposal(position, -math.inf, "design", Carry(-1, path.end.u, 0.0))

    def _nearby(self, rng, x, size, move, kernel):
        """A normal step, while nothing is known."""
        position = x + size * self.known.units * rng.standard_normal(len(x))
        return Proposal(position, 0.0, move, Carry(kernel, position.copy(), 0.0))

    # --- the climb ----------------------------------------------------------------------------

    def _climb(self, rng, x, state, climb):
        if climb.target is not None:
            position = climb.target.copy()
            carry = Carry(-1, position.copy(), 0.0, origin_log_density=state.current.log_density)
            return Proposal(position, 0.0, "climb", carry)
        size = 0.7 * (0.03, 0.1, 0.3, 1.0)[(state.learning.evaluated.size + climb.number) % 4]
        if climb.satellites:
            size = climbing.SATELLITES[(climb.number - climb.satellites) % 3] * min(climb.half_width, 0.5)
        return self._nearby(rng, x, size, "climb", -1)

    def _climbed(self, rng, state, outcome):
        """After one evaluation of the climb: another point of the design, or the next target, or the end."""
        learning, climb, d = state.learning, state.learning.climb, len(outcome.position)
        if climb.target is not None:
            rise = -math.inf
            if outcome.accepted:
                rise = outcome.log_density - outcome.proposal.carry.origin_log_density
            climb = climbing.learn(climb, rise, d)
        elif climb.satellites:
            climb = climb._replace(satellites=climb.satellites - 1)
        learning = learning._replace(climb=climb)
        state = state._replace(learning=learning)
        spent = state.tune is not None and learning.schedule.draws >= 0.6 * state.tune
        spent = spent or learning.evaluated.size >= climb.until
        calm = climb.calm >= climbing.CALM
        if calm or climb.rounds >= climbing.ROUNDS or spent:
            return state._replace(learning=learning._replace(climb=None, arrived=learning.arrived or calm))
        if climb.satellites or learning.evaluated.size < climbing.design_size(self.known.layout):
            return state
        try:
            surface = learn.fit_nearby(rng, self.known, learning, outcome.position)
        except np.linalg.LinAlgError:  # a few points more
            return state._replace(learning=learning._replace(climb=climb._replace(satellites=3)))
        goal, promised = climbing.target(self.known, surface, outcome.position, climb.half_width)
        climb = climb._replace(target=goal, promised=promised)
        return state._replace(learning=learning._replace(climb=climb))

    # --- tuning -------------------------------------------------------------------------------

    def record(self, learning: Learning, v, log_density, move="", outputs=None) -> Learning:
        """Keep what the black boxes have returned at ``v``, if they have been asked."""
        if outputs is None:
            return learning
        w = self.known.places(v, np.zeros(len(v)))[0]
        return learning._replace(
            evaluated=evaluations.append(learning.evaluated, v, log_density, move, outputs),
            inputs=history.append(learning.inputs, w),
        )

    def _judge(self, state: State, outcome: Outcome) -> State:
        learning, carry, probability = state.learning, outcome.proposal.carry, outcome.accept_prob
        learning = learning._replace(
            chain=history.append(learning.chain, outcome.position),
            chain_log_densities=history.append(learning.chain_log_densities, np.array([outcome.log_density])),
            moves=learning.moves + int(outcome.accepted),
        )
        if state.surface is None:
            return state._replace(learning=learning)
        judgement, residual = learning.judgement, state.current.log_density - state.current.value
        if carry.kernel == 0:
            rate = 0.3 / (1.0 + 0.02 * learning.schedule.draws)
            if outcome.proposal.move == "walk":
                state = state._replace(log_walk=state.log_walk + rate * (probability - 0.3))
        else:
            accepted, trials = learning.accepted.copy(), learning.trials.copy()
            trials[carry.kernel - 1] += 1.0
            if carry.evaluated:
                accepted[carry.kernel - 1] += probability
                # much too high is where the surrogate has mass that is not there, and sends all its proposals
                judgement = judgement.moved(residual, every=1).proposed(
                    outcome.proposed_log_density - carry.value, probability > 0.02, too_high=2.0
                )
            else:
                step_size = max(0.9 * state.surface.step_size, learn.SHORTEST)
                state = state._replace(surface=state.surface._replace(step_size=step_size))
            learning = learning._replace(accepted=accepted, trials=trials)
            if carry.evaluated:
                state = state._replace(arms=learn.arm_shares(learning, state.surface, 3.0))
        return state._replace(learning=learning._replace(judgement=judgement.standing(residual)))

    def refit_is_due(self, state: State) -> bool:
        """Whether there is enough that is new, or enough that was wrong."""
        learning, schedule, n = state.learning, state.learning.schedule, state.learning.evaluated.size
        if schedule.is_last(state.tune) and not schedule.final:
            return True
        surprised = learning.judgement.surprises > 5 + 0.02 * n and n > 1.05 * schedule.last_refit
        return n >= schedule.next_refit or surprised

    # --- end of tuning ------------------------------------------------------------------------

    def is_stale(self, state: State) -> bool:
        """Whether the surrogate has to be made anew although there is nothing left to judge it by."""
        learning, n = state.learning, state.learning.evaluated.size
        if state.surface is None:  # still climbing
            return n >= climbing.design_size(self.known.layout)
        if n < 1.15 * learning.schedule.last_refit:
            return False
        quality = measure(learning, state.fit.residual_sd)
        accepted = learning.accepted.sum() / learning.trials.sum()
        return quality.residual_sd > 0.3 or quality.uncovered > 0.02 or accepted < 0.5

    def position(self, state) -> np.ndarray:
        """Where the chain is, in v."""
        learning = state.learning
        if learning.chain.size:
            return learning.chain.buffer[learning.chain.size - 1].copy()
        if state.surface is None:
            return state.current.z.copy()
        return leave(self.known, state.current.z, state.surface.centring)[0]

    def standing(self, state) -> tuple[np.ndarray, float, np.ndarray] | None:
        """The chain's highest state in v, its log density, and a factor of the chain's covariance.

        None before its climb has ended, sure of where or not, and but for every ten states a dimension since, or where
        these are too few.
        """
        learning, d = state.learning, len(state.current.z)
        m = learning.chain.size
        if learning.climb is not None or not m or m % (10 * d):
            return None
        states, values = learning.chain.buffer[m // 3 : m], learning.chain_log_densities.buffer[m // 3 : m, 0]
        factor, ok = cholesky(np.cov(states.T).reshape(d, d))
        best = int(np.argmax(values))
        return (states[best].copy(), float(values[best]), factor) if ok else None

    def _middles(self, state, states):
        elsewhere = [learn.enter(self.known, v, state.surface.centring) for v in state.learning.elsewhere]
        return learn.middles(state.surface, states, np.reshape(elsewhere, (-1, states.shape[1])))

    def _archive(self, state):
        """Of the chain's later half 300 states, in u, and their log densities; where it is, if it has not tuned."""
        learning, m = state.learning, state.learning.chain.size
        if not m:
            return state.current.z[None], np.array([state.current.log_density])
        states, values = (
            history.thin(h.buffer[m // 2 : m], 300) for h in (learning.chain, learning.chain_log_densities)
        )
        u = np.array([learn.enter(self.known, v, state.surface.centring) for v in states])
        return u, values[:, 0].copy()


def _seen_elsewhere(learning: Learning, is_there: bool) -> Learning:
    """A point of another mode has been evaluated, and may have a density; after the last it is time for a refit."""
    *wanted, place = learning.wanted
    elsewhere, m = learning.elsewhere, learning.chain.size
    if not elsewhere:  # where the chain is now is elsewhere once it has left
        elsewhere = tuple(history.thin(learning.chain.buffer[m // 2 : m], 1 + len(wanted)))
    schedule = learning.schedule if wanted else learning.schedule._replace(next_refit=0)
    elsewhere = (*elsewhere, place) if is_there else elsewhere
    return learning._replace(wanted=tuple(wanted), elsewhere=elsewhere, schedule=schedule)
