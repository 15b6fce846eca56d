"""Windows of a job's newest step records: which are kept, and which are new."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.intake.step_windows import StepWindows, Writer
from rankscope_analyzers.stragglers.followed_jobs import columns_of


def numbers(count, start=0.0):
    return {"step": np.arange(count) + start, "t_start_unix_seconds": np.arange(count) + start}


def test_windows_keep_the_newest_records_and_share_the_room():
    windows = StepWindows(100.0, most_records=60)
    for look in range(10):
        for name, count in (("a/small", 2), ("b/large", 20)):
            window = windows.of(name)
            rank = window.number(Writer(0, "n", 0, 0, 0, 0))
            window.add(float(look), np.full(count, rank), numbers(count, look * 100.0))
            window.taken()
        windows.trim(float(look))
    assert len(windows.of("a/small")) == 20
    assert len(windows.of("b/large")) == 40
    assert windows.of("b/large").records()["step"].iloc[-1] == 919.0


def test_fresh_records_are_not_dropped_and_old_jobs_are():
    windows = StepWindows(100.0, most_records=10)
    window = windows.of("a/b")
    window.add(
        0.0, np.zeros(30, dtype=np.int64) + window.number(Writer(0, "n", 0, 0, 0, 0)), numbers(30)
    )
    windows.trim(1000.0)
    assert len(window.fresh_table()) == 30
    window.taken()
    windows.trim(1000.0)
    assert windows.jobs == {}


def test_too_many_fresh_records_leave_those_of_the_newest_steps_of_all_ranks():
    window = StepWindows(1000.0).of("a/b")
    rank, other = (window.number(Writer(one, "n", 0, 0, 0, 0)) for one in (0, 1))
    window.add(0.0, np.full(5, rank), numbers(5))
    window.taken()
    for one in (rank, other):
        window.add(1.0, np.full(10, one), numbers(10, 100.0))
    window.add(1.0, np.array([rank]), {"step": np.array([7.0])})
    assert window.drop_fresh(21, 12) == 0
    assert window.drop_fresh(6, 12) == 15
    assert window.fresh == 6
    assert len(window) == 11
    fresh = window.fresh_table().numbers
    assert sorted(zip(fresh["rank"], fresh["step"], strict=True)) == [
        (one, step) for one in (0.0, 1.0) for step in (107.0, 108.0, 109.0)
    ]
    assert window.records()["step"].iloc[:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert window.drop_fresh(0, 12) == 6
    assert len(window.fresh_table()) == 0


def test_fresh_records_of_too_many_steps_leave_those_of_the_newest_steps():
    window = StepWindows(1000.0).of("a/b")
    rank, other = (window.number(Writer(one, "n", 0, 0, 0, 0)) for one in (0, 1))
    assert (window.fresh_steps(), window.drop_fresh(0, 0)) == (0, 0)
    for one in (rank, other):
        window.add(1.0, np.full(10, one), numbers(10, 100.0))
    assert window.fresh_steps() == 10
    assert window.drop_fresh(20, 10) == 0
    assert window.drop_fresh(20, 3) == 14
    assert sorted(set(window.fresh_table().numbers["step"])) == [107.0, 108.0, 109.0]
    assert window.fresh_steps() == 3


def test_fresh_records_are_judged_as_those_of_a_frame_are():
    """Of two nodes, of which one times its kernels and names a source that nobody knows."""
    window = StepWindows(1000.0).of("a/b")
    writers = [window.number(Writer(one, f"n{one % 2}", 0, 0, one, 0)) for one in (0, 1, 2)]
    timings = [window.timing(name) for name in ("invented", "kernel")]
    for writer, timing in zip(writers, (*timings, np.nan), strict=True):
        window.add(1.0, np.full(4, writer), {**numbers(4), "timing": np.full(4, timing)})
    window.add(1.0, np.full(2, writers[0]), numbers(2, 50.0))
    found, expected = window.fresh_table(), columns_of(window.records())
    assert found.numbers.keys() == expected.numbers.keys()
    for name, values in expected.numbers.items():
        np.testing.assert_array_equal(found.numbers[name], values, err_msg=name)
    assert found.numbers["timing_source"].tolist() == [0] * 4 + [1] * 4 + [0] * 6
    assert [found.node_names[one] for one in found.node] == [
        expected.node_names[one] for one in expected.node
    ]


def test_columns_that_nobody_measures_take_no_room():
    window = StepWindows(100.0).of("a/b")
    rank = np.full(3, window.number(Writer(5, "n", 1, 0, 5, 0)))
    window.add(0.0, rank, numbers(3) | {"samples": np.full(3, np.nan)})
    window.add(1.0, rank, numbers(3) | {"samples": np.full(3, 8.0)})
    records = window.records()
    assert records["samples"].isna().tolist() == [True] * 3 + [False] * 3
    assert records["rank"].tolist() == [5.0] * 6
    assert "sync_seconds" not in records
