"""Samplers with a local covariance, as if they had learned it."""

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from tests.support.chains import held


def learned(kind, z, *, seed=0, freeze=True, **options):
    """A state as if the history had been ``z`` (n, d), with local moves only unless told otherwise."""
    options = {"global_share": 0.0, "local_start": 0, **options}
    walk = held(AdaptiveMetropolis, z[0], scale=0.5)
    past = history.empty(z.shape[1])
    for x in z:
        past = history.append(past, x)
    walk = walk.state._replace(history=past, iteration=len(z), warmup=0)
    state = held(kind, z[0], **options)._replace(walk=walk).relearn(np.random.default_rng(seed))
    assert state.model is not None
    return state.freeze() if freeze else state


def with_scales(state, rng):
    """PCA-Kameleon with a scale of its own for each direction: equal ones, mixed up, would not be noticed."""
    log_scales = state.model.log_scales + 0.5 * rng.standard_normal(len(state.model.weights))
    return state._replace(model=state.model._replace(log_scales=log_scales))
