"""Counters and gauges over the last minutes."""

import pytest

from rankscope_agent.collecting.summary.windows import Increases, Means

RESOLUTION_SECONDS = 15.0


def fed(window, values):
    """Return rises after looks at a counter "a": pairs of time and value."""
    rises = Increases(window)
    for now, value in values:
        rises.add("a", value, now)
    return rises


def test_what_was_counted_before_the_first_look_is_no_rise():
    assert fed(900, [(0, 7000)]).increase("a", 0) == 0
    assert fed(900, [(0, 7000), (15, 7000)]).increase("a", 15) == 0


def test_growth_counts_for_the_window_and_no_longer():
    rises = fed(900, [(0, 5), (15, 8), (30, 8)])
    assert rises.increase("a", 30) == 3
    for now in range(45, 900, 15):
        rises.add("a", 8, now)
        assert rises.increase("a", now) == 3
    rises.add("a", 8, 930)
    assert rises.increase("a", 930) == 0


def test_a_counter_that_starts_again_has_grown_by_what_it_shows():
    assert fed(900, [(0, 1_000_000), (15, 0)]).increase("a", 15) == 0
    assert fed(900, [(0, 1_000_000), (15, 4)]).increase("a", 15) == 4


def test_of_a_gap_longer_than_the_window_its_part_counts():
    assert fed(300, [(0, 0), (3000, 1000)]).increase("a", 3000) == pytest.approx(100)


def test_steady_growth_is_its_rate():
    rises = fed(300, [(now, now * 5.0) for now in range(0, 1201, 7)])
    assert rises.rate("a", 1197) == pytest.approx(5, rel=0.1)


def test_a_counter_that_is_gone_is_remembered_for_one_window():
    rises = fed(3600, [(0, 0), (60, 3)])
    rises.forget(1800)
    assert rises.increase("a", 1800) == 3
    rises.forget(3700)
    assert rises.keys() == ()
    assert rises.increase("a", 3700) == 0


def test_counters_that_stand_still_keep_one_point_and_busy_ones_one_per_grain():
    rises = fed(900, [(now, 0) for now in range(10_000)])
    assert len(rises._counters["a"].points) == 1
    rises = fed(900, [(now, now) for now in range(5_000)])
    rises.increase("a", 4_999)
    assert len(rises._counters["a"].points) <= 900 / RESOLUTION_SECONDS + 2


def test_means_are_of_the_window():
    means = Means(300)
    for now in range(0, 600, 5):
        means.add("a", 0.0 if now < 300 else 1.0, now)
    assert means.mean("a") == pytest.approx(0.5)
    means.forget(599)
    assert means.mean("a") == pytest.approx(1.0, abs=0.06)
    means.forget(10_000)
    assert means.mean("a") is None


def test_one_point_is_kept_for_each_quarter_of_a_minute():
    rises = fed(900, [(now, now) for now in range(60)])
    kept = [at for at, _ in rises._counters["a"].points]
    assert kept == [0, 14, 29, 44, 59]
