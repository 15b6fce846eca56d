"""How much of an NCCL log is remembered and looked at: at each limit and just beyond it."""

from __future__ import annotations

import pytest

from nccl_job_text import comm, edge
from rankscope_agent.contract.nccl import channels, job_size, lines, warnings
from rankscope_agent.contract.nccl.communicators import communicators
from rankscope_agent.contract.nccl.early_lines import early_communicator
from rankscope_agent.contract.nccl.facts import Edges, Facts, Limits, Process
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.watchdog import WatchdogFacts
from rankscope_agent.contract.nccl.writers import Thread, Writers
from rankscope_agent.sources.nccl_log.series import NETWORKS


def fed(*texts):
    log = NcclLog()
    for text in texts:
        log.feed(text)
    return log


def info(words, host="a", pid=7):
    return f"{host}:{pid}:{pid} [0] NCCL INFO {words}\n".encode()


@pytest.mark.parametrize(("known", "kept"), [(131_071, True), (131_072, False)])
def test_131_072_threads_and_processes_are_told_apart(known, kept):
    facts = Facts()
    writers = Writers(facts, Limits())
    writers.threads = dict.fromkeys(range(known), Thread(Process("", 0), Edges()))
    writers.thread(b"a:7:7 [0] ", torn=False)
    assert (b"a:7:7 [0] " in writers.threads) == kept
    assert facts.beyond_limits == (0 if kept else 1)


@pytest.mark.parametrize(("known", "kept"), [(131_071, True), (131_072, False)])
def test_131_072_ranks_are_remembered(known, kept):
    facts = Facts()
    facts.tagged_ranks = set(range(known))
    Writers(facts, Limits()).tag(1 << 19)
    assert (1 << 19 in facts.tagged_ranks) == kept


@pytest.mark.parametrize(("known", "beyond"), [(255, 0), (256, 1)])
def test_256_kinds_of_warnings_are_counted(known, beyond):
    facts = Facts()
    facts.warnings = dict.fromkeys(map(str, range(known)))
    facts.warn("one more", "text", Limits())
    assert facts.beyond_limits == beyond


@pytest.mark.parametrize(("known", "beyond"), [(999_999, 0), (1_000_000, 1)])
def test_a_million_settings_are_kept(known, beyond):
    log = NcclLog()
    log.facts.settings = known
    log.feed(info("NCCL_DEBUG set by environment to INFO"))
    assert log.facts.beyond_limits == beyond


@pytest.mark.parametrize(("edges", "left"), [(399_999, 400_000), (400_000, 0)])
def test_400_000_connections_wait_to_be_summed_up(edges, left):
    log = NcclLog()
    log._new_edges = edges
    log.feed(info("Channel 00/02 : 0[0] -> 1[1] via P2P/IPC"))
    assert log._new_edges == left


def test_eight_numbers_of_channels_are_kept_of_a_process():
    facts, thread = Facts(), Thread(Process("a", 7), Edges())
    for count in range(9):
        channels._keep_loose(facts, Limits(), thread, count)
    assert facts.loose_channels["a", 7] == set(range(8))


def test_32_transports_of_a_member_are_distinguished():
    edges = Edges()
    for number in range(33):
        edges.distinct.add(f"0[0] -> 1[0] [send] via NET/X{number}/0".encode())
    lines.sum_up(edges)
    assert len(edges.pairs) == 32


@pytest.mark.parametrize(("before", "size"), [(4095, 8), (4096, 0)])
def test_4096_lines_of_early_communicators_are_looked_at(before, size):
    # Ranks beyond their communicator's size count as lines and say nothing.
    text = info("rank 3 nranks 2") * before + info("rank 3 nranks 8")
    assert early_communicator(text).size == size


@pytest.mark.parametrize(("hosts", "one"), [("aa", True), ("ab", False)])
def test_hosts_of_early_communicators_have_255_characters(hosts, one):
    named = [host + "h" * 254 for host in hosts]
    text = b"".join(info(f"rank {rank} nranks 2", host) for rank, host in enumerate(named))
    assert early_communicator(text).one_host == one


@pytest.mark.parametrize(("size", "found"), [(1 << 20, 1 << 20), ((1 << 20) + 1, 0)])
def test_communicators_have_2_to_the_20_ranks(size, found):
    assert early_communicator(info(f"rank 3 nranks {size}")).size == found


@pytest.mark.parametrize(("before", "size"), [((256 << 10) - 14, 16), (256 << 10, 0)])
def test_the_first_256_kib_tell_how_large_a_job_is(before, size):
    assert fed(b"\n" * before, b"world_size=16\n").facts.world_size == size


@pytest.mark.parametrize(("contexts", "warned"), [(99_999, True), (100_000, False)])
def test_the_surroundings_of_100_000_exceptions_are_looked_at(contexts, warned):
    log = NcclLog()
    log._contexts = contexts
    log._read_around(b"Last error:\nout of memory\n", 0)
    assert bool(log.facts.warnings) == warned


