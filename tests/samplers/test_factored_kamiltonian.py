"""Learning black boxes one by one: the emulators, and that a chain is exact whatever they are."""

import itertools
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations, history
from pymc_kameleon.numerics.step_size import varied
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.factors import climb
from pymc_kameleon.samplers.kamiltonian.factors import learning as learn
from pymc_kameleon.samplers.kamiltonian.factors.learning import is_high_enough
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, Arm, Surface, enter, expense, leave, run, spot
from pymc_kameleon.samplers.kamiltonian.learner import Quality
from pymc_kameleon.samplers.seam import Outcome, Point
from pymc_kameleon.surrogates import walls
from pymc_kameleon.surrogates.factors.emulator import Emulator, emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.one_factor import CANDIDATES, size, within
from pymc_kameleon.surrogates.factors.regression import Sample, fit
from pymc_kameleon.surrogates.factors.splines import Spline, assemble, columns, nested
from tests.support import runs
from tests.support.chains import Held, run_transitions, two_sample_z
from tests.support.differences import assert_jacobian, slopes
from tests.support.hierarchies import CompiledToy, Toy, known_of_toy

# --- emulators ------------------------------------------------------------------------------------


def fitted(rng, added=False, n=300):
    """Three factors of 1, 2 and 3 inputs and 2 outputs each, or the sums of the two."""
    inputs, outputs = np.array([0, 1, 3, 6]), np.arange(4) * (1 if added else 2)
    layout = Layout(inputs, outputs, np.full(3, added))
    z = rng.standard_normal((n, 6))
    w = z * np.array([1.0, 5.0, 0.1, 1.0, 1.0, 1.0])
    rows = [np.sin(0.7 * z[:, a:b].sum(axis=1)) for a, b in itertools.pairwise(inputs)]
    o = np.stack([part for row in rows for part in ((row,) if added else (row, row**2))], axis=1)
    return layout, w, o


@pytest.mark.parametrize("far", [1.0, 8.0])
@pytest.mark.parametrize(("added", "nearest"), [(False, False), (True, False), (False, True)])
def test_the_jacobian_and_the_wall_are_those_of_the_emulator(far, added, nearest):
    rng = np.random.default_rng(0)
    layout, w, o = fitted(rng, added)
    sample = Sample(w, o, -np.square(w).sum(axis=1))
    found = fit(rng, layout, sample, w, w[0], np.ones(6), nearest=nearest)
    assert found.emulator.straight != nearest
    point = far * w[0]
    outputs, _, penalty, _ = assert_jacobian(found.emulator, point)
    assert (penalty > 0.0) == (far > 1.0)
    assert np.isfinite(outputs).all()


def quadratics(coefficients, *, radius, centre=0.0, scale=1.0, added=True, straight=False):
    """Quadratics in one input each, from their ``coefficients`` (k, 3), trusted within ``radius``."""
    k, n = len(coefficients), 3 * len(coefficients)
    return Emulator(
        inputs=np.arange(k + 1), outputs=np.arange(k + 1), centre=np.zeros(k) + centre, scale=np.ones(k) * scale,
        knots=np.tile([-np.inf, np.inf], (k, 1)), whitening=np.ones((k, 1, 1)), radius=np.ones(k) * radius,
        sign=np.full(k, float(added)), first=np.arange(0, n + 1, 3), variables=np.zeros((n, 3), dtype=np.int64),
        powers=np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0]] * k), coefficients=np.ravel(coefficients).astype(float),
        start=np.arange(0, n + 1, 3), splines=assemble([None] * k, 1),
        links=np.zeros(k, np.int64), straight=straight,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("curvature", "added", "straight", "want"),
    [
        (-0.5, True, True, -6.0),
        (-0.5, False, True, -6.0),
        (-0.5, True, False, -2.0),
        (0.5, True, True, 2.0),  # a log likelihood does not rise
        (0.5, False, True, 6.0),
    ],
)
def test_beyond_the_ball_is_the_tangent_but_in_a_climb(curvature, added, straight, want):
    found = quadratics([[0.0, 0.0, curvature]], radius=2.0, added=added, straight=straight)
    for side in (-4.0, 4.0):
        assert emulate(found, np.array([side]))[0] == pytest.approx(want)


def test_a_surrogate_is_not_too_low_in_the_tails():
    """A Poisson log likelihood seven sds out, where one of tens of groups may be: a chain would stand there."""
    rng = np.random.default_rng(4)
    layout = Layout(np.array([0, 1]), np.array([0, 1]), np.array([True]))
    w = rng.standard_normal((400, 1))

    def truth(eta):
        return 2.0 * eta - np.exp(0.7 * eta)

    found = fit(rng, layout, Sample(w, truth(w), truth(w)[:, 0]), w, w[0], np.ones(1)).emulator
    far = np.array([-7.0])
    assert found.radius[0] < 6.5

    def too_low(emulator):
        outputs, _, penalty, _ = emulate(emulator, far)
        return float(truth(far)[0] - outputs[0] + penalty)

    assert too_low(found) < 0.5
    steep = found._replace(radius=np.array([4.5]), straight=False)  # the control
    assert too_low(steep) > 3.0


