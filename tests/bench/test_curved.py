"""The board of curved targets: its exact draws are draws of its log densities."""

import numpy as np
import pytest

from benchmarks.curved import DRAWS, MODELS, truth
from tests.support.differences import slopes

QUICK = ("two bends", "shell")


def stein(name, draws):
    """Largest |z| of Stein's identities by coordinate, in sds: the gradient has mean 0, x times it -1."""
    compiled = MODELS[name]().compile_logp(mode="FAST_COMPILE", jacobian=False)
    sd, centre = draws.std(axis=0), draws.mean(axis=0)
    u = (draws - centre) / sd
    gradient = np.array([slopes(lambda u: float(compiled({"x": centre + sd * u})), row) for row in u])
    found = gradient, u * gradient + 1.0
    if name == "gammas":  # their density is not zero at the wall: only x times the gradient has a mean
        found = (draws / sd * gradient + 1.0,)
    return max(np.abs(f.mean(axis=0) / f.std(axis=0)).max() for f in found) * np.sqrt(len(draws))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in DRAWS])
def test_draws_are_of_the_log_density(name):
    draws = DRAWS[name](np.random.default_rng(1), 400)
    assert stein(name, draws) < 4.5
    if name == "shell":  # the control: another shell's draws
        assert stein(name, 1.1 * draws) > 10.0


def test_the_truth_of_exact_draws_is_their_moments():
    found = truth("shell")
    np.testing.assert_allclose(found.mean, 0.0, atol=0.03)
    # E r^2 = R^2 + 5 s^2 + ... to leading order: the surface grows with r^2
    np.testing.assert_allclose(np.square(found.sd).sum(), 25.0 + 5 * 0.09, rtol=0.01)
