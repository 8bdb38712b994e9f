"""What the log density's values say about axes that the chain has not explored."""

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers import long_axes
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.seam import Outcome, Proposal
from pymc_kameleon.targets import CorrelatedGaussian, Funnel
from tests.support.chains import tuned


def seen(log_density, points, chain):
    """Values of proposals at ``points`` (n, d) by a chain that was at ``chain`` (n, d)."""
    values = long_axes.begin(evaluations.empty(points.shape[1]))
    for point, x in zip(points, chain, strict=True):
        proposal = Proposal(point, 0.0, "global")
        outcome = Outcome(x, log_density(x), proposal, log_density(point), 0.3, False)
        values = long_axes.record(values, outcome)
    return values


def local_cloud(target, rng, n=600, size=0.01):
    """States within a hundredth of the target's standard deviations, and proposals around them."""
    scale = size * np.sqrt(np.diag(target.cov))
    chain = target.sample(rng, 1)[0] + scale * rng.standard_normal((n, target.dim))
    return chain, chain + scale * rng.standard_normal((n, target.dim))


def root(cov):
    return np.linalg.cholesky(np.atleast_2d(np.cov(cov.T, ddof=0)))


def in_own_units(target, factor):
    """Eigenvalues of the learned covariance in coordinates in which the target's is the identity."""
    whitened = np.linalg.solve(np.linalg.cholesky(target.cov), factor)
    return np.linalg.eigvalsh(whitened @ whitened.T)


def test_a_small_cloud_knows_a_normal_targets_axes():
    target, rng = CorrelatedGaussian(1e3, 5), np.random.default_rng(0)
    chain, points = local_cloud(target, rng)
    values = seen(target.log_density, points, chain)
    before = in_own_units(target, root(chain))
    after = in_own_units(target, long_axes.extend(rng, values, chain, root(chain)))
    assert before.min() < 1e-3
    assert after.min() > 0.1  # a slope may hold an axis back, here by a factor of three
    assert after.max() < 1.1


@pytest.mark.parametrize("correlation", [0.0, 0.99, 0.99999])
def test_a_chain_that_has_seen_its_target_keeps_its_own_covariance(correlation):
    rng = np.random.default_rng(1)
    cov = np.array([[1.0, correlation], [correlation, 1.0]])
    precision = np.linalg.inv(cov)
    chain = rng.standard_normal((1000, 2)) @ np.linalg.cholesky(cov).T
    points = chain + 0.5 * rng.standard_normal(chain.shape) @ np.linalg.cholesky(cov).T
    values = seen(lambda x: -0.5 * float(x @ precision @ x), points, chain)
    own = root(chain)
    np.testing.assert_array_equal(long_axes.extend(rng, values, chain, own), own)


def round_normal(x):
    return -0.5 * float(x @ x)


def test_nothing_is_said_where_a_quadratic_does_not_predict():
    target, rng = Funnel(3.0, 5), np.random.default_rng(2)
    chain = target.sample(rng, 600)
    values, own = seen(target.log_density, chain + rng.standard_normal(chain.shape), chain), root(chain)
    assert long_axes.extend(rng, values, chain, own) is own


@pytest.mark.parametrize("sd", [3.0, 0.0])
def test_nothing_is_said_where_noise_hides_it(sd):
    rng = np.random.default_rng(2)
    chain = 0.1 * rng.standard_normal((600, 5))  # too small by ten
    points, own = chain + 0.1 * rng.standard_normal(chain.shape), root(chain)
    values = seen(lambda x: round_normal(x) + sd * rng.standard_normal(), points, chain)
    extended = long_axes.extend(rng, values, chain, own)
    assert extended is own if sd else extended[0, 0] > 5 * own[0, 0]  # the control


@pytest.mark.parametrize(("n", "log_density"), [(3, round_normal), (20, round_normal), (59, round_normal), (300, None)])
def test_nothing_is_said_too_early_or_of_points_without_a_value(n, log_density):
    rng = np.random.default_rng(3)
    chain = rng.standard_normal((n, 2))
    values, own = seen(log_density or (lambda x: -np.inf), chain, chain), root(chain)
    assert long_axes.extend(rng, values, chain, own) is own


def beside(second):
    """N(0, 1) and beside it ``second``, a log density on the line: the learned sd of the latter in 2500 draws, and how
    far the chain moved along the former."""
    x, found = np.array([0.3, 0.5]), []
    log_density = lambda x: -0.5 * float(x[0] * x[0]) + second(x[1])  # noqa: E731
    for seed in range(3):
        chain = tuned(AdaptiveMetropolis(), log_density, x, 2500, seed)
        found.append((np.linalg.norm(chain.held.factor[1]), chain.draws[1000:, 0].std()))
    learned, spread = np.array(found).T
    return learned.max(), spread.min()


def flat(x):
    return 0.0 if 0.0 < x < 1.0 else -np.inf


def steep(x):
    return 0.0 if 0.0 < x < 1.0 else -1e6


def exponential(x):
    return -x if x > 0.0 else -np.inf


@pytest.mark.parametrize(("second", "sd"), [(flat, 0.29), (steep, 0.29), (exponential, 1.0)])
def test_a_wall_or_a_slope_is_not_a_long_axis(second, sd):
    learned, spread = beside(second)
    assert learned < 3 * sd
    assert spread > 0.5


@pytest.mark.parametrize("second", [flat, exponential])
def test_without_the_look_at_walls_and_slopes_it_is(monkeypatch, second):
    monkeypatch.setattr(long_axes, "_has_cliffs", lambda *arguments: False)
    if second is exponential:
        monkeypatch.setattr(long_axes, "FALL", 1e9)
    learned, spread = beside(second)
    assert learned > 20
    assert spread < 0.5


@pytest.mark.parametrize("learn_from_values", [True, False])
def test_an_ill_conditioned_target_is_learned_from_a_cold_start_and_without_the_values_it_is_not(learn_from_values):
    """The share of the longest axis' standard deviation that adaptive Metropolis has learned in 3000 draws."""
    target, learned = CorrelatedGaussian(1e4, 20), []
    for seed in range(3):
        x = target.sample(np.random.default_rng(seed), 1)[0]
        chain = tuned(AdaptiveMetropolis(learn_from_values=learn_from_values), target.log_density, x, 3000, seed)
        learned.append(np.sqrt(in_own_units(target, chain.held.factor).min()))
    assert np.median(learned) > 0.4 if learn_from_values else np.median(learned) < 0.2
