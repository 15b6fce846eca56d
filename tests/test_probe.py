"""The probe's ring, identity and step boundaries."""

from __future__ import annotations

import ast
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

import rankscope_probe
from probe_jobs.running import (
    CLOSURE,
    EVALUATION,
    FIRST,
    PROBE,
    SKIPPED,
    WALL,
    Nursery,
    Ring,
    median_ms,
    read_extended,
    read_only_ring,
    read_ring,
)

MODULE = PROBE / "rankscope_probe.py"
STEPS = 10
UNKNOWN = 0xFFFFFFFF
VARIABLES = (
    *rankscope_probe._RANK,
    *rankscope_probe._WORLD_SIZE,
    *rankscope_probe._LOCAL_RANK,
    *rankscope_probe._LOCAL_WORLD_SIZE,
    *(name for name, _ in rankscope_probe._LAUNCHERS),
    *("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"),
    *("NODE_NAME", "RANKSCOPE_NODE_NAME", "POD_UID"),
)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give an environment in which no launcher has spoken."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


class FakeDistributed:
    """What the identity asks of torch.distributed."""

    def get_rank(self) -> int:
        return 5

    def get_world_size(self) -> int:
        return 8


@pytest.fixture(scope="module")
def boundaries(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ring]:
    """Give the ring that a training loop of `boundaries.py` leaves, run once for all tests."""

    @functools.cache
    def run(case: str) -> Ring:
        directory = tmp_path_factory.mktemp("rings")
        (ended,) = nursery.run(directory, "boundaries.py", case)
        assert (ended.code, ended.errors) == (0, "")
        return read_only_ring(directory)

    return run


def open_ring(directory: Path) -> Path:
    """Make a small ring as the probe does, and let it go."""
    rankscope_probe._Ring(str(directory), "2.13.0+cpu", None, 0).close()
    (path,) = directory.glob("*.ring")
    return path


@pytest.mark.parametrize(
    "case",
    [
        "no_loader",
        "accumulation",
        "two_optimizers",
        "subgroups",
        "in_backward",
        "closure",
        "scheduler",
        "scaler",
        "evaluation",
        "odd_batches",
    ],
)
def test_every_period_between_steps_is_one_record(
    boundaries: Callable[[str], Ring], case: str
) -> None:
    ring = boundaries(case)
    assert [record.step for record in ring.records] == list(range(1, STEPS))
    assert ring.records[0].flags & FIRST
    assert not any(record.flags & FIRST for record in ring.records[1:])
    for record in ring.records:
        assert record.flags & 3 == WALL
        assert record.sync_ns == 0
        assert record.compute_ns == record.step_ns - max(record.data_ns, 0)


@pytest.mark.parametrize(
    ("case", "backwards"),
    [
        ("no_loader", {1}),
        ("accumulation", {4}),
        ("two_optimizers", {1}),
        ("subgroups", {1}),
        ("in_backward", {1}),
        ("closure", {1, 2, 3}),
        ("scaler", {1}),
        ("evaluation", {1}),
    ],
)
def test_backwards_of_a_step_are_counted_and_what_follows_them_is_not_compute(
    boundaries: Callable[[str], Ring], case: str, backwards: set[int]
) -> None:
    steps = read_extended(boundaries(case).path.parent)
    assert len(steps) == STEPS - 1
    assert {step.microbatches for step in steps} <= backwards
    for step in steps:
        parts = (max(step.data_ns, 0), step.compute_ns, step.sync_ns, step.other_ns)
        assert min(parts) >= 0
        assert sum(parts) == step.step_ns


