"""Places for rings and ranks go round: whoever takes most gives up first, and live jobs stay."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import time
from collections import Counter

from collected_page import Clock, Page, collector
from counted_reading import turns_of_bytes
from known_pods import pods_of
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.flight_recorder import collector as flight_recorder
from rankscope_agent.sources.flight_recorder.collector import FlightRecorderCollector
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.stalls import stall_source
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training import follower as ring_follower
from rankscope_agent.sources.training import listing, reader, ring_directory
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.files import Listing, list_rings
from rankscope_agent.sources.training.follower import RingFollower
from rankscope_agent.sources.training.format import RECORD_SIZE
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.shares import forget_ranks
from rankscope_agent.sources.training.totals import JobTotals
from ring_writer import RingWriter
from served_agents import RANK

REFUSED_SECONDS = 60.0
PODS_RESCAN_SECONDS = 5.0
NOW = 1_700_000_000.0
FULL = "0-full.ring"
VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


def volume(root, uid):
    path = root / "kubelet" / "pods" / uid / VOLUME
    path.mkdir(parents=True)
    return path


def held(rings: RingFollower) -> dict[str, int]:
    uids = [followed.ring.pod_uid for followed in rings.rings]
    return {uid: uids.count(uid) for uid in dict.fromkeys(uids)}


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


def test_made_up_ranks_cost_their_own_job_and_no_job_with_an_open_ring(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RANKS", 4)
    clock = Clock()
    victim = RingWriter(tmp_path, "victim.ring", job_id="victim", rank=7)
    victim.step(5)
    ended = RingWriter(tmp_path, "ended.ring", job_id="ended")
    ended.step()
    rings = collector(tmp_path, clock)
    Page(rings)
    ended.end()
    liar = RingWriter(tmp_path, "liar.ring", job_id="liar", rank=0)
    liar.step()
    for rank in range(1, 8):
        clock.now += 1
        made_up = RingWriter(tmp_path, f"{rank}.ring", job_id="liar", rank=rank)
        made_up.step()
        made_up.end()
        page = Page(rings)
    found = set(page.labels(metrics.STEPS))
    assert found >= {("victim", "7"), ("ended", "0"), ("liar", "0")}
    assert len(found) == 4
    assert page.rank(metrics.STEPS, 7, "victim") == 5
    for writer in (victim, liar):
        writer.end()


def known_ranks(**jobs):
    """Return what is known of jobs: of each rank when its process began, in nanoseconds."""
    known = {}
    for name, began in jobs.items():
        job = known[name.replace("_", "/")] = JobTotals()
        for number, created in enumerate(began):
            job.rank(dataclasses.replace(RANK, rank=number), created)
    return known


def left(jobs):
    return {name: sorted(job.ranks) for name, job in jobs.items()}


def test_the_namespace_that_has_most_ranks_is_charged_however_many_jobs_they_are_of():
    jobs = known_ranks(greedy_a=[1, 2], greedy_b=[1, 2], team_llm=[1, 2, 3])
    forget_ranks(jobs, set(), 1)
    assert left(jobs)["team/llm"] == [0, 1, 2]


def test_of_one_job_the_rank_that_ended_first_is_forgotten_first():
    jobs = known_ranks(team_llm=[5, 1, 9])
    forget_ranks(jobs, set(), 2)
    assert left(jobs) == {"team/llm": [2]}


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


def test_worker_servers_of_one_namespace_leave_others_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "MAX_SOCKETS", 4)
    writers = []
    for uid in ("greedy-0", "greedy-1", "team-late"):
        directory = volume(tmp_path, uid)
        for number in range(4):
            writers.append(RingWriter(directory, f"{number}.ring", rank=number, job_id=uid))
            writers[-1].step(flags=0)
            (directory / f"{number}.sock").touch()
    names = pods_named_after_their_namespace()
    collector_of_calls = FlightRecorderCollector(
        tmp_path, tmp_path / "kubelet", FlightWindows(), names, Clock()
    )
    collector_of_calls._find(NOW)
    found = Counter(socket.holder[0] for socket in collector_of_calls._sockets)
    assert found == {"greedy": 2, "team": 2}
    for writer in writers:
        writer.end()


def pods_named_after_their_namespace() -> PodDirectory:
    names = PodDirectory()
    names.fall_back_on(lambda uid: PodIdentity(uid.partition("-")[0], uid))
    return names


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
    writers = [
        RingWriter(directory, f"{n}.ring", rank=n, job_id=uid.partition("-")[2])
        for uid in ("greedy-0", "greedy-1", "team-late")
        for directory in [volume(tmp_path, uid)]
        for n in range(6)
    ]
    names = pods_named_after_their_namespace()
    steps = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", lambda: NOW, names)
    held_by = Counter(rank.job_id for rank in steps.ranks())
    assert held_by == {"greedy/0": 2, "greedy/1": 2, "team/late": 4}
    for writer in writers:
        writer.end()


def test_ranks_that_stand_still_share_out_who_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(stall_source, "MAX_RANKS", 8)
    writers = [
        RingWriter(directory, f"{n}.ring", rank=n, job_id=uid.partition("-")[2])
        for uid in ("greedy-0", "greedy-1", "team-late")
        for directory in [volume(tmp_path, uid)]
        for n in range(6)
    ]
    for writer in writers:
        writer.step()
    names = pods_named_after_their_namespace()
    rings = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", time.time, names)
    standing = StallSource(rings, tmp_path).stalls(None)
    asked, others = ([one for one in standing if one.asked is said] for said in (True, False))
    assert Counter(one.job_id for one in asked) == {"greedy/0": 2, "greedy/1": 2, "team/late": 4}
    assert len(others) == 10
    assert {one.recorder for one in others} == {stall_source.NO_PLACE.recorder}
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
