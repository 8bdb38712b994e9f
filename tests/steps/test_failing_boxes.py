"""Black boxes that fail in part of the space: where they do is learned, and the step's moves keep out of it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.samplers.kamiltonian.factors import learning
from pymc_kameleon.surrogates import walls
from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.layout import Layout

calls = []  # of the box since the last draw: whether each failed
INSTEAD = np.nan


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def unstable(p):
    """Predictions, and ``INSTEAD`` of them where p0 + p1 > 1: through the bulk of the posterior."""
    t = np.linspace(0.0, 1.0, 20)
    calls.append(p[0] + p[1] >= 1.0)
    return np.full(20, INSTEAD) if calls[-1] else p[0] + p[1] * t + p[2] * t**2


def failing():
    """The share of a run's evaluations after tuning where the box fails."""
    found = []

    def after(trace, draw):
        found.extend([] if draw.tuning else calls)
        calls.clear()

    t = np.linspace(0.0, 1.0, 20)
    y = 0.5 + 0.45 * t + 0.3 * np.random.default_rng(1).standard_normal(20)
    with pm.Model():
        p = pm.Normal("p", 0.0, 2.0, shape=3)
        pm.Normal("y", unstable(p), pm.HalfNormal("sigma", 1.0), observed=y)
        idata = pm.sample(
            200, tune=500, chains=2, cores=1, step=pk.KamiltonianStep(), random_seed=1, progressbar=False,
            compute_convergence_checks=False, callback=after,
        )  # fmt: skip
    assert float(idata["posterior"]["p"].values[..., :2].sum(axis=-1).max()) < 1.0
    assert len(found) > 300
    return np.mean(found)


@pytest.mark.parametrize("instead", [np.nan, 1e10, -999.0])
def test_draws_keep_out_of_where_a_box_fails(instead, monkeypatch):
    monkeypatch.setitem(globals(), "INSTEAD", instead)
    assert failing() < 0.2


def test_predictions_of_another_order_are_not_learned():
    rng, layout = np.random.default_rng(1), Layout(np.array([0, 2]), np.array([0, 3]), np.array([False]))
    w = rng.standard_normal((200, 2))
    o, failed = np.column_stack([w[:, 0] + w[:, 1], w[:, 0] ** 2, np.ones(200)]), np.arange(200) % 5 == 4
    heights = -0.5 * np.square(w).sum(axis=1)

    def emulator(o, heights, rows=slice(None)):
        sample = regression.Sample(w[rows], o[rows], heights[rows])
        return regression.fit(np.random.default_rng(2), layout, sample, None, w[0], np.ones(3)).emulator

    without = emulator(o, heights, ~failed)
    o[failed], heights[failed] = 1e10, -1e20
    assert np.array_equal(emulator(o, heights).coefficients, without.coefficients)
    o[failed] = 50.0  # of this order
    assert not np.array_equal(emulator(o, heights).coefficients, without.coefficients)


@pytest.mark.slow
def test_the_control_does_not(monkeypatch):
    monkeypatch.setattr(learning, "_walled", lambda known, surface, *_: walls.unbounded(len(surface.metric)))
    assert failing() > 0.3
