"""Several chains tune one sampler together: rounds of one evaluation each, one fit for all.

A round: every member in turn makes draws until one needs an evaluation (an exchange with a companion, or a free chain
that went nowhere, needs none); all of those are evaluated side by side; every member in turn tests its own and teaches
the hub. Fits come between rounds only, since what is proposed belongs to the surrogate that it was proposed with. The
order is that of the members and every member has its own generator, so that nothing depends on who evaluates, or when.

Strathmann et al. (2015) tune every chain by itself. What is shared here while tuning is fixed before the first draw
that counts; after that the members are independent chains of one kernel that is exact whatever the surrogate. They
share what they learned and no draws.

A member far below the others is *lost* as long as it tunes: half of its proposals start from a state of the elite, and
it goes where it is higher. Every fourth member is a *sentinel* and does not: if the surrogate's place were not the
posterior's, it would stay behind, and R-hat would show it; but for one that is so far below that its place, to have the
mass, would have to be some fifty times as wide in every direction, or ten times as wide as it has been seen to be.
"""

import math
from typing import Any

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.arrival.search import BETTER
from pymc_kameleon.samplers.kamiltonian import learner as kamiltonian_learner
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.pooled.drawing import Draw, Frozen, Request, Row, described, known, stacked
from pymc_kameleon.samplers.seam import Point, Proposal

VALIDATION = 3  # rounds of a surrogate that is refitted at the end, before it is frozen
USABLE = 0.5  # share of accepted proposals without which more tuning is worth more than draws
FORLORN = 2.0  # depths below the elite: no sentinel stays there
JUDGED = 40  # residuals on which the surrogate is seen to be good


