"""Places for rings go round: whoever takes most gives up first, and live jobs stay."""

from __future__ import annotations

import os
import time
from collections import Counter

from collected_page import Clock, Page, collector
from counted_reading import turns_of_bytes
from known_pods import pods_named_after_their_namespace, pods_of
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training import follower as ring_follower
from rankscope_agent.sources.training import reader, ring_directory
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import RECORD_SIZE
from rankscope_agent.sources.training.reader import RingStepSource
from ring_volumes import held, rings_of_three_pods, volume
from ring_writer import RingWriter

PODS_RESCAN_SECONDS = 5.0
NOW = 1_700_000_000.0


def test_a_pod_that_comes_late_gets_its_rings_from_the_one_that_has_most(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 10)
    greedy = volume(tmp_path, "uid-a")
    writers = [RingWriter(greedy, f"{n}.ring", rank=n) for n in range(20)]
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"))
    rings.rescan(NOW)
    assert held(rings) == {"uid-a": 10}
    late = volume(tmp_path, "uid-b")
    writers += [RingWriter(late, f"{n}.ring", rank=n) for n in range(4)]
    for number in range(1, 4):
        rings.rescan(NOW + number * (PODS_RESCAN_SECONDS + 1))
    assert held(rings) == {"uid-a": 6, "uid-b": 4}
    assert rings.refused()["too_many"] == 14
    for writer in writers:
        writer.end()


def test_a_ring_that_gave_up_its_place_is_not_counted_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 2)
    clock = Clock()
    own = [RingWriter(tmp_path, f"{n}.ring", rank=n, job_id="own") for n in range(2)]
    for writer in own:
        writer.step(3)
    rings = collector(tmp_path, clock)
    assert Page(rings).value(metrics.RINGS) == 2
    writers = [RingWriter(volume(tmp_path, uid), "0.ring") for uid in ("uid-a", "uid-b")]
    for _ in range(4):
        clock.now += PODS_RESCAN_SECONDS + 1
        page = Page(rings)
    for writer in writers:
        writer.end()
    for _ in range(3):
        clock.now += PODS_RESCAN_SECONDS + 1
        page = Page(rings)
    steps = [page.rank(metrics.STEPS, n, "own") for n in range(2)]
    assert steps == [3, 3]
    for writer in own:
        writer.end()


def test_of_a_pod_that_gives_up_places_rings_that_ended_go_before_live_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 4)
    greedy = volume(tmp_path, "uid-a")
    writers = [RingWriter(greedy, f"{n}.ring", rank=n) for n in range(4)]
    for number, writer in enumerate(writers):
        writer.step(3)
        os.utime(writer.path, (number, number))
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_of("team"))
    rings.rescan(NOW)
    for followed in rings.rings:  # of which two are the newest, and have ended
        followed.liveness = "ended" if followed.ring.header.rank >= 2 else "alive"
    late = volume(tmp_path, "uid-b")
    writers += [RingWriter(late, f"{n}.ring", rank=n) for n in range(2)]
    for number in range(1, 4):
        rings.rescan(NOW + number * (PODS_RESCAN_SECONDS + 1))
    kept = {one.ring.header.rank for one in rings.rings if one.ring.pod_uid == "uid-a"}
    assert kept == {0, 1}
    for writer in writers:
        writer.end()


def test_pods_of_another_namespace_get_their_rings_from_the_one_that_has_most(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ring_follower, "ring_limit", lambda: 8)
    writers = [
        RingWriter(directory, f"{n}.ring", rank=n, job_id="x")
        for directory in [volume(tmp_path, f"greedy-{pod}") for pod in range(4)]
        for n in range(4)
    ]
    rings = RingFollower(tmp_path, tmp_path / "kubelet", pods_named_after_their_namespace())
    rings.rescan(NOW)
    assert sum(held(rings).values()) == 8
    late = volume(tmp_path, "team-late")
    writers += [RingWriter(late, f"{n}.ring", rank=n, job_id="x") for n in range(4)]
    for number in range(1, 4):
        rings.rescan(NOW + number * (PODS_RESCAN_SECONDS + 1))
    assert held(rings).pop("team-late") == 4
    assert sum(held(rings).values()) <= 8
    for writer in writers:
        writer.end()