@pytest.mark.parametrize("d", [1, 2, 5])
def test_monomials_are_nested_and_counted(d):
    variables, powers = nested(d, 6, 3)
    s = np.random.default_rng(1).standard_normal((4, d))
    direct = [
        [np.prod([row[v] ** p for v, p in zip(vs, ps, strict=True)]) for vs, ps in zip(variables, powers, strict=True)]
        for row in s
    ]  # fmt: skip
    np.testing.assert_allclose(columns(s, variables, powers), direct, rtol=1e-12)
    for degree, order in CANDIDATES:
        assert within(powers, degree, order).sum() == size(d, degree, order)
        assert len(nested(d, degree, order)[0]) == size(d, degree, order)


@pytest.mark.parametrize("added", [False, True])
def test_errors_are_out_of_sample(added):
    rng = np.random.default_rng(2)
    layout, w, o = fitted(rng, added)
    found = fit(rng, layout, Sample(w, o, o.sum(axis=1)), w, w[0], np.full(layout.outputs[-1], 4.0))
    fresh = fitted(rng, added, 2000)
    emulated = np.array([emulate(found.emulator, row)[0] for row in fresh[1]])
    for k in range(3):
        mine = layout.outputs_of(k)
        squares = 4.0 * np.square(emulated - fresh[2])[:, mine].sum(axis=1)
        error = np.sqrt(np.sort(squares)[:1600].mean())  # the tails count less in the fit
        assert found.errors[k] < 0.6
        assert error < 2.0 * found.errors[k] + 0.01


def test_a_quadratic_is_found_exactly_and_from_few_points():
    rng = np.random.default_rng(3)
    layout = Layout(np.array([0, 2]), np.array([0, 1]), np.array([True]))
    w = rng.standard_normal((14, 2))
    o = 1.0 + w[:, :1] - 0.5 * w[:, :1] * w[:, 1:] - w[:, 1:] ** 2
    found = fit(rng, layout, Sample(w, o, o[:, 0]), None, w[0], np.ones(1))
    fresh = 0.5 * rng.standard_normal(2)
    truth = 1.0 + fresh[0] - 0.5 * fresh[0] * fresh[1] - fresh[1] ** 2
    np.testing.assert_allclose(emulate(found.emulator, fresh)[0], truth, rtol=1e-5)


@pytest.mark.parametrize("bend", [0.0, 1e-3])
def test_what_is_learned_exactly_is_trusted_everywhere(bend):
    """Once the chain's own states are the reference; a climb, and what is a little off, keep their wall."""
    rng = np.random.default_rng(3)
    layout = Layout(np.array([0, 1]), np.array([0, 1]), np.array([True]))
    w = rng.standard_normal((60, 1))
    o = -0.5 * w**2 + bend * np.sin(5.0 * w)
    sample = Sample(w, o, o[:, 0])
    far = np.array([30.0])
    radii = [
        fit(rng, layout, sample, reference, w[0], np.ones(1), nearest=nearest)[0].radius[0]
        for reference, nearest in ((w, False), (None, False), (None, True))
    ]
    assert (radii[0] > 100.0) == (bend == 0.0)
    assert max(radii[1:]) < 20.0
    if bend == 0.0:
        found = fit(rng, layout, sample, w, w[0], np.ones(1)).emulator
        outputs, _, penalty, _ = emulate(found, far)
        np.testing.assert_allclose(outputs, -450.0, rtol=1e-6)
        assert penalty == 0.0


# --- exactness ------------------------------------------------------------------------------------


# little to do with the black boxes, and a wall in the middle of the posterior
BAD = quadratics([[0.3, 1.2, -0.1], [-0.4, -1.0, -0.1]], centre=[1.5, -1.0], scale=[0.7, 1.6], radius=[0.8, 1.1])
BEYOND = BAD._replace(straight=True)  # along tangents
# of one factor, and it has little to do with the black box either; the balls are wide, so that it counts
SPLINE = Spline(np.array([[-1.0], [0.2], [1.3]]), np.array([[0.2], [-0.5], [0.3]]), np.zeros((0, 1)))
BENT = BEYOND._replace(
    knots=np.array([[0.5, np.inf], [-np.inf, 0.0]]), radius=np.array([2.5, 1.1]), splines=assemble([SPLINE, None], 1)
)
EMULATORS = {"walls": BAD, "tangents": BEYOND, "splines": BENT}

