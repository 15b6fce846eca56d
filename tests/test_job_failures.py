"""Failures in the logs of running pods: which rank was first, why, and what was survived."""

from __future__ import annotations

from pathlib import Path

import pytest

from failed_jobs import agent_end, lost, table, traceback
from pod_json import uid
from pod_states import BEGIN, at, ended, with_state, worker
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics.job_logs import JOB_LOG_FAILURE
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.failures import pieces
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.nccl_log.job_failures import JobFailures
from rankscope_agent.sources.pods.cgroups import Placement
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.process_scan import RankProcess
from rankscope_agent.sources.pods.processes import ProcessIdentity
from rankscope_agent.sources.pods.records import parse_pod

RESCAN_SECONDS = 5.0
QUIET_SECONDS = 5.0
ROOM_BYTES = 1 << 20
STALLED_SECONDS = 120.0
KEPT_SECONDS = 3600.0
JOB = "ml/llm"
VALUE_ERROR = "ValueError: sample 17 is damaged"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
STEP = "{{'loss': 0.25, 'learning_rate': 0.001, 'epoch': {0}}}\n"


class Node:
    """A node with pods of one job, their logs and the collector that reads these."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = BEGIN + 3000.0
        self.directory = PodDirectory()
        self.put(worker(0, number=1), worker(1, number=2))
        (root / "pods").mkdir(exist_ok=True)
        self.collector = self.start()

    def start(self) -> NcclLogCollector:
        outside = (self.root / "outside.log",)
        follower = NcclFollower(
            self.root / "pods", outside, lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0
        )
        state = self.root / "state.json"
        return NcclLogCollector(
            follower, self.root / "sys", state, lambda: self.now, self.directory
        )

    def put(self, *pods: dict[str, object]) -> None:
        for data in pods:
            self.directory.put(parse_pod(data), self.now)

    def log(self, index: int = 0, restarts: int = 0) -> Path:
        pod = f"ml_llm-worker-{index}_{uid(index + 1)}"
        return self.root / "pods" / pod / "main" / f"{restarts}.log"

    def write(self, text: str, index: int = 0, restarts: int = 0, second: int = 40) -> None:
        path = self.log(index, restarts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as sink:
            for line in text.splitlines():
                stamp = at(2940 + second).replace("Z", ".500000000Z")
                sink.write(f"{stamp} stderr F {line}\n")

    def wait(self, seconds: float = 1.0) -> dict[tuple[str, ...], float]:
        """Let time go by and return the failures on the page."""
        self.now += seconds
        found = [s for s in self.collector.collect() if s.metric is JOB_LOG_FAILURE]
        assert len({sample.labels for sample in found}) == len(found)
        return {sample.labels: float(sample.value) for sample in found}

    def settled(self) -> dict[tuple[str, ...], float]:
        self.wait(RESCAN_SECONDS)
        return self.wait(QUIET_SECONDS)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def steps(count: int) -> str:
    return "".join(STEP.format(index) for index in range(count))


def test_the_earliest_failure_of_a_job_stands_on_the_page_with_cause_rank_and_time(node):
    node.write(steps(3), second=10)
    assert node.wait() == {}
    node.write(traceback(1, VALUE_ERROR) + lost(0) + table(1, {0: -15, 1: 1}))
    assert node.settled() == {(JOB, causes.USER_EXCEPTION, "1", "true"): BEGIN + 2980.5}


def test_a_failure_that_is_still_being_told_is_not_judged_yet(node):
    node.write(lost(0))
    assert node.wait() == {}
    node.wait(QUIET_SECONDS - 2)
    node.write(traceback(1, OOM) + table(1, {0: -15, 1: 1}))
    assert node.wait(1.5) == {}
    assert list(node.settled()) == [(JOB, causes.GPU_OOM, "1", "true")]


def test_an_exception_after_which_training_goes_on_is_no_failure(node):
    node.write(steps(5) + traceback(1, VALUE_ERROR), second=10)
    node.wait()
    for second in range(20, 30):
        node.write(steps(2), second=second)
        assert node.wait(QUIET_SECONDS) == {}
    assert node.wait(10 * STALLED_SECONDS) == {}
    # Not even when the pod is restarted later for another reason.
    node.write("the program ends", second=50)
    node.wait()
    node.write("the program starts", restarts=1, second=55)
    node.wait(10)
    assert node.settled() == {}


def test_a_survived_exception_is_not_taken_for_the_cause_of_a_later_failure(node):
    node.write(steps(5) + traceback(3, OOM) + steps(5), second=10)
    node.write(traceback(1, VALUE_ERROR) + table(1, {0: -15, 1: 1}), second=40)
    assert list(node.settled()) == [(JOB, causes.USER_EXCEPTION, "1", "true")]


def test_an_exception_of_which_nobody_says_that_it_ended_anything_is_not_told(node):
    node.write(traceback(None, VALUE_ERROR))
    node.settled()
    assert node.wait(10 * STALLED_SECONDS) == {}


def test_a_failed_container_confirms_its_last_exception(node):
    node.write(steps(5) + traceback(None, VALUE_ERROR))
    assert node.settled() == {}
    over = ended("Error", 1, node.now - BEGIN)
    node.put(with_state(worker(0, number=1, phase="Failed"), over))
    assert list(node.wait()) == [(JOB, causes.USER_EXCEPTION, "", "true")]


def test_a_completed_pod_confirms_nothing(node):
    node.write(steps(5) + traceback(None, VALUE_ERROR))
    node.settled()
    node.put(with_state(worker(0, number=1, phase="Succeeded"), ended("Completed", 0, 3010)))
    assert node.wait(10 * STALLED_SECONDS) == {}


def test_a_container_that_is_started_again_confirms_its_last_exception(node):
    node.write(traceback(None, OOM))
    assert node.wait() == {}
    node.write("starting", restarts=1)
    assert list(node.wait(10)) == [(JOB, causes.GPU_OOM, "", "true")]


def test_steps_that_stop_without_another_word_confirm_the_exception(node):
    node.write(steps(5) + traceback(2, VALUE_ERROR))
    assert node.settled() == {}
    found = node.wait(STALLED_SECONDS)
    assert list(found) == [(JOB, causes.USER_EXCEPTION, "2", "true")]


def test_every_attempt_is_told_the_newest_two(node):
    for attempt, error in enumerate((OOM, VALUE_ERROR, "OSError: [Errno 28] No space left")):
        node.write(traceback(attempt, error) + agent_end(attempt, 1), second=600 * attempt)
        node.settled()
        node.write(steps(5), second=600 * attempt + 3)
        node.wait(600)
    assert {labels[1:3] for labels in node.wait()} == {
        (causes.USER_EXCEPTION, "1"),
        (causes.STORAGE, "2"),
    }


def test_a_backlog_of_two_attempts_is_told_apart(node):
    node.now += 3600
    node.write(traceback(0, OOM) + agent_end(0, 1) + steps(5), second=1)
    node.write(traceback(1, VALUE_ERROR) + table(1, {0: -15, 1: 1}), second=900)
    assert node.settled() == {
        (JOB, causes.GPU_OOM, "0", "true"): BEGIN + 2941.5,
        (JOB, causes.USER_EXCEPTION, "1", "true"): BEGIN + 3840.5,
    }


def test_victims_on_this_node_are_told_as_such(node):
    node.write(lost(4) + lost(5) + agent_end(0, 1))
    (labels,) = node.settled()
    assert (labels[0], labels[3]) == (JOB, "false")


def test_pods_of_one_job_are_one_failure_with_who_failed_by_itself(node):
    node.write(lost(4) + agent_end(0, 1), index=0, second=41)
    node.write(traceback(9, OOM) + agent_end(1, 1), index=1, second=42)
    assert list(node.settled()) == [(JOB, causes.GPU_OOM, "9", "true")]


def local(rank: int, text: str) -> str:
    """Return lines with torchrun's tag, which counts within the node."""
    return "".join(f"[default{rank}]:{line}\n" for line in text.splitlines())


