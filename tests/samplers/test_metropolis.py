"""The accept step, the history, and the core algorithms' shared pieces."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pymc_kameleon.numerics import history
from pymc_kameleon.numerics.step_size import robbins_monro
from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.seam import Point, Proposal, accept, acceptance_probability, attainable

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(("far", "moves"), [(1e99, True), (1e200, False)])
def test_where_all_is_flat_a_chain_stops_before_its_squares_do(far, moves):
    """Without a warning, which NumPy's product gives."""
    rng, sampler = np.random.default_rng(0), AdaptiveMetropolis()
    here, there = (Point(np.full(2, x), 0.0) for x in (0.0, far))
    state = chain.freeze(sampler, here, sampler.init(rng, here.position))
    point, *_, accepted = chain.decide(rng, sampler, here, state, Proposal(there.position, 0.0, "global"), there)
    assert accepted == moves
    assert point is (there if moves else here)
    assert trust.share(trust.Mixture(0.1, 0.0, 1.0), 2.0, 1.0, trust.Current(there.position, 0.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("current", "proposed", "log_q_ratio", "expected"),
    [
        (0.0, -1.0, 0.0, math.exp(-1.0)),
        (0.0, -1.0, 0.25, math.exp(-0.75)),
        (0.0, 800.0, 0.0, 1.0),  # capped: Robbins-Monro must never see more than 1
        (0.0, NAN, 0.0, 0.0),  # min(0.0, nan) is 0.0 in Python, which would accept
        (0.0, -INF, 0.0, 0.0),
        (0.0, INF, 0.0, 0.0),
        (-INF, -3.0, 0.0, 1.0),
        (-INF, -INF, 0.0, 0.0),
        (0.0, 0.0, NAN, 0.0),
        (0.0, 0.0, -INF, 0.0),
    ],
)
def test_acceptance_probability(current, proposed, log_q_ratio, expected):
    assert acceptance_probability(current, proposed, log_q_ratio) == expected


@pytest.mark.parametrize("proposed", [NAN, -INF, -1.0, 5.0])
def test_accept_uses_one_uniform_whatever_happens(proposed):
    rng, reference = np.random.default_rng(1), np.random.default_rng(1)
    accept(rng, 0.0, proposed, 0.0)
    reference.random()
    assert rng.bit_generator.state == reference.bit_generator.state


def test_accept_frequency():
    rng = np.random.default_rng(2)
    n, probability = 100_000, math.exp(-1.0)
    accepted = sum(accept(rng, 0.0, -1.0, 0.0)[1] for _ in range(n))
    assert abs(accepted - n * probability) < 4.5 * math.sqrt(n * probability * (1 - probability))


def test_robbins_monro_finds_the_target():
    """P(accept | log s) = exp(-s): the root of exp(-s) = 0.234 is s = 1.452."""
    rng = np.random.default_rng(3)
    ends = []
    for _ in range(50):
        log_scale = 3.0
        for t in range(2000):
            accepted = rng.random() < math.exp(-math.exp(log_scale))
            log_scale = robbins_monro(log_scale, float(accepted), 0.234, 2.0 * (t + 1) ** -0.6)
        ends.append(log_scale)
    error = np.mean(ends) - math.log(-math.log(0.234))
    assert abs(error) < 4.5 * np.std(ends, ddof=1) / math.sqrt(len(ends)) + 0.01


def test_history_grows_and_is_thinned_evenly():
    past, states = history.empty(2, capacity=4), np.arange(40.0).reshape(20, 2)
    for x in states:
        past = history.append(past, x)
    np.testing.assert_array_equal(history.window(past, 0.0), states)
    np.testing.assert_array_equal(history.window(past, 0.5), states[10:])
    thinned = history.thin(states, 5)
    np.testing.assert_allclose(np.diff(thinned, axis=0), np.full((4, 2), 8.0))
    thinned[:] = -1.0
    assert states.min() == 0.0  # it was a copy
    assert len(history.thin(states, 1000)) == 20


def test_count_distinct_counts_moves_not_draws():
    states = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [0.0]])
    assert history.count_distinct(states) == 3
    assert history.count_distinct(states[:0]) == 0


@pytest.mark.parametrize(("target", "sd"), [(0.234, 0.5), (0.44, 1.0), (0.4, 1.8)])
def test_what_noise_leaves_attainable(target, sd):
    """Against a simulation: the log ratio of a move is N(-v/2, v), and noise of sd s adds N(-s^2, 2 s^2) to it."""
    rng, v = np.random.default_rng(1), 4.0 * ndtri(0.5 * target) ** 2
    standstill = 2.0 * ndtr(-sd / math.sqrt(2.0))
    own = -0.5 * v + math.sqrt(v) * rng.standard_normal(400_000)
    noise = -(sd**2) + math.sqrt(2.0) * sd * rng.standard_normal(400_000)
    for log_ratio, expected in ((own, target), (noise, standstill), (own + noise, attainable(target, sd))):
        p = np.exp(np.minimum(log_ratio, 0.0))
        error = p.std(ddof=1) / math.sqrt(len(p))
        assert abs(p.mean() - expected) < 4.5 * error
    assert abs(p.mean() - target * standstill) > 10 * error  # the control: the two do not simply multiply
    assert attainable(target, sd) < min(target, standstill)
    assert attainable(target, 0.0) == target
