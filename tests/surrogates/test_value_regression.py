"""Surrogates fitted to values: features against plain sums, fits against plain least squares."""

import math
from functools import partial

import numpy as np
import pytest

from pymc_kameleon.surrogates import transitions
from pymc_kameleon.surrogates.values import (
    features,
    flattened,
    least_squares,
    monomials,
    power_tails,
    products,
    regression,
)
from pymc_kameleon.surrogates.values.columns import build, share_columns, unpack
from pymc_kameleon.surrogates.values.features import FOURIER, GAUSSIAN, LOG_LADDER, NONE, PAIRWISE
from pymc_kameleon.surrogates.values.library import LIBRARY
from pymc_kameleon.surrogates.values.preparation import prepare
from tests.support.differences import slopes

# --- features -----------------------------------------------------------------------------------


def random_surrogate(rng, d, kind):
    """Every term of a surrogate at once, with random coefficients."""
    variables, powers = monomials.exponents(d, 4, 3)
    q, r = rng.standard_normal((2, d, d))
    blank = features.blank(rng.standard_normal(d), np.exp(rng.standard_normal(d)), rng.standard_normal((d, d)))
    return blank._replace(
        origin=rng.standard_normal(d), frame=np.tril(rng.standard_normal((d, d))), constant=1.3,
        linear=rng.standard_normal(d), quadratic=q + q.T, variables=variables, powers=powers,
        monomials=rng.standard_normal(len(variables)), kind=kind, centres=rng.standard_normal((19, d)),
        phases=rng.random(19), weights=rng.standard_normal(19), lengthscale=1.7,
        tails=rng.standard_normal(len(LOG_LADDER)), tail_scale=3.0, tail_linear=rng.standard_normal(d),
        tail_quadratic=r + r.T,
    )  # fmt: skip


def plain_value(f, x):
    """The formula of the module's docstring, term by term."""
    s = (x - f.centre) / f.scale
    z, u, d = f.whiten @ s, f.frame @ (s - f.origin), len(s)
    value = f.constant + f.linear @ u + 0.5 * u @ f.quadratic @ u
    for variables, powers, weight in zip(f.variables, f.powers, f.monomials, strict=True):
        value += weight * math.prod(s[i] ** p for i, p in zip(variables, powers, strict=True))
    for centre, phase, weight in zip(f.centres, f.phases, f.weights, strict=True):
        if f.kind == GAUSSIAN:
            value += weight * math.exp(-0.5 * np.sum((z - centre) ** 2) / f.lengthscale**2)
        elif f.kind == PAIRWISE:
            k = np.exp(-0.5 * (s - centre) ** 2 / f.lengthscale**2)
            pairs = [k[i] * k[j] for i in range(d) for j in range(i + 1, d)]
            value += weight * (0.5 * k.mean() + (0.5 * np.mean(pairs) if pairs else 0.0))
        elif f.kind == FOURIER:
            value += weight * math.cos(centre @ s + phase)
    r2 = z @ z
    value += sum(v * math.log(1.0 + r2 / q) for v, q in zip(f.tails, LOG_LADDER, strict=True))
    numerator = f.tail_linear @ s + 0.5 * s @ f.tail_quadratic @ s
    return value + numerator / (1.0 + r2 / f.tail_scale)


def plain_value_with_power_tails(f, x):
    """The formula of power_tails' docstring."""
    s = (x - f.centre) / f.scale
    r, fitted = np.linalg.norm(f.whiten @ s), plain_value(f, x)
    if r <= f.reach:
        return fitted
    line = plain_value(f, f.centre + f.scale * s * f.reach / r) - f.slope * f.reach * math.log(r / f.reach)
    return line if fitted > f.top else max(fitted, line)


