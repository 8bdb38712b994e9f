"""Every target: three log densities that agree, and a truth that belongs to that density.

The draws are checked against the log density without gradients and without normalising constants by
detailed balance: for x ~ p, y = x + a symmetric jump, E[min(1, p(y)/p(x)) (h(y) - h(x))] = 0 for
every h if and only if the draws come from p.
"""

import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from pymc_kameleon import targets
from pymc_kameleon.targets import (
    Banana,
    Bimodal,
    CorrelatedGaussian,
    Flower,
    Funnel,
    Rescaled,
    Ring,
    SkewNormalABC,
    StudentT,
    TwistedGaussian,
    odd_units_banana,
    solve_lotka_volterra,
)
from tests.support.chains import z_scores as moment_z  # of all first and second moments of independent draws

LIMIT = 4.5

ALL = [
    Banana(0.1, 100.0, 8), Banana(0.03, 50.0, 2), TwistedGaussian(1), TwistedGaussian(2, 5), TwistedGaussian(3),
    TwistedGaussian(4, 2), Funnel(1.0), Flower(), Flower(radius=5.0, amplitude=1.0, frequency=1, width=0.7, dim=3),
    Ring(5.0, 0.5, 2), CorrelatedGaussian(100.0, 5), StudentT(20.0, 5), Bimodal(1.5, 3), odd_units_banana(),
]  # fmt: skip
ONE_OF_EACH = {type(t): t for t in ALL}.values()  # compiled anew for every instance
SKEWED = [  # whose density and simulator are in test_skew_normal_abc
    SkewNormalABC(), SkewNormalABC(dim=1, n_observations=1, location=1.0),
    SkewNormalABC(dim=2, n_observations=1, epsilon=0.4, prior_sd=1.0, location=1.0),
    SkewNormalABC(dim=5, skewness=0.5, n_observations=3, epsilon=1.0),
]  # fmt: skip
# where the map preserves volume, or the regions are built from the density itself
HIGHEST_DENSITY = [t for t in ALL if not isinstance(t, Funnel)]

each = pytest.mark.parametrize


def name(target):
    return repr(target)[:60]


def points(target, n=6, seed=0):
    """Points in and about the bulk, in the target's own units."""
    rng = np.random.default_rng(seed)
    units = np.array(target.units) if isinstance(target, Rescaled) else 1.0
    return target.initial_point + 0.3 * rng.standard_normal((n, target.dim)) * units


def banana(x, b, v):
    x = np.array(x)
    x[1] -= b * (x[0] ** 2 - v)
    return stats.multivariate_normal.logpdf(x, cov=np.diag([v] + [1.0] * (len(x) - 1)))


def twisted(x, target):
    phi = np.array(x)
    phi[1] += target.b * x[0] ** 2 - 100 * target.b
    d = len(x)
    ones = np.full((d, d), 1 / d)
    cov = np.eye(d) + 99 * (ones if target.number == 2 else np.diag(np.eye(d)[0]))
    return stats.multivariate_normal.logpdf(phi, cov=cov)


def flower(x, t):
    r, theta = np.hypot(x[0], x[1]), np.arctan2(x[1], x[0])
    m = t.radius + t.amplitude * np.cos(t.frequency * theta)
    return stats.norm.logpdf(r, m, t.width) + stats.norm.logpdf(x[2:]).sum()


def funnel(x, t):
    rest = stats.norm.logpdf(x[1:], 0, np.exp(x[0] / 2)).sum()
    return stats.norm.logpdf(x[0], 0, t.scale) + rest


def bimodal(x, t):
    centre = np.eye(len(x))[0] * t.separation
    return np.logaddexp(stats.norm.logpdf(x, centre).sum(), stats.norm.logpdf(x, -centre).sum())


def oracle(target, x):
    """The density as the papers state it, in SciPy's distributions."""
    match target:
        case Banana(b, v):
            return banana(x, b, v)
        case TwistedGaussian():
            return twisted(x, target)
        case Flower():
            return flower(x, target)
        case Funnel():
            return funnel(x, target)
        case CorrelatedGaussian():
            return stats.multivariate_normal.logpdf(x, cov=target.cov)
        case StudentT(df):
            return stats.multivariate_t.logpdf(x, shape=np.eye(len(x)), df=df)
        case Bimodal():
            return bimodal(x, target)
        case Rescaled(base, units):
            return oracle(base, x / np.array(units))
    raise AssertionError(target)


@each("target", ALL, ids=name)
def test_log_density_is_the_published_one_up_to_a_constant(target):
    x = points(target)
    ours = np.array([target.log_density(p) for p in x])
    theirs = np.array([oracle(target, p) for p in x])
    scale = max(1.0, abs(theirs).max())
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=0, atol=1e-10 * scale)


