"""How much is kept of an error in one job's data: at each limit and just beyond it."""

from __future__ import annotations

import pytest

from rankscope_analyzers.isolation.boundary import AnalysisError, ErrorLog, attempt


def test_an_error_quotes_300_characters_of_its_message():
    def broken():
        raise ValueError("x" * 5000)

    error = attempt("report", "t/j", broken)
    assert isinstance(error, AnalysisError)
    assert 280 <= error.reason.count("x") <= 300


def one(calls, message=""):
    if calls:
        other(calls - 1, message)
    raise ValueError(message)


def other(calls, message):
    one(calls, message)


def test_a_traceback_has_twenty_frames_and_sixteen_thousand_characters():
    trace = attempt("report", "t/j", lambda: one(50)).trace
    assert trace.count(", in one") + trace.count(", in other") == 20
    assert len(attempt("report", "t/j", lambda: one(1, "x" * 20_000)).trace) == 16_000


@pytest.mark.parametrize(("others", "again"), [(4095, 0), (4096, 1)])
def test_4096_errors_are_known_as_logged(others, again):
    lines = []
    log = ErrorLog(lines.append)
    errors = [AnalysisError("report", str(n), "ValueError", "a.py:1", "") for n in range(4097)]
    log.note(errors[:1])
    log.note(errors[1 : others + 1])
    lines.clear()
    log.note(errors[:1])
    assert len(lines) == again
