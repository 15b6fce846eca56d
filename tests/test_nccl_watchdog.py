"""Who is suspected when collectives time out."""

from __future__ import annotations

import pytest

from nccl_job_text import comm, facts_of, info
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


def test_whoever_waits_in_another_collective_is_suspected():
    text = "".join(timed_out(r) for r in range(7)) + timed_out(7, op="BROADCAST")
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (7, "different_collective")


def test_without_a_majority_nobody_is_suspected_of_another_collective():
    assert suspects(facts_of(timed_out(0) + timed_out(1, op="BROADCAST"))) == ()


def test_the_silent_rank_is_suspected_where_the_world_is_known():
    world = info(0, comm(0, 8, "COMPLETE"))
    text = world + "".join(timed_out(r) for r in range(8) if r != 5)
    (suspect,) = suspects(facts_of(text))
    assert (suspect.rank, suspect.test) == (5, "silent")


def test_silence_says_nothing_where_few_logs_are_there():
    assert suspects(facts_of(info(0, comm(0, 64, "COMPLETE")) + timed_out(3))) == ()


def test_a_rank_inside_another_group_is_not_taken_for_the_global_one():
    line = timed_out(1).replace("[rank1]:", "").replace("PG ID 0 ", "PG ID 3 ")
    (timeout,) = facts_of(line).watchdog.timeouts.values()
    assert (timeout.rank, timeout.group) == (None, "3")


@pytest.mark.parametrize(("timeouts", "kept"), [(65_000, 65_000), (66_000, 65_536)])
def test_timeouts_of_the_largest_jobs_are_kept_and_of_a_flood_no_more(timeouts, kept):
    facts = facts_of("".join(timed_out(rank) for rank in range(timeouts)))
    assert len(facts.watchdog.timeouts) == kept
