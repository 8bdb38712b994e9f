"""Black boxes whose outputs have bounds: cases, concentrations, probabilities. A polynomial of them leaves these."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.samplers.kamiltonian.factors import learning, surface
from pymc_kameleon.surrogates.factors import regression
from pymc_kameleon.surrogates.factors.emulator import LOG, LOGIT, emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from tests import step_tester as tester
from tests.support.differences import assert_jacobian

TIMES = np.arange(1.0, 9.0)
LAYOUT = Layout(np.array([0, 2]), np.array([0, 8]), np.array([False]))


def epidemic(w):
    """Cases at each of ``TIMES``, from few to many: inputs (n, 2) are how fast it grows, and when it peaks."""
    growth, peak = 1.0 + 0.5 * w[:, :1], 4.0 + 1.5 * w[:, 1:]
    return 100.0 / np.cosh(growth * (TIMES - peak)) ** 2


@wrap_py(itypes=[pt.dscalar, pt.dscalar], otypes=[pt.dvector])
def cases(growth, peak):
    return epidemic(np.array([[growth, peak]]))[0]


def infected(w):
    """Shares at each of ``TIMES``, from none to all: where it is steep they are 1.0 as far as numbers go."""
    return 1.0 / (1.0 + np.exp(-8.0 * np.exp(w[:, :1]) * (TIMES - 4.0 - 0.7 * w[:, 1:])))


@wrap_py(itypes=[pt.dscalar, pt.dscalar], otypes=[pt.dvector])
def prevalence(growth, peak):
    return 1.0 / (1.0 + np.exp(-np.exp(growth) * (TIMES - 4.0 - peak)))


def line(w):
    return 50.0 + w @ np.ones((2, 8)) * TIMES


def crosses(w):
    return epidemic(w) - 20.0


def fitted(box, n=300, **options):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((n, 2))
    sample = regression.Sample(w, box(w), -0.5 * np.square(w).sum(axis=1))
    price = options.pop("price", 1.0 / np.maximum(1.0, np.abs(box(np.zeros((1, 2)))[0])))  # of a Poisson count
    return regression.fit(rng, LAYOUT, sample, w, w[0], price, **{"bounds": np.ones(8, np.int64), **options})


def emulated(found, w):
    return np.array([emulate(found.emulator, row)[0] for row in w])


def test_the_logarithm_is_emulated_of_what_a_polynomial_puts_below_0(monkeypatch):
    fresh = 1.5 * np.random.default_rng(1).standard_normal((200, 2))
    found = fitted(epidemic)
    assert found.emulator.links.all()
    assert (emulated(found, fresh) > 0.0).all()
    error = np.abs(emulated(found, fresh) - epidemic(fresh))
    monkeypatch.setattr(regression, "POOR", np.inf)
    monkeypatch.setattr(regression, "_leaves", lambda *_: False)
    without = fitted(epidemic)  # the control
    assert not without.emulator.links.any()
    assert (emulated(without, fresh) < 0.0).any()
    assert np.median(error) < 0.5 * np.median(np.abs(emulated(without, fresh) - epidemic(fresh)))
    assert found.error < 0.5 * without.error


def test_logits_are_emulated_of_what_a_polynomial_puts_beyond_1(monkeypatch):
    price, fresh = np.full(8, 40.0), 1.2 * np.random.default_rng(1).standard_normal((200, 2))
    found = fitted(infected, bounds=np.full(8, LOGIT), price=price)
    assert (found.emulator.links == LOGIT).all()
    assert ((emulated(found, fresh) >= 0.0) & (emulated(found, fresh) <= 1.0)).all()
    assert not (fitted(infected, price=price).emulator.links == LOGIT).any()
    for name, value in (("POOR", np.inf), ("_leaves", lambda *_: False)):
        monkeypatch.setattr(regression, name, value)
    without = fitted(infected, bounds=np.full(8, LOGIT), price=price)  # the control
    assert not without.emulator.links.any()
    assert ((emulated(without, fresh) < 0.0) | (emulated(without, fresh) > 1.0)).any()


def test_a_logit_that_is_a_polynomial_is_found_exactly():
    def logistic(w):
        return 1.0 / (1.0 + np.exp(-(1.0 + 0.3 * w[:, :1]) * (TIMES - 4.0 - 0.7 * w[:, 1:])))

    fresh = np.random.default_rng(1).standard_normal((200, 2))
    found = fitted(logistic, bounds=np.full(8, LOGIT), price=np.full(8, 40.0))
    np.testing.assert_allclose(emulated(found, fresh), logistic(fresh), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("box", "bound"),
    [(lambda w: 0.1 * epidemic(w), LOG), (infected, LOGIT), (lambda w: 0.4 + 0.6 * infected(w), LOGIT)],
)  # fmt: skip
def test_what_costs_next_to_nothing_keeps_to_its_bounds_too(box, bound):
    """A class of no counts in a multinomial: its error is no matter, and where it is below 0 there is no density."""
    found = fitted(box, bounds=np.full(8, bound), price=np.full(8, 1e-7))
    assert found.error**2 < regression.GOOD
    assert (found.emulator.links == bound).all()


def test_errors_count_though_the_highest_point_is_certain():
    """Of a Bernoulli trial that came out the likeliest point is the most certain, where no error of a logit costs."""

    def certain(w):
        rough = 40.0 * (1.2 + np.sin(2.0 * w[:, :1]) - np.square(w[:, :1])) * np.ones(8)
        return 1.0 / (1.0 + np.exp(-rough))

    fresh = np.random.default_rng(3).standard_normal((400, 2))
    found = fitted(certain, bounds=np.full(8, LOGIT), price=np.ones(8))
    real = np.sqrt(np.square(emulated(found, fresh) - certain(fresh)).sum(axis=1).mean())
    assert found.error > 0.3 * real > 0.04


def test_outputs_may_be_as_large_as_numbers_whose_squares_are():
    """Warnings are errors here."""
    large = fitted(lambda w: 1e90 * epidemic(w), price=np.full(8, 1e-184))
    assert (large.emulator.links == LOG).all()


def test_labels_have_no_logit():
    labels = fitted(lambda w: (w[:, :1] > 0.0) * np.ones(8), bounds=np.full(8, LOGIT), price=np.ones(8))
    assert not labels.emulator.links.any()


def test_far_away_what_is_rare_may_underflow():
    def underflows(w):
        return np.where(np.square(w).sum(axis=1, keepdims=True) > 4.0, 0.0, epidemic(w))

    assert (fitted(underflows).emulator.links == LOG).all()
    half = fitted(lambda w: np.where(w[:, :1] > 0.0, 0.0, epidemic(w)))
    assert not half.emulator.links.any()


def test_the_error_of_a_logarithm_is_in_units_of_the_log_density():
    found, fresh = fitted(epidemic), np.random.default_rng(2).standard_normal((400, 2))
    price = 1.0 / np.maximum(1.0, epidemic(np.zeros((1, 2)))[0])
    real = (price * np.square(emulated(found, fresh) - epidemic(fresh))).sum(axis=1)
    assert 0.2 < found.error / np.sqrt(np.mean(np.minimum(real, np.quantile(real, 0.95)))) < 5.0


@pytest.mark.parametrize("box", [line, crosses])
def test_what_is_a_polynomial_or_may_be_negative_stays_as_it_is(box):
    assert not fitted(box).emulator.links.any()


def test_what_has_a_density_below_0_stays_as_it_is():
    assert not fitted(epidemic, bounds=None).emulator.links.any()


class Checked:
    """A known part with a user's own check, and data that are shares of all outputs."""

    layout = LAYOUT

    def places(self, v, centring):
        return (np.zeros(2),)

    def known(self, v, centring, w, outputs, jacobian, slope):
        if (outputs / outputs.sum() < 0.0).any():
            raise AssertionError("predictions must be positive")
        return 0.0, None, None


