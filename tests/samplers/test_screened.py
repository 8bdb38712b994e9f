"""Screened moves: k transitions on a surrogate, one evaluation (Christen & Fox, 2005): exact whatever the surrogate."""

import math
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers import screened
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon import several
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.learner import Quality, unjudged
from pymc_kameleon.samplers.screened import MOVE, Screened
from pymc_kameleon.samplers.seam import Point, Proposal, Sampler, acceptance_probability
from pymc_kameleon.surrogates.values import flattened
from tests.samplers.test_seam import TARGET, frozen, tuned
from tests.support import runs
from tests.support.chains import Held, largest_change, through

INNER = {
    "fast": FastKameleon(n_features=40, tune=400),
    "full": Kameleon(n_history=60, tune=400),
    "mixture": GaussianMixture(tune=400),
    "walk": AdaptiveMetropolis(tune=400),
}
SCREENED = {name: Screened(inner=inner, transitions=5) for name, inner in INNER.items()}


def made(inner):
    """Sampler, point and state after tuning on the banana; frozen."""
    sampler = SCREENED[inner]
    return sampler, *frozen(sampler, 600)[1:]


def f(state, x):
    """The surrogate, by the other code that knows it; nothing outside D."""
    surface = state.dynamics
    z = surface.inverse @ (x - surface.surrogate.centre)
    found = flattened.values(surface.surrogate, x[None])[0]
    return found if np.linalg.norm(z) < surface.radius and found < surface.ceiling else -math.inf


# --- what a screened move is ----------------------------------------------------------------------


def in_rows(rng, sampler, d, shear):
    """For each step of Fast KAMH, what draws as the compiled one does: all at once, a row for each."""
    normals, uniforms = (
        rng.standard_normal((sampler.transitions, d)),
        rng.random((sampler.transitions, several.UNIFORMS)),
    )
    kinds = [several.GLOBAL, several.SHEARED, several.TOWARDS]
    if shear is None:
        kinds.remove(several.SHEARED)
    for normal, row in zip(normals, uniforms, strict=True):
        one = SimpleNamespace(random=iter(row[kinds]).__next__, standard_normal=lambda _, normal=normal: normal)
        yield one, row[several.ACCEPT]


def slow_move(rng, sampler, x, state):
    """k accept/reject steps on f, one by one: (end, log ratio of the f's)."""
    inner, here = state.inner, x
    steps = [(rng, None)] * sampler.transitions
    if isinstance(sampler.inner, FastKameleon):
        steps = in_rows(rng, sampler, len(x), inner.shear)
    for rng, last in steps:
        inner = sampler.inner.place(inner, Point(here, f(state, here)))
        proposal = sampler.inner.propose(rng, here, inner)
        log_q_ratio = sampler.inner.log_ratio(inner, None, proposal, None)
        chance = acceptance_probability(f(state, here), f(state, proposal.position), log_q_ratio)
        if (rng.random() if last is None else last) < chance:
            here = proposal.position
    return here, f(state, x) - f(state, here)


@pytest.mark.parametrize("inner", INNER)
def test_a_screened_move_is_that_many_steps_on_the_surrogate(inner):
    sampler, point, state = made(inner)
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


def matrix(proposal, log_ratio):
    """Transition matrix of a Metropolis-Hastings kernel with this proposal matrix."""
    found = np.zeros_like(proposal)
    for i, j in np.argwhere(proposal > 0):
        found[i, j] = proposal[i, j] * math.exp(min(0.0, log_ratio(i, j)))
    return found + np.diag(1.0 - found.sum(axis=1))


def test_on_a_ring_of_integers_frequencies_are_those_of_the_matrix_which_leaves_the_target_invariant(monkeypatch):
    """Every entry of the whole kernel: shares, k steps on f, and the test, against matrices."""
    size, k = 6, 3
    rng = np.random.default_rng(4)
    log_p, table = rng.normal(0, 1, size), rng.normal(0, 1, size)
    mixture = trust.Mixture(floor=0.3, typical=0.1, slack=0.2)
    t = np.exp(-np.maximum(0.0, log_p - table - mixture.typical - mixture.slack))
    steps = 0.5 * (np.roll(np.eye(size), 1, axis=1) + np.roll(np.eye(size), -1, axis=1))
    on_f = np.linalg.matrix_power(matrix(steps, lambda i, j: table[j] - table[i]), k)
    keep = 1.0 - mixture.floor

    def by_surrogate(i, j):
        return log_p[j] - log_p[i] + table[i] - table[j] + math.log(t[j] / t[i])

    def by_walk(i, j):
        return log_p[j] - log_p[i] + math.log((1 - keep * t[j]) / (1 - keep * t[i]))

    whole = (keep * t)[:, None] * matrix(on_f, by_surrogate)
    whole += (1.0 - keep * t)[:, None] * matrix(steps, by_walk)
    target = np.exp(log_p) / np.exp(log_p).sum()
    np.testing.assert_allclose(target @ whole, target, atol=1e-12)

    def locate(sampler, state, point):
        return trust.Current(*point[:2], table[int(point.position[0])])

    monkeypatch.setattr(screened.surrogate_dynamics, "value_inside", lambda _, x: table[int(x[0])])
    monkeypatch.setattr(Screened, "locate", locate)
    sampler = Screened(inner=Neighbours(size), transitions=k)
    surface = SimpleNamespace(radius=math.inf, ceiling=math.inf, rescaling=SimpleNamespace(straight=-1))
    state = screened.State(None, None, surface, None, 0.0, mixture, None)
    n = 4000
    for i in range(size):
        ends = np.zeros(size)
        for _ in range(n):
            point = Point(np.array([float(i)]), log_p[i])
            [draw] = runs.draws(rng, sampler, lambda x: log_p[int(x[0])], point, sampler.place(state, point), 1)
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
    surface = state.dynamics
    surrogate = change(surface.surrogate)
    made = screened.surrogate_dynamics.make_dynamics(surrogate, surface.metric, surrogate.centre[None], 1.0)
    return state._replace(
        dynamics=made._replace(radius=surface.radius, ceiling=surface.ceiling),
        mixture=trust.Mixture(0.3, state.mixture.typical, 0.5),
    )