NOWHERE = 6.0  # where no chain comes to


def raising(u, centring, w, outputs, jacobian, slope, slope_error):
    if u[0] == NOWHERE:
        raise ValueError
    return known_of_toy(u, centring, w, outputs, jacobian, slope, slope_error)


@cache
def compiled_toy():
    """Compiling takes seconds. What is compiled are the lines that Python runs, with which it is compared below."""
    return CompiledToy(known=raising)


# through the bulk of what has no edge there
WALLED = walls.Walled(
    np.array([[0.4, 0.6, -0.5, 0.3, 0.0], [0.7, 0.0, 0.4, 0.0, -0.6]]), np.full(4, 0.1), np.diag([1.0, 0.8, 1.2, 1.0])
)


def frozen(sampler, rng, centring, typical=1.5, emulator="walls", walled=False):
    """A frozen state with a bad surrogate, a bad metric and bad shares."""
    toy = sampler.known
    metric = np.array([[0.6, 0, 0, 0], [-0.4, 1.0, 0, 0], [0.2, 0.1, 0.8, 0], [0, 0.3, -0.2, 0.9]])
    edges = WALLED if walled else walls.unbounded(4)
    surface = Surface(EMULATORS[emulator], centring * toy.movable, metric, 0.35, edges)
    state = sampler.init(rng, np.zeros(4))
    return state._replace(
        surface=surface, learning=None, mixture=trust.Mixture(0.1, typical, 8.0 if walled else 0.5),
        archive=0.8 * rng.standard_normal((40, 4)), middles=rng.standard_normal((9, 4)),
        arms=np.array([0.3, 0.4, 0.3, 0.0, 0.0]), log_walk=math.log(0.8), quality=Quality(1.0, 0.1, 1, 100),
    )  # fmt: skip


class NoJacobian(FactoredKamiltonian):
    """The control: the walk is taken for symmetric in v, which it is in u."""

    def _walk(self, rng, x, state):
        return super()._walk(rng, x, state)._replace(log_q_ratio=0.0)


class NoShares(FactoredKamiltonian):
    """The control: the shares are left out of the ratio."""

    def log_ratio(self, state, point, proposal, there):
        return proposal.log_q_ratio


class NoSurrogate(FactoredKamiltonian):
    """The control: the surrogate's proposals are taken for symmetric."""

    def _surrogate(self, rng, x, state):
        proposal = super()._surrogate(rng, x, state)
        return proposal._replace(log_q_ratio=0.0) if proposal.carry.evaluated else proposal


def largest_z(kind, chains, steps=3, centring=0.5, **wrong):
    rng, toy = np.random.default_rng(6), compiled_toy()
    starts, sampler = toy.draw(rng, chains), kind(known=toy)
    ends = run_transitions(rng, Held(sampler, frozen(sampler, rng, centring, **wrong)), toy, starts, steps)
    assert (ends != starts).any(axis=1).mean() > 0.3  # the test tests something
    return np.abs(two_sample_z(ends, starts, toy)).max()


@pytest.mark.parametrize(
    ("emulator", "centring", "walled"),
    [
        ("walls", 0.5, True), ("splines", 0.5, False),  # and tangents beyond them
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("walls", 0.5, False), ("tangents", 0.5, False), ("walls", 0.0, True), ("walls", 1.0, False)]
        ),
    ],
)  # fmt: skip
def test_chains_are_exact_whatever_the_emulators(emulator, centring, walled):
    assert largest_z(FactoredKamiltonian, 1600, centring=centring, emulator=emulator, walled=walled) < 4.5


@pytest.mark.slow
def test_a_wrong_slope_of_the_known_part_costs_speed_only(monkeypatch):
    monkeypatch.setattr(compiled_toy(), "slope_error", -0.5)
    assert largest_z(FactoredKamiltonian, 2400) < 4.5


@pytest.mark.parametrize(
    ("control", "centring", "typical", "chains"),
    [
        (NoJacobian, 1.0, -2.0, 1200),
        (NoSurrogate, 0.0, 4.0, 2000),
        pytest.param(NoShares, 0.0, 2.0, 6000, marks=pytest.mark.slow),
    ],
)
def test_the_controls_fail(control, centring, typical, chains):
    assert largest_z(control, chains, 8, centring, typical=typical) > 10.0


@pytest.mark.slow
@pytest.mark.parametrize("typical", [2.0, 4.0])
def test_chains_are_exact_where_the_controls_are_not(typical):
    assert largest_z(FactoredKamiltonian, 6000, 8, 0.0, typical=typical) < 4.5


