"""The board of curved targets: its exact draws are draws of its log densities."""

import numpy as np
import pytest

from benchmarks.curved import DRAWS, MODELS, truth

QUICK = ("two bends", "shell")
STEP = 1e-5  # of a finite difference, in standard deviations


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in DRAWS])
def test_draws_are_of_the_log_density(name):
    """Stein's identities: the mean of its gradient is 0, and of x times it -1, coordinate by coordinate."""
    model = MODELS[name]()
    compiled = model.compile_logp(mode="FAST_COMPILE", jacobian=False)
    draws = DRAWS[name](np.random.default_rng(1), 400)
    sd, centre = draws.std(axis=0), draws.mean(axis=0)

    def log_density(x):
        return float(compiled({"x": x}))

    first, second = [], []
    for x in draws:
        gradient = np.empty(len(x))
        for i in range(len(x)):
            step = np.zeros(len(x))
            step[i] = STEP * sd[i]
            gradient[i] = (log_density(x + step) - log_density(x - step)) / (2 * STEP)
        first.append(gradient)
        second.append((x - centre) / sd * gradient + 1.0)
    for found in map(np.array, (first, second)):
        if name == "gammas":  # their density is not zero at the wall: only x times the gradient has a mean
            found = draws / sd * np.array(first) + 1.0
        z = found.mean(axis=0) / found.std(axis=0) * np.sqrt(len(draws))
        assert np.abs(z).max() < 4.5


def test_a_control_draw_is_not():
    """The same with another shell's draws."""
    draws = DRAWS["shell"](np.random.default_rng(1), 400)
    compiled = MODELS["shell"]().compile_logp(mode="FAST_COMPILE", jacobian=False)
    radial = []
    for x in 1.1 * draws:
        outwards = STEP * x
        radial.append(
            (float(compiled({"x": x + outwards})) - float(compiled({"x": x - outwards}))) / (2 * STEP) + 3.0
        )  # fmt: skip
    assert abs(np.mean(radial) / np.std(radial)) * 20 > 4.5


def test_the_truth_of_exact_draws_is_their_moments():
    found = truth("shell")
    np.testing.assert_allclose(found.mean, 0.0, atol=0.03)
    # E r^2 = R^2 + 5 s^2 + ... to leading order: the surface grows with r^2
    np.testing.assert_allclose(np.square(found.sd).sum(), 25.0 + 5 * 0.09, rtol=0.01)
