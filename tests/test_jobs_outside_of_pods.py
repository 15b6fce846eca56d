"""Jobs outside of pods, one after another on a node on which the logs of earlier ones stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from failed_jobs import agent_end, lost, traceback
from nccl_job_text import comm, edge, info, start
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.contract.metrics.job_logs import JOB_LOG_FAILURE
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.pod import MAX_POD_BYTES
from rankscope_agent.sources.pods.cgroups import Placement
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.process_scan import RankProcess
from rankscope_agent.sources.pods.processes import ProcessIdentity

NOW = 1_795_000_000.0
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WARNING = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"
TCP = start(3, 16, "NET/Socket/0", network="Socket")
RDMA = start(3, 16, "NET/IB/0/GDRDMA").replace(":4003:4073", ":5003:5073")


class Node:
    """A node without pods on which jobs write their logs into one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = NOW
        self.directory = PodDirectory()
        self.collector = self.start()

    def start(self) -> NcclLogCollector:
        patterns = (self.root / "job-*.out",)
        follower = NcclFollower(
            self.root / "pods", patterns, lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0
        )
        state = self.root / "state.json"
        return NcclLogCollector(
            follower, self.root / "sys", state, lambda: self.now, self.directory
        )

    def write(self, job: int, text: str) -> None:
        path = self.root / f"job-{job}.out"
        with path.open("a") as sink:
            sink.write(text)
        os.utime(path, (self.now, self.now))

    def run(self, job: str, began: float | None, *ranks: int) -> None:
        """Let these ranks be the only ones on the node."""
        identities = (
            ProcessIdentity(rank, rank % 8, 8, 16, 0, "torchrun", job, {}) for rank in ranks
        )
        nowhere = Placement("", "")
        self.directory.publish(
            PlacementView(
                processes=tuple(RankProcess(one, nowhere, {}, (), 7, began) for one in identities)
            )
        )

    def page(self, seconds: float = 20.0) -> dict[tuple[object, tuple[str, ...]], object]:
        self.now += seconds
        samples = list(self.collector.collect())
        return {(sample.metric, sample.labels): sample.value for sample in samples}

    def networks(self) -> dict[str, object]:
        """Return the state of the fallback by reason, and how many ranks began."""
        series = self.page()
        found = {
            labels[2]: value
            for (metric, labels), value in series.items()
            if metric is metrics.NCCL_SOCKET_FALLBACK
        }
        return {**found, "ranks": series.get((metrics.NCCL_RANKS_EXPECTED, ("", "")))}

    def failures(self) -> list[tuple[str, ...]]:
        self.page()
        return [labels for metric, labels in self.page() if metric is JOB_LOG_FAILURE]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_job_is_judged_without_the_logs_of_an_earlier_one_that_stay(node):
    node.run("lab/first", node.now, 3)
    node.write(1, TCP + WARNING)
    assert node.networks() == {"expected": 1, "ranks": 1}
    began = node.now + 20
    node.now += 30
    node.write(2, RDMA)  # the agent reads this before it sees the process
    node.page()
    node.run("lab/second", began, 3)
    assert node.networks() == {"other_network": 0, "ranks": 1}
    assert node.page()[metrics.NCCL_WARNINGS, ("", "", "CUDA_FAILURE")] == 1


def test_a_job_that_goes_on_in_the_log_of_an_earlier_one_is_judged_alone(node):
    node.run("lab/first", node.now, 3)
    node.write(1, TCP)
    node.page()
    node.run("lab/second", node.now + 10, 3)
    node.now += 20
    node.write(1, RDMA)
    assert node.networks() == {"other_network": 0, "ranks": 1}


def test_an_agent_that_starts_later_leaves_out_logs_from_before_the_job(node):
    node.write(1, TCP)
    node.now += 3600
    began = node.now
    node.write(2, RDMA)
    node.page()
    node.run("lab/second", began, 3)
    assert node.networks() == {"other_network": 0, "ranks": 1}


def test_an_agent_that_is_restarted_between_two_jobs_judges_the_second_one_alone(node):
    node.run("lab/first", node.now, 3)
    node.write(1, TCP)
    node.page()
    node.collector = node.start()
    node.run("lab/second", node.now + 10, 3)
    node.now += 20
    node.write(2, RDMA)
    assert node.networks() == {"other_network": 0, "ranks": 1}


