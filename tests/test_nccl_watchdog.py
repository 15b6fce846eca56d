"""Who is suspected when collectives time out."""

from __future__ import annotations

import pytest

from nccl_job_text import comm, facts_of, info
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_analyzers.logs.nccl_report import suspects_object
from rankscope_analyzers.logs.watchdog_suspects import suspects

WORK = "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000)"
TIMEOUT = (
    f"Watchdog caught collective operation timeout: {WORK} ran for 600045 milliseconds before"
    " timing out."
)
PREFIXES = {
    "2.1": "[E ProcessGroupNCCL.cpp:821] [Rank {rank}] ",
    "2.2": "[rank{rank}]:[E ProcessGroupNCCL.cpp:577] [Rank {rank}] ",
    "2.3": "[rank{rank}]:[E ProcessGroupNCCL.cpp:607] [PG 0 Rank {rank}] ",
    "2.4": "[rank{rank}]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607]"
    " [PG 0 (default_pg) Rank {rank}] ",
    "2.6": "[rank{rank}]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID"
    " 0(default_pg) Rank {rank}] ",
    "prefix stripped": "[Rank {rank}] ",
}


def timed_out(
    rank: int, seq: int = 42, op: str = "ALLREDUCE", n: int = 1024, style: str = "2.6"
) -> str:
    return PREFIXES[style].format(rank=rank) + TIMEOUT.format(seq=seq, op=op, n=n) + "\n"


@pytest.mark.parametrize("style", PREFIXES)
def test_a_timeout_of_any_version_is_read_once(style):
    facts = facts_of(timed_out(3, style=style) * 4)
    (timeout,) = facts.watchdog.timeouts.values()
    assert (timeout.rank, timeout.sequence, timeout.operation) == (3, 42, "ALLREDUCE")
    assert (timeout.elements_in, timeout.timeout_ms, timeout.ran_ms) == (1024, 600_000, 600_045)
    assert facts.warnings["TORCH_WATCHDOG_TIMEOUT"].count == 1


def test_whoever_the_desync_report_names_comes_first():
    report = (
        " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "     [5, 6] finished collective #41, but didn't join collective #42 (count from 1)\n"
    )
    found = suspects(facts_of(timed_out(0) + report))
    assert [suspect.rank for suspect in found] == [5, 6]
    assert "did not join #42" in found[0].why


def test_whoever_a_monitored_barrier_names_is_suspected():
    line = (
        "[rank0]:[E1129 21:35:06.824978565 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 2, 5 failed to"
        " pass monitoredBarrier in 3000 ms\n"
    )
    found = suspects(facts_of(line))
    assert [(suspect.rank, suspect.test) for suspect in found] == [
        (2, "monitored_barrier"),
        (5, "monitored_barrier"),
    ]


def test_whoever_enqueued_less_than_its_peers_is_suspected():
    state = (
        "[rank{rank}]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:2021] [PG ID 0 PG GUID"
        " 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 42 PG"
        " status: last enqueued work: {enqueued}, last completed work: {completed}\n"
    )
    text = "".join(
        timed_out(r) + state.format(rank=r, enqueued=41 if r == 6 else 44, completed=41)
        for r in range(8)
    )
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (6, "behind")


@pytest.mark.parametrize("world", [info(0, comm(0, 8, "COMPLETE")), ""])
def test_a_rank_that_waits_is_not_behind_those_whose_hosts_ran_further_ahead(world):
    text = world + "".join(gave_up(r, enqueued=42 + r % 3) for r in range(8) if r != 5)
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (5, "silent")


def test_the_state_of_one_rank_in_an_earlier_attempt_puts_no_other_behind():
    first = "".join(gave_up(r, seq=100, enqueued=101) for r in range(8) if r != 3)
    second = "".join(gave_up(r, seq=50, enqueued=51) for r in range(8) if r != 6)
    assert suspects(facts_of(first + second))[0].rank == 6


SIGNAL = (
    "[rank{rank}]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID"
    " 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank 3"
    " and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last"
    " completed NCCL work: 41.This is most likely caused by incorrect usages of collectives\n"
)


@pytest.mark.parametrize("late", [41, None])
def test_the_rank_that_gave_up_first_is_not_suspected_where_all_others_only_dump(late):
    others = [r for r in range(8) if r != 3 and (late or r != 6)]
    lines = [SIGNAL.format(rank=r, enqueued=41 if r == 6 else 42 + r % 2) for r in others]
    facts = facts_of(timed_out(3) + "".join(lines))
    assert [suspect.rank for suspect in suspects(facts)] == [6]
    shown = suspects_object(facts, suspects(facts))
    assert (shown["gave_up_first"], shown["nranks"]) == ([3], 8)


@pytest.mark.parametrize(("op", "n"), [("RECV", 1024), ("COALESCED", 2**64 - 1)])
def test_stages_that_wait_for_messages_are_not_compared_by_their_numbers(op, n):
    """Each rank counts its own messages: the first and the last stage have half as many."""
    numbers = (57, 114, 114, 114)
    group = {"group": "9", "number": 3, "op": op, "n": n}
    text = "".join(gave_up(r, seq=seq, enqueued=seq, **group) for r, seq in enumerate(numbers))
    assert suspects(facts_of(text)) == ()


def test_whoever_waits_in_another_collective_is_suspected():
    text = "".join(timed_out(r) for r in range(7)) + timed_out(7, op="BROADCAST")
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (7, "different_collective")


