"""The rings of a node over time: what is kept open, closed, refused and named in the log."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from known_pods import pods_of
from rankscope_agent.sources.training import follower as ring_follower
from rankscope_agent.sources.training import ring_directory as ring_directory
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import REASONS
from ring_writer import ExtensionWriter, RingWriter, SignalWriter, SpanWriter, header_page

PODS_RESCAN_SECONDS = 5.0

NOW = 1_700_000_000.0
VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


def follower(tmp_path: Path) -> RingFollower:
    return RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"))


def refused(rings: RingFollower) -> dict[str, int]:
    return {reason: count for reason, count in rings.refused().items() if count}


def look(rings: RingFollower, now: float = NOW) -> list[int]:
    """Do what the collector does once; return the numbers of the records read."""
    rings.rescan(now)
    seen = [r.seq for ring in rings.rings for batch in ring.read(now, 10**6) for r in batch]
    rings.close_finished()
    return seen


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_ring_keeps_as_many_descriptors_as_its_limit_is_computed_from(tmp_path):
    ExtensionWriter(tmp_path)
    SpanWriter(tmp_path)
    SignalWriter(tmp_path)
    ring = RingWriter(tmp_path)
    rings = follower(tmp_path)
    before = descriptors()
    look(rings)
    assert descriptors() - before == ring_follower.FILES_PER_RING == 4
    ring.end()
    look(rings)
    assert descriptors() == before - 1, "nor does its process keep its own"


def test_a_ring_is_read_on_under_one_descriptor_and_closed_when_its_process_has_ended(tmp_path):
    writer = RingWriter(tmp_path)
    rings = follower(tmp_path)
    before = descriptors()
    for _ in range(3):
        writer.step()
        look(rings)
        assert descriptors() == before + 1
    writer.step()
    writer.end()
    assert look(rings) == [4]
    assert descriptors() == before - 1
    assert look(rings) == []
    assert (len(rings.rings), refused(rings)) == (0, {})


def test_a_ring_whose_file_is_removed_is_read_until_its_process_ends(tmp_path):
    writer = RingWriter(tmp_path)
    rings = follower(tmp_path)
    look(rings)
    writer.path.unlink()
    writer.step(2)
    assert look(rings) == [1, 2]
    writer.end()
    look(rings)
    assert rings.rings == ()


def test_a_ring_replaced_by_another_file_is_another_ring(tmp_path):
    first = RingWriter(tmp_path)
    first.step(2)
    rings = follower(tmp_path)
    assert look(rings) == [1, 2]
    second = RingWriter(tmp_path)
    second.step(1)
    first.step(1)
    assert sorted(look(rings)) == [1, 3]
    first.end()
    second.end()


def test_a_ring_under_two_names_is_read_once(tmp_path):
    writer = RingWriter(tmp_path)
    os.link(writer.path, tmp_path / "again.ring")
    writer.step(2)
    rings = follower(tmp_path)
    assert look(rings) == [1, 2]
    writer.path.unlink()
    writer.step()
    assert look(rings) == [3]
    writer.end()


def test_a_ring_still_in_the_making_is_left_alone(tmp_path):
    (tmp_path / ".7-7.ring").write_bytes(header_page())
    rings = follower(tmp_path)
    assert (look(rings), refused(rings)) == ([], {})


def test_a_refused_file_is_counted_and_named_once_for_each_reason(tmp_path, caplog):
    path = tmp_path / "bad\nname.ring"
    path.write_bytes(b"nothing")
    rings = follower(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            look(rings)
        path.write_bytes(header_page(version=3))
        os.utime(path, (1, 1))
        for _ in range(3):
            look(rings)
    assert refused(rings) == {"version": 1}
    assert ["(too_small)" in m for m in caplog.messages] == [True, False]
    assert "version 3" in caplog.messages[1]
    assert all("\n" not in message for message in caplog.messages)


def test_a_refused_file_that_is_put_right_is_read(tmp_path):
    path = tmp_path / "x.ring"
    path.write_bytes(b"nothing")
    rings = follower(tmp_path)
    look(rings)
    path.unlink()
    writer = RingWriter(tmp_path, "x.ring")
    writer.step()
    assert (look(rings), refused(rings)) == ([1], {})
    writer.end()


def test_every_reason_is_counted_from_the_start(tmp_path):
    rings = follower(tmp_path)
    look(rings)
    assert dict(rings.refused()) == dict.fromkeys(REASONS, 0)


def test_of_too_many_rings_the_newest_are_read_and_the_rest_counted(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(ring_directory, "MAX_RINGS_PER_HOLDER", 3)
    writers = [RingWriter(tmp_path, f"{i}.ring") for i in range(5)]
    for age, writer in enumerate(writers):
        os.utime(writer.path, (1000 - age, 1000 - age))
    rings = follower(tmp_path)
    with caplog.at_level(logging.WARNING):
        look(rings)
        look(rings)
    assert sorted(ring.ring.name for ring in rings.rings) == ["0.ring", "1.ring", "2.ring"]
    assert refused(rings) == {"too_many": 2}
    assert len(caplog.messages) == 1
    for writer in writers:
        writer.end()


def test_ended_rings_make_room_and_are_not_read_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_directory, "MAX_RINGS_PER_HOLDER", 2)
    for number in range(5):
        writer = RingWriter(tmp_path, f"{number}.ring")
        writer.step(2)
        writer.end()
    rings = follower(tmp_path)
    assert [len(look(rings)) for _ in range(5)] == [4, 4, 2, 0, 0]
    assert refused(rings) == {}


def test_descriptors_are_bounded_over_all_directories(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 3)
    writers = [RingWriter(tmp_path, f"{i}.ring") for i in range(2)]
    for uid in ("uid-a", "uid-b"):
        volume = tmp_path / "kubelet" / "pods" / uid / VOLUME
        volume.mkdir(parents=True)
        writers += [RingWriter(volume, f"{i}.ring") for i in range(2)]
    rings = follower(tmp_path)
    look(rings)
    assert len(rings.rings) == 3
    assert refused(rings) == {"too_many": 3}
    for writer in writers:
        writer.end()


def test_pods_are_found_when_they_come_and_released_when_they_go(tmp_path):
    rings = follower(tmp_path)
    look(rings)
    volume = tmp_path / "kubelet" / "pods" / "uid-a" / VOLUME
    volume.mkdir(parents=True)
    writer = RingWriter(volume)
    writer.step()
    assert look(rings, NOW + 1) == []
    assert look(rings, NOW + PODS_RESCAN_SECONDS) == [1]
    assert rings.directories == 2
    before = descriptors()
    writer.path.unlink()
    volume.rmdir()
    writer.step()
    assert look(rings, NOW + 2 * PODS_RESCAN_SECONDS) == [2]
    writer.end()
    look(rings, NOW + 2 * PODS_RESCAN_SECONDS + 1)
    assert descriptors() == before - 2
    look(rings, NOW + 3 * PODS_RESCAN_SECONDS)
    assert rings.directories == 1


def test_pods_are_looked_for_although_the_clock_was_set_back(tmp_path):
    rings = follower(tmp_path)
    look(rings)
    volume = tmp_path / "kubelet" / "pods" / "uid-a" / VOLUME
    volume.mkdir(parents=True)
    look(rings, NOW - 86_400)
    assert rings.directories == 2


def test_a_volume_that_is_a_link_is_refused_and_the_others_are_read(tmp_path):
    volume = tmp_path / "kubelet" / "pods" / "uid-b" / VOLUME
    volume.mkdir(parents=True)
    writer = RingWriter(volume)
    writer.step()
    link = tmp_path / "kubelet" / "pods" / "uid-a" / VOLUME
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc")
    rings = follower(tmp_path)
    assert look(rings) == [1]
    assert refused(rings) == {"symlink": 1}
    writer.end()


def test_a_ring_that_cannot_be_read_any_more_is_given_up_for_good(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step()
    rings = follower(tmp_path)
    look(rings)
    before = descriptors()
    rings.give_up(rings.rings[0], OSError(5, "Input/output error"), NOW)
    assert descriptors() == before - 1
    assert look(rings) == []
    assert refused(rings) == {"unreadable": 1}
    writer.end()


def test_a_flood_of_bad_files_does_not_flood_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(ring_follower, "MAX_LOG_LINES", 5)
    rings = follower(tmp_path)
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            (tmp_path / f"{number}.ring").write_text("")
        look(rings)
        assert len(caplog.messages) == 6
        (tmp_path / "later.ring").write_text("")
        look(rings, NOW + 600.0)
    assert "later.ring" in caplog.messages[-1]
    assert refused(rings) == {"too_small": 11}


@pytest.mark.parametrize("names", [300])
def test_refused_files_are_remembered_up_to_a_bound(tmp_path, names):
    for number in range(names):
        (tmp_path / f"{number}.ring").write_text("")
    rings = follower(tmp_path)
    look(rings)
    assert refused(rings) == {"too_small": 256, "too_many": names - 256}
