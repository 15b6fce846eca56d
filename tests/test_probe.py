"""The probe's ring, identity and step boundaries."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

import rankscope_probe
from probe_jobs.nurseries import Nursery
from probe_jobs.running import (
    CLOSURE,
    EVALUATION,
    FIRST,
    PROBE,
    SKIPPED,
    WALL,
    Ring,
    median_ms,
    read_extended,
    read_only_ring,
    read_ring,
)
from probe_rings import open_ring

MODULE = PROBE / "rankscope_probe.py"
STEPS = 10
UNKNOWN = 0xFFFFFFFF

VARIABLES = (
    *rankscope_probe._RANK,
    *rankscope_probe._WORLD_SIZE,
    *rankscope_probe._LOCAL_RANK,
    *rankscope_probe._LOCAL_WORLD_SIZE,
    *(name for name, _ in rankscope_probe._LAUNCHERS),
    *("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT"),
    *("NODE_NAME", "RANKSCOPE_NODE_NAME", "POD_UID"),
)


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
    times = [record.data_ns for record in ring.records]
    assert min(times) >= 0  # 0 where a wait for a CPU covers a fetch
    assert max(times) > 0


def test_batches_without_a_tensor_have_unknown_size(boundaries: Callable[[str], Ring]) -> None:
    """A batch of None is none: nothing is known to have been fetched."""
    ring = boundaries("odd_batches")
    assert {record.samples for record in ring.records} <= {UNKNOWN, 0}
    assert [record.samples for record in ring.records].count(0) == 1


@pytest.mark.parametrize(("case", "samples"), [("images", UNKNOWN), ("nested_tensors", 8)])
def test_tensors_of_one_sample_each_are_not_taken_for_a_batch(
    boundaries: Callable[[str], Ring], case: str, samples: int
) -> None:
    assert {record.samples for record in boundaries(case).records} == {samples}


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
        (
            {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_SIZE": "2"},  # DeepSpeed's
            (3, 1, 4, 2),
            "environment",
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
    ("variables", "local"),
    [
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (-1, -1)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8"}, (1, -1)),
        (
            {
                "WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
            },
            (-1, -1),
        ),
        ({"LOCAL_RANK": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (1, -1)),
    ],
)
def test_spawned_ranks_have_no_local_rank_of_the_task_that_spawns_them(
    environment: pytest.MonkeyPatch, variables: dict[str, str], local: tuple[int, int]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert rankscope_probe._identity(FakeDistributed())[1::2] == local


@pytest.mark.parametrize(
    ("variables", "job_id"),
    [
        ({"RANKSCOPE_JOB_ID": "team-a/llm", "SLURM_JOB_ID": "7"}, "team-a/llm"),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "abc"}, "7"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, "7"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "8"}, "7.2"),
        # launchers of one program, each a step of its own
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "1"}, "7"),
        # an interactive shell
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "8"}, "7"),
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


@pytest.mark.parametrize(
    ("method", "everywhere"),
    [
        ("tcp://10.0.0.1:29500?rank=3", True),
        ("tcp://127.0.0.1:29500", False),
        ("tcp://localhost:29500", False),
        ("file:///tmp/meeting", False),
        ("env://", False),
    ],
)
def test_ranks_that_meet_at_an_address_share_a_job_on_all_nodes(
    environment: pytest.MonkeyPatch, method: str, everywhere: bool
) -> None:
    here = rankscope_probe._job_id(8, method)
    assert here != rankscope_probe._job_id(8, method.replace("29500", "29501") + "2")
    environment.setattr(os, "getppid", lambda: 1)
    assert (rankscope_probe._job_id(8, method) == here) == everywhere
    # the same as of ranks that are told by MASTER_ADDR and MASTER_PORT, see above
    assert (here == "local/619f6a07") == everywhere


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