@each("target", ALL, ids=name)
def test_numba_and_pickle_keep_the_log_density(target):
    copy = pickle.loads(pickle.dumps(target))
    for p in points(target):
        if target in ONE_OF_EACH:
            assert target.numba_log_density(p) == pytest.approx(target.log_density(p), rel=1e-12)
        assert copy.log_density(p) == target.log_density(p)


@each("target", [*ALL, *SKEWED], ids=name)
def test_pymc_model_has_the_log_density_and_its_gradient(target):
    model = target.pymc_model()
    assert [v.name for v in model.value_vars] == ["x"]
    start = model.initial_point()["x"]
    np.testing.assert_array_equal(start, target.initial_point)
    logp, gradient = (make(mode="FAST_COMPILE") for make in (model.compile_logp, model.compile_dlogp))
    assert np.isfinite(gradient({"x": start})).all()
    units = np.array(target.units) if isinstance(target, Rescaled) else np.ones(target.dim)
    x = points(target, n=3)
    values = np.array([[logp({"x": p}), target.log_density(p)] for p in x])
    np.testing.assert_allclose(values[:, 0], values[:, 1], rtol=1e-10, atol=1e-10)
    slopes = gradient({"x": x[0]})
    for h in 1e-5 * np.diag(units):
        difference = (target.log_density(x[0] + h) - target.log_density(x[0] - h)) / 2e-5
        slope = slopes @ h / 1e-5
        assert slope == pytest.approx(difference, rel=1e-6, abs=1e-5)


def balance_z(target, x, rng):
    """z-scores of the flux of x_i and x_i^2 under a Metropolis step, zero for exact draws."""
    scale = x.std(axis=0)
    y = x + 0.7 * scale * rng.standard_normal(x.shape)
    before = np.array([target.log_density(p) for p in x])
    after = np.array([target.log_density(p) for p in y])
    accept = np.exp(np.minimum(0.0, after - before))[:, None]
    flux = np.hstack([accept * (y - x), accept * (y**2 - x**2)])
    return flux.mean(axis=0) / (flux.std(axis=0, ddof=1) / np.sqrt(len(x)))


@each("target", [*ALL, *SKEWED], ids=name)
def test_draws_are_independent_draws_from_the_density(target):
    rng = np.random.default_rng(3)
    x = target.sample(rng, 20_000)
    assert x.shape == (20_000, target.dim)
    assert np.abs(moment_z(x, target.mean, target.cov)).max() < LIMIT
    assert np.abs(balance_z(target, x, rng)).max() < LIMIT
    shifted = x + 0.5 * np.sqrt(np.diag(target.cov))
    assert np.abs(moment_z(shifted, target.mean, target.cov)).max() > 10
    if target in SKEWED:  # of the others there are controls below
        assert np.abs(balance_z(target, shifted, rng)).max() > 10
    again = target.sample(np.random.default_rng(3), 20_000)
    np.testing.assert_array_equal(x, again)


def uniform_angle(t, rng, n):
    """The wrong sampler: angle uniform, radius normal about the curve, no Jacobian."""
    theta = rng.uniform(-np.pi, np.pi, n)
    r = t.radius + t.amplitude * np.cos(t.frequency * theta) + t.width * rng.standard_normal(n)
    rest = rng.standard_normal((n, t.dim - 2))
    return np.column_stack([r * np.cos(theta), r * np.sin(theta), rest])


@each("target", [Flower(), Ring(2.0, 0.5, 2)], ids=name)
def test_a_curve_with_uniform_angle_is_caught(target):
    rng = np.random.default_rng(3)
    assert np.abs(balance_z(target, target.sample(rng, 40_000), rng)).max() < LIMIT
    assert np.abs(balance_z(target, uniform_angle(target, rng, 40_000), rng)).max() > 10


def level_z(levels):
    """z-scores of the content of the nine decile regions."""
    q = np.arange(1, 10) / 10
    return ((levels[:, None] <= q).mean(axis=0) - q) / np.sqrt(q * (1 - q) / len(levels))


@each("target", [*ALL, *SKEWED], ids=name)
def test_levels_are_uniform(target):
    levels = target.level(target.sample(np.random.default_rng(4), 100_000))
    assert levels.min() >= 0
    assert levels.max() <= 1
    assert np.abs(level_z(levels)).max() < LIMIT


@each(
    ("target", "other"),
    [
        (Banana(0.1), Banana(0.103)),
        (TwistedGaussian(3), Banana(0.03)),
        (Flower(), Flower(width=1.1)),
        (Bimodal(), Bimodal(separation=4.5)),
        (StudentT(5.0), StudentT(7.0)),
        (Funnel(3.0), Funnel(3.3)),
    ],
    ids=lambda t: repr(t)[:30],
)
def test_levels_of_another_target_are_not_uniform(target, other):
    rng = np.random.default_rng(4)
    x = other.sample(rng, 100_000)
    assert np.abs(level_z(target.level(x))).max() > 10


