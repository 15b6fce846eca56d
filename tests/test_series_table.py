"""Series of GPUs or ports as one table."""

import numpy as np

from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.series_table import table


def series(times, *values):
    return Series("n", "name", {}, times, np.array(values, dtype=np.float64))


TWO, LATER = np.array([1.0, 2.0]), np.array([2.0, 3.0])


def test_a_thing_has_a_row_for_each_moment():
    cells = [
        (("n", "a"), "heat", series(TWO, 5, 6)),
        (("n", "b"), "heat", series(LATER, 7, 8)),
        (("n", "a"), "work", series(TWO, 1, np.inf)),
    ]
    found = table(cells, ("node", "gpu"), "time")
    assert found.columns.tolist() == ["time", "node", "gpu", "heat", "work"]
    assert found["gpu"].tolist() == ["a", "a", "b", "b"]
    assert found["time"].tolist() == [1.0, 2.0, 2.0, 3.0]
    assert found["heat"].tolist() == [5.0, 6.0, 7.0, 8.0]
    np.testing.assert_array_equal(found["work"], [1.0, np.inf, np.nan, np.nan])


def test_series_of_other_moments_are_put_beside_each_other():
    cells = [(("a",), "x", series(TWO, 5, 6)), (("a",), "y", series(LATER, 7, 8))]
    found = table(cells, ("gpu",), "time")
    np.testing.assert_array_equal(found["x"], [5.0, 6.0, np.nan])
    np.testing.assert_array_equal(found["y"], [np.nan, 7.0, 8.0])


def test_several_series_of_one_column_are_added_up():
    same = [(("a",), "x", series(TWO, value, value)) for value in (1, 10, 100)]
    assert table(same, ("gpu",), "time")["x"].tolist() == [111.0, 111.0]
    apart = [(("a",), "x", series(TWO, 1, 1)), (("a",), "x", series(LATER, 10, np.inf))]
    assert table(apart, ("gpu",), "time")["x"].tolist() == [1.0, 11.0, np.inf]


def test_nothing_is_an_empty_table():
    found = table([], ("node", "gpu"), "time")
    assert found.empty
    assert found.columns.tolist() == ["time", "node", "gpu"]
