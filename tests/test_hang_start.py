"""Real processes that wait to be joined after a restart: who is not there is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from installed import skip_without
from rankscope_analyzers import cli
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.demo.probe_folder import probe_folder
from rankscope_analyzers.layers import hang
from running_agent import PATIENCE_SECONDS, running_agent

skip_without("torch", "the end-to-end tests train with PyTorch")

SCRIPT = Path(__file__).parent / "foreign_jobs" / "hanging.py"
SIZE, ABSENT = 4, 2
IMPORTING = "import time; time.sleep(600)"
"""What ranks 1 and 3 run: they have come no further than their imports, which take a second each.
Rank 0 waits for all of them in init_process_group."""


def started(rings, rank, port):
    """Start one rank of a job's second attempt, as a launcher on its node does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, *([str(SCRIPT)] if rank == 0 else ["-c", IMPORTING])],
        env={
            **kept,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(SIZE),
            "LOCAL_WORLD_SIZE": str(SIZE),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RESTART_COUNT": "1",
            "RANKSCOPE_RING_DIR": str(rings),
            "RANKSCOPE_JOB_ID": "team/again",
            "PYTHONPATH": str(probe_folder()),
            "OMP_NUM_THREADS": "1",
        },
        stderr=subprocess.DEVNULL,
    )


def test_ranks_that_do_not_come_back_after_a_restart_are_named(tmp_path, capsys, monkeypatch):
    """Before init_process_group ends there are processes alone: no ring, no recorder, no stack."""
    monkeypatch.setattr(hang, "START_SECONDS", 5.0)
    port = free_port()
    (tmp_path / "rings").mkdir()
    ranks = [started(tmp_path / "rings", rank, port) for rank in range(SIZE) if rank != ABSENT]
    found = {}
    try:
        with running_agent(tmp_path, "--collector.interval=0.5") as agent:
            deadline = time.monotonic() + 2 * PATIENCE_SECONDS
            asked = ["diagnose", "--agent", agent.url, "--job", "team/again", "--json"]
            while time.monotonic() < deadline and found.get("class") != "hang":
                time.sleep(0.5)
                if cli.main([*asked, "--hang-after", "0.5s"]) == 0:
                    found = json.loads(capsys.readouterr().out)["team/again"]["verdict"]
                capsys.readouterr()
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert found["class"] == "hang"
    assert found["ranks"] == [ABSENT]
    assert found["summary"].startswith("no step since the processes of ranks 0, 1, 3 were started")
    assert f"no process with the probe is seen of rank {ABSENT}" in found["summary"]