@pytest.mark.parametrize(("emulator", "walled"), [*((name, False) for name in EMULATORS), ("walls", True)])
def test_compiled_is_what_python_is(monkeypatch, emulator, walled):
    """Up to rounding, wherever the point is; what is shared is what it is now."""
    toys, moved, longest = (Toy(), compiled_toy()), 0, 0
    sampler, options = FactoredKamiltonian(known=toys[0]), {"emulator": emulator, "walled": walled}
    state = frozen(sampler, np.random.default_rng(7), 0.5, **options)
    surface, middles = state.surface, state.middles
    for seed in range(100):
        for toy in toys:
            monkeypatch.setattr(toy, "slope_error", 1.0 if seed < 50 else 0.5)
        u = np.random.default_rng(seed).standard_normal(4) * (1e3 if seed % 10 == 9 else 1.0)
        starts = [spot(toy, surface, u, 0.7) for toy in toys]
        for a, b in zip(starts[0][1:], starts[1][1:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
        one, other = (
            run(np.random.default_rng(seed), toy, surface, start, ARMS[seed % 5], 0.7, middles)
            for toy, start in zip(toys, starts, strict=True)
        )
        assert (one.moved, one.gradients, one.diverging) == (other.moved, other.gradients, other.diverging)
        np.testing.assert_allclose(one.end.u, other.end.u, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(one.end.value, spot(toys[0], surface, one.end.u, 0.7).value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.accept_prob, other.accept_prob, rtol=1e-7, atol=1e-9)
        moved, longest = moved + one.moved, max(longest, one.gradients)
    assert moved > 60
    assert longest > 30


def test_the_height_of_walls_is_a_part_of_f():
    toy, rng = Toy(), np.random.default_rng(8)
    surface = frozen(FactoredKamiltonian(known=toy), rng, 0.5, walled=True).surface
    smooth, heights = surface._replace(walled=walls.unbounded(4)), []
    for u in rng.standard_normal((60, 4)):
        heights.append(spot(toy, smooth, u, 0.7).value - spot(toy, surface, u, 0.7).value)
        z = WALLED.inverse @ (u - WALLED.middle)
        beyond = np.any(WALLED.walls[:, 0] + WALLED.walls[:, 1:] @ z < 0.0)
        assert heights[-1] == pytest.approx(0.7 * walls.HEIGHT * beyond)
    assert 10 < np.count_nonzero(heights) < 50


@pytest.mark.parametrize(("steps", "enter"), [(varied, True), (lambda step, u: (0.8 + 0.4 * u) * step, False)])
def test_small_steps_enter_the_narrow_end_of_a_funnel(monkeypatch, steps, enter):
    """As often as they leave it, by reversibility: from exact draws with l = -1.8, where the tuned step is unstable."""
    monkeypatch.setattr("pymc_kameleon.samplers.kamiltonian.factors.surface.varied", steps)
    toy, rng, probabilities = Toy(), np.random.default_rng(1), []
    flat = quadratics(np.zeros((2, 3)), radius=1e3)
    surface = Surface(flat, np.ones(4), np.eye(4), 0.6, walls.unbounded(4))  # centred: the prior's funnel
    for _ in range(2000):
        mu = rng.standard_normal()
        x = mu + math.exp(-1.8) * rng.standard_normal(2)
        start = spot(toy, surface, np.array([mu, -1.8, *x]))
        probabilities.append(run(rng, toy, surface, start, ARMS[1]).accept_prob)
    error = 4.5 * np.std(probabilities) / math.sqrt(2000)
    # .03 and .001
    assert np.mean(probabilities) - error > 0.01 if enter else np.mean(probabilities) + error < 0.01


def test_what_the_known_part_raises_is_raised(monkeypatch):
    """It does not cross a function pointer: Python is asked, and says what it was."""
    toy, seen = compiled_toy(), []
    surface = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5).surface
    monkeypatch.setattr("sys.unraisablehook", lambda given: seen.append(given.exc_type))
    near, far = np.zeros(4), np.array([NOWHERE, 0.0, 0.0, 0.0])
    assert spot(toy, surface, near).value == pytest.approx(spot(Toy(), surface, near).value, rel=1e-12)
    assert not seen
    assert spot(toy, surface, far).value == spot(Toy(), surface, far).value
    assert seen == [ValueError]

    def says(*given):
        raise ValueError("this one")

    monkeypatch.setattr(toy, "known", says)
    with pytest.raises(ValueError, match="this one"):
        spot(toy, surface, far)


def test_transitions_are_reversible_with_respect_to_the_surrogate():
    """One trajectory backwards: the same energy error with the other sign, and home again."""
    toy, rng = Toy(), np.random.default_rng(7)
    state = frozen(FactoredKamiltonian(known=toy), rng, 0.5)

    def given(momentum):
        """Random numbers; always accepted, unless impossible."""
        uniforms = np.array([[0.5, 0.5, 0.0]])
        return SimpleNamespace(standard_normal=lambda shape: momentum[None], random=lambda shape: uniforms)

    momentum = 0.5 * rng.standard_normal(4)
    start = spot(toy, state.surface, 0.2 * rng.standard_normal(4))
    there = run(given(momentum), toy, state.surface, start, ARMS[1])
    assert there.moved
    # the momentum at the end, from the energies: go on from there with the opposite one
    b, step = state.surface.metric, varied(state.surface.step_size, 0.5)
    u, p, g = start.u, momentum.copy(), start.gradient
    for _ in range(there.gradients):
        p = p + 0.5 * step * b.T @ g
        u = u + step * b @ p
        g = spot(toy, state.surface, u).gradient
        p = p + 0.5 * step * b.T @ g
    np.testing.assert_allclose(u, there.end.u, rtol=1e-10)
    back = run(given(-p), toy, state.surface, there.end, ARMS[1])
    np.testing.assert_allclose(back.end.u, start.u, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(back.energy_error, -there.energy_error, rtol=1e-8)


def test_a_transition_is_accepted_with_the_probability_of_its_energy_error():
    toy, rng = Toy(), np.random.default_rng(3)
    surface = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5).surface._replace(step_size=0.5)
    seen = 0
    for _ in range(20):
        start, momentum = spot(toy, surface, 0.2 * rng.standard_normal(4)), rng.standard_normal(4)

        def moved(uniform, start=start, momentum=momentum):
            uniforms = np.array([[0.5, 0.5, uniform]])
            given = SimpleNamespace(standard_normal=lambda shape: momentum[None], random=lambda shape: uniforms)
            return run(given, toy, surface, start, ARMS[1])

        probability = math.exp(min(0.0, -moved(0.5).energy_error))
        assert moved(0.999 * probability).moved == (probability > 0.0)
        if 0.0 < probability < 0.99:
            assert not moved(1.001 * probability).moved
            seen += 1
    assert seen > 5


def test_a_jump_goes_either_way_and_is_accepted_with_the_probability_of_what_f_differs_by():
    toy, rng, seen = Toy(), np.random.default_rng(4), 0
    state = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5, walled=True)
    surface, middles = state.surface, 0.5 * state.middles

    def ended(start, pair, uniform):
        """Where two trajectories that are refused and the jump between them end."""
        uniforms = np.array([[0.5, 0.5, 1.0, uniform]] * 2)
        given = SimpleNamespace(
            standard_normal=lambda shape: np.ones(shape), random=lambda shape: uniforms,
            integers=lambda n, size: np.array(pair)[:, None],
        )  # fmt: skip
        return run(given, toy, surface, start, Arm(2, 0.1), middles=middles).end

    for _ in range(40):
        start, pair = spot(toy, surface, 0.3 * rng.standard_normal(4)), rng.permutation(len(middles))[:2]
        there = spot(toy, surface, start.u + middles[pair[0]] - middles[pair[1]])
        probability = math.exp(min(0.0, there.value - start.value))
        end = ended(start, pair, 0.999 * probability)
        np.testing.assert_allclose(end.u, there.u if probability > 0.0 else start.u, rtol=1e-12)
        assert end.value == pytest.approx(there.value if probability > 0.0 else start.value, rel=1e-12)
        if 0.0 < probability < 0.99:
            assert ended(start, pair, 1.001 * probability) is start
            seen += 1
    assert seen > 15


def test_a_trajectory_of_steps_of_a_hundredth_is_whole():
    """Cut at 60 steps it was a random walk along thin ridges."""
    toy = Toy()
    surface = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5).surface._replace(step_size=0.01)
    uniforms = np.array([[0.5, 0.5, 0.0]])
    given = SimpleNamespace(standard_normal=lambda shape: np.full(shape, 0.1), random=lambda shape: uniforms)
    path = run(given, toy, surface, spot(toy, surface, np.zeros(4)), ARMS[1])
    step = varied(0.01, 0.5)
    assert path.gradients * step == pytest.approx(ARMS[1].time, abs=step)