def largest_z(inner, wrong, noise=0.0, ratio=None):
    """Exact draws of the extended target in, eight transitions each: the largest z-score of a change."""
    sampler, _, state = made(inner)
    moves = []

    def watch(outcome):
        moves.append((outcome.proposal.move == MOVE) and outcome.accepted)

    options = {"n": 2500, "steps": 8, "noise": noise, "seed": 5, "ratio": ratio, "watch": watch}
    starts, ends = through(Held(sampler, wrong(state)), TARGET.log_density, TARGET.draw, **options)
    assert np.mean(moves) > 0.03, "hardly any screened move: the test would be empty"
    return largest_change(starts, ends)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("inner", "wrong", "noise"),
    [
        ("fast", shifted, 1.0), slow("fast", too_steep, 1.0), slow("fast", too_flat, 1.0),
        *(slow("fast", wrong, 0.0) for wrong in (too_steep, too_flat, shifted)),  # the same lines run
        slow("mixture", too_steep, 0.0), slow("walk", too_steep, 0.0), slow("full", too_steep, 0.0),
    ],
)  # fmt: skip
def test_the_frozen_kernel_leaves_the_target_invariant(inner, wrong, noise):
    assert largest_z(inner, wrong, noise) < 4.5


def without_f(held, x, log_density, proposal, proposed):
    if proposal.move == MOVE and proposal.position is not x:
        proposal = proposal._replace(log_q_ratio=0.0)
    return held.log_ratio(x, log_density, proposal, proposed)


def without_shares(held, x, log_density, proposal, proposed):
    if proposal.move == MOVE:
        return proposal.log_q_ratio
    return held.sampler.inner.log_ratio(held.inner, None, proposal, None)


@pytest.mark.parametrize(("wrong", "control"), [slow(too_flat, without_f), (shifted, without_shares)])
def test_and_without_one_of_its_factors_it_does_not(wrong, control):
    assert largest_z("fast", wrong, ratio=control) > 6.0


# --- what it learns -------------------------------------------------------------------------------


@pytest.mark.parametrize(("accepted", "floor"), [(0.0, 0.95), (20.0, 0.6), (180.0, 0.2)])
def test_screened_moves_have_the_share_that_they_have_earned(accepted, floor):
    """By the share of two hundred of them that was accepted, beside what the fit promises."""
    _, _, state = tuned(SCREENED["walk"], 300)
    judgement = unjudged()._replace(earlier=Quality(0.1, 0.0, 1, 100))
    schedule = state.learning.schedule._replace(last_refit=10**6)
    learning = state.learning._replace(accepted=accepted, trials=200.0, judgement=judgement, schedule=schedule)
    fit = state.fit._replace(residual_sd=3.0 if accepted < 100 else 0.1)
    fixed = SCREENED["walk"].freeze(state._replace(learning=learning, fit=fit))
    assert fixed.mixture.floor == pytest.approx(floor, abs=0.02)
    assert fixed.learning is None


@pytest.mark.parametrize("step", [pk.FastKameleonStep, pk.KameleonStep, pk.GaussianMixtureStep])
def test_steps_take_how_many_transitions(step):
    quick = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
    with pm.Model():
        pm.Normal("x", shape=2)
        made = step(screen=3, **quick)
        assert isinstance(made.sampler, Screened)
        assert made.sampler.transitions == made.options["screen"] == 3
        assert not isinstance(step(screen=0, **quick).sampler, Screened)
        with pytest.raises(ValueError, match=r"screen must be an integer of at least 0, got -1"):
            step(screen=-1)
        with pytest.raises(TypeError, match="screen"):
            step(screen="values")
