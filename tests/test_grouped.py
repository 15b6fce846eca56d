"""Values by group are those that pandas gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.numeric import grouped

COUNT = 7


@pytest.fixture(params=range(20))
def drawn(request):
    """Groups, one of which may lack values, and values, some of them not known."""
    random = np.random.default_rng(request.param)
    size = int(random.integers(0, 40))
    groups = random.integers(-1, COUNT - 1, size)
    values = random.integers(0, 30, size).astype(float)
    values[random.random(size) < 0.2] = np.nan
    own = pd.Series(values[groups >= 0]).groupby(groups[groups >= 0])
    return groups, values, own


def of_all(found):
    return found.reindex(range(COUNT)).to_numpy(np.float64)


def test_sums_and_means_are_of_known_values(drawn):
    groups, values, own = drawn
    np.testing.assert_allclose(grouped.sums(groups, values, COUNT), of_all(own.sum(min_count=1)))
    np.testing.assert_allclose(grouped.means(groups, values, COUNT), of_all(own.mean()))


def test_spans_are_from_the_smallest_to_the_largest(drawn):
    groups, values, own = drawn
    np.testing.assert_allclose(grouped.spans(groups, values, COUNT), of_all(own.max() - own.min()))


def test_extremes_and_medians_are_of_known_values(drawn):
    groups, values, own = drawn
    np.testing.assert_allclose(grouped.largest(groups, values, COUNT), of_all(own.max()))
    np.testing.assert_allclose(grouped.smallest(groups, values, COUNT), of_all(own.min()))
    np.testing.assert_allclose(grouped.medians(groups, values, COUNT), of_all(own.median()))
    lower = of_all(own.quantile(interpolation="lower"))
    np.testing.assert_allclose(grouped.lower_medians(groups, values, COUNT), lower)


def test_rows_with_equal_keys_are_one_group():
    random = np.random.default_rng(0)
    first, second = (
        random.integers(-3, 3, 50),
        random.integers(0, 2**62, 8)[random.integers(0, 8, 50)],
    )
    groups, count = grouped.numbers(first, second)
    expected = pd.DataFrame({"first": first, "second": second}).groupby(["first", "second"])
    np.testing.assert_array_equal(groups, expected.ngroup())
    assert count == expected.ngroups
    assert grouped.numbers(first[:0], second[:0])[1] == 0


def test_keys_that_repeat_count_once():
    groups, keys = np.array([0, 2, 0, 0, 2]), np.array([7, 7, 7, -1, 7])
    np.testing.assert_array_equal(grouped.distinct(groups, keys, 4), [2, 0, 1, 0])


def test_a_counter_that_falls_was_reset():
    groups = np.array([1, 0, 1, 0, 1, 2, -1, -1])
    values = np.array([5.0, 1.0, 8.0, np.nan, 2.0, 9.0, 1.0, 50.0])
    np.testing.assert_array_equal(grouped.increases(groups, values, 4), [np.nan, 5, np.nan, np.nan])


def test_increases_are_of_each_group_by_itself(drawn):
    groups, values, _ = drawn
    known = np.isfinite(values) & (groups >= 0)
    steps = pd.Series(values[known]).groupby(groups[known]).diff()
    grown = steps.where(~(steps < 0), pd.Series(values[known]))
    expected = of_all(grown.groupby(groups[known]).sum(min_count=1))
    np.testing.assert_allclose(grouped.increases(groups, values, COUNT), expected)