def test_long_arms_are_chosen_where_their_gradients_are_little_beside_an_evaluation():
    """Of 85 unknowns two hundred gradients are as much as an evaluation or more, of two nothing."""
    learning = SimpleNamespace(correlation=0.3, accepted=np.full(len(ARMS), 0.9), trials=np.ones(len(ARMS)))
    left = 0.3 ** np.array([0.4, 1.0, 3.0, 8.0, 20.0])
    by_draws = ((1.0 - left) / (1.0 + left)) ** 6.0

    def shares(d, coefficients, boxes=1):
        emulator = SimpleNamespace(coefficients=np.zeros(coefficients), radius=np.ones(boxes))
        surface = SimpleNamespace(metric=np.eye(d), emulator=emulator, step_size=0.16)
        return learn.arm_shares(learning, surface, 6.0, 0.0)

    assert shares(2, 20) == pytest.approx(by_draws / by_draws.sum(), abs=0.06)
    many = shares(85, 2400)
    assert many.argmax() == 2
    assert many[2] > 10.0 * many[4]
    # an evaluation is of all boxes: beside forty of them the same gradients cost a fortieth
    assert shares(85, 2400, boxes=40) == pytest.approx(by_draws / by_draws.sum(), abs=0.06)


def test_a_proposal_takes_about_as_many_gradients_as_are_counted():
    rng, toy = np.random.default_rng(2), Toy()
    surface = frozen(FactoredKamiltonian(known=toy), rng, 0.5).surface
    here = spot(toy, surface, np.zeros(4))
    for arm, expected in zip(ARMS, expense(surface)[0], strict=True):
        found = [run(rng, toy, surface, here, arm).gradients for _ in range(40)]
        assert np.mean(found) == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize("centring", [0.0, 0.5, 1.0])
