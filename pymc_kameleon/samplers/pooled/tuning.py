"""Several chains tune one sampler together: rounds of one evaluation each, one fit for all.

A round: every member in turn makes draws until one needs an evaluation (an exchange with a companion, or a free chain
that went nowhere, needs none); all of those are evaluated side by side; every member in turn tests its own and teaches
the hub. Fits come between rounds only, since what is proposed belongs to the surrogate that it was proposed with. The
order is that of the members and every member has its own generator, so that nothing depends on who evaluates, or when.

Strathmann et al. (2015) tune every chain by itself. What is shared here while tuning is fixed before the first draw
that counts; after that the members are independent chains of one kernel that is exact whatever the surrogate. They
share what they learned and no draws.

A member far below the others is *lost* as long as it tunes: half of its proposals start from a state of the elite, and
it goes where it is higher. Every fourth member is a *sentinel* and never does: if the surrogate's place were not the
posterior's, it would stay behind, and R-hat would show it.
"""

import math

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.covariance import cholesky
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers import adaptive_metropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.values import freezing, refits, worth
from pymc_kameleon.samplers.kamiltonian.values import tuning as kamiltonian_tuning
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.state import State
from pymc_kameleon.samplers.pooled import elite as pooled_elite
from pymc_kameleon.samplers.pooled import members as pooled_members
from pymc_kameleon.samplers.pooled.drawing import Draw, Frozen, Request, Row, described, known, row
from pymc_kameleon.samplers.pooled.members import SAMPLER
from pymc_kameleon.samplers.seam import NEVER, Known, Point, Proposal
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS
from pymc_kameleon.surrogates.values.features import quadratic_size

VALIDATION = 3  # rounds of a surrogate that is refitted at the end, before it is frozen
USABLE = 0.5  # share of accepted proposals without which more tuning is worth more than draws
JUDGED = 40  # residuals on which the surrogate is seen to be good
# Of the frozen walk, where f is too low somewhere. One member that sticks there for two rounds is 3 % of all states
# that a pool judges, and the walk takes over where it stands anyway.
CAUTION = 0.25


