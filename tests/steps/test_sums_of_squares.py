"""Black boxes in which the log density is linear without being added up: sums of squares under an unknown sigma.

The second derivative is 0, so that an error of theirs seemed to cost nothing: 1 to 30 effective draws per 1000.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import minimize

import pymc_kameleon as pk
from pymc_kameleon.samplers.kamiltonian.factors import learning as learn
from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.emulator import emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from tests.public.test_sample import sample
from tests.support.hierarchies import BlackBox

T = np.linspace(0.0, 5.0, 20)
SIGMA = 0.05


def squares(g):
    rng = np.random.default_rng(g)
    y = 2.0 * np.exp(-0.8 * T) + SIGMA * rng.standard_normal(len(T))
    return BlackBox(lambda p: np.array(np.square(y - np.exp(p[0]) * np.exp(-np.exp(p[1]) * T)).sum()))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        a, k, s = pm.Normal("a", shape=2), pm.Normal("k"), pm.HalfNormal("s", 0.5)
        for g in range(2):
            rss = squares(g)(pm.math.stack([a[g], k]))
            pm.Potential(f"y{g}", -len(T) * pm.math.log(s) - 0.5 * rss / s**2)
    return model


@pytest.fixture(scope="module")
def parts(model):
    step = pk.KamiltonianStep(model=model)
    assert step.by_factors
    return step, step.density.parts_known


def learned(step, parts, log_sigma):
    """What is learned of one evaluation, near the truth."""
    rng, v = np.random.default_rng(0), np.array([0.7, 0.7, -0.2, log_sigma])
    sampler = step.sampler
    learning = sampler.init(rng, v).learning
    value = step.density(v)
    return v, sampler.record(learning, v, value, "start", step.density.outputs)


@pytest.mark.parametrize("log_sigma", [-3.0, -1.0])
def test_an_error_costs_by_its_slope(parts, log_sigma):
    step, known = parts
    v, learning = learned(step, known, log_sigma)
    price, slopes = learn.output_prices(known, v, learning)
    expected = -0.5 * np.exp(-2.0 * log_sigma)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)
    np.testing.assert_allclose(price, expected**2, rtol=1e-6)
    assert not known.layout.added.any()


def test_a_prediction_has_no_slope_and_costs_by_its_curvature():
    with pm.Model():
        x = pm.Normal("x", shape=2)
        pm.Normal("y", BlackBox(lambda x: np.array(x.sum()))(x), 0.1, observed=0.3)
        pm.Normal("z", BlackBox(lambda x: np.array(x.prod()))(x), 0.2, observed=0.3)
        step = pk.KamiltonianStep()
    v = np.array([0.1, 0.4])
    learning = step.sampler.record(step.sampler.init(None, v).learning, v, step.density(v), "", step.density.outputs)
    price, slopes = learn.output_prices(step.density.parts_known, v, learning)
    np.testing.assert_allclose(sorted(price), [25.0, 100.0], rtol=1e-5)
    assert (slopes == 0.0).all()


@pytest.mark.parametrize("slope", [1.0, -0.3, 0.0])
def test_what_rises_in_the_log_density_does_not_go_on_rising(slope):
    """Beyond the points: not a log likelihood that curves upwards, nor a sum of squares that curves downwards."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((200, 1))
    o = (1.0 if slope >= 0.0 else -1.0) * np.square(w) + 0.3 * rng.standard_normal((200, 1))  # up, in the log density
    layout = Layout(np.array([0, 1]), np.array([0, 1]), np.array([False]))
    found = regression.fit(
        rng, layout, regression.Sample(w, o, -np.square(w[:, 0])), w, np.zeros(1), np.ones(1),
        slopes=np.array([slope]),
    )  # fmt: skip
    assert found.emulator.sign[0] == np.sign(slope)
    near, far = (abs(float(emulate(found.emulator, np.array([x]))[0][0])) for x in (20.0, 50.0))
    assert (far > 1.1 * near) == (slope == 0.0)


@pytest.mark.whole
@pytest.mark.usefixtures("default_linker")
def test_chains_find_the_posterior(model):
    """Sigma is what the least squares leave, k where they are least."""
    idata = sample(model, pk.KamiltonianStep(model=model), max_evaluations=1500, chains=4)
    text = pk.report(idata)
    assert text.startswith("Usable"), text
    s, k = (idata["posterior"][name].values for name in ("s", "k"))
    total = lambda p: squares(0).function(p[[0, 2]]) + squares(1).function(p[[1, 2]])  # noqa: E731
    least = minimize(total, [0.7, 0.7, -0.2], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    assert np.square(s).mean() == pytest.approx(least.fun / (2 * len(T) - 3 - 2), rel=0.1)
    assert abs(k.mean() - least.x[2]) < 0.5 * k.std()