def test_u_and_v_are_each_others_inverses(centring):
    toy, rng = Toy(), np.random.default_rng(8)
    share = centring * toy.movable
    v = rng.standard_normal(4)
    u = enter(toy, v, share)
    there, jacobian = leave(toy, u, share)
    np.testing.assert_allclose(there, v, rtol=1e-12)
    of_map = slopes(lambda u: leave(toy, u, share)[0], u, 1e-6)
    np.testing.assert_allclose(jacobian, np.linalg.slogdet(of_map)[1], atol=1e-7)


# --- learning -------------------------------------------------------------------------------------


def cold_chain(seed, tune, draws):
    toy, rng = compiled_toy(), np.random.default_rng(seed)
    sampler = FactoredKamiltonian(known=toy, tune=tune)
    found = runs.run(rng, sampler, toy, rng.uniform(-2.0, 2.0, 4), tune=tune, n=draws)
    return sampler, found.state, found.draws


def test_from_a_cold_start_in_300_draws():
    exact = Toy().draw(np.random.default_rng(9), 4000)
    means = []
    for seed in range(3):
        sampler, state, draws = cold_chain(seed, 150, 150)
        assert state.learning is None
        assert state.fit.error < 0.05
        assert state.quality.arrived
        assert sampler.stats(state)["factors"] == 2
        assert set(sampler.stats(state)) <= set(sampler.statistics)
        means.append(np.concatenate([draws.mean(axis=0), np.square(draws).mean(axis=0)]))
    truth = np.concatenate([exact.mean(axis=0), np.square(exact).mean(axis=0)])
    z = (np.mean(means, axis=0) - truth) / (np.std(means, axis=0, ddof=1) / math.sqrt(3) + 0.03)
    assert np.abs(z).max() < 4.5


def test_centring_follows_what_the_data_know():
    """Of a group with a wide likelihood nothing is known; one with a narrow one is known better than its prior."""
    toy, emulator = Toy(), BAD._replace(radius=np.full(2, 50.0), coefficients=np.array([0, 0, -0.001, 0, 0, -200.0]))
    surface = Surface(emulator, np.zeros(4), 0.1 * np.eye(4), 0.1, walls.unbounded(4))
    path = np.tile([0.0, 0.0, 0.5, 0.5], (learn.ROWS, 1))
    chosen = learn.choose_centring(toy, surface, path)
    assert list(chosen[:3]) == [0.0, 0.0, 0.0]
    assert 0.9 < chosen[3] <= 0.95
    again = learn.choose_centring(toy, surface._replace(centring=chosen), path)
    np.testing.assert_allclose(again, chosen, atol=0.02)  # whatever the coordinates it is seen in
    # What may follow into the neck is centred by where it is narrow: where sigma is a hundredth, in an eighth of a free
    # run, the data know little, and a quartile sees nothing of it.
    path[::8, 1] = math.log(0.01)
    assert learn.choose_centring(toy, surface, path)[3] < 0.2


def looked_at(heights):
    toy, rng = Toy(), np.random.default_rng(5)
    learning = FactoredKamiltonian(known=toy).init(rng, np.zeros(4)).learning
    for height in heights:
        learning = learning._replace(
            evaluated=evaluations.append(learning.evaluated, np.zeros(4), height, outputs=np.zeros(2))
        )
    return toy, learning