def test_a_rank_that_counts_within_its_node_only_is_unknown(node):
    node.write(local(3, traceback(None, OOM)) + agent_end(3, 1))
    assert list(node.settled()) == [(JOB, causes.GPU_OOM, "", "true")]


def test_processes_translate_ranks_that_count_within_their_node(node):
    identity = ProcessIdentity(11, 3, 8, 16, 0, "torchrun", "", {})
    process = RankProcess(identity, Placement(uid(1), ""), {}, (), 7)
    node.directory.publish(PlacementView(processes=(process,)))
    node.wait()
    node.directory.publish(PlacementView())
    node.write(local(3, traceback(None, OOM)) + agent_end(3, 1))
    assert list(node.settled()) == [(JOB, causes.GPU_OOM, "11", "true")]


def outside_of_pods(*jobs: str) -> PlacementView:
    """Return what is seen of a node with two ranks of each of these jobs and without pods."""
    ranks = [
        ProcessIdentity(rank, rank - 8, 8, 16, 0, "torchrun", job, {})
        for job in jobs
        for rank in (8, 9)
    ]
    nowhere = Placement("", "")
    return PlacementView(processes=tuple(RankProcess(rank, nowhere, {}, (), 7) for rank in ranks))


@pytest.mark.parametrize("jobs", [("lab/llm",), ("lab/llm", "lab/other"), (JOB,), ()])
def test_logs_outside_of_pods_are_of_the_only_job_that_runs_there(node, jobs):
    node.directory.publish(outside_of_pods(*jobs))
    node.wait()
    node.directory.publish(PlacementView())  # they end before their launcher says why
    (node.root / "outside.log").write_text(local(1, traceback(None, OOM)) + agent_end(1, 1))
    # Nobody outside of pods has the name of a job of pods.
    named = [("lab/llm", causes.GPU_OOM, "9", "true")] if jobs == ("lab/llm",) else []
    assert list(node.settled()) == named


