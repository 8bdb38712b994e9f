"""The measures of benchmarks.short_tuning: zero in the mean for exact draws, and not for others."""

import numpy as np
import pytest

from benchmarks.cold_start import TARGETS
from benchmarks.short_tuning import deviations, verdict


def cell(name, change):
    """Thirty chains of a hundred exact draws each, changed."""
    rng = np.random.default_rng(0)
    found = np.array([deviations(name, change(TARGETS[name].sample(rng, 100))) for _ in range(30)])
    return {"n": 30, "sums": found.sum(axis=0), "squares": np.square(found).sum(axis=0)}


@pytest.mark.parametrize("name", ["t5", "bimodal", "odd units"])
def test_exact_draws_have_no_bias_and_others_have(name):
    z, _, mean, _ = verdict(cell(name, lambda x: x))
    assert z < 5.5  # Student's t of 29 degrees of freedom, where a normal's is 4.5
    assert mean < 0.1
    sd = np.sqrt(np.diag(TARGETS[name].cov))
    assert verdict(cell(name, lambda x: x + 0.5 * sd))[0] > 10.0
    narrow = cell(name, lambda x: TARGETS[name].mean + 0.5 * (x - TARGETS[name].mean))
    assert verdict(narrow)[0] > 10.0
