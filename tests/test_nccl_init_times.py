"""Which member of a communicator a line with times of its initialisation is about."""

from __future__ import annotations

from nccl_job_text import comm, info
from rankscope_agent.contract.nccl.parser import NcclLog

TIMES = "(kernels 0.20, alloc 0.10, bootstrap 0.30, allgathers 0.01, topo 0.05, graphs 0.01)"


def begun(pointer: int, comm_id: str, *, rank: int = 0, pid: int = 7) -> str:
    text = comm(rank, 8, "START", comm_id).replace("comm 0x", f"comm 0x{pointer}")
    return info(rank, text.replace("busId 1", f"busId {pid}"), pid=pid)


def timed(total: float, *, rank: int = 0, pid: int = 7) -> str:
    text = f"Init timings - ncclCommInitRankConfig: rank {rank} nranks 8 total {total:.2f} {TIMES}"
    return info(rank, text, pid=pid)


def totals(log: NcclLog) -> list[tuple[str, float | None]]:
    return [(member.group, member.init_seconds.get("total")) for member in log.facts.all_members()]


def read(*texts: str) -> NcclLog:
    log = NcclLog()
    log.feed("".join(texts).encode())
    return log


def test_times_are_of_the_newest_member_without_any():
    log = read(begun(1, "0xa"), begun(2, "0xb"), timed(2.0), timed(3.0), timed(4.0))
    assert totals(log) == [("0xa", 3.0), ("0xb", 2.0)]


def test_times_are_of_the_rank_and_the_process_that_print_them():
    log = read(
        begun(1, "0xa"),
        begun(1, "0xa", rank=1),
        begun(1, "0xb", pid=8),
        timed(2.0, rank=1),
        timed(3.0),
    )
    assert totals(log) == [("0xa", 3.0), ("0xa", 2.0), ("0xb", None)]


def test_a_communicator_at_the_address_of_an_earlier_one_has_its_own_times():
    log = read(begun(1, "0xa"), begun(1, "0xb"), timed(2.0), timed(3.0))
    assert totals(log) == [("0xa", None), ("0xb", 2.0)]


def test_times_are_found_after_a_restart_of_the_agent():
    log = NcclLog(facts=read(begun(1, "0xa"), begun(2, "0xb"), timed(2.0)).facts)
    log.feed(timed(3.0).encode())
    assert totals(log) == [("0xa", 3.0), ("0xb", 2.0)]


class Unlistable(dict):
    """Members that may be looked up, but not looked through."""

    def values(self):
        raise AssertionError("all members were looked through for one line")


def test_members_are_not_looked_through_for_each_line():
    log = read(begun(1, "0xa"))
    log.facts.members = Unlistable(log.facts.members)
    log.feed(timed(2.0).encode())
    log.facts.members = dict(log.facts.members)
    assert totals(log) == [("0xa", 2.0)]
