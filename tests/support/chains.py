"""Chains for the tests: a sampler and its state in one hand, exact draws in, z-scores out."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.seam import Known, Outcome, Point, Proposal
from pymc_kameleon.verdict import convergence
from tests.support import runs


class Wrong:
    """The sampler ``right`` with what ``control`` does instead: functions that get what is held, and give it back."""

    def __init__(self, right, control):
        self.right, self.control = right, control

    def __getattr__(self, name):
        return getattr(self.right, name)

    def propose(self, rng, x, state):
        if not hasattr(self.control, "propose"):
            return self.right.propose(rng, x, state)
        return self.control.propose(rng, x, Held(self.right, state))

    def log_ratio(self, state, point, proposal, there):
        if not hasattr(self.control, "log_ratio"):
            return self.right.log_ratio(state, point, proposal, there)
        return self.control.log_ratio(Held(self.right, state), *point[:2], proposal, there.log_density)

    def place(self, state, point, proposal=None):
        if proposal is None and hasattr(self.control, "start"):
            return self.control.start(Held(self.right, state), *point[:2]).state
        if proposal is not None and hasattr(self.control, "keep"):
            outcome = Outcome(*point[:2], proposal, point.log_density, 1.0, True)
            return self.control.keep(Held(self.right, state), outcome).state
        return self.right.place(state, point, proposal)


class Held:
    """Reads like the state; every method that moves it on returns a new one."""

    def __init__(self, sampler, state):
        self.sampler, self.state = sampler, state

    def __getattr__(self, name):
        return getattr(self.state, name)

    def _with(self, state):
        return self if state is self.state else Held(self.sampler, state)

    def _replace(self, **fields):
        return self._with(self.state._replace(**fields))

    def but(self, control):
        """The same with a wrong sampler, see :class:`Wrong`; itself without a ``control``."""
        return self if control is None else Held(Wrong(self.sampler, control), self.state)

    def opted(self, **options):
        """The same with other options."""
        return Held(replace(self.sampler, **options), self.state)

    def relearn(self, rng):
        """What the sampler's own ``relearn`` makes of it."""
        return self._with(self.sampler.relearn(rng, self.state))

    def hand_over(self):
        return self._with(self.sampler.hand_over(self.state))

    def propose(self, rng, x):
        return self.sampler.propose(rng, x, self.state)

    def adapt(self, rng, outcome):
        return self._with(self.sampler.adapt(rng, self.state, outcome))

    def freeze(self):
        return self._with(self.sampler.freeze(self.state))

    def stats(self, proposal=None):
        return self.sampler.stats(self.state, proposal)

    def start(self, x, log_density):
        """Put the chain at ``x`` from outside."""
        return self._with(self.sampler.place(self.state, Point(x, log_density)))

    def keep(self, outcome):
        """Move the chain by an accepted proposal."""
        if not outcome.accepted:
            return self
        point = Point(outcome.position, outcome.log_density, outcome.noise)
        return self._with(self.sampler.place(self.state, point, outcome.proposal))

    def log_ratio(self, x, log_density, proposal, proposed_log_density):
        there = Point(proposal.position, proposed_log_density)
        return self.sampler.log_ratio(self.state, Point(x, log_density), proposal, there)

    def observe(self, x, log_density):
        return self._with(self.sampler.observe(self.state, Point(x, log_density)))

    def draws(self, rng, log_density, x, n, *, value=None, tuning=False):
        """``n`` draws from ``x``, as (the hand before, outcome, the hand after)."""
        point = Point(x, log_density(x) if value is None else value)
        for draw in runs.draws(rng, self.sampler, log_density, point, self.state, n, tuning=tuning):
            yield Held(self.sampler, draw.before), outcome_of(draw), Held(self.sampler, draw.state)

    def draw(self, rng, x, value, log_density, *, tuning=False):
        """One draw from ``x``, where the log density is ``value``: (the hand after it, outcome)."""
        [(_, outcome, after)] = self.draws(rng, log_density, x, 1, value=value, tuning=tuning)
        return after, outcome


def outcome_of(draw):
    """What the sampler was told of a draw."""
    return Outcome(
        draw.point.position, draw.point.log_density, draw.proposal, draw.there.log_density, draw.accept_prob,
        draw.accepted,
    )  # fmt: skip


def held(kind, x, *, rng=None, factor=None, evaluated=None, **options):
    """A chain's beginning at ``x``."""
    sampler = kind(**options)
    return Held(sampler, sampler.init(rng, x, Known(factor=factor, evaluated=evaluated)))


def scored(x, *, surrogate="finite", **options):
    """The same of one of the paper's two."""
    if surrogate == "lite":
        options.pop("n_features", None)  # which only finite has
        return held(LiteKamiltonian, x, **options)
    return held(FiniteKamiltonian, x, **options)


class Course(NamedTuple):
    """A chain of :func:`run_chain`: its draws, shape (steps, d); what the sampler was told of each, and held then."""

    draws: np.ndarray
    outcomes: list
    hands: list

    @property
    def held(self):
        """At the end."""
        return self.hands[-1]

    @property
    def moves(self):
        return [outcome.proposal.move for outcome in self.outcomes]

    @property
    def accept_probs(self):
        return np.array([outcome.accept_prob for outcome in self.outcomes])


def run_chain(rng, held, log_density, x, steps, tuning=True):
    """One chain from ``x``."""
    drawn = list(held.draws(rng, log_density, x, steps, tuning=tuning))
    draws = np.array([outcome.position for _, outcome, _ in drawn])
    return Course(draws, [outcome for _, outcome, _ in drawn], [after for _, _, after in drawn])