@pytest.mark.parametrize(("peak", "lost"), [(0.0, False), (8.0, False), (20.0, True)])
def test_a_free_run_on_a_peak_that_is_not_there_is_noticed(peak, lost):
    toy, learning = looked_at([-3.0, -1.0, -np.inf, np.nan] * 40)
    coefficients = np.array([peak, 0.0, -0.1, 0.0, 0.0, -0.1])
    surface = Surface(BAD._replace(coefficients=coefficients), np.zeros(4), np.eye(4), 0.3, walls.unbounded(4))
    path = np.tile([0.0, -1.0, 0.1, 0.1], (30, 1))
    assert learn.is_lost(toy, surface, path, learning) == lost
    assert not learn.is_lost(toy, surface, None, learning)
    assert not learn.is_lost(toy, surface, path, looked_at([-1.0] * 100)[1])  # the next fit may know
    predictions = surface._replace(emulator=surface.emulator._replace(sign=np.zeros(2)))
    assert not learn.is_lost(toy, predictions, path, learning)  # splines are for log likelihoods


def test_points_of_another_mode_are_asked_the_last_first_and_then_a_surrogate_is_wanted_there():
    toy, rng = Toy(), np.random.default_rng(6)
    sampler, chain = FactoredKamiltonian(known=toy), 0.1 * rng.standard_normal((90, 4))
    learning = looked_at([0.0] * 50)[1]
    learning = learning._replace(climb=None, moves=60, schedule=learning.schedule._replace(next_refit=10**6))
    for x in chain:
        learning = learning._replace(chain=history.append(learning.chain, x))
    most = climb.design_size(toy.layout)
    places = 5.0 + 0.1 * rng.standard_normal((most + 3, 4))
    state = frozen(sampler, rng, 0.5)._replace(learning=learning)
    for height, x in enumerate(places):
        state = sampler.observe(state, Point(x, float(height)), "arrival")
    assert sampler.observe(state, Point(np.ones(4), 0.0), "refresh") is state
    assert not sampler.due(state)[1]
    asked = []
    while state.learning.wanted:
        proposal = sampler.propose(rng, chain[-1], state)
        if proposal.move != "elsewhere":
            continue
        assert proposal.log_q_ratio == -math.inf  # nothing goes there by this
        asked.append(proposal.position)
        outcome = Outcome(chain[-1], 0.0, proposal, -10.0, 0.0, False, outputs=np.zeros(2))
        state = sampler.learn(rng, state, outcome)
    np.testing.assert_array_equal(asked, places[: -most - 1 : -1])
    assert sampler.due(state)[1]
    elsewhere = np.array(state.learning.elsewhere)
    assert len(elsewhere) == 2 * most  # and where the chain is now
    assert (np.abs(elsewhere[:most]) < 1.0).all()
    np.testing.assert_array_equal(elsewhere[most:], asked)
    for value, outputs in ((-np.inf, np.zeros(2)), (0.0, None)):  # where boxes fail, or have not been asked
        wanted = state._replace(learning=state.learning._replace(wanted=(places[0],)))
        again = sampler.learn(rng, wanted, outcome._replace(proposed_log_density=value, outputs=outputs))
        assert len(again.learning.elsewhere) == 2 * most
        assert again.learning.wanted == ()
    far = toy.places(places[-1], np.zeros(4))[0]
    assert (learn._reference(toy, state.learning) == far).all(axis=1).any()
    middles = sampler._middles(state, np.tile(chain[0], (30, 1)))
    assert len(middles) == 30 + 2 * most


def test_the_surrogate_is_wanted_where_points_are_as_high_as_draws_beyond_them():
    rng = np.random.default_rng(1)
    toy, states = Toy(), np.clip(rng.standard_normal((100, 4)), -2.0, 2.0)
    along, low, within = np.full(4, 3.0), np.full(4, -3.0), np.zeros(4)
    evaluated = evaluations.table(np.array([along, low, within]), np.array([-1.0, -50.0, 0.0]))
    chain, heights = history.empty(4), history.empty(1)
    for height, x in zip(-np.linspace(0.0, 9.0, 100), states, strict=True):
        chain, heights = history.append(chain, x), history.append(heights, np.array([height]))
    learning = SimpleNamespace(evaluated=evaluated, chain=chain, chain_log_densities=heights, moves=100, elsewhere=())
    wanted = learn._reference(toy, learning)
    assert len(wanted) == 50 + 1  # the later half of the states, and one more
    np.testing.assert_array_equal(wanted[-1], toy.places(along, np.zeros(4))[0])