IB_ERROR = (
    "gpu-00:4003:4073 [3] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer"
    " 10.2.0.5<44567> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n"
)
ERROR = (metrics.NCCL_WARNINGS, ("", "", "IB_WC_RETRY_EXC"))
FAILURE = (metrics.NCCL_WARNINGS, ("", "", "CUDA_FAILURE"))
WARNED = (metrics.NCCL_LAST_WARNING, ("", ""))


def test_what_an_earlier_job_logged_has_its_time_also_for_an_agent_that_starts_later(node):
    logged = node.now
    node.write(1, IB_ERROR)
    node.now += 3600
    node.run("lab/second", node.now, 3)
    node.write(2, RDMA)
    series = node.page()
    assert series[WARNED] == logged
    assert series[metrics.NCCL_LAST_LINE, ("", "")] == node.now - 20


def test_a_warning_of_a_job_gives_its_time_to_no_error_of_an_earlier_one(node):
    """The earlier job's errors on an adapter became the verdict on the next job."""
    node.run("lab/first", node.now, 3)
    node.write(1, IB_ERROR)
    node.page()
    began = node.now + 10
    node.run("lab/second", began, 3)
    node.now += 20
    node.write(2, RDMA)
    assert node.page()[ERROR] == 1  # of the earlier job, by the time of the newest warning
    node.collector = node.start()
    node.run("lab/second", began, 3)
    node.write(2, WARNING)
    series = node.page()
    assert (series.get(ERROR), series[FAILURE]) == (None, 1)
    node.write(2, IB_ERROR)
    assert node.page()[ERROR] == 1


def test_a_job_keeps_what_its_processes_logged_while_it_runs(node):
    node.run("lab/first", node.now, 3)
    for _ in range(3):
        node.write(1, info(3, comm(3, 16, "START")) + info(3, edge(3, 4, "NET/IB/0")))
        assert node.networks()["ranks"] == 1
    node.collector = node.start()
    assert node.networks()["ranks"] == 1
    node.run("lab/first", None, 3)  # the kernel does not say when
    assert node.networks()["ranks"] == 1


def test_logs_of_many_jobs_that_stay_leave_room_for_the_newest(node):
    for job in range(4):
        node.run("lab/llm", node.now + 1, *range(8))
        node.now += 10
        node.write(job, flood(job))
        series = node.page()
        assert series[metrics.NCCL_RANKS_EXPECTED, ("", "")] == MEMBERS
    assert series[metrics.NCCL_UNPARSED, ("", "")] == 0


MEMBERS = 1200
"""Two jobs with as many do not fit into the room of one pod (`MAX_POD_BYTES`)."""


def flood(job: int) -> str:
    assert 2 * MEMBERS * 1800 > MAX_POD_BYTES
    ids = (hex((job << 16) + n) for n in range(MEMBERS))
    texts = (comm(3, 16, "START", one).replace("0x55", f"{one}a") for one in ids)
    return "".join(info(3, text, pid=10_000 + job) for text in texts)


def test_an_error_that_an_earlier_job_survived_is_not_of_the_next_ones_failure(node):
    node.run("lab/first", node.now, 2, 5)
    node.write(1, traceback(5, OOM))  # nothing says that it ended the rank
    assert node.failures() == []
    node.run("lab/second", node.now + 10, 2, 5)
    node.now += 20
    node.write(2, lost(2) + agent_end(2, 1))
    assert node.failures() == [("lab/second", causes.UNKNOWN, "", "false")]


def test_an_agent_that_starts_later_names_no_rank_that_failed_in_an_earlier_job(node):
    node.write(1, traceback(5, OOM) + agent_end(5, 1))
    node.now += 3600
    began = node.now
    node.write(2, lost(2) + agent_end(2, 1))
    node.page(1.0)
    node.run("lab/second", began, 2, 5)
    assert node.failures() == [("lab/second", causes.UNKNOWN, "", "false")]


def test_a_failure_that_is_confirmed_once_the_next_job_runs_is_of_the_earlier_job(node):
    node.run("lab/first", node.now, 2, 5)
    node.page()
    node.write(1, traceback(5, OOM) + agent_end(5, 1))
    node.page(1.0)
    node.run("lab/second", node.now + 1, 2, 5)
    assert node.failures() == [("lab/first", causes.GPU_OOM, "5", "true")]
