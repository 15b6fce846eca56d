import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankscope_probe
from listed_processes import PROBE, Proc
from pod_json import uid
from rankscope_agent.sources.pods.cgroups import Placement, parse_cgroup
from rankscope_agent.sources.pods.process_scan import ProcessScanner
from rankscope_agent.sources.pods.processes import (
    environment_hash,
    has_probe,
    parse_environ,
    process_identity,
)

RINGS = Path("/run/rankscope")
LOOKS = 2
AGAIN = 30

UID = uid(1)
LOW = UID.replace("-", "_")
CID = "4f" * 32
SLICE = f"kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice"


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        (f"0::/../../{SLICE}/cri-containerd-{CID}.scope", Placement(UID, CID)),
        (f"0::/kubepods.slice/{SLICE}/crio-{CID}.scope", Placement(UID, CID)),
        (f"0::/kubepods.slice/{SLICE}/crio-{CID}.scope/container", Placement(UID, CID)),
        (f"0::/kubepods.slice/{SLICE}/crio-conmon-{CID}.scope", Placement()),
        (f"0::/kubepods.slice/{SLICE}/docker-{CID}.scope", Placement(UID, CID)),
        (f"0::/kubepods/burstable/pod{UID}/{CID}", Placement(UID, CID)),
        (f"0::/kubepods/pod{UID}/{CID}/init.scope", Placement(UID, CID)),
        (f"0::/system.slice/containerd.service/{SLICE}:cri-containerd:{CID}", Placement(UID, CID)),
        (
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{LOW}.slice/cri-containerd-{CID}.scope",
            Placement(UID, CID),
        ),
        (f"12:devices:/kubepods/burstable/pod{UID}/{CID}\n1:name=systemd:/x", Placement(UID, CID)),
        (f"0::/kubepods/pod{'ab' * 16}/{CID}", Placement("ab" * 16, CID)),
        ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_1", Placement("", "", "42")),
        ("0::/user.slice/user-0.slice/session-1.scope", Placement()),
        ("0::/kubepods/podcast/x", Placement()),
        ("", Placement()),
    ],
)
def test_a_cgroup_names_pod_and_container(text, placement):
    assert parse_cgroup(text) == placement


def test_the_outermost_pod_of_a_path_counts():
    """A container that may make groups can name one like another pod's."""
    other, inner = UID.replace("0", "1"), "d" * 64
    assert parse_cgroup(f"0::/kubepods/pod{UID}/{CID}/kubepods/pod{other}/{inner}") == Placement(
        UID, CID
    )


PIECES = (*"/:-._\n", "kubepods", "pod", UID, LOW, CID, CID[1:], "cri-containerd", ".scope")


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join))
def test_whatever_a_cgroup_is_called_what_is_read_of_it_stands_in_it_and_has_its_form(text):
    found = parse_cgroup(text)
    assert found.pod_uid in {"", UID}
    assert found.container_id in {"", CID}
    assert found.pod_uid == "" or UID in text.replace("_", "-")
    assert found.container_id in text


def identity(**environ):
    return process_identity(environ)


def test_torchrun_workers_are_ranks():
    found = identity(
        RANK="5",
        WORLD_SIZE="8",
        LOCAL_RANK="1",
        LOCAL_WORLD_SIZE="4",
        TORCHELASTIC_RUN_ID="r7",
        TORCHELASTIC_RESTART_COUNT="2",
        NCCL_DEBUG="INFO",
    )
    assert found is not None
    assert (found.rank, found.local_rank, found.world_size) == (5, 1, 8)
    assert (found.attempt, found.launcher, found.own_job) == (2, "torchrun", "r7")
    assert found.environment == {"NCCL_DEBUG": "INFO"}


SLURM_TASK = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "77"}


def test_slurm_tasks_are_ranks_of_their_job():
    found = identity(**SLURM_TASK, SLURM_LOCALID="1")
    assert found is not None
    assert (found.rank, found.launcher, found.own_job) == (3, "slurm", "77")


@pytest.mark.parametrize("step", ["0", "1", "12", "4294967290"])
@pytest.mark.parametrize("size", [4, 8])
def test_slurm_steps_have_the_names_that_their_probes_give_them(step, size, monkeypatch):
    for name, value in (SLURM_TASK | {"SLURM_STEP_ID": step}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RANKSCOPE_JOB_ID", raising=False)
    found = identity(**SLURM_TASK, SLURM_STEP_ID=step, WORLD_SIZE=str(size))
    assert found is not None
    assert found.own_job == rankscope_probe._job_id(size)


def test_mpi_processes_are_ranks():
    found = identity(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", MASTER_ADDR="a")
    assert found is not None
    assert (found.rank, found.launcher) == (1, "mpi")
    assert found.own_job.startswith("local/")


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "10.0.0.1"])
@pytest.mark.parametrize("host", ["", "container-1"])
def test_a_job_has_the_name_that_its_probes_give_it(address, host, monkeypatch):
    names = ("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "HOSTNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    meeting = {
        "MASTER_ADDR": address,
        "MASTER_PORT": "29500",
        **({"HOSTNAME": host} if host else {}),
    }
    for name, value in meeting.items():
        monkeypatch.setenv(name, value)
    known = parse_environ("\0".join(f"{n}={v}" for n, v in meeting.items()).encode())
    found = identity(RANK="1", WORLD_SIZE="2", **known)
    assert found is not None
    assert found.own_job == rankscope_probe._job_id(2)
    monkeypatch.setenv("HOSTNAME", "another")
    assert (rankscope_probe._job_id(2) == found.own_job) == (address == "10.0.0.1")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "1"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},
    ],
)
def test_others_are_none(environ):
    assert process_identity(environ) is None


