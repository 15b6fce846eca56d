"""The probe harms no training: each test runs real training processes and looks at their end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from probe_jobs.fresh_start import TRAIN
from probe_jobs.nurseries import Nursery
from probe_jobs.running import (
    JOBS,
    PROBE,
    WALL,
    Outcome,
    read_only_ring,
    read_rings,
    run_script,
)
from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_agent.sources.training.reader import RingStepSource

STEPS = 12


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give what a training prints whose probe is switched off before its first step."""
    directory = tmp_path_factory.mktemp("unused") / "rings"
    (ended,) = nursery.run(directory, "steps.py", str(STEPS), "break-ring", finalized=True)
    assert ended.output.startswith("weights")
    return ended.output


def train(nursery: Nursery, directory: Path, *mischief: str) -> Outcome:
    (ended,) = nursery.run(directory, "steps.py", str(STEPS), *mischief, finalized=True)
    return ended


def test_directory_is_made_and_no_agent_is_needed(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    ended = train(nursery, tmp_path / "not" / "there")
    assert (ended.code, ended.output, ended.errors) == (0, undisturbed, "")
    ring = read_only_ring(tmp_path / "not" / "there")
    assert len(ring.records) == STEPS - 1
    assert not ring.held
    assert ring.path.stat().st_mode & 0o777 == 0o644


def test_file_in_the_directorys_place_costs_one_line(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = train(nursery, tmp_path / "file")
    assert (ended.code, ended.output) == (0, undisturbed)
    (line,) = ended.errors.splitlines()
    assert str(tmp_path / "file") in line


def test_unwritable_directory_costs_one_line(nursery: Nursery, undisturbed: str) -> None:
    ended = train(nursery, Path("/proc/self/rings"))  # not even root makes a directory there
    assert (ended.code, ended.output) == (0, undisturbed)
    assert len(ended.errors.splitlines()) == 1


def test_full_directory_costs_one_line_and_leaves_no_file(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        ended = train(nursery, tmp_path)
        left = list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (ended.code, ended.output, left) == (0, undisturbed, [])
    assert "No space left" in ended.errors


def test_truncated_ring_does_not_kill_its_writer(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    ended = train(nursery, tmp_path, "truncate")
    assert (ended.code, ended.output, ended.errors) == (0, undisturbed, "")


def test_unlinked_ring_does_not_disturb_its_writer(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    ended = train(nursery, tmp_path, "unlink")
    assert (ended.code, ended.output, ended.errors) == (0, undisturbed, "")
    assert read_rings(tmp_path) == []


def test_ring_closed_by_the_program_costs_one_line(
    nursery: Nursery, undisturbed: str, tmp_path: Path
) -> None:
    ended = train(nursery, tmp_path, "close")
    assert (ended.code, ended.output) == (0, undisturbed)
    assert len(ended.errors.splitlines()) == 1
    assert len(read_rings(tmp_path)) == 2


@pytest.mark.parametrize("broken", ["break-ring", "break-hook"])
def test_error_in_the_probe_costs_one_line(
    nursery: Nursery, undisturbed: str, tmp_path: Path, broken: str
) -> None:
    ended = train(nursery, tmp_path, broken)
    assert (ended.code, ended.output) == (0, undisturbed)
    (line,) = ended.errors.splitlines()
    assert "raised on purpose" in line


def test_debugging_shows_every_traceback(nursery: Nursery, tmp_path: Path) -> None:
    (ended,) = nursery.run(
        tmp_path, "steps.py", str(STEPS), "break-hook", RANKSCOPE_PROBE_DEBUG="1", finalized=True
    )
    assert ended.code == 0
    assert ended.errors.count("Traceback") == STEPS // 2


def test_hook_that_always_fails_is_given_up(nursery: Nursery, tmp_path: Path) -> None:
    (ended,) = nursery.run(
        tmp_path, "steps.py", "300", "break-hook", RANKSCOPE_PROBE_DEBUG="1", finalized=True
    )
    assert ended.code == 0
    assert ended.errors.count("Traceback") == 100


@pytest.mark.parametrize("kind", ["error", "hook"])
def test_exception_of_the_training_code_ends_it_as_ever(
    nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    ended = train(nursery, tmp_path, kind)
    assert ended.code == 1
    assert ended.errors.splitlines()[-1].endswith("UserError: raised on purpose")
    assert len(read_only_ring(tmp_path).records) >= STEPS // 2 - 1


def test_of_losses_that_an_iterator_gives_none_is_lost(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(tmp_path, "iterated.py", ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2


def test_killed_process_leaves_its_records_and_no_lock(nursery: Nursery, tmp_path: Path) -> None:
    assert train(nursery, tmp_path, "kill").code == -9
    ring = read_only_ring(tmp_path)
    assert len(ring.records) == STEPS // 2 - 1
    assert not ring.held
    rows = RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-07").steps(None, 0.0)
    places = [STEP_COLUMNS.index(name) for name in ("other_seconds", "microbatches")]
    last = [[row[place] for place in places] for row in rows]
    assert last == [[None, None]] * len(ring.records)  # not written yet, which is not zero


@pytest.mark.parametrize("method", ["fork-workers", "spawn-workers", "forkserver-workers"])
def test_loader_workers_make_no_rings(nursery: Nursery, tmp_path: Path, method: str) -> None:
    (ended,) = nursery.run(tmp_path, "children.py", method, finalized=True)
    assert (ended.code, ended.errors) == (0, "")
    assert len(read_only_ring(tmp_path).records) == 9


def test_forked_child_that_trains_has_its_own_ring(nursery: Nursery, tmp_path: Path) -> None:
    (ended,) = nursery.run(tmp_path, "children.py", "fork", finalized=True)
    assert (ended.code, ended.errors) == (0, "")
    assert sorted(len(ring.records) for ring in read_rings(tmp_path)) == [4, 6]


@pytest.mark.parametrize("way", ["processes", "context"])
def test_process_that_waits_for_the_ranks_it_has_started_is_none(
    nursery: Nursery, tmp_path: Path, way: str
) -> None:
    """It took steps before, as a test: it would look hung while they train."""
    (ended,) = nursery.run(tmp_path, "launching.py", way)
    assert (ended.code, ended.errors, ended.output) == (0, "", "free\nfree\n")
    records = sorted(len(ring.records) for ring in read_rings(tmp_path) if ring.world_size == 1)
    assert records == [2, 4]


@pytest.mark.parametrize("way", ["processes", "context"])
def test_process_that_waits_for_others_than_ranks_stays_one(
    nursery: Nursery, tmp_path: Path, way: str
) -> None:
    (ended,) = nursery.run(tmp_path, "launching.py", way, "idle")
    assert (ended.code, ended.errors, ended.output) == (0, "", "held\nheld\n")
    assert len(read_only_ring(tmp_path).records) == 7


def test_exit_during_a_collective_is_clean(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "exit", ranks=2, finalized=True)
    assert [ended.code for ended in outcomes] == [0, 0]
    assert [len(ring.records) for ring in read_rings(tmp_path)] == [9, 9]


def test_process_groups_are_destroyed_when_gloos_threads_need_the_interpreter_no_more(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Both wait for ever if the one that destroys them holds the interpreter's lock."""
    outcomes = nursery.run(tmp_path, "distributed.py", "busy", ranks=2, finalized=True)
    assert [ended.code for ended in outcomes] == [0, 0]
    assert outcomes[0].output == "let go\ndestroyed\n"


def test_a_limit_on_threads_costs_the_flight_recorder_and_not_the_rank(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Torch's worker server ends the process if it cannot start one of its threads."""
    (ended,) = nursery.run(tmp_path, "serving.py", "full")
    assert (ended.code, ended.output) == (0, "trains 2.0 False True\n")
    (line,) = ended.errors.splitlines()
    assert "no room for more threads; the Flight Recorder may go unseen" in line


def test_a_server_beside_the_rank_leaves_its_signals_as_they_are(
    nursery: Nursery, tmp_path: Path
) -> None:
    (ended,) = nursery.run(tmp_path, "serving.py", "roomy")
    assert (ended.code, ended.output, ended.errors) == (0, "trains 2.0 True True\n", "")
    assert ended.served


def test_killed_ranks_leave_their_records(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(tmp_path, "distributed.py", "killed", ranks=2, finalized=True)
    assert [ended.code for ended in outcomes] == [-9, -9]
    assert [(len(ring.records), ring.held) for ring in read_rings(tmp_path)] == [(9, False)] * 2


def test_collectives_are_left_alone_on_request(nursery: Nursery, tmp_path: Path) -> None:
    outcomes = nursery.run(
        tmp_path, "distributed.py", "tidy", ranks=2, RANKSCOPE_PROBE_COLLECTIVES="0", finalized=True
    )
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2
    for ring in read_rings(tmp_path):
        for record in ring.records:
            assert (record.compute_ns, record.sync_ns, record.flags & 3) == (-1, -1, 0)


def test_compiling_breaks_no_more_and_traces_no_more_than_without_the_probe(
    nursery: Nursery, bare_nursery: Nursery, tmp_path: Path
) -> None:
    """Wrapped models break anyway; more breaks or warnings would come from tracing the probe."""
    expected = bare_nursery.run(
        tmp_path / "off", "distributed.py", "compiled", ranks=2, finalized=True
    )
    outcomes = nursery.run(tmp_path / "on", "distributed.py", "compiled", ranks=2, finalized=True)
    assert [ended.code for ended in (*expected, *outcomes)] == [0] * 4
    assert [ended.output for ended in outcomes] == [ended.output for ended in expected]
    assert "rankscope" not in "".join(ended.output + ended.errors for ended in outcomes)
    for what in ("bare", "functional"):
        assert f"{what} breaks 0 frames 0 graphs 1 calls " in outcomes[0].output
    assert [len(ring.records) for ring in read_rings(tmp_path / "on")] == [9] * 2
    assert not (tmp_path / "off").exists()


def test_injection_keeps_the_users_path_and_variables(nursery: Nursery, tmp_path: Path) -> None:
    """Fork the launcher; its ranks are fresh processes, which find everything for themselves."""
    user = tmp_path / "user"
    user.mkdir()
    (user / "user_module.py").write_text("WORD = 'hello'\n")
    (user / "sitecustomize.py").write_text("import gc\ngc.disable()  # a start takes less time\n")
    job = str(JOBS / "distributed.py")
    meeting = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
    (ended,) = nursery.run(
        tmp_path / "rings",
        *("torchrun.py", "--nproc-per-node=2", *meeting, job, "torchrun"),
        PYTHONPATH=os.pathsep.join([str(PROBE), str(user)]),
        POD_UID="0a1b-uid",
        NODE_NAME="node 7",
    )
    assert ended.code == 0, ended.errors
    assert ended.output.count("user module says hello") == 2
    rings = read_rings(tmp_path / "rings")
    assert [ring.rank for ring in rings] == [0, 1]
    for ring in rings:
        assert (ring.local_rank, ring.world_size, ring.local_world_size) == (ring.rank, 2, 2)
        assert (ring.launcher, ring.pod_uid, ring.node) == ("torchrun", "0a1b-uid", "node_7")
        assert all(record.flags & 3 == WALL for record in ring.records)
    assert len({ring.job_id for ring in rings}) == 1


FOUND = """
from importlib.metadata import entry_points
print("rankscope" in entry_points(group="torch.backends").names)
"""


@pytest.mark.parametrize(("options", "found"), [([], True), (["-I"], False), (["-E"], False)])
def test_torch_finds_no_probe_where_python_heeds_no_variables(
    tmp_path: Path, options: list[str], found: bool
) -> None:
    """Ask in torch's way for what extends it: what it does not find it trains without."""
    ended = run_script([*options, "-c", FOUND], tmp_path / "rings")
    assert (ended.code, ended.output, ended.errors) == (0, f"{found}\n", "")


@pytest.mark.parametrize(
    ("command", "variables"), [([], {}), (["loaded.py"], {"RANKSCOPE_PROBE": "0"})]
)
def test_training_runs_where_the_probe_does_not(
    bare_nursery: Nursery, tmp_path: Path, command: list[str], variables: dict[str, str]
) -> None:
    """Have torch load no extension, or the probe while it is switched off."""
    job = tmp_path / "job.py"
    job.write_text(TRAIN)
    (ended,) = bare_nursery.run(tmp_path / "rings", *command, str(job), finalized=True, **variables)
    assert (ended.code, ended.output, ended.errors) == (0, "trained False\n", "")
    assert not (tmp_path / "rings").exists()