@pytest.mark.parametrize("kind", [NONE, GAUSSIAN, PAIRWISE, FOURIER])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize(("reach", "top"), [(math.inf, math.inf), (0.7, math.inf), (0.7, 1.3)])
@pytest.mark.parametrize("every", [1, 9])  # as a dense matrix of products, and as few
def test_compiled_value_and_gradient(d, kind, reach, top, every):
    rng = np.random.default_rng(d)
    f = random_surrogate(rng, d, kind)._replace(reach=reach, slope=1.7, top=top)
    f = f._replace(variables=f.variables[::every], powers=f.powers[::every], monomials=f.monomials[::every])
    assert d == 1 or (products.make(f, d)[4].size > 0) == (every == 1)
    points = f.centre + f.scale * rng.standard_normal((5, d))
    oracle = partial(plain_value_with_power_tails, f)
    np.testing.assert_allclose(flattened.values(f, points), [*map(oracle, points)], rtol=1e-10, atol=1e-10)
    for x in points:
        gradient = flattened.values_and_slopes(f, ((x - f.centre) / f.scale)[None])[1][0]
        differences = slopes(lambda s: oracle(f.centre + f.scale * s), (x - f.centre) / f.scale)
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [NONE, GAUSSIAN, PAIRWISE, FOURIER])
@pytest.mark.parametrize("reach", [math.inf, 0.3])
def test_in_the_coordinates_of_the_dynamics_it_is_the_same(kind, reach):
    rng = np.random.default_rng(4)
    f, metric = random_surrogate(rng, 3, kind), rng.standard_normal((3, 3)) + 2.0 * np.eye(3)
    f = f._replace(reach=reach, slope=1.7, top=1.3)
    x = f.centre + 0.3 * f.scale * rng.standard_normal((5, 3))
    dynamics = transitions.make_dynamics(f, metric, x, 0.1)
    for one in x:
        z, value = transitions.located(dynamics, one)
        np.testing.assert_allclose(z, transitions.to_z(dynamics, one), rtol=1e-10, atol=1e-12)
        assert value == pytest.approx(plain_value_with_power_tails(f, one), rel=1e-9, abs=1e-9)
        assert transitions.value_inside(dynamics, one) == transitions.value(dynamics, z) == value
        low = dynamics._replace(ceiling=value - 1.0)
        near = dynamics._replace(radius=0.5 * math.sqrt(z @ z))
        assert transitions.value_inside(low, one) == transitions.value_inside(near, one) == -math.inf
        gradient, space = np.empty(3), np.empty((2, flattened.room(3, dynamics.flat[1])))
        flattened.at(*dynamics.flat, 0.5, z, gradient, *space)
        differences = slopes(partial(transitions.value, dynamics), z)
        np.testing.assert_allclose(gradient, 0.5 * differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_monomials_are_all_and_only_those_asked_for(d):
    variables, powers = monomials.exponents(d, 4, 3)
    exponents = np.zeros((len(powers), d), dtype=int)
    for row, i, p in zip(exponents, variables, powers, strict=True):
        np.add.at(row, i, p)
    assert len(np.unique(exponents, axis=0)) == len(exponents)
    assert set(exponents.sum(axis=1)) == {3, 4}
    grid = np.stack(np.meshgrid(*[np.arange(5)] * d), axis=-1).reshape(-1, d)
    wanted = ((grid > 0).sum(axis=1) <= 3) & np.isin(grid.sum(axis=1), (3, 4))
    assert len(exponents) == wanted.sum()


# --- fits ---------------------------------------------------------------------------------------

POLYNOMIAL = tuple(family for family in LIBRARY if family.name == "polynomial")


def problem(rng, log_density, d, n=800, spread=1.5):
    """Evaluated points wider than the target, and a chain of some of them."""
    x = spread * rng.standard_normal((n, d))
    y = np.array([log_density(row) for row in x])
    chain = rng.standard_normal((n // 2, d))
    return x, y, chain, np.array([log_density(row) for row in chain])


def quartic(x):
    return -0.5 * x[0] ** 2 - 2.0 * (x[1] - 0.7 * x[0] ** 2) ** 2 - 0.5 * np.sum(x[2:] ** 2)


def student(x):
    """A t with 5 degrees of freedom, off centre and correlated: one logarithm of a quadratic."""
    u = x - 0.3
    r2 = u @ u + 0.8 * u[0] * u[1]
    return -0.5 * (5 + len(x)) * math.log1p(r2 / 5)


def smooth(x):
    return math.sin(2.0 * x[0]) * math.cos(x[1]) - 0.5 * x @ x


def quartic_along_one(x):
    return -0.5 * x @ x - 0.1 * x[0] ** 4 + 0.2 * x[1] ** 2 * x[2]


def test_monomials_that_are_nothing_beside_the_error_are_left_out(monkeypatch):
    """Of a polynomial its own are left, and what is left is fitted anew; of another function all that matter."""
    rng = np.random.default_rng(3)
    data = problem(rng, quartic_along_one, 4)
    f, far = regression.fit(np.random.default_rng(5), *data).surrogate, 1.5 * data[0]
    assert len(f.monomials) == len(f.variables) == len(f.powers) == 3  # of x_0 about the centre
    np.testing.assert_allclose(flattened.values(f, far), [*map(quartic_along_one, far)], rtol=1e-6, atol=1e-6)
    data = problem(rng, smooth, 3)
    few = regression.fit(np.random.default_rng(5), *data, library=POLYNOMIAL)
    monkeypatch.setattr(regression, "NEGLIGIBLE", 0.0)
    every = regression.fit(np.random.default_rng(5), *data, library=POLYNOMIAL)
    assert 0 < len(few.surrogate.monomials) < len(every.surrogate.monomials) == 25
    apart = flattened.values(few.surrogate, data[2]) - flattened.values(every.surrogate, data[2])
    assert 0.0 < np.std(apart) < 0.3 * few.error


# scales have tests of their own: test_scales.py
@pytest.mark.parametrize("family", [f for f in LIBRARY if not f.scales], ids=lambda f: f.name)
def test_a_fit_is_weighted_ridge_regression(family, monkeypatch):
    """Against numpy's least squares on the augmented system, with weights written out."""
    monkeypatch.setattr(regression, "NEGLIGIBLE", 0.0)
    rng = np.random.default_rng(2)
    x, y, chain, chain_y = problem(rng, smooth, 3, n=300)
    fitted = regression.fit(np.random.default_rng(5), x, y, chain, chain_y, library=(family,))
    # the same random numbers, in the order of the fit: held-out points, then the basis
    again = np.random.default_rng(5)
    data = prepare(again, x, y, y, chain, chain_y, 0.3, 0.15)
    depth = np.maximum(0.0, np.quantile(chain_y, 0.3) - data.y - data.offset)
    weights = 1.0 / (0.09 + (0.15 * depth) ** 2)
    np.testing.assert_allclose(data.weights, weights / weights.max(), rtol=1e-10)
    at = data.template.centre + data.template.scale * data.s  # the points, in the fit's order
    shared = share_columns(data, family.monomials)
    basis = build(again, data, shared, family)
    columns = np.concatenate([shared.columns[:, : basis.base], basis.extra], axis=1)
    free, p = 10, columns.shape[1]
    gram = columns.T @ (columns * data.weights[:, None])
    system_of_all = least_squares.Problem(columns, data.y, data.weights, free, gram)

    def solved(ridge):
        found = least_squares.solve(system_of_all, ridge)
        return unpack(basis, found, shared.scale[: basis.base], data.offset)

    for ridge in (1e-4, 1e-2):
        penalty = data.weights.sum() * np.where(np.arange(p) < free, 0.0, ridge)
        root = np.sqrt(data.weights)
        system = np.concatenate([columns * root[:, None], np.diag(np.sqrt(penalty))])
        right = np.concatenate([data.y * root, np.zeros(p)])
        expected = np.linalg.lstsq(system, right, rcond=None)[0]
        found = flattened.values(solved(ridge), at)
        np.testing.assert_allclose(found, columns @ expected + data.offset, rtol=1e-8, atol=1e-8)
    # the fit itself is this at the ridge that it chose
    if fitted.family == family.name and fitted.relative_error == 0.15:
        found = flattened.values(fitted.surrogate._replace(reach=math.inf), x)
        np.testing.assert_allclose(found, flattened.values(solved(fitted.ridge), x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("log_density", "d", "family", "error"),
    [
        (lambda x: -0.5 * x @ x + 0.4 * x[0] * x[-1], 1, None, 1e-6),
        (lambda x: -0.5 * x @ x + 0.4 * x[0] * x[-1], 5, None, 1e-6),
        (quartic, 4, "polynomial", 1e-3),
        (student, 4, "tails", 0.1),
    ],
)
def test_targets_inside_a_family_are_recovered(log_density, d, family, error):
    rng = np.random.default_rng(3)
    spread = 3.0 if log_density is student else 1.5
    fitted = regression.fit(rng, *problem(rng, log_density, d, spread=spread))
    test = rng.standard_normal((300, d))
    residual = flattened.values(fitted.surrogate, test) - [log_density(x) for x in test]
    assert np.std(residual) < error
    if family is not None:
        assert fitted.family.startswith(family)
        assert fitted.error < 0.1 * fitted.quadratic_error


def test_tails_extrapolate_where_kernels_cannot():
    """Ten times beyond the data: the logarithm is still right to a few per cent, a kernel is not."""
    rng = np.random.default_rng(3)
    data = problem(rng, student, 3, spread=3.0)
    far = 10.0 * rng.standard_normal((200, 3))
    truth = np.array([student(x) for x in far])
    errors = {}
    for family in LIBRARY:
        if family.name in ("tails4", "polynomial+gaussian4"):
            fitted = regression.fit(rng, *data, library=(family,))
            as_fitted = fitted.surrogate._replace(reach=math.inf)
            values = flattened.values(as_fitted, far)
            errors[family.name] = np.median(np.abs(values - truth) / np.abs(truth))
            if family.name == "tails4":  # with the power, which falls no faster: too high, and never too low
                assert (values - flattened.values(fitted.surrogate, far)).max() <= 1e-9
    assert errors["tails4"] < 0.1
    assert errors["polynomial+gaussian4"] > 0.5


def touches_an_end(x):
    """A share that is likely to be near 1, Beta(5, 1), in its logit, and a normal that depends on it."""
    return -5.0 * math.log1p(math.exp(-x[0])) - math.log1p(math.exp(x[0])) - 0.5 * (x[1] - 0.3 * x[0]) ** 2


def test_tails_are_powers_where_those_of_a_logit_are():
    """At twice the distance that the chain has been, where a polynomial is far too low, which would hold a chain."""
    rng = np.random.default_rng(3)
    share, other = rng.beta(5.0, 1.0, 1000), rng.standard_normal(1000)
    logit = np.log(share / (1.0 - share))
    chain = np.column_stack([logit, other + 0.3 * logit])
    chain = chain[logit < 5.0]
    x = np.concatenate([chain, 1.3 * chain])
    y, chain_y = (np.array([touches_an_end(row) for row in rows]) for rows in (x, chain))
    f = regression.fit(np.random.default_rng(5), x, y, chain, chain_y, library=POLYNOMIAL).surrogate
    far = np.column_stack([np.linspace(7.0, 12.0, 6), 0.3 * np.linspace(7.0, 12.0, 6)])
    truth = np.array([touches_an_end(row) for row in far])
    below = truth - flattened.values(f, far)
    assert below.max() < 0.1  # a chain is held nowhere
    assert below.min() > -3.0  # and what is lost is little
    assert f.top == pytest.approx(y.max())
    # the control: as it was fitted
    assert (truth - flattened.values(f._replace(reach=math.inf), far)).max() > 10.0, (
        "such a polynomial would not matter"
    )


def test_power_tails_hold_little_that_is_not_there():
    """Of a normal's own quadratic with power tails: the mass out there, summed over shells, is some per cent."""
    rng = np.random.default_rng(4)
    for d in (1, 3, 10, 30):
        reach, slope = power_tails.choose(rng.standard_normal((20_000, d)))
        r = np.geomspace(1e-3, 1e6, 100_001)
        volume = d * np.log(r)  # and r, of a step of log r
        tail = -0.5 * reach**2 - slope * reach * np.log(r / reach)
        beyond = np.where(r > reach, np.maximum(-0.5 * r**2, tail), -0.5 * r**2)
        mass, own = np.exp(volume + beyond).sum(), np.exp(volume - 0.5 * r**2).sum()
        assert 1.0 < mass / own < 1.04
    assert power_tails.choose(np.zeros((10, 2))) == (math.inf, 0.0)


def test_a_fit_is_determined_by_its_seed_and_ignores_points_without_a_density():
    rng = np.random.default_rng(3)
    x, y, chain, chain_y = problem(rng, smooth, 2, n=300)
    first, second = (regression.fit(np.random.default_rng(1), x, y, chain, chain_y) for _ in range(2))
    np.testing.assert_array_equal(first.surrogate.weights, second.surrogate.weights)
    extended = np.concatenate([x, x[:50] + 9.0]), np.concatenate([y, np.full(50, -np.inf)])
    third = regression.fit(np.random.default_rng(1), *extended, chain, chain_y)
    np.testing.assert_array_equal(flattened.values(first.surrogate, x), flattened.values(third.surrogate, x))


def test_work_is_capped(monkeypatch):
    rng = np.random.default_rng(3)
    data = problem(rng, smooth, 2, n=400)
    assert regression.fit(np.random.default_rng(1), *data).family != "quadratic"
    monkeypatch.setattr(regression, "MAX_WORK", 1.0)
    assert regression.fit(np.random.default_rng(1), *data).family == "quadratic"


def test_too_few_points_are_refused():
    x = np.zeros((20, 3))
    with pytest.raises(np.linalg.LinAlgError):
        regression.fit(np.random.default_rng(3), x, np.full(20, np.nan), x, np.zeros(20))


def banana_in_twenty_dimensions(n):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 20)) * np.array([10.0, *np.ones(19)])
    x[:, 1] += 2.0 * rng.standard_normal(n)
    y = -0.005 * x[:, 0] ** 2 - 0.5 * (x[:, 1] + 0.03 * (x[:, 0] ** 2 - 100.0)) ** 2
    return x, y - 0.5 * np.square(x[:, 2:]).sum(axis=1)


def chosen_monomials(shared):
    return set(map(tuple, np.hstack([shared.variables, shared.powers]).tolist()))


def test_in_many_dimensions_the_monomials_that_matter_are_found_and_kept():
    (x, y), rng = banana_in_twenty_dimensions(800), np.random.default_rng(1)
    data = prepare(rng, x, y, y, x, y, 0.3, 0.15)
    matter = {(0, 0, 0, 4, 0, 0), (0, 1, 0, 2, 1, 0)}  # of some 1000 monomials in pairs of variables
    shared = share_columns(data, True)
    assert len(shared.variables) < monomials.MAX_MONOMIALS / 2
    assert matter <= chosen_monomials(shared)
    fit = regression.fit(rng, x, y, x, y)
    assert fit.family.startswith("polynomial")
    assert fit.error < 0.01
    # where the values say nothing, the last fit's are kept; without it they are not
    noise = data._replace(y=rng.standard_normal(len(data.y)))
    assert matter <= chosen_monomials(share_columns(noise, True, fit.surrogate))
    assert not matter <= chosen_monomials(share_columns(noise, True))


def test_monomials_that_are_mostly_lower_ones_are_found_among_hundreds():
    # a quarter of the points far out, as rejected proposals are: most of x_0^3 is x_0 there, most of x_0^4 is x_0^2
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1000, 20)) * np.repeat([1.0, 3.0], [750, 250])[:, None]
    x[:, 0] *= 10.0
    y = -0.005 * x[:, 0] ** 2 - 0.5 * np.square(x[:, 1:]).sum(axis=1)
    x[:, 1] += 0.03 * (x[:, 0] ** 2 - 100.0)
    fit = regression.fit(rng, x, y, x[:750], y[:750])
    assert fit.family == "polynomial"
    assert fit.error < 1e-3


