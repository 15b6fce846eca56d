"""What RAS's reports say, in JSON and in the texts of several NCCL versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope_agent.sources.nccl_ras import json_reply, text_reply
from rankscope_agent.sources.nccl_ras.report import Lag, RasReplyError
from ras_server import communicator, json_report, missing_entry, rank_entry

HEAD = """NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
QUIET = "    0         1         4         8        32        32   RUNNING      OK\n"
LATE = """    0         1         4         8        32        32   RUNNING  MISMATCH
    1         8         4         1         4        32   RUNNING  OK

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
"""


def test_a_healthy_job_lags_nowhere():
    everybody = [rank_entry(rank, AllReduce=64, AllGather=3) for rank in range(8)]
    report = json_reply.parse(json_report(communicator(8, everybody, [])))
    assert (report.version, report.communicators, report.largest) == ("2.28.9", 1, 8)
    assert (report.missing_ranks, report.dead_processes, report.lags) == (0, 0, ())
    assert text_reply.parse(HEAD + QUIET).lags == ()


def test_a_rank_that_is_behind_is_named_in_json():
    ranks = [rank_entry(rank, AllReduce=64 - 4 * (rank == 7)) for rank in range(8)]
    pair = communicator(2, [rank_entry(0, AllReduce=9), rank_entry(1, AllReduce=8)], [])
    report = json_reply.parse(json_report(communicator(8, ranks, []), pair))
    assert report.lags == (Lag("AllReduce", 4, (7,), 1, 8),)


def test_a_rank_that_is_behind_is_named_in_text():
    several = LATE + (
        "  Communicator ranks have different AllReduce operation counts\n"
        "  31 ranks have launched up to operation 64\n"
        "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 16 on node node1\n"
        "  Communicator ranks have different Broadcast operation counts\n"
        "  30 ranks have launched up to operation 2\n"
        "  2 ranks have not launched any operations\n"
        "  Rank 1 -- GPU 1 managed by process 10 on node node0\n"
        "  Rank 4 -- GPU 4 managed by process 14 on node node0\n"
    )
    report = text_reply.parse(HEAD + several)
    assert report.lags == (
        Lag("AllReduce", 4, (7,), 1, 32),
        Lag("Broadcast", 2, (1, 4), 2, 32),
    )
    assert (report.communicators, report.largest, report.version) == (9, 32, "2.26.2")


@pytest.mark.parametrize("behind", [60, 2])
def test_of_equal_lags_the_one_of_the_largest_communicator_counts(behind):
    block = (
        "  Communicator ranks have different AllReduce operation counts\n"
        "  3 ranks have launched up to operation 64\n"
        "  Rank 2 has launched up to operation {} -- GPU 3 managed by process 16 on node n1\n"
    )
    inner = "#1-5 (17a079b828ff1a75) MISMATCH\n" + block.format(behind)
    (lag,) = text_reply.parse(HEAD + LATE + block.format(60) + inner).lags
    assert (lag.ranks, lag.size) == ((2,), 32 if behind == 60 else 4)


def test_before_2_26_all_collectives_share_one_count():
    several = LATE + (
        "  Communicator ranks have different collective operation counts\n"
        "  26 ranks have launched up to operation 6650\n"
        "  6 ranks have launched up to operation 6649\n"
        "  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210\n"
    )
    assert text_reply.parse(HEAD + several).lags == (Lag("any", 1, (0,), 6, 32),)


def test_missing_ranks_and_dead_processes_are_counted():
    ranks = [rank_entry(rank, AllReduce=5) for rank in range(6)]
    gone = [missing_entry(6, dead=True), missing_entry(7)]
    report = json_reply.parse(json_report(communicator(8, ranks, gone), timeouts=2))
    assert (report.missing_ranks, report.dead_processes, report.timeouts) == (2, 1, 2)
    text = (
        HEAD
        + "    0         1         4       7-8        32        31   RUNNING  INCOMPLETE\n\n"
        + "Errors\n======\n\nDEAD\n"
        + "  1 job process is considered dead (unreachable via the RAS network)\n"
        + "  Process 3487984 on node 172.16.64.213 managing GPU 5\n\n"
        + "#0-0 (cf264af53edbe986) INCOMPLETE\n"
        + "  Missing communicator data from 1 rank\n  The missing rank: 21\n\n"
        + "Warnings\n========\n\nTIMEOUT\n"
        + "  Encountered 2 communication timeouts while gathering communicator data\n"
    )
    found = text_reply.parse(text)
    assert (found.missing_ranks, found.dead_processes, found.timeouts) == (1, 1, 2)
    assert found.failed_ranks is None


def test_ranks_that_failed_are_counted():
    broken = rank_entry(1, AllReduce=5)
    broken["status"]["async_error"] = 6
    report = json_reply.parse(
        json_report(communicator(2, [rank_entry(0, AllReduce=5), broken], []))
    )
    assert report.failed_ranks == 1


def test_the_comma_that_2_28_9_leaves_out_is_put_back():
    text = json_report(communicator(2, [rank_entry(0, AllReduce=5)], [missing_entry(1)]))
    without = text.replace('"pid": 4001,\n', '"pid": 4001\n')
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(without)
    assert json_reply.parse(without) == json_reply.parse(text)


def test_collectives_that_are_not_known_share_a_label():
    ranks = [rank_entry(rank, **{"x" * 90: rank, "SendRecv": rank}) for rank in range(2)]
    report = json_reply.parse(json_report(communicator(2, ranks, [])))
    assert [lag.operation for lag in report.lags] == ["other"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000, '{"communicators": 3}', "null"])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(RasReplyError):
        json_reply.parse(text)
    with pytest.raises(RasReplyError):
        text_reply.parse(text)


STRANGE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.data())
def test_no_value_of_a_wrong_type_breaks_the_reading_of_json(data):
    report = json.loads(
        json_report(communicator(2, [rank_entry(0, AllReduce=5)], [missing_entry(1)]), timeouts=1)
    )
    holder = report
    while True:
        key = data.draw(st.sampled_from(sorted(holder)) if isinstance(holder, dict) else st.just(0))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            holder[key] = data.draw(STRANGE)
            break
        holder = inner
    try:
        found = json_reply.parse(json.dumps(report))
    except RasReplyError:
        return
    assert found.missing_ranks >= 0


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*(HEAD + QUIET + LATE).splitlines(), "\0", "  Rank 1 -- GPU "])))
def test_lines_of_a_report_in_any_order_break_nothing(lines):
    try:
        text_reply.parse("\n".join(lines))
    except RasReplyError:
        assert not any(line.startswith("Communicators...") for line in lines)
