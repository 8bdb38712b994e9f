"""Kamiltonian Monte Carlo: reversibility and volume, invariance with negative controls, the cold start."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.samplers.kamiltonian.scores import sampler as kamiltonian
from pymc_kameleon.samplers.kamiltonian.scores.estimators import PAPERS
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.surrogates.scores import choose as ks
from pymc_kameleon.surrogates.scores import objective as score_matching
from tests import step_tester as tester
from tests.support.chains import run_transitions, scored, two_sample_z
from tests.support.differences import slopes

each_family = pytest.mark.parametrize("family", ["lite", "finite"])
# the negative controls that differ little between the families: one of them in the fast suite
lite_or_slow = pytest.mark.parametrize("family", ["lite", pytest.param("finite", marks=pytest.mark.slow)])
each_dim = pytest.mark.parametrize("dim", [1, 2, 5])


def log_density(x):
    """A skewed target: x_2 | x_1 bends, the others are normal (x_1 alone in one dimension: Gumbel)."""
    if len(x) == 1:
        return float(x[0] - math.exp(min(x[0], 50.0)))
    bend = x[1] - 0.7 * (x[0] * x[0] - 1.0)
    return float(-0.5 * x[0] * x[0] - bend * bend - 0.5 * x[2:] @ x[2:])


def draw(rng, n, dim=2):
    if dim == 1:
        return np.log(rng.exponential(size=(n, 1)))
    x = rng.standard_normal((n, dim))
    x[:, 1] = 0.7 * (x[:, 0] ** 2 - 1.0) + x[:, 1] * math.sqrt(0.5)
    return x


@cache
def mediocre(family, dim=2, seed=0, **options):
    """A frozen state whose surrogate knows 60 draws: good enough to move, bad enough to need its ratio."""
    rng = np.random.default_rng([seed, dim])
    past = draw(rng, 60, dim)
    own = {"n_features": 60, "step_size": 0.2, "n_leapfrog": (1, 10), "random_walk_share": 0.05}
    options = {"surrogate": family, **own, **options}
    return scored(past[0], history=past, rng=rng, **options).freeze()


# --- leapfrog


@each_family
@each_dim
def test_leapfrog_is_reversible(family, dim):
    surrogate = mediocre(family, dim).fitted.surrogate
    rng = np.random.default_rng(1)
    for n_steps in (1, 7, 50):
        z, p = 0.5 * rng.standard_normal((2, dim))
        end, turned, inside = ks.leapfrog(z, p, surrogate, 0.2, n_steps)
        assert inside
        assert np.abs(end - z).max() > 1e-2
        back, returned, inside = ks.leapfrog(end, -turned, surrogate, 0.2, n_steps)
        np.testing.assert_allclose(back, z, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(returned, -p, rtol=1e-10, atol=1e-10)


@each_family
@each_dim
def test_leapfrog_preserves_volume(family, dim):
    surrogate = mediocre(family, dim).fitted.surrogate
    rng = np.random.default_rng(2)
    start = 0.5 * rng.standard_normal(2 * dim)

    def flow(zp):
        end, turned, _ = ks.leapfrog(zp[:dim], zp[dim:], surrogate, 0.2, 10)
        return np.concatenate([end, turned])

    jacobian = slopes(flow, start)
    assert np.abs(np.linalg.norm(jacobian - np.eye(2 * dim))) > 0.1
    np.testing.assert_allclose(abs(np.linalg.det(jacobian)), 1.0, rtol=1e-6)


@each_family
def test_leapfrog_follows_minus_f_as_potential(family):
    """Its energy |p|^2 / 2 - f is kept to second order in the step size; with +f it would not be."""
    surrogate = mediocre(family).fitted.surrogate
    rng = np.random.default_rng(3)
    for _ in range(5):
        z, p = 0.5 * rng.standard_normal((2, 2))
        errors = []
        for n_steps in (32, 64, 128):
            end, turned, _ = ks.leapfrog(z, p, surrogate, 1.0 / n_steps, n_steps)
            gain = score_matching.value(end, surrogate) - score_matching.value(z, surrogate)
            errors.append(abs(gain + 0.5 * (p @ p - turned @ turned)))
        assert errors[2] < 1e-3
        np.testing.assert_allclose(errors[1] / errors[2], 4.0, rtol=0.1)


@each_family
@each_dim
def test_log_q_ratio_changes_sign_on_the_way_back(family, dim):
    """From the proposal with the momentum turned round, the same path leads back."""
    state = mediocre(family, dim, random_walk_share=0.0, n_leapfrog=5)
    rng = np.random.default_rng(4)
    x = draw(rng, 1, dim)[0]

    def given(momentum):
        return SimpleNamespace(random=lambda: 0.5, standard_normal=lambda size: momentum)

    p = rng.standard_normal(dim)
    there = state.propose(given(p), x)
    z = np.linalg.solve(state.factor, x - state.centre)
    _, turned, _ = ks.leapfrog(z, p, state.fitted.surrogate, there.carry.path.step_size, 5)
    back = state.propose(given(-turned), there.position)
    np.testing.assert_allclose(back.position, x, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(back.log_q_ratio, -there.log_q_ratio, rtol=1e-8, atol=1e-10)
    assert there.log_q_ratio != 0.0


@pytest.mark.parametrize("step_size", [50.0, 1e200])
@each_family
def test_divergence_is_refused_without_an_evaluation(family, step_size):
    state = mediocre(family, step_size=step_size, n_leapfrog=50, random_walk_share=0.0)
    x = draw(np.random.default_rng(5), 1)[0]
    proposal = state.propose(np.random.default_rng(5), x)
    assert proposal.position is x
    assert proposal.log_q_ratio == -math.inf
    assert proposal.carry.path.diverging


def test_no_trajectory_starts_where_none_returns():
    state = mediocre("lite")
    far = np.array([2e3, 0.0])
    _, _, inside = ks.leapfrog(far, np.array([-1e4, 0.0]), state.fitted.surrogate, 0.2, 1)
    assert not inside


# --- invariance


def invariance(state, n=3000, steps=4, seed=6, dim=2):
    rng = np.random.default_rng(seed)
    starts = draw(rng, n, dim)
    ends = run_transitions(rng, state, log_density, starts, steps)
    return np.abs(two_sample_z(ends, starts, log_density)).max(), np.square(ends - starts).mean()


@pytest.mark.parametrize("dim", [2, *(pytest.param(d, marks=pytest.mark.slow) for d in (1, 5))])
@each_family
def test_invariance(family, dim):
    z, moved = invariance(mediocre(family, dim), dim=dim)
    assert z < 4.5
    assert moved > 0.2


@pytest.mark.parametrize("sign", [0.0, -1.0])  # without the kinetic term; the text's eq. (3)
@lite_or_slow
def test_with_a_wrong_ratio_it_fails(family, sign):
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        if proposal.log_q_ratio == -math.inf:
            return proposal
        return proposal._replace(log_q_ratio=sign * proposal.log_q_ratio)

    assert invariance(mediocre(family).but(SimpleNamespace(propose=propose)))[0] > 10


# --- given history


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@each_family
def test_units_do_not_matter(family, unit):
    rng = np.random.default_rng(9)
    past = draw(rng, 50)

    def proposals(c):
        rng = np.random.default_rng(10)
        state = scored(c * past[0], history=c * past, rng=rng, surrogate=family, n_features=40)
        made = [state.propose(rng, c * past[1]) for _ in range(30)]
        return np.array([m.position / c for m in made]), np.array([m.log_q_ratio for m in made])

    for a, b in zip(proposals(1.0), proposals(unit), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_papers_settings_are_a_preset_of_the_papers_estimators():
    fast = {"model": tester.pair(), "compile_kwargs": {"mode": "FAST_COMPILE"}}
    for surrogate in ("lite", "finite"):
        paper = KamiltonianStep(surrogate=surrogate, preset="paper", **fast)
        assert paper._options == PAPERS[surrogate]
        ours = paper.variants[surrogate].paper(n_leapfrog=50)
        step = KamiltonianStep(surrogate=ours, **fast)
        assert step._options == PAPERS[surrogate] | {"n_leapfrog": 50}
        with pytest.raises(ValueError, match=f"surrogate=pk.{surrogate.title()}.paper"):
            KamiltonianStep(surrogate=ours, preset="paper", **fast)
    assert not KamiltonianStep(surrogate="lite", **fast)._options
    for surrogate in ({}, {"surrogate": "values"}):
        with pytest.raises(ValueError, match="surrogate='finite'"):
            KamiltonianStep(preset="paper", **surrogate, **fast)


def test_given_history_is_used_as_it_is():
    """A fixed surrogate: tuning moves the step size and the random walk, nothing else."""
    rng = np.random.default_rng(11)
    past = draw(rng, 300)
    state = scored(past[0], history=past, rng=rng, surrogate="lite", target_accept=0.95)
    tuned, _ = run(rng, state, past[0], 600)
    assert tuned.fitted is state.fitted
    assert tuned.walk_share == state.walk_share == 0.2
    assert tuned.refits == 1
    assert tuned.log_step != state.log_step


def run(rng, state, x, steps, adapt=True):
    """What is held at the end of a chain, and what became of every draw."""
    made = list(state.start(x, log_density(x)).draws(rng, log_density, x, steps, tuning=adapt))
    return made[-1][2], [outcome for _, outcome, _ in made]


def test_step_size_is_tuned_to_the_target_acceptance():
    """Where the surrogate's own limit does not bind: long trajectories on a poor surrogate."""
    rng = np.random.default_rng(12)
    past = draw(rng, 25, 5)
    state = scored(
        past[0], history=past, rng=rng, surrogate="lite", n_leapfrog=(20, 40), target_accept=0.7, random_walk_share=0.05
    )
    tuned, _ = run(rng, state, past[0], 3000)
    tuned = tuned.freeze()
    assert tuned.log_step < tuned.log_step_limit
    groups = []
    for seed in range(10):
        start = draw(np.random.default_rng(seed), 1, 5)[0]
        _, outcomes = run(np.random.default_rng(seed), tuned, start, 400, adapt=False)
        groups.append(np.mean([o.accept_prob for o in outcomes if o.proposal.move == "hamiltonian"]))
    # independent chains; Robbins-Monro leaves an error of its own in the step size: 0.1 is for it
    error = np.std(groups, ddof=1) / math.sqrt(len(groups))
    assert abs(np.mean(groups) - 0.7) < 4.5 * error + 0.1


