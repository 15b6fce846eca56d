"""What is remembered of a pod's logs: over restarts of its containers, and never too much."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

from nccl_job_text import comm, edge, info, start
from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.sources.nccl_log import follower as following
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.memory import estimated_bytes
from rankscope_agent.sources.nccl_log.pod import POD_LIMITS, PodLogs
from rankscope_agent.sources.pods.log_directories import PodIdentity

MAX_POD_BYTES = 4 << 20

OWNER = PodIdentity("team", "train-0", "uid-1")
NOW = 1_795_000_000.0
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE,"
    " Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n"
)
WARNING = "\ngpu-00:4000:4070 [0] init.cc:9 NCCL WARN Cuda failure 2 'out of memory'\n"


def hostile(first: int, count: int) -> bytes:
    """Return lines of which each asks for as much room as it can."""
    lines = []
    for number in range(first, first + count):
        setting = f"NCCL_{number:060d} set by environment to {'x' * 200}"
        member = comm(number % 1000, 4000, "START", hex(number + 1))
        connection = edge(number % 1000, number % 3999, f"NET/IB{number % 31}/0")
        texts = (setting, member.replace("0x55", f"0x77{number:05x}"), connection)
        who = {"pid": 100 + number, "host": "h" * 200}
        lines.extend(info(number % 8, text, **who) for text in texts)
    return "".join(lines).encode()


def test_an_attempt_that_is_over_leaves_its_counts_and_nothing_else():
    pod = PodLogs(OWNER, Facts())
    pod.feed((info(0, comm(0, 2, "START")) + WARNING + TIMEOUT).encode(), NOW, fresh=True)
    assert pod.verdict(NOW).communicators[0].communicator.stuck_ranks == (0,)
    pod.begin_anew()
    assert pod.verdict(NOW).communicators == ()
    assert pod.facts.warnings["CUDA_FAILURE_2"].count == 1
    assert pod.facts.watchdog.earlier == {"ALLREDUCE": 1}
    pod.feed(TIMEOUT.encode(), NOW, fresh=True)
    pod.begin_anew()
    assert pod.facts.watchdog.earlier == {"ALLREDUCE": 2}


def test_what_is_remembered_weighs_at_most_what_it_is_said_to():
    text = hostile(0, 1000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        parser = NcclLog(POD_LIMITS)
        parser.feed(text)
        parser.sum_up()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    weight = estimated_bytes(parser.facts, parser.threads)
    assert after - before <= weight <= 3 * (after - before)


def test_a_pod_that_asks_for_more_than_its_room_is_given_none_and_still_counted():
    pod = PodLogs(OWNER, Facts())
    now = NOW
    weights = []
    for turn in range(8):
        now += 10
        pod.feed(hostile(1000 * turn, 1000), now, fresh=True)
        pod.verdict(now)
        weights.append(pod.weight)
    assert pod.full
    full_at = next(n for n, weight in enumerate(weights) if weight > MAX_POD_BYTES)
    assert weights[-1] <= 1.05 * weights[full_at]
    assert pod.facts.beyond_limits >= 1000
    pod.feed(start(0, 2, "NET/IB/0").encode(), now, fresh=True)
    assert pod.verdict(now).nranks == 4000


class Node:
    """Pods' logs below a directory, and a follower that is restarted at will."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.follower = self.started(None)

    def started(self, state: str | None) -> NcclFollower:
        made = NcclFollower(self.root, (), lambda: 0.0, budget_seconds=1.0)
        if state is not None:
            made.restore(json.loads(state))
        return made

    def write(self, name: str, text: str, container: str = "0.log") -> None:
        log = self.root / f"team_{name}_uid-{name}" / "main" / container
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as sink:
            sink.write(text)

    def read(self, now: float = NOW) -> dict[str, PodLogs]:
        self.follower.rescan(now)
        self.follower.read(now)
        jobs = {job.owner.name: job for job in self.follower.jobs()}
        for job in jobs.values():
            job.verdict(now)
        return jobs


HUNG = "".join(info(rank, comm(rank, 2, "START", "0x1")) for rank in (0, 1))


def test_a_container_that_starts_again_is_read_to_its_end_and_judged_anew(tmp_path):
    node = Node(tmp_path)
    node.write("train", HUNG)
    assert node.read()["train"].verdict(NOW).communicators[0].communicator.stuck_ranks == (0, 1)
    node.write("train", WARNING)
    node.write("train", start(0, 2, "NET/IB/0"), "1.log")
    job = node.read(NOW + 10)["train"]
    (only,) = job.verdict(NOW + 10).communicators
    assert only.communicator.stuck_ranks == ()
    assert job.facts.warnings["CUDA_FAILURE_2"].count == 1


def test_a_container_that_starts_again_while_no_agent_runs_is_judged_anew(tmp_path):
    node = Node(tmp_path)
    node.write("train", HUNG)
    node.read()
    state = json.dumps(node.follower.state())
    node.write("train", WARNING)
    node.write("train", start(0, 2, "NET/IB/0"), "1.log")
    node.follower = node.started(state)
    node.read(NOW + 10)  # its former log to the end
    job = node.read(NOW + 20)["train"]
    (only,) = job.verdict(NOW + 20).communicators
    assert only.communicator.stuck_ranks == ()
    assert job.facts.warnings["CUDA_FAILURE_2"].count == 1


def test_a_log_that_is_gone_when_an_agent_starts_keeps_the_next_one_from_nothing(tmp_path):
    node = Node(tmp_path)
    node.write("train", HUNG)
    node.read()
    state = json.dumps(node.follower.state())
    (tmp_path / "team_train_uid-train" / "main" / "0.log").unlink()
    node.write("train", start(0, 2, "NET/IB/0"), "1.log")
    node.follower = node.started(state)
    node.read(NOW + 10)
    (only,) = node.read(NOW + 20)["train"].verdict(NOW + 20).communicators
    assert only.communicator.stuck_ranks == ()


def test_a_container_without_nccl_that_starts_again_changes_nothing(tmp_path):
    node = Node(tmp_path)
    node.write("train", HUNG)
    side = tmp_path / "team_train_uid-train" / "sidecar"
    side.mkdir()
    (side / "0.log").write_text("hello\n")
    node.read()
    (side / "1.log").write_text("hello again\n")
    job = node.read(NOW + 10)["train"]
    assert job.verdict(NOW + 10).communicators[0].communicator.stuck_ranks == (0, 1)


def test_of_logs_that_are_no_longer_read_no_tail_is_kept(tmp_path, monkeypatch):
    node = Node(tmp_path)
    for restart in range(20):
        node.write("train", WARNING, f"{restart}.log")
        job = node.read(NOW + 10 * restart)["train"]
        assert list(job.failures._logs) == [f"main/{restart}.log"]
    (tmp_path / "team_train_uid-train" / "main" / "19.log").unlink()
    (tmp_path / "team_train_uid-train" / "main" / "18.log").unlink()
    node.read(NOW + 200)
    assert list(job.failures._logs) == ["main/17.log"]


def test_all_pods_together_have_a_bound_too(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "MAX_BYTES", 100_000)
    node = Node(tmp_path)
    node.write("small", start(0, 2, "NET/IB/0"))
    node.write("large", hostile(0, 100).decode())
    node.read()
    jobs = node.read(NOW + 10)
    assert (jobs["large"].full, jobs["small"].full) == (True, False)
