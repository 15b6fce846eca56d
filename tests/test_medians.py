"""Medians of few and of many, and what stands for the healthy of a small group."""

import numpy as np
import pytest

from rankscope_analyzers.numeric.medians import median, reference


@pytest.mark.parametrize(
    ("values", "middle"),
    [([1, 9], 1), ([1, 5, 9], 5), ([1, 3, 5, 9], 4), ([1, 3, 4, 5, 6, 9], 4.5)],
)
def test_of_two_the_lower_one_is_the_median_and_of_four_the_mean_of_the_middle_ones(values, middle):
    assert median(np.array([values], float), 1).tolist() == [[middle]]
    holes = np.array([[*values, np.nan, np.nan]], float)
    assert median(holes, 1).tolist() == [[middle]]


@pytest.mark.parametrize(("members", "taken"), [(8, 2), (20, 6), (32, 10), (33, 16), (65, 32)])
def test_of_up_to_32_members_the_lower_third_stands_for_the_healthy(members, taken):
    """Half of a small group may be on one slow node; of a larger one the median is healthy."""
    assert reference(np.arange(members, dtype=float)[None], 1).tolist() == [[taken]]
    half_slow = np.where(np.arange(members) < members // 2, 9.0, 1.0)
    assert members > 32 or reference(half_slow[None], 1).tolist() == [[1.0]]
