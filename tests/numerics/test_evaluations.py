"""The record of what was evaluated: order, merging, refusals."""

import numpy as np
import pytest

from pymc_kameleon.numerics import evaluations


def record(n, dim=3, chain=0):
    rng = np.random.default_rng(n)
    return evaluations.table(rng.standard_normal((n, dim)), rng.standard_normal(n), chain, np.arange(n), "walk")


def test_merged_records_keep_their_order():
    parts = [record(4, chain=0), record(3, chain=1), evaluations.empty(3)]
    merged = evaluations.merge(parts)
    assert merged.size == 7
    assert merged.positions.tobytes() == b"".join(p.positions.tobytes() for p in parts)
    assert merged.chain.tolist() == [0] * 4 + [1] * 3
    assert merged.round.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert set(merged.move) == {"walk"}
    moved = evaluations.shifted(merged, 2.5)
    np.testing.assert_array_equal(moved.log_densities, merged.log_densities + 2.5)
    assert moved.positions.tobytes() == merged.positions.tobytes()


def test_a_value_that_is_not_finite_is_a_density_of_zero():
    made = evaluations.table(np.zeros((3, 1)), [1.0, np.nan, np.inf])
    assert made.log_densities.tolist() == [1.0, -np.inf, -np.inf]


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (evaluations.table, (np.zeros(3), np.zeros(3)), r"shapes \(3,\) and \(3,\)"),
        (evaluations.table, (np.zeros((3, 2)), np.zeros(2)), r"shapes \(3, 2\) and \(2,\)"),
        (evaluations.table, ([[0.0, 1.0], [np.nan, 2.0]], np.zeros(2)), "row 1"),
        (evaluations.merge, ([record(4), record(4, dim=2)],), r"\[\(2, 0\), \(3, 0\)\]"),
        (evaluations.copy, (3, record(4, dim=2)), r"\[\(2, 0\), \(3, 0\)\]"),
        (evaluations.merge, ([evaluations.empty(2), evaluations.empty(2, 1)],), "as many outputs"),
        (evaluations.merge, ([evaluations.empty(2, 3), evaluations.empty(2, 4)],), "as many outputs"),
    ],
)
def test_what_does_not_fit_is_refused(function, given, said):
    with pytest.raises(ValueError, match=said):
        function(*given)


def test_a_record_grows_in_order_and_leaves_what_it_was_made_from():
    known = record(300)
    before = known.positions.copy()
    grown, other = known, known
    for n in range(600):
        grown = evaluations.append(grown, np.full(3, n), float(n), "walk")
        other = evaluations.append(other, np.full(3, -n), float(-n))
    assert grown.size == other.size == 900
    assert grown.positions[:300].tobytes() == before.tobytes() == known.positions.tobytes()
    assert grown.log_densities[300:].tolist() == list(range(600))
    assert other.log_densities[300:].tolist() == list(range(0, -600, -1))
    assert grown.round.tolist() == list(range(300)) + list(range(300, 900))
    assert set(grown.move[300:]) == {"walk"}
    assert grown.is_latest(np.full(3, 599.0), 599.0)
    assert not grown.is_latest(np.full(3, 599.0), 598.0)
    assert not grown.is_latest(np.full(3, 598.0), 599.0)


def test_a_copy_is_not_written_into_by_who_goes_on():
    live = evaluations.append(evaluations.empty(2), np.zeros(2), 1.0)  # has room
    own = evaluations.copy(2, live)
    evaluations.append(live, np.ones(2), 2.0)
    own = evaluations.append(own, np.full(2, 3.0), 3.0)
    evaluations.append(live, np.ones(2), 4.0)
    assert own.log_densities.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("n_o", [0, 3])
def test_what_comes_back_is_a_log_density_and_what_black_boxes_returned(n_o):
    found = [np.arange(1.0 + n_o) + k if n_o else float(k) for k in range(4)]
    values, outputs = evaluations.taken_apart(found)
    assert values == [0.0, 1.0, 2.0, 3.0]
    assert outputs.shape == (4, n_o)
    record = evaluations.empty(2, n_o)
    for value, row in zip(values, outputs, strict=True):
        record = evaluations.append(record, np.zeros(2), value, outputs=row)
    made = evaluations.table(np.zeros((4, 2)), values, outputs=outputs)
    for kept in (record, evaluations.merge([made, made]), evaluations.shifted(made, 1.0), evaluations.copy(2, made)):
        np.testing.assert_array_equal(kept.outputs[:4], outputs)
    assert evaluations.taken_apart([])[0] == []