# --- cold start


@pytest.fixture(scope="module", params=["lite", pytest.param("finite", marks=pytest.mark.slow)])
def cold(request):
    """A chain from an over-dispersed point, tuned for 3000 draws, then frozen and run for 500 more. One in eight keeps
    the walk, whose held-out score a Gaussian's beats: the first of three that does not."""
    for seed in (0, 1, 2):
        states = cold_start(request.param, seed)
        if states[-1][0].mixture is not None:
            break
    return states


def cold_start(surrogate, seed):
    """(what is held, outcome) of every draw; of the last one of tuning, what is held once it is frozen."""
    rng, x = np.random.default_rng(seed), np.array([2.5, -1.0])
    state = scored(x, surrogate=surrogate, n_features=100, first_fit=300, tune=3000)
    states = [(after, outcome) for _, outcome, after in state.draws(rng, log_density, x, 3000, tuning=True)]
    state, outcome = states[-1]
    x = outcome.position
    frozen = state.freeze().start(x, outcome.log_density)
    states[-1] = frozen, outcome
    return states + [(after, outcome) for _, outcome, after in frozen.draws(rng, log_density, x, 500)]


def test_cold_start_hands_over(cold):
    shares = np.array([s.walk_share for s, _ in cold])
    moves = np.array([o.proposal.move for _, o in cold])
    assert np.all(shares[:299] == 1.0)
    assert np.all(moves[:299] == "random_walk")
    assert np.all((shares[300:] >= 0.2) & (shares[300:] <= 1.0))
    final = cold[-1][0]
    assert final.mixture.floor == final.walk_share < 0.9
    assert final.walk.history is None
    assert final.residuals.buffer.size == 1
    assert final.fitted.validation.gain > 0.0
    assert set(moves[3000:]) == {"random_walk", "hamiltonian"}