def test_absent_loader_is_absent_not_zero(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("no_loader")
    assert {(record.data_ns, record.samples) for record in ring.records} == {(-1, UNKNOWN)}


def test_samples_of_all_accumulated_batches_count(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("accumulation")
    assert {record.samples for record in ring.records} == {32}
    assert all(record.data_ns > 0 for record in ring.records)


def test_batches_without_a_tensor_have_unknown_size(boundaries: Callable[[str], Ring]) -> None:
    """A batch of None is none: nothing is known to have been fetched."""
    ring = boundaries("odd_batches")
    assert {record.samples for record in ring.records} <= {UNKNOWN, 0}
    assert [record.samples for record in ring.records].count(0) == 1


def test_overflow_is_a_skipped_step(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("scaler")
    assert [record.step for record in ring.records if record.flags & SKIPPED] == [3, 6]


def test_closure_is_flagged(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("closure")
    assert all(record.flags & CLOSURE for record in ring.records)


def test_evaluation_is_flagged_in_its_step_alone(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("evaluation")
    assert [record.step for record in ring.records if record.flags & EVALUATION] == [6]
    assert {record.samples for record in ring.records} == {8}


def test_new_optimizer_is_followed_after_some_steps(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("new_optimizer")
    lost = rankscope_probe._ADOPT_AFTER - 1
    assert len(ring.records) == 40 - 1 - lost


def test_wall_clock_of_records_follows_their_durations(boundaries: Callable[[str], Ring]) -> None:
    ring = boundaries("no_loader")
    first, last = ring.records[0], ring.records[-1]
    between = sum(record.step_ns for record in ring.records[:-1])
    assert abs(last.start_unix_ns - first.start_unix_ns - between) < 1e9
    assert 0 < median_ms(ring.records, "step_ns") < 60_000
    assert abs(first.start_unix_ns / 1e9 - time.time()) < 600


def test_full_ring_overwrites_its_oldest_record(tmp_path: Path) -> None:
    """Write beyond the capacity without torch: the slot of a record follows from its number."""
    code = (
        "import os, rankscope_probe as p, types\n"
        "probe = object.__new__(p._Probe)\n"
        "probe.ring = p._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
        "probe.begin_unix_ns = probe.data_ns = probe.sync_ns = probe.samples = 0\n"
        "probe.step = probe.backwards = 0\n"
        "probe.loader_used, probe.timing, probe.device_waits = False, 2, None\n"
        "probe.cpu = p._CpuWaits()\n"
        "for number in range(p._CAPACITY + 3): probe.record(number, 0)\n"
    )
    variables = {"PYTHONPATH": str(PROBE), "RANKSCOPE_RING_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **variables})
    (path,) = tmp_path.glob("*.ring")
    content = path.read_bytes()
    numbers = [int.from_bytes(content[4096 + 64 * slot :][:8], "little") for slot in range(5)]
    assert numbers == [65537, 65538, 65539, 4, 5]
    assert len(content) == 4096 + 65536 * 64


def test_ring_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0+cpu", None, 3)
    (path,) = tmp_path.glob("*.ring")
    ring = read_ring(path)
    assert ring.held
    assert not os.get_inheritable(made.slots.descriptor)
    assert (ring.pid, ring.attempt, ring.torch_version) == (os.getpid(), 3, "2.13.0+cpu")
    assert path.name.startswith(f"{os.getpid()}-")
    made.close()
    assert not read_ring(path).held


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    code = (
        "import os, resource, rankscope_probe\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "ring = rankscope_probe._Ring(os.environ['RANKSCOPE_RING_DIR'], 'x', None, 0)\n"
        "print(ring.slots.descriptor < 64)"
    )
    variables = {"PYTHONPATH": str(PROBE), "RANKSCOPE_RING_DIR": str(tmp_path)}
    shown = subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **variables})
    assert shown == b"True\n"


def make_old(path: Path) -> Path:
    path.touch()
    os.utime(path, (time.time() - 100_000, time.time() - 100_000))
    return path


def test_stale_rings_are_removed_with_what_lies_beside_them_and_nothing_else(
    tmp_path: Path,
) -> None:
    names = ("7-1.ring", ".8-2.ring", "7-1.ext", "7-1.sock", "6-1.ext")
    stale = [make_old(tmp_path / name) for name in names]
    foreign = [make_old(tmp_path / name) for name in ("notes.ring", "7-1.ring.bak", "10-4.ext")]
    (young := tmp_path / "9-3.ring").touch()
    held = make_old(tmp_path / "10-4.ring")
    with held.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rankscope_probe._remove_stale(str(tmp_path))
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in [*foreign, young, held])


def test_of_a_crash_loops_rings_the_newest_are_kept(tmp_path: Path) -> None:
    ended = [tmp_path / f"{100 + number}-1.ring" for number in range(40)]
    for age, path in enumerate(reversed(ended)):
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    with ended[0].open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rankscope_probe._remove_stale(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == [ended[0], *ended[24:]]


def test_extension_is_there_before_its_ring_and_neither_is_left_behind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def rename(*_: str) -> None:
        seen.extend(sorted(path.suffix for path in tmp_path.iterdir()))
        raise OSError(5, "7-7")

    monkeypatch.setattr(rankscope_probe.os, "rename", rename)
    with pytest.raises(OSError, match="7-7"):
        rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    assert seen == [".ext", ".ring"]
    assert list(tmp_path.iterdir()) == []


def test_ring_goes_on_without_an_extension_that_there_is_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, sizes = os.posix_fallocate, []

    def scarce(descriptor: int, offset: int, size: int) -> None:
        sizes.append(size)
        if len(sizes) > 1:
            raise OSError(28, "No space left on device")
        allocate(descriptor, offset, size)

    monkeypatch.setattr(rankscope_probe.os, "posix_fallocate", scarce)
    made = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    made.write(*range(8), more=(1, -1, 1))
    made.close()
    assert "No space left" in str(made.refused)
    assert len(read_only_ring(tmp_path).records) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".ring"]


def test_symlink_in_the_rings_place_is_not_followed(tmp_path: Path) -> None:
    ticks = rankscope_probe._process_start_ticks()
    (target := tmp_path / "target").write_text("precious")
    (tmp_path / f".{os.getpid()}-{ticks}.ring").symlink_to(target)
    with pytest.raises(FileExistsError):
        rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    assert target.read_text() == "precious"


@pytest.mark.parametrize(
    ("variables", "identity", "launcher"),
    [
        ({}, (0, 0, 1, 1), "none"),
        (
            {
                "RANK": "9",
                "LOCAL_RANK": "1",
                "WORLD_SIZE": "16",
                "LOCAL_WORLD_SIZE": "8",
                "TORCHELASTIC_RUN_ID": "none",
                "SLURM_PROCID": "1",
                "SLURM_LOCALID": "0",
            },
            (9, 1, 16, 8),
            "torchrun",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            (3, 1, 4, 2),
            "mpi",
        ),
        ({"PMIX_RANK": "2"}, (2, -1, -1, -1), "mpi"),
        (
            {"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_STEP_NUM_TASKS": "8"},
            (6, 2, 8, -1),
            "slurm",
        ),
        ({"JOB_COMPLETION_INDEX": "4", "WORLD_SIZE": "5"}, (4, -1, 5, -1), "kubernetes"),
        ({"JOB_COMPLETION_INDEX": "4", "LOCAL_RANK": "1"}, (-1, 1, -1, -1), "kubernetes"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, -1, 2, -1), "environment"),
        ({"RANK": "x", "WORLD_SIZE": "-2", "LOCAL_RANK": "9" * 30}, (0, 0, 1, 1), "environment"),
    ],
)
def test_identity_comes_from_the_launchers_variables(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    identity: tuple[int, int, int, int],
    launcher: str,
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    ring = read_ring(open_ring(tmp_path))
    assert (ring.rank, ring.local_rank, ring.world_size, ring.local_world_size) == identity
    assert ring.launcher == launcher


def test_initialised_process_group_knows_better(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "1")
    environment.setenv("LOCAL_RANK", "1")
    assert rankscope_probe._identity(FakeDistributed()) == (5, 1, 8, -1)


@pytest.mark.parametrize(
    ("variables", "job_id"),
    [
        ({"RANKSCOPE_JOB_ID": "team-a/llm", "SLURM_JOB_ID": "7"}, "team-a/llm"),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "abc"}, "7"),
        ({"TORCHELASTIC_RUN_ID": "abc", "MASTER_PORT": "1"}, "abc"),
        # sha256("10.0.0.1:29500") as `printf 10.0.0.1:29500 | sha256sum` gives it
        (
            {
                "TORCHELASTIC_RUN_ID": "none",
                "MASTER_ADDR": "10.0.0.1",
                "MASTER_PORT": "29500",
            },
            "local/619f6a07",
        ),
    ],
)
def test_job_is_named_as_its_launcher_names_it(
    environment: pytest.MonkeyPatch, variables: dict[str, str], job_id: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert rankscope_probe._job_id(8) == job_id


def test_ranks_that_nobody_named_share_their_parents_job(environment: pytest.MonkeyPatch) -> None:
    of_spawned = rankscope_probe._job_id(2)
    of_single = rankscope_probe._job_id(1)
    environment.setattr(os, "getpid", lambda: 1)
    assert rankscope_probe._job_id(2) == of_spawned
    assert rankscope_probe._job_id(1) != of_single


def test_labels_hold_only_what_readers_accept(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("RANKSCOPE_JOB_ID", "ümlaut {job}\n" + "x" * 1000)
    environment.setenv("RANKSCOPE_NODE_NAME", "rack 1/node-2")
    ring = read_ring(open_ring(tmp_path))
    assert ring.job_id == "_mlaut__job__" + "x" * (319 - 13)
    assert ring.node == "rack_1/node-2"


def test_distribution_folder_matches_the_project(tmp_path: Path) -> None:
    (found,) = distributions(path=[str(PROBE)])
    assert (found.name, found.version) == ("rankscope-probe", rankscope_probe.__version__)
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == ("torch.backends", "rankscope_probe:_autoload")


def test_source_is_python_3_8() -> None:
    ast.parse(MODULE.read_text(), feature_version=(3, 8))


def interpreter_of(version: str) -> str | None:
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    return next(map(str, installed), None) or shutil.which(f"python{version}")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_writes_a_ring_and_warns_of_nothing(
    environment: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    interpreter = interpreter_of(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} is installed here")
    code = "import rankscope_probe as p; p._Ring({!r}, '1.13', None, 0)"
    variables = {**os.environ, "PYTHONPATH": str(PROBE), "RANKSCOPE_JOB_ID": "old"}
    command = [interpreter, "-W", "error", "-c", code.format(str(tmp_path))]
    subprocess.run(command, check=True, env=variables)
    (path,) = tmp_path.glob("*.ring")
    ring = read_ring(path)
    assert (ring.job_id, ring.torch_version, ring.records) == ("old", "1.13", ())


def test_import_time_is_free_of_everything_but_the_standard_library() -> None:
    code = "import sys, rankscope_probe; print('torch' in sys.modules, 'numpy' in sys.modules)"
    variables = {**os.environ, "PYTHONPATH": str(PROBE)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=variables)
    assert shown == b"False False\n"
