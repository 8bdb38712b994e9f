"""Learning black boxes one by one: the emulators, and that a chain is exact whatever they are."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.numerics.step_size import varied
from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.kamiltonian import trust
from pymc_kameleon.samplers.kamiltonian.factors import climb
from pymc_kameleon.samplers.kamiltonian.factors import learning as learn
from pymc_kameleon.samplers.kamiltonian.factors.learning import is_high_enough
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.factors.surface import ARMS, Surface, enter, leave, run, spot
from pymc_kameleon.samplers.kamiltonian.learner import Quality
from pymc_kameleon.surrogates.factors.emulator import Emulator, emulate
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.one_factor import CANDIDATES, size, within
from pymc_kameleon.surrogates.factors.regression import Sample, fit
from pymc_kameleon.surrogates.factors.splines import Spline, assemble, columns, nested
from tests.support.chains import Held, run_transitions, two_sample_z
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
    outputs, jacobian, penalty, slope = emulate(found.emulator, point)
    assert (penalty > 0.0) == (far > 1.0)
    n = len(outputs)
    by_w, by_wall = np.zeros((n, 6)), np.zeros(6)
    for i in range(6):
        h = np.zeros(6)
        h[i] = 1e-6
        above, below = emulate(found.emulator, point + h), emulate(found.emulator, point - h)
        by_w[:, i] = (above[0] - below[0]) / 2e-6
        by_wall[i] = (above[2] - below[2]) / 2e-6
    dense = np.zeros((n, 6))
    np.add.at(dense, (np.arange(n)[:, None], layout.columns), jacobian)
    np.testing.assert_allclose(dense, by_w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope, by_wall, rtol=1e-5, atol=1e-5)
    assert np.isfinite(outputs).all()


def one_factor(coefficients, added):
    """A polynomial in one input, trusted between -2 and 2."""
    n = len(coefficients)
    return Emulator(
        inputs=np.arange(2), outputs=np.arange(2), centre=np.zeros(1), scale=np.ones(1),
        knots=np.array([[-np.inf, np.inf]]), whitening=np.ones((1, 1, 1)),
        radius=np.array([2.0]), added=np.array([added]),
        first=np.array([0, n]), variables=np.zeros((n, 3), dtype=np.int64),
        powers=np.array([[i, 0, 0] for i in range(n)]), coefficients=np.array(coefficients),
        start=np.array([0, n]), splines=assemble([None], 1), straight=True,
    )  # fmt: skip


@pytest.mark.parametrize(("added", "straight", "want"), [(True, True, -6.0), (False, True, -6.0), (True, False, -2.0)])
def test_beyond_the_ball_is_the_tangent_but_in_a_climb(added, straight, want):
    falling = one_factor([0.0, 0.0, -0.5], added)._replace(straight=straight)
    assert emulate(falling, np.array([-4.0]))[0] == pytest.approx(want)


@pytest.mark.parametrize(("added", "want"), [(True, 2.0), (False, 6.0)])
def test_a_log_likelihood_does_not_rise_beyond_the_ball(added, want):
    rising = one_factor([0.0, 0.0, 0.5], added)
    assert emulate(rising, np.array([4.0]))[0] == pytest.approx(want)


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


def bad_emulator():
    """Quadratics that have little to do with the black boxes, and a wall in the middle of the posterior."""
    return Emulator(
        inputs=np.arange(3), outputs=np.arange(3), centre=np.array([1.5, -1.0]),
        scale=np.array([0.7, 1.6]), knots=np.tile([-np.inf, np.inf], (2, 1)), whitening=np.ones((2, 1, 1)),
        radius=np.array([0.8, 1.1]),
        added=np.ones(2, dtype=bool), first=np.array([0, 3, 6]), variables=np.zeros((6, 3), dtype=np.int64),
        powers=np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0]] * 2),
        coefficients=np.array([0.3, 1.2, -0.1, -0.4, -1.0, -0.1]), start=np.array([0, 3, 6]),
        splines=assemble([None, None], 1), straight=False,
    )  # fmt: skip


BEYOND = bad_emulator()._replace(straight=True)  # along tangents
# of one factor, and it has little to do with the black box either; the balls are wide, so that it counts
BENT = BEYOND._replace(
    knots=np.array([[0.5, np.inf], [-np.inf, 0.0]]),
    radius=np.array([2.5, 1.1]),
    splines=assemble(
        [Spline(np.array([[-1.0], [0.2], [1.3]]), np.array([[0.2], [-0.5], [0.3]]), np.zeros((0, 1))), None], 1
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def compiled_toy():
    """Compiling takes seconds."""
    return CompiledToy()


def frozen(sampler, rng, centring, typical=1.5):
    """A frozen state with a bad surrogate, a bad metric and bad shares."""
    toy = sampler.known
    metric = np.array([[0.6, 0, 0, 0], [-0.4, 1.0, 0, 0], [0.2, 0.1, 0.8, 0], [0, 0.3, -0.2, 0.9]])
    surface = Surface(bad_emulator(), centring * toy.movable, metric, 0.35)
    state = sampler.init(rng, np.zeros(4))
    return state._replace(
        surface=surface, learning=None, mixture=trust.Mixture(0.1, typical, 0.5),
        archive=0.8 * rng.standard_normal((40, 4)), arms=np.array([0.3, 0.4, 0.3, 0.0, 0.0]),
        log_walk=math.log(0.8), quality=Quality(1.0, 0.1, 1, 100),
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


def scores(sampler, toy, centring, chains, steps=3, typical=1.5, seed=6):
    rng = np.random.default_rng(seed)
    starts = toy.draw(rng, chains)
    state = frozen(sampler, rng, centring, typical)
    ends = run_transitions(rng, Held(sampler, state), toy, starts, steps)
    assert (ends != starts).any(axis=1).mean() > 0.3  # the test tests something
    return two_sample_z(ends, starts, toy)


@pytest.mark.parametrize("centring", [0.5, *(pytest.param(c, marks=pytest.mark.slow) for c in (0.0, 1.0))])
def test_chains_are_exact_whatever_the_emulators(centring):
    toy = Toy()
    assert np.abs(scores(FactoredKamiltonian(known=toy), toy, centring, 1200)).max() < 4.5


@pytest.mark.parametrize("emulator", [bad_emulator(), BEYOND, BENT], ids=["walls", "tangents", "splines"])
def test_compiled_chains_are_exact(monkeypatch, compiled_toy, emulator):
    monkeypatch.setattr(f"{__name__}.bad_emulator", lambda: emulator)
    assert np.abs(scores(FactoredKamiltonian(known=compiled_toy), compiled_toy, 0.5, 2400)).max() < 4.5


@pytest.mark.parametrize(
    ("control", "typical", "chains"),
    [(NoSurrogate, 4.0, 2000), pytest.param(NoShares, 2.0, 6000, marks=pytest.mark.slow)],
)
def test_the_compiled_controls_fail(compiled_toy, control, typical, chains):
    assert np.abs(scores(control(known=compiled_toy), compiled_toy, 0.0, chains, 8, typical)).max() > 10.0


@pytest.mark.parametrize("emulator", [bad_emulator(), BEYOND, BENT], ids=["walls", "tangents", "splines"])
def test_compiled_is_what_python_is(monkeypatch, compiled_toy, emulator):
    """Up to rounding, wherever the point is; what is shared is what it is now."""
    monkeypatch.setattr(f"{__name__}.bad_emulator", lambda: emulator)
    toy, moved, longest = Toy(), 0, 0
    surface = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5).surface
    for seed in range(100):
        toy.slope_error = 1.0 if seed < 50 else 0.5
        monkeypatch.setattr(compiled_toy, "slope_error", toy.slope_error)
        u = np.random.default_rng(seed).standard_normal(4) * (1e3 if seed % 10 == 9 else 1.0)
        starts = [spot(known, surface, u, 0.7) for known in (toy, compiled_toy)]
        for a, b in zip(starts[0][1:], starts[1][1:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
        found = [
            run(np.random.default_rng(seed), known, surface, start, ARMS[seed % 5], 0.7)
            for known, start in zip((toy, compiled_toy), starts, strict=True)
        ]
        assert (found[0].moved, found[0].gradients) == (found[1].moved, found[1].gradients)
        assert found[0].diverging == found[1].diverging
        np.testing.assert_allclose(found[0].end.u, found[1].end.u, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found[0].accept_prob, found[1].accept_prob, rtol=1e-7, atol=1e-9)
        moved, longest = moved + found[0].moved, max(longest, found[0].gradients)
    assert moved > 60
    assert longest > 30


@pytest.mark.parametrize(("steps", "enter"), [(varied, True), (lambda step, u: (0.8 + 0.4 * u) * step, False)])
def test_small_steps_enter_the_narrow_end_of_a_funnel(monkeypatch, steps, enter):
    """As often as they leave it, by reversibility: from exact draws with l = -1.8, where the tuned step is unstable."""
    monkeypatch.setattr("pymc_kameleon.samplers.kamiltonian.factors.surface.varied", steps)
    toy, rng, probabilities = Toy(), np.random.default_rng(1), []
    flat = bad_emulator()._replace(radius=np.full(2, 1e3), coefficients=np.zeros(6))
    surface = Surface(flat, np.ones(4), np.eye(4), 0.6)  # centred: the prior's funnel
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

    def raising(u, centring, w, outputs, jacobian, slope, slope_error):
        if u[0] > 5.0:
            raise ValueError
        return known_of_toy(u, centring, w, outputs, jacobian, slope, slope_error)

    toy = CompiledToy(known=raising)
    surface = frozen(FactoredKamiltonian(known=toy), np.random.default_rng(7), 0.5).surface
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda given: seen.append(given.exc_type))
    near, far = np.zeros(4), np.array([6.0, 0.0, 0.0, 0.0])
    assert spot(toy, surface, near).value == pytest.approx(spot(Toy(), surface, near).value, rel=1e-12)
    assert not seen
    assert spot(toy, surface, far).value == spot(Toy(), surface, far).value
    assert seen == [ValueError]

    def says(*given):
        raise ValueError("this one")

    monkeypatch.setattr(toy, "known", says)
    with pytest.raises(ValueError, match="this one"):
        spot(toy, surface, far)


@pytest.mark.slow
def test_a_wrong_slope_of_the_known_part_costs_speed_only():
    toy = Toy()
    toy.slope_error = -0.5
    assert np.abs(scores(FactoredKamiltonian(known=toy), toy, 0.5, 1200)).max() < 4.5


@pytest.mark.parametrize(
    ("control", "centring", "typical", "chains"),
    [
        (NoJacobian, 1.0, -2.0, 1200),
        pytest.param(NoSurrogate, 0.0, 4.0, 3000, marks=pytest.mark.slow),
        pytest.param(NoShares, 0.0, 2.0, 6000, marks=pytest.mark.slow),
    ],
)
def test_the_controls_fail(control, centring, typical, chains):
    toy = Toy()
    assert np.abs(scores(control(known=toy), toy, centring, chains, 8, typical)).max() > 10.0


@pytest.mark.slow
@pytest.mark.parametrize("typical", [2.0, 4.0])
def test_chains_are_exact_where_the_controls_are_not(typical):
    toy = Toy()
    assert np.abs(scores(FactoredKamiltonian(known=toy), toy, 0.0, 6000, 8, typical)).max() < 4.5


def test_transitions_are_reversible_with_respect_to_the_surrogate():
    """One trajectory backwards: the same energy error with the other sign, and home again."""
    toy, rng = Toy(), np.random.default_rng(7)
    state = frozen(FactoredKamiltonian(known=toy), rng, 0.5)

    class Fixed:
        def __init__(self, momentum):
            self.momentum = momentum

        def standard_normal(self, shape):
            return self.momentum[None]

        def random(self, shape):
            return np.array([[0.5, 0.5, 0.0]])  # always accepted, unless impossible

    momentum = 0.5 * rng.standard_normal(4)
    start = spot(toy, state.surface, 0.2 * rng.standard_normal(4))
    there = run(Fixed(momentum), toy, state.surface, start, ARMS[1])
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
    back = run(Fixed(-p), toy, state.surface, there.end, ARMS[1])
    np.testing.assert_allclose(back.end.u, start.u, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(back.energy_error, -there.energy_error, rtol=1e-8)


@pytest.mark.parametrize("centring", [0.0, 0.5, 1.0])
def test_u_and_v_are_each_others_inverses(centring):
    toy, rng = Toy(), np.random.default_rng(8)
    share = centring * toy.movable
    v = rng.standard_normal(4)
    u = enter(toy, v, share)
    there, jacobian = leave(toy, u, share)
    np.testing.assert_allclose(there, v, rtol=1e-12)
    slopes = [(leave(toy, u + h, share)[0] - leave(toy, u - h, share)[0]) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(jacobian, np.linalg.slogdet(np.array(slopes))[1], atol=1e-7)


# --- learning -------------------------------------------------------------------------------------


def cold_chain(seed, tune, draws):
    toy, rng = Toy(), np.random.default_rng(seed)
    sampler = FactoredKamiltonian(known=toy, tune=tune)
    found = chain.run(rng, sampler, toy, rng.uniform(-2.0, 2.0, 4), tune=tune, n=draws)
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
    toy = Toy()
    emulator = bad_emulator()._replace(
        radius=np.full(2, 50.0), coefficients=np.array([0.0, 0.0, -0.001, 0.0, 0.0, -200.0])
    )
    surface = Surface(emulator, np.zeros(4), 0.1 * np.eye(4), 0.1)
    path = np.tile([0.0, 0.0, 0.5, 0.5], (30, 1))
    chosen = learn.choose_centring(toy, surface, path)
    assert list(chosen[:3]) == [0.0, 0.0, 0.0]
    assert 0.9 < chosen[3] <= 0.95
    again = learn.choose_centring(toy, surface._replace(centring=chosen), path)
    np.testing.assert_allclose(again, chosen, atol=0.02)  # whatever the coordinates it is seen in


def test_what_may_follow_into_the_neck_is_centred_by_where_it_is_narrow():
    """Where sigma is a hundredth, in an eighth of a free run, the data know little: a quartile sees nothing of it."""
    toy = Toy()
    emulator = bad_emulator()._replace(
        radius=np.full(2, 50.0), coefficients=np.array([0.0, 0.0, -0.001, 0.0, 0.0, -200.0])
    )
    surface = Surface(emulator, np.zeros(4), 0.1 * np.eye(4), 0.1)
    path = np.tile([0.0, 0.0, 0.5, 0.5], (learn.ROWS, 1))
    assert learn.choose_centring(toy, surface, path)[3] > 0.9
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
    surface = Surface(bad_emulator()._replace(coefficients=coefficients), np.zeros(4), np.eye(4), 0.3)
    path = np.tile([0.0, -1.0, 0.1, 0.1], (30, 1))
    assert learn.is_lost(toy, surface, path, learning) == lost
    assert not learn.is_lost(toy, surface, None, learning)
    assert not learn.is_lost(toy, surface, path, looked_at([-1.0] * 100)[1])  # the next fit may know
    toy.layout = Layout(np.arange(3), np.arange(3), np.zeros(2, dtype=bool))
    assert not learn.is_lost(toy, surface, path, learning)  # splines are for log likelihoods


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


def ended(start, tune, seed=0):
    """The quality of a chain whose climb ends after one round, wherever it is."""
    toy, rng = Toy(), np.random.default_rng(seed)
    sampler = FactoredKamiltonian(known=toy)
    return chain.run(rng, sampler, toy, np.array(start), tune=tune, n=1).state.quality


@pytest.mark.parametrize("seed", range(2))
def test_a_chain_whose_climb_was_cut_short_may_have_arrived(monkeypatch, seed):
    monkeypatch.setattr(climb, "ROUNDS", 1)
    monkeypatch.setattr(climb, "CALM", 100)
    assert ended([1.0, -1.0, -0.5, 0.5], 200, seed).arrived


@pytest.mark.parametrize("tune", [17, 20])  # when its climb ends, and after some draws more
def test_a_chain_that_is_far_away_has_not_arrived(monkeypatch, tune):
    """It stands 60 nats and more too low; few chains do, whose trajectories find the way in two draws."""
    monkeypatch.setattr(climb, "ROUNDS", 1)
    monkeypatch.setattr(climb, "CALM", 100)
    monkeypatch.setattr(climb, "WIDEST", 0.1)
    quality = ended([9.0, 1.0, 30.0, -30.0], tune, seed=3)
    assert quality.refits > 0  # it was judged
    assert not quality.arrived


def test_the_expected_level_is_that_of_posterior_draws():
    """0.5 chi^2_d below the mode; draws of it are high enough, those some standard deviations below are not."""
    rng = np.random.default_rng(4)
    expected = -0.5 * rng.chisquare(40, 500)
    assert is_high_enough(-0.5 * rng.chisquare(40, 60), expected)
    assert is_high_enough(np.append(np.full(40, -1e4), -0.5 * rng.chisquare(40, 25)), expected)
    assert not is_high_enough(-0.5 * rng.chisquare(40, 60) - 12.0, expected)


def test_a_search_that_gets_lost_promises_nothing(monkeypatch):
    """It once promised -10^10, which was taken for the end of a climb."""
    lost = SimpleNamespace(x=np.full(4, 2.0), fun=1e10)
    monkeypatch.setattr("scipy.optimize.minimize", lambda *_args, **_options: lost)
    surface = Surface(bad_emulator(), np.zeros(4), np.eye(4), 0.1)
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
    emulator = bad_emulator()._replace(straight=straight)
    assert math.isfinite(emulate(emulator, np.array([5.0, -5.0]))[2])
    assert not math.isfinite(emulate(emulator, np.array([bad, -5.0]))[2])
    assert not math.isfinite(emulate(emulator, np.array([5.0, bad]))[2])
