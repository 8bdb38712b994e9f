"""The life of one chain, from where it starts to its last draw: what is evaluated next, and what follows from it.

    climb -> how far coordinates are centred -> walk, tuning, with climbs elsewhere, probes and renewals -> frozen draws

    life = Life(sampler, density, rng)
    life.begin(Point(x, log_density(x)), stage=arrival)
    for draw in range(tune + draws):
        if draw == tune:
            life.freeze()
        proposal = life.ask()
        told = life.tell(evaluate(proposal, life.here))

A step drives it with a model, tests and benchmarks with a function of NumPy arrays: what is measured is what ships. A
draw is one evaluation at most. Everything that changes stands in :class:`State`; with it, and its generator, a chain
resumes bit for bit.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers import centring, chain, noise_probe, tuned_work
from pymc_kameleon.samplers.arrival import circles, search
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.seam import Known, Outcome, Point, Proposal, Sampler, acceptance_probability

SOME_NOISE = 1e-6  # sd that is told of noise that has not been measured yet
LOOKS = 6  # climbs after a chain's own; four of them where they find nothing else
NOWHERE = Point(None, -math.inf, (0.0, []))  # type: ignore[arg-type]


class State(NamedTuple):
    """Everything of a life that changes.

    Attributes
    ----------
    here : Point
        Position (None before the first draw), retained log density, and what belongs to it: (the noisy part of it where
        the two are kept apart, the standard normals that it is a function of).
    tune : bool
        Whether it learns.
    tuning_draws : int
    stage : State or Check, optional
        What comes before and beside the walk: :mod:`.arrival.search`, or :mod:`.known_points`.
    doubt : pymc_kameleon.samplers.arrival.search.Doubt or None
    elsewhere : tuple of arrival.search.Rival
        Other modes, that the chain has not come near since they were found, while tuning or after.
    looked : int
        Climbs from elsewhere that have ended.
    centring : pymc_kameleon.samplers.centring.Choice or None
        Where the coordinates are not the model's own.
    probe : NoiseProbe
        What is known of the noise.
    work : Work
        Of the estimators that are told how much.
    window : Window or None
        The period of the angles outside of which there is no density; None on the way to it.
    own : tuple or None
        The sampler's.
    """

    here: Point = NOWHERE
    tune: bool = True
    tuning_draws: int = 0
    stage: Any = None
    doubt: search.Doubt | None = None
    elsewhere: tuple = ()
    looked: int = 0
    centring: Any = None
    probe: noise_probe.NoiseProbe = noise_probe.NoiseProbe()
    work: tuned_work.Work = tuned_work.Work()
    window: circles.Window | None = None
    own: Any = None


class Told(NamedTuple):
    """What became of a draw."""

    proposal: Proposal
    accept_prob: float
    accepted: bool  # whether the chain is elsewhere
    # of the target and the proposal's densities, without the shares of a mixture; NaN where nothing was proposed
    log_ratio: float = math.nan


class Life:
    """A chain's.

    Parameters
    ----------
    sampler : Sampler
    density : Density
        Of :mod:`.seam`, or what else has its attributes.
    rng : numpy.random.Generator
    """

    def __init__(self, sampler: Sampler, density: Any, rng: np.random.Generator):
        self.sampler, self.density, self.rng = sampler, density, rng
        self.reset()

    def reset(self) -> None:
        """Forget everything that was learned; uses no random numbers."""
        self.kind, choice = "move", centring.begin(self.density) if self.density.reparametrized else None
        work = tuned_work.begin(self.density.given_work)
        self.state = State(centring=choice, work=work)

    @property
    def state(self) -> State:
        """Everything mutable."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self.density.work = state.work.now
        if state.centring is not None:
            self.density.centring = state.centring.share

    def _set(self, **changes: Any) -> None:
        self._state = self._state._replace(**changes)

    @property
    def here(self) -> Point:
        """Where the chain is, and the retained log density there."""
        return self._state.here

    @property
    def climbs(self) -> bool:
        """Whether it climbs before its walk, which its sampler may do itself."""
        return self.looks and not self.sampler.climbs_by_itself

    @property
    def looks(self) -> bool:
        """Whether values can be compared: not under noise, nor while other steps change the log density."""
        return not (self.density.noisy or self.density.has_others)

    @property
    def climbing(self) -> bool:
        """Whether the chain is on its way, before its walk."""
        return self._state.stage is not None and not self._state.stage.settled

    # -- where a chain begins -------------------------------------------------------------------------

    def put(self, point: Point, stage: Callable[[], Any] = lambda: None) -> None:
        """The chain starts at ``point``, or somebody else put it there, or changed its log density.

        ``stage`` makes what comes before the walk, and is called at a chain's start alone.
        """
        begins = self.here.position is None
        if not np.array_equal(self.here.position, point.position):  # type: ignore[arg-type]
            self._set(probe=self._state.probe._replace(first=None))  # of another point
        if self._state.window is not None:  # exactness hangs on it: from outside a chain could come in, and not go back
            point = point._replace(position=self._state.window.wrapped(point.position))
        self._set(here=point)
        if self._state.stage is not None:  # moved on its way
            self._set(stage=None, own=None, doubt=None, elsewhere=())
        if self._state.own is None:
            self._set(own=self.sampler.init(self.rng, point.position, Known(scales=self.density.scales)))
            if begins:
                self._set(stage=stage())
            if not self._state.tune:
                self._set(own=self.sampler.freeze(self._state.own))
        self._place()

    def _place(self):
        self._set(own=self.sampler.place(self._state.own, self.here))

    def _begin_walk(self, stage):
        """The walk begins where the chain is, with what was learned on the way."""
        if stage is None or stage.done:
            self._set(stage=None)
        known = Known(self._state.tuning_draws, scales=self.density.scales)
        if stage is not None and (self.climbs or stage.warm):
            position, choice = stage.position, self._state.centring
            stage, learned = self._enclose(stage)
            if choice is not None:  # in the walk's coordinates
                learned = centring.recast(self.density, choice.share, position, **learned)
            known = known._replace(**learned)
            self._set(doubt=None)
            if not stage.arrived:  # said when tuning ends, unless the walk has arrived by itself
                at = self.here.position, stage.log_density
                self._set(doubt=search.Doubt(stage.evaluations, *at, history.empty(1)))
        self._set(own=self.sampler.init(self.rng, self.here.position, known))
        self._place()
        return stage

    def _enclose(self, stage):
        """One period of every angle, around where the chain is, is the target from here on: what was learned, in it."""
        window = circles.around(self.density.circles, self.here.position) if self.climbs else None
        if window is None:
            return stage, stage.learned()
        self._set(window=window)
        if stage.warm:
            stage = stage._replace(known=window.evaluated(stage.known))
            return stage, stage.learned()
        climbs = tuple(arrival.moved(c, window.wrapped(c.position) - c.position) for c in stage.climbs)
        stage = stage._replace(climbs=climbs, starts=window.wrapped(stage.starts))
        if self._state.stage is not None:
            self._set(stage=stage)
        learned = stage.learned()
        return stage, learned | {"evaluated": window.evaluated(learned["evaluated"])}

    # -- one draw -------------------------------------------------------------------------------------

    def ask(self) -> Proposal:
        """The draw's proposal: to be evaluated unless it has a log density, or is where the chain is."""
        if self._state.tune:
            self._set(tuning_draws=self._state.tuning_draws + 1)
        # after tuning there is nothing else
        kind = self.kind = self._choose_kind() if self._state.tune or self._state.stage is not None else "move"
        self._proposal = self._ask_move() if kind == "move" else getattr(self, f"_ask_{kind}")()
        window = self._state.window
        if window is not None and not window.contains(self._proposal.position):
            self._proposal = self._proposal._replace(log_density=-math.inf)
        return self._proposal

    def tell(self, there: Point) -> Told:
        """What was found there; where the chain is now stands in ``here``."""
        proposal, state = self._proposal, self._state
        if state.work.now and proposal.log_density is None and proposal.position is not state.here.position:
            self.spend()
        tell = self._tell_move if self.kind == "move" else getattr(self, f"_tell_{self.kind}")
        return tell(proposal, there)

    def draw(self, evaluate: chain.Evaluate) -> Told:
        """Ask, evaluate, tell."""
        before = self.here
        return self.tell(evaluate(self.ask(), before))

    def spend(self) -> None:
        """Count an evaluation's work."""
        self._set(work=tuned_work.spend(self._state.work))

    def _choose_kind(self):
        state = self._state
        if self.climbing:
            return "climb"
        if self._is_to_be_centred():
            return "centring"
        if self._waits_for_centring() and state.tuning_draws % self.density.dim == 0:
            seen = centring.seen(self.density, state.centring, state.here.position)
            self._set(centring=seen)
        every, stage = search.look_every(self.density.dim), self._looking()
        if stage is not None and (state.tuning_draws % every == 0 or self._walks_in_vain(stage)):
            return "look"
        if state.tune and self._is_probe():
            return "probe"
        renews = self.density.noisy and not self.sampler.renews_by_itself
        if state.tune and renews and noise_probe.is_held(self._state.probe):
            return "renewal"
        return "move"

    def _looking(self):
        """The climbs from elsewhere: of a sampler that climbs by itself, once it has."""
        stage = self._state.stage
        if stage is None or not stage.awaits:
            return stage
        if (found := self.sampler.standing(self._state.own)) is None:
            return None
        self._set(stage=stage.beside(*found, self.density.circles))
        return self._state.stage

    # The climb: no Metropolis test, because nothing is drawn yet.

    def _ask_climb(self):
        # which draws are probes depends on their number
        self._set(probe=noise_probe.count(self._state.probe)[0])
        return Proposal(self._state.stage.propose(self.rng), -math.inf, "arrival")

    def _tell_climb(self, proposal, there):
        before = self.here
        stage = self._state.stage.tell(self.rng, proposal.position, there.log_density)
        # the estimate's noise, and what black boxes returned, go with the point
        goes_with = there if stage.current == stage.evaluations - 1 else before
        row = stage.current
        here = Point(stage.positions[row].copy(), float(stage.log_densities[row]), *goes_with[2:])
        self._set(stage=stage, here=here)
        if stage.settled and not self._is_to_be_centred():
            self._begin_walk(stage)
        return self._moved(before, proposal)

    # How far the coordinates are centred.

    def _is_to_be_centred(self):
        """Whether it is time to find out: at the end of a climb, or of a first part of the walk."""
        if not self._waits_for_centring():
            return False
        climbed = self.climbs and self._state.stage is not None
        return climbed or self._state.tuning_draws > centring.WALKED * self.density.dim

    def _waits_for_centring(self):
        choice = self._state.centring
        return self._state.tune and choice is not None and not choice.settled

    def _ask_centring(self):
        position = self.here.position + self._state.centring.displacement
        return Proposal(position, -math.inf, "arrival")

    def _tell_centring(self, proposal, there):
        """After the last of them the chain goes on in the coordinates chosen."""
        here, stage = self.here, self._state.stage
        choice = self._state.centring.told(there.log_density - here.log_density)
        if choice.complete:
            factor = None if stage is None else stage.factor
            choice = centring.settle(self.rng, self.density, choice, here.position, factor)
            position, change = self.density.recast(here.position, choice.share)
            # Exactness hangs on the Jacobian, and on this being for tuning draws only
            value = here.log_density + change
            self.state = self._state._replace(here=here._replace(position=position, log_density=value), centring=choice)
            self._begin_walk(stage)
        else:
            self._set(centring=choice)
        return Told(proposal, 0.0, False)

    # A climb from elsewhere, between the draws of the walk; see ``arrival.search``.

    def _ask_look(self):
        self._asked = self._state.stage.propose(self.rng)
        position, self._change = self.from_arrival(self._asked)
        return Proposal(position, -math.inf, "arrival")

    def _tell_look(self, proposal, there):
        before, under_way = self.here, len(self._state.stage.climbs) - 1
        stage = self._state.stage.tell(self.rng, self._asked, there.log_density - self._change)
        found = search.rivals(stage, stage.climbs[under_way:])
        if found:
            self._show(stage.climbs[under_way])
        stage = stage.met(self._as_arrival_sees_it()[0])
        looked = self._state.looked + int(stage.done or len(stage.climbs) > under_way + 1)
        self._set(stage=None if stage.done else stage, elsewhere=(*self._state.elsewhere, *found), looked=looked)
        if stage.done or self._walks_in_vain(stage):
            self._leave(stage)
        return self._moved(before, proposal)

    def _leave(self, stage):
        """Begin anew where another climb has ended, if there is far more mass."""
        if stage.chosen is stage.climbs[0]:
            return
        stage = stage.led()
        position, change = self.from_arrival(stage.position.copy())
        here = Point(position, stage.log_density + change, self.here.noise)  # what boxes return there is not known
        self._set(here=here, stage=stage)
        stage = self._begin_walk(stage)
        self._set(elsewhere=search.rivals(stage, stage.climbs))

    def _walks_in_vain(self, stage):
        """Whether a climb from elsewhere has come so far above the chain that every draw is for it."""
        return stage.is_far_above(self._as_arrival_sees_it()[1])

    def _show(self, climb):
        """What was evaluated near the top of another mode, to the sampler: a surrogate that knows of it can go there.

        Not what lies lower: a surrogate has to be right where the chain is, see ``arrival.search``.
        """
        rows = np.arange(len(climb.positions)) >= climb.own
        low = climb.log_densities.max() - search.far_in_height(self.density.dim)
        own = self._state.own
        for row in np.flatnonzero(rows & (climb.log_densities > low)):
            x, change = self.from_arrival(climb.positions[row])
            point = Point(x, float(climb.log_densities[row]) + change)
            own = self.sampler.observe(own, point, "arrival")
        self._set(own=own)

    def from_arrival(self, v: np.ndarray) -> tuple[np.ndarray, float]:
        """The chain's coordinates of a point of the arrival's, non-centred, and what that adds to its log density."""
        choice = self._state.centring
        return (v, 0.0) if choice is None else self.density.recast(v, choice.share, self.density.noncentred)

    def _as_arrival_sees_it(self):
        x, change = self.here.position, 0.0
        if self._state.centring is not None:
            x, change = self.density.recast(x, self.density.noncentred)
        return x, self.here.log_density + change

    def _moved(self, before, proposal):
        moved = not np.array_equal(before.position, self.here.position)
        return Told(proposal, float(moved), moved)

    # The noise, measured; see ``noise_probe``.

    def _is_probe(self):
        """Whether this tuning draw measures the noise."""
        if not self.density.noisy:
            return False
        every = noise_probe.EVERY_TUNED if self._state.work.now else noise_probe.EVERY
        probe, due = noise_probe.count(self._state.probe, every)
        self._set(probe=probe)
        return due

    def _ask_probe(self):
        """The log density of the current point again; the chain stays.

        The second of a pair starts from the first's noise, where successive estimates are correlated. The first takes
        other work where that is due, and then the chain takes its estimate: from after tuning on what it retains has to
        be an estimate made with the work that it has, and so it is at every draw.
        """
        first, before = self._state.probe.first, self._state.work
        self._before = before
        if first is None and before.now:
            worst = max(self._state.probe.squares, default=math.inf)
            self.state = self._state._replace(work=tuned_work.due(before, worst))
        start = None if first is None else first[1]
        return Proposal(self.here.position.copy(), -math.inf, "refresh", noise=start)

    def _tell_probe(self, proposal, there):
        state, value = self._state, there.log_density
        probe, work = state.probe, state.work
        # other steps may move what the other factors depend on, between the two
        apart = self.density.split and value > -math.inf
        failed = value == -math.inf and there.noise is not None and math.isnan(there.noise[0])
        measured = there.noise[0] if apart or failed else value
        if probe.first is not None and not math.isnan(square := noise_probe.half_square(probe, measured)):
            work = tuned_work.learn(work, square)
        probe = noise_probe.record(probe, measured, there.noise)
        probe = noise_probe.meet(probe, acceptance_probability(self.here.log_density, value, 0.0))
        own = self.sampler.observe(state.own, there)
        self._set(probe=probe, work=work, own=own)
        if work.now != self._before.now:
            self._renew(there)
        return Told(proposal, 0.0, False)

    def _renew(self, there):
        """Take over an estimate made with other work than before; if it is zero, stay with what was."""
        state, before = self._state, self._before
        if there.log_density == -math.inf:
            self.state = state._replace(work=state.work._replace(now=before.now))
            return
        factor = tuned_work.change(before, state.work)
        self._set(probe=noise_probe.rescale(state.probe, factor))
        self._take(there)

    def _ask_renewal(self):
        return Proposal(self.here.position.copy(), -math.inf, "renewal")

    def _tell_renewal(self, proposal, there):
        """An estimate in the place of the one that holds the chain; if it is zero, that is kept."""
        self._set(own=self.sampler.observe(self._state.own, there))
        if there.log_density > -math.inf:
            self._take(there)
        return Told(proposal, 0.0, False)

    def _take(self, there):
        """Retain another estimate at the chain's point. Exactness hangs on this being for tuning draws only."""
        self._set(probe=noise_probe.leave(self._state.probe, fresh=True), here=there)
        self._place()

    # The sampler's own.

    def _ask_move(self):
        return self.sampler.propose(self.rng, self._state.here.position, self._state.own)

    def _tell_move(self, proposal, there):
        state, before = self._state, self._state.here
        here, own, probability, accepted = chain.decide(self.rng, self.sampler, before, state.own, proposal, there)
        if state.tune:
            noise_sd, patience = noise_probe.sd(state.probe), noise_probe.patience(state.probe)
            if self.density.noisy:  # before the first pair of probes, too
                noise_sd = max(noise_sd, SOME_NOISE)
            outcome = Outcome(
                here.position, here.log_density, proposal, there.log_density, probability, accepted,
                there.noise, before.noise, noise_sd, 1.0 if accepted else patience, there.outputs,
            )  # fmt: skip
            own = self.sampler.adapt(self.rng, own, outcome)
        if accepted or own is not state.own:
            self._state = state._replace(here=here, own=own)
        if accepted and self.density.noisy:
            self._set(probe=noise_probe.leave(state.probe))
        doubt, elsewhere = state.doubt, state.elsewhere
        if doubt is not None:
            height = np.array([here.log_density])
            self._set(doubt=doubt._replace(heights=history.append(doubt.heights, height)))
        if elsewhere:
            self._set(elsewhere=search.not_met(elsewhere, state.tune, *self._as_arrival_sees_it()))
        log_ratio = there.log_density - before.log_density + proposal.log_q_ratio
        return Told(proposal, probability, accepted, log_ratio)

    # -- end of tuning --------------------------------------------------------------------------------

    def stop_climbing(self) -> None:
        """What is before or beside the walk ends, wherever it is: what :meth:`freeze` does first."""
        stage = self._state.stage
        if stage is not None and stage.settled and self._is_to_be_centred():
            self._begin_walk(stage)  # as it is
        stage = self._state.stage
        if self.climbing:
            self._begin_walk(stage.stop())
        elif stage is not None and self.climbs and self._walks_in_vain(stage):
            self._leave(stage.stop())
        self._set(stage=None, elsewhere=search.weighed(self._state.elsewhere))

    def freeze(self) -> None:
        """End of tuning: nothing adapts any more."""
        self.stop_climbing()
        self._set(doubt=None)
        if self._state.tune and self._state.own is not None:
            self._set(own=chain.freeze(self.sampler, self.here, self._state.own))
        self._set(tune=False)
