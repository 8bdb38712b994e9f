"""What the comparison of two trees calls the same, and what it names."""

import numpy as np
import pytest

from tests.streams.compare import difference


def run(x=(), move="walk", **others):
    draws = np.zeros((2, 3))
    for place, value in x:
        draws[place] = value
    return {"posterior.x": draws, "sample_stats.move": np.full((2, 3), move), **others}


def test_the_same_is_not_mentioned():
    assert difference(run(), run()) == ""
    gap = [((0, 1), np.nan)]
    assert difference(run(gap), run([((0, 1), -np.nan)])) == ""
    old, new = run(), run()
    new["sample_stats.move"] = new["sample_stats.move"].astype("U30")  # a longer field
    assert difference(old, new) == ""


@pytest.mark.parametrize("value", [-0.0, np.nextafter(0.0, 1.0), np.nan])
def test_the_earliest_draw_of_any_chain_is_named(value):
    found = difference(run(), run([((0, 2), 5.0), ((1, 1), value)]))
    assert found == f"posterior.x[1, 1] is {value}, was 0.0; 1 of 2 arrays"


def test_what_came_went_and_raised():
    assert difference(run(), run(**{"sample_stats.lp": np.zeros(2)})) == "new: sample_stats.lp"
    assert difference(run(**{"sample_stats.lp": np.zeros(2)}), run()) == "gone: sample_stats.lp"
    assert "is float64 (2, 4), was float64 (2, 3)" in difference(run(), {**run(), "posterior.x": np.zeros((2, 4))})
    assert difference({"raised": np.array("E: no")}, run()) == "there E: no"
