"""Places for logs, for what they say and for Inspector's files go round, as those for rings do."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from inspector_files import line
from rankscope_agent.sources.nccl_inspector import follower as inspector
from rankscope_agent.sources.nccl_inspector.follower import InspectorFollower, Owner
from rankscope_agent.sources.nccl_log import follower as following
from rankscope_agent.sources.nccl_log.failures import Progress
from rankscope_agent.sources.nccl_log.follower import NcclFollower

NOW = 1_795_000_000.0
WARNING = "node:1:2 [0] init.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n"


class Logs:
    """Pods' logs below a directory, and their follower."""

    def __init__(self, root: Path, cpu_step: float = 0.0) -> None:
        self.root = root
        self.now = NOW
        self.cpu = 0.0
        self._cpu_step = cpu_step
        self.follower = NcclFollower(
            root, (), self._cpu_clock, budget_seconds=1.0, timer=lambda: 0.0
        )

    def _cpu_clock(self) -> float:
        self.cpu += self._cpu_step
        return self.cpu

    def write(
        self, pod: str, text: str = WARNING, container: str = "main", name: str = "0.log"
    ) -> None:
        namespace, _, pod_name = pod.partition("/")
        log = self.root / f"{namespace}_{pod_name}_uid-{namespace}-{pod_name}" / container / name
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as sink:
            sink.write(text)

    def look(self) -> dict[str, int]:
        """Return the warnings counted of each pod."""
        self.now += 10
        self.follower.rescan(self.now)
        self.follower.read(self.now)
        return {
            f"{job.owner.namespace}/{job.owner.name}": sum(
                warning.count for warning in job.facts.warnings.values()
            )
            for job in self.follower.jobs()
        }


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path)


