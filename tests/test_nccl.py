"""What the parser reads out of single lines, of every version and wrapping."""

from __future__ import annotations

import pytest

from nccl_job_text import COMM_ID, comm, edge, facts_of, info, start, verdict_of
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.nccl.facts import Limits
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import judge

MAX_PREFIXES = 256
EDGES = {
    # 2.4, 2.5, 2.7, 2.12 with PXN, 2.18, 2.26 on C2C machines, 2.8 shared, plugins with a blank.
    "Ring 00 : 1 -> 0 [send] via NET/Socket/0": ("NET/Socket", False, "send"),
    "Ring 01 : 1[1a000] -> 0[1a000] [receive] via NET/IB/0/GDRDMA": ("NET/IB", True, "receive"),
    "Channel 00 : 9[101c0] -> 0[101c0] [send] via NET/IB/3": ("NET/IB", False, "send"),
    "Channel 02/0 : 9[1] -> 0[0] [send] via NET/IB/0(8)/GDRDMA": ("NET/IB", True, "send"),
    "Channel 02/1 : 9[1] -> 0[0] [send] via NET/IB/0/GDRDMA(PCI)": ("NET/IB", True, "send"),
    "Channel 01/1 : 0[0] -> 9[1] [send] via NET/Socket/0/Shared": ("NET/Socket", False, "send"),
    "Channel 00 : 8[c0] -> 0[c0] [receive] via NET/AWS Libfabric/1/GDRDMA": (
        "NET/AWS Libfabric",
        True,
        "receive",
    ),
    "Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read": (
        "P2P/direct pointer/read",
        False,
        "",
    ),
    "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/CE": ("P2P/CUMEM/CE", False, ""),
    "Channel 00/0 : 1[1] -> 8[0] via P2P/MNNVL": ("P2P/MNNVL", False, ""),
    "Channel 03 : 1[1] -> 0[0] via SHM/direct/direct": ("SHM/direct/direct", False, ""),
    "Channel 03 : 1[1] -> 0[0] via direct shared memory": ("SHM", False, ""),
    # RCCL says more behind it.
    "Channel 00/0 : 1[c3] -> 0[c1] [send] via NET/Socket/0 comm 0x2083dd50 nRanks 02": (
        "NET/Socket",
        False,
        "send",
    ),
}


@pytest.mark.parametrize("text", EDGES)
def test_a_connection_of_any_version_is_read(text):
    (transport,) = verdict_of(info(1, text)).connections
    assert (transport.name, transport.gdr, transport.direction) == EDGES[text]


@pytest.mark.parametrize(
    "text",
    [
        "Channel 00/02 :    0   1   2   3",
        "Ring 00 : 3 -> 0 -> 1",
        "Channel 00/0 : 1[1] -> 0[0] via TELEPATHY/0",
        "Tree 0 : 3 -> 0 -> 1/-1/-1",
    ],
)
def test_an_order_of_ranks_is_no_connection(text):
    assert not verdict_of(info(0, text)).connections


def test_edges_count_once_however_often_channels_and_connections_repeat_them():
    lines = [info(8, edge(8, 0, "NET/IB/0/GDRDMA", channel)) for channel in range(4)] * 3
    (count,) = verdict_of("".join(lines)).connections.values()
    assert count == 1


@pytest.mark.parametrize(
    ("text", "nranks"),
    [
        ("comm 0x7f01 rank 3 nranks 16 cudaDev 3 nvmlDev 3 - Init COMPLETE", 16),
        ("comm 0x7f01 rank 3 nranks 16 cudaDev 3 busId 88000 - Init COMPLETE", 16),
        ("comm 0x7f01 rank 3 nranks 16 cudaDev 3 busId 88000 commId 0xabc - Init COMPLETE", 16),
        (
            "[Rank 3] ncclCommInitRankConfig comm 0x7f01 rank 3 nranks 16 cudaDev 3 nvmlDev 3"
            " busId 88000 commId 0xabc - Init COMPLETE",
            16,
        ),
        (
            "ncclCommSplit comm 0x7f01 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 88000 parent"
            " 0x7e00 splitCount 1 color 7 key 0 - Init COMPLETE",
            4,
        ),
    ],
)
def test_init_complete_of_any_version_is_read(text, nranks):
    verdict = verdict_of(info(3, text))
    assert (verdict.init_complete_ranks, verdict.nranks) == ((3,), nranks)