def test_hashes_differ_where_variables_do():
    assert environment_hash({"NCCL_NET": "IB"}) != environment_hash({"NCCL_NET": "Socket"})
    assert environment_hash({"A": "1", "B": "2"}) == environment_hash({"B": "2", "A": "1"})


def test_only_kept_variables_leave_an_environment():
    data = b"HF_TOKEN=s\0RANK=1\0NCCL_X=\xff\0odd\0=v\0"
    assert set(parse_environ(data)) == {"RANK", "NCCL_X"}


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


WORKER = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def scan(proc, **pod_environment):
    return ProcessScanner(proc.path, lambda _: pod_environment, RINGS).scan()


def ranks(found):
    return [(r.identity.rank, r.identity.local_rank) for r in found.ranks]


def test_workers_of_torchrun_are_found_and_their_children_are_not(proc):
    proc.add(1, RANK="1", WORLD_SIZE="2")  # a shell with the pod's own variables
    proc.add(10, RANK="1", WORLD_SIZE="2")  # torchrun itself
    proc.add(20, RANK="0", LOCAL_RANK="0", **WORKER)
    proc.add(21, RANK="1", LOCAL_RANK="1", **WORKER)
    proc.add(30, RANK="0", LOCAL_RANK="0", **WORKER)  # a data loader's worker
    found = scan(proc, RANK="1")
    assert ranks(found) == [(0, 0), (1, 1)]
    assert found.ranks[0].placement == Placement(UID, CID)


def test_a_rank_of_the_pods_specification_counts_where_it_runs_one_process(proc):
    proc.add(10, RANK="1", WORLD_SIZE="2", MASTER_ADDR="a")
    assert ranks(scan(proc, RANK="1")) == []
    assert ranks(scan(proc, RANK="1", PET_NPROC_PER_NODE="1")) == [(1, None)]


@pytest.mark.parametrize(
    ("directory", "mounts", "cgroup", "probed"),
    [
        ("", "mnt:[1]", "0::/", True),
        ("/run/rankscope", "mnt:[1]", "0::/", True),
        ("/run/./rankscope/1000/", "mnt:[1]", "0::/", True),
        ("/home/ada/rings", "mnt:[1]", "0::/", False),
        ("/home/ada/rings", "mnt:[7]", "0::/", False),
        ("/home/ada/rings", "mnt:[2]", "0::/", True),
        ("/home/ada/rings", "", "0::/", True),
        ("rings", "mnt:[1]", "0::/", True),
        ("/home/ada/rings", "mnt:[1]", f"0::/kubepods/pod{UID}/{CID}", True),
    ],
)
def test_a_process_whose_ring_another_agent_reads_is_not_waited_for(
    proc, directory, mounts, cgroup, probed
):
    given = {"RANKSCOPE_RING_DIR": directory, "PYTHONPATH": "/opt/rankscope"}
    proc.add(20, cgroup, RANK="0", LOCAL_RANK="0", **WORKER, **given)
    proc.map(20, PROBE)
    for pid, namespace in (("self", "mnt:[7]"), ("1", "mnt:[1]"), ("20", mounts)):
        if namespace:
            (proc.path / pid / "ns").mkdir(parents=True)
            (proc.path / pid / "ns" / "mnt").symlink_to(namespace)
    (rank,) = scan(proc).ranks
    assert rank.probed is probed


def test_a_process_that_becomes_a_trainer_later_is_found(proc):
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS)
    proc.add(20)
    assert not scanner.scan().ranks
    proc.add(20, RANK="0", LOCAL_RANK="0", **WORKER)
    assert ranks(scanner.scan()) == [(0, 0)]


def test_a_process_that_is_no_rank_is_not_read_for_ever(proc):
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS)
    folder = proc.add(20)
    for _ in range(LOOKS):
        scanner.scan()
    (folder / "environ").unlink()
    (folder / "environ").symlink_to("/dev/zero")
    assert not scanner.scan().ranks