def test_containers_that_log_first_keep_no_later_pod_from_being_read(logs, monkeypatch):
    monkeypatch.setattr(following, "stream_limit", lambda: 8)
    logs.follower = NcclFollower(logs.root, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    for number in range(9):
        logs.write("greedy/a", container=f"c{number}")
    assert logs.look() == {"greedy/a": 8}
    logs.write("team/late")
    assert logs.look()["team/late"] == 1
    assert logs.follower.logs == 8
    assert logs.follower.rejected["too_many"] == 2


def test_a_log_that_gave_up_its_place_is_read_on_where_it_ended(logs, monkeypatch):
    monkeypatch.setattr(following, "stream_limit", lambda: 2)
    logs.follower = NcclFollower(logs.root, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    for number in range(2):
        logs.write("greedy/a", container=f"c{number}")
    assert logs.look() == {"greedy/a": 2}
    logs.write("team/late")
    logs.write("greedy/a", container="c1")
    assert logs.look() == {"greedy/a": 2, "team/late": 1}
    for path in (logs.root / "team_late_uid-team-late" / "main" / "0.log",):
        path.unlink()
        path.parent.rmdir()
    assert logs.look() == {"greedy/a": 3}
    assert logs.look() == {"greedy/a": 3}


def test_a_log_that_waits_for_a_place_is_read_on_by_the_agent_that_follows(logs, monkeypatch):
    monkeypatch.setattr(following, "stream_limit", lambda: 2)
    logs.follower = NcclFollower(logs.root, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    for number in range(2):
        logs.write("greedy/a", container=f"c{number}")
    logs.look()
    logs.write("team/late")
    logs.look()
    state = json.loads(json.dumps(logs.follower.state()))
    monkeypatch.setattr(following, "stream_limit", lambda: 3)
    logs.follower = NcclFollower(logs.root, (), lambda: 0.0, budget_seconds=1.0, timer=lambda: 0.0)
    logs.follower.restore(state)
    assert logs.look() == {"greedy/a": 2, "team/late": 1}


def outside(logs, monkeypatch, most):
    monkeypatch.setattr(following, "stream_limit", lambda: most)
    return NcclFollower(
        logs.root / "pods", (logs.root / "job-*.out",), lambda: 0.0, 1.0, timer=lambda: 0.0
    )


def write_outside(logs, name, written, text=WARNING):
    with (logs.root / name).open("a") as sink:
        sink.write(text)
    os.utime(logs.root / name, (written, written))


def test_logs_that_earlier_jobs_left_outside_of_pods_keep_no_later_jobs_from_being_read(
    logs, monkeypatch
):
    for number in range(5):
        write_outside(logs, f"job-1{number}.out", NOW - 9000 + number, "hello\n")
    logs.follower = outside(logs, monkeypatch, 3)
    assert logs.look() == {}
    write_outside(logs, "job-20.out", NOW)
    assert logs.look() == {"/": 1}
    write_outside(logs, "job-20.out", NOW + 10)
    assert logs.look() == {"/": 2}
    assert (logs.follower.logs, logs.follower.rejected["too_many"]) == (3, 3)
    logs.follower = outside(logs, monkeypatch, 3)  # of an agent that was started anew
    assert logs.look() == {"/": 2}


def test_a_log_outside_of_pods_that_paused_is_read_on_where_it_ended(logs, monkeypatch):
    write_outside(logs, "job-1.out", NOW - 700)
    logs.follower = outside(logs, monkeypatch, 1)
    assert logs.look() == {"/": 1}
    write_outside(logs, "job-2.out", NOW - 200)
    assert logs.look() == {"/": 1}, "it may be of the same job, within ten minutes"
    write_outside(logs, "job-2.out", NOW)
    assert logs.look() == {"/": 3}
    write_outside(logs, "job-1.out", NOW + 700)
    assert logs.look() == {"/": 4}


def test_pods_that_say_most_first_keep_no_later_pod_from_being_remembered(logs, monkeypatch):
    monkeypatch.setattr(following, "MAX_JOBS", 4)
    for number in range(4):
        logs.write(f"greedy/{number}")
    assert len(logs.look()) == 4
    logs.write("team/late")
    found = Counter(pod.partition("/")[0] for pod in logs.look())
    assert found == {"greedy": 3, "team": 1}
    for number in range(4):  # what was forgotten does not come back at others' cost
        logs.write(f"greedy/{number}")
    found = Counter(pod.partition("/")[0] for pod in logs.look())
    assert found == {"greedy": 3, "team": 1}


@pytest.mark.parametrize("late", ["team/late", "other/late"])
def test_pods_that_ended_give_way_to_pods_that_run(logs, monkeypatch, late):
    monkeypatch.setattr(following, "MAX_JOBS", 4)
    ended = {"uid-team-1", "uid-team-2"}
    logs.follower = NcclFollower(
        logs.root, (), lambda: 0.0, 1.0, timer=lambda: 0.0, ended=ended.__contains__
    )
    for number in range(4):
        logs.write(f"team/{number}")
        logs.look()
    logs.write(late)
    assert set(logs.look()) == {"team/0", "team/2", "team/3", late}


TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 1, in main
ValueError: x
E0101 00:00:00.0 7 torch] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python
"""


@pytest.mark.parametrize("others", [60, 100])
@pytest.mark.parametrize("words", ["hello\n", WARNING])
def test_a_failure_is_seen_however_many_pods_log(logs, others, words):
    for number in range(others):
        logs.write(f"n{number}/p", words)
    logs.write("team/train", "starting\n")
    logs.look()
    logs.write("team/train", TRACEBACK)
    seen = []
    for _ in range(3):
        for number in range(others):
            logs.write(f"n{number}/p", words)
        logs.look()
        for pod in logs.follower.pods():
            seen += pod.failures.settle(logs.now, Progress(0, 0.0), ended=True, alive=True)
    assert [one.cause for one in seen] == ["user_exception"]


def test_pods_that_were_too_many_are_counted_and_read_again_once_there_is_room(logs, monkeypatch):
    monkeypatch.setattr(following, "MAX_JOBS", 2)
    pods = {f"n{number}/p" for number in range(3)}
    for pod in pods:
        logs.write(pod)
    first, second = logs.look()
    logs.look()
    assert logs.follower.rejected["too_many"] == 1
    shutil.rmtree(next(logs.root.glob(f"{first.partition('/')[0]}_*")))
    logs.look()
    (late,) = pods - {first, second}
    logs.write(late)
    assert logs.look() == {second: 1, late: 1}
    assert logs.follower.rejected["too_many"] == 0


def test_a_namespace_that_logs_much_takes_no_time_from_the_others(tmp_path):
    logs = Logs(tmp_path, cpu_step=0.2)
    for number in range(20):
        logs.write("greedy/a", "x" * 99 + "\n", container=f"c{number}")
    logs.write("team/late", "")
    logs.look()
    for turn in range(1, 6):
        for number in range(20):
            logs.write("greedy/a", ("x" * 99 + "\n") * 2000, container=f"c{number}")
        logs.write("team/late")
        assert logs.look()["team/late"] == turn


def test_logs_of_containers_that_end_together_share_the_time_of_one_run_and_are_read_to_the_end(
    tmp_path,
):
    logs = Logs(tmp_path, cpu_step=0.1)
    containers = [("greedy/a", f"c{number}") for number in range(10)] + [("team/late", "main")]
    for pod, container in containers:
        logs.write(pod, container=container)
    for _ in range(5):
        found = logs.look()
    assert found == {"greedy/a": 10, "team/late": 1}
    for pod, container in containers:
        much = ("x" * 99 + "\n") * 2000 if pod == "greedy/a" else ""
        logs.write(pod, much + WARNING, container)
        logs.write(pod, "", container, "1.log")
    before = logs.follower.read_bytes
    logs.follower.rescan(logs.now + 10)
    assert 0 < logs.follower.read_bytes - before <= 10 * (64 << 10)
    warned = {job.owner.namespace: job.last_warning for job in logs.follower.jobs()}
    assert warned["greedy"] < warned["team"] == logs.now + 10
    for _ in range(10):
        found = logs.look()
    assert found == {"greedy/a": 20, "team/late": 2}
    assert {path.name for path in logs.follower._followed} == {"1.log"}


def test_of_the_namespace_that_takes_most_room_the_largest_pod_gets_no_more(logs, monkeypatch):
    words = "".join(f"node:{n}:2 [0] NCCL INFO Bootstrap: Using eth0\n" for n in range(20))
    for number in range(4):
        logs.write(f"greedy/{number}", words)
    logs.write("team/large", words + words.replace("node", "other"))
    logs.look()
    for job in logs.follower.jobs():
        job.sum_up()
    weights = {job.owner.name: job.weight for job in logs.follower.jobs()}
    assert weights["large"] > max(weights[str(number)] for number in range(4))
    monkeypatch.setattr(following, "MAX_BYTES", sum(weights.values()) - 1)
    logs.look()
    full = [job.owner for job in logs.follower.jobs() if job.full]
    assert [owner.namespace for owner in full] == ["greedy"]


def test_full_pods_of_a_namespace_leave_those_of_others_their_room(logs):
    for number in range(5):
        words = "".join(f"node:{n}:1 [0] NCCL INFO Using network IB\n" for n in range(4096))
        logs.write(f"greedy/{number}", words)
    for _ in range(3):
        logs.write("team/late", "gpu:7:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n")
        logs.look()
        for job in logs.follower.jobs():
            job.verdict(logs.now)
    pods = {job.owner.name: job for job in logs.follower.jobs()}
    assert sum(job.weight for job in pods.values()) <= 16 << 20
    assert {name for name, job in pods.items() if job.full} == set("01234")
    held = [name for name in "01234" if pods[name].facts.processes]
    assert len(held) == 2, "those with most room forget, as many as have to"
    assert all(pods[name].facts.beyond_limits for name in "01234")
    logs.write(
        "team/late", "gpu:7:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"
    )
    logs.look()
    assert len(pods["late"].facts.members) == 1


class Files:
    """Inspector's files in pods' volumes, and their follower."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpu = 0.0
        self.follower = InspectorFollower(
            root / "kubelet",
            (),
            lambda: self.cpu,
            1.0,
            lambda _: None,
            lambda uid: uid.partition("-")[0],
        )

    def write(self, uid: str, number: int, **changed: object) -> Path:
        volume = self.root / "kubelet" / "pods" / uid / "volumes" / "kubernetes.io~empty-dir"
        path = volume / "rankscope" / "nccl-inspector" / f"node-pid{number}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as sink:
            sink.write(line(rank=number, **changed))
        return path

    def look(self) -> dict[str, int]:
        """Return the operations counted of each pod."""
        self.follower.rescan(NOW)
        self.follower.read(NOW)
        counted: Counter[str] = Counter()
        for owner, _, _, totals in self.follower.totals():
            counted[owner.pod_uid] += totals.operations
        return dict(counted)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(inspector, "file_limit", lambda: 4)
    made = Files(tmp_path)
    yield made
    made.follower.close()


def test_inspectors_files_of_a_pod_that_comes_late_are_read(files):
    for number in range(5):
        files.write("greedy-a", number)
    assert files.look() == {"greedy-a": 4}
    files.write("team-late", 0)
    assert files.look() == {"greedy-a": 4, "team-late": 1}
    assert files.follower.left_off == 2
    assert files.follower.files == 4


def test_inspectors_files_of_processes_that_ended_keep_no_later_process_from_being_read(files):
    for number in range(5):
        old = files.write("team-a", number)
        os.utime(old, (NOW - 9000 + number, NOW - 9000 + number))
    assert files.look() == {"team-a": 4}
    new = files.write("team-a", 9)
    os.utime(new, (NOW, NOW))
    files.look()
    assert Owner("team-a", 9) in {owner for owner, *_ in files.follower.totals()}
    assert (files.follower.files, files.follower.left_off) == (4, 2)
    files.write("team-a", 9)
    os.utime(new, (NOW, NOW))
    assert files.look() == {"team-a": 6}, "nothing is counted twice, and what gave way stays"


def test_one_of_inspectors_files_that_gave_up_its_place_is_counted_once(files):
    for number in range(4):
        files.write("greedy-a", number)
    late = [files.write("team-late", number) for number in range(2)]
    files.look()
    assert files.look() == {"greedy-a": 2, "team-late": 2}
    for path in late:
        path.unlink()
    late[0].parent.rmdir()
    for number in range(4):
        files.write("greedy-a", number)
    assert files.look() == {"greedy-a": 8, "team-late": 2}


def test_made_up_ranks_that_ended_keep_no_other_pods_counts_from_being_kept(files, monkeypatch):
    monkeypatch.setattr(inspector, "MAX_COUNTED", 3)
    made_up = [files.write("greedy-a", number) for number in range(3)]
    files.look()
    for path in made_up:
        path.unlink()
    files.look()
    ended = files.write("team-late", 7)
    files.look()
    ended.unlink()
    files.look()
    owners = {owner for owner, *_ in files.follower.totals()}
    assert Owner("team-late", 7) in owners
    assert len(owners) == 3
