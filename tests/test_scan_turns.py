"""Directories that take long to list wait for their turn, and keep no new job waiting."""

from __future__ import annotations

import itertools
import os
import shutil
import time

from known_pods import pods_named_after_their_namespace, pods_of
from rankscope_agent.sources.training import listing, ring_directory
from rankscope_agent.sources.training.files import Listing, list_rings
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.reader import RingStepSource
from ring_volumes import held, volume
from ring_writer import RingWriter

REFUSED_SECONDS = 60.0
PODS_RESCAN_SECONDS = 5.0
NOW = 1_700_000_000.0
FULL = "0-full.ring"


class SlowDisk:
    """Time that passes with every directory that is listed, or with those alone that are full."""

    def __init__(self, monkeypatch, seconds: float, *, full_ones: bool = False) -> None:
        self.now = 0.0
        self._full_ones = full_ones
        self.listed = 0
        self._seconds = seconds
        monkeypatch.setattr(ring_directory, "list_rings", self.list)

    def __call__(self) -> float:
        return self.now

    def list(self, descriptor: int) -> Listing:
        self.listed += 1
        if not self._full_ones or FULL in os.listdir(descriptor):
            self.now += self._seconds
        return list_rings(descriptor)


def full_directories(root, uids) -> None:
    for uid in uids:
        directory = volume(root, uid)
        (directory / FULL).write_text("")
        os.utime(directory, (2 * NOW, 2 * NOW))  # changed again and again


def test_directories_that_take_long_to_list_wait_and_newcomers_go_first(tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch, 0.125)
    full_directories(tmp_path, [f"uid-{number:02}" for number in range(20)])
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"), disk, disk)
    for turn in range(10):
        rings.rescan(NOW + turn * (PODS_RESCAN_SECONDS + 1))
    assert rings.refused()["too_small"] == 20
    writer = RingWriter(volume(tmp_path, "uid-99"))
    disk.listed = 0
    rings.rescan(NOW + 100)
    assert held(rings) == {"uid-99": 1}
    assert disk.listed == 1 + 2  # the node's own is always looked at
    writer.end()


def test_twenty_full_pods_keep_neither_a_known_job_nor_a_new_one_waiting(tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch, 0.5, full_ones=True)
    known = RingWriter(volume(tmp_path, "team-known"), job_id="x")
    rings = RingFollower(
        tmp_path, tmp_path / "kubelet", pods_named_after_their_namespace(), disk, disk
    )
    looks = (NOW + number * (PODS_RESCAN_SECONDS + 1) for number in itertools.count())
    rings.rescan(next(looks))
    full_directories(tmp_path, [f"greedy-{number:02}" for number in range(20)])
    for _ in range(4):  # in each of which there is time for one of them
        rings.rescan(next(looks))
    again = RingWriter(volume(tmp_path, "team-new"), job_id="y")
    other = RingWriter(volume(tmp_path, "zeal-new"), job_id="z")
    disk.listed = 0
    rings.rescan(next(looks))
    assert held(rings) == {"team-known": 1, "team-new": 1, "zeal-new": 1}
    assert disk.listed == 1 + 3 + 1  # the node's own, those three, and a full one
    for _ in range(100):
        rings.rescan(next(looks))
    assert rings.refused()["too_small"] == 20  # nobody is left out for ever
    for writer in (known, again, other):
        writer.end()


def test_a_namespace_whose_pods_come_anew_all_the_time_waits_behind_others(tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch, 0.5, full_ones=True)
    rings = RingFollower(
        tmp_path, tmp_path / "kubelet", pods_named_after_their_namespace(), disk, disk
    )
    looks = (NOW + number * (PODS_RESCAN_SECONDS + 1) for number in itertools.count())
    for number in range(5):
        full_directories(tmp_path, [f"greedy-{number}-{pod}" for pod in range(20)])
        rings.rescan(next(looks))
        for gone in (tmp_path / "kubelet" / "pods").iterdir():
            shutil.rmtree(gone)
    full_directories(tmp_path, [f"greedy-last-{pod}" for pod in range(20)])
    writer = RingWriter(volume(tmp_path, "team-new"), job_id="y")
    rings.rescan(next(looks))
    assert held(rings) == {"team-new": 1}
    writer.end()


def test_a_directory_that_has_not_changed_is_not_listed_again(tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch, 0.0)
    directory = volume(tmp_path, "uid-a")
    for number in range(300):
        (directory / f"{number}.ring").write_text("")
    now = time.time() + 10
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"), disk, disk)
    rings.rescan(now)
    assert disk.listed == 2
    for turn in range(1, 5):
        rings.rescan(now + turn * (PODS_RESCAN_SECONDS + 1))
    assert disk.listed == 2
    writer = RingWriter(directory)
    os.utime(directory, (now + 30, now + 30))
    rings.rescan(now + 40)
    assert disk.listed == 3
    assert held(rings) == {"uid-a": 1}
    rings.rescan(now + 40 + REFUSED_SECONDS)
    assert disk.listed == 5
    writer.end()


def test_large_directories_are_listed_by_readers_when_they_change(tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch, 0.0)
    monkeypatch.setattr(listing, "list_rings", disk.list)
    directory = volume(tmp_path, "uid-a")
    for number in range(listing.LARGE):
        (directory / f"{number}.ring").write_text("")
    later = time.time() + 10
    steps = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", lambda: later, pods_of("team"))
    for _ in range(3):
        assert steps.ranks() == ()
    assert disk.listed == 3 + 1  # the node's own directory is small
    writer = RingWriter(directory)
    assert len(steps.ranks()) == 1
    writer.end()
