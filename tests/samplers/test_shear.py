"""Straightened coordinates: the map, what is learned, exactness, use."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from pymc_kameleon.samplers.autoregressive import Tuning
from pymc_kameleon.samplers.kameleon import shear
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.seam import Outcome, Sampler
from tests.support.chains import Dropped, Held, change, tuned
from tests.support.targets import Banana


def ridge(rng, n, d=3):
    """Draws: the first two coordinates on a curve, in odd units, the others normal."""
    x = rng.standard_normal((n, d))
    x[:, 1] = 0.7 * x[:, 0] ** 2 - 0.2 * x[:, 0] ** 3 + 0.3 * x[:, 1]
    return x * 10.0 ** np.arange(-2, d - 2) + 5.0


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_map_is_one_to_one_with_a_constant_jacobian(d):
    rng = np.random.default_rng(d)
    found = shear.learn(ridge(rng, 1500, d), None)
    assert found.sinks[0] == 1
    for x in ridge(rng, 20, d):
        r = shear.straighten(x, *found[:5])
        np.testing.assert_allclose(shear.bend(r, *found[:5]), x, rtol=1e-10, atol=1e-12)
        jacobian = approx_fprime(r, lambda r: (shear.bend(r, *found[:5]) - found.centre) / found.scale, 1e-7)
        assert np.linalg.det(jacobian) == pytest.approx(1.0, rel=1e-5)


def test_a_sink_may_be_explained_by_a_sink_after_it():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2000, 4))
    x[:, 1] = x[:, 0] ** 2 + 0.2 * x[:, 1]
    x[:, 2] = np.sin(x[:, 1]) + 0.2 * x[:, 2]
    found = shear.learn(x, None)
    assert sorted(found.sinks) == [1, 2]
    r = np.array([shear.straighten(p, *found[:5]) for p in x])
    spread = r.std(axis=0) * found.scale
    assert 0.1 < spread[1] < 0.23 < x[:, 1].std() / 5
    assert 0.1 < spread[2] < 0.7 * x[:, 2].std()
    back = np.array([shear.bend(p, *found[:5]) for p in r])
    np.testing.assert_allclose(back, x, rtol=1e-9, atol=1e-9)


def test_straight_histories_have_none():
    rng = np.random.default_rng(2)
    factor = rng.standard_normal((5, 5))
    assert shear.learn(rng.standard_normal((2000, 5)) @ factor.T, None) is None
    assert shear.learn(rng.standard_normal((2000, 1)), None) is None
    assert shear.learn(np.ones((2000, 3)), None) is None
    assert shear.learn(ridge(rng, 2000)[:12], None) is None  # too few to tell
    assert shear.learn(ridge(rng, 2000), None) is not None


def test_scales_go_on():
    rng = np.random.default_rng(3)
    x = ridge(rng, 1000)
    first = shear.learn(x, None)
    for move, name in (("sheared", "log_scale"), ("bent_towards", "autoregression")):
        proposal = next(p for p in iter(lambda: shear.propose(rng, x[0], first), None) if p.move == move)
        refused = Outcome(x[0], 0.0, proposal, -np.inf, 0.0, False)
        later = shear.adapt(first, refused, 0.234)
        changed = [f for f in ("log_scale", "autoregression") if getattr(later, f) != getattr(first, f)]
        assert changed == [name]
        assert getattr(shear.learn(x, later), name) == getattr(later, name)


# --- exactness -----------------------------------------------------------------------------------

TARGET = Banana(3)


class Sheared(Sampler):
    def propose(self, rng, x, state):
        return shear.propose(rng, x, state)


class AnotherWayBack:
    """Negative control: bent by less than was straightened, so that a step in r is not symmetric in x."""

    @staticmethod
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        r = shear.straighten(proposal.position, *state.state[:5])
        other = state._replace(coefficients=0.9 * state.coefficients).state
        return proposal._replace(position=shear.bend(r, *other[:5]))


@pytest.mark.parametrize("control", [None, AnotherWayBack, pytest.param(Dropped, marks=pytest.mark.slow)])
def test_invariance(control):
    """Learned from another target: a curve that is there, and is another one."""
    draws = TARGET.draw(np.random.default_rng(5), 1500)
    draws[:, 1] += 0.5 * draws[:, 0] + 0.1 * draws[:, 0] ** 2
    mediocre = shear.learn(draws, None)._replace(log_scale=-0.5, autoregression=Tuning(-0.4, 0))
    z = change(Held(Sheared(), mediocre), TARGET, 4500, 6, control)
    assert z > 10 if control else z < 4.5


# --- use -----------------------------------------------------------------------------------------


def fast(log_density, **options):
    return tuned(FastKameleon(tune=600, **options), log_density, np.zeros(3), 600, seed=7)


def test_fast_kameleon_makes_them_where_the_history_is_curved_and_only_there():
    def made(chain):
        return set(shear.MOVES) & set(chain.moves)

    assert made(fast(TARGET.log_density)) == set(shear.MOVES)
    assert not made(fast(TARGET.log_density, sheared_share=0.0))
    assert not made(fast(TARGET.log_density, **{**FastKameleon.presets["paper"], "local_start": 200}))
    assert not made(fast(lambda x: -0.5 * float(x @ x)))


def test_they_begin_before_the_local_moves():
    state = fast(TARGET.log_density, local_start=700).held
    assert state.model is None
    assert state.shear is not None
    assert state.freeze().shear is state.shear