class Tuning:
    """Members that learn together; ``ask`` and ``tell`` in turn until ``done``.

    Parameters
    ----------
    rng, rngs : numpy.random.Generator, list of them
        Of the fits, and of every member.
    starts : list of (position (d,), log density)
        One a member.
    evaluated : Evaluations
        Everything so far, the starts included.
    factor : ndarray of shape (d, d)
        Lower Cholesky factor of what the covariance may be.
    limit, latest, most : int
        Evaluations in all at which tuning ends, at which it ends where the surrogate is not usable by then, and at
        which it has to have ended: one that is refitted at ``limit`` is judged for some rounds more.
    wait : bool
        Tune until ``limit``; otherwise tuning ends as soon as the surrogate is good and gets no better.
    base : int
        How many of those evaluated were there before the run, and do not count as its tuning.
    apply, options
        Of :class:`~pymc_kameleon.samplers.pooled.chains.Chains`.
    """

    def __init__(
        self, rng, rngs, starts, evaluated: Evaluations, factor, *, limit, wait, latest=None, most=math.inf,
        base=0, apply=map, **options
    ):  # fmt: skip
        self.rng, self.limit, self.wait = rng, limit, wait
        self.latest, self.most = limit if latest is None else latest, most
        self.base, self.apply = base, apply
        self.hub = _hub(starts, evaluated, factor, options)
        self.members = [pooled_members.begin(self.hub, own, x, y) for own, (x, y) in zip(rngs, starts, strict=True)]
        self.pending: list[tuple[int, Proposal]] = []
        self.last: list[Draw | None] = [None] * len(starts)
        self.sentinels = {k for k in range(len(starts)) if k % 4 == 3}
        self.ends_at = limit
        self.fitted_last = self.validated = False
        self.states_at_fit = 0
        self.done = False
        self._refit_if_due()
        self._end_if_over()

    @property
    def evaluations(self) -> int:
        """Everything that the surrogate knows."""
        return self.hub.learning.evaluated.size

    # -- a round ------------------------------------------------------------------------------

    def ask(self) -> list[Request]:
        """The points of the next round: one a member, or none for a member that needed none."""
        self.pending = []
        waiting = list(range(len(self.members)))
        for _ in range(20):  # draws without an evaluation, at most
            free = []
            for k, proposal in zip(waiting, self.apply(self._propose, waiting), strict=True):
                value = known(self.members[k], proposal)
                if value is None:
                    self.pending.append((k, proposal))
                else:
                    free.append((k, proposal, value))
            for k, proposal, value in free:
                self._test(k, proposal, value)
            waiting = [k for k, *_ in free]
        self.pending.sort(key=lambda pair: pair[0])
        return [Request(p.position, k, p.move) for k, p in self.pending]

    def _propose(self, k):
        """Changes nothing but the member's generator: members may be asked side by side."""
        member, proposal = self.members[k], self._search(k)
        if proposal is not None:
            return proposal
        state = pooled_members.view(self.hub, member)
        return SAMPLER.propose(member.rng, member.point.position, state)

    def tell(self, values: list[float]) -> None:
        """Take the log densities of the points that ``ask`` returned."""
        for (k, proposal), value in zip(self.pending, values, strict=True):
            if proposal.move == "search":
                self._found(k, proposal, value)
            else:
                self._test(k, proposal, value)
        self.pending = []
        self._refit_if_due()
        self._end_if_over()

    def _test(self, k, proposal, value):
        self.hub, self.members[k], self.last[k] = pooled_members.decide(self.hub, self.members[k], proposal, value)

    def _search(self, k):
        """Of a member that is lost, now and then: the end of a free chain from one of the elite."""
        member, dynamics = self.members[k], self.hub.dynamics
        if k in self.sentinels or dynamics is None:
            return None
        y, d = np.array([member.point.log_density]), len(member.point.position)
        own = pooled_elite.heights(dynamics, member.point.position[None], y)[0]
        lost = own < pooled_elite.highest(self.hub) - pooled_elite.depth(d)
        if not (lost and member.rng.random() < 0.5):
            return None
        z = dynamics.archive[member.rng.integers(len(dynamics.archive))]
        path = surrogate_dynamics.run(member.rng, z, dynamics, ARMS[2])
        if not path.moved:
            return None
        return Proposal(path.x, -math.inf, "search")

    def _found(self, k, proposal, value):
        """Go where it is higher: no draw, tuning only."""
        learning = kamiltonian_tuning.record(self.hub.learning, proposal.position, value, proposal.move)
        self.hub = self.hub._replace(learning=learning)
        higher = value > self.members[k].point.log_density
        if higher:
            there = Point(proposal.position, value)
            self.members[k] = pooled_members.move_to(self.hub, self.members[k], there)
        self.last[k] = Draw(proposal, math.nan, float(higher), higher)

    def row(self, waits: bool = False) -> Row:
        """Where the members stand, and what brought them there in the last round unless all of them wait."""
        statistics = [
            {} if waits or draw is None else described(
                SAMPLER.stats(pooled_members.view(self.hub, m), draw.proposal), draw, m.point.log_density
            )
            for m, draw in zip(self.members, self.last, strict=True)
        ]  # fmt: skip
        return row([m.point for m in self.members], statistics)

    # -- fits ---------------------------------------------------------------------------------

    def _refit_if_due(self):
        learning = self.hub.learning
        if not self.fitted_last and self.evaluations >= self._last_fit_at():
            self._refit(final=True)
            return
        self.hub, due = kamiltonian_tuning.schedule(self.hub)
        if (due or self._is_spreading()) and not learning.schedule.final:
            self._refit()

    def _is_spreading(self):
        """Whether the members have come much farther out than when the last fit set D, twice as many draws later."""
        past, dynamics = self.hub.walk.history, self.hub.dynamics
        recent = past.buffer[self.states_at_fit : past.size]
        if dynamics is None or len(recent) < 2 * len(self.members):
            return False
        z = (recent - dynamics.surrogate.centre) @ dynamics.inverse.T
        now, then = (np.quantile(np.square(a).sum(axis=1), 0.9) for a in (z, dynamics.archive))
        return bool(now > 1.3**2 * then)

    def _last_fit_at(self):
        if self.ends_at < self.limit:  # it was decided to end
            return 0
        last = self.base + trust.LAST_REFIT * (self.limit - self.base)
        return max(last, 1.2 * quadratic_size(self.hub.walk.factor.shape[0]))

    def _refit(self, final=False):
        """A new surrogate for all members."""
        old = self.hub
        best = max(self.members, key=lambda m: m.point.log_density)
        state = pooled_members.view(old, best)
        reference = pooled_elite.elite(old)
        self.hub = refits.refit(self.rng, state, best.point, reference, final)
        self.fitted_last |= final
        self.states_at_fit = self.hub.walk.history.size
        if self.hub.dynamics is old.dynamics:
            return
        everyone = old.fit is None
        for k, m in enumerate(self.members):
            companions = refits.recalled(m.companions, self.hub.dynamics, m.point, everyone)
            m = pooled_members.move_to(self.hub, m, m.point)
            self.members[k] = m._replace(companions=companions)
        self.hub = self.hub._replace(walk=_walk_as_the_elite(self.hub, reference[0]))

    # -- the end ------------------------------------------------------------------------------

    def _end_if_over(self):
        if not self.wait and self.ends_at == self.limit and self._is_settled():
            self.ends_at = min(self.limit, self.evaluations + max(JUDGED, 2 * len(self.members)))
            self._refit_if_due()
        if self._is_over() and self._is_worth_more():
            self.limit = self.ends_at = self.latest
            learning = self.hub.learning
            schedule = learning.schedule._replace(final=False)
            self.hub = self.hub._replace(learning=learning._replace(schedule=schedule))
            self.fitted_last = False
        if self._is_over() and self._is_to_be_validated():
            # What nothing has judged may have mass that is not there, where the longest of its free chains end.
            self._refit(final=True)
            self.limit = self.ends_at = self.evaluations + VALIDATION * len(self.members)
            self.validated = True
        self.done = self._is_over()

    def _is_over(self):
        return self.evaluations + len(self.members) > self.ends_at

    def _is_to_be_validated(self):
        """Whether a last refit is due, and there are evaluations to judge it by."""
        fits = self.evaluations + VALIDATION * len(self.members) <= self.most
        if self.wait or self.validated or self.hub.fit is None or not fits:
            return False
        return freezing.is_stale(self.hub)

    def _is_worth_more(self):
        """Whether the surrogate is not yet what draws could be made with."""
        worth = self.hub.learning.worth
        accepted, trials = worth.accepted[1:].sum(), worth.trials[1:].sum()
        usable = trials > 0 and accepted >= USABLE * trials
        return not (self.wait or usable) and self.ends_at == self.limit < self.latest

    def _is_settled(self):
        """Whether the surrogate is good, and the last fit was hardly better than the one before."""
        learning = self.hub.learning
        judgement = learning.judgement
        if judgement.residuals.size < JUDGED or judgement.judged < JUDGED:
            return False
        now, before = refits.measure(learning, math.inf), judgement.earlier
        if not (now.residual_sd < 0.25 and now.uncovered < 0.01) or self._is_spreading():
            return False
        # a member that does not move has one residual
        if learning.worth.accepted[1:].sum() < 0.6 * learning.worth.trials[1:].sum():
            return False
        # with points from before, a fit has all that it will have; below 0.1 there is nothing to gain that matters
        if self.base or now.residual_sd < 0.1:
            return True
        return before is not None and now.residual_sd > 0.8 * before.residual_sd

    def freeze(self) -> tuple[State, list[Frozen]]:
        """Fix everything: the hub and the members from which draws are made."""
        if not self.validated and self.hub.fit is not None and freezing.is_stale(self.hub):
            self._refit()
        hub = freezing.fix(self.hub, pooled_elite.elite(self.hub)[0], CAUTION)
        return hub, [pooled_members.frozen(hub, m) for m in self.members]