def test_after_a_peak_every_fit_is_careful(monkeypatch):
    asked, looks = [], []

    def recorded(*args, **options):
        asked.append((options["nearest"], options["careful"]))
        return fit(*args, **options)

    def lost_at_the_second_look(*_args):
        looks.append(1)
        return len(looks) == 2

    monkeypatch.setattr(learn.regression, "fit", recorded)
    monkeypatch.setattr(learn, "is_lost", lost_at_the_second_look)
    _, state, _ = cold_chain(0, 100, 10)
    assert state.learning is None
    assert len(looks) == 2
    fits = [careful for nearest, careful in asked if not nearest]
    assert fits[:3] == [False, False, True]
    assert len(fits) > 4
    assert all(fits[2:])


# --- whether it has arrived -----------------------------------------------------------------------


def ended(start, tune, seed):
    """The quality of a chain whose climb ends after one round, wherever it is."""
    toy, rng = compiled_toy(), np.random.default_rng(seed)
    return runs.run(rng, FactoredKamiltonian(known=toy), toy, start, tune=tune, n=1).state.quality


@pytest.fixture
def one_round(monkeypatch):
    """Climbs end after that."""
    monkeypatch.setattr(climb, "ROUNDS", 1)
    monkeypatch.setattr(climb, "CALM", 100)


@pytest.mark.parametrize("seed", range(2))
def test_a_chain_whose_climb_was_cut_short_may_have_arrived(one_round, seed):
    assert ended([1.0, -1.0, -0.5, 0.5], 200, seed).arrived


@pytest.mark.parametrize("tune", [17, 20])  # when its climb ends, and after some draws more
def test_a_chain_that_is_far_away_has_not_arrived(one_round, monkeypatch, tune):
    """It stands 60 nats and more too low; the trajectories of one chain of three find the way in two draws."""
    monkeypatch.setattr(climb, "WIDEST", 0.1)
    quality = ended([9.0, 1.0, 30.0, -30.0], tune, seed=0)
    assert quality.refits > 0  # it was judged
    assert not quality.arrived


def test_the_expected_level_is_that_of_posterior_draws():
    """0.5 chi^2_d below the mode; draws of it are high enough, those some standard deviations below are not."""
    rng = np.random.default_rng(4)
    expected = -0.5 * rng.chisquare(40, 500)
    assert is_high_enough(-0.5 * rng.chisquare(40, 60), expected)
    assert is_high_enough(np.append(np.full(40, -1e4), -0.5 * rng.chisquare(40, 25)), expected)
    assert not is_high_enough(-0.5 * rng.chisquare(40, 60) - 12.0, expected)


def test_a_climb_goes_by_units(monkeypatch):
    toy, rng = Toy(), np.random.default_rng(5)
    monkeypatch.setattr(toy, "units", np.array([1.0, 1.0, 1.0, 30.0]))
    surface = Surface(quadratics(np.zeros((2, 3)), radius=1e3), np.zeros(4), np.eye(4), 0.3, walls.unbounded(4))
    start = np.array([9.0, -1.0, 0.0, 25.0])  # of standard normals
    goal, _ = climb.target(toy, surface, start, 0.5)
    np.testing.assert_allclose(goal, [8.5, -1.0, 0.0, 10.0], atol=1e-3)
    sampler = FactoredKamiltonian(known=toy)
    steps = [sampler._nearby(rng, start, 0.1, "climb", -1).position - start for _ in range(400)]
    np.testing.assert_allclose(np.std(steps, axis=0), 0.1 * toy.units, rtol=0.2)
    np.testing.assert_allclose(
        climb.metric(toy, surface, start) / toy.units, np.diag([1.0, 1.0, 1.0, 1 / 30]), atol=1e-3
    )


def test_a_search_that_gets_lost_promises_nothing(monkeypatch):
    """It once promised -10^10, which was taken for the end of a climb."""
    lost = SimpleNamespace(x=np.full(4, 2.0), fun=1e10)
    monkeypatch.setattr("scipy.optimize.minimize", lambda *_args, **_options: lost)
    surface = Surface(BAD, np.zeros(4), np.eye(4), 0.1, walls.unbounded(4))
    goal, promised = climb.target(Toy(), surface, np.zeros(4), 0.5)
    assert math.isnan(promised)
    np.testing.assert_array_equal(goal, np.zeros(4))
    after = climb.learn(climb.Climb(promised=promised), -math.inf, 4)
    assert after.calm == 0
    assert after.half_width < 0.5


@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_inputs_that_are_no_numbers_have_a_penalty_that_is_none(bad, straight):
    """So that the surrogate has no value there, and nobody has to look at the inputs."""
    emulator = BAD._replace(straight=straight)
    assert math.isfinite(emulate(emulator, np.array([5.0, -5.0]))[2])
    assert not math.isfinite(emulate(emulator, np.array([bad, -5.0]))[2])
    assert not math.isfinite(emulate(emulator, np.array([5.0, bad]))[2])