@each("target", HIGHEST_DENSITY, ids=name)
def test_regions_are_of_highest_density(target):
    x = target.sample(np.random.default_rng(6), 300)
    by_density = np.argsort([-target.log_density(p) for p in x])
    levels = target.level(x)[by_density]
    assert np.all(np.diff(levels) > -1e-9)
    assert levels[-1] - levels[0] > 0.9


@each("target", [*(t for t in ALL if isinstance(t, targets.GaussianImage)), *SKEWED], ids=name)
def test_the_map_to_the_normal_is_inverted(target):
    z = np.random.default_rng(2).standard_normal((50, target.dim))
    size = 1e-7 if target in SKEWED else 1e-8  # of those by inverting distribution functions
    np.testing.assert_allclose(target.to_normal(target.from_normal(z)), z, rtol=size, atol=size)


def test_other_units_change_nothing_but_the_units():
    base, scaled = Banana(), odd_units_banana()
    units = np.array(scaled.units)
    assert units.max() / units.min() == pytest.approx(1e6)
    x = base.sample(np.random.default_rng(0), 20)
    np.testing.assert_allclose(scaled.level(x * units), base.level(x), rtol=1e-10)
    np.testing.assert_allclose(scaled.sample(np.random.default_rng(0), 20), x * units)
    with pytest.raises(ValueError, match="units must be 8 positive numbers"):
        Rescaled(base, (1.0, 2.0))


# -- predator and prey


MODE = np.array([-0.6, -3.6, -0.2, -3.7, 3.5, 1.8])  # of the lynx-hare posterior, about, and its sds
POSTERIOR_SD = np.array([0.117, 0.151, 0.112, 0.147, 0.086, 0.089])


def log_errors(steps, n=8):
    """Largest error of the log populations against SciPy, for parameters from about the posterior."""
    rng = np.random.default_rng(8)
    worst = 0.0
    for _ in range(n):
        theta = np.exp(MODE + POSTERIOR_SD * rng.standard_normal(6))
        alpha, beta, gamma, delta = theta[:4]
        exact = solve_ivp(
            lambda _, s, a=alpha, b=beta, g=gamma, d=delta: [a - b * np.exp(s[1]), d * np.exp(s[0]) - g],
            (0, 20), np.log(theta[4:]), t_eval=np.arange(21), method="DOP853", rtol=1e-12, atol=1e-12,
        ).y.T  # fmt: skip
        ours = solve_lotka_volterra(*theta, 21, steps)
        worst = max(worst, np.abs(np.log(ours) - exact).max())
    return worst


def test_solver_is_accurate_and_of_fourth_order():
    fine = log_errors(20)
    assert fine < 1e-6
    assert 8 < log_errors(10) / fine < 32  # 2^4


def test_solver_starts_at_the_start_and_gives_nan_after_a_blow_up():
    path = solve_lotka_volterra(0.5, 0.03, 0.8, 0.02, 30.0, 4.0)
    assert path.shape == (21, 2)
    np.testing.assert_allclose(path[0], [30.0, 4.0])
    exploded = solve_lotka_volterra(40.0, 1e-9, 1.0, 1e-9, 30.0, 4.0)
    np.testing.assert_allclose(exploded[0], [30.0, 4.0])
    assert np.isnan(exploded[-1]).all()


# -- what is refused


@each(
    ("make", "message"),
    [
        (lambda: Banana(v=-1.0), "v must be positive and finite, got -1.0"),
        (lambda: Banana(b=np.nan), "b must be a finite number, got nan"),
        (lambda: Banana(dim=1), "dim must be an integer of at least 2, got 1"),
        (lambda: TwistedGaussian(5), "number must be 1, 2, 3 or 4"),
        (lambda: Flower(frequency=1.5), "frequency must be an integer of at least 1, got 1.5"),
        (lambda: Flower(amplitude=-1.0), "amplitude must be at least 0"),
        (lambda: Ring(width=0.0), "width must be positive"),
        (lambda: Funnel(scale=np.inf), "scale must be positive and finite, got inf"),
        (lambda: CorrelatedGaussian(0.5), "condition must be at least 1, got 0.5"),
        (lambda: Banana().log_density(np.zeros(3)), r"shape \(8,\), got \(3,\)"),
        (lambda: StudentT(2.0).cov, "infinite: it needs df > 2"),
        (lambda: StudentT(1.0).mean, "does not exist: it needs df > 1"),
    ],
)
def test_impossible_requests_are_refused_with_the_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_unknown_says_so():
    rng = np.random.default_rng(0)
    with pytest.raises(NotImplementedError, match="has no exact sampler"):
        targets.Target().sample(rng, 1)
    with pytest.raises(NotImplementedError, match="no regions of exactly known probability"):
        targets.Target().level(np.zeros((1, 10)))