def test_who_refuses_what_is_negative_has_no_density_there():
    evaluated = SimpleNamespace(outputs=np.array([[1.0] * 8, [2.0] * 7 + [-1.0]]), log_densities=np.array([0.0, -9.0]))
    found = learning.output_bounds(Checked(), np.zeros(2), SimpleNamespace(evaluated=evaluated))
    assert found.all()
    evaluated.log_densities[1] = 1.0  # the highest has no value itself: nothing is known
    assert not learning.output_bounds(Checked(), np.zeros(2), SimpleNamespace(evaluated=evaluated)).any()


class Shares(Checked):
    """Of which the model wants that they add up to 1."""

    def known(self, v, centring, w, outputs, jacobian, slope):
        return 0.0 if (outputs >= 0.0).all() and np.isclose(outputs.sum(), 1.0) else -np.inf, None, None


def test_what_has_to_add_up_has_no_link():
    evaluated = SimpleNamespace(outputs=np.full((1, 8), 0.125), log_densities=np.zeros(1))
    found = learning.output_bounds(Shares(), np.zeros(2), SimpleNamespace(evaluated=evaluated))
    assert not found.any()


def both(name, mean, observed):
    pm.Poisson(f"{name}0", mean[:4], observed=observed[:4])
    pm.Normal(f"{name}1", mean[4:], observed=observed[4:])


@pytest.mark.parametrize(
    ("kind", "box", "bounds"),
    [
        (pm.Poisson, cases, [LOG] * 8), (pm.Normal, cases, [0] * 8), (both, cases, [LOG] * 4 + [0] * 4),
        (pm.Bernoulli, prevalence, [LOGIT] * 8), (pm.Poisson, prevalence, [LOG] * 8),
    ],
)  # fmt: skip
def test_which_bounds_outputs_have_is_asked_of_the_model(monkeypatch, kind, box, bounds):
    observed = epidemic(np.zeros((1, 2)))[0].round() if box is cases else TIMES > 4.0
    with pm.Model() as model:
        growth, peak = pm.Normal("growth"), pm.Normal("peak")
        kind("y", box(growth, peak), observed=observed)
    step, seen = pk.KamiltonianStep(model=model), []
    fit = regression.fit
    monkeypatch.setattr(surface, "MAX_LEAPFROG", 3)  # by PyTensor's Python a gradient takes a millisecond
    monkeypatch.setattr(regression, "fit", lambda *a, **k: seen.append(k["bounds"]) or fit(*a, **k))
    tester.run(step, 1, tune=25)
    asked = [found for found in seen if found is not None]
    assert asked
    assert np.all(asked == np.array(bounds))


@pytest.mark.parametrize("far", [0.3, 9.0])  # within the ball, and beyond
@pytest.mark.parametrize(("box", "bound"), [(epidemic, LOG), (infected, LOGIT)])
def test_the_jacobian_is_that_of_differences(far, box, bound):
    found, w = fitted(box, bounds=np.full(8, bound), price=np.full(8, 40.0)), np.array([-0.4, far])
    emulator = found.emulator
    assert (emulator.links == bound).all()
    assert (assert_jacobian(emulator, w, rtol=1e-4)[0] >= 0.0).all()
