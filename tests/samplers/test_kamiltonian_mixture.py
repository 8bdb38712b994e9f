"""KamiltonianStep, the paper's estimators: the frozen, residual-dependent mixture is exact whatever the surrogate, with
and without noise."""

import math
from functools import partial

import numpy as np
import pytest

from pymc_kameleon.numerics import history, random_features
from pymc_kameleon.samplers.kamiltonian import trust as residual_mixture
from pymc_kameleon.samplers.kamiltonian.learner import Quality
from pymc_kameleon.samplers.kamiltonian.scores import handover as kamiltonian_handover
from tests.samplers.test_kamiltonian import draw, each_family, lite_or_slow, log_density, mediocre, run, with_evidence
from tests.samplers.test_value_kamiltonian import share_at_one_end, without_share
from tests.support.chains import largest_change, scored, through

# --- surrogates that are badly wrong --------------------------------------------------------------

HOLE = np.array([0.3, -0.3])  # in the bulk, in learned coordinates


def too_steep(surrogate):
    """Wrong by several nats."""
    return surrogate._replace(coefficients=3.0 * surrogate.coefficients)


def too_narrow(surrogate):
    """Wrong lengthscale."""
    if hasattr(surrogate, "features"):
        features = surrogate.features
        features = features._replace(frequencies=2.5 * features.frequencies)
        return surrogate._replace(features=features)
    return surrogate._replace(lengthscale=0.4 * surrogate.lengthscale)


def with_hole(surrogate, depth=12.0):
    """As if nothing could be at ``HOLE``."""
    if hasattr(surrogate, "features"):
        bump = random_features.features(HOLE[None], surrogate.features)[0]
        return surrogate._replace(coefficients=surrogate.coefficients - depth * bump)
    centres = np.vstack([surrogate.centres, HOLE])
    return surrogate._replace(centres=centres, coefficients=np.append(surrogate.coefficients, -depth))


def mixed(family, wrong, floor=0.15, slack=0.5):
    """A frozen state with a wrong surrogate, its shares about the median residual of exact draws."""
    state = mediocre(family, random_walk_share=floor)
    surrogate = wrong(state.fitted.surrogate)
    state = state._replace(fitted=state.fitted._replace(surrogate=surrogate))
    residuals = [log_density(x) - state.start(x, 0.0).current.value for x in draw(np.random.default_rng(20), 500)]
    typical = float(np.median(residuals))
    return state._replace(mixture=residual_mixture.Mixture(floor, typical, slack))


# --- invariance -----------------------------------------------------------------------------------


apply_kernel = partial(through, log_density=log_density, draw=draw, steps=5, seed=21)


def largest_z(starts, ends, state):
    """Largest z-score over means, second moments, tails, and the neighbourhood of the hole."""
    centre = state.centre + state.factor @ HOLE
    near = [lambda x: np.square(x[:, :2] - centre).sum(axis=1) < 0.3]
    return largest_change(starts, ends, near)


@pytest.mark.parametrize("wrong", [pytest.param(too_steep, marks=pytest.mark.slow), too_narrow, with_hole])
@lite_or_slow
def test_the_frozen_mixture_leaves_the_target_invariant(family, wrong):
    state = mixed(family, wrong)
    starts, ends = apply_kernel(state, noise=1.0)  # without noise the same lines run
    assert np.mean((starts != ends).any(axis=1)) > 0.5, "nothing moves: the test would be empty"
    shares = [state.start(x[:2], log_density(x[:2]) + x[2]).share for x in starts[:500]]
    assert np.mean(np.array(shares) < 0.5) > 0.05, "the shares hardly vary: the test would be empty"
    assert largest_z(starts, ends, state) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [without_share, share_at_one_end])
@each_family
def test_control_a_wrong_share_is_noticed(family, ratio):
    state = mixed(family, with_hole)
    starts, ends = apply_kernel(state, n=6000, steps=6, ratio=ratio)
    assert largest_z(starts, ends, state) > 10


# --- what the shares are fixed to when tuning ends ------------------------------------------------


def residuals(spread, uncovered, n=1000):
    """Normal about 7, a share of them far above."""
    values = 7.0 + spread * np.random.default_rng(22).standard_normal(n)
    values[: int(uncovered * n)] += 10.0
    return values


@pytest.mark.parametrize(
    ("past", "least"),
    [
        (residuals(0.3, 0.0), 0.2),  # good: nothing more
        (residuals(0.8, 0.01), 0.25),
        (residuals(0.3, 0.03), 0.35),
        (residuals(0.3, 0.08), 0.5),
        (residuals(0.3, 0.2), 0.75),
        (residuals(0.3, 0.2)[:19], 0.2),  # too few to say
        (np.full(1000, -math.inf), 0.2),
    ],
)
def test_least_share_follows_the_residuals(past, least):
    quality = kamiltonian_handover.judge(np.random.default_rng(0).permutation(past))
    assert kamiltonian_handover.least_share(quality, 0.2) == least
    assert kamiltonian_handover.least_share(quality, 0.8) == 0.8


def test_residuals_raise_the_share_whatever_the_jumps():
    bad = residuals(0.3, 0.2)
    state = with_evidence(ratio=100.0)
    state = state._replace(residuals=history.History(bad[:, None], len(bad)))
    assert state.hand_over().walk_share == 0.75
    for option, share in (({"mixture": "constant"}, 0.2), ({"random_walk_share": 0.0}, 0.01)):
        own = state.opted(**option)
        assert own.hand_over().walk_share == share
        assert own.freeze().mixture is None


def test_judge():
    past = residuals(0.7, 0.05, 4000)
    quality = kamiltonian_handover.judge(np.append(past, -math.inf))
    np.testing.assert_allclose(quality.typical, np.median(past))
    np.testing.assert_allclose(quality.uncovered, 0.05, rtol=0.05)
    spread = kamiltonian_handover.judge(residuals(0.7, 0.0, 4000)).residual_sd
    np.testing.assert_allclose(spread, 0.7, rtol=0.1)


def test_what_the_mixture_is_fixed_to():
    """Its slack follows the spread, no further than trust; shares are constant without a walk or without evidence."""

    def fixed(spread, share):
        return kamiltonian_handover.frozen_mixture(spread and Quality(spread, 0.0, typical=7.0), share)

    assert [fixed(spread, 0.2) for spread in (0.1, 1.0, 50.0)] == [(0.2, 7.0, s, 0.0) for s in (0.6, 1.5, 3.5)]
    assert fixed(1.0, 0.0) is fixed(1.0, 1.0) is fixed(None, 0.2) is None


@pytest.mark.parametrize(
    ("options", "mixes"), [({}, True), ({"mixture": "constant"}, False), ({"random_walk_share": 0.0}, False)]
)
@each_family
def test_mixture_is_made_of_what_tuning_saw(family, options, mixes):
    """From a given history: with residuals to judge by, unless told otherwise or without a walk."""
    rng = np.random.default_rng(23)
    past = draw(rng, 60)
    given = {"n_features": 60, "lengthscale": 1.0, "regularization": 1e-3}
    state = scored(past[0], history=past, rng=rng, surrogate=family, **given, **options)
    share = state.walk_share
    tuned, _ = run(rng, state, past[0], 200)
    assert tuned.residuals.size == 200
    frozen = tuned.freeze()
    assert (frozen.mixture is not None) == mixes
    if not mixes:
        assert frozen.walk_share == share
        return
    assert frozen.mixture.floor == frozen.walk_share == share
    _, outcomes = run(rng, frozen, past[0], 200, adapt=False)
    assert {o.proposal.move for o in outcomes} == {"random_walk", "hamiltonian"}