@pytest.mark.parametrize("end", ["Destroy COMPLETE", "Abort COMPLETE"])
def test_the_end_of_a_communicator_is_not_its_start(end):
    verdict = verdict_of(info(1, f"comm 0x7f01 rank 1 nranks 2 cudaDev 0 busId 1000 - {end}"))
    assert verdict.init_complete_ranks == ()
    assert (verdict.ranks_seen, verdict.nranks) == ((1,), 2)


def test_a_line_about_nodes_is_no_end_of_initialisation():
    text = "comm 0x7f01 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0"
    lines = info(1, comm(1, 16, "START").replace("0x5500010", "0x7f01")) + info(1, text)
    (judged,) = verdict_of(lines).communicators
    assert (judged.communicator.nodes, judged.communicator.stuck_ranks) == (2, (1,))


def test_a_number_that_was_torn_is_not_believed():
    facts = facts_of("node-a:7:8 [0] NCCL INFO comm 0x7f rank 1 nranks 6node-a:9:9 [1] x\n")
    assert facts.largest_comm == 0


def test_the_version_is_read_with_and_without_prefix():
    assert facts_of("NCCL version 2.20.5+cuda12.4\n").version == "2.20.5+cuda12.4"
    assert facts_of(info(0, "NCCL version 2.28.9+cuda12.9")).version == "2.28.9+cuda12.9"


def test_settings_end_with_a_dot_only_where_they_are_numbers():
    lines = info(0, "NCCL_IB_DISABLE set by environment to 1.")
    lines += info(0, "NCCL_NET_PLUGIN set by environment to libx.so")
    (process,) = facts_of(lines).processes.values()
    assert process.environment == {"NCCL_IB_DISABLE": "1", "NCCL_NET_PLUGIN": "libx.so"}


WARNINGS = {
    "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129": "IB_WC_RETRY_EXC",
    "NET/IB : Got completion from peer 10.0.0.5<33> with error 5, opcode 0, len 0 (Recv)": (
        "IB_WC_WR_FLUSH"
    ),
    "NET/IB: Got completion from peer 10.0.0.5<3> with status=IBV_WC_RETRY_EXC_ERR(12)"
    " opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_3": "IB_WC_RETRY_EXC",
    "NET/IB : mlx5_0:1 Got async event : port error": "IB_ASYNC_EVENT",
    "NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)": "IB_ASYNC_EVENT",
    "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1": (
        "IB_MODIFY_QP_FAILED"
    ),
    "socketProgress: Connection closed by remote peer gpu-03<41234>": "SOCKET_PEER_CLOSED",
    "socketStartConnect: Connect to 10.0.0.9<41234> failed : Software caused abort": (
        "SOCKET_CONNECT_FAILED"
    ),
    "Bootstrap : no socket interface found": "SOCKET_NO_INTERFACE",
    "Call to posix_fallocate failed : No space left on device": "SHM_NO_SPACE",
    "Error: failed to extend /dev/shm/nccl-Xy to 33030532 bytes": "SHM_NO_SPACE",
    "Cuda failure 2 'out of memory'": "CUDA_FAILURE_2",
    "Cuda failure 'unspecified launch failure'": "CUDA_FAILURE",
    "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3000": "DUPLICATE_GPU",
    "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22809": (
        "VERSION_MISMATCH"
    ),
    "Something that no version printed so far": "OTHER",
}


@pytest.mark.parametrize("text", WARNINGS)
def test_a_warning_of_any_version_has_its_code(text):
    head = "\ngpu-00:4003:4073 [3] transport/net_ib.cc:1296"
    for between in ("", " (ncclIbTest)"):
        facts = facts_of(f"{head}{between} NCCL WARN {text}\n")
        assert list(facts.warnings) == [WARNINGS[text]]
        assert [p.host for p in facts.processes.values()] == ["gpu-00"]


def test_completion_errors_are_counted_by_adapter_and_status():
    text = (
        "NET/IB: Got completion from peer 10.0.0.5<3> with status=12 opcode=0 len=0 vendor err 129"
    )
    line = f"gpu-00:1:2 [0] transport/net_ib.cc:1 NCCL WARN {text} (Recv) hca mlx5_15\n"
    assert facts_of(line * 3).ib_errors == {("mlx5_15", "retry_exc"): 3}


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("NET/IB : mlx5_3:1 async fatal event on QP (0x7f): access error", {"async_fatal": 1}),
        ("NET/IB : mlx5_3:1 Got async error event: port error", {"port_error": 1}),
        ("NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)", {"port_error": 1}),
        ("NET/IB : mlx5_3:1 Got non-fatal async event: port active(9)", {}),
    ],
)
def test_events_of_an_adapter_are_counted_where_they_are_errors(text, counted):
    facts = facts_of(f"gpu-00:1:2 [0] transport/net_ib.cc:1 NCCL WARN {text}\n")
    assert facts.ib_errors == {("mlx5_3", status): n for status, n in counted.items()}
    assert set(facts.warnings) == {"IB_ASYNC_EVENT"}


