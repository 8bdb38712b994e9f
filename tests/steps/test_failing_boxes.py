"""Black boxes that fail in part of the space: where they do is learned, and the step's moves keep out of it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.numerics.evaluations import table
from pymc_kameleon.samplers.kamiltonian.factors import learning
from pymc_kameleon.samplers.kamiltonian.factors.surface import Spot, Surface, enter, leave
from pymc_kameleon.surrogates import walls
from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.emulator import emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from tests.step_tester import sample

pytestmark = pytest.mark.whole

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
    with pm.Model() as model:
        p = pm.Normal("p", 0.0, 2.0, shape=3)
        pm.Normal("y", unstable(p), pm.HalfNormal("sigma", 1.0), observed=y)
        idata = sample(pk.KamiltonianStep(), model, draws=200, tune=500, random_seed=1, callback=after)
    assert float(idata["posterior"]["p"].values[..., :2].sum(axis=-1).max()) < 1.0
    assert len(found) > 300
    return np.mean(found)


@pytest.mark.parametrize("instead", [np.nan, 1e10, pytest.param(-999.0, marks=pytest.mark.slow)])
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


def test_far_away_the_neighbourhood_is_learned_and_not_the_order_of_the_rest():
    """A climb under way while other chains have arrived, and precise data."""
    rng, layout = np.random.default_rng(1), Layout(np.array([0, 1]), np.array([0, 1]), np.array([False]))
    w = np.concatenate([1e-4 * rng.standard_normal(150), 3.0 + 0.3 * rng.standard_normal(40)])[:, None]
    sample = regression.Sample(w, np.exp(w), -0.5 * np.square((np.exp(w[:, 0]) - 1.0) / 1e-4))
    fit = regression.fit(rng, layout, sample, None, np.array([3.0]), np.ones(1), nearest=True)
    assert emulate(fit.emulator, np.array([3.1]))[0] == pytest.approx([np.exp(3.1)], rel=1e-3)


class Group:
    """Known: v = (log sigma, z) with data about each sigma z, which are centred by how far ``centring`` says."""

    def places(self, u, centring):
        log_scale = np.append(0.0, np.full(len(u) - 1, u[0]))
        v = np.exp(-centring * log_scale) * u
        return v[1:], v, v, np.zeros(len(u)), log_scale

    def log_density(self, v):
        return -0.5 * ((v[0] + 3.0) / 0.3) ** 2 - 0.5 * np.square(v[1:] * np.exp(v[0] + 3.0) / 0.3).sum()


@pytest.mark.parametrize("fails", [False, True])
def test_a_centred_group_fails_only_where_it_does(fails, monkeypatch):
    """What was evaluated is of v, and f of u: exp(34) apart. A third fails."""
    rng, known, d = np.random.default_rng(1), Group(), 13
    centring = np.append(0.0, np.full(d - 1, 0.95))

    def spot(known, surface, u):
        v, jacobian = leave(known, u, surface.centring)
        return Spot(u, known.log_density(v) + jacobian, u)

    monkeypatch.setattr(learning, "spot", spot)
    v = np.column_stack([-3.0 + 0.3 * rng.standard_normal(600), rng.standard_normal((600, d - 1))])
    v[:, 1:] *= 0.3 * np.exp(-v[:, :1] - 3.0)
    beyond = v[:, 0] > -2.85
    heights = np.where(fails & beyond, -np.inf, [known.log_density(each) for each in v])
    u = np.array([enter(known, each, centring) for each in v])
    surface = Surface(None, centring, np.linalg.cholesky(np.cov(u.T)), 0.1, walls.unbounded(d))
    found = learning._walled(known, surface, u[~beyond][:100], table(v, heights))
    there = np.array([walls.height_at(found, each) > 0.0 for each in u])
    assert there[beyond].mean() > 0.7 if fails else not len(found.walls)
    assert there[~beyond].mean() < 0.02


@pytest.mark.slow
def test_the_control_does_not(monkeypatch):
    monkeypatch.setattr(learning, "_walled", lambda known, surface, *_: walls.unbounded(len(surface.metric)))
    assert failing() > 0.3


def test_a_first_fit_where_most_of_what_was_evaluated_has_no_density():
    """Known constraints may end it where boxes return numbers; pm.sample ended in NumPy's "high <= 0"."""
    rng, layout = np.random.default_rng(3), Layout(np.array([0, 2]), np.array([0, 2]), np.array([False]))
    w = rng.standard_normal((60, 2))
    heights = np.where(np.arange(60) % 3 == 0, -0.5 * np.square(w).sum(axis=1), -np.inf)
    sample = regression.Sample(w, np.column_stack([w[:, 0], w[:, 1] ** 2]), heights)
    emulator = regression.fit(rng, layout, sample, None, w[0], np.ones(2)).emulator
    outputs, *_ = emulate(emulator, np.array([0.5, -0.5]))
    np.testing.assert_allclose(outputs, [0.5, 0.25], atol=1e-6)
