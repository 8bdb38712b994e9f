"""KamiltonianStep(surrogate="values"): the frozen kernel is exact whatever the surrogate; tuning finds a good one."""

import math
import pickle

import numpy as np
import pytest

from pymc_kameleon import (
    adaptive_metropolis,
    residual_mixture,
    surrogate_dynamics,
    value_features,
    value_kamiltonian,
)
from pymc_kameleon.kamiltonian_state import Quality
from pymc_kameleon.metropolis import Outcome, accept
from pymc_kameleon.surrogate_dynamics import Arm
from pymc_kameleon.value_features import GAUSSIAN, NONE
from tests.statistics import two_sample_z

# --- a skewed target with exact draws, and surrogates that are badly wrong about it -------------------------------------


def skewed(x):
    """log Gamma(2) in x0 (long left tail), normal about 0.5 x0^2 in x1."""
    return 2.0 * x[0] - math.exp(x[0]) - 2.0 * (x[1] - 0.5 * x[0] ** 2) ** 2


def draw_skewed(rng, n):
    x0 = np.log(rng.standard_gamma(2.0, n))
    return np.column_stack([x0, 0.5 * x0**2 + 0.5 * rng.standard_normal(n)])


def bad_surrogate(depth=50.0, shift=4.0, inverse_variance=0.4):
    """Too wide, 4 nats off, a bump of 3 nats, a hole of 50 in the bulk."""
    blank = value_features.blank(np.array([0.4, 0.5]), np.array([0.8, 0.7]), np.eye(2))
    return blank._replace(
        constant=shift,
        quadratic=-inverse_variance * np.eye(2),
        linear=np.array([0.3, -0.2]),
        kind=GAUSSIAN,
        centres=np.array([[0.2, -0.4], [-1.0, 0.6], [1.0, 1.0]]),
        phases=np.zeros(3),
        weights=np.array([3.0, -2.0, -depth]),
        lengthscale=0.5,
    )


def frozen_state(surrogate, arms, floor=0.15, typical=-4.0, slack=0.5, radius=2.2, ceiling=6.5):
    """A frozen state around ``surrogate``; D leaves out parts of the target on purpose."""
    d = len(surrogate.centre)
    rng = np.random.default_rng(7)
    metric = np.array([[1.1, 0.0], [0.4, 0.8]])
    archive = rng.standard_normal((60, d)) + surrogate.centre
    dynamics = surrogate_dynamics.make_dynamics(surrogate, metric, archive, 0.45)
    state = value_kamiltonian.init(np.zeros(d))
    return state._replace(
        walk=adaptive_metropolis.freeze(adaptive_metropolis.init(np.zeros(d), covariance="identity")),
        dynamics=dynamics._replace(radius=radius, ceiling=ceiling),
        arms=np.array([floor, *arms]),
        mixture=residual_mixture.Mixture(floor, typical, slack),
        quality=Quality(0.0, 0.0, 0, 0),
        learning=None,
    )


def transition(rng, state, x, y, log_density, ratio=value_kamiltonian.log_ratio):
    """One draw as the step makes it; ``ratio`` can be replaced by a wrong one."""
    proposal = value_kamiltonian.propose(rng, x, state)
    known = proposal.log_density
    new = log_density(proposal.position) if known is None else known
    probability, accepted = accept(rng, y, new, ratio(state, x, y, proposal, new))
    if accepted:
        x, y = proposal.position, new
    outcome = Outcome(x, y, proposal, new, probability, accepted)
    if accepted:
        state = value_kamiltonian.keep(state, outcome)
    return state, x, y, outcome


def apply_kernel(state, n=4000, steps=6, noise=0.0, seed=1, **controls):
    """Exact draws of the (extended) target, ``steps`` transitions each: starts and ends, (n, 2)."""
    rng = np.random.default_rng(seed)
    starts = draw_skewed(rng, n)
    ends = np.empty_like(starts)
    change = controls.pop("change", None)

    def log_density(x):
        return skewed(x) + noise * rng.standard_normal() - 0.5 * noise**2

    for i, x in enumerate(starts):
        # under the extended target the retained noise is tilted: N(s^2 / 2, s^2), not N(-s^2 / 2, s^2)
        y = skewed(x) + noise * rng.standard_normal() + 0.5 * noise**2
        own = value_kamiltonian.start(state, x, y)
        for _ in range(steps):
            own, x, y, _ = transition(rng, own, x, y, log_density, **controls)
            if change is not None:
                own = value_kamiltonian.start(change(own, x), x, y)
        ends[i] = x
    return starts, ends


def largest_z(starts, ends):
    """Largest z-score over means, second moments and a few regions, the hole and the edge of D among them."""
    z = two_sample_z(ends, starts)
    hole = np.array([0.4, 0.5]) + np.array([0.8, 0.7])
    regions = [
        lambda x: np.square(x - hole).sum(axis=1) < 0.3,
        lambda x: x[:, 0] < -0.7,
        lambda x: x[:, 1] > 1.2,
        lambda x: np.square(x - np.array([0.4, 0.5])).sum(axis=1) < 0.3,
    ]
    changes = [r(ends).astype(float) - r(starts) for r in regions]
    z = [*z, *(c.mean() / (c.std(ddof=1) / math.sqrt(len(c))) for c in changes)]
    return np.abs(z).max()


EVERY_ARM = (0.2, 0.2, 0.2, 0.25)


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize(
    ("name", "surrogate", "options"),
    [
        ("hole", bad_surrogate(), {}),
        ("hole, no slack", bad_surrogate(), {"slack": 0.0}),
        ("too narrow", bad_surrogate(depth=2.0, inverse_variance=4.0), {"typical": -2.0}),
        ("small D", bad_surrogate(depth=1.0), {"radius": 1.2, "ceiling": 4.5}),
    ],
)
def test_the_frozen_kernel_leaves_the_target_invariant(name, surrogate, options, noise):
    starts, ends = apply_kernel(frozen_state(surrogate, EVERY_ARM, **options), noise=noise)
    assert np.mean((starts != ends).any(axis=1)) > 0.5, "nothing moves: the test would be empty"
    assert largest_z(starts, ends) < 4.5


def without_share(state, x, y, proposal, new):
    return proposal.log_q_ratio


def share_at_one_end(state, x, y, proposal, new):
    """t(x') taken for t(x, y): the residual-dependent choice, but not its reversal."""
    return value_kamiltonian.log_ratio(state._replace(share=1.0), x, y, proposal, new)


def fresh_share(state, x, y, proposal, new):
    """The share at x from the noiseless log density instead of the retained estimate."""
    current = state.current._replace(log_density=skewed(x))
    dynamics = state.dynamics
    share = residual_mixture.share(state.mixture, dynamics.radius, dynamics.ceiling, current)
    return value_kamiltonian.log_ratio(state._replace(share=max(share, 1e-300)), x, y, proposal, new)


@pytest.mark.parametrize(
    ("ratio", "noise"),
    [(without_share, 0.0), (without_share, 1.0), (share_at_one_end, 0.0), (fresh_share, 1.0)],
)
def test_control_a_wrong_share_is_noticed(ratio, noise):
    state = frozen_state(bad_surrogate(), EVERY_ARM)
    assert largest_z(*apply_kernel(state, noise=noise, ratio=ratio)) > 10