def test_a_killed_rank_is_the_cause_also_where_only_its_victims_give_their_rank(node):
    node.write(lost(8) + lost(9) + agent_end(3, -9))
    assert list(node.settled()) == [(JOB, causes.KILLED, "", "true")]


def test_a_flood_of_exceptions_in_one_pod_blinds_no_other(node):
    flood = "".join(traceback(7, f"KeyError: {number}") for number in range(12_000))
    assert len(flood) > 2 * ROOM_BYTES
    node.write(flood, index=0)
    node.write(traceback(1, OOM) + table(1, {0: -15, 1: 1}), index=1)
    for _ in range(120):
        found = node.wait()
    assert (JOB, causes.GPU_OOM, "1", "true") in found


def test_pods_that_do_not_train_have_no_failures(node):
    other = worker(0, number=1)
    other["metadata"]["ownerReferences"] = []
    other["metadata"]["labels"] = {}
    other["spec"]["containers"][0].pop("resources", None)
    node.put(other)
    node.write(traceback(1, VALUE_ERROR) + table(1, {0: -15, 1: 1}))
    assert node.settled() == {}


def test_a_restarted_agent_knows_the_failure(node):
    node.write(traceback(1, VALUE_ERROR) + table(1, {0: -15, 1: 1}))
    told = node.settled()
    node.write("more")
    node.wait(60)
    node.collector = node.start()
    assert node.wait() == told != {}


def test_jobs_of_one_namespace_that_fail_one_after_another_hide_no_failure_of_another():
    failures = JobFailures(PodDirectory())
    jobs = ["prod/llm", *(f"sweep/{number}" for number in range(70))]
    failures.restore(
        [job, BEGIN, [[causes.USER_EXCEPTION, 1, BEGIN + number, True]]]
        for number, job in enumerate(jobs)
    )
    failures.update((), (), BEGIN + 100)
    shown = [sample.labels[0] for sample in failures.samples()]
    assert shown == ["prod/llm", *(f"sweep/{number}" for number in range(7, 70))]


def test_a_job_is_told_of_for_an_hour_after_its_pods_are_gone(node):
    node.write(traceback(1, VALUE_ERROR) + table(1, {0: -15, 1: 1}))
    told = node.settled()
    node.log().unlink()
    node.log().parent.rmdir()
    node.log().parent.parent.rmdir()
    node.wait(10)
    assert node.wait(KEPT_SECONDS - 60) == told
    assert node.wait(120) == {}


@pytest.mark.parametrize(
    "text", [b"", b"a\nb\n", b"x\nTraceback (most recent call last):\n  File\nfailed (exitcode: 1)"]
)
def test_pieces_are_the_text(text):
    assert b"".join(piece for _, piece in pieces(text)) == text
