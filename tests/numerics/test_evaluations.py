"""The record of what was evaluated: order, merging, refusals."""

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations


def record(n, dim=3, chain=0):
    rng = np.random.default_rng(n)
    return evaluations.table(
        rng.standard_normal((n, dim)), rng.standard_normal(n), chain, np.arange(n), "walk"
    )


def test_merged_records_keep_their_order():
    parts = [record(4, chain=0), record(3, chain=1), evaluations.empty(3)]
    merged = evaluations.merge(parts)
    assert merged.size == 7
    assert merged.positions.tobytes() == b"".join(p.positions.tobytes() for p in parts)
    assert merged.chain.tolist() == [0] * 4 + [1] * 3
    assert merged.round.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert set(merged.move) == {"walk"}


def test_a_value_that_is_not_finite_is_a_density_of_zero():
    made = evaluations.table(np.zeros((3, 1)), [1.0, np.nan, np.inf])
    assert made.log_densities.tolist() == [1.0, -np.inf, -np.inf]


@pytest.mark.parametrize(
    ("positions", "values", "said"),
    [
        (np.zeros(3), np.zeros(3), r"shapes \(3,\) and \(3,\)"),
        (np.zeros((3, 2)), np.zeros(2), r"shapes \(3, 2\) and \(2,\)"),
        ([[0.0, 1.0], [np.nan, 2.0]], np.zeros(2), "row 1"),
    ],
)
def test_tables_that_do_not_fit_are_refused(positions, values, said):
    with pytest.raises(ValueError, match=said):
        evaluations.table(positions, values)


def test_records_of_other_dimensions_are_not_merged():
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        evaluations.merge([record(4), record(4, dim=2)])


def test_repetitions_are_left_out_where_nothing_new_was_found():
    once = record(5)
    again = evaluations.merge([once, once])
    assert evaluations.distinct(again).log_densities.tolist() == once.log_densities.tolist()
    noisy = again._replace(log_densities=np.arange(10.0))  # another value at the same point
    assert evaluations.distinct(noisy).size == 10
