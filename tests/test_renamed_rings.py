"""Rings that were opened before Kubernetes' name of their pod's job was known take that name."""

from __future__ import annotations

import pytest

from collected_page import CREATED_NS, Clock, Page
from pod_json import pod, uid
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.pods import directory
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.continuation import Continuation
from rankscope_agent.sources.training.read_turns import ReadTurns
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.totals_file import TotalsFile
from ring_writer import NS, RingWriter
from standing_clock import clock

__all__ = ["clock"]

GIVEN, RIGHT = "team/local/1a2b3c4d", "team/llm"
RING = {"job_id": "local/1a2b3c4d", "capacity": 64}


class Node:
    """A node whose agent was started while its API server did not answer."""

    def __init__(self, root, clock):
        self.root, self.clock = root, Clock()
        self.state = root / "totals.json"
        self.timer = clock
        self.start()

    def start(self, listed=()):
        """Start an agent; a silent server has been waited for in vain."""
        self.names = PodDirectory()
        self.names.fall_back_on(lambda of: PodIdentity("team", f"pod-{of}"))
        self.names.expect()
        if listed:
            self.list(*listed)
        self.timer.now += 61.0
        self.rings = TrainingCollector(
            self.root / "ring",
            self.root / "kubelet",
            "gpu-01",
            self.clock,
            self.names,
            ReadTurns(lambda: 0.0, lambda: 0.0),
        )
        store, places = TotalsFile(self.state), [str(self.root)]
        self.rings.continue_after(Continuation(store, places, self.clock.now))

    def list(self, *numbers):
        """The server lists these pods, of one job."""
        listed = [
            pod(f"llm-{number}", "team", number=number, owner=("batch/v1", "Job", "llm"))
            for number in numbers
        ]
        self.names.replace([parse_pod(one) for one in listed], self.clock.now)

    def ring(self, number=1, name="4242-99.ring", **header):
        volume = self.volume(number)
        volume.mkdir(parents=True, exist_ok=True)
        return RingWriter(volume, name, **{**RING, **header})

    def volume(self, number):
        return self.root / f"kubelet/pods/{uid(number)}/volumes/kubernetes.io~empty-dir/rankscope"

    def page(self, seconds=1.0):
        self.clock.now += seconds
        return Page(self.rings)


@pytest.fixture
def node(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(directory, "time", clock)
    (tmp_path / "ring").mkdir()
    return Node(tmp_path, clock)


def steps(page):
    """Return the steps of each rank."""
    return {
        labels: value for (metric, labels), value in page.series.items() if metric is metrics.STEPS
    }


def jobs(page):
    """Return the jobs that any series is about."""
    named = ((metric.labels, labels) for metric, labels in page.series)
    return {labels[0] for names, labels in named if names[:1] == ("job_id",)}


def test_a_ring_takes_the_name_of_its_job_once_that_is_known(node):
    writer = node.ring()
    writer.step(5)
    assert steps(node.page()) == {(GIVEN, "0"): 5}
    node.list(1)
    writer.step(2)
    page = node.page()
    assert jobs(page) == {RIGHT}
    assert steps(page) == {(RIGHT, "0"): 7}
    assert page.value(metrics.STEP_LATENCY, RIGHT).count == 7
    assert node.names.probed.ranks == {(RIGHT, 0)}
    writer.step()
    page = node.page()
    assert (jobs(page), steps(page)) == ({RIGHT}, {(RIGHT, "0"): 8})
    source = RingStepSource(
        node.root / "ring", node.root / "kubelet", "gpu-01", node.clock, node.names
    )
    assert {rank.job_id for rank in source.ranks()} == jobs(page)
    writer.end()


def test_steps_of_a_ranks_earlier_processes_count_for_that_job_too_and_once(node):
    first = node.ring(name="1-1.ring", pid=1)
    first.step(5)
    first.end()
    node.page()
    second = node.ring(name="2-2.ring", pid=2, created_unix_ns=CREATED_NS + 5 * NS)
    second.step(3)
    assert steps(node.page(5.0)) == {(GIVEN, "0"): 8}
    node.list(1)
    for _ in range(3):
        page = node.page(5.0)
        assert (jobs(page), steps(page)) == ({RIGHT}, {(RIGHT, "0"): 8})
    second.end()


def test_ranks_that_have_ended_take_the_name_as_well(node):
    writer = node.ring()
    writer.step(5)
    writer.end()
    assert steps(node.page()) == {(GIVEN, "0"): 5}
    node.list(1)
    page = node.page()
    assert (jobs(page), steps(page)) == ({RIGHT}, {(RIGHT, "0"): 5})
    assert page.rank(metrics.RANK_ALIVE, job=RIGHT) == 0


def test_pods_that_are_not_listed_yet_keep_name_and_totals(node):
    first, second = node.ring(1), node.ring(2, rank=1)
    first.step(5)
    second.step(4)
    assert steps(node.page()) == {(GIVEN, "0"): 5, (GIVEN, "1"): 4}
    node.list(1)
    second.step()
    assert steps(node.page()) == {(RIGHT, "0"): 5, (GIVEN, "1"): 5}
    node.list(1, 2)
    page = node.page()
    assert (jobs(page), steps(page)) == ({RIGHT}, {(RIGHT, "0"): 5, (RIGHT, "1"): 5})
    first.end()
    second.end()


def test_a_pod_that_is_no_longer_listed_keeps_its_jobs_name(node):
    writer = node.ring()
    writer.step(5)
    node.list(1)
    assert steps(node.page()) == {(RIGHT, "0"): 5}
    node.list()
    node.timer.now += 120.0
    writer.step()
    assert steps(node.page(10.0)) == {(RIGHT, "0"): 6}
    writer.end()


def test_a_ring_whose_file_is_gone_is_read_to_its_end_under_the_name_that_it_had(node):
    writer = node.ring()
    writer.step(5)
    node.page()
    writer.path.unlink()
    node.page(10.0)
    node.list(1)
    writer.step()
    assert steps(node.page()) == {(GIVEN, "0"): 6}
    writer.end()


def test_totals_of_an_earlier_agent_go_on_under_the_name_that_it_knew(node):
    writer = node.ring()
    node.start(listed=[1])
    writer.step(60)
    assert steps(node.page()) == {(RIGHT, "0"): 60}
    node.rings.finish()
    node.start()
    writer.step(40)  # the ring has lost its first records
    node.page()
    node.list(1)
    page = node.page()
    assert (jobs(page), steps(page)) == ({RIGHT}, {(RIGHT, "0"): 100})
    writer.step()
    assert steps(node.page()) == {(RIGHT, "0"): 101}
    writer.end()
