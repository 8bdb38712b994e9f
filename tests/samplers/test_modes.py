"""Several modes: the kernel across them is exact whatever is known of them; who finds them, and who does not."""

import math
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers.kamiltonian.trust import Mixture
from pymc_kameleon.samplers.modes import catalogue as geometry
from pymc_kameleon.samplers.modes import detection, saddle
from pymc_kameleon.samplers.modes import sampler as across
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled import learning
from pymc_kameleon.samplers.pooled.chains import Chains
from pymc_kameleon.samplers.seam import Point
from pymc_kameleon.surrogates.values import features
from pymc_kameleon.targets import Banana
from tests.samplers.test_value_kamiltonian import EVERY_ARM, bad_surrogate, draw_skewed, frozen_state, skewed
from tests.support import runs
from tests.support.chains import largest_change
from tests.support.differences import slopes
from tests.support.pooled import finished, plan_of

# --- the geometry ---------------------------------------------------------------------------------


def random_catalogue(d, size=3, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((size, d, d)) + 2.0 * np.eye(d)
    return geometry.make(5.0 * rng.standard_normal((size, d)), roots @ roots.transpose(0, 2, 1))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_assignment_is_the_highest_normal_density(d):
    from scipy.stats import multivariate_normal

    found, rng = random_catalogue(d), np.random.default_rng(1)
    x = 5.0 * rng.standard_normal((200, d))
    covariances = found.factors @ found.factors.transpose(0, 2, 1)
    densities = [multivariate_normal(m, c).logpdf(x) for m, c in zip(found.centres, covariances, strict=True)]
    labels = geometry.assign(found, x)
    assert labels.tolist() == np.argmax(densities, axis=0).tolist()
    assert len(np.unique(labels)) == 3
    assert [geometry.mode_of(found, p) for p in x[:20]] == labels[:20].tolist()


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_way_back_is_the_inverse_and_the_jacobian_is_the_differences(d):
    found, x = random_catalogue(d), np.random.default_rng(2).standard_normal(d)
    there, log_jacobian = geometry.carried(found, x, 0, 2)
    back, log_back = geometry.carried(found, there, 2, 0)
    np.testing.assert_allclose(back, x, rtol=1e-10)
    assert log_back == pytest.approx(-log_jacobian, rel=1e-12)
    of_map = slopes(lambda x: geometry.carried(found, x, 0, 2)[0], x, 1e-3)
    assert np.linalg.slogdet(of_map)[1] == pytest.approx(log_jacobian, rel=1e-6)


# --- the frozen kernel ----------------------------------------------------------------------------

TURN = np.array([[0.3, -0.6], [0.4, 0.1]])
AWAY = np.array([3.0, 1.0])  # so near that the border cuts through both
SHARE = 0.7


def target(x):
    """The skewed target, and with share .3 its image under x -> AWAY + TURN x."""
    image = np.linalg.solve(TURN, x - AWAY)
    log_det = np.linalg.slogdet(TURN)[1]
    return float(np.logaddexp(math.log(SHARE) + skewed(x), math.log(1.0 - SHARE) + skewed(image) - log_det))


def draws(rng, n):
    x = draw_skewed(rng, n)
    second = rng.random(n) > SHARE
    return np.where(second[:, None], AWAY + x @ TURN.T, x)


def wrong_modes():
    """Two bad surrogates, whose regions leave out parts, in a catalogue that is off in centres, shapes and border."""
    first = frozen_state(bad_surrogate(depth=4.0), EVERY_ARM).state
    blank = features.blank(AWAY + 0.3, np.array([0.9, 0.6]), np.eye(2))
    surrogate = blank._replace(constant=2.0, quadratic=-0.6 * np.eye(2), linear=np.array([-0.2, 0.3]))
    second = frozen_state(surrogate, EVERY_ARM, floor=0.3, radius=2.5, ceiling=2.5).state
    second = second._replace(mixture=Mixture(0.3, -1.5, 0.5))
    covariances = np.array([[[1.0, -0.3], [-0.3, 1.2]], [[0.3, 0.1], [0.1, 0.2]]])
    found = geometry.make([[0.2, 0.6], AWAY + np.array([-0.2, 0.2])], covariances)
    return found, (first, second)


@cache
def starts(n):
    return draws(np.random.default_rng(3), n)


def ends_after(n, rounds=5, sampler=across.SAMPLER):
    found, modes = wrong_modes()
    ends, moves, astray = np.empty((n, 2)), [], 0
    for i, (x, rng) in enumerate(zip(starts(n), np.random.default_rng(4).spawn(n), strict=True)):
        point = Point(x, target(x))
        state = across.frozen(found, modes, point)
        for draw in runs.draws(rng, sampler, target, point, state, rounds):
            moves.append((draw.proposal.move, draw.accepted))
            astray += draw.state.mode != geometry.mode_of(found, draw.point.position)
        ends[i] = draw.point.position
    return ends, moves, astray


def largest_z(ends):
    """Over moments, the weight of a mode, and where the surrogates, the regions and the border are."""
    regions = [
        lambda x: x[:, 0] > 2.0, lambda x: x[:, 0] < -0.7, lambda x: np.square(x[:, :2] - AWAY).sum(axis=1) < 0.5,
        lambda x: np.square(x[:, :2] - [0.4, 0.5]).sum(axis=1) < 0.3, lambda x: np.abs(x[:, 0] - 1.7) < 0.4,
    ]  # fmt: skip
    without_noise = np.zeros((len(ends), 1))
    return largest_change(*(np.hstack([x, without_noise]) for x in (starts(len(ends)), ends)), regions)


def test_a_mode_without_a_surrogate_is_where_its_walk_was():
    _, (first, second) = wrong_modes()
    bare = second._replace(dynamics=None, walk=second.walk._replace(history=None))
    found = geometry.catalogue_of(np.random.default_rng(0), (first, bare))
    np.testing.assert_array_equal(found.centres[1], bare.walk.mean)
    np.testing.assert_allclose(found.factors[1], bare.walk.factor)


@pytest.mark.parametrize("n", [400, pytest.param(6000, marks=pytest.mark.slow)])
def test_the_kernel_across_modes_leaves_the_target_as_it_is(n, monkeypatch):
    monkeypatch.setattr(across, "ACROSS", 0.6)  # more of what is new
    ends, moves, astray = ends_after(n)
    assert astray == 0  # the mode is a function of the point
    assert largest_z(ends) < 4.5
    jumps = [accepted for move, accepted in moves if move == "jump"]
    assert sum(jumps) > n / 20
    assert (ends[:, 0] > 2.0).mean() > 0.2


def without_jacobian(*given, carried=geometry.carried):
    return carried(*given)[0], 0.0


class NoSurrogate(across.AcrossModes):
    """The control: a free chain's end is taken by log p alone."""

    def log_ratio(self, state, point, proposal, there):
        if isinstance(proposal.carry, across.Landing) and proposal.carry.evaluated:
            return 0.0
        return super().log_ratio(state, point, proposal, there)


class Anywhere(across.AcrossModes):
    """The control: jumps that do not ask where they arrive; the mode is still that of the point."""

    def place(self, state, point, proposal=None):
        return super().place(state, point)


@pytest.mark.slow
@pytest.mark.parametrize("control", ["jacobian", "surrogate", "other modes' region"])
def test_controls_of_the_kernel_across_modes_fail(control, monkeypatch):
    monkeypatch.setattr(across, "ACROSS", 0.9)
    sampler = across.SAMPLER
    if control == "jacobian":
        monkeypatch.setattr(geometry, "carried", without_jacobian)
    elif control == "surrogate":
        sampler = NoSurrogate()
    else:
        monkeypatch.setattr(across, "arrives", lambda catalogue, x, mode: True)
        sampler = Anywhere()
    ends, *_ = ends_after(8000, rounds=10, sampler=sampler)
    assert largest_z(ends) > 10


# --- who finds them -------------------------------------------------------------------------------


class Apart:
    """Normal in 3 dimensions about 0 and about 12 in each, with weights .75 and .25 and unlike scales."""

    dim = 3
    sds = np.array([[1.0, 0.7, 1.5], [0.5, 1.0, 0.6]])
    means = np.array([[0.0] * 3, [14.0] * 3])
    weights = (0.75, 0.25)

    @classmethod
    def log_density(cls, x):
        parts = zip(cls.weights, cls.means, cls.sds, strict=True)
        terms = [math.log(w / s.prod()) - 0.5 * np.square((x - m) / s).sum() for w, m, s in parts]
        return float(np.logaddexp(*terms))

    @classmethod
    def starts(cls, n, seed):
        """Of every group of chains the climb begins nearer to one of the modes."""
        rng = np.random.default_rng(seed)
        return np.array([2.0 + 10.0 * (k // (n // 4) % 2) + rng.uniform(-2, 2, 3) for k in range(n)])


def run(seed=1, n=16, most=1000, target=Apart, **plan):
    seeds, plan = np.random.SeedSequence(seed), plan_of(most, **plan)
    return finished(Chains(np.full(target.dim, 6.0), target.starts(n, seed), seeds, plan), target.log_density)


def whatever_the_surrogate(patch):
    """In three dimensions a good one may span both modes, and chains cross: here that does not count."""
    patch.setattr(detection, "BAD", 0.0)
    patch.setattr(learning, "SEEN", 1)


def weights(draws):
    """Of the second mode, of every chain."""
    return (draws[:, :, 0] > 6.0).mean(axis=1)


def test_ends_that_are_far_apart_are_compared_at_once():
    """Before there is a sign of trouble, for which tuning would have to wait; and in the parts again."""
    chains = run(most=300)
    assert chains.modes == 2
    moves = chains.evaluated.move.tolist()
    assert set(moves[: moves.index("between")]) == {"start", "arrival"}
    ends = np.array([[0.0, 0.0], [1.0, 0.0], [30.0, 0.0]])
    cut = detection.cut_of_ends(ends, np.array([-1.0, 0.0, -9.0]), np.eye(2))
    assert cut.distance == pytest.approx(29.0)
    assert cut.sides(ends).tolist() == [0, 0, 1]
    assert detection.cut_of_ends(ends[:2], np.zeros(2), np.eye(2)) is None


def test_modes_are_found_and_have_their_weights(monkeypatch):
    whatever_the_surrogate(monkeypatch)
    chains = run()
    assert chains.modes == 2
    own = weights(pooled_chains.posterior(chains))
    assert abs(own.mean() - 0.25) < 4.5 * own.std(ddof=1) / 4.0
    assert own.std() < 0.15  # every chain is in both
    moves = [s["move"] for row in chains.rows for s in row.statistics]
    assert 0.1 < moves.count("jump") / len(moves) < 0.5
    labels = np.array([[s["mode"] for s in row.statistics] for row in chains.rows]).T
    draws = pooled_chains.posterior(chains)
    assert len(np.unique(labels[draws[:, :, 0] > 6.0])) == 1
    assert len(np.unique(labels)) == 2


@pytest.mark.slow
def test_pk_sample_knows_them_and_a_run_that_goes_on_has_the_same_bits(tmp_path, monkeypatch):
    whatever_the_surrogate(monkeypatch)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 10.0, shape=3)
        parts = [
            math.log(w / s.prod()) - 0.5 * pt.sum(((x + 7.0 - m) / s) ** 2)
            for w, m, s in zip(Apart.weights, Apart.means, Apart.sds, strict=True)
        ]
        pm.Potential("likelihood", pt.logaddexp(*parts))
    starts = [{"x": np.full(3, -6.0 + 12.0 * (k // 4 % 2)) + 0.1 * k} for k in range(16)]
    options = {"random_seed": 3, "initvals": starts, "progressbar": False}
    with model:
        short, longer = (
            pk.sample(max_evaluations=most, tune=30, checkpoint=tmp_path / "run", **options) for most in (800, 1000)
        )
    draws, more = (found["posterior"]["x"].values for found in (short, longer))
    assert draws.shape[1] + 5 < more.shape[1]
    assert draws.tobytes() == more[:, : draws.shape[1]].tobytes()
    assert longer["posterior"].attrs["modes"] == 2
    assert "2 modes are known" in pk.report(longer)
    assert set(np.unique(longer["sample_stats"]["mode"])) == {0, 1}


class Curved:
    """Half a ring of radius 8 and width 1, in two of four dimensions: long and bent, and one mode."""

    dim = 4

    @staticmethod
    def log_density(x):
        return float(-0.5 * (math.hypot(x[0], x[1]) - 8.0) ** 2 - 0.5 * x[2:] @ x[2:] - np.logaddexp(0, -4.0 * x[1]))

    @staticmethod
    def starts(n, seed):
        return np.random.default_rng(seed).uniform(-6, 6, (n, 4))


class One(Apart):
    """The first of the two."""

    weights = (1.0 - 1e-300, 1e-300)


@pytest.mark.parametrize("target", [pytest.param(Curved, marks=pytest.mark.slow), One])
def test_where_there_is_one_mode_no_bit_changes(target, monkeypatch):
    """Whether a second mode is looked for."""
    chains = run(most=300, target=target)
    monkeypatch.setattr(learning, "LATEST", 0.0)
    plain = run(most=300, target=target)
    assert (chains.modes, chains.refused) == (1, 0)
    assert chains.evaluated.positions.tobytes() == plain.evaluated.positions.tobytes()
    assert pooled_chains.posterior(chains).tobytes() == pooled_chains.posterior(plain).tobytes()


def test_a_cut_is_fishers():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 400, 3)) * [1.0, 2.0, 0.5]
    b[:, 1] += 40.0
    cut = detection.best_cut(np.concatenate([a, b]))
    assert cut.sides(a).tolist() == [cut.sides(a)[0]] * 400
    assert (cut.sides(b) != cut.sides(a)).all()
    assert abs(cut.distance - 20.0) < 1.0
    scaled = detection.best_cut(np.concatenate([a, b]) @ np.diag([1e3, 1e-3, 1.0]))
    assert scaled.distance == pytest.approx(cut.distance, rel=1e-6)
    assert detection.best_cut(a * [1.0, 25.0, 1.0]).distance < 4.0  # one is not two


def test_a_suspicion_is_refuted_where_the_log_density_does_not_fall():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((50, 2)), rng.standard_normal((50, 2)) + 30.0])
    y, cut = np.zeros(100), detection.best_cut(x)
    assert detection.is_suspected(cut, 5.0, x)
    assert not detection.is_suspected(cut, 0.5, x)  # a surrogate that is good spans both
    assert not detection.is_suspected(cut, 5.0, x[:51])  # one chain is a straggler
    line = detection.between(cut, x, y)
    assert line.shape == (detection.LINE, 2)
    assert detection.plausible(cut, x, y) == -1.0  # half of two dimensions


def ends(log_density, points):
    """A cut between two clouds of states, and the line between them."""
    y = np.array([log_density(x) for x in points])
    cut = detection.best_cut(points)
    line = detection.between(cut, points, y)
    return cut, line, [log_density(x) for x in line], detection.plausible(cut, points, y)


def searched(log_density, points, seed=0, width=2):
    """Whether the plane between is as high as the ends, and how many evaluations that took."""
    cut, line, values, enough = ends(log_density, points)
    lowest = int(np.argmin(values))
    assert values[lowest] < enough - detection.DEEP  # the line alone says that there are two
    search = saddle.begin(cut, line[lowest], values[lowest], enough - detection.CLEFT)
    rng, count = np.random.default_rng(seed), 0
    while not search.done:
        asked = saddle.propose(rng, search, width)
        where = saddle.positions(search, asked)
        assert len(asked) <= width
        np.testing.assert_allclose(
            [cut.normal @ (x - line[lowest]) for x in where], 0.0, atol=1e-6 * np.abs(cut.normal).sum()
        )
        count += len(asked)
        search = saddle.tell(rng, search, asked, [log_density(x) for x in where])
    assert count <= saddle.budget(points.shape[1])
    return search.connected, count


@pytest.mark.parametrize("width", [1, 3])
def test_the_ends_of_a_banana_are_one_mode_and_two_normals_are_two(width):
    rng = np.random.default_rng(1)
    bent = Banana(0.1, 100.0, 6)
    x = rng.standard_normal((60, 6))
    x[:, 0] = np.where(np.arange(60) % 2, 18.0, -18.0) + 0.3 * x[:, 0]
    x[:, 1] += 0.1 * (x[:, 0] ** 2 - 100.0)
    connected, count = searched(bent.numba_log_density, x, width=width)
    assert connected
    assert count < 40

    means = np.array([[0.0] * 6, [20.0] + [3.0] * 5])

    def two(x):
        return float(np.logaddexp.reduce(-0.5 * np.square(x - means).sum(axis=1)))

    x = rng.standard_normal((60, 6)) + means[np.arange(60) % 2]
    connected, _ = searched(two, x, width=width)
    assert not connected


def test_on_a_line_there_is_no_plane():
    x = np.concatenate([np.random.default_rng(0).standard_normal((20, 1)) + a for a in (0.0, 40.0)])
    cut, line, values, enough = ends(lambda x: -0.5 * min(float(x[0] ** 2), float((x[0] - 40.0) ** 2)), x)
    assert min(values) < enough
    assert saddle.begin(cut, line[0], values[0], enough) is None
