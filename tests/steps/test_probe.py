"""What depends on what inside a black box for all groups: found by evaluating it, and used."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_kameleon.steps.factors import probe
from pymc_kameleon.steps.factors.black_boxes import Unsplittable
from pymc_kameleon.steps.factors.probe import Inputs
from pymc_kameleon.steps.factors.structure import factored_density
from tests.support.hierarchies import BlackBox

QUICK = {"mode": "FAST_COMPILE"}
TIMES = np.arange(1.0, 4.0)


def curves(theta, rate):
    """Three predictions for each of the groups in rows."""
    return theta[:, :1] - rate * theta[:, 1:] * TIMES


ADDED = BlackBox(lambda theta, rate: -np.square(curves(theta, rate)).sum(axis=1), pt.dvector)


def one_op(box, by_hand=False):
    """Four groups; what a matrix predicts is observed, a vector is of log likelihoods."""
    with pm.Model() as model:
        centre, spread = pm.Normal("centre", shape=2), pm.HalfNormal("spread", shape=2)
        if by_hand:
            theta = centre + spread * pm.Normal("z", shape=(4, 2))
        else:
            theta = pm.Normal("theta", centre, spread, shape=(4, 2))
        rate, noise = pm.HalfNormal("rate"), pm.HalfNormal("noise")
        found = box(theta, rate)
        if found.ndim == 1:
            pm.Potential("y", found)
        else:
            pm.Normal("y", found, noise, observed=np.ones(box.function(np.zeros((4, 2)), 1.0).shape))
    return model


@cache
def known_density(by_hand):
    """Of one_op, and the calls that finding it took."""
    box = BlackBox(curves, pt.dmatrix)
    return density(one_op(box, by_hand)), box.calls


def density(model):
    return factored_density(model, model.continuous_value_vars, model.initial_point(), QUICK)


@pytest.mark.parametrize("added", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_op_for_all_groups_is_learned_group_by_group(added):
    if added:
        found, calls = density(one_op(ADDED)), ADDED.calls
    else:
        found, calls = known_density(False)
    layout = found.parts_known.layout
    offset = {v.name: where.start for v, where, _ in found.parts_known.cut.coordinates.layout}
    rate, theta = offset["rate_log__"], offset["theta"]
    wanted = [sorted([theta + 2 * k, theta + 2 * k + 1, rate]) for k in range(4)]
    assert [sorted(f.inputs.coordinates) for f in found.parts_known.parts] == wanted
    assert np.diff(layout.outputs).tolist() == [1 if added else 3] * 4
    assert layout.added.tolist() == [added] * 4
    assert found.parts_known.factors == [f"y[{j}]" for j in ((0, 1, 2, 3) if added else (0, 3, 6, 9))]
    assert calls == found.probes + 1 == 11  # once for the shape


def test_non_centred_by_hand_it_is_learned_in_the_arguments():
    parts = known_density(True)[0].parts_known
    assert np.diff(parts.layout.inputs).tolist() == [3] * 4
    elements = [f.inputs.elements.tolist() for f in parts.parts]
    assert elements == [[2 * k, 2 * k + 1, 8] for k in range(4)]


@pytest.mark.parametrize("by_hand", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_outputs_in_another_order_are_the_same_log_density(by_hand):
    """Groups in columns: a factor's outputs do not lie together; with exact emulators the known part says the rest."""
    box = BlackBox(lambda theta, rate: curves(theta, rate).T, pt.dmatrix)
    straight, turned = known_density(by_hand)[0], density(one_op(box, by_hand))
    assert not np.array_equal(turned.parts_known.order, np.arange(12))
    rng = np.random.default_rng(1)
    for _ in range(3):
        v = 0.5 * rng.standard_normal(turned.dim)
        value = turned(v)
        np.testing.assert_allclose(value, straight(v), rtol=1e-12)
        np.testing.assert_allclose(turned.outputs, straight.outputs, rtol=1e-12)
        np.testing.assert_allclose(turned.by_outputs(v, turned.outputs), value, rtol=1e-10)


def test_what_cannot_be_taken_apart_is_learned_as_a_whole():
    box = BlackBox(lambda x: np.cumsum(x[::-1]) * x.sum(), pt.dvector)
    with pm.Model() as model:
        x = pm.Normal("x", shape=25)
        pm.Normal("y", box(x), 1.0, observed=np.zeros(25))
    assert density(model) is None


def test_products_at_zero_and_noise_of_a_common_solver_are_seen_through():
    def outputs(x):
        return np.array([x[0] * x[1], x[2] + 1e-10 * np.sin(1e3 * x.sum()), 3.0])

    found, count = probe.dependences(outputs, np.zeros(3), np.ones(3), np.arange(3))
    assert found.T.tolist() == [[True, True, False], [False, False, True], [False, False, False]]
    assert count == 4


def test_where_nothing_is_finite():
    with pytest.raises(Unsplittable, match="no finite"):
        probe.dependences(lambda x: np.full(2, np.nan), np.zeros(2), np.ones(2), np.arange(2))


def test_a_total_beside_groups_stays_apart_and_near_ones_go_together():
    depends = np.zeros((8, 6), dtype=bool)
    for j in range(4):
        depends[[2 * j, 2 * j + 1], j] = True
    depends[:, 4] = True  # a total
    depends[0, 5] = True  # of the first group's alone
    whole = probe.Factor(0, Inputs(np.arange(8), None, False), np.arange(6), "y")
    factors = probe.divide(whole, depends, np.eye(8, dtype=bool))
    assert [f.outputs.tolist() for f in factors] == [[0, 5], [1], [2], [3], [4]]
    assert [f.name for f in factors] == ["y[0]", "y[1]", "y[2]", "y[3]", "y[4]"]


def test_one_call_that_several_factors_share_is_one_black_box():
    """PyMC copies it for each of them."""
    box = BlackBox(lambda theta: curves(theta, 1.0), pt.dmatrix)
    with pm.Model() as model:
        theta = pm.Normal("theta", pm.Normal("centre", shape=2), 1.0, shape=(4, 2))
        found = box(theta)
        for k in range(4):
            pm.Normal(f"y{k}", found[k], 1.0, observed=np.ones(3))
    parts = density(model).parts_known
    assert np.diff(parts.layout.outputs).tolist() == [3] * 4
    assert parts.layout.widest == 2
