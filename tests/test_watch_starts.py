"""Starts of jobs' processes in the watch: put together from agents' pages, each counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from collected_page import CREATED, collector
from rankscope_analyzers.intake.page_history import Page, PageHistory
from rankscope_analyzers.watch import process_starts
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.process_starts import READS, ProcessStart
from rankscope_analyzers.workloads import pods
from started_ranks import Rank, page_text
from watched_clusters import FAILED, LABELS, RUNNING, Api, Cluster, Watch
from workload_objects import START, pod

pytestmark = pytest.mark.usefixtures("standing_uptime")

COUNT = "rankscope_job_startup_phase_seconds_count"
SUM = "rankscope_job_startup_phase_seconds_sum"


class Nodes:
    """Agents of some nodes, whose pages are read again and again, as the watch does it."""

    def __init__(self, root: Path, *names: str) -> None:
        self.places = {name: root / name for name in names}
        for place in self.places.values():
            place.mkdir()
        self.reads = {name: collector(place) for name, place in self.places.items()}
        self.history = PageHistory(READS, polls=9)
        self.at = CREATED

    def rank(self, node: str, number: int = 0, **header: object) -> Rank:
        return Rank(self.places[node], number, **header)

    def starts(self) -> dict[str, ProcessStart]:
        self.at += 30
        texts = {name: page_text(read, name, self.at) for name, read in self.reads.items()}
        self.history.add([Page(name, self.at, text) for name, text in texts.items()])
        return dict(process_starts.process_starts(self.history.observed()))


@pytest.fixture
def nodes(tmp_path):
    return Nodes(tmp_path, "a", "b")


def test_a_start_is_known_when_the_last_node_has_ended_its_first_step(nodes):
    here, there = nodes.rank("a", 0), nodes.rank("b", 1, at=3)
    for rank, seconds in ((here, 5), (there, 8)):
        rank.joins(seconds)
    here.steps(30)
    assert nodes.starts() == {}
    there.steps(20)
    (start,) = nodes.starts().values()
    assert start.newest - start.earliest == pytest.approx(3, abs=0.1)
    expected = {"process": 10, "rendezvous": 8, "first_step": 35}
    assert start.phases == pytest.approx(expected, abs=0.1)


def test_phases_on_an_older_page_are_of_an_earlier_start(nodes):
    old = nodes.rank("a")
    old.joins(5)
    old.steps(30)
    assert list(nodes.starts()) == ["team/job"]
    old.ring.end()
    new = nodes.rank("a", at=100)
    assert nodes.starts() == {}
    new.joins(2)
    new.steps(3)
    (start,) = nodes.starts().values()
    assert start.phases["rendezvous"] == 2


def started(at: float, **phases: float) -> dict[str, ProcessStart]:
    return {"team/train": ProcessStart(START + at, START + at + 3, phases)}


def counted(watch: Watch, phase: str, name: str = COUNT) -> float:
    page = watch.exporter.text()
    line = f'{name}{{job_class="default",phase="{phase}"}} '
    return float(page.partition(line)[2].partition("\n")[0] or 0)


def look(watch: Watch, starts: dict[str, ProcessStart], at: float) -> None:
    watch.jobs.note_starts(starts)
    watch.look(at)


def test_each_start_of_a_jobs_processes_counts_once_by_class():
    cluster = Cluster()
    cluster.pods = [pods.read(pod("a", LABELS))]
    cluster.put("train", RUNNING)
    watch = Watch(cluster)
    first = started(40, process=10, rendezvous=4, first_step=30, nccl_init=2)
    for at in (100, 130):
        look(watch, first, at)
    for phase, seconds in (("process", 10), ("rendezvous", 4), ("nccl_init", 2)):
        assert (counted(watch, phase), counted(watch, phase, SUM)) == (1, seconds)
    look(watch, started(40.5, process=10, rendezvous=4, first_step=30), 160)
    assert counted(watch, "process") == 1, "an agent that was started anew knows it less exactly"
    look(watch, started(400, process=8, rendezvous=1, first_step=9), 500)
    assert (counted(watch, "process"), counted(watch, "nccl_init")) == (2, 1)


def test_a_start_counts_once_over_a_change_of_leader():
    cluster, api = Cluster(), Api()
    cluster.put("train", RUNNING)
    store = ConfigMapStore(api, "state", "rankscope")
    leader, standby = Watch(cluster, store), Watch(cluster, store)
    start = started(40, process=10, rendezvous=4, first_step=30)
    look(leader, start, 100)
    leader.stand_by()
    look(standby, start, 130)
    assert counted(standby, "process") == 1


def test_processes_of_an_earlier_job_of_the_name_are_none_of_a_new_one():
    cluster = Cluster()
    watch = Watch(cluster)
    old = started(40, process=10, first_step=30)
    cluster.put("train", RUNNING)
    look(watch, old, 100)
    cluster.put("train", FAILED)
    look(watch, old, 130)
    cluster.delete("train")
    cluster.put("train", RUNNING, uid="again", created=150)
    look(watch, old, 160)
    assert counted(watch, "process") == 1
    look(watch, started(170, process=10, first_step=30), 220)
    assert counted(watch, "process") == 2


def test_what_an_older_watch_kept_has_no_processes():
    cluster = Cluster()
    cluster.put("train", RUNNING)
    watch = Watch(cluster)
    look(watch, started(40, process=10, first_step=30), 100)
    kept = watch.jobs.kept()
    del kept["processes"]
    watch.jobs.restore(kept)
    assert watch.jobs.kept()["processes"] == {"uid-PyTorchJob-train": 0.0}
