import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_analyzers.numeric.intervals import covered, union


def spans(*pairs):
    return np.array(pairs, dtype=float).reshape(-1, 2)


def test_overlapping_touching_and_nested_spans_become_one():
    merged = union(spans((5, 6), (0, 4)), spans((1, 2), (4, 5)))
    np.testing.assert_array_equal(merged, spans((0, 6)))


def test_gaps_stay_unless_they_are_bridged():
    two = spans((0, 1), (2, 3))
    np.testing.assert_array_equal(union(two), two)
    np.testing.assert_array_equal(union(two, bridging=1.0), spans((0, 3)))


def test_a_window_takes_the_part_that_lies_in_it():
    windows = spans((0, 10), (1.5, 2.5), (3, 4), (-5, 0))
    np.testing.assert_allclose(covered(spans((1, 2), (6, 9)), windows), [4, 0.5, 0, 0])


def test_nothing_covers_nothing():
    np.testing.assert_array_equal(covered(union(), spans((0, 1))), [0.0])
    assert covered(spans((0, 1)), np.empty((0, 2))).shape == (0,)


pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(pairs, st.integers(0, 60), st.integers(1, 40))
def test_coverage_is_that_of_counted_ticks(given_spans, begin, length):
    ticks = np.zeros(120, dtype=bool)
    for start, size in given_spans:
        ticks[start : start + size] = True
    merged = union(spans(*((start, start + size) for start, size in given_spans)))
    found = covered(merged, spans((begin, begin + length)))
    assert found[0] == pytest.approx(ticks[begin : begin + length].sum())
