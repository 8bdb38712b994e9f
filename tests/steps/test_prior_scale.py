"""The prior is drawn from without asking a black box."""

import math

import numpy as np
import pymc as pm
from pymc.distributions.transforms import circular

from pymc_kameleon.steps.prior_scale import angles, finite_ends, look_at_prior
from tests.support.hierarchies import BlackBox


def test_imputed_data_behind_a_black_box_do_not_ask_it():
    """Nor do they take the others' scales away."""
    asked = []
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1e4)
        pm.LogNormal("b", 0.0, 3.0)
        pm.Normal("missing", BlackBox(asked.append)(a), 1.0, shape=2)
    point = {"a": np.array(0.0), "b_log__": np.array(0.0), "missing": np.zeros(2)}
    prior = look_at_prior(model, model.continuous_value_vars, point)
    assert not asked
    assert 4e3 < prior.scale[0] < 1e4
    assert 1.0 < prior.scale[1] < 3.5
    np.testing.assert_array_equal(prior.scale[2:], 1.0)
    assert np.isfinite(prior.draws[:, :2]).all()
    assert np.isnan(prior.draws[:, 2:]).all()


def test_hierarchies_of_any_depth_are_drawn_from():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1e3)
        middle = pm.Normal("middle", mean, 1.0)
        pm.Normal("low", middle, 1.0, shape=2)
    prior = look_at_prior(model, model.continuous_value_vars, model.initial_point())
    assert np.isfinite(prior.draws).all()
    assert (prior.scale > 300.0).all()


def test_where_priors_end_is_known_as_far_as_it_is_constant():
    with pm.Model() as model:
        width = pm.Uniform("width", 0.0, np.array([1.0, 30.0]))
        pm.Uniform("within", 0.0, width[0])
        pm.TruncatedNormal("truncated", 0.0, 1.0, lower=1.5)
        pm.Truncated("cut", pm.Normal.dist(), lower=-3, upper=4)
        pm.HalfNormal("scale")
        pm.Normal("free")
    assert finite_ends(model) == [-3.0, 0.0, 1.0, 1.5, 4.0, 30.0]


def test_angles_are_known_by_their_transform():
    with pm.Model() as model:
        pm.Normal("before", shape=(2, 2))
        pm.VonMises("direction", 0.0, 1.0, shape=3)
        pm.HalfNormal("scale")
        pm.Uniform("phase", -np.pi, np.pi, default_transform=None, transform=circular)
    shapes = {v.name: rv.type.shape for rv, v in model.rvs_to_values.items()}
    assert angles(model, model.value_vars, shapes).tolist() == [4, 5, 6, 8]
    assert angles(model, model.value_vars[:1], shapes).tolist() == []
    assert finite_ends(model) == [-math.pi, math.pi]
