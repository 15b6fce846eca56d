"""How much of a pasted log is looked at, and of what it says is shown: at each limit and beyond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nccl_job_text import facts_of, start, verdict_of
from rankscope_analyzers.logs import nccl_report
from rankscope_analyzers.logs.pasted_text import plain
from rankscope_analyzers.logs.record_starts import begins_record

RECORD = b"gpu-1:7:9 [0] NCCL INFO Bootstrap : Using eth0"


@pytest.mark.parametrize(("columns", "is_mail"), [(76, True), (77, False)])
def test_lines_of_a_mail_have_76_columns(columns, is_mail):
    words = b"x" * (columns - 1)
    assert plain(words + b"=\ny") == words + (b"" if is_mail else b"=\n") + b"y"


@pytest.mark.parametrize(("records", "lines"), [(3, 1), (4, 4)])
def test_more_than_three_records_on_a_line_have_lost_their_line_ends(records, lines):
    assert plain(b" ".join([RECORD] * records)).count(b"\n") == lines - 1


@pytest.mark.parametrize(("length", "lines"), [(1536, 1), (1537, 4)])
def test_a_line_of_1536_bytes_may_be_one_of_nccl(length, lines):
    """Most lines of the log have one record, so that only its length shows that this has more."""
    several = b" ".join([RECORD] * 4).ljust(length, b".")
    assert len(plain(several + b"\n" * 9).split()) > 4
    assert plain(several + b"\n" * 9).rstrip().count(b"\n") == lines - 1


@pytest.mark.parametrize(("length", "begins"), [(200, True), (201, False)])
def test_what_stands_between_a_process_and_nccl_has_200_bytes(length, begins):
    line = b"step 1 gpu-1:7:9 [0] " + b"x" * length + b" NCCL INFO Using network IB"
    assert begins_record(line, prefixed=False, bare=False) is begins


def with_communicators(count):
    """Return what a report needs of a log in which there are so many."""
    text = start(0, 2, "NET/IB/0")
    verdict = verdict_of(text)
    return facts_of(text), replace(verdict, communicators=verdict.communicators[:1] * count), ()


@pytest.mark.parametrize(("count", "shown", "more"), [(12, 12, False), (13, 12, True)])
def test_twelve_communicators_are_described(count, shown, more):
    lines = list(nccl_report.lines(*with_communicators(count)))
    assert len([line for line in lines if line.startswith("communicator ")]) == shown
    assert ("communicators: 1 more in --json" in lines) is more


@pytest.mark.parametrize(("count", "left_out"), [(1000, 0), (1001, 1)])
def test_a_thousand_communicators_are_handed_on(count, left_out):
    shown = nccl_report.as_object(*with_communicators(count))
    assert (len(shown["communicators"]), shown["communicators_left_out"]) == (1000, left_out)
