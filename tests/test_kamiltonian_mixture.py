"""KamiltonianStep, the paper's estimators: the frozen, residual-dependent mixture is exact whatever
the surrogate, with and without noise.
"""

import math

import numpy as np
import pytest

from pymc_kameleon import kamiltonian, random_features, residual_mixture
from pymc_kameleon.metropolis import Outcome, accept
from tests.statistics import two_sample_z
from tests.test_kamiltonian import draw, each_family, lite_or_slow, log_density, mediocre

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
    return surrogate._replace(
        centres=centres, coefficients=np.append(surrogate.coefficients, -depth)
    )


EACH_WRONG = [too_steep, too_narrow, with_hole]


def mixed(family, wrong, floor=0.15, slack=0.5):
    """A frozen state with a wrong surrogate, its shares about the median residual of exact draws."""
    state = mediocre(family, random_walk_share=floor)
    surrogate = wrong(state.fitted.surrogate)
    state = state._replace(fitted=state.fitted._replace(surrogate=surrogate))
    residuals = [
        log_density(x) - kamiltonian.start(state, x, 0.0).current.value
        for x in draw(np.random.default_rng(20), 500)
    ]
    typical = float(np.median(residuals))
    return state._replace(mixture=residual_mixture.Mixture(floor, typical, slack))


# --- invariance -----------------------------------------------------------------------------------


def apply_kernel(state, n=3000, steps=5, noise=0.0, ratio=kamiltonian.log_ratio, change=None):
    """Exact draws of the extended target in, ``steps`` transitions each; starts and ends, (n, 3).

    The third column is the noise in the retained log density: its law must be invariant too.
    """
    rng = np.random.default_rng(21)
    # under the extended target the retained noise is tilted: N(s^2 / 2, s^2), not N(-s^2 / 2, s^2)
    retained = noise * rng.standard_normal(n) + 0.5 * noise**2
    starts = np.column_stack([draw(rng, n), retained])
    ends = np.empty_like(starts)
    for i, begin in enumerate(starts):
        x, y = begin[:2], log_density(begin[:2]) + begin[2]
        own = kamiltonian.start(state, x, y)
        for _ in range(steps):
            proposal = kamiltonian.propose(rng, x, own)
            new = y
            if proposal.position is not x:
                new = log_density(proposal.position) + noise * rng.standard_normal()
                new -= 0.5 * noise**2
            probability, accepted = accept(rng, y, new, ratio(own, x, y, proposal, new))
            if accepted:
                x, y = proposal.position, new
                own = kamiltonian.keep(own, Outcome(x, y, proposal, new, probability, accepted))
            if change is not None:
                own = kamiltonian.start(change(own, x), x, y)
        ends[i] = [*x, y - log_density(x)]
    return starts, ends


def largest_z(starts, ends, state):
    """Largest z-score over means, second moments, tails, and the neighbourhood of the hole."""
    if starts[:, 2].std() == 0.0:
        starts, ends = starts[:, :2], ends[:, :2]
    centre = state.centre + state.factor @ HOLE
    near = [np.square(p[:, :2] - centre).sum(axis=1) < 0.3 for p in (ends, starts)]
    change = near[0].astype(float) - near[1]
    z = change.mean() / (change.std(ddof=1) / math.sqrt(len(change)))
    return np.abs([*two_sample_z(ends, starts), z]).max()


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("wrong", EACH_WRONG)
@each_family
def test_the_frozen_mixture_leaves_the_target_invariant(family, wrong, noise):
    state = mixed(family, wrong)
    starts, ends = apply_kernel(state, noise=noise)
    assert np.mean((starts != ends).any(axis=1)) > 0.5, "nothing moves: the test would be empty"
    shares = [
        kamiltonian.start(state, x[:2], log_density(x[:2]) + x[2]).trust for x in starts[:500]
    ]
    assert np.mean(np.array(shares) < 0.5) > 0.05, "the shares hardly vary: the test would be empty"
    assert largest_z(starts, ends, state) < 4.5


def without_share(state, x, y, proposal, new):
    return proposal.log_q_ratio


def share_at_one_end(state, x, y, proposal, new):
    """t(x', y') alone: the residual-dependent choice, but not its reversal."""
    return kamiltonian.log_ratio(state._replace(trust=1.0), x, y, proposal, new)


@pytest.mark.parametrize("ratio", [without_share, share_at_one_end])
@pytest.mark.parametrize(
    "noise",
    [0.0, pytest.param(1.0, marks=pytest.mark.slow)],
)
@lite_or_slow
def test_control_a_wrong_share_is_noticed(family, noise, ratio):
    state = mixed(family, with_hole)
    n = 6000 if noise == 0.0 else 9000
    starts, ends = apply_kernel(state, n=n, steps=6, noise=noise, ratio=ratio)
    assert largest_z(starts, ends, state) > 10


def recentred(state, x):
    """What goes on learning after tuning does: the surrogate follows the chain."""
    return state._replace(centre=0.5 * state.centre + 0.5 * x)


def test_control_a_surrogate_that_goes_on_adapting_is_noticed():
    state = mixed("lite", too_steep)
    assert largest_z(*apply_kernel(state, n=6000, steps=6, change=recentred), state) > 10
