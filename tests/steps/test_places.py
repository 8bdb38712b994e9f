"""Where something is, as a user may give it back."""

import numpy as np
import pymc as pm

from pymc_kameleon.steps.told.places import place


def test_it_is_in_the_models_own_variables():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        pm.Beta("share", 2, 2, shape=2)
        pm.Normal("x", 0.0, rate)
        top = pm.Uniform("top", 0.0, rate)
    point = {"rate_log__": np.array(-20.0), "share_logodds__": np.zeros(2), "x": np.array(12345.678)}
    inside = point | {"top_interval__": np.array(0.0)}
    assert place(model, inside) == "rate = 2.0611536e-09, share = [0.5, 0.5], x = 12345.678, top = 1.0305768e-09"
    values = {top.name: float(place(model, inside).split("= ")[-1])}  # of initvals
    assert 0.0 < values["top"] < 2.0611536e-09
    # of a step of some of the variables, ends that other steps move are not known
    own = {"top_interval__": np.array(0.0), "x": np.array(1.0)}
    assert place(model, own) == "top_interval__ = 0.0, x = 1.0 (unconstrained)"
    assert place(model, {"x": np.array(1.0)}) == "x = 1.0"
