"""Ranks that left no trace of a failure, in logs that may name any rank."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from failed_jobs import lost, traceback
from failure_logs import attempts
from rankscope_agent.contract.failures.signs import FailureSigns, SignLocation
from rankscope_agent.contract.failures.silence import silent_ranks
from rankscope_agent.sources.nccl_log.failures import PodFailures, Progress, pieces
from rankscope_analyzers import cli

LAST = (1 << 20) - 1
"""The highest rank that is believed."""


@pytest.mark.parametrize(
    ("spoken", "highest", "silent"),
    [
        ((), 7, []),
        ((None,), 2, [0, 1, 2]),
        ((0, 3, None), -1, [1, 2]),
        ((0, 3), 5, [1, 2, 4, 5]),
        ((2, 0, 1), 2, []),
    ],
)
def test_ranks_are_silent_if_others_speak(spoken, highest, silent):
    runs = silent_ranks(spoken, highest)
    assert [rank for run in runs for rank in run] == silent
    assert all(runs)


def test_a_log_of_some_attempts_that_names_a_rank_of_a_million_fills_no_memory():
    end = (
        "E0101 00:00:00.0 7 torch] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python\n"
    )
    text = "".join(traceback(LAST, f"ValueError: {number}") + end for number in range(4)).encode()
    pod = PodFailures()
    tracemalloc.start()
    try:
        for marked, piece in pieces(text):
            if marked:
                pod.mark("c/0.log", 100.0, Progress(0, 0.0))
            pod.feed("c/0.log", piece, 100.0)
        found = list(pod.settle(106.0, Progress(0, 0.0), ended=False, alive=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [one.rank for one in found] == [LAST] * 4
    assert peak < 4 << 20


WATCHDOG = (
    "[rank5]:[E1129 02:11:03.1 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=120, OpType=_ALLGATHER_BASE)\n"
    "[rank0]:[E1129 02:11:04.1 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 0]"
    " Received a dump signal due to a collective timeout from rank 5\n"
    "[rank1]: WARNING: low memory\n"
)


def test_a_rank_that_reports_an_error_of_whatever_kind_is_not_silent():
    (attempt,) = attempts(WATCHDOG)
    assert attempt.silent == (range(1, 5),)
    end = (
        "E1129 02:11:09.1 7 torch] failed (exitcode: 1) local_rank: 5 (pid: 7) of binary: python\n"
    )
    _, second = attempts(WATCHDOG + end + WATCHDOG.splitlines(keepends=True)[0] + end)
    assert range(5) in second.silent
    _, second = attempts((WATCHDOG + end) * 2)
    assert second.silent == (range(1, 5),)


def test_so_many_silent_ranks_are_counted_in_the_text_and_the_first_ones_listed(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text("".join(lost(rank) for rank in (*range(1, 20, 2), LAST)))
    assert cli.main(["explain", "job-log", "--json", str(log)]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert attempt["verdict"].endswith("; ranks 0, 2, 4, 6, 8, 10, 12, 14 and 1048557 more silent")
    assert attempt["silent_ranks"][:11] == [*range(0, 20, 2), 20]
    assert len(attempt["silent_ranks"]) == 4096


@pytest.mark.parametrize(
    ("rank", "known"), [(0, 0), (LAST, LAST), (LAST + 1, None), (True, None), (-1, None)]
)
def test_an_error_file_names_a_rank_that_a_job_can_have(rank, known):
    extra = {"rank": rank, "timestamp": "1"}
    (attempt,) = attempts(json.dumps({"message": {"message": "ValueError: x", "extraInfo": extra}}))
    assert attempt.first.rank == known


@pytest.mark.parametrize("name", ["rank9999999.log", "attempt_0/9999999/stderr.log"])
def test_a_files_name_names_a_rank_that_a_job_can_have(name):
    (attempt,) = attempts("Traceback (most recent call last):\nValueError: x\n", names=(name,))
    assert (attempt.first.rank, attempt.silent) == (None, ())


@pytest.mark.parametrize(("known", "kept"), [(19_999, 20_000), (20_000, 20_000)])
def test_20_000_ranks_that_report_errors_are_known(known, kept):
    signs = FailureSigns()
    for rank in range(known + 1):
        signs.report(SignLocation("job.log", 1, 0, rank, False, None))
    assert len(signs.rank_errors) == kept
