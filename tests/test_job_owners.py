"""Jobs outside of pods are their users': nobody speaks for another's, or keeps it alive."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from collected_page import Clock, Page
from rankscope_agent.contract.job_names import JobNameError
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.pods import job_owners
from rankscope_agent.sources.pods.cgroups import Placement
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.job_owners import JobOwners, OwnedFile
from rankscope_agent.sources.pods.lock_holders import parse_user
from rankscope_agent.sources.pods.placement import place_ranks, refused_names
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.process_scan import RankProcess
from rankscope_agent.sources.pods.processes import process_identity
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import RingWriter
from servers import require_tool

OWNED_SECONDS = 600.0
LOOK_SECONDS = 5.0

ALICE, BOB = 60_001, 60_002
SLURMSTEPD = "0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n"


class Machine:
    """A tree like procfs with processes that hold locks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.locks: dict[str, int] = {}

    def process(
        self, pid: int, user: int, inode: int, cgroup: str = "0::/user.slice\n", device: int = 0x1B
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "status").write_text(f"Name:\tpt\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (folder / "cgroup").write_text(cgroup)
        where = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        self.locks[where] = pid
        lines = [
            f"{n}: FLOCK  ADVISORY  WRITE {holder} {where} 0 EOF\n"
            for n, (where, holder) in enumerate(self.locks.items())
        ]
        (self.root / "locks").write_text("".join(lines))

    def owners(self) -> JobOwners:
        return JobOwners(self.root, lambda: self.now)


def ring(user: int, inode: int, locked: bool = True) -> OwnedFile:
    return OwnedFile(user, (os.makedev(0, 0x1B), inode), locked)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_job_is_of_whom_had_its_name_first_and_of_others_when_that_one_is_gone(machine):
    owners = machine.owners()
    owners.check("mine", ring(ALICE, 1))
    with pytest.raises(JobNameError, match=f"user {ALICE} here, not to user {BOB}") as told:
        owners.check("mine", ring(BOB, 2))
    assert told.value.reason == "owner"
    machine.now = OWNED_SECONDS - 1
    owners.check("mine", ring(ALICE, 1))
    machine.now += OWNED_SECONDS - 1
    with pytest.raises(JobNameError):
        owners.check("mine", ring(BOB, 2))
    machine.now += 1
    owners.check("mine", ring(BOB, 2))


def test_what_nobody_writes_any_more_holds_no_name(machine):
    owners = machine.owners()
    owners.check("mine", ring(BOB, 2, locked=False))
    owners.check("mine", ring(ALICE, 1))


@pytest.mark.parametrize("name", ["42", "42.1"])
def test_slurm_says_whose_a_job_is_whoever_had_its_number_first(machine, name):
    owners = machine.owners()
    owners.check(name, ring(BOB, 2))
    machine.process(7, ALICE, 1, SLURMSTEPD.format(job=42))
    machine.now = LOOK_SECONDS
    owners.check(name, ring(ALICE, 1))
    with pytest.raises(JobNameError):
        owners.check(name, ring(BOB, 2))


@pytest.mark.parametrize(
    ("user", "cgroup"),
    [
        (ALICE, SLURMSTEPD.format(job=42)),  # somebody else's process holds the lock
        (BOB, SLURMSTEPD.format(job=43)),
        (BOB, "0::/user.slice/user-60002.slice/user@60002.service/slurmstepd.scope/job_42/step_0"),
    ],
)
def test_a_process_that_is_not_of_the_job_takes_no_number(machine, user, cgroup):
    owners = machine.owners()
    owners.check("42", ring(ALICE, 1))
    machine.process(9, user, 2, cgroup)
    machine.now = LOOK_SECONDS
    with pytest.raises(JobNameError):
        owners.check("42", ring(BOB, 2))


@pytest.mark.parametrize("cgroup", [SLURMSTEPD, "4:cpuset:/slurm/uid_60001/job_{job}/step_0\n"])
def test_slurms_job_is_known_by_cgroups_of_both_versions(machine, cgroup):
    owners = machine.owners()
    machine.process(7, ALICE, 1, cgroup.format(job=42))
    owners.check("42", ring(ALICE, 1))
    machine.process(9, BOB, 2, cgroup.format(job=42))
    machine.now = LOOK_SECONDS
    with pytest.raises(JobNameError):  # the first that Slurm names stays
        owners.check("42", ring(BOB, 2))


def test_a_process_without_a_ring_has_its_name_too(machine):
    directory = PodDirectory()
    directory.look_for_owners(machine.root)
    directory.check_process("mine", ALICE, "")
    with pytest.raises(JobNameError):
        directory.check_process("mine", BOB, "")
    directory.check_process("mine", BOB, "mine")


def test_ranks_of_processes_are_refused_where_their_job_is_another_users(machine):
    environ = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANKSCOPE_JOB_ID": "mine"}
    identity = process_identity(environ)
    assert identity
    alices, bobs = (
        RankProcess(identity, Placement(), environ, (), 7, user=user) for user in (ALICE, BOB)
    )
    directory = PodDirectory()
    directory.look_for_owners(machine.root)
    view = replace(PlacementView(), processes=(alices, bobs))
    placed = list(place_ranks(view, directory))
    assert [one.process.user for one in placed] == [ALICE]
    assert [error.reason for _, error in refused_names(view, directory)] == ["owner"]


def test_no_number_of_names_displaces_one_that_is_in_use(machine, monkeypatch):
    monkeypatch.setattr(job_owners, "MAX_JOBS", 8)
    owners = machine.owners()
    for number in range(50):
        owners.check("mine", ring(ALICE, 1))
        owners.check(f"made-up-{number}", ring(BOB, 2))
    with pytest.raises(JobNameError):
        owners.check("mine", ring(BOB, 2))
    owners.check("made-up-1", ring(ALICE, 1))


def test_the_user_of_a_process_is_as_whom_it_acts():
    assert parse_user("Name:\tx\nUid:\t1000\t60001\t0\t0\nGid:\t0\t0\t0\t0\n") == 60_001
    assert parse_user("") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_what_was_said_in_a_jobs_name_goes_when_slurm_says_whose_it_is(tmp_path, machine):
    directory, pods, clock = tmp_path / "rings", PodDirectory(), Clock()
    directory.mkdir()
    pods._owners = machine.owners()
    own = TrainingCollector(directory, tmp_path / "kubelet", "gpu-01", clock, pods)
    writers = {}
    for pid, user, rank, job in ((9, BOB, 1, 43), (7, ALICE, 0, 42)):
        writers[user] = RingWriter(directory, f"{user}.ring", job_id="42", rank=rank)
        writers[user].step(rank + 2)
        os.chown(writers[user].path, user, user)
        found = writers[user].path.stat()
        cgroup = SLURMSTEPD.format(job=job)
        machine.process(pid, user, found.st_ino, cgroup, found.st_dev)
        machine.now += LOOK_SECONDS
        Page(own)
    writers[ALICE].step(4)
    page = Page(own)
    assert page.labels(metrics.STEPS) == [("42", "0")]
    assert page.value(metrics.RINGS_REJECTED, "identity") == 1
    writers[ALICE].step(5)
    assert Page(own).rank(metrics.STEPS, 0, "42") == page.rank(metrics.STEPS, 0, "42") + 5
    for writer in writers.values():
        writer.end()


@contextmanager
def locking(user: int, path: Path):
    """Run a process of a user that holds a file's lock, or waits for it."""
    command = [require_tool("flock"), "--exclusive", str(path), "sh", "-c", "echo locked; cat"]
    process = subprocess.Popen(
        command, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    )
    try:
        yield process
    finally:
        process.communicate(timeout=60)


def locked(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    assert process.stdout.readline() == b"locked\n"


def ring_of(user: int, directory: Path, name: str, rank: int) -> Path:
    writer = RingWriter(directory, name, job_id="mine", rank=rank)
    writer.step(3)
    writer.end()
    os.chown(writer.path, user, user)
    return writer.path


@pytest.fixture
def shared_directory():
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_user_speaks_for_no_job_of_another_and_keeps_none_alive(shared_directory):
    clock, pods = Clock(), PodDirectory()
    kubelet = shared_directory / "kubelet"
    own = TrainingCollector(shared_directory, kubelet, "gpu-01", clock, pods)
    steps = RingStepSource(shared_directory, kubelet, "gpu-01", clock, pods)
    of_alice = ring_of(ALICE, shared_directory, "alice.ring", 0)
    with ExitStack() as bob:
        with locking(ALICE, of_alice) as alice:
            locked(alice)
            assert Page(own).rank(metrics.RANK_ALIVE, 0, "mine") == 1
            of_bob = ring_of(BOB, shared_directory, "bob.ring", 1)
            locked(bob.enter_context(locking(BOB, of_bob)))
            page = Page(own)
            assert page.labels(metrics.STEPS) == [("mine", "0")]
            assert page.value(metrics.RINGS_REJECTED, "identity") == 1
            assert [who.rank for who in steps.ranks()] == [0]
            thief = bob.enter_context(locking(BOB, of_alice))
        locked(thief)
        locks_are_looked_at_again(pods)
        assert Page(own).rank(metrics.RANK_ALIVE, 0, "mine") == 0


def locks_are_looked_at_again(pods: PodDirectory) -> None:
    pods._owners._holders._looked_at = float("-inf")