def test_cold_start_refits_at_growing_intervals_and_stops(cold):
    refits = np.array([s.refits for s, _ in cold])
    at = np.flatnonzero(np.diff(refits)) + 2  # iterations
    np.testing.assert_array_equal(at[:2], [300, 451])
    assert np.all(np.diff(at)[1:] > np.diff(at)[:-1])
    assert at[-1] < 0.85 * 3000


def with_evidence(ratio, gain=1.0, trials=50):
    """A state that has seen ``trials`` draws of each kernel whose jumps have the given ratio."""
    state = mediocre("lite", random_walk_share=0.2)
    validation = state.fitted.validation._replace(gain=gain)
    jumps = kamiltonian.Jumps(trials * np.outer([1.0, ratio], np.ones(2)), np.full(2, float(trials)))
    return state._replace(fitted=state.fitted._replace(validation=validation), jumps=jumps, walk_share=0.95).opted(
        adapt_share=True
    )


@pytest.mark.parametrize(
    ("evidence", "share"),
    [
        ({"ratio": 0.5}, 0.9),
        ({"ratio": 0.0}, 0.9),
        ({"ratio": 2.0}, 0.5),
        ({"ratio": 100.0}, 0.2),
        ({"ratio": 100.0, "gain": -0.01}, 1.0),  # no better than a Gaussian: whatever else
        ({"ratio": 100.0, "trials": 19}, 0.9),  # not enough trials yet
    ],
)
def test_hand_over_rule(evidence, share):
    assert with_evidence(**evidence).hand_over().walk_share == share


def test_failed_fit_keeps_the_old_surrogate():
    state = mediocre("lite")
    failing = state.opted(regularization=1e-300, lengthscale=1e3)
    past = draw(np.random.default_rng(14), 100)
    again = failing.sampler.refit(np.random.default_rng(0), failing.state, past)
    assert again is failing.state


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"history": np.zeros((10, 2))}, "rng"),
        ({"history": np.zeros((10, 2)), "rng": np.random.default_rng(0)}, "volume"),
        ({"history": np.zeros((10, 3)), "rng": np.random.default_rng(0)}, "shape"),
    ],
)
def test_refusals(options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        scored(np.zeros(2), **options)