def test_users_of_one_directory_share_its_places_and_none_holds_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_directory, "MAX_RINGS_PER_HOLDER", 4)
    monkeypatch.setattr(ring_directory, "MAX_REFUSED", 2)
    writers = [RingWriter(tmp_path, f"greedy-{n}.ring", rank=n) for n in range(9)]
    for n in range(5):
        (tmp_path / f"empty-{n}.ring").write_text("")
        os.utime(tmp_path / f"empty-{n}.ring", (2, 2))
    for path in tmp_path.glob("*.ring"):
        os.chown(path, 60_001, 60_001)
    late = RingWriter(tmp_path, "late.ring", rank=9, job_id="other")
    os.chown(late.path, 60_002, 60_002)
    os.utime(late.path, (1, 1))  # the others go on writing theirs
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    rings.rescan(NOW)
    assert sum(followed.ring.header.job_id == "other" for followed in rings.rings) == 1
    assert len(rings.rings) == 5
    for writer in (*writers, late):
        writer.end()


def test_a_users_own_directory_holds_rings_of_that_user_alone(tmp_path):
    own, foreign = tmp_path / "60001", tmp_path / "60002"
    writers = []
    for directory, owners in ((own, (60_001, 60_002)), (foreign, (60_003,))):
        directory.mkdir()
        for owner in owners:
            writers.append(RingWriter(directory, f"{owner}.ring"))
            os.chown(writers[-1].path, owner, owner)
    os.chown(own, 60_001, 60_001)
    os.chown(foreign, 60_003, 60_003)  # made before its user could
    rings = RingFollower(tmp_path, tmp_path / "kubelet")
    rings.rescan(NOW)
    assert [followed.ring.name for followed in rings.rings] == ["60001.ring"]
    assert rings.refused()["identity"] == 2
    steps = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", lambda: NOW)
    assert len(steps.ranks()) == 1
    for writer in writers:
        writer.end()


def test_readers_share_out_rings_as_the_collector_does(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_RINGS", 8)
    writers = rings_of_three_pods(tmp_path, 6)
    names = pods_named_after_their_namespace()
    steps = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", lambda: NOW, names)
    held_by = Counter(rank.job_id for rank in steps.ranks())
    assert held_by == {"greedy/0": 2, "greedy/1": 2, "team/late": 4}
    for writer in writers:
        writer.end()


def test_rings_written_faster_than_they_are_read_keep_no_other_from_being_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "TURN_RECORDS", 16)
    turns = turns_of_bytes(monkeypatch, 64 * RECORD_SIZE)
    clock = Clock()
    fast = [
        RingWriter(volume(tmp_path, f"fast-{n}"), f"{n}.ring", rank=n, job_id="x", capacity=64)
        for n in range(8)
    ]
    slow = RingWriter(volume(tmp_path, "slow-1"), job_id="x", rank=9)
    names = pods_named_after_their_namespace()
    rings = TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", clock, names, turns)
    for number in range(1, 4):
        for writer in fast:
            writer.step(64)
        slow.step()
        clock.now += 1
        assert Page(rings).rank(metrics.STEPS, 9, "slow/x") == number
    for writer in (*fast, slow):
        writer.end()


def test_of_rings_those_of_processes_that_are_seen_are_opened_first_and_so_many(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(reader, "MOST_HOLDERS", 4)
    directory = volume(tmp_path, "team-llm")
    writers = [RingWriter(directory, f"{n}.ring", rank=n, job_id="x") for n in range(8)]
    names = pods_named_after_their_namespace()
    source = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", time.time, names)
    assert len(source.holders(())) == 4
    oldest = writers[0].path.stat()
    os.utime(writers[0].path, (1, 1))
    seen = os.major(oldest.st_dev), os.minor(oldest.st_dev), oldest.st_ino
    assert source.holders({seen}) == {seen: ("team/x", 0)}
    for writer in writers:
        writer.end()
