"""Screened moves: k transitions on a surrogate, one evaluation (Christen & Fox, 2005): exact whatever the surrogate."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import chain, screened
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import Quality, unjudged
from pymc_kameleon.samplers.screened import MOVE, Screened
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler, acceptance_probability
from pymc_kameleon.surrogates.values import features
from tests.support.chains import Held, largest_change, through
from tests.support.targets import Banana

TARGET = Banana(2)
INNER = {
    "fast": FastKameleon(n_features=40, tune=400),
    "full": Kameleon(n_history=60, tune=400),
    "mixture": GaussianMixture(tune=400),
    "walk": AdaptiveMetropolis(tune=400),
}
each_inner = pytest.mark.parametrize("inner", INNER)
_tuned: dict = {}


def tuned(inner, transitions=5, draws=600):
    """What is held after tuning on the banana, and where the chain is; frozen."""
    if inner not in _tuned:
        rng, sampler = (np.random.default_rng(3), Screened(inner=INNER[inner], transitions=transitions))
        point = Point(np.zeros(2), TARGET.log_density(np.zeros(2)))
        state = sampler.place(sampler.init(rng, point.position), point)
        for draw in chain.draws(rng, sampler, TARGET.log_density, point, state, draws, tuning=True):
            point, state = draw.point, draw.state
        _tuned[inner] = pickle.dumps((sampler, point, chain.freeze(sampler, point, state)))
    return pickle.loads(_tuned[inner])


def f(state, x):
    """The surrogate, by the other code that knows it; nothing outside D."""
    surface = state.surface
    z = surface.inverse @ (x - surface.surrogate.centre)
    found = features.values(surface.surrogate, x[None])[0]
    return found if np.linalg.norm(z) < surface.radius and found < surface.ceiling else -math.inf


# --- what a screened move is ----------------------------------------------------------------------


def slow_move(rng, sampler, x, state):
    """k accept/reject steps on f, one by one: (end, log ratio of the f's)."""
    inner, here = state.inner, x
    for _ in range(sampler.transitions):
        inner = sampler.inner.place(inner, Point(here, f(state, here)))
        proposal = sampler.inner.propose(rng, here, inner)
        log_q_ratio = sampler.inner.log_ratio(inner, None, proposal, None)
        chance = acceptance_probability(f(state, here), f(state, proposal.position), log_q_ratio)
        if rng.random() < chance:
            here = proposal.position
    return here, f(state, x) - f(state, here)


@each_inner
def test_a_screened_move_is_that_many_steps_on_the_surrogate(inner):
    sampler, point, state = tuned(inner)
    moved = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        end, ratio = slow_move(rng, sampler, point.position, state)
        proposal = sampler._screened(np.random.default_rng(seed), point.position, state)
        np.testing.assert_allclose(proposal.position, end, rtol=1e-9)
        if proposal.position is not point.position:
            np.testing.assert_allclose(proposal.log_q_ratio, ratio, rtol=1e-7, atol=1e-9)
            moved += 1
        else:
            assert proposal.log_q_ratio == -math.inf  # it stays, and nothing is evaluated
    assert moved > 5


class Neighbours(Sampler):
    """One to the left or to the right, on a ring of integers: symmetric."""

    def __init__(self, size):
        self.size = size

    def propose(self, rng, x, state):
        step = 1.0 if rng.random() < 0.5 else -1.0
        return Proposal((x + step) % self.size, 0.0, "neighbour")


def matrix(log_p, proposal, log_ratio):
    """Transition matrix of a Metropolis-Hastings kernel with this proposal matrix."""
    size = len(log_p)
    found = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            if i != j and proposal[i, j] > 0:
                found[i, j] = proposal[i, j] * math.exp(min(0.0, log_ratio(i, j)))
        found[i, i] = 1.0 - found[i].sum()
    return found


def test_on_a_ring_of_integers_frequencies_are_those_of_the_matrix_which_leaves_the_target_invariant(monkeypatch):
    """Every entry of the whole kernel: shares, k steps on f, and the test, against matrices."""
    size, k = 6, 3
    rng = np.random.default_rng(4)
    log_p, table = rng.normal(0, 1, size), rng.normal(0, 1, size)
    mixture = trust.Mixture(floor=0.3, typical=0.1, slack=0.2)
    t = np.exp(-np.maximum(0.0, log_p - table - mixture.typical - mixture.slack))
    steps = np.zeros((size, size))
    for i in range(size):
        steps[i, (i + 1) % size] = steps[i, (i - 1) % size] = 0.5
    on_f = np.linalg.matrix_power(matrix(table, steps, lambda i, j: table[j] - table[i]), k)
    keep = 1.0 - mixture.floor

    def by_surrogate(i, j):
        return log_p[j] - log_p[i] + table[i] - table[j] + math.log(t[j] / t[i])

    def by_walk(i, j):
        return log_p[j] - log_p[i] + math.log((1 - keep * t[j]) / (1 - keep * t[i]))

    whole = (keep * t)[:, None] * matrix(log_p, on_f, by_surrogate)
    whole += (1.0 - keep * t)[:, None] * matrix(log_p, steps, by_walk)
    target = np.exp(log_p) / np.exp(log_p).sum()
    np.testing.assert_allclose(target @ whole, target, atol=1e-12)

    monkeypatch.setattr(screened.dynamics, "value_inside", lambda _, x: table[int(x[0])])
    monkeypatch.setattr(
        Screened, "locate", lambda _, s, p: trust.Current(p.position, p.log_density, table[int(p.position[0])])
    )  # fmt: skip
    sampler = Screened(inner=Neighbours(size), transitions=k)
    surface = SimpleNamespace(radius=math.inf, ceiling=math.inf, rescaling=SimpleNamespace(straight=-1))
    state = screened.State(None, None, surface, None, 0.0, mixture, None)
    n = 4000
    for i in range(size):
        ends = np.zeros(size)
        for _ in range(n):
            point = Point(np.array([float(i)]), log_p[i])
            [draw] = chain.draws(rng, sampler, lambda x: log_p[int(x[0])], point, sampler.place(state, point), 1)
            ends[int(draw.point.position[0])] += 1
        error = np.sqrt(whole[i] * (1 - whole[i]) / n) + 1e-12
        assert np.abs((ends / n - whole[i]) / error).max() < 4.5


# --- it leaves the target invariant, however wrong the surrogate ----------------------------------


def too_steep(state):
    """Wrong by several nats."""
    return _with(state, lambda s: s._replace(quadratic=3 * s.quadratic, monomials=3 * s.monomials))


def shifted(state):
    """Right but for its place."""
    return _with(state, lambda s: s._replace(centre=s.centre + 0.8 * s.scale))


def too_flat(state):
    """Wider than the target, and nowhere too low."""
    return _with(state, lambda s: s._replace(quadratic=0.4 * s.quadratic, monomials=0.4 * s.monomials))


def _with(state, change):
    surface = state.surface
    surrogate = change(surface.surrogate)
    made = screened.dynamics.make_dynamics(surrogate, surface.metric, surrogate.centre[None], 1.0)
    return state._replace(
        surface=made._replace(radius=surface.radius, ceiling=surface.ceiling),
        mixture=trust.Mixture(0.3, state.mixture.typical, 0.5),
    )


def largest_z(inner, wrong, noise=0.0, ratio=None):
    """Exact draws of the extended target in, four transitions each: the largest z-score of a change."""
    sampler, _, state = tuned(inner)
    moves = []

    def watch(outcome):
        moves.append((outcome.proposal.move == MOVE) and outcome.accepted)

    held = Held(sampler, wrong(state))
    starts, ends = through(
        held, TARGET.log_density, TARGET.draw, n=2500, steps=4, noise=noise, seed=5, ratio=ratio, watch=watch
    )  # fmt: skip
    assert np.mean(moves) > 0.03, "hardly any screened move: the test would be empty"
    return largest_change(starts, ends)


@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])  # the same lines run
@pytest.mark.parametrize("wrong", [too_steep, too_flat, shifted])
def test_the_frozen_kernel_leaves_the_target_invariant(wrong, noise):
    assert largest_z("fast", wrong, noise) < 4.5


