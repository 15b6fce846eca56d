"""The last that is still taken and the first that is not, of each limit on looking for rings."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from listed_names import Listing
from rankscope_agent.sources.training import ends, files, ring_directory
from rankscope_agent.sources.training.ends import EndWatch
from rankscope_agent.sources.training.follower import RingFollower, _RefusalLog
from rankscope_agent.sources.training.format import RingError
from rankscope_agent.sources.training.listing import RingListings
from rankscope_agent.sources.training.naming import NO_PODS
from standing_clock import Clock


def test_refused_rings_are_named_64_times_in_ten_minutes(caplog):
    log = _RefusalLog()
    refusal = (files.Path("/r"), RingError("symlink", "x"))

    def named(count, now):
        caplog.clear()
        log.write([refusal] * count, now)
        return sum("is refused" in line for line in caplog.messages)

    assert named(100, 1000.0) == 64
    assert named(1, 1599.9) == 0
    assert named(1, 1600.1) == 1


@pytest.mark.parametrize("count", [1023, 1025])
def test_volumes_of_1024_pods_are_looked_at(tmp_path, monkeypatch, count):
    (tmp_path / "pods").mkdir()

    monkeypatch.setattr(os, "scandir", lambda root: Listing(map(str, range(count))))
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    assert len(files.pod_directories(tmp_path)) == min(count, 1024)


def test_256_users_have_directories_among_4096_names(tmp_path, monkeypatch):
    names = [str(index) for index in range(300)]

    monkeypatch.setattr(os, "scandir", lambda root: Listing(names))
    assert len(files.own_directories(tmp_path)) == 1 + 256
    names[:] = ["x"] * 4095 + ["7"]
    assert len(files.own_directories(tmp_path)) == 2
    names[:] = ["x"] * 4096 + ["7"]
    assert len(files.own_directories(tmp_path)) == 1


def test_who_closes_rings_all_the_time_is_looked_at_fifty_times_a_second(monkeypatch):
    pauses = []

    class Poll:
        def register(self, *of):
            pass

        def poll(self, milliseconds=None):
            if milliseconds is None:
                return [(7, 1)] if len(pauses) == 2 else [(5, 1)]
            pauses.append(milliseconds)
            return []

    monkeypatch.setattr(ends.select, "poll", Poll)
    state = SimpleNamespace(descriptor=5, stop=7, take=lambda: None, close=lambda: None)
    ends._follow(state)
    assert pauses == [20.0, 20.0]


@pytest.mark.parametrize(("size", "kept"), [(255, False), (256, True)])
def test_listings_of_256_files_are_kept_once_they_are_two_seconds_old(tmp_path, size, kept):
    for number in range(size):
        (tmp_path / f"{number}.ring").write_bytes(bytes(4096))
    directory = files.RingDirectory(tmp_path, (), "")
    changed = tmp_path.stat().st_ctime
    listings = RingListings()
    ((_, _, newest),) = listings.newest([directory], changed + 1.9)
    assert len(newest) == 128
    assert not any(listing.settled for listing in listings._kept.values())
    list(listings.newest([directory], changed + 2.1))
    assert [listing.settled for listing in listings._kept.values()] == [True] * kept


def test_directories_are_scanned_for_a_quarter_of_a_second(tmp_path, monkeypatch):
    timer, scanned = Clock(0.0), []

    def scan(directory, *of):
        scanned.append(directory)
        timer.now += 0.12
        return ()

    monkeypatch.setattr(ring_directory.FollowedDirectory, "scan", scan)
    for user in range(5):
        (tmp_path / str(user)).mkdir()
    RingFollower(tmp_path, tmp_path / "kubelet", timer=timer, cpu_clock=timer).scan(0.0)
    assert len(scanned) == 3


def test_files_that_are_no_rings_are_looked_at_again_after_a_minute(tmp_path):
    place = files.RingDirectory(tmp_path, (), "")
    made = ring_directory.FollowedDirectory(place, NO_PODS, EndWatch())
    status = tmp_path.stat()
    now = status.st_ctime + 10.0
    for _ in range(2):
        made._is_unchanged(status, now)
    made._plan_next_look(now)
    assert made._is_unchanged(status, now + 59.9)
    assert not made._is_unchanged(status, now + 60.1)
