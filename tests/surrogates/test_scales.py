"""Scales: blocks exp(a s_j) times a quadratic are found, learned and moved along, and nothing is taken for one."""

import math

import numpy as np
import pytest

from pymc_kameleon.samplers.pooled import elite
from pymc_kameleon.surrogates import rescaling, straightened
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import Arm
from pymc_kameleon.surrogates.values import (
    features,
    flattened,
    known_scales,
    least_squares,
    regression,
    scale_basis,
    scales,
)
from pymc_kameleon.surrogates.values.columns import share_columns, unpack
from pymc_kameleon.surrogates.values.library import LIBRARY, parts
from pymc_kameleon.surrogates.values.preparation import prepare
from tests.support.chains import two_sample_z
from tests.support.differences import slopes

SCALES, BESIDE = (family for family in LIBRARY if family.scales)
WITHOUT = tuple(family for family in LIBRARY if not family.scales)


# --- what they are ----------------------------------------------------------------------------


def plain_blocks(blocks, z, s):
    """The definition, term by term."""
    value = 0.0
    for j, a, c, b, q, bends in zip(*blocks, strict=True):
        value += math.exp(a * s[j]) * (c + b @ z + 0.5 * z @ q @ z)
        for weight, knot in zip(bends, scales.KNOTS, strict=True):
            value += weight * math.log(1.0 + math.exp(scales.STEEPNESS * (s[j] - knot)))
    return value


