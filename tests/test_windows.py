import numpy as np
import pytest

from rankscope_analyzers.steps import frames
from rankscope_analyzers.stragglers.running import windows
from rankscope_analyzers.stragglers.running.windows import Span
from simulated_jobs import Job, records


def test_the_last_window_ends_with_the_last_step():
    starts = windows.window_starts(43)
    assert starts.tolist() == [0, 4, 8, 12, 16, 20, 24, 27]


def test_a_short_trace_is_one_window():
    assert windows.window_starts(9).tolist() == [0]
    assert windows.window_means(np.arange(9.0)[:, None]).tolist() == [[4.0]]


def test_window_means_leave_missing_entries_out():
    values = np.ones((20, 1))
    values[3:10] = np.nan
    values[12] = 10.0
    assert windows.window_means(values)[0, 0] == pytest.approx((8 + 10) / 9)


def test_a_window_without_entries_is_nan_and_silent():
    assert np.isnan(windows.window_means(np.full((16, 1), np.nan))).all()


def test_a_run_of_windows_is_a_span_and_a_single_one_is_not():
    flagged = np.zeros(22, dtype=bool)
    flagged[[2, 10, 11, 12]] = True
    assert windows.spans(flagged, 100) == (Span(40, 64),)


def test_short_gaps_are_bridged_and_long_ones_are_not():
    flagged = np.zeros(42, dtype=bool)
    flagged[[2, 3, 4, 7, 8, 9, 25, 26, 27]] = True
    assert windows.spans(flagged, 180) == (Span(8, 52), Span(100, 124))


def test_a_busy_second_is_not_a_fault_but_a_slow_run_is():
    fast = frames.build(
        "job", records(Job(ranks=2, steps=1000, compute=0.02, data=0.001, transfer=0.004))
    )
    assert not windows.persists(fast, Span(100, 140))
    assert windows.persists(fast, Span(100, 1000))


def test_a_short_observation_needs_a_share_of_it_only():
    short = frames.build("job", records(Job(ranks=2, steps=40, compute=0.02)))
    assert windows.persists(short, Span(10, 40))
    assert not windows.persists(short, Span(10, 25))
