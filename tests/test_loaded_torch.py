"""Of all processes that are given the probe, those that have loaded PyTorch are waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from installed import skip_without
from listed_processes import JAX, NOW, PYTHON, TORCH, Proc
from rankscope_agent.sources.pods.loaded_torch import read_chunks, runs_torch
from rankscope_agent.sources.pods.process_scan import ProcessScanner

RINGS = Path("/run/rankscope")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


TASK = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4"}
TASK |= {"SLURM_JOB_ID": "77", "PYTHONPATH": "/opt/rankscope/probe"}


def probed(proc, seconds, scans=1):
    """Return whether each rank counts as started with the probe, these seconds after its start."""
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS, lambda: NOW + seconds)
    found = [[rank.probed for rank in scanner.scan().ranks] for _ in range(scans)]
    return found[-1]


@pytest.mark.parametrize(
    ("seconds", "libraries", "waited_for"),
    [
        (59.0, (), True),  # it may still be importing
        (60.0, (PYTHON, TORCH), True),
        (60.0, ("/usr/lib/libmpi.so.40",), False),
        (60.0, (PYTHON, JAX, TORCH), False),  # a loader of PyTorch's, and steps of JAX's
    ],
)
def test_of_tasks_that_all_have_the_probe_on_their_path_those_with_pytorch_are_waited_for(
    proc, seconds, libraries, waited_for
):
    """Programs of MPI and JAX were called hung after ten minutes, as no step of them is seen."""
    proc.add(20, "0::/system.slice/slurmstepd.scope/job_77", **TASK)
    proc.map(20, *libraries)
    assert probed(proc, seconds) == [waited_for]


def test_a_trainer_behind_a_shell_is_waited_for(proc):
    for pid, libraries in ((20, ("/usr/bin/bash",)), (21, (PYTHON, TORCH)), (22, (PYTHON,))):
        proc.add(pid, "0::/user.slice", **TASK)
        proc.map(pid, *libraries)
    assert probed(proc, 700.0) == [True]


def test_a_program_that_imports_pytorch_late_is_waited_for_from_then_on(proc):
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS, lambda: NOW + 700.0)
    proc.add(20, "0::/user.slice", **TASK)
    proc.map(20, PYTHON)
    assert [rank.probed for rank in scanner.scan().ranks] == [False]
    proc.map(20, *[PYTHON] * 4000, TORCH)
    assert [rank.probed for _ in range(6) for rank in scanner.scan().ranks][-1]
    (proc.path / "20" / "maps").unlink()  # it is read once
    assert [rank.probed for _ in range(6) for rank in scanner.scan().ranks] == [True] * 6


def test_of_the_programs_of_a_whole_node_64_are_looked_at_in_a_scan(proc):
    for pid in range(100, 170):
        proc.add(pid, "0::/user.slice", **TASK, RANK=str(pid), WORLD_SIZE="999")
        proc.map(pid, TORCH)
    assert sum(probed(proc, 700.0)) == 64
    assert sum(probed(proc, 700.0, scans=2)) == 70


def test_the_name_of_a_library_is_found_wherever_a_reading_ends():
    text = f"{PYTHON}\n{TORCH}\n".encode()
    assert all(runs_torch([text[:end], text[end:]]) for end in range(len(text)))


def test_a_real_program_has_loaded_pytorch_once_it_has_imported_it():
    skip_without("torch", "what PyTorch's libraries are called shows where it is installed")
    code = "import time; {}; print(flush=True); time.sleep(60)"
    for imported in ("import torch", "import json"):
        command = [sys.executable, "-c", code.format(imported)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            try:
                assert runs_torch(read_chunks(Path(f"/proc/{child.pid}/maps"))) == (
                    imported == "import torch"
                )
            finally:
                child.kill()