def _hub(starts, known, factor, options):
    """The shared state: every point known, the members' starts its first states."""
    options = {"growth": 1.15, **options}  # an evaluation is worth more than a fit
    hub = ValueKamiltonian(**options).init(None, np.array(starts[0][0]), Known(factor=factor, evaluated=known))
    arms = len(worth.DEAR.arms)
    hub = hub._replace(
        # Growth brings new fits often enough, also after a long climb: ``elsewhere`` is for chains that learn alone
        options=hub.options._replace(choice=worth.DEAR, elsewhere=0),
        arms=np.array([0.4] + [0.6 / arms] * arms),
    )
    walk = hub.walk
    learning = hub.learning._replace(worth=worth.empty(len(factor), worth.DEAR))
    for x, y in starts:
        past = history.append(learning.chain_log_densities, np.array([y]))
        learning = learning._replace(chain_log_densities=past)
        walk = walk._replace(history=history.append(walk.history, x))
    walk = walk._replace(next_update=NEVER)  # its factor comes with the fits
    first = int(1.5 * quadratic_size(len(factor)))
    # ``draws=1``: the start has been recorded
    schedule = learning.schedule._replace(next_refit=first, draws=1)
    return hub._replace(walk=walk, learning=learning._replace(schedule=schedule))


def _walk_as_the_elite(hub, states):
    """The random walk with the elite's covariance, shrunk towards the surrogate's while those are few."""
    walk, d = hub.walk, states.shape[1]
    surrogate = hub.dynamics.surrogate.scale[:, None] * hub.dynamics.metric
    few = min(1.0, 2.0 * d / len(np.unique(states, axis=0))) ** 2
    covariance = (1.0 - few) * np.cov(states.T).reshape(d, d) + few * surrogate @ surrogate.T
    factor, ok = cholesky(covariance)
    if not ok:
        return walk
    growth = np.log(np.diag(factor)).sum() - np.log(np.diag(walk.factor)).sum()
    largest = math.log(adaptive_metropolis.OPTIMAL_SCALE / math.sqrt(d))
    log_scale = min(walk.log_scale - growth / d, largest + 1.0)
    return walk._replace(factor=factor, log_scale=log_scale)