@pytest.mark.parametrize("inner", [pytest.param("full", marks=pytest.mark.slow), "mixture", "walk"])
def test_whatever_sampler_makes_the_steps(inner):
    assert largest_z(inner, too_steep) < 4.5


def without_f(held, x, log_density, proposal, proposed):
    if proposal.move == MOVE and proposal.position is not x:
        proposal = proposal._replace(log_q_ratio=0.0)
    return held.log_ratio(x, log_density, proposal, proposed)


def without_shares(held, x, log_density, proposal, proposed):
    if proposal.move == MOVE:
        return proposal.log_q_ratio
    return held.sampler.inner.log_ratio(held.inner, None, proposal, None)


@pytest.mark.parametrize(
    ("wrong", "control"), [pytest.param(too_flat, without_f, marks=pytest.mark.slow), (shifted, without_shares)]
)
def test_and_without_one_of_its_factors_it_does_not(wrong, control):
    assert largest_z("fast", wrong, ratio=control) > 6.0


# --- what it learns -------------------------------------------------------------------------------


@pytest.mark.parametrize(("accepted", "floor"), [(0.0, 0.95), (20.0, 0.6), (180.0, 0.2)])
def test_screened_moves_have_the_share_that_they_have_earned(accepted, floor):
    """By the share of two hundred of them that was accepted, beside what the fit promises."""
    state = _still_tuning()
    judgement = state.learning.judgement._replace(earlier=Quality(0.1, 0.0, 1, 100))
    schedule = state.learning.schedule._replace(last_refit=10**6)
    learning = state.learning._replace(accepted=accepted, trials=200.0, judgement=judgement, schedule=schedule)
    fit = state.fit._replace(residual_sd=3.0 if accepted < 100 else 0.1)
    fixed = screened.fix(state._replace(learning=learning, fit=fit))
    assert fixed.mixture.floor == pytest.approx(floor, abs=0.02)
    assert fixed.learning is None


def _still_tuning():
    rng, sampler = np.random.default_rng(9), Screened(inner=INNER["walk"], transitions=3)
    point = Point(np.zeros(2), TARGET.log_density(np.zeros(2)))
    state = sampler.place(sampler.init(rng, point.position), point)
    for draw in chain.draws(rng, sampler, TARGET.log_density, point, state, 300, tuning=True):
        state = draw.state
    return state._replace(learning=state.learning._replace(judgement=unjudged()))


@pytest.mark.parametrize("step", [pk.FastKameleonStep, pk.KameleonStep, pk.GaussianMixtureStep])
def test_steps_take_how_many_transitions(step):
    with pm.Model():
        pm.Normal("x", shape=2)
        made = step(screen=3, compile_kwargs={"mode": "FAST_COMPILE"})
        assert isinstance(made.sampler, Screened)
        assert made.sampler.transitions == made.options["screen"] == 3
        assert not isinstance(step(screen=0, compile_kwargs={"mode": "FAST_COMPILE"}).sampler, Screened)
        with pytest.raises(ValueError, match=r"screen must be an integer of at least 0, got -1"):
            step(screen=-1)
        with pytest.raises(TypeError, match="screen"):
            step(screen="values")


def test_transitions_are_at_least_one():
    with pytest.raises(ValueError, match="transitions must be an integer of at least 1, got 0"):
        Screened(inner=INNER["walk"], transitions=0)