def test_a_script_that_executes_its_trainer_after_minutes_is_found(proc):
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS)
    proc.add(20)
    for _ in range(LOOKS):
        scanner.scan()
    proc.add(20, RANK="0", LOCAL_RANK="0", **WORKER)
    scans = [ranks(scanner.scan()) for _ in range(AGAIN)]
    assert [found for found in scans if found] == [[(0, 0)]] * scans.count([(0, 0)])
    assert scans[-1] == [(0, 0)]
    assert scans[0] == []


def test_processes_that_may_not_be_read_are_counted_and_rarely_tried_again(proc, monkeypatch):
    scanner, tried = ProcessScanner(proc.path, lambda _: {}, RINGS), []

    def denied(pid):
        tried.append(pid)
        raise PermissionError

    monkeypatch.setattr(scanner, "_look", denied)
    for pid in (20, 21):
        proc.add(pid)
    assert {scanner.scan().unreadable for _ in range(2 * AGAIN)} == {2}
    assert len(tried) == 8


def test_processes_that_end_or_hide_cost_nothing(proc):
    (proc.path / "40").mkdir()
    folder = proc.add(41, RANK="0", LOCAL_RANK="0", **WORKER)
    (folder / "environ").chmod(0)
    found = scan(proc)
    if os.geteuid():
        assert (found.unreadable, found.seen) == (1, 2)
    else:
        assert ranks(found) == [(0, 0)]


def test_a_real_process_is_found_as_the_rank_it_is():
    environ = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "PATH": os.environ["PATH"],
        **WORKER,
        "TORCHELASTIC_RUN_ID": "rankscope-test-run",
    }
    code = "import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], env=environ)
    try:
        scanner = ProcessScanner(Path("/proc"), lambda _: {}, RINGS)
        deadline = time.monotonic() + 20
        found: list[int] = []
        while not found and time.monotonic() < deadline:
            found = [
                rank.identity.rank
                for rank in scanner.scan().ranks
                if rank.identity.own_job == "rankscope-test-run"
            ]
        assert found == [1]
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        (b"RANK=0\0PYTHONPATH=/opt/rankscope/probe:/code\0", True),
        (b"RANKSCOPE_RING_DIR=/run/rings\0RANK=0", True),
        (b"RANKSCOPE_RING_DIR=/run/rings\0RANKSCOPE_PROBE=0\0", False),
        (b"RANKSCOPE_RING_DIR=\0PYTHONPATH=/code\0", False),
        (b"HOME=/home/rankscope\0RANK=0\0", False),
        (b"\0=\0PYTHONPATH", False),
    ],
)
def test_a_process_of_a_pod_has_the_probe_if_its_folder_or_a_place_for_rings_is_given(
    environ, given
):
    assert has_probe(environ, in_pod=True) == given


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        (b"RANK=0\0PYTHONPATH=/home/me/rankscope/agent/probe:/code\0", True),
        (b"RANK=0\0PYTHONPATH=/code:/shared/slow-ranks/agent/probe", True),
        (b"RANKSCOPE_RING_DIR=/run/rankscope\0RANK=0\0PYTHONPATH=/code\0", False),
    ],
)
def test_what_a_shell_exports_for_an_agent_gives_no_job_outside_of_pods_the_probe(environ, given):
    """Such a job was called hung after ten minutes, because no step of it is seen."""
    assert has_probe(environ, in_pod=False) == given


def test_a_rank_tells_when_its_process_was_started():
    environ = {"RANK": "0", "LOCAL_RANK": "0", **WORKER, "RANKSCOPE_RING_DIR": str(RINGS)}
    environ["PYTHONPATH"] = "/nowhere/agent/probe"
    environ["TORCHELASTIC_RUN_ID"] = "rankscope-test-start"
    began = time.time()
    code = "import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], env=environ)
    try:
        scanner = ProcessScanner(Path("/proc"), lambda _: {}, RINGS)
        deadline, found = time.monotonic() + 20, []
        while not found and time.monotonic() < deadline:
            ranks = scanner.scan().ranks
            found = [one for one in ranks if one.identity.own_job == "rankscope-test-start"]
        (rank,) = found
        assert rank.probed
        # Wrong units or a wrong time of boot are hours off; a busy machine is not.
        assert rank.started_unix_seconds == pytest.approx(began, abs=30.0)
    finally:
        child.kill()
        child.wait()


LAUNCHED = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    "mpi": (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"),
    ),
    "mpi, as Intel's says it": (
        *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        "PMI_RANK",
    ),
    "environment, of DeepSpeed": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "RANK"),
    "mpi, by PMIx": ("PMIX_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMIX_RANK"),
}


@pytest.mark.parametrize(("launcher", "names"), LAUNCHED.items())
def test_each_launchers_variables_say_where_a_process_is(launcher, names):
    values = ("13", "16", "5", "8", "6")
    found = identity(**dict(reversed(list(zip(names, values, strict=True)))))
    assert (found.rank, found.world_size) == (13, 16)
    assert (found.local_rank, found.local_world_size) == (5, 8)
    assert launcher.startswith(found.launcher)