def tuned(sampler, log_density, x, draws, seed=1):
    """A chain that tunes, from ``x``."""
    rng, x = np.random.default_rng(seed), np.array(x, dtype=float)
    start = Held(sampler, sampler.init(rng, x, Known())).start(x, log_density(x))
    return run_chain(rng, start, log_density, x, draws)


def run_transitions(rng, held, log_density, starts, steps):
    """Apply ``steps`` transitions to every start, without adapting; return the end points, shape (N, d)."""
    ends = np.empty_like(starts)
    for n, x in enumerate(starts):
        point = Point(x, log_density(x))
        state = held.sampler.place(held.state, point)
        *_, draw = runs.draws(rng, held.sampler, log_density, point, state, steps)
        ends[n] = draw.point.position
    return ends


def change(held, target, n, steps=4, control=None, seed=5, moved=0.1):
    """Largest z-score of how exact draws of ``target`` have moved by ``held``, or by what a ``control`` makes of it."""
    rng = np.random.default_rng(seed)
    starts = target.draw(rng, n)
    ends = run_transitions(rng, held.but(control), target.log_density, starts, steps)
    assert (starts != ends).any(axis=1).mean() > moved, "it hardly moves: the test would be empty"
    return np.abs(two_sample_z(ends, starts, target.log_density)).max()


class Dropped:
    """Negative control: what is not refused is taken for symmetric."""

    @staticmethod
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        return proposal if proposal.log_q_ratio == -math.inf else proposal._replace(log_q_ratio=0.0)


class Uneven:
    """Negative control of symmetric walks: a step that grows with x, taken for symmetric."""

    @staticmethod
    def propose(rng, x, state):
        return Proposal(x * np.exp(0.5 * rng.standard_normal(len(x))), 0.0)


def z_scores(ends, mean, cov):
    """Of means, variances and cross moments of independent points (n, d), against exact ones."""
    centred = ends - mean
    functionals = [centred[:, i] for i in range(ends.shape[1])]
    functionals += [centred[:, i] * centred[:, j] - cov[i, j] for i in range(ends.shape[1]) for j in range(i + 1)]
    return np.array([f.mean() / (f.std(ddof=1) / np.sqrt(len(f))) for f in functionals])


def two_sample_z(ends, starts, log_density=None):
    """z-scores of the change between exact starts and end points, which are paired: means, second moments, the 10 and
    90 % quantile indicators and, if given, the log density (clipped: its tail is heavy)."""
    low, high = np.quantile(starts, [0.1, 0.9], axis=0)
    centre = starts.mean(axis=0)

    def functionals(points):
        a, d = points - centre, points.shape[1]
        values = [a[:, i] for i in range(d)]
        values += [a[:, i] * a[:, j] for i in range(d) for j in range(i + 1)]
        values += [(points[:, i] < low[i]) * 1.0 for i in range(d)]
        values += [(points[:, i] > high[i]) * 1.0 for i in range(d)]
        if log_density is not None:
            values.append(np.array([max(log_density(x), -30.0) for x in points]))
        return np.array(values)

    changes = functionals(ends) - functionals(starts)
    spread = changes.std(axis=1, ddof=1) / np.sqrt(len(ends))
    return changes.mean(axis=1) / np.maximum(spread, 1e-300)


def through(held, log_density, draw, *, n=3000, steps=6, noise=0.0, seed=1, ratio=None, watch=None):
    """Exact draws of the extended target in, ``steps`` transitions each: starts and ends, (n, d + 1).

    The last column is the noise in the retained log density, whose law must be invariant too. ``ratio``
    is another ratio, for controls.
    """
    rng = np.random.default_rng(seed)
    positions = draw(rng, n)
    # under the extended target the retained noise is tilted: N(s^2 / 2, s^2), not N(-s^2 / 2, s^2)
    starts = np.column_stack([positions, noise * rng.standard_normal(n) + 0.5 * noise**2])
    ends, held = np.empty_like(starts), held.but(ratio and SimpleNamespace(log_ratio=ratio))

    def estimate(x):
        return log_density(x) + noise * rng.standard_normal() - 0.5 * noise**2

    for i, start in enumerate(starts):
        x = start[:-1]
        y = log_density(x) + start[-1]
        for _, outcome, _ in held.start(x, y).draws(rng, estimate, x, steps, value=y):
            if watch is not None:
                watch(outcome)
        ends[i] = [*outcome.position, outcome.log_density - log_density(outcome.position)]
    return starts, ends


def recursive_moments(mean, draws, rates):
    """Mean and covariance by Andrieu & Thoms (2008), eq. 17, draw by draw; the covariance begins at the identity."""
    cov = np.eye(len(mean))
    for x, rate in zip(draws, rates, strict=True):
        delta = x - mean
        mean, cov = mean + rate * delta, cov + rate * (np.outer(delta, delta) - cov)
    return mean, cov


def circular_z(angle, other, expected):
    """Of cos and sin of an angle and of another quantity, (chains, draws) each, and their least effective draws."""
    found = np.stack([np.cos(angle), np.sin(angle), other], axis=2)
    ess = convergence.of_each("ess", found, method="mean")
    return np.abs(found.mean(axis=(0, 1)) - expected) / (found.std(axis=(0, 1)) / np.sqrt(ess)), np.min(ess)


def largest_change(starts, ends, regions=()):
    """Largest z-score over means, second moments and the shares of ``regions``, functions of points (n, d + 1)."""
    changes = [r(ends).astype(float) - r(starts) for r in regions]
    if starts[:, -1].std() == 0.0:
        starts, ends = starts[:, :-1], ends[:, :-1]
    z = [c.mean() / (c.std(ddof=1) / math.sqrt(len(c))) for c in changes]
    return np.abs([*two_sample_z(ends, starts), *z]).max()