@pytest.mark.parametrize("cut", ["OpType=ALLRED", "NumelIn=10", "SeqNum=42, OpType="])
def test_a_rank_whose_line_was_cut_off_is_not_in_another_collective(cut):
    world = info(0, comm(0, 8, "COMPLETE"))
    lines = [timed_out(rank, style="2.1") for rank in range(8)]
    lines[3] = lines[3][: lines[3].index(cut) + len(cut)] + "\n"
    facts = facts_of(world + "".join(lines))
    assert (suspects(facts), len(facts.watchdog.timeouts)) == ((), 8)


def test_without_a_majority_nobody_is_suspected_of_another_collective():
    assert suspects(facts_of(timed_out(0) + timed_out(1, op="BROADCAST"))) == ()


def test_the_silent_rank_is_suspected_where_the_world_is_known():
    world = info(0, comm(0, 8, "COMPLETE"))
    text = world + "".join(timed_out(r) for r in range(8) if r != 5)
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (5, "silent")


STUCK = (
    "[rank{0}]:[E1129 02:13:12.123456789 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg)"
    " Rank {0}] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
)


def test_a_rank_whose_watchdog_got_stuck_is_suspected_unless_it_gave_up_before():
    (suspect,) = suspects(facts_of(STUCK.format(2)))
    assert (suspect.rank, suspect.test) == (2, "stuck")
    text = "".join(timed_out(rank) for rank in range(8) if rank != 2) + STUCK.format(5)
    assert [one.rank for one in suspects(facts_of(text + STUCK.format(2)))] == [2]


def test_silence_says_nothing_where_few_logs_are_there():
    assert suspects(facts_of(info(0, comm(0, 64, "COMPLETE")) + timed_out(3))) == ()


def test_a_rank_inside_another_group_is_not_taken_for_the_global_one():
    line = timed_out(1).replace("[rank1]:", "").replace("ID 0 PG GUID 0(", "ID 3 PG GUID 17(")
    (timeout,) = facts_of(line).watchdog.timeouts.values()
    assert (timeout.rank, timeout.group) == (None, "17")


HEAD = "[rank{rank}]:[E1218 20:27:21.484963240 ProcessGroupNCCL.cpp:{line}] "
GROUP = "[PG ID {number} PG GUID {group}{name} Rank {inside}] "


def gave_up(
    rank,
    *,
    group="0",
    number=0,
    inside=None,
    seq=42,
    op="ALLREDUCE",
    n=1024,
    enqueued=43,
    whole=True,
):
    """Return what one rank of PyTorch 2.13 prints in turn of one timeout."""
    inside = rank if inside is None else inside
    message = f"[Rank {inside}] " + TIMEOUT.format(seq=seq, op=op, n=n) + "\n"
    name = "(default_pg)" if group == "0" else "(TENSOR_MODEL_PARALLEL_GROUP)"
    place = GROUP.format(number=number, group=group, name=name, inside=inside)
    state = (
        f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work:"
        f" {enqueued}, last started work: {seq} ({op}), last completed work: {seq - 1}\n"
    )
    ended = place + "Process group watchdog thread terminated with exception: " + message
    lines = [HEAD.format(rank=rank, line=683) + message]
    lines += [HEAD.format(rank=rank, line=2299) + place + state]
    if whole:
        lines += [HEAD.format(rank=rank, line=1899) + ended, "  what():  " + ended]
        lines += [f"[rank{rank}]: torch.distributed.DistBackendError: " + message]
    return "".join(lines)


@pytest.mark.parametrize("group", ["0", "45", "4f3a9c0d"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_timeout_that_is_printed_with_and_without_its_group_counts_once(group, whole):
    facts = facts_of(
        gave_up(9, group=group, number=3, inside=9 if group == "0" else 1, whole=whole)
    )
    (timeout,) = facts.watchdog.timeouts.values()
    assert (timeout.rank, timeout.group, timeout.sequence) == (9, group, 42)
    assert facts.warnings["TORCH_WATCHDOG_TIMEOUT"].count == 1
    assert [state.enqueued for state in facts.watchdog.states.values()] == [43]


def test_who_is_behind_is_seen_where_the_last_started_work_is_printed_too():
    text = "".join(gave_up(r, enqueued=41 if r == 6 else 44) for r in range(8))
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (6, "behind")


def test_groups_of_one_kind_are_told_apart_and_none_is_behind_another():
    """Each process counts its groups, and pipeline stages need not call as many collectives."""
    first = [gave_up(r, group="5", number=1, inside=r, seq=10, enqueued=12) for r in range(4)]
    second = [
        gave_up(r, group="6", number=1, inside=r - 4, seq=30, enqueued=31) for r in range(4, 12)
    ]
    assert suspects(facts_of("".join(first + second))) == ()


@pytest.mark.parametrize("op", ["SCATTER", "ALLTOALL_BASE"])
def test_tensors_of_sizes_that_may_differ_suspect_nobody(op):
    text = "".join(gave_up(r, op=op, n=0 if r else 29360128) for r in range(8))
    assert suspects(facts_of(text)) == ()
    text = "".join(gave_up(r, n=1 if r else 2) for r in range(8))
    assert [suspect.rank for suspect in suspects(facts_of(text))] == [0]


def test_a_count_that_stands_for_an_unknown_one_is_unknown():
    (timeout,) = facts_of(timed_out(3, op="COALESCED", n=2**64 - 1)).watchdog.timeouts.values()
    assert timeout.elements_in is None


def test_timeouts_of_the_largest_jobs_are_kept_and_of_a_flood_no_more():
    framing, log = Unframer(), NcclLog()
    for ranks, kept in ((range(65_000), 65_000), (range(65_000, 66_000), 65_536)):
        log.feed(framing.feed("".join(map(timed_out, ranks)).encode()))
        assert len(log.facts.watchdog.timeouts) == kept