@pytest.mark.parametrize(("before", "warned"), [(4000, True), (4096, False)])
def test_4096_bytes_after_an_exception_are_looked_at(before, warned):
    log = NcclLog()
    log._read_around(b"." * before + b"\nLast error:\nout of memory\n", 0)
    assert bool(log.facts.warnings) == warned


@pytest.mark.parametrize("length", [39, 40])
def test_40_characters_of_the_name_of_an_adapter_are_kept(length):
    text = f"Got completion from peer x with status=12 opcode=0 len=0 vendor err 129 hca {'m' * 50}"
    assert len(warnings.classify(text.replace("m" * 50, "m" * length)).device) == length
    assert len(warnings.classify(text).device) == 40


def test_16_engines_are_looked_at():
    assert len(list(job_size._engines(b"LLM engine with tensor_parallel_size=2\n" * 17))) == 16


@pytest.mark.parametrize(
    ("read", "most", "more"),
    [(lines.parse_transport, 1024, (b"[send]",)), (lines._parse_rest, 256, ())],
    ids=["transports", "ends"],
)
def test_the_meanings_of_1024_transports_and_of_256_ends_are_remembered(read, most, more):
    read.cache_clear()
    for number in range(most):
        read(b"%d" % number, *more)
    read(b"0", *more)
    assert read.cache_info().hits == 1
    read(b"another", *more)
    read(b"1", *more)
    assert read.cache_info().hits == 1, "the one that was read the longest ago has made room"
    read.cache_clear()


def test_40_characters_of_the_name_of_an_operation_are_kept():
    dog = WatchdogFacts()
    dog.read(
        b"[rank3]:[E1121 02:14:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective"
        b" operation timeout: WorkNCCL(SeqNum=2, OpType=" + b"A" * 41 + b", NumelIn=4, NumelOut=4,"
        b" Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
    )
    assert [operation for *_, operation in dog.timeouts] == ["A" * 40]


def test_65_536_ranks_of_timeouts_are_remembered():
    for known, kept in ((65_535, 65_536), (65_536, 65_536)):
        dog = WatchdogFacts(ranks=set(range(1, known + 1)))
        dog.read(b"[rank0]: nothing else")
        assert len(dog.ranks) == kept


@pytest.mark.parametrize(("pairs", "kept"), [(4096, 4096), (4097, 4096)])
def test_4096_connections_over_a_transport_are_remembered(pairs, kept):
    edges = Edges()
    for number in range(pairs):
        edges.distinct.add(f"{number}[0] -> {number + 1}[0] [send] via NET/IB/0".encode())
    lines.sum_up(edges)
    assert [len(known) for known in edges.pairs.values()] == [kept]
    assert sum(edges.counts.values()) == pairs


def test_256_beginnings_of_lines_of_four_lengths_are_remembered():
    writers, thread = Writers(Facts(), Limits()), Thread(Process("", 0), Edges())
    for number in range(256):
        writers._remember(b"%0*d" % (3 + number % 4, number), thread)
    assert len(writers._prefixes) == 256
    writers._remember(b"of another length", thread)
    assert len(writers._prefixes) == 256
    writers._remember(b"256", thread)
    assert len(writers._prefixes) == 1


def test_networks_of_the_plugins_fourth_to_twelfth_interfaces_are_known():
    known = [f"IBext_v{version}" for version in range(30) if f"IBext_v{version}" in NETWORKS]
    assert known == [f"IBext_v{version}" for version in range(4, 13)]


# From infiniband/verbs.h; NCCL prints these numbers.
COMPLETIONS = {
    1: "LOC_LEN",
    2: "LOC_QP_OP",
    3: "OTHER",
    4: "LOC_PROT_OR_ACCESS",
    5: "WR_FLUSH",
    6: "OTHER",
    7: "OTHER",
    8: "LOC_PROT_OR_ACCESS",
    9: "REM_INV_REQ",
    10: "REM_ACCESS",
    11: "REM_OP",
    12: "RETRY_EXC",
    13: "RNR_RETRY_EXC",
    14: "OTHER",
    21: "GENERAL",
    22: "OTHER",
}


@pytest.mark.parametrize(("status", "name"), COMPLETIONS.items())
def test_work_completions_have_the_names_of_verbs(status, name):
    found = warnings.classify(f"NET/IB : Got completion with error {status}, opcode 1, len 0")
    assert found.code == f"IB_WC_{name}"


class Rank(int):
    """Counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        Rank.compared += 1
        return int(self) < other


def test_connections_are_compared_with_two_of_a_ranks_communicators():
    log = NcclLog()
    for number in range(300):
        size = 300 - number
        text = comm(0, size, "COMPLETE", hex(number + 1)).replace("0x55", f"0x77{number:04x}")
        log.feed(info(text))
        log.feed(f"a:7:{100 + number} [0] NCCL INFO {edge(0, 1, 'NET/IB/0')}\n".encode())
    log.sum_up()
    for edges in log.facts.loose_edges["a", 7]:
        edges.highest_rank = Rank(edges.highest_rank)
    communicators(log.facts)
    assert 0 < Rank.compared <= 600
