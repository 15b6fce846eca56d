"""Of all processes that are given the probe, those that have loaded it are waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from installed import skip_without
from listed_processes import JAX, LIBRARIES, NOW, PROBE, PYTHON, TORCH, Proc
from rankscope_agent.sources.pods.loaded_probe import names_probe, read_chunks
from rankscope_agent.sources.pods.process_scan import ProcessScanner
from rankscope_analyzers.demo.probe_folder import probe_folder

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
        (60.0, (PYTHON, PROBE), True),
        (60.0, ("/usr/lib/libmpi.so.40",), False),
        (60.0, (PYTHON, TORCH), False),  # of a version that loads nothing by itself
        (60.0, (PYTHON, JAX, TORCH, PROBE), False),  # a loader of PyTorch's, and steps of JAX's
    ],
)
def test_of_tasks_that_all_have_the_probe_on_their_path_those_that_load_it_are_waited_for(
    proc, seconds, libraries, waited_for
):
    """Programs of MPI and JAX were called hung after ten minutes, as no step of them is seen."""
    proc.add(20, "0::/system.slice/slurmstepd.scope/job_77", **TASK)
    proc.map(20, *libraries)
    assert probed(proc, seconds) == [waited_for]


@pytest.mark.parametrize(("seconds", "waited_for"), [(59.0, False), (60.0, True)])
def test_a_trainer_whose_probe_pip_installed_is_waited_for_too(proc, seconds, waited_for):
    proc.add(20, "0::/user.slice", **TASK | {"PYTHONPATH": ""})
    proc.map(20, PYTHON, TORCH, f"{LIBRARIES}/rankscope_probe.py")
    assert probed(proc, seconds) == [waited_for]


def test_a_trainer_behind_a_shell_is_waited_for(proc):
    for pid, libraries in ((20, ("/usr/bin/bash",)), (21, (PYTHON, PROBE)), (22, (PYTHON,))):
        proc.add(pid, "0::/user.slice", **TASK)
        proc.map(pid, *libraries)
    assert probed(proc, 700.0) == [True]


@pytest.mark.parametrize(("first", "again"), [(60.0, 120.0), (700.0, 1300.0)])
def test_a_program_that_loads_the_probe_late_is_waited_for_from_then_on(proc, first, again):
    now = [NOW + first]
    scanner = ProcessScanner(proc.path, lambda _: {}, RINGS, lambda: now[-1])

    def look(after):
        now.append(NOW + after)
        return [rank.probed for rank in scanner.scan().ranks]

    proc.add(20, "0::/user.slice", **TASK)
    proc.map(20, PYTHON)
    assert look(first) == [False]
    proc.map(20, *[PYTHON] * 4000, PROBE)
    assert [look(again - 1.0), look(again)] == [[False], [True]]
    (proc.path / "20" / "maps").unlink()  # it is read once
    assert look(9000.0) == [True]


def test_of_the_programs_of_a_whole_node_64_are_looked_at_in_a_scan(proc):
    for pid in range(100, 170):
        proc.add(pid, "0::/user.slice", **TASK, RANK=str(pid), WORLD_SIZE="999")
        proc.map(pid, PROBE)
    assert sum(probed(proc, 700.0)) == 64
    assert sum(probed(proc, 700.0, scans=2)) == 70


def test_the_name_of_a_library_is_found_wherever_a_reading_ends():
    text = f"{PYTHON}\n{PROBE}\n".encode()
    assert all(names_probe([text[:end], text[end:]]) for end in range(len(text)))


def test_a_real_program_names_the_probe_once_it_has_imported_pytorch():
    skip_without("torch", "its end of `import torch` loads the probe")
    code = "import time; {}; print(flush=True); time.sleep(60)"
    given = {**os.environ, "PYTHONPATH": str(probe_folder())}
    for imported, loaded, switch in (
        ("import torch", True, "1"),
        ("import torch", False, "0"),
        ("import json", False, "1"),
    ):
        command, variables = (
            [sys.executable, "-c", code.format(imported)],
            {"RANKSCOPE_PROBE": switch},
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=given | variables) as child:
            child.stdout.readline()
            try:
                maps = Path(f"/proc/{child.pid}/maps")
                assert names_probe(read_chunks(maps)) is loaded
                open_files = [str(one.readlink()) for one in (maps.parent / "fd").iterdir()]
                assert not [one for one in open_files if one.endswith(".py")]
            finally:
                child.kill()