def test_the_last_error_of_an_exception_is_read_even_if_it_comes_later():
    first = b"[rank7] NCCL error: remote process exited, NCCL version 2.28.9\nLast error:\n"
    then = b"NET/IB: Got completion from peer 10.0.0.5<3> with status=12 opcode=0 len=0\n"
    parser = NcclLog()
    parser.feed(first)
    parser.feed(then)
    assert "IB_WC_RETRY_EXC" in facts_of(first + then).warnings
    assert parser.facts.version == "2.28.9"
    assert parser.facts.tagged_ranks | parser.facts.watchdog.ranks == {7}


def test_chunks_of_any_size_give_the_same_facts():
    text = "".join(start(rank, 16, "NET/IB/0/GDRDMA") for rank in range(16)).encode()
    whole = verdict_of(text)
    for size in (1, 7, 100, 4096):
        framing, parser = Unframer(), NcclLog()
        for begin in range(0, len(text), size):
            parser.feed(framing.feed(text[begin : begin + size]))
        parser.sum_up()
        assert parser.facts.comm_ranks == set(range(16))
        assert len(parser.facts.members) == len(whole.communicators[0].communicator.members)


def test_records_split_over_reads_belong_to_whoever_speaks_in_each():
    text = "".join(
        info(rank, line)
        for rank in (0, 9)
        for line in (comm(rank, 16, "START"), edge(rank, rank + 1, f"NET/IB/{rank}"))
    ).encode()
    more = "".join(
        info(rank, edge(rank, rank + 2, f"NET/IB/{rank}")) for rank in (9, 9, 0, 9)
    ).encode()
    for reads in ([text + more], [text, more], (text + more).splitlines(keepends=True)):
        parser = NcclLog()
        for read in reads:
            parser.feed(b"step 1\n" + read)
        parser.sum_up()
        edges = {m.rank: sum(m.edges.counts.values()) for m in parser.facts.all_members()}
        assert edges == {0: 2, 9: 2}


def test_a_record_of_nobody_at_the_beginning_leaves_the_others_to_who_prints_them():
    nobodys = b"NCCL INFO Using network Socket\n"
    first, second = (info(rank, "Using network IB").encode() for rank in (1, 2))
    for reads in ([nobodys + first, second], [nobodys, first, second]):
        parser = NcclLog()
        for read in reads:
            parser.feed(read)
        networks = {key: process.network for key, process in parser.facts.processes.items()}
        assert networks == {("", 0): "Socket", ("gpu-00", 4001): "IB", ("gpu-00", 4002): "IB"}


def test_threads_that_take_turns_are_told_apart_however_many_and_long_their_names_are():
    hosts = ["n", "gpu-n", "x-gpu-n", "rack-7-gpu-n", "a-very-long-name-of-a-node", "b"]
    everyone = [(host, pid) for host in hosts for pid in (1, 22, 333, 4444, *range(9000, 9060))]
    assert len(everyone) > MAX_PREFIXES
    parser = NcclLog()
    for turn in (1, 2):
        for number, (host, pid) in enumerate(everyone):
            line = info(0, edge(number, number + turn, "NET/IB/0"), host=host, pid=pid)
            parser.feed(f"step 7\n{line}".encode())
    parser.sum_up()
    found = {
        key: [owner for edges in several for owner in edges.owners]
        for key, several in parser.facts.loose_edges.items()
    }
    assert found == {key: [number] for number, key in enumerate(everyone)}


def test_a_connection_with_an_impossible_rank_is_counted_as_unread():
    facts = facts_of(info(0, edge(0, 99_999_999, "NET/IB/0")))
    assert facts.unparsed == 1
    assert not any(e.counts for several in facts.loose_edges.values() for e in several)


def test_a_log_that_claims_ten_million_ranks_costs_no_more_than_its_lines():
    facts = facts_of(info(0, f"comm 0x7f rank 0 nranks 10000000 commId {COMM_ID} - Init START"))
    assert not facts.members
    assert facts.unparsed == 1


def test_what_is_beyond_the_limits_is_counted_and_left_out():
    parser = NcclLog(Limits(members=5, threads=5, edges=50, warning_codes=2))
    for rank in range(100):
        parser.feed(start(rank, 100, "NET/IB/0").encode())
        parser.feed(f"a:1:1 [0] x NCCL WARN Cuda failure {rank} 'x'\n".encode())
    parser.sum_up()
    assert len(parser.facts.members) <= 5
    assert len(parser.facts.processes) <= 6
    assert len(parser.facts.warnings) == 2
    assert parser.facts.beyond_limits > 0