@pytest.mark.parametrize("d", [2, 5])
def test_compiled_value_and_gradient(d):
    rng = np.random.default_rng(d)
    quadratic, bends = rng.standard_normal((3, d, d)), rng.standard_normal((3, len(scales.KNOTS)))
    blocks = scales.Blocks(
        np.array([0, 1, 0]), np.array([-1.3, 0.4, 0.7]), rng.standard_normal(3), rng.standard_normal((3, d)),
        quadratic + quadratic.transpose(0, 2, 1), bends,
    )  # fmt: skip
    whiten = np.tril(rng.standard_normal((d, d))) + 2.0 * np.eye(d)
    blank = features.blank(rng.standard_normal(d), rng.uniform(0.5, 2.0, d), whiten)
    f = blank._replace(blocks=blocks, linear=rng.standard_normal(d))

    def plain(s):
        return f.linear @ s + plain_blocks(f.blocks, f.whiten @ s, s)

    for s in rng.standard_normal((5, d)):
        (value,), (gradient,) = flattened.values_and_slopes(f, s[None])
        assert value == pytest.approx(plain(s), rel=1e-10)
        np.testing.assert_allclose(gradient, slopes(plain, s), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("diagonal", [True, False])
def test_columns_times_coefficients_are_the_blocks(diagonal):
    rng = np.random.default_rng(3)
    s, factor = rng.standard_normal((20, 3)), np.tril(rng.standard_normal((3, 3)) + 2.0 * np.eye(3))
    z = s @ np.linalg.inv(factor).T
    variables, rates = (0, 2, 0), (-1.0, 0.5, 2.0)
    others = [scale_basis.to_others(factor, j) for j in variables]
    inner = [scales.inner_features(s @ own.T, diagonal) for own in others]
    columns = scales.columns(s, inner, variables, rates)
    assert columns.shape[1] == scales.size(3, variables, diagonal)
    coefficients = rng.standard_normal(columns.shape[1])
    blocks = scales.unpack(coefficients, variables, rates, 3)
    np.testing.assert_allclose(scales.coefficients(blocks, len(coefficients)), coefficients, rtol=1e-12)
    blocks = scales.in_z(blocks, np.array([own @ factor for own in others]))
    expected = [plain_blocks(blocks, z[i], s[i]) for i in range(20)]
    np.testing.assert_allclose(columns @ coefficients, expected, rtol=1e-10)


def test_a_blocks_coordinates_are_white_and_without_its_own():
    rng = np.random.default_rng(4)
    factor = np.tril(rng.standard_normal((4, 4))) + 2.0 * np.eye(4)
    own = scale_basis.to_others(factor, 2)
    assert np.all(own[:, 2] == 0.0)
    np.testing.assert_allclose(own @ factor @ factor.T @ own.T, np.eye(3), atol=1e-12)


def test_what_a_scale_multiplies_is_made_negative_and_the_rest_stays():
    """In a neck, where exp(a s_j) is huge, an error of a thousandth is the deepest mass of all."""
    z = np.random.default_rng(5).standard_normal((50, 4))
    own = -0.5 * np.square(z[:, :2]).sum(axis=1) - 0.3
    blocks = scales.none(4)._replace(
        variables=np.array([3]), rates=np.array([-2.0]), constants=np.array([-0.3]),
        linear=np.array([[0.0, 0.0, 1e-4, 0.0]]), bends=np.zeros((1, len(scales.KNOTS))),
        quadratic=np.diag([-1.0, -1.0, 1e-3, -1e-5])[None],
    )  # fmt: skip
    neck, middle = np.array([0.0, 0.0, 30.0, -5.0]), np.zeros(4)
    assert plain_blocks(blocks, neck, neck) > 1e3  # the control
    concave = scales.concave(blocks, 1e-3)
    assert plain_blocks(concave, neck, neck) <= 0.0
    above = blocks._replace(constants=np.array([0.2]))
    assert plain_blocks(above, middle, neck) > 0.0
    assert plain_blocks(scales.concave(above, 1e-3), middle, neck) <= 0.0
    assert plain_blocks(scales.concave(blocks, 1e-3, pinned=True), neck, neck) <= 0.0
    pinned = scales.concave(blocks._replace(constants=np.array([-5.0])), 1e-3, pinned=True)
    assert plain_blocks(pinned, middle, neck) == 0.0
    flat = np.zeros(4)  # exp(a s_j) = 1
    np.testing.assert_allclose([plain_blocks(concave, row, flat) for row in z], own, rtol=1e-8)


# --- fits -------------------------------------------------------------------------------------


def funnel(rng, n, d=6):
    """Neal's funnel: its v is the log of a variance."""
    v = 3.0 * rng.standard_normal(n)
    x = np.column_stack([v, np.exp(0.5 * v)[:, None] * rng.standard_normal((n, d - 1))])
    return x, -(v**2) / 18 - 0.5 * (d - 1) * v - 0.5 * np.exp(-v) * np.square(x[:, 1:]).sum(axis=1)


def linear_regression(rng, n, d=5):
    """Coefficients in correlated raw units, log sigma last; a half-Cauchy prior that no block is."""
    data = np.random.default_rng(3)
    design = 3.0 + data.standard_normal((25, d)) @ data.standard_normal((d, d))
    y = design @ data.standard_normal(d) + 0.5 * data.standard_normal(25)
    spread = np.linalg.inv(design.T @ design)
    beta = spread @ design.T @ y + rng.standard_normal((n, d)) @ np.linalg.cholesky(spread).T * 0.6
    log_sigma = math.log(0.5) + 0.25 * rng.standard_normal(n)
    squares = np.square(y - beta @ design.T).sum(axis=1)
    log_density = -24 * log_sigma - 0.5 * np.exp(-2.0 * log_sigma) * squares
    return np.column_stack([beta, log_sigma]), log_density - np.log1p(np.exp(2.0 * log_sigma))


def hierarchy(rng, n, groups=6):
    """Effects about an unknown mean with an unknown sd, in centred coordinates, with data."""
    data = 8.0 * np.random.default_rng(1).standard_normal(groups)
    mean, log_sd = rng.normal(3.0, 4.0, n), rng.normal(1.5, 0.8, n)
    effects = mean[:, None] + np.exp(log_sd)[:, None] * rng.standard_normal((n, groups))
    log_density = -0.5 * (mean / 5.0) ** 2 - groups * log_sd - 0.5 * (log_sd / 2.0) ** 2
    log_density -= 0.5 * np.exp(-2.0 * log_sd) * np.square(effects - mean[:, None]).sum(axis=1)
    log_density -= 0.5 * np.square((effects - data) / 10.0).sum(axis=1)
    return np.column_stack([mean, log_sd, effects]), log_density


@pytest.mark.parametrize(
    ("draw", "n", "block", "error"),
    [(funnel, 150, (0, -1.0), 1e-4), (linear_regression, 200, (5, -2.0), 0.008), (hierarchy, 250, (1, -2.0), 0.02)],
)
def test_a_scale_is_found_and_learned(draw, n, block, error):
    rng = np.random.default_rng(8)
    x, y = draw(rng, n)
    fresh, truth = draw(rng, 500)
    top = truth > np.quantile(truth, 0.2)
    found = {}
    for library in ((*LIBRARY[:1], SCALES), WITHOUT):
        f = regression.fit(rng, x, y, x[: n // 2], y[: n // 2], library=library)
        wrong = flattened.values(f.surrogate, fresh)[top] - truth[top]
        found[library] = f, float(np.median(np.abs(wrong - np.median(wrong))))
    (fit, own), (_, other) = found.values()
    blocks = fit.surrogate.blocks
    assert fit.family == "scales"
    assert blocks.variables[0] == block[0]
    assert blocks.rates[0] / fit.surrogate.scale[block[0]] == pytest.approx(block[1])
    assert own < error
    assert other > 5.0 * error  # the control: what the rest of the library makes of it


def banana(x):
    return -0.5 * x[0] ** 2 - 2.0 * (x[1] - 0.7 * x[0] ** 2) ** 2 - 0.5 * np.sum(x[2:] ** 2)


def heavy(x):
    return -0.5 * (5 + len(x)) * math.log1p(x @ x / 5)


def two_modes(x):
    return np.logaddexp(-0.5 * np.square(x - 2.0).sum(), -0.5 * np.square(x + 2.0).sum())


@pytest.mark.parametrize("log_density", [banana, heavy, two_modes])
def test_nothing_else_is_taken_for_a_scale(log_density):
    """A block that is not there promises mass where exp(a s_j) is large."""
    rng = np.random.default_rng(2)
    x = 1.5 * rng.standard_normal((500, 4))
    y = np.array([log_density(row) for row in x])
    fit = regression.fit(rng, x, y, x[:250], y[:250])
    assert not len(fit.surrogate.blocks.rates)


def counts(rng, n):
    """A Poisson count in each of four groups with an unknown spread; what no block and no polynomial is alone."""
    x = rng.standard_normal((n, 6)) * np.array([0.5, 0.6, *[0.7] * 4]) + np.array([1.0, -0.5, *[1.0] * 4])
    mean, log_sd, own = x[:, :1], x[:, 1], x[:, 2:]
    prior = -0.5 * np.square((own - mean) / np.exp(log_sd)[:, None]).sum(axis=1) - 3.0 * log_sd
    y = prior - np.exp(2.0 * log_sd) / 2.0 + (np.array([1, 2, 4, 6]) * own - np.exp(own)).sum(axis=1)
    return x, y


def test_scales_and_monomials_are_learned_beside_each_other(monkeypatch):
    rng, made, made_concave = np.random.default_rng(11), [], scale_basis.made_concave
    monkeypatch.setattr(scale_basis, "made_concave", lambda *given: made.append(given[1].base) or made_concave(*given))
    x, y = counts(rng, 800)
    fresh, truth = counts(rng, 500)
    top = truth > np.quantile(truth, 0.2)
    off = {}
    for name, library in {"both": LIBRARY, "either": tuple(f for f in LIBRARY if f is not BESIDE)}.items():
        fit = regression.fit(rng, x, y, x[:400], y[:400], library=library)
        off[name] = np.median(np.abs(flattened.values(fit.surrogate, fresh)[top] - truth[top]))
        if name == "both":
            assert fit.family == "scales+polynomial"
            assert fit.surrogate.reach < math.inf  # a quartic goes on upwards somewhere, and a scale's blocks do not
            # at a refit that does not search all of the library, too, whichever of the two was before
            for previous in (fit, regression.fit(rng, x, y, x[:400], y[:400], library=(*LIBRARY[:1], SCALES))):
                again = regression.fit(rng, x, y, x[:400], y[:400], previous=previous, full=False)
                assert again.family == "scales+polynomial"
                # what is fitted last is concave, and without the monomials that were left out
                assert made[-1] == features.quadratic_size(6) + len(again.surrogate.monomials) < max(made)
    assert off["both"] < 0.05
    assert off["either"] > 3.0 * off["both"]


def screened(rng, x, y):
    half = len(x) // 2
    data = prepare(rng, x, y, y, x[:half], y[:half], 0.3, 0.15)
    train, _ = parts(data)
    arguments = (data.s[train], data.whiten_factor, data.y[train], data.weights[train])
    quadratic = features.quadratic_features(data.u[train])
    return scale_basis.screen(*arguments, data.template.scale, quadratic)


def test_a_block_explains_half_of_what_is_left_or_is_none():
    """A scale is found; of a normal with noise, of which the best of many blocks always explains a little, none."""
    rng = np.random.default_rng(3)
    assert screened(rng, *hierarchy(rng, 300))
    x = rng.standard_normal((300, 4))
    assert screened(rng, x, -0.5 * np.square(x).sum(axis=1) + 0.3 * rng.standard_normal(300)) == []


def candidates(data, columns):
    found = scale_basis.find(data, columns)
    return scale_basis.build(data, SCALES, data.template, features.quadratic_size(data.s.shape[1]), found)


def test_the_fit_is_weighted_least_squares_made_concave():
    """Against NumPy's least squares, the concave part taken out and the quadratic fitted anew beside it."""
    rng = np.random.default_rng(4)
    x, y = hierarchy(rng, 300)
    y = y + 0.05 * np.sin(3.0 * x[:, 0])  # so that it does not hold exactly
    data = prepare(rng, x, y, y, x[:150], y[:150], 0.3, 0.15)
    shared = share_columns(data, False)
    basis = candidates(data, shared.columns)[1]
    free = features.quadratic_size(8)
    columns = np.concatenate([shared.columns[:, :free], basis.extra], axis=1)
    root = np.sqrt(data.weights)
    plain = np.linalg.lstsq(columns * root[:, None], root * data.y, rcond=1e-14)[0]
    gram = least_squares.weighted_gram(columns, columns, data.weights)
    problem = least_squares.Problem(columns, data.y, data.weights, free, gram)
    solved = least_squares.solve(problem, 0.0)
    np.testing.assert_allclose(columns @ solved, columns @ plain, rtol=1e-6, atol=1e-6)
    made = scale_basis.made_concave(problem, basis, solved, 0.0)
    left = data.y - columns[:, free:] @ made[free:]
    beside = np.linalg.lstsq(shared.columns[:, :free] * root[:, None], root * left, rcond=None)[0]
    np.testing.assert_allclose(
        columns @ made, columns[:, free:] @ made[free:] + shared.columns[:, :free] @ beside, rtol=1e-6, atol=1e-6
    )
    surrogate = unpack(basis, made, shared.scale[:free], data.offset)
    at = data.template.centre + data.template.scale * data.s
    np.testing.assert_allclose(flattened.values(surrogate, at), columns @ made + data.offset)
    assert np.linalg.eigvalsh(surrogate.blocks.quadratic[0]).max() < 1e-10


def test_screening_needs_points_for_what_it_looks_for():
    """Fewer points than columns: no scale rather than one that explains everything."""
    rng = np.random.default_rng(6)
    x, y = funnel(rng, 60, 6)
    data = prepare(rng, x, y, y, x[:30], y[:30], 0.3, 0.15)
    quadratic = features.quadratic_features(data.u)
    columns = quadratic.shape[1]
    for basis in candidates(data, quadratic):
        assert columns + basis.extra.shape[1] < parts(data)[0].stop


# --- moves ------------------------------------------------------------------------------------


def dynamics_with_a_scale(radius=2.3):
    """Three dimensions, widths that change e^2-fold within D, rotated a little."""
    whiten = np.array([[1.0, 0.0, 0.0], [0.2, 0.9, 0.0], [-0.1, 0.3, 1.1]])
    blank = features.blank(np.array([0.3, -0.2, 0.1]), np.array([1.2, 0.8, 1.0]), whiten)
    blocks = scales.Blocks(
        np.array([0]), np.array([-1.4]), np.array([-0.1]), np.array([[0.0, 0.2, -0.3]]),
        -np.array([[[0.1, 0.0, 0.0], [0.0, 1.2, 0.3], [0.0, 0.3, 0.9]]]),
        np.array([[0.0, -0.3, 0.0, 0.0, 0.2]]),
    )  # fmt: skip
    f = blank._replace(blocks=blocks, quadratic=-np.diag([1.0, 0.15, 0.1]), linear=np.array([0.3, 0.1, -0.1]))
    metric = np.array([[1.1, 0.0, 0.0], [0.3, 0.9, 0.1], [0.0, -0.2, 1.0]])
    archive = f.centre + np.random.default_rng(7).standard_normal((60, 3))
    dynamics = surrogate_dynamics.make_dynamics(f, metric, archive, 0.5)
    assert dynamics.rescaling.straight == 0
    return dynamics._replace(radius=radius, ceiling=1.5)


def with_moves(dynamics, moves):
    composed = features.compose(dynamics.surrogate, dynamics.metric)
    flat = flattened.flatten(composed, dynamics.metric, dynamics.inverse, moves)
    return dynamics._replace(rescaling=moves, flat=flat)


def dynamics_with_two_scales(radius=2.2):
    """A group of each, and a location: in four coordinates, the scales the first two; both are known."""
    known = (
        known_scales.KnownScale(0, 0.6, np.array([[0.0, 0.0, 1.0, 0.0]]), np.array([0.2]), 1),
        known_scales.KnownScale(1, -0.4, np.array([[0.1, 0.0, -0.3, 1.1]]), np.array([-0.1]), 1),
    )
    rng = np.random.default_rng(3)
    centre, scale, factor = (
        0.1 * np.arange(4),
        np.array([1.0, 0.9, 1.2, 0.8]),
        np.tril(0.3 * np.ones((4, 4))) + np.eye(4),
    )
    blocks, linear = known_scales.in_surrogate(known, centre, scale, factor)
    f = features.blank(centre, scale, np.linalg.inv(factor))._replace(blocks=blocks, known=2, known_linear=linear)
    f = f._replace(quadratic=-np.diag([1.0, 0.8, 0.3, 0.4]) - 0.1, linear=np.array([0.3, 0.1, -0.1, 0.2]))
    metric = np.eye(4) + np.diag([0.3, -0.2], -2)
    archive = f.centre + rng.standard_normal((60, 4))
    dynamics = surrogate_dynamics.make_dynamics(f, metric, archive, 0.5)
    assert len(dynamics.rescaling.halves) == 2
    return dynamics._replace(radius=radius, ceiling=5.0)


class PlainTogether:
    """Straightened coordinates of several scales, by their definition."""

    def __init__(self, moves):
        self.moves, self.into, self.centre = moves, moves.bent_into, moves.bent_centre

    def power(self, w):
        """Of e, each coordinate: (d,)."""
        away = w[self.moves.bent_variables] - self.moves.bent_middles
        return (self.moves.halves * away) @ self.moves.bends

    def to_w(self, z):
        q = self.into @ z - self.centre
        return q * np.exp(-self.power(q))

    def to_z(self, w):
        return np.linalg.solve(self.into, w * np.exp(self.power(w)) + self.centre)

    def log_jacobian(self, w):
        """Of ``to_z``."""
        return np.linalg.slogdet(slopes(self.to_z, w))[1]


class Plain:
    """Coordinates of the moves along a scale: q about the middle of each, w straightened, by their definition."""

    def __init__(self, moves):
        self.into, self.centres, self.middle = moves.into[0], moves.centres[0], moves.middles[0]
        self.j, self.power = moves.variables[0], -0.5 * moves.rates[0] * moves.exponents[0]

    def to_w(self, z):
        q = self.into @ z - self.centres
        return q * np.exp(-self.power * (q[self.j] - self.middle))

    def to_z(self, w):
        return np.linalg.solve(self.into, w * np.exp(self.power * (w[self.j] - self.middle)) + self.centres)

    def log_jacobian(self, w):
        """Of ``to_z``."""
        return np.linalg.slogdet(slopes(self.to_z, w))[1]


def test_a_move_along_a_scale_has_its_jacobian_and_comes_back():
    moves, rng = dynamics_with_a_scale().rescaling, np.random.default_rng(1)
    plain = Plain(moves)
    for _ in range(20):
        z, new, back = rng.standard_normal(3), np.empty(3), np.empty(3)
        which, size, normal = rng.random(), rng.random(), rng.standard_normal()
        log_jacobian = rescaling.move(moves, z, which, size, normal, new)
        along = np.eye(3)[plain.j] * math.exp(2.5 * size - 1.5) * normal

        def moved(z, along=along):
            return plain.to_z(plain.to_w(z) + along)

        expected, jacobian = moved(z), np.linalg.slogdet(slopes(moved, z, 1e-6))[1]
        np.testing.assert_allclose(new, expected, rtol=1e-10, atol=1e-12)
        assert log_jacobian == pytest.approx(jacobian, rel=1e-5, abs=1e-8)
        assert rescaling.move(moves, new, which, size, -normal, back) == pytest.approx(-log_jacobian)
        np.testing.assert_allclose(back, z, rtol=1e-10, atol=1e-12)


def plain_straightened(dynamics, z, momentum, step, steps, temperature):
    """Leapfrog on temperature * f(z(w)) + log |dz/dw|, everything by differences."""
    plain = PlainTogether(dynamics.rescaling)

    def log_density(w):
        return temperature * surrogate_dynamics.value(dynamics, plain.to_z(w)) + plain.log_jacobian(w)

    w = plain.to_w(z)
    start = log_density(w) - 0.5 * momentum @ momentum
    for _ in range(steps):
        momentum = momentum + 0.5 * step * slopes(log_density, w)
        w = w + step * momentum
        momentum = momentum + 0.5 * step * slopes(log_density, w)
    return plain.to_z(w), log_density(w) - 0.5 * momentum @ momentum - start


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("make", [dynamics_with_a_scale, dynamics_with_two_scales])
def test_straightened_leapfrog_agrees_with_the_plain_version(make, temperature):
    dynamics, rng = make(radius=math.inf), np.random.default_rng(2)
    d = len(dynamics.inverse)
    for _ in range(5):
        z, momentum = 0.7 * rng.standard_normal(d), rng.standard_normal(d)
        new, gradient, by_new = np.empty(d), np.empty(d), np.empty(d)
        spare = np.empty((2, flattened.room(d, dynamics.flat[1])))
        value = flattened.at(*dynamics.flat, temperature, z, gradient, *spare)
        new_value, log_ratio, stability, inside, gradients = straightened.leapfrog(
            *dynamics.flat, dynamics.rescaling, temperature, z, value, gradient, momentum, 0.2, 6, math.inf, new, by_new
        )
        expected, ratio = plain_straightened(dynamics, z, momentum, 0.2, 6, temperature)
        np.testing.assert_allclose(new, expected, rtol=1e-4, atol=1e-5)
        assert log_ratio == pytest.approx(ratio, abs=1e-4)
        assert (stability, inside, gradients) == (log_ratio, True, 6)
        assert new_value == pytest.approx(temperature * surrogate_dynamics.value(dynamics, new))


def exact_draws(rng, dynamics, n):
    """Of exp(f) on D, in z, by rejection, in coordinates in which D is a ball."""
    moves, plain = dynamics.rescaling, PlainTogether(dynamics.rescaling)

    def draw():
        """A point, and the log of its density over that of the draw."""
        w = moves.origin + rng.uniform(-dynamics.radius, dynamics.radius, len(moves.origin))
        z = plain.to_z(w)
        value = surrogate_dynamics.value(dynamics, z)
        inside = np.linalg.norm(w - moves.origin) < dynamics.radius and value < dynamics.ceiling
        return z, value + plain.power(w).sum() if inside else -math.inf

    bound = max(draw()[1] for _ in range(5000)) + 0.5
    draws = []
    while len(draws) < n:
        z, log_density = draw()
        assert log_density < bound
        if math.log(rng.random()) < log_density - bound:
            draws.append(z)
    return np.array(draws)


@pytest.mark.parametrize("make", [dynamics_with_a_scale, dynamics_with_two_scales])
def test_the_region_is_a_ball_in_straightened_coordinates(make):
    dynamics, rng = make(), np.random.default_rng(6)
    moves, to_w = dynamics.rescaling, PlainTogether(dynamics.rescaling).to_w
    z = rng.standard_normal((20, len(moves.origin)))
    reach = surrogate_dynamics.reach(dynamics, z)
    for one, distance in zip(z, reach, strict=True):
        assert distance == pytest.approx(np.linalg.norm(to_w(one) - moves.origin))
        assert rescaling.square_norm(moves, one) == pytest.approx(distance**2)
    plain = with_moves(dynamics, moves._replace(straight=-1))
    np.testing.assert_allclose(surrogate_dynamics.reach(plain, z), np.linalg.norm(z, axis=1))
    assert rescaling.square_norm(plain.rescaling, z[0]) == pytest.approx(z[0] @ z[0])


@pytest.fixture(scope="module")
def drawn():
    return exact_draws(np.random.default_rng(11), dynamics_with_a_scale(), 1500)


def z_scores(starts, ends):
    flow = starts[:, 0] * ends[:, 1] ** 2 - ends[:, 0] * starts[:, 1] ** 2
    neck = (ends[:, 0] > 0.8).astype(float) - (starts[:, 0] > 0.8)
    more = [c.mean() / (c.std() / math.sqrt(len(c))) for c in (flow, neck) if c.std() > 0.0]
    return np.abs([*two_sample_z(ends, starts), *more]).max()


ONLY = {"trajectories": Arm(3, 1.6, 0.4, 0.0), "jumps": Arm(6, 1.6, 0.4, 1.0)}


def by_hand(dynamics, starts, kind, with_jacobian):
    """Six moves, or trajectories, with the inner test here; ``with_jacobian=False`` leaves log |J| out of it."""
    d = starts.shape[1]
    rng, moves, size = np.random.default_rng(13), dynamics.rescaling, flattened.room(d, dynamics.flat[1])
    (gradient, by_new), spare = np.empty((2, d)), np.empty((2, size))
    ends = starts.copy()
    for z in ends:
        for _ in range(6):
            value = flattened.at(*dynamics.flat, 1.0, z, gradient, *spare)
            new, normals = np.empty(d), rng.standard_normal(d)
            if kind == "jumps":
                jacobian = rescaling.move(moves, z, 0.5, rng.random(), normals[0], new)
                new_value = surrogate_dynamics.value(dynamics, new)
                log_ratio = new_value - value + jacobian
            else:
                new_value, log_ratio, *_ = straightened.leapfrog(
                    *dynamics.flat, moves, 1.0, z, value, gradient, normals, 0.5, 3, dynamics.radius**2, new, by_new
                )
                further = (moves.bent_into @ (new - z))[moves.bent_variables]
                jacobian = moves.halves * moves.bends.sum(axis=1) @ further
            log_ratio -= 0.0 if with_jacobian else jacobian
            inside = surrogate_dynamics.reach(dynamics, new) < dynamics.radius and new_value < dynamics.ceiling
            if inside and math.log(rng.random()) < log_ratio:
                z[:] = new
    return ends


@pytest.mark.parametrize("kind", ONLY)
def test_transitions_along_a_scale_leave_f_invariant_and_are_reversible(kind, drawn):
    """The control: by hand, and without the Jacobian."""
    rng, dynamics = np.random.default_rng(12), dynamics_with_a_scale()
    ends = [surrogate_dynamics.run(rng, z, dynamics._replace(step_size=0.8), ONLY[kind]).z for z in drawn]
    assert z_scores(drawn, np.array(ends)) < 4.5
    assert z_scores(drawn, by_hand(dynamics, drawn, kind, True)) < 4.5
    assert z_scores(drawn, by_hand(dynamics, drawn, kind, False)) > 8.0


def test_trajectories_along_two_scales_leave_f_invariant_and_are_reversible():
    """As of one; the control is the same."""
    rng, dynamics = np.random.default_rng(14), dynamics_with_two_scales()
    starts = exact_draws(rng, dynamics, 1500)
    ends = [surrogate_dynamics.run(rng, z, dynamics._replace(step_size=0.8), ONLY["trajectories"]).z for z in starts]
    assert z_scores(starts, np.array(ends)) < 4.5
    assert z_scores(starts, by_hand(dynamics, starts, "trajectories", True)) < 4.5
    assert z_scores(starts, by_hand(dynamics, starts, "trajectories", False)) > 8.0


def test_each_group_is_straight_along_its_own_scale():
    """Two funnels, one about the other's: widths do not change with a scale."""
    rng, lower, upper = np.random.default_rng(5), np.eye(8)[2:5], np.eye(8)[5:]
    about = rng.standard_normal((3, 3))
    rows = (lower - about @ upper, upper)
    known = tuple(known_scales.KnownScale(j, 1.0, rows[j], np.zeros(3), 3) for j in range(2))
    blocks, linear = known_scales.in_surrogate(known, np.zeros(8), np.ones(8), np.eye(8))
    f = features.blank(np.zeros(8), np.ones(8), np.eye(8))._replace(blocks=blocks, known=2, known_linear=linear)
    f = f._replace(quadratic=-np.diag([1.0, 1.0] + [1e-4] * 6))
    scale, effects = rng.standard_normal((200, 2)), rng.standard_normal((2, 200, 3))

    def states(shift):
        """With log scales that are so much more, and effects as likely."""
        high, low = (np.exp(scale[:, j, None] + shift[j]) * effects[j] for j in (1, 0))
        return np.concatenate([scale + shift, low + high @ about.T, high], axis=1)

    def change(moves, j):
        """Of w where the j-th scale is exp(-5) of what it was; but for the scale's own."""
        here, there = (rescaling.straightened(moves, states(shift)) for shift in (np.zeros(2), -5.0 * np.eye(2)[j]))
        return np.abs(there - here)[:, 2:].max()

    moves = surrogate_dynamics.make_dynamics(f, np.eye(8), states(np.zeros(2)), 0.5).rescaling
    np.testing.assert_allclose(moves.bends.max(axis=0)[2:], 1.0, atol=1e-2)
    assert max(change(moves, 0), change(moves, 1)) < 0.1
    one = rescaling.make(f._replace(known=0), np.eye(8), states(np.zeros(2)))  # the control: one of both
    assert change(one, 1 - int(one.bent_variables[0])) > 1.0


def test_without_a_scale_there_is_nothing_to_move_along_and_a_ceiling():
    f = features.blank(np.zeros(2), np.ones(2), np.eye(2))._replace(quadratic=-np.eye(2))
    archive = np.random.default_rng(0).standard_normal((40, 2))
    dynamics = surrogate_dynamics.make_dynamics(f, np.eye(2), archive, 0.3)
    assert len(dynamics.rescaling.rates) == 0
    assert dynamics.rescaling.straight == -1
    assert surrogate_dynamics.below(dynamics, 3.0).ceiling == 3.0


def in_the_neck(x):
    """Draws of a hierarchy moved to five and a half sds of the log sd below its middle."""
    moved = x.copy()
    moved[:, 2:] = x[:, :1] + (x[:, 2:] - x[:, :1]) * np.exp(-4.0 - x[:, 1:2])
    moved[:, 1] = -4.0
    return moved


@pytest.fixture(scope="module")
def learned():
    """Of a hierarchy: points, their log densities, and the dynamics on what was fitted to them."""
    rng = np.random.default_rng(3)
    x, y = hierarchy(rng, 500)
    fit = regression.fit(rng, x, y, x[:250], y[:250])
    assert fit.family == "scales"
    metric = surrogate_dynamics.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    return x, y, surrogate_dynamics.make_dynamics(fit.surrogate, metric, x[:250], 0.25)


def test_a_trajectory_goes_on_in_the_neck(learned):
    """Of a hierarchy with data: its effects lie elsewhere in the middle than in the neck, where f has no ceiling."""
    rng, dynamics = np.random.default_rng(4), learned[2]
    assert surrogate_dynamics.below(dynamics, 3.0).ceiling == math.inf
    x = in_the_neck(hierarchy(rng, 100)[0])
    for centred, least, most in ((True, 0.8, 1.0), (False, 0.0, 0.3)):
        moves = dynamics.rescaling
        if not centred:  # the control: about where they are in the middle
            moves = moves._replace(bent_centre=moves.bent_centre + 1.0)
        one = with_moves(dynamics, moves)
        paths = [
            surrogate_dynamics.run(rng, surrogate_dynamics.to_z(one, row), one, Arm(1, 1.5, 0.3, 0.0)) for row in x
        ]
        assert least <= np.mean([path.accept_prob for path in paths]) <= most


def test_what_only_looks_like_a_scale_is_not_straightened():
    f = dynamics_with_a_scale().surrogate
    archive = f.centre + np.random.default_rng(7).standard_normal((60, 3))
    for error, straight in ((0.05, 0), (0.9, -1), (math.nan, -1)):
        dynamics = surrogate_dynamics.make_dynamics(f, np.eye(3), archive, 0.3, error)
        assert dynamics.rescaling.straight == straight
        assert surrogate_dynamics.below(dynamics, 3.0).ceiling == (math.inf if straight >= 0 else 3.0)


def test_the_neck_is_not_the_top_of_all(learned):
    """For chains that learn together: those in the neck are not the ones that the others have to follow."""
    x, y, dynamics = learned
    neck = in_the_neck(x[:100])
    deep = flattened.values(dynamics.surrogate, neck)
    assert np.median(deep) > y.max() + 5.0  # the control: as they are
    levelled = elite.heights(dynamics, neck, deep)
    assert np.median(levelled) < elite.heights(dynamics, x, y).max()
    np.testing.assert_array_equal(elite.heights(None, x, y), y)