def test_held_out_points_have_no_say_in_which_monomials_are_tried():
    x, y = banana_in_twenty_dimensions(800)
    data = prepare(np.random.default_rng(1), x, y, y, x, y, 0.3, 0.15)
    other = np.where(data.held_out, 100.0 * data.y[::-1], data.y)
    chosen = [share_columns(data._replace(y=v), True) for v in (data.y, other, other[::-1])]
    assert chosen_monomials(chosen[0]) == chosen_monomials(chosen[1])
    assert chosen_monomials(chosen[0]) != chosen_monomials(chosen[2])


def test_weights_do_not_follow_the_noise(monkeypatch):
    """They are of the depth that the last fit says. Taken from the values (the control) they believe what noise has
    lifted, and f comes out too high far out.
    """

    def too_high_far_out(seed):
        rng, centre = np.random.default_rng(seed), np.random.default_rng(9).standard_normal((500, 2))
        x = rng.standard_normal((1500, 2)) * np.repeat([1.0, 3.0], 750)[:, None]
        y, chain = -0.5 * np.square(x).sum(axis=1) + 2.0 * rng.standard_normal(1500), slice(300)
        f = None
        for _ in range(3):
            f = regression.fit(rng, x, y, x[chain], y[chain], f, library=LIBRARY[:1])
        near, far = (
            (flattened.values(f.surrogate, at) + 0.5 * np.square(at).sum(axis=1)).mean()
            for at in (centre, 3.0 * centre)
        )
        return far - near

    def error(seeds):
        found = np.array([*map(too_high_far_out, seeds)])
        return found.mean() / (found.std(ddof=1) / math.sqrt(len(found)))  # in standard errors

    assert abs(error(range(40))) < 4.0
    monkeypatch.setattr(regression, "without_noise", lambda positions, log_densities, previous: log_densities)
    assert error(range(40)) > 4.0