def test_lazy_connections_of_other_threads_go_to_the_only_communicator_that_fits():
    text = start(3, 16, "P2P/IPC")
    lazy = info(3, edge(3, 11, "NET/IB/0/GDRDMA")).replace("4073", "4999")
    (judged,) = verdict_of(text + lazy).communicators
    assert judged.network.transports == ("NET/IB",)


def test_a_pointer_that_is_used_again_is_another_communicator():
    first = info(0, comm(0, 2, "COMPLETE"))
    again = info(0, comm(0, 2, "COMPLETE", comm_id="0x77"))
    assert len(verdict_of(first + again).communicators) == 2


def test_a_long_line_of_many_records_keeps_only_the_text_next_to_each():
    parser = NcclLog()
    piece = b"x" * 5000 + b"NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC" + b"y" * 500
    parser.feed(piece * 200 + b"\n")
    assert len(parser.facts.processes) == 1
    assert max(map(len, parser._writers.threads), default=0) <= 1024


def test_lines_whose_heads_end_alike_are_those_of_different_processes():
    text = "gpu-0:1:2 [0] NCCL INFO " + edge(0, 1, "NET/IB/0") + "\n"
    text += "".join(f"{mark}{text}" for mark in ("x", "y ", "x"))
    hosts = {host for host, _ in facts_of(text).processes}
    assert hosts == {"gpu-0", "xgpu-0"}


def test_connections_printed_again_after_they_were_counted_count_once():
    parser = NcclLog()
    for channel in range(4):
        parser.feed(start(0, 2, "NET/IB/0").encode())
        parser.feed(info(0, edge(0, 1, "NET/IB/1", channel)).encode())
        parser.feed(info(0, f"CollNet {channel:02d}/0 : 0 [send] via COLLNET/SHARP/0").encode())
        parser.sum_up()
    counts = judge(parser.facts).connections
    assert {t.name: count for t, count in counts.items()} == {"NET/IB": 1, "COLLNET/SHARP": 1}


def test_a_start_that_never_ended_is_over_once_another_process_starts_in_its_place():
    hung = "".join(info(rank, comm(rank, 2, "START", "0x1")) for rank in (0, 1))
    assert verdict_of(hung).communicators[0].communicator.stuck_ranks == (0, 1)
    again = "".join(
        info(rank, comm(rank, 2, event, "0x2"), pid=9000 + rank)
        for rank in (0, 1)
        for event in ("START", "COMPLETE")
    )
    (only,) = verdict_of(hung + again).communicators
    assert (only.communicator.name, only.communicator.stuck_ranks) == ("0x2", ())


def test_two_processes_that_start_as_the_same_rank_at_a_time_are_both_kept():
    text = info(0, comm(0, 2, "START")) + info(0, comm(0, 2, "START"), pid=9000)
    (only,) = verdict_of(text).communicators
    assert len(only.communicator.members) == 2


def test_repeated_starts_and_unreadable_heads_take_no_more_room():
    parser = NcclLog(Limits(threads=10))
    events = info(0, comm(0, 2, "START")) + info(0, edge(0, 1, "P2P/IPC"))
    events += info(0, comm(0, 2, "COMPLETE")) + info(0, edge(1, 0, "P2P/IPC"))
    for number in range(500):
        parser.feed(f"{events}{number} NCCL INFO Using network IB\n".encode())
    assert sum(map(len, parser.facts.loose_edges.values())) <= 20


def test_settings_of_all_processes_together_have_a_limit():
    parser = NcclLog(Limits(settings=20))
    for rank in range(9):
        for number in range(9):
            parser.feed(info(rank, f"NCCL_X{number} set by environment to 1.").encode())
    facts = parser.facts
    assert sum(len(p.environment) for p in facts.processes.values()) == facts.settings == 20
    assert facts.beyond_limits == 61


@pytest.mark.parametrize(("peers", "counted"), [(4000, 4000), (5000, 5904)])
def test_connections_of_a_member_are_told_apart_up_to_a_bound(peers, counted):
    log = NcclLog()
    lines = "".join(info(0, edge(0, peer, "NET/IB/0")) for peer in range(1, peers + 1))
    for _ in range(2):  # as when the same connections are printed again after a summary
        log.feed(lines.encode())
        log.sum_up()
    assert sum(judge(log.facts).connections.values()) == counted