class Tuning:
    """Members that learn together; ``ask`` and ``tell`` in turn until ``done``.

    Parameters
    ----------
    learner : ByValues or ByFactors
        What is learned, and how.
    rng, rngs : numpy.random.Generator, list of them
        Of the fits, and of every member.
    starts : list of Point
        One a member.
    evaluated : Evaluations
        Everything so far, the starts included.
    factor : ndarray of shape (d, d)
        Lower Cholesky factor of what the covariance may be.
    limit, latest, most, earliest : int
        Evaluations in all at which tuning ends, at which it ends where the surrogate is not usable by then, and at
        which it has to have ended: one that is refitted at ``limit`` is judged for some rounds more; before
        ``earliest`` none ends because it is good.
    wait : bool
        Tune until ``limit``; otherwise tuning ends as soon as the surrogate is good and gets no better.
    base : int
        How many of those evaluated were there before the run, and do not count as its tuning.
    apply
        Of :class:`~pymc_kameleon.samplers.pooled.chains.Chains`.
    numbers : list of int, optional
        Of the members among all chains.
    cuts : tuple of (Cut, int)
        What parts them from all others, and on which side they are.
    """

    def __init__(
        self, learner, rng, rngs, starts: list[Point], evaluated: Evaluations, factor, *, limit, wait, latest=None,
        most=math.inf, earliest=0, base=0, apply=map, numbers=None, cuts=(),
    ):  # fmt: skip
        self.learner, self.rng, self.limit, self.wait = learner, rng, limit, wait
        self.latest, self.most = limit if latest is None else latest, most
        self.base, self.earliest, self.apply, self.cuts = base, earliest, apply, cuts
        self.numbers = list(range(len(starts))) if numbers is None else numbers
        self.hub = learner.hub(starts, evaluated, factor, base + 0.5 * (limit - base), warm=base > 0)
        self.members = [
            learner.begin(self.hub, k, own, point) for k, (own, point) in enumerate(zip(rngs, starts, strict=True))
        ]
        self.pending: list[tuple[int, Proposal]] = []
        self.last: list[Draw | None] = [None] * len(starts)
        self.track: list[tuple[np.ndarray, np.ndarray]] = []  # where the members stood after every round
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

    @property
    def standing(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the members are, (n, d), and their log densities, (n,)."""
        return stacked([m.point for m in self.members])

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
                self._test(k, proposal, Point(proposal.position, value))
            waiting = [k for k, *_ in free]
        self.pending.sort(key=lambda pair: pair[0])
        return [Request(p.position, self.numbers[k], p.move) for k, p in self.pending]

    def _propose(self, k):
        """Changes nothing but the member's generator: members may be asked side by side."""
        member, proposal = self.members[k], self._search(k)
        if proposal is not None:
            return proposal
        state = self.learner.view(self.hub, member)
        return self.learner.sampler.propose(member.rng, member.point.position, state)

    def tell(self, found: list[Point]) -> None:
        """Take what was found at the points that ``ask`` returned."""
        for (k, proposal), there in zip(self.pending, found, strict=True):
            if proposal.move == "search":
                self._found(k, proposal, there)
            else:
                self._test(k, proposal, there)
        self.pending = []
        self.track.append(self.standing)
        self._refit_if_due()
        self._end_if_over()

    def _test(self, k, proposal, there):
        self.hub, self.members[k], self.last[k] = self.learner.decide(self.hub, self.members[k], proposal, there)

    def _search(self, k):
        """Of a member that is lost, now and then: the end of a free chain from one of the elite."""
        member, depths = self.members[k], FORLORN if k in self.sentinels else 1.0
        if self.hub.fit is None or not self._is_lost(k, 1.0):
            return None
        if not (self._is_lost(k, depths) or self._is_slight(k)):
            return None
        if member.rng.random() >= 0.5:
            return None
        end = self.learner.search(member.rng, self.hub, self.members)
        return None if end is None else Proposal(end, -math.inf, "search")

    def _is_lost(self, k, depths):
        return self.learner.is_lost(self.hub, self.members[k].point, depths)

    def _is_slight(self, k):
        """Whether a lost member's place has far less mass than the others', were it ten times as wide as it is seen.

        By its states in the second half of the rounds so far, and those of the members that are not lost.
        """
        if not self.track:
            return False
        x, y = (np.array(part) for part in zip(*self.track[len(self.track) // 2 :], strict=True))
        d = x.shape[2]
        found = [j for j in range(len(self.members)) if not self._is_lost(j, 1.0)]
        if not found or len(np.unique(y[:, k])) < d + 2:
            return False
        others, own = x[:, found].reshape(-1, d), x[:, k]
        volumes = [0.5 * np.linalg.slogdet(np.cov(part.T).reshape(d, d))[1] for part in (others, own)]
        height, here = (
            float(np.median(self.learner.heights(self.hub, part, values)))
            for part, values in ((others, y[:, found].ravel()), (own, y[:, k]))
        )
        return height + volumes[0] > here + volumes[1] + d * math.log(10.0) + BETTER

    def _found(self, k, proposal, there):
        """Go where it is higher: no draw, tuning only."""
        self.hub, member = self.learner.record(self.hub, there, proposal.move), self.members[k]
        higher = there.log_density > member.point.log_density
        if higher:
            member = self.learner.move_to(self.hub, member, there)
            self.members[k] = member._replace(own={**member.own, **self.learner.fetched})
        self.last[k] = Draw(proposal, math.nan, float(higher), higher)

    def row(self, waits: bool = False) -> Row:
        """Where the members stand, and what brought them there in the last round unless all of them wait."""
        statistics = [
            {} if waits or draw is None else described(
                self.learner.sampler, self.learner.view(self.hub, m), draw, m.point.log_density
            )
            for m, draw in zip(self.members, self.last, strict=True)
        ]  # fmt: skip
        return Row(*self.standing, statistics)

    # -- fits ---------------------------------------------------------------------------------

    def _refit_if_due(self):
        learning = self.hub.learning
        if not self.fitted_last and self.evaluations >= self._last_fit_at():
            self._refit(final=True)
            return
        self.hub, due = self.learner.due(self.hub, self.members)
        if (due or self._is_spreading()) and not learning.schedule.final:
            self._refit()

    def _is_spreading(self):
        return self.learner.has_spread(self.hub, self.states_at_fit, len(self.members))

    def _last_fit_at(self):
        if self.ends_at < self.limit:  # it was decided to end
            return 0
        last = self.base + trust.LAST_REFIT * (self.limit - self.base)
        return max(last, self.learner.fewest(self.hub))

    def _refit(self, final=False):
        self.fitted_last |= final
        self.states_at_fit = self.hub.learning.chain_log_densities.size
        self.hub, self.members = self.learner.refit(self.rng, self.hub, self.members, final)

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
        return self.learner.is_stale(self.hub)

    def _is_worth_more(self):
        """Whether the surrogate is not yet what draws could be made with."""
        accepted, trials = (each.sum() for each in self.learner.arms(self.hub))
        usable = trials > 0 and accepted >= USABLE * trials
        return not (self.wait or usable) and self.ends_at == self.limit < self.latest

    def _is_settled(self):
        """Whether the surrogate is good, and the last fit was hardly better than the one before."""
        learning = self.hub.learning
        judgement = learning.judgement
        few = judgement.residuals.size < JUDGED or judgement.judged < JUDGED
        if few or self.evaluations < self.earliest:
            return False
        now, before = kamiltonian_learner.measure(learning, math.inf), judgement.earlier
        if not (now.residual_sd < 0.25 and now.uncovered < 0.01) or self._is_spreading():
            return False
        # a member that does not move has one residual
        accepted, trials = (each.sum() for each in self.learner.arms(self.hub))
        if accepted < 0.6 * trials:
            return False
        # with points from before, a fit has all that it will have; below 0.1 there is nothing to gain that matters
        if self.base or now.residual_sd < 0.1:
            return True
        return before is not None and now.residual_sd > 0.8 * before.residual_sd

    def freeze(self) -> tuple[Any, list[Frozen]]:
        """Fix everything: the hub and the members from which draws are made."""
        if not self.validated and self.learner.is_stale(self.hub):
            self._refit()
        hub = self.learner.freeze(self.hub, self.members)
        return hub, [Frozen(m.rng, m.point, self.learner.sampler.place(hub, m.point)) for m in self.members]
