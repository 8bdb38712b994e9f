"""Moves along rays: exact by their Jacobian, and made where tails are heavy only."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.kamiltonian.values import rays
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.seam import acceptance_probability
from tests.support import runs
from tests.support.chains import two_sample_z

CENTRE = np.array([0.3, -0.5, 1.0])  # not the target's


def t(df):
    return lambda x: -0.5 * (df + len(x)) * math.log1p(float(x @ x) / df)


def t_draws(rng, df, n, d):
    return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(df, (n, 1)) / df)


def largest_z(log_q_ratio, n=4000, steps=4):
    """Exact draws of a t with 7 degrees of freedom, ``steps`` moves each: largest z-score of what they change."""
    rng, log_density = np.random.default_rng(3), t(7.0)
    starts = t_draws(rng, 7.0, n, 3)
    ends = starts.copy()
    for i, x in enumerate(starts):
        for _ in range(steps):
            proposal = rays.propose(rng, x, CENTRE)
            ratio = log_q_ratio(proposal, int((proposal.position != x).sum()))
            if rng.random() < acceptance_probability(log_density(x), log_density(proposal.position), ratio):
                x = proposal.position
        ends[i] = x
    assert (starts != ends).any(axis=1).mean() > 0.7
    return np.abs(two_sample_z(np.arctan(ends), np.arctan(starts))).max()


def test_moves_along_rays_leave_the_target_invariant():
    assert largest_z(lambda proposal, k: proposal.log_q_ratio) < 4.5


@pytest.mark.parametrize("jacobian", [lambda k: 0.0, lambda k: 3 / k], ids=["without", "of three coordinates for one"])
def test_control_a_wrong_jacobian_is_noticed(jacobian):
    assert largest_z(lambda proposal, k: jacobian(k) * proposal.log_q_ratio) > 10


@pytest.mark.parametrize("d", [1, 3, 20])
def test_only_heavy_tails_ask_for_them(d):
    rng = np.random.default_rng(1)
    heavy = [t_draws(rng, df, 1000, d) for df in (1.2, 2.0)]
    light = [rng.standard_normal((1000, d)), np.ones((1000, d))]
    assert [rays.share(np.linalg.norm(x, axis=1)) for x in heavy + light] == [rays.SHARE, rays.SHARE, 0.0, 0.0]


@pytest.mark.parametrize(("df", "expected"), [(1.2, rays.SHARE), pytest.param(50.0, 0.0, marks=pytest.mark.slow)])
def test_a_frozen_chain_makes_them_where_tails_are_heavy(df, expected):
    rng, sampler, log_density = np.random.default_rng(1), ValueKamiltonian(tune=800), t(df)
    made = runs.run(rng, sampler, log_density, np.ones(2), tune=800, n=1)
    assert made.state.mixture.rays == expected
    state = made.state._replace(share=0.0)  # the walk's turn
    moves = [sampler.propose(rng, made.draws[-1], state).move for _ in range(100)]
    assert np.mean([move == "ray" for move in moves]) == pytest.approx(expected, abs=0.2)
