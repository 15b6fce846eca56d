"""A look for rings that does not end costs new jobs their time, and known ones nothing."""

from __future__ import annotations

import threading
import time

import pytest

import collected_page
from collected_page import Clock, Page
from known_pods import pods_of
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.collector import Incomplete, scrape
from rankscope_agent.sources.training import background_follower, ring_directory
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.files import list_rings
from ring_volumes import volume
from ring_writer import RingWriter

PODS_RESCAN_SECONDS = 5.0
WAIT_SECONDS = 30.0


class Disk:
    """Lists directories, except while it hangs, which nobody waits for."""

    def __init__(self, monkeypatch) -> None:
        self.monkeypatch = monkeypatch
        self.answers = threading.Event()
        self.answers.set()
        monkeypatch.setattr(ring_directory, "list_rings", self.list)

    def hang(self) -> None:
        self.monkeypatch.setattr(background_follower, "PATIENCE_SECONDS", 0.05)
        self.monkeypatch.setattr(collected_page, "SCAN_SECONDS", 0.05)
        self.answers.clear()

    def answer(self) -> None:
        self.monkeypatch.setattr(collected_page, "SCAN_SECONDS", WAIT_SECONDS)
        self.answers.set()

    def list(self, descriptor):
        assert self.answers.wait(WAIT_SECONDS)
        return list_rings(descriptor)


@pytest.fixture
def disk(monkeypatch):
    made = Disk(monkeypatch)
    yield made
    made.answer()


def made(tmp_path, clock) -> TrainingCollector:
    return TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", clock, pods_of("team"))


def ended_look(rings: TrainingCollector) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while rings._follower.late_seconds and time.monotonic() < deadline:
        time.sleep(0.01)
        rings._follower.rescan(rings._clock())


def test_known_jobs_are_yielded_while_a_look_lasts_and_new_ones_once_it_ends(tmp_path, disk):
    clock = Clock()
    known = RingWriter(volume(tmp_path, "uid-a"), job_id="team/known")
    known.step(3)
    rings = made(tmp_path, clock)
    assert Page(rings).rank(metrics.STEPS, 0, "team/known") == 3
    new = RingWriter(volume(tmp_path, "uid-b"), job_id="team/new")
    new.step()
    disk.hang()
    for steps in (4, 5):
        clock.now += PODS_RESCAN_SECONDS + 1
        known.step()
        page = Page(rings)
        assert page.rank(metrics.STEPS, 0, "team/known") == steps
        assert page.rank(metrics.STEPS, 0, "team/new") is None
    disk.answer()
    ended_look(rings)
    clock.now += PODS_RESCAN_SECONDS + 1
    page = Page(rings)
    assert page.rank(metrics.STEPS, 0, "team/new") == 1
    for writer in (known, new):
        writer.end()


def test_a_look_that_lasts_is_a_failure_that_names_its_directory_and_keeps_the_series(
    tmp_path, disk, monkeypatch
):
    monkeypatch.setattr(training, "LATE_SECONDS", 0.01)
    known = RingWriter(volume(tmp_path, "uid-a"), job_id="team/known")
    known.step(3)
    rings = made(tmp_path, Clock())
    Page(rings)
    disk.hang()
    (tmp_path / "another").touch()
    outcome = scrape("training", rings, None)
    assert not outcome.success
    assert str(tmp_path) in outcome.failure
    assert "known ranks are read" in outcome.failure
    assert any(sample.metric is metrics.STEPS for sample in outcome.samples)
    known.end()


def test_a_first_look_that_lasts_is_not_taken_for_a_node_without_rings(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(background_follower, "FIRST_PATIENCE_SECONDS", 0.05)
    disk.hang()
    with pytest.raises(Incomplete, match="the scan for new rings has lasted"):
        Page(made(tmp_path, Clock()))


def test_a_process_that_ends_during_a_look_is_closed_behind_it(tmp_path, disk):
    clock = Clock()
    writer = RingWriter(volume(tmp_path, "uid-a"), job_id="team/known")
    writer.step(3)
    rings = made(tmp_path, clock)
    Page(rings)
    disk.hang()
    clock.now += PODS_RESCAN_SECONDS + 1
    writer.end()
    page = Page(rings)
    assert (page.value(metrics.RINGS), page.rank(metrics.RANK_ALIVE, 0, "team/known")) == (1, 0)
    disk.answer()
    ended_look(rings)
    page = Page(rings)
    assert (page.value(metrics.RINGS), page.rank(metrics.STEPS, 0, "team/known")) == (0, 3)


def test_what_a_look_raises_is_the_collectors_failure(tmp_path, monkeypatch):
    def broken(descriptor):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ring_directory, "list_rings", broken)
    assert "ZeroDivisionError: a bug" in scrape("training", made(tmp_path, Clock()), None).failure
