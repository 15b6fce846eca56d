"""Injection beside what else a program may bring: other extensions, start-up code, debuggers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probe_jobs.fresh_start import TRAIN
from probe_jobs.nurseries import Nursery
from probe_jobs.running import PROBE, Outcome, read_only_ring, read_rings, run_script


def path_with(*folders: Path) -> str:
    return os.pathsep.join(map(str, (PROBE, *folders)))


@pytest.fixture
def broken_extension(tmp_path: Path) -> Path:
    """Give a folder with an installed package whose entry point for torch raises."""
    folder = tmp_path / "site"
    information = folder / "broken_backend-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-backend\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[torch.backends]\nbroken_backend = broken_backend:load\n"
    )
    (folder / "broken_backend.py").write_text("def load(): raise OSError('no such device')\n")
    return folder


def train_after(bare_nursery: Nursery, folder: Path, code: str) -> Outcome:
    """Train in a process that does something else first, whose torch has loaded no extension."""
    (folder / "job.py").write_text(code + TRAIN)
    (ended,) = bare_nursery.run(folder / "rings", str(folder / "job.py"), finalized=True)
    return ended


def train_extended(bare_nursery: Nursery, folder: Path, **extra: str) -> Outcome:
    """Train in a process whose torch loads what extends it, as the end of its import does."""
    (folder / "job.py").write_text(TRAIN)
    command = ["loaded.py", str(folder / "job.py")]
    (ended,) = bare_nursery.run(folder / "rings", *command, finalized=True, **extra)
    return ended


def test_another_packages_broken_extension_is_blamed_as_without_the_probe(
    bare_nursery: Nursery, tmp_path: Path, broken_extension: Path
) -> None:
    """torch then refuses to be imported, and nothing may hide the reason or add to it."""
    paths = (path_with(broken_extension), str(broken_extension))
    ways = [train_extended(bare_nursery, tmp_path, PYTHONPATH=path) for path in paths]
    for ended in ways:
        assert (ended.code, ended.output) == (1, "")
        assert "no such device" in ended.errors
        assert "rankscope" not in ended.errors
    assert len({ended.errors.splitlines()[-1] for ended in ways}) == 1


def test_another_packages_broken_extension_is_no_matter_where_torch_loads_none(
    bare_nursery: Nursery, tmp_path: Path, broken_extension: Path
) -> None:
    code = f"import sys\nsys.path.insert(0, {str(broken_extension)!r})\n"
    code += "import rankscope_probe\nrankscope_probe.watch()\n"
    ended = train_after(bare_nursery, tmp_path, code)
    assert (ended.code, ended.output, ended.errors) == (0, "trained False\n", "")
    assert len(read_only_ring(tmp_path / "rings").records) == 5


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    """As torch is imported by a fresh process, which loads the probe."""
    user = tmp_path / "user"
    user.mkdir()
    (user / "sitecustomize.py").write_text("print('customized')\n")
    ended = run_script(["-c", TRAIN], tmp_path / "rings", PYTHONPATH=path_with(user))
    assert (ended.code, ended.errors) == (0, "")
    assert ended.output == "customized\ntrained False\n"
    assert len(read_only_ring(tmp_path / "rings").records) == 5


@pytest.mark.parametrize("failure", ["raise SystemExit(3)", "import no_such_module"])
def test_a_probe_that_cannot_start_lets_torch_be_imported(
    bare_nursery: Nursery, tmp_path: Path, failure: str
) -> None:
    """Raise in the place where the probe meets a torch that it does not know."""
    code = (
        "import rankscope_probe, torch\n"
        f"def refuse(torch):\n {failure}\n"
        "rankscope_probe._Probe = refuse\n"
        "torch._import_device_backends()\n"
    )
    ended = train_after(bare_nursery, tmp_path, code)
    assert (ended.code, ended.output, ended.errors) == (0, "trained False\n", "")
    assert not (tmp_path / "rings").exists()


def train_with_older_torch(bare_nursery: Nursery, folder: Path, lacks: str) -> Outcome:
    """Train with a torch without something that newer ones have."""
    made = "import sys, torch, rankscope_probe\n" + lacks + "\nrankscope_probe.watch()\n"
    return train_after(bare_nursery, folder, made)


def test_torch_before_2_3_has_the_scaler_of_cuda_alone(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    lacks = "del torch.amp.GradScaler, torch.amp.grad_scaler"
    ended = train_with_older_torch(bare_nursery, tmp_path, lacks)
    assert (ended.code, ended.output, ended.errors) == (0, "trained False\n", "")
    assert len(read_only_ring(tmp_path / "rings").records) == 5


def test_torch_before_2_0_has_no_hook_of_all_optimizers_which_costs_one_line(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    lacks = "del sys.modules['torch.optim.optimizer'].register_optimizer_step_post_hook"
    ended = train_with_older_torch(bare_nursery, tmp_path, lacks)
    assert (ended.code, ended.output) == (0, "trained False\n")
    (said,) = ended.errors.splitlines()
    assert said.startswith("rankscope probe: ImportError: cannot import name 'register_optimizer_")
    assert not (tmp_path / "rings").exists()


def test_hidden_gpus_are_left_alone(bare_nursery: Nursery, tmp_path: Path) -> None:
    ended = train_extended(bare_nursery, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert (ended.code, ended.output, ended.errors) == (0, "trained False\n", "")
    assert len(read_only_ring(tmp_path / "rings").records) == 5


def test_training_beside_a_worker_server_of_its_own_ends_well(
    nursery: Nursery, tmp_path: Path
) -> None:
    """The modules of torch's debugger abort the process at its end once they are imported."""
    (ended,) = nursery.run(tmp_path, "children.py", "debugged", finalized=True)
    assert ended.code == 0
    assert ended.output == "serving True True imported []\n"
    assert len(read_only_ring(tmp_path).records) == 4


def test_a_process_that_becomes_another_program_leaves_its_records(
    nursery: Nursery, tmp_path: Path
) -> None:
    (ended,) = nursery.run(tmp_path, "children.py", "exec", finalized=True)
    assert (ended.code, ended.output) == (0, "another program\n")
    (ring,) = read_rings(tmp_path)
    assert (len(ring.records), ring.held) == (4, False)
