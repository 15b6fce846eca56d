"""The collector of RAS's reports, against servers that keep to the protocol and that do not."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.metrics import nccl_ras as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_ras.client import RasError
from rankscope_agent.sources.nccl_ras.collector import NcclRasCollector
from ras_server import RasServer, closed_port, communicator, json_report, rank_entry

MAX_REPLY_BYTES = 2 << 20

LATE = json_report(
    communicator(4, [rank_entry(rank, AllReduce=9 - 5 * (rank == 3)) for rank in range(4)], [])
)
TEXT = (
    "NCCL version 2.24.3 compiled with CUDA 12.6\n\nCommunicators... (0.00s)\n=============\n\n"
    "    0         1         4         8        32        32   RUNNING      OK\n"
)


class Clock:
    """Unix time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now


def collector(port, clock=None, seconds=5.0):
    address = ListenAddress("127.0.0.1", port)
    return NcclRasCollector(address, 60.0, seconds, clock or Clock())


def page(asking):
    return {(sample.metric, *sample.labels): sample.value for sample in asking.collect()}


def test_what_ras_reports_is_exported():
    with RasServer(LATE) as server:
        found = page(collector(server.port))
    assert found[metrics.RAS_INFO, "2.28.9"] == 1
    assert found[metrics.RAS_RANKS,] == 4
    assert found[metrics.RAS_LAG, "AllReduce"] == 5
    assert (found[metrics.RAS_LAGGING_RANK,], found[metrics.RAS_LAGGING_RANKS,]) == (3, 1)
    assert found[metrics.RAS_LAST_QUERY,] == Clock().now


def test_a_rank_of_a_small_group_is_not_given_for_one_of_the_job():
    everybody = communicator(4, [rank_entry(rank, AllReduce=9) for rank in range(4)], [])
    pair = communicator(2, [rank_entry(rank, AllGather=50 - 5 * rank) for rank in range(2)], [])
    with RasServer(json_report(everybody, pair)) as server:
        found = page(collector(server.port))
    assert found[metrics.RAS_LAG, "AllGather"] == 5
    assert not {(metrics.RAS_LAGGING_RANK,), (metrics.RAS_LAGGING_RANKS,)} & found.keys()


def test_an_nccl_without_json_reports_in_text():
    with RasServer(None, TEXT) as server:
        found = page(collector(server.port))
    assert found[metrics.RAS_INFO, "2.24.3"] == 1
    assert found[metrics.RAS_RANKS,] == 32
    assert (metrics.RAS_FAILED_RANKS,) not in found, "the text does not count them"


def test_a_question_is_asked_once_in_an_interval():
    clock = Clock()
    with RasServer(LATE) as server:
        asking = collector(server.port, clock)
        for _ in range(59):
            page(asking)
            clock.now += 1
        assert server.questions.count("VERBOSE STATUS") == 1
        clock.now += 1
        page(asking)
        assert server.questions.count("VERBOSE STATUS") == 2


def test_a_report_that_is_too_long_is_asked_for_in_short_next_time():
    clock = Clock()
    with RasServer("{" + " " * MAX_REPLY_BYTES, TEXT) as server:
        asking = collector(server.port, clock)
        with pytest.raises(RasError, match="more than"):
            page(asking)
        clock.now += 60
        assert page(asking)[metrics.RAS_RANKS,] == 32
        assert server.questions[-1] == "STATUS"


def test_a_server_that_does_not_end_costs_the_time_given_and_no_values():
    late = pytest.raises(RasError, match=r"does not report within 0\.2 s")
    with RasServer(LATE, hang_up=False) as server, late:
        page(collector(server.port, seconds=0.2))


@pytest.mark.parametrize("hello", ["HTTP/1.1 400 Bad Request", "", "\0\1\2", "SERVER PROTOCO"])
def test_whatever_else_listens_there_is_not_believed(hello):
    with RasServer(LATE, hello=hello) as server, pytest.raises(RasError, match="unlike RAS"):
        page(collector(server.port))


@pytest.mark.parametrize("report", ["", "{", '{"communicators": 7}', "\udcff\udcfe\0", "{" * 5000])
def test_a_report_that_cannot_be_read_gives_no_values(report):
    with RasServer(report) as server, pytest.raises(RasError, match=r"127\.0\.0\.1:"):
        page(collector(server.port))


def test_a_port_without_a_listener_is_an_absent_source():
    with closed_port() as port, pytest.raises(NoData, match="no RAS on"):
        page(collector(port))


def test_an_answer_that_failed_is_not_asked_for_again_before_its_time():
    with RasServer("{") as server:
        asking = collector(server.port)
        for _ in range(5):
            with pytest.raises(RasError):
                page(asking)
        assert server.questions.count("VERBOSE STATUS") == 1


def test_ras_is_asked_only_if_told_to():
    off = NcclRasCollector(None, 60.0, 5.0, Clock())
    with pytest.raises(NoData, match=r"--nccl\.ras-address"):
        page(off)
